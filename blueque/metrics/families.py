"""Families of metrics, as prometheus_client takes them. Names are given without their common prefix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from prometheus_client.core import Metric

from blueque.model import histogram, keys
from blueque.text.format import clean

# Upper bounds in seconds. Each is the end of one of Qless's buckets, so that the counts are exact.
BOUNDS = (1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800)

Labels = Mapping[str, str]


class Sample(NamedTuple):
    """A value. suffix: follows the name of its family."""

    labels: Labels
    value: float
    suffix: str = ""


def family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Metric:
    """Return all values of one name.

    kind: gauge, counter or histogram. text: one sentence without a full stop.
    """
    named = keys.PREFIX + name
    # It adds _total to the name of a counter itself.
    metric = Metric(named.removesuffix("_total"), f"{text}.", kind)
    for labels, value, suffix in samples:
        readable = {label: _utf8(of_label) for label, of_label in labels.items()}
        metric.add_sample(named + suffix, readable, value)
    return metric


def histogram_samples(labels: Labels, buckets: Mapping[int, int], seconds: float) -> list[Sample]:
    """Return the samples of a histogram.

    buckets: the count of each of Qless's buckets, by its number. seconds: the sum.
    """
    ends = [(histogram.end(number), count) for number, count in buckets.items()]
    below = {bound: sum(count for end, count in ends if end <= bound) for bound in BOUNDS}
    count = sum(buckets.values())
    return [
        *(
            Sample({**labels, "le": str(bound)}, number, "_bucket")
            for bound, number in below.items()
        ),
        Sample({**labels, "le": "+Inf"}, count, "_bucket"),
        Sample(labels, seconds, "_sum"),
        Sample(labels, count, "_count"),
    ]


def _utf8(text: str) -> str:
    """Return a queue name with escapes for unprintable characters and bytes that are not UTF-8."""
    lines = text.encode("utf-8", "backslashreplace").decode().split("\n")
    return "\n".join(map(clean, lines))
