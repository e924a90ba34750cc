"""`blueque queue`: list, set, purge and forget whole queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.consent import require_consent
from blueque.cli.failure import ATTENTION, REFUSED, Failure
from blueque.cli.named import queues_matching
from blueque.cli.options import Invocation, dry_run_option, json_option, shared_options, yes_option
from blueque.cli.printing import Column, count, number_columns
from blueque.cli.states import state_option
from blueque.cli.verbs.limit import limit
from blueque.cli.verbs.pause import pause
from blueque.cli.verbs.queue_settings import set_settings, show_queue
from blueque.cli.verbs.resume import resume
from blueque.documents.status import of_queues
from blueque.model.states import FINISHED, STATUSES, WAITING

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.model.snapshot import Snapshot
    from blueque.queries.queue_overview import QueueOverview

_COLUMNS = [
    Column("QUEUE", can_shrink=True),
    *number_columns("SCHED", "PEND", "RUN", "FAIL", "LISTENERS", "MAY RUN"),
    Column("STATE", can_shrink=True),
]
_BLOCKED = Column("BLOCKED", True)  # only where there are any
_TASKS = [Column("QUEUE", can_shrink=True), Column("TASKS", True)]
_PURGED = (*WAITING, "blocked")  # the states that purge deletes if none is named


@click.group(subcommand_metavar="VERB [ARGS]...")
def queue() -> None:
    """Manage whole queues."""


queue.add_command(pause)
queue.add_command(resume)
queue.add_command(limit)
queue.add_command(set_settings)
queue.add_command(show_queue)


@queue.command("ls", short_help="List the queues.")
@json_option
@shared_options
def list_queues(invocation: Invocation, as_json: bool) -> None:
    """List all queues: waiting and running tasks, listeners, limits and pauses."""
    lines = invocation.client().get_inspector().overview().lines
    if as_json:
        printing.print_json("queues", **of_queues(lines))
    elif lines:
        has_blocked = any(line.counts.blocked for line in lines)
        columns = [*_COLUMNS[:1], *([_BLOCKED] if has_blocked else []), *_COLUMNS[1:]]
        rows = [_row(line, has_blocked) for line in lines]
        printing.print_table(columns, rows)
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
        "-" if line.settings.max_concurrency is None else str(line.settings.max_concurrency),
        "open" if line.settings.pause is None else f"paused by {line.settings.pause.by}",
    ]


@queue.command(short_help="Forget a queue that is empty and no longer used.")
@click.argument("pattern", metavar="QUEUE")
@yes_option
@json_option
@shared_options
def forget(invocation: Invocation, pattern: str, is_sure: bool, as_json: bool) -> None:
    """Forget a queue that is empty and no longer used: its name, pause and limit, events and statistics.

    \b
    blueque queue forget video.encdoe
    blueque queue forget 'test.*'

    A queue with a task in any state, a listener, a feed, or a batch on its way into an archive stays as it is, and
    the exit code is 5. A new task creates the queue again. If a pattern matches several queues, it asks first, and forgets
    those that it can.
    """
    client = invocation.client()
    names = queues_matching(client.get_inspector().queues(), [pattern])
    if len(names) > 1:
        facts = f"{len(names)} queues would be forgotten if they are empty, with their pauses, limits and statistics"
        require_consent(
            is_sure, facts, "Forget them?", [f"  {printing.clean(name)}" for name in names]
        )
    found = {name: client.forget_queue(name) for name in names}
    if as_json:
        all_there = Counter[str]()
        for there in found.values():
            all_there.update(there)
        printing.print_json(
            "forget",
            queue=pattern,
            forgotten=not all_there,
            there=dict(all_there),
            queues=[
                {"queue": name, "forgotten": not there, "there": there}
                for name, there in found.items()
            ],
        )
    else:
        for name in (name for name, there in found.items() if not there):
            click.echo(f"{printing.clean(name)}  forgotten")
    kept = [f"queue {name} has {_what_is(there)}" for name, there in found.items() if there]
    if kept:
        has_tasks = any("tasks" in there for there in found.values())
        has_listeners = any(_listeners(there) for there in found.values())
        advice = (
            "Delete its tasks: blueque queue purge, blueque prune." if has_tasks else "",
            "Stop its listeners, or wait until they are forgotten." if has_listeners else "",
        )
        for refusal in kept[:-1]:
            printing.talk(refusal)
        raise Failure(REFUSED, kept[-1], *advice)


def _listeners(there: Mapping[str, int]) -> int:
    """Return how many listeners a queue has. One that is silent has only a beat."""
    return max(there.get("listeners", 0), there.get("nodes", 0))


def _what_is(there: Mapping[str, int]) -> str:
    """Say in words what a queue has."""
    states = {state: number for state, number in there.items() if state in STATUSES}
    # Of a task both its state and its place among all tasks tell.
    tasks = [count(there["tasks"], "task")] if "tasks" in there else []
    if states:
        each = ", ".join(f"{number} {state}" for state, number in states.items())
        tasks = [f"{each} task{'' if sum(states.values()) == 1 else 's'}"]
    words = {"listener": _listeners(there), "feed": there.get("feeds", 0)}
    others = [count(number, noun) for noun, number in words.items() if number]
    return ", ".join(
        [*tasks, *others, *(["a batch on its way into an archive"] if "batches" in there else [])]
    )


@queue.command(short_help="Delete what waits in a queue, or what has ended.")
@click.argument("pattern", metavar="QUEUE")
@state_option(
    (*_PURGED, *FINISHED),
    "Only tasks in this state, or in these: failed,cancelled; default pending,scheduled,blocked.",
)
@click.option("--force", is_flag=True, help="Also waiting tasks for which others wait.")
@dry_run_option("Only show what would be deleted.")
@yes_option
@json_option
@shared_options
def purge(
    invocation: Invocation,
    pattern: str,
    states: Sequence[str],
    force: bool,
    dry_run: bool,
    is_sure: bool,
    as_json: bool,
) -> int:
    """Delete all pending, scheduled and blocked tasks of a queue for good, or those in another state.

    \b
    blueque queue purge video.encode --dry-run
    blueque queue purge 'render.*' --state failed

    Running tasks run on; tasks enqueued meanwhile stay. For many tasks you have to type their number. To empty a queue
    that listeners serve, pause it first. The exit code is 6 if the answer is not yes, and 75 if tasks are left because a
    listener has just taken them, other tasks wait for them, or an archive is being made of them.
    """
    from blueque.recovery.purge import awaited  # here: no other verb of queues needs it

    names = queues_matching(invocation.client().get_inspector().queues(), [pattern])
    client = invocation.client(patience=30.0)  # from here on: work that has begun may wait
    chosen = list(dict.fromkeys(states)) or list(_PURGED)
    snapshot = client.freeze(names, chosen)
    try:
        found, by_queue = dict.fromkeys(chosen, 0), Counter[str]()
        for part in snapshot.parts:
            found[part.listed_as] += part.last - part.first
            by_queue[part.queue] += part.last - part.first
        staying = awaited(client.connections, snapshot, force)
        total, done, stay = sum(found.values()), 0, sum(staying.values())
        going = dict(found)
        for (state, name), number in staying.items():
            going[state] -= number
            by_queue[name] -= number
        if total > stay and not dry_run:
            _ask_to_purge(names, going, by_queue, is_sure)
            done = _purge(client, snapshot, total, force)
    finally:
        client.thaw(snapshot)
    if as_json:
        printing.print_json(
            "purge",
            queue=pattern,
            dry_run=dry_run,
            tasks=found,
            awaited=stay,
            deleted=done,
            queues=names,
        )
    elif dry_run:
        for name in names:
            which = f": {_sorts(going)}" if len(names) == 1 else ""
            click.echo(
                f"{printing.clean(name)}  {count(by_queue[name], 'task')} would be deleted{which}"
            )
    else:
        click.echo(f"{printing.clean(pattern)}  {count(done, 'task')} deleted")
    if dry_run and stay:
        is_left = "is left: others wait for it" if stay == 1 else "are left: others wait for them"
        is_able = any(state in _PURGED for state, _ in staying.elements())
        more = ". To delete waiting ones, too: --force" if is_able else ""
        printing.talk(f"{count(stay, 'more task')} {is_left}{more}")
    if not dry_run and done < total:
        printing.talk(
            f"{total - done} of {total} are left: taken by listeners meanwhile, awaited by other tasks, or being archived."
        )
        return ATTENTION
    return 0


def _ask_to_purge(
    names: Sequence[str], found: Mapping[str, int], by_queue: Counter[str], is_sure: bool
) -> None:
    total = sum(found.values())
    where = f"queue {names[0]}" if len(names) == 1 else count(len(+by_queue), "queue")
    facts = f"{count(total, 'task')} of {where} would be deleted for good: {_sorts(found)}"
    rows = [[name, str(number)] for name, number in (+by_queue).items()]
    details = printing.table(_TASKS, rows) if len(names) > 1 else ()
    require_consent(is_sure, facts, "Delete?", details, number=total)


def _purge(client: Client, snapshot: Snapshot, total: int, is_forced: bool) -> int:
    """Delete the tasks of the snapshot and return how many. If an error ends this, say how many."""
    done = 0
    try:
        for done in client.purge(snapshot, force=is_forced):  # noqa: B007  # how many so far
            pass
    except BaseException:
        printing.talk(f"{done} of {total} deleted, then it stopped:")
        raise
    return done


def _sorts(found: Mapping[str, int]) -> str:
    return ", ".join(
        f"{number} {state}" for state, number in found.items() if number or state != "blocked"
    )
