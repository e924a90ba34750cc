"""Repair contradictions in Redis: align_task, align_line, align_queue, align_schedule.

Each reads the facts itself and writes what follows from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blueque.connection.redis import AnyLook, Command, Look, Redis, as_hash
from blueque.errors import InvalidInput
from blueque.model import keys
from blueque.model.encoding import count_of, time_or
from blueque.model.lines import DEFAULT, needs_of, priority_of
from blueque.model.schedule import Definition, is_out_of_order, score_of
from blueque.model.states import FINISHED, TYPES, Entry, fault
from blueque.protocol.fields import TaskFields, flat, list_lines, put_in_line
from blueque.protocol.moves import addition
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import read_task

_REMOVE: dict[str, tuple[str | int, ...]] = {
    "list": ("LREM", 1),
    "zset": ("ZREM",),
    "set": ("SREM",),
}
# The fields of each outcome.
_RESULT, _ERROR = ("result", "result_encoding"), ("error", "error_type", "traceback")


def align_task(
    redis: Redis, task: str, entries: Sequence[Entry], now: float, updated: str | None = None
) -> bool:
    """Make entries of a task agree with its hash, and remove impossible fields from the hash.

    Return whether anything was wrong.
    entries: those that may be wrong or missing.
    updated: this field of a pending task at the time when it was missing in its line. If it has
        changed, or is None, the task is not put there, because it may have been put there and
        popped since.
    """
    belongings = keys.belongings(task)

    def decide(
        reply: list[str | None], names: list[str], others: int, *replies: Any
    ) -> Verdict[bool]:
        fields, is_task = TaskFields._make(reply), bool({"queue", "parameters"} & {*names})
        found = dict(zip(entries, map(_number, replies), strict=True))
        commands: list[Command] = []
        if not is_task and (names or others):
            commands += [("DEL", *belongings)]
        commands += _second_outcome(task, fields, names)
        for entry in entries:
            wrong = fault(entry, task, fields.whereabouts, found)
            if wrong == "missing":
                commands += _entered(
                    task, fields, entry, now, updated is not None and fields.updated == updated
                )
            elif wrong is not None:
                commands += _removed(entry, is_task)
        return Change(commands, True) if commands else Answer(False)

    reads: list[Command] = [
        read_task(task),
        ("HKEYS", keys.task(task)),
        ("EXISTS", *belongings[1:]),
        *map(_read, entries),
    ]
    watch = dict.fromkeys([keys.task(task), *[entry.place.key for entry in entries]])
    look: AnyLook = Look([*watch], reads, task)
    return transact(redis, "align_task", look, decide)


def _read(entry: Entry) -> Command:
    """Return the command that counts an entry."""
    place, text = entry
    if TYPES[place.kind] == "list":
        return ("LPOS", place.key, text, "COUNT", 2)
    return ("SISMEMBER" if TYPES[place.kind] == "set" else "ZSCORE", place.key, text)


def _number(reply: list[int] | int | str | None) -> int:
    """Return how many entries a reply shows: positions in a list, one of a set, or a score."""
    if isinstance(reply, list):
        return len(reply)
    return int(reply is not None and reply != 0)


def _second_outcome(task: str, fields: TaskFields, names: Sequence[str]) -> list[Command]:
    """Return the commands that remove the outcome that does not fit the status, of two."""
    key = keys.task(task)
    if not {"result", "error"} <= {*names} or fields.status not in FINISHED:
        return []
    error: list[Command] = [("HDEL", key, *_ERROR)] if fields.status != "failed" else []
    return [*error, *([("HDEL", key, *_RESULT)] if fields.status != "complete" else [])]


def _removed(entry: Entry, is_task: bool) -> list[Command]:
    place, text = entry
    word, *count = _REMOVE[TYPES[place.kind]]
    removal: Command = (word, place.key, *count, text)
    # A task that only the index knows was deleted by 1.0.0, which counts no deletions.
    if place.kind == "tasks" and not is_task:
        return [removal, ("HINCRBY", keys.totals(place.queue), "deleted", 1)]
    return [removal]


def _entered(
    task: str, fields: TaskFields, entry: Entry, now: float, is_unchanged: bool
) -> list[Command]:
    place = entry.place
    if place.kind in ("pending", "line"):
        if not is_unchanged:
            return []
        return [
            *put_in_line(place.queue, fields.line, task, is_first=True),
            ("HSET", keys.task(task), "updated", now),
            ("ZADD", keys.wake(place.queue), 0, 0),
        ]
    scores = {"scheduled": fields.eta, "blocked": fields.created, "tasks": fields.created}
    score = "0" if place.kind == "tags" else scores.get(place.kind)
    return [addition(entry, time_or(score, now))]


def align_line(redis: Redis, queue: str, line: str) -> bool:
    """List a line that has tasks, and forget a line that has none. Return whether anything was wrong.

    The default line is never listed, and nothing is asked about it.
    """
    if line == DEFAULT:
        return False
    key, listed, needs = keys.line(queue, line), keys.lines(queue), needs_of(line)
    member = f"{line}_{queue}"
    waiting = None if needs is None or needs.lock is None else keys.waiting(needs.lock)

    def decide(exists: int, score: str | None, is_waiting: int | None = None) -> Verdict[bool]:
        if exists:
            if score is not None and float(score) == priority_of(line) and is_waiting != 0:
                return Answer(False)
            return Change([*list_lines(queue, line), ("ZADD", keys.wake(queue), 0, 0)], True)
        if score is None and not is_waiting:
            return Answer(False)
        commands: list[Command] = [("ZREM", listed, line)]
        if waiting is not None:
            commands += [("SREM", waiting, member)]
        return Change(commands, True)

    reads: list[Command] = [("EXISTS", key), ("ZSCORE", listed, line)]
    if waiting is not None:
        reads += [("SISMEMBER", waiting, member)]
    look: AnyLook = Look([key], reads)
    return transact(redis, "align_line", look, decide)


def align_queue(redis: Redis, queue: str, node: str | None = None) -> None:
    """List a queue with the number of its listeners.

    node: a listener; other keys about it are made to agree with its registration first.
    """
    members = keys.listeners(queue)

    def decide(
        count: int, registered: Sequence[str | None] = (), is_member: int = 0
    ) -> Verdict[None]:
        commands: list[Command] = []
        is_dead = False
        if node is not None:
            state, beat_at = registered
            is_dead = state == "dead" and bool(is_member)
            if state is None and beat_at is None:
                commands += [("ZREM", keys.nodes(queue), node), ("DEL", keys.orders(queue, node))]
            else:
                commands += [("ZADD", keys.nodes(queue), "NX", time_or(beat_at, 0), node)]
            if is_dead:
                commands += [("SREM", members, node)]
        return Change([*commands, ("ZADD", keys.QUEUES, count - is_dead, queue)], None)

    watch = [members]
    reads: list[Command] = [("SCARD", members)]
    if node is not None:
        registration = keys.listener(queue, node)
        watch += [registration]
        reads += [("HMGET", registration, "state", "beat_at"), ("SISMEMBER", members, node)]
    look: AnyLook = Look(watch, reads)
    transact(redis, "align_queue", look, decide)


def align_schedule(redis: Redis, name: str) -> bool:
    """Align the next time, the score and the occurrences of a schedule with its record."""
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
    return transact(redis, "align_schedule", look, decide)


def _following(name: str, record: dict[str, str]) -> dict[str, str] | None:
    """Return the next planned time and when it is due. None: no next one, or an unknown format."""
    try:
        definition = Definition.of(record)
        planned = definition.rule.next_after(count_of(record.get("last")))
    except InvalidInput:
        return None
    if planned is None:
        return None
    return {"planned": str(planned), "at": str(definition.at(name, planned))}
