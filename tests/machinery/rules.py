"""The rules of the model test: what producers, people, listeners, their undertakers and 1.0.0 can
do, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import model
from hypothesis.stateful import initialize, precondition, rule
from legacy_logic import LegacyQueue
from machine import NODES, POLICIES, TICK, Actor, Attempt, Machine, clock, retry_of, whole
from transactions import protocol

from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.encoding import decode
from blueque.model.group_terms import Terms
from blueque.model.new import spawned_id
from blueque.model.new_task import NewTask
from blueque.model.states import Entry, Place
from blueque.model.task import Task
from blueque.protocol.ends import End
from blueque.protocol.pruning import FinishedTask
from blueque.protocol.recover import Loss
from blueque.queries.tasks import load
from blueque.system import process

QUEUES = st.sampled_from(["video", "video", "video", "audio"])
PARAMETERS = st.sampled_from(
    [("in.mov", None), ('{"a":[1,null]}', "json"), ("", None), ("7", "json")]
)
RETRIES = st.sampled_from([None, None, False, *POLICIES, "later"])
LIMITS = st.sampled_from(
    [
        {},
        {},
        {"time_limit": 60, "lead": 5, "tags": "customer:17 ü"},
        {"stall_limit": 2.5, "memory_limit": 1 << 20, "grace": 3, "title": "Encode in.mov"},
    ]
)
TAGGED = {"tags": "customer:17"}
# Priority, and what is needed: as `enqueue` takes it, and as it is written.
PLAIN: dict[str, Any] = {}
WISHES: list[tuple[dict[str, Any], int, str]] = [
    (PLAIN, 0, ""),
    ({"priority": 7}, 7, ""),
    ({"priority": -3}, -3, ""),
    ({"lock": "one"}, 0, "lock:one=1"),
    ({"lock": "one", "priority": 7}, 7, "lock:one=1"),
    ({"lock": ("two", 2)}, 0, "lock:two=2"),
    ({"resources": {"gpu": 1}, "priority": 7}, 7, "gpu=1"),
    ({"resources": {"gpu": 2}, "lock": ("two", 2), "priority": 7}, 7, "gpu=2,lock:two=2"),
]
WISH = st.sampled_from([*WISHES[:1] * 4, *WISHES])
NEEDY = st.sampled_from([*WISHES[:1] * 3, WISHES[3], WISHES[3], WISHES[5], WISHES[6], WISHES[7]])
SELDOM = st.sampled_from([False, False, False, True])
ENDS = st.sampled_from(
    ["", "complete", "complete", "fail", "cancel", "lose", "late", "late", "forget"]
)
GROUPS = st.sampled_from(["night", "day 1", "late"])
THEN = st.sampled_from(
    ["", "", "close", "cancel", "again", "again", "drop", "note", "reopen", "reopen", "collect"]
)
KEEP = 10**7  # seconds for which the record of a group stays: it must not expire here
KINDS = st.lists(st.sampled_from(["ok", "ok", "any", "not_ok"]), min_size=1, max_size=2)
# What an attempt can say that nobody watches any more.
LATE = (
    "start",
    "progress",
    "complete",
    "complete",
    "fail",
    "report success",
    "report failure",
    "release",
    "confirm_cancel",
    "restore",
    "pop",
)
FAILURES = st.sampled_from(
    [
        {"error_type": "ValueError", "traceback": "Traceback"},
        {
            "error_type": "mod.Odd",
            "error_types": ["mod.Odd", "ValueError", "Exception"],
            "memory_peak": 4096,
        },
        {"error_type": "exit", "exit_code": 75, "cpu_seconds": 0.5},
        {"error_type": "exit", "exit_code": 1},
        {"error_type": "signal", "signal": "SIGKILL", "leaked": 2},
        {"error_type": "Fail", "retry": "never"},
        {"error_type": "RetryLater", "retry_after": 0},
        {"error_type": "RetryLater", "retry_after": 7},
        {},
    ]
)


class Producers(Machine):
    """They make tasks; time passes, and schedulers put in line what is due."""

    @initialize(
        retries=st.lists(RETRIES, min_size=5, max_size=5),
        stages=st.lists(st.sampled_from(["", "pop", "reserve", "start"]), min_size=5, max_size=5),
        deaths=st.lists(st.booleans(), min_size=5, max_size=5),
        wishes=st.lists(NEEDY, min_size=5, max_size=5),
        most=st.sampled_from([None, None, 2]),
    )
    def begin(
        self,
        retries: list[Any],
        stages: list[str],
        deaths: list[bool],
        wishes: list[Any],
        most: int | None,
    ) -> None:
        """Have something to work on from the start, and something to see to."""
        for queue, nodes in NODES.items():
            for place, retry in enumerate(retries if queue == "video" else retries[:3]):
                delay = None if place else 20
                self.enqueue(queue, ("in.mov", None), retry, TAGGED, delay, None, wishes[place])
            for node in nodes:
                self.register(queue, node, None)
        protocol.set_settings(
            self.person, "video", {"max_running": None if most is None else str(most)}, 1.0
        )
        self.model.set_max_running("video", most)
        for actor, stage, is_dead in zip(self.actors, stages, deaths, strict=True):
            self.take_as_far_as(actor, stage)
            actor.is_up = not is_dead

    @rule(
        queue=QUEUES,
        parameters=PARAMETERS,
        retry=RETRIES,
        limits=LIMITS,
        delay=st.sampled_from([None, None, "1.0.0", -5, 0, 3, 20]),
        start=st.sampled_from([*[None] * 6, (1, False), (9, False), (2, True)]),
        wish=WISH,
    )
    def enqueue(
        self,
        queue: str,
        parameters: tuple[str, str | None],
        retry: Any,
        limits: Any,
        delay: Any,
        start: tuple[int, bool] | None,
        wish: Any,
    ) -> None:
        """Make a task, now, for later, or as 1.0.0 does. start: within how many seconds, and whether
        it is moved then.
        """
        clock.now += TICK
        if delay == "1.0.0":
            self._legacy_enqueue(queue)
            return
        text, encoding = parameters
        value, policy = decode(text, encoding), retry_of(retry) if retry else retry
        given = {
            "parameters": text,
            "producer": process.producer(),
            **({"parameters_encoding": encoding} if encoding else {}),
            **limits,
        }
        if policy is not None:
            given["retry"] = policy.to_text() if policy else "null"
        if start is not None:
            given["start_before"] = clock.now + max(delay or 0, 0) + start[0]
            given |= {"expired_to": _other(queue)} if start[1] else {}
        in_time = {name: given[name] for name in ("start_before", "expired_to") if name in given}
        its = (queue, given, whole(retry or None))
        wanted, *wishes = wish
        limits = {**limits, "tags": limits.get("tags", "").split()}
        wanted = {**wanted, **in_time}
        if delay is None:
            task = self.queue(queue).enqueue(value, retry=policy, **limits, **wanted)
        else:
            task = self.queue(queue).schedule(
                value, clock.now + delay, retry=policy, **limits, **wanted
            )
        if delay is None or delay < 0:
            assert self.model.enqueue(task, *its, clock.now, *wishes)
        else:
            assert self.model.schedule(task, *its, clock.now + delay, clock.now, *wishes)
        self.note("enqueue" if delay is None else "schedule")
        self._remember(task)

    def _remember(self, task: str) -> None:
        """Note that there is a new task; its id may be an old one."""
        self.starts.pop(task, None)
        if task not in self.known:
            self.known.append(task)

    @rule(data=st.data(), queue=QUEUES, eta=st.sampled_from([None, 2000.0]), is_gone=st.booleans())
    def make_again(self, data: st.DataObject, queue: str, eta: float | None, is_gone: bool) -> None:
        """Try once more with an id that is known already; is_gone: its task has been deleted since."""
        task = self.pick(data, (is_gone and self._gone()) or self.known)
        its = (queue, {"parameters": "again"}, None)
        if eta is None:
            got = self.both(
                "enqueue again",
                lambda: protocol.enqueue(self.person, queue, task, "again", clock.now),
                lambda: self.model.enqueue(task, *its, clock.now),
            )
        else:
            got = self.both(
                "schedule again",
                lambda: protocol.schedule(self.person, queue, task, "again", eta, clock.now),
                lambda: self.model.schedule(task, *its, eta, clock.now),
            )
        if got.value:
            self._remember(task)

    @rule(
        data=st.data(), seconds=st.sampled_from([0.0, 10.0, 60.0]), limit=st.sampled_from([None, 1])
    )
    def pass_time(self, data: st.DataObject, seconds: float, limit: int | None) -> None:
        waiting = [queue for queue in NODES if self.model.scheduled[queue]]
        self.enqueue_due(self.pick(data, waiting or list(NODES)), seconds, limit)

    def enqueue_due(self, queue: str, seconds: float, limit: int | None) -> None:
        """Let time pass, and be a scheduler."""
        clock.now += seconds
        if limit is None:
            self.both(
                "enqueue_due",
                self.queue(queue).enqueue_due_tasks,
                lambda: self.model.enqueue_due(queue, clock.now, 100) or [],
            )
        else:
            self.both(
                "enqueue_due one",
                lambda: protocol.enqueue_due(self.person, queue, clock.now, limit),
                lambda: self.model.enqueue_due(queue, clock.now, limit),
            )

    def _legacy_enqueue(self, queue: str) -> None:
        task = clock.random_id()
        LegacyQueue(self.redis, queue).enqueue(task, "old", clock.now)
        its = model.Task(
            queue, "pending", clock.now, given={"parameters": "old", "created": clock.now}
        )
        self.model.tasks[task], self.model.consents[task] = its, 1
        self.model.lines[queue, "0"].append(task)
        self._remember(task)
        self.note("1.0.0 enqueues")

    def _gone(self) -> list[str]:
        return [task for task in self.known if task not in self.model.tasks]

    @rule(
        data=st.data(),
        kind=st.sampled_from(["last", "next", "next", "stump"]),
        then=st.sampled_from(["", "pop", "die", "start"]),
    )
    def leave_hint(self, data: st.DataObject, kind: str, then: str) -> None:
        """Be a producer of 1.0.0 that sends an id twice, or did so long ago; or writes to a task
        that is deleted.
        """
        task = self.pick(data, (kind == "stump" and self._gone()) or self.known)
        its, queue = self.model.tasks.get(task), self.queue_of(task)
        self.note(f"hint at {its.status if its is not None else 'nothing'}")
        if kind == "last":
            self.redis.read(("LPUSH", keys.pending(queue), task))
            self.model.lines[queue, "0"].append(task)
        else:
            self.redis.read(("RPUSH", keys.pending(queue), task))
            self.model.lines[queue, "0"].insert(0, task)
        if kind == "stump" and its is None:
            self.redis.read(
                ("HSET", keys.task(task), "status", "complete", "result", "x", "updated", clock.now)
            )
            self.model.tasks[task] = model.Task(
                None, "complete", clock.now, outcome={"result": "x"}
            )
            self.note("stump")
        if then:
            actor = self.idle_one(queue)
            self.take_as_far_as(actor, "pop" if then == "die" else then)
            actor.is_up = then != "die"

    @rule(data=st.data(), seconds=st.sampled_from([0.0, 10.0]), is_blocked=SELDOM)
    def leave_hint_for_later(self, data: st.DataObject, seconds: float, is_blocked: bool) -> None:
        """Be whatever leaves an id among the scheduled tasks, or among those that wait for others."""
        task = self.pick(data, self.known)
        queue = self.queue_of(task)
        key, place = keys.scheduled(queue), self.model.scheduled[queue]
        if is_blocked:
            key, place = keys.blocked(queue), self.model.blocked[queue]
        if task not in place:
            self.redis.read(("ZADD", key, clock.now + 5, task))
            place[task] = clock.now + 5
        self.enqueue_due(queue, seconds, None)


class People(Machine):
    """They want things: cancel, requeue, delete, order."""

    @rule(data=st.data(), reason=st.sampled_from([None, "too late"]), is_wrong_queue=SELDOM)
    def cancel(self, data: st.DataObject, reason: str | None, is_wrong_queue: bool) -> None:
        statuses = sorted({its.status or "" for its in self.model.tasks.values()})
        status = self.pick(data, statuses) if statuses else ""
        task = self.pick(
            data,
            [task for task, its in self.model.tasks.items() if its.status == status] or self.known,
        )
        queue = self.queue_of(task)
        if is_wrong_queue:
            queue = _other(queue)
        self.both(
            f"cancel {status}",
            lambda: protocol.cancel(self.person, queue, task, "ann", reason, clock.now),
            lambda: self.model.cancel(queue, task, "ann", reason, clock.now),
        )

    @precondition(lambda self: self.known)
    @rule(data=st.data(), is_any=SELDOM, is_wrong_queue=SELDOM)
    def expire(self, data: st.DataObject, is_any: bool, is_wrong_queue: bool) -> None:
        task = self.pick(data, (not is_any and [*self.model.expiring]) or self.known)
        queue = self.queue_of(task)
        if is_wrong_queue:
            queue = _other(queue)
        self.both(
            "expire",
            lambda: protocol.expire(self.person, queue, task, clock.now),
            lambda: self.model.expire(queue, task, clock.now),
        )

    @precondition(lambda self: self.has("started"))
    @rule(data=st.data(), reason=st.sampled_from([None, "reboot"]), is_any=SELDOM)
    def interrupt(self, data: st.DataObject, reason: str | None, is_any: bool) -> None:
        task = self.pick(data, self.known if is_any else self.has("started"))
        queue = self.queue_of(task)
        self.both(
            "interrupt",
            lambda: protocol.interrupt(self.person, queue, task, "ann", reason, clock.now),
            lambda: self.model.interrupt(queue, task, "ann", reason, clock.now),
        )

    @precondition(lambda self: self.has("failed", "cancelled", "complete"))
    @rule(data=st.data(), is_any=SELDOM, is_answer_lost=st.booleans())
    def requeue(self, data: st.DataObject, is_any: bool, is_answer_lost: bool) -> None:
        task = self.pick(data, (not is_any and self.has("failed", "cancelled")) or self.known)
        queue = self.queue_of(task)
        got = self.both(
            "requeue",
            lambda: self.queue(queue).requeue(task),
            lambda: self.model.requeue(queue, task, self._mark(task), clock.now),
        )
        if is_answer_lost and got.raised is None:
            mark = self.model.tasks[task].past["requeued"]
            self.both(
                "requeue again",
                lambda: protocol.requeue(self.person, queue, task, mark, clock.now),
                lambda: self.model.requeue(queue, task, mark, clock.now),
            )

    def _mark(self, task: str) -> str:
        """Return the mark that a requeue has just made, which is random; or another, if it has made
        none.
        """
        (mark,) = self.redis.read(("HGET", keys.task(task), "requeued"))
        its = self.model.tasks.get(task)
        return "none" if its is None or its.past.get("requeued") == mark else mark

    @precondition(lambda self: self.has("failed"))
    @rule(
        data=st.data(),
        kind=st.sampled_from([None, None, "ValueError", "lost"]),
        age=st.sampled_from([None, None, 1.0]),
        limit=st.sampled_from([None, 1]),
    )
    def requeue_failed(
        self, data: st.DataObject, kind: str | None, age: float | None, limit: int | None
    ) -> None:
        queue = self.queue_of(self.pick(data, self.has("failed")))

        def foresee() -> list[str]:
            tasks = self.model.failed(queue, kind, age, limit, clock.now)
            for task in tasks:
                self.model.requeue(queue, task, self._mark(task), clock.now)
            return tasks

        self.both(
            "requeue_failed", lambda: self.queue(queue).requeue_failed(kind, age, limit), foresee
        )

    @precondition(lambda self: self.has("complete", "failed", "cancelled"))
    @rule(data=st.data(), is_any=SELDOM, is_forced=SELDOM)
    def delete(self, data: st.DataObject, is_any: bool, is_forced: bool) -> None:
        task = self.pick(
            data, self.known if is_any else self.has("complete", "failed", "cancelled")
        )
        snapshot, queue = load(self.redis, task), self.queue_of(task)

        is_ended = snapshot.queue is not None and snapshot.status in ("complete", "failed")
        is_thorough = is_ended and not is_forced

        def act() -> bool:
            if is_thorough:
                self.queue(queue).delete_task(snapshot)
                return True
            return protocol.delete(self.person, queue, task, is_forced)

        def foretell() -> bool:
            if is_thorough:
                return self.model.delete_thoroughly(queue, task, clock.now)
            return self.model.delete(queue, task, is_forced)

        self.both("delete", act, foretell)

    @rule(
        data=st.data(),
        queue=QUEUES,
        status=st.sampled_from(["complete", "failed", "cancelled", "", "", ""]),
        floor=st.sampled_from([0, 0, 2]),
        is_old=SELDOM,
    )
    def delete_many(
        self, data: st.DataObject, queue: str, status: str, floor: int, is_old: bool
    ) -> None:
        """Delete tasks that have ended like this, or that wait; is_old: what was seen of one."""
        if not status:
            waiting = [task for task in self.has("blocked") if self.queue_of(task) == queue]
            tasks = sorted({self.pick(data, waiting or self.known), self.pick(data, self.known)})
            self.both(
                "purge",
                lambda: protocol.purge(self.person, queue, tasks),
                lambda: self.model.purge(queue, tasks),
            )
            return
        tasks = self.has(status)[:2]
        seen = [(task, self.model.tasks[task].ended_at - is_old) for task in tasks]
        if seen:
            self.both(
                "prune",
                lambda: protocol.prune(
                    self.person, queue, status, [FinishedTask(task, at) for task, at in seen], floor
                ),
                lambda: self.model.prune(queue, status, seen, floor),
            )

    @rule(data=st.data(), queue=QUEUES)
    def order(self, data: st.DataObject, queue: str) -> None:
        node = self.pick(data, NODES[queue])
        self.both(
            "order",
            lambda: protocol.order(self.person, queue, node, "drain", "ann"),
            lambda: self.model.order(queue, node, "drain", "ann"),
        )

    # What waits, and what may run

    @rule(
        data=st.data(),
        how=st.sampled_from(["set_priority", "put_first", "move", "place"]),
        priority=st.sampled_from([0, 7, 7, -3]),
        is_any=SELDOM,
        is_wrong_queue=SELDOM,
        is_answer_lost=SELDOM,
    )
    def wait_otherwise(
        self,
        data: st.DataObject,
        how: str,
        priority: int,
        is_any: bool,
        is_wrong_queue: bool,
        is_answer_lost: bool,
    ) -> None:
        """Have a task that waits, or any task, wait at another place."""
        waiting = [*self.has("scheduled") * 2, *self.has("pending", "blocked")]
        if how in ("put_first", "place"):
            waiting = self.has("pending") or waiting
        task = self.pick(data, (not is_any and waiting) or self.known)
        queue, its = self.queue_of(task), self.model.tasks.get(task)
        if is_wrong_queue:
            queue = _other(queue)
        before = (its.queue, its.line, its.status) if its is not None else None
        ways = {
            "set_priority": (
                lambda: self.queue(queue).set_priority(task, priority),
                lambda: self.model.place(queue, task, clock.now, priority=priority),
            ),
            "put_first": (
                lambda: self.queue(queue).put_first(task),
                lambda: self.model.place(queue, task, clock.now, is_first=True),
            ),
            "move": (
                lambda: self.queue(queue).move(task, _other(queue)),
                lambda: self.model.place(queue, task, clock.now, to=_other(queue)),
            ),
            "place": (
                lambda: protocol.place(
                    self.person,
                    queue,
                    task,
                    clock.now,
                    to=_other(queue),
                    priority=priority,
                    is_first=True,
                ),
                lambda: self.model.place(queue, task, clock.now, _other(queue), priority, True),
            ),
        }
        for _ in range(1 + is_answer_lost):
            self.both(how, *ways[how])
        if its is not None and before != (its.queue, its.line, its.status):
            self.note(f"{how} of one that is {its.status}")

    @rule(
        data=st.data(), queue=QUEUES, reason=st.sampled_from([None, "repairs"]), is_to_stay=SELDOM
    )
    def pause(self, data: st.DataObject, queue: str, reason: str | None, is_to_stay: bool) -> None:
        """Pause a queue, have somebody look for work, and resume it; is_to_stay: not yet."""
        self.both(
            "pause",
            lambda: self.queue(queue).pause("ann", reason),
            lambda: self.model.pause(queue, "ann", reason, clock.now),
        )
        idle = [actor for actor in self.idle() if actor.queue == queue]
        if idle:
            self.take(self.pick(data, idle))
        if not is_to_stay:
            self.resume(queue)

    def resume(self, queue: str) -> None:
        self.both("resume", self.queue(queue).resume, lambda: self.model.resume(queue))

    @rule(queue=QUEUES, most=st.sampled_from([None, None, 1, 2]))
    def limit(self, queue: str, most: int | None) -> None:
        self.both(
            "set_max_running",
            lambda: self.queue(queue).set_settings({"max_running": most}),
            lambda: self.model.set_max_running(queue, most),
        )

    @rule(
        data=st.data(),
        queue=QUEUES,
        lock=st.sampled_from([None, "one", "one", "two"]),
        is_foreign=st.booleans(),
    )
    def align_task(
        self, data: st.DataObject, queue: str, lock: str | None, is_foreign: bool
    ) -> None:
        """Believe that a task should not hold what it holds; is_foreign: nor does it, it is just
        said to.
        """
        room = self.model.counted[queue] if lock is None else self.model.holders[lock]
        if is_foreign:
            task = self.pick(data, self.known)
            self.redis.read(
                ("SADD", keys.counted(queue) if lock is None else keys.lock(lock), task)
            )
            room.add(task)
            for actor in [actor for actor in self.idle() if actor.queue == queue][:1]:
                self.take(actor)
        task = self.pick(data, sorted(room) or self.known)
        place = Place("counted", queue) if lock is None else Place("lock", "", line=lock)
        self.both(
            "align_task",
            lambda: protocol.align_task(self.person, task, [Entry(place, task)], clock.now),
            lambda: self.model.align_task(queue, task, lock),
        )

    @rule(data=st.data(), queue=QUEUES)
    def align_line(self, data: st.DataObject, queue: str) -> None:
        name = self.pick(data, [*sorted(self.model.names[queue]), "0"])
        self.both(
            "align_line",
            lambda: protocol.align_line(self.person, queue, name),
            lambda: self.model.align_line(queue, name),
        )


def _other(queue: str) -> str:
    return "audio" if queue == "video" else "video"


class Listeners(Machine):
    """They come, work, tell how it ended, and go; some die on the way, and some wake up again."""

    @precondition(lambda self: len(self.actors) < 12)
    @rule(data=st.data(), queue=QUEUES, is_certain=st.booleans())
    def join(self, data: st.DataObject, queue: str, is_certain: bool) -> None:
        """is_certain: that whoever had the node before is dead."""
        taken = {actor.life.node for actor in self.up() if actor.queue == queue}
        node = self.pick(data, [node for node in NODES[queue] if node not in taken] or NODES[queue])
        self.register(
            queue, node, self.instance(queue, node) if is_certain and node not in taken else None
        )

    @precondition(lambda self: self._dispossessed())
    @rule(data=st.data())
    def register_again(self, data: st.DataObject) -> None:
        actor = self.pick(data, self._dispossessed())
        self.register(actor.queue, actor.life.node, None, actor)

    def _dispossessed(self) -> list[Actor]:
        """Return those who are up and not registered any more."""
        alive = {
            known["instance"]
            for known in self.model.registrations.values()
            if known["state"] == "alive"
        }
        return [actor for actor in self.up() if actor.life.instance not in alive]

    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        actor = self.pick(data, self.actors)
        task = actor.attempt.task if actor.attempt is not None else None
        self.both(
            "beat",
            lambda: list(actor.listener.beat(task)),
            lambda: self.model.beat(actor.life, clock.now, task),
        )

    @precondition(lambda self: self._with_marker())
    @rule(data=st.data(), is_to_take=st.booleans())
    def wait_for_work(self, data: st.DataObject, is_to_take: bool) -> None:
        self.wait(self.pick(data, self._with_marker()), is_to_take)

    def wait(self, actor: Actor, is_to_take: bool) -> None:
        self.both(
            "wait",
            lambda: actor.listener.idle(1.0, lambda connection: connection.wait(2.0)),
            lambda: self.model.idle(actor.life),
        )
        if is_to_take:
            self.take(actor)

    @precondition(lambda self: self._poor())
    @rule(data=st.data())
    def be_woken_in_vain(self, data: st.DataObject) -> None:
        """Have work for which the listener that is woken lacks what others may have."""
        actor = self.pick(data, self._poor())
        self.enqueue(actor.queue, ("in.mov", None), None, {}, None, None, WISHES[7])
        if actor in self._with_marker():
            self.wait(actor, True)

    def _poor(self) -> list[Actor]:
        """Return the idle listeners whose nodes have nothing to give, and which know what they
        hold.
        """
        return [
            actor for actor in self.idle() if not actor.life.totals and not actor.life.is_unsure
        ]

    def _with_marker(self) -> list[Actor]:
        """Return the idle listeners that would not wait long."""
        awake, orders = self.model.awake, self.model.orders
        return [
            actor
            for actor in self.idle()
            if actor.queue in awake or (actor.queue, actor.life.node) in orders
        ]

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), is_to_happen=SELDOM, has_popped=SELDOM)
    def leave(self, data: st.DataObject, is_to_happen: bool, has_popped: bool) -> None:
        """has_popped: and does not know it."""
        idle = self.idle()
        actor = self.pick(
            data, [one for one in idle if self.model.held[one.queue, one.life.node]] * 4 + idle
        )
        life = actor.life
        if has_popped:
            self.pop(actor)
        if is_to_happen or self.model.held[life.queue, life.node]:
            got = self.both(
                "deregister",
                lambda: protocol.deregister(actor.redis, life.queue, life.node, life.instance),
                lambda: self.model.deregister(life.queue, life.node, life.instance),
            )
            actor.is_up = not got.value

    @precondition(lambda self: self.idle())
    @rule(
        data=st.data(),
        stage=st.sampled_from(["pop", "reserve", "start", "end", "end"]),
        facts=FAILURES,
    )
    def take_one(self, data: st.DataObject, stage: str, facts: dict[str, Any]) -> None:
        """stage: how far it comes for now; one that has only popped has lost the answer, and does
        not know what it has.
        """
        actor = self.pick(data, self.idle())
        self.take_as_far_as(actor, stage)
        if actor.running is not None and stage == "end":
            self.tell_progress(actor.running)
            self.end(actor.running, "report failure", facts)

    @precondition(lambda self: self.watched())
    @rule(data=st.data())
    def start_one(self, data: st.DataObject) -> None:
        watched = self.watched()
        self.start(
            self.pick(data, [attempt for attempt in watched if not attempt.is_started] or watched)
        )

    @precondition(lambda self: self.running())
    @rule(
        data=st.data(),
        how=st.sampled_from(["complete", "fail", "report success", "progress"]),
        is_cancelled=SELDOM,
        is_answer_lost=SELDOM,
    )
    def finish(
        self, data: st.DataObject, how: str, is_cancelled: bool, is_answer_lost: bool
    ) -> None:
        attempt = self.pick(data, self.running())
        if is_cancelled:
            self.want_cancelled(attempt.task)
        if how == "progress":
            self.tell_progress(attempt)
            for number in (1, 2):  # those that are there already change nothing
                self.tell_note(attempt, number)
        else:
            self.end(attempt, how, {}, is_answer_lost)

    @precondition(lambda self: self.running())
    @rule(data=st.data(), facts=FAILURES, is_cancelled=SELDOM, is_answer_lost=SELDOM)
    def report_failure(
        self, data: st.DataObject, facts: dict[str, Any], is_cancelled: bool, is_answer_lost: bool
    ) -> None:
        attempt = self.pick(data, self.running())
        if is_cancelled:
            self.want_cancelled(attempt.task)
        self.end(attempt, "report failure", facts, is_answer_lost)

    @precondition(lambda self: self.watched())
    @rule(
        data=st.data(),
        is_cancelled=SELDOM,
        is_answer_lost=SELDOM,
        stage=st.sampled_from(["", "reserve", "start"]),
        late=st.sampled_from(["", *LATE]),
    )
    def release(
        self, data: st.DataObject, is_cancelled: bool, is_answer_lost: bool, stage: str, late: str
    ) -> None:
        """stage: how far it comes with what is next then: most often the same task, which has two
        attempts of one node.

        late: what the old one does then all the same.
        """
        attempt = self.pick(data, self.watched())
        if is_cancelled:
            self.want_cancelled(attempt.task)
        self.end(attempt, "release", {}, is_answer_lost)
        self.take_as_far_as(attempt.actor, stage)
        if late:
            self._speak(attempt, late, {})

    @precondition(lambda self: self.running())
    @rule(data=st.data(), is_answer_lost=SELDOM)
    def confirm_cancel(self, data: st.DataObject, is_answer_lost: bool) -> None:
        attempt = self.pick(data, self.running())
        self.want_cancelled(attempt.task)
        self.end(attempt, "confirm_cancel", {}, is_answer_lost)

    @precondition(lambda self: self.up())
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        actor = self.pick(data, [attempt.actor for attempt in self.running()] or self.up())
        actor.is_up = False
        self.note(f"die {'with' if actor.attempt is not None else 'without'} a task")

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), stage=st.sampled_from(["pop", "reserve", "start"]))
    def take_and_die(self, data: st.DataObject, stage: str) -> None:
        actor = self.pick(data, self.idle())
        self.take_as_far_as(actor, stage)
        actor.is_up = False
        self.note(f"die after {stage}")

    @precondition(lambda self: self.down())
    @rule(data=st.data())
    def wake_up(self, data: st.DataObject) -> None:
        """Be one that stood still, and that others may have taken for dead."""
        actor = self.pick(data, self.down())
        nodes = {(other.queue, other.life.node) for other in self.up()}
        if not actor.is_gone and (actor.queue, actor.life.node) not in nodes:
            actor.is_up = True
            self.note("wake up")

    @precondition(lambda self: self.loose())
    @rule(data=st.data(), how=st.sampled_from(LATE), facts=FAILURES)
    def be_late(self, data: st.DataObject, how: str, facts: dict[str, Any]) -> None:
        self._speak(self.pick(data, self._late()), how, facts)

    @precondition(lambda self: self.loose())
    @rule(
        data=st.data(),
        how=st.sampled_from(["complete", "fail", "report success", "report failure", "pop"]),
    )
    def be_late_again(self, data: st.DataObject, how: str) -> None:
        self._speak(self.pick(data, self._late()), how, {})

    def _speak(self, attempt: Attempt, how: str, facts: dict[str, Any]) -> None:
        """Speak for an attempt that nobody watches any more; or be its listener, and try to take
        another task.
        """
        life = attempt.actor.life
        if how == "pop":
            if self.instance(life.queue, life.node) != life.instance or not self.model.lives(
                life.queue, life.node
            ):
                self.pop(attempt.actor)
        elif how == "restore":
            if attempt.is_started and attempt.token is not None and attempt.actor in self.idle():
                self.restore_attempt(attempt.actor, attempt)
        elif how == "start":
            self.start(attempt)
        elif how == "progress":
            self.tell_progress(attempt)
        elif attempt.is_started or how in ("fail", "release"):
            self.tell_end(attempt, how, facts)

    def _late(self) -> list[Attempt]:
        """Return attempts that nobody watches, those that could do harm several times."""
        loose, tasks = self.loose(), self.model.tasks
        revoked = [one for one in loose if one.task in tasks and not self.is_newest(one)]
        rivals = [one for one in revoked if tasks[one.task].owner.get("node") == one.about[3]]
        return rivals * 4 + revoked[:4] + loose[:4]

    @precondition(lambda self: self.running())
    @rule(
        data=st.data(),
        then=st.sampled_from(["", "restore", "report success", "report failure", "release"]),
    )
    def lose_own(self, data: st.DataObject, then: str) -> None:
        """Be one whose task process seems to be gone without a word, and then was not."""
        attempt = self.pick(data, self.running())
        self.give_up(attempt)
        if then:
            self._speak(attempt, then, {})

    @precondition(lambda self: self.running())
    @rule(
        data=st.data(),
        is_gone=st.booleans(),
        then=st.sampled_from(["", "reassert", "take", "release", "release"]),
    )
    def be_forgotten(self, data: st.DataObject, is_gone: bool, then: str) -> None:
        """Have Redis forget a running attempt, as it can when it is replaced by a replica; or all
        of the task.

        then: the listener puts it back; or another takes it first, and perhaps releases it.
        """
        attempt = self.pick(data, self.running())
        is_there = self.is_newest(attempt) and self.model.tasks[attempt.task].status == "started"
        if not is_there or attempt.token is None or self.model.hints()[attempt.task] > 1:
            return
        (self._forget_task if is_gone else self._forget_attempt)(attempt.task)
        if then in ("take", "release"):
            taker = self.idle_one(attempt.actor.queue)
            self.take(taker)
            if taker.attempt is not None and then == "release":
                self.end(taker.attempt, "release", {})
        if then:
            self._reassert(attempt)

    def _forget_task(self, task: str) -> None:
        queue, node = self.place(task)
        member = keys.started_member(node, self.model.tasks[task].owner["pid"], task)
        tags = self.model.tasks[task].given.get("tags", "").split()
        self.redis.read(
            ("LREM", keys.reserved(queue, node), 0, task),
            ("SREM", keys.started(queue), member),
            ("DEL", keys.task(task), keys.history(task), keys.recent(task)),
            ("ZREM", keys.tasks(queue), task),
            ("ZREM", keys.TAGS, *[f"{tag} {task}" for tag in tags], task),
        )
        for tag in tags:
            self.model.tags.pop(f"{tag} {task}", None)
        self._forget_room(task)
        self.model.held[queue, node].remove(task)
        self.model.started[queue].remove(member)
        del self.model.tasks[task], self.model.index[queue][task]
        self.note("Redis forgets a task")

    def _forget_room(self, task: str) -> None:
        queue, owner = self.queue_of(task), self.model.tasks[task].owner
        self.redis.read(
            ("SREM", keys.lock(owner.get("lock", "")), task), ("SREM", keys.counted(queue), task)
        )
        self.model.holders[owner.get("lock", "")].discard(task)
        self.model.counted[queue].discard(task)

    def _forget_attempt(self, task: str) -> None:
        its, (queue, node) = self.model.tasks[task], self.place(task)
        self._forget_room(task)
        member, attempt = keys.started_member(node, its.owner["pid"], task), (its.attempt or 0) - 1
        self.redis.read(
            ("LREM", keys.reserved(queue, node), 0, task),
            ("SREM", keys.started(queue), member),
            ("HSET", keys.task(task), "status", "pending", "attempt", attempt),
            ("HDEL", keys.task(task), *its.owner),
            ("RPUSH", keys.line(queue, its.line), task),
            *([("ZADD", keys.lines(queue), its.priority, its.line)] if its.line != "0" else []),
            *[
                ("SADD", keys.waiting(lock), f"{its.line}_{queue}")
                for lock in model.NEEDS[its.needs][1:2]
                if lock
            ],
        )
        self.model.held[queue, node].remove(task)
        self.model.started[queue].remove(member)
        self.model.stand(queue, task, is_next=True)
        its.status, its.attempt, its.owner = "pending", attempt, {}
        self.model.consents[task] += 1  # what Redis has forgotten, nobody can guard
        self.note("Redis forgets an attempt")
        if self.model.conditions.get(task):
            self._forget_release(queue, task)

    def _forget_release(self, queue: str, task: str) -> None:
        """Have Redis forget, too, that a task need not wait for others any more."""
        its, parent = self.model.tasks[task], next(iter(self.model.conditions[task]))
        self.redis.read(
            ("LREM", keys.line(queue, its.line), 1, task),
            ("HSET", keys.task(task), "status", "blocked"),
            ("HSET", keys.conditions(task), parent, "any"),
            ("ZADD", keys.blocked(queue), 0, task),
        )
        self.model.leave_line(queue, task)
        self.model.conditions[task][parent] = model.Condition("any")
        self.model.blocked[queue][task], its.status = 0.0, "blocked"
        self.rolled_back.add(task)
        self.note("Redis forgets a release")

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def reassert(self, data: st.DataObject) -> None:
        running = [one for one in self.running() if one.token is not None]
        if running:
            self._reassert(
                self.pick(data, [one for one in running if not self.is_newest(one)] * 4 + running)
            )

    def _reassert(self, attempt: Attempt, is_lasting: bool = False) -> None:
        actor, task, pid = attempt.actor, attempt.task, attempt.pid
        life, ours = actor.life, {**attempt.snapshot.fields, "pid": str(pid)}
        self.both(
            "reassert",
            lambda: protocol.reassert(
                actor.redis,
                life.queue,
                task,
                life.node,
                life.instance,
                ours,
                clock.now,
                life.instance if is_lasting else "of a former life",
            ),
            lambda: self.model.reassert(life, task, attempt.mine, pid, clock.now, is_lasting),
        )


class Undertakers(Machine):
    """They see to what the dead have left, and to some who are not dead."""

    @precondition(lambda self: self.model.registrations)
    @rule(data=st.data(), is_beat_old=SELDOM, is_wrong=SELDOM)
    def fence(self, data: st.DataObject, is_beat_old: bool, is_wrong: bool) -> None:
        """is_wrong: that it is dead."""
        pairs = list(self.model.registrations) if is_wrong else self.corpses()
        if pairs:
            self._fence(*self.pick(data, pairs), is_beat_old)

    def _fence(self, queue: str, node: str, is_beat_old: bool = False) -> None:
        known = self.model.registrations[queue, node]
        beat = str(known["beat"] - is_beat_old)
        self.both(
            "fence",
            lambda: protocol.fence(self.redis, queue, node, known["instance"], beat, 9.25),
            lambda: self.model.fence(queue, node, known["instance"], beat),
        )

    @precondition(lambda self: any(self.model.held.values()))
    @rule(data=st.data(), is_judged=st.booleans(), is_instance_old=SELDOM, is_cancelled=SELDOM)
    def recover(
        self, data: st.DataObject, is_judged: bool, is_instance_old: bool, is_cancelled: bool
    ) -> None:
        """is_judged: that whoever holds it has been found dead before, if it is."""
        pairs = [pair for pair, held in self.model.held.items() if held]
        queue, node = self.pick(data, self._of_the_dead(pairs))
        if is_judged and (queue, node) in self.corpses():
            self._fence(queue, node)
        task = self.pick(data, self.model.held[queue, node])
        if is_cancelled:
            self.want_cancelled(task)
        if task in self.model.held[queue, node]:
            self._recover(queue, node, task, is_instance_old)

    def _of_the_dead(self, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return these listeners, the dead several times."""
        corpses = self.corpses()
        return [
            pair for pair in pairs if pair in corpses or not self.model.lives(*pair)
        ] * 4 + pairs

    def _recover(self, queue: str, node: str, task: str, is_instance_old: bool = False) -> None:
        its = self.model.tasks.get(task)
        instance = "of before" if is_instance_old else self.instance(queue, node)
        claimant = its.owner.get("reclaimed_node") if its is not None else None
        dead = claimant if claimant is not None and not self.model.lives(queue, claimant) else None
        self.both(
            "recover",
            lambda: protocol.recover(self.redis, queue, task, node, instance, clock.now, dead),
            lambda: self.model.recover(queue, task, node, instance, clock.now, dead),
        )

    @precondition(lambda self: self.has("started"))
    @rule(
        data=st.data(),
        default=st.sampled_from([None, "twice"]),
        is_token_old=SELDOM,
        is_judged=st.booleans(),
    )
    def lose(
        self, data: st.DataObject, default: str | None, is_token_old: bool, is_judged: bool
    ) -> None:
        """is_judged: as for recover."""
        started = self.has("started")
        queue, node = self.pick(data, self._of_the_dead([self.place(task) for task in started]))
        if is_judged and (queue, node) in self.corpses():
            self._fence(queue, node)
        task = self.pick(data, [task for task in started if self.place(task) == (queue, node)])
        self._lose(task, default, is_token_old)

    def _lose(self, task: str, default: str | None = None, is_token_old: bool = False) -> None:
        queue, node = self.place(task)
        token = "0" * 32 if is_token_old else self.model.tasks[task].owner.get("token")
        instance = self.instance(queue, node)
        error = f"lost with {node}"
        facts = {"lost_node": node, "last_seen": clock.now}
        attempt = AttemptRef(queue, task, token, node)
        policy = retry_of(default)
        self.both(
            "lose",
            lambda: protocol.lose(
                self.redis, attempt, instance, Loss(error, facts), policy, clock.now
            ),
            lambda: self.model.lose(*attempt, instance, error, whole(default), facts, clock.now),
        )

    @precondition(lambda self: self.idle() and self._loose("started"))
    @rule(data=st.data())
    def adopt(self, data: st.DataObject) -> None:
        """Take over a running task, of whose attempts nobody watches some; of an old one that must
        fail.
        """
        queue, task, token, old = (attempt := self.pick(data, self._loose("started"))).about
        actor = self.idle_one(queue)
        life = actor.life
        got = self.both(
            "adopt",
            lambda: protocol.adopt(
                actor.redis,
                AttemptRef(queue, task, token, old),
                life.node,
                life.instance,
                clock.now,
            ),
            lambda: self.model.adopt(life, task, token, old, clock.now),
        )
        if got.value is not None:
            self.watch(actor, Task(task, got.value), True, attempt.pid)

    @precondition(lambda self: self._loose("failed") or self.running())
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        """Take back a task that has failed; if there is none, one that its listener gives up in
        error.
        """
        failed = self._loose("failed")
        attempt = self.pick(data, failed or self.running())
        if not failed:
            self.give_up(attempt)
        if attempt.token is not None:
            self.restore_attempt(self.idle_one(attempt.about[0]), attempt)

    def _loose(self, status: str) -> list[Attempt]:
        """Return started attempts that nobody watches, of tasks of this status."""
        tasks = self.has(status)
        return [
            one
            for one in self.loose()
            if one.is_started and one.token is not None and one.task in tasks
        ]

    @precondition(lambda self: self.model.registrations)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        pairs = list(self.model.registrations)
        self._forget(
            *self.pick(data, [pair for pair in pairs if not self.model.lives(*pair)] or pairs)
        )

    def _forget(self, queue: str, node: str) -> None:
        instance = self.instance(queue, node)
        self.both(
            "deregister the dead",
            lambda: protocol.deregister(self.redis, queue, node, instance, is_dead=True),
            lambda: self.model.deregister_dead(queue, node, instance),
        )

    @precondition(lambda self: self.corpses())
    @rule(data=st.data(), is_lost=st.booleans())
    def sweep(self, data: st.DataObject, is_lost: bool) -> None:
        """Do all that follows when a listener is found dead."""
        queue, node = self.pick(data, self.corpses())
        self._fence(queue, node)
        for task in list(self.model.held[queue, node]):
            self._recover(queue, node, task)
            if is_lost and task in self.has("started") and self.place(task) == (queue, node):
                self._lose(task)
        self._forget(queue, node)

    @precondition(lambda self: self.idle() and self.corpses())
    @rule(
        data=st.data(),
        is_instance_old=SELDOM,
        stage=st.sampled_from(["reserve", "start"]),
        is_judged=SELDOM,
    )
    def claim(
        self, data: st.DataObject, is_instance_old: bool, stage: str, is_judged: bool
    ) -> None:
        """Be a program that claims from the dead as 1.0.0 does; is_judged: others see to the dead
        meanwhile.
        """
        actor = self.pick(data, self.idle())
        nodes = [
            node
            for queue, node in self.corpses()
            if queue == actor.queue and node != actor.life.node
        ]
        if not nodes:
            return
        queue, node, dead = actor.queue, actor.life.node, self.pick(data, nodes)
        instance = "of before" if is_instance_old else self.instance(queue, dead)
        for other in self.down():
            other.is_gone = other.is_gone or other.life.instance == instance
        got = self.both(
            "claim",
            lambda: protocol.claim(actor.redis, queue, node, dead, instance),
            lambda: self.model.claim(queue, node, dead, instance),
        )
        if got.value is not None and self.model.tasks[got.value].status == "reserved":
            self.watch(actor, load(self.redis, got.value))
            if stage == "start":
                self.start(actor.attempt)
        if is_judged and (queue, dead) in self.corpses():
            self._fence(queue, dead)
            for task in list(self.model.held[queue, dead]):
                self._recover(queue, dead, task)


@dataclass
class Legacy:
    """A listener of 1.0.0, and the task that it has."""

    queue: str
    node: str
    is_up: bool = True
    task: str | None = None
    pid: int | None = None


class OldVersion(Machine):
    """1.0.0, which checks nothing. It is only given what is in order."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.legacies: list[Legacy] = []

    @rule(queue=QUEUES, steps=st.integers(1, 6), is_to_die=st.booleans())
    def legacy_work(self, queue: str, steps: int, is_to_die: bool) -> None:
        """Have a listener of 1.0.0 do what it would do next, and perhaps die."""
        legacy = next((one for one in self.legacies if one.is_up and one.queue == queue), None)
        if legacy is None:
            legacy = Legacy(queue, f"old_{len(self.legacies) + 1}")
            self._join(legacy)
        for _ in range(steps):
            clock.now += TICK
            if legacy.task is None:
                self._take(legacy)
            elif legacy.pid is None:
                self._start(legacy, legacy.task)
            else:
                self._complete(legacy, legacy.task, legacy.pid)
        legacy.is_up = not is_to_die

    def _join(self, legacy: Legacy) -> None:
        self.legacies.append(legacy)
        LegacyQueue(self.redis, legacy.queue).add_listener(legacy.node)
        self.model.members[legacy.queue].add(legacy.node)

    def _take(self, legacy: Legacy) -> None:
        line, hints = self.model.lines[legacy.queue, "0"], self.model.hints()
        its = self.model.tasks.get(line[0]) if line else None
        if its is None or its.status != "pending" or hints[line[0]] > 1:
            return  # it would run that, whatever it is
        legacy.task = LegacyQueue(self.redis, legacy.queue).dequeue(legacy.node, clock.now)
        assert legacy.task == line.pop(0)
        its.status, its.owner["node"], its.updated = "reserved", legacy.node, clock.now
        self.model.held[legacy.queue, legacy.node].insert(0, legacy.task)
        self.note("1.0.0 takes")

    def _start(self, legacy: Legacy, task: str) -> None:
        its, pid = self.model.tasks[task], 9
        LegacyQueue(self.redis, legacy.queue).start(task, legacy.node, pid, clock.now)
        its.status, its.owner["pid"], its.updated, legacy.pid = "started", pid, clock.now, pid
        self.model.started[legacy.queue].add(keys.started_member(legacy.node, pid, task))
        self.starts[task].append(f"1.0.0 at {clock.now}")
        self.note("1.0.0 starts")

    def _complete(self, legacy: Legacy, task: str, pid: int) -> None:
        its, queue, node = self.model.tasks[task], legacy.queue, legacy.node
        LegacyQueue(self.redis, queue).finish(task, node, pid, "complete", "old result", clock.now)
        its.status, its.outcome["result"], its.updated = "complete", "old result", clock.now
        self.model.held[queue, node].remove(task)
        self.model.started[queue].remove(keys.started_member(node, pid, task))
        self.model.ended[queue, "complete"].insert(0, task)
        legacy.task = legacy.pid = None
        self.note("1.0.0 completes")

    @precondition(lambda self: any(not one.is_up for one in self.legacies))
    @rule(data=st.data())
    def strike(self, data: st.DataObject) -> None:
        legacy = self.pick(data, [one for one in self.legacies if not one.is_up])
        self.both(
            "fence one of 1.0.0",
            lambda: protocol.fence(self.redis, legacy.queue, legacy.node, None, None, clock.now),
            lambda: self.model.fence_legacy(legacy.queue, legacy.node),
        )


class Relatives(Machine):
    """Tasks that wait for others; and who tells them how those have ended."""

    @rule(
        data=st.data(),
        queue=QUEUES,
        kinds=KINDS,
        broken=st.sampled_from([None, "cancel"]),
        has_results=st.booleans(),
        delay=st.sampled_from([None, None, None, -5, 20]),
        wish=WISH,
        count=st.sampled_from([1, 1, 2]),
        is_missing_met=SELDOM,
        end=ENDS,
    )
    def enqueue_after(
        self,
        data: st.DataObject,
        queue: str,
        kinds: list[str],
        broken: str | None,
        has_results: bool,
        delay: float | None,
        wish: Any,
        count: int,
        is_missing_met: bool,
        end: str,
    ) -> None:
        """Have tasks wait for others; end: of the others."""
        clock.now += TICK
        if end == "forget":
            kinds = ["ok"]
        if end == "late":  # one that is cancelled for another, which completes after all
            broken, kinds = "cancel", ["ok"]
        some = [self.has("started", "pending") or self.known, self.has("pending") or self.known]
        wanted = {self.pick(data, tasks): kind for tasks, kind in zip(some, kinds, strict=False)}
        ties = {**({"broken": broken} if broken else {}), **({"inputs": 0} if has_results else {})}
        _, priority, needs = wish
        eta = None if delay is None else clock.now + delay
        given = {"parameters": "in"}
        more = {
            **({"priority": priority} if priority else {}),
            **({"needs": needs} if needs else {}),
        }
        ids = [clock.random_id() for _ in range(count)]
        queues = (queue, "audio" if queue == "video" else "video")[:count]
        tasks = [
            NewTask(task, of, "in", {**ties, **more}, wanted, eta)
            for task, of in zip(ids, queues, strict=True)
        ]
        news = [
            model.New(task, given, {**ties}, wanted, priority, needs, eta, of)
            for task, of in zip(ids, queues, strict=True)
        ]
        for name in ("enqueue after", "enqueue after, again"):
            got = self.both(
                name,
                lambda: protocol.enqueue_after(self.person, tasks, clock.now, is_missing_met),
                lambda: self.model.enqueue_after(news, clock.now, is_missing_met),
            )
            if got.raised is not None:
                return
        for task in ids:
            self._remember(task)
            self.note(f"made to wait: {self.model.tasks[task].status}")
        if end:
            self._end_all([*wanted], end)

    def _end_all(self, tasks: list[str], end: str) -> None:
        """Have these tasks end, if that may be at once, and tell those that wait for any.

        end: `late` is complete after it was given up, and that was told; `forget` is complete, and
            then Redis forgets that those need not wait any more.
        """
        for task in tasks:
            if end == "cancel":
                self.want_cancelled(task)
            attempt = self._attempt_of(task)
            if attempt is None:
                continue
            if end in ("lose", "late"):
                self.give_up(attempt)
            else:
                how = {"cancel": "confirm_cancel", "forget": "complete"}.get(end, end)
                self.end(attempt, how, {})
            if end == "late":
                self._settle(task)
                self.tell_end(attempt, "complete", {})
            self.note(f"awaited, and then: {end}")
        for parent in sorted(self.model.unsettled):
            self._settle(parent)
        if end == "forget":
            self._forget_releases(tasks)

    def _forget_releases(self, tasks: list[str]) -> None:
        """Have those run that have waited for these tasks, and Redis forget both; one is put back."""
        released = [
            child
            for child in self.has("pending")
            if self.model.conditions.get(child, {}).keys() & {*tasks}
        ]
        for child in released:
            queue = self.queue_of(child)
            self.both(
                "put_first",
                lambda child=child, queue=queue: self.queue(queue).put_first(child),
                lambda child=child, queue=queue: self.model.place(
                    queue, child, clock.now, is_first=True
                ),
            )
            attempt = self._attempt_of(child)
            if attempt is not None and self.model.hints()[child] == 1:
                self._forget_attempt(child)
                if attempt.number % 2:
                    self._reassert(attempt)

    def _attempt_of(self, task: str) -> Attempt | None:
        """Return the attempt of a task that runs, or that a listener can take now."""
        if task in self.has("pending"):
            self.take_as_far_as(self.idle_one(self.queue_of(task)), "start")
        attempts = [one for one in self.running() if one.task == task and self.is_newest(one)]
        return attempts[0] if attempts and attempts[0].token is not None else None

    @rule(data=st.data(), is_all=st.booleans())
    def settle(self, data: st.DataObject, is_all: bool) -> None:
        """Tell those who wait for a task; is_all: for all that have ended."""
        unsettled, parents = sorted(self.model.unsettled), sorted(self._awaited())
        task = self.pick(data, unsettled or parents or self.known)
        for parent in unsettled if is_all else [task]:
            self._settle(parent)

    def _awaited(self) -> list[str]:
        return [task for task, waiting in self.model.dependents.items() if waiting]

    def _settle(self, task: str) -> None:
        self.both(
            "settle",
            # Without the ids of those that ended with it, or were refused.
            lambda: tuple(protocol.settle(self.person, task, clock.now))[:-2],
            lambda: self.model.settle(task, clock.now),
        )

    @precondition(lambda self: any(self.model.blocked.values()))
    @rule(data=st.data(), is_any=SELDOM, is_wrong_queue=SELDOM)
    def recheck(self, data: st.DataObject, is_any: bool, is_wrong_queue: bool) -> None:
        blocked = [(queue, task) for queue in NODES for task in sorted(self.model.blocked[queue])]
        others = [(self.queue_of(task), task) for task in self.known]
        queue, task = self.pick(data, blocked if blocked and not is_any else others)
        queue = _other(queue) if is_wrong_queue else queue
        self.both(
            "recheck",
            lambda: protocol.recheck(self.person, queue, task, clock.now),
            lambda: self.model.recheck(queue, task, clock.now),
        )

    @precondition(lambda self: self._awaited())
    @rule(data=st.data(), is_gone=st.booleans(), is_rechecked=st.booleans())
    def forget_dependents(self, data: st.DataObject, is_gone: bool, is_rechecked: bool) -> None:
        """Be a hand, or a failover, that leaves a task without those who wait for it; is_gone: or
        1.0.0, which deletes a task that others wait for.
        """
        task = self.pick(data, self._awaited())
        its = self.model.tasks.get(task)
        waiting = list(self.model.dependents[task])
        if is_gone and its is not None and its.queue and its.status in ("complete", "failed"):
            ended = {"complete": keys.complete, "failed": keys.failed}[its.status](its.queue)
            self.redis.read(
                ("DEL", keys.task(task), keys.history(task), keys.recent(task)),
                ("LREM", ended, 0, task),
                ("ZREM", keys.tasks(its.queue), task),
            )
            self.model.ended[its.queue, its.status].remove(task)
            del self.model.tasks[task]
            self.model.index[its.queue].pop(task, None)
            self.note("1.0.0 deletes")
        else:
            self.redis.read(("DEL", keys.dependents(task)))
            del self.model.dependents[task]
        if is_rechecked:
            for child in [child for child in waiting if child in self.has("blocked")]:
                queue = self.queue_of(child)
                self.both(
                    "recheck",
                    lambda child=child, queue=queue: protocol.recheck(
                        self.person, queue, child, clock.now
                    ),
                    lambda child=child, queue=queue: self.model.recheck(queue, child, clock.now),
                )

    @precondition(lambda self: self.has("blocked"))
    @rule(
        data=st.data(),
        is_part=SELDOM,
        is_any=SELDOM,
        is_wrong_queue=SELDOM,
        is_answer_lost=st.booleans(),
    )
    def unblock(
        self,
        data: st.DataObject,
        is_part: bool,
        is_any: bool,
        is_wrong_queue: bool,
        is_answer_lost: bool,
    ) -> None:
        task = self.pick(data, (not is_any and self.has("blocked")) or self.known)
        queue = self.queue_of(task)
        queue = _other(queue) if is_wrong_queue else queue
        known = list(self.model.conditions.get(task, {}))
        parents = known[:1] if is_part else None
        for _ in range(1 + is_answer_lost):
            self.both(
                "unblock",
                lambda: protocol.unblock(self.person, queue, task, clock.now, "ann", parents),
                lambda: self.model.unblock(queue, task, parents, clock.now),
            )


class Families(Machine):
    """Groups of tasks, and tasks that a running task makes."""

    @rule(
        data=st.data(),
        queue=QUEUES,
        name=GROUPS,
        kinds=st.sampled_from([[], [], [], ["ok"], ["any"]]),
        count=st.sampled_from([1, 2]),
        then=THEN,
        end=st.sampled_from(["", "complete", "fail", "cancel", "lose"]),
        is_alike=st.sampled_from([True, True, True, False]),
    )
    def join_group(
        self,
        data: st.DataObject,
        queue: str,
        name: str,
        kinds: list[str],
        count: int,
        then: str,
        end: str,
        is_alike: bool,
    ) -> None:
        """Make members, in a group that is opened if there is none; then: what becomes of the group;
        end: of the members. is_alike: they wait for what all its members wait for.
        """
        self.open_one(name)
        wanted = {self.pick(data, self.known): kind for kind in kinds} if self.known else {}
        if is_alike:
            wanted |= self.model.after(name)
        ids = [clock.random_id() for _ in range(count)]
        tasks = [NewTask(task, queue, "in", {"group": name}, wanted) for task in ids]
        given, ties = {"parameters": "in"}, {"group": name}
        news = [model.New(task, given, ties, wanted, queue=queue) for task in ids]
        got = self.both(
            "join a group",
            lambda: protocol.enqueue_after(self.person, tasks, clock.now),
            lambda: self.model.enqueue_after(news, clock.now),
        )
        for task in ids if got.raised is None else ():
            self._remember(task)
        if then in ("close", "cancel"):
            self._end_group(name, then)
        if end and got.raised is None:
            self._end_members(name, ids, end)
        if then not in ("close", "cancel"):
            self.see_to(name, then, self.known[-3:])

    @rule(
        data=st.data(),
        name=st.sampled_from(["late", "late", "night"]),
        kinds=KINDS,
        outer=st.sampled_from([None, "night", "day 1", "late"]),
        is_closed=st.sampled_from([True, True, False]),
        broken=st.sampled_from(["hold", "cancel"]),
        hold=st.sampled_from([None, 1000]),
        end=st.sampled_from(["", "", "complete", "fail"]),
    )
    def open_waiting_group(
        self,
        data: st.DataObject,
        name: str,
        kinds: list[str],
        outer: str | None,
        is_closed: bool,
        broken: str,
        hold: int | None,
        end: str,
    ) -> None:
        """Open a group whose members all wait for tasks, or for a group; is_closed: that one."""
        wanted = {self.pick(data, self.known): kind for kind in kinds}
        if outer is not None:
            wanted[f"group {outer}"] = kinds[0]
            if is_closed and outer != name:
                self.open_one(outer)
                self._end_group(outer, "close")
        terms = Terms(wanted, broken, hold=hold)
        got = self.both(
            "open_group with after",
            lambda: protocol.open_group(self.person, name, KEEP, clock.now, terms),
            lambda: self.model.open_group(name, KEEP, clock.now, wanted, broken, hold),
        )
        if got.raised is None:
            self.join_group(data, "video", name, [], 1, "", end, True)

    def open_one(self, name: str) -> None:
        self.both(
            "open_group",
            lambda: protocol.open_group(self.person, name, KEEP, clock.now),
            lambda: self.model.open_group(name, KEEP, clock.now),
        )

    def _end_members(self, name: str, tasks: list[str], end: str) -> None:
        for task in tasks:
            if end == "cancel":
                self.want_cancelled(task)
            attempt = self._attempt_of(task)
            if attempt is None:
                continue
            if end == "lose":
                self.give_up(attempt)
            else:
                self.end(attempt, "confirm_cancel" if end == "cancel" else end, {})
        self._note_members(name)
        self._look_at(name)

    @rule(
        data=st.data(),
        queue=QUEUES,
        name=GROUPS,
        kind=st.sampled_from(["ok", "any", "not_ok"]),
        broken=st.sampled_from([None, "cancel"]),
        has_results=SELDOM,
        is_alone=st.booleans(),
        is_there=st.sampled_from([True, True, True, False]),
        end=st.sampled_from(["", "", "complete", "fail", "cancel"]),
        then=THEN,
    )
    def wait_for_group(
        self,
        data: st.DataObject,
        queue: str,
        name: str,
        kind: str,
        broken: str | None,
        has_results: bool,
        is_alone: bool,
        is_there: bool,
        end: str,
        then: str,
    ) -> None:
        """is_there: the group is opened if there is none; end: of its members, and then of itself.
        then: what is done for it besides.
        """
        if is_there:
            self.open_one(name)
        wanted = {f"group {name}": kind}
        if not is_alone and self.known:
            wanted[self.pick(data, self.known)] = "any"
        ties = {**({"broken": broken} if broken else {}), **({"inputs": 0} if has_results else {})}
        task = clock.random_id()
        new = model.New(task, {"parameters": "in"}, dict(ties), wanted, queue=queue)
        got = self.both(
            "wait for a group",
            lambda: protocol.enqueue_after(
                self.person, [NewTask(task, queue, "in", ties, wanted)], clock.now
            ),
            lambda: self.model.enqueue_after([new], clock.now),
        )
        if got.raised is None:
            self._remember(task)
            self.note(f"waits for a group: {self.model.tasks[task].status}")
        if end and is_there:
            self._end_group(name, "close")
            self._end_members(name, sorted(self.model.groups[name].open), end)
        self.see_to(name, then, self.known[-3:])

    def see_to(self, name: str, what: str, tasks: list[str]) -> None:
        """Do something for a group that a person or a scheduler does. tasks: that are noted, whether
        they are members or not.
        """
        if what in ("close", "cancel"):
            self._end_group(name, what)
        elif what == "again":
            self._end_group(name, "close")
            self._end_members(name, sorted(self.model.groups[name].open), "cancel")
            self._run_again(name)
        elif what == "drop":
            self.both(
                "drop_group",
                lambda: protocol.drop_group(self.person, name),
                lambda: self.model.drop_group(name),
            )
            self._look_at(name)
        elif what == "reopen":
            self._end_group(name, "close")
            for hold in (2 * KEEP, 1000, None):
                self._reopen(name, hold, "batch of video")
            self._look_at(name)
        elif what == "collect":
            self.both(
                "collect_group",
                lambda: protocol.collect_group(self.person, name, clock.now),
                lambda: self.model.collect_group(name, clock.now),
            )
        elif what and tasks:
            self._note_members(name, tasks)
            self._look_at(name)

    def _reopen(self, name: str, hold: int | None, made_by: str) -> None:
        self.both(
            "reopen_group",
            lambda: protocol.reopen_group(self.person, name, clock.now, hold, made_by),
            lambda: self.model.reopen_group(name, clock.now, hold, made_by),
        )

    def _run_again(self, name: str) -> None:
        """Put the bad members in line again, and have the group know that."""
        for task in sorted(self.model.groups[name].bad & {*self.has("failed", "cancelled")}):
            queue, mark = self.queue_of(task), clock.random_id()
            self.both(
                "requeue a member",
                lambda queue=queue, task=task, mark=mark: protocol.requeue(
                    self.person, queue, task, mark, clock.now
                ),
                lambda queue=queue, task=task, mark=mark: self.model.requeue(
                    queue, task, mark, clock.now
                ),
            )
        self._note_members(name)
        if self.model.groups[name].record is not None:
            self._tell_of(name)  # by one who has not seen that it runs again
        self._look_at(name)

    def _end_group(self, name: str, how: str) -> None:
        redis, foretell = self.person, self.model
        if how == "close":
            self.both(
                "close_group",
                lambda: protocol.close_group(redis, name, clock.now),
                lambda: foretell.close_group(name, clock.now),
            )
        else:
            self.both(
                "cancel_group",
                lambda: protocol.cancel_group(redis, name, "ann", None, clock.now),
                lambda: foretell.cancel_group(name, "ann", clock.now),
            )

    def _note_members(self, name: str, tasks: list[str] | None = None) -> None:
        """Note the ends of these tasks, or of all that are to be noted, in a group."""
        some = sorted(self.model.unsettled_members) if tasks is None else tasks
        if tasks is None:
            some = [task for task in some if task in self.model.groups[name].members]
        if some:
            self.both(
                "settle_members",
                lambda: protocol.settle_members(self.person, name, some),
                lambda: self.model.settle_members(name, some),
            )

    def _look_at(self, name: str) -> None:
        """Do what a scheduler does for a group: end it, and tell those who wait for it."""
        got = self.both(
            "finish_group",
            lambda: protocol.finish_group(self.person, name, clock.now),
            lambda: self.model.finish_group(name, clock.now),
        )
        if got.value is not None:
            self._tell_of(name)

    def _tell_of(self, name: str) -> None:
        self.both(
            "settle_group",
            lambda: tuple(protocol.settle_group(self.person, name, clock.now))[:-2],
            lambda: self.model.settle(f"group {name}", clock.now),
        )

    @precondition(lambda self: self.running())
    @rule(
        data=st.data(),
        queue=QUEUES,
        names=st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True),
        kinds=KINDS,
        waits=st.sampled_from(["", "", "others", "nobody", "each other", "itself"]),
        is_at_the_end=st.booleans(),
        is_late=st.sampled_from([False, False, True]),
        is_answer_lost=SELDOM,
    )
    def make_from_a_task(
        self,
        data: st.DataObject,
        queue: str,
        names: list[str],
        kinds: list[str],
        waits: str,
        is_at_the_end: bool,
        is_late: bool,
        is_answer_lost: bool,
    ) -> None:
        """Have a running task make others, or one that ends; is_late: an attempt that nobody
        watches.
        """
        attempts = [one for one in self._late() if one.token] if is_late else self.running()
        attempt = self.pick(data, attempts or self.running())
        if attempt.token is None or not attempt.is_started:
            return
        records, news = [], []
        ids = [spawned_id(attempt.task, name) for name in names]
        # One of these may be there already, and none can wait for itself or for a later one.
        others = [task for task in self.known if task not in ids]
        for task in ids:
            wanted: dict[str, str] = {}
            if waits == "others":
                wanted = {self.pick(data, others): kind for kind in kinds}
            elif waits == "nobody":
                wanted = {"nobody": kinds[0]}
            elif waits == "each other" and news:
                wanted = {news[-1].task: kinds[0]}
            elif waits == "itself" and is_at_the_end:
                wanted = {attempt.task: kinds[0]}
            by = {"spawned_by": attempt.task}
            records.append(NewTask(task, queue, "in", by, wanted, None))
            given = {"parameters": "in", **by}
            news.append(model.New(task, given, {}, wanted, queue=queue))
        for _ in range(1 + is_answer_lost):
            if is_at_the_end:
                self._complete_then(attempt, records, news)
            else:
                self.both(
                    "spawn",
                    lambda: protocol.spawn(attempt.actor.redis, attempt.about, records, clock.now),
                    lambda: self.model.spawn(*attempt.about[1:], news, clock.now),
                )
        for new in news:
            if new.task in self.model.tasks and new.task not in self.known:
                self._remember(new.task)
                self.note(f"made by a task: {self.model.tasks[new.task].status}")

    def _complete_then(
        self, attempt: Attempt, records: list[NewTask], news: list[model.New]
    ) -> None:
        result, about = f"result of {attempt.number}", attempt.about
        facts = {"result": result, "finished": clock.now}
        finished = clock.now

        def act() -> None:
            protocol.end(
                attempt.actor.redis,
                about,
                End.complete(result, None, finished, then=records),
                clock.now,
            )

        got = self.both(
            "complete with new tasks",
            act,
            lambda: self.model.complete_then(*about, facts, news, clock.now),
        )
        if got.raised is None:
            self.results.setdefault(attempt.token or "", result)
        if attempt.actor.attempt is attempt:
            attempt.actor.attempt = None


class QueueMachine(Producers, People, Listeners, Undertakers, OldVersion, Relatives, Families):
    """All of them."""
