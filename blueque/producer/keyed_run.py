"""Runs with keys: each key makes one task, however often the run is tried, by however many
processes at once.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from blueque import protocol
from blueque.connection.redis import Redis
from blueque.errors import InvalidInput
from blueque.model.encoding import require_whole
from blueque.model.ids import ids_of_run_keys, shard_of
from blueque.model.run import Record
from blueque.producer.row_batch import Rows, relay
from blueque.protocol.runs import RunBatch
from blueque.queries.runs import count_ledgers

MAX_ROWS = 10**15

log = logging.getLogger("blueque")


class RunOutcome(NamedTuple):
    """What came of a run: how many rows it had, how many tasks are there by it; whether all that
    was done before.
    """

    run: str
    rows: int
    tasks: int
    is_replay: bool


class KeyedRun:
    """A run of a queue in which each key makes one task, once, as long as the record of the run is
    kept.

    What is put is visible, and may run, at once. Put all of it again after whatever has failed, in
    any order and from any
    number of processes: nothing doubles, not even what has run and was deleted meanwhile. Then
        close it.

    record: as it was when the run was opened: for `Queue.join_run`, in other processes.
    """

    def __init__(
        self, redis: Redis, record: Record, max_bytes: int, options: Mapping[str, str | int | float]
    ) -> None:
        self.record: Record = record
        self.name: str = record["run"]
        self.queue: str = record["queue"]
        self.shards: int = record["shards"]
        self.state: str = record["state"]
        self._redis, self._max_bytes, self._options = redis, max_bytes, options

    def __repr__(self) -> str:
        return f"<KeyedRun {self.name!r} of {self.queue!r}, {self.state}>"

    def put(
        self,
        keys: Sequence[str | int],
        parameters: Sequence[bytes],
        are_json: bool = True,
        etas: Sequence[float | None] | None = None,
        priorities: Sequence[int] | None = None,
        ids: Sequence[bytes] | None = None,
    ) -> int:
        """Make the tasks of which the keys are new to the run, and return how many; of a committed
        run none is.

        keys, parameters, are_json, etas, priorities, ids: see Rows; 1000 rows at most, of any
        shards, all or none. After an answer that was lost, the count may have tasks that another
        process has made just then; the outcome of the run is exact. Raises InvalidInput, which
        names the position; RunDropped; what `Queue.enqueue` raises.
        Source: docs/protocol/bulk.md, "enqueue_run".
        """
        batch = self._pack(Rows(parameters, keys, are_json, etas, priorities, ids))
        return self._send(self._redis, batch, None, None) if self.state == "open" else 0

    def put_each(self, chunks: Iterable[Rows]) -> Iterator[int]:
        """Do the same with each of the chunks, and yield its count once it is in Redis; the fastest
        way for many.

        chunks: is read two chunks ahead, unless it is slow.
        """
        own = self._redis.another()  # what is iterated over may use this thread's connection
        try:
            packed = (self._pack(rows) for rows in chunks)
            yield from relay(
                packed, lambda *given: self._send(own, *given) if self.state == "open" else 0
            )
        finally:
            own.close()

    def ids_of(self, keys: Sequence[str | int]) -> list[bytes]:
        """Return the ids of the tasks that these keys stand for in this run, in ASCII. Raises
        InvalidInput.
        """
        return ids_of_run_keys(self.queue, self.name, Rows((), keys).packed_keys())

    def shard_of(self, task_id: str | bytes) -> int:
        """Return the shard of a task: chunks of different shards never get into each other's way."""
        return shard_of(task_id, self.shards)

    def count(self) -> int:
        """Return how many tasks the run has made so far; 0 once it is committed: then its record
        tells.
        """
        return count_ledgers(self._redis, self.queue, self.name, self.shards)

    def close(self, rows: int) -> RunOutcome:
        """Declare that all of the run is there: whoever puts or closes it from now on changes
        nothing.

        rows: how many there were, for the record. Whoever calls this twice gets what was recorded
            first. Raises RunDropped.
        Source: docs/protocol/bulk.md, "close_run".
        """
        mark = os.urandom(8).hex()
        counted = require_whole(rows, "rows", 0, MAX_ROWS)
        record = protocol.close_run(self._redis, self.record, counted, mark, time.time())
        protocol.prune_runs(self._redis, self.queue)
        self.state = record["state"]
        outcome = RunOutcome(
            self.name, record["rows"], record["tasks"], record["decided_by"] != mark
        )
        log.info(
            "close_run run=%s queue=%s rows=%d tasks=%d is_replay=%s",
            self.name,
            self.queue,
            *outcome[1:],
        )
        return outcome

    def _pack(self, rows: Rows) -> RunBatch:
        rows.require(self._max_bytes)
        if rows.keys is None:
            raise InvalidInput("each row of a keyed run has a key")
        packed, now = rows.packed_keys(), time.time()
        ids = rows.ids if rows.ids is not None else ids_of_run_keys(self.queue, self.name, packed)
        tasks = rows.as_tasks(ids, packed, now).once()
        return RunBatch(self.record, tasks, now, self._options)

    def _send(
        self,
        redis: Redis,
        batch: RunBatch,
        follower: RunBatch | None,
        meanwhile: Callable[[], Any] | None,
    ) -> int:
        new = sum(protocol.enqueue_run(redis, batch, follower, meanwhile))
        log.info(
            "enqueue_run run=%s queue=%s tasks=%d new=%d",
            self.name,
            self.queue,
            len(batch.tasks.ids),
            new,
        )
        return new
