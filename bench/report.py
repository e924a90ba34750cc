"""The page: Markdown and instructions for its charts, from the numbers. Pure."""

from __future__ import annotations

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

Blueque beside its peers, in one run of `bin/bench` on one machine. Numbers are the median of all rounds, with the lowest and the
highest behind it. Trust the ratios, which are taken round by round, and not the last digit of anything. `bin/bench --write-only`
prints the tables of all cases from [`benchmarks/results.json`](benchmarks/results.json), which has each number of each round.
[Notes](../bench/notes.md) say what limits these numbers.
"""

PROMISED = """\
## What is promised, and what was measured
"""

METHOD = """\
## To repeat it

```
bin/bench                                   # everything, about an hour; rewrites this page
bin/bench --cases drain pickup --rounds 9   # only these; the others stay as they are
bin/bench --peers rq huey                   # only these beside Blueque
bin/bench --against main~1                  # this checkout and that commit
```

It starts a Redis of its own on a free port of the loopback interface, without persistence, empties it before each run, and
ends what it has started. The peers are installed from the package index as their own documentation says, each into an
environment of its own in `.venv-bench`, and configured as they come. In each round every system has its turn, and another one
is the first. Before each run the load of others is measured; while it is above 5 % of the machine, the run waits, up to a
minute in all.
"""


def page(
    facts: dict[str, str],
    versions: dict[str, str],
    cases: Sequence[Case],
    results: dict[str, Numbers],
    soaked: str = "",
) -> str:
    """Return the page. results: by the name of the case; a case without any is left out.

    soaked: the part about long runs, if there were any.
    """
    measured = [case for case in cases if case.name in results]
    parts = [HEAD, *(_answer(case, results[case.name]) for case in measured if case.question)]
    parts += [
        *filter(None, [soaked]),
        PROMISED,
        targets(measured, results),
        _machine(facts, versions),
        METHOD,
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def drawings(cases: Sequence[Case], results: dict[str, Numbers]) -> list[Drawing]:
    """Return what is to be drawn, for `plots`."""
    drawn = [case for case in cases if case.question and results.get(case.name, {}).get("rows")]
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
    middle = median(ours)
    is_met = middle >= target.bound if target.is_least else middle <= target.bound
    return ours, "met" if is_met else "**not met**"


def table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table of Markdown; all columns but the first are numbers."""
    rule = ["---", *["---:"] * (len(headings) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [headings, rule, *lines])


def targets(cases: Sequence[Case], results: dict[str, Numbers], has_same: bool = False) -> str:
    """Return the table of all that was promised.

    has_same: with a column A/A, the same thing measured twice in each round, the second time to the first; where a
        case measures nothing twice, a round to the round before. A difference as small as that shows nothing.
    """
    lines = []
    for case in cases:
        for target in case.targets:
            verdict = judge(target, results[case.name])
            wanted = ("at least " if target.is_least else "at most ") + target.wanted
            if verdict is None:
                lines.append(
                    [target.name, wanted, "–", *([""] if has_same else []), "not measured"]
                )
                continue
            values, words = verdict
            same = [_same(target, results[case.name])] if has_same else []
            told = "; ".join(filter(None, (words, target.why)))
            lines.append([target.name, wanted, _measured(target, values), *same, told])
    return table(["case", "promised", "measured", *(["A/A"] if has_same else []), ""], lines)


def _same(target: Target, numbers: Numbers) -> str:
    """Return how what is promised differs from itself, as a ratio."""
    values = _values(numbers, target.ours)
    row, metric = target.ours
    found = ratios(numbers.get("again", {}).get(row, {}).get(metric, []), values)
    if found:
        return f"{spread(found)} x"
    found = ratios(values[1:], values)
    return f"{spread(found)} x, by rounds" if found else "–"


def _answer(case: Case, numbers: Numbers) -> str:
    """Return a question of the page with its text, its chart and its table."""
    heading, _, text = case.question.partition("\n")
    chart = f"![{case.title}](benchmarks/{case.name}.png)"
    return "\n\n".join(
        [f"## {heading}", _filled(text), chart, _filled(case.about), *_found(case, numbers)]
    )


def whole(case: Case, numbers: Numbers) -> str:
    """Return all that is known of a case, for the terminal."""
    return "\n\n".join([f"## {case.title}", _filled(case.about), *_found(case, numbers)])


def _filled(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)


def _measured(target: Target, values: list[float]) -> str:
    return f"{spread(values)}{target.unit if target.theirs is None else ' x'}"


def _machine(facts: dict[str, str], versions: dict[str, str]) -> str:
    lines = [[name, value] for name, value in {**facts, **versions}.items()]
    return "## The machine, and who took part\n\n" + table(["", ""], lines)


def _found(case: Case, numbers: Numbers) -> list[str]:
    failed = [f"- {_name(case, row)} is missing: {why}" for row, why in numbers["failed"].items()]
    return [
        rows_table(case, numbers),
        *(["\n".join(failed)] if failed else []),
        _circumstances(numbers),
    ]


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
    found = [
        (
            names[row],
            numbers["samples"].get(row, [])
            if case.plot == "steps"
            else rows[row].get(case.headline, []),
        )
        for row in _ordered(case, rows)
    ]
    return drawing | {"series": [[name, values] for name, values in found if values]}


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
