"""What a running task prints: log."""

from __future__ import annotations

from collections.abc import Sequence

from blueque import keys
from blueque.connection import Command, Look, Redis, as_hash
from blueque.protocol.attempt import owned
from blueque.protocol.looks import ownership
from blueque.protocol.transaction import Answer, Change, transact
from blueque.tail import LINES, Line

KEPT = 30 * 86400                                      # seconds after the last line, should nobody delete the task


def log(
    redis: Redis, queue: str, task: str, token: str | None, node: str, attempt: int, lines: Sequence[Line]
) -> None:
    """Add lines that the attempt has printed to the log of its task, those that are not there yet.

    lines: in the order of their numbers; those of the head are kept besides.
    """
    stream, head = keys.log(task), keys.log_head(task)

    def decide(snapshot: list[str | None], last: Sequence[tuple[str, Sequence[str]]]) -> Answer | Change:
        owned(task, snapshot, token, node, "started", or_lost=True)
        known = as_hash(last[0][1]) if last else {}
        is_first = known.get("attempt") != str(attempt)
        new = [line for line in lines if is_first or line.number > int(known["line"])]
        if not new:
            return Answer(None)
        commands: list[Command] = [("DEL", head)] if is_first else []
        commands += [("XADD", head, "*", *_entry(attempt, line)) for line in new if line.is_head]
        commands += [("XADD", stream, "MAXLEN", LINES, "*", *_entry(attempt, line)) for line in new]
        return Change([*commands, ("EXPIRE", stream, KEPT), ("EXPIRE", head, KEPT)])

    its = ownership(task)
    look = Look((*its.watch, stream), (*its.reads, ("XREVRANGE", stream, "+", "-", "COUNT", 1)), task)
    transact(redis, "log", look, decide)


def _entry(attempt: int, line: Line) -> Command:
    return ("attempt", attempt, "line", line.number, "at", line.at, "stream", line.stream, "text", line.text)
