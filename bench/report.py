"""The page: Markdown and instructions for its charts, from the numbers. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

from bench.case import Case, Target
from bench.rounds import median, ratios, spread
from bench.systems import SYSTEMS

NAMES = {system.key: system.name for system in SYSTEMS}
KINDS = {system.key: system.kind for system in SYSTEMS}
IDLE_KINDS = {system.key: system.idle_kind or system.kind for system in SYSTEMS}
BULKS = {system.key: system.bulk for system in SYSTEMS}
IDLERS = {**IDLE_KINDS, "blueque": "its master and a scheduler"}
HOW = {"drain": KINDS, "pickup": IDLE_KINDS, "idle": IDLERS, "bulk": BULKS}
WHOLE = {
    "count",
    "tasks",
    "queues",
    "trips",
    "requests",
    "one",
    "many",
}  # metrics that are counted, not measured
WIDTH = 125

Numbers = dict[str, Any]  # of one case, as Outcome has them, with rounds, scale and load
Drawing = dict[str, Any]

HEAD = """\
# Benchmarks

Blueque beside what one would take instead, in one run on one machine: `bin/bench` has installed the peers, run all this and
written this page. Trust the ratios, which are taken round by round, and not the last digit of anything: numbers are given as
the median of all rounds, with the lowest and the highest behind it. What was promised, and what came out, is [at the
end](#what-was-promised-and-what-came-out).
"""

PROMISED = """\
## What was promised, and what came out

A/A is the same thing measured twice in each round, the second time to the first: a difference as small as that shows nothing.
Where a case measures nothing twice, it is a round to the round before.
"""

REPEAT = """\
## To repeat it

```
bin/bench                                   # everything, about an hour; rewrites this page
bin/bench --cases drain pickup --rounds 9   # only these; the others stay as they are
bin/bench --scale 0.1 --rounds 1 --output /tmp/bench
bin/bench --peers rq huey                   # only these beside Blueque
```

It starts a Redis of its own on a free port of the loopback interface, without persistence, empties it before each run, and
ends whatever it has started. The peers are installed from the package index as their own documentation says, each into an
environment of its own in `.venv-bench`, and configured as they come; 1.0.0 has the redis-py that it was made for. In each
round every system has its turn, and another one is the first. Before each run the load of others is measured; while it is
above 5 % of the machine, the run waits, up to a minute in all. What was left of it is given with each case. Every
number of every round lies in [`benchmarks/results.json`](benchmarks/results.json).

## To compare two commits

```
bin/bench --against main~1                  # this checkout, uncommitted changes included, and that commit
bin/bench --against HEAD                    # without changes: how far a comparison can be trusted
```

It prints what a task costs in processor time, by process: the producer, the listener (master and slots), the task processes
with their children, and Redis. The cases are enqueue, bulk, drain, pickup and idle. Both versions use the packages of
`.venv`. In each of 15 rounds both start anew, each with a Redis of its own, and then take turns in blocks of a fraction of a
second, so that other load on the machine slows both alike; the idle listeners, four of each version, are measured all at the
same time. For enqueue, producer and Redis share a core: where the kernel puts the two changes what a call costs by more than
most commits do, so compare its rate with nothing else. The ratio is the median of the ratios of the rounds. Its 95 %
interval is made of order statistics of these ratios, so it is exact whatever their distribution, and needs six rounds or
more. "Not slower" means that the interval for the whole processor time of a task includes 1.03 or less. The
exit code is 0 if no case is slower, 1 if one is, and 2 if one could not be measured.
"""


def page(
    facts: dict[str, str],
    versions: dict[str, str],
    cases: Sequence[Case],
    results: dict[str, Numbers],
    notes: str,
) -> str:
    """Return the page. results: by the name of the case; a case without any is left out."""
    measured = [case for case in cases if case.name in results]
    parts = [HEAD, *(_lead(case) for case in measured if case.question), _machine(facts, versions)]
    parts += [_case(case, results[case.name]) for case in measured]
    parts += [notes.strip()] if notes.strip() else []
    parts += [PROMISED, targets(measured, results), REPEAT]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def drawings(cases: Sequence[Case], results: dict[str, Numbers]) -> list[Drawing]:
    """Return what is to be drawn, for `plots`."""
    drawn = [
        case for case in cases if case.plot != "none" and results.get(case.name, {}).get("rows")
    ]
    return [_drawing(case, results[case.name]) for case in drawn]


def judge(target: Target, numbers: Numbers) -> tuple[list[float], str] | None:
    """Return the values, one per round, and whether their median is as promised, in words; None
    when there are none.
    """
    ours = _values(numbers, target.ours)
    if target.theirs is not None:
        ours = ratios(ours, _values(numbers, target.theirs))
    if not ours:
        return None
    if target.bound is None:
        return ours, ""
    middle = median(ours)
    is_met = middle >= target.bound if target.is_least else middle <= target.bound
    return ours, "met" if is_met else "**not met**"


def table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table of Markdown; all columns but the first are numbers."""
    rule = ["---", *["---:"] * (len(headings) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [headings, rule, *lines])


def targets(cases: Sequence[Case], results: dict[str, Numbers]) -> str:
    """Return the table of all that was promised."""
    lines = []
    for case in cases:
        for target in case.targets:
            verdict = judge(target, results[case.name])
            bound = "" if target.bound is None else "at least " if target.is_least else "at most "
            wanted = bound + target.wanted
            if verdict is None:
                lines.append([target.name, wanted, "–", "", "not measured"])
                continue
            values, words = verdict
            same = _same(target, results[case.name])
            told = "; ".join(filter(None, (words, target.why)))
            lines.append([target.name, wanted, _measured(target, values), same, told])
    return table(["case", "promised", "measured", "A/A", ""], lines)


def _same(target: Target, numbers: Numbers) -> str:
    """Return how what is promised differs from itself, as a ratio."""
    values = _values(numbers, target.ours)
    row, metric = target.ours
    found = ratios(numbers.get("again", {}).get(row, {}).get(metric, []), values)
    if found:
        return f"{spread(found)} x"
    found = ratios(values[1:], values)
    return f"{spread(found)} x, by rounds" if found else "–"


def _lead(case: Case) -> str:
    """Return the chart of a case, with what it tells a person who has to decide."""
    heading, _, text = case.question.partition("\n")
    anchor = re.sub(r"[^\w -]", "", case.title.lower()).replace(" ", "-")
    body = textwrap.fill(f"{text} [Numbers](#{anchor}).", WIDTH, break_on_hyphens=False)
    return f"## {heading}\n\n{body}\n\n![{case.title}](benchmarks/{case.name}.png)"


def _measured(target: Target, values: list[float]) -> str:
    return f"{spread(values)}{target.unit if target.theirs is None else ' x'}"


def _machine(facts: dict[str, str], versions: dict[str, str]) -> str:
    lines = [[name, value] for name, value in {**facts, **versions}.items()]
    return "## The machine, and who took part\n\n" + table(["", ""], lines)


def _case(case: Case, numbers: Numbers) -> str:
    parts = [f"## {case.title}", textwrap.fill(case.about, WIDTH), rows_table(case, numbers)]
    failed = [f"- {_name(case, row)} is missing: {why}" for row, why in numbers["failed"].items()]
    parts += ["\n".join(failed)] if failed else []
    if numbers["rows"] and case.plot != "none" and not case.question:
        parts.append(f"![{case.title}](benchmarks/{case.name}.png)")
    parts.append(_circumstances(numbers))
    return "\n\n".join(parts)


def rows_table(case: Case, numbers: Numbers) -> str:
    rows, how = numbers["rows"], HOW.get(case.name, {})
    columns = [
        (metric, heading)
        for metric, heading in case.columns
        if any(metric in row for row in rows.values())
    ]
    has_ratio = case.headline is not None and "blueque" in rows and len(rows) > 1
    lines = []
    for row in _ordered(case, rows):
        name = _name(case, row) + (f", {how[row]}" if row in how else "")
        line = [name, *(_cell(metric, rows[row].get(metric, [])) for metric, _ in columns)]
        if has_ratio:
            own = rows.get("blueque", {}).get(case.headline, [])
            its = rows[row].get(case.headline, [])
            found = ratios(own, its) if row != "blueque" else []
            line.append(spread(found) if found else "")
        lines.append(line)
    return table(
        ["", *(heading for _, heading in columns), *(["Blueque to it"] if has_ratio else [])], lines
    )


def _cell(metric: str, values: list[float]) -> str:
    if not values:
        return ""
    return f"{values[0]:,.0f}" if metric in WHOLE else spread(values)


def _circumstances(numbers: Numbers) -> str:
    load = numbers["load"]
    said = f"{numbers['rounds']} round{'s' if numbers['rounds'] > 1 else ''}"
    said += f", sizes times {numbers['scale']:g}" if numbers["scale"] != 1 else ""
    if load:
        said += f"; others used {100 * median(load):.0f} % of the machine before a run, at most {100 * max(load):.0f} %"
    return f"*{said}.*"


def _drawing(case: Case, numbers: Numbers) -> Drawing:
    rows = numbers["rows"]
    drawing = {
        "file": f"{case.name}.png",
        "kind": case.plot,
        "title": case.title,
        "axis": case.axis,
    }
    names = {row: _name(case, row).strip("*") for row in rows}
    if case.plot == "bars":
        found = [(names[row], rows[row].get(case.headline, [])) for row in _ordered(case, rows)]
        return drawing | {"series": [[name, values] for name, values in found if values]}
    if case.plot == "steps":
        found = [(names[row], numbers["samples"].get(row, [])) for row in _ordered(case, rows)]
        return drawing | {"series": [[name, values] for name, values in found if values]}
    plan = case.lines
    assert plan is not None, f"{case.name} does not say what its lines are"
    lines = [
        [
            name,
            [[rows[row][plan.along][0], rows[row][metric]] for row in rows if metric in rows[row]],
        ]
        for metric, name in plan.metrics
    ]
    return drawing | {
        "series": lines,
        "axis": plan.along_words,
        "words": plan.words,
        "is_log": plan.is_log,
    }


def current(case: Case, numbers: Numbers) -> Numbers:
    """Return the numbers without those of rows that the case does not have any more."""
    known = {*NAMES, *case.rows}
    parts: Numbers = {
        name: {row: value for row, value in part.items() if row in known}
        if isinstance(part, dict)
        else part
        for name, part in numbers.items()
    }
    return parts


def _ordered(case: Case, rows: dict[str, Any]) -> list[str]:
    wanted = [*NAMES, *case.rows]
    return sorted(rows, key=wanted.index)


def _name(case: Case, row: str) -> str:
    return case.rows.get(row) or NAMES.get(row, row)


def _values(numbers: Numbers, place: tuple[str, str]) -> list[float]:
    row, metric = place
    values: list[float] = numbers["rows"].get(row, {}).get(metric, [])
    return values
