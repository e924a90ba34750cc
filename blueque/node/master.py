"""The master: forks one listener for each slot, replaces one that dies, and passes on orders."""

from __future__ import annotations

import functools
import logging
import mmap
import os
import signal
import time
from collections.abc import Callable, Iterable

from blueque.node import slot
from blueque.node.control import OF_MASTER, Pause
from blueque.node.reload import Rereading
from blueque.system import process, signals
from blueque.system.systemd import Notifier

log = logging.getLogger("blueque")

EXIT_NOT_ALLOWED = 77
EXIT_CONFIGURATION = 78
EXIT_DRAINED = 64  # of a listener to its master only: it is not to be replaced
EXIT_EMPTY = 65  # the same: it has found nothing to take, and was told to leave then
_HOPELESS = (EXIT_NOT_ALLOWED, EXIT_CONFIGURATION)
_ASIDE = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)  # signals that end nobody
_PRUNE_EVERY = 600.0
_WORKED = 60.0  # seconds; whoever lived so long was not hopeless from the start
_YOUNG = 1.0  # seconds; one that dies sooner is replaced later: no endless forking
_LOOK_AT_HELD = 1.0
_NOTIFY_EVERY = 1.0
_SETTLED = 2.0  # seconds that a listener which only adopts may take to find something
_MOST_ADOPTERS = 1000
_READY_AFTER = 10.0  # seconds in which listeners register, or Redis is not there


class Master:
    """Forks `slots` processes that run `body(master)` and stays until all have left, or as
    `on_term` says.

    chore: done now and then in a child of its own.
    left_behind: returns the listeners that a former master has left behind their tasks; each takes
        one of our slots.
    rereading: what SIGHUP asks for the body and the chore that take the place of ours; see
        `rereading.Rereading`.
    max_runtime: seconds after which we do as at SIGTERM.
    note_ending: called for a process that is no listener of ours, when it has ended; see
        `process.reap_strays`.
    on_listener_end: called with the pid of a listener of ours that has ended.
    """

    def __init__(
        self,
        body: Callable[[slot.Master], int],
        slots: int,
        on_term: str = "drain",
        chore: Callable[[], None] = lambda: None,
        left_behind: Callable[[], set[int]] = set,
        note_ending: Callable[[int, int, process.Reaped], object] = lambda *_: None,
        rereading: Rereading | None = None,
        max_runtime: float | None = None,
        notifier: Notifier | None = None,
        on_listener_end: Callable[[int], object] = lambda _: None,
    ) -> None:
        self._body, self._slots, self._on_term = body, slots, on_term
        self._chore, self._left_behind, self._note_ending = chore, left_behind, note_ending
        self._on_listener_end = on_listener_end
        self._born: dict[int, float] = {}  # pid of a slot -> when it was forked
        self._adopters: dict[int, float] = {}  # the same of those that only adopt
        self._fork_at: list[float] = []  # when to fork the slots that are missing
        self._held: set[int] = set()  # listeners of a former master whose slots are not free yet
        self._first = 0  # the first signal that we were given
        self._has_been_told = False  # by a signal that we are to leave
        self._echoes, self._echoes_aside = signals.Echoes(), signals.Echoes()
        self._pause = Pause()  # while there is one, our listeners take nothing
        self._rereading = rereading
        self._max_runtime = max_runtime
        self._leave_at = float("inf") if max_runtime is None else time.monotonic() + max_runtime
        self._notifier = notifier if notifier is not None and notifier.is_wanted else None
        self._board = mmap.mmap(-1, slots + _MOST_ADOPTERS) if self._notifier is not None else None
        self._places: dict[int, int] = {}  # pid of a slot -> where on the board it shows what it is
        self._is_ready, self._ready_at = False, time.monotonic() + _READY_AFTER
        self._order: int | None = None  # the last signal we have passed on
        self._status = 0
        self._has_worked = False  # a listener has lived long enough to have registered

    def run(self) -> int:
        """Return the exit status when all slots have left, or are left behind."""
        process.become_subreaper()
        self._signals = signals.Signals(
            [
                signal.SIGTERM,
                signal.SIGINT,
                signal.SIGCHLD,
                signal.SIGUSR1,
                signal.SIGUSR2,
                signal.SIGHUP,
            ]
        )
        signals.show_stacks_on(signal.SIGUSR1)
        self._lifeline, self._lifeline_end = os.pipe()
        self._requests, self._requests_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._held = set(sorted(self._left_behind())[: self._slots])
        if self._held:
            log.warning(
                "%d listeners of a former master are behind their tasks; each counts as a slot",
                len(self._held),
            )
        self._fork_at = [0.0] * (self._slots - len(self._held))
        next_chore = time.monotonic()
        while self._born or self._adopters or self._fork_at or self._held or self._order is None:
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
                self._free_slots()
                for at in [at for at in self._fork_at if at <= now]:
                    self._fork_at.remove(at)
                    self._fork_slot()
                if not self._born and not self._adopters and not self._fork_at and not self._held:
                    return self._status  # drained from afar, all of them
            if now >= next_chore:
                self._fork_chore()
                next_chore = now + _PRUNE_EVERY
            wake_at = (
                min([next_chore, self._leave_at, *self._fork_at])
                if self._order is None
                else next_chore
            )
            if self._notifier is not None:
                self._notify(self._notifier)
                wake_at = min(wake_at, now + _NOTIFY_EVERY)
            if self._held:
                wake_at = min(wake_at, now + _LOOK_AT_HELD)
            reading = (
                []
                if self._rereading is None or self._rereading.descriptor is None
                else [self._rereading.descriptor]
            )
            process.wait_readable(
                [self._signals.fileno(), self._requests, *reading], wake_at - time.monotonic()
            )
            for number in self._signals.take():
                self._obey(number)
            if self._order is not None and self._is_leaving:
                return self._status
            self._bury()
            self._hear_requests()
            self._renew()
        return self._status

    @property
    def _is_leaving(self) -> bool:
        return self._on_term == "leave" and self._first == signal.SIGTERM

    def _notify(self, notifier: Notifier) -> None:
        """Tell systemd how many tasks run, and that we are ready once all listeners have registered
        for the first time.

        We are, too, when Redis is long in coming: what is started after us is not to wait for it as
        well.
        """
        shown = (
            [self._board[self._places[pid]] for pid in (*self._born, *self._adopters)]
            if self._board is not None
            else []
        )
        new = len(self._fork_at) + shown.count(slot.NEW)
        self._is_ready = self._is_ready or not new or time.monotonic() >= self._ready_at
        if self._is_ready:
            running = shown.count(slot.BUSY) + len(self._held)
            stopping = ["STOPPING=1"] if self._order is not None else []
            paused = ", paused" if self._pause.by else ""
            unregistered = f", {new} not registered" if new else ""
            notifier.tell(
                "READY=1",
                *stopping,
                f"STATUS={running}/{self._slots} running{paused}{unregistered}",
            )

    def _free_slots(self) -> None:
        """Take over the slots of listeners that a former master had left behind, and that have left
        now.
        """
        if self._held:
            still = self._held & self._left_behind()
            self._fork_at += [0.0] * len(self._held - still)
            self._held = still

    def _fork_chore(self) -> None:
        """Do the chore in a child: it may take long, and we must hear orders."""
        try:
            process.fork(self._do_chore)
        except OSError as error:
            log.warning("cannot fork: %s", error.strerror)

    def _do_chore(self) -> int:
        self._signals.forget()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for descriptor in (self._lifeline, self._lifeline_end, self._requests, self._requests_end):
            os.close(descriptor)
        self._chore()
        return 0

    def _fork_slot(self, adopts_only: bool = False) -> None:
        place = min({*range(len(self._places) + 1)} - {*self._places.values()})
        if self._board is not None:
            self._board[place] = slot.NEW
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
        self._signals.forget()
        signals.show_no_stacks_on(signal.SIGUSR1)  # its own, as soon as it listens
        # of the kernel, for one that is stopped when its master dies
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signals.unblock([signal.SIGINT])
        # else `stty tostop` would stop us at the first log line
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.close(self._lifeline_end)
        os.close(self._requests)
        known = slot.Master(
            master, self._lifeline, self._requests_end, adopts_only, self._pause, self._max_runtime
        )
        board = self._board
        return self._body(
            known
            if board is None
            else known._replace(show=functools.partial(board.__setitem__, place))
        )

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
            if number == signal.SIGTERM and self._on_term == "stop":
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
        """Obey what ends nobody."""
        if number != signal.SIGUSR2 and self._echoes_aside.is_one(number):
            return  # a second SIGUSR2 takes the first one back
        own = sorted([*self._born, *self._adopters])
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
        elif self._rereading is None:
            log.warning("SIGHUP: start the listener again to have it read its configuration")
        else:
            log.warning("SIGHUP: reading the configuration anew")
            self._rereading.begin()

    def _renew(self) -> None:
        """When the configuration has been read anew: have each listener replaced, a busy one when
        its task has ended.
        """
        renewed = self._rereading.take() if self._rereading is not None else None
        if renewed is None or self._order is not None:
            return
        self._body, self._chore = renewed
        self._has_worked = True  # what we were asked to do could be done; so we go on
        log.warning(
            "what is new in the configuration holds for the tasks to come; replacing %d listeners, "
            "those with a task when it has ended",
            len(self._born),
        )
        self._tell(self._born, signal.SIGUSR2)

    def _bury(self) -> None:
        """Let go of children that have ended, and see to replacements."""
        ended: list[tuple[float, int, int]] = []
        for pid in process.ended_children():
            ticks, reaped = process.start_ticks(pid) or 0, process.wait_usage(pid)
            self._places.pop(pid, None)
            if pid not in self._born and pid not in self._adopters:
                # perhaps a dead listener's task: whoever adopts it wants to know
                self._note_ending(pid, ticks, reaped)
                continue
            self._on_listener_end(pid)
            if pid in self._born:
                ended.append((self._born.pop(pid), pid, reaped.code))
            else:
                del self._adopters[pid]
        if self._order is not None:
            return
        for born, pid, code in ended:
            if code in _HOPELESS and not self._has_worked:
                self._status = code
                self._first = 0
                self._pass_on(signal.SIGTERM)
                return
            if code in (EXIT_DRAINED, EXIT_EMPTY):
                if code == EXIT_DRAINED:
                    log.warning("listener pid=%d has been drained", pid)
                continue
            now = time.monotonic()
            log.warning("listener pid=%d ended (%s); starting another", pid, process.describe(code))
            self._has_worked = self._has_worked or now - born > _WORKED
            self._fork_at.append(now if now - born > _YOUNG else now + _YOUNG)

    def _pass_on(self, number: int) -> None:
        self._order = number
        if self._notifier is not None:
            self._notify(self._notifier)
        self._fork_at, self._held = [], set()
        self._tell((*self._born, *self._adopters), number)

    def _tell(self, pids: Iterable[int], number: int) -> None:
        for pid in pids:
            os.kill(pid, number)  # a child that has ended is still ours until `_bury`
