"""Everything Blueque raises.

BluequeError
|-- InvalidInput (ValueError)       refused before anything was written; mend the value and call
|                                   again
|   |-- InvalidType (TypeError)     ... it is of a type that cannot be stored
|   |-- TooLarge                    ... it is larger than the limit
|   |-- WrongQueue                  the task belongs to another queue
|   |-- NotFinished                 only complete, failed and cancelled tasks can be deleted
|   |-- NotCancellable              it has ended, or a listener of 1.0.0 has it
|   |-- NotWaiting                  only pending and scheduled tasks can be put elsewhere
|   |-- WrongRun                    the run is of another kind, or shares its keys with one of
|                                   another queue
|   |-- OldBatch                    the stream has committed a later batch; a new checkpoint needs
|                                   a new name
|   |-- BacklogRefused              a file of a backlog, or a row of it, cannot be fed; it names
|                                   both
|   |-- ConfigRefused               blueque.toml says something that cannot be meant; it names the
|                                   line
|   `-- NotFailed                   only failed and cancelled tasks can be put in line again
|-- NoSuchTask (LookupError)        there is no task of that id, or not any more; nothing to wait
|                                   for
|-- WaitTimedOut (TimeoutError)     what was waited for has not ended yet; it goes on; wait again
|-- NotOwner                        the attempt is no longer ours; nothing was written; stop
|                                   working on it
|-- FeedTaken                       another feeder has the feed; this one wrote nothing more;
|                                   leave it to that one
|-- NotFree                         what the task needs is taken; it is back in its line; it will
|                                   be free again
|-- NotRegistered                   the listener is not (or no longer) registered; register again
|-- NodeTaken                       another listener uses this node id; choose another name
|-- RedisAway (ConnectionError)     no answer; nothing was written; try again later
|   `-- OutcomeUnknown              no answer after sending: it may have been written; the same
|                                   call settles it
|-- BatchFailed                     one batch of many tasks failed; it says which, and what is
|                                   certain
|-- JobFailed                       a job of Spark failed; it says what is certain, and what to do
|-- RunDropped                      somebody dropped the run, or what was staged; nothing of it
|                                   comes; run it again
|-- RedisRefused                    Redis answered with an error; trying again does not help
|-- Contended                       too many others changed the same keys at the same time; try
|                                   again
|-- SnapshotGone                    the snapshot has expired while it was read; take another, keep
|                                   it longer
|-- BatchTaken                      another archiver goes on with our batch; stop, and wait for it
|-- ArchiveRefused                  the directory cannot be an archive, or not this one; it says
|                                   which could
|-- SpoolRefused                    the spool directory cannot be used; choose another
|-- NoServer                        there is no Redis server program on this machine
|-- NoJava                          there is no Java on this machine, which Spark needs
|-- NotInstalled (ImportError)      a package is missing that only some of Blueque needs; pip
|                                   install what it says
|-- SparkEnded                      the Spark of this process has ended; another one needs another
|                                   process
`-- SubmitFailed                    the program that was given to spark-submit has failed
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class BluequeError(Exception):
    """Anything that Blueque raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would call the class with the sentence alone, in the process that gets the error
        # from another.
        return _as_it_was, (type(self), self.args), vars(self)


def _as_it_was(kind: type[BluequeError], args: tuple[object, ...]) -> BluequeError:
    error = kind.__new__(kind, *args)
    error.args = args  # an OSError takes them in its __init__ only
    return error


class InvalidInput(BluequeError, ValueError):
    """A value was refused. Nothing was written."""


class InvalidType(InvalidInput, TypeError):
    """A value is of a type that cannot be stored. Nothing was written."""


class TooLarge(InvalidInput):
    """A value is larger than the limit. Nothing was written."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        verb = "take" if "parameters" in what else "takes"
        super().__init__(f"{what} {verb} {size:,} bytes; the limit is {limit:,} bytes")
        self.what, self.size, self.limit = what, size, limit


class WrongQueue(InvalidInput):
    """The task belongs to another queue than the one that was asked. Nothing was written."""

    def __init__(self, task_id: str, queue: str) -> None:
        super().__init__(f"task {task_id} is not in queue {queue!r}")
        self.task_id, self.queue = task_id, queue


class NotFinished(InvalidInput):
    """The task has not ended, so it cannot be deleted. Nothing was written."""

    def __init__(self, task_id: str, status: str | None) -> None:
        super().__init__(f"task {task_id} cannot be deleted while it is {status or 'unknown'}")
        self.task_id, self.status = task_id, status


class NotCancellable(InvalidInput):
    """The task cannot be cancelled. Nothing was written."""

    def __init__(self, task_id: str, status: str | None, why: str) -> None:
        super().__init__(f"task {task_id} cannot be cancelled: {why}")
        self.task_id, self.status, self.why = task_id, status, why


class NotFailed(InvalidInput):
    """The task has not failed and was not cancelled, so it cannot be put in line again. Nothing was
    written.
    """

    def __init__(self, task_id: str, status: str | None) -> None:
        super().__init__(
            f"task {task_id} cannot be put in line again while it is {status or 'unknown'}"
        )
        self.task_id, self.status = task_id, status


class NotWaiting(InvalidInput):
    """The task does not wait, so it has no place to be put elsewhere from. Nothing was written."""

    def __init__(self, task_id: str, status: str | None) -> None:
        where = "being taken by a listener" if status == "pending" else status or "unknown"
        super().__init__(f"task {task_id} does not wait in line: it is {where}")
        self.task_id, self.status = task_id, status


class WrongRun(InvalidInput):
    """The record of the run is of something else. Nothing was written."""

    def __init__(self, run: str, queue: str, why: str) -> None:
        super().__init__(f"run {run!r} of queue {queue!r}: {why}")
        self.run, self.queue, self.why = run, queue, why


class OldBatch(InvalidInput):
    """The stream has committed a later batch than this one. Nothing was written.

    last: the batch that it has committed last.
    """

    def __init__(self, run: str, queue: str, batch: int, last: int) -> None:
        super().__init__(
            f"stream {run!r} of queue {queue!r} has committed batch {last}, so batch {batch} is too late; "
            "a query with a new checkpoint needs a new name"
        )
        self.run, self.queue, self.batch, self.last = run, queue, batch, last


class NoSuchTask(BluequeError, LookupError):
    """There is no task of that id.

    status: what it was when it was last seen, if it was deleted while somebody waited for it; None:
        it was not seen.
    """

    def __init__(self, task_id: str, status: str | None = None) -> None:
        what = (
            "does not exist"
            if status is None
            else f"was deleted while it was waited for; before, it was {status}"
        )
        super().__init__(f"task {task_id} {what}")
        self.task_id, self.status = task_id, status


class WaitTimedOut(BluequeError, TimeoutError):
    """What was waited for has not ended in that time. It goes on.

    timeout: in seconds. statuses: of those that have not ended, as last seen, by their ids.
    """

    def __init__(self, timeout: float, statuses: Mapping[str, str | None]) -> None:
        one, *others = statuses
        which = f"task {one} has" if not others else f"{len(statuses)} tasks have"
        now = "" if others else f"; it is {statuses[one] or 'not known'}"
        super().__init__(f"{which} not ended within {timeout:g} s{now}")
        self.timeout, self.statuses = timeout, dict(statuses)


class NotFree(BluequeError):
    """What the task needs is taken by others. It is back at the head of its line.

    want: lock, limit (of how many its queue may run) or resources.
    """

    def __init__(self, task_id: str, want: str) -> None:
        super().__init__(f"task {task_id} has to wait: no free {want}")
        self.task_id, self.want = task_id, want


class ConfigRefused(InvalidInput):
    """A configuration file has a mistake, or cannot be read.

    key: the key with the mistake, as `queues.a.retry`; None: the file as a whole.
    """

    def __init__(self, path: str, key: str | None, reason: str) -> None:
        super().__init__(": ".join(part for part in (path, key, reason) if part is not None))
        self.path, self.key, self.reason = path, key, reason


class BacklogRefused(InvalidInput):
    """A file of a backlog cannot be fed: it cannot be read, it has changed, or a row of it can be
    no task.

    file: its name in the backlog. row: which of its rows, or lines, counted from 1; None: it is
        about the whole file.
    """

    def __init__(self, file: str, row: int | None, reason: str, unit: str = "row") -> None:
        super().__init__(f"{file}{f', {unit} {row}' if row is not None else ''}: {reason}")
        self.file, self.row, self.reason = file, row, reason


class FeedTaken(BluequeError):
    """Somebody else feeds, or the feed is no more. Nothing more was written by this feeder.

    node: who feeds now; None: nobody.
    """

    def __init__(self, feed: str, queue: str, node: str | None, was_ours: bool = True) -> None:
        why = (
            f"was taken over by {node}; this feeder has written nothing since"
            if node and was_ours
            else f"is fed by {node}"
            if node
            else "is no more: somebody has forgotten it, or Redis has lost it; nothing was written since"
        )
        super().__init__(f"feed {feed!r} of queue {queue!r} {why}")
        self.feed, self.queue, self.node = feed, queue, node


class NotOwner(BluequeError):
    """The attempt that asks is not (or no longer) the one that owns the task. Nothing was written."""

    def __init__(self, task_id: str, status: str | None, why: str) -> None:
        super().__init__(f"task {task_id} is not ours to change: {why}")
        self.task_id, self.status, self.why = task_id, status, why


class NotRegistered(BluequeError):
    """The registration of this listener is gone or belongs to another instance. Nothing was
    written.
    """

    def __init__(self, node: str, queue: str) -> None:
        super().__init__(f"listener {node} is not registered on queue {queue!r}")
        self.node, self.queue = node, queue


class NodeTaken(BluequeError):
    """Another instance is registered under the same node id. Nothing was written.

    instance, beat: what that registration says; one whose beat stands still is dead.
    """

    def __init__(self, node: str, queue: str, instance: str, beat: int) -> None:
        super().__init__(f"another listener is registered as {node} on queue {queue!r}")
        self.node, self.queue, self.instance, self.beat = node, queue, instance, beat


class RedisAway(BluequeError, ConnectionError):
    """Redis did not answer. Nothing was written."""


class OutcomeUnknown(RedisAway):
    """The connection was lost after the change had been sent: it may or may not have been made.

    task_id: the task concerned, if there is one; `Client.get_task` tells, once Redis is back.
    """

    def __init__(self, message: str, task_id: str | None = None) -> None:
        super().__init__(message)
        self.task_id = task_id


class BatchFailed(BluequeError):
    """One batch of many tasks could not be put into Redis. Why not is its `__cause__`: RedisAway,
    RedisRefused, Contended.

    batch, position: the number of the batch, and the place of its first task in what was given;
        both from 0.
    done: how many tasks before it are in Redis for certain. ids: those of the batch.
    is_unknown: it may be in Redis, as a whole; `Client.get_task` of any of its ids tells, once
    Redis is back. If this is False, nothing of it is there. With keys, the same call again settles
    it.
    """

    def __init__(
        self, batch: int, position: int, ids: list[str], is_unknown: bool, why: BluequeError
    ) -> None:
        fate = "may or may not be there" if is_unknown else "is not there"
        super().__init__(
            f"batch {batch}, of {len(ids)} tasks from position {position} on, {fate}: {why}"
        )
        self.batch, self.position, self.done = batch, position, position
        self.ids, self.is_unknown = ids, is_unknown


class JobFailed(BluequeError):
    """A job of Spark that enqueues, archives or compacts has failed.

    Its `__cause__` is the error of ours that stopped it, such as TooLarge, or else what Spark said,
    at length.
    queue: None: it was for several. run: under which the same can be tried again; None: it has
        none.
    reason: one sentence of what Spark said.
    """

    def __init__(self, queue: str | None, run: str | None, reason: str, fate: str) -> None:
        of_queue = f" for queue {queue!r}" if queue is not None else ""
        of_run = f", run {run!r}" if run is not None else ""
        super().__init__(f"the Spark job{of_queue}{of_run} has failed: {reason}; {fate}")
        self.queue, self.run, self.reason = queue, run, reason


class RunDropped(BluequeError):
    """The run has no record any more, or chunks that were staged for it are gone. Nothing was
    written.

    chunks: how many are gone; 0: the record is.
    """

    def __init__(self, run: str, queue: str, chunks: int = 0) -> None:
        what = (
            "it has no record: it was dropped, or never opened"
            if not chunks
            else (
                f"{chunks} of the chunks that were staged for it are gone: somebody discarded them"
            )
        )
        super().__init__(f"run {run!r} of queue {queue!r}: {what}; run the whole again")
        self.run, self.queue, self.chunks = run, queue, chunks


CLUSTER = {"CROSSSLOT", "MOVED", "ASK"}  # codes that only a node of a cluster answers with


class RedisRefused(BluequeError):
    """Redis answered with an error.

    code: the first word of its answer, as OOM, NOAUTH, NOPERM, READONLY, WRONGTYPE. Of a
        transaction that was discarded it is the first word of the reason, if Redis gave one:
        NOPERM, not EXECABORT.
    command: the refused command and its first argument, which mostly is a key; "" when that is not
        known.
    """

    def __init__(self, answer: str) -> None:
        super().__init__(answer)
        self.answer = answer
        reason = answer.partition("because of: ")[2] if answer.startswith("EXECABORT ") else ""
        self.code = (reason or answer).split(" ", 1)[0]
        self.command = ""

    def __str__(self) -> str:
        if self.code in CLUSTER:
            return f"this is a Redis Cluster, where one transaction cannot reach all keys that Blueque needs ({self.answer})"
        return f"Redis refused{self.command and ' '}{self.command}: {self.answer}"


class Contended(BluequeError):
    """The watched keys changed at every try. Nothing was written."""

    def __init__(self, operation: str, attempts: int) -> None:
        super().__init__(f"{operation}: the keys changed under each of {attempts} attempts")
        self.operation, self.attempts = operation, attempts


class SnapshotGone(BluequeError):
    """What a snapshot held has expired, or was removed, before it was read to the end."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"the snapshot {key} is gone: it has expired, or was removed; take another one and keep it longer"
        )
        self.key = key


class BatchTaken(BluequeError):
    """The batch of this archiver was taken over by another, or is finished. Nothing was written."""

    def __init__(self, queue: str, batch: str) -> None:
        super().__init__(f"batch {batch} of queue {queue!r} is another archiver's now")
        self.queue, self.batch = queue, batch


class ArchiveRefused(BluequeError):
    """The directory cannot be used as an archive. Nothing was deleted from Redis."""

    def __init__(self, directory: str, why: str) -> None:
        super().__init__(f"{directory}: {why}")
        self.directory, self.why = directory, why


class SpoolRefused(BluequeError):
    """The spool directory cannot be used."""


class NoServer(BluequeError):
    """There is no Redis server program on this machine."""

    def __init__(self) -> None:
        super().__init__(
            "no redis-server or valkey-server here: apt install redis-server (or set BLUEQUE_REDIS_SERVER)"
        )


class NoJava(BluequeError):
    """There is no Java on this machine, which Spark needs."""

    def __init__(self, where: str = "here") -> None:
        super().__init__(
            f"Spark needs Java 17 or newer, and there is none {where}: apt install default-jre-headless"
        )


class NotInstalled(BluequeError, ImportError):
    """A package that only a part of Blueque needs is not installed, or is too old.

    what: the part of Blueque that needs it. package: what it needs. extra: the extra of blueque
        that brings it.
    oldest, installed: of a package that is too old, the oldest version that will do, and the
        version found; else empty.
    """

    def __init__(
        self, what: str, package: str, extra: str, oldest: str = "", installed: str = ""
    ) -> None:
        missing = f"{what} needs {package}, which is not installed: pip install 'blueque[{extra}]'"
        too_old = (
            f"{what} needs {package} {oldest} or newer, and {package} {installed} is installed. On a cluster, "
            f"{package} has the version of the cluster: use a cluster with {package} {oldest} or newer"
        )
        super().__init__(too_old if installed else missing)
        self.what, self.package, self.extra = what, package, extra
        self.oldest, self.installed = oldest, installed


class SparkEnded(BluequeError):
    """The Java process of this process's Spark session has ended. Spark starts no second one in the
    same process.

    pid: of the Java process. ending: how that ended, in words.
    """

    def __init__(self, pid: int, ending: str) -> None:
        super().__init__(
            f"the Spark of this process has ended with its Java process {pid} ({ending}): start another in another process"
        )
        self.pid, self.ending = pid, ending


class SubmitFailed(BluequeError):
    """The program that was given to spark-submit has failed.

    code: its exit code, or minus the signal that ended spark-submit. said: the last lines that it
        has printed.
    """

    def __init__(self, code: int, said: str) -> None:
        ending = f"exit code {code}" if code >= 0 else f"signal {-code}"
        words = f"; its last lines:\n{said}" if said else ""
        super().__init__(f"spark-submit ended with {ending}{words}")
        self.code, self.said = code, said
