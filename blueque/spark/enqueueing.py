"""enqueue: makes a task of each row of a frame by a job of Spark, once, even if parts of it fail
    and are tried again.

The frame is brought into one form inside the JVM (frames.py) and written by Python in the workers
(writer.py). They report to this process, which commits.
"""

from __future__ import annotations

import json as json_module
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union, Unpack

from blueque.client import Client
from blueque.connection.address import hide_password
from blueque.errors import InvalidInput, InvalidType
from blueque.model.conditions import After, Ids
from blueque.model.conditions import after as conditions
from blueque.model.encoding import require_time
from blueque.model.group import Group, own_group, tracked
from blueque.model.options import Broken, SharedOptions
from blueque.model.run import Record, require_same
from blueque.producer.run import Run
from blueque.queries.run_progress import RunSeen
from blueque.spark import executors, frames, jobs
from blueque.spark.layout import Layout, lay_out
from blueque.spark.write_options import Target, parse, write_options
from blueque.spark.writer import RunWriter, Writer, Written, make_writer, open_run, warn_of_replay

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Name = Union[str, "Column"]  # of a column

log = logging.getLogger("blueque")


class Enqueued(NamedTuple):
    """The result of `enqueue`.

    run: None when keys count in the whole queue. rows: of the frame; of the run, if it was
        committed before and this call has written nothing.
    tasks: of the run, or all new tasks if there is no run. new: the tasks that did not exist when
        this call began.
    is_replay: the run was committed before, and nothing was written.
    group: that the tasks are in. `after=` of other tasks takes the result of a call with a group.
    url: the Redis that has them, with its password.
    """

    queue: str
    run: str | None
    rows: int
    tasks: int
    new: int
    seconds: float
    is_replay: bool = False
    group: str | None = None
    url: str = ""

    def __repr__(self) -> str:
        shown = self._asdict() | {"url": hide_password(self.url)}
        return f"Enqueued({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def wait(self, timeout: float | None = None) -> RunSeen:
        """Block until all tasks of the run have ended: see `blueque.producer.run.Run`, for these
        four.
        """
        with self._run() as run:
            return run.wait(timeout)

    def progress(self) -> RunSeen:
        """Return how many tasks of the run have ended, and how."""
        with self._run() as run:
            return run.progress()

    def requeue_failed(self, by: str | None = None) -> list[str]:
        """Put the tasks in line again that have failed or were cancelled; return their ids."""
        with self._run() as run:
            return run.requeue_failed(by)

    def collected(self) -> bool:
        """Note that the results are where they are needed: retention may delete the tasks."""
        with self._run() as run:
            return run.collected()

    @contextmanager
    def _run(self) -> Iterator[Run]:
        if self.run is None:
            raise InvalidInput("these tasks are of no run, so nothing lists them: give them run=")
        with closing(Client(self.url or None)) as client:
            yield client.run(self.queue, self.run)

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
    key: Name | Sequence[Name] | None = None,
    run: str | None = None,
    params: Name | Sequence[Name] | None = None,
    json: bool = False,
    eta: Name | float | datetime | None = None,
    priority: int | Name = 0,
    keep: float | str | None = None,
    url: str | None = None,
    max_bytes: int | None = None,
    shards: int | None = None,
    shuffle: bool = False,
    check: bool = True,
    after: After | Ids | None = None,
    broken: Broken = "hold",
    group: Group | str | Literal[False] | None = None,
    hold: float | str | None = None,
    append: bool = False,
    **options: Unpack[SharedOptions],
) -> Enqueued:
    """Put a task in line for each row of a frame by a job of Spark, and return the result.

    key: the column, or columns, by which a row makes only one task: values of the data, which are
        the same whenever Spark computes the frame. With a `run` the key counts in that run, as long
        as its record is kept, even when its tasks were deleted; without a run it counts in the
        queue, as for `Queue.enqueue`. Rows are visible as they are written: after a failure run the
        same again.
    run: the name of the run. Once it is committed, the same name changes nothing, and a warning
        says so.
    params: the columns that make the parameters, as a dict; one that is not in a list is all of
        them, and text stays a str. If left out: all columns but those of eta and priority. json:
        the one text column holds JSON.
    Columns are named, in any case as in Spark, or are Columns such as `F.col("id")`.
    eta: a column of timestamps or Unix seconds, null for at once; or a value for all. priority: a
        column, or a value for all.
    keep: how long the run, or without one the key, counts afterwards; 90d, or 1d.
    max_bytes: the most bytes of parameters. shards, shuffle: see docs/pipelines.md, "Speed".
    check: check all rows before any is written. Spark computes the frame once, and
        keeps the columns that are needed until all is written, in the memory and on the disks of
        its workers. Without it, a refused row fails the job when it is reached, and is the cause
        of JobFailed.
    after: what all tasks wait for: the result of another call that has a group, groups, ids, or
        `blueque.after`; 100 at most. broken: as for `Queue.enqueue`.
    group: the group that all tasks join; it needs a run. If it is not there, the run opens it, and
        closes it when it is committed. What waits for it starts when all its tasks are complete.
        If left out, a new run has one of its own, `[queue]/[run]`: it counts and lists the tasks.
        False: none, which spares Redis a tenth of the work.
    hold: "until_collected": retention leaves the tasks alone until `collected` of the result is
        called, for 30 days at most; or another such time.
    append: add rows with new keys to the run, even if it was committed; until a week after that.
        The other options are those of `Queue.enqueue`, for all tasks.
    Raises InvalidInput before anything is written; WrongRun; JobFailed; what `Queue.enqueue`
    raises.
    """
    began = time.monotonic()
    df, key, params, eta, priority = _named(df, key, params, eta, priority)
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
        group=group.name if isinstance(group, Group) else None if group is False else group,
        hold=hold,
        append=append or None,
        **options,
    )
    target = parse(said)
    layout = _lay_out(df, target, shuffle)
    frames.require_stable(df, layout.keys)
    if target.run is not None:
        record = _record(target)
        target = _with_group(target, record) if group is None else target
        if not append and (known := _replay(target, record)) is not None:
            return _outcome(target, known, began, is_replay=True)
    if not check:
        return _enqueue(*frames.form(df, layout), target, shuffle, began)
    with ExitStack() as stack:
        with jobs.failing(target.queue, target.run, "nothing was written"):
            formed = stack.enter_context(frames.checked(df, layout))
        return _enqueue(*formed, target, shuffle, began)


def _enqueue(
    frame: DataFrame, layout: Layout, target: Target, shuffle: bool, began: float
) -> Enqueued:
    writer = make_writer(target, layout)
    if shuffle and isinstance(writer, RunWriter):
        shards = writer.record["shards"]
        frame = frames.by_shard(frame, layout, target.queue, str(target.run), shards)
    return _outcome(writer.target, _write(frame, writer, target.run), began)


def _write(frame: DataFrame, writer: Writer, run: str | None) -> Written:
    """Have the workers of Spark write the frame, and commit it. run: as the user has named it."""
    # Some rows may have been written before one was refused.
    with jobs.failing(writer.target.queue, run, writer.fate, as_it_was=()):
        reports = executors.on_each_partition(frame, writer.write)
        while not writer.has_all(reports):
            log.warning("run %s of queue %s: its rows are written again", run, writer.target.queue)
            reports = executors.on_each_partition(frame, writer.write)
        return writer.commit(reports)


def _named(df: DataFrame, *columns: Any) -> frames.Named:
    if not hasattr(df, "isStreaming"):
        raise InvalidType(
            f"a DataFrame of Spark is needed, not {type(df).__module__.partition('.')[0]}'s {type(df).__name__}: make one with "
            "spark.createDataFrame, or with to_spark() of pandas on Spark; Queue.enqueue_many takes a list"
        )
    return frames.named(df, *columns)


def _lay_out(df: DataFrame, target: Target, shuffle: bool) -> Layout:
    if df.isStreaming:
        raise InvalidInput(
            "this frame is a stream: call this for each batch, in df.writeStream.foreachBatch"
        )
    if shuffle and not target.run:
        raise InvalidInput("shuffle is for rows of a run")
    is_case_sensitive = df.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    layout, there = lay_out(df.schema, target, is_case_sensitive), [*map(str.lower, df.columns)]
    alike = [name for name in layout.columns if there.count(name.lower()) > 1]
    if alike and not is_case_sensitive:
        raise InvalidInput(
            f"column {alike[0]!r}: another one differs from it only in case, and Spark takes both for the same: rename one"
        )
    return layout


def _record(target: Target) -> Record | None:
    """Return the record of the run. None: there is none."""
    with target.connected() as client:
        return client.get_run(target.queue, str(target.run))


def _with_group(target: Target, record: Record | None) -> Target:
    """Have a new run open a group of its own; one that is there keeps what it has."""
    group = own_group(target.queue, str(target.run)) if record is None else record.get("group")
    return target if group is None else target._replace(links={**target.links, "group": group})


def _replay(target: Target, record: Record | None) -> Written | None:
    """Return what the run has if it was committed before. None: there is work to do."""
    if record is None or record["state"] == "open":
        return None
    with target.connected() as client:
        require_same(record, target.queue, str(target.run))
        if target.links:  # are they those of the run?
            open_run(client, target)
    warn_of_replay(target)
    return Written(record["rows"], record["tasks"], 0, record.get("group"))


def _outcome(target: Target, done: Written, began: float, is_replay: bool = False) -> Enqueued:
    rows, tasks, new, group = done
    seconds = time.monotonic() - began
    log.info(
        "enqueue queue=%s run=%s rows=%d tasks=%d new=%d is_replay=%s seconds=%.1f",
        target.queue,
        target.run,
        rows,
        tasks,
        new,
        is_replay,
        seconds,
    )
    if target.run and not target.grows and not is_replay and rows > tasks:
        log.warning(
            "run %s of queue %s: %d of %d rows have the key of another row, and made no task",
            target.run,
            target.queue,
            rows - tasks,
            rows,
        )
    return Enqueued(
        target.queue, target.run, rows, tasks, new, seconds, is_replay, group, target.url
    )


def _names(names: object, option: str) -> str | None:
    """Return names of columns as an option."""
    if names is None:
        return None
    several = names if isinstance(names, list | tuple) else [names]
    if not all(isinstance(name, str) for name in several):
        raise InvalidType(
            f"{option}: the name of a column, or a list of such, is needed, not {names!r}"
        )
    return json_module.dumps(names)


def _conditions(after: After | Ids | None) -> After | None:
    """Return what tasks wait for; None: nothing."""
    wanted = after if after is None or isinstance(after, After) else conditions(ok=after)
    return wanted if wanted is not None and any(wanted) else None


def _time(eta: str | float | datetime | None) -> str | None:
    return eta if eta is None or isinstance(eta, str) else str(require_time(eta))
