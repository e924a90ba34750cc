"""AttemptWatch: watches one running attempt, measures its memory and CPU time, and ends it.

It does not wait and does not use Redis: the supervisor calls `step` at the time `next_step`, and
waits for `pidfd`.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from blueque.listener.processor import Processor
from blueque.model.encoding import count_of
from blueque.model.limits import Limits
from blueque.model.task import Task
from blueque.node.reuse import Reusable
from blueque.node.unreadable import guarded
from blueque.spool.attempt import Attempt
from blueque.system import process
from blueque.system.process_tree import Stopping, Tree
from blueque.system.procfs import read_state
from blueque.task_process import stack_dump

log = logging.getLogger("blueque")

SAMPLE = 10.0  # seconds between two measurements of memory; short tasks are never measured
SAMPLE_LIMITED = 1.0  # the same under a memory limit
STALL_STEPS = 10  # checks of the progress within a stall limit
STUCK = 10.0  # seconds after SIGKILL from which on a task that is still there does not end
MEMORY_WARNING = 0.9  # part of the memory limit at which the warning comes
NEVER = float("inf")


class AttemptWatch:
    """An attempt and the process that runs it.

    processor: records the attempt in Redis.
    limits: the limits of the task.
    pidfd: a descriptor of the process, if we have started it; the watch closes it. None: we adopt it.
    tree: the processes of an attempt that we adopt, read before the adoption.
    used_before: seconds of CPU time that its process used for earlier tasks.
    reusable: its process, if it may take another task.
    """

    def __init__(
        self,
        processor: Processor,
        attempt: Attempt,
        pid: int,
        limits: Limits,
        pidfd: int | None = None,
        tree: Tree | None = None,
        used_before: float = 0.0,
        reusable: Reusable | None = None,
    ) -> None:
        self.processor, self.attempt, self.pid = processor, attempt, pid
        task, self.is_adopted = processor.task, pidfd is None
        self._start = count_of(task.fields.get("pid_start"))
        # None: the process is gone
        self.pidfd = _open(pid, task) if pidfd is None else pidfd
        self._is_elsewhere = self.is_adopted and _is_elsewhere(task)
        # why we have ended it: an error_type, or cancelled, stopped, fenced; and in a sentence
        self.reason: str | None = None
        self.error = ""
        self.used_before = used_before
        self.reusable = reusable
        self.is_at_rest = False  # it has ended, and its process waits for another task
        # What is ready when the attempt may have ended; empty: its process is gone.
        self.descriptors = [] if self.pidfd is None else [self.pidfd]
        if reusable is not None and self.pidfd is not None:
            self.descriptors.append(reusable.handshake)
        self.instance: str | None = None  # of our registration when we began to watch
        self.lost_with: dict[str, str] = {}  # the listener before us: lost_node, last_seen
        self._limits, self._tree = limits, tree
        self._began = time.monotonic() if attempt.is_new else attempt.began_at() or time.monotonic()
        # At once when it is adopted: what it leaves will not come to us, and is known only if it
        # was seen before.
        self._sample_every = SAMPLE if limits.memory is None else SAMPLE_LIMITED
        self._sample_at = 0.0 if self.is_adopted else self._began + self._sample_every
        self.bars: object = None  # changes when a progress bar that the task draws moves
        self._progress: object = None
        self._progressed_at = time.monotonic()
        self._stall_at = self._progressed_at + (limits.stall or NEVER) / STALL_STEPS
        self._warned: set[str] = set()
        self._stack = task.fields.get(
            "stack"
        )  # answered by the listener that had the attempt before us
        self._asked_for: dict[str, None] = {}  # why it should come to an end by itself, in order
        self._kill_at = self._stuck_at = NEVER
        self._ending_since = 0.0  # Unix seconds
        self.stuck = ""  # if SIGKILL does not end it: the field of a registration
        self.next_step = self._next_step()  # when to call `step`, on the monotonic clock
        self._stopping: Stopping | None = None  # of what is left when the process itself has ended
        # What the attempt has used, as far as it is known: memory_peak, cpu_seconds, leaked.
        self.measured = self._measure()

    @property
    def task(self) -> Task:
        return self.processor.task

    def has_left_record(self) -> bool:
        """Return whether an adopted attempt has ended.

        Its process may still exist: it waits for another task from the previous listener.
        """
        return self.is_adopted and not self._is_elsewhere and self.attempt.has_exit()

    def ending_of_zombie(self) -> process.Reaped | None:
        """Return how the process ended if its parent is stopped and has not reaped it."""
        return None if self._is_elsewhere else process.ending_of_zombie(self.pid, self._start)

    def hear(self) -> bool:
        """Return whether the attempt has ended, after a message of its process, which then waits."""
        assert self.reusable is not None
        self.is_at_rest = self.reusable.hear(self.attempt.path)
        if not self.is_at_rest:  # its end of the handshake is closed: it takes no other task
            self._let_go_of_process()
        return self.is_at_rest

    def give_process(self) -> Reusable:
        """Return the process that waits for another task; it belongs to the caller from now on."""
        assert self.reusable is not None and self.is_at_rest
        reusable, self.reusable = self.reusable, None
        return reusable

    def why_not_again(self) -> str | None:
        """Return why the waiting process gets no other task; None: it may have one."""
        assert self.reusable is not None
        if self.reason is not None:
            return self.error
        if self._stopping is not None and self._stopping.left:
            return "what the task has left running cannot be ended"
        return self.reusable.why_not(self._limits.memory)

    def end_process(self) -> None:
        """Kill the process that waits for another task and gets none."""
        if self.pidfd is not None and not process.is_ready(self.pidfd):
            process.signal_group(self.pid, signal.SIGKILL)
        self._let_go_of_process()

    def _let_go_of_process(self) -> None:
        if self.reusable is not None:
            self.reusable.close()
            self.reusable, self.is_at_rest = None, False
            del self.descriptors[1:]

    def _next_step(self) -> float:
        limit = NEVER
        if self._limits.time is not None and self.reason is None:
            limit = self._began + self._limits.time
            if "time_limit" not in self._warned:
                limit -= self._limits.lead
        return min(limit, self._sample_at, self._stall_at, self._kill_at, self._stuck_at)

    def step(self) -> None:
        """Do what is due: measure, warn, end."""
        now = time.monotonic()
        if now >= self._sample_at:
            self._sample(now)
        if self.reason is None:
            self._hold_to_time(now)
            self._hold_to_progress(now)
        elif now >= self._kill_at:
            log.warning(
                "killing task=%s pid=%d after a grace of %g s",
                self.task.id,
                self.pid,
                self._limits.grace,
            )
            self._signal(signal.SIGKILL)
            self._kill_at, self._stuck_at = NEVER, now + STUCK
        elif now >= self._stuck_at:
            self._note_stuck()
            self._stuck_at = now + SAMPLE
        self.next_step = self._next_step()

    def _note_stuck(self) -> None:
        """Record that SIGKILL does not end the task, and the state of its process."""
        state = "" if self._is_elsewhere else read_state(self.pid)
        if not self.stuck:
            log.error(
                "SIGKILL does not end task=%s pid=%d, whose state is %s: still watching it. If this "
                "listener is killed, the next one here goes on",
                self.task.id,
                self.pid,
                state or "unknown",
            )
        self.stuck = f"{self.task.id} {self._ending_since:.3f} {state or '-'}"

    @property
    def asked_for(self) -> str | None:
        """The first reason for which we asked the task to stop; None: we have not asked it."""
        return next(iter(self._asked_for), None)

    def ask(self, reason: str) -> None:
        """Ask the task to stop by itself. reason: one word."""
        is_first = not self._asked_for
        self._asked_for[reason] = None
        if not is_first:
            return
        log.info("asking task=%s pid=%d to stop: %s", self.task.id, self.pid, reason)
        try:
            self.attempt.ask_to_stop(reason)
        except OSError as error:
            log.warning("cannot ask task=%s to stop: %s", self.task.id, error.strerror)

    def _withdraw(self, reason: str) -> None:
        """Let the task continue, if it was asked to stop for this reason only and has not noticed."""
        if reason not in self._asked_for:
            return
        del self._asked_for[reason]
        if self._asked_for:
            return
        log.info("not asking task=%s pid=%d to stop any more: %s", self.task.id, self.pid, reason)
        try:
            self.attempt.withdraw_stop()
        except OSError as error:
            log.warning("task=%s stays asked to stop: %s", self.task.id, error.strerror)

    def show_stack(self, mark: str | None) -> str | None:
        """Make the task show its stack, if this request is new. Return why it cannot, or None.

        mark: of the newest request. A mark followed by a reason was declined already.
        """
        if mark is None or mark == self._stack or self.pidfd is None or self._is_elsewhere:
            return None
        self._stack = mark
        if " " in mark:
            return None
        try:
            return stack_dump.show(self.attempt, self.pid, self.pidfd, mark)
        except OSError as error:
            log.warning("cannot show the stack of task=%s: %s", self.task.id, error.strerror)
            return f"its listener could not ask it: {error.strerror}"

    def end(self, reason: str, error: str) -> None:
        """End the attempt: SIGTERM to all its processes, and SIGKILL after the grace."""
        if self.reason is not None:
            return
        self.reason, self.error = reason, error
        self.ask(reason)
        log.warning("stopping task=%s pid=%d: %s", self.task.id, self.pid, error)
        self._signal(signal.SIGTERM)
        self._kill_at = time.monotonic() + self._limits.grace
        self._ending_since = time.time()
        self._stall_at = NEVER
        self.next_step = self._next_step()

    def end_the_rest(self, find_strays: Callable[[], set[int] | None]) -> float | None:
        """End the processes that the ended task process has left running. Return when to call again.

        None: nothing is left. find_strays: returns the processes of the task that have become our
            children. None: search all processes of the host, because they may be children of
            another process.
        """
        again = self._end_the_rest(find_strays)
        if again is None:
            self.measured = self._measure()
        return again

    def hurry(self) -> None:
        """Kill what the process has left running."""
        if self._stopping is not None:
            self._stopping.hurry(time.monotonic())

    def _end_the_rest(self, find_strays: Callable[[], set[int] | None]) -> float | None:
        if self._is_elsewhere:
            return None
        strays = find_strays()
        if self._stopping is None:
            if strays is not None and not (strays or self._tree or self._has_children):
                return None
            self._stopping = Stopping(self._get_tree(), self._limits.grace)
        again = self._stopping.step(time.monotonic(), strays or ())
        # A process that ended before it was looked at has left us the children that it had.
        while again is None and (found := find_strays() or set()) - (strays or set()):
            strays = found
            again = self._stopping.step(time.monotonic(), strays)
        return again

    @property
    def _has_children(self) -> bool:
        """Whether the process waits for another task while children of this one still run."""
        rest = None if self.reusable is None else self.reusable.rest
        return rest is not None and rest.has_children

    def _measure(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._tree is not None:
            found = {
                "memory_peak": self._tree.peak_memory,
                "cpu_seconds": round(self._tree.cpu_seconds, 3),
            }
        if self._stopping is not None and self._stopping.ended:
            found["leaked"] = self._stopping.ended
        return found

    def close(self) -> None:
        self._let_go_of_process()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None

    def _get_tree(self) -> Tree:
        if self._tree is None:
            self._tree = Tree(self.pid, self._start, self.used_before)
        return self._tree

    def _signal(self, number: int) -> None:
        if not self._is_elsewhere:
            self._get_tree().signal(number)

    def _sample(self, now: float) -> None:
        usage = self._get_tree().look()
        limit = self._limits.memory
        self._sample_at = now + self._sample_every
        if limit is None or self.reason is not None:
            return
        if usage.memory <= limit * MEMORY_WARNING:
            return
        used = self._get_tree().measure_memory()  # what they share counted once
        if used > limit:
            self.end(
                "memory_limit", f"memory_limit of {limit:,} bytes exceeded with {used:,} bytes"
            )
        elif used > limit * MEMORY_WARNING:
            self._warn("memory_limit")

    def _hold_to_time(self, now: float) -> None:
        limit, ran = self._limits.time, now - self._began
        if limit is None:
            return
        if ran >= limit:
            self.end("time_limit", f"time_limit of {limit:g} s exceeded after {ran:.1f} s")
        elif ran >= limit - self._limits.lead:
            self._warn("time_limit")

    def _hold_to_progress(self, now: float) -> None:
        limit = self._limits.stall
        if limit is None or self.reason is not None:
            return
        # Not the age of a file, which goes by a clock that may be set, but whether it has changed.
        progress = guarded(self.attempt, "progress", self._signs, None), self.bars
        if progress != self._progress:
            self._progress, self._progressed_at = progress, now
            self._warned.discard("stall_limit")
            self._withdraw("stall_limit")
        silent = now - self._progressed_at
        if silent >= limit:
            self.end(
                "stall_limit",
                f"stall_limit of {limit:g} s exceeded, no progress for {silent:.1f} s",
            )
        elif silent >= limit - self._limits.lead:
            self._warn("stall_limit")
        self._stall_at = min(now + limit / STALL_STEPS, self._progressed_at + limit)
        if self.reason is not None:
            self._stall_at = NEVER

    def _signs(self) -> object:
        """Return a value that changes when the task reports progress."""
        return self.attempt.told(), self.attempt.wrote_progress()

    def _warn(self, limit: str) -> None:
        """Warn the process of the task, not its children, that a limit is near: SIGUSR1, if requested."""
        if limit in self._warned or self._limits.lead <= 0:
            return
        self._warned.add(limit)
        log.warning("warning task=%s pid=%d: near its %s", self.task.id, self.pid, limit)
        self.ask(limit)
        if self.pidfd is not None:
            try:
                signal.pidfd_send_signal(self.pidfd, signal.SIGUSR1)
            except ProcessLookupError:
                pass


def _is_elsewhere(task: Task) -> bool:
    """Return whether an attempt runs in another boot or container, where its ids mean other processes."""
    return bool(task.fields.get("boot")) and not process.shares_pids(task.fields)


def tree_of(task: Task, pid: int, used_before: float) -> Tree | None:
    """Return the processes of an attempt of another listener; None: they are gone or elsewhere.

    used_before: as in `AttemptWatch`.
    """
    if pid < 2 or not process.shares_pids(task.fields) or not process.is_alive(pid, task.fields):
        return None
    tree = Tree(pid, count_of(task.fields.get("pid_start")), used_before)
    tree.look()
    return tree


def _open(pid: int, task: Task) -> int | None:
    """Return a descriptor that signals the end of the process; None: it has ended."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    # With the descriptor in hand the pid cannot become another's unseen.
    if process.shares_pids(task.fields) and process.is_alive(pid, task.fields):
        return pidfd
    os.close(pidfd)
    return None
