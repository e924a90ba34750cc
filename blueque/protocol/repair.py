"""What an audit has found is repaired: drop_hint, put_back, mend, realign, recount. Each looks again before it believes."""

from __future__ import annotations

from blueque import keys
from blueque.connection import Command, Look, Redis
from blueque.lines import line_of
from blueque.places import FINISHED, LISTS, MARK, TYPES, Entry, Place, home, may_hold
from blueque.protocol.attempt import stand
from blueque.protocol.transaction import Answer, Change, transact

_REMOVE: dict[str, tuple[str | int, ...]] = {"list": ("LREM", 1), "zset": ("ZREM",), "set": ("SREM",)}
# What an outcome has besides, by the field that counts.
_RESULT, _ERROR = ("result", "result_encoding"), ("error", "error_type", "traceback")


def drop_hint(redis: Redis, place: Place, text: str, task: str) -> bool:
    """Remove an entry that does not agree with the hash of the task, or stands there twice. False: it is right as it is.

    text: the entry. task: the id in it; the text itself if there is none.
    """
    key, kind = place.key, TYPES[place.kind]

    def decide(snapshot: list[str | None], found: list[int] | int = 1, in_line: int | None = None) -> Answer | Change:
        if found == []:
            return Answer(True)
        is_right = may_hold(Entry(place, text), task, *snapshot) or (place.kind in ("wake", "orders") and text == MARK)
        # In a listener's list a pending task is right if it has been popped; it has not while it is in line.
        is_in_line_still = place.kind == "reserved" and snapshot[0] == "pending" and in_line is not None
        is_double = isinstance(found, list) and len(found) > 1
        if is_right and not is_in_line_still and not is_double:
            return Answer(False)
        word, *count = _REMOVE[kind]
        return Change([(word, key, *count, text)], True)

    reads: list[Command] = [("HMGET", keys.task(task), "status", "queue", "node", "pid", "priority", "needs")]
    if kind == "list":
        reads += [("LPOS", key, text, "COUNT", 2)]
    if place.kind == "reserved":
        reads += [("LPOS", keys.pending(place.queue), task)]
    return bool(transact(redis, "drop_hint", Look([keys.task(task), key], reads, task), decide))


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
        its_updated, eta, created, priority, needs = snapshot[4:]
        if found is not None:
            return Answer(True)
        if snapshot[:4] != [status, queue, node, pid]:
            return Answer(False)
        wanted = [entry.place for entry in home(task, status, queue, node, pid, priority, needs)]
        if place.kind != "tasks" and place not in wanted:
            return Answer(False)
        if place.kind in ("pending", "line"):
            # It may have been put back, and popped, since it was missed: then it has been changed.
            if its_updated != updated:
                return Answer(False)
            commands: list[Command] = [
                *stand(queue, line_of(priority, needs), task, is_first=True),
                ("HSET", keys.task(task), "updated", now),
                ("ZADD", keys.wake(queue), 0, 0),
            ]
            return Change(commands, True)
        if kind == "list":
            return Change([("LPUSH", key, task)], True)
        if kind == "set":
            return Change([("SADD", key, keys.started_member(node or "", pid or "", task))], True)
        score = eta if place.kind == "scheduled" else created
        return Change([("ZADD", key, now if score is None else score, task)], True)

    fields = ("status", "queue", "node", "pid", "updated", "eta", "created", "priority", "needs")
    reads: list[Command] = [("HMGET", keys.task(task), *fields)]
    if place.kind in LISTS:
        reads += [("LPOS", key, task)]
    return bool(transact(redis, "put_back", Look([keys.task(task), key], reads, task), decide))


def mend(redis: Redis, task: str) -> bool:
    """Remove from the hash of a task what cannot be: one of two outcomes, or all of what is left of a deleted task."""

    def decide(names: list[str], snapshot: list[str | None]) -> Answer | Change:
        (status,) = snapshot
        if not names:
            return Answer(True)
        if "queue" not in names and "parameters" not in names:
            return Change([("DEL", keys.task(task))], True)
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

    look = Look([keys.task(task)], [("HKEYS", keys.task(task)), ("HMGET", keys.task(task), "status")], task)
    return bool(transact(redis, "mend", look, decide))


def realign(redis: Redis, queue: str, node: str) -> bool:
    """Make what is said of a listener elsewhere agree with its registration."""
    registration = keys.listener(queue, node)

    def decide(known: list[str | None], is_member: int) -> Answer | Change:
        state, beat_at = known
        if state is None and beat_at is None:
            return Change([("ZREM", keys.nodes(queue), node), ("DEL", keys.orders(queue, node))], True)
        commands: list[Command] = [("ZADD", keys.nodes(queue), "NX", beat_at or 0, node)]
        if state == "dead" and is_member:
            commands += [
                ("SREM", keys.listeners(queue), node),
                ("ZINCRBY", keys.QUEUES, -1, queue),
            ]
        return Change(commands, True)

    look = Look(
        [registration, keys.listeners(queue)],
        [("HMGET", registration, "state", "beat_at"), ("SISMEMBER", keys.listeners(queue), node)],
    )
    return bool(transact(redis, "realign", look, decide))


def recount(redis: Redis, queue: str) -> bool:
    """Set the score of a queue to the number of its listeners; one that is not in the list of queues enters it."""

    def decide(members: int) -> Answer | Change:
        return Change([("ZADD", keys.QUEUES, members, queue)], True)

    look = Look([keys.listeners(queue)], [("SCARD", keys.listeners(queue))])
    return bool(transact(redis, "recount", look, decide))
