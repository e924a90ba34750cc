"""Hand families of metrics to prometheus_client, which writes them as text.

Names are given without the prefix that all of them have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.errors import NotInstalled
from blueque.model import histogram, keys
from blueque.text.format import clean

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Upper bounds in seconds. Each is the end of one of Qless's buckets, so that the counts are exact.
BOUNDS = (1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800)

Labels = Mapping[str, str]


class Sample(NamedTuple):
    """A value. suffix: what follows the name of its family."""

    labels: Labels
    value: float
    suffix: str = ""


class Family(NamedTuple):
    """All values of one name.

    kind: gauge, counter or histogram. help: one sentence without a full stop.
    """

    name: str
    kind: str
    help: str
    samples: Sequence[Sample]


class _Collector:
    def __init__(self, families: Callable[[], Iterable[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return map(_metric, self._families())


def registry(families: Callable[[], Iterable[Family]]) -> CollectorRegistry:
    """Return a registry that calls `families` at each scrape. Raises NotInstalled."""
    try:
        from prometheus_client import CollectorRegistry  # here: an extra
    except ImportError as error:
        raise NotInstalled("serving metrics", "prometheus-client", "metrics") from error
    found = CollectorRegistry()
    found.register(_Collector(families))
    return found


def text(registry: CollectorRegistry) -> str:
    """Return what the registry collects, in version 0.0.4 of the text format."""
    from prometheus_client import generate_latest  # here: an extra

    return generate_latest(registry).decode()


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


def _metric(family: Family) -> Metric:
    from prometheus_client.core import Metric  # here: an extra

    name = keys.PREFIX + family.name
    # It adds _total to the name of a counter itself.
    metric = Metric(name.removesuffix("_total"), f"{family.help}.", family.kind)
    for labels, value, suffix in family.samples:
        readable = {label: _utf8(text) for label, text in labels.items()}
        metric.add_sample(name + suffix, readable, value)
    return metric


def _utf8(text: str) -> str:
    """Return a name of a queue with escapes for what was not UTF-8 and what cannot be printed."""
    lines = text.encode("utf-8", "backslashreplace").decode().split("\n")
    return "\n".join(map(clean, lines))
