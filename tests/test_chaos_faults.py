"""The injector of chaos: it notes for how long a node was really away, and is not held up by what it waits for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chaos import Chaos
from chaos_faults import FAULTS
from chaos_stage import now, open_stage
from running import until


@pytest.fixture(scope="module")
def chaos(tmp_path_factory) -> Iterator[Chaos]:
    with open_stage(tmp_path_factory.mktemp("chaos"), 1) as stage:
        stage.open()
        yield Chaos(stage, 1)


def strike(chaos: Chaos, name: str) -> str:
    def struck() -> str | None:
        chaos._look()
        return FAULTS[name](chaos._injector)

    return until(struck, what="a node in the midst of work")


@pytest.mark.parametrize("name", [
    "freeze_node", "crash_node_beyond_lost_after", "kill_master", "leave_and_start_again", "kill_redis", "freeze_redis",
    "delay_network", "cut_network", "stall_network", "cut_off_node_beyond_lost_after",
])
def test_a_node_counts_as_away_for_as_long_as_it_was_and_not_as_was_meant(chaos, name):
    injector, began = chaos._injector, now()
    before = len(injector.away)

    strike(chaos, name)
    injector.finish()

    away = injector.away[before:]
    assert away
    assert all(began <= span.since < span.until <= now() for span in away)


def test_nobody_waits_for_a_transaction_that_can_be_cut(chaos):
    injector, wires = chaos._injector, chaos._stage.wires
    until(lambda: chaos._look() or injector._runs(), what="work")
    for wire in wires:
        wire.stall()
    began = now()

    at_once, took = injector.cut_after_exec(), now() - began

    for wire in wires:
        wire.heal()
    assert (at_once, took < 1.5) == (None, True)
    assert strike(chaos, "cut_after_exec")
