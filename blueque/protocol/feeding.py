"""Feed a backlog that is larger than Redis into a queue: open_feed, feed, beat_feed, leave_feed,
finish_feed, forget_feed.

The record of a feed has a cursor. The transaction that creates tasks moves it, so that each row of
the backlog becomes a task once, even if a feeder dies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import Command, Look, Redis, as_hash
from blueque.errors import FeedTaken, InvalidInput
from blueque.model import keys
from blueque.protocol.bulk import Batch
from blueque.protocol.fields import flat
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import exist_all

KEPT = 90 * 86400  # seconds that the record of a finished feed stays
# The fields of the record about its feeder and its last beat.
FEEDER = (
    "token",
    "node",
    "pid",
    "pid_start",
    "boot",
    "ns",
    "beat_every",
    "lease",
    "since",
    "beat",
    "beat_at",
)


class FeedRef(NamedTuple):
    """A feed of a queue, and its feeder.

    token: a random mark of the feeder.
    """

    queue: str
    feed: str
    token: str


class Cursor(NamedTuple):
    """The place in a backlog up to which its rows are done.

    file, mark: the file that is fed, and what tells it from another with that name. row: how many
        of its rows are done.
    offset: the byte at which its next line begins; 0: not known. crc: the CRC-32 of its lines that
        are done; 0 for Parquet.
    rows: how many rows of all files are done. share: their part of all bytes, 0 to 1; for people
        only.
    """

    file: str
    mark: str
    row: int
    offset: int
    crc: int
    rows: int
    share: float = 0.0


class FeedChunk:
    """Rows that are fed in one transaction.

    before: how many rows were done before them. after: the place where they end.
    batch: the tasks that they become; None: there are none. skipped: how many rows become no task.
    fed: how many rows become a task, rows with the same key included; without it, the number of
        tasks.
    done: files that end with these rows, and their marks.
    """

    def __init__(
        self,
        before: int,
        after: Cursor,
        batch: Batch | None,
        skipped: int = 0,
        done: Mapping[str, str] | None = None,
        fed: int | None = None,
    ) -> None:
        self.before = before
        self.after = after
        self.batch = batch
        self.skipped = skipped
        self.done = dict(done or {})
        self.ids: Sequence[bytes] = batch.tasks.ids if batch is not None else ()
        self.fed = len(self.ids) if fed is None else fed
        self.probe: Sequence[Command] = [exist_all(self.ids)] if self.ids else []


class Window(NamedTuple):
    """How many tasks may wait in a queue that is fed.

    lines: the names of the queue's lines besides the default one; their tasks count, too.
    """

    size: int
    lines: Sequence[str] = ()


class Fed(NamedTuple):
    """The result for a chunk.

    verdict: `fed`; `full`: the chunk has to wait; `astray`: the cursor is not where the chunk
        begins.
    waiting: how many tasks were in line.
    """

    verdict: str
    waiting: int


def open_feed(
    redis: Redis,
    ref: FeedRef,
    instance: str,
    source: str,
    facts: Mapping[str, str | int | float],
    dead: str | None,
    now: float,
) -> dict[str, str]:
    """Become the feeder and return the record; if another feeder is at work, return it unchanged.

    instance: for a new record. facts: about this feeder. dead: the token of a dead feeder.
    Raises InvalidInput when the record is that of another feed.
    """
    queue, feed, token = ref
    key = keys.feed(queue, feed)

    def decide(reply: list[str]) -> Verdict[dict[str, str]]:
        record = as_hash(reply)
        if record and (record.get("feed"), record.get("queue")) != (feed, queue):
            raise InvalidInput(
                f"feed {feed!r} of queue {queue!r} would share {key} with feed {record.get('feed')!r} of queue "
                f"{record.get('queue')!r}: choose another name"
            )
        if record.get("token") not in (None, dead):  # or ours, of an earlier try
            return Answer(record)
        new: dict[str, str | int | float] = {"feed": feed, "queue": queue, "instance": instance}
        new |= {"rows": 0, "tasks": 0, "skipped": 0, "created": now}
        if record:
            new = {}
        ours: dict[str, str | int | float] = {"state": "open", "source": source, "updated": now}
        ours |= {"token": token, "since": now, "beat": 0, "beat_at": now, **facts}
        commands: list[Command] = [
            *[("HSET", key, *flat(fields)) for fields in (new, ours) if fields],
            ("PERSIST", key),
            ("PERSIST", keys.fed(queue, feed)),
            ("ZADD", keys.feeds(queue), "+inf", feed),
            ("ZINCRBY", keys.QUEUES, 0, queue),
        ]
        texts = {name: str(value) for name, value in {**new, **ours}.items()}
        return Change(commands, {**record, **texts, "state": record.get("state", "open")})

    look: Look[list[str]] = Look([key], [("HGETALL", key)])
    return transact(redis, "open_feed", look, decide)


def feed(
    redis: Redis,
    ref: FeedRef,
    chunk: FeedChunk,
    window: Window,
    now: float,
    following: FeedChunk | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> Fed:
    """Put the tasks of a chunk in line and move the cursor behind it, if the window has room.

    following: the next chunk; its look is sent with our EXEC. meanwhile: see transact.
    Raises FeedTaken.
    """

    def decide(reply: list[str | None], *numbers: int) -> Verdict[Fed | None]:
        token, node, rows = reply
        lengths, exists = numbers[: 1 + len(window.lines)], numbers[1 + len(window.lines) :]
        waiting = sum(lengths)
        if token != ref.token:
            raise FeedTaken(ref.feed, ref.queue, node)
        if rows == str(chunk.after.rows):
            return Answer(Fed("fed", waiting))
        if rows != str(chunk.before):
            return Answer(Fed("astray", waiting))
        if waiting + len(chunk.ids) > window.size:
            return Answer(Fed("full", waiting))
        if len(exists) == 1 and exists[0] and len(chunk.ids) > 1:
            return Answer(None)  # some tasks exist: look at each
        new = [number for number in range(len(chunk.ids)) if not exists[number % len(exists)]]
        return Change(_moves(ref, chunk, new, now), Fed("fed", waiting + len(new)))

    look = _look(ref, chunk, window)
    ahead = None if following is None else _look(ref, following, window)
    fed = transact(redis, "feed", look, decide, ahead=ahead, meanwhile=meanwhile)
    if fed is None:
        closer = _look(ref, chunk, window, is_close=True)
        fed = transact(redis, "feed", closer, decide, ahead=ahead, meanwhile=meanwhile)
    assert fed is not None
    return fed


def beat_feed(redis: Redis, ref: FeedRef, beat: int, now: float) -> None:
    """Show that the feeder is alive while it writes nothing else. Raises FeedTaken."""
    key = keys.feed(ref.queue, ref.feed)

    def decide(reply: list[str | None]) -> Verdict[None]:
        token, node = reply
        if token != ref.token:
            raise FeedTaken(ref.feed, ref.queue, node)
        return Change([("HSET", key, "beat", beat, "beat_at", now)], None)

    look: Look[list[str | None]] = Look([key], [("HMGET", key, "token", "node")])
    transact(redis, "beat_feed", look, decide)


def leave_feed(redis: Redis, ref: FeedRef) -> None:
    """Let the next feeder go on at once. Nothing happens if the feed is another feeder's by now."""
    key = keys.feed(ref.queue, ref.feed)

    def decide(token: str | None) -> Verdict[None]:
        if token != ref.token:
            return Answer(None)
        return Change([("HDEL", key, *FEEDER)], None)

    look: Look[str | None] = Look([key], [("HGET", key, "token")])
    transact(redis, "leave_feed", look, decide)


def finish_feed(redis: Redis, ref: FeedRef, done: Mapping[str, str], now: float) -> None:
    """Record that the whole backlog is fed. Raises FeedTaken.

    done: the last files and their marks.
    """
    queue, feed, _ = ref
    key, files = keys.feed(queue, feed), keys.fed(queue, feed)

    def decide(reply: list[str | None]) -> Verdict[None]:
        token, node, state = reply
        if token is None and state == "finished":
            return Answer(None)
        if token != ref.token:
            raise FeedTaken(feed, queue, node)
        commands: list[Command] = [("HSET", files, *flat(done))] if done else []
        commands += [
            ("HSET", key, "state", "finished", "finished", now, "updated", now),
            ("HDEL", key, *FEEDER),
            ("EXPIRE", key, KEPT),
            ("EXPIRE", files, KEPT),
            ("ZREMRANGEBYSCORE", keys.feeds(queue), "-inf", now - KEPT),
            ("ZADD", keys.feeds(queue), now, feed),
        ]
        return Change(commands, None)

    look: Look[list[str | None]] = Look([key], [("HMGET", key, "token", "node", "state")])
    transact(redis, "finish_feed", look, decide)


def forget_feed(redis: Redis, queue: str, feed: str) -> bool:
    """Remove the record. False: there is none, or it is that of another feed."""
    key = keys.feed(queue, feed)

    def decide(reply: list[str | None]) -> Verdict[bool]:
        if reply != [feed, queue]:
            return Answer(False)
        return Change(
            [("DEL", key, keys.fed(queue, feed)), ("ZREM", keys.feeds(queue), feed)], True
        )

    look: Look[list[str | None]] = Look([key], [("HMGET", key, "feed", "queue")])
    return transact(redis, "forget_feed", look, decide)


def _look(
    ref: FeedRef, chunk: FeedChunk, window: Window, is_close: bool = False
) -> Look[list[str | None], *tuple[int, ...]]:
    record = keys.feed(ref.queue, ref.feed)
    reads: list[Command] = [
        ("HMGET", record, "token", "node", "rows"),
        *[("LLEN", keys.line(ref.queue, name)) for name in ("0", *window.lines)],
    ]
    reads += (
        [("EXISTS", keys.task(task.decode())) for task in chunk.ids] if is_close else chunk.probe
    )
    return Look([record], reads)


def _moves(ref: FeedRef, chunk: FeedChunk, new: Sequence[int], now: float) -> list[Command]:
    """Return the commands that create the new tasks of a chunk and move the cursor."""
    key, after = keys.feed(ref.queue, ref.feed), chunk.after
    commands: list[Command] = []
    if chunk.batch is not None and new:
        commands += (
            chunk.batch.commands if len(new) == len(chunk.ids) else chunk.batch.commands_for(new)
        )
    if chunk.done:
        commands += [("HSET", keys.fed(ref.queue, ref.feed), *flat(chunk.done))]
    cursor: dict[str, Any] = {**after._asdict(), "updated": now}
    commands += [("HSET", key, *flat(cursor)), ("HINCRBY", key, "tasks", len(new))]
    if chunk.skipped:
        commands += [("HINCRBY", key, "skipped", chunk.skipped)]
    return commands
