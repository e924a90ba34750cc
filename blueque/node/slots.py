"""Slots: the listeners of a master. It forks one for each slot, and another for one that dies."""

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
from blueque.node.control import OF_MASTER, PAUSE
from blueque.node.reload import Kept
from blueque.system import process, signals
from blueque.text.format import count

log = logging.getLogger("blueque")

EXIT_NOT_ALLOWED = 77
EXIT_CONFIGURATION = 78
EXIT_DRAINED = 64  # of a listener to its master only: it is not to be replaced
EXIT_EMPTY = 65  # the same: it has found nothing to take, and was told to leave then
_HOPELESS = (EXIT_NOT_ALLOWED, EXIT_CONFIGURATION)
_WORKED = 60.0  # seconds; a listener that ran for so long had been able to start
_YOUNG = 1.0  # seconds; one that dies sooner is replaced later: no endless forking
_LOOK_AT_HELD = 1.0
_SETTLED = 2.0  # seconds that a listener which only adopts may take to find something
_MOST_ADOPTERS = 1000


class Callbacks(NamedTuple):
    """The functions that a master calls.

    chore: called now and then in a child of its own.
    left_behind: returns the pids of listeners that still run a task although their master is gone;
        each counts as one of our slots.
    reap: called when a process that is not a listener of ours has ended; see `Spool.reap`.
    on_listener_end: called with the pid of a listener that has ended.
    """

    chore: Callable[[], None] = lambda: None
    left_behind: Callable[[], set[int]] = set
    reap: Callable[[int], object] = process.reap
    on_listener_end: Callable[[int], object] = lambda _: None


class Slots:
    """Forks a process that runs `body(master)` for each slot.

    known: what they know of the master, without what only this object knows.
    leave_master: called in each of them first, to close what belongs to the master.
    kept: of the program that this one has replaced. Its configuration was checked, so it is not
        hopeless if all listeners fail.
    """

    def __init__(
        self,
        body: Callable[[context.Master], int],
        wanted: int,
        calls: Callbacks,
        known: context.Master,
        leave_master: Callable[[], object],
        kept: Kept | None = None,
    ) -> None:
        self._body, self._wanted, self._calls = body, wanted, calls
        self._known, self._leave_master = known, leave_master
        self._born: dict[int, float] = {}  # when each listener was forked, by pid
        self._adopters: dict[int, float] = {}  # the same of those that only adopt
        # Those of the program before us: each has its slot until its task has ended.
        self._replaced: set[int] = set()
        if kept is not None:
            self._replaced |= {*kept.slots}
            self._adopters |= dict.fromkeys(kept.adopters, 0.0)
        self._held: set[int] = set()  # the same of a former master, which are not our children
        self._fork_at: list[float] = []  # when to fork the slots that are missing
        self._gone = 0  # slots that have been drained and are not filled again
        self._places: dict[int, int] = {}  # pid -> where on the board it shows what it is
        self._board = mmap.mmap(-1, wanted + _MOST_ADOPTERS)
        self._has_worked = kept is not None  # or a listener has registered or lived long enough

    def open(self) -> None:
        """Count the slots of the listeners that are there already, and plan to fork the others."""
        self._lifeline, self._lifeline_end = os.pipe()
        self._requests, self._requests_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        free = max(self._free, 0)
        self._held = set(sorted(self._calls.left_behind())[:free])
        if self._held:
            log.warning(
                "found %s of a former master with a running task; each counts as a slot",
                count(len(self._held), "listener"),
            )
        self._fork_at = [0.0] * (free - len(self._held))

    def close_in_child(self) -> None:
        """Close what a child that is not a listener does not need."""
        for end in (self._lifeline, self._lifeline_end, self._requests, self._requests_end):
            os.close(end)

    @property
    def requests(self) -> int:
        """The descriptor to read before `hear_requests`."""
        return self._requests

    @property
    def pids(self) -> list[int]:
        """The children that are listeners, also those that only adopt."""
        return [*self.slot_pids, *self.adopter_pids]

    @property
    def slot_pids(self) -> list[int]:
        """The children that are listeners and have a slot."""
        return [*self._born, *self._replaced]

    @property
    def adopter_pids(self) -> list[int]:
        """The children that are listeners and only adopt."""
        return [*self._adopters]

    @property
    def are_over(self) -> bool:
        """Whether no listener is left, nor about to be forked."""
        return not (self.pids or self._fork_at or self._held)

    @property
    def _free(self) -> int:
        """How many slots have no listener, nor are about to have one."""
        taken = len(self._born) + len(self._replaced) + len(self._held) + len(self._fork_at)
        return self._wanted - self._gone - taken

    def wake_at(self, now: float) -> float:
        """Return when `fill` has something to do next."""
        if self._held:
            return min([now + _LOOK_AT_HELD, *self._fork_at])
        return min(self._fork_at, default=float("inf"))

    def fill(self, now: float) -> None:
        """Fork the slots that are due, also those of former listeners that have left now."""
        if self._held:
            still = self._held & self._calls.left_behind()
            self._fork_at += [0.0] * len(self._held - still)
            self._held = still
        for at in [at for at in self._fork_at if at <= now]:
            self._fork_at.remove(at)
            self._fork()

    def stop_filling(self) -> None:
        """Fork no more, and forget the listeners that are not our children."""
        self._fork_at, self._held = [], set()

    def hear_requests(self) -> None:
        """Fork the listeners that others have asked for: each adopts an attempt, and leaves."""
        try:
            asked = os.read(self._requests, 4096).split()
        except BlockingIOError:
            return
        if not asked:
            return
        # Several may have seen the same attempts, and those forked a moment ago are about to adopt
        # them.
        now = time.monotonic()
        looking = sum(now - at < _SETTLED for at in self._adopters.values())
        for _ in range(min(int(asked[-1]) - looking, _MOST_ADOPTERS - len(self._adopters))):
            self._fork(adopts_only=True)

    def tell(self, number: int, pids: Iterable[int] | None = None) -> None:
        """Send a signal to these listeners, or to all."""
        for pid in self.pids if pids is None else pids:
            os.kill(pid, number)  # a child that has ended is still ours until `forget`

    def tell_of_pause(self) -> None:
        """Have the listeners look at the pause."""
        self.tell(PAUSE, self._born)

    def say_replaced(self) -> None:
        """Log which listeners the next program replaces."""
        log.warning(
            "the new configuration applies to new tasks; replacing %s, those with a task when it has ended",
            count(len(self.slot_pids), "listener"),
        )

    def count_shown(self) -> tuple[int, int]:
        """Return how many listeners run a task, and how many have not registered yet."""
        shown = [self._board[place] for place in self._places.values()]
        others = {*self.pids} - self._places.keys()  # of the program before us
        running = shown.count(context.BUSY) + len(self._held) + len(others)
        return running, len(self._fork_at) + shown.count(context.NEW)

    def forget(self, pid: int) -> float | None:
        """Forget an ended child. Return when it was forked; None: it held no slot."""
        self._places.pop(pid, None)
        if pid in self._replaced:
            self._replaced.remove(pid)
            self._calls.on_listener_end(pid)
            return 0.0
        born = self._born.pop(pid, None)
        if born is not None or self._adopters.pop(pid, None) is not None:
            self._calls.on_listener_end(pid)
        return born

    def replace(self, pid: int, born: float, code: int) -> bool:
        """Plan another listener to replace one that has ended, if needed. False: it could not work."""
        now = time.monotonic()
        if not born:  # of the program before us
            if self._free >= 1:
                self._fork_at.append(now)
            return True
        self._has_worked = self._has_worked or any(self._board[:])
        if code in _HOPELESS and not self._has_worked:
            return False
        if code == EXIT_DRAINED:
            log.warning("listener pid=%d has been drained", pid)
        if code in (EXIT_DRAINED, EXIT_EMPTY):
            self._gone += 1
            return True
        self._has_worked = self._has_worked or now - born > _WORKED
        log.warning("listener pid=%d ended (%s); starting another", pid, process.describe(code))
        self._fork_at.append(now if now - born > _YOUNG else now + _YOUNG)
        return True

    def _fork(self, adopts_only: bool = False) -> None:
        place = min({*range(len(self._places) + 1)} - {*self._places.values()})
        self._board[place] = context.NEW
        try:
            with signals.blocked([signal.SIGTERM, signal.SIGQUIT, signal.SIGINT, *OF_MASTER]):
                pid = process.fork(functools.partial(self._become_slot, adopts_only, place))
        except OSError as error:
            log.error("cannot fork a listener: %s", error.strerror)
            if not adopts_only:
                self._fork_at.append(time.monotonic() + 1.0)
        else:
            (self._adopters if adopts_only else self._born)[pid] = time.monotonic()
            self._places[pid] = place

    def _become_slot(self, adopts_only: bool, place: int) -> int:
        os.setpgid(0, 0)  # the terminal's Ctrl-C is for the master, who passes it on
        self._leave_master()
        signals.show_no_stacks_on(signal.SIGUSR1)  # its own, as soon as it listens
        # of the kernel, for one that is stopped when its master dies
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signals.unblock([signal.SIGINT])
        # else `stty tostop` would stop us at the first log line
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.close(self._lifeline_end)
        os.close(self._requests)
        known = self._known._replace(
            lifeline=self._lifeline,
            requests=self._requests_end,
            adopts_only=adopts_only,
            show=functools.partial(self._board.__setitem__, place),
        )
        return self._body(known)
