"""Qless's buckets for durations: seconds up to a minute, minutes to an hour, hours to a day, then days.

Histograms with the same buckets can be added: of several queues, days, or parts of a run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

LAST_DAY = 366  # this bucket holds all longer durations, too
NAMES = tuple(
    f"{unit}{count}"
    for unit, first, end in (("s", 0, 60), ("m", 1, 60), ("h", 1, 24), ("d", 1, LAST_DAY + 1))
    for count in range(first, end)
)
# For each unit: the number of its first bucket, and the width of its buckets in seconds.
_UNITS = ((86400, NAMES.index("d1")), (3600, NAMES.index("h1")), (60, NAMES.index("m1")), (1, 0))


def bucket(seconds: float) -> int:
    """Return the number of the bucket for a duration; its name is NAMES[number].

    seconds: less than 0 counts as 0, because the clocks of two machines may differ.
    """
    last = len(NAMES) - 1
    if seconds >= LAST_DAY * 86400:
        return last
    for unit, first in _UNITS:
        if seconds >= unit:
            return first + int(seconds / unit) - (unit > 1)
    return 0


def start(number: int) -> float:
    """Return the shortest duration of a bucket, in seconds."""
    for unit, first in _UNITS:
        if number >= first:
            return float((number - first + (unit > 1)) * unit)
    raise IndexError(number)


def end(number: int) -> float:
    """Return the end of a bucket, in seconds, which belongs to the next bucket. The last one has no end."""
    return start(number + 1) if number < len(NAMES) - 1 else math.inf


def quantile(
    counts: Mapping[int, int], share: float, least: float = 0.0, most: float = math.inf
) -> float | None:
    """Estimate the duration that this share does not exceed, to the width of a bucket.

    None: nothing was counted. In the last bucket it is its start.
    counts: how many by number of bucket. share: 0 to 1.
    least, most: other bounds of the result, which narrow the bucket.
    """
    wanted = share * sum(counts.values())
    seen = 0
    for number in sorted(number for number, count in counts.items() if count):
        if seen + counts[number] >= wanted:
            low, high = start(number), end(number)
            low, high = min(max(low, least), high), max(min(high, most), low)
            high = max(low, high)
            return (
                low
                if math.isinf(high)
                else low + (high - low) * max(wanted - seen, 0) / counts[number]
            )
        seen += counts[number]
    return None
