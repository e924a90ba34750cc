"""All exceptions that Blueque raises. The remarks say what happened and what the caller can do.

A program usually catches InvalidInput, to correct the call, and RedisAway, to try again later.

BluequeError
|
|   ... what was asked for cannot be done; nothing was written
|-- InvalidInput (ValueError)       Nothing was written. Correct the value and call again.
|   |
|   |   ... a value is wrong: correct it
|   |-- InvalidType (TypeError)     The value has a type that cannot be stored.
|   |-- TooLarge                    The value is larger than the limit.
|   |-- IdTaken                     Another task has this id. Choose another one.
|   |-- CycleFound                  Tasks of a workflow would wait for each other. Cut the circle.
|   |-- BacklogRefused              The named file, or its row, cannot be fed. Correct it.
|   |-- ConfigRefused               The named key of blueque.toml has a mistake. Correct it.
|   |
|   |   ... the task, group or schedule is in a state that forbids it
|   |-- WrongQueue                  The task belongs to another queue.
|   |-- WrongState                  The status of the task forbids it. The message says what it is.
|   |-- HasDependents               Others must learn first how it ended. Delete it later.
|   |-- WrongGroup                  The group takes no tasks, or is used otherwise. Use another.
|   `-- WrongSchedule               The schedule is in a state that forbids this. See the message.
|
|   ... it is not there, or not any more
|-- NoSuchTask (LookupError)        There is no task with this id. Do not wait for it.
|-- NoSuchGroup (LookupError)       There is no such group, or not all of a workflow. Open it first,
|                                   or commit it.
|-- NoSuchSchedule (LookupError)    There is no schedule with this name. Define it first.
|-- SnapshotGone                    The snapshot expired. Take another and keep it longer.
|-- EventsGone                      Redis has deleted unread events. Read the tasks themselves.
|
|   ... not yet, or not now: wait, or try again
|-- WaitTimedOut (TimeoutError)     The task has not ended yet and goes on. Wait again.
|-- QueueFull                       Nothing was written: the queue has no room. Try later.
|-- NotFree                         What the task needs is in use. Take another task.
|-- Contended                       Others changed the same keys at each try. Try again.
|
|   ... another program has it: leave it alone
|-- NotOwner                        Nothing was written: another attempt owns the task. Stop work.
|-- NotRegistered                   The listener has no registration. Register again.
|-- Taken                           Another program has it. Leave it to that program.
|
|   ... Redis
|-- RedisAway (ConnectionError)     Redis did not answer, and nothing was written. Try later.
|   `-- OutcomeUnknown              The change was sent, but not answered. Repeat the call: it
|       |                           recognises its own success.
|       `-- NotReplicated           Too few replicas confirmed the change. Look again later, because
|                                   a failover may undo it.
|-- RedisRefused                    Redis answered with an error. Do not repeat the call unchanged.
|
|   ... many tasks at once, and Spark
|-- BatchFailed                     One batch of many tasks failed. See `batch` and `is_unknown`.
|-- JobFailed                       A Spark job failed. The message says what is certain.
|-- SparkEnded                      The Spark of this process has ended. Start another process.
|-- SubmitFailed                    The program that spark-submit ran has failed. Read its output.
|
|   ... this machine lacks something
|-- PayloadRefused                  A payload cannot be decrypted. Give this process the keys.
|-- ArchiveRefused                  The directory cannot be this archive. Choose another.
|-- SpoolRefused                    The spool directory cannot be used. Choose another.
`-- NotInstalled (ImportError)      A package or a program is missing. Install it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

# The exit codes of commands.
BUG = 1  # unexpected error
USAGE = 2  # wrong usage, ambiguous id
MISSING = 3  # no such task, queue, node
NOT_COMPLETE = 4  # an awaited task failed, was cancelled or lost
REFUSED = 5  # the object is not in a state that allows it
UNCONFIRMED = 6  # not confirmed: no terminal to ask on, or the answer was not yes
AWAY = 69  # Redis does not answer, or cannot serve now
ATTENTION = 75  # something needs attention, or try again
FORBIDDEN = 77  # password, ACL, read-only replica
CONFIGURATION = 78  # a mistake in the environment, the file or the server
TIMED_OUT = 124  # timeout, as of coreutils' timeout
INTERRUPTED = 130  # Ctrl-C
PIPE = 141  # the output was closed: SIGPIPE, as a shell reports it


class BluequeError(Exception):
    """The base class of all exceptions that Blueque raises.

    exit_code: the exit code of a command that this error ends.
    """

    exit_code: ClassVar[int] = BUG

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickling would call the class with the message alone.
        return _rebuild, (type(self), self.args), vars(self)


def _rebuild(kind: type[BluequeError], args: tuple[object, ...]) -> BluequeError:
    error = kind.__new__(kind, *args)
    error.args = args  # an OSError takes them in its __init__ only
    return error


class InvalidInput(BluequeError, ValueError):
    """A value was refused. Nothing was written."""

    exit_code = USAGE


class InvalidType(InvalidInput, TypeError):
    """A value has a type that cannot be stored. Nothing was written."""


class TooLarge(InvalidInput):
    """A value is larger than the limit. Nothing was written."""

    def __init__(self, what: str, size: int, limit: int, is_least: bool = False) -> None:
        verb, more = "take" if "parameters" in what else "takes", " or more" if is_least else ""
        advice = "; write a file and return its path" if what == "the result" else ""
        text = f"{what} {verb} {size:,} bytes{more}; the limit is {limit:,} bytes{advice}"
        super().__init__(text)
        self.what, self.size, self.limit = what, size, limit

    @staticmethod
    def is_message(text: str) -> bool:
        """Return whether a text is the message of such an error."""
        return " bytes" in text and "; the limit is " in text


class IdTaken(InvalidInput):
    """Another task has this id: in another queue, or with other parameters. Nothing was written."""

    def __init__(self, task_id: str, why: str) -> None:
        super().__init__(f"there is a task {task_id} already, {why}; choose another id")
        self.task_id = task_id


class CycleFound(InvalidInput):
    """Tasks of a workflow would wait for each other in a circle. Nothing was written.

    path: the keys of the circle; each task waits for the next, and the last for the first.
    """

    def __init__(self, path: list[str]) -> None:
        super().__init__(f"tasks wait for each other: {' -> '.join([*path, path[0]])}")
        self.path = path


class BacklogRefused(InvalidInput):
    """A file of a backlog cannot be fed.

    It cannot be read, it has changed, or one of its rows cannot be a task.
    file: its name in the backlog.
    row: the row or line, from 1; None: the whole file.
    """

    def __init__(self, file: str, row: int | None, reason: str, unit: str = "row") -> None:
        super().__init__(f"{file}{f', {unit} {row}' if row is not None else ''}: {reason}")
        self.file, self.row, self.reason = file, row, reason


class ConfigRefused(InvalidInput):
    """A configuration file has a mistake, or cannot be read.

    key: the key with the mistake, such as `queues.a.retry`; None: the whole file.
    """

    exit_code = CONFIGURATION

    def __init__(self, path: str, key: str | None, reason: str) -> None:
        super().__init__(": ".join(part for part in (path, key, reason) if part is not None))
        self.path, self.key, self.reason = path, key, reason


class WrongQueue(InvalidInput):
    """The task belongs to another queue. Nothing was written."""

    def __init__(self, task_id: str, queue: str) -> None:
        super().__init__(f"task {task_id} is not in queue {queue!r}")
        self.task_id, self.queue = task_id, queue


class WrongState(InvalidInput):
    """The status of the task does not allow the operation. Nothing was written.

    wanted: the operation: delete, requeue, cancel, interrupt, move, bring_forward or unblock.
    status: of the task; None: the task does not exist.
    why: the reason, in words.
    """

    exit_code = REFUSED

    def __init__(
        self, task_id: str, status: str | None, wanted: str, why: str | None = None
    ) -> None:
        if why is None and wanted == "requeue" and status == "complete":
            why = "a complete task does not run again: enqueue a new one"
        self.why = why or (f"it is {status}" if status else "it does not exist")
        super().__init__(f"task {task_id} {_REFUSALS[wanted]}: {self.why}")
        self.task_id, self.status, self.wanted = task_id, status, wanted


_REFUSALS = {
    "delete": "cannot be deleted",
    "requeue": "cannot be put in line again",
    "cancel": "cannot be cancelled",
    "interrupt": "cannot be interrupted",
    "move": "does not wait in line",
    "bring_forward": "is not scheduled",
    "unblock": "does not wait for other tasks",
}


class HasDependents(InvalidInput):
    """The task cannot be deleted: others have yet to learn how it ended. Nothing was written.

    is_group: True: its group has not recorded the end yet. False: other tasks wait for it.
    """

    exit_code = REFUSED

    def __init__(self, task_id: str, is_group: bool = False) -> None:
        why = "other tasks wait for it, or will if they are requeued"
        if is_group:
            why = "its group has not noted its end yet"
        super().__init__(f"task {task_id} cannot be deleted: {why}")
        self.task_id, self.is_group = task_id, is_group


class WrongGroup(InvalidInput):
    """The state or the use of the group does not allow this. Nothing was written.

    state: open, closed, ended, making or cancelled; None: the state is not the reason.
    """

    exit_code = REFUSED

    def __init__(self, group: str, why: str, state: str | None = None) -> None:
        super().__init__(f"group {group!r}: {why}")
        self.group, self.why, self.state = group, why, state


class WrongSchedule(InvalidInput):
    """The state of the schedule does not allow this. Nothing was written."""

    exit_code = REFUSED

    def __init__(self, schedule: str, why: str) -> None:
        super().__init__(f"schedule {schedule!r}: {why}")
        self.schedule, self.why = schedule, why


class NoSuchTask(BluequeError, LookupError):
    """There is no task with this id.

    status: the last known status, if the task was deleted during the wait; else None.
    key: in words, the key and workflow of an id from `Workflow.id_of`; else None.
    """

    exit_code = MISSING

    def __init__(self, task_id: str, status: str | None = None, key: str | None = None) -> None:
        what = (
            f"with the key {key} does not exist: it was not added"
            if key
            else "does not exist"
            if status is None
            else f"was deleted during the wait; its last status was {status}"
        )
        super().__init__(f"task {task_id} {what}")
        self.task_id, self.status, self.key = task_id, status, key


class NoSuchGroup(BluequeError, LookupError):
    """There is no group with this name. Nothing was written.

    is_making: a workflow has this name, but not all of its tasks are in Redis yet.
    """

    exit_code = MISSING

    def __init__(
        self, group: str, is_making: bool = False, is_joined: bool = False, is_lost: bool = False
    ) -> None:
        why = f"there is no group {group!r}"
        if is_making:
            why = f"workflow {group!r} is making: not all of its tasks are there yet"
        elif is_joined:
            why += f"; open it first: client.group({group!r}).open()"
        elif is_lost:  # between two transactions of one call
            why += " any more, as after a failover of Redis; make the same call again"
        super().__init__(why)
        self.group, self.is_making = group, is_making


class NoSuchSchedule(BluequeError, LookupError):
    """There is no schedule with this name. Nothing was written."""

    exit_code = MISSING

    def __init__(self, schedule: str) -> None:
        super().__init__(f"there is no schedule {schedule!r}")
        self.schedule = schedule


class SnapshotGone(BluequeError):
    """The snapshot expired or was removed before all of it was read."""

    exit_code = ATTENTION

    def __init__(self, key: str) -> None:
        super().__init__(
            f"the snapshot {key} is gone: it has expired, or was removed; take another one and keep it longer"
        )
        self.key = key


class EventsGone(BluequeError):
    """Redis has deleted events that were not read: a queue keeps about 10,000.

    place: the position in the stream after which events are missing.
    """

    exit_code = ATTENTION

    def __init__(self, queue: str, place: str) -> None:
        super().__init__(
            f"the events of queue {queue!r} after {place} are gone: a queue keeps about 10,000. Read finished tasks with "
            "blueque.spark.read, or from the archive. Then start a new checkpoint, or continue with failOnDataLoss=false"
        )
        self.queue, self.place = queue, place


class WaitTimedOut(BluequeError, TimeoutError):
    """The tasks did not end within the timeout. They continue.

    timeout: in seconds.
    statuses: the last known status of each task that has not ended, by id. From `Queue.join`: what
        is left in each queue, by name.
    """

    exit_code = TIMED_OUT

    def __init__(
        self, timeout: float, statuses: Mapping[str, str | None], message: str | None = None
    ) -> None:
        self.timeout, self.statuses = timeout, dict(statuses)
        if message is not None:
            super().__init__(message)
            return
        first, *others = statuses
        which = f"task {first} has" if not others else f"{len(statuses)} tasks have"
        now = "" if others else f"; it is {statuses[first] or 'not known'}"
        super().__init__(f"{which} not ended within {timeout:g} s{now}")


class QueueFull(BluequeError):
    """The queue has no room for the new tasks. Nothing was written.

    max_pending: how many tasks may be in line.
    pending: how many are in line.
    tasks: how many were to be added.
    discards: whether the queue discards its oldest tasks to make room.
    excess: how many tasks must be discarded to make room; None: the queue does not discard, or it
        would not be enough.
    """

    exit_code = ATTENTION

    def __init__(
        self, queue: str, max_pending: int, pending: int, tasks: int, discards: bool = False
    ) -> None:
        what = "the new task does not fit" if tasks == 1 else f"{tasks:,} new tasks do not fit"
        waiting = "1 pending task" if pending == 1 else f"{pending:,} pending tasks"
        super().__init__(
            f"queue {queue!r} has {waiting}, and its max_pending is {max_pending:,}: {what}"
        )
        self.queue, self.max_pending, self.pending = queue, max_pending, pending
        self.tasks, self.discards = tasks, discards
        can_fit = discards and tasks <= max_pending
        self.excess = pending + tasks - max_pending if can_fit else None


class NotFree(BluequeError):
    """What the task needs is in use, so it cannot run now. It is back at the head of its line.

    want: lock, limit (how many tasks of its queue may run) or resources.
    """

    exit_code = REFUSED

    def __init__(self, task_id: str, want: str) -> None:
        super().__init__(f"task {task_id} has to wait: no free {want}")
        self.task_id, self.want = task_id, want


class Contended(BluequeError):
    """Other programs changed the watched keys at every try. Nothing was written."""

    exit_code = ATTENTION

    def __init__(self, operation: str, attempts: int) -> None:
        super().__init__(f"{operation}: other clients changed the keys at each of {attempts} tries")
        self.operation, self.attempts = operation, attempts


class NotOwner(BluequeError):
    """The attempt does not own the task, or no longer does. Nothing was written."""

    exit_code = REFUSED

    def __init__(self, task_id: str, status: str | None, why: str) -> None:
        super().__init__(f"task {task_id} does not belong to this process: {why}")
        self.task_id, self.status, self.why = task_id, status, why


class NotRegistered(BluequeError):
    """The listener is not registered, or another instance is. Nothing was written."""

    exit_code = REFUSED

    def __init__(self, node: str, queue: str) -> None:
        super().__init__(f"listener {node} is not registered on queue {queue!r}")
        self.node, self.queue = node, queue


class Taken(BluequeError):
    """Another program has the node id, feed, batch or directory. Nothing was written.

    holder: that program, as a node, an instance or a process id; None: it is unknown or gone.
    """

    exit_code = REFUSED

    def __init__(self, message: str, holder: str | None = None) -> None:
        super().__init__(message)
        self.holder = holder


class RedisAway(BluequeError, ConnectionError):
    """Redis did not answer. Nothing was written."""

    exit_code = AWAY


class OutcomeUnknown(RedisAway):
    """The connection was lost after the change was sent. Redis may or may not have made it.

    task_id: of the task, if the change concerns one. `Client.get_task` shows what became of it.
    """

    def __init__(self, message: str, task_id: str | None = None) -> None:
        super().__init__(message)
        self.task_id = task_id


class NotReplicated(OutcomeUnknown):
    """The change is in Redis, but too few replicas confirmed it in time.

    confirmed: how many did.
    replicas: how many were required.
    refusal: why Redis did not ask them; None: it did.
    """

    def __init__(
        self,
        operation: str,
        task_id: str | None,
        confirmed: int,
        replicas: int,
        seconds: float,
        refusal: RedisRefused | None = None,
    ) -> None:
        have = f"only {confirmed} of {replicas} replicas have" if confirmed else "no replica has"
        within = (
            f" within {seconds:g} s (replicas = {replicas})" if refusal is None else f": {refusal}"
        )
        super().__init__(
            f"{operation}: the change is in Redis, but {have} confirmed it{within}", task_id
        )
        self.confirmed, self.replicas, self.refusal = confirmed, replicas, refusal


# Redis refuses with one of these for a while, before it has changed anything: a call tries again
# within its patience, and RedisAway is what remains.
NOT_NOW = {"NOREPLICAS", "MISCONF", "BUSY", "READONLY"}
OURS = {"TLS", "SENTINEL"}  # codes that no server gives: the rest of the answer is a sentence
CLUSTER = {"CROSSSLOT", "MOVED", "ASK"}  # only a node of a cluster answers with these codes


class RedisRefused(BluequeError):
    """Redis answered with an error.

    code: the first word of the answer, such as OOM, NOAUTH, NOPERM, READONLY or WRONGTYPE. Of a
        discarded transaction, that of the reason: NOPERM, not EXECABORT.
    command: the refused command with its first argument, usually a key; "" if unknown.
    sentinel: host and port of the Sentinel that answered; "" if Redis did.
    """

    def __init__(self, answer: str) -> None:
        answer = answer.removesuffix(".")  # the sentence of a message goes on
        super().__init__(answer)
        self.sentinel = ""
        self.answer = answer
        reason = answer.partition("because of: ")[2] if answer.startswith("EXECABORT ") else ""
        self.code = (reason or answer).split(" ", 1)[0]
        self.command = ""

    @property
    def is_wrong_type(self) -> bool:
        """Whether a key has a wrong type: another program has written it."""
        return self.code == "WRONGTYPE"

    @property
    def concerns_keys(self) -> bool:
        """Whether the keys of the command are the reason, so that other keys may still work.

        They have a wrong type, or this user has no right to them.
        """
        return self.is_wrong_type or self.code == "NOPERM"

    def __str__(self) -> str:
        if self.code in OURS:
            return self.answer.partition(" ")[2]
        if self.code in CLUSTER:
            return f"this is a Redis Cluster, where one transaction cannot reach all keys that Blueque needs ({self.answer})"
        who = f"the Sentinel at {self.sentinel}" if self.sentinel else "Redis"
        return f"{who} refused{self.command and ' '}{self.command}: {self.answer}"


class BatchFailed(BluequeError):
    """One batch of many tasks could not be written.

    Its `__cause__` is RedisAway, RedisRefused or Contended.
    batch: its number, from 0.
    position: the place of its first task in the input, from 0.
    done: how many tasks before the batch are certainly in Redis.
    ids: of the tasks of the batch.
    is_unknown: True: all of the batch may be in Redis; `Client.get_task` with any of its ids shows
        whether it is, once Redis is back. False: none of it is. With keys, the same call again
        makes what is missing.
    """

    exit_code = AWAY

    def __init__(
        self, batch: int, position: int, ids: list[str], is_unknown: bool, why: BluequeError
    ) -> None:
        fate = "may or may not be there" if is_unknown else "is not there"
        fate = "may be taken back" if isinstance(why, NotReplicated) else fate
        super().__init__(
            f"batch {batch}, of {len(ids)} task{'' if len(ids) == 1 else 's'} from position {position} on, {fate}: {why}"
        )
        self.batch, self.position, self.done = batch, position, position
        self.ids, self.is_unknown = ids, is_unknown


class JobFailed(BluequeError):
    """A Spark job that enqueues or archives has failed.

    Its `__cause__` is the error of Blueque that stopped it, such as TooLarge, or the error of Spark.
    queue: None: several queues.
    group: the group that the tasks join; None: none.
    reason: one sentence of the error.
    """

    exit_code = ATTENTION

    def __init__(self, queue: str | None, group: str | None, reason: str, fate: str) -> None:
        of_queue = f" for queue {queue!r}" if queue is not None else ""
        of_group = f", group {group!r}" if group is not None else ""
        super().__init__(f"the Spark job{of_queue}{of_group} has failed: {reason}; {fate}")
        self.queue, self.group, self.reason = queue, group, reason


class SparkEnded(BluequeError):
    """The Java process of the Spark session has ended. This process cannot start another session.

    pid: of the Java process.
    ending: how it ended, in words.
    """

    exit_code = ATTENTION

    def __init__(self, pid: int, ending: str) -> None:
        super().__init__(
            f"Spark has ended with its Java process {pid} ({ending}): start it in a new process"
        )
        self.pid, self.ending = pid, ending


class SubmitFailed(BluequeError):
    """The program that spark-submit ran has failed.

    code: its exit code, or minus the signal that ended spark-submit.
    said: its last lines of output.
    """

    exit_code = ATTENTION

    def __init__(self, code: int, said: str) -> None:
        ending = f"exit code {code}" if code >= 0 else f"signal {-code}"
        words = f"; its last lines:\n{said}" if said else ""
        super().__init__(f"spark-submit ended with {ending}{words}")
        self.code, self.said = code, said


class ArchiveRefused(BluequeError):
    """The directory cannot be used as an archive. Nothing was deleted from Redis."""

    exit_code = CONFIGURATION

    def __init__(self, directory: str, why: str) -> None:
        super().__init__(f"{directory}: {why}")
        self.directory, self.why = directory, why


class PayloadRefused(BluequeError):
    """A payload cannot be read: this process does not have the key, or the payload is damaged.

    owner: the id of its task, or `schedule NAME`.
    field: parameters, result, checkpoint, context or log.
    key: the name of the key that encrypts it; None: it is compressed only.
    is_damaged: this process has the key, or needs none, but the payload does not fit.
    """

    exit_code = CONFIGURATION
    words = ("[encrypted: ", "[damaged]")  # how `shown` begins

    def __init__(self, owner: str, field: str, key: str | None, is_damaged: bool = False) -> None:
        of = owner if " " in owner else f"task {owner}"
        if is_damaged:
            fit = "is no compressed text" if key is None else f"does not fit payload key {key}"
            why = f"what Redis has for the {field} of {of} {fit}: it was changed, or is that of another task or field"
        else:
            why = (
                f"the {field} of {of} can be read only with payload key {key}, which this process does not have: name a "
                "file that has it as `keys` in [payloads] of blueque.toml, or in BLUEQUE_PAYLOADS_KEYS"
            )
        super().__init__(why)
        self.owner, self.field, self.key, self.is_damaged = owner, field, key, is_damaged

    @property
    def shown(self) -> str:
        """What people see instead of the payload: [encrypted: k1.0a1b2c3d], or [damaged]."""
        encrypted, damaged = self.words
        return damaged if self.is_damaged else f"{encrypted}{self.key}]"


class SpoolRefused(BluequeError):
    """The spool directory cannot be used."""

    exit_code = CONFIGURATION


class NotInstalled(BluequeError, ImportError):
    """A required package or program is not installed, or too old.

    what: the part of Blueque that needs it.
    package: its name.
    extra: the extra of blueque that installs it.
    how: how to install it, if no extra does.
    oldest, installed: of a package that is too old: the oldest version that works, and the
        installed one; else "".
    """

    exit_code = CONFIGURATION

    def __init__(
        self,
        what: str,
        package: str,
        extra: str = "",
        oldest: str = "",
        installed: str = "",
        how: str = "",
    ) -> None:
        install = how or f"in the clone of Blueque: pip install '.[{extra}]'"
        missing = f"{what} needs {package}, which is not installed; {install}"
        too_old = (
            f"{what} needs {package} {oldest} or newer, and {package} {installed} is installed. On a cluster, "
            f"{package} has the version of the cluster: use a cluster with {package} {oldest} or newer"
        )
        super().__init__(too_old if installed else missing)
        self.what, self.package, self.extra = what, package, extra
        self.oldest, self.installed = oldest, installed
