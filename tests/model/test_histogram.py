"""Qless's buckets: every duration has one, and they follow each other without a gap."""

from __future__ import annotations

import math
import statistics
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from blueque.model import histogram

DAY = 86400


def test_there_are_as_many_as_qless_has_and_days_up_to_a_year():
    assert histogram.NAMES.index("d6") + 1 == 148
    assert histogram.NAMES[-1] == f"d{histogram.LAST_DAY}"
    assert len({*histogram.NAMES}) == len(histogram.NAMES)


@settings(max_examples=50)
@given(
    st.lists(st.floats(0, 300 * DAY), min_size=1, max_size=50),
    st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]),
)
def test_a_quantile_is_right_to_the_width_of_a_bucket(durations, share):
    counts = Counter(map(histogram.bucket, durations))
    exact = sorted(durations)[max(math.ceil(share * len(durations)) - 1, 0)]

    found = histogram.quantile(counts, share)

    assert found is not None
    number = histogram.bucket(exact)
    assert histogram.start(number) <= found <= histogram.end(number)


def test_a_quantile_lies_within_its_bucket_as_far_as_counts_say():
    even = {histogram.bucket(60): 10}  # somewhere in 60 ... 120 s: evenly, for all we know

    assert histogram.quantile(even, 0.5) == statistics.fmean((60, 120))
    assert histogram.quantile(even, 1.0) == 120
    assert histogram.quantile({histogram.bucket(math.inf): 3}, 0.5) == 366 * DAY
    assert histogram.quantile({}, 0.5) is None
    assert histogram.quantile({4: 0}, 0.5) is None
