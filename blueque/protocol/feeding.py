"""A backlog that is larger than Redis is fed into a queue piece by piece: open_feed, feed, and how
a feed ends.

How far a feed is stands in its record. It is moved by the transaction that makes the tasks, so that
each row of the backlog becomes a task once, whoever dies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import Command, Look, Redis, as_hash
from blueque.errors import FeedTaken, InvalidInput
from blueque.model import keys
from blueque.protocol.bulk import Batch
from blueque.protocol.fields import flat
from blueque.protocol.transaction import Answer, Change, transact

KEPT = 90 * 86400  # seconds that the record of a finished feed stays
# Who feeds, and when that was last heard of.
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


class Cursor(NamedTuple):
    """How far a feed is.

    file, mark: the file that is fed, and what tells it from another of that name. row: how many of
        its rows are done.
    offset: the byte at which its next line begins; 0: not known. crc: the CRC-32 of its lines that
        are done; of Parquet 0.
    rows: how many are done of all files together. share: which part of their bytes that is, 0 to 1;
        for people only.
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

    before: how many rows were done before them. after: where they end.
    batch: the tasks that they become; None: there are none. skipped: how many rows become none.
    fed: how many become one, those included that share one by their key; else as many as there are
        tasks.
    done: files that are fed to their end with these rows, and their marks.
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
        self.probe: Sequence[Command] = [_exist(self.ids)] if self.ids else []


class Fed(NamedTuple):
    """What came of a chunk.

    verdict: fed; full: it has to wait for room; astray: the record says another place than the one
        before the chunk.
    waiting: how many tasks were in line.
    """

    verdict: str
    waiting: int


def open_feed(
    redis: Redis,
    queue: str,
    feed: str,
    token: str,
    instance: str,
    source: str,
    facts: Mapping[str, str | int | float],
    dead: str | None,
    now: float,
) -> dict[str, str]:
    """Become the feeder, and return the record as it is then; or as it is, when somebody else
    feeds.

    instance: of the record, should there be none. facts: about this feeder. dead: the token of one
        that is dead.
    Raises InvalidInput when the record is of something else.
    """
    key = keys.feed(queue, feed)

    def decide(reply: list[str]) -> Answer | Change:
        record = as_hash(reply)
        if record and (record.get("feed"), record.get("queue")) != (feed, queue):
            raise InvalidInput(
                f"feed {feed!r} of queue {queue!r} would share {key} with feed {record.get('feed')!r} of queue "
                f"{record.get('queue')!r}: choose another name"
            )
        if record.get("token") not in (None, dead):  # ours, too: an earlier try
            return Answer(record)
        made: dict[str, str | int | float] = (
            {}
            if record
            else {
                "feed": feed,
                "queue": queue,
                "instance": instance,
                "rows": 0,
                "tasks": 0,
                "skipped": 0,
                "created": now,
            }
        )
        ours = {
            "state": "open",
            "source": source,
            "updated": now,
            "token": token,
            "since": now,
            "beat": 0,
            "beat_at": now,
            **facts,
        }
        commands: list[Command] = [
            *[("HSET", key, *flat(fields)) for fields in (made, ours) if fields],
            ("PERSIST", key),
            ("PERSIST", keys.fed(queue, feed)),
            ("ZADD", keys.feeds(queue), "+inf", feed),
            ("ZINCRBY", keys.QUEUES, 0, queue),
        ]
        texts = {name: str(value) for name, value in {**made, **ours}.items()}
        return Change(commands, {**record, **texts, "state": record.get("state", "open")})

    found: dict[str, str] = transact(redis, "open_feed", Look([key], [("HGETALL", key)]), decide)
    return found


def feed(
    redis: Redis,
    queue: str,
    feed: str,
    token: str,
    chunk: FeedChunk,
    window: int,
    others: Sequence[str],
    now: float,
    following: FeedChunk | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> Fed:
    """Put the tasks of a chunk in line and move the cursor behind it, if no more than `window`
    tasks wait then.

    others: the names of the queue's lines besides the default one, whose tasks count as waiting,
        too.
    following: the next chunk; its look travels with our EXEC. meanwhile: see transact. Raises
        FeedTaken.
    """

    def decide(record: list[str | None], *replies: int) -> Answer | Change:
        its_token, node, rows = record
        lengths, exists = replies[: 1 + len(others)], replies[1 + len(others) :]
        if its_token != token:
            raise FeedTaken(feed, queue, node)
        if rows == str(chunk.after.rows):
            return Answer(Fed("fed", sum(lengths)))
        if rows != str(chunk.before):
            return Answer(Fed("astray", sum(lengths)))
        if sum(lengths) + len(chunk.ids) > window:
            return Answer(Fed("full", sum(lengths)))
        if len(exists) == 1 and exists[0] and len(chunk.ids) > 1:
            return Answer(None)  # some are there: it takes a closer look
        new = [number for number in range(len(chunk.ids)) if not exists[number % len(exists)]]
        return Change(_moves(queue, feed, chunk, new, now), Fed("fed", sum(lengths) + len(new)))

    look = _look(queue, feed, chunk, others)
    ahead = None if following is None else _look(queue, feed, following, others)
    fed: Fed | None = transact(redis, "feed", look, decide, ahead=ahead, meanwhile=meanwhile)
    if fed is None:
        closer = _look(queue, feed, chunk, others, is_close=True)
        fed = transact(redis, "feed", closer, decide, ahead=ahead, meanwhile=meanwhile)
    assert fed is not None
    return fed


def beat_feed(redis: Redis, queue: str, feed: str, token: str, beat: int, now: float) -> None:
    """Say that the feeder lives, while nothing else that it does says so. Raises FeedTaken."""
    key = keys.feed(queue, feed)

    def decide(record: list[str | None]) -> Answer | Change:
        its_token, node = record
        if its_token != token:
            raise FeedTaken(feed, queue, node)
        return Change([("HSET", key, "beat", beat, "beat_at", now)])

    transact(redis, "beat_feed", Look([key], [("HMGET", key, "token", "node")]), decide)


def leave_feed(redis: Redis, queue: str, feed: str, token: str) -> None:
    """Let the next feeder begin at once where this one has stopped. Nothing happens if it is
    another's by now.
    """
    key = keys.feed(queue, feed)

    def decide(its_token: str | None) -> Answer | Change:
        if its_token != token:
            return Answer(None)
        return Change([("HDEL", key, *FEEDER)])

    transact(redis, "leave_feed", Look([key], [("HGET", key, "token")]), decide)


def finish_feed(
    redis: Redis, queue: str, feed: str, token: str, done: Mapping[str, str], now: float
) -> None:
    """Record that the whole backlog is fed. Raises FeedTaken.

    done: the last files and their marks.
    """
    key, files = keys.feed(queue, feed), keys.fed(queue, feed)

    def decide(record: list[str | None]) -> Answer | Change:
        its_token, node, state = record
        if its_token is None and state == "finished":
            return Answer(None)
        if its_token != token:
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
        return Change(commands)

    transact(redis, "finish_feed", Look([key], [("HMGET", key, "token", "node", "state")]), decide)


def forget_feed(redis: Redis, queue: str, feed: str) -> bool:
    """Remove the record. False: there is none, or it is of something else."""
    key = keys.feed(queue, feed)

    def decide(record: list[str | None]) -> Answer | Change:
        if record != [feed, queue]:
            return Answer(False)
        return Change(
            [("DEL", key, keys.fed(queue, feed)), ("ZREM", keys.feeds(queue), feed)], True
        )

    look = Look([key], [("HMGET", key, "feed", "queue")])
    return bool(transact(redis, "forget_feed", look, decide))


def _look(
    queue: str, feed: str, chunk: FeedChunk, others: Sequence[str], is_close: bool = False
) -> Look:
    reads: list[Command] = [
        ("HMGET", keys.feed(queue, feed), "token", "node", "rows"),
        *[("LLEN", keys.line(queue, name)) for name in ("0", *others)],
    ]
    reads += (
        [("EXISTS", keys.task(task.decode())) for task in chunk.ids] if is_close else chunk.probe
    )
    return Look([keys.feed(queue, feed)], reads)


def _exist(ids: Sequence[bytes]) -> bytes:
    """Return the EXISTS of tasks whose ids are all of one length, in Redis' wire format: a join is
    all that it takes.
    """
    prefix = keys.task("").encode()
    mark = b"\r\n$%d\r\n%b" % (len(prefix) + len(ids[0]), prefix)
    return b"*%d\r\n$6\r\nEXISTS%b%b\r\n" % (len(ids) + 1, mark, mark.join(ids))


def _moves(
    queue: str, feed: str, chunk: FeedChunk, new: Sequence[int], now: float
) -> list[Command]:
    """Return the commands that make the new ones of a chunk's tasks and move the cursor."""
    key, after = keys.feed(queue, feed), chunk.after
    commands: list[Command] = []
    if chunk.batch is not None and new:
        commands += (
            chunk.batch.commands if len(new) == len(chunk.ids) else chunk.batch.commands_for(new)
        )
    if chunk.done:
        commands += [("HSET", keys.fed(queue, feed), *flat(chunk.done))]
    cursor: dict[str, Any] = {**after._asdict(), "updated": now}
    commands += [("HSET", key, *flat(cursor)), ("HINCRBY", key, "tasks", len(new))]
    if chunk.skipped:
        commands += [("HINCRBY", key, "skipped", chunk.skipped)]
    return commands
