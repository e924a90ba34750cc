"""What must always be true of Redis as a whole, as pure functions: a picture of Redis in, what is
wrong with it out.

docs/protocol/audit.md, "Invariants", has the same in words. `census` makes the pictures, `audit`
compares two of them; the rules of lines, locks and limits are in line_invariants.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from blueque.audit.line_invariants import judge_lines, judge_locks
from blueque.audit.observation import Finding, Hash, Picture, Standing
from blueque.model import keys
from blueque.model.lines import needs_of
from blueque.model.states import FINISHED, HELD, ROOM, STATUSES, Entry, Place, home, may_hold


def judge(picture: Picture, tasks: Mapping[str, Hash]) -> Iterator[Finding]:
    """Yield what is wrong with everything in the picture and with these tasks."""
    yield from picture.oddities.values()
    yield from _garbage(picture)
    for queue, score in picture.scores.items():
        if keys.listeners(queue) not in picture.oddities:
            yield from _queue(queue, score, picture.members.get(queue, 0))
    for (queue, node), standing in picture.listeners.items():
        if not {keys.listener(queue, node), keys.nodes(queue)} & picture.oddities.keys():
            yield from _listener(queue, node, standing)
    yield from judge_lines(picture)
    for task, seen in tasks.items():
        yield from judge_task(picture, task, seen)
    yield from judge_locks(picture)


def judge_task(picture: Picture, task: str, seen: Hash) -> Iterator[Finding]:
    """Yield what is wrong with one task."""
    entries = Counter(picture.entries.get(task, ()))
    if not seen.names:
        for entry in entries:
            sentence = f"{entry.place} has an entry for task {task}, which does not exist."
            yield _of_entry("no_hash", task, seen, entry, sentence, _removal(entry))
        return
    broken = _broken(task, seen)
    if broken is not None:
        yield broken
        return
    if seen.lock is not None and seen.status in HELD:
        needs = needs_of(f"0,{seen.needs or ''}")
        limit = needs.limit if needs is not None and needs.lock == seen.lock else 1
        picture.limits[seen.lock] = max(limit, picture.limits.get(seen.lock, 0))
        picture.holders[seen.lock] = picture.holders.get(seen.lock, 0) + 1
    yield from _places(picture, task, seen, entries)
    yield from _fields(picture, task, seen)


def _broken(task: str, seen: Hash) -> Finding | None:
    """Return what keeps a hash from being a task at all."""
    key = keys.task(task)
    if not seen.names & {"queue", "parameters"}:
        sentence = f"{key} has neither queue nor parameters: it is what 1.0.0 leaves of a task that was deleted."
        return Finding("stump", key, task, None, sentence, "mend", seen=seen)
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


def _places(picture: Picture, task: str, seen: Hash, entries: Counter[Entry]) -> Iterator[Finding]:
    queue, status = seen.queue or "", seen.status or ""
    wanted = home(task, seen.whereabouts)
    if seen.attempt is None and status in ("pending", "scheduled"):
        wanted = [entry for entry in entries if entry.is_staged] or wanted
    popped = None
    if status == "pending" and wanted[0] not in entries:
        popped = next(
            (
                entry
                for entry in entries
                if entry.place.kind == "reserved" and entry.place.queue == queue
            ),
            None,
        )
        wanted = [popped] if popped else wanted
    if seen.attempt is not None:
        wanted = [*wanted, Entry(Place("tasks", queue), task)]
    for entry in wanted:
        if entry not in entries and entry.place.key not in picture.oddities:
            sentence = f"task {task} is {status}{_where(seen)}, but is not in {entry.place}."
            yield _of_entry("missing", task, seen, entry, sentence, "put_back")
    for entry, count in entries.items():
        if entry not in wanted and (
            entry.place.kind != "tasks" or not may_hold(entry, task, seen.whereabouts)
        ):
            sentence = f"{entry.place} has an entry for task {task}, which is {status}{_where(seen)} in queue {queue}."
            is_staged = any(one.is_staged for one in wanted)
            yield _of_entry(
                "misplaced", task, seen, entry, sentence, None if is_staged else _removal(entry)
            )
        elif count > 1:
            yield _of_entry(
                "double",
                task,
                seen,
                entry,
                f"{entry.place} has task {task} {count} times.",
                "drop_hint",
            )
    if popped or status in HELD:
        held = popped or wanted[0]
        if held in entries:
            yield from _holder(picture.standing(queue, held.place.node), picture, task, seen, held)


def _holder(
    standing: Standing, picture: Picture, task: str, seen: Hash, entry: Entry
) -> Iterator[Finding]:
    """Judge who holds a task that is in the list of a listener where it may be."""
    node, queue = entry.place.node, entry.place.queue
    if standing.lives:
        if seen.status == "pending":
            sentence = f"task {task} was taken from the line of queue {queue} by {node}, which has not reserved it. "
            sentence += (
                "It does when it starts or connects again; if it is dead, others find that out."
            )
            yield _of_entry("popped", task, seen, entry, sentence, None)
        return
    is_claimed = seen.status in HELD and seen.claimant is not None
    if is_claimed and picture.standing(queue, seen.claimant).lives:
        return
    if seen.status == "started" and standing.state == "dead":
        return  # its process may live; it waits to be adopted or given up
    sentence = f"task {task} of queue {queue} is {seen.status} and held by listener {node}, {standing.words}."
    if seen.status == "started":
        sentence += f" A listener or scheduler of the queue declares it lost; blueque requeue {task} then runs it again."
    elif is_claimed:
        sentence += (
            f" {seen.claimant} has claimed it: if that is dead, remove the field reclaimed_node."
        )
    yield _of_entry(
        "held",
        task,
        seen,
        entry,
        sentence,
        None if is_claimed or seen.status == "started" else "recover",
    )


def _fields(picture: Picture, task: str, seen: Hash) -> Iterator[Finding]:
    key, queue = keys.task(task), seen.queue or ""
    if {"result", "error"} <= seen.names:
        sentence = f"task {task} is {seen.status} and has both a result and an error: it was finished twice."
        sentence += "" if seen.status in FINISHED else " The end of this attempt settles that."
        yield Finding(
            "both",
            key,
            task,
            queue,
            sentence,
            "mend" if seen.status in FINISHED else None,
            seen=seen,
        )
    is_ours = picture.standing(queue, seen.node).state is not None and (seen.attempt or "0") != "0"
    if seen.status in HELD and is_ours and seen.token is None:
        sentence = f"task {task} is {seen.status}{_where(seen)}, a listener of Blueque 2, but has no token: who runs it?"
        yield Finding("no_token", key, task, queue, sentence, None, node=seen.node, seen=seen)


def _queue(queue: str, score: float | None, members: int) -> Iterator[Finding]:
    if score is None:
        sentence = f"{keys.QUEUES} does not have queue {queue}, which has keys."
        yield Finding("unknown_queue", keys.QUEUES, None, queue, sentence, "recount")
    elif score != members:
        sentence = (
            f"{keys.QUEUES} counts {score:g} listeners of queue {queue}, which has {members}."
        )
        yield Finding("score", keys.QUEUES, None, queue, sentence, "recount")


def _listener(queue: str, node: str, standing: Standing) -> Iterator[Finding]:
    key, who = keys.listener(queue, node), f"listener {node} of queue {queue}"

    def found(code: str, key: str, sentence: str, fix: str | None) -> Finding:
        return Finding(code, key, None, queue, sentence, fix, node=node)

    if standing.state is None:
        if standing.is_noted:
            yield found(
                "node",
                keys.nodes(queue),
                f"{who} is among the nodes, but is not registered.",
                "realign",
            )
        if standing.has_orders:
            sentence = f"there are orders for {who}, which is not registered."
            yield found("orders", keys.orders(queue, node), sentence, "realign")
        return
    if standing.instance is None or standing.state not in ("alive", "dead"):
        yield found(
            "registration",
            key,
            f"the registration of {who} has no instance, or an unknown state."
            " If it is gone, delete the key.",
            None,
        )
        return
    if not standing.is_noted:
        yield found(
            "node",
            keys.nodes(queue),
            f"{who} is registered, but is not among the nodes.",
            "realign",
        )
    if standing.state == "dead" and standing.is_member:
        yield found(
            "dead_member",
            keys.listeners(queue),
            f"{who} is dead, but still a member of the listeners.",
            "realign",
        )
    elif standing.state == "dead" and not standing.holds:
        yield found("dead_listener", key, f"{who} is dead and holds nothing any more.", "forget")


def _garbage(picture: Picture) -> Iterator[Finding]:
    for place, text in picture.garbage:
        sentence = f"{place} has the entry {text!r}, which cannot mean anything there."
        yield _of_entry("garbage", None, None, Entry(place, text), sentence, "drop_hint")


def _of_entry(
    code: str, task: str | None, seen: Hash | None, entry: Entry, sentence: str, fix: str | None
) -> Finding:
    place, text = entry
    queue = place.queue or (seen.queue if seen is not None else None)  # a lock is of no queue
    return Finding(
        code, place.key, task, queue, sentence, fix, place.node or None, text, place, seen
    )


def _removal(entry: Entry) -> str | None:
    if entry.is_staged:  # what was decided is published, and drops out of the line then
        return None
    return "free" if entry.place.kind in ROOM else "drop_hint"


def _where(seen: Hash) -> str:
    return f" on {seen.node}" if seen.status in HELD else ""
