"""The short form of real chaos: every kind of fault at least once, and no promise broken. bin/soak has the long form."""

from __future__ import annotations

import os

import pytest
from chaos import chaos, report
from chaos_ledger import Away, Promise, Run, crowds

SECONDS = 20.0                                         # of faults, if each kind has struck by then; the rest takes some more


def test_nothing_is_lost_or_run_twice_unasked_whatever_dies_freezes_or_is_cut_off(tmp_path):
    run = chaos(SECONDS, int.from_bytes(os.urandom(2), "big"), tmp_path)

    print(report(run), (tmp_path / "chaos.log").read_text(), sep="\n")
    assert run.wrong == []


@pytest.mark.parametrize(
    ("limit", "away", "crowd"),
    [(1, [], 1), (2, [], 0), (1, [Away("a", "frozen", 1.0, 9.0)], 0), (1, [Away("b", "frozen", 1.0, 9.0)], 1)],
)
def test_a_lock_that_too_many_hold_is_noticed_unless_a_node_was_away(limit, away, crowd):
    runs = [
        Run("t1", 1, 11, 1, "a", began=0.5, seen=6.0), Run("t2", 1, 12, 2, "b", began=5.0, seen=7.0),
        Run("t3", 1, 13, 3, "b", began=7.5, seen=8.0), Run("free", 1, 14, 3, "b", began=0.0, seen=9.0),
    ]
    tasks = {task: Promise(lock="one" if task != "free" else None) for task in ("t1", "t2", "t3", "free")}

    held, wrong = crowds(runs, tasks, away, {"one": limit}, 3.0)

    assert (held, len(wrong)) == (3, crowd)
