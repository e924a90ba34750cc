"""`blueque schedule add`, `set` and `preview`: make and change recurring tasks, and look ahead."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from datetime import UTC
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.failure import REFUSED, USAGE, Failure
from blueque.cli.input_lines import parameters_of
from blueque.cli.options import Invocation, json_option, shared_options
from blueque.cli.printing import Column
from blueque.cli.program import given
from blueque.cli.recurring import find_schedule
from blueque.cli.schedule_options import (
    LIMITS,
    POLICIES,
    REMOVABLE,
    RULE,
    by_option,
    policy_options,
    rule_options,
    task_options,
    with_bounds,
)
from blueque.cli.task_options import label_options, limit_options, needs, needs_options
from blueque.documents.schedules import item
from blueque.errors import InvalidInput, WrongSchedule
from blueque.model.schedule import differing
from blueque.sentences.recurring import have_seconds, outlook, whole, zone_of_rule
from blueque.text.hints import of_schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from blueque.client import Client
    from blueque.model.recurrence import Rule
    from blueque.model.schedule import Definition
    from blueque.producer.schedules import Schedule

_COLUMNS = [Column("PLANNED"), Column("DUE")]
_MOST = 1000  # planned times that `preview` prints


@click.command(short_help="Make a recurring task.")
@click.argument("name")
@task_options
@click.option("-q", "--queue", metavar="QUEUE", required=True, help="Where the tasks go.")
@rule_options
@policy_options
@needs_options
@label_options
@limit_options()
@click.option("--now", "is_now", is_flag=True, help="Make a task now, besides.")
@by_option
@json_option
@shared_options
def add(
    invocation: Invocation,
    /,
    name: str,
    queue: str,
    is_now: bool,
    by: str | None,
    as_json: bool,
    **_: Any,
) -> None:
    """Make a recurring task NAME: at each time of a rule, a task is put in a queue.

    \b
    blueque schedule add nightly '{"n": 1}' -q reports --cron '30 2 * * 1-5'
    blueque schedule add poll -q feeds --every 10m --overlap queue

    The input is as for blueque enqueue. A time of the rule that does not exist because summer time begins comes right
    after the gap; one that comes twice because it ends, comes once. Try a rule before: blueque schedule preview.

    It is refused, with exit code 5, if NAME exists: to change it, blueque schedule set.
    """
    client = invocation.client()
    options = _defining(_options)
    parameters = options.pop("parameters", None)
    try:
        schedule = _defining(
            lambda: client.set_schedule(
                name, queue=queue, parameters=parameters, only_new=True, by=by, **options
            )
        )
    except WrongSchedule as error:
        there = f"there is a schedule {name!r} already"
        raise Failure(REFUSED, there, f"To change it: {of_schedule('set', name)}") from error
    task = schedule.trigger(by=by) if is_now else None
    if as_json:
        _print_json(invocation, schedule, "new", (), task)
        return
    _say(invocation, schedule, "")
    if task is not None:
        click.echo(printing.clean(f"{name}  task {task} now"))
    if sys.stderr.isatty() and not client.get_inspector().listeners(queue):
        printing.talk(
            f"No listener serves {queue} yet, so its tasks wait. Start one: {invocation.serve(queue)}"
        )


@click.command("set", short_help="Change a recurring task.")
@click.argument("name", metavar="SCHEDULE")
@task_options
@click.option("-q", "--queue", metavar="QUEUE", help="Where the tasks go.")
@rule_options
@policy_options
@needs_options
@label_options
@limit_options()
@click.option(
    "--unset",
    multiple=True,
    type=click.Choice([name.replace("_", "-") for name in (*REMOVABLE, "resource")]),
    metavar="OPTION",
    help="Take an option back, as until or time-limit; several times for several.",
)
@by_option
@json_option
@shared_options
def set_schedule(
    invocation: Invocation,
    /,
    name: str,
    queue: str | None,
    unset: tuple[str, ...],
    by: str | None,
    as_json: bool,
    **_: Any,
) -> None:
    """Change a recurring task. What you do not give stays as it is.

    \b
    blueque schedule set nightly --cron '0 3 * * *' --unset until

    A change concerns what is planned from now on; tasks that are there stay as they are. It is refused, with exit code 5,
    if it comes from a file.
    """
    client = invocation.client()
    schedule = find_schedule(client, name)
    options = _defining(lambda: _options(schedule.rule))
    after = _changed(client, schedule, queue, options, unset)
    fields = differing(schedule.seen.fields, after.fields())
    change = _defining(lambda: schedule.set(after, by))
    if as_json:
        _print_json(invocation, schedule, change, fields, None)
        return
    what = f"{change}: {', '.join(fields)}; " if fields else f"{change}, "
    _say(invocation, schedule, what)


@click.command(short_help="Show at which times a recurring task comes.")
@click.argument("name", metavar="[SCHEDULE]", required=False)
@rule_options
@click.option(
    "-n",
    "number",
    type=click.IntRange(1, _MOST),
    metavar="N",
    default=10,
    show_default=True,
    help="How many times.",
)
@json_option
@shared_options
def preview(
    invocation: Invocation, /, name: str | None, number: int, as_json: bool, **_: Any
) -> None:
    """Show at which times a recurring task comes, or would come by a rule.

    \b
    blueque schedule preview nightly
    blueque schedule preview --cron '30 2 * * 1-5' --timezone Europe/Berlin -n 3

    Jitter is not included. A rule that you give is tried without Redis. Times that are past are not shown, also if they are
    undecided because nothing ran: blueque schedule show says so.
    """
    options = given(click.get_current_context())
    options = {key: value for key, value in options.items() if key in RULE}
    if name is None and not options:
        raise click.UsageError("give the name of a recurring task, or a rule: --cron or --every")
    if name is not None and options:
        raise click.UsageError("give the name of a recurring task or a rule, not both")
    now, is_paused = time.time(), False
    if name is None:
        rule, begin = _defining(lambda: _read_rule(options)), now
    else:
        schedule = find_schedule(invocation.client(), name)
        rule, begin, is_paused = schedule.rule, schedule.decided, schedule.is_paused
    times = list(islice(rule.times(begin), number))
    if as_json:
        items = [{**printing.times(planned=each), "in_seconds": each - now} for each in times]
        printing.print_json(
            "schedule_preview", rule=rule.text(), **printing.times(now=now), items=items
        )
        return
    if not times:
        printing.talk("Nothing comes any more.")
        return
    zone = UTC if invocation.is_utc else zone_of_rule(rule)
    is_exact = have_seconds(times)
    rows = [
        [whole(each, zone, to_the_second=is_exact), f"in {printing.span(each - now)}"]
        for each in times
    ]
    printing.print_table(_COLUMNS, rows)
    if is_paused:
        printing.talk(f"It is paused, and nothing comes until: {of_schedule('resume', name or '')}")


def _read_rule(options: Mapping[str, Any]) -> Rule:
    from blueque.model.recurrence import read_rule  # here: --help does without

    return read_rule(**with_bounds(options))


def _options(before: Rule | None = None) -> dict[str, Any]:
    """Return the arguments of `define` that the command line gives. before: the rule it changes."""
    context = click.get_current_context()
    options = given(context)
    found = {key: options[key] for key in (*RULE, *POLICIES, *LIMITS) if key in options}
    found |= {
        key: options[key]
        for key in ("keep", "priority", "retry", "title", "tags", "context")
        if key in options
    }
    wanted = needs(context.params["resources"], context.params["lock"])
    found |= {key: value for key, value in wanted.items() if value is not None}
    if "source" in options or "is_text" in options:
        found["parameters"] = parameters_of(context.params["source"], context.params["is_text"])
    return with_bounds(found, before)


def _changed(
    client: Client,
    schedule: Schedule,
    queue: str | None,
    options: Mapping[str, Any],
    unset: tuple[str, ...],
) -> Definition:
    """Return the definition of a schedule with other options."""
    from blueque.producer.queue import Queue  # here: --help does without
    from blueque.producer.schedules import define, given

    before = schedule.definition
    values = given(schedule.name, before)
    if "every" in options:
        values |= {"cron": None, "timezone": None}
    if "cron" in options:
        values |= {"every": None}
    values |= options
    for word in unset:
        option = "resources" if word == "resource" else word.replace("-", "_")
        if option in options:
            raise click.UsageError(f"--{word} is given and taken back")
        values.pop(option, None)
    # Without the settings of the queue in blueque.toml: what is not given stays as it is.
    name = before.queue if queue is None else client.get_queue(queue).name
    target = Queue(client.connections, name, client.max_bytes)
    return _defining(lambda: define(target, schedule.name, **values))


def _defining(act: Callable[[], Any]) -> Any:
    """Return what a function returns whose errors begin with the name of an option."""
    try:
        return act()
    except InvalidInput as error:
        key, separator, reason = str(error).partition(": ")
        if separator and key in (*RULE, *POLICIES, *LIMITS, "keep", "title", "tags", "context"):
            raise Failure(USAGE, f"--{key.replace('_', '-')}: {reason}") from error
        raise


def _say(invocation: Invocation, schedule: Schedule, what: str) -> None:
    words = what + outlook(schedule.refresh().seen, invocation.is_utc)
    click.echo(printing.clean(f"{schedule.name}  {words}"))


def _print_json(
    invocation: Invocation, schedule: Schedule, what: str, fields: Any, task: str | None
) -> None:
    shown = item(schedule.refresh().seen, invocation.hider(False))
    printing.print_json("recurring", item=shown, change=what, fields=list(fields), task=task)
