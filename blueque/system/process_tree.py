"""The process tree of a task: the leader of a session and all its descendants.

One read of /proc/[pid]/stat gives parent, session, start, time and memory of a process. A scan with
psutil takes six times as long.
"""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

from blueque.system.process import start_ticks
from blueque.system.procfs import has_ended, read_all_stats

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_ROUNDS = 5  # passes, to signal processes that were forked meanwhile
_PATIENCE = 5.0  # seconds to wait for a process after SIGKILL
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25  # seconds between two passes while processes end

Identity = tuple[int, int]  # pid and the ticks at which it started


class Usage(NamedTuple):
    """The resources that a tree uses."""

    memory: int  # bytes; a page that processes share counts for each of them
    cpu_seconds: float  # also of ended processes
    processes: int


class Tree:
    """A process that leads its own session, and all its descendants.

    A process that left the session and lost its parent belongs to the tree if an earlier scan saw
    it. It also belongs if it is named as a stray: a child that a subreaper has adopted.
    pid: below 2: unknown, and the tree is empty. Session 0 is that of the whole machine.
    start: the start ticks of the process. None: those of the process that has this pid at the first look.
    used_before: seconds of CPU time that do not count, because the process used them for something else.
    """

    def __init__(self, pid: int, start: int | None = None, used_before: float = 0.0) -> None:
        self.pid, self._used_before = pid, used_before
        self.peak_memory = 0  # bytes, as in `Usage`
        self.cpu_seconds = 0.0
        self._start = start
        self._has_session = pid > 1  # no other session can have this number
        self._members: dict[int, _Member] = {}
        self._ended_ticks = 0

    def look(self, strays: Collection[int] = ()) -> Usage:
        """Scan all processes of this host once."""
        living = self._find(strays)
        memory = _PAGE * sum(member.pages for member in living.values())
        self.peak_memory = max(self.peak_memory, memory)
        return Usage(memory, self.cpu_seconds, len(living))

    def measure_memory(self) -> int:
        """Return the bytes of all living members. Shared pages count once.

        It is never more than `look` reports, and far less for a pool of forks. Slow: some
        milliseconds for each gigabyte.
        """
        import psutil  # here: commands look at trees without it; a listener has imported it

        total = 0
        for pid, member in self._find(()).items():
            try:
                total += psutil.Process(pid).memory_full_info().pss
            except psutil.NoSuchProcess:
                pass
            except psutil.AccessDenied:  # it has changed its user
                total += member.pages * _PAGE
        return total

    def living(self, with_root: bool = True, strays: Collection[int] = ()) -> set[Identity]:
        """Return the identities of the living members."""
        found = self._find(strays)
        return {
            (pid, member.start) for pid, member in found.items() if with_root or pid != self.pid
        }

    def signal(
        self,
        number: int,
        with_root: bool = True,
        strays: Collection[int] = (),
        told: set[Identity] | None = None,
    ) -> int:
        """Send a signal to all living members and return how many got it.

        told: members that got it before; those that are found are added.
        """
        told = set() if told is None else told
        count = 0
        # also what they have forked meanwhile; not for ever, as it may be a fork bomb
        for _ in range(_ROUNDS):
            found = self._find(strays)
            new = {pid: member for pid, member in found.items() if with_root or pid != self.pid}
            new = {pid: member for pid, member in new.items() if (pid, member.start) not in told}
            # Parents first: a script whose child was killed would go on and print its result.
            for pid, member in sorted(new.items(), key=lambda one: (one[1].start, one[0])):
                count += _send(pid, member, number)
            if number == signal.SIGKILL:
                self.kill_groups(with_root)
            if not new:
                break
            told |= {(pid, member.start) for pid, member in new.items()}
        return count

    def kill_groups(self, with_root: bool = True) -> None:
        """Kill each process group of the session at once, for processes that fork faster than a scan."""
        root = self._members.get(self.pid)
        if not self._has_session or (root and root.is_living and not with_root):
            return
        groups = {self.pid} | {
            member.group for member in self._members.values() if member.session == self.pid
        }
        for group in groups - {
            0,
            1,
        }:  # to the kernel, 0 is this process's group, and 1 every process
            try:
                os.killpg(group, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass

    def _find(self, strays: Collection[int]) -> dict[int, _Member]:
        """Scan all processes once and return the living members."""
        everyone = dict(read_all_stats())
        children: dict[int, list[int]] = defaultdict(list)
        for pid, fields in everyone.items():
            children[int(fields[1])].append(pid)
        members: dict[int, _Member] = {}
        line = [
            *self._root(everyone),
            *self._session(everyone),
            *self._remembered(everyone),
            *strays,
        ]
        while line:
            pid = line.pop()
            if pid in everyone and pid not in members:
                members[pid] = _member(everyone[pid])
                line += children[pid]
        self._count_time(members)
        self._members = members
        return {pid: member for pid, member in members.items() if member.is_living}

    def _root(self, everyone: dict[int, list[bytes]]) -> list[int]:
        fields = everyone.get(self.pid) if self.pid > 1 else None
        if not self._start:
            self._start = int(fields[19]) if fields else -1
        return [self.pid] if fields and int(fields[19]) == self._start else []

    def _session(self, everyone: dict[int, list[bytes]]) -> list[int]:
        """Return the processes of the session.

        Its number is not reused while it has a member or the root is not reaped; later it may be.
        """
        root = everyone.get(self.pid)
        if root and int(root[19]) != self._start:
            self._has_session = False
        if not self._has_session:
            return []
        found = [pid for pid, fields in everyone.items() if int(fields[3]) == self.pid]
        if not root and not found and not _has_group(self.pid):
            self._has_session = False
        return found

    def _remembered(self, everyone: dict[int, list[bytes]]) -> list[int]:
        return [
            pid
            for pid, member in self._members.items()
            if pid in everyone and int(everyone[pid][19]) == member.start
        ]

    def _count_time(self, members: dict[int, _Member]) -> None:
        """Update `cpu_seconds`.

        A process passes its time to the parent that waits for it. If no parent waits, the last seen
        time is added here.
        """
        before = self._members
        gone = {
            pid: old
            for pid, old in before.items()
            if pid not in members or members[pid].start != old.start
        }
        owed: dict[int, int] = defaultdict(int)
        for old in gone.values():
            heir = old.parent
            for _ in gone:  # not `while`: reused pids could make a cycle
                if heir not in gone:
                    break
                heir = gone[heir].parent
            owed[heir] += old.ticks
        for heir, ticks in owed.items():
            got = (
                members[heir].inherited - before[heir].inherited
                if heir in members and heir in before
                else 0
            )
            self._ended_ticks += max(ticks - got, 0)
        total = self._ended_ticks + sum(member.ticks for member in members.values())
        self.cpu_seconds = max(self.cpu_seconds, total / _TICKS - self._used_before)


class Stopping:
    """Ends the members of a tree: SIGTERM, up to `grace` seconds, then SIGKILL.

    It never waits: call `step` again at the time that it returns.
    ended: how many have ended so far. left: the pids of those that SIGKILL did not end.
    """

    def __init__(self, tree: Tree, grace: float, with_root: bool = False) -> None:
        self.ended = 0
        self.left: list[int] = []
        self._tree, self._grace, self._with_root = tree, grace, with_root
        self._kill_at: float | None = None
        self._pause = _FIRST_PAUSE
        self._met: set[Identity] = set()
        self._told: set[Identity] = set()

    def step(self, now: float, strays: Collection[int] = ()) -> float | None:
        """Do what is due and return when to call again. None: it is over.

        now: of any monotonic clock; the answer is by the same clock.
        """
        if self._kill_at is None:
            self._kill_at = now + self._grace
        living = self._look(strays) or self._look(strays)  # again: what was forked during the scan
        self.ended = len(self._met - living)
        if not living:
            self._tree.kill_groups(self._with_root)
            return None
        if now >= self._kill_at + _PATIENCE:
            self.left = sorted(pid for pid, _ in living)
            return None
        if now >= self._kill_at:
            self._signal(signal.SIGKILL, set(), strays)
        else:
            self._signal(signal.SIGTERM, self._told, strays)
        due = now + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return due if now >= self._kill_at else min(due, self._kill_at)

    def _look(self, strays: Collection[int]) -> set[Identity]:
        living = self._tree.living(self._with_root, strays)
        self._met |= living
        return living

    def hurry(self, now: float) -> None:
        """End the grace period. now: by the clock of `step`."""
        self._grace = 0.0
        if self._kill_at is not None:
            self._kill_at = min(self._kill_at, now)

    def _signal(self, number: int, told: set[Identity], strays: Collection[int]) -> None:
        self._tree.signal(number, self._with_root, strays, told)
        self._met |= told


class _Member(NamedTuple):
    """A process of a tree as it was last seen; times in clock ticks."""

    parent: int
    group: int
    session: int
    start: int
    ticks: int  # its own and those of the children that it has waited for
    inherited: int  # those of the children only
    pages: int
    is_living: bool
    is_stopped: bool


def _member(fields: list[bytes]) -> _Member:
    parent, group, session = map(int, fields[1:4])
    inherited = int(fields[13]) + int(fields[14])
    ticks = int(fields[11]) + int(fields[12]) + inherited
    return _Member(
        parent,
        group,
        session,
        int(fields[19]),
        ticks,
        inherited,
        int(fields[21]),
        not has_ended(fields),
        fields[0] == b"T",
    )


def _send(pid: int, member: _Member, number: int) -> bool:
    """Send a signal to this member, not to a later process with its pid. False: gone or forbidden."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # The descriptor refers to one process. If its start is right, it stays right.
        if start_ticks(pid) != member.start:
            return False
        signal.pidfd_send_signal(descriptor, number)
        if number == signal.SIGTERM and member.is_stopped:
            signal.pidfd_send_signal(descriptor, signal.SIGCONT)  # else it would not handle it
    except (ProcessLookupError, PermissionError):  # the second: it has changed its user
        return False
    finally:
        os.close(descriptor)
    return True


def _has_group(number: int) -> bool:
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # a member has changed its user
        pass
    return True
