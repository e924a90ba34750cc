"""Supervisor: what a listener does while an attempt runs: wait, beat, report, obey, end it."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable

from blueque.errors import Contended, NotRegistered, RedisAway, RedisRefused
from blueque.model.states import LOST
from blueque.model.task import Task
from blueque.node.adoption import Adoption
from blueque.node.attempt_end import AttemptEnd, has_been_forgotten
from blueque.node.attempt_watch import AttemptWatch
from blueque.node.context import NodeContext
from blueque.node.control import Order
from blueque.node.duties import Duties
from blueque.node.exit_records import ExitRecords
from blueque.node.reporter import Reporter
from blueque.node.task_processes import TaskProcesses
from blueque.node.waiting import Waiting
from blueque.protocol.membership import BeatReply
from blueque.system import process
from blueque.system.outage import Outage

log = logging.getLogger("blueque")

QUIET = 1.0  # seconds after which we listen for orders; short tasks are spared it


class Supervisor:
    """Watches the attempts of one listener, one after the other."""

    def __init__(
        self,
        context: NodeContext,
        duties: Duties,
        waiting: Waiting,
        processes: TaskProcesses,
        adoption: Adoption,
    ) -> None:
        self._context, self._listener, self._orders = context, context.listener, context.orders
        self._duties, self._waiting = duties, waiting
        self._processes, self._adoption = processes, adoption
        self._outage = context.outage
        # With a connection of its own, for while a task runs the other one waits for orders.
        self._telling = context.client.with_patience(0)
        self._telling.connections.has_answer = waiting.has_answer_soon
        records = ExitRecords(waiting, duties.memory_kills, processes.ending)
        self._end = AttemptEnd(context, duties, waiting, self._telling, records)
        self._gone = Outage("")  # our task, from Redis
        self._listen_at = 0.0  # when to wait for an order in Redis, on the monotonic clock

    def attend(self, watch: AttemptWatch) -> None:
        """Watch the attempt until it has ended, and record its end. Raises OrderCame."""
        task_id = watch.processor.task.id
        self._gone = Outage(f"Redis has task={task_id} again", logging.ERROR)
        reporter = Reporter(self._telling, watch.attempt, self._context.defaults.log_limit)
        self._duties.watched = task_id
        is_over = self._watch(watch, reporter)
        if watch.stuck:
            self._listener.of(watch.task.queue).say_stuck("")
        if is_over:
            is_ours = self._end.report(watch, reporter, self._waiting.retry_until_order)
            if watch.is_at_rest:
                self._keep_process(watch, is_ours)
        else:
            self._processes.leave_alone()
        self._duties.watch_nothing()
        watch.close()

    def close(self) -> None:
        """Close our connection."""
        self._telling.close()

    def _watch(self, watch: AttemptWatch, reporter: Reporter) -> bool:
        """Beat until nothing of the attempt is left. False: another listener has it now."""
        self._listen_at = time.monotonic() + QUIET
        while watch.pidfd is not None:
            is_stopping = self._orders.now is Order.STOP
            is_asked = is_stopping or self._orders.wants_end
            if is_asked and not self._waiting.ready(watch.descriptors):
                if is_stopping:
                    watch.end("stopped", self._orders.why_stopped)
                else:
                    watch.ask("drain")
            ready = self._wait(watch, reporter)
            has_ended = (
                watch.pidfd in ready or (bool(ready) and watch.hear()) or watch.has_left_record()
            )
            if self._duties.orphans:
                self._call_for_adopters()
            standing, self._duties.standing = self._duties.standing, None
            if standing is not None:
                self._see_to_unwatched(watch.task.id)
                if not self._obey(watch, standing):
                    return False
            if has_ended:
                break
            watch.step()
            if watch.stuck:
                self._listener.of(watch.task.queue).say_stuck(watch.stuck)
            watch.bars = reporter.step(watch.task)
        self._end_the_rest(watch)
        if watch.is_at_rest and (reason := watch.why_not_again()) is not None:
            log.info(
                "pid=%d takes no other task after task=%s: %s", watch.pid, watch.task.id, reason
            )
            self._end.end_process(watch)
        return True

    def _keep_process(self, watch: AttemptWatch, is_ours: bool) -> None:
        """Let the process of an attempt whose end is recorded wait for another task."""
        # It could not be closed, and the next one would replace it; or another listener watches its
        # process, and would take the next one for it.
        if watch.attempt.is_open or not is_ours:
            self._end.end_process(watch)
        else:
            self._processes.take_back(watch.give_process())

    def _wait(self, watch: AttemptWatch, reporter: Reporter) -> set[int]:
        """Wait until there is something to do; return the descriptors of the watch that are ready."""
        until, is_stopping = watch.next_step, self._orders.now is Order.STOP
        if is_stopping or time.monotonic() < self._listen_at:
            until = min(until, reporter.next_step)
            if not is_stopping:
                until = min(until, self._listen_at)
            return self._waiting.wait(until - time.monotonic(), watch.descriptors)

        def step() -> float:
            watch.bars = reporter.step(watch.task)
            return reporter.next_step

        # An order may be left in Redis, too.
        try:
            ready = self._waiting.wait_for_order_or(watch.descriptors, until, step)
            self._outage.note(None, duty="orders")
        except (RedisAway, RedisRefused) as error:
            self._outage.note(error, "still watching the task", duty="orders")
            self._listen_at = time.monotonic() + self._outage.pause("orders")
            return self._waiting.ready(watch.descriptors)
        return ready

    def _end_the_rest(self, watch: AttemptWatch) -> None:
        """End what the process of the attempt has left running, and wait for that."""

        def find_strays() -> set[int] | None:
            return None if watch.is_adopted else self._processes.strays(self._waiting.wait)

        while (again := watch.end_the_rest(find_strays)) is not None:
            self._waiting.wait(again - time.monotonic())
            standing = self._duties.standing
            is_cancelled = standing is not None and standing.cancel is not None
            if self._orders.now is Order.STOP or is_cancelled:
                watch.hurry()

    def _obey(self, watch: AttemptWatch, standing: BeatReply) -> bool:
        """React to the attempt's state in Redis; False when another listener has adopted it."""
        task, ours = watch.task, self._listener.of(watch.task.queue)
        is_newest = standing.token == task.token
        if watch.reason == "superseded":
            return True  # whatever becomes of the task, it is not ours to put back
        if has_been_forgotten(watch, ours.instance, standing._asdict()):
            put_back = functools.partial(ours.reassert, task, watch.pid, watch.instance)
            if not self._take_back(watch, put_back):
                watch.end("superseded", "no longer the owner: the task is another one")
            return True
        is_gone = standing.status is None
        self._gone.note(f"task={task.id} is gone from Redis" if is_gone else None, _stays(watch))
        if is_gone:
            return True
        if is_newest and standing.status == "failed" and standing.error_type in LOST:
            self._take_back(
                watch, lambda: ours.restore(task, watch.pid, task.started or time.time())
            )
        elif not is_newest or standing.status != "started":
            watch.end("superseded", f"no longer the owner: the task is {standing.status}")
        elif standing.node not in (task.node, ours.node):
            log.warning("task=%s was adopted by %s: no longer watching it", task.id, standing.node)
            return False
        elif task.node != ours.node:
            # Redis may have it under our new name already: the answer to an adoption may be lost.
            self._take_back(watch, lambda: ours.adopt(task))
        elif standing.cancel is not None:
            watch.end("cancelled", "cancelled")
        elif standing.interrupt is not None and standing.interrupt == task.token:
            watch.end("interrupted", "interrupted")
        else:
            self._show_stack(watch, standing.stack)
        return True

    def _show_stack(self, watch: AttemptWatch, mark: str | None) -> None:
        reason = watch.show_stack(mark)
        if mark is not None and reason is not None:
            try:
                watch.processor.decline_stack(mark, reason)
            except (RedisAway, RedisRefused, Contended) as error:
                log.warning("cannot decline the stack of task=%s: %s", watch.task.id, error)

    def _take_back(self, watch: AttemptWatch, take: Callable[[], Task | None]) -> bool:
        """Take the task back, and return whether it may be ours."""
        try:
            taken = take()
            reason = f"no longer the owner of task={watch.task.id}" if taken is None else None
            self._gone.note(reason, _stays(watch))
            if taken is not None:
                watch.processor = self._context.client.get_processor(taken)
        except (RedisAway, RedisRefused, Contended, NotRegistered) as error:
            log.warning("task=%s: %s; the next beat will try again", watch.task.id, error)
            return True
        return taken is not None

    def _call_for_adopters(self) -> None:
        """Have the master fork a listener for each attempt that could be adopted here: we are busy."""
        orphans = self._duties.take_orphans()
        spool = self._context.spool
        self._adoption.ask_for_help(
            sum(spool.find(task.id, task.token) is not None for task in orphans)
        )

    def _see_to_unwatched(self, watched: str) -> None:
        """Report again the ends that Redis has lost; watch what still runs once our task has ended."""
        unwatched = self._duties.take_unwatched()
        if not unwatched:
            return
        try:
            self._adoption.put_back(unwatched)
            for candidate in self._adoption.of_our_lists(watched):
                if candidate.pid and process.is_alive(candidate.pid, candidate.task.fields):
                    continue
                watch = self._adoption.take_over(candidate)
                if watch is not None:
                    self._report_once(watch)
        except (RedisAway, RedisRefused, Contended, NotRegistered) as error:
            log.warning("%s; the next beat will try again", error)

    def _report_once(self, watch: AttemptWatch) -> None:
        """Report the end of an attempt whose process is gone, while we watch another one.

        Raises RedisRefused.
        """
        reporter = Reporter(self._telling, watch.attempt, self._context.defaults.log_limit)
        try:
            self._end.report(watch, reporter, lambda action: action())
        finally:
            watch.close()


def _stays(watch: AttemptWatch) -> str:
    return f"it runs on, and how it ends will stay in {watch.attempt.path}"
