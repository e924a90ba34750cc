"""Orders: what a listener is told by signals and by the death of its master."""

from __future__ import annotations

import enum
import logging
import os
import signal
import threading
from collections.abc import Callable, Collection

from blueque.system import process, signals

log = logging.getLogger("blueque")

OF_MASTER = (signal.SIGUSR2, signal.SIGUSR1, signals.PAUSE, signals.OUT_OF_TIME)
_CAUSES = (None, "a signal", "an order")  # of a pause


class Order(enum.IntEnum):
    """What a listener has been told. It only ever grows."""

    WORK = 0
    DRAIN = 1  # take nothing new; leave when the task has ended
    STOP = 2  # end the task, too


class OrderCame(Exception):
    """An order came that ends what was going on."""


class Pause:
    """Whether the listeners of one master take nothing new.

    The master and all that it forks share the value, so that a listener which could not hear for a
    while, or is forked later, finds the last word. Two signals that wait at the same time may be
    delivered in any order.
    descriptor: of the value of a former program of the master; see `reload.Handover`.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = os.memfd_create("blueque") if descriptor is None else descriptor

    @property
    def by(self) -> str | None:
        """What has caused it: `a signal` or `an order`; None: there is no pause."""
        return _CAUSES[ord(os.pread(self.descriptor, 1, 0) or b"\0")]

    @by.setter
    def by(self, cause: str | None) -> None:
        os.pwrite(self.descriptor, bytes([_CAUSES.index(cause)]), 0)

    def close(self) -> None:
        """Let go of our copy of the value."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    __del__ = close


class Orders:
    """What a listener has been told; `waiting` calls `poll`, which takes notice of signals.

    lifeline: a pipe that hangs up when the master dies; None without a master.
    obeys_terminal: whether a Ctrl-C is for us; else it is for the master.
    on_child_end: called when a child has ended.
    pause: while there is one, take nothing, and stay.
    max_runtime: of our master, in seconds.
    """

    def __init__(
        self,
        lifeline: int | None,
        obeys_terminal: bool,
        on_child_end: Callable[[], None],
        pause: Pause | None = None,
        max_runtime: float | None = None,
    ) -> None:
        self.now = Order.WORK
        self.why_stopped = "stopped by operator"  # in a sentence, for the error of the task
        self._max_runtime = max_runtime
        self.wants_end = False  # the task should come to an end, if it can go on elsewhere
        self.pause = pause or Pause()
        self._lifeline, self._on_child_end = lifeline, on_child_end
        # The others are words of our master; a program of the user's own may have its own use for
        # them.
        numbers = [
            signal.SIGTERM,
            signal.SIGQUIT,
            signal.SIGCHLD,
            *([] if lifeline is None else OF_MASTER),
        ]
        self._numbers = [*numbers, *([signal.SIGINT] if obeys_terminal else [])]
        self._signals: signals.Signals | None = None
        self._echoes = signals.Echoes()

    @property
    def is_paused(self) -> bool:
        return self.pause.by is not None

    def open(self) -> None:
        """Begin to hear signals, if this is the main thread, the only one that can."""
        if threading.current_thread() is threading.main_thread():
            self._signals = signals.Signals(self._numbers)
            if self._lifeline is not None:
                signals.show_stacks_on(signal.SIGUSR1)
            signals.unblock(self._numbers)  # our master has held them back until somebody listens

    def close(self) -> None:
        """Put back what was done with signals before."""
        if self._signals is not None:
            if self._lifeline is not None:
                signals.show_no_stacks_on(signal.SIGUSR1)
            self._signals.restore()
            if self._lifeline is not None:  # nothing that our master may still say shall end us now
                signals.ignore(OF_MASTER)

    def forget(self) -> None:
        """In a forked child: let go of what is the listener's."""
        if self._signals is not None:
            self._signals.forget()
        self.pause.close()
        if self._lifeline is not None:
            os.close(self._lifeline)
            signals.show_no_stacks_on(signal.SIGUSR1)
            signals.discard([*OF_MASTER, signal.SIGHUP])

    def poll(self, seconds: float, descriptors: Collection[int] = ()) -> set[int]:
        """Wait for any of the descriptors, a signal or the time, and obey; return which descriptors
        are ready. Only `waiting` calls it: it does not beat.
        """
        own = [] if self._signals is None else [self._signals.fileno()]
        if self._lifeline is not None and self.now is Order.WORK:
            own.append(self._lifeline)
        ready = process.wait_readable((*own, *descriptors), seconds)
        if self._lifeline in ready and self.now is Order.WORK:
            log.warning("the master is gone; leaving after the task")
            self.now = Order.DRAIN
        for number in self._signals.take() if self._signals is not None else ():
            self._obey(number)
        return ready.intersection(descriptors)

    def _obey(self, number: int) -> None:
        if number == signal.SIGCHLD:
            self._on_child_end()
            return
        if number == signals.PAUSE:  # it has cut short what we waited for
            return
        if number == signal.SIGUSR1:
            log.warning("SIGUSR1: the stacks of listener pid=%d are above", os.getpid())
            return
        if number == signal.SIGUSR2:  # our master leaves or replaces us, and the task is to go on
            self.now = max(self.now, Order.DRAIN)
            return
        self.wants_end = True
        if number == signals.OUT_OF_TIME and self.now is not Order.STOP:
            self.why_stopped = (
                f"stopped: the listener's --max-runtime of {self._max_runtime or 0:g} s has passed"
            )
        if number in (signal.SIGQUIT, signals.OUT_OF_TIME):
            self.now = Order.STOP
        elif self._lifeline is not None:
            # our master has SIGQUIT for more; a second SIGTERM is somebody else's
            self.now = max(self.now, Order.DRAIN)
        elif not self._echoes.is_one(number):
            self.now = Order.DRAIN if self.now is Order.WORK else Order.STOP
