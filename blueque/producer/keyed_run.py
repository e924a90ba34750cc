"""Runs with keys: each key makes one task, however often and by however many processes the run is
tried.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from blueque.connection.redis import Redis
from blueque.errors import InvalidInput, RunDropped
from blueque.model.encoding import require_whole
from blueque.model.group import Group, Links, tracked
from blueque.model.ids import ids_of_run_keys, shard_of
from blueque.model.labels import room_beside
from blueque.model.run import Record
from blueque.producer.groups import end_if_over
from blueque.producer.room import ask_for_room, only_new_of
from blueque.producer.row_batch import Rows
from blueque.protocol import runs
from blueque.protocol.links import rows_at_once
from blueque.protocol.runs import RunBatch
from blueque.queries.runs import count_ledgers

MAX_ROWS = 10**15

log = logging.getLogger("blueque")


class RunOutcome(NamedTuple):
    """The result of a run: how many rows and tasks it has, and whether it had been closed or
    committed before.

    group: that its tasks are in. `after=` of other tasks takes the outcome of a run with a group.
    """

    run: str
    rows: int
    tasks: int
    is_replay: bool
    group: str | None = None

    def as_group(self) -> Group:
        """Return the group of its tasks. Raises InvalidInput if they have none."""
        return tracked(self.group)


class KeyedRun:
    """A run of a queue in which each key makes one task, once, as long as the record of the run is
    kept.

    Tasks are visible, and may run, at once. After any failure put all rows again, in any order and
    from any number of processes: no task is made twice, even if it has run and was deleted. Then
    close the run.

    record: as it was when the run was opened, for `Queue.join_run` in other processes.
    grows: keys are added to the run, even if it was closed: it is opened again.
    made: how many tasks it had made when it was opened here, and those that were put here since.
    """

    def __init__(
        self,
        redis: Redis,
        record: Record,
        max_bytes: int,
        options: Mapping[str, str | int | float],
        grows: bool = False,
    ) -> None:
        self.record: Record = record
        self.name: str = record["run"]
        self.queue: str = record["queue"]
        self.shards: int = record["shards"]
        self.state: str = record["state"]
        self.links = Links.of(record)
        self.made = 0
        self._redis, self._options, self._grows = redis, options, grows
        self._max_bytes = room_beside(options, max_bytes)

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
        """Make the tasks whose keys are new to the run, and return how many; none in a run that is
        closed.

        keys, parameters, are_json, etas, priorities, ids: see Rows; 1000 rows at most, of any
            shards, all or none; 250 at most, with 1000 conditions, if they wait for others. After
            a lost answer the count may include tasks that another
            process has just made; the outcome of the run is exact.
        Raises InvalidInput, which names the position; RunDropped; what `Queue.enqueue` raises.
        Source: docs/protocol/bulk.md, "enqueue_run".
        """
        batch = self._pack(Rows(parameters, keys, are_json, etas, priorities, ids))
        require_room(batch.tasks.ids, self.links)
        return self._send(batch) if self._takes else 0

    def put_each(self, chunks: Iterable[Rows]) -> Iterator[int]:
        """Do the same with each of the chunks, and yield its count once it is in Redis; the fastest
        way for many. A chunk with more rows that wait than `put` takes is divided.
        """
        for rows in in_parts(chunks, self.links):
            batch = self._pack(rows)
            yield self._send(batch) if self._takes else 0

    def ids_of(self, keys: Sequence[str | int]) -> list[bytes]:
        """Return the ids of the tasks of these keys in this run, in ASCII. Raises InvalidInput."""
        return ids_of_run_keys(self.queue, self.name, Rows((), keys).packed_keys())

    def shard_of(self, task_id: str | bytes) -> int:
        """Return the shard of a task. Chunks of different shards never contend."""
        return shard_of(task_id, self.shards)

    @property
    def _takes(self) -> bool:
        return self._grows or self.state == "open"

    def count(self) -> int:
        """Return how many tasks the run has made so far; 0 a week after it was closed: its record
        has the number.
        """
        return count_ledgers(self._redis, [(self.queue, self.name, self.shards)])[0]

    def close(self, rows: int, new: int = 0) -> RunOutcome:
        """Declare the run complete: whatever is put from now on changes nothing.

        rows: how many rows there were, for the record. A second call returns what the first has
            recorded. The group that the run has opened is closed with it. Those of a run that
            grows come to those that it had.
        new: what `put` has returned in other processes, in all.
        Raises RunDropped, also when Redis has lost tasks that were put, as in a failover. The run
        stays open then: put all rows again, and close it.
        Source: docs/protocol/bulk.md, "close_run".
        """
        mark, now = os.urandom(8).hex(), time.time()
        counted = require_whole(rows, "rows", 0, MAX_ROWS)
        least = self.made + require_whole(new, "new", 0, MAX_ROWS)
        try:
            record = self._close(counted, mark, now, least)
            while self._grows and record["decided_by"] != mark:  # others have closed it meanwhile
                runs.reopen_run(self._redis, self.record, now)
                record = self._close(counted, mark, now, least)
        except RunDropped as error:
            self.made = least - error.tasks
            raise
        runs.prune_runs(self._redis, self.queue)
        self.state = record["state"]
        if self.links.group is not None:
            end_if_over(self._redis, self.links.group, time.time())
        outcome = RunOutcome(
            self.name,
            record["rows"],
            record["tasks"],
            record["decided_by"] != mark,
            self.links.group,
        )
        log.info(
            "close_run run=%s queue=%s rows=%d tasks=%d is_replay=%s",
            self.name,
            self.queue,
            *outcome[1:4],
        )
        return outcome

    def _close(self, rows: int, mark: str, now: float, least: int) -> Record:
        return runs.close_run(self._redis, self.record, rows, mark, now, self._grows, least)

    def _pack(self, rows: Rows) -> RunBatch:
        rows.require(self._max_bytes)
        if rows.keys is None:
            raise InvalidInput("each row of a keyed run has a key")
        packed, now = rows.packed_keys(), time.time()
        ids = rows.ids if rows.ids is not None else ids_of_run_keys(self.queue, self.name, packed)
        tasks = rows.as_tasks(ids, packed, now).once()
        return RunBatch(self.record, tasks, now, self._options)

    def _send(self, batch: RunBatch) -> int:
        redis, ids = self._redis, [task.decode() for task in batch.tasks.ids]
        ask_for_room(redis, batch.joins(), only_new_of(redis, self.queue, ids))
        are_new = runs.enqueue_run(redis, batch)
        while self._grows and not are_new:  # another program has closed the run meanwhile
            runs.reopen_run(redis, self.record, time.time())
            are_new = runs.enqueue_run(redis, batch)
        new = sum(are_new)
        self.made += new
        log.info(
            "enqueue_run run=%s queue=%s tasks=%d new=%d",
            self.name,
            self.queue,
            len(batch.tasks.ids),
            new,
        )
        return new


def in_parts(chunks: Iterable[Rows], links: Links) -> Iterator[Rows]:
    """Yield the rows in batches that each fit into one transaction."""
    size = rows_at_once(links)
    return chain.from_iterable(
        rows.parts(size) if len(rows.parameters) > size else (rows,) for rows in chunks
    )


def require_room(tasks: Sequence[bytes], links: Links) -> None:
    """Refuse tasks that do not fit into one transaction. Raises InvalidInput."""
    most = rows_at_once(links)
    if len(tasks) > most:
        each = f"that wait for {len(links.conditions)} others each"
        raise InvalidInput(f"{most} tasks {each} are taken at a time, not {len(tasks)}")
