"""The audit: is everything in Redis as it must be? And the repair of what is not.

The oracle of the tests, and what `blueque doctor` shows. It sees what Redis knows, and nothing
else: not whether a process lives, nor how long a beat has stood still. That is for the programs to
    judge.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from blueque import protocol
from blueque.audit import invariants, line_invariants, scan, second_look
from blueque.audit.observation import Finding, Picture
from blueque.audit.reads import BATCH, batches, hashes
from blueque.connection.redis import Redis
from blueque.model import keys

__all__ = ["Finding", "Report", "audit", "repair", "report"]

SUSPECTS = 20  # looked at again at one instant; Redis serves nobody else meanwhile


class Report(NamedTuple):
    """What an audit has found, among how many queues and tasks."""

    findings: list[Finding]
    queues: int
    tasks: int


def audit(
    redis: Redis, settle: float = 0.0, pause: Callable[[float], object] = time.sleep
) -> list[Finding]:
    """Return everything that is not as it must be; an empty list: all is well. See `report`."""
    return report(redis, settle, pause).findings


def report(
    redis: Redis, settle: float = 0.0, pause: Callable[[float], object] = time.sleep
) -> Report:
    """Look at everything and say what is not as it must be, failures before warnings.

    settle: how long to wait, in seconds, before looking again at every suspect; only what persists
    is reported, for a task on the move is none. At 0 there is one look, which is right if nobody
    changes anything meanwhile.
    """
    picture, tasks, count = scan.take(redis)
    found = list(invariants.judge(picture, {}))
    for some in batches(tasks, BATCH):
        for task, seen in hashes(redis, some).items():
            found += invariants.judge_task(picture, task, seen)
    found += line_invariants.judge_locks(picture)
    if settle and found:
        pause(settle)
        found = _persisting(redis, picture, found)
    found.sort(
        key=lambda finding: (
            finding.is_warning,
            finding.queue or "",
            finding.code,
            finding.task or "",
        )
    )
    return Report(found, len(picture.scores), count)


def _persisting(redis: Redis, first: Picture, found: list[Finding]) -> list[Finding]:
    persisting = []
    # so that few queues have to be read for each piece
    found.sort(key=lambda finding: finding.queue or "")
    for suspects in batches(found, SUSPECTS):
        persisting += _still_so(redis, first, suspects)
    return persisting


def _still_so(redis: Redis, first: Picture, suspects: Sequence[Finding]) -> list[Finding]:
    again = {
        finding.subject: finding
        for finding in invariants.judge(*second_look.look_again(redis, first, suspects))
    }
    pairs = [(before, again[before.subject]) for before in suspects if before.subject in again]
    return [after for before, after in pairs if not _has_moved(before, after)]


def _has_moved(before: Finding, after: Finding) -> bool:
    return (
        before.seen is not None
        and after.seen is not None
        and before.seen.position != after.seen.position
    )


def repair(redis: Redis, finding: Finding, now: float) -> bool:
    """Repair one finding as its `fix` says. False: there is no repair, or it is not as it was found
    any more.

    Some take two steps: a reserved task whose listener is gone is put back into its list, and found
        there by the next audit.
    """
    fix = _REPAIRS.get(finding.fix or "")
    return fix is not None and fix(redis, finding, now)


def _drop_hint(redis: Redis, finding: Finding, now: float) -> bool:
    if finding.place is None or finding.text is None:
        return False
    return protocol.drop_hint(redis, finding.place, finding.text, finding.task or finding.text)


def _put_back(redis: Redis, finding: Finding, now: float) -> bool:
    place, task, seen = finding.place, finding.task, finding.seen
    if place is None or task is None or seen is None or seen.status is None:
        return False
    return protocol.put_back(
        redis, place, task, seen.status, seen.node, seen.pid, seen.updated, now
    )


def _mend(redis: Redis, finding: Finding, now: float) -> bool:
    return protocol.mend(redis, finding.task or "")


def _realign(redis: Redis, finding: Finding, now: float) -> bool:
    return protocol.realign(redis, finding.queue or "", finding.node or "")


def _recount(redis: Redis, finding: Finding, now: float) -> bool:
    return protocol.recount(redis, finding.queue or "")


def _free(redis: Redis, finding: Finding, now: float) -> bool:
    place, queue, task = finding.place, finding.queue or "", finding.text or ""
    if place is None or not protocol.free(redis, queue, task, place.line or None):
        return False
    if place.kind == "lock":
        protocol.wake_waiting(redis, place.line)
    else:
        protocol.wake(redis, queue)
    return True


def _drop_line(redis: Redis, finding: Finding, now: float) -> bool:
    queue = finding.queue or ""
    if finding.text is not None:
        return protocol.drop_line(redis, queue, finding.text)
    (names,) = redis.read(("ZRANGE", keys.lines(queue), 0, -1))
    dropped = [name for name in names if protocol.drop_line(redis, queue, name)]
    return bool(dropped)


def _note_line(redis: Redis, finding: Finding, now: float) -> bool:
    return protocol.note_line(redis, finding.queue or "", finding.text or "")


def _recover(redis: Redis, finding: Finding, now: float) -> bool:
    queue, node, task = finding.queue or "", finding.node or "", finding.task or ""
    return protocol.recover(redis, queue, task, node, _instance(redis, finding), now) in (
        "released",
        "dropped",
    )


def _forget(redis: Redis, finding: Finding, now: float) -> bool:
    instance = _instance(redis, finding)
    return instance is None or protocol.forget(
        redis, finding.queue or "", finding.node or "", instance
    )


def _instance(redis: Redis, finding: Finding) -> str | None:
    (instance,) = redis.read(
        ("HGET", keys.listener(finding.queue or "", finding.node or ""), "instance")
    )
    return None if instance is None else str(instance)


_REPAIRS: dict[str, Callable[[Redis, Finding, float], bool]] = {
    "drop_hint": _drop_hint,
    "put_back": _put_back,
    "mend": _mend,
    "realign": _realign,
    "recount": _recount,
    "recover": _recover,
    "forget": _forget,
    "free": _free,
    "drop_line": _drop_line,
    "note_line": _note_line,
}
