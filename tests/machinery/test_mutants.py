"""Does the explorer notice when a guard is missing? Each of these has to be caught by the scenario
that is named for it, or by the test.

With BLUEQUE_SOAK it leaves out no schedules: see Stepper.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from explore import Explorer, open_explorer
from mutants import EQUIVALENT, IN_TESTS, MUTANTS, Mutant, applied, mutated
from running import ROOT
from scenarios import SCENARIOS


@pytest.fixture(scope="module")
def explore() -> Iterator[Explorer]:
    with open_explorer(is_reduced=not os.environ.get("BLUEQUE_SOAK")) as explore:
        yield explore


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_missing_guard_is_noticed(mutant: Mutant, explore: Explorer):
    with applied(mutant):
        found = explore(SCENARIOS[mutant.scenario], mutant.bounds)

    assert found.wrong is not None, f"survived {found}"
    assert "cannot be replayed" not in found.wrong and "broke" not in found.wrong, str(found)


@pytest.mark.parametrize("mutant", IN_TESTS, ids=lambda mutant: mutant.name)
def test_what_the_explorer_cannot_see_is_noticed_by_a_test(mutant: Mutant):
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "mutants", "-p", "no:xdist", mutant.scenario],
        cwd=ROOT,
        env={**os.environ, "MUTANT": mutant.name, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )

    assert ran.returncode == pytest.ExitCode.TESTS_FAILED, ran.stdout + ran.stderr


def test_a_mutant_that_does_not_apply_any_more_fails():
    stale = MUTANTS[0]._replace(before="if it were so:")

    with pytest.raises(AssertionError, match="0 times in _create_drawn: mend the mutant"):
        mutated(stale)


def test_no_mutant_is_called_equivalent():
    assert not {mutant.name for mutant in [*MUTANTS, *IN_TESTS]} & EQUIVALENT.keys()
