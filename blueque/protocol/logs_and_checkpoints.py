"""What a running task prints, and where it could go on: log, checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from blueque.connection.redis import Command, Look, Redis, as_hash
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.log_line import LINES, OURS, Line
from blueque.protocol.fields import owned
from blueque.protocol.transaction import Answer, Change, transact
from blueque.protocol.watches import ownership

KEPT = 30 * 86400  # seconds after the last line, should nobody delete the task


def log(
    redis: Redis, attempt: AttemptRef, number: int, lines: Sequence[Line], is_over: bool = False
) -> None:
    """Add lines that the attempt has printed to the log of its task, those that are not there yet.

    number: of the attempt. lines: in the order of their numbers; those of the head are kept besides.
    is_over: these are the last ones, or there are no more: give back what Redis holds ready for
        others.
    """
    task = attempt.task
    stream, head = keys.log(task), keys.log_head(task)

    def decide(
        snapshot: list[str | None], last: Sequence[tuple[str, Sequence[str]]]
    ) -> Answer | Change:
        owned(attempt, snapshot, "started", or_lost=True)
        known = as_hash(last[0][1]) if last else {}
        is_first = known.get("attempt") != str(number)
        new = [line for line in lines if is_first or line.number > int(known["line"])]
        if not new and (is_first or not is_over):
            return Answer(None)
        commands: list[Command] = [("DEL", head)] if is_first else []
        entries = _entries(number, new, None if is_first else _printed(known))
        commands += [
            ("XADD", head, "*", *entry)
            for line, entry in zip(new, entries, strict=True)
            if line.is_head
        ]
        commands += [("XADD", stream, "MAXLEN", LINES, "*", *entry) for entry in entries]
        commands += [("EXPIRE", stream, KEPT), ("EXPIRE", head, KEPT)]
        if is_over:
            commands += [*_pack(task, stream), *_pack(task, head)]
        return Change(commands)

    its = ownership(task)
    look = Look(
        (*its.watch, stream), (*its.reads, ("XREVRANGE", stream, "+", "-", "COUNT", 1)), task
    )
    transact(redis, "log", look, decide)


def checkpoint(
    redis: Redis,
    attempt: AttemptRef,
    number: int,
    created: str | None,
    parts: Mapping[str, str | None],
    now: float,
) -> None:
    """Record where the next attempt is to go on.

    number: of the attempt. created: of the task, by which it is told from another one of that id.
    parts: what has changed of it: value, in JSON; files, the packed directory; files_left, where
    one lies that is too large to be here. None: there is no such thing any more.
    """
    task = attempt.task
    key, its = keys.checkpoint(task), ownership(task)
    gone = [name for name, text in parts.items() if text is None]
    known = [word for name, text in parts.items() if text is not None for word in (name, text)]

    of_task = [] if created is None else ["created", created]

    def decide(snapshot: list[str | None], last: list[str | None]) -> Answer | Change:
        owned(attempt, snapshot, "started", or_lost=True)
        removed: list[Command] = [("HDEL", key, *gone)] if gone else []
        # 1.0.0, which knows no checkpoints, has deleted that task
        if last[0] is not None and last[1] != created:
            removed = [("DEL", key)]
        return Change([*removed, ("HSET", key, "attempt", number, "at", now, *of_task, *known)])

    # Of the same key, or an older one of ours that arrives late would replace it.
    transact(
        redis,
        "checkpoint",
        Look((*its.watch, key), (*its.reads, ("HMGET", key, "attempt", "created")), task),
        decide,
    )


def _pack(task: str, stream: str) -> list[Command]:
    """Have a stream take no more memory than its entries: Redis gives it 4 KB at once, and a copy
    what it needs.
    """
    spare = keys.packing(task)
    return [("COPY", stream, spare), ("COPY", spare, stream, "REPLACE"), ("DEL", spare)]


def _printed(entry: Mapping[str, str]) -> str | None:
    """Return when the task had printed something last, as of this entry; None: it had not."""
    return entry.get("printed") if entry.get("stream") == OURS else entry.get("at")


def _entries(number: int, lines: Sequence[Line], printed: str | float | None) -> list[Command]:
    """Return the words of each entry. printed: when the task had printed something last before
    these lines.
    """
    entries: list[Command] = []
    for line in lines:
        words: Command = (
            "attempt",
            number,
            "line",
            line.number,
            "at",
            line.at,
            "stream",
            line.stream,
            "text",
            line.text,
        )
        if line.stream != OURS:
            printed = line.at
        elif printed is not None:
            words = (*words, "printed", printed)
        entries.append(words)
    return entries
