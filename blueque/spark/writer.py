"""The writers of frames. They make tasks from the rows of a partition in a worker of Spark, and
commit what the workers report.

The opening, each Spark task and the commit may run in different processes. They share only the
reports and the group in Redis. `bs.enqueue` uses the writers directly; `format("blueque")` uses
them through datasource.py.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat, starmap
from typing import NamedTuple

import pyarrow as pa

from blueque.client import Client
from blueque.errors import (
    BatchFailed,
    BluequeError,
    Contended,
    InvalidInput,
    InvalidType,
    RedisAway,
    TooLarge,
)
from blueque.model.encoding import FIRST_ETA, LAST_SECOND, Encoded, require_due
from blueque.model.ids import MAX_KEY_BYTES
from blueque.model.lines import HIGHEST, LOWEST
from blueque.producer.keyed_groups import KeyedGroup, open_keyed
from blueque.protocol.bulk import NewTasks
from blueque.spark.layout import Layout, shown
from blueque.spark.write_options import Target
from blueque.tables import json_texts
from blueque.text.format import count

PATIENCE = 30.0  # seconds; the work of a worker that gives up is lost
RETRIED = (RedisAway, Contended)  # a task of Spark that tries again may succeed

log = logging.getLogger("blueque")


@dataclass
class Report:
    """What a Spark task has done.

    new: how many tasks it made. error: why it stopped early. A task that fails would be repeated by
        Spark with the same rows.
    """

    rows: int = 0
    new: int = 0
    error: BluequeError | None = None


class Written(NamedTuple):
    """The result of a commit. tasks: those of the group, or all new ones without a group."""

    rows: int
    tasks: int
    new: int


class Writer(ABC):
    """Writes the rows of a frame to a queue. Spark copies it to its workers."""

    fate: str  # of the rows, if the job fails

    def __init__(self, target: Target, layout: Layout) -> None:
        self.target, self.layout = target, layout

    def write(self, batches: Iterable[pa.RecordBatch]) -> Report:
        """Write the rows of one task of Spark, in a worker. Raises what Spark should try again."""
        report = Report()
        with self.target.connected(PATIENCE) as client:
            try:
                for batch in batches:
                    tasks = read(batch, self.layout)
                    report.rows += len(tasks.parameters)
                    report.new += self.put(client, tasks)
            except RETRIED:
                raise
            except BluequeError as error:
                report.error = error.with_traceback(None)
        return report

    @abstractmethod
    def put(self, client: Client, tasks: NewTasks) -> int:
        """Make the tasks with new keys and return how many."""

    def has_all(self, reports: Sequence[Report]) -> bool:
        """Return whether everything reported is in Redis. False: write all rows again."""
        return True

    @abstractmethod
    def commit(self, reports: Sequence[Report]) -> Written:
        """End the write when all tasks of Spark have reported. Raises the error of a report."""


def make_writer(target: Target, layout: Layout) -> Writer:
    """Open the group that the rows are for, and return its writer."""
    with target.connected() as client:
        if target.group is None:
            client.get_task("-")  # if Redis does not answer, the error is clearer here
            return KeysWriter(target, layout)
        redis, queue = client.connections, target.queue
        opened = open_keyed(redis, queue, target.group, target.terms, target.append)
    return MembersWriter(target, layout, opened)


class MembersWriter(Writer):
    """Writes rows whose keys count in a group. Tasks are visible at once; a key makes one task."""

    fate = "what was written stays, and counts: enqueue the same again with the same group"

    def __init__(self, target: Target, layout: Layout, opened: KeyedGroup) -> None:
        super().__init__(target, layout)
        self.opened, self._made = opened, opened.made
        # rows of the pass before, and how many members the group had to have
        self._before: tuple[int, int] = 0, 0

    def put(self, client: Client, tasks: NewTasks) -> int:
        fields = client.get_queue(self.target.queue).fields_of(**self.target.for_all)
        return self.opened.put(client.connections, tasks, fields)

    def has_all(self, reports: Sequence[Report]) -> bool:
        """Return whether the group has all that was put: a failover may lose tasks.

        Failed Spark tasks and other programs also add to the group, which hides how many are
        missing. So a first pass counts only if the group has grown by what was reported. If the
        frame has fewer rows than in the pass before, another pass would not help: `commit` sees
        what is missing.
        """
        new = sum(report.new for report in accepted(reports))
        rows, expected = sum(report.rows for report in reports), self._made + new
        if rows < self._before[0]:
            self._made = self._before[1] - new
            return True
        with self.target.connected() as client:
            members = self.opened.count(client.connections)
        if members == expected or (self._before[0] and members > expected):
            return True
        self._made, self._before = members, (rows, expected)
        return False

    def commit(self, reports: Sequence[Report]) -> Written:
        rows = sum(report.rows for report in accepted(reports))
        expected = self._made + sum(report.new for report in reports)
        with self.target.connected() as client:
            self.opened.close(client.connections, expected)
            tasks = self.opened.count(client.connections)
        # other programs may have added members, too
        return Written(rows, tasks, min(tasks - self.opened.made, rows))


class KeysWriter(Writer):
    """Writes rows whose keys count in the whole queue, as with `Queue.enqueue(key=)`."""

    fate = "what was written stays, and its keys count: enqueue the same again"

    def put(self, client: Client, tasks: NewTasks) -> int:
        queue, rows = client.get_queue(self.target.queue), starmap(Encoded, tasks.parameters)
        options = {
            **self.target.constants,
            **self.target.links,
            "keys": map(bytes.decode, tasks.keys or ()),
            "priorities": tasks.priorities,
        }
        try:
            if tasks.etas is None:
                return queue.enqueue_many(rows, **options).new
            # a time already past is at once, and a timestamp may be of any year
            etas = [0.0 if eta is None or eta < FIRST_ETA else eta for eta in tasks.etas]
            return queue.schedule_many(rows, etas=etas, **options).new
        except BatchFailed as error:  # which batch it was says nothing: all are tried again
            raise (error.__cause__ or error) from None

    def commit(self, reports: Sequence[Report]) -> Written:
        new = sum(report.new for report in accepted(reports))
        return Written(sum(report.rows for report in reports), new, new)


def accepted(reports: Sequence[Report]) -> Sequence[Report]:
    """Return the reports of all Spark tasks. Raises the error of one of them."""
    for report in reports:
        if report.error is not None:
            raise report.error
    return reports


def read(batch: pa.RecordBatch, layout: Layout) -> NewTasks:
    """Return the rows of a batch as tasks whose ids are yet to be made from their keys. Raises
    InvalidInput for the first refused row, with its value.
    """
    parameters = _parameters(batch, layout)
    keys = _keys(batch, layout, parameters)
    etas: list[float | None] | None = None
    if layout.eta is not None:
        etas = (
            _etas(batch.column(layout.eta))
            if isinstance(layout.eta, str)
            else [layout.eta] * len(parameters)
        )
    priorities = _priorities(batch.column(layout.priority)) if layout.priority is not None else None
    texts = list(zip(parameters, repeat(layout.are_json)))
    return NewTasks((), texts, priorities, etas, keys)


def _parameters(batch: pa.RecordBatch, layout: Layout) -> list[bytes]:
    columns = [batch.column(name) for name in layout.parameters]
    if not layout.is_value:
        made = list(map(str.encode, json_texts.objects(layout.names, columns)))
    elif not layout.is_text:
        made = list(map(str.encode, json_texts.texts(columns[0])))
    elif columns[0].null_count:
        raise InvalidType(
            f"params: column {layout.label(layout.parameters[0])!r} is null in {count(columns[0].null_count, 'row')} of a batch"
        )
    else:
        made = list(map(str.encode, columns[0].to_pylist()))
    if max(map(len, made), default=0) > layout.max_bytes:
        first = next(text for text in made if len(text) > layout.max_bytes)
        raise TooLarge(f"row {shown(first.decode())}: the parameters", len(first), layout.max_bytes)
    return made


def _keys(batch: pa.RecordBatch, layout: Layout, parameters: Sequence[bytes]) -> list[bytes]:
    columns = [batch.column(name) for name in layout.keys]
    for name, column in zip(layout.keys, columns, strict=True):
        if column.null_count:
            place = column.is_null().index(True).as_py()
            row = shown(parameters[place].decode())
            raise InvalidInput(
                f"key: column {layout.label(name)!r} is null in the row with the parameters {row}"
            )
    if len(columns) == 1:
        keys = list(map(str.encode, columns[0].cast("string").to_pylist()))
    else:
        parts = [json_texts.texts(column.cast("string")) for column in columns]
        keys = [f"[{','.join(row)}]".encode() for row in zip(*parts, strict=True)]
    if keys and not (all(keys) and max(map(len, keys)) <= MAX_KEY_BYTES):
        wrong = next(key for key in keys if not 0 < len(key) <= MAX_KEY_BYTES)
        raise InvalidInput(
            f"key: a key takes 1 to {MAX_KEY_BYTES} bytes, not {len(wrong)}: {shown(wrong.decode())}"
        )
    return keys


def _etas(column: pa.Array) -> list[float | None]:
    are_timestamps = pa.types.is_timestamp(column.type)
    if are_timestamps:
        etas = [
            None if eta is None else eta / 1e6
            for eta in column.cast("timestamp[us]").cast("int64").to_pylist()
        ]
    else:
        etas = column.cast("double").to_pylist()
    for eta in etas:
        if eta is not None and not -LAST_SECOND <= eta <= LAST_SECOND:
            raise InvalidInput(
                f"eta: {eta:.15g} is not a time before the year 10000: seconds, not milliseconds?"
            )
        if eta is not None and not are_timestamps:
            require_due(eta)
    return etas


def _priorities(column: pa.Array) -> list[int]:
    priorities = [0 if priority is None else priority for priority in column.to_pylist()]
    for priority in priorities:
        if not LOWEST <= priority <= HIGHEST:
            raise InvalidInput(f"priority: {priority} is not between {LOWEST} and {HIGHEST}")
    return priorities
