"""Launcher: prepares a process for an attempt, records the start, and lets the process begin."""

from __future__ import annotations

import functools
import logging
import os
from typing import NamedTuple

from blueque.errors import NotOwner, NotRegistered, PayloadRefused, RedisRefused
from blueque.listener.processor import Processor
from blueque.listener.resources import Claim, environment
from blueque.model import inputs
from blueque.model.limits import Limits, of
from blueque.model.task import Task
from blueque.model.wrong_types import unless_wrong_type
from blueque.node import checkpoint_sync
from blueque.node.attempt_end import close
from blueque.node.attempt_watch import AttemptWatch
from blueque.node.context import NodeContext
from blueque.node.control import Order, OrderCame
from blueque.node.reuse import Reusable, TaskProcess
from blueque.node.task_processes import TaskProcesses
from blueque.node.waiting import Waiting
from blueque.spool.attempt import Attempt
from blueque.system import hosts
from blueque.system.outage import Outage
from blueque.task_process import handshake

log = logging.getLogger("blueque")

STEP = 0.02  # seconds between two looks at a process that has been killed
TRY_AGAIN = 2.0  # seconds between two tries while the disk or the process table is full


class NoProcess(Exception):
    """No process can be started for a task."""


class Prepared(NamedTuple):
    """An attempt that waits for its start to be recorded.

    reusable: the process, if it may take another task; else None.
    instance: of the registration of the listener that reserved it.
    """

    processor: Processor
    attempt: Attempt
    process: TaskProcess
    reusable: Reusable | None
    limits: Limits
    instance: str | None

    def close(self) -> None:
        if self.reusable is not None:
            self.reusable.close()
        else:
            self.process.close()


class Launcher:
    """Starts a process for each task that its slot has reserved.

    outage: logs that tasks cannot be run, and that they can be run again.
    """

    def __init__(
        self, context: NodeContext, waiting: Waiting, processes: TaskProcesses, outage: Outage
    ) -> None:
        self._context, self._waiting = context, waiting
        self._processes, self._outage = processes, outage
        self._host = hosts.host_name()
        self._claim: Claim | None = None  # of our task

    def launch(self, task: Task) -> AttemptWatch | None:
        """Start a process for the task. Return the watch; None: the task does not run."""
        try:
            prepared = self._prepare(task)
        except (OrderCame, NoProcess):  # nothing of it has run
            self._hand_back(task)
            return None
        except PayloadRefused as error:
            log.error("not started task=%s: %s", task.id, error)
            self._hand_back(task, error.key)
            return None
        except (NotOwner, NotRegistered) as error:
            log.info("not started task=%s: %s", task.id, error)
            return None
        # No `finally` that ends the process: an error here must not end the task.
        try:
            return self._start(prepared)
        except NotOwner as error:
            log.warning("not started task=%s: %s", task.id, error)
            close(self._context.client, task, prepared.attempt)
        # The listener that finds it sees that it never began. If we were found dead, the start may
        # have been recorded before that.
        except (NotRegistered, OrderCame) as error:
            log.warning("not started task=%s: %s", task.id, error)
        self._kill(prepared.process)
        prepared.close()
        return None

    def _prepare(self, task: Task) -> Prepared:
        """Create the spool directory and have a process wait; retry while the disk or the process
        table is full.

        Raises OrderCame, NoProcess; PayloadRefused if the task needs a key that we do not have.
        """
        context, queue = self._context, task.queue or ""
        reserver = context.listener.reserver
        self._claim, reserver.claim = reserver.claim, None
        kept = checkpoint_sync.kept(context.client.get_inspector(), self._waiting, task)
        given = self._inputs_of(task)
        limits = of(task.fields, context.defaults.of(queue).limits)
        task, attempt, taken = self._open(task, queue, kept, given, limits.memory)
        reusable = self._processes.reusable
        self._assign(taken, task, attempt, limits.time, reusable is not None)
        processor = context.client.get_processor(task)
        instance = context.listener.of(queue).instance
        return Prepared(processor, attempt, taken, reusable, limits, instance)

    @property
    def _devices(self) -> str:
        """The numbered resources of the task, as text."""
        return self._claim.devices() if self._claim is not None and self._claim.numbers else ""

    def _start(self, prepared: Prepared) -> AttemptWatch:
        """Record the start, let the process begin, return the watch of the attempt.

        Raises NotOwner, OrderCame: the process does not begin. With OrderCame the start may have
            been recorded.
        """
        processor, attempt, taken, reusable, limits, instance = prepared
        facts = {**taken.identity, "files": f"{self._host}:{attempt.path}"}
        if self._devices:
            facts["devices"] = self._devices
        record_start = functools.partial(processor.record_start, taken.pid, facts)
        try:
            self._waiting.retry_until_order(record_start)
            handshake.begin(taken.handshake)
        except BrokenPipeError:  # it was killed while it waited: its end says how
            pass
        pidfd = os.dup(taken.pidfd)
        if reusable is None:
            prepared.close()
        processor.log_start()
        # What is forked now inherits neither the handshake nor the descriptor of the watch.
        self._processes.fork_ahead()
        used_before = 0.0 if taken.past is None else taken.past.cpu_seconds
        watch = AttemptWatch(
            processor, attempt, taken.pid, limits, pidfd, None, used_before, reusable
        )
        watch.instance = instance
        return watch

    def _kill(self, taken: TaskProcess) -> None:
        """End a task process that will not begin: an import may never end, and it holds nothing."""
        taken.kill()
        while not taken.has_ended():
            self._waiting.wait(STEP, [taken.pidfd])

    def _hand_back(self, task: Task, key: str | None = None) -> None:
        """Release the task. key: see `Processor.release`."""
        reason = "stopped" if self._context.orders.now is Order.STOP else "drain"
        if key is not None:
            reason = "no_key"
        elif self._is_at_work():
            reason = "no_process"
        processor = self._context.client.get_processor(task)
        try:
            self._waiting.retry_until_order(lambda: processor.release(reason, key))
        except (NotOwner, OrderCame) as error:
            log.warning("task=%s stays reserved: %s", task.id, error)

    def let_go(self) -> bool:
        """Release the resources that were claimed for the task. False: there were none."""
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.close()
        return claim is not None

    def _open(
        self,
        task: Task,
        queue: str,
        kept: dict[str, str] | None,
        given: str | None,
        memory_limit: int | None,
    ) -> tuple[Task, Attempt, TaskProcess]:
        """Return the task, the open attempt, and the process for it.

        kept: the checkpoint to continue from. given: the results that it gets, as JSON.
        Raises OrderCame, NoProcess, NotOwner.
        """
        attempt: Attempt | None = None
        taken: TaskProcess | None = None
        spool, wait = self._context.spool, self._waiting.wait
        while True:
            try:
                taken = taken or self._processes.take(
                    queue, wait, self._devices, memory_limit, self._is_at_work
                )
                blank = taken.pid if taken.past is None else 0
                attempt = attempt or spool.create(task.id, task.attempt or 1, task.fields, blank)
                self._fill(task, attempt, kept, given)
                attempt.open(spool.open_path, taken.pid, int(taken.identity["pid_start"]))
            except OSError as error:
                self._hold(task, error, taken is not None)
                if attempt is not None and not os.path.exists(attempt.path):
                    attempt = None  # the spool was removed meanwhile
                spool.want_of_room()  # makes it again
            else:
                if self._outage.is_on:
                    self._outage.note(None)
                return task, attempt, taken

    def _fill(
        self, task: Task, attempt: Attempt, kept: dict[str, str] | None, given: str | None
    ) -> None:
        """Put into the directory of the attempt what the task must find there. Raises OSError."""
        context = self._context
        if kept is not None:
            limit = context.client.max_bytes
            checkpoint_sync.carry(context.spool, task, attempt, kept, limit)
        if given is not None:
            attempt.write_inputs(given)
        if context.defaults.of(task.queue).cwd.is_own:
            attempt.make_cwd()

    def _hold(self, task: Task, error: OSError, has_process: bool) -> None:
        """Wait before the next try to run a task.

        Raises OrderCame; NoProcess, if it has none and the next try is likely to fail, too.
        """
        if not self._is_at_work():
            raise OrderCame from error
        if not has_process and (trouble := self._processes.trouble) is not None:
            log.error("%s; taking nothing new until they can be run", trouble)
            raise NoProcess from error
        reason = str(error) if error.filename else error.strerror
        self._outage.note(f"cannot run a task: {reason}", f"holding task {task.id}")
        self._waiting.wait(TRY_AGAIN)

    def _is_at_work(self) -> bool:
        return self._context.orders.now is Order.WORK

    def _assign(
        self,
        taken: TaskProcess,
        task: Task,
        attempt: Attempt,
        time_limit: float | None,
        may_rest: bool,
    ) -> None:
        """Have the process prepare and hold what was reserved, while we record the start."""
        claim, pool = self._claim, self._context.pool
        granted = claim.granted() if claim is not None else {}
        environ = environment(pool.totals, granted) if pool is not None else {}
        held = claim.filenos() if claim is not None else []
        has_own_cwd = self._context.defaults.of(task.queue).cwd.is_own
        known = (task.id, dict(task.fields))
        assignment = handshake.Assignment(
            attempt.path, granted, environ, time_limit, may_rest, known, has_own_cwd
        )
        try:
            handshake.assign(taken.handshake, assignment, held)
        except BrokenPipeError:  # it was killed while it waited, which we shall see at its start
            pass

    def _inputs_of(self, task: Task) -> str | None:
        """Return the results that the task gets, as JSON. None: it wants none, or some are missing.

        Raises OrderCame; PayloadRefused: we do not have the key of one.
        """
        if task.inputs is None:
            return None

        def leave_out(error: RedisRefused) -> dict[str, str]:
            log.error("inputs task=%s: %s", task.id, error)
            return {"": inputs.LEFT}

        read = functools.partial(self._context.client.get_inspector().inputs, task.id)
        packed = self._waiting.retry_until_order(lambda: unless_wrong_type(read, leave_out))
        try:
            return inputs.to_json(packed, task.parents or ())
        except PayloadRefused as error:
            if not error.is_damaged:
                raise
            log.error("inputs task=%s: %s", task.id, error)
            return None
