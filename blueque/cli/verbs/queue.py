"""`blueque queue`: list, show, set, pause, resume and forget queues."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.advice import like
from blueque.cli.consent import require_consent
from blueque.cli.failure import REFUSED, USAGE, Failure
from blueque.cli.named import queues_matching, queues_to_be
from blueque.cli.noun import Noun
from blueque.cli.options import Invocation, reason_option, shared_options, yes_option
from blueque.cli.printing import Column, count, number_columns
from blueque.cli.setting_text import given_settings
from blueque.documents.orders import of_gates, of_queue_show
from blueque.documents.status import of_queues
from blueque.errors import InvalidInput
from blueque.model.encoding import require_queue_name
from blueque.model.states import FINISHED, STATUSES, WAITING
from blueque.settings.file import check_setting, require_setting
from blueque.text.hints import of_queue

if TYPE_CHECKING:
    from blueque.queries.inspector import Inspector
    from blueque.queries.queue_overview import QueueOverview

_COLUMNS = [
    Column("QUEUE", can_shrink=True),
    *number_columns("SCHED", "PEND", "RUN", "FAIL", "LISTENERS", "MAY RUN"),
    Column("STATE", can_shrink=True),
]
_BLOCKED = Column("BLOCKED", True)  # only where there are any
_SETTINGS = [Column("QUEUE", can_shrink=True), Column("NAME"), Column("VALUE", can_shrink=True)]

_DELETABLE = (*WAITING, "blocked", *FINISHED)

_queues_argument = click.argument("patterns", nargs=-1, required=True, metavar="QUEUE...")


@click.group(cls=Noun)
def queue() -> None:
    """List queues, and change how their tasks run. Without a verb it is `blueque queue ls`."""


@queue.command("ls", short_help="List the queues.")
@shared_options
def list_queues(invocation: Invocation) -> None:
    """List all queues: waiting and running tasks, listeners, limits and pauses."""
    lines = invocation.client().get_inspector().overview().lines
    if invocation.as_json:
        printing.print_json("queues", **of_queues(lines))
    elif lines:
        has_blocked = any(line.counts.blocked for line in lines)
        columns = [*_COLUMNS[:1], *([_BLOCKED] if has_blocked else []), *_COLUMNS[1:]]
        printing.print_table(columns, [_row(line, has_blocked) for line in lines])
    else:
        printing.talk("no queues")


def _row(line: QueueOverview, has_blocked: bool) -> list[str]:
    blocked = (line.counts.blocked,) if has_blocked else ()
    counts = (
        *blocked,
        line.counts.scheduled,
        line.counts.pending,
        line.running,
        line.counts.failed,
        line.listeners,
    )
    return [
        line.queue,
        *map(str, counts),
        "-" if line.settings.max_running is None else str(line.settings.max_running),
        "open" if line.settings.pause is None else f"paused by {line.settings.pause.by}",
    ]


@queue.command("show", short_help="Show pause and settings of a queue.")
@click.argument("pattern", metavar="QUEUE")
@shared_options
def show_queue(invocation: Invocation, pattern: str) -> None:
    """Show pause and settings of a queue, as they are in Redis.

    \b
    blueque queue show video.encode

    `blueque config -q QUEUE` shows the values in effect on this host.
    """
    inspector = invocation.client().get_inspector()
    content = of_queue_show(inspector, _queues_there(inspector, [pattern]))
    if invocation.as_json:
        printing.print_json("queue_show", **content)
        return
    rows = [[item["queue"], *facts] for item in content["items"] for facts in _facts(item)]
    printing.print_table(_SETTINGS, rows)


def _facts(item: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    why = f": {item['paused_reason']}" if item["paused_reason"] else ""
    yield "paused", f"by {item['paused_by'] or 'an unknown user'}{why}" if item["paused"] else "no"
    yield "running", str(item["running"])
    yield "pending", str(item["pending"])
    for name, value in item["settings"].items():
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _assigned(setting: tuple[str, Any]) -> str:
    """Return a setting as it is given: `max-running=8`, or `time_limit=`, which removes it."""
    name, value = setting
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    name = name.replace("max_", "max-")
    return f"{name}={'' if value is None else text}"


@queue.command("set", short_help="Set defaults for the tasks of a queue, on all hosts.")
@click.argument("pattern", metavar="QUEUE")
@click.argument("words", metavar="NAME=[VALUE]...", nargs=-1, required=True)
@shared_options
def set_settings(invocation: Invocation, pattern: str, words: Sequence[str]) -> None:
    """Set defaults for the tasks of a queue, on all hosts. NAME= removes a setting.

    \b
    blueque queue set video.encode max-running=8
    blueque queue set video.encode time_limit=2h memory_limit=8GiB retry=3
    blueque queue set 'render.*' weight=5 retention.failed=never
    blueque queue set video.encode 'retry={"max": 3, "backoff": 60}' time_limit=

    max-running=8 lets 8 of its tasks run at a time, on all hosts together. The setting max-pending=1000 bounds the queue: new tasks
    that do not fit are refused; with discard=oldest, the oldest make room.

    The other names are weight, retry, time_limit, stall_limit, memory_limit, grace, lead, retention.complete,
    retention.failed and retention.cancelled. Their values are as in [queues.X] of blueque.toml; false means no retry
    or no limit. docs/configuration.md explains which source wins, and `blueque config -q QUEUE` shows the result.

    Listeners apply a setting within a beat, 10 s; listeners of 1.0.0 ignore it. Limits apply to attempts that start
    afterwards. A retry policy also applies to running tasks: you allow them to run again.
    """
    settings = given_settings(words)
    try:
        for name, value in settings.items():
            require_setting(name)
            if value is not None:
                check_setting(name, value)
    except InvalidInput as error:
        raise Failure(USAGE, str(error)) from error
    client = invocation.client()
    inspector = client.get_inspector()
    is_new_allowed = any(value is not None for value in settings.values())
    names = (_queues_there_or_new if is_new_allowed else _queues_there)(inspector, [pattern])
    for name in names:
        is_new = client.get_queue(name).set_settings(settings, invocation.by)
        values = ", ".join(map(_assigned, settings.items()))
        _say(invocation.as_json, name, f"{'set' if is_new else 'unchanged'}: {values}")
        if settings.get("max_running") == 0 and not invocation.as_json:
            resume = of_queue("queue set", name, "max-running=")
            printing.talk(f"Listeners take nothing from {name} until: {resume}")
    _finish(
        "queue_set",
        inspector,
        names,
        of_queue_show(inspector, names) if invocation.as_json else None,
    )


@queue.command(short_help="Stop listeners from taking tasks of queues.")
@_queues_argument
@reason_option
@shared_options
def pause(invocation: Invocation, patterns: Sequence[str], reason: str | None) -> None:
    """Stop listeners from taking tasks of a queue until `blueque queue resume`. Running tasks run on.

    \b
    blueque queue pause video.encode --reason 'deploying 3.1'
    blueque queue pause 'render.*'

    Tasks can still be enqueued. You can pause a queue before its first task. If it is already paused, --reason only
    changes the reason. Listeners of 1.0.0 ignore the pause.
    """
    client = invocation.client()
    inspector = client.get_inspector()
    names = _queues_there_or_new(inspector, patterns)
    for name in names:
        is_new = client.get_queue(name).pause(invocation.by, reason)
        paused = inspector.queue_seen(name).settings.pause
        by = (paused.by if paused is not None else None) or "an unknown user"
        _say(invocation.as_json, name, "paused" if is_new else f"paused already, by {by}")
    _finish(
        "queue_pause", inspector, names, of_gates(inspector, names) if invocation.as_json else None
    )


@queue.command(short_help="Let listeners take tasks of queues again.")
@_queues_argument
@shared_options
def resume(invocation: Invocation, patterns: Sequence[str]) -> None:
    """Let listeners take tasks of a queue again.

    \b
    blueque queue resume video.encode
    blueque queue resume 'render.*'
    """
    client = invocation.client()
    inspector = client.get_inspector()
    names = _queues_there(inspector, patterns)
    for name in names:
        was_paused = client.get_queue(name).resume(invocation.by)
        _say(invocation.as_json, name, "resumed" if was_paused else "was not paused")
    if invocation.as_json:
        printing.print_json("queue_resume", **of_gates(inspector, names))


@queue.command(short_help="Forget queues that are empty and no longer used.")
@click.argument("pattern", metavar="QUEUE")
@yes_option
@shared_options
def forget(invocation: Invocation, pattern: str, is_sure: bool) -> None:
    """Forget a queue that is empty and no longer used: its name, pause, settings, events and statistics.

    \b
    blueque queue forget video.encdoe
    blueque queue forget 'test.*'

    A queue stays if it has a task in any state, a listener, a feed, or an unfinished archive batch. The exit code is
    then 5. A new task creates the queue again. If a pattern matches several queues, it asks first, and forgets the
    empty ones.
    """
    client = invocation.client()
    names = queues_matching(client.get_inspector().queues(), [pattern])
    if len(names) > 1:
        facts = f"{len(names)} queues would be forgotten if they are empty, with their settings and statistics"
        details = [f"  {printing.clean(name)}" for name in names]
        require_consent(is_sure, facts, f"Forget {len(names)} queues?", details)
    found = {name: client.forget_queue(name) for name in names}
    for name in (name for name, there in found.items() if not there):
        _say(invocation.as_json, name, "forgotten")
    if invocation.as_json:
        items = [
            {"queue": name, "forgotten": not there, "there": there} for name, there in found.items()
        ]
        printing.print_json("queue_forget", items=items)
    _refuse_those_in_use({name: there for name, there in found.items() if there})


def _refuse_those_in_use(kept: Mapping[str, Mapping[str, int]]) -> None:
    if not kept:
        return
    some = next((name for name, there in kept.items() if "tasks" in there), None)
    states = ",".join(state for state in _DELETABLE if some and state in kept[some])
    delete = shlex.join(["blueque", "delete", "-q", some or "", "--state", states])
    has_listeners = any(_listeners(there) for there in kept.values())
    advice = (
        f"To delete tasks: {delete}" if states else "",
        "Stop its listeners, or wait until they are forgotten." if has_listeners else "",
    )
    *others, last = [f"queue {name} has {_what_is(there)}" for name, there in kept.items()]
    for refusal in others:
        printing.talk(refusal)
    raise Failure(REFUSED, last, *advice)


def _listeners(there: Mapping[str, int]) -> int:
    """Return how many listeners a queue has. One that is silent has only a beat."""
    return max(there.get("listeners", 0), there.get("nodes", 0))


def _what_is(there: Mapping[str, int]) -> str:
    """Say in words what a queue has."""
    states = {state: number for state, number in there.items() if state in STATUSES}
    # Of a task both its state and its place among all tasks tell.
    tasks = [count(there["tasks"], "task")] if "tasks" in there else []
    if states:
        each = ", ".join(f"{number:,} {state}" for state, number in states.items())
        tasks = [f"{each} task{'' if sum(states.values()) == 1 else 's'}"]
    words = {"listener": _listeners(there), "feed": there.get("feeds", 0)}
    others = [count(number, noun) for noun, number in words.items() if number]
    batch = ["an unfinished archive batch"] if "batches" in there else []
    return ", ".join([*tasks, *others, *batch])


def _queues_there(inspector: Inspector, patterns: Sequence[str]) -> list[str]:
    """Return the queues that match. A name may be of a queue without tasks that has settings."""
    settings = inspector.settings(patterns)
    ahead = [name for name in patterns if settings[name]]
    return queues_matching([*inspector.queues(), *ahead], patterns)


def _queues_there_or_new(inspector: Inspector, patterns: Sequence[str]) -> list[str]:
    """Return the queues that match, and say which of them do not exist yet."""
    known = inspector.queues()
    names = queues_to_be(known, patterns)
    for name in names:
        if require_queue_name(name) not in known:
            meant = like(name, known)
            printing.talk(f"queue {name} has no task and no listener yet{meant and f'.{meant}'}")
    return names


def _say(as_json: bool, name: str, what: str) -> None:
    if not as_json:
        click.echo(printing.clean(f"{name}  {what}"))


def _finish(
    kind: str, inspector: Inspector, names: Sequence[str], content: dict[str, Any] | None
) -> None:
    """Say which queues have listeners of 1.0.0, which know no pause and no settings, and print JSON."""
    nodes = Counter(node.queue for node in inspector.nodes() if node.state == "1.0.0")
    for name in dict.fromkeys(names):
        if nodes[name]:
            ignore = "ignores" if nodes[name] == 1 else "ignore"
            printing.talk(f"{count(nodes[name], 'listener')} of 1.0.0 on {name} {ignore} this.")
    if content is not None:
        printing.print_json(kind, **content)
