"""Do the models notice what the explorer cannot see?

These are not in test_mutants.py: while its explorer is open, a model fails without any mutant, since
fewer dependents are settled at once than the model settles.

Each has a history of a few steps. Random ones come to the same (the floors of test_model.py say how
often), but which ones come depends on the numbers that stand in the package, and in which order its
modules were loaded: Hypothesis prefers these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from machine import BEGIN, Machine, own_clock
from mutants import IN_THE_MODEL, IN_THE_SCHEDULES, Mutant, applied
from rules import PLAIN, WISHES, QueueMachine
from schedule_rules import ScheduleMachine
from transactions import protocol


class Chosen:
    """The data of a rule, if there is only one thing to draw."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def draw(self, strategy: object) -> Any:
        return self.value


def begin(machine: QueueMachine, most: int | None = None) -> None:
    machine.begin([None] * 5, [""] * 5, [False] * 5, [WISHES[0]] * 5, most)


def make(machine: QueueMachine, wish: Any = WISHES[0]) -> str:
    machine.enqueue("video", ("in.mov", None), None, PLAIN, None, None, wish)
    return machine.known[-1]


def deleted(machine: QueueMachine) -> None:
    begin(machine)
    actor = machine.idle_one("video")
    machine.take_as_far_as(actor, "start")
    attempt = actor.attempt
    assert attempt is not None
    machine.end(attempt, "complete", {})
    machine.delete(Chosen(attempt.task), False, True)


def group_collected_too_early(machine: QueueMachine) -> None:
    begin(machine)
    machine.join_group(Chosen(None), "video", "night", [], 1, "reopen", "", True)
    machine.see_to("night", "collect", [])  # it is open
    machine.see_to("night", "close", [])
    machine.see_to("night", "collect", [])


def group_dropped_too_early(machine: QueueMachine) -> None:
    machine.open_one("night")
    machine.both(
        "drop_group",
        lambda: protocol.drop_group(machine.person, "night"),
        lambda: machine.model.drop_group("night"),
    )


def first_of_another_line(machine: QueueMachine) -> None:
    begin(machine)
    make(machine, WISHES[1])
    machine.take(machine.idle_one("video"))


def another_priority_while_popped(machine: QueueMachine) -> None:
    actor = machine.idle_one("video")
    task = make(machine)
    machine.pop(actor)
    machine.wait_otherwise(Chosen(task), "set_priority", 7, False, False, False)


def work_for_others(machine: QueueMachine) -> None:
    """A listener is woken for a task that needs what only one of the others has."""
    poor = listener_at(machine, "host_3")
    for node in ("host_1", "host_2", "host_4"):
        listener_at(machine, node)
    machine.be_woken_in_vain(Chosen(poor))


def listener_at(machine: QueueMachine, node: str) -> Any:
    machine.register("video", node, None)
    actor = machine.actors[-1]
    machine.take(actor)  # it has found nothing, and waits
    return actor


def last_of_another_line(machine: QueueMachine) -> None:
    actor = listener_at(machine, "host_1")
    make(machine, WISHES[1])
    machine.wait(actor, True)


HISTORIES: dict[str, Callable[[QueueMachine], None]] = {
    "create does not enter a task in the index of tags": begin,
    "delete leaves a task in the index of tags": deleted,
    "collect_group does not ask for open members": group_collected_too_early,
    "drop_group drops what has not ended": group_dropped_too_early,
    "pop takes of the default line whatever there is": first_of_another_line,
    "place puts in line what a listener has popped": another_priority_while_popped,
    "set_settings sets nothing": lambda machine: begin(machine, most=2),
    "a listener is called that cannot help": work_for_others,
    "the marker is passed on although nothing is left": last_of_another_line,
}


def third_time_while_two_wait(machine: ScheduleMachine) -> None:
    machine.begin(("queue", "last"))
    for _ in range(3):
        machine.fire(Chosen(0), 10.0, 1, False)


def rule_that_ends(machine: ScheduleMachine) -> None:
    machine.define_schedule("hourly", "video", 30, ("allow", "last"), 1000, BEGIN + 100)
    machine.fire(Chosen(0), 170.0, 1, False)


SCHEDULE_HISTORIES: dict[str, Callable[[ScheduleMachine], None]] = {
    "several wait for the end of one": third_time_while_two_wait,
    "a schedule that goes on keeps what was planned": rule_that_ends,
}


def tell(machine: Machine, history: Callable[[Any], None]) -> None:
    """Go through a history, and hold everything against the model at its end."""
    try:
        history(machine)
        machine.check()
    finally:
        machine.teardown()


@pytest.mark.parametrize("mutant", IN_THE_MODEL, ids=lambda mutant: mutant.name)
def test_what_the_explorer_cannot_see_is_noticed_by_the_model(mutant: Mutant, url: str):
    history = HISTORIES[mutant.name]
    with own_clock():
        tell(QueueMachine(url, Counter()), history)
        with applied(mutant), pytest.raises(AssertionError, match="Redis"):
            tell(QueueMachine(url, Counter()), history)


@pytest.mark.parametrize("mutant", IN_THE_SCHEDULES, ids=lambda mutant: mutant.name)
def test_what_comes_of_schedules_otherwise_is_noticed_by_their_model(mutant: Mutant, url: str):
    history = SCHEDULE_HISTORIES[mutant.name]
    with own_clock():
        tell(ScheduleMachine(url, Counter()), history)
        with applied(mutant), pytest.raises(AssertionError, match="Redis"):
            tell(ScheduleMachine(url, Counter()), history)
