"""Feed a backlog that is larger than Redis into a queue: begin_feed, feed, end_feed, forget_feed.

The record of a feed has a cursor. The transaction that creates tasks moves it, so that each row of
the backlog becomes a task once, even if a feeder dies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import Command, Look, Redis, as_hash
from blueque.errors import InvalidInput, Taken
from blueque.model import keys
from blueque.protocol.bulk import Batch
from blueque.protocol.fields import flat
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import exist_all

KEPT = 90 * 86400  # seconds that the record of a finished feed stays
ALIVE = 60  # seconds without a sign of life after which a feeder counts as dead
# The fields of the record about its feeder.
FEEDER = ("token", "node", "pid", "pid_start", "boot", "ns", "since")


class FeedRef(NamedTuple):
    """A feed of a queue, and its feeder.

    token: a random mark of the feeder.
    """

    queue: str
    feed: str
    token: str


class Cursor(NamedTuple):
    """The place in a backlog up to which its rows are done.

    file, mark: the file that is fed, and what tells it from another file with that name.
    row: how many of its rows are done. offset: the byte at which its next line begins; 0: unknown.
    rows: how many rows of all files are done. share: their part of all bytes, 0 to 1, for people.
    """

    file: str
    mark: str
    row: int
    offset: int
    rows: int
    share: float = 0.0


class FeedChunk:
    """Rows that are fed in one transaction.

    before: how many rows were done before them. after: the place where they end.
    batch: the tasks made of them; None: there are none. skipped: how many rows make no task.
    fed: how many rows make a task, including rows with the same key; without it, the number of tasks.
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


class Whole(NamedTuple):
    """A backlog that is fed completely.

    rows: how many rows are done. done: the last files and their marks, which had no more rows.
    """

    rows: int
    done: Mapping[str, str]


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


def begin_feed(
    redis: Redis,
    ref: FeedRef,
    instance: str,
    source: str,
    facts: Mapping[str, str | int | float],
    dead: str | None,
    now: float,
) -> dict[str, str]:
    """Become the feeder and return the record; if another feeder is at work, return it unchanged.

    instance: for a new record. facts: about this feeder. dead: the token of a feeder whose process
        is gone.
    Raises InvalidInput when the record is that of another feed.
    """
    queue, feed, token = ref
    key = keys.feed(queue, feed)

    def decide(reply: list[str], is_alive: int) -> Verdict[dict[str, str]]:
        record = as_hash(reply)
        if record:
            _require_same(ref, record)
        if record.get("token") == token or (is_alive and record.get("token") not in (None, dead)):
            return Answer(record)
        new: dict[str, str | int | float] = {"feed": feed, "queue": queue, "instance": instance}
        new |= {"rows": 0, "tasks": 0, "skipped": 0, "created": now}
        if record:
            new = {}
        ours: dict[str, str | int | float] = {"state": "open", "source": source, "updated": now}
        ours |= {"token": token, "since": now, **facts}
        commands: list[Command] = [
            *[("HSET", key, *flat(fields)) for fields in (new, ours) if fields],
            _is_alive(ref),
            ("PERSIST", key),
            ("PERSIST", keys.fed(queue, feed)),
            ("ZADD", keys.feeds(queue), "+inf", feed),
            ("ZINCRBY", keys.QUEUES, 0, queue),
        ]
        texts = {name: str(value) for name, value in {**new, **ours}.items()}
        return Change(commands, {**record, **texts, "state": record.get("state", "open")})

    look: Look[list[str], int] = Look(
        [key], [("HGETALL", key), ("EXISTS", keys.feeder(queue, feed))]
    )
    return transact(redis, "begin_feed", look, decide)


def _require_same(ref: FeedRef, record: Mapping[str, str]) -> None:
    """Refuse the record of another feed, whose key is the same because of its name and its queue."""
    queue, feed, _ = ref
    if (record.get("feed"), record.get("queue")) != (feed, queue):
        raise InvalidInput(
            f"feed {feed!r} of queue {queue!r} would share {keys.feed(queue, feed)} with feed {record.get('feed')!r} of "
            f"queue {record.get('queue')!r}: choose another name"
        )


def feed(
    redis: Redis,
    ref: FeedRef,
    chunk: FeedChunk,
    window: Window,
    now: float,
    meanwhile: Callable[[], object] | None = None,
) -> Fed:
    """Put the tasks of a chunk in line and move the cursor after it, if the window has room.

    In any case show that the feeder is alive. meanwhile: see transact.
    Raises Taken.
    """

    def decide(reply: list[str | None], *numbers: int) -> Verdict[Fed | None]:
        token, node, rows = reply
        lengths, exists = numbers[: 1 + len(window.lines)], numbers[1 + len(window.lines) :]
        waiting = sum(lengths)
        if token != ref.token:
            raise _taken(ref, node)
        if rows == str(chunk.after.rows):
            return Change([_is_alive(ref)], Fed("fed", waiting))
        if rows != str(chunk.before):
            return Answer(Fed("astray", waiting))
        if waiting + len(chunk.ids) > window.size:
            return Change([_is_alive(ref)], Fed("full", waiting))
        if len(exists) == 1 and exists[0] and len(chunk.ids) > 1:
            return Answer(None)  # some tasks exist: look at each
        new = [number for number in range(len(chunk.ids)) if not exists[number % len(exists)]]
        return Change(_moves(ref, chunk, new, now), Fed("fed", waiting + len(new)))

    fed = transact(redis, "feed", _look(ref, chunk, window), decide, meanwhile=meanwhile)
    if fed is None:
        closer = _look(ref, chunk, window, is_close=True)
        fed = transact(redis, "feed", closer, decide, meanwhile=meanwhile)
    assert fed is not None
    return fed


def end_feed(redis: Redis, ref: FeedRef, whole: Whole | None, now: float) -> bool:
    """Let the next feeder continue at once; record that the whole backlog is fed, if it is.

    False: nothing is written, because the record has lost rows that were fed.
    whole: None: there may be more rows.
    Raises Taken when the backlog is fed and another feeder has the feed.
    """
    queue, feed, _ = ref
    key, files = keys.feed(queue, feed), keys.fed(queue, feed)

    def decide(reply: list[str | None]) -> Verdict[bool]:
        token, node, state, rows = reply
        if token != ref.token:
            if whole is None or (token is None and state == "finished"):
                return Answer(True)
            raise _taken(ref, node)
        if whole is not None and rows != str(whole.rows):
            return Answer(False)
        commands: list[Command] = []
        if whole is not None:
            commands += [("HSET", files, *flat(whole.done))] if whole.done else []
            commands += [("HSET", key, "state", "finished", "finished", now, "updated", now)]
        commands += [("HDEL", key, *FEEDER), ("DEL", keys.feeder(queue, feed))]
        if whole is not None:
            commands += [
                ("EXPIRE", key, KEPT),
                ("EXPIRE", files, KEPT),
                ("ZREMRANGEBYSCORE", keys.feeds(queue), "-inf", now - KEPT),
                ("ZADD", keys.feeds(queue), now, feed),
            ]
        return Change(commands, True)

    look: Look[list[str | None]] = Look([key], [("HMGET", key, "token", "node", "state", "rows")])
    return transact(redis, "end_feed", look, decide)


def forget_feed(redis: Redis, queue: str, feed: str) -> bool:
    """Remove the record. False: there is none, or it is that of another feed."""
    key = keys.feed(queue, feed)

    def decide(reply: list[str | None]) -> Verdict[bool]:
        if reply != [feed, queue]:
            return Answer(False)
        parts = (key, keys.fed(queue, feed), keys.feeder(queue, feed))
        return Change([("DEL", *parts), ("ZREM", keys.feeds(queue), feed)], True)

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
    return [*commands, _is_alive(ref)]


def _is_alive(ref: FeedRef) -> Command:
    return ("SET", keys.feeder(ref.queue, ref.feed), 1, "EX", ALIVE)


def _taken(ref: FeedRef, node: str | None) -> Taken:
    """Return the error for a feeder that has lost its feed."""
    what = "is gone: it was removed, or Redis has lost it"
    if node:
        what = f"was taken over by {node}"
    why = f"{what}; this feeder has written nothing since"
    return Taken(f"feed {ref.feed!r} of queue {ref.queue!r} {why}", node)
