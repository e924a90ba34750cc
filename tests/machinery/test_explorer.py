"""The protocol under every order of its steps, with every fault at each: nothing is lost, nothing
is started twice unasked.

The bounds are short ones. Without BLUEQUE_SOAK nobody is interrupted more than once in a schedule,
nor in one with faults, schedules are left out that come to the same as others, and so are scenarios,
and the interruptions or the faults of one, by which no mutant is noticed; with it, as in `bin/soak`, it takes several times as long.
`PYTHONPATH=tests:tests/legacy python tests/machinery/explore.py --long MINUTES` goes further.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
from actors import produce, work
from explore import Explorer, open_explorer
from ground import Ground, Scenario
from mutants import MUTANTS
from scenarios import HOLES, OURS, SCENARIOS, by, nothing
from stepper import END, Fault
from world import QUEUE, World

from blueque.connection.redis import Redis
from blueque.model import keys

IS_LONG = bool(os.environ.get("BLUEQUE_SOAK"))
TELLING: dict[str, list[tuple[int, int]]] = {}  # by scenario: the bounds of its mutants
for mutant in MUTANTS:
    TELLING.setdefault(mutant.scenario, []).append(mutant.bounds)
# How many schedules there are at least; fewer mean that a scenario does not meet any more what it
# was made for.
AT_LEAST = {
    "one fault": 150,
    "two faults": 500,
    "producer": 150,
    "wrongly fenced": 1200,
    "wrongly lost": 200,
    "woken": 200,
    "same node id": 300,
    "adoption": 350,
    "late result": 250,
    "cancel and end": 600,
    "struck off by 1.0.0": 400,
}


@pytest.fixture(scope="module")
def explore() -> Iterator[Explorer]:
    with open_explorer(is_reduced=not IS_LONG) as explore:
        yield explore


def _short(scenario: Scenario) -> Iterator[tuple[int, int]]:
    """Yield bounds with one interruption or the faults, but not both in one schedule: those by which
    a mutant is noticed. One that is noticed without either has the interruption.
    """
    mutants = TELLING[scenario.name]
    has_faults = any(faults for _, faults in mutants)
    has_turns = any(turns for turns, _ in mutants) or not has_faults
    for turns, faults in scenario.bounds:
        if turns and has_turns:
            yield min(turns, 1), 0
        if faults and (has_faults or not any(others for others, _ in scenario.bounds)):
            yield 0, faults


def _is_within(some: tuple[int, int], other: tuple[int, int]) -> bool:
    return some[0] <= other[0] and some[1] <= other[1]


@pytest.mark.parametrize(
    "scenario",
    [scenario for scenario in OURS if IS_LONG or scenario.name in TELLING],
    ids=lambda scenario: scenario.name,
)
def test_nothing_is_lost_or_started_twice(scenario: Scenario, explore: Explorer):
    bounds = set(scenario.bounds if IS_LONG else _short(scenario))
    # Those within others have no schedules of their own.
    bounds = {
        some for some in bounds if not any(_is_within(some, other) for other in bounds - {some})
    }
    found = [explore(scenario, some) for some in bounds]

    assert [str(one) for one in found if one.wrong is not None] == []
    assert all(one.is_exhausted for one in found)
    assert sum(one.schedules for one in found) >= (AT_LEAST.get(scenario.name, 9) if IS_LONG else 3)


@pytest.mark.parametrize(
    ("name", "wrong", "schedule"),
    [
        ("pop without hash update", "task t-1 is pending for ever", ["old_1: dies after"]),
        ("two orphans of one listener", "task t-1 is reserved for ever", ["new_1"] * 10),
        ("claim then die", "task t-1 is reserved for ever", ["new_1", "new_1: dies after"]),
        (
            "finish twice",
            "task t-1 is failed, and 1 times in the list of complete tasks",
            ["old_1: answer lost", "old_1"],
        ),
    ],
)
def test_the_holes_of_1_0_0_are_found(
    name: str, wrong: str, schedule: list[str], explore: Explorer
):
    found = explore(SCENARIOS[name], (0, 1), is_shortest=True)

    assert (found.wrong, list(found.schedule)) == (wrong, schedule), str(found)


RUINED = [
    ("pop without hash update", ["old_1: dies after"]),
    ("finish twice", ["old_1: answer lost", "old_1"]),
]


@pytest.mark.parametrize("name", [name for name, _ in RUINED])
def test_what_1_0_0_does_to_its_own_task_when_a_fault_strikes_is_left_out(
    name: str, explore: Explorer
):
    found = explore(replace(SCENARIOS[name], frail=["old_1"]), (0, 1))

    assert found.wrong is None, str(found)
    assert found.is_exhausted


@pytest.mark.parametrize(("name", "schedule"), RUINED)
@pytest.mark.parametrize(
    "wrong_list", [keys.pending(QUEUE), keys.reserved(QUEUE, "a_1"), keys.cancelled(QUEUE)]
)
def test_what_another_does_to_that_task_is_not_left_out(
    name: str, schedule: list[str], wrong_list: str, explore: Explorer
):
    def rogue(world: World, redis: Redis) -> None:
        redis.read(("LPUSH", wrong_list, "t-1"))

    scenario = SCENARIOS[name]
    ground = explore.ground(
        replace(scenario, frail=["old_1"], actors={**scenario.actors, "rogue": rogue}), (0, 1)
    )

    assert "task t-1 is" in str(ground.run([*schedule, "rogue"]).wrong)


def test_every_hole_has_a_test():
    assert len(HOLES) == 4


def test_a_schedule_that_breaks_a_rule_breaks_it_again(explore: Explorer):
    found = explore(SCENARIOS["finish twice"], (0, 1))

    again = explore.ground(SCENARIOS["finish twice"], (0, 1)).run(found.schedule)

    assert (again.wrong, again.choices) == (found.wrong, found.schedule)
    assert [line.split()[0] for line in again.trace()] == [line.split()[0] for line in found.trace]


def test_a_schedule_that_cannot_be_followed_says_so(explore: Explorer):
    ground = explore.ground(SCENARIOS["claim then die"], (0, 1))

    assert str(ground.run(["new_1", "nobody"]).wrong).startswith(
        "cannot be replayed: 'nobody' is not among"
    )
    assert ground.run(["new_1"] * 99).wrong == "cannot be replayed: all was over before 'new_1'"


def one_enqueue(explore: Explorer, schedule: list[str]) -> tuple[list[str], Ground]:
    """Have one task enqueued by this schedule; return who sent what, and the ground."""
    scenario = Scenario("enqueue", nothing(), {"producer": produce}, [], drain=lambda world: None)
    ground = explore.ground(scenario, (0, 1))
    run = ground.run(schedule)
    return [line.split()[0] + " " + line.split()[-1] for line in run.trace()], ground


@pytest.mark.parametrize(
    ("fault", "tasks", "writes"),
    [
        (Fault.DIE_BEFORE, 0, 2),
        (Fault.DIE_AFTER, 1, 2),
        (Fault.LOSE, 1, 4),
        (Fault.REFUSE, 1, 4),
        (Fault.DELAY, 1, 5),
    ],
)
def test_each_fault_does_what_it_says(fault: Fault, tasks: int, writes: int, explore: Explorer):
    steps, ground = one_enqueue(explore, ["producer", f"producer: {fault}"])

    (names,) = ground.redis.read(("KEYS", "blueque_task_*"))
    assert (len(names), len(steps)) == (tasks, writes), steps


@pytest.mark.parametrize(("back", "tasks"), [(1, 1), (2, 0)])
def test_redis_goes_back_to_a_beginning_of_the_history(back: int, tasks: int, explore: Explorer):
    producer = by(produce, 2)
    scenario = Scenario("enqueue", nothing(), {"producer": producer}, [], faults=frozenset())
    ground = explore.ground(replace(scenario, drain=lambda world: None, goes_back=True), (0, 1))
    whole = ground.run()
    (first,) = ground.redis.read(("KEYS", "blueque_task_*"))
    assert whole.choices.pop() == END
    schedule = [*whole.choices, f"back: {back}"]

    run = ground.run(schedule)

    (left,) = ground.redis.read(("KEYS", "blueque_task_*"))
    assert (len(first), len(left), run.choices[: len(schedule)]) == (2, tasks, schedule)
    assert set(left) < set(first)


@pytest.mark.parametrize("is_reduced", [True, False])
def test_a_late_write_that_redis_refuses_arrives_at_once(is_reduced: bool):
    scenario = Scenario(
        "enqueue",
        nothing("a_1"),
        {"producer": produce, "a_1": by(work, "a_1")},
        [],
        faulty=["producer"],
    )
    with open_explorer(is_reduced=is_reduced) as explore:
        ground = explore.ground(scenario, (0, 1))
        run = ground.run(["producer", f"producer: {Fault.DELAY}"])

    places = [
        at
        for at, others in enumerate(run.others)
        if any(other.choice.startswith("deliver: ") for other in others)
    ]
    sent = [line.split()[0] for line in run.trace()]
    # Once the producer has looked again it enqueues the task itself, and then its first try is in
    # vain.
    if is_reduced:
        assert (places, sent.index("refused")) == ([3], 4)
    else:
        assert places == [*range(3, len(run.choices) - 1)]
    assert run.wrong is None
