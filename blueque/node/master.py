"""The master: forks one listener for each slot, replaces one that dies, and passes on orders."""

from __future__ import annotations

import functools
import logging
import mmap
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from blueque.node import context
from blueque.node.control import NO_DIRECTORY, OF_MASTER, Pause
from blueque.node.reload import Handover, Reload
from blueque.system import process, signals
from blueque.system.systemd import Notifier
from blueque.text.format import count

log = logging.getLogger("blueque")

EXIT_NOT_ALLOWED = 77
EXIT_CONFIGURATION = 78
EXIT_DRAINED = 64  # of a listener to its master only: it is not to be replaced
EXIT_EMPTY = 65  # the same: it has found nothing to take, and was told to leave then
_HOPELESS = (EXIT_NOT_ALLOWED, EXIT_CONFIGURATION)
_ASIDE = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)  # signals that end no process
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, *_ASIDE)
_PRUNE_EVERY = 600.0
_WORKED = 60.0  # seconds; a listener that ran for so long had been able to start
_YOUNG = 1.0  # seconds; one that dies sooner is replaced later: no endless forking
_LOOK_AT_HELD = 1.0
_NOTIFY_EVERY = 1.0
_SETTLED = 2.0  # seconds that a listener which only adopts may take to find something
_MOST_ADOPTERS = 1000
_READY_AFTER = 10.0  # seconds in which listeners register, or Redis is not there


class Options(NamedTuple):
    """What a master was asked to do.

    on_term: leave, drain or stop.
    max_runtime: seconds after which it does what it does at SIGTERM.
    """

    slots: int
    on_term: str = "drain"
    max_runtime: float | None = None


class Hooks(NamedTuple):
    """What a master calls.

    chore: done now and then in a child of its own.
    left_behind: returns the pids of listeners that still run a task although their master has gone;
        each counts as one of our slots.
    note_ending: called for a process that is no listener of ours, when it has ended; see
        `process.reap_strays`.
    on_listener_end: called with the pid of a listener of ours that has ended.
    """

    chore: Callable[[], None] = lambda: None
    left_behind: Callable[[], set[int]] = set
    note_ending: Callable[[int, int, process.Reaped], object] = lambda *_: None
    on_listener_end: Callable[[int], object] = lambda _: None


class Master:
    """Forks a process that runs `body(master)` for each slot, and exits when all of them have
    exited, or as `Options.on_term` says.

    reload: what SIGHUP does; None: nothing.
    handover: of the program that this one has replaced.
    """

    def __init__(
        self,
        body: Callable[[context.Master], int],
        options: Options,
        hooks: Hooks | None = None,
        notifier: Notifier | None = None,
        reload: Reload | None = None,
        handover: Handover | None = None,
    ) -> None:
        self._body, self._options, self._hooks = body, options, hooks or Hooks()
        self._handover, self._reload = handover, reload
        # pid of a slot -> when it was forked
        self._born: dict[int, float] = dict(handover.slots) if handover else {}
        # the same of those that only adopt
        self._adopters: dict[int, float] = dict(handover.adopters) if handover else {}
        self._gone = handover.gone if handover else 0  # slots that have left and are not replaced
        # listeners that are replaced even if they have been drained, see `Handover`
        self._recounted = set(handover.recounted) if handover else set[int]()
        self._fork_at: list[float] = []  # when to fork the slots that are missing
        self._held: set[int] = set()  # listeners of a former master whose slots are not free yet
        self._first = 0  # the first signal that we were given
        self._has_been_told = False  # by a signal that we are to leave
        self._echoes, self._echoes_aside = signals.Echoes(), signals.Echoes()
        # while there is one, our listeners take nothing
        self._pause = Pause(handover.pause if handover else None)
        if self._pause.by == NO_DIRECTORY:  # we have just entered it
            self._pause.by = None
        self._started = handover.started if handover else time.monotonic()
        longest = float("inf") if options.max_runtime is None else options.max_runtime
        self._leave_at = self._started + longest
        self._next_chore = time.monotonic()
        self._notifier = notifier if notifier is not None and notifier.is_wanted else None
        self._places: dict[int, int] = {}  # pid of a slot -> where on the board it shows what it is
        self._board = mmap.mmap(-1, max(options.slots, len(self._born)) + _MOST_ADOPTERS)
        self._is_ready, self._ready_at = False, time.monotonic() + _READY_AFTER
        self._order: int | None = None  # the last signal we have passed on
        self._status = 0
        # a listener has registered or lived long enough, or the configuration was checked
        self._has_worked = handover is not None

    def run(self) -> int:
        """Run until all slots have exited, or go on without us; return the exit status."""
        self._open()
        if self._handover is not None:
            self._replace_slots()
        self._hold_slots()
        while self._children or self._fork_at or self._held or self._order is None:
            if self._order is not None and self._is_leaving:
                return self._status
            now = time.monotonic()
            if now >= self._leave_at and self._order is None:
                log.warning("--max-runtime is over, as if SIGTERM had come")
                self._begin_to_leave(signal.SIGTERM, is_out_of_time=True)
                # the first signal that comes now says no more than that
                self._has_been_told = False
                if self._is_leaving:
                    return self._status
                continue
            if self._order is None:
                self._fill_slots(now)
                if not self._children and not self._fork_at and not self._held:
                    self._cancel_check()
                    return self._status  # drained from afar, all of them
            if now >= self._next_chore:
                self._fork_chore()
                self._next_chore = now + _PRUNE_EVERY
            if self._notifier is not None:
                self._notify(self._notifier)
            process.wait_readable(
                [self._signals.fileno(), self._requests], self._wake_at(now) - time.monotonic()
            )
            for number in self._signals.take():
                self._obey(number)
            self._reap()
            self._hear_requests()
        return self._status

    def _open(self) -> None:
        """Begin to hear signals, those too that came while this program replaced another."""
        process.become_subreaper()
        self._signals = signals.Signals(_SIGNALS)
        signals.show_stacks_on(signal.SIGUSR1)
        if self._handover is not None:
            self._lifeline, self._lifeline_end = self._handover.lifeline
            self._requests, self._requests_end = self._handover.requests
        else:
            self._lifeline, self._lifeline_end = os.pipe()
            self._requests, self._requests_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signals.unblock(_SIGNALS)

    def _replace_slots(self) -> None:
        """Have the listeners of the program before us leave, a busy one when its task has ended."""
        for place, pid in enumerate(self._children):
            self._places[pid] = place
            self._board[place] = context.BUSY
        log.warning(
            "the new configuration holds for the tasks to come; replacing %s, "
            "those with a task when it has ended",
            count(len(self._born), "listener"),
        )
        self._tell(self._born, signal.SIGUSR2)
        self._reap()  # of some, the program before us has got the SIGCHLD

    def _hold_slots(self) -> None:
        """Count the slots of the listeners that a former master has left behind."""
        free = max(self._free, 0)
        self._held = set(sorted(self._hooks.left_behind())[:free])
        if self._held:
            log.warning(
                "a former master has left %s with a running task; each counts as a slot",
                count(len(self._held), "listener"),
            )
        self._fork_at += [0.0] * (free - len(self._held))

    @property
    def _children(self) -> list[int]:
        """The listeners that live, also those that only adopt."""
        return [*self._born, *self._adopters]

    @property
    def _free(self) -> int:
        """How many slots have no listener, nor are about to have one."""
        taken = len(self._born) + len(self._held) + len(self._fork_at)
        return self._options.slots - self._gone - taken

    def _wake_at(self, now: float) -> float:
        """Return until when the master may wait for a signal or a request."""
        wake_at = self._next_chore
        if self._order is None:
            wake_at = min([wake_at, self._leave_at, *self._fork_at])
        if self._notifier is not None:
            wake_at = min(wake_at, now + _NOTIFY_EVERY)
        return min(wake_at, now + _LOOK_AT_HELD) if self._held else wake_at

    @property
    def _is_leaving(self) -> bool:
        return self._options.on_term == "leave" and self._first == signal.SIGTERM

    @property
    def _ends_tasks(self) -> bool:
        """Whether the end of --max-runtime stops the running tasks."""
        return self._options.max_runtime is not None and self._options.on_term == "stop"

    def _notify(self, notifier: Notifier) -> None:
        """Tell systemd how many tasks run, and that we are ready once all listeners have registered
        for the first time.

        We are, too, when Redis is long in coming: what is started after us is not to wait for it as
        well.
        """
        shown = [self._board[self._places[pid]] for pid in self._children]
        new = len(self._fork_at) + shown.count(context.NEW)
        self._is_ready = self._is_ready or not new or time.monotonic() >= self._ready_at
        if self._is_ready:
            running = shown.count(context.BUSY) + len(self._held)
            stopping = ["STOPPING=1"] if self._order is not None else []
            paused = ", paused" if self._pause.by else ""
            unregistered = f", {new} not registered" if new else ""
            notifier.tell(
                "READY=1",
                *stopping,
                f"STATUS={running}/{self._options.slots} running{paused}{unregistered}",
            )

    def _fill_slots(self, now: float) -> None:
        """Fork the slots that are due, also those of listeners that a former master had left behind
        and that have left now.
        """
        if self._held:
            still = self._held & self._hooks.left_behind()
            self._fork_at += [0.0] * len(self._held - still)
            self._held = still
        for at in [at for at in self._fork_at if at <= now]:
            self._fork_at.remove(at)
            self._fork_slot()

    def _fork_chore(self) -> None:
        """Do the chore in a child: it may take long, and we must hear orders."""
        try:
            process.fork(functools.partial(self._do_chore, os.getpid()))
        except OSError as error:
            log.warning("cannot fork: %s", error.strerror)

    def _do_chore(self, master: int) -> int:
        process.die_with_parent(True)
        if os.getppid() != master:
            return 0
        self._signals.after_fork_in_child()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for descriptor in (self._lifeline, self._lifeline_end, self._requests, self._requests_end):
            os.close(descriptor)
        if self._reload is not None:
            self._reload.check.forget()
        self._hooks.chore()
        return 0

    def _fork_slot(self, adopts_only: bool = False) -> None:
        place = min({*range(len(self._places) + 1)} - {*self._places.values()})
        self._board[place] = context.NEW
        try:
            with signals.blocked([signal.SIGTERM, signal.SIGQUIT, signal.SIGINT, *OF_MASTER]):
                pid = process.fork(
                    functools.partial(self._become_slot, os.getpid(), adopts_only, place)
                )
        except OSError as error:
            log.error("cannot fork a listener: %s", error.strerror)
            if not adopts_only:
                self._fork_at.append(time.monotonic() + 1.0)
        else:
            (self._adopters if adopts_only else self._born)[pid] = time.monotonic()
            self._places[pid] = place

    def _become_slot(self, master: int, adopts_only: bool, place: int) -> int:
        os.setpgid(0, 0)  # the terminal's Ctrl-C is for the master, who passes it on
        self._signals.after_fork_in_child()
        signals.show_no_stacks_on(signal.SIGUSR1)  # its own, as soon as it listens
        # of the kernel, for one that is stopped when its master dies
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signals.unblock([signal.SIGINT])
        # else `stty tostop` would stop us at the first log line
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.close(self._lifeline_end)
        os.close(self._requests)
        if self._reload is not None:
            self._reload.check.forget()
        known = context.Master(
            master,
            self._lifeline,
            self._requests_end,
            self._pause,
            adopts_only,
            self._options.max_runtime,
            self._leave_at if self._ends_tasks else None,
            functools.partial(self._board.__setitem__, place),
        )
        return self._body(known)

    def _hear_requests(self) -> None:
        try:
            asked = os.read(self._requests, 4096).split()
        except BlockingIOError:
            return
        if self._order is not None or not asked:
            return
        # Several may have seen the same attempts, and those forked a moment ago are about to adopt
        # them.
        now = time.monotonic()
        looking = sum(now - at < _SETTLED for at in self._adopters.values())
        for _ in range(min(int(asked[-1]) - looking, _MOST_ADOPTERS - len(self._adopters))):
            self._fork_slot(adopts_only=True)

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
                self._pass_on(signals.OUT_OF_TIME if is_out_of_time else signal.SIGQUIT)
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

    def _obey_aside(self, number: int) -> None:
        """Obey a signal that ends no process."""
        if number != signal.SIGUSR2 and self._echoes_aside.is_one(number):
            return  # a second SIGUSR2 takes the first one back
        own = sorted(self._children)
        if number == signal.SIGUSR1:
            log.warning(
                "SIGUSR1: the stacks of the master pid=%d are above, those of its listeners follow: %s",
                os.getpid(),
                ", ".join(f"pid={pid}" for pid in own) or "there is none",
            )
            self._tell(own, signal.SIGUSR1)
        elif self._order is not None:
            log.warning("%s: we are leaving anyway", signals.signal_name(number))
        elif number == signal.SIGUSR2:
            self._pause.by = None if self._pause.by else "a signal"
            log.warning(
                "SIGUSR2: %s",
                "taking nothing new until the next SIGUSR2; what runs, runs on"
                if self._pause.by
                else "taking tasks again",
            )
            self._tell(self._born, signals.PAUSE)
        elif self._reload is None:
            log.warning("SIGHUP: start the listener again to have it read its configuration")
        else:
            log.warning("SIGHUP: checking the configuration")
            self._reload.check.begin()

    def _become_new_program(self, reload: Reload) -> None:
        """Replace this program, unless a signal that has just come is against it. Those that come
        from now on wait for the new one.
        """
        with signals.blocked(_SIGNALS):
            for number in self._signals.take():
                self._obey(number)
            if self._order is None and reload.check.pid is None:
                reload.replace(
                    Handover(
                        self._born,
                        self._adopters,
                        self._gone,
                        self._started,
                        (self._lifeline, self._lifeline_end),
                        (self._requests, self._requests_end),
                        self._pause.descriptor,
                        sorted(self._recounted & self._born.keys()),
                    )
                )
            elif reload.check.pid is None:
                reload.check.forget()

    def _reap(self) -> None:
        """Reap children that have ended, and see to replacements."""
        ended: list[tuple[int, float, int]] = []
        is_checked = False
        for pid in process.ended_children():
            ticks, reaped = process.start_ticks(pid) or 0, process.wait_usage(pid)
            self._places.pop(pid, None)
            if pid in self._born:
                ended.append((pid, self._born.pop(pid), reaped.code))
                self._hooks.on_listener_end(pid)
            elif pid in self._adopters:
                del self._adopters[pid]
                self._hooks.on_listener_end(pid)
            elif self._reload is not None and pid == self._reload.check.pid:
                is_checked = self._reload.check.end(reaped.code)
            else:
                # perhaps the task of a dead listener: its adopter needs the exit status
                self._hooks.note_ending(pid, ticks, reaped)
        for pid, born, code in ended:
            if self._order is None:
                self._replace(pid, born, code)
        if is_checked and self._order is None and self._reload is not None:
            self._become_new_program(self._reload)
            self._reap()  # it has not come to that, and has taken the signals

    def _replace(self, pid: int, born: float, code: int) -> None:
        """Have another listener forked in the place of one that has ended, if there should be one."""
        self._has_worked = self._has_worked or any(self._board[:])
        if code in _HOPELESS and not self._has_worked:
            self._status = code
            self._first = 0
            self._pass_on(signal.SIGTERM)
            return
        if code == EXIT_DRAINED:
            log.warning("listener pid=%d has been drained", pid)
        now = time.monotonic()
        if code in (EXIT_DRAINED, EXIT_EMPTY):
            if pid not in self._recounted:
                self._gone += 1
            elif self._free >= 1:
                self._fork_at.append(now)
            return
        self._has_worked = self._has_worked or now - born > _WORKED
        if self._free < 1:  # there are fewer slots than before SIGHUP
            log.warning("listener pid=%d ended (%s)", pid, process.describe(code))
            return
        log.warning("listener pid=%d ended (%s); starting another", pid, process.describe(code))
        self._fork_at.append(now if now - born > _YOUNG else now + _YOUNG)

    def _pass_on(self, number: int) -> None:
        self._order = number
        self._cancel_check()
        if self._notifier is not None:
            self._notify(self._notifier)
        self._fork_at, self._held = [], set()
        self._tell(self._children, number)

    def _cancel_check(self) -> None:
        if self._reload is not None:
            self._reload.check.cancel()

    def _tell(self, pids: Iterable[int], number: int) -> None:
        for pid in pids:
            os.kill(pid, number)  # a child that has ended is still ours until `_reap`
