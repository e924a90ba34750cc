"""The writers of frames. Spark copies them to its workers to write, and calls `commit` or `abort`
at the end.

Planning, each task and the commit run in different processes, which know of each other by the
messages of the tasks and by the record of the run in Redis.
"""

from __future__ import annotations

import json
import logging
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, repeat, starmap
from operator import attrgetter
from typing import TYPE_CHECKING

import psutil
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from blueque.client import Client
from blueque.errors import BluequeError, InvalidInput, RunDropped
from blueque.model.encoding import Encoded
from blueque.model.run import Record
from blueque.producer.abandoned_runs import Leftovers
from blueque.producer.keyed_run import KeyedRun
from blueque.producer.row_batch import Rows
from blueque.producer.staged_run import Staging, owner_of
from blueque.spark.chunks import by_shard, split
from blueque.spark.jobs import telling, told
from blueque.spark.layout import Layout, lay_out, read
from blueque.spark.sink import Sink, parse

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

COUNTS = "_counts"  # our own option: the file in which enqueueing.py looks for counts
PATIENCE = 30.0  # seconds; the work of a worker that gives up is lost
KEEP_RANDOM = "1d"  # for a run that cannot be named again

log = logging.getLogger("blueque")


@dataclass
class Report(WriterCommitMessage):
    """What a task of Spark has done. new: tasks that it has made. chunks: the names of the chunks
    that it has staged.

    refusal: why a row was refused. A task that fails would be tried again by Spark, with the same
        row.
    query: of a stream: Spark's id of the query.
    """

    rows: int = 0
    new: int = 0
    chunks: Sequence[str] = ()
    refusal: InvalidInput | None = None
    query: str | None = None

    def count(self, pieces: Iterable[Rows]) -> Iterator[Rows]:
        """Pass the rows on, and count them."""
        for rows in pieces:
            self.rows += len(rows.parameters)
            yield rows


def make_writer(schema: StructType, options: Mapping[str, str]) -> Writer:
    """Return the writer for these options. Raises InvalidInput before any row is read."""
    given = {**options}
    counts = given.pop(COUNTS, None)
    sink = parse(given)
    layout = lay_out(schema, sink)
    with sink.connected() as client:
        if not sink.keys:
            is_random = sink.run is None
            if is_random:  # once, when the write is planned; all processes get a copy
                sink = sink._replace(run=str(uuid.uuid4()), keep=sink.keep or KEEP_RANDOM)
            return StagedWriter(sink, layout, open_staging(client, sink), is_random)
        if sink.run is not None:
            return RunWriter(sink, layout, open_run(client, sink).record)
    return KeysWriter(sink, layout, counts)


class Writer(DataSourceArrowWriter):
    """Writes the rows of a frame to a queue."""

    def __init__(self, sink: Sink, layout: Layout) -> None:
        self.sink, self.layout = sink, layout

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Report:
        """Write the rows of one task of Spark. Spark calls this in its workers."""
        return written(self.sink, self.layout, iterator, self.put)

    @abstractmethod
    def put(self, client: Client, pieces: Iterator[Rows], report: Report) -> None:
        """Write the rows, and note in the report what was done."""


class RunWriter(Writer):
    """Writes rows of a named run with keys: they are visible as they are written, and each key
    makes one task.
    """

    def __init__(self, sink: Sink, layout: Layout, record: Record) -> None:
        super().__init__(sink, layout)
        self._record = record  # of the run that the planner has opened, not of a later one

    def put(self, client: Client, pieces: Iterator[Rows], report: Report) -> None:
        run = join_run(client, self.sink, self._record)
        if run.state == "open":
            known = (rows._replace(ids=run.ids_of(rows.keys or ())) for rows in pieces)
            report.new = sum(run.put_each(by_shard(known, run.shards)))

    @telling()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with self.sink.connected() as client:
            run = join_run(client, self.sink, self._record)
            outcome = run.close(sum(report.rows for report in accepted(messages)))
        if outcome.is_replay:
            warn_of_replay(self.sink)


class KeysWriter(Writer):
    """Writes rows with keys that count in the whole queue, for every producer, as
    `Queue.enqueue(key=)`.
    """

    def __init__(self, sink: Sink, layout: Layout, counts: str | None) -> None:
        super().__init__(sink, layout)
        self._counts = counts

    def put(self, client: Client, pieces: Iterator[Rows], report: Report) -> None:
        report.new = enqueue_keyed(client, pieces, self.sink)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        done = accepted(messages)
        if self._counts is not None:  # without a run there is no record with the count
            with open(self._counts, "w") as file:
                json.dump(
                    [sum(report.rows for report in done), sum(report.new for report in done)], file
                )


class StagedWriter(Writer):
    """Writes rows that become visible all at once, when all of them are written, or not at all."""

    def __init__(
        self, sink: Sink, layout: Layout, opened: Staging, is_random: bool = False
    ) -> None:
        super().__init__(sink, layout)
        self._record = opened.record  # of the run that the planner has opened, not of a later one
        self._owner = driver()
        self._is_random = is_random  # no other process stages under this name
        if not opened.is_committed:
            opened.discard_of_dead()

    def put(self, client: Client, pieces: Iterator[Rows], report: Report) -> None:
        staging = join_staging(client, self.sink, self._record, self._owner)
        if not staging.is_committed:
            report.chunks = stage(staging, pieces)

    @telling()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        chunks = chunks_of(accepted(messages))
        with self.sink.connected() as client:
            outcome = join_staging(client, self.sink, self._record).commit(chunks)
        if outcome.is_replay:
            warn_of_replay(self.sink)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Discard what was staged. What is committed stays: Spark also calls this after a `commit`
        that failed halfway.
        """
        # nothing of it is staged any more
        with self.sink.connected() as client, suppress(RunDropped):
            staging = join_staging(client, self.sink, self._record)
            if not self._is_random:
                staging.discard(chunks_of(messages))
            elif not staging.is_committed:
                # a task of Spark that still writes is refused from now on
                Leftovers(client.connections).drop(staging.queue, staging.name)


@telling()
def written(
    sink: Sink,
    layout: Layout,
    batches: Iterable[pa.RecordBatch],
    put: Callable[[Client, Iterator[Rows], Report], None],
) -> Report:
    """Write the rows of the batches, and return the report."""
    report = Report()
    with sink.connected(PATIENCE) as client:
        try:
            put(client, report.count(read(batch, layout) for batch in batches), report)
        except InvalidInput as error:
            report.refusal = error.with_traceback(None)
    return report


def open_run(client: Client, sink: Sink) -> KeyedRun:
    queue = client.get_queue(sink.queue)
    return queue.open_run(str(sink.run), sink.shards, **sink.constants, **sink.links)


def open_staging(client: Client, sink: Sink, is_stream: bool = False) -> Staging:
    queue = client.get_queue(sink.queue)
    return queue.open_staging(sink.run, stream=is_stream, **sink.constants, **sink.links)


def join_run(client: Client, sink: Sink, record: Record) -> KeyedRun:
    return client.get_queue(sink.queue).join_run(record, **sink.for_all)


def join_staging(client: Client, sink: Sink, record: Record, owner: str = "") -> Staging:
    return client.get_queue(sink.queue).join_staging(record, owner, **sink.for_all)


def driver() -> str:
    """Return the owner of what is staged: Spark's driver, whose Java process started this one.
    Empty: there is none.
    """
    java = next((parent for parent in psutil.Process().parents() if parent.name() == "java"), None)
    return "" if java is None else owner_of(java.pid)


def stage(staging: Staging, pieces: Iterable[Rows]) -> list[str]:
    """Stage the rows and return the names of their chunks. If that fails, discard them as far as
    possible.
    """
    names: list[str] = []
    try:
        for name in staging.stage_each(chain.from_iterable(map(split, pieces))):
            names.append(name)
    except Exception:
        with suppress(BluequeError):  # `blueque gc` discards the rest
            staging.discard(names)
        raise
    return names


def enqueue_keyed(client: Client, pieces: Iterable[Rows], sink: Sink) -> int:
    """Enqueue the rows with their keys, as `Queue.enqueue(key=)` does for one task, and return how
    many tasks are new.
    """
    queue = client.get_queue(sink.queue)
    rows = chain.from_iterable(_each(some, sink) for some in pieces)
    options = {
        **sink.constants,
        **sink.links,
        "keys": attrgetter("key"),
        "priorities": attrgetter("priority"),
    }
    if sink.eta is None:
        return queue.enqueue_many(rows, **options).new
    return queue.schedule_many(rows, etas=attrgetter("eta"), **options).new


class _Row(Encoded):
    """Parameters with the other values of their task."""

    __slots__ = ("eta", "key", "priority")

    def __init__(
        self, text: bytes, is_json: bool, key: str, eta: float | None, priority: int
    ) -> None:
        super().__init__(text, is_json)
        self.key, self.priority = key, priority
        self.eta = 0.0 if eta is None else eta  # a time already past is at once


def _each(rows: Rows, sink: Sink) -> Iterator[_Row]:
    default = repeat(sink.constants["priority"])
    columns = zip(
        rows.parameters,
        repeat(rows.are_json),
        rows.keys or (),
        rows.etas or repeat(None),
        rows.priorities or default,
        strict=False,
    )
    return starmap(_Row, columns)


def accepted(messages: Iterable[WriterCommitMessage | None]) -> list[Report]:
    """Return the reports of all tasks of Spark. Raises InvalidInput if one of them has met a
    refused row.
    """
    done = [message for message in messages if isinstance(message, Report)]
    for report in done:
        if report.refusal is not None:
            raise told(report.refusal)
    return done


def chunks_of(messages: Iterable[WriterCommitMessage | None]) -> list[str]:
    return [name for message in messages if isinstance(message, Report) for name in message.chunks]


def warn_of_replay(sink: Sink) -> None:
    log.warning(
        "run %s of queue %s was committed before: nothing new was written", sink.run, sink.queue
    )
