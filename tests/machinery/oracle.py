"""What must be true of Redis and of the tasks' own notes, whatever was interrupted: the judge of
the explorer's runs.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from blueque.connection.redis import Command, Connection, as_hash, pack, raise_refusal, time_of
from blueque.model import keys
from blueque.model.group import group_of
from blueque.model.lines import DEFAULT, line_of, needs_of
from blueque.model.schedule import Occurrence

ENDED = ("complete", "failed", "cancelled")
# what must be in exactly one list of a listener, or in line
WAITING = ("pending", "reserved", "started")

# the ends that meet a condition, by its kind
_MEETS = {"ok": ("complete",), "any": (*ENDED, "gone"), "not_ok": ("failed", "cancelled")}

# How the keys begin that events leave: they are looked at by test_events.py.
EVENTS = (
    keys.history(""),
    keys.recent(""),
    keys.events(""),
    keys.totals(""),
    keys.stats("", "")[:-1],
)
_OF_A_GROUP = (
    keys.group(""),
    keys.members(""),
    keys.open_members(""),
    keys.bad_members(""),
    keys.awaiting(""),
)
_MARKS = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIMES = re.compile(r"\b1\d{9}(?:\.\d+)?\b")


@dataclass
class Group:
    """What Redis holds of one group. awaiting: scores of those who wait. look: its own score."""

    record: dict[str, str]
    members: list[str]
    open: set[str]
    bad: set[str]
    awaiting: dict[str, float]
    look: float | None

    @property
    def end(self) -> str:
        """How it has ended: complete or failed; open: not yet; gone."""
        if not self.record:
            return "gone"
        if self.record["state"] != "ended" or self.open:
            return "open"
        return "failed" if self.bad else "complete"


class Planned(NamedTuple):
    """What Redis holds of one schedule. history: the oldest first. score: when something comes."""

    record: dict[str, str]
    history: list[Occurrence]
    score: float | None


@dataclass
class State:
    """What Redis holds of one queue.

    lines: by name, and those of another queue by key. rooms: who holds each lock, and under "" who
        counts as running.
    waiting: the lines that wait for a lock. limit: how many may run.
    """

    pending: list[str]
    scheduled: list[str]
    ended: dict[str, list[str]]  # by status
    started: set[str]
    held: dict[str, list[str]]  # by node
    tasks: dict[str, dict[str, str]]  # the hashes
    lines: dict[str, list[str]]
    names: set[str]  # of the lines, as everybody is told
    rooms: dict[str, set[str]]
    waiting: set[str]
    limit: str | None
    is_awake: bool
    blocked: dict[str, list[str]]  # by queue
    # by task: for whom it waits and how that stands
    conditions: dict[str, dict[str, str]]
    unsettled: set[str]
    unsettled_members: set[str]
    groups: dict[str, Group]
    schedules: dict[str, Planned]
    now: float  # by the clock of Redis

    def end_of(self, parent: str) -> str:
        """Return how a task or a group for which others wait has ended, or how it stands."""
        group = group_of(parent)
        if group is None:
            return self.tasks.get(parent, {}).get("status", "gone")
        return self.groups[group].end if group in self.groups else "gone"

    def places(self, task: str) -> int:
        """Count the entries that promise the task to a listener, or say that one has it."""
        return sum(some.count(task) for some in (*self.lines.values(), *self.held.values()))


_LINE = keys.line("", ",")[:-2]
_LOCK = keys.lock("")
_WAITING = keys.waiting("")
_LISTS = keys.pending("")
_CONDITIONS = keys.conditions("")
_BLOCKED = keys.blocked("")
_FIXED = 16  # replies before those about the keys that are known


def read_state(connection: Connection, queue: str, known: set[str]) -> State:
    """Read everything in one write; in two if there are keys that are not `known`, and then they
    are.
    """
    task_key, held_key = keys.task(""), keys.reserved(queue, "")
    while True:
        names = tuple(sorted(known))
        connection.send([_questions(queue, names)])
        replies = connection.receive(_FIXED + len(names))
        raise_refusal(replies)
        kinds = (task_key, held_key, _LINE, _LOCK, _WAITING, _LISTS, _CONDITIONS, _BLOCKED)
        kinds += (*_OF_A_GROUP, keys.schedule(""), keys.occurrences(""))
        found = {name for name in replies[0] if name.startswith(kinds)}
        if found <= known:
            break
        known |= found
    (
        _,
        pending,
        scheduled,
        complete,
        failed,
        cancelled,
        started,
        counted,
        lines,
        limit,
        is_awake,
        unsettled,
        unsettled_members,
        looks,
        planned,
        clock,
        *rest,
    ) = replies
    pairs = [(name, reply) for name, reply in zip(names, rest, strict=True) if reply]

    def under(prefix: str) -> dict[str, Any]:
        return {
            name.removeprefix(prefix): reply for name, reply in pairs if name.startswith(prefix)
        }

    ours = {
        name.removesuffix(f"_{queue}"): line
        for name, line in under(_LINE).items()
        if name.endswith(f"_{queue}")
    }
    others = {
        name: line
        for name, line in pairs
        if name.startswith((_LINE, _LISTS)) and not name.endswith(f"_{queue}")
    }
    return State(
        pending,
        scheduled,
        dict(zip(ENDED, (complete, failed, cancelled), strict=True)),
        set(started),
        under(held_key),
        {task: as_hash(reply) for task, reply in under(task_key).items()},
        {DEFAULT: pending, **ours, **others},
        set(lines),
        {"": set(counted), **{name: set(holders) for name, holders in under(_LOCK).items()}},
        {line for some in under(_WAITING).values() for line in some},
        limit,
        bool(is_awake),
        under(_BLOCKED),
        {task: as_hash(reply) for task, reply in under(_CONDITIONS).items()},
        set(unsettled),
        set(unsettled_members),
        _groups([under(prefix) for prefix in _OF_A_GROUP], _scores(looks)),
        _schedules(under(keys.schedule("")), under(keys.occurrences("")), _scores(planned)),
        time_of(clock),
    )


def _schedules(
    records: dict[str, Any], lists: dict[str, Any], scores: dict[str, float]
) -> dict[str, Planned]:
    return {
        name: Planned(
            as_hash(records.get(name, [])),
            [found for text in lists.get(name, [])[::-1] if (found := Occurrence.read(text))],
            scores.get(name),
        )
        for name in records.keys() | lists.keys() | scores.keys()
    }


def _groups(found: list[dict[str, Any]], looks: dict[str, float]) -> dict[str, Group]:
    """found: records, members, open and bad ones, and who waits, each by group."""
    records, members, open_members, bad, awaiting = found
    return {
        name: Group(
            as_hash(records.get(name, [])),
            members.get(name, []),
            set(open_members.get(name, ())),
            set(bad.get(name, ())),
            _scores(awaiting.get(name, [])),
            looks.get(name),
        )
        for name in {name for some in found for name in some} | looks.keys()
    }


def _scores(reply: Sequence[str]) -> dict[str, float]:
    return {name: float(score) for name, score in as_hash(reply).items()}


@functools.lru_cache(1024)
def _questions(queue: str, names: Sequence[str]) -> bytes:
    """Return what `read_state` asks, ready to be sent: it asks the same thousands of times."""
    fixed: list[Command] = [
        ("KEYS", "*"),
        ("LRANGE", keys.pending(queue), 0, -1),
        ("ZRANGE", keys.scheduled(queue), 0, -1),
        ("LRANGE", keys.complete(queue), 0, -1),
        ("LRANGE", keys.failed(queue), 0, -1),
        ("LRANGE", keys.cancelled(queue), 0, -1),
        ("SMEMBERS", keys.started(queue)),
        ("SMEMBERS", keys.counted(queue)),
        ("ZRANGE", keys.lines(queue), 0, -1),
        ("HGET", keys.settings(queue), "max_running"),
        ("EXISTS", keys.wake(queue)),
        ("ZRANGE", keys.UNSETTLED_TASKS, 0, -1),
        ("ZRANGE", keys.UNSETTLED_MEMBERS, 0, -1),
        ("ZRANGE", keys.GROUPS, 0, -1, "WITHSCORES"),
        ("ZRANGE", keys.SCHEDULES, 0, -1, "WITHSCORES"),
        ("TIME",),
    ]
    return b"".join(pack(command) for command in [*fixed, *map(_question, names)])


def _question(name: str) -> tuple[str | int, ...]:
    if name.startswith((keys.task(""), _CONDITIONS, keys.group(""), keys.schedule(""))):
        return ("HGETALL", name)
    if name.startswith(keys.awaiting("")):
        return ("ZRANGE", name, 0, -1, "WITHSCORES")
    if name.startswith((keys.open_members(""), keys.bad_members(""))):
        return ("SMEMBERS", name)
    if name.startswith((_BLOCKED, keys.members(""))):
        return ("ZRANGE", name, 0, -1)
    return ("SMEMBERS", name) if name.startswith((_LOCK, _WAITING)) else ("LRANGE", name, 0, -1)


def ruined(state: State, nodes: Iterable[str]) -> set[str]:
    """Return the tasks that these listeners of 1.0.0, struck by a fault, have left as they do
    without us.

    Each is exactly in one of the states that 1.0.0 has no way out of: popped and not noted in the
    hash, reserved, started; or completed and failed, because the answer to the first of both was
    lost.
    """
    return {
        task
        for task, its in state.tasks.items()
        for node in nodes
        if _is_ruined(state, task, its, node)
    }


def _is_ruined(state: State, task: str, its: dict[str, str], node: str) -> bool:
    status = its.get("status")
    ends = [end for end, ids in state.ended.items() for one in ids if one == task]
    if not {"status", "queue", "parameters"} <= its.keys() or task in state.scheduled:
        return False
    if status in ("complete", "failed"):
        return sorted(ends) == ["complete", "failed"] and not state.places(task)
    is_its_own = state.places(task) == state.held.get(node, []).count(task) == 1 and not ends
    return is_its_own and (status == "pending" or (status in WAITING and its.get("node") == node))


def leave_out(state: State, tasks: set[str]) -> State:
    """Take these tasks out of the state, wherever they are, and return it."""
    for some in (
        state.scheduled,
        *state.ended.values(),
        *state.lines.values(),
        *state.held.values(),
    ):
        some[:] = [task for task in some if task not in tasks]
    state.started = {
        member for member in state.started if keys.parse_started_member(member)[2] not in tasks
    }
    state.tasks = {task: its for task, its in state.tasks.items() if task not in tasks}
    return state


def broken_invariant(state: State, tolerated: frozenset[str]) -> str | None:
    """Return which task is not where its hash says it is, or None: these hold after every single
    change.

    tolerated: `duplicates`, when an id was put in line twice on purpose; `legacy`, when a 1.0.0
    client takes part, whose changes take several steps; `rolled back`, when Redis has forgotten
    that a task need not wait for others; `kept`, when a task holds a lock without an attempt.
    """
    for task, fields in state.tasks.items():
        wrong = _misplaced(state, task, fields, "duplicates" in tolerated)
        if wrong is not None:
            return f"task {task} {wrong}"
    if "legacy" not in tolerated:
        for member in state.started:
            node, pid, task = keys.parse_started_member(member)
            fields = state.tasks.get(task, {})
            if (fields.get("status"), fields.get("node"), fields.get("pid")) != (
                "started",
                node,
                str(pid),
            ):
                return f"the started set says {member!r}, and the task does not"
    return (
        _wrong_wait(state, "rolled back" in tolerated)
        or _wrong_group(state)
        or _forgotten_line(state)
        or _wrong_room(state, "kept" in tolerated)
    )


def _wrong_wait(state: State, may_be_forgotten: bool) -> str | None:
    """Return which task waits for others and should not, or should and does not."""
    waiting = {(queue, task) for queue, tasks in state.blocked.items() for task in tasks}
    blocked = {
        (its.get("queue"), task)
        for task, its in state.tasks.items()
        if its.get("status") == "blocked"
    }
    for _, task in waiting ^ blocked:
        is_said = f"is {state.tasks.get(task, {}).get('status', 'gone')}"
        return f"task {task} {is_said}, and the set of those that wait for others says otherwise"
    for _, task in blocked:
        if task in state.scheduled:
            return f"task {task} is blocked, and scheduled"
    for task, conditions in state.conditions.items():
        awaited = [name for name, condition in conditions.items() if condition[0] != "+"]
        status = state.tasks.get(task, {}).get("status", "cancelled")
        if awaited and status not in ("blocked", "cancelled") and not may_be_forgotten:
            return f"task {task} is {status}, and has to wait for {awaited}"
    return None


def _wrong_group(state: State) -> str | None:
    """Return which group does not know of a member what it should, or is forgotten with something
    to do for it. Only what is about to be noted may be missing.
    """
    for name, group in state.groups.items():
        if not group.record:
            continue
        joined = {task for task, its in state.tasks.items() if its.get("group") == name}
        for task in ({*group.members} | joined) - state.unsettled_members:
            its = state.tasks.get(task, {})
            status = its.get("status", "gone")
            is_open, is_bad = status not in (*ENDED, "gone"), status in ("failed", "cancelled")
            if is_open != (task in group.open) or (its and is_bad != (task in group.bad)):
                return f"task {task} is {status}, and its group {name} says otherwise"
        has_ended = group.record["state"] == "ended"
        early = [task for task in group.open if _has_never_ended(state.tasks.get(task, {}))]
        if has_ended and early:
            return f"group {name} has ended before {early}"
        if not has_ended and group.look is None:
            return f"group {name} has not ended, and nobody ever looks at it"
        untold = [one for one, score in group.awaiting.items() if score < float("inf")]
        is_due = {
            "it can end": group.record["state"] == "closed" and not group.open,
            "a member runs again": has_ended and bool(group.open),
            f"{untold} are not told": has_ended and bool(untold),
            "its record expires, and tasks wait for it": (
                "expires" in group.record and bool(group.awaiting)
            ),
            "those who wait on are not told": group.end == "complete" and bool(group.awaiting),
        }
        for what, is_so in is_due.items():
            if is_so and group.look != 0:
                return f"of group {name}: {what}, and nobody is to look at it"
    return None


def _has_never_ended(its: dict[str, str]) -> bool:
    """Tell whether the first attempt of a task has surely not ended. Nobody has put it in line again."""
    is_first = its.get("status") in ("reserved", "started") and its.get("attempt") == "1"
    is_new = its.get("status") in ("blocked", "pending", "scheduled") and "attempt" not in its
    return "requeued" not in its and (is_first or is_new)


def _forgotten_line(state: State) -> str | None:
    """Return which line has work that nobody is told of."""
    for line, tasks in state.lines.items():
        if not tasks or line == DEFAULT or line.startswith(keys.PREFIX):
            continue
        if line not in state.names:
            return f"in line {line} stand {tasks}, and nobody knows of it"
        needs = needs_of(line)
        if (
            needs is not None
            and needs.lock is not None
            and not any(one.startswith(f"{line}_") for one in state.waiting)
        ):
            return f"line {line} waits for a lock, and whoever frees it does not know"
    return None


def _wrong_room(state: State, may_be_kept: bool) -> str | None:
    """Return which lock, or place among those that may run, is held by the wrong ones.

    may_be_kept: also by a task without an attempt.
    """
    busy = [its for its in state.tasks.values() if its.get("status") in WAITING[1:]]
    for room in sorted(state.rooms.keys() | {its["lock"] for its in busy if "lock" in its}):
        holders = state.rooms.get(room, set())
        what, field, value = (f"lock {room}", "lock", room) if room else ("a place", "counted", "1")
        owners = {
            task
            for task, its in state.tasks.items()
            if its.get("status") in WAITING[1:] and its.get(field) == value
        }
        if not holders >= owners if may_be_kept else holders != owners:
            return (
                f"{what} is said to be held by {sorted(holders)}, and is held by {sorted(owners)}"
            )
        for task in holders:
            needs = needs_of(line_of(None, state.tasks[task].get("needs")))
            limit = needs.limit if room and needs is not None else int(state.limit or len(holders))
            if len(holders) > limit:
                return f"{what} is held by {sorted(holders)}, which are more than {limit}"
    return None


def _misplaced(state: State, task: str, fields: dict[str, str], may_be_double: bool) -> str | None:
    status, node = fields.get("status"), fields.get("node", "")
    if not {"status", "queue", "parameters"} <= fields.keys():
        return f"is a stump: {sorted(fields)}"
    entries = state.places(task)
    if status == "pending" and not entries:
        return "is pending, and in no line"
    its_line = line_of(fields.get("priority"), fields.get("needs"))
    if (
        status == "pending"
        and not may_be_double
        and not any(task in held for held in state.held.values())
    ):
        stands = [
            line
            for line, some in state.lines.items()
            if task in some and not line.startswith(keys.PREFIX)
        ]
        if stands not in ([], [its_line]):
            return f"is to stand in line {its_line}, and stands in {stands}"
    if status in ("reserved", "started") and task not in state.held.get(node, ()):
        return f"is {status}, and not in the list of {node}"
    if (
        status == "started"
        and keys.started_member(node, fields.get("pid", ""), task) not in state.started
    ):
        return "is started, and not in the started set"
    if status == "scheduled" and task not in state.scheduled:
        return "is scheduled, and waits nowhere"
    if entries != (status in WAITING) and not may_be_double:
        return f"is {status}, and promised {entries} times"
    for end, ids in state.ended.items():
        if ids.count(task) != (status == end):
            return f"is {status}, and {ids.count(task)} times in the list of {end} tasks"
    return None


@dataclass
class Ledger:
    """What producers, people and the tasks themselves note down, apart from Redis."""

    accepted: set[str] = field(default_factory=set)  # ids that a producer's call has returned
    # how many times a person has asked for another start
    consents: Counter[str] = field(default_factory=Counter)
    retry_safe: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)  # by a person
    # the token of each start of a task's own code
    starts: dict[str, list[str]] = field(default_factory=dict)
    # the exit record of the attempt with this token
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    # the node that started the attempt with this token
    runners: dict[str, str] = field(default_factory=dict)
    # what the end of that attempt became, as its owner was told
    told: dict[str, str] = field(default_factory=dict)
    # the nodes that were told not to start what they had reserved
    refused: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)  # the tasks that have begun before they might
    # the files of an archiver, by its mark: seen by nobody else
    staged: dict[str, list[Any]] = field(default_factory=dict)
    # those of a batch that all can see
    published: dict[str, list[Any]] = field(default_factory=dict)
    notes: list[Any] = field(default_factory=list)  # whatever else a scenario wants to check

    def begin(self, task: str, token: str | None, node: str, record: dict[str, Any]) -> None:
        """The code of the task runs; record: how it ends, which is written to the spool."""
        self.starts.setdefault(task, []).append(token or "")
        if token is not None:
            self.records[token], self.runners[token] = record, node

    def excess(self) -> str | None:
        """Return which task was started more often than anybody consented to."""
        for task, tokens in self.starts.items():
            allowed = 1 + self.consents[task]
            if len(tokens) > allowed and task not in self.retry_safe:
                return f"task {task} was started {len(tokens)} times, with consent to {allowed}"
            if len(set(tokens)) < len(tokens):
                return f"task {task} was started twice in one attempt"
        return None


def undo(ledger: Ledger, state: State) -> None:
    """Have the notes say what can be asked for now that Redis has gone back to this.

    What a producer or a person was told may be undone. A task whose start is undone may be started
    once more, unless Redis still knows that it is reserved for that attempt.
    """
    ledger.accepted &= state.tasks.keys()
    ledger.deleted -= state.tasks.keys()
    for task, tokens in ledger.starts.items():
        its = state.tasks.get(task, {})
        if its.get("token") != tokens[-1] or its.get("status") in ("pending", "scheduled"):
            ledger.consents[task] += 1


def unfinished_business(ledger: Ledger, state: State, node: str) -> str | None:
    """Return what a listener that lives, and that nobody takes for dead, has left; it has looked
    for work in vain.
    """
    if state.held.get(node):
        return f"{node} is idle and holds {state.held[node]}"
    for token, runner in ledger.runners.items():
        if runner == node and token not in ledger.told:
            return f"{node} was not told how its attempt {token} ended"
    return None


def verdict(
    ledger: Ledger,
    state: State,
    is_legacy: bool = False,
    left_out: set[str] | frozenset[str] = frozenset(),
) -> str | None:
    """Return what is wrong when all is over: a task that is lost, doubled, or not told right."""
    for task in ledger.accepted - state.tasks.keys() - left_out - ledger.deleted:
        return f"task {task} was accepted and is gone"
    for task, fields in state.tasks.items():
        wrong = _wrong_end(ledger, state, task, fields, is_legacy)
        if wrong is not None:
            return f"task {task} {wrong}"
    lists = (
        *state.lines.values(),
        state.scheduled,
        state.started,
        *state.held.values(),
        *state.rooms.values(),
    )
    leftovers = [
        *[entry for some in lists for entry in some],
        *state.names,
        *state.waiting,
        *state.unsettled,
        *state.unsettled_members,
        *[name for name, group in state.groups.items() if group.look == 0],
    ]
    if leftovers:
        return f"left behind: {', '.join(leftovers)}"
    for token, outcome in ledger.told.items():
        owner = next((task for task, tokens in ledger.starts.items() if token in tokens), None)
        if not outcome or owner is None or owner in ledger.deleted or ledger.consents[owner]:
            continue
        status = state.tasks.get(owner, {}).get("status")
        if status != outcome:
            return f"task {owner} was reported {outcome} and is {status}"
    if ledger.early:
        return f"began before those for which they had to wait: {ledger.early}"
    return _wrong_tie(state) or ledger.excess()


def _wrong_tie(state: State) -> str | None:
    """Return which task was not told how another has ended, or tells nobody any more."""
    for task, its in state.tasks.items():
        culprit = its.get("broken_by", "")
        condition = state.conditions.get(task, {}).get(culprit, "-")
        is_over = state.end_of(culprit) == "complete"
        if its.get("status") == "cancelled" and is_over and condition[0] not in "+-":
            return f"task {task}, which was cancelled because of {culprit}, has no mark of its end"
        if its.get("status") == "complete" and "dependents" in its:
            return f"task {task} is complete, and others are said to wait for it"
    return None


def _is_ripe(state: State, task: str) -> bool:
    """Tell whether a blocked task need not be: nothing is left to wait for, or never will be."""
    is_strict, awaited = state.tasks[task].get("broken") == "cancel", 0
    for parent, condition in state.conditions.get(task, {}).items():
        is_met, is_hopeless, end = condition[0] == "+", condition[0] == "-", condition[1:]
        if condition in _MEETS:
            end = state.end_of(parent)
            is_met = end in _MEETS[condition]
            is_hopeless = end in (*ENDED, "gone") and not is_met
        if is_hopeless and (is_strict or end == "complete"):
            return True
        awaited += not is_met
    return not awaited


def _wrong_end(
    ledger: Ledger, state: State, task: str, fields: dict[str, str], is_legacy: bool
) -> str | None:
    status, token, result = fields.get("status", ""), fields.get("token"), fields.get("result")
    if status == "blocked" and not _is_ripe(state, task):
        return None
    if status not in ENDED:
        return f"is {status} for ever"
    if status != "complete":
        return None
    if not ledger.starts.get(task):
        return "is complete and never ran"
    if not is_legacy and fields.get("finished_by") != token:
        return "was completed by another attempt than its newest"
    known = not is_legacy or token in ledger.records
    return (
        f"has the result {result!r}, and its attempt was {token}"
        if known and result != f"by {token}"
        else None
    )


def signature(everything: Sequence[Any]) -> str:
    """Return the same text for two ends that differ in nothing but times and random marks."""
    names: dict[str, str] = {}
    text = _MARKS.sub(lambda found: names.setdefault(found[0], f"#{len(names)}"), repr(everything))
    return _TIMES.sub("now", text)
