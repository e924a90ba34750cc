"""Do the models notice what the explorer cannot see?

These are not in test_mutants.py: while its explorer is open, a model fails without any mutant, since
fewer dependents are settled at once than the model settles.
"""

from __future__ import annotations

import pytest
from mutants import IN_THE_MODEL, IN_THE_SCHEDULES, Mutant, applied
from schedule_rules import ScheduleMachine
from test_model import run

EXAMPLES = 500  # most are noticed in the first ten, two after about thirty


@pytest.mark.parametrize("mutant", IN_THE_MODEL, ids=lambda mutant: mutant.name)
def test_what_the_explorer_cannot_see_is_noticed_by_the_model(mutant: Mutant, url: str):
    with applied(mutant), pytest.raises(AssertionError, match="QueueMachine"):
        run(url, EXAMPLES, is_shrunk=False)


@pytest.mark.parametrize("mutant", IN_THE_SCHEDULES, ids=lambda mutant: mutant.name)
def test_what_comes_of_schedules_otherwise_is_noticed_by_their_model(mutant: Mutant, url: str):
    with applied(mutant), pytest.raises(AssertionError, match="Redis"):
        run(url, EXAMPLES, is_shrunk=False, machine=ScheduleMachine)
