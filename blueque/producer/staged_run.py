"""Runs whose tasks come all at once or not at all, and streams, where each batch does."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from blueque.connection.redis import Redis
from blueque.errors import InvalidInput, InvalidType, RunDropped
from blueque.model.encoding import require_whole
from blueque.model.ids import random_ids
from blueque.model.labels import room_beside
from blueque.model.run import Links, Record
from blueque.producer.groups import end_if_over
from blueque.producer.keyed_run import RunOutcome, in_parts, require_room
from blueque.producer.room import in_room
from blueque.producer.row_batch import Rows, relay
from blueque.protocol import runs, staging
from blueque.protocol.staging import Chunk, Decision
from blueque.queries.runs import load, staged_chunks, unpublished_chunks
from blueque.system import process

MAX_BATCH_ID = 2**63 - 1

log = logging.getLogger("blueque")


class Staging:
    """A run whose tasks are staged, invisible, by any number of processes, until one of them
    commits them all.

    is_committed: it was committed before this object was made, or by its `commit`; nothing can be
        staged any more. The batches of a stream are committed one by one; a stream is never
        committed as a whole.
    record: as it was when the run was opened, for `Queue.join_staging` in other processes.
    """

    def __init__(
        self,
        redis: Redis,
        record: Record,
        max_bytes: int,
        options: Mapping[str, str | int | float],
        owner: str = "",
    ) -> None:
        self.record: Record = record
        self.name: str = record["run"]
        self.queue: str = record["queue"]
        self.is_stream: bool = record["kind"] == "stream"
        self.links = Links.of(record)
        self.is_committed: bool = not self.is_stream and record["state"] != "open"
        self._redis, self._options, self._owner = redis, options, owner
        self._max_bytes = room_beside(options, max_bytes)

    def __repr__(self) -> str:
        return (
            f"<Staging {self.name!r} of {self.queue!r}{', committed' if self.is_committed else ''}>"
        )

    def stage(
        self,
        parameters: Sequence[bytes],
        are_json: bool = True,
        etas: Sequence[float | None] | None = None,
        priorities: Sequence[int] | None = None,
    ) -> str:
        """Put tasks into Redis, invisible, and return the name of this chunk, which `commit` takes.

        parameters, are_json, etas, priorities: see Rows; 1000 rows at most; 250, with 1000
            conditions, if they wait for others. If the run is committed, nothing is written, and the
            name has no use.
        Raises InvalidInput, which names the position; RunDropped.
        Source: docs/protocol/bulk.md, "stage".
        """
        chunk = self._pack(Rows(parameters, None, are_json, etas, priorities))
        require_room(parameters, self.links)
        return self._send(self._redis, chunk, None, None)

    def stage_each(self, chunks: Iterable[Rows]) -> Iterator[str]:
        """Do the same with each of the chunks, and yield its name once it is in Redis; the fastest
        way for many. A chunk with more rows that wait than `stage` takes is divided, and has
        several names.

        chunks: is read two chunks ahead, unless it is slow.
        """
        own = self._redis.another()  # the iterable may use this thread's connection
        try:
            packed = map(self._pack, in_parts(chunks, self.links))
            yield from relay(packed, lambda *given: self._send(own, *given))
        finally:
            own.close()

    def commit(
        self, names: Sequence[str], batch: int | None = None, query: str | None = None
    ) -> RunOutcome:
        """Make these chunks the run, or this batch of the stream, in their order, and put their
        tasks in line.

        If the run was committed before, that commit is finished instead, and these chunks are
        discarded: is_replay. If this call is interrupted, the next commit with the same name (and
        batch), or any other of a stream, finishes it.
        batch: of a stream: greater than the batch before; the same again is a replay.
        query: of a stream: a text that names the program that numbers the batches; another one
            under the same name is refused.
        The group that the run has opened is closed when all its tasks are in line.
        Raises RunDropped when a chunk is no longer staged, or the run was dropped; OldBatch when a
        later batch is committed; WrongRun for another query. Nothing is done then.
        Source: docs/protocol/bulk.md, "commit_run".
        """
        number = self._require_batch(batch)
        chosen, mark = self._require_names(names), os.urandom(8).hex()
        decision = self._decide(chosen, number, mark, query)
        while decision.is_behind:
            finish(self._redis, self.queue, self.name, self.links)
            decision = self._decide(chosen, number, mark, query)
        record = finish(self._redis, self.queue, self.name, self.links)
        self.is_committed = not self.is_stream
        left = chosen if decision.is_late else decision.others
        self.discard(left if self.is_stream else None)
        group = self.links.group
        outcome = RunOutcome(self.name, record["rows"], record["tasks"], decision.is_late, group)
        log.info(
            "commit_run run=%s queue=%s rows=%d tasks=%d is_replay=%s",
            self.name,
            self.queue,
            *outcome[1:4],
        )
        return outcome

    def discard(self, names: Sequence[str] | None = None) -> int:
        """Delete the tasks of these chunks, or of all staged chunks, unless they are committed;
        return how many chunks.

        Source: docs/protocol/bulk.md, "discard".
        """
        some = list(staged_chunks(self._redis, self.queue, self.name)) if names is None else names
        return discard(self._redis, self.queue, self.name, some, self.record["created"])

    def discard_own(self) -> int:
        """Delete what was staged with the owner of this object; return how many chunks."""
        return self.discard(
            [
                name
                for name in staged_chunks(self._redis, self.queue, self.name)
                if name.endswith(f".{self._owner}")
            ]
        )

    def discard_of_dead(self) -> int:
        """Delete what was staged for processes that have died on this host; return how many chunks."""
        return self.discard(
            [
                name
                for name in staged_chunks(self._redis, self.queue, self.name)
                if _is_of_dead(name)
            ]
        )

    def _decide(
        self, names: Sequence[str], batch: int | None, mark: str, query: str | None
    ) -> Decision:
        return in_room(
            self._redis,
            lambda: staging.commit_run(
                self._redis, self.record, names, batch, mark, time.time(), query
            ),
        )

    def _require_batch(self, batch: int | None) -> int | None:
        if self.is_stream == (batch is None):
            raise InvalidInput(
                "a stream has numbered batches" if self.is_stream else "only a stream has batches"
            )
        return None if batch is None else require_whole(batch, "batch", 0, MAX_BATCH_ID)

    def _require_names(self, names: Sequence[str]) -> list[str]:
        if isinstance(names, str):
            raise InvalidType("the names of chunks are a list of them, not one")
        return list(dict.fromkeys(names))

    def _pack(self, rows: Rows) -> Chunk:
        rows.require(self._max_bytes)
        if rows.keys is not None:
            raise InvalidInput("rows that are staged have no keys: see Queue.open_run")
        now = time.time()
        tasks = rows.as_tasks(random_ids(len(rows.parameters)), None, now)
        name = os.urandom(16).hex() + (f".{self._owner}" if self._owner else "")
        return Chunk(self.record, name, tasks, now, self._options)

    def _send(
        self,
        redis: Redis,
        chunk: Chunk,
        follower: Chunk | None,
        meanwhile: Callable[[], Any] | None,
    ) -> str:
        is_staged = not self.is_committed and staging.stage(redis, chunk, follower, meanwhile)
        log.debug(
            "stage run=%s queue=%s chunk=%s staged=%s", self.name, self.queue, chunk.name, is_staged
        )
        return chunk.name


def owner_of(pid: int, job: str = "") -> str:
    """Return the part of a chunk's name that names its process, and one of its jobs:
    docs/protocol/bulk.md, "stage".
    """
    facts = process.identity(pid)
    parts = (pid, facts["pid_start"], facts["ns"], facts["boot"], *([job] if job else []))
    return ".".join(map(str, parts))


def _is_of_dead(name: str) -> bool:
    """Tell whether the process of a chunk has died on this host."""
    pid, *identity = name.split(".")[1:] or [""]
    known = dict(zip(("pid_start", "ns", "boot"), identity, strict=False))
    return pid.isdecimal() and process.shares_pids(known) and not process.is_alive(int(pid), known)


def finish(redis: Redis, queue: str, run: str, links: Links | None = None) -> Record:
    """Publish the rest of a committed run or batch, and return the record. Several processes may do
    so at once.

    links: of the run; None: not known here.
    Raises RunDropped when chunks that should be published were deleted.
    """
    record, before, is_stuck = None, None, False
    if links is None:
        links = Links.of(load(redis, queue, run) or {})
    while record is None:
        names = unpublished_chunks(redis, queue, run)
        if is_stuck and names == before:
            raise RunDropped(run, queue, len(names))
        published = [
            staging.publish(redis, queue, run, name, time.time(), follower, links)
            for name, follower in zip(names, [*names[1:], None], strict=False)
        ]
        before, is_stuck = names, not any(published)
        record = staging.finish_run(redis, queue, run, time.time(), links)
    if record["kind"] != "stream":
        runs.prune_runs(redis, queue)
    if links.group is not None:
        end_if_over(redis, links.group, time.time())
    return record


def discard(
    redis: Redis, queue: str, run: str, names: Sequence[str], created: float | None = None
) -> int:
    """Delete what is staged in these chunks, unless it is committed; return how many chunks.

    created: of the record that is meant, see `protocol.discard`.
    """
    discarded = sum(
        staging.discard(redis, queue, run, name, follower, created)
        for name, follower in zip(names, [*names[1:], None], strict=False)
    )
    if discarded:
        log.info("discard run=%s queue=%s chunks=%d", run, queue, discarded)
    return discarded
