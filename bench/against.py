"""bin/bench --against COMMIT: measures this checkout and another commit in turn, and says whether a
task costs more processor time, or a slot more memory.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.comparing import COMPARISONS, Comparison, Plan, measured
from bench.load import Quiet
from bench.rounds import interval, median, ratios, shown
from bench.setting import Outcome
from bench.sides import BASE, THIS, NoSide, both

ROUNDS = 15
SLOWER = 1.03  # of the processor time for each task, or of the memory of a slot
WIDE = 0.06  # of an interval: one that does not tell much
NOT_SLOWER, IS_SLOWER, NOT_MEASURED = 0, 1, 2  # exit codes
PROCESSES = ["producer", "listener", "tasks", "redis", "all"]

TAIL = """\
here: this checkout. The ratios are here to {base}, the median of all rounds and
its 95 % interval (order statistics of the ratios of paired rounds, exact).
{cores} cores, Python {python}, {rounds} rounds; others used {load:.0f} % before a round.
"""


def compare(commit: str, cases: Sequence[str], rounds: int, scale: float, patience: float) -> int:
    """Measure, print, and return the exit code."""
    codes, began = [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="blueque-against-") as directory:
        try:
            sides = both(commit, Path(directory))
        except NoSide as error:
            print(f"bin/bench: {error}", file=sys.stderr)
            return NOT_MEASURED
        plan = Plan(sides, rounds, scale, Quiet(patience))
        for case in COMPARISONS:
            if case.name in cases:
                print(
                    f"measuring {case.name} ({time.monotonic() - began:.0f} s)",
                    file=sys.stderr,
                    flush=True,
                )
                outcome = measured(case, plan)
                print("\n".join([*lines_of(case, outcome, sides[1].name), ""]), flush=True)
                codes.append(code_of(outcome))
    print(_circumstances(plan), end="")
    return max(codes)


def lines_of(case: Comparison, outcome: Outcome, base: str) -> list[str]:
    """Return the table of a case, with its verdict, in at most 80 columns."""
    head = [case.title, f"  {'':26}{base[:10]:>10}{'here':>10}{'ratio':>9}   95 % interval"]
    if outcome.failed:
        return [
            head[0],
            *(f"  Not measured: {side}: {why}"[:80] for side, why in outcome.failed.items()),
        ]
    ours, theirs = outcome.rows[THIS], outcome.rows[BASE]
    processes = [f"  {case.unit}"]
    processes += [
        _line(f"  {name}", ours[name], theirs[name]) for name in PROCESSES if name in ours
    ]
    others = [_line(words, ours[metric], theirs[metric]) for metric, words in case.metrics.items()]
    return [*head, *processes, *others, f"  {verdict(case, _ratios(outcome))}"]


def verdict(case: Comparison, found: Sequence[float]) -> str:
    """Say in plain words what the ratios of the costs of paired rounds show."""
    ends = interval(found)
    if ends is None:
        return "No verdict: a 95 % interval needs six rounds or more."
    low, high = ends
    if low > SLOWER:
        return (
            f"{case.worse.upper()}: {case.cost.format(f'{low:.3f}')} or more; {SLOWER} is allowed."
        )
    words = f"Not {case.worse}: the interval begins at {low:.3f}; up to {SLOWER} is allowed."
    if high < 1:
        words = f"{case.better.capitalize()}: {case.cost.format(f'at most {high:.3f}')}."
    return words + (
        "\n  But the interval is wide: more rounds would tell more." if high - low > WIDE else ""
    )


def code_of(outcome: Outcome) -> int:
    """Return the exit code for a case."""
    ends = None if outcome.failed else interval(_ratios(outcome))
    if ends is None:
        return NOT_MEASURED
    return IS_SLOWER if ends[0] > SLOWER else NOT_SLOWER


def _ratios(outcome: Outcome) -> list[float]:
    return ratios(outcome.rows[THIS]["all"], outcome.rows[BASE]["all"])


def _line(words: str, ours: list[float], theirs: list[float]) -> str:
    line = f"  {words:26}{shown(median(theirs)):>10}{shown(median(ours)):>10}"
    found = ratios(ours, theirs)
    if not found:
        return line
    ends = interval(found)
    return f"{line}{median(found):9.3f}" + (f"   {ends[0]:.3f} to {ends[1]:.3f}" if ends else "")


def _circumstances(plan: Plan) -> str:
    load, cores = 100 * median(plan.quiet.seen or [0.0]), len(os.sched_getaffinity(0))
    return TAIL.format(
        base=plan.sides[1].name,
        cores=cores,
        python=platform.python_version(),
        rounds=plan.rounds,
        load=load,
    )
