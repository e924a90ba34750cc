"""The public `feed`: makes tasks of a backlog that is larger than Redis."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import NamedTuple, Unpack

from blueque.backlog.feed_progress import Tell
from blueque.backlog.files import Backlog, Source
from blueque.backlog.job import Feeding, Job
from blueque.backlog.rows import Shape
from blueque.client import Client
from blueque.errors import BluequeError, InvalidInput
from blueque.model.encoding import require_feed_name, require_whole
from blueque.model.labels import bytes_left_for_parameters
from blueque.model.options import TaskOptions, require_known
from blueque.text.format import count

MAX_WINDOW = 10_000_000


class FeedOutcome(NamedTuple):
    """The result of a call of `feed`.

    is_finished: whether all of the backlog is in the queue.
    rows: how many rows are done since the feed began, bad and blank ones included.
    fed: how many rows this call has turned into tasks, also where rows share one task by their key.
    skipped: how many bad rows this call has left out.
    seconds: how long the call took.
    """

    feed: str
    queue: str
    is_finished: bool
    rows: int
    fed: int
    skipped: int
    seconds: float


def feed(
    source: Source,
    queue: str,
    *,
    name: str,
    window: int = 10_000,
    params: Sequence[str] | str | None = None,
    key: str | None = None,
    skip_bad: bool = False,
    follow: bool = False,
    url: str | None = None,
    client: Client | None = None,
    progress: Tell | None = None,
    stop: threading.Event | None = None,
    **options: Unpack[TaskOptions],
) -> FeedOutcome:
    """Turn each row of a backlog into a task, once and in order, at most `window` of them in line.

    source: a directory, a file, a pattern, or a list of them: Parquet (requires blueque[arrow]) or
        JSON lines, also .gz. Files are fed in the order of their names: the path inside the
        directory or pattern, or the last part of the path to a file. A file must appear whole and
        must not change once its first row is fed. It may be removed when it is fed.
    name: of the feed. A feed that is started again with its name continues where it stopped. A
        second feeder with that name is refused.
    params: the columns that make the dict of parameters. Default: all. A single name: the value of
        that column alone.
    key: the column that gives each task its id. While the first task of a key is in Redis, no
        second one is made.
    skip_bad: leave out rows that cannot be a task. Otherwise the first one ends the feed.
    follow: wait for more files. Their names must sort after the others.
    stop: set it from another thread to return between two chunks.
    progress: called often, with a FeedProgress.
    options: of all tasks, as for `Queue.enqueue`: priority, resources, lock, retry, limits, labels.
    Once the feed has begun, it waits and logs while Redis is away.
    Raises InvalidInput; BacklogRefused, which names file and row; Taken; RedisRefused; RedisAway
        when Redis does not answer at the start within the patience of the client.
    Source: docs/protocol/feeds.md, "Feeds".
    """
    if url is not None and client is not None:
        raise InvalidInput("give an address or a client, not both")
    require_known("feed", options, TaskOptions)
    given = client or Client(url)
    own = given.with_patience(0)  # so that `stop` works while Redis is away
    sink = own.get_queue(queue)
    fields = sink.fields_of(**options)
    job = Job(
        sink.name,
        require_feed_name(name),
        Backlog(source),
        Shape(_params(params), key, bytes_left_for_parameters(fields, own.max_bytes), skip_bad),
        fields,
        require_whole(window, "window", 1, MAX_WINDOW),
        follow,
        stop or threading.Event(),
        given.patience,
    )
    try:
        return _outcome(Feeding(own.connections, job, progress), job)
    finally:
        own.close()


def _outcome(feeding: Feeding, job: Job) -> FeedOutcome:
    """Feed and return the outcome."""
    began, name = time.monotonic(), job.feed
    try:
        is_finished = feeding.run()
    except BluequeError as error:
        if feeding.has_begun:
            error.add_note(
                f"blueque: feed {name!r} has done {count(feeding.rows, 'row')}; the same call continues there"
            )
        raise
    took = time.monotonic() - began
    counts = feeding.rows, feeding.fed, feeding.skipped
    return FeedOutcome(name, job.queue, is_finished, *counts, took)


def _params(params: Sequence[str] | str | None) -> tuple[str, ...] | str | None:
    if params is None or isinstance(params, str):
        return params
    chosen = tuple(params)
    if not chosen or not all(isinstance(name, str) for name in chosen):
        raise InvalidInput(f"params are the names of columns, or one name, not {params!r}")
    return tuple(dict.fromkeys(chosen))
