"""The injector of chaos: it notes for how long a node was really away, and is not held up by what
it waits for.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chaos import Chaos
from chaos_injector import ADOPTED_WITHIN
from chaos_ledger import now
from chaos_node import QUEUE
from chaos_stage import open_stage
from running import until


@pytest.fixture(scope="module")
def chaos(tmp_path_factory) -> Iterator[Chaos]:
    with open_stage(tmp_path_factory.mktemp("chaos"), 1) as stage:
        stage.open()
        yield Chaos(stage, 1)


@pytest.fixture(autouse=True)
def no_traces() -> None:
    """The stage is that of all tests here, and all its programs and connections go on from one test
    to the next.
    """


def strike(chaos: Chaos, name: str) -> str:
    def struck() -> str | None:
        chaos.look()
        return chaos.injector.faults[name]()

    return until(struck, what="a node in the midst of work")


@pytest.mark.parametrize(
    "name",
    [
        "freeze_node",
        "crash_node_beyond_lost_after",
        "kill_master",
        "leave_and_start_again",
        "kill_redis",
        "freeze_redis",
        "delay_network",
        "cut_network",
        "stall_network",
        "cut_off_node_beyond_lost_after",
    ],
)
def test_a_node_counts_as_away_for_as_long_as_it_was_and_not_as_was_meant(chaos, name):
    injector, began = chaos.injector, now()
    before = len(injector.away)

    strike(chaos, name)
    injector.finish()

    away = injector.away[before:]
    assert away
    assert all(began <= span.since < span.until <= now() for span in away)


def test_a_listener_that_is_thawed_before_its_lease_is_over_has_not_left_its_task(chaos):
    task = chaos.stage.control.get_queue(QUEUE).enqueue(f"nap {ADOPTED_WITHIN + 3.0}", priority=9)
    until(
        lambda: chaos.look() or any(run.task == task for run in chaos.injector.running()),
        what="the task",
    )

    said = strike(chaos, "freeze_listener_beyond_lease")
    chaos.injector.finish()

    assert task in said
    assert chaos.injector.unadopted == []


def test_a_task_that_ends_while_its_listener_is_frozen_has_nobody_to_tell_of_it(chaos):
    injector = chaos.injector
    said = strike(chaos, "freeze_listener_beyond_lease")
    (run,) = [run for run in injector.running() if run.task in said]
    for wire in chaos.stage.wires:
        wire.stall()  # nobody shall adopt it
    # A process may run further tasks, so its end is not that of the task.
    until(lambda: injector.work() or run not in injector.running(), what="the end of the task")
    injector.work()
    ended = now()

    for wire in chaos.stage.wires:
        wire.heal()
    injector.finish()

    assert injector.away[-1].until >= ended


def test_nobody_waits_for_a_transaction_that_can_be_cut(chaos):
    injector, wires = chaos.injector, chaos.stage.wires
    until(lambda: chaos.look() or injector.running(), what="work")
    for wire in wires:
        wire.stall()
    began = now()

    at_once, took = injector.cut_after_exec(), now() - began

    for wire in wires:
        wire.heal()
    assert (at_once, took < 1.5) == (None, True)
    assert strike(chaos, "cut_after_exec")
