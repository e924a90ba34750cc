"""The rules of the model test for schedules: what people do with them, who fires them, and how their
tasks go on.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import initialize, precondition, rule
from machine import BEGIN, Machine, clock
from schedule_model import Planner
from transactions import protocol

from blueque.connection.redis import Redis
from blueque.model.schedule import Occurrence
from blueque.producer.schedules import define
from blueque.protocol.occurrences import Plan, plan_of
from blueque.protocol.schedules import Define, Pause, Resume
from blueque.queries import schedules

NAMES = ("nightly", "hourly")
SELDOM = st.sampled_from([False, False, False, True])
POLICIES = [
    ("skip", "last"),
    ("skip", "none"),
    ("queue", "last"),
    ("queue", "last"),
    ("allow", "all"),
    ("allow", "last"),
]


class ScheduleMachine(Machine):
    """People who define, pause and trigger schedules, any number of those who fire them, and two
    listeners.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.planner = Planner(self.model)
        self.model.others = self.planner.everything
        # What somebody has read, and when; he may come too late with it.
        self.plans: list[tuple[str, Plan | None, dict[str, str], float]] = []

    @initialize(policies=st.sampled_from(POLICIES))
    def begin(self, policies: tuple[str, str]) -> None:
        for queue in ("video", "audio"):
            self.register(queue, "host_1", None)
        self.define_schedule("nightly", "video", 10, policies, 75, None)

    @precondition(lambda self: len(self.planner.schedules) < 2 or self.changes % 4 == 0)
    @rule(
        name=st.sampled_from(NAMES),
        queue=st.sampled_from(["video", "audio"]),
        every=st.sampled_from([10, 10, 30, 100]),
        policies=st.sampled_from(POLICIES),
        window=st.sampled_from([5, 75, 1000]),
        until=st.sampled_from([None, None, None, BEGIN + 100]),
    )
    def define_schedule(
        self,
        name: str,
        queue: str,
        every: int,
        policies: tuple[str, str],
        window: int,
        until: int | None,
    ) -> None:
        overlap, catch_up = policies
        definition = define(
            self.queue(queue),
            name,
            "in",
            every=every,
            until=until,
            overlap=overlap,
            catch_up=catch_up,
            window=window,
            keep=0,
        )
        self.both(
            "set_schedule",
            lambda: protocol.set_schedule(self.person, name, Define(definition, "hand"), "ann"),
            lambda: self.planner.define(name, definition, clock.now),
        )

    def _read(self, name: str) -> None:
        record = schedules.records(self.redis, [name])[0]
        assert isinstance(record, dict)
        plan = plan_of(name, record, clock.now) if record else None
        self.plans = [*self.plans, (name, plan, record, clock.now)][-5:]

    @precondition(lambda self: self.planner.schedules)
    @rule(
        data=st.data(),
        seconds=st.sampled_from([0.0, 10.0, 10.0, 20.0, 30.0, 170.0]),
        count=st.sampled_from([1, 1, 2]),
        is_late=SELDOM,
    )
    def fire(self, data: st.DataObject, seconds: float, count: int, is_late: bool) -> None:
        """Let time pass; somebody looks at the schedules, and he or others fire, some of them late."""
        clock.now += seconds
        for name in self.planner.schedules:
            self._read(name)
        for _ in range(count):
            place = data.draw(st.integers(0, len(self.plans) - 1)) if is_late else -1
            self._fire_one(self.connect() if is_late else self.person, *self.plans[place])

    def _fire_one(
        self, redis: Redis, name: str, plan: Plan | None, record: dict[str, str], then: float
    ) -> None:
        its = self.planner.schedules.get(name)
        if its is not None and its.fields == record:
            assert (plan is None) == ("paused" in its.facts or not its.due(then))
        if plan is None:
            return

        def act() -> str | None:
            came = protocol.fire(redis, name, plan)
            return None if came is None else came.text()

        got = self.both("fire", act, lambda: self.planner.fire(name, record, then, clock.now))
        came = None if got.value is None else Occurrence.read(got.value)
        self.note(f"fire: {'nothing' if came is None else came.what}")
        self._remember_new()

    def _remember_new(self) -> None:
        """Note the new tasks; the id of one may be that of a task that is gone."""
        for task in self.planner.created:
            self.starts.pop(task, None)
            if task not in self.known:
                self.known.append(task)
        self.planner.created.clear()

    @precondition(lambda self: self.planner.schedules)
    @rule(
        data=st.data(),
        what=st.sampled_from(
            ["pause", "resume", "catch up", "trigger", "trigger", "force", "delete"]
        ),
        is_old=st.booleans(),
    )
    def manage(self, data: st.DataObject, what: str, is_old: bool) -> None:
        """Be a person. is_old: he has looked some time ago."""
        name = self.pick(data, NAMES if what == "delete" else [*self.planner.schedules])
        its, planner, redis = self.planner.schedules.get(name), self.planner, self.person
        if what == "pause" and its is not None and "paused" in its.facts and not is_old:
            what = "resume"
        if what == "delete":
            self.both(
                "delete_schedule",
                lambda: protocol.delete_schedule(redis, name, "ann"),
                lambda: planner.delete(name),
            )
        elif what == "pause":
            self.both(
                "pause",
                lambda: protocol.set_schedule(redis, name, Pause("move"), "ann") == "paused",
                lambda: planner.pause(name, "ann", "move", clock.now),
            )
        elif what in ("resume", "catch up"):
            catches_up = what == "catch up"
            self.both(
                "resume",
                lambda: protocol.set_schedule(redis, name, Resume(catches_up), "ann") == "resumed",
                lambda: planner.resume(name, catches_up, clock.now),
            )
        elif what in ("trigger", "force"):
            self._trigger(name, clock.random_id(), what == "force")

    def _trigger(self, name: str, mark: str, is_forced: bool) -> None:
        for _ in range(2):  # the answer to the first is lost
            self.both(
                "trigger",
                lambda: protocol.trigger(self.person, name, mark, "ann", is_forced),
                lambda: self.planner.trigger(name, mark, "ann", is_forced, clock.now),
            )
            self._remember_new()

    @rule(
        data=st.data(),
        queue=st.sampled_from(["video", "video", "audio"]),
        stage=st.sampled_from(["reserve", "start", "start"]),
        how=st.sampled_from(["complete", "complete", "fail", "release"]),
    )
    def work(self, data: st.DataObject, queue: str, stage: str, how: str) -> None:
        """Be a listener: end the task that runs, or take the next one."""
        running = [one for one in self.watched() if one.actor.queue == queue]
        if running and not running[0].is_started:
            self.start(running[0])
        elif running:
            self.end(running[0], how, {})
        else:
            self.take_as_far_as(self.idle_one(queue), stage)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), what=st.sampled_from(["cancel", "requeue", "delete"]))
    def change_task(self, data: st.DataObject, what: str) -> None:
        """Be a person who does something to a task."""
        task = self.pick(data, self.known)
        queue, redis, mark = self.queue_of(task), self.person, clock.random_id()
        if what == "cancel":
            self.want_cancelled(task)
        elif what == "requeue":
            self.both(
                "requeue",
                lambda: protocol.requeue(redis, queue, task, mark, clock.now),
                lambda: self.model.requeue(queue, task, mark, clock.now),
            )
        else:
            self.both(
                "delete",
                lambda: protocol.delete(redis, queue, task),
                lambda: self.model.delete(queue, task),
            )
