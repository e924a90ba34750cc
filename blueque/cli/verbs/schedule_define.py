"""`blueque schedule add`: make a recurring task, or replace one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.failure import REFUSED, USAGE, Failure
from blueque.cli.input_lines import parameters_of
from blueque.cli.options import Invocation, dry_run_option, shared_options
from blueque.cli.printing import Column
from blueque.cli.schedule_options import policy_options, rule_options, with_bounds
from blueque.cli.task_options import label_options, needs, needs_options, task_limit_options
from blueque.cli.unserved import warn_of_no_listener
from blueque.documents.schedules import item
from blueque.errors import InvalidInput, WrongSchedule
from blueque.model.schedule import Definition, differing, read_options
from blueque.sentences.recurring import have_seconds, outlook, whole, zone_of_rule
from blueque.text.hints import of_schedule

if TYPE_CHECKING:
    from blueque.model.recurrence import Rule
    from blueque.producer.queue import Queue
    from blueque.queries.schedules import ScheduleSeen

_COLUMNS = [Column("PLANNED"), Column("DUE")]
_SHOWN = 10  # planned times that --dry-run prints


@click.command(short_help="Make a recurring task, or replace one.")
@click.argument("name")
@click.argument("source", required=False, metavar="[JSON | @FILE | -]")
@click.option("-q", "--queue", metavar="QUEUE", required=True, help="Queue of the tasks.")
@rule_options
@policy_options
@needs_options
@label_options
@task_limit_options
@click.option(
    "--replace", "replaces", is_flag=True, help="Replace the recurring task of this name."
)
@dry_run_option
@shared_options
def add(
    invocation: Invocation,
    /,
    name: str,
    source: str | None,
    queue: str,
    replaces: bool,
    dry_run: bool,
    **options: Any,
) -> None:
    """Make a recurring task NAME: at each time of its rule, it puts a task in a queue.

    \b
    blueque schedule add nightly '{"n": 1}' -q reports --cron '30 2 * * 1-5'
    blueque schedule add poll -q feeds --every 10m --overlap queue

    The input is as for blueque enqueue; the default is null. A time that the start of summer time skips comes right
    after the gap; a time that its end repeats comes once. --dry-run shows the times of a rule, and needs no Redis.

    If NAME exists, the exit code is 5. --replace replaces it: options that you leave out get their defaults, and the
    history stays. Tasks that are already there stay as they are. Change a recurring task that comes from a file in
    that file. A file has more options: see blueque schedule apply.
    """
    client = invocation.client()
    values = _defining(lambda: _values(source, options))
    if dry_run:
        _preview(invocation, _rule(client.get_queue(queue), name, values))
        return
    before = _seen(invocation, name)
    try:
        seen = _defining(
            lambda: client.set_schedule(
                name, queue=queue, only_new=not replaces, by=invocation.by, **values
            )
        ).seen
    except WrongSchedule as error:
        if replaces:
            raise
        raise _is_there(name) from error
    change, fields = _change(before, seen)
    if invocation.as_json:
        printing.print_json(
            "recurring", item=item(seen, invocation.hider(False)), change=change, fields=fields
        )
        return
    what = {"new": "", "same": "same, "}.get(change, f"{change}: {', '.join(fields)}; ")
    click.echo(printing.clean(f"{name}  {what}{outlook(seen, invocation.is_utc)}"))
    if before is not None and (reset := _reset(before, seen, fields, values)):
        printing.talk(f"Not given, and now at the default: {', '.join(reset)}")
    if sys.stderr.isatty():
        warn_of_no_listener(invocation, client, queue, "its tasks wait")


def _is_there(name: str) -> Failure:
    return Failure(
        REFUSED,
        f"there is a schedule {name!r} already",
        f"See it: {of_schedule('show', name)}",
        "To replace it: --replace, with all of its options; what is left out has its default then.",
    )


def _rule(queue: Queue, name: str, values: Mapping[str, Any]) -> Rule:
    from blueque.producer.schedules import define  # here: --help does not need it

    return _defining(lambda: define(queue, name, **values)).rule


def _preview(invocation: Invocation, rule: Rule) -> None:
    """Print the next planned times of a rule."""
    now = time.time()
    times = list(islice(rule.times(now), _SHOWN))
    if invocation.as_json:
        items = [{**printing.times(planned=each), "in_seconds": each - now} for each in times]
        printing.print_json(
            "schedule_preview", rule=rule.text(), **printing.times(now=now), items=items
        )
        return
    if not times:
        printing.talk("It would make no more tasks.")
        return
    zone, is_exact = UTC if invocation.is_utc else zone_of_rule(rule), have_seconds(times)
    rows = [
        [whole(each, zone, to_the_second=is_exact), f"in {printing.span(each - now)}"]
        for each in times
    ]
    printing.print_table(_COLUMNS, rows)


def _values(source: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `define` that the command line gives."""
    wanted = needs(options["resources"], options["lock"])
    others = {name: value for name, value in options.items() if name not in wanted}
    found = {key: value for key, value in (others | wanted).items() if value not in (None, ())}
    if source is not None:
        found["parameters"] = parameters_of(source, is_text=False)
    return with_bounds(found)


def _seen(invocation: Invocation, name: str) -> ScheduleSeen | None:
    from blueque.queries import schedules  # here: --help does not need it

    return schedules.load(invocation.client().connections, name)


def _change(before: ScheduleSeen | None, after: ScheduleSeen) -> tuple[str, list[str]]:
    """Return `new`, `changed` or `same`, and the names of what has changed."""
    if before is None:
        return "new", []
    fields = list(differing(before.fields, Definition.of(after.fields).fields()))
    return "changed" if fields else "same", fields


def _reset(
    before: ScheduleSeen, after: ScheduleSeen, changed: Sequence[str], given: Mapping[str, Any]
) -> list[str]:
    """Return what has its default again because it was not given: `priority 5 -> default`."""
    was, new = ({**read_options(each.fields), **each.fields} for each in (before, after))
    return [
        name if name == "parameters" else f"{name} {was[name]} -> {new.get(name, 'default')}"
        for name in changed
        if name in was and name not in ("queue", "cron", "every") and not _is_given(name, given)
    ]


def _is_given(name: str, given: Mapping[str, Any]) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return name in given and source is not click.core.ParameterSource.DEFAULT


def _defining(act: Callable[[], Any]) -> Any:
    """Return what a function returns whose errors begin with the name of an option."""
    try:
        return act()
    except InvalidInput as error:
        key, separator, reason = str(error).partition(": ")
        options = {
            param.name: param.opts[0] for param in click.get_current_context().command.params
        }
        if separator and key in options:
            raise Failure(USAGE, f"{options[key]}: {reason}") from error
        raise
