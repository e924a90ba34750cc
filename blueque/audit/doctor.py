"""Doctor: what `blueque doctor` asks: is the server in order, is everything in it as it must be,
and can it be mended?
"""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Iterator

from blueque.audit import audit, server_check
from blueque.audit.audit import Finding, Report
from blueque.audit.server_check import Check
from blueque.connection.redis import Redis
from blueque.errors import RedisRefused
from blueque.model.columns import to_microseconds
from blueque.model.task import Task
from blueque.producer.abandoned_runs import Leftover, Leftovers
from blueque.queries import overview
from blueque.queries.inspector import Inspector
from blueque.queries.listeners import Node, is_process_gone
from blueque.system import process
from blueque.text import hints
from blueque.text.format import count, span

log = logging.getLogger("blueque")


class Doctor:
    """Looks at a whole Redis, and repairs what is asked for."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def check(self, settle: float = 0.0) -> list[Check]:
        """Look at the server itself, at whether somebody puts in line what is due, and for what
        nobody has ended.

        settle: for how many seconds a process has to be gone and its task still started.
        """
        checks = server_check.check(self._redis)
        try:
            seen = overview.overview(self._redis)
        except RedisRefused:  # a key is of a wrong type: the audit says so
            return checks
        queues = [line.queue for line in seen.lines]
        left = Leftovers(self._redis).find(queues, server_check.FORGOTTEN)
        checks += [*server_check.judge_due(seen.lines), *server_check.judge_hosts(seen.nodes)]
        gone = self._gone(queues, seen.nodes, settle)
        return [*checks, *gone, *map(_of_run, left), *self._archives(queues)]

    def _gone(self, queues: list[str], nodes: list[Node], settle: float) -> Iterator[Check]:
        """Yield the started tasks whose process is gone from this host."""
        first = self._started_without_process(queues)
        if not first:
            return
        time.sleep(settle)
        again = self._started_without_process(sorted({task.queue or "" for task in first.values()}))
        living = {
            (one.id, one.queue)
            for one in nodes
            if one.state not in ("dead", "gone") and not is_process_gone(one)
        }
        for key in first.keys() & again.keys():
            yield _of_gone(again[key], (again[key].node, again[key].queue) in living)

    def _started_without_process(self, queues: list[str]) -> dict[tuple[str, str | None], Task]:
        return {
            (task.id, task.token): task
            for task in Inspector(self._redis).started(queues)
            if process.is_gone(task.pid or 0, task.fields)
        }

    def audit(self, settle: float) -> Report:
        """Look at every key, and after `settle` seconds again at what is not as it must be; report
        what has stayed so.

        Source: docs/protocol/audit.md, "Invariants".
        """
        return audit.report(self._redis, settle)

    def repair(self, finding: Finding) -> bool:
        """Repair one finding. False: there is no repair, or it is not as it was found any more."""
        is_repaired = audit.repair(self._redis, finding, time.time())
        if is_repaired:
            log.info(
                "%s code=%s key=%s task=%s", finding.fix, finding.code, finding.key, finding.task
            )
        return is_repaired

    def _archives(self, queues: list[str]) -> Iterator[Check]:
        """Yield the batches that were left on their way into an archive."""
        inspector = Inspector(self._redis)
        now = inspector.now()
        for queue, record in zip(
            queues, inspector.archiving(queues) if queues else (), strict=True
        ):
            age = now - (to_microseconds(record.get("beat_at", "")) or 0) / 1e6
            if record and age > server_check.FORGOTTEN:
                way_out = hints.of_queue(
                    "archive", queue, shlex.quote(record.get("directory", "DIRECTORY"))
                )
                what = f"queue {queue}: batch {record.get('batch')} of its archive is {record.get('state')}"
                who = record.get("by", "somebody")
                sentence = (
                    f"{what}, and {who} has not gone on with it for {span(age)}: {way_out} does."
                )
                yield Check("archives", "warn", sentence)


def _of_gone(task: Task, has_listener: bool) -> Check:
    """Say who reports the end of a task whose process has ended."""
    what = f"task {task.id} of queue {task.queue} is started, and its process {task.pid} is gone from this host"
    if has_listener:
        who = f"its listener {task.node} reports its end at its next beat. If it stays so, restart that listener."
    else:
        who = f"a listener of the queue here with its spool reports its end: {hints.serve(task.queue or '')}."
    return Check("process", "warn", f"{what}; {who}")


def _of_run(left: Leftover) -> Check:
    """Say what is left of a run. Only what is decided is work that waits; the rest costs memory."""
    what, since = f"queue {left.queue}: run {left.run}", f"for {span(left.age)}"
    way_out = hints.of_queue("gc", left.queue)
    if left.way == "finish":
        chunks = count(left.record["unpublished"], "chunk")
        sentence = (
            f"{what} has been decided {since}, and {chunks} of its tasks are not in line: {way_out}"
        )
        return Check("runs", "warn", f"{sentence} puts them there.")
    chunks = count(len(left.chunks), "chunk")
    if left.way == "discard":
        sentence = f"{what} has not chosen {chunks} that were staged for it, and lie there {since}"
        return Check("runs", "ok", f"{sentence}: {way_out} discards them.")
    staged = f", with {chunks} of tasks that are not in line" if left.chunks else ""
    way_out = hints.drop_run(left.queue, left.run)
    return Check(
        "runs", "ok", f"{what} has been open {since}{staged}. If nobody will end it: {way_out}."
    )
