"""The task that this process works on, as a handler sees it: it talks to files only, never to
Redis.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from blueque.model import units
from blueque.model.encoding import decode, encode_json
from blueque.model.task import Task
from blueque.spool import checkpoint as checkpoint_files
from blueque.spool.attempt import STOP, Attempt
from blueque.spool.progress_file import Gauge
from blueque.task_process.progress_arguments import Stage, meant

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")
_ENDLESS = float("inf")

_current: RunningTask | None = None  # the one piece of state: a process works on one task


class RunningTask(Task):
    """The task that this process runs: what a handler gets.

    directory: that of the attempt; None outside of a task: then nothing is told to anybody.
    resources: what it has been given, by name: numbers, or an amount.
    max_bytes: how much a checkpoint may take.
    """

    __slots__ = (
        "_directory",
        "_gauge",
        "_has_warned",
        "_is_asked",
        "_max_bytes",
        "_outside",
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
        self._is_asked: bool | None = None  # to stop; None: it has not been looked
        self._directory, self._max_bytes = directory, max_bytes
        self._gauge: Gauge | None = None
        self._stage: Stage | None = None
        self._has_warned = False  # that something told makes no sense
        self._outside: str | None = None  # the directory for checkpoints, outside of a task

    @property
    def should_stop(self) -> bool:
        """Whether the task should come to an end soon: its listener drains or stops, it is
        cancelled, or a limit is near.

        Then make a checkpoint and raise `HandBack`, or just finish. It takes a microsecond. Who
        reads this, in the main thread, is not ended by SIGTERM any more, but has the grace of the
        task before SIGKILL.
        """
        if self._is_asked is None:
            self._is_asked = False
            _heed_sigterm(self)
        if not self._is_asked and self._directory is not None:
            self._is_asked = os.path.exists(f"{self._directory}/{STOP}")
        return self._is_asked

    def ask_to_stop(self) -> None:
        """Note that a signal has come which asks to stop."""
        self._is_asked = True

    def progress(
        self,
        done: float | None = None,
        total: float | str | None = None,
        unit: str = "",
        text: str = "",
        **others: Any,
    ) -> None:
        """Tell how far it is: `progress(0.4, "copying")`, `progress(450, 1500, "frames")`, or
        `progress(text="copying")`.

        It is what a stall limit goes by. The listener looks at it about once a second, so call it
        as often as you like: it takes about a microsecond, waits for nothing and never fails. What
        is no number between 0 and its total is made one, which a line on standard error says, once.
        text, or message, is cut to a line of 200 characters.
        """
        if self._directory is None:
            return
        try:
            if self._gauge is None:
                self._gauge = Gauge(self._directory)
            if total.__class__ is str and not text:
                text, total = total, None
            if others or not (
                (done is None or 0 <= done < _ENDLESS)
                if total is None
                else 0 <= done <= total < _ENDLESS  # type: ignore[operator]
            ):
                done, total, unit, text = self._make_sense(done, total, unit, text, others)
            self._tell(self._gauge, done, total, unit, text)  # type: ignore[arg-type]
        except Exception:
            self._tell_anyhow(done, total, unit, text, others)

    @contextmanager
    def stage(
        self, name: str, number: int | None = None, of: int | None = None
    ) -> Iterator[RunningTask]:
        """Have progress in this block be that of a stage, such as the second of three: `with
        task.stage("mux", 2, of=3):`.

        `progress(0.5)` is half of the stage then, and the name stands before its text. A stage in a
        stage is a part of that. Without numbers it has a name only, and what is told within it is
        of what it is in.
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
            self._stage = stage  # whatever was left open within
            self.progress(1.0)
        self._stage = before

    def _tell(
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
            done, unit = 100 * done, "%"  # `1 copying` would be a number of things
        gauge.tell(done, total, unit, text)

    def _make_sense(self, *told: Any) -> tuple[float | None, float | None, str, str]:
        sense = meant(*told)
        if sense.wrong:
            self._warn("progress", sense.wrong)
        return sense.done, sense.total, sense.unit, sense.text

    def _warn(self, method: str, wrong: str) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        try:
            print(
                f"-- blueque: task.{method}: {wrong}; this is said once --",
                file=sys.stderr,
                flush=True,
            )
        except Exception:  # the task has closed it, or put something else in its place
            pass

    def _tell_anyhow(self, *told: Any) -> None:
        """Tell what cannot even be compared. A full disk, too, is no reason to fail: the task has
        better things to do.
        """
        try:
            if self._gauge is not None:
                self._tell(self._gauge, *self._make_sense(*told))
        except Exception:
            pass

    def checkpoint(self, value: Any) -> bool:
        """Note where the next attempt could go on: `checkpointed` is this value then, on whichever
        node.

        value: anything that JSON knows, up to 1 MiB; the last one counts. It is a file, written in
        a millisecond or less whether Redis is there or not, and comes to Redis about once a second.
        False: the disk is full, and the one before counts. Raises InvalidInput, InvalidType or
            TooLarge.
        """
        text = encode_json(value, "the checkpoint", self._max_bytes)
        if self._directory is None:
            return False
        try:
            checkpoint_files.write(self._directory, text)
        except OSError:
            return False
        return True

    @property
    def checkpointed(self) -> Any:
        """The newest checkpoint, of this attempt or of one before; None: there is none."""
        return (
            None
            if self._directory is None
            else decode(checkpoint_files.read(self._directory), "json")
        )

    @property
    def checkpoint_dir(self) -> Path:
        """A directory for what is more than a value, made when it is asked for; the next attempt
        finds it as it was left.

        On another node only if it takes no more than 1 MiB when packed. Outside of a task it goes
        when the process ends.
        """
        from pathlib import Path  # here: what a listener imports, each of its forks copies

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
        """Yield what the iterable does, and tell progress: how many are done, and of how many if it
        has a len().
        """
        try:
            total = len(iterable)  # type: ignore[arg-type]
        except TypeError:  # a generator: nobody knows
            total = None
        done = 0
        self.progress(done, total, unit or "", text or "")
        for item in iterable:
            yield item
            done += 1
            self.progress(done, total, unit or "", text or "")


def current_task() -> RunningTask:
    """Return the task that this process works on: as its handler, or as a program that a task has
    started.

    Anywhere else it is one whose id is empty and that does nothing, so that what tells progress may
    be used, and tested, without a task.
    """
    global _current
    if _current is None:
        _current = _from_environment()
    return _current


def begin(task: RunningTask) -> None:
    """Have `current_task` return this one."""
    global _current
    _current = task


class Heeding:
    """The handler of SIGTERM of a task that looks at `should_stop`."""

    def __init__(self, task: RunningTask) -> None:
        self._task, self._pid = task, os.getpid()

    def __call__(self, number: int, frame: object) -> None:
        if os.getpid() == self._pid:
            self._task.ask_to_stop()
            return
        signal.signal(number, signal.SIG_DFL)  # a child that was forked: nobody there looks
        os.kill(os.getpid(), number)


def _heed_sigterm(task: RunningTask) -> None:
    """Have SIGTERM not be the end, unless the task has its own use for it."""
    is_main = threading.current_thread() is threading.main_thread()
    if task.id and is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, Heeding(task))
        # In a child Python forgets what has come before it is ready: that is held back until it is
        # none of ours.
        os.register_at_fork(
            before=lambda: _mask(signal.SIG_BLOCK),
            after_in_parent=lambda: _mask(signal.SIG_UNBLOCK),
            after_in_child=_leave_sigterm,
        )


def _make_directory() -> str:
    """Make a directory that is removed when this process ends, and not when one does that it has
    forked.
    """
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
        except ValueError:  # forked by another thread, which is the main one only later
            pass
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _from_environment() -> RunningTask:
    task_id, directory = os.environ.get("BLUEQUE_TASK_ID"), os.environ.get("BLUEQUE_TASK_DIR")
    if not task_id or not directory:
        return RunningTask("", {}, None)
    try:
        found, fields = Attempt(directory, "").read_task()
    except (OSError, ValueError):
        found, fields = "", {}
    if found != task_id:
        fields = {
            name: os.environ.get(f"BLUEQUE_{name.upper()}", "") for name in ("queue", "attempt")
        }
    return RunningTask(
        task_id, {**fields, "status": "started"}, directory, max_bytes=units.max_bytes()
    )
