"""Delete many tasks at once: those that wait in queues, and those that were kept too long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from blueque.cli import printing
from blueque.cli.consent import require_consent
from blueque.cli.failure import ATTENTION
from blueque.cli.named import queues_matching
from blueque.cli.printing import Column, count
from blueque.documents.tasks import of_deleted
from blueque.model.states import Place
from blueque.sentences import consent

if TYPE_CHECKING:
    from blueque.cli.actions import Manner
    from blueque.cli.options import Invocation
    from blueque.client import Client
    from blueque.model.snapshot import Snapshot

PATIENCE = 30.0  # seconds: work that has begun may wait for Redis

_COLUMNS = [Column("QUEUE", can_shrink=True), Column("STATE"), Column("TASKS", True)]


def empty(
    invocation: Invocation,
    patterns: Sequence[str],
    states: Sequence[str],
    is_forced: bool,
    manner: Manner,
) -> int:
    """Delete all tasks of these queues in these states that no listener has taken; return the exit code."""
    from blueque.recovery.purge import awaited  # here: --help does not need it

    names = queues_matching(invocation.client().get_inspector().queues(), patterns)
    client = invocation.client(PATIENCE)
    snapshot = client.freeze(names, [*dict.fromkeys(states)])
    try:
        found, staying = _counted(snapshot), awaited(client.connections, snapshot, is_forced)
        for (state, queue), number in staying.items():
            found[Place(state, queue)] -= number
        _tell_awaited(staying.total())
        done = _ask_and_delete(
            found, manner, lambda: _purge(client, snapshot, is_forced, invocation.by)
        )
    finally:
        client.thaw(snapshot)
    if manner.only_foretell or done == found.total():
        return ATTENTION if staying.total() and not manner.only_foretell else 0
    printing.talk(
        f"{found.total() - done:,} of {found.total():,} are left: taken by listeners meanwhile, "
        "awaited by other tasks, or being archived."
    )
    return ATTENTION


def apply_retention(
    invocation: Invocation, patterns: Sequence[str], states: Sequence[str], manner: Manner
) -> int:
    """Delete the finished tasks that their queues no longer keep; return the exit code."""
    from blueque.recovery.retention import Retention  # here: --help does not need it

    queues = queues_matching(invocation.client().get_inspector().queues(), patterns)
    client = invocation.client(PATIENCE)
    by_queue = client.retention_rules(queues)
    rules = {queue: {state: by_queue[queue][state] for state in states} for queue in queues}
    for record in client.get_inspector().archiving(queues) if queues else ():
        if record:
            printing.talk(
                f"queue {record.get('queue')} is skipped: blueque archive is working on it"
            )
    retention = Retention(client.connections, rules)

    def delete() -> int:
        try:
            retention.delete_all()
        except BaseException:
            printing.talk(f"{retention.deleted.total():,} deleted, then it stopped:")
            raise
        return retention.deleted.total()

    _ask_and_delete(retention.count(), manner, delete)
    return 0


def _ask_and_delete(found: Counter[Place], manner: Manner, delete: Callable[[], int]) -> int:
    """Ask, delete and print; return how many tasks are deleted, or would be."""
    found, number = +found, found.total()
    rows = [[place.queue, place.kind, str(tasks)] for place, tasks in sorted(found.items())]
    if found and not manner.only_foretell:
        facts, table = consent.of_prune(number), printing.table(_COLUMNS, rows)
        require_consent(manner.is_sure, facts, f"Delete {count(number, 'task')}?", table, number)
        number = delete()
    if manner.as_json:
        content = of_deleted(found, number, is_dry_run=manner.only_foretell)
        printing.print_json("delete_many", **content)
        return number
    if found and (manner.only_foretell or manner.is_sure):  # else the question has shown it
        printing.print_table(_COLUMNS, rows)
    would = "would be " if manner.only_foretell else ""
    printing.talk(f"{count(number, 'task')} {would}deleted.")
    return number


def _counted(snapshot: Snapshot) -> Counter[Place]:
    found = Counter[Place]()
    for part in snapshot.parts:
        found[Place(part.listed_as, part.queue)] += part.last - part.first
    return found


def _tell_awaited(number: int) -> None:
    if number:
        stay = "stays: others wait for it" if number == 1 else "stay: others wait for them"
        printing.talk(f"{count(number, 'more task')} {stay}. To delete waiting tasks too: --force")


def _purge(client: Client, snapshot: Snapshot, is_forced: bool, by: str | None) -> int:
    """Delete the tasks of the snapshot and return how many. If an error ends this, print how many."""
    done = 0
    try:
        for done in client.purge(snapshot, force=is_forced, by=by):  # noqa: B007  # how many so far
            pass
    except BaseException:
        printing.talk(f"{done:,} deleted, then it stopped:")
        raise
    return done
