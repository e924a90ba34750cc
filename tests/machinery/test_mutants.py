"""Does the explorer notice when a guard is missing? Each of these has to be caught by the scenario
that is named for it.

With BLUEQUE_SOAK it leaves out no schedules: see Stepper.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from explore import Explorer, open_explorer
from mutants import EQUIVALENT, IN_THE_MODEL, IN_THE_SCHEDULES, MUTANTS, Mutant, applied, mutated
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


def test_a_mutant_that_does_not_apply_any_more_fails():
    stale = MUTANTS[0]._replace(before="if it were so:")

    with pytest.raises(AssertionError, match="0 times in _create_drawn: mend the mutant"):
        mutated(stale)


def test_no_mutant_is_called_equivalent():
    assert (
        not {mutant.name for mutant in [*MUTANTS, *IN_THE_MODEL, *IN_THE_SCHEDULES]}
        & EQUIVALENT.keys()
    )
