"""`blueque timeline`: draw in the terminal what ran when on which host."""

from __future__ import annotations

import csv
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType

import click

from blueque.cli import printing
from blueque.cli.named import pattern_option, queues_matching
from blueque.cli.options import Invocation, json_option, shared_options
from blueque.cli.values import MOMENT
from blueque.documents.numbers import of_timeline
from blueque.model.parts import grouped
from blueque.queries.timeline import MOST_RUNNING, Run, Timeline, silenced
from blueque.text.format import as_cell, count, span
from blueque.text.what import what

MARKS = {"complete": "=", None: ">", "not heard": "!", "failed": "x", "lost": "?", "cancelled": "-"}
MARKS |= {"released": "~"}
BAD = ("failed", "lost")  # outcomes that are shown among MANY, too
MANY = ":"  # runs too short to be drawn apart
SHORT = 3  # columns: shorter runs are drawn together where there are many
CROWD = 8  # short runs whose number is shown
LANES = 8  # rows of one name; further runs are counted
LABEL = 24  # columns of a name at most
LEAST = 60.0  # seconds drawn at least, unless --since is less
NARROWEST, IN_A_PIPE = 40, 100  # columns in all
BORDER = "==="  # of a bar, beside the words in it
ROOM = 20  # columns of a bar that has more words than the id of its task
MOST_NAMED = 1000  # tasks whose names are read
_BY: dict[str, Callable[[Run], str]] = {
    "node": lambda run: run.node.rpartition("_")[0] or run.node,
    "queue": lambda run: run.queue,
}


@click.command()
@pattern_option("Only these queues: a name, or a pattern such as 'render.*'.")
@click.option(
    "--since",
    type=MOMENT,
    default="12h",
    metavar="AGE|TIME",
    help="How far back, such as 24h, or since when; default 12h.",
)
@click.option(
    "--by",
    type=click.Choice(list(_BY)),
    default="node",
    show_default=True,
    help="What each row is.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print a line for each attempt, for programs.")
@json_option
@shared_options
def timeline(
    invocation: Invocation,
    patterns: Sequence[str],
    since: tuple[bool, float],
    by: str,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Draw what ran when on which host.

    \b
    blueque timeline --since 24h
    blueque timeline -q render --csv > runs.csv

    It begins with the first known run. Runs at the same time are drawn in numbered rows, one below the other. The end of a
    bar is the outcome: = complete, > still running, ! its listener was last heard then, x failed, ? lost with its node,
    - cancelled, ~ handed back or put off.
    A : stands for several short runs, x or ? if one of them ended so. Where there are many, their number is shown, and
    rows with nothing else are joined: 1-4.
    Each queue keeps about 10,000 events, three or four for each run; earlier runs are not known.
    """
    is_age, seconds = since
    last = seconds if is_age else time.time() - seconds
    if last <= 0:
        raise click.UsageError("--since must be an age of more than 0, or a time that is over")
    client, inspector = invocation.client(), invocation.client().get_inspector()
    queues = queues_matching(inspector.queues(), patterns)
    found = silenced(client.get_timeline(queues, last), inspector.nodes())
    if as_json:
        printing.print_json("timeline", **of_timeline(found))
    elif as_csv:
        _print_csv(found)
    elif found.runs:
        wide = max(printing.terminal_width() if printing.is_terminal() else IN_A_PIPE, NARROWEST)
        drawn = _narrowed(found)
        names = _names(invocation, drawn, wide)
        for line in draw(drawn, _BY[by], wide, invocation.is_utc, names):
            click.echo(line)
    else:
        printing.talk(f"nothing ran in the last {span(last)}")
    if found.has_more:
        printing.talk(
            f"only {MOST_RUNNING} of the running tasks are shown: -q QUEUE shows those of one queue"
        )
    for queue in found.cut:
        printing.talk(
            f"queue {queue} keeps only its last 10,000 events: the beginning is not complete"
        )


def _narrowed(found: Timeline) -> Timeline:
    """Leave out the time before the first run, except the last minute."""
    first = min(min(run.began for run in found.runs), found.until - LEAST)
    return found._replace(since=max(found.since, first))


def _print_csv(found: Timeline) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["task", "attempt", "queue", "node", "began", "ended", "outcome"])
    for run in found.runs:
        writer.writerow(
            [
                printing.clean(run.task),
                run.attempt,
                as_cell(printing.clean(run.queue)),
                as_cell(printing.clean(run.node)),
                run.began,
                "" if run.ended is None else run.ended,
                run.outcome or "",
            ]
        )


def _names(invocation: Invocation, drawn: Timeline, wide: int) -> dict[str, str]:
    """Return what the tasks are whose bars have room for that, the longest ones, by their ids."""
    least = (drawn.until - drawn.since) * ROOM / wide
    lasts = {run.task: (run.ended or drawn.until) - run.began for run in drawn.runs}
    long = sorted((task for task in lasts if lasts[task] >= least), key=lambda task: -lasts[task])
    inspector, hide = invocation.client().get_inspector(), invocation.hider(False)
    tasks = inspector.with_contents(inspector.tasks(long[:MOST_NAMED])) if long else []
    return {task.id: printing.clean(name) for task in tasks if (name := what(task, hide))}


def draw(
    found: Timeline,
    name_of: Callable[[Run], str],
    wide: int,
    is_utc: bool,
    names: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    """Yield the lines of the picture: an axis, the rows of each name, and the legend.

    names: what tasks are, by their ids; their bars have it if there is room.
    """
    of_name = grouped(found.runs, lambda run: printing.clean(name_of(run)) or "-")
    lanes = {name: _lanes(of_name[name]) for name in sorted(of_name)}
    most = max(map(len, lanes.values()))
    numbers = len(f"1-{most}") if most > 1 else 1
    label = min(max(map(printing.width, lanes)), LABEL, wide // 3)
    before = label + numbers + 2
    scale = _Scale(found.since, found.until, wide - before, names)
    yield " " * before + scale.axis(is_utc)
    for name in lanes:
        shown = name if printing.width(name) <= label else "…" + name[len(name) - label + 1 :]
        rows = list(_rows(lanes[name], scale))
        for place, (which, row) in enumerate(rows[:LANES]):
            yield f"{shown if place == 0 else '':<{label}} {which:<{numbers}} {row}".rstrip()
        if len(rows) > LANES:
            hidden = sum(len(row.runs) for _, row in rows[LANES:])
            yield " " * before + f"({count(hidden, 'attempt')} more at the same time)"
    used = {run.outcome for run in found.runs}
    words = {None: "runs", "released": "handed back"}
    legend = [
        f"{mark} {words.get(outcome, outcome)}"
        for outcome, mark in MARKS.items()
        if outcome in used
    ]
    legend += [f"{MANY} several short ones", count(len(found.runs), "attempt")]
    yield from _filled(legend, wide)


def _filled(words: Iterable[str], wide: int) -> Iterator[str]:
    """Yield lines of words with two spaces between them; a word is not broken."""
    line = ""
    for word in words:
        longer = f"{line}  {word}" if line else word
        if line and printing.width(longer) > wide:
            yield line
            longer = word
        line = longer
    yield line


class _Scale:
    """Maps times to columns of a row."""

    def __init__(
        self, since: float, until: float, wide: int, names: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.since, self.until, self.wide, self._names = since, until, wide, names

    def place(self, at: float) -> int:
        share = (at - self.since) / (self.until - self.since)
        return min(max(int(share * self.wide), 0), self.wide - 1)

    def ends(self, run: Run) -> tuple[int, int]:
        """Return the first and the last column of a run."""
        return self.place(run.began), self.place(self.until if run.ended is None else run.ended)

    def words(self, run: Run, room: int) -> str:
        """Return the id of a task and, if that fits into so many columns, what the task is."""
        short = printing.clean(run.task)[:8]
        words = printing.cut(f"{short} {self._names.get(run.task, '')}".rstrip(), room)
        return words if room >= ROOM - len(BORDER) else short

    def is_short(self, run: Run) -> bool:
        """Tell whether a run is too short for its own bar where there are many."""
        return run.ended is not None and (run.ended - run.began) * self.wide < SHORT * (
            self.until - self.since
        )

    def axis(self, is_utc: bool) -> str:
        """Return times of the day, or days, at even distances."""
        form = "%H:%M" if self.until - self.since <= 2 * 86400 else "%d %b"
        if self.until - self.since < 600:
            form = "%H:%M:%S"
        line = ""
        step = 12
        for place in range(0, self.wide - len(form) - 3, step):
            at = self.since + (self.until - self.since) * place / self.wide
            moment = datetime.fromtimestamp(at, UTC)
            line = line.ljust(place) + (moment if is_utc else moment.astimezone()).strftime(form)
        return line.ljust(self.wide - 3) + "now"


class _Row:
    """A row of the picture: bars, and MANY with a number where short runs are too close.

    is_of_one: no run of it overlaps another.
    """

    def __init__(self, runs: Sequence[Run], scale: _Scale, is_of_one: bool = True) -> None:
        self.runs, self._scale, self._is_of_one = runs, scale, is_of_one
        self._cells = [" "] * scale.wide
        # the first and last column of MANY, and for what
        self._blocks: list[tuple[int, int, list[Run]]] = []
        self.is_short = all(map(scale.is_short, runs))
        near: list[Run] = []
        reach = -1  # the last column of those
        for run in runs:
            first, last = scale.ends(run)
            is_short = scale.is_short(run)
            if near and not (is_short and first <= reach):
                self._draw(near)
                near = []
            if is_short:
                reach = max(last, reach) if near else last
                near.append(run)
            else:
                self._bar(run)
        self._draw(near)

    @property
    def is_crowded(self) -> bool:
        """Whether it has so many short runs in one place that only their number is shown."""
        return any(len(_tasks(runs)) >= CROWD for _, _, runs in self._blocks)

    def __str__(self) -> str:
        cells = list(self._cells)
        for first, last, runs in self._blocks:
            if len(_tasks(runs)) < CROWD:
                continue
            bad = [
                f", {len(_tasks(runs, outcome))} {outcome}"
                for outcome in BAD
                if _tasks(runs, outcome)
            ]
            words = f" {count(len(_tasks(runs)), 'task')}{''.join(bad)} "
            behind = cells[last + 1 : last + 1 + len(words)]
            if len(behind) == len(words) and not "".join(behind).strip():
                place = last + 1
            else:
                middle = (first + last + 1 - len(words)) / 2
                free = [
                    place
                    for place in range(first + 1, last + 1 - len(words))
                    if set(cells[place : place + len(words)]) <= {MANY, " "}
                ]
                if not free and last + 1 - first < len(words) + 2:
                    continue
                place = min(free, key=lambda place: abs(place - middle)) if free else int(middle)
            cells[place : place + len(words)] = words
        return "".join(cells).rstrip()

    def _draw(self, near: Sequence[Run]) -> None:
        """Draw short runs that touch each other."""
        ends = [self._scale.ends(run) for run in near]
        first = min((one[0] for one in ends), default=0)
        last = max((one[1] for one in ends), default=0)
        if len(near) > 2 or (len(near) == 2 and (first == last or not self._is_of_one)):
            for place in range(first, last + 1):
                self._put(place, MANY)
            for run in near:
                if run.outcome in BAD:
                    self._cells[
                        self._scale.place(run.began if run.ended is None else run.ended)
                    ] = MARKS[run.outcome]
            runs = list(near)
            if self._blocks and first <= self._blocks[-1][1] + SHORT:
                first, _, others = self._blocks.pop()
                runs = others + runs
            self._blocks.append((first, last, runs))
            return
        for run in near:
            self._bar(run)

    def _bar(self, run: Run) -> None:
        first, last = self._scale.ends(run)
        if first == last:
            is_told = self._cells[last] == " " or run.ended is None or run.outcome in BAD
            self._put(last, MARKS[run.outcome] if is_told else MANY)
            return
        begin = first if self._cells[first] == " " else first + 1
        for place in range(begin, last):
            self._cells[place] = MARKS[None] if run.ended is None else MARKS["complete"]
        self._cells[last] = MARKS[run.outcome]
        name = self._scale.words(run, last - first - len(BORDER))
        if last - first >= len(name) + len(BORDER):
            self._cells[first + 2 : first + 2 + len(name)] = name

    def _put(self, place: int, mark: str) -> None:
        """Put a mark; the mark of a bad end replaces others and is not replaced."""
        bad = [MARKS[outcome] for outcome in BAD]
        if self._cells[place] in (" ", MANY, MARKS["complete"]) or (
            mark in bad and self._cells[place] not in bad
        ):
            self._cells[place] = mark


def _tasks(runs: Iterable[Run], outcome: str | None = None) -> set[str]:
    """Return the tasks of these runs, or of those with this outcome."""
    return {run.task for run in runs if outcome in (None, run.outcome)}


def _rows(lanes: Sequence[Sequence[Run]], scale: _Scale) -> Iterator[tuple[str, _Row]]:
    """Yield the number and the row of each lane; neighbours with only short runs are joined."""
    rows = [_Row(lane, scale) for lane in lanes]
    number = 0
    while number < len(rows):
        end = number + 1
        if rows[number].is_short and rows[number].is_crowded:
            while end < len(rows) and rows[end].is_short:
                end += 1
        if end == number + 1:
            yield str(end), rows[number]
        else:
            runs = sorted(
                (run for lane in lanes[number:end] for run in lane), key=lambda run: run.began
            )
            yield f"{number + 1}-{end}", _Row(runs, scale, is_of_one=False)
        number = end


def _lanes(runs: Iterable[Run]) -> list[list[Run]]:
    """Put each run, earliest first, into the first free lane."""
    lanes: list[list[Run]] = []
    ends: list[float] = []
    for run in runs:
        end = math.inf if run.ended is None else run.ended
        free = next((number for number, busy in enumerate(ends) if busy <= run.began), None)
        if free is None:
            lanes.append([run])
            ends.append(end)
        else:
            lanes[free].append(run)
            ends[free] = end
    return lanes
