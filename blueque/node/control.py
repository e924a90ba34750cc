"""Orders: what a listener must do after a signal, or after the death of its master."""

from __future__ import annotations

import enum
import logging
import os
import signal

from blueque.system import signals

log = logging.getLogger("blueque")

# From a master to its listeners: look at `Pause`; stop the task, for --max-runtime has passed.
PAUSE, OUT_OF_TIME = signal.SIGRTMIN + 4, signal.SIGRTMIN + 5
OF_MASTER = (signal.SIGUSR2, signal.SIGUSR1, PAUSE, OUT_OF_TIME)
_SIGNALS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD, *OF_MASTER)
NO_DIRECTORY = "its working directory is gone"
_CAUSES = (None, "a signal", "an order", NO_DIRECTORY)  # of a pause


class Order(enum.IntEnum):
    """What a listener must do. Only a higher order replaces an order."""

    WORK = 0
    DRAIN = 1  # take nothing new; leave when the task has ended
    STOP = 2  # end the task, too


class OrderCame(Exception):
    """An order came, and the current step was abandoned."""


class Pause:
    """Whether the listeners of one master take no tasks.

    The master and all processes that it forks share the value. So a listener that blocked signals
    for a while, or that is forked later, finds the newest value. Signals alone are not enough,
    because two pending ones may be delivered in any order.
    descriptor: of the value.
    """

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("blueque")

    @property
    def by(self) -> str | None:
        """The cause, one of `_CAUSES`; None: there is no pause."""
        return _CAUSES[ord(os.pread(self.descriptor, 1, 0) or b"\0")]

    @by.setter
    def by(self, cause: str | None) -> None:
        os.pwrite(self.descriptor, bytes([_CAUSES.index(cause)]), 0)

    def close(self) -> None:
        """Close our descriptor of the value."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    __del__ = close


class Orders:
    """The orders and signals that a listener has received.

    node/waiting.py waits for `descriptors`, takes the signals, and calls `obey` for each.
    master: its pid. lifeline: a pipe that closes when it dies or becomes another program.
    pause: while it is set, the listener takes no task, but does not exit.
    max_runtime: of our master, in seconds.
    """

    def __init__(
        self, master: int, lifeline: int, pause: Pause, max_runtime: float | None = None
    ) -> None:
        self.now = Order.WORK
        self.why_stopped = "stopped by operator"  # in a sentence, for the error of the task
        self._max_runtime = max_runtime
        self.wants_end = False  # the task should come to an end, if it can go on elsewhere
        self._master, self.pause = master, pause
        self.lifeline = lifeline
        self.signals: signals.Signals | None = None
        self.descriptors: tuple[int, ...] = (lifeline,)
        self.has_news = False  # a signal came for which duties should be looked at

    @property
    def is_paused(self) -> bool:
        return self.pause.by is not None

    @property
    def is_replaced(self) -> bool:
        """Whether our master has become another program, which forks another listener for us."""
        return self.lifeline not in self.descriptors and os.getppid() == self._master

    def open(self) -> None:
        """Install the signal handlers. Call it in the main thread."""
        self.signals = signals.Signals(_SIGNALS)
        signals.show_stacks_on(signal.SIGUSR1)
        self.descriptors = (self.signals.fileno(), self.lifeline)
        signals.unblock(_SIGNALS)  # our master has held them back until we listen

    def close(self) -> None:
        """Restore the earlier signal handlers."""
        if self.signals is not None:
            signals.show_no_stacks_on(signal.SIGUSR1)
            self.signals.restore()
            self.descriptors = ()
            signals.ignore(OF_MASTER)  # no signal of our master must end us now

    def after_fork_in_child(self) -> None:
        """Close what belongs to the listener."""
        if self.signals is not None:
            self.signals.after_fork_in_child()
        self.pause.close()
        os.close(self.lifeline)
        signals.show_no_stacks_on(signal.SIGUSR1)
        signals.discard([*OF_MASTER, signal.SIGHUP])

    def lose_master(self) -> None:
        """Act on the end of the lifeline."""
        self.descriptors = () if self.signals is None else (self.signals.fileno(),)
        if self.now is Order.WORK:
            if not self.is_replaced:
                log.warning("the master is gone; leaving after the task")
            self.now = Order.DRAIN
        self.has_news = True

    def obey(self, number: int) -> None:
        """Obey a signal."""
        self.has_news = True
        if number == PAUSE:  # it has ended the wait
            return
        if number == signal.SIGUSR1:
            log.warning("SIGUSR1: the stacks of listener pid=%d are above", os.getpid())
            return
        if number == signal.SIGUSR2:  # our master leaves, and the task is to go on
            self.now = max(self.now, Order.DRAIN)
            return
        self.wants_end = True
        if number == OUT_OF_TIME and self.now is not Order.STOP:
            self.why_stopped = (
                f"stopped: the listener's --max-runtime of {self._max_runtime or 0:g} s has passed"
            )
        if number in (signal.SIGQUIT, OUT_OF_TIME):
            self.now = Order.STOP
        else:
            # our master sends SIGQUIT for more; a second SIGTERM comes from another program
            self.now = max(self.now, Order.DRAIN)
