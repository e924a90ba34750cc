"""Processor: records the start and the end of one attempt."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from blueque import protocol
from blueque.connection import Redis
from blueque.errors import InvalidInput, InvalidType
from blueque.task import Task
from blueque.values import encode, printable

log = logging.getLogger("blueque")


class Processor:
    """The attempt that a snapshot of a reserved or started task describes. It can change the task while it owns it."""

    def __init__(self, redis: Redis, task: Task, max_bytes: int) -> None:
        if task.queue is None or task.node is None:
            raise InvalidType(f"task {task.id} has no queue or node: only a reserved task can be processed")
        self._redis = redis
        self._task = task
        self._queue, self._node, self._token = task.queue, task.node, task.token
        self._max_bytes = max_bytes

    def start(self, pid: int, identity: Mapping[str, str | int] | None = None) -> Any:
        """Record that process `pid` runs the task, and return the parameters of the task.

        identity: see `process.identity`.
        Raises NotOwner when the task is no longer reserved for this attempt. Source: docs/protocol.md, "start".
        """
        if isinstance(pid, bool) or not isinstance(pid, int):
            raise InvalidType(f"pid is an int, not {type(pid).__name__}")
        protocol.start(
            self._redis, self._queue, self._task.id, self._token, self._node, pid, time.time(), identity
        )
        log.info("start task=%s queue=%s node=%s pid=%d", self._task.id, self._queue, self._node, pid)
        return self._task.parameters

    def complete(self, result: Any) -> None:
        """Record the result: a str untouched, anything else (None too) as JSON, which knows lists and text keys only.

        Raises NotOwner when the attempt is not ours any more. Source: docs/protocol.md, "complete".
        """
        self._complete(*encode(result, "the result", self._max_bytes), facts={})

    def fail(self, error: object) -> None:
        """Record why the task failed; `error` is stored as its text, shortened if it is very long.

        Raises NotOwner when the attempt is not ours any more. Source: docs/protocol.md, "fail".
        """
        self._fail(printable(error, self._max_bytes), facts={})

    def report(self, record: Mapping[str, Any]) -> None:
        """Record the end of the attempt as its exit record tells it (see `spool.Attempt.write_exit`)."""
        facts = {name: value for name, value in record.items() if name in ("error_type", "traceback", "exit_code", "signal")}
        finished = record.get("finished")
        try:
            if record["status"] == "complete":
                self._complete(record["result"], record.get("result_encoding"), facts, finished)
            else:
                self._fail(record["error"], facts, finished)
        except (KeyError, TypeError, InvalidInput) as error:     # the record is not what it should be
            self._fail(printable(f"the end of the task cannot be recorded: {error!r}", 1000), {"error_type": "result"})

    def _complete(
        self, text: str, encoding: str | None, facts: Mapping[str, Any], finished: float | None = None
    ) -> None:
        protocol.complete(
            self._redis, self._queue, self._task.id, self._token, self._node, text, encoding, time.time(), facts, finished
        )
        log.info("complete task=%s queue=%s node=%s", self._task.id, self._queue, self._node)

    def _fail(self, text: str, facts: Mapping[str, Any], finished: float | None = None) -> None:
        protocol.fail(self._redis, self._queue, self._task.id, self._token, self._node, text, time.time(), facts, finished)
        why = text.partition("\n")[0][:200]
        log.info("fail task=%s queue=%s node=%s error=%s", self._task.id, self._queue, self._node, why)
