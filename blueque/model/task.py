"""A task in Redis: the fields of its hash, and a read-only snapshot of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from blueque.errors import InvalidInput
from blueque.model.cron import find_zone
from blueque.model.encoding import decode
from blueque.model.labels import read_context
from blueque.model.retry import Retry

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
    "time_limit": float,
    "stall_limit": float,
    "memory_limit": int,
    "grace": float,
    "lead": float,
    "priority": int,
    "start_before": float,
    "expired_to": str,
    "needs": str,
    "key": str,
    "keep": int,
    "enqueued_by": str,
    "title": str,
    "tags": str.split,
    "context": read_context,
    "producer": str,
    "run": str,
    "after": int,
    "dependents": int,
    "broken": str,
    "broken_by": str,
    "inputs": int,
    "parents": str.split,
    "group": str,
    "spawned_by": str,
    "spawned": int,
    "schedule": str,
    "planned": int,
    "timezone": str,
    "result": str,
    "result_encoding": str,
    "error": str,
    "error_type": str,
    "traceback": str,
    "exit_code": int,
    "signal": str,
    "memory_peak": int,
    "cpu_seconds": float,
    "leaked": int,
    "lost_node": str,
    "last_seen": float,
    "node": str,
    "pid": int,
    "pid_start": int,
    "boot": str,
    "ns": str,
    "files": str,
    "devices": str,
    "stack": str,
    "token": str,
    "attempt": int,
    "lock": str,
    "counted": int,
    "failures": int,
    "interruptions": int,
    "last_error": str,
    "last_error_type": str,
    "last_files": str,
    "finished_by": str,
    "reclaimed_node": str,
    "requeued": str,
    "queued": float,
    "events": int,
    "cancel": float,
    "cancelled_by": str,
    "cancel_reason": str,
    "interrupt": str,
    "interrupted_at": float,
    "interrupted_by": str,
    "interrupt_reason": str,
    "noted": str,
    "progress": str,
    "progress_at": float,
    "eta": float,
    "created": float,
    "started": float,
    "finished": float,
    "updated": float,
}


class Task:
    """The state of one task at one instant. Fetch another to see a later state. An attribute without
    a value is None.
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
        return f"<Task {self.id} {self.status} in {self.queue!r}>"

    @property
    def fields(self) -> dict[str, str]:
        """Every field of the hash, as text, those of other programs too."""
        return dict(self._fields)

    def wait(self, timeout: float | None = None) -> Task:
        """Block until the task has ended and return it; this object does not change.

        Only for a task from `Client.get_task` or `Client.wait`. timeout: in seconds. Raises as
        `Client.wait`.
        """
        if self._wait is None:
            raise InvalidInput(f"task {self.id} does not know its client: client.wait({self.id!r})")
        return self._wait(self.id, timeout)

    @property
    def status(self) -> str | None:
        """blocked, scheduled, pending, reserved, started, complete, failed or cancelled."""
        return self._get("status")

    @property
    def queue(self) -> str | None:
        return self._get("queue")

    @property
    def parameters(self) -> Any:
        """What was enqueued: a string as it was, anything else as JSON makes it (a tuple comes back
        as a list).
        """
        return decode(self._fields.get("parameters"), self._fields.get("parameters_encoding"))

    @property
    def retry(self) -> Retry | None:
        """Its own retry policy; None: it has none, or a malformed one."""
        return self._get("retry")

    @property
    def priority(self) -> int | None:
        """-100 to 100, higher is first; None is 0."""
        return self._get("priority")

    @property
    def start_before(self) -> float | None:
        """When it is cancelled or moved if it has not started."""
        return self._get("start_before")

    @property
    def expired_to(self) -> str | None:
        """The queue to which it moves then; None: it is cancelled."""
        return self._get("expired_to")

    @property
    def key(self) -> str | None:
        """The same key in the same queue is the same task."""
        return self._get("key")

    @property
    def title(self) -> str | None:
        """What it is, for people."""
        return self._get("title")

    @property
    def tags(self) -> list[str] | None:
        """The tags by which it is found; None: it has none."""
        return self._get("tags")

    @property
    def context(self) -> dict[str, Any] | None:
        """What its producer has given beside the parameters, such as the id of a trace; None:
        nothing.
        """
        return self._get("context")

    @property
    def producer(self) -> str | None:
        """The process that enqueued it, as user@host[pid]. A task that another task or a schedule
        has made has none.
        """
        return self._get("producer")

    @property
    def run(self) -> str | None:
        """The run that created it."""
        return self._get("run")

    @property
    def schedule(self) -> str | None:
        """The name of the schedule of which it comes."""
        return self._get("schedule")

    @property
    def planned(self) -> datetime | None:
        """The time for which its schedule has planned it, in the zone of the schedule."""
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

    @property
    def after(self) -> int | None:
        """How many other tasks it waits for, or waited for."""
        return self._get("after")

    @property
    def dependents(self) -> int | None:
        """1: other tasks wait for it. None: there are none, or they know how it has ended."""
        return self._get("dependents")

    @property
    def broken(self) -> str | None:
        """cancel: it is cancelled if it cannot get what it waits for. None: it goes on waiting."""
        return self._get("broken")

    @property
    def broken_by(self) -> str | None:
        """The task that caused its cancellation."""
        return self._get("broken_by")

    @property
    def inputs(self) -> Any:  # an int or None; a RunningTask has the results in its place
        """How many bytes of results it was given so far of the tasks that it waits for. None: it
        wants none.
        """
        return self._get("inputs")

    @property
    def parents(self) -> list[str] | None:
        """The ids of the tasks whose results it is given, in the order of `after`; None: it wants
        none.
        """
        return self._get("parents")

    @property
    def time_limit(self) -> float | None:
        """How long it may run, in seconds."""
        return self._get("time_limit")

    @property
    def stall_limit(self) -> float | None:
        """How long it may run without progress."""
        return self._get("stall_limit")

    @property
    def grace(self) -> float | None:
        """Seconds between SIGTERM and SIGKILL when it is ended."""
        return self._get("grace")

    @property
    def lead(self) -> float | None:
        """Seconds from the warning signal to a limit."""
        return self._get("lead")

    @property
    def memory_limit(self) -> int | None:
        """Bytes that its processes may take together."""
        return self._get("memory_limit")

    @property
    def result(self) -> Any:
        """What the handler returned; see `parameters` for the types."""
        return decode(self._fields.get("result"), self._fields.get("result_encoding"))

    @property
    def error(self) -> str | None:
        """Why it failed, in a sentence."""
        return self._get("error")

    @property
    def error_type(self) -> str | None:
        """The class of the exception, or: exit, signal, memory, result, stopped, lost, poison, or
        the limit it broke.
        """
        return self._get("error_type")

    @property
    def traceback(self) -> str | None:
        return self._get("traceback")

    @property
    def exit_code(self) -> int | None:
        return self._get("exit_code")

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended the process, as SIGKILL."""
        return self._get("signal")

    @property
    def memory_peak(self) -> int | None:
        """The most bytes that its processes took together, in its last attempt."""
        return self._get("memory_peak")

    @property
    def cpu_seconds(self) -> float | None:
        return self._get("cpu_seconds")

    @property
    def leaked(self) -> int | None:
        """How many of its processes were still there after its end, and were killed."""
        return self._get("leaked")

    @property
    def lost_node(self) -> str | None:
        """The listener that had it when it was lost."""
        return self._get("lost_node")

    @property
    def last_seen(self) -> float | None:
        """When that listener was last seen alive, in Unix seconds, as are all times here."""
        return self._get("last_seen")

    @property
    def node(self) -> str | None:
        """The id of the listener that reserved it."""
        return self._get("node")

    @property
    def pid(self) -> int | None:
        """The process that runs or ran it, on that node."""
        return self._get("pid")

    @property
    def files(self) -> str | None:
        """The directory of its last attempt, `[host]:[directory]`."""
        return self._get("files")

    @property
    def attempt(self) -> int | None:
        """The number of its last attempt; 0 before the first."""
        return self._get("attempt")

    @property
    def failures(self) -> int | None:
        """How many of its attempts failed and were retried."""
        return self._get("failures")

    @property
    def interruptions(self) -> int | None:
        """How many of its attempts were lost."""
        return self._get("interruptions")

    @property
    def last_error(self) -> str | None:
        """Why the attempt before this one ended, in a sentence."""
        return self._get("last_error")

    @property
    def last_error_type(self) -> str | None:
        return self._get("last_error_type")

    @property
    def last_files(self) -> str | None:
        """The directory of an earlier attempt that was lost or retried. It may hold a late result."""
        return self._get("last_files")

    @property
    def token(self) -> str | None:
        """The random mark of its last attempt. The listener that has it owns the attempt."""
        return self._get("token")

    @property
    def queued(self) -> float | None:
        """When it was last put in line again, after an attempt or by a person."""
        return self._get("queued")

    @property
    def requeued(self) -> str | None:
        """A random mark of its last `requeue`."""
        return self._get("requeued")

    @property
    def cancel(self) -> float | None:
        """When its cancellation was requested while it ran."""
        return self._get("cancel")

    @property
    def cancelled_by(self) -> str | None:
        return self._get("cancelled_by")

    @property
    def cancel_reason(self) -> str | None:
        return self._get("cancel_reason")

    @property
    def is_interrupted(self) -> bool:
        """Whether its attempt runs and is being ended, to hand the task back: `interrupt`."""
        order = self._get("interrupt")
        return self.status == "started" and order is not None and order == self.token

    @property
    def interrupted_at(self) -> float | None:
        """When a person last interrupted it."""
        return self._get("interrupted_at")

    @property
    def interrupted_by(self) -> str | None:
        return self._get("interrupted_by")

    @property
    def interrupt_reason(self) -> str | None:
        return self._get("interrupt_reason")

    @property
    def progress(self) -> Any:  # a str or None; a RunningTask has a method in its place
        """Its progress in its own words, such as 450/1500 frames."""
        return self._get("progress")

    @property
    def progress_at(self) -> float | None:
        return self._get("progress_at")

    @property
    def eta(self) -> float | None:
        """When it is due."""
        return self._get("eta")

    @property
    def created(self) -> float | None:
        return self._get("created")

    @property
    def started(self) -> float | None:
        return self._get("started")

    @property
    def finished(self) -> float | None:
        return self._get("finished")

    @property
    def updated(self) -> float | None:
        return self._get("updated")

    def _get(self, name: str) -> Any:
        text = self._fields.get(name)
        if text is None:
            return None
        try:
            return FIELDS[name](text)
        except ValueError:  # malformed; written by another program
            return None
