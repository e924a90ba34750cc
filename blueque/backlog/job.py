"""The work of one feeder, from its claim on the feed to the last row. Users call `feed` in
feeder.py.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from blueque.backlog.chunks import Aim, FeedChunks, cursor
from blueque.backlog.feed_progress import Tell, Teller
from blueque.backlog.files import Backlog
from blueque.backlog.rows import Shape
from blueque.connection.redis import Redis
from blueque.errors import BacklogRefused, Contended, RedisAway, Taken
from blueque.model.lines import line_of
from blueque.model.new_task import Fields
from blueque.producer.sealing import store_many
from blueque.protocol import feeding
from blueque.protocol.feeding import Fed, FeedChunk, FeedRef, Whole, Window
from blueque.queries import feeds
from blueque.queries.inspector import Inspector
from blueque.system import process
from blueque.system.backoff import pause

CHUNK = 1000  # rows in a transaction, if the window has room for two of them
SHORTEST, LONGEST = 0.01, 1.0  # seconds between two checks whether there is room
FRESH = 1.0  # seconds after which the tasks of a chunk get a new time of creation
PACE = 1.0  # seconds between two reads of the record, and of the lines
FOLLOW_PACE = 2.0  # seconds between two searches for new files
SIGN = 20.0  # seconds after which a feeder that waits shows that it is alive

log = logging.getLogger("blueque")

T = TypeVar("T")


class Job(NamedTuple):
    """The work of a feeder.

    stop: ends it between two chunks.
    patience: for how many seconds Redis may be away before its first answer; later, for any time.
    """

    queue: str
    feed: str
    backlog: Backlog
    shape: Shape
    options: Fields
    window: int
    does_follow: bool
    stop: threading.Event
    patience: float = 5.0


class Ready(NamedTuple):
    """A chunk that is ready. bad: the rows that it leaves out. made: when, by time.time()."""

    chunk: FeedChunk
    bad: list[BacklogRefused]
    made: float


class Stopped(Exception):
    """`stop` was set while the feeder was waiting."""


class Feeding:
    """One feeder at work.

    rows: how many rows are done, as far as it knows. fed: how many of them it has turned into tasks.
    """

    def __init__(self, redis: Redis, job: Job, tell: Tell | None = None) -> None:
        self.rows = self.fed = 0
        self._redis, self._job = redis, job
        self._teller = Teller(job.feed, job.queue, tell)
        self._ref = FeedRef(job.queue, job.feed, os.urandom(16).hex())
        self._inspector = Inspector(redis)
        self._chunks: FeedChunks | None = None
        self._ready: deque[Ready] = deque()  # the next chunks; Redis works on the first
        self._failure: BaseException | None = None  # raised when those chunks are fed
        self._lines: list[str] = []
        self._window = job.window  # not more than the queue takes
        self._size = CHUNK  # rows of a chunk
        self._lines_due = 0.0
        self._sign_due = 0.0  # when others must hear of us again, by time.monotonic()
        self._gives_up = math.inf  # when to give up if Redis is away, by time.monotonic()

    @property
    def has_begun(self) -> bool:
        """Whether this feeder has had the feed, so that `rows` is known."""
        return self._chunks is not None

    @property
    def skipped(self) -> int:
        """How many bad rows it has left out."""
        return self._teller.skipped

    def run(self) -> bool:
        """Feed until the end, or until `stop`. Return whether the end was reached.

        Raises BacklogRefused, Taken, RedisRefused; RedisAway only before the first answer.
        """
        is_ours, self._gives_up = True, time.monotonic() + self._job.patience
        try:
            self._begin(self._patiently(self._claim))
            while self._step() or not self._finish():
                pass
            return True
        except Stopped:
            return False
        except Taken:
            is_ours = False
            raise
        except KeyboardInterrupt:
            # a second interruption does not wait for Redis
            is_ours = not self._job.stop.is_set()
            raise
        finally:
            if self._chunks is not None:
                self._chunks.close()
            if is_ours:
                self._leave()

    def _claim(self) -> dict[str, str]:
        """Become the feeder, and return the record. Raises Taken if another one is at work."""
        job = self._job
        if not feeds.load(self._redis, job.queue, job.feed):
            job.backlog.files()  # a mistyped path leaves no record behind
        record = self._open()
        self._gives_up = math.inf
        if self._is_others(record) and feeds.is_process_gone(record):
            record = self._open(dead=record["token"])
        if self._is_others(record):
            node = record.get("node")
            how = "stop that one, or, if it is dead, try again a minute later"
            raise Taken(f"feed {job.feed!r} of queue {job.queue!r} is fed by {node}: {how}", node)
        return record

    def _open(self, dead: str | None = None) -> dict[str, str]:
        pid = os.getpid()
        facts = {"node": process.node_id(), "pid": pid, **process.identity(pid)}
        instance, source = os.urandom(16).hex(), str(self._job.backlog)
        return feeding.begin_feed(
            self._redis, self._ref, instance, source, facts, dead, time.time()
        )

    def _is_others(self, record: dict[str, str]) -> bool:
        return record.get("token") != self._ref.token

    def _leave(self) -> None:
        """Let the next feeder begin at once. If Redis is away, it has to wait for a minute."""
        try:
            feeding.end_feed(self._redis, self._ref, None, time.time())
        except RedisAway as error:
            log.info("end_feed feed=%s queue=%s: %s", self._job.feed, self._job.queue, error)

    def _begin(self, record: dict[str, str]) -> None:
        """Go to the place in the record."""
        job, start = self._job, cursor(record)
        done = self._patiently(lambda: feeds.marks(self._redis, job.queue, job.feed))
        store = partial(store_many, self._redis, job.queue)
        aim = Aim(job.queue, job.feed, record["instance"], job.options, store)
        if self._chunks is not None:
            self._chunks.close()
        self.rows = start.rows
        self._look_at_lines()
        self._size = min(CHUNK, max(self._window // 2, 1))
        self._chunks = FeedChunks(job.backlog, job.shape, aim, self._size, start, done)
        self._ready.clear()
        self._failure = None
        try:
            self._look(may_be_gone=record.get("state") == "finished")
        finally:  # report even when this fails
            self._teller.report(self.rows)

    def _look(self, may_be_gone: bool = False) -> None:
        """Read which files there are. may_be_gone: everything is fed, so they need not exist."""
        assert self._chunks is not None
        try:
            self._chunks.look()
        except BacklogRefused:
            if not may_be_gone or self._job.backlog.is_there():
                raise
        if self._teller.has_listener:
            self._teller.total = self._chunks.count_rows()

    def _step(self) -> bool:
        """Feed a chunk, or wait until one can be fed. False: everything is fed."""
        if self._job.stop.is_set():
            raise Stopped
        if time.monotonic() >= self._lines_due:
            self._look_at_lines()
            if self._size > max(self._window, 1):  # no chunk would ever fit
                self._begin(self._load())
        self._make_ready(1)
        if not self._ready:
            if self._failure is not None:
                raise self._failure
            return self._look_for_more()
        fed = self._patiently(self._feed)
        chunk, bad, _ = self._ready[0]
        if fed.verdict == "fed":
            self._ready.popleft()
            self.rows, self.fed = chunk.after.rows, self.fed + chunk.fed
            self._teller.leave_out(bad)
            log.debug("feed feed=%s queue=%s rows=%d", self._job.feed, self._job.queue, self.rows)
            self._teller.report(
                self.rows, waiting=fed.waiting, file=chunk.after.file, share=chunk.after.share
            )
        elif fed.verdict == "full":
            self._wait_for_room(fed.waiting, len(chunk.ids))
        else:
            self._begin_again()
        return True

    def _begin_again(self) -> None:
        """Go back to the record: Redis has lost its last changes, including those of the record."""
        self._teller.remark(
            "Redis has lost its last changes: feeding again from where its record stands"
        )
        self._begin(self._load())

    def _feed(self) -> Fed:
        """Feed the first chunk that is ready, and make another one meanwhile."""
        assert self._chunks is not None
        now = time.time()
        if now - self._ready[0].made > FRESH:  # it had to wait, and its tasks are made only now
            self._ready[0] = self._ready[0]._replace(
                chunk=self._chunks.renew(self._ready[0].chunk), made=now
            )
        return self._send(self._ready[0].chunk, now, lambda: self._make_ready(2))

    def _send(
        self, chunk: FeedChunk, now: float, meanwhile: Callable[[], object] | None = None
    ) -> Fed:
        window = Window(self._window, self._lines)
        fed = feeding.feed(self._redis, self._ref, chunk, window, now, meanwhile)
        self._sign_due = time.monotonic() + SIGN
        return fed

    def _make_ready(self, count: int) -> None:
        """Make chunks until `count` are ready. A failure is raised after the chunks before it are fed."""
        assert self._chunks is not None
        while len(self._ready) < count and self._failure is None:
            try:
                chunk = self._chunks.next()
            except BaseException as error:
                # a Ctrl-C, too: first count the chunk that Redis works on
                self._failure = error
                return
            if chunk is None:
                return
            self._ready.append(Ready(chunk, self._chunks.take_bad(), time.time()))

    def _look_for_more(self) -> bool:
        """Look for new files, and wait for them if the job follows. False: there are no more."""
        assert self._chunks is not None
        self._look(may_be_gone=True)
        self._make_ready(1)
        if self._ready or self._failure is not None:
            return True
        if self._job.does_follow:
            self._teller.report(self.rows)
            self._sleep(FOLLOW_PACE)
            if time.monotonic() >= self._sign_due:
                nothing = self._chunks.nothing()
                if self._patiently(lambda: self._send(nothing, time.time())).verdict == "astray":
                    self._begin_again()
        return self._job.does_follow

    def _finish(self) -> bool:
        """Record that everything is fed. False: Redis has lost rows, which are fed again."""
        assert self._chunks is not None
        whole, job = Whole(self.rows, self._chunks.news), self._job
        if not self._patiently(
            lambda: feeding.end_feed(self._redis, self._ref, whole, time.time())
        ):
            self._begin_again()
            return False
        log.info("end_feed feed=%s queue=%s rows=%d", job.feed, job.queue, self.rows)
        self._teller.report(self.rows, share=1.0)
        return True

    def _wait_for_room(self, waiting: int, needed: int) -> None:
        """Wait until the chunk may fit, or until it is time to show that we are alive.

        Between two checks, wait as long as the line seems to need, at most a second.
        """
        seconds = SHORTEST
        while waiting + needed > self._window and time.monotonic() < self._sign_due:
            self._sleep(seconds)
            before = waiting
            waiting = self._patiently(lambda: self._inspector.pending(self._job.queue))
            if time.monotonic() >= self._lines_due:
                self._look_at_lines()
                if needed > max(self._window, 1):
                    return
            gone, missing = before - waiting, waiting + needed - self._window
            seconds = min(
                max(seconds * missing / gone if gone > 0 else 2 * seconds, SHORTEST), LONGEST
            )
            self._teller.report(self.rows, waiting=waiting)

    def _patiently(self, action: Callable[[], T]) -> T:
        """Retry an action until Redis answers. Raises Stopped; RedisAway only before the first answer."""
        failures = 0
        while True:
            try:
                done = action()
            except (RedisAway, Contended) as error:
                if (
                    isinstance(error, RedisAway)
                    and time.monotonic() + pause(failures + 1) > self._gives_up
                ):
                    raise
                if not failures:
                    self._teller.remark(f"{error}; waiting")
                failures += 1
                self._sleep(pause(failures))
                continue
            if failures:
                self._teller.remark("going on")
            return done

    def _sleep(self, seconds: float) -> None:
        if self._job.stop.wait(seconds):
            raise Stopped

    def _load(self) -> dict[str, str]:
        return self._patiently(lambda: feeds.load(self._redis, self._job.queue, self._job.feed))

    def _look_at_lines(self) -> None:
        """Read how many tasks the queue accepts, and its lines whose tasks count as waiting.

        Besides the default line these are our line, and all that are listed.
        """
        job, options = self._job, self._job.options
        own_line = line_of(str(options.get("priority", "")), str(options.get("needs", "")))
        found = self._patiently(lambda: feeds.lines(self._redis, job.queue))
        self._lines = sorted({*found.names, own_line} - {"0"})
        self._window = job.window if found.most is None else min(job.window, found.most)
        self._lines_due = time.monotonic() + PACE
