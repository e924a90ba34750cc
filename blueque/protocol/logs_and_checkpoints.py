"""What a running task prints and notes, and where its next attempt continues: log, note,
checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from blueque.connection.redis import Command, Look, Redis, as_hash
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.encoding import count_of
from blueque.model.lines import key_needed
from blueque.model.log_line import LINES, OURS, Line
from blueque.protocol.events import Event, after, record_in_task
from blueque.protocol.fields import TaskFields, flat, require_owner
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import fields_of

KEPT = 30 * 86400  # seconds that a log stays after its last line, if the task is not deleted

_Entries: TypeAlias = Sequence[tuple[str, Sequence[str]]]  # of a stream: id, and names and values


def log(
    redis: Redis, attempt: AttemptRef, number: int, lines: Sequence[Line], is_over: bool = False
) -> None:
    """Add lines that the attempt has printed to the log of its task, unless they are there.

    number: of the attempt. lines: in the order of their numbers; the first ones are also kept in a
        log of their own.
    is_over: no lines follow, so release the memory that Redis holds for more.
    """
    task = attempt.task
    stream, head = keys.log(task), keys.log_head(task)

    def decide(reply: list[str | None], newest: _Entries) -> Verdict[None]:
        require_owner(attempt, TaskFields._make(reply), "started", or_lost=True)
        last = as_hash(newest[0][1]) if newest else {}
        is_first = last.get("attempt") != str(number)
        new = [line for line in lines if is_first or line.number > int(last["line"])]
        if not new and (is_first or not is_over):
            return Answer(None)
        commands: list[Command] = [("DEL", head)] if is_first else []
        entries = _entries(number, new, None if is_first else _printed(last))
        commands += [
            ("XADD", head, "*", *entry)
            for line, entry in zip(new, entries, strict=True)
            if line.is_head
        ]
        commands += [("XADD", stream, "MAXLEN", LINES, "*", *entry) for entry in entries]
        commands += [("EXPIRE", stream, KEPT), ("EXPIRE", head, KEPT)]
        if is_over:
            commands += [*_pack(task, stream), *_pack(task, head)]
        return Change(commands, None)

    owner = fields_of(task)
    look: Look[list[str | None], _Entries] = Look(
        (*owner.watch, stream), (*owner.reads, ("XREVRANGE", stream, "+", "-", "COUNT", 1)), task
    )
    transact(redis, "log", look, decide)


def note(redis: Redis, attempt: AttemptRef, number: int, text: str, now: float) -> None:
    """Add a note of the task to its history, unless it is there.

    number: of the note, from 1 in each attempt and in this order. now: when it was made.
    """
    task = attempt.task
    key = keys.task(task)

    def decide(reply: list[str | None], noted: str | None) -> Verdict[None]:
        fields = TaskFields._make(reply)
        require_owner(attempt, fields, "started", or_lost=True)
        token, _, last = (noted or "").rpartition(" ")
        own = attempt.token or ""
        if token == own and count_of(last) >= number:
            return Answer(None)
        changed = {"noted": f"{own} {number}", **after(fields)}
        event = Event("noted", "", now, {"text": text})
        return Change([("HSET", key, *flat(changed)), *record_in_task(task, fields, event)], None)

    owner = fields_of(task)
    look: Look[list[str | None], str | None] = Look(
        owner.watch, (*owner.reads, ("HGET", key, "noted")), task
    )
    transact(redis, "note", look, decide)


def checkpoint(
    redis: Redis,
    attempt: AttemptRef,
    number: int,
    created: str | None,
    parts: Mapping[str, str | None],
    now: float,
) -> None:
    """Record where the next attempt continues.

    number: of the attempt. created: of the task, to tell it from a later one with its id.
    parts: the changed parts: `value`, in JSON; `directory`: the host and path of its files. None:
        the part is gone.
    """
    task = attempt.task
    key = keys.checkpoint(task)
    removed = [name for name, text in parts.items() if text is None]
    changed = [word for name, text in parts.items() if text is not None for word in (name, text)]
    of_task = [] if created is None else ["created", created]

    def decide(reply: list[str | None], kept: list[str | None]) -> Verdict[None]:
        require_owner(attempt, TaskFields._make(reply), "started", or_lost=True)
        kept_attempt, kept_created = kept
        needs = key_needed(TaskFields._make(reply).needs, parts.get("value"))
        needing: list[Command] = [("HSET", keys.task(task), *flat(needs))] if needs else []
        clearing: list[Command] = [("HDEL", key, *removed)] if removed else []
        # The checkpoint of a task that 1.0.0 has deleted, which knows no checkpoints.
        if kept_attempt is not None and kept_created != created:
            clearing = [("DEL", key)]
        fields: Command = ("attempt", number, "at", now, *of_task, *changed)
        return Change([*needing, *clearing, ("HSET", key, *fields)], None)

    owner = fields_of(task)
    # The checkpoint is watched, too: else an older write of ours that arrives late would replace it.
    look: Look[list[str | None], list[str | None]] = Look(
        (*owner.watch, key), (*owner.reads, ("HMGET", key, "attempt", "created")), task
    )
    transact(redis, "checkpoint", look, decide)


def _pack(task: str, stream: str) -> list[Command]:
    """Return the commands that shrink a stream to the size of its entries.

    Redis allocates 4 KB at once for a stream, but for a copy only what it needs.
    """
    spare = keys.packing(task)
    return [("COPY", stream, spare), ("COPY", spare, stream, "REPLACE"), ("DEL", spare)]


def _printed(entry: Mapping[str, str]) -> str | None:
    """Return when the task had last printed something, as of this entry; None: never."""
    return entry.get("printed") if entry.get("stream") == OURS else entry.get("at")


def _entries(number: int, lines: Sequence[Line], printed: str | float | None) -> list[Command]:
    """Return the words of each entry.

    printed: when the task had last printed something before these lines.
    """
    entries: list[Command] = []
    for line in lines:
        place = ("attempt", number, "line", line.number, "at", line.at)
        words: Command = (*place, "stream", line.stream, "text", line.text)
        if line.encoding is not None:
            words = (*words, "encoding", line.encoding)
        if line.stream != OURS:
            printed = line.at
        elif printed is not None:
            words = (*words, "printed", printed)
        entries.append(words)
    return entries
