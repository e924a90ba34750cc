"""Why a task does not run: all facts, in six round trips, also for many tasks. sentences/why.py
turns them into sentences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from blueque.connection.redis import as_hash
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
    dependencies_of,
    parents_of,
    tasks_and_groups,
)
from blueque.queries.listeners import Node, all_listeners, listeners, members
from blueque.queries.queues import Pause, QueueSeen, RunningLimit, queue_seen
from blueque.queries.statistics import Usual, is_quiet, ran, usual
from blueque.queries.steps import answer, clock, in_step, of_each, read

if TYPE_CHECKING:
    from blueque.connection.redis import Redis
    from blueque.queries.steps import Reader

FARTHEST = 10_000  # places from the front of its line that are searched for the task
MAX_LINES = 1000  # lines that are counted, those of the highest priority
MAX_HOLDERS = 100  # tasks that hold a lock, or count as running in the queue
MAX_QUEUES = 1000  # queues whose listeners are read, those with the most listeners


class Inquiry(NamedTuple):
    """A task and its circumstances at one instant.

    line: the line in which it waits, or would wait. needs: what it needs; None: they are malformed.
    before: how many tasks are ahead of it in its line; None: it is not among the first FARTHEST.
    length: of its line.
    higher, beside: how many tasks wait in lines of higher priority, and in other lines of the same
        priority; without lines that wait for a lock.
    nodes: the listeners of its queue. others: listeners of other queues that share a node with these.
    holders: the tasks that hold its lock. counted: those that count as running in its queue.
    tasks: the tasks of these listeners, the holders, the counted, and those that it waits for, by
        id, with the fields in `listing.SHOWN`. Shared by all tasks of the same call.
    usual: how long tasks of its queue usually run, if it is pending, or runs without progress.
    wish: why its last attempt asked to run again later, if it is scheduled for that.
    workflow: the state of its group; None: it has none, or that is gone.
    dependencies: what it waits for, or waited for.
    broken: for each blocked task that it waits for, the tasks that hold that one up.
    causes: of the task, and of those that it waits for or that hold it up: the causes of their
        cancellation, see `causes`.
    listeners: of the running tasks that it waits for, by the ids of these.
    has_handler: whether the configuration on this host names what runs the tasks of its queue.
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
    room: RunningLimit
    nodes: Sequence[Node]
    others: Sequence[Node]
    holders: Sequence[str]
    counted: Sequence[str]
    tasks: Mapping[str, Task]
    usual: Usual | None = None
    wish: str | None = None
    workflow: str | None = None
    dependencies: Dependencies = NONE
    broken: Mapping[str, Sequence[Task]] = {}
    causes: Mapping[str, Sequence[Task]] = {}
    listeners: Mapping[str, Node] = {}
    has_handler: bool = False


def inquire(redis: Redis, task_id: str) -> Inquiry:
    """See Inspector.inquire."""
    task, now, every = read(redis, in_step(_task(task_id), clock(), _queues()))
    (workflow,), wish, parents, (inquiries, nodes) = read(
        redis,
        in_step(
            _workflow(task),
            history.wish(task.id) if task.status == "scheduled" else answer(None),
            _parents(task.id) if task.after is not None else answer(NONE),
            _inquiries([task], every, now),
        ),
    )
    (found,) = inquiries
    others = [each.task for each in parents.conditions]
    blocked = [each.task.id for each in parents.conditions if each.is_blocked]
    holding = broken(redis, blocked, MOST) if blocked else {}
    listeners = {
        other.id: node
        for other in others
        for node in nodes
        if other.status in HELD and (node.id, node.queue) == (other.node, other.queue)
    }
    return found._replace(
        tasks={**found.tasks, **{other.id: other for other in others}},
        wish=wish,
        workflow=workflow,
        dependencies=parents,
        broken=holding,
        causes=causes(redis, [task, *others, *chain(*holding.values())]),
        listeners=listeners,
    )


def inquire_many(redis: Redis, tasks: Sequence[Task]) -> list[Inquiry]:
    """Return the circumstances of these pending tasks: four round trips for any number of them.

    tasks: with the fields in `listing.SHOWN`.
    """
    now, every = read(redis, in_step(clock(), _queues()))
    return read(redis, _inquiries(tasks, every, now))[0]


def _queues() -> Reader[list[str]]:
    (names,) = yield [("ZRANGE", keys.QUEUES, 0, MAX_QUEUES - 1, "REV")]
    return list(names)


def _task(task_id: str) -> Reader[Task]:
    (reply,) = yield [("HGETALL", keys.task(task_id))]
    return Task(task_id, as_hash(reply))


def _workflow(task: Task) -> Reader[Sequence[str | None]]:
    """Read the state of the group of a task."""
    return (yield [("HGET", keys.group(task.fields.get("group", "")), "state")])


def _parents(task_id: str) -> Reader[Dependencies]:
    (conditions,) = yield [("HGETALL", keys.conditions(task_id))]
    tasks = yield from tasks_and_groups(parents_of(conditions))
    return dependencies_of(conditions, tasks)


class _Queue(NamedTuple):
    """The facts about the queue of a task.

    lengths: for each line before or beside those of the tasks, how many tasks wait in it, and how
        many hold the lock that they need.
    counted: some of the tasks that count as running.
    """

    seen: QueueSeen
    nodes: Sequence[Node]
    lengths: Mapping[str, tuple[int, int]]
    counted: Sequence[str]
    usual: Usual | None


def _inquiries(
    tasks: Sequence[Task], every: Sequence[str], now: float
) -> Reader[tuple[list[Inquiry], list[Node]]]:
    """Read the circumstances of tasks, without what they wait for, and all listeners: three round trips.

    every: the queues whose listeners are read.
    """
    lines = {task: line_of(task.fields.get("priority"), task.fields.get("needs")) for task in tasks}
    needs = {task: needs_of(line) for task, line in lines.items()}
    lowest = _lowest(lines)
    timed = {task.queue for task in tasks if task.status == "pending" or is_quiet(task)}
    queues, others, places, holders = yield from in_step(
        of_each({name: _queue(name, least, name in timed, now) for name, least in lowest.items()}),
        of_each({name: all_listeners(name, now) for name in every if name not in lowest}),
        of_each({task: _place(task, line) for task, line in lines.items()}),
        of_each({each.lock: _holders(each.lock) for each in needs.values() if each and each.lock}),
    )
    nodes = _by_queue(others, queues)
    sharing = {name: _sharing(nodes, name) for name in queues}
    held = [node.held for both in sharing.values() for node in chain(*both)]
    counted = [queue.counted for queue in queues.values()]
    loaded = yield from tasks_and_groups(chain(*held, *holders.values(), *counted))
    found = []
    for task, line in lines.items():
        queue = queues[task.queue or ""]
        its = needs[task]
        found.append(
            Inquiry(
                task,
                now,
                line,
                its,
                *places[task],
                *_count_others(line, queue),
                queue.seen.settings.pause,
                queue.seen.room,
                *sharing[queue.seen.queue],
                holders[its.lock] if its is not None and its.lock else [],
                queue.counted,
                loaded,
                usual=queue.usual,
            )
        )
    return found, nodes


def _by_queue(others: dict[str, list[Node]], queues: Mapping[str, _Queue]) -> list[Node]:
    """Return all listeners, by the names of their queues."""
    found = others | {name: [*queue.nodes] for name, queue in queues.items()}
    return [*chain(*(found[name] for name in sorted(found)))]


def _lowest(lines: Mapping[Task, str]) -> dict[str, int]:
    """Return the lowest priority of the tasks of each queue. lines: that of each task."""
    lowest: dict[str, int] = {}
    for task, line in lines.items():
        name, priority = task.queue or "", priority_of(line)
        lowest[name] = min(lowest.get(name, priority), priority)
    return lowest


def _queue(queue: str, lowest: int, is_timed: bool, now: float) -> Reader[_Queue]:
    """Read a queue: two round trips. lowest: the priority below which no line is read.

    is_timed: also read how long its tasks usually run.
    """
    seen, its, (counted,) = yield from in_step(
        queue_seen(queue, MAX_LINES), members(queue), _counted(queue)
    )
    names = [line for line in seen.lines if priority_of(line) >= lowest]
    nodes, lengths, durations = yield from in_step(
        listeners(queue, its, now),
        of_each({name: _length(queue, name) for name in names}),
        ran(queue, now) if is_timed else answer(None),
    )
    return _Queue(seen, nodes, lengths, counted, durations and usual(durations))


def _counted(queue: str) -> Reader[Sequence[list[str]]]:
    return (yield [("SRANDMEMBER", keys.counted(queue), MAX_HOLDERS)])


def _holders(lock: str) -> Reader[list[str]]:
    (tasks,) = yield [("SRANDMEMBER", keys.lock(lock), MAX_HOLDERS)]
    return list(tasks)


def _place(task: Task, line: str) -> Reader[tuple[int | None, int]]:
    """Read how many tasks are ahead of a task in its line, and the length of the line."""
    key = keys.line(task.queue or "", line)
    # From the front, which is the tail; but the reply counts from the head.
    index, length = yield [("LPOS", key, task.id, "RANK", -1, "MAXLEN", FARTHEST), ("LLEN", key)]
    return None if index is None else length - 1 - index, length


def _length(queue: str, name: str) -> Reader[tuple[int, int]]:
    """Read how many tasks wait in a line, and how many hold the lock that they need."""
    lock = (needs_of(name) or Needs()).lock or ""
    length, holders = yield [("LLEN", keys.line(queue, name)), ("SCARD", keys.lock(lock))]
    return length, holders


def _sharing(every: Sequence[Node], queue: str) -> tuple[list[Node], list[Node]]:
    """Return the listeners of the queue, and others that share resources or a process with them."""
    own = [node for node in every if node.queue == queue]
    ids, pools = {node.id for node in own}, {node.pool for node in own}
    return own, [
        node for node in every if node.queue != queue and (node.id in ids or node.pool in pools)
    ]


def _count_others(line: str, queue: _Queue) -> tuple[int, int]:
    """Return how many tasks wait in lines of higher priority, and in other lines of the same priority."""
    counts = [(DEFAULT, queue.seen.in_default)] if line != DEFAULT else []
    for name, (length, holders) in queue.lengths.items():
        needs = needs_of(name) or Needs()
        if name != line and (needs.lock is None or holders < needs.limit):
            counts.append((name, length))
    higher = sum(length for name, length in counts if priority_of(name) > priority_of(line))
    return higher, sum(length for name, length in counts if priority_of(name) == priority_of(line))
