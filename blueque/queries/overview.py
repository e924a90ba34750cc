"""The state of everything at one instant, in six round trips for any number of tasks and up to
2,000 queues.

Every read is bounded, and a list entry is only a hint, as in listing.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from blueque.connection.redis import Command, Redis, as_hash, raise_refusal
from blueque.errors import RedisRefused
from blueque.model import keys
from blueque.model.encoding import seconds_of
from blueque.model.group import is_gate
from blueque.model.parts import grouped
from blueque.model.queue_settings import OLDEST
from blueque.queries.holders import Holder, ask_held, ask_waiting, take_holders
from blueque.queries.listeners import (
    Members,
    Node,
    ask_members,
    is_process_gone,
    puts_in_line,
    read_groups,
    started_ids,
)
from blueque.queries.listing import ask_shown, entered, in_order, take_shown, to_seconds
from blueque.queries.overview_groups import MAX_GROUPS, Groups, ask_groups, take_groups
from blueque.queries.overview_queues import HOUR, Counts, Failed, ask_counts, read_queues
from blueque.queries.quiet_queues import quiet_queues
from blueque.queries.schedules import Watched, ask_states, ask_watched, take_watched
from blueque.queries.statistics import USUAL_DAYS, Usual, ask_usual, tail, take_ran, usual
from blueque.queries.task_log import ask_printed, printed_at
from blueque.queries.waiting_lines import (
    MAX_HEADS,
    Misfit,
    Pause,
    Waits,
    lock_of,
    misfits,
    pause_of,
    runnable,
)

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.statistics import Durations

MAX_TALKING = 20  # tasks that run longest, whose last line is read
MAX_RUNNING_QUEUES = 20  # queues whose tasks run longest, whose usual run time is read
MANY = 5  # fewer failures within an hour are not too many
SHARE = 5  # more than one failure of so many ended tasks is too many
# tasks that wait for failed and cancelled ones and are read, but LEAST_HELD of each
MAX_HELD = 2000
LEAST_HELD = 10


class Line(NamedTuple):
    """A queue at one instant, not a line of it: how many tasks it has in each status.

    overdue: how many scheduled tasks should be in line by now; the first of them was due
        `overdue_for` seconds ago.
    is_minded: whether the queue has a listener that puts due tasks in line; else only a scheduler
        does.
    lost, poison: ids of failed tasks with that error type, of the `looked_at` newest and at most a
        day old.
    pause: None if it is not paused. max_concurrency: how many of its tasks may run; None: any
        number. max_pending: how many may be in line, as far as producers know it; None: any number.
    discards: whether its oldest tasks make room for new ones.
    running: how many count as running.
    runnable: how many pending tasks could start now if there were listeners; see
        `waiting_lines.runnable`.
    misfits: the lines whose tasks no listener of the queue can ever run, if it has listeners.
    first: the id of the task that has been pending for `oldest` seconds.
    failing: how many tasks failed within the last hour, if there are many and their share is too
        large; else 0.
    holders: failed and cancelled tasks for which others wait, which may be of other queues; of the
        newest that failed, and of as many that were cancelled.
    failed_today: how many of the `looked_at` newest have failed today (UTC).
    orphans: ids of blocked tasks that wait for what is gone, of the MAX_BLOCKED that are looked at.
    """

    queue: str
    scheduled: int
    pending: int
    reserved: int
    started: int
    complete: int
    failed: int
    cancelled: int
    oldest: float | None  # the longest time that the next task of a line has been pending
    listeners: int
    overdue: int = 0
    overdue_for: float | None = None
    lost: tuple[str, ...] = ()
    poison: tuple[str, ...] = ()
    pause: Pause | None = None
    max_concurrency: int | None = None
    max_pending: int | None = None
    discards: bool = False
    running: int = 0
    misfits: tuple[Misfit, ...] = ()
    is_minded: bool = False
    first: str | None = None
    looked_at: int = 0
    failing: int = 0
    runnable: int = 0
    blocked: int = 0
    holders: tuple[Holder, ...] = ()
    orphans: tuple[str, ...] = ()
    expired: int = 0
    failed_today: int = 0


class Overview(NamedTuple):
    """Everything at one instant: queues and nodes by name, running tasks longest first, the records
    of open feeds.

    server: the fields of INFO, and `save` of CONFIG. None: this user has no right to ask for INFO.
    printed: when the tasks that have run longest last printed, in Unix seconds, by task id.
    usual: how long tasks usually run, by queue; tails: what 19 of 20 do not exceed. Both only of
        the queues whose tasks run longest.
    ahead: by how many seconds at least the clock of a listener is ahead of that of Redis, by its
        id. A beat from the future shows it; a clock that is behind cannot be told from a late beat.
    quiet: the queues that have nothing but complete tasks.
    schedules: those that make the next tasks, and paused ones; failures of each include the
        task that came last.
    """

    now: float
    lines: list[Line]
    running: list[Task]
    nodes: list[Node]
    feeds: list[dict[str, str]]
    server: Mapping[str, str] | None = None
    printed: Mapping[str, float] = {}
    usual: Mapping[str, Usual] = {}
    tails: Mapping[str, float] = {}
    ahead: Mapping[str, float] = {}
    quiet: Set[str] = frozenset()
    groups: Groups = Groups()
    schedules: Sequence[Watched] = ()


def overview(redis: Redis, only: Collection[str] | None = None) -> Overview:
    """See Inspector.overview."""
    now, every, server, names, planned = _begin(redis)
    every = [queue for queue in every if only is None or queue in only]
    quiet = quiet_queues(redis, every)
    queues = [queue for queue in every if queue not in quiet]
    asked = [ask_members(queue) + ask_counts(queue, now, len(queues)) for queue in queues]
    # The time is read last, so that it is later than every beat.
    asked += [ask_groups(names), ask_states(planned), [("TIME",)]]
    *replies, seen_groups, states, (time,) = read_groups(redis, asked)
    groups, watched = take_groups(names, seen_groups), list(take_watched(planned, states))
    counts = {
        queue: Counts(Members(*reply[:3]), *reply[3:])
        for queue, reply in zip(queues, replies, strict=True)
    }
    nodes, waits, records, failed = read_queues(redis, counts, now)
    nodes = [node._replace(state="dead") if is_process_gone(node) else node for node in nodes]
    started = sorted(
        {task for seen in counts.values() for task in started_ids(seen.members.started)}
    )
    heads = chain(*(seen.head for seen in counts.values()), *map(_firsts, waits.values()))
    came = [each.current for each in watched if each.current is not None]
    ids = dict.fromkeys(chain(*(node.held for node in nodes), heads, started, came))
    awaited = [holder for newest in failed.values() for holder in newest.awaited]
    tasks, last_good, held, waiting = _details(
        redis, ids, waits, failed, [*awaited, *groups.holders]
    )
    running = in_order([tasks[task] for task in started if tasks[task].status == "started"])
    failing, printed, ran, holders = _last(redis, last_good, running, waiting, now)
    own = grouped(nodes, lambda node: node.queue)
    lines = []
    for queue in every:
        if queue in quiet:
            lines.append(Line(queue, 0, 0, 0, 0, quiet[queue], 0, 0, None, 0))
            continue
        seen, ended = counts[queue], failed[queue]
        line = _line(seen, queue, waits[queue], own.get(queue, []), ended, tasks, now)
        lines.append(
            line._replace(
                runnable=_runnable(line, waits[queue], held),
                failing=ended.within_hour if queue in failing else 0,
                holders=tuple(holders[one.task] for one in ended.awaited if one.task in holders),
            )
        )
    middles = {queue: middle for queue in ran if (middle := usual(ran[queue])) is not None}
    tails = {queue: most for queue in ran if (most := tail(ran[queue])) is not None}
    ahead = _ahead([seen.members for seen in counts.values()], to_seconds(time))
    bad_groups = [holders[each.task] for each in groups.holders if each.task in holders]
    return Overview(
        now,
        lines,
        running,
        nodes,
        records,
        server,
        printed,
        middles,
        tails,
        ahead,
        quiet.keys(),
        groups._replace(holders=tuple(bad_groups)),
        [_with_last(each, tasks) for each in watched],
    )


def _with_last(schedule: Watched, tasks: Mapping[str, Task]) -> Watched:
    """Count the task that came last of a schedule among its failures."""
    status = None if schedule.current is None else tasks[schedule.current].status
    if status == "complete":
        return schedule._replace(failures=0)
    has_failed = status == "failed" and schedule.current != schedule.forgiven
    return schedule._replace(failures=schedule.failures + has_failed)


class _Details(NamedTuple):
    """Tasks by id; for each queue with many failures the complete task that limits them; how many
    tasks hold each lock; failed and cancelled tasks, each with some of those that wait for it.
    """

    tasks: dict[str, Task]
    last_good: dict[str, str | None]
    held: dict[str, int]
    waiting: list[tuple[Holder, list[str]]]


def _details(
    redis: Redis,
    ids: Iterable[str],
    waits: Mapping[str, Sequence[Waits]],
    failed: Mapping[str, Failed],
    awaited: Sequence[Holder],
) -> _Details:
    """Return these tasks and what else can be read with them: one round trip."""
    suspects = [queue for queue, newest in failed.items() if newest.within_hour >= MANY]
    good = [_ask_good(queue, failed[queue].within_hour) for queue in suspects]
    lines = [line.line for waiting in waits.values() for line in waiting]
    locks = sorted({lock for line in lines if (lock := lock_of(line))})
    of_locks: list[Command] = [("SCARD", keys.lock(lock)) for lock in locks]
    most = max(MAX_HELD // max(len(awaited), 1), LEAST_HELD)
    commands = [*good, *of_locks, *ask_waiting(awaited, most), *ask_shown(ids)]
    replies = iter(redis.read(*commands))
    last_good = {queue: next(replies) for queue in suspects}
    held = {lock: next(replies) for lock in locks}
    waiting = [(holder._replace(held=next(replies)), next(replies)) for holder in awaited]
    return _Details(take_shown(ids, [*replies]), last_good, held, waiting)


def _ahead(members: Iterable[Members], now: float) -> dict[str, float]:
    """Return which listeners have a beat in the future, and by how much."""
    beats = [
        beat for seen in members for beat in zip(seen.beats[::2], seen.beats[1::2], strict=True)
    ]
    return {node: float(at) - now for node, at in beats if float(at) > now}


def _begin(redis: Redis) -> tuple[float, list[str], Mapping[str, str] | None, list[str], list[str]]:
    """Return the time, the names of the queues, what the server says about itself, the names of
    groups, those that have not ended first, and the names of schedules.
    """
    time, names, groups, first, last, info, *settings = redis.answers(
        ("TIME",),
        ("ZRANGE", keys.QUEUES, 0, -1),
        ("ZRANGE", keys.GROUPS, 0, MAX_GROUPS - 1),
        *ask_watched(),
        ("INFO",),
        ("CONFIG", "GET", "save"),
        ("CONFIG", "GET", "min-replicas-to-write"),
    )
    raise_refusal([time, names, groups, first, last])
    planned = list(dict.fromkeys([*first, *last]))
    groups = [name for name in groups if not is_gate(name)]
    if isinstance(info, RedisRefused):
        return to_seconds(time), sorted(names), None, groups, planned
    facts = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    for reply in settings:
        facts |= {} if isinstance(reply, RedisRefused) else as_hash(reply)
    return to_seconds(time), sorted(names), facts, groups, planned


def _ask_good(queue: str, failures: int) -> Command:
    """Return the command that reads the complete task that limits how many failures are too many."""
    return ("LINDEX", keys.complete(queue), (SHARE - 1) * failures - 1)


def _last(
    redis: Redis,
    last_good: Mapping[str, str | None],
    running: Sequence[Task],
    waiting: Sequence[tuple[Holder, Sequence[str]]],
    now: float,
) -> tuple[set[str], dict[str, float], dict[str, Durations], dict[str, Holder]]:
    """Return in which queues too many tasks fail, when tasks last printed, how long others ran, and
    which tasks hold others: one round trip.

    last_good: by queue, the complete task that must have ended within the hour, or the failures are
        too many; None: there is none.
    running: tasks, those that run longest first.
    """
    queues = list(dict.fromkeys(task.queue for task in running if task.queue is not None))[
        :MAX_RUNNING_QUEUES
    ]
    running = running[:MAX_TALKING]
    good_ids = {queue: task_id for queue, task_id in last_good.items() if task_id is not None}
    asked: list[Command] = [
        ("HMGET", keys.task(task_id), "finished", "updated") for task_id in good_ids.values()
    ]
    asked += [ask_printed(task.id) for task in running]
    asked += [command for queue in queues for command in ask_usual(queue, now)]
    asked += ask_held(waiting)
    replies = redis.read(*asked)
    ended = zip(good_ids, replies, strict=False)
    good = {
        queue
        for queue, (finished, updated) in ended
        if now - (seconds_of(finished or updated) or 0.0) <= HOUR
    }
    entries = zip(running, replies[len(good_ids) :], strict=False)
    printed = {
        task.id: at
        for task, lines in entries
        if (at := printed_at(lines, task.attempt)) is not None
    }
    left = iter(replies[len(good_ids) + len(running) :])
    ran = {queue: take_ran([next(left) for _ in range(USUAL_DAYS)]) for queue in queues}
    return last_good.keys() - good, printed, ran, take_holders(waiting, left)


def _firsts(lines: Sequence[Waits]) -> list[str]:
    return [task_id for line in lines[:MAX_HEADS] for task_id in line.head]


def _line(
    counts: Counts,
    queue: str,
    waits: Sequence[Waits],
    nodes: Sequence[Node],
    failed: Failed,
    tasks: Mapping[str, Task],
    now: float,
) -> Line:
    running = sum(
        tasks[task_id].status == "started" for task_id in started_ids(counts.members.started)
    )
    held = {task_id for node in nodes for task_id in node.held}
    since, first = _oldest(counts, waits, tasks)
    *pause, limit, most, discard = counts.settings
    is_minded = puts_in_line(nodes)
    overdue = counts.overdue if is_minded else counts.late
    return Line(
        queue,
        scheduled=counts.scheduled,
        pending=counts.pending + sum(line.length for line in waits),
        reserved=sum(tasks[task_id].status == "reserved" for task_id in held),
        started=running + max(counts.started_count - len(counts.members.started), 0),
        complete=counts.complete,
        failed=counts.failed,
        cancelled=counts.cancelled,
        oldest=None if since is None else max(now - since, 0.0),
        listeners=len(counts.members.listeners),
        overdue=overdue,
        overdue_for=now - float(counts.next_due[1]) if overdue and counts.next_due else None,
        is_minded=is_minded,
        lost=failed.lost,
        poison=failed.poison,
        pause=pause_of(*pause),
        max_concurrency=_number(limit),
        max_pending=_number(most),
        discards=discard == OLDEST,
        running=max(counts.counted, counts.started_count),
        misfits=misfits(waits, nodes),
        first=first,
        looked_at=len(counts.newest_failed),
        blocked=counts.blocked,
        orphans=failed.orphans,
        expired=failed.expired,
        failed_today=failed.today,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _runnable(line: Line, waits: Sequence[Waits], held: Mapping[str, int]) -> int:
    if line.pause is not None:
        return 0
    in_lines = sum(line.length for line in waits)
    able = line.pending - in_lines + runnable(waits, line.misfits, held)
    room = able if line.max_concurrency is None else line.max_concurrency - line.running
    return max(min(able, room), 0)


def _oldest(
    counts: Counts, waits: Sequence[Waits], tasks: Mapping[str, Task]
) -> tuple[float | None, str | None]:
    """Return since when the oldest of the next NEXT tasks of each line has been pending, and its
    id.
    """
    # Not only the next task: a younger one may have been put first.
    firsts = [
        tasks[task_id]
        for task_id in (*counts.head, *_firsts(waits))
        if tasks[task_id].status == "pending"
    ]
    ages = [(since, task.id) for task in firsts if (since := entered(task)) is not None]
    return min(ages, default=(None, None))
