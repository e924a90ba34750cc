"""The history of a task, and the events of queues."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.connection.redis import Redis, as_hash
from blueque.model import keys
from blueque.model.encoding import LAST_SECOND, count_of
from blueque.model.states import FINISHED

if TYPE_CHECKING:
    from blueque.queries.steps import Reader

LONGEST = 5.0  # seconds that one read waits for an event
EVENTS_AT_ONCE = 1000  # events in one read
FIRST = "0-0"  # the place before all events
LATEST = 10  # events that are searched for the end of the last attempt
_DECODER = json.JSONDecoder()
_WAITING = ("prioritized", "moved")  # the events of a task that waits


class Event(NamedTuple):
    """Something that happened to a task or a queue; docs/protocol.md, "Events", lists the events.

    task: "" for an event of the queue, such as `paused`.
    event: its name, such as `reserved`.
    at: Unix seconds.
    attempt: 0 before the first.
    by: the listener or person that did it; None: unknown.
    facts: more facts by name, such as `took` (seconds) or `error`.
    queue, place: its stream, and its place there, to continue after it; None for events that come
        from the history of a task.
    """

    task: str
    event: str
    at: float
    attempt: int
    by: str | None
    facts: Mapping[str, Any]
    queue: str | None = None
    place: str | None = None


class History(NamedTuple):
    """The events of a task, oldest first.

    The first event, `enqueued`, is made from `created` and `producer` of the task.
    missing: how many events are missing between the first and the last ones.
    early: how many events come before that gap.
    """

    events: list[Event]
    missing: int = 0
    early: int = 0


def load(redis: Redis, task: str) -> History | None:
    """Return the history of a task. None: there is no such task. One round trip."""
    first, last, (status, created, count, producer) = redis.read(
        ("LRANGE", keys.history(task), 0, -1),
        ("LRANGE", keys.recent(task), 0, -1),
        ("HMGET", keys.task(task), "status", "created", "events", "producer"),
    )
    if status is None:
        return None
    early, late = _events(task, first), _events(task, last)
    born = _born(task, created, producer)
    missing = max(count_of(count) - len(first) - len(last), 0)
    return History([*born, *early, *late], missing, len(born) + len(early))


def wish(task: str) -> Reader[str | None]:
    """Read why the last attempt of a task asked to run again later. None: it did not. One round trip."""
    replies = yield [
        ("LRANGE", key, -LATEST, -1) for key in (keys.history(task), keys.recent(task))
    ]
    events = [
        event for texts in replies for event in _events(task, texts) if event.event not in _WAITING
    ]
    if not events or events[-1].event != "postponed":
        return None
    return _text(events[-1].facts.get("reason"))


def last_places(redis: Redis, queues: Sequence[str]) -> dict[str, str]:
    """Return where the streams of these queues end now."""
    replies = redis.read(
        *[("XREVRANGE", keys.events(queue), "+", "-", "COUNT", 1) for queue in queues]
    )
    return {
        queue: reply[0][0] if reply else "0-0" for queue, reply in zip(queues, replies, strict=True)
    }


def entry_at(seconds: float) -> int:
    """Return the place of an instant in the events of a queue, clamped to possible times."""
    return int(min(max(seconds, 0.0), LAST_SECOND) * 1000)


def newest(
    redis: Redis,
    queues: Sequence[str],
    each: int,
    since: float | None = None,
    until: float | None = None,
) -> list[Event]:
    """Return the newest events of these queues, newest first: one round trip.

    each: how many of each queue. since, until: Unix seconds, by the clock of Redis.
    """
    if not queues:
        return []
    first = "-" if since is None else entry_at(since)
    last = "+" if until is None else entry_at(until)
    asked = [("XREVRANGE", keys.events(queue), last, first, "COUNT", each) for queue in queues]
    found = [
        event
        for queue, entries in zip(queues, redis.read(*asked), strict=True)
        for event in parse(queue, entries)
    ]
    return sorted(found, key=lambda event: event.at, reverse=True)


def follow(redis: Redis, places: Mapping[str, str], seconds: float = LONGEST) -> Iterator[Event]:
    """Wait for events after these places and yield them; nothing if none comes.

    places: how far each queue has been read. seconds: how long to wait, less than a reply may take.
    """
    of = {keys.events(queue): queue for queue in places}
    wait = ("BLOCK", max(int(seconds * 1000), 1)) if seconds > 0 else ()
    (reply,) = redis.read(
        ("XREAD", *wait, "COUNT", EVENTS_AT_ONCE, "STREAMS", *of, *places.values())
    )
    for key, entries in reply or ():
        yield from parse(of[key], entries)


def parse(queue: str, entries: Iterable[Any], without: str | None = None) -> Iterator[Event]:
    """Yield the events in these entries of the stream of a queue.

    without: the name of an event to leave out, because there may be very many of it.
    """
    left_out = None if without is None else f'{{"event":"{without}"'
    for place, words in entries:
        if left_out is not None and words[-1].startswith(left_out):  # seen sooner than parsed
            continue
        fields = as_hash(words)
        event = _event(fields.get("task", ""), fields.get("told", ""), queue, place)
        if event is not None and event.event != without:
            yield event


def ends(redis: Redis, queue: str, start: str, end: str) -> Iterator[list[Event]]:
    """Yield the ends of tasks after one place, up to another, at most 1000 at a time."""
    after = start
    while True:
        (entries,) = redis.read(
            ("XRANGE", keys.events(queue), f"({after}", end, "COUNT", EVENTS_AT_ONCE)
        )
        yield [event for event in parse(queue, entries) if event.event in FINISHED]
        if len(entries) < EVENTS_AT_ONCE:
            return
        after = entries[-1][0]


def is_gone(redis: Redis, queue: str, place: str) -> bool:
    """Return whether events after this place may have been deleted: a queue keeps about 10,000.

    Redis does not say which was deleted last. So this is also true if the event at this place is
    gone and none follows.
    """
    if place == FIRST:
        return False
    key = keys.events(queue)
    at_place, first = redis.read(
        ("XRANGE", key, place, place), ("XRANGE", key, "-", "+", "COUNT", 1)
    )
    return not at_place and (not first or _numbers(first[0][0]) > _numbers(place))


def _born(task: str, created: str | None, producer: str | None) -> list[Event]:
    try:
        return [] if created is None else [Event(task, "enqueued", float(created), 0, producer, {})]
    except ValueError:
        return []


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _events(task: str, texts: Iterable[str]) -> list[Event]:
    events = (_event(task, text) for text in texts)
    return [event for event in events if event is not None]


def _event(
    task: str, text: str, queue: str | None = None, place: str | None = None
) -> Event | None:
    try:
        told, _ = _DECODER.raw_decode(text.strip())
        take = told.pop
        event, at, attempt = str(take("event")), float(take("at")), int(take("attempt", 0))
        return Event(task, event, at, attempt, _text(take("by", None)), told, queue, place)
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # written by another program


def _numbers(place: str) -> tuple[int, ...]:
    return tuple(map(int, place.split("-")))
