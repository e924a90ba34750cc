"""Times by which a listener shows that it lives: what is given, what is not, and what is refused."""

from __future__ import annotations

import pytest

from blueque import InvalidInput
from blueque.model.units import Timing, timing


def test_a_time_to_be_lost_that_is_shorter_than_the_lease_shortens_the_lease():
    assert timing(lost_after=40, environ={}) == Timing(10.0, 40.0, 40.0)


@pytest.mark.parametrize(
    ("beat", "lease", "lost_after", "complaint"),
    [
        (10, 29, None, "lease is 29 s"),
        (10, None, 29, "lost_after is 29 s"),
        (float("nan"), None, None, "nan"),
        (1, float("nan"), None, "nan"),
        (0, None, None, "every 0 s"),
        (float("inf"), None, None, "every inf s"),
    ],
)
def test_times_that_would_make_the_living_look_dead_are_refused(beat, lease, lost_after, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        timing(beat, lease, lost_after, {})
