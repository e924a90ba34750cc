"""The writers of frames: they write the rows of a partition in a worker of Spark, and commit what
the workers report.

Opening, each task of Spark and the commit may run in different processes. They know of each other
by the reports and by the record of the run in Redis. `bs.enqueue` uses the writers directly;
`format("blueque")` has datasource.py in between.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat, starmap
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from blueque.client import Client
from blueque.errors import BatchFailed, BluequeError, Contended, RedisAway
from blueque.model.encoding import Encoded
from blueque.model.run import Record
from blueque.producer.keyed_run import KeyedRun
from blueque.producer.row_batch import Rows
from blueque.spark.chunks import by_shard
from blueque.spark.layout import Layout, read
from blueque.spark.write_options import Target

if TYPE_CHECKING:
    import pyarrow as pa

PATIENCE = 30.0  # seconds; the work of a worker that gives up is lost
RETRIED = (RedisAway, Contended)  # a task of Spark that tries again may succeed

log = logging.getLogger("blueque")


@dataclass
class Report:
    """What a task of Spark has done. new: tasks that it has made.

    error: why it has stopped early. A task that fails would be tried again by Spark, with the same
        rows.
    """

    rows: int = 0
    new: int = 0
    error: BluequeError | None = None

    def count(self, pieces: Iterable[Rows]) -> Iterator[Rows]:
        """Pass the rows on, and count them."""
        for rows in pieces:
            self.rows += len(rows.parameters)
            yield rows


class Written(NamedTuple):
    """The result of a commit: of the run, or, without one, of the call."""

    rows: int
    tasks: int
    new: int
    group: str | None = None


class Writer(ABC):
    """Writes the rows of a frame to a queue. Spark copies it to its workers."""

    fate: str  # of the rows, if the job fails

    def __init__(self, target: Target, layout: Layout) -> None:
        self.target, self.layout = target, layout

    def write(self, batches: Iterable[pa.RecordBatch]) -> Report:
        """Write the rows of one task of Spark, in a worker. Raises what Spark should try again."""
        return written(self.target, self.layout, batches, self.put)

    @abstractmethod
    def put(self, client: Client, pieces: Iterator[Rows], report: Report) -> None:
        """Write the rows, and note in the report what was done."""

    def has_all(self, reports: Sequence[Report]) -> bool:
        """Tell whether all that was reported is in Redis. False: write all rows again."""
        return True

    @abstractmethod
    def commit(self, reports: Sequence[Report]) -> Written:
        """End the write when all tasks of Spark have reported. Raises the error of a report."""


def make_writer(target: Target, layout: Layout) -> Writer:
    """Open the run that the rows are for, and return its writer."""
    with target.connected() as client:
        if target.run is not None:
            return RunWriter(target, layout, open_run(client, target))
        client.get_run(target.queue, "-")  # if Redis does not answer, the error is clearer here
    return KeysWriter(target, layout)


class RunWriter(Writer):
    """Writes rows of a named run with keys: they are visible as they are written, and each key
    makes one task.
    """

    fate = "what was written stays, and counts: enqueue the same again under the same run"

    def __init__(self, target: Target, layout: Layout, opened: KeyedRun) -> None:
        super().__init__(target, layout)
        self.record = opened.record  # of the run that was opened here, not of a later one
        self._before = self._made = opened.made
        self._put: tuple[int, int] = 0, 0  # rows of the pass before, and what the run had to have

    def put(self, client: Client, pieces: Iterator[Rows], report: Report) -> None:
        run = join_run(client, self.target, self.record)
        if run.state == "open" or self.target.grows:
            known = (rows._replace(ids=run.ids_of(rows.keys or ())) for rows in pieces)
            report.new = sum(run.put_each(by_shard(known, run.shards)))

    def has_all(self, reports: Sequence[Report]) -> bool:
        """Tell whether the run has all that was put: a failover takes tasks back.

        What tasks of Spark that failed have made hides how many are missing. So a first pass counts
        only if the run has grown by what was reported. If the frame has fewer rows than in the pass
        before, another would not help: `commit` sees what is missing.
        """
        new = sum(report.new for report in accepted(reports))
        rows, made = sum(report.rows for report in reports), self._made + new
        if rows < self._put[0]:
            self._made = self._put[1] - new
            return True
        with self.target.connected() as client:
            count = join_run(client, self.target, self.record).count()
        if count == made or (self._put[0] and count > made):
            return True
        self._made, self._put = count, (rows, made)
        return False

    def commit(self, reports: Sequence[Report]) -> Written:
        rows = sum(report.rows for report in accepted(reports))
        made = self._made + sum(report.new for report in reports)
        with self.target.connected() as client:
            done = join_run(client, self.target, self.record).close(rows, made)
        if done.is_replay:
            warn_of_replay(self.target)
        rows = done.rows if done.is_replay else rows  # an appended run counts those of all calls
        return Written(rows, done.tasks, done.tasks - self._before, done.group)


class KeysWriter(Writer):
    """Writes rows with keys that count in the whole queue, for every producer, as
    `Queue.enqueue(key=)`.
    """

    fate = "what was written stays, and its keys count: enqueue the same again"

    def put(self, client: Client, pieces: Iterator[Rows], report: Report) -> None:
        report.new = enqueue_keyed(client, pieces, self.target)

    def commit(self, reports: Sequence[Report]) -> Written:
        new = sum(report.new for report in accepted(reports))
        return Written(sum(report.rows for report in reports), new, new)


def written(
    target: Target,
    layout: Layout,
    batches: Iterable[pa.RecordBatch],
    put: Callable[[Client, Iterator[Rows], Report], None],
) -> Report:
    """Write the rows of the batches, and return the report."""
    report = Report()
    with target.connected(PATIENCE) as client:
        try:
            put(client, report.count(read(batch, layout) for batch in batches), report)
        except RETRIED:
            raise
        except BluequeError as error:
            report.error = error.with_traceback(None)
    return report


def open_run(client: Client, target: Target) -> KeyedRun:
    queue = client.get_queue(target.queue)
    return queue.open_run(
        str(target.run),
        target.shards,
        hold=target.hold,
        append=target.grows,
        **target.constants,
        **target.links,
    )


def join_run(client: Client, target: Target, record: Record) -> KeyedRun:
    return client.get_queue(target.queue).join_run(record, append=target.grows, **target.for_all)


def enqueue_keyed(client: Client, pieces: Iterable[Rows], target: Target) -> int:
    """Enqueue the rows with their keys, as `Queue.enqueue(key=)` does for one task, and return how
    many tasks are new.
    """
    queue = client.get_queue(target.queue)
    rows = chain.from_iterable(_each(some, target) for some in pieces)
    options = {
        **target.constants,
        **target.links,
        "keys": attrgetter("key"),
        "priorities": attrgetter("priority"),
    }
    try:
        if target.eta is None:
            return queue.enqueue_many(rows, **options).new
        return queue.schedule_many(rows, etas=attrgetter("eta"), **options).new
    except BatchFailed as error:  # which batch it was says nothing: all are tried again
        raise (error.__cause__ or error) from None


class _Row(Encoded):
    """Parameters with the other values of their task."""

    __slots__ = ("eta", "key", "priority")

    def __init__(
        self, text: bytes, is_json: bool, key: str, eta: float | None, priority: int
    ) -> None:
        super().__init__(text, is_json)
        self.key, self.priority = key, priority
        self.eta = 0.0 if eta is None else eta  # a time already past is at once


def _each(rows: Rows, target: Target) -> Iterator[_Row]:
    default = repeat(target.constants["priority"])
    columns = zip(
        rows.parameters,
        repeat(rows.are_json),
        rows.keys or (),
        rows.etas or repeat(None),
        rows.priorities or default,
        strict=False,
    )
    return starmap(_Row, columns)


def accepted(reports: Sequence[Report]) -> Sequence[Report]:
    """Return the reports of all tasks of Spark. Raises the error that one of them has met."""
    for report in reports:
        if report.error is not None:
            raise report.error
    return reports


def warn_of_replay(target: Target) -> None:
    log.warning(
        "run %s of queue %s was committed before: nothing new was written", target.run, target.queue
    )
