"""enqueue: makes a task of each row of a frame by a job of Spark, once, even if parts of it fail
    and are tried again.

The frame is brought into one form inside the JVM (frames.py) and written by `format("blueque")`
(writer.py). The commit runs in another process; its result is in the record of the run.
"""

from __future__ import annotations

import json as json_module
import logging
import os
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Unpack

from blueque.errors import BluequeError, InvalidInput, InvalidType, JobFailed, RunDropped
from blueque.model.conditions import After, Ids
from blueque.model.conditions import after as conditions
from blueque.model.encoding import require_time
from blueque.model.group import Group, tracked
from blueque.model.options import Broken
from blueque.model.run import KEYED, STAGED, Record, require_same
from blueque.producer.abandoned_runs import Leftovers
from blueque.spark import frames, jobs
from blueque.spark.layout import Layout, lay_out
from blueque.spark.sessions import activate
from blueque.spark.sink import ForAll, Sink, parse, write_options
from blueque.spark.writer import (
    COUNTS,
    KEEP_RANDOM,
    join_staging,
    open_run,
    open_staging,
    warn_of_replay,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMAT = "blueque"

log = logging.getLogger("blueque")


_SETTLES = "the same again under this run settles it"


class Enqueued(NamedTuple):
    """The result of `enqueue`.

    run: None when keys count in the whole queue. rows: of the frame; of the run, if it was
        committed before.
    tasks: of the run, or all new tasks if there is no run. new: the tasks that did not exist when
        this call began.
    is_replay: the run was committed before, and nothing was written.
    group: that the tasks are in. `after=` of other tasks takes the result of a call with a group.
    """

    queue: str
    run: str | None
    rows: int
    tasks: int
    new: int
    seconds: float
    is_replay: bool = False
    group: str | None = None

    def as_group(self) -> Group:
        """Return the group of the tasks. Raises InvalidInput if they have none."""
        return tracked(self.group)

    @property
    def duplicates(self) -> int:
        """How many rows have made no new task."""
        return self.rows - self.new


def enqueue(
    df: DataFrame,
    queue: str,
    *,
    key: str | Sequence[str] | None = None,
    run: str | None = None,
    params: str | Sequence[str] | None = None,
    json: bool = False,
    eta: str | float | datetime | None = None,
    priority: int | str = 0,
    keep: float | str | None = None,
    url: str | None = None,
    max_bytes: int | None = None,
    shards: int | None = None,
    shuffle: bool = False,
    check: bool = True,
    after: After | Ids | None = None,
    broken: Broken = "hold",
    group: Group | str | None = None,
    **options: Unpack[ForAll],
) -> Enqueued:
    """Put a task in line for each row of a frame by a job of Spark, and return the result.

    key: the column, or columns, by which a row makes only one task. With a `run` the key counts in
        that run, as long as its record is kept, even when its tasks were deleted; without a run it
        counts in the queue, as for `Queue.enqueue`. Rows are visible as they are written: after a
        failure run the same again. Without a key, all rows become visible at once, or none.
    run: the name of the run. Once it is committed, the same name changes nothing, and a warning
        says so.
    params: the columns that make the parameters, as a dict; the name of one text column makes a
        str. If left out: all columns that have no other use, or those of the key, as a dict. json:
        the one text column holds JSON.
    eta: a column of timestamps or Unix seconds, null for at once; or a value for all. priority: a
        column, or a value for all.
    keep: how long the run, or without one the key, counts afterwards; 90d, or 1d.
    max_bytes: the most bytes of parameters. shards, shuffle: see docs/pipelines.md, "Speed".
    check: with a key, check all rows before any is written, in one more pass over the frame;
        without it, a refused row fails the job when it is reached, and is the cause of JobFailed.
    after: what all tasks wait for: the result of another call that has a group, groups, ids, or
        `blueque.after`; 100 at most. broken: as for `Queue.enqueue`.
    group: the group that all tasks join; it needs a run. If it is not there, the run opens it, and
        closes it when it is committed. What waits for it starts when all its tasks are complete.
        The other options are those of `Queue.enqueue`, for all tasks.
    Raises InvalidInput before anything is written; WrongRun; JobFailed; what `Queue.enqueue`
    raises.
    """
    began = time.monotonic()
    said = write_options(
        queue=queue,
        url=url,
        run=run,
        key=_names(key, "key"),
        params=_names(params, "params"),
        json=str(json).lower(),
        eta=_time(eta),
        priority=priority,
        keep=keep,
        max_bytes=max_bytes,
        shards=shards,
        after=_conditions(after),
        broken=None if broken == "hold" else broken,
        group=group.name if isinstance(group, Group) else group,
        **options,
    )
    sink = parse(said)
    layout = _lay_out(df, sink, shuffle)
    if sink.run is not None and (known := _replay(sink)) is not None:
        return _outcome(sink, known, 0, began, is_replay=True)
    if sink.keys and check:
        with jobs.failing(sink.queue, sink.run, "nothing was written"):
            frames.check(df, layout)
    job = _Job(df, sink, layout, said, shuffle)
    if sink.keys and sink.run is None:
        rows, new = job.enqueue_keys()
        return Enqueued(queue, None, rows, new, new, time.monotonic() - began)
    record, new = job.enqueue_run() if sink.keys else job.enqueue_staged()
    return _outcome(job.sink, record, new, began)


class _Job:
    """One job of Spark that writes a frame."""

    def __init__(
        self, df: DataFrame, sink: Sink, layout: Layout, said: Mapping[str, str], shuffle: bool
    ) -> None:
        self.sink, self._run = sink, sink.run  # the run as the user has named it
        self._frame = frames.form(df, layout)
        self._shuffle = shuffle
        # The environment of the process in which Spark plans may be another.
        self._options: dict[str, str] = {
            **said,
            **frames.formed(layout),
            "url": sink.url,
            "max_bytes": str(sink.max_bytes),
        }

    def enqueue_keys(self) -> tuple[int, int]:
        """Write rows with keys that count in the queue; return how many rows there were, and how
        many tasks are new.
        """
        with tempfile.TemporaryDirectory(prefix="blueque-") as directory:
            path = os.path.join(directory, "counts")
            with self.sink.connected() as client:
                # if Redis does not answer, the error is clearer here
                client.get_run(self.sink.queue, "-")
            self._write(
                {COUNTS: path}, "what was written stays, and its keys count: enqueue the same again"
            )
            with open(path) as file:
                rows, new = json_module.load(file)
        return rows, new

    def enqueue_run(self) -> tuple[Record, int]:
        """Write rows with keys of a run; return its record, and how many tasks are new."""
        with self.sink.connected() as client:
            run = open_run(client, self.sink)
            before = run.count()
        if self._shuffle:
            self._frame = frames.by_shard(self._frame, self.sink.queue, run.name, run.shards)
        self._write(
            {}, "what was written stays, and counts: enqueue the same again under the same run"
        )
        record = _record(self.sink)
        return record, record["tasks"] - before

    def enqueue_staged(self) -> tuple[Record, int]:
        """Write rows that become visible all at once; return the record of their run, and how many
        tasks there are.
        """
        is_random = self.sink.run is None
        if is_random:
            self.sink = self.sink._replace(
                run=str(uuid.uuid4()), keep=self.sink.keep or KEEP_RANDOM
            )
        given = {"run": str(self.sink.run)} | (
            {} if self.sink.keep is None else {"keep": self.sink.keep}
        )
        with self.sink.connected() as client:
            # if Redis does not answer, the error is clearer here
            opened = open_staging(client, self.sink).record
        try:
            self._write(given, "nothing of it is visible")
        except BluequeError as error:
            # A committed run counts, even if the process that published it is dead: then we finish it.
            if not self._is_finished(opened, is_random, error):
                raise
        record = _record(self.sink)
        return record, record["tasks"]

    def _is_finished(self, opened: Record, is_random: bool, error: BluequeError) -> bool:
        try:
            with self.sink.connected() as client:
                staging = join_staging(client, self.sink, opened)
                if staging.is_committed:
                    staging.commit([])
                elif is_random:
                    Leftovers(client.connections).drop(staging.queue, staging.name)
                return staging.is_committed
        except BluequeError as another:
            if not isinstance(error, JobFailed):  # a row was refused, so nothing was committed
                return False
            look = f"see what `blueque runs {self.sink.queue}` says of run {self.sink.run}"
            is_gone = isinstance(another, RunDropped)
            advice = (
                look if is_random else f"before you run it again, {look}" if is_gone else _SETTLES
            )
            fate = f"whether it is decided is not known, for {another}; {advice}"
            raise JobFailed(error.queue, error.run, error.reason, fate) from error.__cause__

    def _write(self, more: dict[str, str], fate: str) -> None:
        activate(self._frame.sparkSession)
        # With keys, some rows may have been written before one was refused.
        with jobs.failing(
            self.sink.queue, self._run, fate, () if self.sink.keys else (InvalidInput,)
        ):
            self._frame.write.format(FORMAT).options(**self._options | more).mode("append").save()


def _lay_out(df: DataFrame, sink: Sink, shuffle: bool) -> Layout:
    if not hasattr(df, "isStreaming"):
        raise InvalidType(f"a DataFrame is needed, not {type(df).__name__}")
    if df.isStreaming:
        raise InvalidInput(
            "this frame is a stream: use df.writeStream.format('blueque'), or this in foreachBatch"
        )
    if shuffle and not (sink.keys and sink.run):
        raise InvalidInput("shuffle is for rows with a key in a run")
    return lay_out(df.schema, sink)


def _replay(sink: Sink) -> Record | None:
    """Return the record of the run if it was committed before, and finish it. None: there is work
    to do.
    """
    with sink.connected() as client:
        record = client.get_run(sink.queue, str(sink.run))
        # only leftovers of the last run are there
        if record is None or record["state"] == "open" or "kind" not in record:
            return None
        require_same(record, sink.queue, str(sink.run), *(KEYED if sink.keys else STAGED))
        if sink.links:  # are they those of the run?
            (open_run if sink.keys else open_staging)(client, sink)
        if not sink.keys:
            join_staging(client, sink, record).commit([])
    warn_of_replay(sink)
    return _record(sink)


def _record(sink: Sink) -> Record:
    with sink.connected() as client:
        record = client.get_run(sink.queue, str(sink.run))
    if record is None:
        raise RunDropped(str(sink.run), sink.queue)
    return record


def _outcome(
    sink: Sink, record: Record, new: int, began: float, is_replay: bool = False
) -> Enqueued:
    return Enqueued(
        sink.queue,
        sink.run,
        record["rows"],
        record["tasks"],
        new,
        time.monotonic() - began,
        is_replay,
        record.get("group"),
    )


def _names(names: str | Sequence[str] | None, option: str) -> str | None:
    """Return names of columns as an option."""
    if names is None:
        return None
    several = [names] if isinstance(names, str) else names
    if not isinstance(several, list | tuple) or not all(isinstance(name, str) for name in several):
        raise InvalidType(
            f"{option}: the name of a column, or a list of such, is needed, not {names!r}"
        )
    return json_module.dumps(several)


def _conditions(after: After | Ids | None) -> After | None:
    """Return what tasks wait for; None: nothing."""
    wanted = after if after is None or isinstance(after, After) else conditions(ok=after)
    return wanted if wanted is not None and any(wanted) else None


def _time(eta: str | float | datetime | None) -> str | None:
    return eta if eta is None or isinstance(eta, str) else str(require_time(eta))
