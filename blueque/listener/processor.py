"""Processor: records the start and the end of one attempt."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from blueque.connection.redis import Redis
from blueque.errors import InvalidInput, InvalidType
from blueque.listener.peer_wakeup import wake_for_lock_of
from blueque.model.attempt_ref import AttemptRef
from blueque.model.encoding import encode, is_sealed, printable, require_number
from blueque.model.lines import needing_key
from blueque.model.log_line import Line
from blueque.model.new_task import NewTask
from blueque.model.retry import Retry, class_name, class_names
from blueque.model.task import Task
from blueque.model.units import DEFAULT_MAX_BYTES
from blueque.protocol import attempts, ends, logs_and_checkpoints, operator, recover
from blueque.protocol.ends import End
from blueque.protocol.recover import Loss
from blueque.spool.outcome_record import ENDED
from blueque.text.format import one_line

if TYPE_CHECKING:
    from blueque.model.payloads import Payloads, Sealer

log = logging.getLogger("blueque")

# What an exit record tells, by the names of the fields: why it ended so, and what it took.
REASONS = ("error_type", "traceback", "exit_code", "signal")
MEASURED = ("memory_peak", "cpu_seconds", "leaked")


class Processor:
    """The attempt of a reserved or started task. It can change the task while it owns it."""

    def __init__(self, redis: Redis, task: Task, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        if task.queue is None or task.node is None:
            raise InvalidType(
                f"task {task.id} has no queue or node: only a reserved task can be processed"
            )
        self._redis = redis
        self.task = task
        self._queue, self._node = task.queue, task.node
        self._attempt = AttemptRef(task.queue, task.id, task.token, task.node)
        self._named = task.id, task.queue, task.node  # for the log
        self._max_bytes = max_bytes
        self.is_awaited = False  # the attempt has ended its task, and others wait for that

    def start(self, pid: int, identity: Mapping[str, str | int] | None = None) -> Any:
        """Record that process `pid` runs the task, and return the parameters of the task.

        identity: see `process.identity`.
        Raises NotOwner when the task is no longer reserved for this attempt; InvalidType.
        Source: docs/protocol.md, "start".
        """
        if isinstance(pid, bool) or not isinstance(pid, int):
            raise InvalidType(f"pid is an int, not {type(pid).__name__}")
        self.record_start(pid, identity or {})
        self.log_start()
        return self.task.parameters

    def record_start(self, pid: int, facts: Mapping[str, str | int]) -> None:
        """Record the start with these facts; then `task` is started. Raises NotOwner."""
        now = time.time()
        attempts.start(self._redis, self._attempt, pid, now, facts)
        news = {"status": "started", "pid": pid, "started": now, **facts}
        fields = {**self.task.fields, **{name: str(value) for name, value in news.items()}}
        self.task = Task(self.task.id, fields)

    def log_start(self) -> None:
        """Log the start."""
        text = "start task=%s queue=%s node=%s attempt=%s pid=%s"
        log.info(text, *self._named, self.task.attempt, self.task.pid)

    def complete(self, result: Any) -> None:
        """Record the result: a str unchanged, anything else (also None) as JSON.

        Raises NotOwner when another attempt owns the task; InvalidType, TooLarge.
        Source: docs/protocol.md, "end".
        """
        text, encoding = encode(result, "the result", self._max_bytes)
        self.report({"status": "complete", "result": text, "result_encoding": encoding})

    def fail(self, error: object) -> None:
        """Record why the task failed. `error` is stored as its text, shortened if it is very long.

        If its retry policy allows, the task is put in line again. The policy sees the class of an
        exception.
        Raises NotOwner when another attempt owns the task.
        Source: docs/protocol.md, "end".
        """
        record: dict[str, Any] = {"status": "failed", "error": printable(error, self._max_bytes)}
        if isinstance(error, BaseException):
            record |= {
                "error_type": class_name(type(error)),
                "error_types": class_names(type(error)),
            }
        self.report(record)

    def release(self, reason: str | None = None, key: str | None = None) -> str:
        """Hand the task back: it is next in line again, at no cost. Return its new status.

        reason: one word, for the history of the task.
        key: the name of a payload key: only listeners that have it may take the task from now on.
        Raises NotOwner when another attempt owns the task.
        Source: docs/protocol.md, "end".
        """
        facts = self._last_files()
        if key is not None:
            facts["needs"] = needing_key(self.task.fields.get("needs"), key)
        status = self._end(End.release(facts, reason))
        text = "release task=%s queue=%s node=%s status=%s reason=%s"
        log.info(text, *self._named, status, reason)
        return status

    def progress(self, text: str) -> None:
        """Record the progress of the task as text, cut to one line of 200 characters.

        Raises NotOwner.
        Source: docs/protocol.md, "progress".
        """
        line, now = one_line(text), time.time()
        attempts.progress(self._redis, self._attempt, line, now)

    def decline_stack(self, mark: str, reason: str) -> bool:
        """Answer the request with this mark: why the task cannot show its stack.

        Return False if the request is gone.
        Source: docs/protocol/operator.md, "decline_stack".
        """
        return operator.decline_stack(self._redis, self._attempt, mark, reason)

    def log(self, lines: Sequence[Line], is_over: bool = False) -> None:
        """Add lines that the attempt has printed to the log of its task.

        is_over: no more lines will come.
        Raises NotOwner; InvalidInput if they cannot be encrypted.
        Source: docs/protocol/operator.md, "log".
        """
        attempt, sealer = self.task.attempt or 0, self._sealer()
        if sealer is not None:
            lines = [sealer.line(line, self.task.id) for line in lines]
        logs_and_checkpoints.log(self._redis, self._attempt, attempt, lines, is_over)

    def note(self, number: int, text: str, at: float) -> None:
        """Add a note of the task to its history, cut to one line of 200 characters.

        number: of the note, from 1 in each attempt and in this order.
        at: Unix seconds.
        Raises NotOwner.
        Source: docs/protocol/operator.md, "note".
        """
        logs_and_checkpoints.note(self._redis, self._attempt, number, one_line(text), at)

    def checkpoint(self, parts: Mapping[str, str | None]) -> None:
        """Record where the next attempt continues.

        parts: of `value` and `directory`, those that have changed.
        Raises NotOwner; InvalidInput if it cannot be encrypted.
        Source: docs/protocol/recovery.md, "checkpoint".
        """
        attempt, sealer = self.task.attempt or 0, self._sealer()
        if sealer is not None and parts.get("value") is not None:
            value = sealer.seal_whole(str(parts["value"]), self.task.id, "checkpoint")
            parts = {**parts, "value": value}
        logs_and_checkpoints.checkpoint(
            self._redis, self._attempt, attempt, self.task.fields.get("created"), parts, time.time()
        )

    def confirm_cancel(self, record: Mapping[str, Any]) -> None:
        """Record that the attempt was ended because its task was cancelled.

        Raises NotOwner.
        Source: docs/protocol.md, "end".
        """
        self._end(End.confirm_cancel(_facts(record, MEASURED)))
        log.info("confirm_cancel task=%s queue=%s node=%s", *self._named)

    def lose(
        self,
        error: str,
        instance: str,
        default: Retry | None = None,
        facts: Mapping[str, str | int | float] | None = None,
    ) -> str | None:
        """Give up an attempt whose process is gone without an exit record; return the new status.

        instance: of our own registration.
        default: the policy of a task that has none.
        facts: lost_node and last_seen of the listener that died.
        None: the attempt was not ours.
        Source: docs/protocol/recovery.md, "lose".
        """
        now, loss = time.time(), Loss(error, facts)
        became = recover.lose(
            self._redis, self._attempt, instance, loss, default, now, is_ours=True
        )
        log.warning("lose task=%s queue=%s node=%s status=%s: %s", *self._named, became, error)
        wake_for_lock_of(self._redis, self.task)
        return became

    def report(
        self, record: Mapping[str, Any], default: Retry | None = None, has_checkpoint: bool = False
    ) -> None:
        """Record the end of the attempt from its exit record, or have its task run again.

        record: see `Attempt.write_exit`.
        default: the policy of a task that has none.
        has_checkpoint: Redis may have a checkpoint, which is deleted once the task is complete.
        Raises NotOwner when another attempt owns the task.
        """
        facts = _facts(record, (*REASONS, *MEASURED))
        try:
            record = self._as_stored(record)
            if record["status"] == "complete":
                self._complete(record, facts, has_checkpoint)
            else:
                eta, failures = self._next_attempt(record, default)
                if eta is None:
                    self._fail(record["error"], facts, record.get("finished"))
                else:
                    self._retry(record, eta, failures)
        except (KeyError, TypeError, InvalidInput) as error:  # the record is not what it should be
            why = error if isinstance(error, InvalidInput) else repr(error)
            self._fail(
                printable(f"the end of the task cannot be recorded: {why}", 1000),
                {"error_type": "result"},
            )

    @property
    def _payloads(self) -> Payloads | None:
        """How to store what the task leaves behind; None: as it is."""
        found = self._redis.settings.payloads
        if found is not None or not is_sealed(self._encoding):
            return found
        from blueque.model.payloads import Payloads  # here: few are encrypted

        return Payloads()

    @property
    def _encoding(self) -> str | None:
        return self.task.fields.get("parameters_encoding")

    def _sealer(self) -> Sealer | None:
        """Return how to store what the task leaves behind; None: as it is. Raises InvalidInput."""
        payloads = self._payloads
        return None if payloads is None else payloads.sealer(self._queue, self._encoding)

    def _as_stored(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an exit record as it is stored; its process may have done that already.

        Raises InvalidInput, KeyError, TypeError.
        """
        payloads = self._payloads
        if payloads is None:
            return record
        if record.get("error_type") in ENDED and payloads.encrypts(self._queue, self._encoding):
            # Behind its first line is what the task has printed last.
            return {**record, "error": record["error"].partition(":\n")[0]}
        return payloads.record(self.task.id, self._queue, self._encoding, record)

    def _next_attempt(
        self, record: Mapping[str, Any], default: Retry | None
    ) -> tuple[float | None, int]:
        """Return when the next attempt is due (None: never), and the number of failures by then."""
        failures = self.task.failures or 0
        # the handler itself wants to run again; that does not count as a failure
        if record.get("retry_after") is not None:
            return time.time() + require_number(record["retry_after"], "retry_after"), failures
        policy = Retry.of(self.task.fields.get("retry"), default)
        if policy is None or not policy.allows(failures, record):
            return None, failures
        return time.time() + policy.delay(failures), failures + 1

    def _retry(self, record: Mapping[str, Any], eta: float, failures: int) -> None:
        facts = _facts(record, MEASURED) | self._last_files()
        wish = record["error"] if record.get("retry_after") is not None else None
        if wish is None:
            kind = record.get("error_type") or "error"
            facts |= {"last_error": record["error"], "last_error_type": kind, "failures": failures}
        now = time.time()
        became = self._end(End.retry(eta if eta > now else None, facts, wish))
        log.info(
            "retry task=%s queue=%s node=%s status=%s in=%.1fs %s=%s",
            *self._named,
            became,
            max(eta - now, 0.0),
            "error" if wish is None else "reason",
            _one_line(record["error"]),
        )

    def _last_files(self) -> dict[str, str]:
        """Return where this attempt has left its files, for the next attempt."""
        return {"last_files": self.task.files} if self.task.files else {}

    def _complete(
        self, record: Mapping[str, Any], facts: Mapping[str, Any], has_checkpoint: bool
    ) -> None:
        then = [NewTask(*new) for new in record.get("then", ())]
        encoding = record.get("result_encoding")
        fields = facts if encoding is None else {"result_encoding": encoding, **facts}
        finished = record.get("finished")
        self._end(End.complete(record["result"], fields, finished, has_checkpoint, then))
        log.info("complete task=%s queue=%s node=%s", *self._named)
        if then:
            log.info("spawn tasks=%d by=%s", len(then), self.task.id)

    def _fail(self, text: str, facts: Mapping[str, Any], finished: float | None = None) -> None:
        self._end(End.fail(text, facts, finished))
        log.info("fail task=%s queue=%s node=%s error=%s", *self._named, _one_line(text))

    def _end(self, how: End) -> str:
        """Record how the attempt has ended; return the new status of its task."""
        status, self.is_awaited = ends.end(self._redis, self._attempt, how, time.time())
        wake_for_lock_of(self._redis, self.task)
        return status


def _facts(record: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: record[name] for name in names if record.get(name) is not None}


def _one_line(text: str) -> str:
    return " / ".join(text.split("\n"))[:200]
