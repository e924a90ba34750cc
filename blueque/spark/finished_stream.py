"""The source of streams: each end of a task is one row, in the order of the events of its queue.

An offset is a place in the events of each queue. Spark repeats a batch from the same places. So a
sink that takes each batch once, such as files, has each end once.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from blueque.client import Client
from blueque.errors import EventsGone, InvalidInput
from blueque.model.columns import COLUMNS, LISTED_AS, TASK_ID
from blueque.model.snapshot import Slice, require_statuses
from blueque.model.states import FINISHED
from blueque.queries import history
from blueque.queries.history import Event
from blueque.spark import reader as reading
from blueque.tables import arrow, hash_reader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

STARTING, FAIL = reading.OF_STREAMS
# What another attempt has written since is not of this end.
_OF_END = ("result", "error", "error_type", "node", "pid", "updated", "started", "eta")

log = logging.getLogger("blueque")


class Part(NamedTuple):
    """The events of one queue after one place, up to another."""

    queue: str
    start: str
    end: str


def make_stream_reader(schema: StructType, options: Mapping[str, str]) -> FinishedReader:
    """Return the reader of finished tasks for these options. Raises InvalidInput."""
    said = {name.lower(): text for name, text in options.items()}
    wish = reading.parse(
        {name: text for name, text in said.items() if name not in reading.OF_STREAMS}
    )
    statuses = require_statuses(wish.statuses if "status" in said else FINISHED, FINISHED)
    fails = said.get(FAIL, "true").lower()
    if fails not in ("true", "false"):
        raise InvalidInput(f"option 'failOnDataLoss' is true or false, not {said[FAIL]!r}")
    begin = said.get(STARTING, "earliest")
    if begin not in ("earliest", "latest"):
        raise InvalidInput(f"option 'startingOffsets' is earliest or latest, not {begin!r}")
    return FinishedReader(wish.of_schema(schema), statuses, begin, fails == "true")


class FinishedReader(DataSourceStreamReader):
    """Reads the ends of tasks: places in one process of Spark, tasks in the workers."""

    def __init__(
        self, wish: reading.Wish, statuses: Sequence[str], begin: str, fails: bool
    ) -> None:
        self._wish, self._statuses, self._begin, self._fails = wish, statuses, begin, fails

    def initialOffset(self) -> dict[str, str]:
        """Return the place where a new query begins."""
        if self._begin == "latest":
            return self.latestOffset()
        return dict.fromkeys(self._wish.queues, history.FIRST)

    def latestOffset(self) -> dict[str, str]:
        """Return the place of the newest events."""
        with self._client() as client:
            return history.last_places(client.connections, self._wish.queues)

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Return a partition for each queue with events. Raises EventsGone."""
        parts = [
            Part(queue, start.get(queue, history.FIRST), end[queue])
            for queue in self._wish.queues
            if queue in end and start.get(queue) != end[queue]
        ]
        with self._client() as client:
            for part in parts:
                self._require_whole(client, part)
        return [InputPartition(json.dumps(part)) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the tasks whose ends are among these events. Raises EventsGone."""
        if partition.value is None:  # a partition of Spark's own, because there was none
            return
        part = Part(*json.loads(partition.value))
        with self._client() as client:
            for events in history.ends(client.connections, *part):
                wanted = [event for event in events if event.event in self._statuses]
                if wanted:
                    yield from rows(client, part.queue, wanted, self._wish.fields)
            self._require_whole(client, part)  # they may have been deleted while we read

    def _client(self) -> closing[Client]:
        return closing(Client(self._wish.url, patience=reading.PATIENCE))

    def _require_whole(self, client: Client, part: Part) -> None:
        if not history.is_gone(client.connections, part.queue, part.start):
            return
        error = EventsGone(part.queue, part.start)
        if self._fails:
            raise error
        log.warning("%s; the stream goes on without them: failOnDataLoss is false", error)


def rows(
    client: Client, queue: str, events: Sequence[Event], fields: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield a row for each of these ends, with the present fields of the task.

    If a task is gone or has run again, the fields of that end that only its hash had are null.
    """
    pa = arrow.pyarrow()
    needed = [*dict.fromkeys([*fields, TASK_ID, "status", "attempts"])]
    asked = [name for name in needed if name != LISTED_AS]
    piece = Slice(queue, "", "", 0, len(events), ids=tuple(event.task for event in events))
    found = [
        row
        for batch in hash_reader.read(client.connections, piece, asked, "null")
        for row in batch.to_pylist()
    ]
    made = [_row(event, row, queue) for event, row in zip(events, found, strict=True)]
    yield pa.RecordBatch.from_pylist(made, schema=arrow.schema(fields))


def _row(event: Event, row: dict[str, Any], queue: str) -> dict[str, Any]:
    """Return the columns of one end."""
    is_of_end = (row["status"], row["attempts"] or 0) == (event.event, event.attempt)
    if not is_of_end:
        row |= dict.fromkeys(_OF_END)
        row["finished"] = _time(event.at)
    return row | {LISTED_AS: event.event, "attempts": event.attempt or None, "queue": queue}


def _time(seconds: float) -> Any:
    pa = arrow.pyarrow()
    return (
        pa.scalar(round(seconds * 1e6), pa.int64())
        .cast(arrow.types()[COLUMNS["finished"].kind])
        .as_py()
    )
