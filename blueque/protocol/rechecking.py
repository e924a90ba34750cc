"""Compare a task with those that it waits for: recheck; and drop conditions: unblock."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import AnyLook, Command, Look, Redis, as_hash
from blueque.errors import WrongQueue, WrongState
from blueque.model import inputs, keys
from blueque.model.conditions import DROPPED, are_met, unmet
from blueque.model.group import condition_on, gate_of, require_whole
from blueque.protocol.children import Comparison, ParentSeen, cancel_child, child_look, let_go
from blueque.protocol.events import Event, record_event, record_in_queue
from blueque.protocol.fields import TaskFields
from blueque.protocol.parents import (
    LOOK_EVERY,
    Parent,
    groups_among,
    standing_of,
    standings_of,
    tasks_among,
    watched_of,
)
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import Reads

AT_ONCE = 100  # parents that one `recheck` reads
LOOKS_PER_SECOND = 50  # at the blocked tasks of one queue, at most


class Rechecked(NamedTuple):
    """The result of `recheck`.

    status: of the task now; None: it is gone, or the entry in the queue was out of date.
    waits: it waits for one of the parents. is_changed: it has another status than before.
    is_parent: others wait for it.
    """

    status: str | None
    waits: bool = False
    is_changed: bool = False
    is_parent: bool = False


def tell(redis: Redis, task: str, parent: Parent, now: float) -> Rechecked:
    """Do what `recheck` does, for one parent of any task."""
    return _recheck(redis, task, [parent.name], now)


def recheck(redis: Redis, queue: str, task: str, now: float) -> str:
    """Compare the conditions of a blocked task with its parents, and release, cancel or keep it.

    Return its new status; `stale`: it is not blocked, and its entry in this queue was dropped.
    """
    (reply,) = redis.read(("HGETALL", keys.conditions(task)))
    parents = unmet(as_hash(reply))
    if len(parents) > AT_ONCE:
        parents = random.sample(parents, AT_ONCE)
    return _recheck(redis, task, parents, now, queue).status or "stale"


def _recheck(
    redis: Redis,
    task: str,
    parents: Sequence[str],
    now: float,
    queue: str | None = None,
    with_result: bool = False,
) -> Rechecked:
    """queue: in which the time of the task has come; None: its parent has ended.

    with_result: read the result of the parent.
    """
    reading = _Reading(task, parents, queue, with_result)

    def decide(*replies: Any) -> Verdict[Rechecked | None]:
        seen = reading.seen(replies)
        fields = seen.fields
        if queue is not None and (fields.status, fields.queue) != ("blocked", queue):
            return Change([("ZREM", keys.blocked(queue), task)], Rechecked(None))
        compared = Comparison(task, fields, seen.conditions, seen.parents, seen.result)
        if compared.lacks_result:
            return Answer(None)
        commands, status = _decided(redis, compared, parents[0] if queue is None else "", now)
        if status == "blocked" and queue is not None:
            again = now + max(LOOK_EVERY, seen.blocked / LOOKS_PER_SECOND)
            commands += [("ZADD", keys.blocked(queue), again, task)]
        is_changed, is_parent = status != fields.status, fields.dependents is not None
        found = Rechecked(status, bool(compared.undecided), is_changed, is_parent)
        return Change(commands, found) if commands else Answer(found)

    done = transact(redis, "recheck", reading.look, decide)
    return done or _recheck(redis, task, parents, now, queue, with_result=True)


class _Seen(NamedTuple):
    """A task and its parents, by their names in conditions, at one instant.

    blocked: how many tasks of the queue are, if that was asked. result: of the parent, if that was
        asked.
    """

    fields: TaskFields
    conditions: dict[str, str]
    parents: dict[str, ParentSeen]
    blocked: int
    result: str | None


class _Reading:
    """What one look reads of a task and its parents. The rest as for `_recheck`."""

    def __init__(
        self, task: str, parents: Sequence[str], queue: str | None, with_result: bool
    ) -> None:
        own, reads = child_look(task), Reads()
        self._tasks, self._groups = tasks, groups = tasks_among(parents), groups_among(parents)
        self._own = reads.add(own.reads)
        self._blocked = reads.add([] if queue is None else [("ZCARD", keys.blocked(queue))])
        self._hashes = reads.add(
            ("HMGET", keys.task(each), "status", "dependents") for each in tasks
        )
        self._scores = reads.add(("ZSCORE", keys.dependents(each), task) for each in tasks)
        self._standings = reads.add(standing_of(groups))
        self._awaiting = reads.add(("ZSCORE", keys.awaiting(group), task) for group in groups)
        of_result = parents[:1] if with_result else []
        self._result = reads.add(
            ("HMGET", keys.task(each), "result", "result_encoding") for each in of_result
        )
        watch = [*own.watch, *map(keys.task, tasks), *watched_of(groups)]
        self.look: AnyLook = Look(watch, reads.commands, task)

    def seen(self, replies: Sequence[Any]) -> _Seen:
        """Return what the replies tell."""
        fields, conditions = replies[self._own]
        blocked, results = replies[self._blocked], replies[self._result]
        hashes = zip(self._tasks, replies[self._hashes], replies[self._scores], strict=True)
        parents = {
            task: ParentSeen(status, dependents, score)
            for task, (status, dependents), score in hashes
        }
        standings = standings_of(self._groups, replies[self._standings])
        for (group, seen), score in zip(standings.items(), replies[self._awaiting], strict=True):
            parents[condition_on(group)] = ParentSeen(seen.status, "1", score)
        return _Seen(
            TaskFields._make(fields),
            as_hash(conditions),
            parents,
            blocked[0] if blocked else 0,
            inputs.pack(*results[0]) if results else None,
        )


def _decided(
    redis: Redis, compared: Comparison, by: str, now: float
) -> tuple[list[Command], str | None]:
    """Return what follows for the task from its conditions, and its new status.

    by: the parent that has ended; empty: the time of the task has come.
    """
    task, fields, commands = compared.task, compared.fields, compared.commands(now, not by)
    if fields.status != "blocked":
        return commands, fields.status
    if compared.conditions and are_met(compared.conditions):
        freeing, status = let_go(redis, task, fields, by, now)
        return [*commands, *freeing], status
    culprit = compared.culprit()
    if culprit is None:
        return commands, "blocked"
    return [*commands, *cancel_child(redis, task, fields, *culprit, now)], "cancelled"


def unblock(
    redis: Redis, queue: str, task: str, now: float, by: str, parents: Collection[str] | None = None
) -> str:
    """Drop conditions of a blocked task for a person. Return its new status.

    by: the person. parents: those on these tasks; None: all of them.
    Raises WrongState, WrongQueue; WrongGroup for a task of an incomplete workflow, unless it still
        waits for the rest of it.
    """
    (group,) = redis.read(("HGET", keys.task(task), "group"))
    groups, own_gate = ([] if group is None else [group]), condition_on(gate_of(group or ""))

    def decide(
        reply: list[str | None], recorded: list[str], *records: list[str | None]
    ) -> Verdict[str | None]:
        fields, conditions = TaskFields._make(reply), as_hash(recorded)
        if fields.status is not None and fields.queue != queue:
            raise WrongQueue(task, queue)
        meant = {
            each: conditions[each] for each in conditions if parents is None or each in parents
        }
        if fields.status != "blocked":
            # Our own success, or that of another person.
            if fields.status is not None and DROPPED in meant.values():
                return Answer(fields.status)
            raise WrongState(task, fields.status, "unblock")
        if fields.group != group:
            return Answer(None)  # it was made anew meanwhile
        dropped = {each: DROPPED for each, kind in meant.items() if not kind.startswith("+")}
        left = {**conditions, **dropped}
        is_free = are_met(left)
        if not dropped and not is_free:
            return Answer("blocked")
        if left.get(own_gate, DROPPED).startswith("+"):
            for state, gate in records:
                require_whole(group or "", state, gate, dropped)
        dropping = _dropping(task, dropped, now)
        if is_free:
            freeing, status = let_go(redis, task, fields, by, now)
            notice = record_in_queue(queue, Event("unblocked", by, now), task)
            return Change([*dropping, *freeing, notice], status)
        event = Event("dropped", by, now, {"from": ", ".join(dropped)})
        return Change([*dropping, *record_event(redis, queue, task, fields, event)], "blocked")

    done = transact(redis, "unblock", child_look(task, groups), decide)
    return unblock(redis, queue, task, now, by, parents) if done is None else done


def _dropping(task: str, dropped: Mapping[str, str], now: float) -> list[Command]:
    tasks, groups = tasks_among(dropped), groups_among(dropped)
    return [
        *[("HSET", keys.conditions(task), parent, found) for parent, found in dropped.items()],
        ("HSET", keys.task(task), "updated", now),
        *[("ZREM", keys.dependents(each), task) for each in tasks],
        # If they have ended, `settle` sees whether others wait for them.
        *[("ZADD", keys.UNSETTLED_TASKS, now, each) for each in tasks],
        *[("ZREM", keys.awaiting(each), task) for each in groups],
        *[("ZADD", keys.GROUPS, 0, each) for each in groups],
    ]
