"""The reads of one Redis, for programs and for people.

It never uses KEYS or SCAN. Unbounded reads: the sets of listeners and of started tasks, the list of
one listener, and `failed`. listing.py and overview.py read many things at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from blueque.connection.redis import Command, Redis, as_fields, as_hash
from blueque.errors import RedisRefused
from blueque.model import keys
from blueque.model.lines import Needs, parse_needs
from blueque.model.parts import in_parts
from blueque.model.states import WHEREABOUTS, Entry, Place, Whereabouts, may_hold
from blueque.model.task import Task
from blueque.queries import dependencies, line_order, listing, overview, statistics, why_facts
from blueque.queries.queues import QueueSeen, queue_seen
from blueque.queries.signs import Signs, signs
from blueque.queries.statistics import Statistics
from blueque.queries.steps import Reader, begin, clock, finish, read
from blueque.queries.tags import TagSeen, list_tags, tagged
from blueque.queries.tasks import load, with_contents

if TYPE_CHECKING:
    from blueque.queries.dependencies import Dependencies
    from blueque.queries.failures import Failures
    from blueque.queries.line_order import Head
    from blueque.queries.listeners import Node
    from blueque.queries.listing import Listing
    from blueque.queries.overview import Overview
    from blueque.queries.search import Choice
    from blueque.queries.task_graph import Graph
    from blueque.queries.why_facts import Inquiry

REGISTRATIONS_AT_ONCE = 500
TASKS_AT_ONCE = 1000
LISTENERS_AT_ONCE = 50  # whose resources are read
STARTED_AT_ONCE = 100  # entries that are compared with the hashes of their tasks
PROCESS = ("status", "queue", "node", "token", "pid", "pid_start", "boot", "ns")


class Inspector:
    """Reads one Redis and changes nothing."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def task(self, task_id: str) -> Task:
        return load(self._redis, task_id)

    def checkpoint(self, task_id: str) -> dict[str, str]:
        """Return the checkpoint of a task; see docs/protocol/recovery.md, "Checkpoints"."""
        (reply,) = self._redis.read(("HGETALL", keys.checkpoint(task_id)))
        return as_hash(reply)

    def time_limit(self, task_id: str) -> dict[str, str]:
        """Return the field `time_limit` of a task, if it has one."""
        (limit,) = self._redis.read(("HGET", keys.task(task_id), "time_limit"))
        return {} if limit is None else {"time_limit": limit}

    def inputs(self, task_id: str) -> dict[str, str]:
        """Return the results that a task is given, by the id of their task; see model/inputs.py."""
        (reply,) = self._redis.read(("HGETALL", keys.inputs(task_id)))
        return as_hash(reply)

    def now(self) -> float:
        """Return the time of the Redis server, against which ages are measured."""
        return read(self._redis, clock())

    def signs(self, task: Task, now: float | None = None) -> Signs:
        """Return the time, and when a task and its listener last showed a sign of life.

        now: the caller's time, needed for `usual`; None: without `usual`.
        """
        return read(self._redis, signs(task, now))

    def queues(self) -> list[str]:
        """Return the names of all queues, sorted."""
        (names,) = self._redis.read(("ZRANGE", keys.QUEUES, 0, -1))
        return sorted(names)

    def schedules(self) -> list[str]:
        """Return the names of all recurring tasks, sorted."""
        (names,) = self._redis.read(("ZRANGE", keys.SCHEDULES, 0, -1))
        return sorted(names)

    def has_schedule(self, name: str) -> bool:
        """Return whether there is a recurring task with this name."""
        (score,) = self._redis.read(("ZSCORE", keys.SCHEDULES, name))
        return score is not None

    def pending(self, queue: str) -> int:
        """Return how many tasks are in line, in all lines of the queue together."""
        length, others = self._redis.read(
            ("LLEN", keys.pending(queue)), ("ZRANGE", keys.lines(queue), 0, -1)
        )
        return sum(
            [length, *self._redis.read(*[("LLEN", keys.line(queue, name)) for name in others])]
        )

    def has_work(self, queue: str) -> bool:
        """Return whether a task is in the default line, or may be in another line."""
        return bool(self._redis.read(("EXISTS", keys.pending(queue), keys.lines(queue)))[0])

    def queue_seen(self, queue: str) -> QueueSeen:
        """Return how many tasks a queue has in each state, and its settings: one round trip."""
        return read(self._redis, queue_seen(queue))

    def settings(self, queues: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings of each queue as a hash; empty if it cannot be read."""
        names = [*queues]
        replies = self._redis.answers(*[("HGETALL", keys.settings(queue)) for queue in names])
        return {
            queue: {} if isinstance(reply, RedisRefused) else as_hash(reply)
            for queue, reply in zip(names, replies, strict=True)
        }

    def heads(self, queue: str) -> Iterator[Head]:
        """Yield the lines of the queue that have work, in the order in which to try them."""
        return line_order.heads(self._redis, queue)

    def holders(self, queue: str, lock: str | None) -> list[Task]:
        """Return the tasks that hold a lock; without a lock, those that count as running in the queue.

        They have the fields of `tasks`.
        """
        (ids,) = self._redis.read(
            ("SMEMBERS", keys.counted(queue) if lock is None else keys.lock(lock))
        )
        return self.tasks(sorted(ids))

    def started(self, queues: Sequence[str]) -> list[Task]:
        """Return the started tasks of these queues, with the facts about their processes."""
        members = self._redis.read(*[("SMEMBERS", keys.started(queue)) for queue in queues])
        ids = [member.rpartition(" ")[2] for some in members for member in some]
        found: list[Task] = []
        for some in in_parts(ids, TASKS_AT_ONCE):
            hashes = self._redis.read(
                *[("HMGET", keys.task(task_id), *PROCESS) for task_id in some]
            )
            for task_id, its in zip(some, hashes, strict=True):
                fields = as_fields(PROCESS, its)
                found.append(Task(task_id, fields))
        return [task for task in found if task.status == "started"]

    def contradicted_started(self, queue: str) -> dict[str, str]:
        """Return started entries that contradict the hash of their task, with its id.

        It checks a hundred random entries.
        """
        place = Place("started", queue)
        (members,) = self._redis.read(("SRANDMEMBER", place.key, STARTED_AT_ONCE))
        ids = [member.rpartition(" ")[2] for member in members]
        hashes = self._redis.read(*[("HMGET", keys.task(task_id), *WHEREABOUTS) for task_id in ids])
        found = zip(members, ids, hashes, strict=True)
        return {
            member: task_id
            for member, task_id, its in found
            if not may_hold(Entry(place, member), task_id, Whereabouts(*its))
        }

    def others_with_resources(self, queue: str, asker: str) -> dict[str, dict[str, int]]:
        """Return the total resources of other listeners of the queue, from a random sample of fifty.

        Leaves out listeners that are dead, have an order, or share the resources of `asker`.
        """
        (nodes,) = self._redis.read(("SRANDMEMBER", keys.listeners(queue), LISTENERS_AT_ONCE))
        random.shuffle(nodes)
        ours, *others = self.registrations([(queue, node) for node in (asker, *nodes)])
        return {
            node: dict((parse_needs(known.get("resources", "")) or Needs()).resources)
            for node, known in zip(nodes, others, strict=True)
            if known.get("state") == "alive"
            and known.get("order", "work") == "work"
            and _pool(known) != _pool(ours)
        }

    def idle(self, queue: str, nodes: Sequence[str]) -> list[str]:
        """Return which of these listeners of a queue hold no task of the queue: one round trip."""
        held = self._redis.read(*[("LLEN", keys.reserved(queue, node)) for node in nodes])
        return [node for node, count in zip(nodes, held, strict=True) if not count]

    def with_work(
        self, queues: Sequence[str], on_refusal: Callable[[str, RedisRefused], object]
    ) -> set[str]:
        """Return which queues have tasks in line and are not paused: one round trip.

        on_refusal: called for a queue that has a key of a wrong type. It counts as one without work.
        """
        readers = {queue: _has_work(queue) for queue in queues}
        asked = {queue: begin(reader) for queue, reader in readers.items()}
        # Every refusal comes as a value: a key of a wrong type must not cost further reads.
        replies = iter(self._redis.answers(*chain.from_iterable(asked.values())))
        found: set[str] = set()
        for queue, reader in readers.items():
            try:
                if finish(reader, [next(replies) for _ in asked[queue]]):
                    found.add(queue)
            except RedisRefused as error:
                if not error.is_wrong_type:
                    raise
                on_refusal(queue, error)
        return found

    def has_any_work(self, queues: Sequence[str]) -> bool:
        """Return whether any of the queues has, or may have, a task in line: one command."""
        return bool(
            self._redis.read(("EXISTS", *map(keys.pending, queues), *map(keys.lines, queues)))[0]
        )

    def has_anything(self, listeners: Sequence[tuple[str, str]]) -> bool:
        """Return whether any listener holds a task, or its queue has one to run: one command.

        listeners: by queue and node.
        """
        names = [
            (
                keys.pending(queue),
                keys.lines(queue),
                keys.scheduled(queue),
                keys.reserved(queue, node),
            )
            for queue, node in listeners
        ]
        return bool(self._redis.read(("EXISTS", *chain.from_iterable(names)))[0])

    def markers(self, queue: str, node: str) -> tuple[bool, bool]:
        """Return whether the wake-up marker of a queue, and the order marker of a listener, are set."""
        work, orders = self._redis.read(
            ("ZCARD", keys.wake(queue)), ("ZCARD", keys.orders(queue, node))
        )
        return bool(work), bool(orders)

    def due(self, queues: Sequence[str], now: float) -> list[str]:
        """Return which queues have a scheduled task that is due: one command if nothing is scheduled."""
        if not self._redis.read(("EXISTS", *map(keys.scheduled, queues)))[0]:
            return []
        replies = self._redis.read(
            *[
                ("ZRANGEBYSCORE", keys.scheduled(queue), "-inf", now, "LIMIT", 0, 1)
                for queue in queues
            ]
        )
        return [queue for queue, found in zip(queues, replies, strict=True) if found]

    def listeners(self, queue: str) -> list[str]:
        """Return the node ids of the queue's listeners, sorted, including those of 1.0.0."""
        (nodes,) = self._redis.read(("SMEMBERS", keys.listeners(queue)))
        return sorted(nodes)

    def registration(self, queue: str, node: str) -> dict[str, str]:
        """Return the registration of a listener; empty for a listener of 1.0.0."""
        (reply,) = self._redis.read(("HGETALL", keys.listener(queue, node)))
        return as_hash(reply)

    def registrations(self, listeners: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
        """Return the registrations of listeners, given by queue and node: one round trip for 500."""
        found: list[dict[str, str]] = []
        for some in in_parts(listeners, REGISTRATIONS_AT_ONCE):
            replies = self._redis.read(
                *[("HGETALL", keys.listener(queue, node)) for queue, node in some]
            )
            found += [as_hash(reply) for reply in replies]
        return found

    def nodes_of_started(self, queues: Sequence[str]) -> list[set[str]]:
        """Return the nodes of the started tasks of each queue: one round trip."""
        replies = self._redis.read(*[("SMEMBERS", keys.started(queue)) for queue in queues])
        return [
            {member.rsplit(" ", 2)[0] for member in members if member.count(" ") >= 2}
            for members in replies
        ]

    def reserved(self, queue: str, node: str) -> list[str]:
        """Return the ids of the tasks that a listener holds, newest first."""
        (held,) = self._redis.read(("LRANGE", keys.reserved(queue, node), 0, -1))
        return list(held)

    def held(self, listeners: Sequence[tuple[str, str]]) -> list[list[str]]:
        """Return the ids of the tasks that each listener holds, newest first: one round trip."""
        return self._redis.read(
            *[("LRANGE", keys.reserved(queue, node), 0, -1) for queue, node in listeners]
        )

    def count_later(self, queues: Sequence[str]) -> tuple[int, int]:
        """Return how many tasks of these queues are blocked, and how many scheduled: one round trip."""
        reads: list[Command] = [("ZCARD", keys.blocked(queue)) for queue in queues]
        reads += [("ZCARD", keys.scheduled(queue)) for queue in queues]
        counts = self._redis.read(*reads)
        return sum(counts[: len(queues)]), sum(counts[len(queues) :])

    def tasks(self, ids: Sequence[str]) -> list[Task]:
        """Return snapshots of these tasks in this order, with the fields in `listing.SHOWN`."""
        found: list[Task] = []
        for first in range(0, len(ids), TASKS_AT_ONCE):
            found += listing.shown(self._redis, ids[first : first + TASKS_AT_ONCE]).values()
        return found

    def with_contents(self, tasks: Sequence[Task], names: Sequence[str] = ("what",)) -> list[Task]:
        """Return these tasks with further fields, for people.

        names: of fields; `what` means the parameters of a task that has no title.
        A field of more than 16 KiB is replaced by its size. Two round trips for a thousand fields,
        and at most 4 MiB.
        """
        return with_contents(self._redis, tasks, names)

    def archiving(self, queues: Sequence[str]) -> list[dict[str, str]]:
        """Return the record of the open archive batch of each queue; empty if there is none."""
        return [
            as_hash(reply)
            for reply in self._redis.read(*[("HGETALL", keys.archive(queue)) for queue in queues])
        ]

    def nodes(self) -> list[Node]:
        """Return the listeners of all queues, by queue and name: three round trips."""
        return listing.all_nodes(self._redis)

    def overview(self, only: Collection[str] | None = None) -> Overview:
        """Return the state of everything: at most six round trips for any number of tasks and queues.

        In each queue the 10,000 lines of the highest priority are counted.
        only: the queues to read; None: all. Workflows, recurring tasks and the server are always read.
        """
        return overview.overview(self._redis, only)

    def listing(
        self,
        queues: Sequence[str],
        statuses: Sequence[str],
        limit: int,
        choice: Choice | None = None,
    ) -> Listing:
        """Return at most `limit` tasks of these queues and statuses, by status as in
        `listing.STATUSES`.

        Within a status: pending tasks by turn, scheduled tasks by eta, finished tasks newest first,
        others longest in the status first. In each queue 100 lines besides the default line are
        read. Three round trips, and more if there are very many lists.
        choice: a filter and another order. It searches 100,000 tasks, a thousand in each round
            trip, and stops at 20,000 matches.
        """
        if choice is not None:
            # here: what a listener imports, each of its forks copies
            from blueque.queries import search

            return search.search(self._redis, queues, statuses, limit, choice)
        return listing.listing(self._redis, queues, statuses, limit)

    def tags(self, prefix: str = "", limit: int = 1000) -> tuple[list[TagSeen], bool]:
        """Return the tags with this prefix and their numbers of tasks, and whether there are more."""
        return list_tags(self._redis, prefix, limit)

    def tagged(self, tags: Sequence[str]) -> tuple[list[str], bool]:
        """Return the ids of the tasks that have all of these tags, and whether there may be more.

        It reads 10,000 ids of each tag. Raises InvalidInput, InvalidType.
        """
        return tagged(self._redis, tags)

    def group_members(self, names: Sequence[str]) -> tuple[list[str], bool]:
        """Return the ids of the tasks of these groups and workflows, and whether there may be more.

        It reads 100,000 ids of each. Raises InvalidType.
        """
        from blueque.queries import groups

        found = [groups.members(self._redis, name, count=groups.MOST) for name in names]
        return [*chain(*found)], any(len(ids) == groups.MOST for ids in found)

    def inquire(self, task_id: str) -> Inquiry:
        """Return everything that may explain why a task does not run: at most six round trips.

        It takes more if the task waits for blocked tasks, see `broken`.
        """
        return why_facts.inquire(self._redis, task_id)

    def inquire_all(self, tasks: Sequence[Task]) -> list[Inquiry]:
        """Do as `inquire` for each of these pending tasks: four round trips for all of them.

        tasks: with the fields in `listing.SHOWN`.
        """
        return why_facts.inquire_many(self._redis, tasks) if tasks else []

    def dependencies(self, task: Task) -> Dependencies:
        """Return what a task waits for, and which tasks wait for it: at most two round trips."""
        return dependencies.dependencies(self._redis, task)

    def broken(self, ids: Sequence[str]) -> dict[str, list[Task]]:
        """Return the tasks and groups that hold up each of these blocked tasks.

        They, or others that they wait for, did not end as wanted or are gone. Blocked tasks that
        will be cancelled for that reason are left out. Two round trips for twenty tasks.
        """
        return dependencies.broken(self._redis, ids, dependencies.MOST)

    def broken_in(self, queues: Sequence[str]) -> dict[str, list[Task]]:
        """Do as `broken` for all blocked tasks of these queues.

        It searches 10,000 blocked tasks in all, equally many of each queue.
        """
        return dependencies.broken_in(self._redis, queues)

    def cause(self, task: Task) -> Task | None:
        """Return the task or group that caused the cancellation of a task; None: there is none.

        If that was cancelled because of another one, it is the first of the chain.
        """
        above = dependencies.causes(self._redis, [task]).get(task.id)
        return above[-1] if above else None

    def graph(self, task_id: str) -> Graph:
        """Return the tasks that a task waits for, directly or not, and the tasks that wait for it.

        task_id: or the name of a group in conditions, which stands for its tasks.
        At most 22 round trips, 20 levels and a thousand tasks in each direction.
        """
        # here: what a listener imports, each of its forks copies
        from blueque.queries import task_graph

        return task_graph.load(self._redis, task_id)

    def has_group(self, name: str) -> bool:
        """Return whether there is a group of tasks with this name."""
        return bool(self._redis.read(("EXISTS", keys.group(name)))[0])

    def group_names(self) -> list[str]:
        """Return the names of all groups."""
        from blueque.queries import groups

        return groups.names(self._redis)

    def statistics(self, queues: Sequence[str], days: int) -> list[Statistics]:
        """Do as `Client.get_statistics` for several queues.

        One round trip, and one for each 500 days of a queue.
        """
        return statistics.load(self._redis, queues, days)

    def failures(self, queues: Sequence[str], days: int) -> Failures:
        """Return the failures in these queues, grouped by error type; see failures.py."""
        # here: what a listener imports, each of its forks copies
        from blueque.queries import failures

        return failures.failures(self._redis, queues, days)

    def find(self, prefix: str) -> list[str]:
        """Return the ids that start with a prefix, sorted, at most 20.

        A prefix of at least 4 characters matches UUIDs; any other id must be whole. It searches the
        newest 10,000 tasks of each queue, 1,000 at each end of its lists, and the next 100 of 100
        lines. Two round trips for 20 queues.
        """
        # here: what a listener imports, each of its forks copies
        from blueque.queries import search

        return search.find(self._redis, prefix)


def _has_work(queue: str) -> Reader[bool]:
    """Read whether a queue has tasks in line and is not paused."""
    length, lines, is_paused = yield [
        ("LLEN", keys.pending(queue)),
        ("ZCARD", keys.lines(queue)),
        ("HEXISTS", keys.settings(queue), "paused"),
    ]
    return bool(length or lines) and not is_paused


def _pool(registration: Mapping[str, str]) -> tuple[str, ...]:
    """Return what listeners that share resources have in common."""
    return tuple(registration.get(name, "") for name in ("boot", "ns", "spool", "resources"))
