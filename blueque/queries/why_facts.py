"""Everything that bears on why a task does not run, in six round trips, or on why each of many does
not. sentences/why.py turns it into sentences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.model import keys
from blueque.model.lines import DEFAULT, Needs, line_of, needs_of, priority_of
from blueque.model.states import HELD
from blueque.model.task import Task
from blueque.queries import history
from blueque.queries.dependencies import (
    MOST,
    NONE,
    Dependencies,
    broken,
    causes,
    load_all,
    parents_of,
    take_dependencies,
)
from blueque.queries.line_order import Room
from blueque.queries.listeners import Members, Node, ask_members, read_groups, read_nodes_and
from blueque.queries.listing import to_seconds
from blueque.queries.statistics import Usual, ask_usual, is_quiet, take_usual
from blueque.queries.tasks import load
from blueque.queries.waiting_lines import Pause, pause_of

if TYPE_CHECKING:
    from blueque.connection.redis import Command, Redis

FARTHEST = 10_000  # places from the front of its line that are searched for the task
MAX_LINES = 1000  # lines that are counted, those of the highest priority
MAX_HOLDERS = 100  # tasks that hold a lock, or count as running in the queue
MAX_QUEUES = 1000  # queues whose listeners are read, those with the most listeners


class Inquiry(NamedTuple):
    """A task and its circumstances at one instant.

    line: the line in which it waits, or would wait. needs: what it needs; None: its needs make no
        sense.
    before: how many tasks are ahead of it in its line; None: it is not there, or not among the
        first FARTHEST.
    length: of its line. higher, beside: how many tasks wait in lines of higher priority, and in
        other lines of the same priority; without lines that wait for a lock.
    nodes: the listeners of its queue. others: listeners of other queues that share a node with
        these.
    holders: the tasks that hold its lock; counted: those that count as running in its queue.
    tasks: the tasks that these listeners hold, the holders, the counted and those that it waits
        for, by id, with the fields in `listing.SHOWN`; with the same of others asked for with it.
    staged: the state of its run, if the task is staged and not visible yet; else None.
    usual: how long tasks of its queue usually run, if it is pending, or runs without progress.
    wish: why its last attempt asked to run again later, if it is scheduled for that.
    workflow: the state of its group; None: it has none, or that is gone.
    dependencies: what it waits for, or waited for. broken: of each task that it waits for, and that
        is blocked itself, the tasks that hold that one up. causes: of the task, and of those that it
        waits for or that hold it up, the task or group that caused its cancellation, if any did.
    listeners: of those that it waits for and that run, by the ids of these.
    has_handler: the configuration here, which is not in Redis, names what runs the tasks of its
        queue.
    """

    task: Task
    now: float
    line: str
    needs: Needs | None
    before: int | None
    length: int
    higher: int
    beside: int
    pause: Pause | None
    room: Room
    nodes: Sequence[Node]
    others: Sequence[Node]
    holders: Sequence[str]
    counted: Sequence[str]
    tasks: Mapping[str, Task]
    staged: str | None = None
    usual: Usual | None = None
    wish: str | None = None
    workflow: str | None = None
    dependencies: Dependencies = NONE
    broken: Mapping[str, Sequence[Task]] = {}
    causes: Mapping[str, Task] = {}
    listeners: Mapping[str, Node] = {}
    has_handler: bool = False


def inquire(redis: Redis, task_id: str) -> Inquiry:
    """See Inspector.inquire."""
    task = load(redis, task_id)
    queue = task.queue or ""
    of_task: list[Sequence[Command]] = [
        [
            ("ZSCORE", keys.tasks(queue), task.id),
            ("HGET", keys.run(queue, task.run or ""), "state"),
            ("HGET", keys.group(task.fields.get("group", "")), "state"),
        ],
        history.ask_latest(task.id) if task.status == "scheduled" else [],
        [("HGETALL", keys.conditions(task.id))] if task.after is not None else [],
    ]
    (found,), nodes, [(indexed, state, workflow), latest, conditions] = _look(
        redis, [task], of_task
    )
    parents = take_dependencies([*conditions, 0, ()], found.tasks) if conditions else NONE
    blocked = [each.task.id for each in parents.conditions if each.is_blocked]
    holding = broken(redis, blocked, MOST) if blocked else {}
    ended = [task, *(each.task for each in parents.conditions)]
    ended += [each for some in holding.values() for each in some]
    listeners = {
        each.task.id: node
        for each in parents.conditions
        for node in nodes
        if each.task.status in HELD and (node.id, node.queue) == (each.task.node, each.task.queue)
    }
    is_staged = task.run is not None and indexed is None and task.attempt is None
    return found._replace(
        staged=(state or "unknown") if is_staged else None,
        wish=history.take_wish(task.id, latest),
        workflow=workflow,
        dependencies=parents,
        broken=holding,
        causes=causes(redis, ended),
        listeners=listeners,
    )


def inquire_many(redis: Redis, tasks: Sequence[Task]) -> list[Inquiry]:
    """Return the circumstances of these pending tasks, which have the fields in `listing.SHOWN`: four
    round trips for any number of them.
    """
    return _look(redis, tasks)[0]


class _Queue(NamedTuple):
    """The replies about a queue. lengths: of the lines that come before or beside those of the tasks
    asked for, and of their locks. days: of its numbers.
    """

    members: Sequence[Any]
    lines: Sequence[Any]
    settings: Sequence[Any]
    counted: Sequence[str]
    lengths: Mapping[str, tuple[int, int]] = {}
    days: Sequence[Any] = ()


def _look(
    redis: Redis, tasks: Sequence[Task], of_task: Sequence[Sequence[Command]] = ()
) -> tuple[list[Inquiry], list[Node], list[list[Any]]]:
    """Return the circumstances of tasks but for what they wait for, all listeners, and the replies
    to `of_task`; the last of these has the conditions of a task, whose parents are read as well.
    """
    wanted = [line_of(task.fields.get("priority"), task.fields.get("needs")) for task in tasks]
    locks = [needs.lock for line in wanted if (needs := needs_of(line)) and needs.lock is not None]
    locks = list(dict.fromkeys(locks))
    first: list[Sequence[Command]] = [
        [("TIME",), ("ZRANGE", keys.QUEUES, 0, MAX_QUEUES - 1, "REV")],
        [("SRANDMEMBER", keys.lock(lock), MAX_HOLDERS) for lock in locks],
        *of_task,
        *map(_ask_place, tasks, wanted),
    ]
    lowest = _lowest(tasks, wanted)
    asked = [group for name in lowest for group in _ask_queue(name)]
    (time, every_queue), held, *replies = read_groups(redis, [*first, *asked])
    more, replies = replies[: len(of_task)], replies[len(of_task) :]
    now, places, left = to_seconds(time), replies[: len(tasks)], iter(replies[len(tasks) :])
    queues = {name: _Queue(next(left), next(left), next(left), next(left)[0]) for name in lowest}
    members = {name: Members(*queue.members) for name, queue in queues.items()}
    members |= _members_of(redis, [name for name in every_queue if name not in queues])
    usual = {task.queue or "" for task in tasks if task.status == "pending" or is_quiet(task)}
    nodes, queues = _read_lines(redis, members, queues, lowest, usual, now)
    sharing = {name: _sharing(nodes, name) for name in queues}
    holders = dict(zip(locks, held, strict=True))
    ids = [task for own, others in sharing.values() for node in own + others for task in node.held]
    ids += [task for some in holders.values() for task in some]
    ids += [task for queue in queues.values() for task in queue.counted]
    ids += parents_of(more[-1][0]) if more and more[-1] else ()
    loaded = load_all(redis, ids)
    inquiries = [
        _inquiry(task, now, line, place, queues[queue], sharing[queue], holders, loaded)
        for task, line, place in zip(tasks, wanted, places, strict=True)
        for queue in [task.queue or ""]
    ]
    return inquiries, nodes, more


def _lowest(tasks: Sequence[Task], lines: Sequence[str]) -> dict[str, int]:
    """Return the queues of tasks, each with the lowest priority of the lines of its tasks."""
    lowest: dict[str, int] = {}
    for task, line in zip(tasks, lines, strict=True):
        queue, priority = task.queue or "", priority_of(line)
        lowest[queue] = min(lowest.get(queue, priority), priority)
    return lowest


def _read_lines(
    redis: Redis,
    members: Mapping[str, Members],
    queues: Mapping[str, _Queue],
    lowest: Mapping[str, int],
    usual: Set[str],
    now: float,
) -> tuple[list[Node], dict[str, _Queue]]:
    """Return all listeners, and the queues with the lengths of their lines: one round trip.

    lowest: the priority of each queue below which no line is read. usual: queues whose numbers are
        read, too.
    """
    lines = {
        name: [line for line in queue.lines[0] if priority_of(line) >= lowest[name]]
        for name, queue in queues.items()
    }
    groups: list[list[Command]] = []
    for name in queues:
        groups += [_ask_lengths(name, lines[name]), ask_usual(name, now) if name in usual else []]
    nodes, replies = read_nodes_and(redis, members, now, [*chain.from_iterable(groups)])
    left, found = iter(replies), {}
    for (name, queue), asked in zip(queues.items(), groups[1::2], strict=True):
        lengths = {line: (next(left), next(left)) for line in lines[name]}
        found[name] = queue._replace(lengths=lengths, days=[next(left) for _ in asked])
    return nodes, found


def _inquiry(
    task: Task,
    now: float,
    line: str,
    place: Sequence[Any],
    queue: _Queue,
    sharing: tuple[Sequence[Node], Sequence[Node]],
    holders: Mapping[str, Sequence[str]],
    tasks: Mapping[str, Task],
) -> Inquiry:
    needs, (index, length) = needs_of(line), place
    return Inquiry(
        task,
        now,
        line,
        needs,
        None if index is None else length - 1 - index,
        length,
        *_count_others(line, queue),
        *_read_settings(queue.settings),
        *sharing,
        holders[needs.lock] if needs is not None and needs.lock is not None else [],
        queue.counted,
        tasks,
        usual=take_usual(queue.days) if queue.days else None,
    )


def _members_of(redis: Redis, queues: Sequence[str]) -> dict[str, Members]:
    replies = read_groups(redis, [ask_members(queue) for queue in queues]) if queues else []
    return {queue: Members(*reply) for queue, reply in zip(queues, replies, strict=True)}


def _sharing(every: Sequence[Node], queue: str) -> tuple[list[Node], list[Node]]:
    """Return the listeners of the queue, and those of other queues that share resources or a
    process with them.
    """
    own = [node for node in every if node.queue == queue]
    ids, pools = {node.id for node in own}, {node.pool for node in own}
    return own, [
        node for node in every if node.queue != queue and (node.id in ids or node.pool in pools)
    ]


def _ask_place(task: Task, line: str) -> list[Command]:
    # From the front, which is the tail; but the reply counts from the head.
    key = keys.line(task.queue or "", line)
    return [("LPOS", key, task.id, "RANK", -1, "MAXLEN", FARTHEST), ("LLEN", key)]


def _ask_queue(queue: str) -> list[list[Command]]:
    return [
        ask_members(queue),
        [("ZRANGE", keys.lines(queue), 0, MAX_LINES - 1, "REV"), ("LLEN", keys.pending(queue))],
        [
            (
                "HMGET",
                keys.settings(queue),
                *("paused", "paused_by", "paused_reason", "max_concurrency"),
            ),
            ("SCARD", keys.counted(queue)),
            ("SCARD", keys.started(queue)),
        ],
        [("SRANDMEMBER", keys.counted(queue), MAX_HOLDERS)],
    ]


def _read_settings(replies: Sequence[Any]) -> tuple[Pause | None, Room]:
    (paused, by, reason, limit), counted, started = replies
    most = int(limit) if limit is not None and limit.isdecimal() else None
    return pause_of(paused, by, reason), Room(most, counted, started)


def _ask_lengths(queue: str, names: Sequence[str]) -> list[Command]:
    """Return the commands that read how many tasks wait in each line, and how many hold the lock
    that they need.
    """
    locks = [(needs_of(name) or Needs()).lock or "" for name in names]
    return [
        command
        for name, lock in zip(names, locks, strict=True)
        for command in (("LLEN", keys.line(queue, name)), ("SCARD", keys.lock(lock)))
    ]


def _count_others(line: str, queue: _Queue) -> tuple[int, int]:
    """Return how many tasks wait in lines of higher priority, and in other lines of the same
    priority.
    """
    counts = [(DEFAULT, queue.lines[1])] if line != DEFAULT else []
    for name, (length, holders) in queue.lengths.items():
        needs = needs_of(name) or Needs()
        if name != line and (needs.lock is None or holders < needs.limit):
            counts.append((name, length))
    higher = sum(length for name, length in counts if priority_of(name) > priority_of(line))
    return higher, sum(length for name, length in counts if priority_of(name) == priority_of(line))
