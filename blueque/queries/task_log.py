"""The log of a task in Redis: the first lines of its last attempt, the last lines of all attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.connection.redis import Redis, as_hash
from blueque.model import keys
from blueque.model.encoding import is_sealed
from blueque.model.log_line import OURS
from blueque.queries.steps import of_each, read

if TYPE_CHECKING:
    from blueque.queries.steps import Reader

ENTRIES_AT_ONCE = 1000  # entries of a log in one read


class LogLine(NamedTuple):
    """A line that a task has printed.

    number: from 1 in each attempt, counting both streams.
    at: when its listener read it, in Unix seconds.
    stream: stdout, stderr, or blueque for a line of Blueque about the end or the place of an attempt.
    text: [encrypted: k1.0a1b2c3d] if this process does not have the key.
    """

    task: str
    attempt: int
    number: int
    at: float
    stream: str
    text: str


class Place(NamedTuple):
    """How far the log of a task has been read: the id of the last entry."""

    task: str
    entry: str = "0-0"


def load(redis: Redis, task: str) -> tuple[list[LogLine], Place]:
    """Return the lines in Redis, in order, and the place after them. Numbers show gaps."""
    head, last = redis.read(
        ("XRANGE", keys.log_head(task), "-", "+"), ("XRANGE", keys.log(task), "-", "+")
    )
    found = {
        (line.attempt, line.number): line for line in [*_lines(task, head), *_lines(task, last)]
    }
    return [found[place] for place in sorted(found)], Place(task, last[-1][0] if last else "0-0")


class News(NamedTuple):
    """Lines after some places of logs, the new places, and each task's status just before."""

    lines: list[LogLine]
    places: list[Place]
    statuses: dict[str, str | None]
    progress: dict[str, str | None]


def follow(redis: Redis, places: Sequence[Place]) -> News:
    """Return the new lines; one round trip."""
    found = read(redis, of_each({place: _behind(place) for place in places}))
    lines: list[LogLine] = []
    behind: list[Place] = []
    for place, (_, entries) in found.items():
        lines += _lines(place.task, entries)
        behind.append(place._replace(entry=entries[-1][0]) if entries else place)
    return News(
        lines,
        behind,
        {place.task: status for place, ((status, _), _) in found.items()},
        {place.task: progress for place, ((_, progress), _) in found.items()},
    )


def _behind(place: Place) -> Reader[tuple[Sequence[str | None], Sequence[Any]]]:
    """Read status and progress of a task, and the new entries of its log."""
    state, entries = yield [
        ("HMGET", keys.task(place.task), "status", "progress"),
        ("XRANGE", keys.log(place.task), f"({place.entry}", "+", "COUNT", ENTRIES_AT_ONCE),
    ]
    return state, entries


def printed(task: str, attempt: int | None) -> Reader[float | None]:
    """Read when this attempt of a task last printed, in Unix seconds. None: it has not printed."""
    (entries,) = yield [("XREVRANGE", keys.log(task), "+", "-", "COUNT", 1)]
    return _printed_at(entries, attempt)


def _printed_at(entries: Sequence[Any], attempt: int | None) -> float | None:
    # Lines of Blueque do not count, but each of them says when the task last printed before it.
    if not entries:
        return None
    entry, words = entries[0]
    fields = as_hash(words)
    if fields.get("attempt") != str(attempt):
        return None
    if fields.get("stream") != OURS:
        return int(entry.partition("-")[0]) / 1000  # by the clock of Redis
    try:
        return float(fields["printed"])
    except (KeyError, ValueError):
        return None


def _text(task: str, fields: Mapping[str, str]) -> str:
    if not is_sealed(fields.get("encoding")):
        return fields["text"]
    from blueque.model.payloads import shown_line  # here: few are encrypted

    return shown_line(task, fields["text"], fields["encoding"])


def _lines(task: str, entries: Sequence[Any]) -> list[LogLine]:
    lines = []
    for _, words in entries:
        fields = as_hash(words)
        try:
            lines.append(
                LogLine(
                    task,
                    int(fields["attempt"]),
                    int(fields["line"]),
                    float(fields["at"]),
                    fields["stream"],
                    _text(task, fields),
                )
            )
        except (KeyError, ValueError):  # written by another program
            continue
    return lines
