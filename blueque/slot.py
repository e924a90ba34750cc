"""Slot: one listener at work. Reserve, fork, start, watch, report, again.

It runs no user code and never blocks where a signal, its next beat or the end of its task could not reach it: it waits in
one place, `Orders.look`, for whichever comes first.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from blueque import process, settings, task_process
from blueque.client import Client
from blueque.connection import Connection
from blueque.errors import Contended, NodeTaken, NotOwner, NotRegistered, RedisAway, RedisRefused
from blueque.orders import Order, OrderCame, Orders
from blueque.processor import Processor
from blueque.spares import Spare, Spares
from blueque.spool import Attempt, Spool
from blueque.task import Task
from blueque.trouble import Trouble

log = logging.getLogger("blueque")

T = TypeVar("T")

# Redis will not change its mind about these by itself.
_NOT_ALLOWED = {"NOAUTH", "WRONGPASS", "NOPERM", "ERR"}
LOOK_FOR_ROOM = 2.0                                    # seconds between two looks at a full disk
SHORT = 1.0                                            # a task that took less than this is followed by many like it
BURST = 4                                              # how many task processes are forked in a row for short tasks


class Slot:
    """One listener of one queue, with its task.

    work: what a task process does, see `task_process`.
    grace: seconds between SIGTERM and SIGKILL when a task is stopped.
    lifeline: a pipe that hangs up when the master dies; a slot without a master leaves after its task.
    """

    def __init__(
        self,
        client: Client,
        queue: str,
        work: task_process.Work,
        spool: Spool,
        *,
        grace: float = settings.GRACE,
        lifeline: int | None = None,
        obeys_terminal: bool = False,
    ) -> None:
        # No patience: it would sleep where no signal reaches it, and say each time what we say once.
        self._client, self._work, self._spool = client.with_patience(0), work, spool
        self._listener = self._client.get_listener(queue)
        self._grace = grace
        self._is_alone = lifeline is not None          # the process is ours, and so are all its children
        self._orders = Orders(lifeline, obeys_terminal, self._bury)
        self._next_beat = 0.0
        self._task_pid: int | None = None
        self._oom_kills = 0                            # of this machine, as counted at our last beat
        self._spares = Spares(self._become_task_process)
        self._are_tasks_short = False
        self._redis_trouble = Trouble("Redis answers again")
        self._spool_trouble = Trouble("there is room again")

    def run(self) -> None:
        """Work until told to leave.

        Raises NodeTaken or RedisRefused at the start when there is no hope of ever working, SpoolRefused.
        """
        self._spool.open()
        if self._is_alone:
            process.become_subreaper()
        self._client.wait_with(self._orders.has_answer)
        self._orders.open()
        try:
            self._oom_kills = process.out_of_memory_kills()
            self._register()
            self._have_spares()
            while self._orders.now is Order.WORK:
                task = self._next_task()
                if task is not None:
                    self._run(task)
            self._insist(self._listener.leave, until=Order.DRAIN)
        except OrderCame:
            log.warning("leaving node=%s without taking leave of Redis", self._listener.node)
        finally:
            self._orders.close()
            self._spares.dismiss()
            self._spool.close()

    # Getting a task

    def _next_task(self) -> Task | None:
        """Return a reserved task, or None when told to leave."""
        may_take = True
        while self._orders.now is Order.WORK:
            self._orders.look(0)                              # an order that came while we were busy
            if self._orders.now is not Order.WORK:
                return None
            self._beat_if_due()
            want = self._spool.want_of_room()
            if want is not None and not self._spool_trouble.is_on:
                want = self._make_room()
            try:
                if self._spool_trouble.tell(want, "taking nothing new"):
                    self._listener.decline()
                    self._rest(LOOK_FOR_ROOM)
                    may_take = True
                    continue
                if may_take:
                    task = self._listener.take()
                    self._redis_trouble.tell(None)
                    if task is not None:
                        return task
                may_take = self._listener.idle(max(self._next_beat - time.monotonic(), 0.01), self._is_answered)
            except NotRegistered:
                self._register()
            except (RedisAway, RedisRefused, Contended) as error:
                self._redis_trouble.tell(str(error), "waiting")
                self._rest(self._redis_trouble.pause())
                may_take = True
        return None

    def _rest(self, seconds: float) -> None:
        """Wait before the next try for a task; not when an order has come, perhaps while we waited for an answer."""
        if self._orders.now is Order.WORK:
            self._orders.look(seconds)

    def _make_room(self) -> str | None:
        """Remove the files of all attempts that Redis knows the end of; return what is still wanting, or None."""
        try:
            removed = self._spool.prune(time.time())
        except OSError as error:
            return f"spool {self._spool.root}: {error.strerror}"
        if removed:
            log.warning("prune spool=%s attempts=%d: there was no room", self._spool.root, removed)
        return self._spool.want_of_room()

    def _is_answered(self, connection: Connection) -> bool:
        """Wait for an answer from Redis, a signal, or a time by which an answer should have come."""
        deadline = self._next_beat + 5.0
        while self._orders.now is Order.WORK:
            seconds = deadline - time.monotonic()
            if connection.wait(0) or connection.fileno() in self._orders.look(seconds, [connection.fileno()]):
                return True
            if time.monotonic() >= deadline:
                return False
        return False

    # Running it

    def _run(self, task: Task) -> None:
        # No `finally` that ends the process: if we break here, the task shall not.
        try:
            attempt, spare = self._prepare(task)
        except OrderCame:                                   # it stays reserved; nothing of it has run
            return
        self._task_pid = spare.pid
        began = time.monotonic()
        processor = self._client.get_processor(task)
        may_run = self._start(task, processor, spare, attempt)
        ending, is_stopped = self._watch(task, spare.pid)
        if not may_run:
            self._let_go(spare.pid)
            return
        self._are_tasks_short = time.monotonic() - began < SHORT
        record = self._record(attempt, spare.pid, ending, is_stopped)
        self._let_go(spare.pid)
        self._report(task, attempt, lambda: processor.report(record))

    def _bury(self) -> None:
        """Let go of children that have ended, except the task's process, whose end is looked at first."""
        self._spares.bury()
        if self._is_alone:
            process.reap_strays({self._task_pid or 0} | self._spares.pids)

    def _let_go(self, pid: int) -> None:
        process.reap(pid)
        self._task_pid = None
        if self._is_alone:
            process.reap_strays(self._spares.pids)     # those that had ended while its own end hid theirs

    def _start(self, task: Task, processor: Processor, spare: Spare, attempt: Attempt) -> bool:
        """Record the start and open the gate; False when the attempt is not ours to run, and the gate stays closed."""
        identity = process.identity(spare.pid)
        try:
            self._insist(lambda: processor.start(spare.pid, identity))
            task_process.open_gate(spare.gate, attempt)
        except (NotOwner, OrderCame) as error:
            log.warning("not started task=%s: %s", task.id, error)
            return False
        except BrokenPipeError:                        # killed at its gate: its end says how
            return True
        finally:
            os.close(spare.gate)
        self._have_spares()
        return True

    def _have_spares(self) -> None:
        if not self._spares.pids:
            try:
                self._spares.fill(BURST if self._are_tasks_short else 1)
            except OSError:                            # no process to be had now; the next task will wait for one
                pass

    def _prepare(self, task: Task) -> tuple[Attempt, Spare]:
        """Make the spool directory and have a process wait; try again while the disk or the process table is full."""
        attempt: Attempt | None = None
        while True:
            try:
                attempt = attempt or self._spool.create(task.id, task.attempt or 1, task.fields)
                spare = self._spares.take()
            except OSError as error:
                self._spool_trouble.tell(f"cannot run a task: {error}", f"holding task {task.id}")
                if self._orders.now is not Order.WORK:
                    raise OrderCame from error
                self._orders.look(LOOK_FOR_ROOM)
                self._beat_if_due()
            else:
                self._spool_trouble.tell(None)
                return attempt, spare

    def _become_task_process(self, gate: int) -> int:
        """Leave behind what is the listener's, and be a task process."""
        self._client.close()                           # our copy of the socket; the listener's connection stays
        self._orders.forget()
        return task_process.main(self._work, self._spool, gate)

    def _watch(self, task: Task, pid: int) -> tuple[process.Ending, bool]:
        """Wait for the end of the task process, beating; return it, and whether we asked for it. It is not reaped yet."""
        pidfd = os.pidfd_open(pid)
        kill_at: float | None = None
        while True:
            until = self._next_beat if kill_at is None else min(self._next_beat, kill_at)
            ready = self._orders.look(until - time.monotonic(), [pidfd])
            if pidfd in ready:
                ending = process.peek_ending(pid)
                if ending is not None:
                    os.close(pidfd)
                    return ending, kill_at is not None
            self._beat_if_due()
            if self._orders.now is Order.STOP and kill_at is None:
                log.warning("stopping task=%s pid=%d", task.id, pid)
                process.signal_group(pid, signal.SIGTERM)
                kill_at = time.monotonic() + self._grace
            elif kill_at is not None and time.monotonic() >= kill_at:
                log.warning("killing task=%s pid=%d after a grace of %g s", task.id, pid, self._grace)
                process.signal_group(pid, signal.SIGKILL)
                kill_at = float("inf")

    def _record(self, attempt: Attempt, pid: int, ending: process.Ending, is_stopped: bool) -> task_process.Record:
        """Return the exit record, written by the task process or else by us."""
        record = attempt.read_exit()
        if record is not None and not (is_stopped and record["status"] == "failed"):
            return record
        if record is None:
            is_out_of_memory = process.out_of_memory_kills() > self._oom_kills
            record = task_process.record_of_ending(ending, is_out_of_memory, attempt.has_begun())
            record["finished"] = time.time()
            process.signal_group(pid, signal.SIGKILL)  # what a broken task leaves running is nobody's
        if is_stopped:
            record = {**record, "error": f"stopped by operator: {record['error']}", "error_type": "stopped"}
        try:
            attempt.write_exit(record)
        except OSError as error:
            log.error("cannot write the exit record: %s", error)
        return record

    def _report(self, task: Task, attempt: Attempt, report: Callable[[], None]) -> None:
        try:
            self._insist(report)
        except NotOwner as error:
            log.warning("%s; how it ended stays in %s", error, attempt.path)
        except OrderCame:
            log.warning("task=%s has ended, but Redis does not know; how it ended stays in %s", task.id, attempt.path)
            raise
        try:
            attempt.mark_reported()
        except OSError as error:                       # it is kept longer than need be
            log.warning("cannot mark %s as reported: %s", attempt.path, error.strerror)

    # Beating, waiting, listening to orders

    def _register(self) -> None:
        """Register, waiting for a former listener under our node id to prove dead or alive."""
        seen: tuple[str, int] | None = None
        since, dead = 0.0, None
        while True:
            try:
                register = functools.partial(self._listener.register, dead=dead)
                self._insist(register, until=Order.DRAIN, fatal=_NOT_ALLOWED)
            except NodeTaken as taken:
                if (taken.instance, taken.beat) != seen:
                    if seen is not None and seen[0] == taken.instance:
                        raise                          # its beat has moved: it lives
                    log.warning("%s; waiting up to %g s to see whether it lives", taken, settings.LEASE)
                    seen, since = (taken.instance, taken.beat), time.monotonic()
                dead = taken.instance if time.monotonic() - since > settings.LEASE else None
                self._orders.look(2.0)
                if self._orders.now is not Order.WORK:
                    raise OrderCame(str(taken)) from taken
            else:
                self._next_beat = time.monotonic() + settings.BEAT
                return

    def _beat_if_due(self) -> None:
        if time.monotonic() < self._next_beat:
            return
        self._oom_kills = process.out_of_memory_kills()
        try:
            try:
                self._listener.beat()
            except NotRegistered:
                self._listener.register()
            self._redis_trouble.tell(None)
        except (RedisAway, RedisRefused, Contended, NodeTaken) as error:
            self._redis_trouble.tell(str(error), "waiting")
            self._next_beat = time.monotonic() + 1.0
            return
        self._next_beat = time.monotonic() + settings.BEAT

    def _insist(self, action: Callable[[], T], until: Order = Order.STOP, fatal: Iterable[str] = ()) -> T:
        """Call until Redis does it. Raises OrderCame when the order `until` comes first, and what is `fatal` as it is."""
        may_try_again = True                           # once more after the order: what broke may have been its doing
        while True:
            try:
                value = action()
            except (RedisAway, RedisRefused, Contended) as error:
                if isinstance(error, RedisRefused) and error.code in fatal:
                    raise
                self._redis_trouble.tell(str(error), "waiting")
                if self._orders.now >= until:
                    if not may_try_again:
                        raise OrderCame(str(error)) from error
                    may_try_again = False
                    continue
            else:
                self._redis_trouble.tell(None)
                return value
            self._orders.look(self._redis_trouble.pause())
