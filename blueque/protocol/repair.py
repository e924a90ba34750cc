"""What an audit has found is repaired: drop_hint, put_back, mend, realign, recount, note_line. Each
looks again first.
"""

from __future__ import annotations

from blueque.connection.redis import Command, Look, Redis
from blueque.model import keys
from blueque.model.lines import DEFAULT, line_of
from blueque.model.states import (
    FINISHED,
    LISTS,
    MARK,
    STATUSES,
    TYPES,
    WHEREABOUTS,
    Entry,
    Place,
    Whereabouts,
    home,
    may_hold,
)
from blueque.protocol.fields import make_known, stand
from blueque.protocol.transaction import Answer, Change, transact

_REMOVE: dict[str, tuple[str | int, ...]] = {
    "list": ("LREM", 1),
    "zset": ("ZREM",),
    "set": ("SREM",),
}
# What an outcome has besides, by the field that counts.
_RESULT, _ERROR = ("result", "result_encoding"), ("error", "error_type", "traceback")


def drop_hint(redis: Redis, place: Place, text: str, task: str) -> bool:
    """Remove an entry that does not agree with the hash of the task, or stands there twice. False:
    it is right as it is.

    text: the entry. task: the id in it; the text itself if there is none.
    """
    dropped = _drop_hint(redis, place, text, task, DEFAULT)
    while isinstance(dropped, str):  # now that we know in which line it may be
        dropped = _drop_hint(redis, place, text, task, dropped)
    return dropped


def _drop_hint(redis: Redis, place: Place, text: str, task: str, line: str) -> bool | str:
    key, kind = place.key, TYPES[place.kind]

    def decide(
        snapshot: list[str | None], found: list[int] | int = 1, in_line: int | None = None
    ) -> Answer | Change:
        its = Whereabouts(*snapshot)
        if found == []:
            return Answer(True)
        if place.kind == "reserved" and line_of(its.priority, its.needs) != line:
            return Answer(line_of(its.priority, its.needs))
        is_right = may_hold(Entry(place, text), task, its) or (
            place.kind in ("wake", "orders") and text == MARK
        )
        # In a listener's list a pending task is right if it has been popped; it has not while it is
        # in line.
        is_in_line_still = (
            place.kind == "reserved" and its.status == "pending" and in_line is not None
        )
        is_double = isinstance(found, list) and len(found) > 1
        if is_right and not is_in_line_still and not is_double:
            return Answer(False)
        word, *count = _REMOVE[kind]
        # A task that is in no index any more was deleted by somebody who does not count.
        is_gone = place.kind == "tasks" and its.status is None
        counted: list[Command] = (
            [("HINCRBY", keys.totals(place.queue), "deleted", 1)] if is_gone else []
        )
        return Change([(word, key, *count, text), *counted], True)

    reads: list[Command] = [("HMGET", keys.task(task), *WHEREABOUTS)]
    if kind == "list":
        reads += [("LPOS", key, text, "COUNT", 2)]
    if place.kind == "reserved":
        reads += [("LPOS", keys.line(place.queue, line), task)]
    dropped: bool | str = transact(
        redis, "drop_hint", Look([keys.task(task), key], reads, task), decide
    )
    return dropped


def put_back(
    redis: Redis,
    place: Place,
    task: str,
    status: str,
    node: str | None,
    pid: str | None,
    updated: str | None,
    now: float,
) -> bool:
    """Make the entry that a task must have. False: the task has changed since; nothing was written.

    status, node, pid, updated: of the task, as they were when the entry was found missing.
    """
    queue, key, kind = place.queue, place.key, TYPES[place.kind]

    def decide(snapshot: list[str | None], found: int | None = None) -> Answer | Change:
        (its_updated, eta, created), its = snapshot[4:7], Whereabouts(*snapshot[:4], *snapshot[7:])
        if found is not None:
            return Answer(True)
        # A lock is of no queue.
        if its[:4] != (status, its.queue if place.kind == "lock" else queue, node, pid):
            return Answer(False)
        if place.kind != "tasks" and (
            status not in STATUSES or place not in [entry.place for entry in home(task, its)]
        ):
            return Answer(False)
        if place.kind in ("pending", "line"):
            # It may have been put back, and popped, since it was missed: then it has been changed.
            if its_updated != updated:
                return Answer(False)
            commands: list[Command] = [
                *stand(queue, line_of(its.priority, its.needs), task, is_first=True),
                ("HSET", keys.task(task), "updated", now),
                ("ZADD", keys.wake(queue), 0, 0),
            ]
            return Change(commands, True)
        if kind == "list":
            return Change([("LPUSH", key, task)], True)
        if place.kind == "started":
            return Change([("SADD", key, keys.started_member(node or "", pid or "", task))], True)
        if kind == "set":
            return Change([("SADD", key, task)], True)
        score = eta if place.kind == "scheduled" else created
        return Change([("ZADD", key, now if score is None else score, task)], True)

    fields = (*WHEREABOUTS[:4], "updated", "eta", "created", *WHEREABOUTS[4:])
    reads: list[Command] = [("HMGET", keys.task(task), *fields)]
    if place.kind in LISTS:
        reads += [("LPOS", key, task)]
    return bool(transact(redis, "put_back", Look([keys.task(task), key], reads, task), decide))


def mend(redis: Redis, task: str) -> bool:
    """Remove from the hash of a task what cannot be: one of two outcomes, or all of what is left of
    a deleted task.
    """
    its = keys.belongings(task)

    def decide(names: list[str], snapshot: list[str | None], others: int) -> Answer | Change:
        (status,) = snapshot
        if not names and not others:
            return Answer(True)
        if "queue" not in names and "parameters" not in names:
            return Change([("DEL", *its)], True)
        if not {"result", "error"} <= set(names):
            return Answer(True)
        if status not in FINISHED:
            return Answer(False)
        commands: list[Command] = []
        if status != "failed":
            commands += [("HDEL", keys.task(task), *_ERROR)]
        if status != "complete":
            commands += [("HDEL", keys.task(task), *_RESULT)]
        return Change(commands, True)

    reads: list[Command] = [
        ("HKEYS", keys.task(task)),
        ("HMGET", keys.task(task), "status"),
        ("EXISTS", *its[1:]),
    ]
    look = Look([keys.task(task)], reads, task)
    return bool(transact(redis, "mend", look, decide))


def realign(redis: Redis, queue: str, node: str) -> bool:
    """Make what is said of a listener elsewhere agree with its registration."""
    registration = keys.listener(queue, node)

    def decide(known: list[str | None], is_member: int) -> Answer | Change:
        state, beat_at = known
        if state is None and beat_at is None:
            return Change(
                [("ZREM", keys.nodes(queue), node), ("DEL", keys.orders(queue, node))], True
            )
        commands: list[Command] = [("ZADD", keys.nodes(queue), "NX", beat_at or 0, node)]
        if state == "dead" and is_member:
            commands += [("SREM", keys.listeners(queue), node), ("ZINCRBY", keys.QUEUES, -1, queue)]
        return Change(commands, True)

    look = Look(
        [registration, keys.listeners(queue)],
        [("HMGET", registration, "state", "beat_at"), ("SISMEMBER", keys.listeners(queue), node)],
    )
    return bool(transact(redis, "realign", look, decide))


def recount(redis: Redis, queue: str) -> bool:
    """Set the score of a queue to the number of its listeners; one that is not in the list of
    queues enters it.
    """

    def decide(members: int) -> Answer | Change:
        return Change([("ZADD", keys.QUEUES, members, queue)], True)

    look = Look([keys.listeners(queue)], [("SCARD", keys.listeners(queue))])
    return bool(transact(redis, "recount", look, decide))


def note_line(redis: Redis, queue: str, line: str) -> bool:
    """Have everybody know of a line in which somebody stands. False: nobody does."""
    key = keys.line(queue, line)

    def decide(exists: int) -> Answer | Change:
        commands = make_known(queue, line)
        if not exists or not commands:
            return Answer(False)
        return Change([*commands, ("ZADD", keys.wake(queue), 0, 0)], True)

    return bool(transact(redis, "note_line", Look([key], [("EXISTS", key)]), decide))
