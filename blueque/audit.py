"""The audit: is everything in Redis as it must be? And the repair of what is not.

The oracle of the tests, and what `blueque doctor` shows. It sees what Redis knows, and nothing else: not whether a process
lives, nor how long a beat has stood still. That is for the programs to judge.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from blueque import census, invariants
from blueque.connection import Redis
from blueque.invariants import Finding

__all__ = ["Finding", "audit"]

SUSPECTS = 20                                          # looked at again at one instant; Redis serves nobody else meanwhile


def audit(redis: Redis, settle: float = 0.0, pause: Callable[[float], object] = time.sleep) -> list[Finding]:
    """Return everything that is not as it must be; an empty list: all is well.

    settle: how long to wait, in seconds, before looking again at every suspect; only what persists is returned, for a task
    on the move is none. At 0 there is one look, which is right if nobody changes anything meanwhile.
    """
    picture, tasks = census.take(redis)
    found = list(invariants.judge(picture, {}))
    for some in census.batches(tasks, census.BATCH):
        for task, seen in census.hashes(redis, some).items():
            found += invariants.judge_task(picture, task, seen)
    if not settle or not found:
        return _in_order(found)
    pause(settle)
    found.sort(key=lambda finding: finding.queue or "")
    persisting = []
    for suspects in census.batches(found, SUSPECTS):
        persisting += _still_so(redis, picture, suspects)
    return _in_order(persisting)


def _still_so(redis: Redis, first: invariants.Picture, suspects: Sequence[Finding]) -> list[Finding]:
    again = {finding.subject: finding for finding in invariants.judge(*census.look_again(redis, first, suspects))}
    pairs = [(before, again[before.subject]) for before in suspects if before.subject in again]
    return [after for before, after in pairs if not _has_moved(before, after)]


def _has_moved(before: Finding, after: Finding) -> bool:
    return before.seen is not None and after.seen is not None and before.seen.position != after.seen.position


def _in_order(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: (finding.is_warning, finding.queue or "", finding.code, finding.task or ""))
