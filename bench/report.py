"""The page: Markdown and instructions for its charts, from the numbers. Pure."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterator, Sequence
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
MET, NOT_MET, NOT_MEASURED = "met", "not met", "not measured"
MAIN = {"listeners", "backlog", "drain_full", "scheduler", "idle", "status"}

Numbers = dict[str, Any]  # of one case, as Outcome has them, with rounds, scale and load
Drawing = dict[str, Any]

HEAD = """\
# Benchmarks

`bin/bench` runs Blueque beside its peers on one machine. Each number is the median of all rounds, with the lowest and the highest
in brackets. Trust the ratios, which are taken round by round. Do not trust the last digit.

[`results.json`](benchmarks/results.json) has each number of each round. `bin/bench --write-only` prints the tables of all cases
from it. [Notes](../bench/notes.md) say what limits these numbers.
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

The bench starts its own Redis on a free port of the loopback interface, without persistence. It empties this Redis before each
run, and ends all that it has started. It installs each peer from the package index, as the documentation of the peer says, and
leaves its settings as they are. Each has an environment of its own in `.venv-bench`.

In each round every system has its turn, and another one is the first. Before each run the bench measures the load of other
programs. While this is above 5 % of the machine, the run waits, up to a minute in all.
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
        *promises(measured, results),
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
    return ours, MET if is_met else NOT_MET


def table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table of Markdown; all columns but the first are numbers."""
    rule = ["---", *["---:"] * (len(headings) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [headings, rule, *lines])


def promises(cases: Sequence[Case], results: dict[str, Numbers]) -> list[str]:
    """Return what was promised, in a table for each verdict: all that was not met, and of what was
    met the main cases.
    """
    found: dict[str, list[list[str]]] = {NOT_MET: [], NOT_MEASURED: [], MET: []}
    count = 0
    for case, target in _all(cases):
        values, verdict = _judged(target, results[case.name])
        count += verdict == MET
        if verdict != MET or case.name in MAIN:
            measured = [_measured(target, values)] if values else []
            told = [target.why] if verdict == NOT_MET else []
            found[verdict].append([target.name, _wanted(target), *measured, *told])
    headings = ["case", "promised", "measured", "remark"]
    every = "[`promises.csv`](benchmarks/promises.csv)"
    parts = [f"{count} of {len(list(_all(cases)))} promises are met. {every} has all of them."]
    for verdict, lines in found.items():
        if lines:
            heading = "Met, among others" if verdict == MET else verdict.capitalize()
            parts += [f"**{heading}:**", table(headings[: len(lines[0])], lines)]
    return parts


def promises_csv(cases: Sequence[Case], results: dict[str, Numbers]) -> str:
    """Return each promise as a line of CSV, with what was measured."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["case", "promised", "measured", "lowest", "highest", "unit", "verdict"])
    for case, target in _all(cases):
        values, verdict = _judged(target, results[case.name])
        figures = [f"{how(values):.4g}" if values else "" for how in (median, min, max)]
        unit = "x" if target.theirs else target.unit.strip()
        writer.writerow([target.name, _wanted(target), *figures, unit, verdict])
    return text.getvalue()


def targets(cases: Sequence[Case], results: dict[str, Numbers]) -> str:
    """Return the table of all that was promised, for the terminal.

    Its column A/A: the same thing measured twice in each round, the second time to the first; where a case measures
        nothing twice, a round to the round before. A difference as small as that shows nothing.
    """
    lines = []
    for case, target in _all(cases):
        values, verdict = _judged(target, results[case.name])
        figures = ["–", ""]
        if values:
            figures = [_measured(target, values), _same(target, results[case.name])]
        told = "; ".join(filter(None, (verdict, target.why if values else "")))
        lines.append([target.name, _wanted(target), *figures, told])
    return table(["case", "promised", "measured", "A/A", ""], lines)


def _judged(target: Target, numbers: Numbers) -> tuple[list[float], str]:
    return judge(target, numbers) or ([], NOT_MEASURED)


def _all(cases: Sequence[Case]) -> Iterator[tuple[Case, Target]]:
    return ((case, target) for case in cases for target in case.targets)


def _wanted(target: Target) -> str:
    return f"{'≥' if target.is_least else '≤'} {target.wanted}"


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
