"""Explores the scenarios.

`PYTHONPATH=tests:tests/legacy python tests/machinery/explore.py`:
`--long MINUTES` for larger bounds, `--scenario NAME` for one.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ground import Ground, Scenario
from scenarios import OURS, SCENARIOS
from stepper import Bounds, Stepper, without_pauses
from world import process_table

from blueque.connection.address import Address
from blueque.system.embedded_redis import running_server


class Exploration(NamedTuple):
    """What came of it. `schedule` and `trace` are of the first run that broke a rule; `wrong` tells
    which.
    """

    schedules: int
    is_exhausted: bool
    seconds: float
    wrong: str | None = None
    schedule: Sequence[str] = ()
    trace: Sequence[str] = ()

    def __str__(self) -> str:
        extent = "exhausted" if self.is_exhausted else "not exhausted"
        told = f"{self.schedules} schedules in {self.seconds:.1f} s, {extent}"
        if self.wrong is None:
            return told
        return "\n".join(
            [f"{told}: {self.wrong}", *self.trace, f"schedule = {list(self.schedule)!r}"]
        )


class Waiting:
    """The beginnings of schedules that are still to be run, by the number of their interruptions
    and faults.
    """

    def __init__(self, chance: random.Random | None) -> None:
        self._prefixes: dict[int, list[tuple[str, ...]]] = {0: [()]}
        self._chance = chance

    @property
    def least(self) -> float:
        """The smallest of these numbers; infinite when nothing waits."""
        return min(self._prefixes, default=float("inf"))

    def take(self) -> tuple[str, ...]:
        """Return one of those with the smallest number."""
        cost = min(self._prefixes)
        some = self._prefixes[cost]
        if self._chance is not None:
            place = self._chance.randrange(len(some))
            some[place], some[-1] = some[-1], some[place]
        prefix = some.pop()
        if not some:
            del self._prefixes[cost]
        return prefix

    def branch(self, stepper: Stepper, start: int) -> None:
        """Have every other choice tried that a run had from the place `start` on."""
        for place in range(start, len(stepper.choices)):
            before = stepper.costs[place - 1] if place else 0
            for option in stepper.others[place]:
                cost = before + option.preemptions + option.faults
                self._prefixes.setdefault(cost, []).append(
                    (*stepper.choices[:place], option.choice)
                )


def explore(
    run: Callable[[Sequence[str]], Stepper],
    *,
    seconds: float = float("inf"),
    is_shortest: bool = False,
    chance: random.Random | None = None,
) -> Exploration:
    """Run every schedule, those with the fewest interruptions and faults first, until one breaks a
    rule.

    run: makes one run that begins with these choices. seconds: when to stop.
    is_shortest: go on until there can be no shorter schedule that breaks one.
    chance: draws the next of those with equally many, so that another time another part of a large
        space is seen.
    """
    began = time.monotonic()
    waiting = Waiting(chance)
    count, worst, limit = 0, None, float("inf")
    while (
        waiting.least < float("inf")
        and waiting.least <= limit
        and time.monotonic() - began < seconds
    ):
        cost, prefix = waiting.least, waiting.take()
        stepper = run(prefix)
        count += 1
        if stepper.wrong is None:
            waiting.branch(stepper, len(prefix))
        elif worst is None or len(stepper.choices) < len(worst.choices):
            worst, limit = stepper, cost
            if not is_shortest:
                break
    spent = time.monotonic() - began
    if worst is not None:
        return Exploration(count, False, spent, worst.wrong, worst.choices, worst.trace())
    return Exploration(count, waiting.least == float("inf"), spent)


class Explorer:
    """Explores scenarios on one server; is_reduced: see Stepper."""

    def __init__(self, address: Address, is_reduced: bool) -> None:
        self._address, self._is_reduced = address, is_reduced

    def ground(self, scenario: Scenario, bounds: tuple[int, int]) -> Ground:
        return Ground(self._address, scenario, Bounds(*bounds), self._is_reduced)

    def __call__(self, scenario: Scenario, bounds: tuple[int, int], **limits: Any) -> Exploration:
        """Explore a scenario within these bounds; limits: see `explore`."""
        ground = self.ground(scenario, bounds)
        try:
            return explore(ground.run, **limits)
        finally:
            ground.close()


@contextmanager
def open_explorer(*, is_reduced: bool = True) -> Iterator[Explorer]:
    """Have a server and an explorer, for whom no time passes between two tries."""
    log = logging.getLogger("blueque")
    with (
        running_server("--unixsocket", "redis.sock", "--appendonly", "no") as server,
        without_pauses(),
        process_table(),
    ):
        was_disabled, log.disabled = log.disabled, True
        try:
            yield Explorer(Address(f"unix://{server.directory}/redis.sock"), is_reduced)
        finally:
            log.disabled = was_disabled


def soak(minutes: float, names: Sequence[str] = ()) -> int:
    """Explore the longer bounds of these scenarios, or of all, for so long, unreduced; return how
    many broke a rule.
    """
    chosen = [SCENARIOS[name] for name in names] or OURS
    seed = random.randrange(2**32)
    print(f"seed {seed}", flush=True)
    spaces = [(scenario, pair) for scenario in chosen for pair in scenario.longer_bounds()]
    return _print_all(spaces, minutes * 60, random.Random(seed), is_reduced=False)


def _print_all(
    spaces: Sequence[tuple[Scenario, tuple[int, int]]],
    seconds: float = float("inf"),
    chance: random.Random | None = None,
    is_reduced: bool = True,
) -> int:
    broken, began = 0, time.monotonic()
    with open_explorer(is_reduced=is_reduced) as explorer:
        for place, (scenario, pair) in enumerate(spaces):
            share = (seconds - (time.monotonic() - began)) / (len(spaces) - place)
            found = explorer(scenario, pair, seconds=share, chance=chance)
            print(f"{scenario.name}, {pair[0]} preemptions, {pair[1]} faults: {found}", flush=True)
            broken += found.wrong is not None
    return broken


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--long", type=float, metavar="MINUTES", help="explore further, for so long"
    )
    parser.add_argument(
        "--scenario",
        action="append",
        choices=SCENARIOS,
        metavar="NAME",
        default=[],
        help="only this one",
    )
    given = parser.parse_args(argv)
    if given.long:
        return min(soak(given.long, given.scenario), 1)
    chosen = [SCENARIOS[name] for name in given.scenario] or OURS
    return min(_print_all([(scenario, pair) for scenario in chosen for pair in scenario.bounds]), 1)


if __name__ == "__main__":
    sys.exit(main())
