"""TaskProcess: a process that waits for a task; and whether it may take another after that.

With `--reuse`, pid and start time do not name an attempt. The process runs the attempt that its
file in `open` names, see `Spool.runs`.
"""

from __future__ import annotations

import os
import signal
from typing import NamedTuple

from blueque.system import process
from blueque.task_process import handshake
from blueque.task_process.handshake import Rest

NEVER = float("inf")
GROWTH, SPARED = 0.5, 64 * 2**20  # of memory since its first task: a part of it, and bytes besides
MOST_DESCRIPTORS = 100  # more than after its first task
MEMORY_LEFT = 0.5  # part of the memory limit that the next task must find free


class Reuse(NamedTuple):
    """How many tasks a process may take, and for how many seconds after its first task has begun."""

    tasks: float = 1
    seconds: float = NEVER

    @classmethod
    def of(cls, tasks: int | None, seconds: float | None) -> Reuse:
        """Return the limits. None: not set; with a time alone, any number of tasks."""
        if tasks is None:
            return cls() if seconds is None else cls(NEVER, seconds)
        return cls(tasks, NEVER if seconds is None else seconds)


class Past(NamedTuple):
    """The past of a process that takes several tasks, one after another.

    tasks: how many it has ended. until: when it takes no more, on the monotonic clock.
    devices: the numbered resources of its tasks: a library keeps the devices that it found when it
        was loaded.
    cpu_seconds: of all its tasks. memory, descriptors: after its first task. resident: bytes of
        memory after its last one.
    """

    tasks: int
    until: float
    devices: str
    cpu_seconds: float
    memory: int
    descriptors: int
    resident: int

    def leaves_enough_of(self, memory_limit: int | None) -> bool:
        """Return whether another task with this limit has enough of it free."""
        return not _is_too_much(self.resident, memory_limit)


class TaskProcess(NamedTuple):
    """A process that waits for a task. pidfd: a descriptor of it. handshake: our end of it.

    identity: see `process.identity`. prepared: the queue whose handler it has imported, if any.
    past: of one that has run tasks.
    """

    pid: int
    pidfd: int
    handshake: int
    identity: dict[str, str | int]
    prepared: str | None = None
    past: Past | None = None

    def has_ended(self) -> bool:
        return process.is_ready(self.pidfd)

    def kill(self) -> None:
        """Kill it and what it has started, unless it has ended: its pid may be another's."""
        if not self.has_ended():
            process.signal_group(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close our descriptors of it: it ends if it has no task."""
        os.close(self.handshake)
        os.close(self.pidfd)


class Reusable:
    """A process that may take another task after the one that it runs.

    until: when it takes no other, on the monotonic clock. devices: as in `Past`.
    """

    def __init__(self, taken: TaskProcess, until: float, devices: str) -> None:
        self._process, self._until, self._devices = taken, until, devices
        self.handshake = taken.handshake
        self.rest: Rest | None = None  # what it says now that its task has ended

    def hear(self, path: str) -> bool:
        """Return whether the process waits for another task, after a message from it.

        path: of the attempt that it runs.
        """
        self.rest = handshake.hear_rest(self.handshake)
        if self.rest is not None and self.rest.path != path:
            self.rest = None
        return self.rest is not None

    def why_not(self, memory_limit: int | None) -> str | None:
        """Return why the process may not take another task; None: it may."""
        rest, past = self.rest, self._process.past
        if rest is None:
            return "it does not wait for one"
        if rest.threads:
            return f"its task has left {rest.threads} thread{'' if rest.threads == 1 else 's'}"
        if memory_limit is not None and _is_too_much(rest.memory, memory_limit):
            return f"it uses {rest.memory:,} bytes of a memory_limit of {memory_limit:,}"
        if past is None:
            return None
        if rest.memory > (1 + GROWTH) * past.memory + SPARED:
            return f"its memory has grown from {past.memory:,} to {rest.memory:,} bytes"
        if rest.descriptors > past.descriptors + MOST_DESCRIPTORS:
            return f"{rest.descriptors - past.descriptors} more files are open than after its first task"
        return None

    def next(self) -> TaskProcess:
        """Return the process as it waits for its next task."""
        assert self.rest is not None
        rest, past = self.rest, self._process.past
        known = Past(
            1 if past is None else past.tasks + 1,
            self._until,
            self._devices,
            rest.cpu_seconds,
            rest.memory if past is None else past.memory,
            rest.descriptors if past is None else past.descriptors,
            rest.memory,
        )
        return self._process._replace(past=known)

    def close(self) -> None:
        """Let go of the process, which then ends after its task."""
        if self.handshake >= 0:
            self._process.close()
            self.handshake = -1


def _is_too_much(memory: int, memory_limit: int | None) -> bool:
    return memory_limit is not None and memory > (1 - MEMORY_LEFT) * memory_limit
