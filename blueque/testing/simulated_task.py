"""SimulatedTask: the task of a handler that a test runs in its own process with `run_attempt`."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from blueque.client import Client
from blueque.errors import InvalidInput
from blueque.model.attempt_ref import AttemptRef
from blueque.model.encoding import decode
from blueque.model.new import New
from blueque.model.new_task import NewTask
from blueque.model.task_id import TaskId
from blueque.spool import checkpoint, progress_file
from blueque.spool.attempt import Attempt
from blueque.spool.outcome_record import Record, record_of
from blueque.task_process import handlers, registered, running_task
from blueque.task_process.handlers import Handler
from blueque.task_process.running_task import RunningTask, environment
from blueque.task_process.spawning import Spawner
from blueque.testing.ended import Ended, Progress, Spawned
from blueque.testing.time_limits import Exceeded, TimeLimits
from blueque.text.format import one_line


class SimulatedTask(RunningTask):
    """A running task whose stop and limits a test decides, and whose new tasks it inspects.

    stop_after: how many times `should_stop` is false before it becomes true; None: it stays false.
    client: of the Redis in which it creates tasks; None: it only records those of `spawn` and `Then`.
    told: each progress. noted: each note. made: the tasks that it created, by id.
    """

    __slots__ = ("_reads", "_stop_after", "_timing", "made", "noted", "told")

    def __init__(
        self,
        task_id: str,
        fields: Mapping[str, str],
        attempt: Attempt,
        resources: Mapping[str, list[int] | int],
        max_bytes: int,
        timing: TimeLimits,
        stop_after: int | None = None,
        client: Client | None = None,
    ) -> None:
        super().__init__(task_id, fields, attempt.path, resources, max_bytes)
        self._timing, self._stop_after, self._reads = timing, stop_after, 0
        self.told: list[Progress] = []
        self.noted: list[str] = []
        self.made: dict[str, Spawned] = {}
        if client is not None:
            ref = AttemptRef(self.queue or "", self.id, self.token, self.node or "")
            self._client, self._spawner = client, Spawner(ref, client.connections)

    @property
    def client(self) -> Client:
        """The client that the test has given. Raises InvalidInput without one."""
        if self._client is None:
            raise InvalidInput(
                "run_task has no Redis, so there is no task.client, and enqueue needs client=: test it with drain()"
            )
        return self._client

    @property
    def should_stop(self) -> bool:
        """Whether the test wants the task to stop now, or its time limit is near."""
        is_asked = self.is_asked
        self._reads += 1
        return is_asked

    @property
    def is_asked(self) -> bool:
        """The same, without counting the read."""
        has_read = self._stop_after is not None and self._reads >= self._stop_after
        return has_read or self._timing.is_near

    def _write(self, *arguments: Any) -> None:
        super()._write(*arguments)
        told = progress_file.read(self._directory or "")
        if told is not None:
            self.told.append(Progress(*told[1:]))
        self._timing.note_progress()

    def _get_spawner(self, method: str) -> Any:
        return self._spawner if self._spawner is not None else _Notes(self)

    def note(self, text: str) -> bool:
        """Record a note for the history of the task, see `Ended.notes`; return whether it did."""
        has_noted = super().note(text)
        if has_noted:
            self.noted.append(one_line(str(text)))
        return has_noted

    def make(self, records: Iterable[NewTask]) -> list[TaskId]:
        """Record new tasks and return their ids."""
        ids = []
        for new in records:
            ids.append(TaskId(new.task, new.task not in self.made))
            options = dict(new.options)
            coding = options.pop("parameters_encoding", None)
            parameters = decode(new.parameters, None if coding is None else str(coding))
            self.made.setdefault(new.task, Spawned(new.task, new.queue, parameters, options))
        return ids


class _Notes:
    """Takes the place of a Spawner: records the tasks that a task creates, without Redis."""

    def __init__(self, task: SimulatedTask) -> None:
        self._task = task

    def spawn(self, tasks: Iterable[New]) -> list[TaskId]:
        return self._task.make([each.record(self._task.id) for each in tasks])


class Run(NamedTuple):
    """The result of `run_attempt`. exception: what the handler raised."""

    record: Record
    exception: BaseException | None


def run_attempt(
    handler: Handler, task: SimulatedTask, attempt: Attempt, timing: TimeLimits, max_bytes: int
) -> Run:
    """Run the handler here and return the exit record, as a task process writes it.

    max_bytes: the size limit of the result.
    Exceptions that are not an Exception pass through, such as Ctrl-C and the skip of a test.
    """

    work = handlers.handler(lambda: handler, max_bytes, show_stacks=lambda: None)
    exception: BaseException | None = None
    with _current(task, attempt), _own_sigterm():
        try:
            with timing:
                record = work.run(task, attempt)
            task.make(NewTask(*new) for new in record.get("then", ()))
        except Exceeded:
            record = {}
        except (Exception, SystemExit) as error:
            exception, record = error, record_of(error, task.is_asked)
    if timing.exceeded is not None:
        error_type, text = timing.exceeded
        record = {"status": "failed", "error": text, "error_type": error_type}
    if record.get("error"):  # its files are deleted with the attempt
        record["error"] = record["error"].partition(f"; it is kept in {attempt.path}/")[0]
    return Run(record, exception)


def ended_of(
    task: SimulatedTask,
    run: Run,
    attempt: Attempt,
    outcome: str,
    result: Any,
    delay: float | None,
    failures: int,
) -> Ended:
    """Return how an attempt ended, and what it reported and left. See `Ended`."""
    value, files = _checkpoint_of(attempt)
    return Ended(
        task.id,
        task.queue or "",
        outcome,
        result,
        run.record.get("error"),
        run.record.get("error_type"),
        run.exception,
        delay,
        tuple(task.told),
        value,
        files,
        tuple(task.made.values()),
        task.attempt or 1,
        failures,
        tuple(task.noted),
    )


def _checkpoint_of(attempt: Attempt) -> tuple[Any, dict[str, bytes]]:
    """Return the value and the files that an attempt has left for the next."""
    root = Path(attempt.path, checkpoint.DIRECTORY)
    files = {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
    return decode(checkpoint.read(attempt.path), "json"), files


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep the SIGTERM handler of this process: a coroutine replaces it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _current(task: SimulatedTask, attempt: Attempt) -> Iterator[None]:
    """Make this process that of the task."""
    before = dict(os.environ)
    os.environ |= environment(task.id, task.fields, attempt.path)
    running_task.begin(task)
    registered.simulated = task
    try:
        yield
    finally:
        registered.simulated = None
        running_task.begin(None)
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
