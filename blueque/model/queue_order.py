"""The order in which a listener of several queues tries them.

A selector is any callable `select(queues, with_work)` that returns an iterable of queues to try, in
order.
queues: a list of all queues, in the order in which they were named.
with_work: the set of those that had work a moment ago.

The listener takes one task from the first queue that still has one. It tries queues that the
selector leaves out last. If no queue has a task, it waits for all of them. It does not call the
selector when only the queue of the previous task has work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from blueque.errors import InvalidInput, InvalidType

NAMES = ("ordered", "round-robin", "lottery")

Select = Callable[[Sequence[str], Collection[str]], Iterable[str]]


class Ordered:
    """Take from the first queue that has work. Later queues may wait for ever."""

    def __call__(self, queues: Sequence[str], ready: Collection[str]) -> Iterator[str]:
        return (queue for queue in queues if queue in ready)


class RoundRobin:
    """Take one task from each queue in turn, starting after the queue of the last task."""

    def __init__(self) -> None:
        self._last: str | None = None

    def __call__(self, queues: Sequence[str], ready: Collection[str]) -> Iterator[str]:
        before = self._last
        first = queues.index(before) + 1 if before in queues else 0
        for queue in (*queues[first:], *queues[:first]):
            if queue in ready:
                self._last = queue  # without another draw, this queue has given a task
                yield queue
        self._last = before


class ReducedLottery:
    """Draw a queue at random, with a chance in proportion to its weight.

    Only queues with work take part, so each of them gets its share and none waits for ever.
    weights: above 0, by queue; 1 for a queue that is not mentioned.
    random: returns a number from 0 up to, not including, 1.
    Raises InvalidInput, InvalidType for a wrong weight.
    Source: Kale's ReducedLottery.
    """

    def __init__(
        self, weights: Mapping[str, float] | None = None, random: Callable[[], float] | None = None
    ) -> None:
        self._weights = {queue: require_weight(weight) for queue, weight in (weights or {}).items()}
        self._random = random or _random

    def weigh(self, queue: str, weight: float) -> None:
        """Give a queue another weight. Raises InvalidInput, InvalidType."""
        self._weights[queue] = require_weight(weight)

    def __call__(self, queues: Sequence[str], ready: Collection[str]) -> Iterator[str]:
        pool = [queue for queue in queues if queue in ready]
        while pool:
            winner = self._draw(pool)
            pool.remove(winner)
            yield winner

    def _draw(self, pool: Sequence[str]) -> str:
        weights = [self._weights.get(queue, 1.0) for queue in pool]
        ticket = self._random() * sum(weights)
        for queue, weight in zip(pool, weights, strict=True):
            ticket -= weight
            if ticket < 0:
                return queue
        return pool[-1]  # rounding may leave a rest


def is_own_select(name: str) -> bool:
    """Return whether this names a selector of the user, as `package.module:callable`."""
    return ":" in name


def selector(name: str, weights: Mapping[str, float]) -> Select:
    """Return the selector with this name, one of NAMES. weights: for the lottery."""
    if name == "lottery":
        return ReducedLottery(weights)
    return RoundRobin() if name == "round-robin" else Ordered()


def require_select(select: object) -> Select | None:
    """Return the value if it is a selector or None. Raises InvalidType."""
    if select is not None and (not callable(select) or isinstance(select, type)):
        given = f"the class {select.__name__}" if isinstance(select, type) else repr(select)
        raise InvalidType(
            f"select is a blueque.Ordered(), RoundRobin(), ReducedLottery(), or a callable that is like them, not {given}"
        )
    return select


def require_weight(weight: object) -> float:
    """Return a valid weight of a queue in a lottery. Raises InvalidType, InvalidInput."""
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise InvalidType(f"a weight is a number, not {type(weight).__name__}")
    if not 0 < weight <= 1e9:  # NaN is neither
        raise InvalidInput(f"a weight is above 0 and at most 1000000000, not {weight}")
    return float(weight)


def _random() -> float:
    # Not the random module: see backoff.py.
    return int.from_bytes(os.urandom(7)) / 2**56
