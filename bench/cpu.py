"""Processor time, in seconds, of other processes."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import psutil

TICK = 1 / os.sysconf("SC_CLK_TCK")  # seconds
SCHEDULED = 2  # CPUCLOCK_SCHED: user and system time of all threads


def of_process(pid: int) -> float:
    """Return what a process has used, to the microsecond; children not included. 0 when it has
    gone.
    """
    try:
        # as clock_getcpuclockid(3) makes the id of the clock
        return time.clock_gettime(~pid << 3 | SCHEDULED)
    except OSError:
        return 0.0


def of_ended_children(pid: int) -> float:
    """Return what the children have used for which a process has waited. The kernel tells this in
    ticks of 10 ms.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[13]) + int(fields[14])) * TICK


def of_listener(master: int) -> dict[str, float]:
    """Return what a listener has used, given the pid of its master: its children are slots, and
    theirs task processes.

    "listener": master and slots. "tasks": the task processes, those that have ended included, and
    their children.
    """
    listener = of_process(master) + of_ended_children(master)
    tasks = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        for slot in psutil.Process(master).children():
            listener += of_process(slot.pid)
            tasks += of_ended_children(slot.pid)
            with contextlib.suppress(psutil.NoSuchProcess):
                children = [child.pid for child in slot.children(recursive=True)]
                tasks += sum(of_process(pid) + of_ended_children(pid) for pid in children)
    return {"listener": listener, "tasks": tasks}
