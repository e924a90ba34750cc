"""A model of the queue in pure Python beside a real Redis: after any operation, in any order, both say the same.

`python tests/test_model.py --examples 5000` goes on for longer than the suite does; `soak(seconds)` is for bin/soak.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from machine import own_clock
from rules import QueueMachine

from blueque.embedded import running_server

EXAMPLES = 150                                         # BLUEQUE_MODEL_EXAMPLES asks for another number
STEPS = 40

FLOORS = {}


def test_redis_and_the_model_of_it_say_the_same_whatever_is_done():
    examples = int(os.environ.get("BLUEQUE_MODEL_EXAMPLES", EXAMPLES))
    with running_server() as server:
        tally = run(server.url, examples)
    if examples >= EXAMPLES:
        assert shortages(tally) == {}


def run(url: str, examples: int, is_random: bool = False) -> Counter[str]:
    """Run so many examples on that Redis, which is emptied; return how often what has happened.

    is_random: other examples each time; otherwise always the same, and what fails, fails again.
    """
    tally: Counter[str] = Counter()
    wanted = settings(
        max_examples=examples, stateful_step_count=STEPS, deadline=None, derandomize=not is_random, database=None,
        print_blob=is_random, suppress_health_check=list(HealthCheck),
    )
    with own_clock():
        run_state_machine_as_test(lambda: QueueMachine(url, tally), settings=wanted)
    return tally


def shortages(tally: Counter[str]) -> dict[str, int]:
    """Return what has not happened often enough for the test to say anything, and how often it has."""
    return {what: tally[what] for what, floor in FLOORS.items() if tally[what] < floor}


def soak(seconds: float, examples: int = 100) -> Counter[str]:
    """Run other examples each time, so many at once, until the time is over."""
    tally: Counter[str] = Counter()
    end = time.monotonic() + seconds
    with running_server() as server:
        while time.monotonic() < end:
            tally += run(server.url, examples, is_random=True)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description="Run random examples and count what has happened.")
    parser.add_argument("--examples", type=int, default=1000)
    with running_server() as server:
        tally = run(server.url, parser.parse_args().examples, is_random=True)
    for what in sorted(tally):
        print(f"{tally[what]:8} {what}")
    print(f"too seldom: {shortages(tally) or 'nothing'}")


if __name__ == "__main__":
    main()
