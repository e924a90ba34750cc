"""Attending: what a listener does while an attempt runs, and how it records its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from blueque.client import Client
from blueque.errors import Contended, NotOwner, NotRegistered, RedisAway, RedisRefused
from blueque.listener.group import ListenerGroup
from blueque.model.encoding import count_of
from blueque.model.retry import Retry
from blueque.model.states import HELD, LOST, WAITING
from blueque.model.task import Task
from blueque.node.attempt_watch import Watch
from blueque.node.control import Order, OrderCame, Orders
from blueque.node.duties import Duties
from blueque.node.options import Defaults
from blueque.node.reporter import Publisher
from blueque.node.waiting import Waiting
from blueque.protocol.membership import Standing
from blueque.recovery.judge import last_seen
from blueque.spool import checkpoint, outcome_record
from blueque.spool.attempt import Attempt
from blueque.system import process
from blueque.system.outage import Trouble

log = logging.getLogger("blueque")

T = TypeVar("T")
QUIET = 1.0  # seconds after which we listen for orders; short tasks are spared it
WORD_OF_END = 2.0  # seconds for whoever reaps an adopted process to write down its end
STEP = 0.02
UNREADABLE = 60.0  # seconds for which an exit record that cannot be read is tried again
LOOK_AGAIN = 2.0
BY_LISTENER = ("cancelled", "stopped")  # error types of ends that are no failures


class Attending:
    """The care of one listener for the attempt that it watches.

    children: returns the children that have come to us from the task with that pid; None when that
        cannot be told.
    on_orphans: called when attempts are found that somebody else has to adopt, for we are busy.
    on_unwatched: called with the id of the task that we watch when our own lists have others
        besides.
    """

    def __init__(
        self,
        client: Client,
        listeners: ListenerGroup,
        defaults: Defaults,
        orders: Orders,
        duties: Duties,
        waiting: Waiting,
        children: Callable[[int], set[int] | None],
        on_orphans: Callable[[], None],
        on_unwatched: Callable[[str], None],
        trouble: Trouble,
    ) -> None:
        self._client, self._listeners, self._defaults = client, listeners, defaults
        self._orders = orders
        self._duties, self._waiting = duties, waiting
        self._children = children
        self._on_orphans = on_orphans
        self._on_unwatched = on_unwatched
        self.left_alone: set[int] = set()  # children of ours that another listener has adopted
        self._trouble = trouble
        self._gone = Trouble("")  # our task, from Redis
        # With a connection of its own, for while a task runs the other one waits for orders.
        self._telling = client.with_patience(0)
        self._telling.wait_with(waiting.has_answer_soon)

    def attend(self, watch: Watch) -> None:
        """See the attempt to its end, and record it."""
        self._gone = Trouble(f"Redis has task={watch.task.id} again", logging.ERROR)
        publisher = Publisher(self._telling, watch.attempt, self._defaults.log_limit)
        self._duties.watch(watch.task.id)
        is_ours = self._watch(watch, publisher)
        if not is_ours:
            self._duties.watch(None)
            self.left_alone.add(watch.pid)
            watch.close()
            return
        self._report(watch, self._record(watch), publisher, self._waiting.retry_until_order)
        self._duties.watch(None)
        self._duties.take_unwatched()  # seen before the end was reported
        watch.close()

    def report_once(self, watch: Watch) -> None:
        """Report the end of an attempt whose process is gone, while we watch another one.

        Raises what Redis refuses.
        """
        publisher = Publisher(self._telling, watch.attempt, self._defaults.log_limit)
        try:
            self._report(watch, self._record(watch), publisher, lambda action: action())
        finally:
            watch.close()

    def bury(self, watch: Watch) -> None:
        """Wait for the end of a process whose gate stays closed."""
        while process.peek_ending(watch.pid) is None:
            self._waiting.wait(
                STEP if watch.pidfd is None else 1.0, [] if watch.pidfd is None else [watch.pidfd]
            )
        process.reap(watch.pid)
        watch.close()

    def forget(self) -> None:
        """In a forked child: let go of what is the listener's."""
        self._telling.close()

    def close(self, task: Task, attempt: Attempt) -> None:
        """Let go of an attempt that Redis knows the end of, or has no use for."""
        try:
            attempt.mark_reported(self._is_wanted(task, attempt))
        except OSError as error:  # it is kept longer than need be
            log.warning("cannot mark %s as reported: %s", attempt.path, error.strerror)

    def _is_wanted(self, task: Task, attempt: Attempt) -> bool:
        """Tell whether the task is to run again, and may go on from the directory that this attempt
        has left.
        """
        if not checkpoint.entries(attempt.path):
            return False
        try:
            return self._telling.get_task(task.id).status in WAITING
        except (RedisAway, RedisRefused):  # rather kept too long than lost
            return True

    # While it runs

    def _watch(self, watch: Watch, publisher: Publisher) -> bool:
        """Wait until nothing of the attempt is left, beating; False when another listener has it
        now.
        """
        listen_at = time.monotonic() + QUIET
        while watch.pidfd is not None and not self._waiting.is_ready(watch.pidfd):
            if self._orders.now is Order.STOP:
                watch.end("stopped", self._orders.why_stopped)
            elif self._orders.wants_end:
                watch.ask("drain")
            if time.monotonic() >= listen_at and self._orders.now is not Order.STOP:
                listen_at = self._listen(watch, publisher)
            else:
                until = min(watch.next_step, publisher.next_step)
                if self._orders.now is not Order.STOP:
                    until = min(until, listen_at)
                self._waiting.wait(until - time.monotonic(), [watch.pidfd])
            standing = self._duties.take_standing()
            if self._duties.has_orphans:
                self._on_orphans()
            if self._duties.has_unwatched():
                self._on_unwatched(watch.task.id)
            if standing is not None and not self._obey(watch, standing):
                return False
            watch.step()
            watch.bars = publisher.step(watch.task)
        while (
            again := watch.end_the_rest(self._children(watch.pid) if watch.is_child else None)
        ) is not None:
            self._waiting.wait(again - time.monotonic())
            standing = self._duties.take_standing()
            if self._orders.now is Order.STOP or (
                standing is not None and standing.cancel is not None
            ):
                watch.hurry()
        return True

    def _listen(self, watch: Watch, publisher: Publisher) -> float:
        """Wait for an order that somebody leaves in Redis, for the end of the task, and for
        whatever else may come.

        Return when to do so again, on the monotonic clock.
        """
        assert watch.pidfd is not None

        def step() -> float:
            watch.bars = publisher.step(watch.task)
            return publisher.next_step

        try:
            self._waiting.wait_for_order_or(watch.pidfd, watch.next_step, step)
            self._trouble.tell(None, duty="orders")
        except (RedisAway, RedisRefused) as error:
            self._trouble.tell(error, "still watching the task", duty="orders")
            return time.monotonic() + self._trouble.pause("orders")
        return 0.0

    def _obey(self, watch: Watch, standing: Standing) -> bool:
        """Do what Redis wants of the attempt; False when another listener has adopted it."""
        task, listener = watch.task, self._listeners.of(watch.task.queue)
        is_newest = standing.token == task.token
        if watch.reason == "superseded":
            return True  # whatever becomes of the task, it is not ours to put back
        if self._has_been_forgotten(watch, standing._asdict()):
            self._take_back(watch, lambda: listener.reassert(task, watch.pid))
            return True
        is_gone = standing.status is None
        self._gone.tell(f"task={task.id} is gone from Redis" if is_gone else None, _stays(watch))
        if is_gone:
            return True
        if is_newest and standing.status == "failed" and standing.error_type in LOST:
            self._take_back(
                watch, lambda: listener.restore(task, watch.pid, task.started or time.time())
            )
        elif is_newest and standing.status == "started" and standing.node != task.node:
            log.warning("task=%s has been adopted by %s: leaving it alone", task.id, standing.node)
            return False
        elif is_newest and standing.status == "started" and standing.node != listener.node:
            self._take_back(watch, lambda: listener.adopt(task))
        elif not is_newest or standing.status != "started":
            watch.end(
                "superseded", f"the attempt is not ours any more: the task is {standing.status}"
            )
        elif standing.cancel is not None:
            watch.end("cancelled", "cancelled")
        else:
            self._show_stack(watch, standing.stack)
        return True

    def _show_stack(self, watch: Watch, mark: str | None) -> None:
        reason = watch.show_stack(mark)
        if mark is not None and reason is not None:
            try:
                self._client.get_processor(watch.task).decline_stack(mark, reason)
            except (RedisAway, RedisRefused, Contended) as error:
                log.warning("cannot decline the stack of task=%s: %s", watch.task.id, error)

    def _has_been_forgotten(self, watch: Watch, known: Mapping[str, Any]) -> bool:
        """Tell whether Redis has lost our attempt, as after a failover; not that the task has been
        deleted for good.

        After that, its key may have made another task, which has the same id and not the same
        `created`. If another attempt has been taken meanwhile, that one owns the task, whatever its
        number.

        known: status, token, attempt and created, as Redis has them.
        """
        if known.get("status") is None:
            # While we were away for a time, it may have run again and been deleted.
            return self._listeners.of(watch.task.queue).instance == watch.instance
        if known["status"] in HELD and known.get("token") != watch.task.token:
            return False
        is_same = known.get("created") == watch.task.fields.get("created")
        return is_same and count_of(known.get("attempt")) < (watch.task.attempt or 0)

    def _take_back(self, watch: Watch, take: Callable[[], Task | None]) -> None:
        try:
            taken = take()
            reason = f"task={watch.task.id} is not ours any more" if taken is None else None
            self._gone.tell(reason, _stays(watch))
            watch.task = taken or watch.task
        except (RedisAway, RedisRefused, Contended, NotRegistered) as error:
            log.warning("task=%s: %s; the next beat will try again", watch.task.id, error)

    # When it has ended

    def _record(self, watch: Watch) -> outcome_record.Record | None:
        """Return the exit record, written by the task process or else by us; None when nobody knows
        how it ended.
        """
        measured = watch.measured()
        ending: process.Ending | None = None
        if watch.is_child:
            ending = process.peek_ending(watch.pid)
            measured = _measured(process.wait_usage(watch.pid), measured)
        record = self._read_exit(watch)
        if record is None and ending is None and watch.attempt.has_begun():
            noted = self._word_of_end(watch)
            record = self._read_exit(watch)
            if noted is not None:
                ending = process.Ending.of_code(noted.code)
                measured = _measured(noted, measured)
        if (
            record is None
            and watch.reason is None
            and (ending is None or not watch.attempt.has_begun())
        ):
            return None
        is_ours = record is None
        if record is None and ending is not None:
            is_out_of_memory = process.out_of_memory_kills() > self._duties.oom_kills
            record = outcome_record.record_of_ending(ending, is_out_of_memory)
        record = record or {
            "status": "failed",
            "error": "its process is gone",
            "error_type": watch.reason,
        }
        record = {
            **record,
            **{name: max(value, record.get(name) or 0) for name, value in measured.items()},
        }
        record.setdefault("finished", time.time())
        is_handed_back = watch.reason == "stopped" and record.get("handed_back")
        if watch.reason is not None and record["status"] == "failed" and not is_handed_back:
            record |= {"error_type": watch.reason, "error": f"{watch.error}: {record['error']}"}
            record.pop("retry_after", None)
            record.pop("handed_back", None)
        if is_ours or watch.reason is not None:
            try:
                watch.attempt.write_exit(record)
            except OSError as error:
                log.error("cannot write the exit record: %s", error)
        error_type = record.get("error_type")
        if watch.reason is None and record["status"] == "failed" and error_type in BY_LISTENER:
            watch.reason = error_type  # Redis has lost that it was told so once
        return record

    def _read_exit(self, watch: Watch) -> outcome_record.Record | None:
        """Return the exit record; while it cannot be read, as when no more files may be open, try
        again for a while.
        """
        deadline = time.monotonic() + UNREADABLE
        while True:
            try:
                return watch.attempt.read_exit()
            except (OSError, MemoryError):
                watch.attempt.log_failure("exit record")
                if time.monotonic() >= deadline:
                    return None
            except Exception:  # it is not ours: the task has written it
                watch.attempt.log_failure("exit record")
                return None
            self._waiting.wait(LOOK_AGAIN)

    def _word_of_end(self, watch: Watch) -> process.Reaped | None:
        """Return how an adopted process ended, once its reaper has written it down; None when
        nobody has.
        """
        deadline = time.monotonic() + WORD_OF_END
        while (noted := watch.attempt.read_ending()) is None and time.monotonic() < deadline:
            if watch.attempt.has_exit():
                return None
            self._waiting.wait(STEP)
        return process.Reaped(**noted) if noted is not None else None

    def _report(
        self,
        watch: Watch,
        record: outcome_record.Record | None,
        publisher: Publisher,
        do: Callable[[Callable[[], object]], object],
    ) -> None:
        """Tell Redis how it ended. do: calls what does so, perhaps until Redis does it."""
        processor = self._client.get_processor(watch.task)
        default = self._defaults.of(watch.task.queue).retry
        said = (
            outcome_record.last_words(record)
            if record is not None or watch.attempt.has_begun()
            else ""
        )

        def report() -> None:
            if watch.reason == "superseded":
                raise NotOwner(watch.task.id, None, watch.error)
            publisher.finish(watch.task, said)
            if record is None or record["status"] != "complete":
                publisher.hand_over(self._client, watch.task)
            if record is None:
                self._give_up(watch)
            elif record["status"] == "failed" and watch.reason == "cancelled":
                processor.confirm_cancel(record)
            elif self._is_to_go_on(watch, record):
                processor.release(watch.reason or watch.asked_for)
            else:
                has_checkpoint = checkpoint.exists(watch.attempt.path)
                processor.report(
                    record, None if watch.reason == "stopped" else default, has_checkpoint
                )

        try:
            try:
                do(report)
            except NotOwner:
                if watch.reason == "superseded" or not do(lambda: self._put_back(watch)):
                    raise
                processor = self._client.get_processor(watch.task)
                do(report)
        except NotOwner as error:
            log.warning("%s; how it ended stays in %s", error, watch.attempt.path)
        except OrderCame:
            log.warning(
                "task=%s has ended, but Redis does not know; how it ended stays in %s",
                watch.task.id,
                watch.attempt.path,
            )
            raise
        self.close(watch.task, watch.attempt)

    def _put_back(self, watch: Watch) -> bool:
        """Have Redis know the attempt again, if it has forgotten it, so that its end can be
        reported.
        """
        fields = self._client.get_task(watch.task.id).fields
        if not self._has_been_forgotten(watch, fields):
            return False
        try:
            task = self._listeners.of(watch.task.queue).reassert(watch.task, watch.pid)
        except NotRegistered:
            return False
        watch.task = task or watch.task
        return task is not None

    def _give_up(self, watch: Watch) -> None:
        """Let go of an attempt whose process is gone without a word: nobody knows how far it had
        come.
        """
        processor = self._client.get_processor(watch.task)
        if not watch.attempt.has_begun():
            processor.release("not_begun")
            return
        listener = self._listeners.of(watch.task.queue)
        defaults = self._defaults.of(watch.task.queue)
        lost_with = watch.lost_with or {"lost_node": listener.node}
        seen = last_seen(lost_with.get("last_seen"))
        error = (
            f"lost: process {watch.pid} of listener {lost_with['lost_node']}{seen} is gone, "
            f"and nobody knows how far it had come; to run it again: blueque requeue {watch.task.id}"
        )
        task = watch.task
        if processor.lose(error, listener.instance or "", defaults.retry, lost_with) is None:
            # It is another's, or has ended; or we had been taken for dead ourselves.
            standing = self._duties.beat(task.id)
            if standing is None or (standing.status, standing.token, standing.node) == (
                "started",
                task.token,
                task.node,
            ):
                raise Contended("lose", 1)

    def _is_to_go_on(self, watch: Watch, record: outcome_record.Record) -> bool:
        """Tell whether the task is the next in line again at no cost: it has handed itself back, or
        we have stopped it.
        """
        if record["status"] != "failed":
            return False
        return bool(record.get("handed_back")) or (
            watch.reason == "stopped" and self._may_run_again(watch.task)
        )

    def _may_run_again(self, task: Task) -> bool:
        return Retry.of(task.fields.get("retry"), self._defaults.of(task.queue).retry) is not None


def _measured(reaped: process.Reaped, measured: dict[str, Any]) -> dict[str, Any]:
    """Return what an attempt took: as seen while it ran, and as the kernel tells at its end."""
    return {
        **measured,
        "cpu_seconds": round(max(reaped.cpu_seconds, measured.get("cpu_seconds", 0.0)), 3),
        "memory_peak": max(reaped.max_rss_bytes, measured.get("memory_peak", 0)),
    }


def _stays(watch: Watch) -> str:
    return f"it runs on, and how it ends will stay in {watch.attempt.path}"
