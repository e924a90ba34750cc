"""Selection: in which order a listener of several queues tries those that have work.

A selector is any callable that takes the queues of the listener, a list in the order in which they
were named, and those of them that had work a moment ago, a set, in no order, and returns the queues
to be tried, any iterable, the first one first. A task may be gone by the time that it is asked for;
then the next one is tried. When nothing comes of any of them, the listener waits for all its
queues, not for one. Queues with work that a selector leaves out are tried last.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from blueque.errors import InvalidInput, InvalidType

NAMES = ("ordered", "round-robin", "lottery")

Select = Callable[[Sequence[str], Collection[str]], Iterable[str]]


class Ordered:
    """The first queue as long as it has work, then the second, and so on: the later ones may wait
    for ever.
    """

    def __call__(self, queues: Sequence[str], ready: Collection[str]) -> Iterator[str]:
        return (queue for queue in queues if queue in ready)


class RoundRobin:
    """The queues in turn, a task of each, beginning after the one that gave the last task."""

    def __init__(self) -> None:
        self._last: str | None = None

    def __call__(self, queues: Sequence[str], ready: Collection[str]) -> Iterator[str]:
        before = self._last
        first = queues.index(before) + 1 if before in queues else 0
        for queue in (*queues[first:], *queues[:first]):
            if queue in ready:
                self._last = queue  # if we are not asked again, it has given a task
                yield queue
        self._last = before


class ReducedLottery:
    """A draw among all queues, each with a chance in proportion to its weight. One that is empty
    leaves the pool, and it is
    drawn again, until one has work: so each gets its share while it has work, and none waits for
        ever.

    weights: above 0, by queue; 1 for a queue that is not mentioned.
    random: returns a number from 0 up to, not including, 1.
    Source: Kale's ReducedLottery.
    """

    def __init__(
        self, weights: Mapping[str, float] | None = None, random: Callable[[], float] | None = None
    ) -> None:
        self._weights = {queue: require_weight(weight) for queue, weight in (weights or {}).items()}
        self._random = random or _random

    def __call__(self, queues: Sequence[str], ready: Collection[str]) -> Iterator[str]:
        pool = list(queues)
        while pool:
            winner = self._draw(pool)
            pool.remove(winner)
            if winner in ready:
                yield winner

    def _draw(self, pool: Sequence[str]) -> str:
        weights = [self._weights.get(queue, 1.0) for queue in pool]
        ticket = self._random() * sum(weights)
        for queue, weight in zip(pool, weights, strict=True):
            ticket -= weight
            if ticket < 0:
                return queue
        return pool[-1]  # what floats have lost


def selector(name: str, weights: Mapping[str, float]) -> Select:
    """Return the selector of that name, one of NAMES; weights: for a lottery."""
    if name == "lottery":
        return ReducedLottery(weights)
    return RoundRobin() if name == "round-robin" else Ordered()


def require_select(select: object) -> Select | None:
    """Return a selector, or None, if it is one or the other."""
    if select is not None and (not callable(select) or isinstance(select, type)):
        given = f"the class {select.__name__}" if isinstance(select, type) else repr(select)
        raise InvalidType(
            f"select is a blueque.Ordered(), RoundRobin(), ReducedLottery(), or a callable that is like them, not {given}"
        )
    return select


def require_weight(weight: object) -> float:
    """Return the weight of a queue in a lottery, if it is one."""
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise InvalidType(f"a weight is a number, not {type(weight).__name__}")
    if not 0 < weight <= 1e9:  # NaN is neither
        raise InvalidInput(f"a weight is above 0 and at most 1000000000, not {weight}")
    return float(weight)


def _random() -> float:
    # Not the random module: see pauses.py.
    return int.from_bytes(os.urandom(7)) / 2**56
