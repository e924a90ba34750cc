"""A queue in the overview, from its numbers, lines, listeners and newest failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from blueque.queries.holders import Holder
from blueque.queries.listeners import MAX_MEMBERS, puts_in_line
from blueque.queries.listing import entered
from blueque.queries.queue_looks import Details, QueueRead, firsts
from blueque.queries.queues import Settings
from blueque.queries.waiting_lines import Misfit, misfits, runnable

if TYPE_CHECKING:
    from blueque.model.task import Task


class Counts(NamedTuple):
    """How many tasks of a queue have each status."""

    scheduled: int = 0
    pending: int = 0
    reserved: int = 0
    started: int = 0
    complete: int = 0
    failed: int = 0
    cancelled: int = 0
    blocked: int = 0


class Waiting(NamedTuple):
    """The pending tasks of a queue.

    oldest: the id of the task that has been pending for `oldest_for` seconds, the longest of the
        next tasks of each line.
    runnable: how many could start now if there were listeners; see `waiting_lines.runnable`.
    misfits: the lines whose tasks no listener of the queue can ever run, if it has listeners.
    """

    oldest: str | None = None
    oldest_for: float | None = None
    runnable: int = 0
    misfits: tuple[Misfit, ...] = ()


class Due(NamedTuple):
    """The scheduled tasks of a queue.

    overdue: how many should be in line by now; the first of them was due `overdue_for` seconds ago.
    is_minded: whether a listener of the queue puts due tasks in line; else only a scheduler does.
    """

    overdue: int = 0
    overdue_for: float | None = None
    is_minded: bool = False


class Failures(NamedTuple):
    """The `looked_at` newest failed tasks of a queue.

    lost, poison: ids of those with that error type, at most a day old.
    failing: how many failed within the last hour, if there are many and their share is too large; else 0.
    today: how many failed today (UTC).
    """

    looked_at: int = 0
    lost: tuple[str, ...] = ()
    poison: tuple[str, ...] = ()
    failing: int = 0
    today: int = 0


class QueueOverview(NamedTuple):
    """A queue at one instant, not a line of it.

    running: how many tasks count as running.
    holders: failed and cancelled tasks that others, perhaps in other queues, wait for; from the
        newest that failed, and as many that were cancelled.
    orphans: ids of blocked tasks that wait for something that is gone, among the MAX_BLOCKED that
        are read.
    expired: how many tasks did not start in time today (UTC).
    """

    queue: str
    counts: Counts = Counts()
    settings: Settings = Settings()
    waiting: Waiting = Waiting()
    due: Due = Due()
    failures: Failures = Failures()
    listeners: int = 0
    running: int = 0
    holders: tuple[Holder, ...] = ()
    orphans: tuple[str, ...] = ()
    expired: int = 0

    @property
    def is_quiet(self) -> bool:
        """Whether it has nothing but complete tasks, and no listener."""
        tasks = sum(self.counts) - self.counts.complete
        limits = (self.settings.pause, self.settings.max_running, self.settings.max_pending)
        return limits == (None, None, None) and not any((tasks, self.listeners, self.running))


def overview_of(
    looked: QueueRead,
    found: Details,
    tasks: Mapping[str, Task],
    locks: Mapping[str, int],
    is_failing: bool,
    held_up: Mapping[str, Holder],
    now: float,
) -> QueueOverview:
    """Return a queue from both reads of it.

    locks: how many tasks hold each. is_failing: whether too many failed within the hour. held_up:
        those of its failed tasks that hold up others.
    """
    seen, failed = looked.seen, found.failed
    dead = {node.id for node in found.nodes if node.state == "dead"}
    return QueueOverview(
        seen.queue,
        _counts(looked, found, tasks),
        seen.settings,
        _waiting(looked, found, tasks, locks, now),
        _due(looked, found, now),
        Failures(
            len(looked.ends.failed),
            tuple(failed.lost),
            tuple(failed.poison),
            failed.within_hour if is_failing else 0,
            failed.today,
        ),
        len({*looked.members.listeners} - dead),
        seen.room.taken,
        tuple(held_up[one.task] for one in failed.awaited if one.task in held_up),
        tuple(found.orphans),
        found.expired,
    )


def _counts(looked: QueueRead, found: Details, tasks: Mapping[str, Task]) -> Counts:
    seen, started = looked.seen, looked.members.started_tasks
    running = sum(tasks[task_id].status == "started" for task_id in started)
    held = {task_id for node in found.nodes for task_id in node.held}
    return Counts(
        scheduled=seen.scheduled,
        pending=seen.in_default + sum(line.length for line in found.waits),
        reserved=sum(tasks[task_id].status == "reserved" for task_id in held),
        started=running + max(seen.started - MAX_MEMBERS, 0),
        complete=seen.complete,
        failed=seen.failed,
        cancelled=seen.cancelled,
        blocked=seen.blocked,
    )


def _waiting(
    looked: QueueRead,
    found: Details,
    tasks: Mapping[str, Task],
    locks: Mapping[str, int],
    now: float,
) -> Waiting:
    since, oldest = _oldest(firsts(looked, found), tasks)
    unfit = misfits(found.waits, found.nodes)
    able = looked.seen.in_default + runnable(found.waits, unfit, locks)
    return Waiting(
        oldest,
        None if since is None else max(now - since, 0.0),
        0 if looked.seen.settings.pause is not None else looked.seen.room.left(able),
        unfit,
    )


def _due(looked: QueueRead, found: Details, now: float) -> Due:
    is_minded, first = puts_in_line(found.nodes), looked.ends.next_due
    overdue = looked.ends.overdue if is_minded else looked.ends.late
    return Due(overdue, now - float(first[1]) if overdue and first else None, is_minded)


def _oldest(ids: Iterable[str], tasks: Mapping[str, Task]) -> tuple[float | None, str | None]:
    """Return since when the oldest of the next NEXT tasks of each line has been pending, and its id."""
    # Not only the next task: a younger one may have been put first.
    firsts = [tasks[task_id] for task_id in ids if tasks[task_id].status == "pending"]
    ages = [(since, task.id) for task in firsts if (since := entered(task)) is not None]
    return min(ages, default=(None, None))
