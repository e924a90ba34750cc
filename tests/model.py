"""The queue in pure Python, as docs/protocol.md describes it. test_model.py holds a real Redis against it at every step.

What a transaction does is said here in other words than in blueque.protocol: a task is a few groups of fields, and what
comes or goes does so by the group. A refusal is raised before anything has changed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from blueque import keys
from blueque.errors import NodeTaken, NotCancellable, NotFailed, NotFinished, NotOwner, NotRegistered, WrongQueue

Fields = dict[str, Any]

POLICY = {"max": 3, "backoff": 10.0, "factor": 2.0, "on": (), "exit_codes": (), "interruptions": 3}


class Refusal(Exception):
    """What blueque would raise, by its class."""

    def __init__(self, kind: type[Exception]) -> None:
        super().__init__(kind.__name__)
        self.kind = kind


@dataclass
class Task:
    """A hash. A stump, as 1.0.0 leaves them, has no queue; a task that 1.0.0 has made has no attempt before its first."""

    queue: str | None
    status: str | None
    updated: float
    attempt: int | None = None
    policy: Mapping[str, Any] | None = None            # its own, as the field `retry` has it
    given: Fields = field(default_factory=dict)        # by whoever made it; never changes
    owner: Fields = field(default_factory=dict)        # whose the newest attempt is
    outcome: Fields = field(default_factory=dict)      # how the last one ended
    past: Fields = field(default_factory=dict)         # what is to be remembered of those before, and of people

    @property
    def fields(self) -> dict[str, str]:
        news = {"queue": self.queue, "status": self.status, "updated": self.updated, "attempt": self.attempt}
        everything = {**news, **self.given, **self.owner, **self.outcome, **self.past}
        return {name: str(value) for name, value in everything.items() if value is not None}

    @property
    def is_lost(self) -> bool:
        return self.status == "failed" and self.outcome.get("error_type") in ("lost", "poison")

    def policy_or(self, default: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        return self.policy if "retry" in self.given else default


@dataclass
class Life:
    """One life of a listener, and what it believes of itself."""

    queue: str
    node: str
    instance: str
    beat: int = 0
    is_unsure: bool = True
    has_marker: bool = False


class Model:
    """Everything in Redis."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.lines: dict[str, list[str]] = defaultdict(list)              # by queue; the next one first
        self.scheduled: dict[str, dict[str, float]] = defaultdict(dict)
        self.ended: dict[tuple[str, str], list[str]] = defaultdict(list)  # by queue and status; newest first
        self.held: dict[tuple[str, str], list[str]] = defaultdict(list)   # by queue and node; newest first
        self.started: dict[str, set[str]] = defaultdict(set)
        self.index: dict[str, dict[str, float]] = defaultdict(dict)
        self.queues: set[str] = set()
        self.members: dict[str, set[str]] = defaultdict(set)
        self.registrations: dict[tuple[str, str], Fields] = {}
        self.beats: dict[str, dict[str, float]] = defaultdict(dict)
        self.awake: set[str] = set()                                      # queues whose wake-up marker is set
        self.orders: set[tuple[str, str]] = set()
        self.consents: Counter[str] = Counter()        # how often somebody who may has let a task be started once more

    # What it all looks like from outside

    def everything(self) -> dict[str, Any]:
        """Return every key of Redis with its whole value."""
        found: dict[str, Any] = {keys.task(task): its.fields for task, its in self.tasks.items()}
        found[keys.QUEUES] = {queue: float(len(self.members[queue])) for queue in self.queues}
        for queue in self.queues:
            found[keys.pending(queue)] = self.lines[queue][::-1]
            found[keys.scheduled(queue)] = self.scheduled[queue]
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
        for pair, known in self.registrations.items():
            found[keys.listener(*pair)] = {name: str(value) for name, value in known.items()}
        for pair in self.orders:
            found[keys.orders(*pair)] = {"0": 0.0}
        return {key: value for key, value in found.items() if value}

    def lives(self, queue: str, node: str) -> bool:
        known = self.registrations.get((queue, node))
        return node in self.members[queue] if known is None else known["state"] == "alive"

    def hints(self) -> Counter[str]:
        """Return how many entries promise each task to a listener, now or later, or say that one has it."""
        places = (*self.lines.values(), *self.held.values(), *self.scheduled.values())
        return Counter(task for some in places for task in some)

    def blemishes(self) -> Counter[tuple[str, str]]:
        """Return what an audit must find: its code, and the task or else the node.

        Of a task with several hints nothing is said: which of them is one too many is a matter of taste.
        """
        hints = self.hints()
        found = Counter(("stump", task) for task, its in self.tasks.items() if its.queue is None)
        for (queue, node), known in self.registrations.items():
            if known["state"] == "dead" and not self.held[queue, node]:
                found["dead_listener", node] += 1
        places: list[tuple[str, Any, Any]] = [(queue, "pending", line) for queue, line in self.lines.items()]
        places += [(queue, "scheduled", some) for queue, some in self.scheduled.items()]
        for _, status, some in places:
            found.update((code, task) for task in some if hints[task] == 1 and (code := self._stale(task, status)))
        for (queue, node), held in self.held.items():
            found.update((code, task) for task in held if hints[task] == 1 and (code := self._held(queue, node, task)))
        return found

    def _stale(self, task: str, *statuses: str) -> str | None:
        """Return what is wrong with a hint of a task that should have one of these statuses."""
        its = self.tasks.get(task)
        if its is None:
            return "no_hash"
        # A stump is found as that, and nothing else is said of it.
        return "misplaced" if its.queue is not None and its.status not in statuses else None

    def _held(self, queue: str, node: str, task: str) -> str | None:
        its, lives = self.tasks.get(task), self.lives(queue, node)
        if its is None or its.queue is None or its.status not in ("pending", "reserved", "started"):
            return self._stale(task)
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

    def enqueue(self, task: str, queue: str, given: Fields, policy: Any, now: float) -> bool:
        if task in self.tasks:
            return False
        self._make(queue, task, "pending", given, policy, now)
        self._put_in_line(queue, task)
        return True

    def schedule(self, task: str, queue: str, given: Fields, policy: Any, eta: float, now: float) -> bool:
        if task in self.tasks:
            return False
        self._make(queue, task, "scheduled", given, policy, now)
        self.tasks[task].past["eta"] = eta
        self.scheduled[queue][task] = eta
        return True

    def _make(self, queue: str, task: str, status: str, given: Fields, policy: Any, now: float) -> None:
        self.tasks[task] = Task(queue, status, now, 0, policy, {**given, "created": now})
        self.consents[task] = 1
        self.queues.add(queue)
        self.index[queue][task] = now

    def _put_in_line(self, queue: str, task: str, is_next: bool = False) -> None:
        self.lines[queue].insert(0 if is_next else len(self.lines[queue]), task)
        self.awake.add(queue)

    def enqueue_due(self, queue: str, now: float, limit: int) -> list[str] | None:
        waiting = self.scheduled[queue]
        due = sorted((task for task in waiting if waiting[task] <= now), key=lambda task: (waiting[task], task))[:limit]
        moved = [task for task in due if task in self.tasks and self.tasks[task].status == "scheduled"]
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

    def delete(self, queue: str, task: str) -> bool:
        its = self.tasks.get(task)
        if its is None:
            return False
        if its.queue not in (None, queue):
            raise Refusal(WrongQueue)
        if its.status not in ("complete", "failed", "cancelled"):
            raise Refusal(NotFinished)
        _drop(self.ended[queue, its.status], task)
        self.index[queue].pop(task, None)
        del self.tasks[task]
        return True

    def cancel(self, queue: str, task: str, by: str, reason: str | None, now: float) -> str:
        its = self.tasks.get(task)
        if its is None or its.status is None:
            raise Refusal(NotCancellable)
        if its.queue != queue:
            raise Refusal(WrongQueue)
        if its.status == "cancelled":
            return "cancelled"
        is_with_legacy = its.status in ("reserved", "started") and "token" not in its.owner
        is_claimed = its.status == "reserved" and "reclaimed_node" in its.owner
        if its.status in ("complete", "failed") or is_with_legacy or is_claimed:
            raise Refusal(NotCancellable)
        who = {"cancelled_by": by, **({"cancel_reason": reason} if reason else {})}
        if its.status == "started":
            if "cancel" not in its.past:
                its.past |= {"cancel": now, **who}
                its.updated = now
                self.orders.add((queue, its.owner["node"]))
            return "cancelling"
        if its.status == "scheduled":
            self.scheduled[queue].pop(task, None)
        if its.status == "pending":
            self.lines[queue] = [other for other in self.lines[queue] if other != task]
        if its.status == "reserved":
            _drop(self.held[queue, its.owner["node"]], task)
        its.owner = {}
        its.past |= who
        self._record_cancelled(queue, task, {}, now)
        return "cancelled"

    def _record_cancelled(self, queue: str, task: str, facts: Fields, now: float) -> None:
        its = self._change(task, "cancelled", now)
        its.outcome = {**facts, "finished": now}
        its.past.pop("cancel", None)
        self.ended[queue, "cancelled"].insert(0, task)

    def requeue(self, queue: str, task: str, mark: str, now: float) -> None:
        its = self.tasks.get(task)
        if its is not None and its.past.get("requeued") == mark:
            return
        if its is None or its.status not in ("failed", "cancelled"):
            raise Refusal(NotFailed)
        if its.queue != queue:
            raise Refusal(WrongQueue)
        _drop(self.ended[queue, its.status], task)
        kept = {name: its.past[name] for name in ("eta", "finished_by", "last_files") if name in its.past}
        its.past = {**kept, "requeued": mark, **self._last_files(its)}
        self.consents[task] += 1
        self._back_in_line(queue, task, {}, now)

    def _back_in_line(self, queue: str, task: str, facts: Fields, now: float, is_next: bool = False) -> None:
        its = self._change(task, "pending", now)
        its.owner, its.outcome = {}, dict(facts)
        self._put_in_line(queue, task, is_next)

    @staticmethod
    def _last_files(its: Task) -> Fields:
        return {"last_files": its.owner["files"]} if "files" in its.owner else {}

    def failed(
        self, queue: str, error_type: str | None, older_than: float | None, limit: int | None, now: float
    ) -> list[str]:
        """Return the failed tasks that requeue_failed is to take."""
        tasks = [(task, self.tasks[task]) for task in reversed(self.ended[queue, "failed"])]
        found = [
            task for task, its in tasks
            if error_type in (None, its.outcome.get("error_type"))
            and its.outcome.get("finished", its.updated) <= now - (older_than or 0)
        ]
        return found[:limit]

    # A listener comes, lives and goes

    def register(self, queue: str, node: str, instance: str, facts: Fields, now: float, dead: str | None) -> None:
        known = self.registrations.get((queue, node))
        if known is not None and known["instance"] == instance:
            return
        if known is not None and known["state"] == "alive" and known["instance"] != dead:
            raise Refusal(NodeTaken)
        self.registrations[queue, node] = {"instance": instance, "state": "alive", "beat": 0, "beat_at": now, **facts}
        self.beats[queue][node] = now
        self.members[queue].add(node)
        self.queues.add(queue)

    def _require(self, queue: str, node: str, instance: str) -> Fields:
        known = self.registrations.get((queue, node), {})
        if (known.get("instance"), known.get("state")) != (instance, "alive"):
            raise Refusal(NotRegistered)
        return known

    def beat(self, life: Life, now: float, task: str | None = None) -> list[str | None]:
        """Return the standing: the order, then some fields of the task."""
        life.beat += 1
        known = self._require(life.queue, life.node, life.instance)
        known |= {"beat": life.beat, "beat_at": now}
        self.beats[life.queue][life.node] = now
        self.members[life.queue].add(life.node)
        fields = self.tasks[task].fields if task in self.tasks else {}
        names = ("status", "token", "node", "attempt", "cancel", "error_type")
        return [known.get("order"), *(fields.get(name) for name in names)]

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
        if known.get("order") != what:
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
        return life.has_marker or bool(self.lines[life.queue])

    # One attempt

    def take(self, life: Life, token: str | None, now: float) -> str | None:
        """Be the listener that looks for its next task; token: of the reservation, if it will get one."""
        if life.is_unsure:
            self.beat(life, now)
            self._pass_marker_on(life, True)
            for task in reversed(list(self.held[life.queue, life.node])):
                if self.reserve(life, task, token, now):
                    return task
        while True:
            life.is_unsure = True
            popped, left, _ = self.pop(life)
            self._pass_marker_on(life, left > 0)
            is_taken = popped is not None and self.reserve(life, popped, token, now)
            life.is_unsure = False
            if popped is None or is_taken:
                return popped

    def _pass_marker_on(self, life: Life, is_work_left: bool) -> None:
        if life.has_marker and is_work_left:
            self.awake.add(life.queue)
        life.has_marker = False

    def pop(self, life: Life) -> tuple[str | None, int, str | None]:
        self._require(life.queue, life.node, life.instance)
        line = self.lines[life.queue]
        popped = line.pop(0) if line else None
        if popped is not None:
            self.held[life.queue, life.node].insert(0, popped)
        return popped, len(line), None

    def reserve(self, life: Life, task: str, token: str | None, now: float) -> bool:
        self._require(life.queue, life.node, life.instance)
        its, held = self.tasks.get(task), self.held[life.queue, life.node]
        if its is not None and its.status == "reserved" and its.owner.get("token") == token is not None:
            return True
        if task not in held:
            return False
        if its is not None and its.status in ("reserved", "started") and its.owner["node"] == life.node:
            return False
        if its is None or its.status != "pending" or its.queue != life.queue:
            held.remove(task)
            return False
        self._change(task, "reserved", now)
        if its.attempt is None:
            self.index[life.queue][task] = its.given["created"]
        its.attempt = (its.attempt or 0) + 1
        its.owner |= {"node": life.node, "token": token}
        its.owner.pop("pid", None)
        return True

    def start(
        self, queue: str, task: str, token: str | None, node: str, pid: int, identity: Fields, now: float
    ) -> None:
        its = self.tasks.get(task)
        mine = {"token": token, "node": node, "pid": pid}
        if its is not None and its.status == "started" and {name: its.owner.get(name) for name in mine} == mine:
            return
        its = self._own(task, token, node, "reserved")
        self._change(task, "started", now)
        its.owner |= {"pid": pid, **identity, "started": now}
        self.started[queue].add(keys.started_member(node, pid, task))

    def _own(self, task: str, token: str | None, node: str, *statuses: str, or_lost: bool = False) -> Task:
        its = self.tasks.get(task)
        if its is None or its.owner.get("token") != token:
            raise Refusal(NotOwner)
        is_late = or_lost and its.is_lost and token is not None
        if not is_late and (its.status not in statuses or its.owner.get("node") != node):
            raise Refusal(NotOwner)
        return its

    def progress(self, task: str, token: str | None, node: str, text: str, now: float) -> None:
        its = self._own(task, token, node, "started")
        its.owner |= {"progress": text, "progress_at": now}
        its.updated = now

    def finish(self, queue: str, task: str, token: str | None, node: str, status: str, facts: Fields, now: float) -> None:
        """complete and fail: status is what it becomes, facts what is told of the end."""
        if self._has_ended_as(task, token, status):
            return
        statuses = ("started",) if status == "complete" else ("started", "reserved")
        its = self._own(task, token, node, *statuses, or_lost=True)
        self._let_go(queue, task)
        its.outcome = {"finished": now, **facts}
        self._sign(its, token)
        self._change(task, status, now)
        self.ended[queue, status].insert(0, task)

    def _has_ended_as(self, task: str, token: str | None, *statuses: str) -> bool:
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
        _drop(self.held[queue, its.owner["node"]], task)
        self._leave_started(queue, task)

    def _leave_started(self, queue: str, task: str) -> None:
        owner = self.tasks[task].owner
        self.started[queue].discard(keys.started_member(owner["node"], owner.get("pid", ""), task))

    def retry(
        self, queue: str, task: str, token: str | None, node: str, eta: float | None, news: Fields, facts: Fields, now: float
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
        self.consents[task] += its.status == "started"  # its listener says that nothing has run, or may let it run again
        self._let_go(queue, task)
        self._sign(its, token)
        its.past |= self._last_files(its)
        if "cancel" in its.past:
            self._record_cancelled(queue, task, {}, now)
        else:
            self._back_in_line(queue, task, {}, now, is_next=True)
        return its.status or ""

    def confirm_cancel(self, queue: str, task: str, token: str | None, node: str, facts: Fields, now: float) -> None:
        if self._has_ended_as(task, token, "cancelled"):
            return
        its = self._own(task, token, node, "started", or_lost=True)
        self._let_go(queue, task)
        self._sign(its, token)
        self._record_cancelled(queue, task, facts, now)

    def report(
        self, queue: str, task: str, token: str | None, node: str, failures: int, record: Fields, default: Any, now: float
    ) -> None:
        """Decide by the policy what the end of an attempt means; failures: of the task, when it was reserved."""
        measured = {name: record[name] for name in ("memory_peak", "cpu_seconds", "leaked") if name in record}
        if record["status"] == "complete":
            facts = {name: record[name] for name in ("result", "result_encoding", "finished") if name in record}
            return self.finish(queue, task, token, node, "complete", facts | measured, now)
        its = self.tasks.get(task)
        wait = record.get("retry_after")
        if wait is None:
            policy = its.policy_or(default) if its is not None else None
            if policy is None or not _allows(policy, failures, record):
                reasons = ("error", "error_type", "traceback", "exit_code", "signal", "finished")
                facts = {name: record[name] for name in reasons if name in record}
                return self.finish(queue, task, token, node, "failed", facts | measured, now)
            wait = policy["backoff"] * policy["factor"] ** failures
            failures += 1
        news = {
            "failures": failures, "last_error": record["error"], "last_error_type": record.get("error_type", "error")
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

    def strike(self, queue: str, node: str) -> bool:
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
        self, queue: str, task: str, node: str, instance: str | None, now: float, dead_claimant: str | None = None
    ) -> str | None:
        held, its = self.held[queue, node], self.tasks.get(task)
        if task not in held or not self._is("dead", queue, node, instance):
            return None
        status = its.status if its is not None and its.owner.get("node") == node else None
        if its is not None and status in ("reserved", "started"):
            is_claimed = its.owner.get("reclaimed_node") not in (None, dead_claimant)
            if is_claimed and (status == "reserved" or "pid_start" not in its.owner):
                return "claimed"                       # and, if it is started, it was the claimant that did so
            if status == "started":
                return "started"
        held.remove(task)
        if its is None or its.queue != queue or not (its.status == "pending" or status == "reserved"):
            return "dropped"
        self._back_in_line(queue, task, its.outcome, now, is_next=True)
        return "released"

    def lose(
        self, queue: str, task: str, token: str | None, node: str, instance: str | None, error: str, default: Any,
        facts: Fields, now: float, is_ours: bool = False,
    ) -> str | None:
        its = self.tasks.get(task)
        if its is None or its.status != "started" or (its.owner.get("token"), its.owner["node"]) != (token, node):
            return None
        if not self._is("alive" if is_ours else "dead", queue, node, instance):
            return None
        self._let_go(queue, task)
        policy, count = its.policy_or(default), its.past.get("interruptions", 0) + 1
        if "cancel" in its.past:
            self._record_cancelled(queue, task, facts, now)
        elif policy is not None and count <= policy["interruptions"]:
            its.past |= {"interruptions": count, "last_error": error, "last_error_type": "lost", **self._last_files(its)}
            self.consents[task] += 1
            self._back_in_line(queue, task, facts, now, is_next=True)
        else:
            its.past["interruptions"] = count
            its.outcome = {"error": error, "error_type": "lost" if policy is None else "poison", **facts}
            self._change(task, "failed", now)
            self.ended[queue, "failed"].insert(0, task)
        return its.status

    def adopt(self, life: Life, task: str, token: str | None, old: str, now: float) -> Fields | None:
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
        self, life: Life, task: str, token: str, pid: int, identity: Fields, started: float, now: float
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
        self._hold_started(life, task, {"pid": pid, **identity, "started": started}, now)
        return its.fields

    def reassert(self, life: Life, task: str, mine: Task, pid: int, now: float) -> Fields | None:
        """mine: the task as the listener knows it."""
        self._require(life.queue, life.node, life.instance)
        its, token, held = self.tasks.get(task), mine.owner["token"], self.held[life.queue, life.node]
        if its is not None:
            is_mine = its.owner.get("token") == token
            if is_mine and its.status == "started":
                return its.fields
            is_older = (its.attempt or 0) < (mine.attempt or 0) and its.status in ("pending", "scheduled")
            if not is_older and not (is_mine and its.status == "reserved"):
                return None
        else:
            its = self.tasks[task] = Task(life.queue, None, now)
        self.lines[life.queue] = [other for other in self.lines[life.queue] if other != task]
        self.scheduled[life.queue].pop(task, None)
        its.attempt, its.policy = mine.attempt, mine.policy
        for name in ("given", "owner", "outcome", "past"):
            getattr(its, name).update(deepcopy(getattr(mine, name)))
        before = list(held)
        self._hold_started(life, task, {"pid": pid}, now)
        if task in before:
            held[:] = before
        self.index[life.queue][task] = its.given["created"]
        return its.fields

    def forget(self, queue: str, node: str, instance: str | None) -> bool:
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
            task for task in held
            if "reclaimed_node" not in self.tasks[task].owner
            and self.tasks[task].status not in ("complete", "failed", "cancelled")
        ]
        claimed = next((task for task in open_tasks if self.tasks[task].status in ("reserved", "started")), None)
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
    if not policy["on"] and not policy["exit_codes"]:
        return True
    names = {record.get("error_type"), *record.get("error_types", ())}
    return bool(names & set(policy["on"])) or record.get("exit_code") in policy["exit_codes"]


def _drop(some: list[str], task: str) -> None:
    """Remove the first, as LREM does with a count of 1."""
    if task in some:
        some.remove(task)
