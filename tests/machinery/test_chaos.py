"""The short form of real chaos: every kind of fault at least once, and no promise broken. bin/soak
has the long form.
"""

from __future__ import annotations

import os

import pytest
from chaos import chaos
from chaos_services import SERVICES

SECONDS = 10.0  # of faults, if each kind has struck by then; the rest takes some more


@pytest.mark.parametrize("redis", [*SERVICES])
def test_nothing_is_lost_or_run_twice_unasked_whatever_dies_freezes_or_is_cut_off(tmp_path, redis):
    run = chaos(SECONDS, int.from_bytes(os.urandom(2), "big"), tmp_path, service=redis)

    print(run.report())
    assert run.wrong == []
    measured = {whose for whose, _ in run.stage.steady.usage.of}
    assert measured == {"master", "slots", "keepers", "scheduler", "page", "spool", "Redis"}
