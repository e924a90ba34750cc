"""The master: has a listener for each slot, passes on orders, and becomes another program at SIGHUP."""

from __future__ import annotations

import functools
import logging
import os
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from blueque.node import context
from blueque.node.control import NO_DIRECTORY, OUT_OF_TIME, Pause
from blueque.node.reload import Kept, Reload
from blueque.node.slots import Callbacks, Slots
from blueque.system import process, signals
from blueque.system.systemd import Notifier

log = logging.getLogger("blueque")

_ASIDE = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)  # signals that end no process
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, *_ASIDE)
_PRUNE_EVERY = 600.0
_NOTIFY_EVERY = 1.0
_READY_AFTER = 10.0  # seconds in which listeners register, or Redis is not there


class Options(NamedTuple):
    """The options of a master.

    on_term: leave, drain or stop.
    max_runtime: seconds after which it acts as at SIGTERM.
    """

    slots: int
    on_term: str = "drain"
    max_runtime: float | None = None


class Master:
    """Has a process that runs `body(master)` for each slot, and exits when all of them have exited,
    or as `Options.on_term` says.

    reload: what SIGHUP does; None: nothing.
    kept: of the program that this one has replaced; None: it is the first.
    """

    def __init__(
        self,
        body: Callable[[context.Master], int],
        options: Options,
        calls: Callbacks | None = None,
        notifier: Notifier | None = None,
        reload: Reload | None = None,
        kept: Kept | None = None,
    ) -> None:
        self._options, self._calls, self._reload = options, calls or Callbacks(), reload
        self._notifier = notifier if notifier is not None and notifier.is_wanted else None
        self._started = time.monotonic() if kept is None else kept.started
        longest = float("inf") if options.max_runtime is None else options.max_runtime
        self._leave_at = self._started + longest
        self._pause = Pause()  # while there is one, our listeners take nothing
        self._pause.by = None if kept is None else kept.pause
        ends = self._leave_at if longest < float("inf") and options.on_term == "stop" else None
        known = context.Master(
            os.getpid(), -1, -1, self._pause, max_runtime=options.max_runtime, ends=ends
        )
        self._slots = Slots(body, options.slots, self._calls, known, self._leave_in_child, kept)
        self._echoes, self._echoes_aside = signals.Echoes(), signals.Echoes()
        self._first = 0  # the first signal that we were given
        self._has_been_told = False  # by a signal that we are to leave
        self._order: int | None = None  # the last signal we have passed on
        self._status = 0
        self._next_chore = time.monotonic()
        self._is_ready, self._ready_at = False, time.monotonic() + _READY_AFTER

    def run(self) -> int:
        """Run until all slots have exited, or continue without us; return the exit status."""
        self._open()
        while not self._slots.are_over or self._order is None:
            if self._order is not None and self._is_leaving:
                return self._status
            now = time.monotonic()
            if now >= self._leave_at and self._order is None:
                log.warning("--max-runtime is over, as if SIGTERM had come")
                self._begin_to_leave(signal.SIGTERM, is_out_of_time=True)
                # the first signal that comes now says no more than that
                self._has_been_told = False
                continue
            if self._order is None:
                self._slots.fill(now)
                if self._slots.are_over:
                    self._cancel_check()
                    return self._status  # drained from afar, all of them
            self._see_to_duties(now)
            process.wait_readable(
                [self._signals.fileno(), self._slots.requests],
                self._wake_at(now) - time.monotonic(),
            )
            for number in self._signals.take():
                self._obey(number)
            self._reap()
            if self._order is None:
                self._slots.hear_requests()
        return self._status

    def _open(self) -> None:
        """Begin to receive signals, including those that came while this program replaced another."""
        process.become_subreaper()
        self._signals = signals.Signals(_SIGNALS)
        signals.show_stacks_on(signal.SIGUSR1)
        self._slots.open()
        signals.unblock(_SIGNALS)
        self._reap()  # of some, the program before us has got the SIGCHLD

    def _wake_at(self, now: float) -> float:
        """Return until when the master may wait for a signal or a request."""
        wake_at = self._next_chore
        if self._order is None:
            wake_at = min(wake_at, self._leave_at, self._slots.wake_at(now))
        return wake_at if self._notifier is None else min(wake_at, now + _NOTIFY_EVERY)

    @property
    def _is_leaving(self) -> bool:
        return self._options.on_term == "leave" and self._first == signal.SIGTERM

    def _see_to_duties(self, now: float) -> None:
        if now >= self._next_chore:
            self._fork_chore()
            self._next_chore = now + _PRUNE_EVERY
        if self._notifier is not None:
            self._notify(self._notifier)

    def _notify(self, notifier: Notifier) -> None:
        """Tell systemd how many tasks run, and that we are ready once all listeners have
        registered.

        We also become ready when Redis takes long, so that later services do not wait for it.
        """
        running, new = self._slots.count_shown()
        self._is_ready = self._is_ready or not new or time.monotonic() >= self._ready_at
        if self._is_ready:
            stopping = ["STOPPING=1"] if self._order is not None else []
            paused = ", paused" if self._pause.by else ""
            unregistered = f", {new} not registered" if new else ""
            notifier.tell(
                "READY=1",
                *stopping,
                f"STATUS={running}/{self._options.slots} running{paused}{unregistered}",
            )

    def _fork_chore(self) -> None:
        """Do the chore in a child: it may take long, and we must receive orders."""
        try:
            process.fork(functools.partial(self._do_chore, os.getpid()))
        except OSError as error:
            log.warning("cannot fork: %s", error.strerror)

    def _do_chore(self, master: int) -> int:
        process.die_with_parent(True)
        if os.getppid() != master:
            return 0
        self._leave_in_child()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._slots.close_in_child()
        self._calls.chore()
        return 0

    def _leave_in_child(self) -> None:
        """In a forked child: close what belongs to the master."""
        self._signals.after_fork_in_child()
        if self._reload is not None:
            self._reload.check.forget()

    def _obey(self, number: int) -> None:
        if number in _ASIDE:
            self._obey_aside(number)
            return
        if number != signal.SIGCHLD and not self._echoes.is_one(number):
            self._begin_to_leave(number)

    def _begin_to_leave(self, number: int, is_out_of_time: bool = False) -> None:
        name = "--max-runtime" if is_out_of_time else signals.signal_name(number)
        was_told, self._has_been_told = self._has_been_told, True
        if self._order is None:
            self._first = number
            if number == signal.SIGTERM and self._options.on_term == "stop":
                log.warning("%s: stopping the running tasks", name)
                self._pass_on(OUT_OF_TIME if is_out_of_time else signal.SIGQUIT)
                return
            then = (
                "leaving the running tasks to their listeners"
                if self._is_leaving
                else (
                    "leaving when the running tasks have ended (again, after a second: stop them)"
                )
            )
            log.warning("%s: taking nothing new; %s", name, then)
            self._pass_on(signal.SIGUSR2 if self._is_leaving else signal.SIGTERM)
        elif self._order == signal.SIGTERM and not self._status and not was_told:
            log.warning("%s: leaving already (again, after a second: stop the running tasks)", name)
        elif self._order == signal.SIGTERM and not self._status:
            log.warning("%s: stopping the running tasks", name)
            self._status = 128 + number
            self._pass_on(signal.SIGQUIT)

    def _pass_on(self, number: int) -> None:
        self._order = number
        self._cancel_check()
        if self._notifier is not None:
            self._notify(self._notifier)
        self._slots.stop_filling()
        self._slots.tell(number)

    def _obey_aside(self, number: int) -> None:
        """Obey a signal that ends no process."""
        if number == signal.SIGUSR1 and self._echoes_aside.is_one(number):
            return  # but a second SIGUSR2 takes the first one back, and SIGHUP tells of a newer file
        if number == signal.SIGUSR1:
            log.warning(
                "SIGUSR1: the stacks of the master pid=%d are above, those of its listeners follow: %s",
                os.getpid(),
                ", ".join(f"pid={pid}" for pid in sorted(self._slots.pids)) or "there is none",
            )
            self._slots.tell(signal.SIGUSR1)
        elif self._order is not None:
            log.warning("%s: leaving already", signals.signal_name(number))
        elif number == signal.SIGUSR2:
            self._pause.by = None if self._pause.by else "a signal"
            log.warning(
                "SIGUSR2: %s",
                "taking nothing new until the next SIGUSR2; what runs, runs on"
                if self._pause.by
                else "taking tasks again",
            )
            self._slots.tell_of_pause()
        elif self._reload is None:
            log.warning("SIGHUP: restart the listener to read its configuration")
        else:
            log.warning("SIGHUP: checking the configuration")
            self._reload.check.begin()

    def _cancel_check(self) -> None:
        if self._reload is not None:
            self._reload.check.cancel()

    def _become_new_program(self, reload: Reload) -> None:
        """Replace this program, unless a signal that has just come prevents it. Later signals wait
        for the new one.

        Its listeners lose their lifeline with that, and leave after their tasks.
        """
        with signals.blocked(_SIGNALS):
            for number in self._signals.take():
                self._obey(number)
            if self._order is None and reload.check.pid is None:
                self._slots.say_replaced()
                # a pause for a missing directory ends: we enter it now
                pause = None if self._pause.by == NO_DIRECTORY else self._pause.by
                slots, adopters = self._slots.slot_pids, self._slots.adopter_pids
                reload.replace(Kept(self._started, pause, slots, adopters))
            elif reload.check.pid is None:
                reload.check.forget()

    def _reap(self) -> None:
        """Reap children that have ended, and replace them."""
        ended: list[tuple[int, float, int]] = []
        is_checked = False
        for pid in process.ended_children():
            if pid in self._slots.pids:
                code = process.wait_for(pid)
                if (born := self._slots.forget(pid)) is not None:
                    ended.append((pid, born, code))
            elif self._reload is not None and pid == self._reload.check.pid:
                is_checked = self._reload.check.end(process.wait_for(pid))
            else:
                # perhaps the task of a dead listener: its adopter needs the exit status
                self._calls.reap(pid)
                self._calls.on_listener_end(pid)  # of the program before us, perhaps
        for pid, born, code in ended:
            if self._order is None and not self._slots.replace(pid, born, code):
                self._status, self._first = code, 0
                self._pass_on(signal.SIGTERM)
        if is_checked and self._order is None and self._reload is not None:
            self._become_new_program(self._reload)
            self._reap()  # it has not come to that, and has taken the signals
