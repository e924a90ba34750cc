"""Groups of tasks: close_group, cancel_group, settle_members, finish_group, settle_group,
drop_group.

The state of a group is in sets of names. There are no counters, so doing a thing twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from blueque.connection.redis import Command, Look, Redis
from blueque.errors import NoSuchGroup, WrongGroup
from blueque.model import keys
from blueque.model.group import MAKING, gate_of
from blueque.model.states import FINISHED
from blueque.protocol.opening import sets_of
from blueque.protocol.parents import LOOK_EVERY, GroupParent
from blueque.protocol.settling import Settled, tell_dependents
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.text.format import count

MEMBERS_AT_ONCE = 100  # members of one settle_members
MAKE_MISSING = "make the missing ones before you close it"
CLOSED = "it is closed; open it again, and make the missing ones"
_OF_CANCEL = ("cancel", "cancelled_by", "cancel_reason")


def closing(group: str, now: float) -> list[Command]:
    """Return the commands that close an open group."""
    return [
        ("HSET", keys.group(group), "state", "closed", "closed", now),
        ("ZADD", keys.GROUPS, 0, group),
    ]


def close_group(
    redis: Redis, group: str, now: float, expected: int = 0, otherwise: str = MAKE_MISSING
) -> None:
    """Declare that no more tasks join a group: it ends with the last of its members.

    expected: how many members it must have. otherwise: what to do if it is open and has fewer.
    Raises NoSuchGroup; WrongGroup if it has fewer, and for an incomplete workflow.
    """

    def decide(reply: list[str | None], members: int) -> Verdict[None]:
        (state,) = reply
        if state is None:
            raise NoSuchGroup(group)
        if state == MAKING:
            raise WrongGroup(group, "not all of its tasks are there; commit it again, or cancel it")
        if members < expected:
            way_on = otherwise if state == "open" else CLOSED
            raise WrongGroup(group, fewer(members, expected, way_on))
        if state != "open":
            return Answer(None)
        return Change(closing(group, now), None)

    key = keys.group(group)
    size = ("ZCARD", keys.members(group))
    look: Look[list[str | None], int] = Look([key], [("HMGET", key, "state"), size])
    transact(redis, "close_group", look, decide)


def fewer(members: int, expected: int, way_on: str) -> str:
    """Return why a group with too few members is not closed, and what to do."""
    return f"it has {count(members, 'task')}, {expected:,} are expected: {way_on}"


def cancel_group(
    redis: Redis, group: str, by: str, reason: str | None, now: float, updated: str | None = None
) -> bool:
    """Close a group, and cancel its members that have not ended. False: the group has ended already.

    by, reason: who asks, and why. updated: only if it is incomplete and its last task was added then.
    Raises NoSuchGroup.
    """

    def decide(reply: list[str | None]) -> Verdict[bool]:
        state, cancel, changed = reply
        if state is None:
            raise NoSuchGroup(group)
        if cancel is not None or state == "ended":
            return Answer(cancel is not None)
        if updated is not None and (state, changed) != (MAKING, updated):
            return Answer(False)
        closed: Command = ("state", "closed", "closed", now) if state != "closed" else ()
        why: Command = ("cancel_reason", reason) if reason else ()
        who = ("cancel", now, "cancelled_by", by, *why)
        gate = gate_of(group)
        # What waits for a gate that is gone never runs.
        gone: list[Command] = [
            ("UNLINK", keys.group(gate), *sets_of(gate)),
            ("ZREM", keys.GROUPS, gate),
        ]
        return Change(
            [
                ("HSET", keys.group(group), *closed, *who),
                *(gone if state == MAKING else []),
                ("ZADD", keys.GROUPS, 0, group),
            ],
            True,
        )

    return transact(redis, "cancel_group", _record(group, "state", "cancel", "updated"), decide)


def settle_members(redis: Redis, group: str, tasks: Sequence[str]) -> None:
    """Record which members of a group have ended. The next check of the group decides what follows.

    tasks: at most 100. One that is gone, or now in another group, counts as bad. Nothing is
        recorded if the record of the group is gone.
    """
    key, hashes = keys.group(group), [keys.task(task) for task in tasks]

    def decide(exists: int, *replies: list[str | None]) -> Verdict[None]:
        ended, bad, again = _sorted(group, dict(zip(tasks, replies, strict=True)))
        forget: Command = ("ZREM", keys.UNSETTLED_MEMBERS, *tasks)
        if not exists:
            return Change([forget], None)
        open_set, bad_set = keys.open_members(group), keys.bad_members(group)
        well, finished = [*ended, *again], [*ended, *bad]
        return Change(
            [
                *([("SREM", open_set, *finished)] if finished else []),
                *([("SREM", bad_set, *well)] if well else []),
                *([("SADD", bad_set, *bad)] if bad else []),
                *([("SADD", open_set, *again)] if again else []),
                ("ZADD", keys.GROUPS, 0, group),
                forget,
            ],
            None,
        )

    reads: list[Command] = [("HMGET", each, "status", "group") for each in hashes]
    look: Look[int, *tuple[list[str | None], ...]] = Look(
        [key, *hashes], [("EXISTS", key), *reads], tasks[0]
    )
    transact(redis, "settle_members", look, decide)


def _sorted(
    group: str, members: Mapping[str, Sequence[str | None]]
) -> tuple[list[str], list[str], list[str]]:
    """Return the members that are complete, those that ended otherwise, and all others.

    members: status and group of each.
    """
    found: tuple[list[str], list[str], list[str]] = ([], [], [])
    for task, (status, of_group) in members.items():
        is_gone = of_group != group
        place = 0 if status == "complete" else 1 if status in FINISHED else 2
        found[1 if is_gone else place].append(task)
    return found


def finish_group(redis: Redis, group: str, now: float) -> str | None:
    """End a closed group without open members, or reopen it if it has some. Return its new state.

    None: its record is gone, so everything else of it is removed.
    """
    key = keys.group(group)
    later: Command = ("ZADD", keys.GROUPS, now + LOOK_EVERY, group)

    def decide(reply: list[str | None], size: int) -> Verdict[str | None]:
        (state,) = reply
        if state is None:
            return Change([("UNLINK", *sets_of(group)), ("ZREM", keys.GROUPS, group)], None)
        if state == "closed" and not size:
            ended = ("HSET", key, "state", "ended", "ended", now)
            # The next look tells the tasks that wait for it.
            return Change([ended, ("ZADD", keys.GROUPS, 0, group)], "ended")
        if state == "ended" and size:
            again: list[Command] = [
                ("HSET", key, "state", "closed"),
                ("HDEL", key, "ended", "expires", *_OF_CANCEL),
                ("PERSIST", key),
            ]
            return Change([*again, later], "closed")
        return Answer(state) if state == "ended" else Change([later], state)

    open_set = keys.open_members(group)
    look: Look[list[str | None], int] = Look(
        [key, open_set], [("HMGET", key, "state"), ("SCARD", open_set)]
    )
    return transact(redis, "finish_group", look, decide)


def settle_group(redis: Redis, group: str, now: float) -> Settled:
    """Tell up to a hundred tasks that wait for a group how it ended, as `settle` does for a task.

    After the last of them, the record gets the time at which it expires.
    """
    return tell_dependents(redis, "settle_group", GroupParent(group), now)


def drop_group(redis: Redis, group: str) -> bool:
    """Remove a group that has ended and that no task waits for. Its tasks stay. False: there is none.

    Raises WrongGroup.
    """

    def decide(reply: list[str | None], waiting: int) -> Verdict[bool]:
        state, cancel = reply
        if state is None:
            return Answer(False)
        if state != "ended" and cancel is not None:
            raise WrongGroup(group, "it is being cancelled; wait until its tasks have ended")
        if state != "ended":
            raise WrongGroup(group, f"it is {state}; cancel it first")
        if waiting:
            raise WrongGroup(group, "tasks wait for it")
        return Change(
            [("UNLINK", keys.group(group), *sets_of(group)), ("ZREM", keys.GROUPS, group)], True
        )

    key, awaiting = keys.group(group), keys.awaiting(group)
    look: Look[list[str | None], int] = Look(
        [key, awaiting], [("HMGET", key, "state", "cancel"), ("ZCARD", awaiting)]
    )
    return transact(redis, "drop_group", look, decide)


def _record(group: str, *names: str) -> Look[list[str | None]]:
    key = keys.group(group)
    return Look([key], [("HMGET", key, *names)])
