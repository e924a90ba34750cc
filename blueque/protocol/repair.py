"""Repair what an audit has found: drop_hint, put_back, mend, realign, recount, note_line, note_end,
realign_schedule. Each reads the facts again first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from blueque.connection.redis import AnyLook, Command, Look, Redis, as_hash
from blueque.errors import InvalidInput
from blueque.model import keys
from blueque.model.encoding import count_of
from blueque.model.lines import DEFAULT, line_of
from blueque.model.schedule import Definition, is_out_of_order, score_of
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
    tagged,
)
from blueque.protocol.fields import flat, list_lines, put_in_line
from blueque.protocol.transaction import Answer, Change, Verdict, transact

_REMOVE: dict[str, tuple[str | int, ...]] = {
    "list": ("LREM", 1),
    "zset": ("ZREM",),
    "set": ("SREM",),
}
# The fields of each outcome.
_RESULT, _ERROR = ("result", "result_encoding"), ("error", "error_type", "traceback")


class Missed(NamedTuple):
    """The fields of a task whose entry was missing."""

    status: str
    node: str | None
    pid: str | None
    updated: str | None


def drop_hint(redis: Redis, place: Place, text: str, task: str) -> bool:
    """Remove an entry that does not agree with the hash of its task, or is there twice. False: the
    entry is right.

    text: the entry. task: the id in it; the text itself if there is none.
    """
    dropped = _drop_hint(redis, place, text, task, DEFAULT)
    while isinstance(dropped, str):  # the line in which the task may be
        dropped = _drop_hint(redis, place, text, task, dropped)
    return dropped


def _drop_hint(redis: Redis, place: Place, text: str, task: str, line: str) -> bool | str:
    key, kind = place.key, TYPES[place.kind]

    def decide(
        reply: list[str | None], entries: list[int] | int = 1, in_line: int | None = None
    ) -> Verdict[bool | str]:
        fields = Whereabouts(*reply)
        if entries == []:
            return Answer(True)
        if place.kind == "reserved" and line_of(fields.priority, fields.needs) != line:
            return Answer(line_of(fields.priority, fields.needs))
        is_right = may_hold(Entry(place, text), task, fields) or (
            place.kind in ("wake", "orders") and text == MARK
        )
        # A pending task in the list of a listener is right if it was popped. It was not while it is
        # in its line.
        is_in_line_still = (
            place.kind == "reserved" and fields.status == "pending" and in_line is not None
        )
        is_double = isinstance(entries, list) and len(entries) > 1
        if is_right and not is_in_line_still and not is_double:
            return Answer(False)
        word, *count = _REMOVE[kind]
        # A task that only the index knows was deleted by 1.0.0, which counts no deletions.
        is_gone = place.kind == "tasks" and fields.status is None
        counted: list[Command] = (
            [("HINCRBY", keys.totals(place.queue), "deleted", 1)] if is_gone else []
        )
        return Change([(word, key, *count, text), *counted], True)

    reads: list[Command] = [("HMGET", keys.task(task), *WHEREABOUTS)]
    if kind == "list":
        reads += [("LPOS", key, text, "COUNT", 2)]
    if place.kind == "reserved":
        reads += [("LPOS", keys.line(place.queue, line), task)]
    look: AnyLook = Look([keys.task(task), key], reads, task)
    return transact(redis, "drop_hint", look, decide)


def put_back(redis: Redis, place: Place, task: str, missed: Missed, now: float) -> bool:
    """Make the entry that a task must have. False: the task has changed since; nothing was written.

    missed: the task as it was when the entry was missing.
    """
    key, kind = place.key, TYPES[place.kind]

    def decide(reply: list[str | None], position: int | None = None) -> Verdict[bool]:
        (updated, eta, created), fields = reply[4:7], Whereabouts(*reply[:4], *reply[7:])
        if position is not None:
            return Answer(True)
        if not _is_missed(place, task, missed, fields):
            return Answer(False)
        if place.kind in ("pending", "line"):
            # The task may have been put back, and popped, since: then `updated` has changed.
            if updated != missed.updated:
                return Answer(False)
            line = line_of(fields.priority, fields.needs)
            commands: list[Command] = [
                *put_in_line(place.queue, line, task, is_first=True),
                ("HSET", keys.task(task), "updated", now),
                ("ZADD", keys.wake(place.queue), 0, 0),
            ]
            return Change(commands, True)
        if kind == "list":
            return Change([("LPUSH", key, task)], True)
        if place.kind == "started":
            member = keys.started_member(missed.node or "", missed.pid or "", task)
            return Change([("SADD", key, member)], True)
        if kind == "set":
            return Change([("SADD", key, task)], True)
        score = eta if place.kind == "scheduled" else created
        if place.kind == "tags":
            return Change([("ZADD", key, 0, keys.tag_entry(place.line, task))], True)
        return Change([("ZADD", key, now if score is None else score, task)], True)

    names = (*WHEREABOUTS[:4], "updated", "eta", "created", *WHEREABOUTS[4:])
    reads: list[Command] = [("HMGET", keys.task(task), *names)]
    if place.kind in LISTS:
        reads += [("LPOS", key, task)]
    look: AnyLook = Look([keys.task(task), key], reads, task)
    return transact(redis, "put_back", look, decide)


def _is_missed(place: Place, task: str, missed: Missed, fields: Whereabouts) -> bool:
    """Tell whether the task still is as it was when the entry was missing, and must have it."""
    # a lock and a tag belong to no queue
    queue = fields.queue if place.kind in ("lock", "tags") else place.queue
    if fields[:4] != (missed.status, queue, missed.node, missed.pid):
        return False
    if place.kind == "tasks":
        return True
    if place.kind == "tags":
        return place in [entry.place for entry in tagged(task, fields)]
    return missed.status in STATUSES and place in [entry.place for entry in home(task, fields)]


def mend(redis: Redis, task: str) -> bool:
    """Remove from the hash of a task what cannot be: one of two outcomes, or all that is left of a
    deleted task.
    """
    belongings = keys.belongings(task)

    def decide(names: list[str], reply: list[str | None], others: int) -> Verdict[bool]:
        (status,) = reply
        if not names and not others:
            return Answer(True)
        if "queue" not in names and "parameters" not in names:
            return Change([("DEL", *belongings)], True)
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
        ("EXISTS", *belongings[1:]),
    ]
    look: Look[list[str], list[str | None], int] = Look([keys.task(task)], reads, task)
    return transact(redis, "mend", look, decide)


def realign(redis: Redis, queue: str, node: str) -> bool:
    """Make the entries of a listener in other keys agree with its registration."""
    registration = keys.listener(queue, node)

    def decide(registered: list[str | None], is_member: int) -> Verdict[bool]:
        state, beat_at = registered
        if state is None and beat_at is None:
            return Change(
                [("ZREM", keys.nodes(queue), node), ("DEL", keys.orders(queue, node))], True
            )
        commands: list[Command] = [("ZADD", keys.nodes(queue), "NX", beat_at or 0, node)]
        if state == "dead" and is_member:
            commands += [("SREM", keys.listeners(queue), node), ("ZINCRBY", keys.QUEUES, -1, queue)]
        return Change(commands, True)

    look: Look[list[str | None], int] = Look(
        [registration, keys.listeners(queue)],
        [("HMGET", registration, "state", "beat_at"), ("SISMEMBER", keys.listeners(queue), node)],
    )
    return transact(redis, "realign", look, decide)


def recount(redis: Redis, queue: str) -> bool:
    """Set the score of a queue to the number of its listeners, and list the queue if it is not
    listed.
    """

    def decide(members: int) -> Verdict[bool]:
        return Change([("ZADD", keys.QUEUES, members, queue)], True)

    look: Look[int] = Look([keys.listeners(queue)], [("SCARD", keys.listeners(queue))])
    return transact(redis, "recount", look, decide)


def note_line(redis: Redis, queue: str, line: str) -> bool:
    """List a line that has tasks. False: it has none."""
    key = keys.line(queue, line)

    def decide(exists: int) -> Verdict[bool]:
        commands = list_lines(queue, line)
        if not exists or not commands:
            return Answer(False)
        return Change([*commands, ("ZADD", keys.wake(queue), 0, 0)], True)

    look: Look[int] = Look([key], [("EXISTS", key)])
    return transact(redis, "note_line", look, decide)


def note_end(redis: Redis, task: str, now: float) -> bool:
    """List a task that has ended among those whose dependents are to be told. False: it has not
    ended, or has no dependents.
    """
    key = keys.task(task)

    def decide(reply: list[str | None]) -> Verdict[bool]:
        status, dependents = reply
        if status not in FINISHED or dependents is None:
            return Answer(False)
        return Change([("ZADD", keys.UNSETTLED_TASKS, "NX", now, task)], True)

    look: Look[list[str | None]] = Look([key], [("HMGET", key, "status", "dependents")], task)
    return transact(redis, "note_end", look, decide)


def realign_schedule(redis: Redis, name: str) -> bool:
    """Make what is next of a schedule, its score and its list of occurrences agree with its record."""
    key = keys.schedule(name)

    def decide(reply: Sequence[str]) -> Verdict[bool]:
        found = as_hash(reply)
        if not found:
            return Change([("ZREM", keys.SCHEDULES, name), ("DEL", keys.occurrences(name))], True)
        commands: list[Command] = []
        gone = [field for field in ("planned", "at") if field in found]
        if not gone or is_out_of_order(found):
            following = _following(name, found)
            if following is not None:
                found |= following
                commands = [("HSET", key, *flat(following))]
            elif gone:
                found = {field: text for field, text in found.items() if field not in gone}
                commands = [("HDEL", key, *gone)]
        return Change([*commands, ("ZADD", keys.SCHEDULES, score_of(found), name)], True)

    look: Look[Sequence[str]] = Look([key], [("HGETALL", key)])
    return transact(redis, "realign_schedule", look, decide)


def _following(name: str, record: dict[str, str]) -> dict[str, str] | None:
    """Return what comes after the last decided time, and when. None: nothing, or this version cannot
    read the record.
    """
    try:
        definition = Definition.of(record)
        planned = definition.rule.next_after(count_of(record.get("last")))
    except InvalidInput:
        return None
    if planned is None:
        return None
    return {"planned": str(planned), "at": str(definition.at(name, planned))}
