"""The progress of groups of tasks, and their members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.connection.redis import Redis, as_hash, raise_refusal
from blueque.errors import RedisRefused, WrongGroup
from blueque.model import keys
from blueque.model.group import (
    condition_on,
    gate_of,
    is_gate,
    is_held,
    is_of_workflow,
    parse,
    require_whole,
)
from blueque.model.parts import in_parts
from blueque.model.states import FINISHED
from blueque.queries.steps import in_step, of_each, read

if TYPE_CHECKING:
    from blueque.queries.steps import Reader

MOST = 100_000  # ids of a group that are read
TASKS_AT_ONCE = 1000  # tasks in one round trip
WAITERS = 1000  # tasks that wait for a group that are looked at


class GroupSeen(NamedTuple):
    """The progress of a group.

    record: its fields, see docs/protocol/groups.md, "Groups of tasks". `made_by` is its maker:
        `batch of [queue]`, a call with keys, which also closes it; or the digest of a workflow. A
        group that a program or person opened has none.
    members: how many tasks have joined it. open: how many of them are not known to have ended.
    bad: how many ended without being complete.
    waiting: how many unfinished tasks wait for the group. Beyond WAITERS they are not checked.
    cancelled_waiters: how many tasks waited for it and were cancelled: if requeued, they would wait
        again.
    """

    name: str
    record: dict[str, Any]
    members: int
    open: int
    bad: int
    waiting: int
    cancelled_waiters: int = 0

    def __repr__(self) -> str:
        counts = f"{self.complete} complete, {self.bad} bad, {self.open} open"
        return f"<GroupSeen {self.name!r} {self.state}: {counts}, {self.waiting} waiting for it>"

    @property
    def state(self) -> str:
        """open, closed or ended; making: not all tasks of a workflow are there.

        Then none of them runs, and no other task joins it or waits for it.
        """
        return str(self.record.get("state", ""))

    @property
    def kind(self) -> str:
        """workflow, if it was made as a whole; else group."""
        return "workflow" if is_of_workflow(self.record.get("made_by")) else "group"

    @property
    def is_whole(self) -> bool:
        """Whether all tasks are there; False for an incomplete workflow."""
        return "gate" not in self.record

    @property
    def is_cancelling(self) -> bool:
        """Whether it was cancelled and some of its tasks have not ended."""
        return "cancel" in self.record and self.state != "ended" and self.open > 0

    @property
    def is_deleted_with_tasks(self) -> bool:
        """Whether its tasks are deleted with it: it is a workflow that was cancelled while
        incomplete.

        None of its tasks has run.
        """
        is_awaited = self.waiting or self.cancelled_waiters
        return not self.is_whole and self.state == "ended" and not is_awaited

    @property
    def has_ended(self) -> bool:
        """Whether the group is closed, and all its members have ended."""
        return self.state in ("closed", "ended") and not self.open

    @property
    def complete(self) -> int:
        """How many members are complete."""
        return max(self.members - self.open - self.bad, 0)


class Member(NamedTuple):
    """A member of a group, as it is now. None: the task is gone."""

    task: str
    status: str | None
    queue: str | None
    group: str | None
    cancel: str | None = None


def look_at(redis: Redis, tasks: Sequence[str]) -> list[Member]:
    """Return the present state of members. One whose key has a wrong type is left out."""
    if not tasks:
        return []
    replies = redis.answers(*[("HMGET", keys.task(task), *Member._fields[1:]) for task in tasks])
    raise_refusal(
        [each for each in replies if not (isinstance(each, RedisRefused) and each.is_wrong_type)]
    )
    rows = zip(tasks, replies, strict=True)
    return [Member(task, *reply) for task, reply in rows if not isinstance(reply, RedisRefused)]


def not_whole(redis: Redis, tasks: Sequence[str]) -> dict[str, WrongGroup]:
    """Return the tasks that `requeue` refuses because their workflow is incomplete, with the errors."""
    found: dict[str, WrongGroup] = {}
    for some in in_parts(tasks, TASKS_AT_ONCE):
        found |= _not_whole(redis, look_at(redis, some))
    return found


def _not_whole(redis: Redis, tasks: Sequence[Member]) -> dict[str, WrongGroup]:
    groups = {each.task: each.group for each in tasks if each.group is not None}
    if not groups:
        return {}
    records, kinds = read(
        redis,
        in_step(
            of_each({name: _gate(name) for name in dict.fromkeys(groups.values())}),
            of_each({task: _condition_on_gate(task, group) for task, group in groups.items()}),
        ),
    )
    found: dict[str, WrongGroup] = {}
    for task, group in groups.items():
        dropped = [condition_on(gate_of(group))] if (kinds[task] or "").startswith("-") else []
        try:
            require_whole(group, *records[group], dropped)
        except WrongGroup as error:
            found[task] = error
    return found


def _gate(group: str) -> Reader[tuple[str | None, str | None]]:
    ((state, gate),) = yield [("HMGET", keys.group(group), "state", "gate")]
    return state, gate


def _condition_on_gate(task: str, group: str) -> Reader[str | None]:
    (kind,) = yield [("HGET", keys.conditions(task), condition_on(gate_of(group)))]
    return None if kind is None else str(kind)


def pick(redis: Redis, group: str, count: int) -> list[str]:
    """Return a random sample of the open members of a group."""
    (tasks,) = redis.read(("SRANDMEMBER", keys.open_members(group), count))
    return list(tasks)


def load(redis: Redis, name: str) -> GroupSeen | None:
    """Return the progress of a group; None: there is no such group."""
    return read(redis, group_seen(name))


def load_named(redis: Redis, names: Sequence[str]) -> list[GroupSeen]:
    """Return the progress of these groups, without those that do not exist."""
    found = read(redis, of_each({name: group_seen(name) for name in names}))
    return [group for group in found.values() if group is not None]


def group_seen(name: str) -> Reader[GroupSeen | None]:
    """Read the progress of a group; None: there is no such group.

    One round trip, and two more if tasks wait for it.
    """
    record, members, left, bad, waiting = yield [
        ("HGETALL", keys.group(name)),
        ("ZCARD", keys.members(name)),
        ("SCARD", keys.open_members(name)),
        ("SCARD", keys.bad_members(name)),
        ("ZCARD", keys.awaiting(name)),
    ]
    if not record:
        return None
    gone = (yield from _ended_waiters(name)) if waiting else 0
    return GroupSeen(name, parse(as_hash(record)), members, left, bad, waiting - gone, gone)


def _ended_waiters(name: str) -> Reader[int]:
    """Read how many of the first tasks that waited for a group have ended."""
    (tasks,) = yield [("ZRANGE", keys.awaiting(name), 0, WAITERS - 1)]
    states = yield [("HGET", keys.task(task), "status") for task in tasks]
    return sum(state in FINISHED for state in states)


def names(redis: Redis) -> list[str]:
    """Return the names of all groups."""
    (listed,) = redis.read(("ZRANGE", keys.GROUPS, 0, -1))
    return [name for name in listed if not is_gate(name)]


def load_all(redis: Redis) -> list[GroupSeen]:
    """Return the progress of all groups, newest first."""
    found = load_named(redis, names(redis))
    return sorted(found, key=lambda each: each.record.get("created", 0.0), reverse=True)


def members(redis: Redis, name: str, first: int = 0, count: int = 100) -> list[str]:
    """Return ids of members, in the order in which they were made."""
    (ids,) = redis.read(("ZRANGE", keys.members(name), first, first + count - 1))
    return [*ids]


def held(redis: Redis, names: Iterable[str], now: float) -> set[str]:
    """Return the groups whose members are kept until they are collected."""
    wanted = [*names]
    if not wanted:
        return set()
    records = redis.read(*[("HMGET", keys.group(name), "hold", "collected") for name in wanted])
    found = zip(wanted, records, strict=True)
    return {name for name, (hold, collected) in found if is_held(hold, collected, now)}


def bad_members(redis: Redis, name: str, limit: int | None = None) -> list[str]:
    """Return the ids of the members that ended without being complete, sorted.

    limit: at most this many, a random sample.
    """
    key = keys.bad_members(name)
    (ids,) = redis.read(("SMEMBERS", key) if limit is None else ("SRANDMEMBER", key, limit))
    return sorted(ids)


def count_gone(redis: Redis, name: str, *, only_bad: bool = False) -> int:
    """Return how many of the first members are no longer in Redis: they were archived or deleted.

    only_bad: count only those that were not complete.
    """
    ids = bad_members(redis, name) if only_bad else members(redis, name, count=MOST)
    parts = in_parts(ids, TASKS_AT_ONCE)
    return sum(each.status is None for some in parts for each in look_at(redis, some))
