"""Identify processes, check whether they live, fork, wait, signal. No tasks, no Redis."""

from __future__ import annotations

import functools
import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, NoReturn

from blueque.system.hosts import host_name, is_this_machine, name_for_people
from blueque.system.procfs import has_ended, read_all_stats, read_plainly, read_stat
from blueque.system.signals import signal_name

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
VMSTAT = "/proc/vmstat"
_SIGKILL = 9  # `signal` has this name on some systems only
# a constant of the kernel: the namespace of the machine, not of a container
_FIRST_PID_NAMESPACE = "pid:[4026531836]"


def user_at_host() -> str:
    """Return user@host of this process, for people."""
    return f"{_user()}@{name_for_people()}"


def who_of(by: str | None) -> str:
    """Return the given actor, or else this user and host."""
    return by if by is not None else user_at_host()


def producer() -> str:
    """Return the name of this process in the tasks that it enqueues: user@host[pid], at most 64 bytes."""
    return _producer(os.getpid())


def node_id() -> str:
    """Return the id of a listener in this process, `[host]_[pid]`, as in 1.0.0."""
    return f"{host_name()}_{os.getpid()}"


def pid_of(text: str) -> int:
    """Return the pid; 0 for text that is not a pid."""
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def identity(pid: int) -> dict[str, str | int]:
    """Return what distinguishes a process from a later one with the same pid.

    pid_start: ticks from boot to its start. boot: the id of that boot. ns: the pid namespace.
    """
    return {"pid_start": start_ticks(pid) or 0, "boot": _boot_id(), "ns": _pid_namespace()}


def start_ticks(pid: int) -> int | None:
    """Return when the process started, in clock ticks since boot; None if it does not exist."""
    fields = read_stat(pid)
    return int(fields[19]) if fields else None


def parent(pid: int) -> int | None:
    """Return the pid of its parent; None if the process does not exist."""
    fields = read_stat(pid)
    return int(fields[1]) if fields else None


def session(pid: int) -> int | None:
    """Return the pid of the leader of its session; None if the process does not exist."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def is_alive(pid: int, known: Mapping[str, str]) -> bool:
    """Return whether a process of this host is alive; False only if that is certain.

    known: its recorded `identity`, or nothing.
    """
    ticks = known.get("pid_start")
    if known.get("boot") and not shares_pids(known):
        return True  # another machine or container: its pid means nothing here
    fields = read_stat(pid)
    if not is_running(pid) or (fields and has_ended(fields)):
        return False
    if not fields:
        return True  # another user's, and hidden from us (hidepid)
    return not ticks or not ticks.isdecimal() or int(ticks[:20]) in (0, start_ticks(pid))


def is_gone(pid: int, known: Mapping[str, str]) -> bool:
    """Return whether a process of this host has certainly ended.

    False: it runs, or is unknown (pid 0), or is on another host or in another container.
    """
    return pid > 0 and shares_pids(known) and not is_alive(pid, known)


def shares_pids(known: Mapping[str, str]) -> bool:
    """Return whether pids of that `identity` mean the same processes here: same boot and namespace."""
    boot, namespace = known.get("boot"), known.get("ns")
    return bool(boot and namespace) and boot == _boot_id() and namespace == _pid_namespace()


def sees_all_pids() -> bool:
    """Return whether every process of this machine is visible, which is not so in a container."""
    return f"pid:[{_pid_namespace()}]" == _FIRST_PID_NAMESPACE


def is_legacy_here(node: str) -> bool:
    """Return whether the process of a listener of 1.0.0 is visible here. Only its node id is recorded.

    In a container, another container or the machine may have the same host name, so pids mean nothing.
    """
    return is_this_machine(node.rpartition("_")[0]) and sees_all_pids()


def is_running(pid: int) -> bool:
    """Return whether a process with this pid exists."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # the second: too large for a pid
        return False
    except PermissionError:
        return True
    return True


def children(pid: int) -> set[int]:
    """Return the children of a process, including zombies. For this process, the set is complete."""
    if not _knows_children():
        return {child for child, fields in read_all_stats() if int(fields[1]) == pid}
    found: set[int] = set()
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found.update(map(int, read_plainly(f"/proc/{pid}/task/{thread}/children").split()))
    except OSError:  # it has ended
        pass
    return found


def is_in_container(environ: Mapping[str, str] = os.environ, root: str = "/") -> bool:
    """Return whether this process is in a container, which ends together with its first process."""
    if environ.get("container") or environ.get("KUBERNETES_SERVICE_HOST"):
        return True
    if any(
        os.path.exists(os.path.join(root, mark)) for mark in (".dockerenv", "run/.containerenv")
    ):
        return True
    try:
        return os.readlink(os.path.join(root, "proc/self/ns/pid")) != _FIRST_PID_NAMESPACE
    except OSError:
        return False


def become_subreaper() -> None:
    """Adopt orphans among the descendants of this process, so that it can wait for them."""
    import ctypes  # here: only a listener needs it

    if _get_prctl()(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(code)}")


def die_with_parent(is_wanted: bool, number: int = _SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent dies, or stop that."""
    _get_prctl()(PR_SET_PDEATHSIG, number if is_wanted else 0, 0, 0, 0)


def set_name(name: str) -> None:
    """Set the name of this process, which `ps -o comm` and `top` show. 15 characters at most."""
    # Not by ctypes: a forked process would copy 30 pages of memory for the call.
    try:
        descriptor = os.open("/proc/self/comm", os.O_WRONLY)
    except OSError:
        return
    try:
        os.write(descriptor, name.encode())
    finally:
        os.close(descriptor)


def fork(body: Callable[[], int]) -> int:
    """Run `body()` in a new process and return its pid. The child exits with what `body` returns."""
    flush()
    pid = os.fork()
    if pid:
        return pid
    leave_with(body)


def leave_with(body: Callable[[], int]) -> NoReturn:
    """Exit with what `body()` returns, without the cleanup of Python."""
    status = 1
    try:
        status = body()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        try:
            flush()  # os._exit flushes nothing
        finally:
            os._exit(status)


def flush() -> None:
    """Write out the buffers of stdout and stderr, as far as possible."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            # the reader is gone; the stream is closed, missing, or replaced by another object
            pass


class Ending:
    """How a process ended."""

    def __init__(
        self, exit_code: int | None, signal_number: int | None, dumped_core: bool = False
    ) -> None:
        self.exit_code = exit_code
        self.signal = None if signal_number is None else signal_name(signal_number)
        self.dumped_core = dumped_core

    @staticmethod
    def of(reaped: Reaped) -> Ending:
        """Return the ending of a process that was reaped."""
        if reaped.code >= 0:
            return Ending(reaped.code, None)
        return Ending(None, -reaped.code, reaped.dumped_core)


def ending_of_zombie(pid: int, ticks: int) -> Reaped | None:
    """Return how a process ended that its parent has not reaped. Its memory use is unknown.

    None: it was reaped, or runs, or is another user's. ticks: when it started.
    """
    fields = read_stat(pid)
    try:
        is_ours = os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return None
    if not is_ours or not fields or fields[0] != b"Z" or int(fields[19]) != ticks:
        return None
    status, used = int(fields[22].split()[27]), sum(map(int, fields[11:15]))  # see proc(5)
    seconds = used / os.sysconf("SC_CLK_TCK")
    return Reaped(os.waitstatus_to_exitcode(status), seconds, 0, os.WCOREDUMP(status))


def reap(pid: int) -> None:
    """Reap a child that has ended."""
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass


def ended_children() -> Iterator[int]:
    """Yield each child that has ended. The caller must reap it before the next."""
    while True:
        try:
            info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if info is None:
            return
        yield info.si_pid


def wait_for(pid: int) -> int:
    """Wait for a child to end; return its exit code or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Reaped(NamedTuple):
    """How a child ended, and what it and the children that it waited for used."""

    code: int  # exit code or minus the signal
    cpu_seconds: float
    max_rss_bytes: int  # of the largest one of these processes
    dumped_core: bool = False


def wait_usage(pid: int) -> Reaped:
    """Wait for a child to end, reap it, and return what it used."""
    _, status, usage = os.wait4(pid, 0)
    return Reaped(
        os.waitstatus_to_exitcode(status),
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss * 1024,
        os.WCOREDUMP(status),
    )


def describe(code: int) -> str:
    """Say how a process ended, given its exit code or minus the signal."""
    return f"exit code {code}" if code >= 0 else f"killed by {signal_name(-code)}"


def fill_standard_streams() -> None:
    """Open /dev/null for each closed standard stream; else the next file would take its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def keep_in_memory(text: str) -> int:
    """Return a descriptor from which the program after an exec can read the text.

    Unlike the environment, others cannot see it.
    """
    descriptor = os.memfd_create("blueque", 0)  # 0: it stays open at an exec
    with open(descriptor, "w", encoding="utf-8", errors="surrogateescape", closefd=False) as file:
        file.write(text)
    return descriptor


def read_from_memory(descriptor: int) -> str:
    """Return the text of `keep_in_memory`, and close the descriptor."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    with open(descriptor, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def find_program(name: str) -> str | None:
    """Return the path of a program as a shell would find it."""
    import shutil  # here: what a listener imports, each of its forks copies

    return shutil.which(name)


def is_ready(descriptor: int, seconds: float = 0) -> bool:
    """Return whether a descriptor can be read, which means for a process that it has ended.

    Waits up to this many seconds.
    """
    return bool(wait_readable([descriptor], seconds))


def signal_group(pid: int, number: int) -> bool:
    """Send a signal to the process group that a child leads or is about to lead. False: it is gone."""
    if pid <= 1:
        return False  # to the kernel, 0 is this process's group, and 1 every process
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        try:
            os.kill(pid, number)  # forked just now, and not a leader yet
        except ProcessLookupError:
            return False
    except PermissionError:  # a member has changed its user; the others have got the signal
        return True
    return True


def out_of_memory_kills() -> int:
    """Return how many processes the kernel killed for lack of memory since boot; 0 if unknown."""
    try:
        with open(VMSTAT, "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0


def wait_readable(descriptors: Iterable[int], seconds: float | None) -> set[int]:
    """Wait until one of the descriptors can be read or has been hung up, and return those."""
    poll = select.poll()  # not select.select: it refuses descriptors above 1023
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {
        descriptor
        for descriptor, _ in poll.poll(None if seconds is None else max(seconds, 0.0) * 1000)
    }


@functools.cache
def _get_prctl() -> Callable[..., int]:
    import ctypes  # here: as above

    prctl: Callable[..., int] = ctypes.CDLL(None, use_errno=True).prctl
    return prctl


def _user() -> str:
    try:
        import pwd  # here: Windows has none
    except ImportError:
        return os.environ.get("USERNAME", "unknown")
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


@functools.lru_cache(1)  # by the pid, for a fork copies it
def _producer(pid: int) -> str:
    # Redis packs a hash tightly as long as no value takes more than 64 bytes.
    end = f"[{pid}]"
    name = user_at_host().encode(errors="replace")[: 64 - len(end)]
    return name.decode(errors="ignore") + end


@functools.cache
def _knows_children() -> bool:
    return os.path.exists("/proc/thread-self/children")  # a choice when the kernel is built


@functools.cache
def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


@functools.cache
def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return ""
