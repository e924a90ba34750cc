"""The task as its handler sees it. It only reads and writes files; spawning.py uses Redis."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from blueque.errors import InvalidInput
from blueque.model import units
from blueque.model.encoding import decode, encode_json
from blueque.model.task import Task
from blueque.spool import checkpoint as checkpoint_files
from blueque.spool.attempt import INPUTS, STOP, Attempt
from blueque.spool.progress_file import Gauge
from blueque.system import plain_files
from blueque.task_process.progress_arguments import Progress, Stage, normalise

if TYPE_CHECKING:
    from pathlib import Path

    from blueque.client import Client
    from blueque.model.new import New
    from blueque.model.options import SpawnOptions
    from blueque.model.task_id import TaskId
    from blueque.task_process.spawning import Spawner

T = TypeVar("T")
_ENDLESS = float("inf")

# The variables of `environment` that not every task has.
OPTIONAL = ("BLUEQUE_CONTEXT", "BLUEQUE_SCHEDULE", "BLUEQUE_PLANNED")

_current: RunningTask | None = None  # a process runs one task at a time
_leaves_sigterm = False  # to its forked children, see `heed_sigterm`


class RunningTask(Task):
    """The task that this process runs; the first argument of its handler.

    directory: the spool directory of the attempt. None outside of a task, where progress and
        checkpoints are dropped.
    resources: what is reserved for the task, by name: a list of numbers, or an amount.
    max_bytes: the size limit of a checkpoint.
    """

    __slots__ = (
        "_client",
        "_directory",
        "_gauge",
        "_has_warned",
        "_inputs",
        "_is_asked",
        "_max_bytes",
        "_outside",
        "_spawner",
        "_stage",
        "resources",
    )

    def __init__(
        self,
        task_id: str,
        fields: Mapping[str, str],
        directory: str | None,
        resources: Mapping[str, list[int] | int] | None = None,
        max_bytes: int = units.DEFAULT_MAX_BYTES,
    ) -> None:
        super().__init__(task_id, fields)
        self.resources = dict(resources or {})
        self._inputs: dict[str, Any] | None = None  # None: not read yet
        self._is_asked: bool | None = None  # to stop; None: not checked yet
        self._directory, self._max_bytes = directory, max_bytes
        self._gauge: Gauge | None = None
        self._stage: Stage | None = None
        self._has_warned = False  # of wrong arguments
        self._outside: str | None = None  # the checkpoint directory outside of a task
        self._client: Client | None = None
        self._spawner: Spawner | None = None

    @property
    def client(self) -> Client:
        """A client of the Redis of the listener, created at the first use and closed with the task.

        It is what `blueque.Client()` returns here, and so requires `task_redis`. Outside of a task
        it uses the address of the environment.
        """
        if self._client is None:
            from blueque.client import Client  # here: most tasks use no Redis

            self._client = Client()
        return self._client

    @property
    def inputs(self) -> dict[str, Any]:
        """The results of the tasks that it waited for, by id, in the order of `after`.

        Only for a task that was enqueued with `results=True`. Tasks that are not complete are left out.
        Raises InvalidInput if the results exceed 64 MiB together: read each with `Client.get_task` then.
        """
        if self._inputs is None:
            has_any = "inputs" in self._fields and self._directory is not None
            self._inputs = _read_inputs(self._directory or "") if has_any else {}
        return self._inputs

    @property
    def should_stop(self) -> bool:
        """Whether the task should end soon: its listener stops, it is cancelled, or a limit is near.

        If so, save a checkpoint and raise `HandBack`, or finish. Reading this takes a microsecond.
        Once the main thread has read it, SIGTERM no longer ends the task, which then has its grace
        period until SIGKILL.
        """
        if self._is_asked is None:
            self._is_asked = False
            heed_sigterm(self, self.ask_to_stop)
        if not self._is_asked and self._directory is not None:
            self._is_asked = os.path.exists(f"{self._directory}/{STOP}")
        return self._is_asked

    @property
    def reads_should_stop(self) -> bool:
        """Whether the task has read `should_stop`."""
        return self._is_asked is not None

    def ask_to_stop(self) -> None:
        """Record a signal that asks the task to stop."""
        self._is_asked = True

    def progress(
        self,
        done: float | None = None,
        total: float | str | None = None,
        unit: str = "",
        text: str = "",
    ) -> None:
        """Report progress: `progress(0.4, "copying")`, `progress(450, 1500, "frames")`,
        `progress(text="copying")`.

        Call it as often as you like: it takes a microsecond, never blocks and never raises. A stall
        limit ends a task that stops calling it. The listener reads it about once a second. A number
        out of range is clamped, and one line on standard error says so.
        done: how many of `total` are done. Without a total: a share from 0.0 to 1.0, or a count.
        text: what the task does now; cut to one line of 200 characters.
        """
        if self._directory is None:
            return
        try:
            if self._gauge is None:
                self._gauge = Gauge(self._directory)
            if total.__class__ is str and not text:
                text, total = total, None
            if not (
                (done is None or 0 <= done < _ENDLESS)
                if total is None
                else 0 <= done <= total < _ENDLESS  # type: ignore[operator]
            ):
                done, total, unit, text = self._normalise(done, total, unit, text)
            self._write(self._gauge, done, total, unit, text)  # type: ignore[arg-type]
        except Exception:
            self._write_normalised(done, total, unit, text)

    @contextmanager
    def stage(
        self, name: str, number: int | None = None, of: int | None = None
    ) -> Iterator[RunningTask]:
        """Report progress within this block as that of a stage: `with task.stage("mux", 2, of=3):`.

        In the block, `progress(0.5)` means half of this stage, and the name of the stage precedes
        the text. Stages nest. A stage without numbers only adds its name.
        """
        before = self._stage
        stage = self._stage = Stage(str(name), number, of, before)
        if stage.wrong:
            self._warn("stage", stage.wrong)
        self.progress(0.0 if stage.is_part else None)
        try:
            yield self
        except BaseException:
            self._stage = before
            raise
        if stage.is_part:
            self._stage = stage  # an inner stage may have been left open
            self.progress(1.0)
        self._stage = before

    def _write(
        self, gauge: Gauge, done: float | None, total: float | None, unit: str, text: str
    ) -> None:
        if self._stage is not None:
            done, total, unit, text = self._stage.part(done, total, unit, text)
        if (
            total is None
            and text
            and not unit
            and done.__class__ is float
            and (done == 0 or done == 1)
        ):
            done, unit = 100 * done, "%"  # `1 copying` would read as a count
        gauge.tell(done, total, unit, text)

    def _normalise(self, *arguments: Any) -> tuple[float | None, float | None, str, str]:
        progress: Progress = normalise(*arguments)
        if progress.wrong:
            self._warn("progress", progress.wrong)
        return progress.done, progress.total, progress.unit, progress.text

    def _warn(self, method: str, wrong: str) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        try:
            print(
                f"-- blueque: task.{method}: {wrong}; this warning appears once --",
                file=sys.stderr,
                flush=True,
            )
        except Exception:  # the task has closed or replaced it
            pass

    def _write_normalised(self, *arguments: Any) -> None:
        """Write arguments that cannot be compared as numbers. Never raises, even if the disk is
        full: progress must not make a task fail.
        """
        try:
            if self._gauge is not None:
                self._write(self._gauge, *self._normalise(*arguments))
        except Exception:
            pass

    def note(self, text: str) -> bool:
        """Add a line to the history of the task: `task.note("took the old model")`.

        Return False if the attempt has 20 notes already, or the disk is full. Never raises. It
        writes a file, even while Redis is away; the listener sends it to Redis about once a second.
        text: cut to one line of 200 characters.
        """
        if self._directory is None:
            return False
        try:
            return Attempt(self._directory, "").write_note(str(text), time.time())
        except OSError:
            return False

    def checkpoint(self, value: Any) -> bool:
        """Save where the next attempt can continue. It reads the value from `checkpointed`, on any host.

        Return False if the disk is full; the previous checkpoint stays then. It writes a file in a
        millisecond or less, even while Redis is away. The listener sends it to Redis about once a second.
        value: any JSON value up to 1 MiB; NumPy numbers are converted. It replaces the previous one.
        Raises InvalidInput, InvalidType or TooLarge, which name a file that has the value.
        """
        try:
            text = encode_json(value, "the checkpoint", self._max_bytes)
        except InvalidInput as refusal:
            if self._directory is not None:
                from blueque.spool import refused_value  # here: most checkpoints can be stored

                kept = refused_value.keep(self._directory, "checkpoint", value)
                refusal.args = (f"{refusal}{kept}",)
            raise
        if self._directory is None:
            return False
        try:
            checkpoint_files.write(self._directory, text)
        except OSError:
            return False
        return True

    @property
    def checkpointed(self) -> Any:
        """The newest checkpoint of this attempt or an earlier one; None if there is none."""
        return (
            None
            if self._directory is None
            else decode(checkpoint_files.read(self._directory), "json")
        )

    @property
    def checkpoint_dir(self) -> Path:
        """A directory for checkpoint files, created at the first use.

        The next attempt finds it unchanged if it runs on the same host with the same spool; on
        another host it is empty. Outside of a task it is removed when the process ends.
        """
        from pathlib import Path  # here: every fork copies what the listener has imported

        if self._directory is None:
            if self._outside is None:
                self._outside = _make_directory()
            return Path(self._outside)
        path = Path(self._directory, checkpoint_files.DIRECTORY)
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def track(
        self, iterable: Iterable[T], text: str | None = None, unit: str | None = None
    ) -> Iterator[T]:
        """Yield the items of the iterable and report how many are done, and of how many if known."""
        try:
            total = len(iterable)  # type: ignore[arg-type]
        except TypeError:  # a generator has no length
            total = None
        done = 0
        self.progress(done, total, unit or "", text or "")
        for item in iterable:
            yield item
            done += 1
            self.progress(done, total, unit or "", text or "")

    def spawn(
        self, queue: str, parameters: Any, *, key: str | int, **options: Unpack[SpawnOptions]
    ) -> TaskId:
        """Create a task and return its id, which also knows whether the task `is_new`.

        It writes to Redis, at the address that `task_redis` gives to tasks.
        key: this task makes one task with this key, even if it runs again or that task was deleted.
        options: as for `Queue.enqueue`, and `eta` as for `Queue.schedule`. `group` may be the
            closed group of this task, which cannot end before this task.
        Raises NotOwner if another attempt owns this task; NoSuchTask for a task in `after` that is
            not in Redis; InvalidInput, also outside of a task. After RedisAway or OutcomeUnknown,
            the same call is safe.
        Source: docs/protocol/spawning.md, "spawn".
        """
        from blueque.model.new import New  # here: most tasks make no others
        from blueque.model.options import SpawnOptions, require_known

        require_known("task.spawn", options, SpawnOptions)
        return self.spawn_many([New(queue, parameters, key=key, **options)])[0]

    def spawn_many(self, tasks: Iterable[New]) -> list[TaskId]:
        """Create many tasks, 200 in each round trip, and return their ids.

        If it raises, the earlier tasks exist; the same call makes the others. A task may wait for
        another that comes before it, by its `spawned_id`. Errors are those of `spawn`.
        """
        return self._get_spawner("spawn").spawn(tasks)

    def spawned_id(self, key: str | int) -> str:
        """Return the id of the task that this one makes with this key, whether or not it exists."""
        from blueque.model.ids import require_key  # here: most tasks make no others
        from blueque.model.new import spawned_id

        return spawned_id(self.id, require_key(key))

    def disconnect(self) -> None:
        """Close the connections to Redis of `client` and `spawn`; a later call opens others."""
        if self._client is not None:
            self._client.close()

    def _get_spawner(self, method: str) -> Spawner:
        if not self.id:
            raise InvalidInput(f"task.{method}: not inside a task: only a running task can do that")
        if self._spawner is None:
            from blueque.task_process.spawning import Spawner  # here: it imports all of protocol

            self._spawner = Spawner.of(self, self.client.connections)
        return self._spawner


def current_task() -> RunningTask:
    """Return the task of this process: in a handler, or in a program that a task has started.

    Elsewhere, return a task with an empty id whose methods do nothing. So code that reports
    progress also runs without a task.
    """
    global _current
    if _current is None:
        _current = _from_environment()
    return _current


def begin(task: RunningTask | None) -> None:
    """Set the task that `current_task` returns; None: there is none any more."""
    global _current
    _current = task


class Heeding:
    """The SIGTERM handler of a task that reads `should_stop` or is a coroutine.

    ask: called instead of ending the process.
    """

    def __init__(self, ask: Callable[[], object]) -> None:
        self.ask, self._pid = ask, os.getpid()

    def __call__(self, number: int, frame: object) -> None:
        if os.getpid() == self._pid:
            self.ask()
            return
        signal.signal(number, signal.SIG_DFL)  # a forked child has not been asked
        os.kill(os.getpid(), number)


def heed_sigterm(task: RunningTask, ask: Callable[[], object]) -> None:
    """Have SIGTERM call `ask` from now on, unless the task has its own handler for it."""
    global _leaves_sigterm
    if task.id and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        try:
            signal.signal(signal.SIGTERM, Heeding(ask))
        except ValueError:  # in another thread than the main one
            return
        if _leaves_sigterm:  # since an earlier task of this process
            return
        _leaves_sigterm = True
        # A signal that reaches a forked child before it is ready would be lost: block it until the
        # child has the default action.
        os.register_at_fork(
            before=lambda: _mask(signal.SIG_BLOCK),
            after_in_parent=lambda: _mask(signal.SIG_UNBLOCK),
            after_in_child=_leave_sigterm,
        )


def leave_sigterm(ask: Callable[[], object]) -> None:
    """Undo `heed_sigterm` with the same `ask`."""
    handler = signal.getsignal(signal.SIGTERM)
    if isinstance(handler, Heeding) and handler.ask is ask:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _read_inputs(directory: str) -> dict[str, Any]:
    try:
        content = plain_files.read(f"{directory}/{INPUTS}", may_be_link=True)
    except FileNotFoundError as error:
        raise InvalidInput(
            "the results of the tasks that it waited for take more than 64 MiB together, or were changed in Redis, "
            "so it has none of them: read each with Client.get_task, for the ids in task.parents"
        ) from error
    found: dict[str, Any] = json.loads(content.decode("utf-8", "surrogateescape"))
    return found


def _make_directory() -> str:
    """Create a directory that is removed when this process ends, but not when a forked child does."""
    import atexit
    import shutil
    import tempfile

    path, pid = tempfile.mkdtemp(prefix="blueque-checkpoint-"), os.getpid()
    atexit.register(lambda: shutil.rmtree(path, ignore_errors=True) if os.getpid() == pid else None)
    return path


def _mask(how: int) -> None:
    if isinstance(signal.getsignal(signal.SIGTERM), Heeding):
        signal.pthread_sigmask(how, {signal.SIGTERM})


def _leave_sigterm() -> None:
    if isinstance(signal.getsignal(signal.SIGTERM), Heeding):
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        except ValueError:  # forked by another thread: not the main thread yet
            pass
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def environment(task_id: str, fields: Mapping[str, str], path: str) -> dict[str, str]:
    """Return the environment variables that describe a task to itself and to the programs it starts.

    path: the directory of the attempt.
    """
    optional = {"BLUEQUE_CONTEXT": fields["context"]} if "context" in fields else {}
    planned = Task(task_id, fields).planned if "planned" in fields else None
    if planned is not None:
        optional["BLUEQUE_SCHEDULE"] = fields.get("schedule", "")
        optional["BLUEQUE_PLANNED"] = planned.isoformat()
    return {
        "BLUEQUE_TASK_ID": task_id,
        "BLUEQUE_QUEUE": fields.get("queue", ""),
        "BLUEQUE_NODE": fields.get("node", ""),
        "BLUEQUE_ATTEMPT": fields.get("attempt", ""),
        "BLUEQUE_TASK_DIR": path,
        "BLUEQUE_PROGRESS": f"{path}/progress",
        "BLUEQUE_CHECKPOINT": f"{path}/{checkpoint_files.VALUE}",
        "BLUEQUE_CHECKPOINT_DIR": f"{path}/{checkpoint_files.DIRECTORY}",
        "BLUEQUE_STOP_FILE": f"{path}/{STOP}",
        **optional,
    }


def _from_environment() -> RunningTask:
    task_id, directory = os.environ.get("BLUEQUE_TASK_ID"), os.environ.get("BLUEQUE_TASK_DIR")
    if not task_id or not directory:
        return RunningTask("", {}, None)
    try:
        written_id, fields = Attempt(directory, "").read_task()
    except (OSError, ValueError):
        written_id, fields = "", {}
    if written_id != task_id:
        fields = {
            name: os.environ.get(f"BLUEQUE_{name.upper()}", "") for name in ("queue", "attempt")
        }
    return RunningTask(
        task_id, {**fields, "status": "started"}, directory, max_bytes=units.max_bytes()
    )
