"""What a test shares with the tests after it in one process: signals, descriptors, threads,
children, environment.
"""

from __future__ import annotations

import _signal
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any, NamedTuple

from blueque.system import process

PATIENCE = 5.0  # seconds for threads and programs that are about to end
NUMBERS = sorted(int(number) for number in signal.valid_signals())
LOGGERS = [logging.getLogger(), logging.getLogger("blueque")]
OF_THE_KERNEL = (b"Umask:", b"SigBlk:", b"SigIgn:", b"SigCgt:")
# Python itself ignores them; what it starts gets their default actions from subprocess.
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
KEPT = set[int]()  # the pids and descriptors of processes that tests share, see prepared.py
KEPT_BY_PYTHON = "/dev/shm/pym-"  # what multiprocessing shares, for as long as the process lives
INTERNAL = 1 << 31 | 1 << 32  # the bits of signals 32 and 33
PYTEST = b"PYTEST_CURRENT_TEST"  # an environment variable that pytest changes during a test


class ProcessState(NamedTuple):
    """Each field but `threads`, by name and value: what to compare, and what to say of a
    difference.
    """

    signals: Mapping[str, object]
    descriptors: Mapping[str, object]
    children: Mapping[str, object]
    threads: frozenset[threading.Thread]
    environment: Mapping[str, object]
    settings: Mapping[str, object]


def take() -> ProcessState:
    """Look at this process. It takes about 0.1 ms, as it is done before and after each test."""
    kernel = _kernel()
    # _signal, not signal: that makes an enum of each handler, which takes longer than all the rest.
    handlers: dict[str, object] = {
        f"handler of signal {number}": _signal.getsignal(number) for number in NUMBERS
    }
    settings: dict[str, object] = {
        "umask": kernel.pop("Umask"),
        "working directory": _directory(),
        "sys.path": [*sys.path],
    }
    for logger in LOGGERS:
        settings[f"logger {logger.name}"] = (
            logger.level,
            logger.disabled,
            logger.propagate,
            [*logger.handlers],
        )
    return ProcessState(
        signals={**handlers, **kernel, "wakeup descriptor": _wakeup()},
        descriptors=_descriptors(),
        children={
            f"child process {pid}": _command(pid) for pid in process.children(os.getpid()) - KEPT
        },
        threads=frozenset(threading.enumerate()),
        environment=_environment(),
        settings=settings,
    )


def differences(before: ProcessState, apart_from: tuple[str, ...] = ()) -> list[str]:
    """Return a sentence for each difference, after a wait for what is about to end and for the
    garbage collection.

    apart_from: fields of which nothing is said.
    """

    def look() -> list[tuple[str, str]]:
        return [
            (kind, sentence) for kind, sentence in _differences(before) if kind not in apart_from
        ]

    found = look()
    for generation in range(3):  # the last one takes long
        if found:
            gc.collect(generation)
            found = look()
    deadline, pause = time.monotonic() + PATIENCE, 0.001
    while _may_end(found) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
        found = look()
    return [
        sentence + (_owners(sentence) if kind == "descriptors" else "") for kind, sentence in found
    ]


def _owners(sentence: str) -> str:
    """Return the types of the objects through which something reaches the socket that it names."""
    number = int(sentence.split()[1])
    level: list[object] = [
        thing
        for thing in gc.get_objects()
        if isinstance(thing, socket.socket) and thing.fileno() == number
    ]
    chain: list[str] = []
    known = {id(level), id(chain)}
    while level and len(chain) < 8:
        known |= {id(thing) for thing in level}
        chain.append(" or ".join(sorted({type(thing).__qualname__ for thing in level})))
        above = [
            thing
            for thing in gc.get_referrers(*level)
            if id(thing) not in known and not isinstance(thing, FrameType)
        ]
        known.add(id(above))
        level = above
    return ", held by " + " < ".join(chain) if chain else ""


def reset_signals() -> None:
    """Have signals act as in a process that nobody has told otherwise: what the shell ignores is
    inherited.
    """
    for number in NUMBERS:
        if number not in IGNORED_BY_PYTHON and _signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _differences(before: ProcessState) -> list[tuple[str, str]]:
    """Return the kind and the sentence of each difference."""
    after = take()
    found = [
        (kind, f"{name}: {_shown(old, name)} before, {_shown(new, name)} after")
        for kind in ("signals", "environment", "settings")
        for old, new in [(getattr(before, kind), getattr(after, kind))]
        if old != new
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
    # A descriptor that has been closed may be one that the garbage collection has closed.
    descriptors = [
        (name, target)
        for name, target in after.descriptors.items() - before.descriptors.items()
        if not _is_connected_again(before.descriptors.get(name), target)
        and not str(target).endswith(f" to {_java()}")
    ]
    found += [
        ("descriptors", f"{name} is still there: {target}") for name, target in sorted(descriptors)
    ]
    # A child from before may have become another program, or have ended.
    children = after.children.keys() - before.children.keys()
    found += [
        ("children", f"{name} is still there: {after.children[name]}") for name in sorted(children)
    ]
    found += [
        ("threads", f"thread {thread.name} still runs") for thread in after.threads - before.threads
    ]
    return found


def _is_connected_again(before: object, after: object) -> bool:
    """Tell whether a descriptor is a socket as it was before, or one with the same peer: a
    connection of the whole run that was made again.
    """
    old, _, old_peer = str(before).partition(" to ")
    new, _, peer = str(after).partition(" to ")
    return new.startswith("socket:") and (old == new or (bool(peer) and old_peer == peer))


def _java() -> tuple[str, int] | None:
    """Return the address of Spark's Java process: the threads of its client connect to it when they
    need to, whatever test runs at that time.
    """
    gateway = getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_gateway", None)
    return None if gateway is None else ("127.0.0.1", gateway.gateway_parameters.port)


def _may_end(found: list[tuple[str, str]]) -> bool:
    return any(kind in ("descriptors", "children", "threads") for kind, _ in found)


def _shown(values: Mapping[str, Any], name: str) -> str:
    return repr(values[name]) if name in values else "nothing"


def _kernel() -> dict[str, object]:
    """Return the umask, the signals that this thread blocks, and those for which C code may have
    set something.
    """
    with open("/proc/thread-self/status", "rb", buffering=0) as file:
        fields = dict(
            line.split(b":\t", 1)
            for line in file.read().splitlines()
            if line.startswith(OF_THE_KERNEL)
        )
    values = {name.decode(): value.decode() for name, value in fields.items()}
    return {
        name: value if name == "Umask" else _without_internal(value)
        for name, value in values.items()
    }


def _without_internal(signals: str) -> str:
    """Leave out the two signals that the C library uses itself, from its first thread on."""
    return f"{int(signals, 16) & ~INTERNAL:016x}"


def _environment() -> dict[str, object]:
    # Its bytes as os.environ keeps them: to decode them all takes longer than all the rest.
    values: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
    return {os.fsdecode(name): value for name, value in values.items() if name != PYTEST}


def _wakeup() -> int:
    number: int = signal.set_wakeup_fd(-1)
    if number != -1:
        signal.set_wakeup_fd(number)
    return number


def _directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "a directory that is gone"


def _descriptors() -> dict[str, object]:
    found: dict[str, object] = {}
    for number in os.listdir("/proc/self/fd"):
        if int(number) in KEPT:
            continue
        with contextlib.suppress(FileNotFoundError):  # that of the directory itself
            target = os.readlink(f"/proc/self/fd/{number}")
            if target.startswith("socket:"):
                target += _peer(int(number))
            if not target.startswith(KEPT_BY_PYTHON):
                found[f"descriptor {number}"] = target
    return found


def _peer(number: int) -> str:
    """Return ` to ` and the address at the other end of a socket; empty when it has none."""
    try:
        with socket.socket(fileno=os.dup(number)) as copy:
            peer = copy.getpeername()
    except OSError:
        return ""
    return f" to {peer}" if peer else ""


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
            return (
                file.read().replace(b"\0", b" ").decode(errors="backslashreplace").strip()
                or "a zombie"
            )
    except OSError:
        return "a zombie"
