"""The short form of schedules that fire while schedulers and listeners are killed. bin/soak has the
long form.
"""

from __future__ import annotations

import os

from chaos_schedules import Sizes, chaos


def test_each_planned_time_comes_to_one_task_or_one_reason_whoever_is_killed(tmp_path):
    sizes = Sizes(schedulers=2, listeners=3, schedules=12, seconds=4.0)
    wrong, report = chaos(sizes, int.from_bytes(os.urandom(2), "big"), tmp_path)

    print(report)
    assert wrong == []
