"""The process tree of a task, with real processes: sessions, daemons, orphans, and those that will
not go.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time

import pytest
from running import PATIENCE, is_there, state_of, until

from blueque.system import process
from blueque.system.process_tree import Stopping, Tree, _send

MIB = 2**20
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change users")


class Family:
    """Processes of a test. Each does something, says that it is ready, and stays until the test is
    over.
    """

    def __init__(self) -> None:
        self._end: int | None
        self._life, self._end = os.pipe()
        self._ear, self._mouth = os.pipe()
        self._pids: dict[str, int] = {}
        self._gates: list[Gate] = []

    def gate(self):
        self._gates.append(Gate())
        return self._gates[-1]

    def fork(self, name, body=lambda: None, leads_session=False):
        """Start a process that calls body() and then says its name."""
        pid = os.fork()
        if pid:
            return pid
        try:
            if self._end is not None:  # the test alone holds it
                os.close(self._end)
                self._end = None
            if leads_session:
                os.setsid()
            body()
            self.say(name)
            self.stay()
        finally:
            os._exit(0)

    def fork_twice(self, name, body=lambda: None, leads_session=False):
        """Start a process whose parent ends at once."""
        middle = os.fork()
        if middle == 0:
            self.fork(name, body, leads_session)
            os._exit(0)
        os.waitpid(middle, 0)

    def lead(self, body=lambda: None):
        """Start a leader, and return its pid when it is ready."""
        self.fork("leader", body, leads_session=True)
        return self.pid_of("leader")

    def say(self, name):
        os.write(self._mouth, f"{name} {os.getpid()}\n".encode())

    def stay(self):
        while not select.select([self._life], [], [], None)[0]:
            pass

    def stay_as(self, name):
        self.say(name)
        self.stay()

    def breed(self):
        """Start a program that starts a thousand others, a few each millisecond."""
        os.dup2(self._life, 9)  # the shell knows descriptors of one digit only
        os.set_inheritable(9, True)
        rest = "j=0; while [ $j -lt 300 ]; do j=$((j+1)); done"
        script = f"i=0; while [ $i -lt 1000 ]; do i=$((i+1)); (read line <&9) & {rest}; done; wait"
        os.posix_spawn("/bin/sh", ["sh", "-c", script], os.environ)

    def flee(self):
        """Become a program, small and so fast, that goes on in a new process all the time and ends
        the old one.
        """
        # Not for ever: those that have ended are ours to reap, and there are only so many pids.
        script = "import os\nfor _ in range(20000):\n if os.fork(): os._exit(0)"
        os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", script])

    def pid_of(self, name):
        """Wait until a process has said the name."""
        while name not in self._pids:
            assert process.wait_readable([self._ear], PATIENCE), f"nobody said {name}"
            for line in os.read(self._ear, 4096).decode().splitlines():
                said, _, pid = line.rpartition(" ")
                self._pids[said] = int(pid)
        return self._pids[name]

    def let_go(self):
        for descriptor in (self._end, self._life, self._ear, self._mouth):
            os.close(descriptor)
        for gate in self._gates:
            gate.close()


@pytest.fixture
def family():
    """All that a test starts; its orphans come to us, as they come to a listener."""
    before = process.children(os.getpid())
    set_subreaper(1)
    family = Family()
    yield family
    family.let_go()
    while left := process.children(os.getpid()) - before:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    set_subreaper(0)


def set_subreaper(value):
    assert ctypes.CDLL(None).prctl(process.PR_SET_CHILD_SUBREAPER, value, 0, 0, 0) == 0


class Late(list):
    """Pids that are only there from the second look on."""

    def __init__(self, pids):
        super().__init__(pids)
        self._is_second = False

    def __iter__(self):
        seen = super().__iter__() if self._is_second else iter(())
        self._is_second = True
        return seen


class Gate:
    """Where processes wait until the test opens it, once for each."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def wait(self):
        os.read(self._read, 1)

    def open(self):
        os.write(self._write, b"x")

    def close(self):
        os.close(self._read)
        os.close(self._write)


def wait_for_end(pid):
    """Wait for the end of a process, ours or not, that is left to be reaped."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        assert process.wait_readable([descriptor], PATIENCE), f"{pid} does not end"
        os.close(descriptor)


def end(pid):
    """End and reap a child of ours."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def burn(seconds):
    while time.process_time() < seconds:
        pass


def run_through(stopping):
    while (due := stopping.step(time.monotonic())) is not None:
        process.wait_readable([], due - time.monotonic())


def fork_as(pid, body):
    """Start a child with the pid of a process that is gone."""
    wanted = ctypes.c_int32(pid)
    arguments = struct.pack(
        "11Q", 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(wanted), 1, 0
    )
    clone3 = 435  # the libc has no name for it
    child = ctypes.PyDLL(None, use_errno=True).syscall(clone3, arguments, len(arguments))
    if child == 0:
        try:
            body()
        finally:
            os._exit(0)
    if child < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
        pytest.skip("we may not choose a pid")
    assert child == pid


def wait_for_another_tick(pid):
    """Wait until what starts now has another start than this process."""
    ticks = os.sysconf("SC_CLK_TCK")
    until(
        lambda: (
            time.clock_gettime(time.CLOCK_BOOTTIME) * ticks > (process.start_ticks(pid) or 0) + 2
        )
    )


def run_as_nobody(body):
    """Run `body` in a process of another user and return what it returns, true or not."""

    def be_nobody():
        os.setuid(65534)
        return 0 if body() else 1

    return process.wait_for(process.fork(be_nobody)) == 0


# Who belongs to it


def survivors_of(tree, strays=()):
    """Return the pids of the living members without the root."""
    return sorted(pid for pid, _ in tree.living(with_root=False, strays=strays))


def test_a_tree_is_its_leader_and_the_children_of_its_children(family):
    leader = family.lead(lambda: family.fork("child", lambda: family.fork("grandchild")))
    child, grandchild = family.pid_of("child"), family.pid_of("grandchild")

    tree = Tree(leader)

    assert tree.look().processes == 3
    assert survivors_of(tree) == sorted([child, grandchild])


def test_a_stranger_does_not_belong_to_it(family):
    family.fork("stranger")
    family.fork("other", leads_session=True)
    leader = family.lead()
    family.pid_of("stranger")
    family.pid_of("other")

    assert Tree(leader).look().processes == 1


def test_a_process_of_the_session_belongs_to_it_though_its_parent_is_gone(family):
    leader = family.lead(lambda: family.fork_twice("orphan"))

    assert survivors_of(Tree(leader)) == [family.pid_of("orphan")]


def test_a_daemon_stays_a_member_once_it_was_seen_with_what_it_forks_later(family):
    middle_may_go, daemon_may_fork = family.gate(), family.gate()

    def be_daemon():
        family.say("daemon")
        daemon_may_fork.wait()
        family.fork("late child")

    def be_middle():
        family.fork("daemon", be_daemon, leads_session=True)
        family.say("middle")
        middle_may_go.wait()
        os._exit(0)

    tree = Tree(family.lead(lambda: family.fork("middle", be_middle)))
    middle, daemon = family.pid_of("middle"), family.pid_of("daemon")
    tree.look()
    middle_may_go.open()
    wait_for_end(middle)
    daemon_may_fork.open()
    late_child = family.pid_of("late child")

    assert survivors_of(tree) == sorted([daemon, late_child])
    assert survivors_of(Tree(tree.pid)) == []


def test_a_daemon_that_was_never_seen_is_a_member_once_it_is_named_as_a_stray(family):
    leader = family.lead(
        lambda: family.fork_twice("daemon", lambda: family.fork("its child"), leads_session=True)
    )
    daemon, its_child = family.pid_of("daemon"), family.pid_of("its child")
    tree = Tree(leader)

    assert survivors_of(tree) == []
    assert daemon in process.children(os.getpid())
    assert survivors_of(tree, strays=[daemon]) == sorted([daemon, its_child])
    assert survivors_of(tree) == sorted([daemon, its_child])


@pytest.mark.parametrize("is_reaped", [False, True])
def test_what_a_root_leaves_behind_survives_it(family, is_reaped):
    leader = family.lead(lambda: family.fork("child"))
    child = family.pid_of("child")
    tree = Tree(leader)
    os.kill(leader, signal.SIGKILL)
    wait_for_end(leader)
    if is_reaped:
        os.waitpid(leader, 0)

    assert survivors_of(tree) == [child]
    assert tree.look().processes == 1


def test_a_child_that_has_ended_and_is_not_reaped_is_no_survivor(family):
    leader = family.lead(lambda: wait_for_end(family.fork("child", lambda: os._exit(0))))

    tree = Tree(leader)

    assert tree.look().processes == 1
    assert survivors_of(tree) == []


def test_a_process_whose_first_thread_has_ended_before_the_others_is_alive(family):
    def lose_first_thread():
        threading.Thread(target=family.stay_as, args=["child"]).start()
        ctypes.CDLL(None).pthread_exit(None)

    leader = family.lead(lambda: family.fork("child", lose_first_thread))
    child = family.pid_of("child")
    until(lambda: state_of(child) == "Z")

    assert survivors_of(Tree(leader)) == [child]
    assert process.is_alive(
        child, {name: str(value) for name, value in process.identity(child).items()}
    )


def test_a_tree_that_is_gone_is_empty(family):
    leader = family.lead()
    tree = Tree(leader)
    tree.look()
    end(leader)

    assert tree.look().processes == 0
    assert survivors_of(tree) == []
    assert tree.signal(signal.SIGKILL) == 0
    assert Tree(leader).look() == (0, 0.0, 0)


# Pids that mean another process now


def test_another_process_with_the_pid_of_the_root_is_not_the_root(family):
    leader = family.lead(lambda: family.fork("child"))
    family.pid_of("child")
    tree = Tree(leader, start=process.start_ticks(leader) - 1)

    assert tree.look().processes == 0
    assert tree.signal(signal.SIGKILL) == 0
    assert Stopping(tree, grace=0.0, with_root=True).step(0.0) is None
    assert is_there(leader)


def test_another_process_with_the_pid_of_a_member_is_not_the_member(family):
    leader = family.lead(lambda: family.fork_twice("daemon", leads_session=True))
    daemon = family.pid_of("daemon")
    tree = Tree(leader)
    assert survivors_of(tree, strays=[daemon]) == [daemon]
    wait_for_another_tick(daemon)
    end(daemon)
    fork_as(daemon, lambda: family.stay_as("stranger"))
    assert family.pid_of("stranger") == daemon

    assert survivors_of(tree) == []
    assert tree.signal(signal.SIGKILL, with_root=False) == 0
    assert is_there(daemon)


@pytest.mark.parametrize("is_seen", ["free", "taken"])
def test_another_session_with_the_number_of_ours_is_not_ours(family, is_seen):
    def lead_strangers():
        os.setsid()
        family.fork("stranger")
        family.stay_as("their leader")

    leader = family.lead()
    tree = Tree(leader)
    tree.look()
    wait_for_another_tick(leader)
    end(leader)
    if is_seen == "free":
        assert survivors_of(tree) == []
    fork_as(leader, lead_strangers)
    family.pid_of("their leader")
    stranger = family.pid_of("stranger")
    if is_seen == "taken":
        assert survivors_of(tree) == []
    end(leader)  # a session without a leader could be ours, but for what was seen

    assert os.getsid(stranger) == tree.pid
    assert survivors_of(tree) == []
    assert tree.signal(signal.SIGKILL) == 0
    assert is_there(stranger)


def test_what_takes_the_pid_of_a_root_that_was_gone_at_the_first_look_is_not_the_root(family):
    leader = family.lead()
    end(leader)
    tree = Tree(leader)
    tree.look()
    fork_as(leader, lambda: family.stay_as("stranger"))
    family.pid_of("stranger")

    assert tree.look().processes == 0


# What it uses


def test_memory_is_that_of_all_members_and_its_peak_is_kept(family):
    def use_memory():
        with mmap.mmap(-1, 64 * MIB) as memory:
            memory.write(b"x" * 64 * MIB)
            family.say("large")
            gate.wait()

    gate = family.gate()
    tree = Tree(family.lead(lambda: family.fork("child", use_memory)))
    family.pid_of("large")

    large = tree.look().memory
    gate.open()
    family.pid_of("child")
    small = tree.look().memory

    assert small > MIB
    assert 64 * MIB < large - small + MIB < 72 * MIB
    assert tree.peak_memory == large


def test_memory_that_processes_share_can_be_counted_once(family):
    def be_pool():
        memory = mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.write(b"x" * 64 * MIB)
        for number in range(3):
            family.fork(f"worker{number}", lambda: memory[:])

    tree = Tree(family.lead(be_pool))
    for number in range(3):
        family.pid_of(f"worker{number}")

    counted_for_each = tree.look().memory
    assert counted_for_each > 4 * 64 * MIB
    assert 64 * MIB < tree.measure_memory() < counted_for_each / 2


@only_root
def test_memory_of_a_process_that_is_not_ours_to_read_counts_as_it_looks(family):
    leader = family.lead()

    def measure():
        tree = Tree(leader)
        return tree.measure_memory() == tree.look().memory > MIB

    assert run_as_nobody(measure)


def test_a_listener_does_without_psutil():
    code = "import sys, blueque.system.process_tree, blueque.node.slot; sys.exit('psutil' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_time_of_a_child_that_its_parent_has_waited_for_counts_once(family):
    def wait_for_child():
        os.waitpid(family.fork("child", burn_at_gate), 0)

    def burn_at_gate():
        burn(0.3)
        family.say("burnt")
        gate.wait()
        os._exit(0)

    gate = family.gate()
    tree = Tree(family.lead(lambda: family.fork("parent", wait_for_child)))
    family.pid_of("burnt")
    assert tree.look().processes == 3
    gate.open()
    family.pid_of("parent")

    usage = tree.look()

    assert usage.processes == 2
    assert 0.28 <= usage.cpu_seconds < 0.5


def test_time_of_children_that_no_look_has_seen_counts_when_they_were_waited_for(family):
    def wait_for_children():
        for _ in range(3):
            os.waitpid(family.fork("child", lambda: (burn(0.1), os._exit(0))), 0)

    assert 0.28 <= Tree(family.lead(wait_for_children)).look().cpu_seconds < 0.5


def test_time_of_children_and_parents_that_ended_between_two_looks_counts_once(family):
    def burn_at_gate():
        burn(0.2)
        family.say("child")
        gate.wait()
        os._exit(0)

    def be_parent():
        child = family.fork("child", burn_at_gate)
        burn(0.2)
        family.say("parent")
        os.waitpid(child, 0)
        os._exit(0)

    gate = family.gate()
    family.fork(
        "leader", lambda: os.waitpid(family.fork("parent", be_parent), 0), leads_session=True
    )
    family.pid_of("child")
    family.pid_of("parent")
    tree = Tree(os.getsid(family.pid_of("child")))
    assert tree.look().processes == 3
    gate.open()
    assert family.pid_of("leader") == tree.pid

    usage = tree.look()

    assert usage.processes == 1
    assert 0.38 <= usage.cpu_seconds < 0.58


def test_time_of_an_orphan_that_has_ended_is_kept_as_it_was_last_seen(family):
    def leave_orphan():
        family.fork_twice("orphan", lambda: burn(0.2))
        family.say("alone")
        gate.wait()
        burn(0.2)

    gate = family.gate()
    family.fork("leader", leave_orphan, leads_session=True)
    tree = Tree(family.pid_of("alone"))
    orphan = family.pid_of("orphan")
    assert tree.look().processes == 2
    end(orphan)
    gate.open()
    family.pid_of("leader")

    usage = tree.look()

    assert usage.processes == 1
    assert 0.38 <= usage.cpu_seconds < 0.58


# Signals


def test_a_signal_reaches_all_members_and_counts_them(family):
    leader = family.lead(
        lambda: family.fork("child", lambda: family.fork("grandchild", leads_session=True))
    )
    everyone = [leader, family.pid_of("child"), family.pid_of("grandchild")]

    assert Tree(leader).signal(signal.SIGTERM) == 3
    for pid in everyone:
        wait_for_end(pid)


def test_a_signal_spares_the_root_when_told(family):
    leader = family.lead(lambda: family.fork("child"))
    child = family.pid_of("child")

    assert Tree(leader).signal(signal.SIGKILL, with_root=False) == 1
    wait_for_end(child)
    assert is_there(leader)


@only_root
def test_a_member_that_has_changed_its_user_does_not_get_the_signal_and_that_is_no_error(family):
    def change_user():
        os.setgroups([])
        os.setuid(12345)

    def be_nobody():
        os.setuid(65534)
        family.fork("own")

    leader = family.lead(
        lambda: (family.fork("foreign", change_user), family.fork("parent", be_nobody))
    )
    foreign, own = family.pid_of("foreign"), family.pid_of("own")
    family.pid_of("parent")

    assert run_as_nobody(lambda: Tree(leader).signal(signal.SIGKILL) == 2)
    wait_for_end(own)
    assert is_there(leader) and is_there(foreign)


def test_a_signal_to_a_tree_that_grows_all_the_time_does_not_go_on_for_ever(family):
    class Strays(list):
        def __iter__(self):  # one more at each look
            if len(self) < 50:
                self.append(family.fork("stray"))
            return super().__iter__()

    assert 1 < Tree(family.lead()).signal(signal.SIGCONT, strays=Strays()) < 50


def test_a_process_that_took_the_pid_while_we_looked_does_not_get_the_signal(family):
    leader = family.lead()
    tree = Tree(leader)
    tree.look()
    before = tree._members[leader]._replace(start=1)

    assert not _send(leader, before, signal.SIGKILL)
    assert is_there(leader)


# Ending it


def test_what_ends_on_sigterm_is_ended_by_it_and_counted(family):
    leader = family.lead(
        lambda: family.fork("child", lambda: family.fork("grandchild", leads_session=True))
    )
    children = [family.pid_of("child"), family.pid_of("grandchild")]
    stopping = Stopping(Tree(leader), grace=10.0)

    assert 0.0 < stopping.step(0.0) < 1.0
    for pid in children:
        wait_for_end(pid)
    assert stopping.step(1.0) is None
    assert (stopping.ended, stopping.left) == (2, [])
    assert is_there(leader)


def test_what_ignores_sigterm_is_killed_after_the_grace_and_not_before(family):
    leader = family.lead(
        lambda: family.fork("child", lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN))
    )
    child = family.pid_of("child")
    stopping = Stopping(Tree(leader), grace=10.0)

    due = stopping.step(100.0)
    while due < 110.0:
        due = stopping.step(due)
    assert due == 110.0
    assert is_there(child)
    assert stopping.ended == 0
    assert stopping.step(due) > 110.0
    wait_for_end(child)
    assert stopping.step(111.0) is None
    assert stopping.ended == 1


@pytest.mark.parametrize("is_under_way", [True, False])
def test_the_grace_can_be_cut_short(family, is_under_way):
    leader = family.lead(
        lambda: family.fork("child", lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN))
    )
    child = family.pid_of("child")
    stopping = Stopping(Tree(leader), grace=1000.0)

    if is_under_way:
        stopping.step(100.0)
    stopping.hurry(101.0)
    assert is_there(child)
    stopping.step(101.0)
    wait_for_end(child)
    assert stopping.step(102.0) is None
    assert stopping.ended == 1


def test_strays_that_come_while_a_tree_ends_are_ended_too(family):
    def leave_daemon(*_):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        gate.wait()
        family.fork_twice("daemon", leads_session=True)
        os._exit(0)

    gate = family.gate()
    leader = family.lead(
        lambda: family.fork("child", lambda: signal.signal(signal.SIGTERM, leave_daemon))
    )
    child = family.pid_of("child")
    before = process.children(os.getpid())
    stopping = Stopping(Tree(leader), grace=10.0)

    stopping.step(0.0)
    gate.open()
    wait_for_end(child)
    daemon = family.pid_of("daemon")
    strays = process.children(os.getpid()) - before
    assert daemon in strays
    assert stopping.step(0.1, strays) is not None
    wait_for_end(daemon)
    assert stopping.step(0.2) is None
    assert stopping.ended == 2


def test_what_was_forked_while_we_looked_for_the_first_time_is_not_left(family):
    stray = family.fork("stray")
    stopping = Stopping(Tree(family.lead()), grace=10.0)
    family.pid_of("stray")

    assert stopping.step(0.0, Late([stray])) is not None
    wait_for_end(stray)
    assert stopping.step(0.1) is None
    assert stopping.ended == 1


def test_what_was_forked_while_we_sent_signals_is_counted_too(family):
    stray = family.fork("stray")
    leader = family.lead(lambda: family.fork("child"))
    child = family.pid_of("child")
    stopping = Stopping(Tree(leader), grace=10.0)
    family.pid_of("stray")

    stopping.step(0.0, Late([stray]))
    wait_for_end(child)
    wait_for_end(stray)
    assert stopping.step(0.1) is None
    assert stopping.ended == 2


def test_a_stopped_process_gets_to_hear_sigterm(family):
    leader = family.lead(lambda: family.fork("child"))
    child = family.pid_of("child")
    os.kill(child, signal.SIGSTOP)
    until(lambda: state_of(child) == "T")

    Stopping(Tree(leader), grace=10.0).step(0.0)

    wait_for_end(child)


@only_root
def test_what_cannot_be_ended_is_given_up_and_named(family):
    leader = family.lead(lambda: family.fork("child"))
    child = family.pid_of("child")

    def stop():
        stopping = Stopping(Tree(leader), grace=10.0)
        dues = [stopping.step(now) for now in (0.0, 10.0, 14.9, 15.0)]
        return (
            dues[-1] is None
            and None not in dues[:-1]
            and (stopping.ended, stopping.left) == (0, [child])
        )

    assert run_as_nobody(stop)
    assert is_there(child)


@pytest.mark.parametrize("way", ["signal", "step"])
def test_what_forks_faster_than_we_look_is_ended_with_its_group(family, way):
    for _ in range(30):  # now and then a look sees it all the same
        track, theirs = os.pipe()
        os.set_inheritable(theirs, True)
        leader = family.fork("leader", family.flee, leads_session=True)
        os.close(theirs)
        wait_for_end(leader)

        if way == "signal":
            Tree(leader).signal(signal.SIGKILL)
        else:
            run_through(Stopping(Tree(leader), grace=0.0))

        # by itself it would for longer
        assert process.wait_readable([track], 2.0), "it still flees"
        os.close(track)


def test_a_tree_that_grows_all_the_time_is_ended(family):
    tree = Tree(family.lead(family.breed))
    until(lambda: tree.look().processes > 100)
    stopping = Stopping(tree, grace=0.0, with_root=True)

    run_through(stopping)

    assert stopping.left == []
    assert stopping.ended > 100
    assert tree.look().processes == 0


@pytest.mark.parametrize("pid", [0, 1])
def test_the_tree_of_a_process_that_is_not_known_is_empty_and_not_the_whole_machine(pid):
    tree = Tree(pid)

    assert tree.look().processes == 0
    assert tree.living() == set()
    assert not tree._has_session  # so that `kill_groups` does nothing
