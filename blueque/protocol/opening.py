"""The records of groups: open_group, reopen_group, collect_group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from blueque.connection.redis import AnyLook, Command, Look, Redis, as_hash
from blueque.errors import NoSuchGroup, WrongGroup
from blueque.model import keys
from blueque.model.encoding import count_of
from blueque.model.group import MAKING, condition_on, is_of_workflow
from blueque.model.group_terms import Terms
from blueque.protocol.fields import flat
from blueque.protocol.parents import LOOK_EVERY, Parents, require_parents
from blueque.protocol.transaction import Answer, Change, Verdict, transact

AS_USUAL = Terms()
OTHERWISE = "it was opened with another `after` or `broken`, which never change"
_THEN_COLLECT = "wait for the end of the group, and read the results of its tasks first"


def open_group(
    redis: Redis, group: str, keep: int, now: float, terms: Terms = AS_USUAL
) -> dict[str, str]:
    """Create the record of a group if there is none, and return it.

    keep: for how many seconds the record stays after the end of the group, if no task waits for it.
    Raises NoSuchTask, NoSuchGroup for what its members wait for; WrongGroup if the group was opened
        with other terms, or if tasks might come to wait for each other.
    """
    key, parents = keys.group(group), Parents(terms.conditions)
    new = new_record(group, keep, now) | terms.record(now)
    if condition_on(group) in terms.conditions:
        raise WrongGroup(group, "a task that joins it cannot wait for it")

    def decide(reply: Sequence[str], *replies: Any) -> Verdict[dict[str, str]]:
        record = as_hash(reply)
        if record and terms.conditions and not terms.are_of(record):
            raise WrongGroup(group, OTHERWISE)
        if record:
            return Answer(record)
        found = parents.found(replies)
        require_parents(terms.conditions, found.statuses, found.making)
        found.require_closed()
        return Change(opening(new, now), new)

    look: AnyLook = Look([key, *parents.watch], [("HGETALL", key), *parents.reads])
    return transact(redis, "open_group", look, decide)


def reopen_group(
    redis: Redis, group: str, now: float, hold: int | None = None, made_by: str | None = None
) -> bool:
    """Let a closed group take members again. False: it was open.

    hold, made_by: as in `Terms`, from now on; None: unchanged.
    Raises NoSuchGroup; WrongGroup for a cancelled group, a workflow, and a hold longer than its keep.
    """
    key = keys.group(group)

    def decide(reply: list[str | None]) -> Verdict[bool]:
        state, cancel, maker, keep = reply
        if state is None:
            raise NoSuchGroup(group)
        if cancel is not None:
            raise WrongGroup(group, "it was cancelled", "cancelled")
        if state == MAKING or is_of_workflow(maker):
            raise WrongGroup(group, "it is a workflow: no other task joins it", state)
        if state == "open":
            return Answer(False)
        if hold is not None and hold > count_of(keep):
            why = (
                f"it is kept for {count_of(keep)} s after its end, so its tasks are held no longer"
            )
            raise WrongGroup(group, why)
        closer: list[Command] = [] if made_by is None else [("HSET", key, "made_by", made_by)]
        held: list[Command] = []
        if hold is not None:
            held = [("HSET", key, "hold", now + hold), ("HDEL", key, "collected")]
        return Change([*opening_again(group, now), *closer, *held], True)

    names = ("state", "cancel", "made_by", "keep")
    look: Look[list[str | None]] = Look([key], [("HMGET", key, *names)])
    return transact(redis, "reopen_group", look, decide)


def collect_group(redis: Redis, group: str, now: float) -> bool:
    """Record that the results of a group were collected: from now on its members are pruned as usual.

    False: that was recorded before, or they are not held. Raises NoSuchGroup; WrongGroup if some
        may not have ended, or more may join: their results cannot have been collected.
    """
    key, open_set = keys.group(group), keys.open_members(group)

    def decide(reply: list[str | None], size: int) -> Verdict[bool]:
        state, hold, collected = reply
        if state is None:
            raise NoSuchGroup(group)
        if hold is None or collected is not None:
            return Answer(False)
        if state not in ("closed", "ended"):
            raise WrongGroup(group, f"it is {state}; {_THEN_COLLECT}", state)
        if size:
            raise WrongGroup(group, f"it has open tasks ({size}); {_THEN_COLLECT}", state)
        return Change([("HSET", key, "collected", now)], True)

    look: Look[list[str | None], int] = Look(
        [key, open_set], [("HMGET", key, "state", "hold", "collected"), ("SCARD", open_set)]
    )
    return transact(redis, "collect_group", look, decide)


def new_record(group: str, keep: int, now: float) -> dict[str, str]:
    """Return the record of an open group."""
    return {"group": group, "state": "open", "keep": str(keep), "created": str(now)}


def opening(record: Mapping[str, str], now: float) -> list[Command]:
    """Return the commands that make a group with this record."""
    group = record["group"]
    return [
        # Left by a group with this name whose record has expired.
        ("UNLINK", *sets_of(group)),
        ("HSET", keys.group(group), *flat(record)),
        ("ZADD", keys.GROUPS, now + LOOK_EVERY, group),
    ]


def opening_again(group: str, now: float) -> list[Command]:
    """Return the commands that open a group that was closed."""
    key = keys.group(group)
    return [
        ("HSET", key, "state", "open"),
        ("HDEL", key, "closed", "ended", "expires"),
        ("PERSIST", key),
        ("ZADD", keys.GROUPS, now + LOOK_EVERY, group),
    ]


def sets_of(group: str) -> list[str]:
    """Return the keys of a group besides its record."""
    return [
        keys.members(group),
        keys.open_members(group),
        keys.bad_members(group),
        keys.awaiting(group),
    ]
