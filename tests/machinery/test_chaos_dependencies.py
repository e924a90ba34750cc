"""The short form of a chain and a crowd of tasks whose listeners and schedulers are killed. bin/soak
has the long form.
"""

from __future__ import annotations

import os

from chaos_dependencies import chaos


def test_each_task_begins_once_and_after_those_for_which_it_waits_whoever_is_killed(tmp_path):
    wrong, report = chaos(40, 300, int.from_bytes(os.urandom(2), "big"), tmp_path)

    print(report)
    assert wrong == []
