"""The invariants of Redis as a whole. The functions are pure: they take the result of a scan and
yield findings.

docs/protocol/audit.md, "Invariants", has the same in words. The rules of lines, locks and limits
are in line_invariants.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from blueque.audit.line_invariants import judge_lines
from blueque.audit.observation import Finding, ListenerSeen, Observation, QueueSeen, TaskSeen
from blueque.model import keys
from blueque.model.lines import needs_of
from blueque.model.states import FINISHED, HELD, STATUSES, Entry, fault, wanted


def judge(observed: Observation) -> Iterator[Finding]:
    """Yield the faults of everything but the tasks and the locks."""
    yield from (*observed.bad_keys.values(), *observed.malformed)
    for entry in observed.garbage:
        sentence = f"{entry.place} has the entry {entry.text!r}, which is not valid there."
        yield _of_entry("garbage", None, None, entry, sentence)
    if keys.QUEUES not in observed.bad_keys:
        for queue, seen in observed.queues.items():
            if seen.is_used and keys.listeners(queue) not in observed.bad_keys:
                yield from _queue(queue, seen)
    for (queue, node), listener in observed.listeners.items():
        if not {keys.listener(queue, node), keys.nodes(queue)} & observed.bad_keys.keys():
            yield from _listener(queue, node, listener)
    yield from judge_lines(observed)


def judge_task(observed: Observation, task: str, seen: TaskSeen) -> Iterator[Finding]:
    """Yield the faults of one task, and record the lock that it holds."""
    entries = Counter(observed.entries.get(task, ()))
    if not seen.names:
        for entry in entries:
            sentence = f"{entry.place} has an entry for task {task}, which does not exist."
            yield _of_entry("no_hash", task, seen, entry, sentence)
        return
    broken = _broken(task, seen)
    if broken is not None:
        yield broken
        return
    if seen.needs is not None and seen.status not in FINISHED:
        observed.note_keys(seen.needs)
    if seen.lock is not None and seen.status in HELD:
        needs = needs_of(f"0,{seen.needs or ''}")
        limit = needs.limit if needs is not None and needs.lock == seen.lock else 1
        observed.holders.setdefault(seen.lock, {})[task, seen.position] = limit
    yield from _places(observed, task, seen, entries)
    yield from _fields(observed, task, seen)


def _broken(task: str, seen: TaskSeen) -> Finding | None:
    """Return why a hash is no task at all, or None."""
    key = keys.task(task)
    if not seen.names & {"queue", "parameters"}:
        sentence = f"{key} has neither queue nor parameters: it is what 1.0.0 leaves of a task that was deleted."
        return Finding("stump", key, task, None, sentence, "align_task", seen=seen)
    missing = sorted({"queue", "parameters", "status"} - seen.names)
    if missing:
        sentence = (
            f"task {task} has no {' and no '.join(missing)}. Set it with HSET, or delete the key."
        )
        return Finding("partial", key, task, seen.queue, sentence, None, seen=seen)
    if seen.status not in STATUSES:
        sentence = f"task {task} has the status {seen.status!r}, which Blueque does not know."
        return Finding("unknown_status", key, task, seen.queue, sentence, None, seen=seen)
    return None


def _places(
    observed: Observation, task: str, seen: TaskSeen, entries: Counter[Entry]
) -> Iterator[Finding]:
    """Yield the entries that the task lacks, and those that it should not have."""
    where = f"{seen.status}{_where(seen)}"
    for entry in dict.fromkeys([*wanted(task, seen.whereabouts), *entries]):
        wrong = fault(entry, task, seen.whereabouts, entries)
        if wrong == "missing" and entry.place.key not in observed.bad_keys:
            sentence = f"task {task} is {where}, but is not in {entry.place}."
            yield _of_entry("missing", task, seen, entry, sentence)
        elif wrong == "misplaced":
            sentence = f"{entry.place} has an entry for task {task}, which is {where} in queue {seen.queue}."
            yield _of_entry("misplaced", task, seen, entry, sentence)
        elif wrong == "double":
            sentence = f"{entry.place} has task {task} {entries[entry]} times."
            yield _of_entry("double", task, seen, entry, sentence)
        if entry.place.kind == "reserved" and entries[entry] and wrong != "misplaced":
            yield from _holder(observed, task, seen, entry)


def _holder(observed: Observation, task: str, seen: TaskSeen, entry: Entry) -> Iterator[Finding]:
    """Check the listener that holds a task which it may hold."""
    node, queue = entry.place.node, entry.place.queue
    listener = observed.listener(queue, node)
    if listener.lives:
        if seen.status == "pending":
            sentence = f"task {task} was taken from the line of queue {queue} by {node}, which has not started it."
            sentence += " It does so once it can, or when it connects again; if it is dead, other listeners notice that."
            yield _of_entry("popped", task, seen, entry, sentence, None)
        return
    is_claimed = seen.status in HELD and seen.reclaimed_node is not None
    if is_claimed and observed.listener(queue, seen.reclaimed_node).lives:
        return
    if seen.status == "started" and listener.state == "dead":
        return  # its process may live; it waits to be adopted or given up
    which = "which is dead" if listener.state == "dead" else "which is not registered"
    sentence = (
        f"task {task} of queue {queue} is {seen.status} and held by listener {node}, {which}."
    )
    if seen.status == "started":
        sentence += f" A listener or scheduler of the queue declares it lost; blueque requeue {task} then runs it again."
    elif is_claimed:
        sentence += f" {seen.reclaimed_node} has claimed it: if that is dead, remove the field reclaimed_node."
    fix = None if is_claimed or seen.status == "started" else "recover"
    yield _of_entry("held", task, seen, entry, sentence, fix)


def _fields(observed: Observation, task: str, seen: TaskSeen) -> Iterator[Finding]:
    key, queue = keys.task(task), seen.queue or ""
    if {"result", "error"} <= seen.names:
        fix = "align_task" if seen.status in FINISHED else None
        sentence = f"task {task} is {seen.status} and has both a result and an error: it was finished twice."
        sentence += "" if fix else " The end of this attempt settles that."
        yield Finding("both", key, task, queue, sentence, fix, seen=seen)
    is_ours = observed.listener(queue, seen.node).state is not None and (seen.attempt or "0") != "0"
    if seen.status in HELD and is_ours and seen.token is None:
        sentence = f"task {task} is {seen.status}{_where(seen)}, a listener of Blueque 2, but has no token: which process runs it?"
        yield Finding("no_token", key, task, queue, sentence, None, node=seen.node, seen=seen)


def _queue(queue: str, seen: QueueSeen) -> Iterator[Finding]:
    if seen.score is None:
        sentence = f"{keys.QUEUES} does not have queue {queue}, which has keys."
        yield Finding("unknown_queue", keys.QUEUES, None, queue, sentence, "align_queue")
    elif seen.score != seen.members:
        listeners = "listener" if seen.score == 1 else "listeners"
        sentence = f"{keys.QUEUES} counts {seen.score:g} {listeners} of queue {queue}, which has {seen.members}."
        yield Finding("score", keys.QUEUES, None, queue, sentence, "align_queue")


def _listener(queue: str, node: str, seen: ListenerSeen) -> Iterator[Finding]:
    key, name = keys.listener(queue, node), f"listener {node} of queue {queue}"

    def finding(code: str, key: str, sentence: str, fix: str | None) -> Finding:
        return Finding(code, key, None, queue, sentence, fix, node=node)

    if seen.state is None:
        if seen.has_beat:
            sentence = f"{name} is among the nodes, but is not registered."
            yield finding("node", keys.nodes(queue), sentence, "align_queue")
        if seen.has_orders:
            sentence = f"there are orders for {name}, which is not registered."
            yield finding("orders", keys.orders(queue, node), sentence, "align_queue")
        return
    if seen.instance is None or seen.state not in ("alive", "dead"):
        sentence = f"the registration of {name} has no instance, or an unknown state."
        yield finding("registration", key, f"{sentence} If it is gone, delete the key.", None)
        return
    if not seen.has_beat:
        sentence = f"{name} is registered, but is not among the nodes."
        yield finding("node", keys.nodes(queue), sentence, "align_queue")
    if seen.state == "dead" and seen.is_member:
        sentence = f"{name} is dead, but still a member of the listeners."
        yield finding("dead_member", keys.listeners(queue), sentence, "align_queue")
    elif seen.state == "dead" and not seen.holds:
        sentence = f"{name} is dead and holds nothing any more."
        yield finding("dead_listener", key, sentence, "deregister")


def _of_entry(
    code: str,
    task: str | None,
    seen: TaskSeen | None,
    entry: Entry,
    sentence: str,
    fix: str | None = "align_task",
) -> Finding:
    place, text = entry
    queue = place.queue or (seen.queue if seen is not None else None)  # a lock is of no queue
    return Finding(
        code, place.key, task, queue, sentence, fix, place.node or None, text, place, seen
    )


def _where(seen: TaskSeen) -> str:
    return f" on {seen.node}" if seen.status in HELD else ""
