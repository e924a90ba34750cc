"""How far the tasks of runs are: the sizes of the sets of their groups, and which of them run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import Command, Connection, Redis, raise_refusal
from blueque.errors import InvalidInput, RunDropped, WaitTimedOut
from blueque.model import keys
from blueque.model.group import RUN
from blueque.model.run import Record
from blueque.model.task import Task
from blueque.queries import groups, runs
from blueque.queries.groups import GroupSeen
from blueque.queries.queue_ends import COALESCE
from blueque.queries.task_ends import Watcher
from blueque.text.eta import seconds_left

UNSETTLED_AT_ONCE = 10_000  # ends that groups have not noted


class RunSeen(NamedTuple):
    """How far a run is.

    state: open or committed: then all its tasks are in Redis.
    rows: of a run that was committed. tasks: how many there are so far, also of one that is open.
    complete, failed: how many have ended so; cancelled ones count as failed. running, waiting: how
        many have not ended. All four are None if the run has no group of its own.
    seconds_left: an estimate; None: it is too early.
    """

    queue: str
    run: str
    state: str
    rows: int | None
    tasks: int | None
    complete: int | None = None
    failed: int | None = None
    running: int | None = None
    waiting: int | None = None
    seconds_left: float | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the run is committed, and all its tasks have ended."""
        return self.state == "committed" and (self.running, self.waiting) == (0, 0)


def load(redis: Redis, queue: str, run: str, now: float) -> RunSeen:
    """Return how far a run is. Raises RunDropped if there is no such run."""
    record = runs.load(redis, queue, run)
    if record is None:
        raise RunDropped(run, queue)
    (seen,) = of_records(redis, [record], now)
    return seen


def of_records(redis: Redis, records: Sequence[Record], now: float) -> list[RunSeen]:
    """Return how far these runs are: at most four round trips for all of them."""
    names = list(dict.fromkeys(record["group"] for record in records if "group" in record))
    found = {group.name: group for group in groups.load_named(redis, names)}
    own = {record["group"]: record["queue"] for record in records if _has_own(record, found)}
    running = _running(redis, own)
    seen = [
        _seen(record, found[record["group"]] if record.get("group") in own else None, running, now)
        for record in records
    ]
    return _with_ledgers(redis, records, seen)


def require_own_group(redis: Redis, queue: str, run: str) -> str:
    """Return the group of a run that the run has opened. Raises RunDropped, InvalidInput."""
    record = runs.load(redis, queue, run)
    if record is None:
        raise RunDropped(run, queue)
    if "group" not in record:
        why = "it has no group, so nothing lists its tasks; give it one: group="
        raise InvalidInput(f"run {run!r} of queue {queue!r}: {why}")
    seen = groups.load(redis, record["group"])
    if seen is None:
        why = f"its group {record['group']!r} is forgotten, as all its tasks ended long ago"
        raise InvalidInput(f"run {run!r} of queue {queue!r}: {why}")
    if not _is_own(record, seen.record):
        why = f"others may join its group {seen.name!r}: see client.group({seen.name!r})"
        raise InvalidInput(f"run {run!r} of queue {queue!r}: {why}")
    return seen.name


def members(redis: Redis, wanted: Sequence[tuple[str, str]]) -> list[str] | None:
    """Return the ids of all tasks of these runs, each given as its queue and name. None: the groups
    of the runs do not list them, or they are too many.
    """
    records = [record for queue, run in wanted if (record := runs.load(redis, queue, run))]
    names = [record["group"] for record in records if "group" in record]
    found = {group.name: group for group in groups.load_named(redis, names)}
    own = [record["group"] for record in records if _has_own(record, found)]
    if len(own) < max(len(records), 1) or sum(found[name].members for name in own) > groups.MOST:
        return None
    return [task for name in own for task in groups.members(redis, name, count=groups.MOST)]


def _has_own(record: Record, found: Mapping[str, GroupSeen]) -> bool:
    group = found.get(record.get("group", ""))
    return group is not None and _is_own(record, group.record)


def _is_own(record: Record, group: Mapping[str, Any]) -> bool:
    return group.get("made_by") == f"{RUN}{record['run']} of {record['queue']}"


def _seen(
    record: Record, group: GroupSeen | None, running: Mapping[str, int], now: float
) -> RunSeen:
    state = str(record.get("state", ""))
    seen = RunSeen(record["queue"], record["run"], state, record.get("rows"), record.get("tasks"))
    if group is None:
        return seen
    left = None
    if state == "committed" and group.members:
        share = 1 - group.open / group.members
        left = seconds_left(share, now - record.get("created", now), 0.0) if group.open else 0.0
    at_work = min(running.get(group.name, 0), group.open)
    return seen._replace(
        tasks=group.members,
        complete=group.complete,
        failed=group.bad,
        running=at_work,
        waiting=group.open - at_work,
        seconds_left=left,
    )


def _with_ledgers(
    redis: Redis, records: Sequence[Record], found: Sequence[RunSeen]
) -> list[RunSeen]:
    """Return runs with the numbers of their tasks where only the ledgers of open runs have them."""
    wanted = {
        place: (record["queue"], record["run"], record["shards"])
        for place, (record, seen) in enumerate(zip(records, found, strict=True))
        if seen.tasks is None and "shards" in record
    }
    counts = dict(zip(wanted, runs.count_ledgers(redis, wanted.values()), strict=True))
    return [seen._replace(tasks=counts.get(place, seen.tasks)) for place, seen in enumerate(found)]


def _running(redis: Redis, queues: Mapping[str, str]) -> dict[str, int]:
    """Return how many started tasks of its queue are open members of each group."""
    if not queues:
        return {}
    wanted = list(dict.fromkeys(queues.values()))
    replies = redis.read(*[("SMEMBERS", keys.started(queue)) for queue in wanted])
    started = {
        queue: [member.rpartition(" ")[2] for member in reply]
        for queue, reply in zip(wanted, replies, strict=True)
    }
    asked = {group: started[queue] for group, queue in queues.items() if started[queue]}
    commands: list[Command] = [
        ("SMISMEMBER", keys.open_members(group), *tasks) for group, tasks in asked.items()
    ]
    counts = map(sum, redis.read(*commands))
    return dict(zip(asked, counts, strict=True))


class RunWatcher(Watcher):
    """Watches a run until it is committed and all its tasks have ended."""

    def __init__(
        self, connect: Callable[[], Connection], redis: Redis, queue: str, run: str
    ) -> None:
        super().__init__(connect, [run])
        self._redis, self._queue, self._run = redis, queue, run
        self._group = require_own_group(redis, queue, run)

    def rest(self, seconds: float) -> None:
        began = time.monotonic()
        super().rest(seconds)
        time.sleep(max(min(COALESCE, seconds - (time.monotonic() - began)), 0.0))

    def timed_out(self, timeout: float) -> WaitTimedOut:
        what = self.statuses[self._run]
        message = (
            f"run {self._run!r} of queue {self._queue!r} has not ended after {timeout:g} s: {what}"
        )
        return WaitTimedOut(timeout, self.statuses, message)

    def _look(self) -> Iterator[Task]:
        self._tracked.changed()
        group = self._group
        replies = self._tracked.exchange(
            ("HGET", keys.run(self._queue, self._run), "state"),
            ("HGET", keys.group(group), "state"),
            ("SCARD", keys.open_members(group)),
        )
        raise_refusal(replies)
        state, of_group, left = replies
        if state is None:
            raise RunDropped(self._run, self._queue)
        self.has_looked = True
        self.statuses[self._run] = f"{state}, {left} tasks left"
        is_over = state == "committed" and not left and of_group != "open"
        if is_over and not self._is_any_put_in_line_again():
            del self.statuses[self._run]
        yield from ()

    def _is_any_put_in_line_again(self) -> bool:
        """Tell whether a person has just requeued a failed task, and the group has not noted it."""
        unsettled = ("ZRANGE", keys.UNSETTLED_MEMBERS, 0, UNSETTLED_AT_ONCE - 1)
        (tasks,) = replies = self._tracked.exchange(unsettled)
        raise_refusal(replies)
        if not tasks:
            return False
        replies = self._tracked.exchange(("SMISMEMBER", keys.bad_members(self._group), *tasks))
        raise_refusal(replies)
        return any(replies[0])
