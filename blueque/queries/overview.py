"""The state of everything at one instant, in six round trips for any number of tasks and up to
2,000 queues.

Every read is bounded, and a list entry is only a hint, as in listing.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.connection.redis import Command, Redis, as_hash, raise_refusal
from blueque.errors import RedisRefused
from blueque.model import keys
from blueque.model.conditions import GONE, OK
from blueque.model.encoding import count_of, day_of, seconds_of
from blueque.model.group import MAKING, condition_on, group_of, is_gate, parse, workflow_of
from blueque.model.queue_settings import OLDEST
from blueque.model.start_time import EXPIRED
from blueque.queries import feeds
from blueque.queries.listeners import (
    Members,
    Node,
    ask_members,
    puts_in_line,
    read_groups,
    read_nodes_and,
    started_ids,
)
from blueque.queries.listing import (
    DAY,
    LATE,
    MAX_BLOCKED,
    OVERDUE,
    ask_shown,
    entered,
    in_order,
    take_shown,
    to_seconds,
)
from blueque.queries.quiet_queues import quiet_queues
from blueque.queries.schedules import Watched, ask_states, ask_watched, take_watched
from blueque.queries.statistics import USUAL_DAYS, Usual, ask_usual, tail, take_ran, usual
from blueque.queries.task_log import ask_printed, printed_at
from blueque.queries.waiting_lines import (
    MAX_HEADS,
    NEXT,
    Misfit,
    Pause,
    Waits,
    ask_lengths,
    ask_names,
    lock_of,
    misfits,
    pause_of,
    runnable,
    take_lengths,
)

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.statistics import Durations

MAX_FEEDS = 100  # open feeds of a queue that are read
MAX_FAILED = 100  # newest failed tasks of a queue that are read
MAX_FAILED_IN_ALL = 2000  # in all queues together, but LEAST_FAILED of each
LEAST_FAILED = 10
MAX_TALKING = 20  # tasks that run longest, whose last line is read
MAX_GROUPS = 1000  # that are read
HOUR = 3600.0
MAX_RUNNING_QUEUES = 20  # queues whose tasks run longest, whose usual run time is read
MANY = 5  # fewer failures within an hour are not too many
SHARE = 5  # more than one failure of so many ended tasks is too many

MAX_BLOCKED_IN_ALL = 400  # but one of each queue

MAX_HELD = (
    2000  # tasks that wait for failed and cancelled ones and are read, but LEAST_HELD of each
)
LEAST_HELD = 10

_OF_GROUPS = ("state", "created", "updated", "cancel")
_OF_FAILED = ("status", "queue", "error_type", "finished", "updated", "dependents", "broken_by")


class Holder(NamedTuple):
    """A failed or cancelled task, and how many blocked tasks it holds up.

    held: without those that were, or are to be, cancelled because of it. If more wait for it than
        are read, the others count, too.
    broken_by: the task or group that caused its own cancellation.
    """

    task: str
    status: str
    held: int
    broken_by: str | None = None


class Unclosed(NamedTuple):
    """A group that its producer has not closed, and for which it may do nothing more.

    state: open: all of its tasks have ended, if there are any; since: when it was opened. making:
        not all tasks of a workflow are there; since: when the last ones came.
    """

    group: str
    state: str
    since: float


class Groups(NamedTuple):
    """The groups of tasks, at most MAX_GROUPS.

    unended: how many have not ended. bad: how many have members that have ended and are not
        complete. holders: those that have ended and hold up tasks, by their names in conditions.
    """

    unended: int = 0
    bad: int = 0
    holders: Sequence[Holder] = ()
    unclosed: Sequence[Unclosed] = ()


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


class _Counts(NamedTuple):
    """The numbers of a queue, in the order in which `_ask_counts` asks for them."""

    members: Members
    started_count: int = 0
    scheduled: int = 0
    pending: int = 0
    complete: int = 0
    failed: int = 0
    cancelled: int = 0
    head: Sequence[str] = ()  # the last ids of the default line, the next task at the end
    next_due: Sequence[str] = ()  # task, eta
    late: int = 0
    overdue: int = 0
    newest_failed: Sequence[str] = ()
    names: Sequence[str] = ()  # of its lines besides the default line
    settings: Sequence[str | None] = ()
    counted: int = 0
    open_feeds: Sequence[str] = ()
    blocked: int = 0
    newest_cancelled: Sequence[str] = ()
    some_blocked: Sequence[str] = ()

    def newest(self, is_any_blocked: bool) -> Sequence[str]:
        """Return the ids of the newest failed tasks; if tasks wait for others, of the newest
        cancelled ones, too.
        """
        return [*self.newest_failed, *(self.newest_cancelled if is_any_blocked else ())]


class _Failed(NamedTuple):
    """The newest failed tasks of a queue, at most a day old.

    awaited: those for which others wait, or did; also cancelled tasks, and of any age.
    expired: how many tasks have not started in time today, UTC; 0 if no task is cancelled.
    """

    lost: tuple[str, ...]
    poison: tuple[str, ...]
    within_hour: int
    awaited: Sequence[Holder]
    orphans: tuple[str, ...] = ()
    expired: int = 0


def overview(redis: Redis, only: Collection[str] | None = None) -> Overview:
    """See Inspector.overview."""
    now, every, server, names, planned = _begin(redis)
    every = [queue for queue in every if only is None or queue in only]
    quiet = quiet_queues(redis, every)
    queues = [queue for queue in every if queue not in quiet]
    asked = [ask_members(queue) + _ask_counts(queue, now, len(queues)) for queue in queues]
    # The time is read last, so that it is later than every beat.
    asked += [_ask_groups(names), ask_states(planned), [("TIME",)]]
    *replies, seen_groups, states, (time,) = read_groups(redis, asked)
    groups, watched = _groups(names, seen_groups), list(take_watched(planned, states))
    counts = {
        queue: _Counts(Members(*reply[:3]), *reply[3:])
        for queue, reply in zip(queues, replies, strict=True)
    }
    nodes, waits, records, failed = _of_queues(redis, counts, now)
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
    own: dict[str, list[Node]] = {queue: [] for queue in queues}
    for node in nodes:
        own[node.queue].append(node)
    lines = []
    for queue in every:
        if queue in quiet:
            lines.append(Line(queue, 0, 0, 0, 0, quiet[queue], 0, 0, None, 0))
            continue
        line = _line(counts[queue], queue, waits[queue], own[queue], failed[queue], tasks, now)
        failures = failed[queue].within_hour if queue in failing else 0
        able = _runnable(line, waits[queue], held)
        own_holders = tuple(
            holders[one.task] for one in failed[queue].awaited if one.task in holders
        )
        lines.append(
            line._replace(
                runnable=able,
                failing=failures,
                holders=own_holders,
                orphans=failed[queue].orphans,
                expired=failed[queue].expired,
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
    failed: Mapping[str, _Failed],
    awaited: Sequence[Holder],
) -> _Details:
    """Return these tasks and what else can be read with them: one round trip."""
    suspects = [queue for queue, newest in failed.items() if newest.within_hour >= MANY]
    good = [_ask_good(queue, failed[queue].within_hour) for queue in suspects]
    lines = [line.line for waiting in waits.values() for line in waiting]
    locks = sorted({lock for line in lines if (lock := lock_of(line))})
    of_locks: list[Command] = [("SCARD", keys.lock(lock)) for lock in locks]
    most = max(MAX_HELD // max(len(awaited), 1), LEAST_HELD)
    commands = [*good, *of_locks, *_ask_waiting(awaited, most), *ask_shown(ids)]
    replies = iter(redis.read(*commands))
    last_good = {queue: next(replies) for queue in suspects}
    held = {lock: next(replies) for lock in locks}
    waiting = [(holder._replace(held=next(replies)), next(replies)) for holder in awaited]
    return _Details(take_shown(ids, [*replies]), last_good, held, waiting)


def _ask_waiting(holders: Iterable[Holder], most: int) -> list[Command]:
    """Return the commands that count and read the tasks that wait on after the end of others."""
    commands: list[Command] = []
    for holder in holders:
        group = group_of(holder.task)
        key = keys.dependents(holder.task) if group is None else keys.awaiting(group)
        # Those that were told that it has ended badly, and wait on, are at the end.
        commands += [("ZCARD", key), ("ZRANGE", key, 0, most - 1, "REV")]
    return commands


def _take_holders(
    waiting: Sequence[tuple[Holder, Sequence[str]]], replies: Iterator[Any]
) -> dict[str, Holder]:
    """Return the tasks that hold others, by id. replies: to `_ask_held`."""
    found = {}
    for holder, tasks in waiting:
        held = sum((next(replies), next(replies)) == (["blocked", None], OK) for _ in tasks)
        if held:
            found[holder.task] = holder._replace(held=holder.held - len(tasks) + held)
    return found


def _ask_held(waiting: Sequence[tuple[Holder, Sequence[str]]]) -> list[Command]:
    """Return the commands whose replies say which of these tasks wait on."""
    return [
        command
        for holder, tasks in waiting
        for task in tasks
        for command in (
            ("HMGET", keys.task(task), "status", "broken"),
            ("HGET", keys.conditions(task), holder.task),
        )
    ]


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
    time, names, groups, first, last, info, saves = redis.answers(
        ("TIME",),
        ("ZRANGE", keys.QUEUES, 0, -1),
        ("ZRANGE", keys.GROUPS, 0, MAX_GROUPS - 1),
        *ask_watched(),
        ("INFO",),
        ("CONFIG", "GET", "save"),
    )
    raise_refusal([time, names, groups, first, last])
    planned = list(dict.fromkeys([*first, *last]))
    groups = [name for name in groups if not is_gate(name)]
    if isinstance(info, RedisRefused):
        return to_seconds(time), sorted(names), None, groups, planned
    facts = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    if not isinstance(saves, RedisRefused) and len(saves) == 2:
        facts["save"] = saves[1]
    return to_seconds(time), sorted(names), facts, groups, planned


def _ask_groups(names: Iterable[str]) -> list[Command]:
    return [
        command
        for name in names
        for command in (
            ("HMGET", keys.group(name), *_OF_GROUPS),
            ("SCARD", keys.open_members(name)),
            ("SCARD", keys.bad_members(name)),
        )
    ]


def _groups(names: Sequence[str], replies: Sequence[Any]) -> Groups:
    records = [dict(zip(_OF_GROUPS, reply, strict=False)) for reply in replies[::3]]
    seen = [*zip(names, records, replies[1::3], replies[2::3], strict=True)]
    states = [record.get("state") for record in records]
    unended = sum(state not in ("ended", None) for state in states)
    bad = [(name, record) for name, record, _, size in seen if size]
    # Of others it is not decided how they end.
    ended = [
        Holder(condition_on(name), "failed", 0)
        for name, record in bad
        if record.get("state") == "ended"
    ]
    unclosed = [_unclosed(name, record, left) for name, record, left, _ in seen]
    return Groups(unended, len(bad), ended, tuple(each for each in unclosed if each is not None))


def _unclosed(name: str, fields: Mapping[str, str | None], left: int) -> Unclosed | None:
    state = fields.get("state")
    record = parse({field: value for field, value in fields.items() if value is not None})
    since = record.get("updated" if state == MAKING else "created")
    if (
        "cancel" in record
        or since is None
        or not (state == MAKING or (state == "open" and not left))
    ):
        return None
    return Unclosed(name, state, since)


def _of_queues(
    redis: Redis, counts: Mapping[str, _Counts], now: float
) -> tuple[list[Node], dict[str, list[Waits]], list[dict[str, str]], dict[str, _Failed]]:
    """Return the listeners, the lines, the feeds and the newest failures of all queues: seen round
    trip.
    """
    names = {queue: seen.names for queue, seen in counts.items()}
    lengths = ask_lengths(names)
    open_feeds = feeds.ask({queue: seen.open_feeds for queue, seen in counts.items()})
    is_any = any(seen.blocked for seen in counts.values())
    ended = {queue: seen.newest(is_any) for queue, seen in counts.items()}
    newest: list[Command] = [
        ("HMGET", keys.task(task_id), *_OF_FAILED) for ids in ended.values() for task_id in ids
    ]
    newest += [
        ("HGETALL", keys.conditions(task_id))
        for seen in counts.values()
        for task_id in seen.some_blocked
    ]
    ending = [queue for queue, seen in counts.items() if seen.cancelled]
    newest += [("HGET", keys.stats(queue, day_of(now)), EXPIRED) for queue in ending]
    members = {queue: seen.members for queue, seen in counts.items()}
    nodes, others = read_nodes_and(redis, members, now, [*lengths, *open_feeds, *newest])
    waits = take_lengths(names, others[: len(lengths)])
    snapshots = iter(others[len(lengths) + len(open_feeds) :])
    failed = {
        queue: _failed(queue, {task_id: next(snapshots) for task_id in ids}, now)
        for queue, ids in ended.items()
    }
    for queue, seen in counts.items():
        orphans = [task for task in seen.some_blocked if _waits_for_gone(next(snapshots))]
        failed[queue] = failed[queue]._replace(orphans=tuple(orphans))
    for queue in ending:
        failed[queue] = failed[queue]._replace(expired=count_of(next(snapshots)))
    return nodes, waits, feeds.take(others[len(lengths) : len(lengths) + len(open_feeds)]), failed


def _waits_for_gone(reply: Any) -> bool:
    """Tell whether a condition of a task cannot be met, because what it names is gone."""
    pairs = as_hash(reply).items()
    return any(kind == f"-{GONE}" and workflow_of(name) is None for name, kind in pairs)


def _ask_counts(queue: str, now: float, queues: int) -> list[Command]:
    newest = max(min(MAX_FAILED, MAX_FAILED_IN_ALL // queues), LEAST_FAILED)
    blocked = max(min(MAX_BLOCKED, MAX_BLOCKED_IN_ALL // queues), 1)
    return [
        ("SCARD", keys.started(queue)),
        ("ZCARD", keys.scheduled(queue)),
        ("LLEN", keys.pending(queue)),
        ("LLEN", keys.complete(queue)),
        ("LLEN", keys.failed(queue)),
        ("LLEN", keys.cancelled(queue)),
        ("LRANGE", keys.pending(queue), -NEXT, -1),
        ("ZRANGE", keys.scheduled(queue), 0, 0, "WITHSCORES"),
        ("ZCOUNT", keys.scheduled(queue), "-inf", now - LATE),
        ("ZCOUNT", keys.scheduled(queue), "-inf", now - OVERDUE),
        ("LRANGE", keys.failed(queue), 0, newest - 1),
        ask_names(queue),
        (
            "HMGET",
            keys.settings(queue),
            *("paused", "paused_by", "paused_reason", "max_concurrency", "max_pending", "discard"),
        ),
        ("SCARD", keys.counted(queue)),
        ("ZRANGEBYSCORE", keys.feeds(queue), "+inf", "+inf", "LIMIT", 0, MAX_FEEDS),
        ("ZCARD", keys.blocked(queue)),
        ("LRANGE", keys.cancelled(queue), 0, newest - 1),
        ("ZRANGE", keys.blocked(queue), 0, blocked - 1),
    ]


def _failed(queue: str, snapshots: Mapping[str, Sequence[str | None]], now: float) -> _Failed:
    ages, awaited = {}, []
    for task_id, (status, home, error_type, finished, updated, waits, cause) in snapshots.items():
        if home != queue or status not in ("failed", "cancelled"):
            continue
        if waits is not None:
            awaited.append(Holder(task_id, status, 0, cause))
        if status == "failed":
            ages[task_id] = now - (seconds_of(finished or updated) or 0.0), error_type
    lost, poison = (
        tuple(
            task_id
            for task_id, (age, error_type) in ages.items()
            if error_type == wanted and age <= DAY
        )
        for wanted in ("lost", "poison")
    )
    return _Failed(lost, poison, sum(age <= HOUR for age, _ in ages.values()), awaited)


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
    asked += _ask_held(waiting)
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
    return last_good.keys() - good, printed, ran, _take_holders(waiting, left)


def _firsts(lines: Sequence[Waits]) -> list[str]:
    return [task_id for line in lines[:MAX_HEADS] for task_id in line.head]


def _line(
    counts: _Counts,
    queue: str,
    waits: Sequence[Waits],
    nodes: Sequence[Node],
    failed: _Failed,
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
    counts: _Counts, waits: Sequence[Waits], tasks: Mapping[str, Task]
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
