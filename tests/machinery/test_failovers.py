"""The short form of failovers under running tasks: one of each kind. bin/soak --failover has 30 in
20 minutes, for each setting of replicas.
"""

from __future__ import annotations

import logging
import os

from failovers import Pace, fail_over
from sentinels import FAULTS

QUICK = Pace(task=(1.0, 4.0), held=1.0, at_once=True)


def test_with_replicas_that_confirm_nothing_is_lost_or_run_twice_in_a_failover(tmp_path, caplog):
    caplog.set_level(logging.CRITICAL, "blueque")
    seed = int.from_bytes(os.urandom(2), "big")

    run = fail_over("replicas", tmp_path, seed, 0.0, len(FAULTS), pace=QUICK)

    print(run.report())
    assert run.wrong == []
    assert [run.table[f"  {kind}"] for kind in FAULTS] == [1] * len(FAULTS)
