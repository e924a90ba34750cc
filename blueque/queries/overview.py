"""The state of everything at one instant, in six round trips for any number of tasks and queues.

Every read is bounded, and a list entry is only a hint, as in listing.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from blueque.connection.redis import Redis, as_hash, raise_refusal, time_of
from blueque.errors import RedisRefused
from blueque.model import keys
from blueque.model.group import is_gate
from blueque.queries.groups_overview import MAX_GROUPS, Groups, groups
from blueque.queries.holders import Holder, holders
from blueque.queries.listeners import MAX_MEMBERS, Members, Node, puts_in_line, with_dead
from blueque.queries.listing import entered
from blueque.queries.overview_queues import (
    MANY,
    Details,
    QueueRead,
    complete_only,
    details,
    firsts,
    is_failing,
    locks,
    look,
    tasks_of,
)
from blueque.queries.queues import Settings
from blueque.queries.schedules import MAX_WATCHED, Watched, watched
from blueque.queries.statistics import Usual, tail, usual
from blueque.queries.steps import clock, in_step, of_each, read
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
    is_minded: whether the queue has a listener that puts due tasks in line; else only a scheduler
        does.
    """

    overdue: int = 0
    overdue_for: float | None = None
    is_minded: bool = False


class Failures(NamedTuple):
    """The `looked_at` newest failed tasks of a queue.

    lost, poison: ids of those with that error type that are at most a day old.
    failing: how many failed within the last hour, if there are many and their share is too large;
        else 0.
    today: how many have failed today (UTC).
    """

    looked_at: int = 0
    lost: tuple[str, ...] = ()
    poison: tuple[str, ...] = ()
    failing: int = 0
    today: int = 0


class QueueOverview(NamedTuple):
    """A queue at one instant, not a line of it.

    running: how many tasks count as running.
    holders: failed and cancelled tasks for which others wait, which may be of other queues; of the
        newest that failed, and of as many that were cancelled.
    orphans: ids of blocked tasks that wait for what is gone, of the MAX_BLOCKED that are looked at.
    expired: how many tasks have not started in time today (UTC).
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
        """It has nothing but complete tasks, and no listener."""
        tasks = sum(self.counts) - self.counts.complete
        limits = (self.settings.pause, self.settings.max_concurrency, self.settings.max_pending)
        return limits == (None, None, None) and not any((tasks, self.listeners, self.running))


class Overview(NamedTuple):
    """Everything at one instant: queues and nodes by name, running tasks longest first, the records
    of open feeds.

    server: the fields of INFO, and `save` of CONFIG. None: this user has no right to ask for INFO.
    printed: when the tasks that have run longest last printed, in Unix seconds, by task id.
    usual: how long tasks usually run, by queue; tails: what 19 of 20 do not exceed. Both only of
        the queues whose tasks run longest.
    ahead: by how many seconds at least the clock of a listener is ahead of that of Redis, by its
        id. A beat from the future shows it; a clock that is behind cannot be told from a late beat.
    schedules: those that make the next tasks, and paused ones; failures of each include the
        task that came last.
    """

    now: float
    lines: list[QueueOverview]
    running: list[Task]
    nodes: list[Node]
    feeds: list[dict[str, str]]
    server: Mapping[str, str] | None = None
    printed: Mapping[str, float] = {}
    usual: Mapping[str, Usual] = {}
    tails: Mapping[str, float] = {}
    ahead: Mapping[str, float] = {}
    groups: Groups = Groups()
    schedules: Sequence[Watched] = ()


def overview(redis: Redis, only: Collection[str] | None = None) -> Overview:
    """See Inspector.overview."""
    begun = _begin(redis)
    now, every = begun.now, [queue for queue in begun.queues if only is None or queue in only]
    complete = read(redis, of_each({queue: complete_only(queue) for queue in every}))
    queues = [queue for queue in every if complete[queue] is None]
    looks, seen_groups, schedules, later = read(
        redis,
        in_step(
            of_each({queue: look(queue, now, len(queues)) for queue in queues}),
            groups(begun.groups),
            watched(begun.schedules),
            clock(),  # last, so that it is later than every beat
        ),
    )
    is_any = any(each.seen.blocked for each in looks.values())
    found = read(redis, of_each({name: details(each, is_any, now) for name, each in looks.items()}))
    found = {name: each._replace(nodes=with_dead(each.nodes)) for name, each in found.items()}
    tasks, held, failing, held_up = read(
        redis,
        in_step(
            tasks_of(looks, found, schedules, now),
            locks(found.values()),
            of_each(
                {
                    queue: is_failing(queue, each.failed.within_hour, now)
                    for queue, each in found.items()
                    if each.failed.within_hour >= MANY
                }
            ),
            holders(
                [*chain(*(each.failed.awaited for each in found.values())), *seen_groups.holders]
            ),
        ),
    )
    lines = {
        queue: QueueOverview(queue, Counts(complete=count or 0))
        for queue, count in complete.items()
    }
    for name, looked in looks.items():
        fails = failing.get(name, False)
        lines[name] = _overview_of(looked, found[name], tasks.tasks, held, fails, held_up, now)
    return Overview(
        now,
        [*lines.values()],
        tasks.running,
        [node for each in found.values() for node in each.nodes],
        [record for each in found.values() for record in each.feeds],
        begun.server,
        tasks.printed,
        {queue: middle for queue, ran in tasks.ran.items() if (middle := usual(ran)) is not None},
        {queue: most for queue, ran in tasks.ran.items() if (most := tail(ran)) is not None},
        _ahead([each.members for each in looks.values()], later),
        seen_groups._replace(
            holders=tuple(
                held_up[each.task] for each in seen_groups.holders if each.task in held_up
            )
        ),
        [_with_last(each, tasks.tasks) for each in schedules],
    )


class _Begun(NamedTuple):
    """The time, the names of the queues, of groups, those that have not ended first, and of schedules,
    and what the server says about itself.
    """

    now: float
    queues: list[str]
    groups: list[str]
    schedules: list[str]
    server: Mapping[str, str] | None


def _begin(redis: Redis) -> _Begun:
    time, names, groups, first, last, info, *settings = redis.answers(
        ("TIME",),
        ("ZRANGE", keys.QUEUES, 0, -1),
        ("ZRANGE", keys.GROUPS, 0, MAX_GROUPS - 1),
        ("ZRANGE", keys.SCHEDULES, 0, MAX_WATCHED - 1),
        # those that make no next task
        ("ZRANGEBYSCORE", keys.SCHEDULES, "+inf", "+inf", "LIMIT", 0, MAX_WATCHED),
        ("INFO",),
        ("CONFIG", "GET", "save"),
        ("CONFIG", "GET", "min-replicas-to-write"),
    )
    raise_refusal([time, names, groups, first, last])
    facts = None
    if not isinstance(info, RedisRefused):
        facts = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
        for reply in settings:
            facts |= {} if isinstance(reply, RedisRefused) else as_hash(reply)
    return _Begun(
        time_of(time),
        sorted(names),
        [name for name in groups if not is_gate(name)],
        [*dict.fromkeys([*first, *last])],
        facts,
    )


def _ahead(members: Iterable[Members], now: float) -> dict[str, float]:
    """Return which listeners have a beat in the future, and by how much."""
    beats = [beat for seen in members for beat in seen.beats.items()]
    return {node: at - now for node, at in beats if at > now}


def _with_last(schedule: Watched, tasks: Mapping[str, Task]) -> Watched:
    """Count the task that came last of a schedule among its failures."""
    status = None if schedule.current is None else tasks[schedule.current].status
    if status == "complete":
        return schedule._replace(failures=0)
    return schedule._replace(failures=schedule.failures + (status == "failed"))


def _overview_of(
    looked: QueueRead,
    found: Details,
    tasks: Mapping[str, Task],
    locks: Mapping[str, int],
    is_failing: bool,
    held_up: Mapping[str, Holder],
    now: float,
) -> QueueOverview:
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
    """Return since when the oldest of the next NEXT tasks of each line has been pending, and its
    id.
    """
    # Not only the next task: a younger one may have been put first.
    firsts = [tasks[task_id] for task_id in ids if tasks[task_id].status == "pending"]
    ages = [(since, task.id) for task in firsts if (since := entered(task)) is not None]
    return min(ages, default=(None, None))
