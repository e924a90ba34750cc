"""The audit finds faults in Redis and repairs them.

`blueque doctor` and the tests use it. It sees only what is in Redis: not whether a process is
alive, nor how old a beat is. Listeners and schedulers judge that.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from blueque.audit import dependencies, groups, hash_fields, invariants, reads, schedules
from blueque.audit.line_invariants import judge_locks
from blueque.audit.observation import Finding, Holder, Observation
from blueque.audit.scan import scan
from blueque.connection.redis import Redis
from blueque.model import keys
from blueque.model.states import FINISHED, Entry, home
from blueque.producer.dependents import drop_stale
from blueque.protocol import membership, placement, rechecking, recover, reserving
from blueque.protocol.alignment import align_line, align_queue, align_schedule, align_task
from blueque.protocol.groups import finish_group, settle_members

__all__ = ["Finding", "Report", "audit", "repair", "report"]


class Report(NamedTuple):
    """The findings of an audit, and the number of queues and tasks that it has seen.

    payload_keys: how many unfinished tasks and schedules need each key.
    """

    findings: list[Finding]
    queues: int
    tasks: int
    payload_keys: Mapping[str, int] = {}


def audit(
    redis: Redis, settle: float = 0.0, pause: Callable[[float], object] = time.sleep
) -> list[Finding]:
    """Return all faults. See `report`."""
    return report(redis, settle, pause).findings


def report(
    redis: Redis, settle: float = 0.0, pause: Callable[[float], object] = time.sleep
) -> Report:
    """Scan everything and report all faults, failures before warnings.

    settle: if the scan has findings, wait this many seconds, scan again, and report what both have:
        a task that moved during a scan is no fault. At 0 there is one scan, which is enough if
        nothing changes.
    """
    # A connection of its own: its EXEC must not end the watch of a spare id, and a
    # key of a wrong type must not keep it from the others.
    with contextlib.closing(redis.lenient()) as reader:
        observed, tasks, count = scan(reader)
        findings = [*_judge(reader, observed, tasks), *judge_locks(observed.holders)]
        payload_keys = observed.payload_keys
        if settle and findings:
            pause(settle)
            findings = _confirmed(reader, findings, observed.holders)
    findings.sort(
        key=lambda finding: (
            finding.is_warning,
            finding.queue or "",
            finding.code,
            finding.task or "",
        )
    )
    queues = sum(seen.is_used for seen in observed.queues.values())
    return Report(findings, queues, count, payload_keys)


def _judge(redis: Redis, observed: Observation, tasks: Sequence[str]) -> list[Finding]:
    """Return the faults of everything but the locks, and among the tasks of these only."""
    findings = list(invariants.judge(observed))
    blocked: dict[str, str] = {}
    awaited: list[str] = []
    for task, seen in reads.hashes(redis, tasks, [*hash_fields.OF_TASKS]):
        findings += invariants.judge_task(observed, task, seen)
        findings += hash_fields.judge_task(task, seen)
        if seen.status == "blocked":
            blocked[task] = seen.queue or ""
        elif seen.status in FINISHED and "dependents" in seen.names:
            awaited.append(task)
    findings += dependencies.judge(redis, observed, blocked, awaited)
    findings += groups.judge(redis, observed.groups, observed.bad_keys)
    return [*findings, *schedules.judge(redis, observed)]


def _confirmed(
    redis: Redis, findings: Sequence[Finding], holders: dict[str, dict[Holder, int]]
) -> list[Finding]:
    """Scan again, and return the findings of both scans.

    A task with the same position in both has held its lock in between. So those that hold a lock in
    both scans have held it at the same time.
    """
    suspects = {finding.task for finding in findings if finding.task is not None}
    for finding in findings:
        if finding.code == "circle":
            suspects.update((finding.text or "").split(" "))
    locks = {finding.text or "" for finding in findings if finding.code == "overfull"}
    held = {lock: holders[lock] for lock in locks}
    suspects |= {task for limits in held.values() for task, _ in limits}
    observed = scan(redis).observed
    named = {finding.text for finding in findings if finding.code in groups.CODES}
    observed.groups = [group for group in observed.groups if group in named]
    doubted = {finding.text for finding in findings if finding.code in schedules.CODES}
    observed.schedules = [name for name in observed.schedules if name in doubted]
    again = _judge(redis, observed, sorted(suspects))
    stands = {finding.identity for finding in findings}
    both = {lock: observed.holders.get(lock, {}).items() & held[lock].items() for lock in locks}
    return [
        *[finding for finding in again if finding.identity in stands],
        *judge_locks({lock: dict(limits) for lock, limits in both.items()}),
    ]


def repair(redis: Redis, finding: Finding, now: float) -> bool:
    """Repair a finding as its `fix` says. False: there is no repair, or the fault has changed.

    Some take two steps: a reserved task whose listener is gone is put back into its list, where the
    next audit finds it.
    """
    fix = _REPAIRS.get(finding.fix or "")
    return fix is not None and fix(redis, finding, now)


def _align_task(redis: Redis, finding: Finding, now: float) -> bool:
    """Align the wrong entry. For a task in the list of a listener, check its line as well."""
    place, text, seen = finding.place, finding.text, finding.seen
    task = finding.task or text or ""
    looked_at = [] if place is None or text is None else [Entry(place, text)]
    if place is not None and place.kind == "reserved" and seen is not None:
        looked_at += home(task, seen.whereabouts)[:1] if seen.status == "pending" else []
    updated = seen.updated if seen is not None and finding.code == "missing" else None
    if not align_task(redis, task, looked_at, now, updated):
        return False
    if place is not None and place.kind == "lock":
        placement.wake_waiting(redis, place.line)
    elif place is not None and place.kind == "counted":
        reserving.wake(redis, place.queue)
    return True


def _align_line(redis: Redis, finding: Finding, now: float) -> bool:
    queue = finding.queue or ""
    if finding.text is not None:
        return align_line(redis, queue, finding.text)
    (names,) = redis.read(("ZRANGE", keys.lines(queue), 0, -1))
    aligned = [align_line(redis, queue, name) for name in names]
    return any(aligned)


def _align_queue(redis: Redis, finding: Finding, now: float) -> bool:
    align_queue(redis, finding.queue or "", finding.node)
    return True


def _recover(redis: Redis, finding: Finding, now: float) -> bool:
    queue, node, task = finding.queue or "", finding.node or "", finding.task or ""
    return recover.recover(redis, queue, task, node, _instance(redis, finding), now) in (
        "released",
        "dropped",
    )


def _deregister(redis: Redis, finding: Finding, now: float) -> bool:
    instance = _instance(redis, finding)
    return instance is None or membership.deregister(
        redis, finding.queue or "", finding.node or "", instance, is_dead=True
    )


def _settle_members(redis: Redis, finding: Finding, now: float) -> bool:
    settle_members(redis, finding.text or "", [finding.task or ""])
    return True


def _instance(redis: Redis, finding: Finding) -> str | None:
    (instance,) = redis.read(
        ("HGET", keys.listener(finding.queue or "", finding.node or ""), "instance")
    )
    return None if instance is None else str(instance)


_REPAIRS: dict[str, Callable[[Redis, Finding, float], bool]] = {
    "align_task": _align_task,
    "align_line": _align_line,
    "align_queue": _align_queue,
    "align_schedule": lambda redis, finding, _: align_schedule(redis, finding.text or ""),
    "recover": _recover,
    "deregister": _deregister,
    "recheck": lambda redis, finding, now: (
        rechecking.recheck(redis, finding.queue or "", finding.task or "", now) != "stale"
    ),
    "drop_stale": lambda redis, finding, now: drop_stale(redis, finding.task or "", now),
    "settle_members": _settle_members,
    "finish_group": lambda redis, finding, now: (
        finish_group(redis, finding.text or "", now) is not None
    ),
}
