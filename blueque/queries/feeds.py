"""Feeds: the progress of each, and the files that it has fed. docs/protocol/feeds.md, "Feeds"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.connection.redis import Redis, as_hash
from blueque.model import keys, record
from blueque.model.encoding import integer, known_count, number
from blueque.queries.steps import of_each, read
from blueque.system import process

if TYPE_CHECKING:
    from blueque.queries.steps import Reader

Record = Mapping[str, str]

TYPES: record.Types = {
    **dict.fromkeys(("rows", "row", "offset", "tasks", "skipped"), integer),
    **dict.fromkeys(("created", "updated", "finished", "since", "share"), number),
}


def load(redis: Redis, queue: str, feed: str) -> dict[str, str]:
    """Return the record of a feed; empty if there is none."""
    (reply,) = redis.read(("HGETALL", keys.feed(queue, feed)))
    fields = as_hash(reply)
    return fields if (fields.get("feed"), fields.get("queue")) == (feed, queue) else {}


def marks(redis: Redis, queue: str, feed: str) -> dict[str, str]:
    """Return the files that a feed has fed, and their marks."""
    (reply,) = redis.read(("HGETALL", keys.fed(queue, feed)))
    return as_hash(reply)


def load_all(redis: Redis, queues: Sequence[str]) -> list[dict[str, str]]:
    """Return the records of all feeds of these queues: two round trips.

    For each queue in the order in which they finished, open feeds last.
    """
    names = redis.read(*[("ZRANGE", keys.feeds(queue), 0, -1) for queue in queues])
    readers = {queue: records(queue, some) for queue, some in zip(queues, names, strict=True)}
    found = read(redis, of_each(readers))
    return [record for some in found.values() for record in some]


def records(queue: str, names: Iterable[str]) -> Reader[list[dict[str, str]]]:
    """Read the records of these feeds of a queue: one round trip.

    The record of a dead feeder comes without its token. A feeder is dead if its process is gone
    from this host, or after a minute without a sign of life. Records that have expired or belong to
    no feed are left out.
    """
    replies = yield [
        command
        for name in names
        for command in (("HGETALL", keys.feed(queue, name)), ("EXISTS", keys.feeder(queue, name)))
    ]
    found = []
    for reply, is_alive in zip(replies[::2], replies[1::2], strict=True):
        fields = as_hash(reply)
        if not is_alive or is_process_gone(fields):
            fields.pop("token", None)
        if "feed" in fields and "queue" in fields:
            found.append(fields)
    return found


def is_process_gone(fields: Record) -> bool:
    """Return whether the process of a feeder, on this host, has certainly ended."""
    return process.is_gone(process.pid_of(fields.get("pid", "")), fields)


def numbers(fields: Record) -> dict[str, Any]:
    """Return the fields of a record that are numbers, as numbers. A malformed field is left out."""
    return record.parse(fields, TYPES)


def parsed(fields: Record) -> dict[str, Any]:
    """Return all fields of a record, numbers as numbers. A malformed number is left out."""
    return {name: text for name, text in fields.items() if name not in TYPES} | numbers(fields)


def state_of(fields: Record) -> tuple[str, float | None]:
    """Return the state of a feed, and since when.

    finished; feeding; stopped: there is more to feed, and no live feeder.
    """
    values = numbers(fields)
    if "token" in fields:
        return "feeding", values.get("since")
    if fields.get("state") == "finished":
        return "finished", values.get("finished")
    return "stopped", values.get("updated")


class Lines(NamedTuple):
    """The lines of a queue besides the default line, and how many tasks may be in all of them.

    most: its `max_pending`; None: any number.
    """

    names: Sequence[str]
    most: int | None


def lines(redis: Redis, queue: str) -> Lines:
    """Return how many tasks of a queue wait, and how many may wait."""
    names, most = redis.read(
        ("ZRANGE", keys.lines(queue), 0, -1), ("HGET", keys.settings(queue), "max_pending")
    )
    return Lines(names, known_count(most))
