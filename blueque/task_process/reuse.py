"""Setting: lets each task of a process that takes several find what the first one found.

Tasks share on purpose: modules, their variables, and the state of C libraries.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # without the enumerations that `signal` makes
import contextlib
import faulthandler
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from blueque.system import process
from blueque.task_process import redirect
from blueque.task_process.handshake import Rest

_LIMITS = sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
# What a library may handle without Python, and a listener or a person sends to end or warn a task.
_ORDERS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1)
_SIGNALS = sorted({*signal.valid_signals()} - {signal.SIGKILL, signal.SIGSTOP})
PATIENCE, PACE = 1.0, 0.002  # seconds to wait for a helper process; between two looks
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Setting:
    """The environment, working directory, umask, signals and limits of this process.

    Create it before there is a task.
    """

    def __init__(self) -> None:
        self._environ, self._variables = os.environ, dict(os.environ)
        self._is_imported = self._has_children = False
        self.usage = Usage()
        self.threads = 0  # that the task has left, and for which it has waited
        self._note()

    def import_handler(self, prepare: Callable[[], object]) -> None:
        """Import the handler, once. What the import sets holds for all tasks."""
        if self._is_imported:
            return
        self._is_imported = True
        before = dict(os.environ)
        prepare()
        for name in {*before, *os.environ}:
            if name not in os.environ:
                self._variables.pop(name, None)
            elif os.environ[name] != before.get(name):
                self._variables[name] = os.environ[name]
        self._note()

    def _note(self) -> None:
        try:
            self._directory: str | None = os.getcwd()
        except OSError:  # it was removed
            self._directory = None
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._priority = os.getpriority(os.PRIO_PROCESS, 0)
        self._mask = _signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._handlers = {number: _signal.getsignal(number) for number in _SIGNALS}
        self._limits = {kind: resource.getrlimit(kind) for kind in _LIMITS}
        self._processors = _processors()
        self._users = _users()
        self._streams = sys.stdin, sys.stdout, sys.stderr

    def restore(self) -> None:
        """Undo what a task has changed. Raises OSError, ValueError or others if that is not allowed."""
        if _users() != self._users:
            raise PermissionError("the task has changed its user or its groups")
        if _has_workers():
            raise ChildProcessError("the task has left processes of multiprocessing")
        if self._directory is None:
            raise FileNotFoundError("cannot return to a directory that was removed")
        os.environ = self._environ  # noqa: B003  # the task may have put another object there
        _restore_variables(self._variables)
        os.chdir(self._directory)
        os.umask(self._umask)
        self._restore_signals()
        process.die_with_parent(False)
        for kind, limit in self._limits.items():
            if resource.getrlimit(kind) != limit:
                resource.setrlimit(kind, limit)
        if os.getpriority(os.PRIO_PROCESS, 0) != self._priority:
            os.setpriority(os.PRIO_PROCESS, 0, self._priority)
        if _processors() != self._processors:
            os.sched_setaffinity(0, self._processors)
        sys.stdin, sys.stdout, sys.stderr = self._streams
        redirect.settle()
        _end_helpers()
        _reset_peak()

    def _restore_signals(self) -> None:
        """Restore signals and drop pending ones, which were for the task that has ended."""
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        faulthandler.cancel_dump_traceback_later()
        for number in _ORDERS:
            faulthandler.unregister(number)
        signal.set_wakeup_fd(-1)
        _signal.pthread_sigmask(signal.SIG_SETMASK, _SIGNALS)
        for number in signal.sigpending():
            signal.signal(number, signal.SIG_IGN)
        for number, handler in self._handlers.items():
            is_order = number in _ORDERS and handler is not None
            if is_order or _signal.getsignal(number) != handler:
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
        _signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def rest(self, path: str) -> Rest:
        """Return what the listener needs to give this process another task. Raises OSError."""
        self._reap()
        with open("/proc/self/statm", "rb", buffering=0) as file:
            memory = int(file.read().split()[1]) * _PAGE
        return Rest(
            path,
            round(self.usage.before, 3),
            memory,
            len(os.listdir("/proc/self/fd")),
            self.threads,
            self._has_children,
        )

    def begin(self) -> None:
        """Prepare for another task, after the listener has ended what the last one left."""
        if self._has_children:
            self._reap()

    def _reap(self) -> None:
        self._has_children = _has_children()
        self.usage.measure()  # what these children have used is of no task


class Usage:
    """What the tasks of this process use, one after another.

    before: seconds of CPU time of the tasks that have ended.
    """

    def __init__(self) -> None:
        self.before = 0.0
        self._peak_of_children = 0

    def measure(self) -> dict[str, float]:
        """Return what the task that has just ended used: cpu_seconds, memory_peak."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        before = self.before
        self.before = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
        # That of children is the peak of all tasks: another one says nothing of this task.
        is_new = children.ru_maxrss > self._peak_of_children
        self._peak_of_children = children.ru_maxrss
        return {
            "cpu_seconds": round(self.before - before, 3),
            "memory_peak": max(own.ru_maxrss, children.ru_maxrss if is_new else 0) * 1024,
        }


def _reset_peak() -> None:
    """Let the peak of memory be that of the next task."""
    try:
        with open("/proc/self/clear_refs", "wb", buffering=0) as file:
            file.write(b"5")
    except OSError:  # a kernel without it: the peak is that of all tasks so far
        pass


def _restore_variables(variables: Mapping[str, str]) -> None:
    for name in [*os.environ]:
        if name not in variables:
            del os.environ[name]
    for name, value in variables.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _users() -> tuple[object, ...]:
    return os.getresuid(), os.getresgid(), os.getgroups()


def _processors() -> set[int]:
    return os.sched_getaffinity(0)


def _has_workers() -> bool:
    """Return whether processes of multiprocessing are left: a pool replaces those that are ended."""
    module = sys.modules.get("multiprocessing.process")
    return module is not None and bool(module.active_children())


def _end_helpers() -> None:
    """End the helper processes of multiprocessing; it starts others when it needs them."""
    server = _helper("forkserver", "_forkserver")
    address = getattr(server, "_forkserver_address", None)
    if address is not None:
        server._forkserver_address = None
        with contextlib.suppress(OSError, ValueError):  # removed before; or it has no file
            os.unlink(address)
    _end_helper(server, "_forkserver_alive_fd", "_forkserver_pid")
    # The second: it ignores SIGTERM, and the first one has its pipe.
    _end_helper(_helper("resource_tracker", "_resource_tracker"), "_fd", "_pid")


def _helper(module: str, name: str) -> Any:
    return getattr(sys.modules.get(f"multiprocessing.{module}"), name, None)


def _end_helper(helper: Any, descriptor_name: str, pid_name: str) -> None:
    """End the process that ends when its pipe is closed."""
    descriptor, pid = getattr(helper, descriptor_name, None), getattr(helper, pid_name, None)
    if descriptor is None or pid is None:
        return
    setattr(helper, descriptor_name, None)
    setattr(helper, pid_name, None)
    os.close(descriptor)
    until = time.monotonic() + PATIENCE
    with contextlib.suppress(ChildProcessError):  # the task has reaped it
        while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < until:
            time.sleep(PACE)


def _has_children() -> bool:
    """Reap the children that have ended; return whether others are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
