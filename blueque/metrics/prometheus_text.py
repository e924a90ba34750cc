"""Exposition: numbers as Prometheus reads them, in its text format, version 0.0.4.

A name is given without the prefix that they all have. Pure functions, for whoever has the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from blueque.model import histogram, keys

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Upper bounds in seconds. Each is where one of Qless's buckets ends, so that no count has to be
# guessed.
BOUNDS = (1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800)

Labels = Mapping[str, str]


class Sample(NamedTuple):
    """A value. suffix: what follows the name of its family."""

    labels: Labels
    value: float
    suffix: str = ""


class Family(NamedTuple):
    """All values of one name. kind: gauge, counter or histogram. told: what it is, in a sentence
    without a full stop.
    """

    name: str
    kind: str
    told: str
    samples: Sequence[Sample]


def text(families: Iterable[Family]) -> str:
    """Return the whole text."""
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def histogram_samples(labels: Labels, buckets: Mapping[int, int], seconds: float) -> list[Sample]:
    """Return the samples of a histogram. buckets: how many by number of Qless's bucket. seconds:
    their sum.
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


def _lines(family: Family) -> Iterator[str]:
    name = keys.PREFIX + family.name
    yield f"# HELP {name} {family.told}."
    yield f"# TYPE {name} {family.kind}"
    for labels, value, suffix in family.samples:
        pairs = ",".join(f'{label}="{_escaped(said)}"' for label, said in labels.items())
        yield f"{name}{suffix}{f'{{{pairs}}}' if pairs else ''} {_number(value)}"


def _escaped(said: str) -> str:
    whole = said.encode("utf-8", "backslashreplace").decode()  # a name that was no UTF-8
    return whole.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
