"""Slot: one listener at work. It adopts or reserves a task, starts it, watches it to its end, and
    begins again.

It runs no user code. It waits only in node/waiting.py, so it always notices a signal, its next beat
and the end of its task. node/supervisor.py is used while an attempt runs.
"""

from __future__ import annotations

import functools
import logging
import os
import time

from blueque.errors import CLUSTER, Contended, NotRegistered, RedisAway, RedisRefused
from blueque.model.lines import parse_needs
from blueque.model.task import Task
from blueque.node.adoption import Adoption
from blueque.node.attempt_watch import AttemptWatch
from blueque.node.context import BUSY, READY, NodeContext
from blueque.node.control import NO_DIRECTORY, Order, OrderCame
from blueque.node.duties import Duties
from blueque.node.launcher import TRY_AGAIN, Launcher
from blueque.node.registry import Registry
from blueque.node.spool_room import make_room
from blueque.node.supervisor import Supervisor
from blueque.node.task_processes import TaskProcesses, Work
from blueque.node.waiting import Waiting
from blueque.protocol import permissions
from blueque.queries.schedules import clock_of
from blueque.system import process
from blueque.system.log_format import stop_logging
from blueque.system.outage import Outage

log = logging.getLogger("blueque")

# Redis will not change its mind about these by itself.
_NOT_ALLOWED = {"NOAUTH", "WRONGPASS", "NOPERM", "ERR", *CLUSTER}
PRELOAD = 0.02  # seconds between two looks at a keeper that imports modules


class PreloadRefused(Exception):
    """A module of `--preload` cannot be imported."""


class Slot:
    """One listener of one or more queues, with its task."""

    def __init__(self, context: NodeContext, work: Work) -> None:
        self._context = context
        self._client, self._listener = context.client, context.listener
        self._spool, self._pool = context.spool, context.pool
        self._master, self._orders, self._outage = context.master, context.orders, context.outage
        self._room = Outage("there is room again")
        self._unable = Outage("tasks can be run again")
        self._until_empty = work.until_empty
        self.has_emptied = False  # there was nothing to reserve, and so we leave
        self._registry = Registry(self._spool.root)
        self._processes = TaskProcesses(self._spool, self._listener.queues, work, self._let_go)
        self._duties = Duties(context, self._on_beat)
        self._waiting = Waiting(
            context, self._duties, self._processes.reap, self._processes.answering
        )
        self._adoption = Adoption(context, self._registry)
        self._supervisor = Supervisor(
            context, self._duties, self._waiting, self._processes, self._adoption
        )
        self._launcher = Launcher(context, self._waiting, self._processes, self._unable)
        self._died_before_start = 0  # task processes, one after the other

    def run(self) -> bool:
        """Work until an order to leave. Return whether the order came from Redis.

        Raises at the start: SpoolRefused; PreloadRefused; RedisRefused, if a retry would not help.
        """
        self._spool.open()
        if self._pool is not None:
            self._pool.open()
            self._pool.declare()
        process.become_subreaper()
        self._registry.join(self._listener.queues, self._master.pid)
        if not self._master.adopts_only and self._processes.has_preloads:
            self._processes.start()
        self._client.connections.has_answer = self._waiting.has_answer
        self._orders.open()
        try:
            self._await_preload()
            require_rights = functools.partial(
                permissions.require_rights,
                self._client.connections,
                "listener",
                self._listener.queues,
            )
            self._waiting.retry_until_order(require_rights, Order.DRAIN, _NOT_ALLOWED)
            self._waiting.register(fatal=_NOT_ALLOWED)
            self._master.show(READY)
            self._work_until_order()
            self._duties.end()
            self._waiting.retry_until_order(self._listener.leave, Order.DRAIN)
        except OrderCame:
            log.warning("leaving node=%s without telling Redis", self._listener.node)
        finally:
            self._close()
        return self._duties.is_drained

    def _await_preload(self) -> None:
        while self._orders.now is Order.WORK and self._processes.is_preloading():
            self._waiting.wait(PRELOAD)
        if self._processes.refusal is not None:
            raise PreloadRefused(self._processes.refusal)

    def _close(self) -> None:
        self._orders.close()
        self._processes.dismiss()
        self._spool.close()
        if self._pool is not None:
            self._pool.withdraw()
        self._registry.leave()

    def _work_until_order(self) -> None:
        self._duties.look_after_others()
        while self._orders.now is Order.WORK:
            if self._adopt():  # before anything is reserved
                continue
            if self._master.adopts_only:
                return
            self._processes.fork_ahead()  # not before: an interpreter that starts delays an adoption
            task = self._next_task()
            if task is not None:
                self._master.show(BUSY)
                self._run(task)
                self._master.show(READY)

    def _adopt(self) -> bool:
        """Take over one attempt that no listener watches, if there is one, and watch it to its end."""
        retry, adoption = self._waiting.retry_registered, self._adoption
        unwatched, orphans = self._duties.take_unwatched(), self._duties.take_orphans()
        retry(lambda: adoption.put_back(unwatched))
        candidates = retry(lambda: adoption.candidates(orphans, bool(unwatched)))
        for number, candidate in enumerate(candidates):
            watch = retry(functools.partial(adoption.take_over, candidate))
            if watch is not None:
                adoption.ask_for_help(len(candidates) - number - 1)
                self._listener.decline()
                self._master.show(BUSY)
                self._supervisor.attend(watch)
                self._master.show(READY)
                self._processes.end_run()
                self._wake_for_resources(watch.task)
                return True
        return False

    def _next_task(self) -> Task | None:
        """Return a reserved task, or None when told to leave or when there is something to adopt."""
        may_take, duty = True, "take"
        self._waiting.wait(0)  # an order may have come while we were busy
        while self._orders.now is Order.WORK:
            if self._duties.orphans or self._duties.has_unwatched():
                return None
            try:
                is_prevented = self._is_prevented()
                if is_prevented:
                    may_take = True
                elif may_take and not self._orders.is_paused:
                    duty = "take"
                    task = self._listener.take()
                    self._outage.note(None, duty=duty)
                    if task is not None:
                        return task
                if self._until_empty and (self._orders.is_paused or self._is_empty()):
                    self._leave_empty()
                    return None
                if is_prevented:
                    continue
                duty = "wait"
                may_take = self._waiting.wait_for_work()
                self._outage.note(None, duty=duty)
            except NotRegistered as error:
                self._waiting.register_again(error)
            except (RedisAway, RedisRefused, Contended) as error:
                self._outage.note(error, "waiting", duty=duty)
                self._rest(self._outage.pause(duty))
                may_take = True
        return None

    def _is_prevented(self) -> bool:
        """Return whether we may take no task, for lack of room or because of a pause; wait if so."""
        want = self._spool.want_of_room()
        if want is not None and not self._room.is_on:
            want = make_room(self._spool)
        if not self._orders.is_paused and not self._has_directory():
            log.error(
                "the directory in which this listener was started is gone; taking nothing new until "
                "SIGHUP finds %s again, or the listener is started again",
                os.environ.get("PWD"),
            )
            self._orders.pause.by = NO_DIRECTORY
        if (trouble := self._processes.trouble) is not None:
            self._processes.fork_ahead()  # tries again to start a keeper
        is_full = self._room.note(want, "taking nothing new")
        if self._unable.note(trouble, "taking nothing new") or is_full:
            self._listener.decline()  # others may have the wake-up calls that came to us
            self._rest(TRY_AGAIN)
            return True
        if self._orders.is_paused:
            self._processes.end_reused()
        if self._orders.is_paused and not self._until_empty:
            self._listener.decline()
            self._waiting.wait_for_order()
            return True
        return False

    def _has_directory(self) -> bool:
        """Return whether the directory still exists that our master enters again at SIGHUP."""
        try:
            return bool(os.getcwd())
        except OSError:
            return False

    def _is_empty(self) -> bool:
        """Return whether our queues have no task that waits or is due."""
        if self._duties.has_unsettled():
            return False
        inspector, queues = self._client.get_inspector(), self._listener.queues
        now = clock_of(self._client.connections)
        return not inspector.has_any_work(queues) and not inspector.due(queues, now)

    def _leave_empty(self) -> None:
        log.info("nothing left to take: leaving node=%s", self._listener.node)
        self.has_emptied = True
        self._orders.now = max(self._orders.now, Order.DRAIN)
        self._listener.decline()

    def _rest(self, seconds: float) -> None:
        """Wait before the next try for a task, unless an order has come."""
        if self._orders.now is Order.WORK:
            self._waiting.wait(seconds)

    def _run(self, task: Task) -> None:
        watch = self._launcher.launch(task)
        if watch is not None:
            self._supervisor.attend(watch)
            self._check_begun(watch)
        self._processes.end_run()
        self._give_back(task)

    def _check_begun(self, watch: AttemptWatch) -> None:
        """Slow down if task processes die before they begin, one after the other."""
        if watch.attempt.has_begun():
            self._died_before_start = 0
            return
        self._died_before_start += 1
        self._processes.cool_down(watch.pid, f"task={watch.task.id}")
        until = time.monotonic() + (TRY_AGAIN if self._died_before_start > 1 else 0.0)
        while self._orders.now is Order.WORK and (left := until - time.monotonic()) > 0:
            self._waiting.wait(left)  # the ends of children cut it short

    def _give_back(self, task: Task) -> None:
        """Release what was reserved for the task."""
        if self._launcher.let_go():
            self._wake_for_resources(task)

    def _wake_for_resources(self, task: Task) -> None:
        """Wake listeners of queues of our node whose next task may wait for our resources."""
        needs = parse_needs(task.fields.get("needs", ""))
        if needs is not None and needs.resources:
            try:
                self._listener.wake({*self._listener.queues, *self._registry.queues()})
            except (RedisAway, RedisRefused) as error:
                log.debug("cannot wake others: %s", error)  # they look for themselves at each beat

    def _on_beat(self) -> None:
        self._registry.sign()
        self._processes.look_over()

    def _let_go(self) -> None:
        """In the child that becomes our keeper: close what belongs to the listener."""
        stop_logging()
        self._client.close()  # our copy of the socket; the listener's connection stays
        self._supervisor.close()
        self._orders.after_fork_in_child()
        os.close(self._master.requests)
        self._launcher.let_go()  # of the task that runs meanwhile, and not ours
        if self._pool is not None:
            self._pool.withdraw()
