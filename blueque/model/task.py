"""A task in Redis: the fields of its hash, and a read-only snapshot of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from blueque.errors import InvalidInput
from blueque.model.cron import find_zone
from blueque.model.encoding import decode, due, integer, is_sealed, number
from blueque.model.labels import read_context
from blueque.model.retry import Retry
from blueque.model.task_id import R_co, TaskId

if TYPE_CHECKING:
    from datetime import datetime


# The fields of a task hash. Type and meaning as in docs/protocol.md, "Task"; every value is text in
# Redis.
FIELDS: dict[str, Callable[[str], Any]] = {
    "status": str,
    "queue": str,
    "parameters": str,
    "parameters_encoding": str,
    "retry": Retry.parse,
    "time_limit": number,
    "stall_limit": number,
    "memory_limit": integer,
    "grace": number,
    "lead": number,
    "priority": integer,
    "start_before": number,
    "expired_to": str,
    "needs": str,
    "key": str,
    "keep": integer,
    "enqueued_by": str,
    "title": str,
    "tags": str.split,
    "context": read_context,
    "producer": str,
    "feed": str,
    "after": integer,
    "dependents": integer,
    "broken": str,
    "broken_by": str,
    "inputs": integer,
    "parents": str.split,
    "group": str,
    "spawned_by": str,
    "spawned": integer,
    "schedule": str,
    "planned": integer,
    "timezone": str,
    "result": str,
    "result_encoding": str,
    "error": str,
    "error_type": str,
    "traceback": str,
    "exit_code": integer,
    "signal": str,
    "memory_peak": integer,
    "cpu_seconds": number,
    "leaked": integer,
    "lost_node": str,
    "last_seen": number,
    "node": str,
    "pid": integer,
    "pid_start": integer,
    "boot": str,
    "ns": str,
    "files": str,
    "devices": str,
    "stack": str,
    "token": str,
    "attempt": integer,
    "lock": str,
    "counted": integer,
    "failures": integer,
    "interruptions": integer,
    "last_error": str,
    "last_error_type": str,
    "last_files": str,
    "finished_by": str,
    "reclaimed_node": str,
    "requeued": str,
    "queued": number,
    "events": integer,
    "cancel": number,
    "cancelled_by": str,
    "cancel_reason": str,
    "interrupt": str,
    "interrupted_at": number,
    "interrupted_by": str,
    "interrupt_reason": str,
    "noted": str,
    "progress": str,
    "progress_at": number,
    "progress_first": str,
    "eta": due,
    "created": number,
    "started": number,
    "finished": number,
    "updated": number,
}


T = TypeVar("T")
Status = Literal[
    "blocked", "scheduled", "pending", "reserved", "started", "complete", "failed", "cancelled"
]


class _Field(Generic[T]):
    """An attribute of a task that reads the field of its name. None: it is missing or malformed."""

    def __init__(self, meaning: str = "") -> None:
        self.__doc__ = meaning

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, task: Task[Any] | None, owner: type) -> T | None:
        if task is None:
            return self  # type: ignore[return-value]  # of the class itself: for help()
        return task._get(self._name)

    def __set__(self, task: Task, value: object) -> None:
        raise AttributeError(f"{self._name} of a task cannot be set: it is a snapshot")


class Task(Generic[R_co]):
    """A snapshot of one task. It never changes; fetch another to see a later state.

    An attribute without a value is None. `R`: the type of the result.
    """

    __slots__ = ("_fields", "_wait", "id")

    def __init__(
        self, task_id: str, fields: Mapping[str, str], wait: Callable[..., Task] | None = None
    ) -> None:
        self.id = task_id
        self._fields = dict(fields)
        self._wait = wait

    def __getstate__(self) -> object:
        # A copy, or a task in another process, has no client to wait with.
        state: Any = object.__getstate__(self)  # a pair, for it has slots
        return state[0], {**state[1], "_wait": None}

    def __repr__(self) -> str:
        if self.status is None and self.queue is None:
            return f"<Task {self.id} unknown>"
        return f"<Task {self.id} {self.status} in {self.queue!r}>"

    @property
    def fields(self) -> dict[str, str]:
        """All fields of the hash as text, including those of other programs."""
        return dict(self._fields)

    def wait(self, timeout: float | None = None) -> Task[R_co]:
        """Block until the task has ended and return its new snapshot. This object does not change.

        Works for a task from `Client.get_task` or `Client.wait`.
        timeout: in seconds; None: no limit.
        Raises InvalidInput for any other task; else as `Client.wait`.
        """
        if self._wait is None:
            raise InvalidInput(f"task {self.id} has no client: use client.wait({self.id!r})")
        return self._wait(self.id, timeout)

    status = _Field[Status](
        "blocked, scheduled, pending, reserved, started, complete, failed or cancelled."
    )
    queue = _Field[str]()

    @property
    def parameters(self) -> Any:
        """The parameters: a str unchanged, else from JSON (tuples are lists). Raises
        PayloadRefused.
        """
        return self._decoded("parameters")

    retry = _Field[Retry]("Its own retry policy; None: it has none, or a malformed one.")
    priority = _Field[int]("-100 to 100, higher is first; None is 0.")
    start_before = _Field[float]("When it is cancelled or moved if it has not started.")
    expired_to = _Field[str]("The queue to which it moves then; None: it is cancelled.")
    key = _Field[str]("The same key in the same queue is the same task.")
    title = _Field[str]("What it is, for people.")
    tags = _Field[list[str]]("The tags by which it is found; None: it has none.")

    @property
    def context(self) -> dict[str, Any] | None:
        """The context from its producer, such as the id of a trace, or None. Raises PayloadRefused."""
        text = self._fields.get("context")
        if not is_sealed(text):
            found: dict[str, Any] | None = self._get("context")
            return found
        from blueque.model.payloads import open_whole, owner_of  # here: few are encrypted

        owner = owner_of(self.id, self._fields, "context")
        return Task(self.id, {"context": open_whole(text or "", owner, "context")})._get("context")

    producer = _Field[str](
        "The process that enqueued it, as user@host[pid]. A task that another task or a schedule has made has none."
    )
    feed = _Field[str]("The feed that made it.")
    group = _Field[str]("The group of tasks that it has joined.")
    schedule = _Field[str]("The name of the schedule that has made it.")

    @property
    def planned(self) -> datetime | None:
        """The time for which its schedule planned it, in the time zone of the schedule."""
        seconds, zone = self._get("planned"), self._get("timezone")
        if seconds is None:
            return None
        from datetime import UTC, datetime

        try:
            planned = datetime.fromtimestamp(seconds, UTC)
        except (OverflowError, ValueError, OSError):  # another program has written it
            return None
        try:
            return planned if zone is None else planned.astimezone(find_zone(zone))
        except (InvalidInput, OverflowError):  # this host does not know the zone
            return planned

    after = _Field[int]("How many other tasks it waits for, or waited for.")
    dependents = _Field[int](
        "1: other tasks wait for it. None: there are none, or they know how it has ended."
    )
    broken = _Field[str](
        "cancel: it is cancelled if it cannot get what it waits for. None: it goes on waiting."
    )
    broken_by = _Field[str]("The task that caused its cancellation.")

    @property
    def inputs(self) -> Any:  # an int or None; a RunningTask has the results in its place
        """How many bytes of results of other tasks it has so far. None: it wants none."""
        return self._get("inputs")

    parents = _Field[list[str]](
        "The ids of the tasks whose results it is given, in the order of `after`; None: it wants none."
    )
    time_limit = _Field[float]("How long it may run, in seconds.")
    stall_limit = _Field[float]("How long it may run without progress.")
    grace = _Field[float]("Seconds between SIGTERM and SIGKILL when it is ended.")
    lead = _Field[float]("Seconds from the warning signal to a limit.")
    memory_limit = _Field[int]("Bytes that its processes may take together.")

    @property
    def result(self) -> R_co:
        """What the handler returned, with the types of JSON. None: it is not complete.

        For the id that `enqueue` of a `blueque.handler` returned, it has the class in the
        annotation of the handler.
        Raises PayloadRefused; InvalidType if it does not fit the class.
        """
        found: Any = self._decoded("result")
        converter = self.id.converter if isinstance(self.id, TaskId) else None
        if converter is None or "result" not in self._fields:
            return found
        result: R_co = converter.from_json(found, "the result")
        return result

    error = _Field[str]("Why it failed, in a sentence.")
    error_type = _Field[str](
        "The class of the exception, or: exit, signal, memory, result, stopped, lost, poison, or the limit it broke."
    )
    traceback = _Field[str]()
    exit_code = _Field[int]()
    signal = _Field[str]("The name of the signal that ended the process, as SIGKILL.")
    memory_peak = _Field[int](
        "The most bytes that its processes took together, in its last attempt."
    )
    cpu_seconds = _Field[float]()
    leaked = _Field[int](
        "How many of its processes were still there after its end, and were killed."
    )
    lost_node = _Field[str]("The listener that had it when it was lost.")
    last_seen = _Field[float](
        "When that listener was last seen alive, in Unix seconds, as are all times here."
    )
    node = _Field[str]("The id of the listener that reserved it.")
    pid = _Field[int]("The process that runs or ran it, on that node.")
    files = _Field[str]("The directory of its last attempt, `[host]:[directory]`.")
    attempt = _Field[int]("The number of its last attempt; 0 before the first.")
    failures = _Field[int]("How many of its attempts failed and were retried.")
    interruptions = _Field[int]("How many of its attempts were lost.")
    last_error = _Field[str]("Why the attempt before this one ended, in a sentence.")
    last_error_type = _Field[str]()
    last_files = _Field[str](
        "The directory of an earlier attempt that was lost or retried. It may hold a late result."
    )
    token = _Field[str](
        "The random mark of its last attempt. The listener that has it owns the attempt."
    )
    queued = _Field[float]("When it was last put in line again, after an attempt or by a person.")
    requeued = _Field[str]("A random mark of its last `requeue`.")
    cancel = _Field[float]("When its cancellation was requested while it ran.")
    cancelled_by = _Field[str]()
    cancel_reason = _Field[str]()

    @property
    def is_interrupted(self) -> bool:
        """Whether `interrupt` is ending its attempt, to hand the task back."""
        order = self._get("interrupt")
        return self.status == "started" and order is not None and order == self.token

    interrupted_at = _Field[float]("When a person last interrupted it.")
    interrupted_by = _Field[str]()
    interrupt_reason = _Field[str]()

    @property
    def progress(self) -> Any:  # a str or None; a RunningTask has a method in its place
        """Its progress in its own words, such as 450/1500 frames."""
        return self._get("progress")

    progress_at = _Field[float]()
    progress_first = _Field[str](
        "The first progress of this attempt: its time in Unix seconds, a space, its words."
    )
    eta = _Field[float]("When it is due.")
    created = _Field[float]()
    started = _Field[float]()
    finished = _Field[float]()
    updated = _Field[float]()

    def for_people(self) -> Task[R_co]:
        """Return the task with its compressed and encrypted texts made readable.

        Without the key, a text is shown as [encrypted: k1.0a1b2c3d].
        """
        names = ("parameters_encoding", "result_encoding", "context")
        if not any(is_sealed(self._fields.get(name)) for name in names):
            return self
        from blueque.model.payloads import shown  # here: few are encrypted

        return Task(self.id, shown(self.id, self._fields), self._wait)

    def plain(self, name: str) -> tuple[str | None, str | None]:
        """Return the text of parameters or result, and `json` or None. Raises PayloadRefused."""
        text, encoding = self._fields.get(name), self._fields.get(f"{name}_encoding")
        if not is_sealed(encoding):
            return text, encoding
        from blueque.model.payloads import open_field  # here: few are encrypted

        return open_field(self.id, self._fields, name)

    def _decoded(self, name: str) -> Any:
        return decode(*self.plain(name))

    def _get(self, name: str) -> Any:
        text = self._fields.get(name)
        if text is None:
            return None
        try:
            return FIELDS[name](text)
        except ValueError:  # malformed; written by another program
            return None
