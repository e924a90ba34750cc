"""enqueue: makes a task of each row of a frame in a Spark job, once, even if parts of it are retried.

The JVM brings the frame into one form (frames.py), and Python in the workers writes it (writer.py).
They report to this process, which commits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Union, Unpack

from blueque.client import Client
from blueque.connection.address import hide_password
from blueque.errors import InvalidInput, InvalidType, NoSuchGroup, WrongGroup
from blueque.model.conditions import After, Ids
from blueque.model.conditions import after as conditions
from blueque.model.encoding import require_due
from blueque.model.group import Group, tracked
from blueque.model.options import Broken, SharedOptions
from blueque.producer.groups import TaskGroup
from blueque.queries.groups import GroupSeen
from blueque.spark import columns, executors, frames, jobs
from blueque.spark.layout import Layout, lay_out
from blueque.spark.write_options import Target, target_of
from blueque.spark.writer import Writer, Written, make_writer

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Name = Union[str, "Column"]  # of a column

NO_GROUP = "these tasks are in no group, so nothing lists them: give them group="

log = logging.getLogger("blueque")


class Enqueued(NamedTuple):
    """The result of `enqueue`.

    group: the group of the tasks. None: the keys count in the whole queue, and the methods raise
        InvalidInput. `after=` of other tasks takes a result with a group.
    rows: of the frame.
    tasks: how many the group has; without a group, how many are new.
    new: how many tasks did not exist when this call began.
    url: the Redis that has them, with its password.
    """

    queue: str
    group: str | None
    rows: int
    tasks: int
    new: int
    seconds: float
    url: str = ""

    def __repr__(self) -> str:
        shown = self._asdict() | {"url": hide_password(self.url)}
        return f"Enqueued({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def wait(self, timeout: float | None = None) -> GroupSeen:
        """Block until all tasks of the group have ended; see `TaskGroup.wait`."""
        with self._opened() as group:
            return group.wait(timeout)

    def progress(self) -> GroupSeen:
        """Return how many tasks of the group have ended, and how; see `TaskGroup.progress`."""
        with self._opened() as group:
            return group.progress()

    def requeue(self, by: str | None = None) -> list[str]:
        """Put the failed and cancelled tasks in line again, as `TaskGroup.requeue`; return their ids."""
        with self._opened() as group:
            return group.requeue(by)

    def collected(self) -> bool:
        """End the `hold` of the group; return False if there was none. See `TaskGroup.collected`."""
        with self._opened() as group:
            return group.collected()

    @contextmanager
    def _opened(self) -> Iterator[TaskGroup]:
        if self.group is None:
            raise InvalidInput(NO_GROUP)
        with closing(Client(self.url or None)) as client:
            yield client.group(self.group)

    def as_group(self) -> Group:
        """Return the group of the tasks. Raises InvalidInput if they have none."""
        return tracked(self.group)

    @property
    def duplicates(self) -> int:
        """How many rows made no new task."""
        return self.rows - self.new

    @property
    def is_replay(self) -> bool:
        """Whether every row had its task before, so that nothing was written."""
        return self.rows > 0 and not self.new


def enqueue(
    df: DataFrame,
    queue: str,
    *,
    key: Name | Sequence[Name] | None = None,
    group: Group | str | None = None,
    params: Name | Sequence[Name] | None = None,
    json: bool = False,
    eta: Name | float | datetime | None = None,
    priority: int | Name = 0,
    keep: float | str | None = None,
    url: str | None = None,
    max_bytes: int | None = None,
    check: bool = True,
    after: After | Ids | None = None,
    broken: Broken = "hold",
    hold: float | str | None = None,
    append: bool = False,
    **options: Unpack[SharedOptions],
) -> Enqueued:
    """Put a task in line for each row of a frame, in a Spark job.

    Columns are named, in any case as in Spark, or given as Columns such as `F.col("id")`.
    key: the column or columns that identify a task, so that a row makes only one. Use values that
        are the same whenever Spark computes the frame. With a `group`, the key counts in that group
        until its `keep` is over, even if the task was deleted. Without one, it counts in the queue,
        as for `Queue.enqueue`. Tasks may start while others are still written. After a failure,
        repeat the call.
    group: the group that all tasks join. The call opens a missing group and closes it at its end. A
        repeated call makes what is missing, and nothing twice. A closed group takes no new keys
        (WrongGroup). A group that another program has opened stays open.
    params: the columns that make the dict of parameters. A name that is not in a list: its value is
        the parameters, and text stays a str. Default: all columns but those of eta and priority.
    json: the only text column holds JSON.
    eta: a column of timestamps or Unix seconds, null for at once; or a value for all.
    priority: a column, or a value for all.
    keep: how long the group counts after its end (90d), or the key without a group (1d).
    max_bytes: the size limit of parameters.
    check: check all rows before any is written. Spark computes the frame once and keeps the needed
        columns in the memory and on the disks of its workers until all is written. Without it, a
        refused row fails the job when it is reached, and is the cause of JobFailed.
    after: what all tasks wait for, at most 100: ids, groups, results of calls that have a `group`,
        or `blueque.after`.
    broken: as for `Queue.enqueue`.
    hold: "until_collected": retention keeps the tasks until you call `collected` of the result, for
        at most 30 days. Or another time.
    append: add rows with new keys to the group, even if it is closed, and close it again.
    options: of all tasks, as for `Queue.enqueue`.
    Raises InvalidInput before anything is written; WrongGroup; NoSuchGroup; JobFailed; what
        `Queue.enqueue` raises.
    """
    began = time.monotonic()
    df, key, params, eta, priority = _named(df, key, params, eta, priority)
    target = target_of(
        {
            "queue": queue,
            "url": url or None,
            "key": _names(key, "key"),
            "params": _names(params, "params"),
            "json": json,
            "eta": eta if eta is None or isinstance(eta, str) else require_due(eta),
            "priority": priority,
            "keep": keep,
            "max_bytes": max_bytes,
            "after": _conditions(after),
            "broken": None if broken == "hold" else broken,
            "group": group.name if isinstance(group, Group) else group,
            "hold": hold,
            "append": append,
            **options,
        }
    )
    layout = _lay_out(df, target)
    frames.require_stable(df, layout.keys)
    if not check:
        return _enqueue(*frames.form(df, layout), target, began)
    with ExitStack() as stack:
        with jobs.failing(target.queue, target.group, "nothing was written"):
            formed = stack.enter_context(frames.checked(df, layout))
        return _enqueue(*formed, target, began)


def _enqueue(frame: DataFrame, layout: Layout, target: Target, began: float) -> Enqueued:
    return _outcome(target, _write(frame, make_writer(target, layout)), began)


def _write(frame: DataFrame, writer: Writer) -> Written:
    """Have the workers of Spark write the frame, and commit it."""
    queue, group = writer.target.queue, writer.target.group
    # Some rows may have been written before one was refused.
    with jobs.failing(queue, group, writer.fate, as_it_was=(WrongGroup, NoSuchGroup)):
        reports = executors.on_each_partition(frame, writer.write)
        while not writer.has_all(reports):
            log.warning("group %s of queue %s: its rows are written again", group, queue)
            reports = executors.on_each_partition(frame, writer.write)
        return writer.commit(reports)


def _named(df: DataFrame, *given: Any) -> columns.Named:
    if not hasattr(df, "isStreaming"):
        raise InvalidType(
            f"a DataFrame of Spark is needed, not {type(df).__module__.partition('.')[0]}'s {type(df).__name__}: make one with "
            "spark.createDataFrame, or with to_spark() of pandas on Spark; Queue.enqueue_many takes a list"
        )
    return columns.named(df, *given)


def _lay_out(df: DataFrame, target: Target) -> Layout:
    if df.isStreaming:
        raise InvalidInput(
            "this frame is a stream: call this for each batch, in df.writeStream.foreachBatch"
        )
    is_case_sensitive = df.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    layout, there = lay_out(df.schema, target, is_case_sensitive), [*map(str.lower, df.columns)]
    alike = [name for name in layout.columns if there.count(name.lower()) > 1]
    if alike and not is_case_sensitive:
        raise InvalidInput(
            f"column {alike[0]!r}: another one differs from it only in case, and Spark takes both for the same: rename one"
        )
    return layout


def _outcome(target: Target, done: Written, began: float) -> Enqueued:
    queue, group, (rows, tasks, new) = target.queue, target.group, done
    seconds = time.monotonic() - began
    log.info(
        "enqueue queue=%s group=%s rows=%d tasks=%d new=%d seconds=%.1f",
        queue,
        group,
        rows,
        tasks,
        new,
        seconds,
    )
    where = f"queue {queue}" if group is None else f"group {group} of queue {queue}"
    if rows and not new:
        log.warning("%s: every row had its task already, so nothing was written", where)
    elif group is not None and rows > tasks:
        made = "have the key of another row, and made no task"
        log.warning("%s: %d of %d rows %s", where, rows - tasks, rows, made)
    return Enqueued(queue, group, rows, tasks, new, seconds, target.url)


def _names(names: Any, option: str) -> str | tuple[str, ...] | None:
    """Return one column name or several. Raises InvalidType."""
    if names is None or isinstance(names, str):
        return names
    if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
        return tuple(names)
    raise InvalidType(
        f"{option}: the name of a column, or a list of such, is needed, not {names!r}"
    )


def _conditions(after: After | Ids | None) -> After | None:
    """Return what tasks wait for; None: nothing."""
    wanted = after if after is None or isinstance(after, After) else conditions(ok=after)
    return wanted if wanted is not None and any(wanted) else None
