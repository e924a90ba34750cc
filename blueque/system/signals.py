"""Signals to this process: queue them, block them, name them."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # without the enumerations that `signal` makes
import contextlib
import faulthandler
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator

ECHO = 1.0  # seconds in which a repeated signal counts as the same one


def keep_ended_children() -> None:
    """Let ended children stay until this process waits for them. SIGCHLD may be ignored by
    inheritance; then the kernel reaps them itself.
    """
    if hasattr(signal, "SIGCHLD"):  # not on Windows
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


class StopRequest(BaseException):
    """SIGTERM or SIGINT has arrived."""


def request_stop(number: int, frame: object) -> None:
    """Raise StopRequest: a handler for SIGTERM and SIGINT. From then on both are ignored, so that a
    second signal does not disturb the end of the program.
    """
    for other in (signal.SIGTERM, signal.SIGINT):
        signal.signal(other, signal.SIG_IGN)
    raise StopRequest


class Signals:
    """Queued signals: they make `fileno()` readable, and `take()` returns them in order.

    Use it in the main thread. `restore()` restores the handlers from before.
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._old_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        # The handler does nothing: Python writes the number of the signal to the descriptor first.
        self._old_handlers = {number: signal.signal(number, lambda *_: None) for number in numbers}

    def fileno(self) -> int:
        return self._read

    def take(self) -> list[int]:
        try:
            return [number for number in os.read(self._read, 4096) if number in self._old_handlers]
        except BlockingIOError:
            return []

    def restore(self) -> None:
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        signal.set_wakeup_fd(self._old_fd)
        os.close(self._read)
        os.close(self._write)

    def after_fork_in_child(self) -> None:
        """Close the parent's descriptors in a forked child, which sets its own handlers."""
        signal.set_wakeup_fd(-1)
        os.close(self._read)
        os.close(self._write)


def of_terminal() -> Signals:
    """Queue the signals for a new size of the terminal, and for the return from a stop."""
    return Signals([signal.SIGWINCH, signal.SIGCONT])


class Interruptions:
    """Calls `leave` before a signal stops or ends this process, and `take_up` when it continues.

    Signals may come at any moment, even during a write. Ignored signals stay ignored. Use it in the
    main thread.
    """

    def __init__(self, leave: Callable[[], object], take_up: Callable[[], object]) -> None:
        self._leave, self._take_up = leave, take_up
        handlers = {
            signal.SIGTSTP: self._stop,
            signal.SIGCONT: self._go_on,
            signal.SIGTERM: self._end,
            signal.SIGHUP: self._end,
        }
        self._old = {
            number: signal.signal(number, handler)
            for number, handler in handlers.items()
            if signal.getsignal(number) != signal.SIG_IGN
        }

    def restore(self) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _stop(self, number: int, frame: object) -> None:
        self._end(number, frame)  # it returns after a stop, or if the stop had no effect
        signal.signal(number, self._stop)
        self._take_up()

    def _go_on(self, number: int, frame: object) -> None:
        self._take_up()  # also after a SIGSTOP, which cannot be handled

    def _end(self, number: int, frame: object) -> None:
        self._leave()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # so that the parent sees the signal


def show_stacks_on(number: int) -> None:
    """Make the signal write the stacks of all threads to standard error, then do what it did before."""
    faulthandler.unregister(number)
    # standard error is no file
    with contextlib.suppress(ValueError, OSError, AttributeError, RuntimeError):
        faulthandler.register(number, all_threads=True, chain=True)


def show_no_stacks_on(number: int) -> None:
    """Undo `show_stacks_on`, because a task process may use the signal and faulthandler."""
    faulthandler.unregister(number)


class Echoes:
    """Distinguishes the echo of a signal from a second signal, which may end long tasks.

    `timeout`, `docker stop` through a shell and others signal a process and then its group, so one
    order arrives twice.
    """

    def __init__(self) -> None:
        self._number, self._at = 0, 0.0

    def is_one(self, number: int) -> bool:
        """Return whether the same signal came less than a second ago and was not an echo."""
        now = time.monotonic()
        if number == self._number and now - self._at < ECHO:
            return True
        self._number, self._at = number, now
        return False


@contextlib.contextmanager
def blocked(numbers: Iterable[int]) -> Iterator[None]:
    """Block signals, also in processes forked meanwhile, until `unblock`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hold_back(*names: str) -> None:
    """Block signals until `unblock`, also in a program that replaces this one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.Signals[name] for name in names])


def unblock(numbers: Iterable[int]) -> None:
    """Unblock the signals. Pending ones are handled first."""
    _signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def ignore(numbers: Iterable[int]) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def discard(numbers: Iterable[int]) -> None:
    """Drop blocked signals, and restore the default action."""
    pending = signal.sigpending()
    for number in numbers:
        if number in pending:
            signal.signal(number, signal.SIG_IGN)  # which drops pending ones
        signal.signal(
            number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        )


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names of their own
        return f"signal {number}"
