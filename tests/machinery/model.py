"""The queue in pure Python, as the protocol pages describe it. test_model.py holds a real Redis
against it at every step.

What a transaction does is said here in other words than in blueque.protocol: a task is a few groups
of fields, and what comes or goes does so by the group. A refusal is raised before anything has
changed.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from blueque.errors import (
    HasDependents,
    NoSuchGroup,
    NoSuchTask,
    NotFree,
    NotOwner,
    NotRegistered,
    Taken,
    WrongGroup,
    WrongQueue,
    WrongState,
)
from blueque.model import keys

Fields = dict[str, Any]

# What the tasks of the test can need: resources, a lock, and how many may hold that.
NEEDS: dict[str, tuple[dict[str, int], str | None, int]] = {
    "": ({}, None, 0),
    "lock:one=1": ({}, "one", 1),
    "lock:two=2": ({}, "two", 2),
    "gpu=1": ({"gpu": 1}, None, 0),
    "gpu=2,lock:two=2": ({"gpu": 2}, "two", 2),
    "lock:schedule%3Anightly=1": ({}, "schedule:nightly", 1),
    "lock:schedule%3Ahourly=1": ({}, "schedule:hourly", 1),
}
BETWEEN_LOOKS = 10.0  # seconds between two looks of a listener at who holds a lock
BETWEEN_CALLS = 1.0  # and between two calls of its for the same needs

ENDS = ("complete", "failed", "cancelled")
GONE = "gone"
# Whether a condition is met, by its kind and by how the other task has ended. What is not here is
# not decided yet: `ok` of a task that may still complete.
MEETS = {
    "ok": {"complete": True, GONE: False},
    "any": {"complete": True, "failed": True, "cancelled": True, GONE: True},
    "not_ok": {"complete": False, "failed": True, "cancelled": True, GONE: False},
}
MET_LONG_AGO = float("inf")  # the score of a dependent that knows of a bad end, and waits on
FIRST_LOOK = LOOK_EVERY = 60.0
TOLD_AT_ONCE = 100
OF_ALL = ("after", "broken")  # fields of a group: what all its members wait for

POLICY = {
    "max": 3,
    "backoff": 10.0,
    "factor": 2.0,
    "interruptions": 3,
    "on": (),
    "exit_codes": (),
    "not_on": (),
}


class Refusal(Exception):
    """What blueque would raise, by its class."""

    def __init__(self, kind: type[Exception]) -> None:
        super().__init__(kind.__name__)
        self.kind = kind


class Lack(Refusal):
    """The task is put back, for there is none of this now: resources, lock or limit."""

    def __init__(self, of: str) -> None:
        super().__init__(NotFree)
        self.of = of


@dataclass
class Task:
    """A hash. A stump, as 1.0.0 leaves them, has no queue; a task that 1.0.0 has made has no
    attempt before its first.
    """

    queue: str | None
    status: str | None
    updated: float
    attempt: int | None = None
    priority: int = 0
    needs: str = ""
    policy: Mapping[str, Any] | None = None  # its own, as the field `retry` has it
    given: Fields = field(default_factory=dict)  # by whoever made it; never changes
    owner: Fields = field(default_factory=dict)  # whose the newest attempt is
    outcome: Fields = field(default_factory=dict)  # how the last one ended
    # what is to be remembered of those before, and of people
    past: Fields = field(default_factory=dict)
    # what ties it to other tasks: for how many it waits, whether others wait for it
    ties: Fields = field(default_factory=dict)

    @property
    def fields(self) -> dict[str, str]:
        news = {
            "queue": self.queue,
            "status": self.status,
            "updated": self.updated,
            "attempt": self.attempt,
        }
        news |= {"priority": self.priority or None, "needs": self.needs or None}
        everything = {**news, **self.given, **self.owner, **self.outcome, **self.past, **self.ties}
        return {name: str(value) for name, value in everything.items() if value is not None}

    @property
    def line(self) -> str:
        return f"{self.priority},{self.needs}" if self.needs else str(self.priority)

    @property
    def is_lost(self) -> bool:
        return self.status == "failed" and self.outcome.get("error_type") in ("lost", "poison")

    @property
    def ended_at(self) -> float:
        return max(self.outcome.get("finished", self.updated), self.updated)

    def policy_or(self, default: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        return self.policy if "retry" in self.given else default


@dataclass
class Condition:
    """What a task waits for: that another one ends as it is to.

    is_met: None if that is not decided. how: the end that has decided it.
    """

    kind: str
    is_met: bool | None = None
    how: str = ""

    @property
    def text(self) -> str:
        return self.kind if self.is_met is None else f"{'+' if self.is_met else '-'}{self.how}"

    def meet(self, end: str) -> bool | None:
        """Decide it by how the other task has ended, if that decides it; return what it is then."""
        if end in MEETS[self.kind]:
            self.is_met, self.how = MEETS[self.kind][end], end
        return self.is_met

    def drop(self) -> None:
        self.is_met, self.how = True, "dropped"


class New(NamedTuple):
    """A new task that waits for others: as Task, and by parent the kinds of its conditions."""

    task: str
    given: Fields
    ties: Fields
    kinds: Mapping[str, str]
    priority: int = 0
    needs: str = ""
    eta: float | None = None
    queue: str = ""


@dataclass
class Group:
    """Tasks that others wait for together. record: None when it was dropped."""

    record: Fields | None = None
    members: dict[str, float] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    bad: set[str] = field(default_factory=set)
    awaiting: dict[str, float] = field(default_factory=dict)

    @property
    def end(self) -> str | None:
        if self.record is None:
            return GONE
        if self.record["state"] != "ended" or self.open:
            return None
        return "failed" if self.bad else "complete"


def group_in(parent: str) -> str | None:
    """Return the name of the group, if it is one for which a task waits."""
    word, space, name = parent.partition(" ")
    return name if (word, space) == ("group", " ") else None


@dataclass
class Life:
    """One life of a listener, and what it believes of itself."""

    queue: str
    node: str
    instance: str
    beat: int = 0
    is_unsure: bool = True
    has_marker: bool = False
    has_order: bool = False
    totals: Mapping[str, int] = field(default_factory=dict)  # what its node has
    # when it will look at who holds that again
    looks: dict[tuple[str, str | None], float] = field(default_factory=dict)
    # when it will call others again for these needs
    calls: dict[str, float] = field(default_factory=dict)


class Model:
    """Everything in Redis."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        # by queue and name; the next one first
        self.lines: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.names: dict[str, set[str]] = defaultdict(set)  # of the lines that everybody knows of
        self.holders: dict[str, set[str]] = defaultdict(set)  # by lock
        self.waiting: dict[str, set[str]] = defaultdict(set)  # by lock: lines and queues
        self.counted: dict[str, set[str]] = defaultdict(set)
        self.settings: dict[str, Fields] = defaultdict(dict)
        self.scheduled: dict[str, dict[str, float]] = defaultdict(dict)
        # by queue and status; newest first
        self.ended: dict[tuple[str, str], list[str]] = defaultdict(list)
        # by queue and node; newest first
        self.held: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.started: dict[str, set[str]] = defaultdict(set)
        self.index: dict[str, dict[str, float]] = defaultdict(dict)
        self.tags: dict[str, float] = {}
        self.queues: set[str] = set()
        self.members: dict[str, set[str]] = defaultdict(set)
        self.registrations: dict[tuple[str, str], Fields] = {}
        self.beats: dict[str, dict[str, float]] = defaultdict(dict)
        self.awake: set[str] = set()  # queues whose wake-up marker is set
        self.orders: set[tuple[str, str]] = set()
        # by queue: when each that waits for others is looked at next
        self.blocked: dict[str, dict[str, float]] = defaultdict(dict)
        # by task, and by the task that it waits for
        self.conditions: dict[str, dict[str, Condition]] = {}
        self.inputs: dict[str, dict[str, str]] = defaultdict(dict)
        # by task: those that wait for it, since when
        self.dependents: dict[str, dict[str, float]] = defaultdict(dict)
        self.unsettled: dict[str, float] = {}  # since when their dependents are to be told
        self.groups: dict[str, Group] = defaultdict(Group)
        self.expiring: dict[str, float] = {}  # by task: until when it must have started
        self.looks: dict[str, float] = {}  # by group: when somebody looks at it
        self.unsettled_members: dict[str, float] = {}  # since when their groups are to know
        self.spawned: dict[str, set[str]] = defaultdict(set)  # by task: what it has made
        # every key, with its value, of what is foretold elsewhere
        self.others: Callable[[], dict[str, Any]] = dict
        # inside what is done, and cannot be seen from outside
        self.happened: Counter[str] = Counter()
        # how often somebody who may has let a task be started once more
        self.consents: Counter[str] = Counter()

    # What it all looks like from outside

    def everything(self) -> dict[str, Any]:
        """Return every key of Redis with its whole value."""
        found: dict[str, Any] = {keys.task(task): its.fields for task, its in self.tasks.items()}
        found[keys.QUEUES] = {queue: float(len(self.members[queue])) for queue in self.queues}
        for queue in self.queues:
            found[keys.lines(queue)] = {
                name: float(name.partition(",")[0]) for name in self.names[queue]
            }
            found[keys.counted(queue)] = self.counted[queue]
            found[keys.scheduled(queue)] = self.scheduled[queue]
            found[keys.blocked(queue)] = self.blocked[queue]
            found[keys.complete(queue)] = self.ended[queue, "complete"]
            found[keys.failed(queue)] = self.ended[queue, "failed"]
            found[keys.cancelled(queue)] = self.ended[queue, "cancelled"]
            found[keys.started(queue)] = self.started[queue]
            found[keys.tasks(queue)] = self.index[queue]
            found[keys.listeners(queue)] = self.members[queue]
            found[keys.nodes(queue)] = self.beats[queue]
            found[keys.wake(queue)] = {"0": 0.0} if queue in self.awake else {}
        for pair, held in self.held.items():
            found[keys.reserved(*pair)] = held
        for pair, line in self.lines.items():
            found[keys.line(*pair)] = line[::-1]
        for lock, holders in self.holders.items():
            found[keys.lock(lock)] = holders
        for lock, lines in self.waiting.items():
            found[keys.waiting(lock)] = lines
        for queue, given in self.settings.items():
            found[keys.settings(queue)] = {name: str(value) for name, value in given.items()}
        for pair, known in self.registrations.items():
            found[keys.listener(*pair)] = {name: str(value) for name, value in known.items()}
        for pair in self.orders:
            found[keys.orders(*pair)] = {"0": 0.0}
        found[keys.UNSETTLED_TASKS] = self.unsettled
        found[keys.UNSETTLED_MEMBERS] = self.unsettled_members
        found[keys.GROUPS] = self.looks
        found[keys.TAGS] = self.tags
        found[keys.EXPIRING] = self.expiring
        for name, group in self.groups.items():
            record = group.record or {}
            found[keys.group(name)] = {name: str(value) for name, value in record.items()}
            found[keys.members(name)], found[keys.awaiting(name)] = group.members, group.awaiting
            found[keys.open_members(name)], found[keys.bad_members(name)] = group.open, group.bad
        for task, made in self.spawned.items():
            found[keys.spawned(task)] = len(made)  # 16 bytes each, which are no text
        for task, conditions in self.conditions.items():
            found[keys.conditions(task)] = {name: one.text for name, one in conditions.items()}
        for task, inputs in self.inputs.items():
            found[keys.inputs(task)] = inputs
        for task, dependents in self.dependents.items():
            found[keys.dependents(task)] = dependents
        found |= self.others()
        return {key: value for key, value in found.items() if value}

    def lives(self, queue: str, node: str) -> bool:
        known = self.registrations.get((queue, node))
        return node in self.members[queue] if known is None else known["state"] == "alive"

    def hints(self) -> Counter[str]:
        """Return how many entries promise each task to a listener, now or later, or say that one
        has it.
        """
        places = (
            *self.lines.values(),
            *self.held.values(),
            *self.scheduled.values(),
            *self.blocked.values(),
        )
        return Counter(task for some in places for task in some)

    def blemishes(self) -> Counter[tuple[str, str]]:
        """Return what an audit must find: its code, and the task or else the node.

        Of a task with several hints nothing is said: which of them is one too many is a matter of
        taste.
        """
        hints = self.hints()
        found = Counter(("stump", task) for task, its in self.tasks.items() if its.queue is None)
        for (queue, node), known in self.registrations.items():
            if known["state"] == "dead" and not self.held[queue, node]:
                found["dead_listener", node] += 1
        places: list[tuple[str, str, Any]] = [(*pair, line) for pair, line in self.lines.items()]
        places += [(queue, "scheduled", some) for queue, some in self.scheduled.items()]
        places += [(queue, "blocked", some) for queue, some in self.blocked.items()]
        for queue, line, some in places:
            found.update(
                (code, task)
                for task in some
                if hints[task] == 1 and (code := self._stale(task, queue, line))
            )
        rooms: list[tuple[str | None, str, Any, set[str]]] = [
            (None, "lock", lock, holders) for lock, holders in self.holders.items()
        ]
        rooms += [(queue, "counted", 1, some) for queue, some in self.counted.items()]
        for its_queue, name, value, holders in rooms:
            some = [
                (self._intruder(task, its_queue, name, value), task)
                for task in sorted(holders)
                if hints[task] < 2
            ]
            found.update((code, task) for code, task in some if code is not None)
        for (queue, node), held in self.held.items():
            found.update(
                (code, task)
                for task in held
                if hints[task] == 1 and (code := self._held(queue, node, task))
            )
        for name, group in self.groups.items():
            if group.record is not None:
                found.update(self._wrong_with(name, group))
        return found

    def _wrong_with(self, name: str, group: Group) -> list[tuple[str, str | None]]:
        """Return what is wrong with a group that knows of all ends about to be noted."""
        found: list[tuple[str, str | None]] = []
        state, look = (group.record or {})["state"], self.looks.get(name)
        can_end = state == "closed" and not group.open and look != 0
        if state != "ended" and (look is None or can_end):
            found.append(("group_end", None))
        for task in [task for task in group.members if task not in self.unsettled_members]:
            its = self.tasks.get(task)
            is_there = its is not None and its.ties.get("group") == name
            has_ended = its is None or not is_there or its.status in ENDS
            if has_ended == (task in group.open):
                found.append(("open_member", task))
            elif its is not None and is_there:
                is_bad = its.status in ("failed", "cancelled")
                found += [("bad_member", task)] * (is_bad != (task in group.bad))
        return found

    def _stale(self, task: str, queue: str, line: str | None = None) -> str | None:
        """Return what is wrong with a hint in this line, or among those with this status; None:
        where no task should be.
        """
        its = self.tasks.get(task)
        if its is None:
            return "no_hash"
        is_right = (
            its.status == line
            if line in ("scheduled", "blocked")
            else its.status == "pending" and its.line == line
        )
        # A stump is found as that, and nothing else is said of it.
        return (
            "misplaced" if its.queue is not None and not (is_right and its.queue == queue) else None
        )

    def _intruder(self, task: str, queue: str | None, name: str, value: Any) -> str | None:
        """Return what is wrong with who holds a lock, or a place of a queue."""
        its = self.tasks.get(task)
        if its is None:
            return "no_hash"
        is_right = (
            its.status in ("reserved", "started")
            and its.owner.get(name) == value
            and queue in (None, its.queue)
        )
        return "misplaced" if its.queue is not None and not is_right else None

    def _held(self, queue: str, node: str, task: str) -> str | None:
        its, lives = self.tasks.get(task), self.lives(queue, node)
        is_busy = (
            its is not None
            and its.queue == queue
            and its.status in ("pending", "reserved", "started")
        )
        if its is None or not is_busy:
            return self._stale(task, queue)
        if its.status == "pending":
            return "popped" if lives else "held"
        if its.owner["node"] != node:
            return "misplaced"
        claimant = its.owner.get("reclaimed_node")
        if lives or (claimant is not None and self.lives(queue, claimant)):
            return None
        waits_for_adoption = its.status == "started" and (queue, node) in self.registrations
        return None if waits_for_adoption else "held"

    # Tasks come and go

    def enqueue(
        self,
        task: str,
        queue: str,
        given: Fields,
        policy: Any,
        now: float,
        priority: int = 0,
        needs: str = "",
    ) -> bool:
        if task in self.tasks:
            return False
        self._make(queue, task, "pending", given, policy, now, priority, needs)
        self._put_in_line(queue, task)
        return True

    def schedule(
        self,
        task: str,
        queue: str,
        given: Fields,
        policy: Any,
        eta: float,
        now: float,
        priority: int = 0,
        needs: str = "",
    ) -> bool:
        if task in self.tasks:
            return False
        self._make(queue, task, "scheduled", given, policy, now, priority, needs)
        self.tasks[task].past["eta"] = eta
        self.scheduled[queue][task] = eta
        return True

    def _make(
        self,
        queue: str,
        task: str,
        status: str,
        given: Fields,
        policy: Any,
        now: float,
        priority: int,
        needs: str,
    ) -> None:
        self.tasks[task] = Task(
            queue, status, now, None, priority, needs, policy, {**given, "created": now}
        )
        self.consents[task] = 1
        self.queues.add(queue)
        self.index[queue][task] = now
        if "start_before" in given:
            self.expiring[task] = given["start_before"]
        self._tag(task)

    def _tag(self, task: str) -> None:
        tags = self.tasks[task].given.get("tags", "").split()
        self.tags |= {f"{tag} {task}": 0.0 for tag in tags}

    def _put_in_line(self, queue: str, task: str, is_next: bool = False) -> None:
        self.stand(queue, task, is_next)
        self.awake.add(queue)

    def stand(self, queue: str, task: str, is_next: bool = False) -> None:
        name = self.tasks[task].line
        line = self.lines[queue, name]
        line.insert(0 if is_next else len(line), task)
        if name != "0":
            self.names[queue].add(name)
        _, lock, _ = NEEDS[self.tasks[task].needs]
        if lock is not None:
            self.waiting[lock].add(f"{name}_{queue}")

    def leave_line(self, queue: str, task: str) -> None:
        """Take every entry of the task out of the line in which it has to stand."""
        pair = (queue, self.tasks[task].line)
        self.lines[pair] = [other for other in self.lines[pair] if other != task]

    def align_line(self, queue: str, name: str) -> bool:
        if name == "0" or self.lines[queue, name]:
            return False
        _, lock, _ = NEEDS[name.partition(",")[2]]
        member = f"{name}_{queue}"
        is_listed = name in self.names[queue] or (lock is not None and member in self.waiting[lock])
        self.names[queue].discard(name)
        if lock is not None:
            self.waiting[lock].discard(member)
        return is_listed

    def enqueue_due(self, queue: str, now: float, limit: int) -> list[str] | None:
        waiting = self.scheduled[queue]
        due = sorted(
            (task for task in waiting if waiting[task] <= now),
            key=lambda task: (waiting[task], task),
        )[:limit]
        known = [(task, self.tasks[task]) for task in due if task in self.tasks]
        moved = [task for task, its in known if (its.status, its.queue) == ("scheduled", queue)]
        for task in due:
            del waiting[task]
        for task in moved:
            self._change(task, "pending", now)
            self._put_in_line(queue, task)
            if self.tasks[task].attempt is None:
                self.index[queue][task] = self.tasks[task].given["created"]
        return moved if due else None

    def _change(self, task: str, status: str, now: float) -> Task:
        its = self.tasks[task]
        its.status, its.updated = status, now
        return its

    def delete(self, queue: str, task: str, is_forced: bool = False) -> bool:
        its = self.tasks.get(task)
        if its is None:
            return False
        if its.queue not in (None, queue):
            raise Refusal(WrongQueue)
        if its.status not in ("complete", "failed", "cancelled"):
            raise Refusal(WrongState)
        if "dependents" in its.ties and not is_forced:
            raise Refusal(HasDependents)
        if task in self.unsettled_members:
            raise Refusal(HasDependents)
        _drop(self.ended[queue, its.status], task)
        self._remove_task(queue, task)
        return True

    def delete_thoroughly(self, queue: str, task: str, now: float) -> bool:
        """Delete a task, and before that what does not hold it any more: entries of others that do
        not wait for it, and that its group is still to know.
        """
        try:
            return self.delete(queue, task)
        except Refusal as refusal:
            if refusal.kind is not HasDependents:
                raise
            by_group = "dependents" not in self.tasks[task].ties
            self.settle(task, now)
            if by_group:
                self.settle_members(str(self.tasks[task].ties.get("group", "")), [task])
        return self.delete(queue, task)

    def _remove_task(self, queue: str, task: str) -> None:
        self.index[queue].pop(task, None)
        for tag in self.tasks[task].given.get("tags", "").split():
            self.tags.pop(f"{tag} {task}", None)
        for some in (self.tasks, self.conditions, self.inputs, self.dependents, self.spawned):
            some.pop(task, None)  # type: ignore[attr-defined]

    def prune(
        self, queue: str, status: str, seen: list[tuple[str, float | None]], floor: int
    ) -> int:
        """seen: tasks, and when they had ended."""
        stays = len(self.ended[queue, status]) - floor
        going = [
            task
            for task, at in seen
            if (its := self.tasks.get(task)) is not None
            and (its.queue, its.status, its.ended_at) == (queue, status, at)
            and "dependents" not in its.ties
            and task not in self.unsettled_members
        ][: max(stays, 0)]
        for task in going:
            _drop(self.ended[queue, status], task)
            self._remove_task(queue, task)
        return len(going)

    def purge(self, queue: str, tasks: list[str]) -> int:
        going = [task for task in tasks if self._may_be_purged(queue, task)]
        for task in going:
            its = self.tasks[task]
            if its.status == "pending":
                _drop(self.lines[queue, its.line], task)
            places = {"scheduled": self.scheduled, "blocked": self.blocked}
            if its.status in places:
                places[its.status][queue].pop(task, None)
            self._remove_task(queue, task)
        return len(going)

    def _may_be_purged(self, queue: str, task: str) -> bool:
        its = self.tasks.get(task)
        if its is None or its.queue != queue or "dependents" in its.ties:
            return False
        if its.status == "pending" and its.line == "0":
            return task in self.lines[queue, "0"]
        return its.status in ("pending", "scheduled", "blocked")

    def cancel(self, queue: str, task: str, by: str, reason: str | None, now: float) -> str:
        its = self.tasks.get(task)
        if its is None or its.status is None:
            raise Refusal(WrongState)
        if its.queue != queue:
            raise Refusal(WrongQueue)
        who = {"cancelled_by": by, **({"cancel_reason": reason} if reason else {})}
        if its.status == "cancelled":
            return "cancelled"
        is_with_legacy = its.status in ("reserved", "started") and "token" not in its.owner
        is_claimed = its.status == "reserved" and "reclaimed_node" in its.owner
        if its.status in ("complete", "failed") or is_with_legacy or is_claimed:
            raise Refusal(WrongState)
        if its.status == "started":
            if "cancel" not in its.past:
                its.past |= {"cancel": now, **who}
                its.updated = now
                self.orders.add((queue, its.owner["node"]))
            return "cancelling"
        if its.status == "scheduled":
            self.scheduled[queue].pop(task, None)
        if its.status == "blocked":
            self.blocked[queue].pop(task, None)
        if its.status == "pending":
            self.leave_line(queue, task)
        self._make_room(queue, task)
        if its.status == "reserved":
            _drop(self.held[queue, its.owner["node"]], task)
        its.owner = {}
        its.past |= who
        self._record_cancelled(queue, task, {}, now)
        return "cancelled"

    def interrupt(self, queue: str, task: str, by: str, reason: str | None, now: float) -> None:
        its = self.tasks.get(task)
        if its is not None and its.past.get("interrupted_at") == now:
            return
        if its is None or its.status is None:
            raise Refusal(WrongState)
        if its.queue != queue:
            raise Refusal(WrongQueue)
        if its.status != "started" or "token" not in its.owner or "cancel" in its.past:
            raise Refusal(WrongState)
        if its.past.get("interrupt") == its.owner["token"]:
            return
        its.past.pop("interrupt_reason", None)
        its.past |= {"interrupt": its.owner["token"], "interrupted_at": now, "interrupted_by": by}
        its.past |= {"interrupt_reason": reason} if reason else {}
        its.updated = now
        self.orders.add((queue, its.owner["node"]))

    def _record_cancelled(self, queue: str, task: str, facts: Fields, now: float) -> None:
        its = self._change(task, "cancelled", now)
        its.outcome = {**facts, "finished": now}
        its.past.pop("cancel", None)
        self.ended[queue, "cancelled"].insert(0, task)
        self._unsettle(task, now)

    def _make_room(self, queue: str, task: str) -> None:
        """Let go of the lock, and of the place among those that may run, and wake one who may have
        waited for it.
        """
        owner = self.tasks[task].owner
        if "lock" in owner:
            self.holders[owner["lock"]].discard(task)
        if "counted" in owner:
            self.counted[queue].discard(task)
        if {"lock", "counted"} & owner.keys():
            self.awake.add(queue)

    def _hold_room(self, queue: str, task: str, owner: Fields) -> None:
        """Hold again what an attempt held, whoever holds it now."""
        if "lock" in owner:
            self.holders[owner["lock"]].add(task)
            _, _, limit = NEEDS[self.tasks[task].needs]
            self.happened["more hold a lock than may"] += len(self.holders[owner["lock"]]) > limit
        if "counted" in owner:
            self.counted[queue].add(task)

    def wake_waiting(self, lock: str | None) -> None:
        """Wake every queue that has, or had, tasks which wait for a lock."""
        self.awake |= (
            {line.partition("_")[2] for line in self.waiting[lock]} if lock is not None else set()
        )

    def align_task(self, queue: str, task: str, lock: str | None) -> bool:
        """Look whether the task may hold a lock; None: a place of the queue."""
        room = self.counted[queue] if lock is None else self.holders[lock]
        its = self.tasks.get(task)
        if its is not None and its.queue is None:  # a stump, which goes with the entry
            del self.tasks[task]
            room.discard(task)
            return True
        field, value = ("counted", 1) if lock is None else ("lock", lock)
        if (
            its is not None
            and its.status in ("reserved", "started")
            and its.owner.get(field) == value
        ):
            return False
        is_wrong = task in room
        room.discard(task)
        return is_wrong

    # A task waits for others

    def enqueue_after(
        self, news: list[New], now: float, is_missing_met: bool = False
    ) -> list[bool]:
        if any(new.task in self.tasks for new in news):
            return [True] * len(news)
        for new in news:
            if "group" in new.ties:
                self._require_open(new.ties["group"], new.kinds)
        if not is_missing_met:
            self._require_all(parent for new in news for parent in new.kinds)
        for number, new in enumerate(news):
            self.make_new(new.queue, new, now, number)
        return [True] * len(news)

    def _require_all(self, parents: Iterable[str]) -> None:
        """Refuse if a task or a group for which others are to wait is gone."""
        for parent in parents:
            if self._end_of(parent) == GONE:
                raise Refusal(NoSuchTask if group_in(parent) is None else NoSuchGroup)

    def _require_open(self, name: str, kinds: Mapping[str, str]) -> None:
        """Refuse a member that the group does not take."""
        group = self.groups[name]
        if f"group {name}" in kinds:
            raise Refusal(WrongGroup)
        if group.record is None:
            raise Refusal(NoSuchGroup)
        if "cancel" in group.record:
            raise Refusal(WrongGroup)
        if group.record["state"] != "open":
            raise Refusal(WrongGroup)
        wanted = self.after(name)
        if not wanted.items() <= kinds.items():
            raise Refusal(WrongGroup)
        if kinds and kinds != wanted and group.awaiting:  # it might wait for one of these
            raise Refusal(WrongGroup)

    def make_new(
        self, queue: str, new: New, now: float, number: int, is_missing_met: bool = True
    ) -> None:
        """number: of the task among those that are made together."""
        self._make(queue, new.task, "blocked", new.given, None, now, new.priority, new.needs)
        its = self.tasks[new.task]
        its.ties = {**({"after": len(new.kinds)} if new.kinds else {}), **new.ties}
        if new.eta is not None:
            its.past["eta"] = new.eta
        self.inputs.pop(new.task, None)
        self.conditions[new.task] = {}
        self._add_conditions(new.task, new.kinds, now, number, is_missing_met)
        if self._is_free(new.task):
            self._join(queue, new.task, now)
        else:
            self.blocked[queue][new.task] = now + FIRST_LOOK
        if "group" in new.ties:
            group = self.groups[new.ties["group"]]
            group.members[new.task] = now + number * 1e-6
            group.open.add(new.task)

    def _add_conditions(
        self,
        task: str,
        kinds: Mapping[str, str],
        now: float,
        number: int = 0,
        is_missing_met: bool = True,
    ) -> None:
        """number: of the task among those that are made together."""
        wants_results = "inputs" in self.tasks[task].ties
        for parent, kind in kinds.items():
            self.conditions[task][parent] = condition = Condition(kind)
            end = self._end_of(parent)
            if end == GONE:
                condition.meet(GONE)
                condition.is_met = is_missing_met or condition.is_met
            # What can never be, `settle` has to say; and it copies results.
            elif (
                end
                and MEETS[kind].get(end)
                and not (wants_results and end == "complete" and group_in(parent) is None)
            ):
                condition.meet(end)
            else:
                self._link(parent, task, now, number)

    def _end_of(self, task: str) -> str | None:
        """Return how a task or a group has ended; None: it has not."""
        group = group_in(task)
        if group is not None:
            return self.groups[group].end
        its = self.tasks.get(task)
        status = its.status if its is not None else GONE
        return status if status in (*ENDS, GONE) else None

    def _link(self, parent: str, task: str, now: float, number: int = 0) -> None:
        if group_in(parent) is None:
            self.tasks[parent].ties["dependents"] = 1
        self._waiting_for(parent)[task] = now + number * 1e-6
        if self._end_of(parent):
            self._have_told(parent, now)

    def _waiting_for(self, parent: str) -> dict[str, float]:
        group = group_in(parent)
        return self.dependents[parent] if group is None else self.groups[group].awaiting

    def _have_told(self, parent: str, now: float) -> None:
        """Have somebody tell those who wait for it how it stands."""
        group = group_in(parent)
        if group is None:
            self.unsettled[parent] = now
        else:
            self.looks[group] = 0.0

    def _is_free(self, task: str) -> bool:
        return all(one.is_met for one in self.conditions.get(task, {}).values())

    def _join(self, queue: str, task: str, now: float) -> None:
        """Have a new task wait for its turn, or for its time."""
        its = self.tasks[task]
        if its.past.get("eta", now) > now:
            its.status = "scheduled"
            self.scheduled[queue][task] = its.past["eta"]
        else:
            its.status = "pending"
            self._put_in_line(queue, task)

    def _unsettle(self, task: str, now: float) -> None:
        """Note that a task has ended, or is to run again, for those who wait for it."""
        ties = self.tasks[task].ties
        if "dependents" in ties:
            self.unsettled[task] = now
        if "group" in ties:
            self.unsettled_members[task] = now

    def settle(self, task: str, now: float) -> tuple[int, int, int, int, bool]:
        """Return how many dependents were removed, wait on, were released and cancelled; and whether
        that was all.
        """
        end, waiting = self._end_of(task), self._waiting_for(task)
        if end is None:
            self.unsettled.pop(task, None)
            return 0, 0, 0, 0, True
        asked = sorted(waiting, key=lambda child: (waiting[child], child))
        if end not in ("complete", GONE):
            asked = [child for child in asked if waiting[child] < MET_LONG_AGO]
        done = Counter[str]()
        for child in asked[:TOLD_AT_ONCE]:
            status = self.tasks[child].status if child in self.tasks else None
            became = self._compare(child, [task], now)
            done["waiting" if child in waiting else "removed"] += 1
            if became != status:
                done["cancelled" if became == "cancelled" else "released"] += 1
        is_over = len(asked) < TOLD_AT_ONCE
        if is_over:
            self._has_settled(task, now)
        self.happened.update(f"settle: {what}" for what in done.elements())
        return done["removed"], done["waiting"], done["released"], done["cancelled"], is_over

    def _has_settled(self, parent: str, now: float) -> None:
        """Note that all those who wait for a task or a group know how it has ended."""
        group = group_in(parent)
        if group is not None:
            self._set_expiry(group, now)
            return
        if parent in self.tasks and not self.dependents[parent]:
            self.tasks[parent].ties.pop("dependents", None)
        self.unsettled.pop(parent, None)

    def _compare(self, task: str, parents: list[str], now: float) -> str | None:
        """Compare a task with some of its parents, and return the status that it has then."""
        its = self.tasks.get(task)
        is_open = its is not None and its.status in ("blocked", "cancelled")
        conditions = self.conditions.get(task, {}) if is_open else {}
        for parent in parents:
            condition = conditions.get(parent)
            if its is None or condition is None or condition.is_met is not None:
                self._leave(parent, task, now)
            else:
                self._compare_with(parent, task, condition, len(parents) == 1, now)
        if its is None or its.status != "blocked":
            return None if its is None else its.status
        culprit = self._culprit(task, parents)
        if conditions and self._is_free(task):
            self._release(task, now)
        elif culprit is not None:
            self._break(task, *culprit, now)
        return its.status

    def _compare_with(
        self, parent: str, task: str, condition: Condition, is_alone: bool, now: float
    ) -> None:
        end, waiting = self._end_of(parent), self._waiting_for(parent)
        is_wanted = "inputs" in self.tasks[task].ties and group_in(parent) is None
        is_wanted = is_wanted and end == "complete" and condition.kind != "not_ok"
        if end is not None and (is_alone or not is_wanted):
            condition.meet(end)
        if condition.is_met is not None:
            if is_wanted:
                self._copy_result(parent, task)
            self._leave(parent, task, now)
            return
        if is_wanted:
            self._have_told(parent, now)
        other, since = self.tasks.get(parent), waiting.get(task)
        is_known = other is None or "dependents" in other.ties
        if since is None or not is_known:
            self._link(parent, task, now)
            waiting[task] = now if since is None else since
            self.happened["recheck: linked"] += 1
        if since not in (None, MET_LONG_AGO) and end not in (None, "complete"):
            waiting[task] = MET_LONG_AGO
            if parent in self.unsettled:
                self.unsettled[parent] = now

    def _leave(self, parent: str, task: str, now: float) -> None:
        """Have a parent forget a task that does not wait for it."""
        if self._waiting_for(parent).pop(task, None) is not None and self._end_of(parent):
            self._have_told(parent, now)

    def _copy_result(self, parent: str, task: str) -> None:
        outcome, ties = self.tasks[parent].outcome, self.tasks[task].ties
        result = outcome.get("result", "")
        is_json = outcome.get("result_encoding") == "json"
        self.inputs[task][parent] = f"{'j' if is_json else 't'}{result}"
        ties["inputs"] += len(result)
        self.happened["a result is copied"] += 1

    def _release(self, task: str, now: float) -> None:
        its = self.tasks[task]
        self.blocked[its.queue or ""].pop(task, None)
        self._join(its.queue or "", task, now)
        its.updated = now
        if its.status == "pending":
            its.past["queued"] = now

    def _break(self, task: str, parent: str, end: str, now: float) -> None:
        its = self.tasks[task]
        self.blocked[its.queue or ""].pop(task, None)
        what = "" if group_in(parent) is not None else "task "
        reason = f"{what}{parent} is {end}"
        its.past |= {"cancelled_by": "blueque", "cancel_reason": reason}
        its.ties["broken_by"] = parent
        self._record_cancelled(its.queue or "", task, {}, now)

    def recheck(self, queue: str, task: str, now: float) -> str:
        its, size = self.tasks.get(task), len(self.blocked[queue])
        if its is None or (its.status, its.queue) != ("blocked", queue):
            self.blocked[queue].pop(task, None)
            return "stale"
        conditions = self.conditions.get(task, {})
        open_ones = [parent for parent, one in conditions.items() if one.is_met is None]
        if self._compare(task, open_ones, now) == "blocked":
            self.blocked[queue][task] = now + max(LOOK_EVERY, size / 50)
        return its.status

    def _culprit(self, task: str, parents: list[str]) -> tuple[str, str] | None:
        """Return for whom a task is to be cancelled, and how that one has ended. parents: those that
        it was compared with.
        """
        is_strict = "broken" in self.tasks[task].ties
        for parent, one in self.conditions.get(task, {}).items():
            seen = self._end_of(parent) if parent in parents else None
            end = one.how if one.is_met is not None else seen
            is_broken = bool(end) and not one.is_met
            is_needless = (one.is_met, one.how) == (False, "complete")
            if is_needless or (is_strict and is_broken and end != "complete"):
                return parent, end or GONE
        return None

    def unblock(self, queue: str, task: str, parents: list[str] | None, now: float) -> str:
        its, known = self.tasks.get(task), self.conditions.get(task, {})
        if its is not None and its.queue != queue and its.status is not None:
            raise Refusal(WrongQueue)
        meant = {name: one for name, one in known.items() if parents is None or name in parents}
        if its is None or its.status != "blocked":
            if its is not None and any(one.how == "dropped" for one in meant.values()):
                return its.status or ""
            raise Refusal(WrongState)
        going = {parent: one for parent, one in meant.items() if not one.is_met}
        for parent, one in going.items():
            one.drop()
            its.updated = now
            self._have_told(parent, now)
            self._waiting_for(parent).pop(task, None)
        if self._is_free(task):
            self._release(task, now)
        return its.status

    # Groups

    def open_group(
        self,
        name: str,
        keep: int,
        now: float,
        after: Mapping[str, str] = MappingProxyType({}),
        broken: str = "hold",
        hold: int | None = None,
    ) -> dict[str, str]:
        """after, broken: of all its members. hold: for how many seconds they are not pruned."""
        group = self.groups[name]
        terms: Fields = {"after": json.dumps(dict(after), separators=(",", ":"))} if after else {}
        terms |= {"broken": broken} if after and broken != "hold" else {}
        if f"group {name}" in after:
            raise Refusal(WrongGroup)
        if group.record is not None:
            its = {field: group.record[field] for field in OF_ALL if field in group.record}
            if after and its != terms:
                raise Refusal(WrongGroup)
        else:
            self._require_all(after)
            if any(self._state_of(parent) == "open" for parent in after):
                raise Refusal(WrongGroup)
            self.groups[name] = group = Group()
            group.record = {"group": name, "state": "open", "keep": keep, "created": now, **terms}
            group.record |= {} if hold is None else {"hold": now + hold}
            self.looks[name] = now + LOOK_EVERY
        return {field: str(value) for field, value in (group.record or {}).items()}

    def after(self, name: str) -> dict[str, str]:
        """Return what all members of a group wait for."""
        return dict(json.loads((self.groups[name].record or {}).get("after", "{}")))

    def _state_of(self, parent: str) -> str | None:
        name = group_in(parent)
        return None if name is None else self._record(name)["state"]

    def reopen_group(self, name: str, now: float, hold: int | None, made_by: str | None) -> bool:
        record = self._record(name)
        if "cancel" in record:
            raise Refusal(WrongGroup)
        if record["state"] == "open":
            return False
        if hold is not None and hold > record["keep"]:
            raise Refusal(WrongGroup)
        for gone in ("closed", "ended", "expires", *(["collected"] if hold is not None else [])):
            record.pop(gone, None)
        record |= {"state": "open", **({} if made_by is None else {"made_by": made_by})}
        record |= {} if hold is None else {"hold": now + hold}
        self.looks[name] = now + LOOK_EVERY
        return True

    def collect_group(self, name: str, now: float) -> bool:
        record = self._record(name)
        if "hold" not in record or "collected" in record:
            return False
        if record["state"] == "open" or self.groups[name].open:
            raise Refusal(WrongGroup)
        record["collected"] = now
        return True

    def _record(self, name: str) -> Fields:
        record = self.groups[name].record
        if record is None:
            raise Refusal(NoSuchGroup)
        return record

    def close_group(self, name: str, now: float) -> None:
        record = self._record(name)
        if record["state"] == "open":
            record |= {"state": "closed", "closed": now}
            self.looks[name] = 0.0

    def cancel_group(self, name: str, by: str, now: float) -> bool:
        record = self._record(name)
        if "cancel" in record or record["state"] == "ended":
            return "cancel" in record
        if record["state"] == "open":
            record |= {"state": "closed", "closed": now}
        record |= {"cancel": now, "cancelled_by": by}
        self.looks[name] = 0.0
        return True

    def settle_members(self, name: str, tasks: list[str]) -> None:
        group = self.groups[name]
        for task in tasks:
            self.unsettled_members.pop(task, None)
            if group.record is None:
                continue
            its = self.tasks.get(task)
            status = its.status if its is not None and its.ties.get("group") == name else GONE
            group.open.discard(task)
            group.bad.discard(task)
            if status not in (*ENDS, GONE):
                group.open.add(task)
            elif status != "complete":
                group.bad.add(task)
            self.looks[name] = 0.0
            self.happened[f"a member is {status}"] += 1

    def finish_group(self, name: str, now: float) -> str | None:
        group, before = self.groups[name], self.looks.get(name)
        record = group.record
        if record is None:
            self.groups.pop(name)
            self.looks.pop(name, None)
            return None
        self.looks[name] = now + LOOK_EVERY
        if record["state"] == "closed" and not group.open:
            record |= {"state": "ended", "ended": now}
            self.looks[name] = 0.0
        elif record["state"] == "ended" and group.open:
            record["state"] = "closed"
            for field in ("ended", "expires", "cancel", "cancelled_by"):
                record.pop(field, None)
            self.happened["a group runs again"] += 1
        elif record["state"] == "ended":
            self.looks.pop(name)
            self.looks |= {} if before is None else {name: before}
        return str(record["state"])

    def _set_expiry(self, name: str, now: float) -> None:
        """Have the record of a group expire, or not any more, when all have been told its end."""
        group = self.groups[name]
        record = group.record or {}
        if group.awaiting:
            record.pop("expires", None)
        else:
            record.setdefault("expires", now + record["keep"])
        self.looks[name] = now + record["keep"] + LOOK_EVERY

    def drop_group(self, name: str) -> bool:
        group = self.groups[name]
        if group.record is None:
            return False
        if group.record["state"] != "ended" or group.awaiting:
            raise Refusal(WrongGroup)
        self.groups.pop(name)
        self.looks.pop(name, None)
        return True

    # Tasks that a running task makes

    def spawn(
        self, task: str, token: str | None, node: str, news: list[New], now: float
    ) -> list[bool]:
        its = self._own(task, token, node, "started")
        made = [not self._was_made(task, new.task) for new in news]
        if any(made):
            self._require_made([new for new, is_new in zip(news, made, strict=True) if is_new])
            its.ties["spawned"] = 1
            self._make_some(task, news, made, now)
            self.spawned[task] |= {
                new.task for new, is_new in zip(news, made, strict=True) if is_new
            }
        return made

    def _was_made(self, task: str, new: str) -> bool:
        return new in self.tasks or new in self.spawned[task]

    def _require_made(self, news: list[New]) -> None:
        own = {new.task for new in news}
        self._require_all(parent for new in news for parent in new.kinds if parent not in own)

    def _make_some(
        self, task: str, news: list[New], made: list[bool], now: float, is_missing_met: bool = True
    ) -> None:
        going = [new for new, is_new in zip(news, made, strict=True) if is_new]
        for number, new in enumerate(going):
            self.make_new(new.queue, new, now, number, is_missing_met)

    def complete_then(
        self,
        queue: str,
        task: str,
        token: str | None,
        node: str,
        facts: Fields,
        news: list[New],
        now: float,
    ) -> None:
        if self.has_ended_as(task, token, "complete"):
            return
        made = [not self._was_made(task, new.task) for new in news]
        self.finish(queue, task, token, node, "complete", facts, now)
        self._make_some(task, news, made, now, is_missing_met=False)

    # Who waits, and whether anybody may go on

    def _waits(self, queue: str, task: str) -> tuple[Task, bool]:
        """Return a task that waits, and whether it stands in its line: if not, somebody has popped
        it.
        """
        its = self.tasks.get(task)
        if its is None or its.status not in ("pending", "scheduled", "blocked"):
            raise Refusal(WrongState)
        if its.queue != queue:
            raise Refusal(WrongQueue)
        return its, its.status == "pending" and task in self.lines[queue, its.line]

    def place(
        self,
        queue: str,
        task: str,
        now: float,
        to: str | None = None,
        priority: int | None = None,
        is_first: bool = False,
    ) -> None:
        there = self.tasks.get(task)
        if there is not None and there.queue == to and priority in (None, there.priority):
            return
        its, is_in_line = self._waits(queue, task)
        if is_first and not is_in_line:
            raise Refusal(WrongState)
        if to is not None and its.status == "pending" and not is_in_line:
            raise Refusal(WrongState)
        is_there = not is_first or self.lines[queue, its.line][0] == task
        if to is None and priority in (None, its.priority) and is_there:
            return
        its.updated = now
        if is_in_line:
            self.leave_line(queue, task)
        its.priority = its.priority if priority is None else priority
        if to is not None:
            self._move(its, queue, task, to, now)
        if is_in_line:
            self._put_in_line(its.queue, task, is_next=is_first)

    def _move(self, its: Any, queue: str, task: str, to: str, now: float) -> None:
        self.queues.add(to)
        self.index[queue].pop(task, None)
        self.index[to][task] = its.given["created"]
        its.queue = to
        if its.status == "scheduled":
            self.scheduled[queue].pop(task, None)
            self.scheduled[to][task] = its.past["eta"]
        elif its.status == "blocked":
            self.blocked[queue].pop(task, None)
            self.blocked[to][task] = now

    def expire(self, queue: str, task: str, now: float) -> None:
        its = self.tasks.get(task)
        if its is not None and its.status is not None and its.queue != queue:
            return
        is_waiting = its is not None and its.status in ("pending", "scheduled", "blocked")
        if its is None or not is_waiting or its.attempt is not None:
            is_waiting = False
        elif its.status == "pending" and task not in self.lines[queue, its.line]:
            return
        if its is None or not is_waiting or "start_before" not in its.given:
            self.expiring.pop(task, None)
            return
        if its.given["start_before"] > now:
            return
        del self.expiring[task]
        self.happened[f"expired: {its.status}"] += 1
        if "expired_to" in its.given:
            del its.given["start_before"]
            self.place(queue, task, now, its.given.pop("expired_to"))
            return
        self.scheduled[queue].pop(task, None)
        self.blocked[queue].pop(task, None)
        self.leave_line(queue, task)
        its.past |= {"cancelled_by": "blueque", "cancel_reason": "expired"}
        self._record_cancelled(queue, task, {}, now)

    def pause(self, queue: str, by: str, reason: str | None, now: float) -> bool:
        its = self.settings[queue]
        if "paused" in its:
            if reason in (None, its.get("paused_reason")):
                return False
            its |= {"paused_by": by, "paused_reason": reason}
            self.queues.add(queue)
            return True
        its |= {"paused": now, "paused_by": by, **({"paused_reason": reason} if reason else {})}
        self.queues.add(queue)
        return True

    def resume(self, queue: str) -> bool:
        its = self.settings[queue]
        if "paused" not in its:
            return False
        self.settings[queue] = {name: its[name] for name in its if not name.startswith("paused")}
        self.awake.add(queue)
        return True

    def set_max_running(self, queue: str, most: int | None) -> bool:
        if self.settings[queue].get("max_running") == most:
            return False
        self.settings[queue].pop("max_running", None)
        if most is not None:
            self.settings[queue]["max_running"] = most
            self.queues.add(queue)
        self.awake.add(queue)
        return True

    def is_full(self, queue: str) -> bool:
        most = self.settings[queue].get("max_running")
        return most is not None and max(len(self.counted[queue]), len(self.started[queue])) >= most

    def requeue(self, queue: str, task: str, mark: str, now: float) -> str:
        its = self.tasks.get(task)
        if its is not None and its.past.get("requeued") == mark:
            return its.status or ""
        if its is None or its.status not in ("failed", "cancelled"):
            raise Refusal(WrongState)
        if its.queue != queue:
            raise Refusal(WrongQueue)
        _drop(self.ended[queue, its.status], task)
        kept = {
            name: its.past[name]
            for name in ("eta", "finished_by", "last_files", "noted")
            if name in its.past
        }
        its.past = {**kept, "requeued": mark, **self._last_files(its)}
        self.consents[task] += 1
        its.ties.pop("broken", None)
        its.ties.pop("broken_by", None)
        for name in ("start_before", "expired_to"):
            its.given.pop(name, None)
        self._unsettle(task, now)
        for condition in self.conditions.get(task, {}).values():
            if condition.is_met is False:
                condition.drop()
        if self._is_free(task):
            self._back_in_line(queue, task, {}, now)
            return "pending"
        self._change(task, "blocked", now)
        its.owner, its.outcome = {}, {}
        its.past["queued"] = now
        self.blocked[queue][task] = 0.0
        return "blocked"

    def _back_in_line(
        self, queue: str, task: str, facts: Fields, now: float, is_next: bool = False
    ) -> None:
        its = self._change(task, "pending", now)
        its.owner, its.outcome = {}, dict(facts)
        its.past["queued"] = now
        self._put_in_line(queue, task, is_next)

    @staticmethod
    def _last_files(its: Task) -> Fields:
        return {"last_files": its.owner["files"]} if "files" in its.owner else {}

    def failed(
        self,
        queue: str,
        error_type: str | None,
        older_than: float | None,
        limit: int | None,
        now: float,
    ) -> list[str]:
        """Return the failed tasks that requeue_failed is to take."""
        tasks = [(task, self.tasks[task]) for task in reversed(self.ended[queue, "failed"])]
        found = [
            task
            for task, its in tasks
            if error_type in (None, its.outcome.get("error_type"))
            and its.outcome.get("finished", its.updated) <= now - (older_than or 0)
        ]
        return found[:limit]

    # A listener comes, lives and goes

    def register(
        self, queue: str, node: str, instance: str, facts: Fields, now: float, dead: str | None
    ) -> None:
        known = self.registrations.get((queue, node))
        if known is not None and known["instance"] == instance:
            return
        if known is not None and known["state"] == "alive" and known["instance"] != dead:
            raise Refusal(Taken)
        self.registrations[queue, node] = {
            "instance": instance,
            "state": "alive",
            "beat": 0,
            "beat_at": now,
            **facts,
        }
        self.beats[queue][node] = now
        self.members[queue].add(node)
        self.queues.add(queue)

    def _require(self, queue: str, node: str, instance: str) -> Fields:
        known = self.registrations.get((queue, node), {})
        if (known.get("instance"), known.get("state")) != (instance, "alive"):
            raise Refusal(NotRegistered)
        return known

    def beat(self, life: Life, now: float, task: str | None = None) -> list[object]:
        """Return the standing: the order, some fields of the task, what is in the list of the
        listener, and the listeners.
        """
        life.beat += 1
        known = self._require(life.queue, life.node, life.instance)
        known |= {"beat": life.beat, "beat_at": now}
        self.beats[life.queue][life.node] = now
        members = {life.queue: {*self.members[life.queue]}}
        self.members[life.queue].add(life.node)
        fields = self.tasks[task].fields if task in self.tasks else {}
        names = ("status", "token", "node", "attempt", "cancel", "error_type", "created", "stack")
        names += ("interrupt",)
        held = tuple((life.queue, entry) for entry in self.held[life.queue, life.node])
        return [known.get("order"), *(fields.get(name) for name in names), held, members, {}]

    def deregister(self, queue: str, node: str, instance: str) -> bool:
        known = self.registrations.get((queue, node))
        if self.held[queue, node]:
            return False
        if known is None or known["instance"] != instance:
            return known is None
        self._remove(queue, node)
        self.members[queue].discard(node)
        return True

    def _remove(self, queue: str, node: str) -> None:
        del self.registrations[queue, node]
        self.beats[queue].pop(node, None)
        self.orders.discard((queue, node))

    def order(self, queue: str, node: str, what: str, by: str) -> bool:
        known = self.registrations.get((queue, node))
        if known is None or known["state"] != "alive":
            return False
        if known.get("order") != what and not (
            (what in ("pause", "work") and known.get("order") in ("drain", "leave"))
            or (what == "leave" and known.get("order") == "drain")
        ):
            known |= {"order": what, "order_by": by}
            self.orders.add((queue, node))
        return True

    def idle(self, life: Life) -> bool:
        """Take a marker, of which there is one; return whether there may be work."""
        if life.queue in self.awake:
            self.awake.remove(life.queue)
            life.has_marker = True
        else:
            self.orders.remove((life.queue, life.node))
            life.has_order = True
        return (
            life.has_marker
            or life.has_order
            or bool(self.lines[life.queue, "0"] or self.names[life.queue])
        )

    # One attempt

    def take(self, life: Life, token: str | None, now: float) -> str | None:
        """Be the listener that looks for its next task; token: of the reservation, if it will get
        one.
        """
        if life.is_unsure:
            self.beat(life, now)
            self._pass_marker_on(life, True)
            for task in reversed(list(self.held[life.queue, life.node])):
                if self._reserve_found(life, task, token, now):
                    return task
        life.is_unsure = True
        taken, _, refusal = self._take_next(life, None, token, now)
        if refusal not in (None, "paused"):
            taken = self._choose(life, token, now)
        life.is_unsure = False
        life.has_marker = life.has_marker and taken is not None
        return taken

    def _reserve_found(self, life: Life, task: str, token: str | None, now: float) -> bool:
        wanted, _, _ = NEEDS[self.tasks[task].needs if task in self.tasks else ""]
        return self._try(life, task, token, now, None, _can_meet(life, wanted)) is True

    def _try(
        self,
        life: Life,
        task: str,
        token: str | None,
        now: float,
        line: str | None,
        has_resources: bool = True,
    ) -> bool | str:
        """Reserve it, and return whether that is done; what it lacks, if it has been put back."""
        try:
            return self.reserve(life, task, token, now, line, has_resources)
        except Lack as lack:
            if lack.of == "resources":
                self.awake.add(life.queue)
            return lack.of

    def _take_next(
        self, life: Life, line: str | None, token: str | None, now: float
    ) -> tuple[str | None, int, str | None]:
        """Return what is taken, how many are left, and why nothing is taken."""
        _, its_lock, _ = NEEDS[(line or "0").partition(",")[2]]
        while True:
            popped, left, refusal = self.pop(life, line)
            if popped is None:
                return None, left, refusal
            done = self._try(life, popped, token, now, line or "0")
            if done == "expired":
                self.expire(life.queue, popped, now)
                continue
            if done == "resources" or (done == "lock" and its_lock is None):
                continue  # it stood in a wrong line
            if isinstance(done, str):
                return None, left, done
            if line is None:
                self._pass_marker_on(life, left > 0)
            if done:
                return popped, left, None

    def _choose(self, life: Life, token: str | None, now: float) -> str | None:
        """Go through the lines, as they are now, until one has a task that can run."""
        queue, had_marker = life.queue, life.has_marker
        if self.is_full(queue):
            self._free_room(life, None, now)
            self.happened["a queue is full"] += 1
            return None
        taken, left, elsewhere = None, 0, list[str]()
        heads = self._heads(queue)
        while heads and taken is None:
            name, length, is_locked = heads.pop(0)
            needs = name.partition(",")[2]
            wanted, lock, _ = NEEDS[needs]
            if not length:
                self.happened["an empty line is dropped"] += self.align_line(queue, name)
            elif is_locked:
                self._free_room(life, lock, now)
                self.happened["a lock is taken"] += 1
            elif not _can_meet(life, wanted):
                elsewhere.append(needs)
            else:
                taken, left, refusal = self._take_next(life, name, token, now)
                if not left and refusal != "paused":
                    self.align_line(queue, name)
                if refusal == "limit":
                    return None
        if taken is not None:
            self._pass_marker_on(life, left > 0 or any(length for _, length, _ in heads))
        if had_marker:
            self._call_others(life, elsewhere, now)
        return taken

    def _heads(self, queue: str) -> list[tuple[str, int, bool]]:
        """Return for each line its name, its length and whether its lock is taken, in the order of
        their turns.
        """

        def turn(name: str) -> tuple[int, bool, float]:
            line = self.lines[queue, name]
            first = self.tasks.get(line[0]) if line else None
            return (
                -int(name.partition(",")[0]),
                bool(line),
                first.given.get("created", 0.0) if first is not None else 0.0,
            )

        def is_locked(name: str) -> bool:
            _, lock, limit = NEEDS[name.partition(",")[2]]
            return lock is not None and len(self.holders[lock]) >= limit

        names = sorted(
            self.names[queue], key=lambda name: (int(name.partition(",")[0]), name), reverse=True
        )
        names += ["0"] if self.lines[queue, "0"] else []
        return [
            (name, len(self.lines[queue, name]), is_locked(name))
            for name in sorted(names, key=turn)
        ]

    def _free_room(self, life: Life, lock: str | None, now: float) -> None:
        if now < life.looks.get((life.queue, lock), 0.0):
            return
        life.looks[life.queue, lock] = now + BETWEEN_LOOKS
        room = self.counted[life.queue] if lock is None else self.holders[lock]
        idle = [
            task
            for task in room
            if task not in self.tasks or self.tasks[task].status not in ("reserved", "started")
        ]
        for task in idle:
            self.align_task(life.queue, task, lock)
        if idle:
            self.awake.add(life.queue)
            self.wake_waiting(lock)
            self.happened["what nobody holds is freed"] += 1

    def _call_others(self, life: Life, elsewhere: list[str], now: float) -> None:
        """Have idle listeners of other nodes look for work: for the first of these needs that any
        of them has.
        """
        for needs in [needs for needs in elsewhere if now >= life.calls.get(needs, 0.0)]:
            life.calls[needs] = now + BETWEEN_CALLS
            called = {
                node
                for node in self.members[life.queue] - {life.node}
                if self._has(life.queue, node, needs)
            }
            self.orders |= {(life.queue, node) for node in called}
            self.happened["another is called"] += len(called)
            if called:
                return

    def _has(self, queue: str, node: str, needs: str) -> bool:
        """Tell whether a listener has nothing to do, and its node what is needed."""
        known, (wanted, _, _) = self.registrations.get((queue, node), {}), NEEDS[needs]
        has = dict(word.split("=") for word in known.get("resources", "").split(",") if word)
        is_fit = all(int(has.get(name, 0)) >= amount for name, amount in wanted.items())
        return (
            is_fit
            and known.get("state") == "alive"
            and "order" not in known
            and not self.held[queue, node]
        )

    def _pass_marker_on(self, life: Life, is_work_left: bool) -> None:
        if life.has_marker and is_work_left:
            self.awake.add(life.queue)
        life.has_marker = False

    def pop(self, life: Life, name: str | None = None) -> tuple[str | None, int, str | None]:
        self._require(life.queue, life.node, life.instance)
        known = self.settings[life.queue]
        if "paused" in known:
            self.happened["a queue is paused"] += 1
            return None, 0, "paused"
        if name is None and (self.names[life.queue] or "max_running" in known):
            return None, 0, "choose"
        line = self.lines[life.queue, name or "0"]
        popped = line.pop(0) if line else None
        if popped is not None:
            self.held[life.queue, life.node].insert(0, popped)
        return popped, len(line), None

    def reserve(
        self,
        life: Life,
        task: str,
        token: str | None,
        now: float,
        line: str | None = None,
        has_resources: bool = True,
    ) -> bool:
        """line: from which it was popped; has_resources: its node has free what it needs."""
        self._require(life.queue, life.node, life.instance)
        its, held = self.tasks.get(task), self.held[life.queue, life.node]
        if (
            its is not None
            and its.status == "reserved"
            and its.owner.get("token") == token is not None
        ):
            return True
        if task not in held:
            return False
        if (
            its is not None
            and its.status in ("reserved", "started")
            and its.owner["node"] == life.node
        ):
            return False
        if its is None or its.status != "pending" or its.queue != life.queue:
            held.remove(task)
            return False
        if its.attempt is None and its.given.get("start_before", now + 1) <= now:
            held.remove(task)
            self.stand(life.queue, task, is_next=True)
            self.happened["a task that is late is put back"] += 1
            raise Lack("expired")
        wanted, lock, limit = NEEDS[its.needs]
        set_aside = wanted if line is None else NEEDS[line.partition(",")[2]][0]
        lack = "" if has_resources and set_aside == wanted else "resources"
        if lock is not None and len(self.holders[lock]) >= limit:
            lack = "lock"
        elif self.is_full(life.queue):
            lack = "limit"
        if lack:
            held.remove(task)
            self.stand(life.queue, task, is_next=True)
            self.happened["a task is put back"] += 1
            raise Lack(lack)
        self._change(task, "reserved", now)
        if its.attempt is None:  # perhaps made by 1.0.0, or lost with one of its listeners
            self.index[life.queue][task] = its.given["created"]
            its.outcome = {}
        its.attempt = (its.attempt or 0) + 1
        its.owner |= {"node": life.node, "token": token}
        its.owner |= {"lock": lock} if lock is not None else {}
        its.owner |= {"counted": 1} if "max_running" in self.settings[life.queue] else {}
        its.owner.pop("pid", None)
        self._hold_room(life.queue, task, its.owner)
        self.happened.update(
            f"reserve with {name}" for name in ("lock", "counted") if name in its.owner
        )
        self.happened["reserve with resources"] += bool(wanted)
        self.happened["reserve in another line"] += its.line != "0"
        return True

    def start(
        self,
        queue: str,
        task: str,
        token: str | None,
        node: str,
        pid: int,
        identity: Fields,
        now: float,
    ) -> None:
        its = self.tasks.get(task)
        mine = {"token": token, "node": node, "pid": pid}
        if (
            its is not None
            and its.status == "started"
            and {name: its.owner.get(name) for name in mine} == mine
        ):
            return
        its = self._own(task, token, node, "reserved")
        self._change(task, "started", now)
        its.owner |= {"pid": pid, **identity, "started": now}
        self.started[queue].add(keys.started_member(node, pid, task))

    def _own(
        self, task: str, token: str | None, node: str, *statuses: str, or_lost: bool = False
    ) -> Task:
        its = self.tasks.get(task)
        if its is None or its.owner.get("token") != token:
            raise Refusal(NotOwner)
        is_late = or_lost and its.is_lost and token is not None
        if not is_late and (its.status not in statuses or its.owner.get("node") != node):
            raise Refusal(NotOwner)
        return its

    def progress(self, task: str, token: str | None, node: str, text: str, now: float) -> None:
        its = self._own(task, token, node, "started")
        first = {"progress_first": f"{now} {text}"}
        its.owner = {**first, **its.owner, "progress": text, "progress_at": now}
        its.updated = now

    def take_note(self, task: str, token: str | None, node: str, number: int) -> None:
        its = self._own(task, token, node, "started", or_lost=True)
        last, _, count = str(its.past.get("noted", "")).rpartition(" ")
        if last != token or int(count) < number:
            its.past["noted"] = f"{token} {number}"

    def finish(
        self,
        queue: str,
        task: str,
        token: str | None,
        node: str,
        status: str,
        facts: Fields,
        now: float,
    ) -> None:
        """complete and fail: status is what it becomes, facts what is told of the end."""
        if self.has_ended_as(task, token, status):
            return
        statuses = ("started",) if status == "complete" else ("started", "reserved")
        its = self._own(task, token, node, *statuses, or_lost=True)
        self._let_go(queue, task)
        its.outcome = {"finished": now, **facts}
        self._sign(its, token)
        self._change(task, status, now)
        self.ended[queue, status].insert(0, task)
        self._unsettle(task, now)

    def has_ended_as(self, task: str, token: str | None, *statuses: str) -> bool:
        its = self.tasks.get(task)
        return its is not None and its.status in statuses and its.past.get("finished_by") == token

    @staticmethod
    def _sign(its: Task, token: str | None) -> None:
        if token is not None:
            its.past["finished_by"] = token

    def _let_go(self, queue: str, task: str) -> None:
        its = self.tasks[task]
        if its.status == "failed":
            self.ended[queue, "failed"].remove(task)
            return
        self._make_room(queue, task)
        _drop(self.held[queue, its.owner["node"]], task)
        self._leave_started(queue, task)

    def _leave_started(self, queue: str, task: str) -> None:
        owner = self.tasks[task].owner
        self.started[queue].discard(keys.started_member(owner["node"], owner.get("pid", ""), task))

    def retry(
        self,
        queue: str,
        task: str,
        token: str | None,
        node: str,
        eta: float | None,
        news: Fields,
        facts: Fields,
        now: float,
    ) -> str:
        """news: failures and last_error; facts: what the attempt took."""
        its = self.tasks.get(task)
        if its is not None and token is not None and its.past.get("finished_by") == token:
            return its.status or ""
        its = self._own(task, token, node, "started", "reserved", or_lost=True)
        self._let_go(queue, task)
        self._sign(its, token)
        its.past |= {**news, **self._last_files(its)}
        self.consents[task] += "cancel" not in its.past
        self._unsettle(task, now)
        if "cancel" in its.past:
            self._record_cancelled(queue, task, facts, now)
        elif eta is None:
            self._back_in_line(queue, task, facts, now)
        else:
            self._change(task, "scheduled", now)
            its.owner, its.outcome = {}, dict(facts)
            its.past["eta"] = eta
            self.scheduled[queue][task] = eta
        return its.status or ""

    def release(self, queue: str, task: str, token: str | None, node: str, now: float) -> str:
        its = self.tasks.get(task)
        if its is not None and token is not None and its.past.get("finished_by") == token:
            return its.status or ""
        its = self._own(task, token, node, "started", "reserved")
        # its listener says that nothing has run, or may let it run again
        self.consents[task] += its.status == "started"
        self._let_go(queue, task)
        self._sign(its, token)
        its.past |= self._last_files(its)
        if "cancel" in its.past:
            self._record_cancelled(queue, task, {}, now)
        else:
            self._back_in_line(queue, task, {}, now, is_next=True)
        return its.status or ""

    def confirm_cancel(
        self, queue: str, task: str, token: str | None, node: str, facts: Fields, now: float
    ) -> None:
        if self.has_ended_as(task, token, "cancelled"):
            return
        its = self._own(task, token, node, "started", or_lost=True)
        self._let_go(queue, task)
        self._sign(its, token)
        self._record_cancelled(queue, task, facts, now)

    def report(
        self,
        queue: str,
        task: str,
        token: str | None,
        node: str,
        failures: int,
        record: Fields,
        default: Any,
        now: float,
    ) -> None:
        """Decide by the policy what the end of an attempt means; failures: of the task, when it was
        reserved.
        """
        measured = {
            name: record[name]
            for name in ("memory_peak", "cpu_seconds", "leaked")
            if name in record
        }
        if record["status"] == "complete":
            facts = {
                name: record[name]
                for name in ("result", "result_encoding", "finished")
                if name in record
            }
            return self.finish(queue, task, token, node, "complete", facts | measured, now)
        its = self.tasks.get(task)
        wait, news = record.get("retry_after"), {}
        if wait is None:
            policy = its.policy_or(default) if its is not None else None
            if policy is None or not _allows(policy, failures, record):
                reasons = ("error", "error_type", "traceback", "exit_code", "signal", "finished")
                facts = {name: record[name] for name in reasons if name in record}
                return self.finish(queue, task, token, node, "failed", facts | measured, now)
            wait = policy["backoff"] * policy["factor"] ** failures
            news = {
                "failures": failures + 1,
                "last_error": record["error"],
                "last_error_type": record.get("error_type", "error"),
            }
        self.retry(queue, task, token, node, now + wait if wait > 0 else None, news, measured, now)

    # When a listener is dead

    def fence(self, queue: str, node: str, instance: str, beat: str) -> bool:
        known = self.registrations.get((queue, node), {})
        if (known.get("instance"), known.get("state")) == (instance, "dead"):
            return True
        if known.get("instance") != instance or str(known["beat"]) != beat:
            return False
        known["state"] = "dead"
        if node not in self.members[queue]:
            known["struck"] = 1
        self.members[queue].discard(node)
        return True

    def fence_legacy(self, queue: str, node: str) -> bool:
        if (queue, node) in self.registrations or node not in self.members[queue]:
            return False
        self.members[queue].remove(node)
        return True

    def _is(self, state: str, queue: str, node: str, instance: str | None) -> bool:
        known = self.registrations.get((queue, node))
        if instance is None:
            return known is None and node not in self.members[queue]
        return known is not None and (known["instance"], known["state"]) == (instance, state)

    def recover(
        self,
        queue: str,
        task: str,
        node: str,
        instance: str | None,
        now: float,
        dead_claimant: str | None = None,
    ) -> str | None:
        held, its = self.held[queue, node], self.tasks.get(task)
        if task not in held or not self._is("dead", queue, node, instance):
            return None
        status = its.status if its is not None and its.owner.get("node") == node else None
        if its is not None and status in ("reserved", "started"):
            is_claimed = its.owner.get("reclaimed_node") not in (None, dead_claimant)
            if is_claimed and (status == "reserved" or "pid_start" not in its.owner):
                return "claimed"  # and, if it is started, it was the claimant that did so
            if status == "started":
                return "started"
        held.remove(task)
        if (
            its is None
            or its.queue != queue
            or not (its.status == "pending" or status == "reserved")
        ):
            return "dropped"
        self._make_room(queue, task)
        self._back_in_line(queue, task, its.outcome, now, is_next=True)
        return "released"

    def lose(
        self,
        queue: str,
        task: str,
        token: str | None,
        node: str,
        instance: str | None,
        error: str,
        default: Any,
        facts: Fields,
        now: float,
        is_ours: bool = False,
    ) -> str | None:
        its = self.tasks.get(task)
        if (
            its is None
            or its.status != "started"
            or (its.owner.get("token"), its.owner["node"]) != (token, node)
        ):
            return None
        if not self._is("alive" if is_ours else "dead", queue, node, instance):
            return None
        self._let_go(queue, task)
        policy, count = its.policy_or(default), its.past.get("interruptions", 0) + 1
        if "cancel" in its.past:
            self._record_cancelled(queue, task, facts, now)
        elif policy is not None and count <= policy["interruptions"]:
            its.past |= {
                "interruptions": count,
                "last_error": error,
                "last_error_type": "lost",
                **self._last_files(its),
            }
            self.consents[task] += 1
            self._back_in_line(queue, task, facts, now, is_next=True)
        else:
            its.past["interruptions"] = count
            its.outcome = {
                "error": error,
                "error_type": "lost" if policy is None else "poison",
                **facts,
            }
            self._change(task, "failed", now)
            self.ended[queue, "failed"].insert(0, task)
            self._unsettle(task, now)
        return its.status

    def adopt(
        self, life: Life, task: str, token: str | None, old: str, now: float
    ) -> Fields | None:
        self._require(life.queue, life.node, life.instance)
        its = self.tasks.get(task)
        if its is None or its.status != "started" or its.owner.get("token") != token:
            return None
        if its.owner["node"] == life.node != old:
            return its.fields
        if its.owner["node"] != old:
            return None
        held = self.held[life.queue, old]
        held[:] = [other for other in held if other != task]
        self._leave_started(life.queue, task)
        self._hold_started(life, task, {}, now)
        return its.fields

    def _hold_started(self, life: Life, task: str, news: Fields, now: float) -> None:
        its = self._change(task, "started", now)
        its.owner |= {**news, "node": life.node}
        self.held[life.queue, life.node].insert(0, task)
        self.started[life.queue].add(keys.started_member(life.node, its.owner["pid"], task))

    def restore(
        self,
        life: Life,
        task: str,
        token: str,
        pid: int,
        identity: Fields,
        started: float,
        now: float,
    ) -> Fields | None:
        self._require(life.queue, life.node, life.instance)
        its = self.tasks.get(task)
        if its is None or its.owner.get("token") != token:
            return None
        if its.status == "started" and its.owner["node"] == life.node:
            return its.fields
        if not its.is_lost:
            return None
        self.ended[life.queue, "failed"].remove(task)
        its.outcome = {}
        self._hold_room(life.queue, task, its.owner)
        self._hold_started(life, task, {"pid": pid, **identity, "started": started}, now)
        self._unsettle(task, now)
        return its.fields

    def reassert(
        self, life: Life, task: str, mine: Task, pid: int, now: float, is_lasting: bool = False
    ) -> Fields | None:
        """mine: the task as the listener knows it."""
        self._require(life.queue, life.node, life.instance)
        its = self.tasks.get(task)
        token = mine.owner["token"]
        held = self.held[life.queue, life.node]
        if its is not None:
            if its.given.get("created") != mine.given["created"] and not is_lasting:
                return None  # it may be another one, with the same id
            is_mine = its.owner.get("token") == token
            if is_mine and its.status == "started":
                return its.fields
            is_older = (its.attempt or 0) < (mine.attempt or 0) and its.status in (
                "pending",
                "scheduled",
                "blocked",
            )
            if not is_older and not (is_mine and its.status == "reserved"):
                return None
        else:
            its = self.tasks[task] = Task(life.queue, None, now)
        if its.status is None:
            its.priority, its.needs = mine.priority, mine.needs
        self.leave_line(life.queue, task)
        self.scheduled[life.queue].pop(task, None)
        self.blocked[life.queue].pop(task, None)
        its.attempt = mine.attempt
        its.policy = mine.policy
        its.priority = mine.priority or its.priority
        self._hold_room(life.queue, task, mine.owner)
        its.outcome = {}
        for name in ("given", "owner", "outcome", "past", "ties"):
            getattr(its, name).update(deepcopy(getattr(mine, name)))
        before = list(held)
        self._hold_started(life, task, {"pid": pid}, now)
        if task in before:
            held[:] = before
        self.index[life.queue][task] = its.given["created"]
        self._tag(task)
        self._unsettle(task, now)
        return its.fields

    def deregister_dead(self, queue: str, node: str, instance: str | None) -> bool:
        known = self.registrations.get((queue, node))
        if self.held[queue, node]:
            return False
        if known is None:
            if instance is None:
                self.beats[queue].pop(node, None)
                self.orders.discard((queue, node))
            return True
        if (known["instance"], known["state"]) != (instance, "dead"):
            return False
        self._remove(queue, node)
        return True

    def claim(self, queue: str, node: str, dead: str, instance: str | None) -> str | None:
        held = [task for task in self.held[queue, dead] if task in self.tasks]
        for task in held:
            its = self.tasks[task]
            if its.status == "reserved" and its.owner.get("reclaimed_node") == node:
                return task
        known = self.registrations.get((queue, dead))
        if dead not in self.members[queue] or (known["instance"] if known else None) != instance:
            return None
        open_tasks = [
            task
            for task in held
            if "reclaimed_node" not in self.tasks[task].owner
            and self.tasks[task].status not in ("complete", "failed", "cancelled")
        ]
        claimed = next(
            (task for task in open_tasks if self.tasks[task].status in ("reserved", "started")),
            None,
        )
        if claimed is not None:
            self.tasks[claimed].owner["reclaimed_node"] = node
        if len(open_tasks) == (claimed is not None):
            self.members[queue].remove(dead)
            if known is not None:
                known["state"] = "dead"
        return claimed


def _allows(policy: Mapping[str, Any], failures: int, record: Fields) -> bool:
    if failures >= policy["max"] or record.get("retry") == "never":
        return False
    names = {record.get("error_type"), *record.get("error_types", ())}
    if names & set(policy["not_on"]):
        return False
    if "result" in names and "result" not in policy["on"]:
        return False
    if not policy["on"] and not policy["exit_codes"]:
        return True
    return bool(names & set(policy["on"])) or record.get("exit_code") in policy["exit_codes"]


def _can_meet(life: Life, wanted: Mapping[str, int]) -> bool:
    return all(life.totals.get(name, 0) >= amount for name, amount in wanted.items())


def _drop(some: list[str], task: str) -> None:
    """Remove the first, as LREM does with a count of 1."""
    if task in some:
        some.remove(task)
