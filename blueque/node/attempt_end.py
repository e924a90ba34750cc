"""AttemptEnd: records in Redis how an attempt has ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from blueque.client import Client
from blueque.errors import Contended, NotOwner, NotRegistered, RedisAway, RedisRefused
from blueque.model.encoding import count_of
from blueque.model.retry import Retry
from blueque.model.states import FINISHED, HELD, WAITING
from blueque.model.task import Task
from blueque.node.attempt_watch import AttemptWatch
from blueque.node.context import NodeContext
from blueque.node.control import OrderCame
from blueque.node.duties import Duties
from blueque.node.exit_records import BY_LISTENER, ExitRecords
from blueque.node.reporter import Reporter
from blueque.node.waiting import Waiting
from blueque.recovery.judge import last_seen
from blueque.spool import checkpoint, outcome_record
from blueque.spool.attempt import Attempt

log = logging.getLogger("blueque")

FILES = 100  # of a working directory that are removed between two looks at what else is due
BY_ORDER = (*BY_LISTENER, "interrupted", "superseded")  # reasons to end an attempt, the same


class AttemptEnd:
    """Handles the end of an attempt that a listener watches.

    telling: a client that does not wait long for an answer.
    """

    def __init__(
        self,
        context: NodeContext,
        duties: Duties,
        waiting: Waiting,
        telling: Client,
        records: ExitRecords,
    ) -> None:
        self._client, self._listener = context.client, context.listener
        self._defaults = context.defaults
        self._duties, self._waiting, self._telling = duties, waiting, telling
        self._records = records

    def report(
        self, watch: AttemptWatch, reporter: Reporter, do: Callable[[Callable[[], object]], object]
    ) -> bool:
        """Record how the attempt ended. False: it is no longer ours, and another listener may watch it.

        do: calls the function that records it, perhaps until Redis does it.
        Raises OrderCame, and what `do` raises.
        """
        record, is_ours = self._records.find(watch), True
        self._remove_cwd(watch, record)

        def report() -> None:
            self._report(watch, record, reporter)

        try:
            is_reported = False
            while not is_reported:  # Redis may lose it again
                try:
                    do(report)
                    is_reported = True
                except NotOwner:
                    if watch.reason == "superseded" or not do(lambda: self._put_back(watch)):
                        raise
        except NotOwner as error:
            is_ours = False
            log.warning("%s; how it ended stays in %s", error, watch.attempt.path)
        except OrderCame as error:
            text = "task=%s has ended: %s; how it ended stays in %s"
            log.warning(text, watch.task.id, error, watch.attempt.path)
            raise
        if watch.processor.is_awaited:
            self._duties.settle(watch.task.id)
        if "group" in watch.task.fields:
            self._duties.note_member()
        close(self._telling, watch.processor.task, watch.attempt)
        return is_ours

    def _remove_cwd(self, watch: AttemptWatch, record: outcome_record.Record | None) -> None:
        """Remove the working directory of the attempt, if it has one that the listener does not keep."""
        attempt, task = watch.attempt, watch.task
        cwd = self._defaults.of(task.queue).cwd
        if not attempt.has_cwd() or cwd.is_kept(_has_failed(watch, record)):
            return
        for number, _ in enumerate(attempt.remove_cwd(), 1):
            if number % FILES == 0:
                self._waiting.wait(0)
        if attempt.has_cwd():
            log.warning("task=%s has left files in %s that stay", task.id, attempt.path)

    def end_process(self, watch: AttemptWatch) -> None:
        """End a process that waits for another task and gets none."""
        self._records.end_process(watch)

    def _report(
        self, watch: AttemptWatch, record: outcome_record.Record | None, reporter: Reporter
    ) -> None:
        processor, task = watch.processor, watch.processor.task
        if watch.reason == "superseded":
            raise NotOwner(task.id, None, watch.error)
        has_begun = record is not None or watch.attempt.has_begun()
        reporter.finish(task, outcome_record.last_words(record) if has_begun else "")
        if record is not None and record["status"] == "complete":
            processor.report(record, None, _has_checkpoint(watch.attempt))
            return
        reporter.hand_over(processor)
        default = self._defaults.of(task.queue).retry
        if record is None:
            self._give_up(watch, default)
        elif watch.reason == "cancelled":
            processor.confirm_cancel(record)
        elif _is_to_go_on(watch, record, default):
            processor.release(watch.reason or watch.asked_for)
        else:
            if watch.reason == "stopped":
                default = None
            processor.report(record, default, _has_checkpoint(watch.attempt))

    def _put_back(self, watch: AttemptWatch) -> bool:
        """Put the attempt back into Redis, if Redis has lost it, so that its end can be reported."""
        ours = self._listener.of(watch.task.queue)
        fields = self._client.get_task(watch.task.id).fields
        # An earlier try may have put it back, and had no answer.
        is_back = (fields.get("status"), fields.get("token"), fields.get("node")) == (
            "started",
            watch.task.token,
            ours.node,
        )
        if not is_back and not has_been_forgotten(watch, ours.instance, fields):
            return False
        try:
            task = ours.reassert(watch.task, watch.pid, watch.instance)
        except NotRegistered:
            return False
        if task is not None:
            watch.processor = self._client.get_processor(task)
        return task is not None

    def _give_up(self, watch: AttemptWatch, default: Retry | None) -> None:
        """Give up an attempt whose process is gone without an exit record: its progress is unknown."""
        processor = watch.processor
        if not watch.attempt.has_begun():
            processor.release("not_begun")
            return
        ours = self._listener.of(watch.task.queue)
        lost_with = watch.lost_with or {"lost_node": ours.node}
        seen = last_seen(lost_with.get("last_seen"))
        error = f"lost: process {watch.pid} of listener {lost_with['lost_node']}{seen} is gone, and how far it got is not known"
        task = watch.task
        if processor.lose(error, ours.instance or "", default, lost_with) is None:
            # It belongs to another listener, or has ended; or we had been taken for dead ourselves.
            standing = self._duties.beat(task.id)
            if standing is None or (standing.status, standing.token, standing.node) == (
                "started",
                task.token,
                task.node,
            ):
                raise Contended("lose", 1)


def _has_failed(watch: AttemptWatch, record: outcome_record.Record | None) -> bool:
    """Return whether the attempt has failed by itself or by a limit, and not only been postponed."""
    if record is None:
        return True
    is_to_go_on = record.get("handed_back") or record.get("retry_after") is not None
    return record["status"] == "failed" and watch.reason not in BY_ORDER and not is_to_go_on


def _has_checkpoint(attempt: Attempt) -> bool:
    return attempt.has_left_files() and checkpoint.exists(attempt.path)


def close(client: Client, task: Task, attempt: Attempt) -> None:
    """Let go of an attempt whose end Redis knows or does not need."""
    try:
        attempt.mark_reported(_is_wanted(client, task, attempt))
    except OSError as error:  # it is kept longer than need be
        log.warning("cannot mark %s as reported: %s", attempt.path, error.strerror)


def _is_wanted(client: Client, task: Task, attempt: Attempt) -> bool:
    """Return whether the task will run again and may continue from the directory of this attempt."""
    if not (attempt.has_left_files() and checkpoint.has_files(attempt.path)):
        return False
    try:
        return client.get_task(task.id).status in WAITING
    except (RedisAway, RedisRefused):  # better kept too long than lost
        return True


def has_been_forgotten(watch: AttemptWatch, instance: str | None, known: Mapping[str, Any]) -> bool:
    """Return whether Redis has lost our attempt, as after a failover. False if the task was deleted.

    Its key or its schedule may have made it again, with the same id and another `created`. If
    another attempt was taken meanwhile, that one owns the task, whatever its number.
    instance: of our registration. known: status, token, attempt and created, as in Redis.
    """
    # If we were away for a time, it may have run again and been deleted.
    is_lasting, status = instance == watch.instance, known.get("status")
    if status is None:
        return is_lasting
    if status in HELD:  # Redis may know that we have reserved it, and not that we have started it
        return status == "reserved" and known.get("token") == watch.task.token
    is_same = known.get("created") == watch.task.fields.get("created")
    is_same |= is_lasting and status not in FINISHED
    return is_same and count_of(known.get("attempt")) < (watch.task.attempt or 0)


def _is_to_go_on(watch: AttemptWatch, record: outcome_record.Record, default: Retry | None) -> bool:
    """Return whether the task is next in line again at no cost: it was handed back, or we stopped it."""
    may_run_again = Retry.of(watch.task.fields.get("retry"), default) is not None
    return bool(record.get("handed_back")) or (watch.reason == "stopped" and may_run_again)
