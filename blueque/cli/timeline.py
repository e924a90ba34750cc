"""`blueque timeline`: what ran when on which node, drawn in the terminal."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

import click

from blueque.cli import show
from blueque.cli.named import queues_matching
from blueque.cli.options import DURATION, Invocation, json_option, pass_invocation, shared_options
from blueque.timeline import MOST_RUNNING, Run, Timeline
from blueque.wording import count, span

MARKS = {"complete": "=", None: ">", "failed": "x", "lost": "?", "cancelled": "-", "released": "~"}
MANY = ":"                                             # runs that are too short to be told apart
LANES = 8                                              # of one row; what ran besides is counted
LABEL = 24                                             # columns for a name, at most
LEAST = 60.0                                           # seconds that are drawn, unless --last is less
NARROWEST, IN_A_PIPE = 40, 100                         # columns in all
_BY: dict[str, Callable[[Run], str]] = {
    "node": lambda run: run.node.rpartition("_")[0] or run.node, "queue": lambda run: run.queue,
}


@click.command()
@click.option("-q", "--queue", "patterns", multiple=True, metavar="PATTERN", help="Only these: a name, or as 'render.*'.")
@click.option("--last", type=DURATION, default=12 * 3600.0, metavar="DURATION", help="How far back at most; else 12h.")
@click.option("--by", type=click.Choice(list(_BY)), default="node", show_default=True, help="What a row is.")
@click.option("--csv", "as_csv", is_flag=True, help="A line for each run, for a program of yours.")
@json_option
@shared_options
@pass_invocation
def timeline(
    invocation: Invocation, patterns: Sequence[str], last: float, by: str, as_csv: bool, as_json: bool
) -> None:
    """Draw what ran when on which node.

    \b
    blueque timeline --last 24h
    blueque timeline -q render --csv > runs.csv

    It begins with the first run that is known. What ran at the same time is drawn one below the other. The end of a bar
    says what became of the run: = complete, > runs still, x failed, ? lost with its node, - cancelled, ~ handed back.
    A : stands for several short runs.
    Each queue keeps about 10,000 events, three or four for each run; what ran before is not known.
    """
    if last <= 0:
        raise click.UsageError("--last has to be more than nothing")
    client = invocation.client()
    found = client.get_timeline(queues_matching(client.get_inspector().queues(), patterns), last)
    if as_json:
        items = [
            {
                "task": run.task, "attempt": run.attempt, "queue": run.queue, "node": run.node, "outcome": run.outcome,
                **show.times(began=run.began, ended=run.ended),
            }
            for run in found.runs
        ]
        times = show.times(since=found.since, until=found.until)
        show.print_json("timeline", **times, items=items, cut=found.cut, has_more=found.has_more)
    elif as_csv:
        _print_csv(found)
    elif found.runs:
        wide = show.terminal_width() if show.is_terminal() else IN_A_PIPE
        for line in draw(_narrowed(found), _BY[by], max(wide, NARROWEST), invocation.is_utc):
            click.echo(line)
    else:
        show.talk(f"nothing ran in the last {span(last)}")
    if found.has_more:
        show.talk(f"more tasks run than the {MOST_RUNNING} that are shown: -q QUEUE shows those of one queue")
    for queue in found.cut:
        show.talk(f"of queue {queue} the last 10,000 events only are known: the beginning is not complete")


def _narrowed(found: Timeline) -> Timeline:
    """Leave out the time before the first run, but for the last minute."""
    first = min(min(run.began for run in found.runs), found.until - LEAST)
    return found._replace(since=max(found.since, first))


def _print_csv(found: Timeline) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["task", "attempt", "queue", "node", "began", "ended", "outcome"])
    for run in found.runs:
        writer.writerow([
            show.clean(run.task), run.attempt, show.clean(run.queue), show.clean(run.node), run.began,
            "" if run.ended is None else run.ended, run.outcome or "",
        ])


def draw(found: Timeline, name_of: Callable[[Run], str], wide: int, is_utc: bool) -> Iterator[str]:
    """Yield the lines of the picture: an axis, a row or several for each name, and what the marks mean."""
    rows: dict[str, list[Run]] = {}
    for run in found.runs:
        rows.setdefault(show.clean(name_of(run)) or "-", []).append(run)
    label = min(max(map(show.width, rows)), LABEL, wide // 3)
    scale = _Scale(found.since, found.until, wide - label - 1)
    yield " " * (label + 1) + scale.axis(is_utc)
    for name in sorted(rows):
        lanes = _lanes(rows[name], scale)
        shown = name if show.width(name) <= label else "…" + name[len(name) - label + 1 :]
        for number, lane in enumerate(lanes[:LANES]):
            yield f"{shown if number == 0 else '':<{label}} {scale.draw(lane)}".rstrip()
        if len(lanes) > LANES:
            hidden = sum(len(lane) for lane in lanes[LANES:])
            yield " " * (label + 1) + f"({count(hidden, 'run')} more at the same time)"
    used = {run.outcome for run in found.runs}
    words = {None: "runs", "released": "handed back"}
    legend = [f"{mark} {words.get(outcome, outcome)}" for outcome, mark in MARKS.items() if outcome in used]
    yield "  ".join([*legend, f"{MANY} several short ones", count(len(found.runs), "run")])


class _Scale:
    """Where in a row of so many columns a time is."""

    def __init__(self, since: float, until: float, wide: int) -> None:
        self.since, self.until, self.wide = since, until, wide

    def place(self, at: float) -> int:
        share = (at - self.since) / (self.until - self.since)
        return min(max(int(share * self.wide), 0), self.wide - 1)

    def axis(self, is_utc: bool) -> str:
        """Return the times of day, or the days, at even distances."""
        form = "%H:%M" if self.until - self.since <= 2 * 86400 else "%d %b"
        if self.until - self.since < 600:
            form = "%H:%M:%S"
        line = ""
        step = 12
        for place in range(0, self.wide - len(form) - 2, step):
            at = self.since + (self.until - self.since) * place / self.wide
            moment = datetime.fromtimestamp(at, UTC)
            line = line.ljust(place) + (moment if is_utc else moment.astimezone()).strftime(form)
        return line.ljust(self.wide - 3) + "now"

    def draw(self, lane: Sequence[Run]) -> str:
        """Return a row with these runs, of which none overlaps another but within a column."""
        cells = [" "] * self.wide
        for run in lane:
            first, last = self.place(run.began), self.place(self.until if run.ended is None else run.ended)
            is_taken = cells[first] != " "
            for place in range(first, last + 1):
                cells[place] = MARKS[None] if run.ended is None else MARKS["complete"]
            cells[last] = MANY if is_taken and first == last else MARKS[run.outcome]
            if is_taken and first < last:
                cells[first] = MANY
            name = show.clean(run.task)[:8]
            if last - first >= len(name) + 3:
                cells[first + 2 : first + 2 + len(name)] = name
        return "".join(cells)


def _lanes(runs: Iterable[Run], scale: _Scale) -> list[list[Run]]:
    """Return the runs, each in the first lane that is free by then; what a column cannot tell apart shares a lane."""
    lanes: list[list[Run]] = []
    ends: list[int] = []
    for run in runs:
        first = scale.place(run.began)
        last = scale.place(scale.until if run.ended is None else run.ended)
        free = next(
            (n for n, end in enumerate(ends) if end < first or (end == first == last and _is_dot(lanes[n], scale))), None
        )
        if free is None:
            lanes.append([run])
            ends.append(last)
        else:
            lanes[free].append(run)
            ends[free] = last
    return lanes


def _is_dot(lane: Sequence[Run], scale: _Scale) -> bool:
    run = lane[-1]
    return run.ended is not None and scale.place(run.began) == scale.place(run.ended)
