"""`blueque feed`: a backlog of files, larger than Redis, into a queue."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.backlog.files import PARQUET
from blueque.cli import printing
from blueque.cli.failure import USAGE, Failure
from blueque.cli.needs import needs, needs_options
from blueque.cli.options import (
    Invocation,
    json_option,
    limit_options,
    pass_invocation,
    shared_options,
)
from blueque.cli.progress_line import Line
from blueque.errors import BacklogRefused

if TYPE_CHECKING:
    from blueque.backlog.progress import FeedProgress
    from blueque.feeder import FeedOutcome

_EVERY, _IDLE = 5.0, 60.0  # seconds between two lines in a pipe: with news, without
_LATELY = 15.0  # seconds of which the rate is told
_BAD_ROWS = 20  # that are told one by one


@click.command()
@click.argument("words", nargs=-1, metavar="PATH... QUEUE")
@click.option(
    "--name",
    required=True,
    metavar="NAME",
    help="Of the feed: with the same name it goes on where it was.",
)
@click.option(
    "--window",
    type=click.IntRange(1),
    default=10_000,
    metavar="N",
    help="How many tasks may wait; else 10000.",
)
@click.option("--params", metavar="COLUMNS", help="Only these columns, as scene,frame; else all.")
@click.option(
    "--value",
    metavar="COLUMN",
    help="The value of one column alone, as it is, instead of an object.",
)
@click.option(
    "--key", metavar="COLUMN", help="The same key is the same task, as long as that is in Redis."
)
@click.option(
    "--skip-bad",
    is_flag=True,
    help="Leave out rows that can be no task; else the first one ends it.",
)
@click.option(
    "--follow", is_flag=True, help="Wait for more files; their names must sort after the others."
)
@click.option(
    "--no-wait",
    is_flag=True,
    help="End with 5 if another feeder of that name is at work; else wait for it.",
)
@click.option("--quiet", is_flag=True, help="Say nothing, but for errors.")
@needs_options
@limit_options()
@json_option
@shared_options
@pass_invocation
def feed(
    invocation: Invocation,
    /,
    words: Sequence[str],
    params: str | None,
    value: str | None,
    no_wait: bool,
    quiet: bool,
    as_json: bool,
    resources: Sequence[str],
    lock: str | None,
    **options: Any,
) -> int:
    """Make a task of each row of files in order, once, and never have more than a window of tasks wait.

    \b
    blueque feed backlog/ render --name 2026-11-21
    blueque feed 'backlog/*.jsonl.gz' render --name night --params scene,frame
    blueque feed /data/incoming ingest --name incoming --follow

    PATH is a directory, with all below it, a file or a pattern; several may be given. The files are Parquet (pip install
    'blueque[arrow]'), or JSON lines: .jsonl, .ndjson, .json, each also .gz. They are fed in the order of their names,
    which are their places in the directory: backlog/*.jsonl names them as backlog/ does, however many there are.

    It may end or be killed at any time: the same command goes on where it was. A second one waits. What has been fed, has
    run and was deleted is not fed again. Files must appear whole: write them elsewhere, or under a name that begins with _,
    and rename. Files that are done may be removed. A bad row of JSON lines may be repaired where the feed has stopped;
    what is fed must not change. blueque feeds shows how far it is, and forgets it.

    Ctrl-C and SIGTERM end it between two steps, with 130 and 143.
    """
    from blueque import feeder
    from blueque.system import signals  # here: --help does without

    *paths, queue = words or ("",)
    if not paths:
        raise click.UsageError("give PATH and QUEUE: what is to be fed into which queue")
    if params is not None and value is not None:
        raise click.UsageError("give --params or --value, not both")
    columns = value if params is None else [name.strip() for name in params.split(",")]
    stop, screen = threading.Event(), _Screen(quiet)
    stopping = signals.StopSignals(stop)
    try:
        outcome = feeder.feed(
            paths if len(paths) > 1 else paths[0],
            queue,
            params=columns,
            wait=not no_wait,
            client=invocation.client(),
            progress=screen.tell,
            stop=stop,
            **needs(resources, lock),
            **options,
        )
    except BacklogRefused as error:
        raise _explained(error, screen.rows) from error
    finally:
        stopping.restore()
        screen.clear()
    if as_json:
        _print_json(outcome)
    elif not quiet:
        _print_text(outcome, screen.rows_before, " ".join(paths))
    return 0 if outcome.is_finished else stopping.exit_code


class _Screen:
    """What is said meanwhile: a line on a terminal that is drawn anew, or a line now and then."""

    def __init__(self, is_quiet: bool) -> None:
        self.rows = 0
        self.rows_before = 0  # done when this feeder began
        self._has_begun = False
        self._is_quiet = is_quiet
        self._line = Line(is_wanted=not is_quiet)
        self._said, self._told = time.monotonic(), -1  # when, and how many rows
        self._lately: deque[tuple[float, int]] = deque()
        self._bad = 0
        self.clear = self._line.clear

    def tell(self, progress: FeedProgress) -> None:
        self.rows = progress.rows
        if not self._has_begun and progress.note is None:
            self._has_begun, self.rows_before = True, progress.rows
        if self._is_quiet:
            return
        now = time.monotonic()
        self._lately.append((now, progress.rows))
        while self._lately[0][0] < now - _LATELY:
            self._lately.popleft()
        if progress.note is not None:
            self._remark(progress.note)
        elif self._line.is_shown:
            self._line.draw(lambda: self._text(progress))
        elif now > self._said + _EVERY and (self._told != self.rows or now > self._said + _IDLE):
            self._said, self._told = now, self.rows
            printing.talk(self._text(progress))

    def _remark(self, note: str) -> None:
        if note.startswith("left out"):
            self._bad += 1
            if self._bad > _BAD_ROWS:
                return
            note += "; more of them are only counted" if self._bad == _BAD_ROWS else ""
        self._line.clear()
        printing.talk(f"{note[:1].upper()}{note[1:]}")

    def _text(self, progress: FeedProgress) -> str:
        (began, first), (now, last) = self._lately[0], self._lately[-1]
        rate = (last - first) / (now - began) if now > began else 0.0
        parts = [_rows(progress.rows)]
        if progress.total is not None:
            parts = [
                f"{progress.rows:,} of {'' if progress.is_exact else 'about '}{progress.total:,} rows"
            ]
        parts.append(f"{rate:,.0f}/s" if rate >= 10 or not rate else f"{rate:.2g}/s")
        if progress.waiting is not None:
            parts.append(f"{progress.waiting:,} in line")
        if progress.total is not None and rate and progress.total > progress.rows:
            parts.append(f"{printing.span((progress.total - progress.rows) / rate)} to go")
        return ", ".join(parts)


def _explained(error: BacklogRefused, rows: int) -> Failure:
    fed = f"{_rows(rows)} done. " if rows else ""
    if error.row is None and not rows:
        return Failure(USAGE, str(error))
    if error.row is None:
        advice = "Mend it and run the same again, or feed the rest with another --name."
    elif error.row > 1 and error.file.lower().endswith(PARQUET):
        advice = "With --skip-bad it goes on behind such rows."
    else:
        advice = "Repair it and run the same again, or leave such rows out with --skip-bad."
    return Failure(USAGE, str(error), f"{fed}{advice}")


def _print_text(outcome: FeedOutcome, rows_before: int, source: str) -> None:
    name = printing.clean(outcome.feed)
    bad = f"; {printing.count(outcome.skipped, 'bad row')} left out" if outcome.skipped else ""
    if not outcome.is_finished:
        printing.talk(f"Stopped after {_rows(outcome.rows)}{bad}. The same command goes on there.")
    elif outcome.fed or outcome.skipped:
        rate = outcome.fed / max(outcome.seconds, 0.001)
        click.echo(
            f"{name}  {_rows(outcome.fed)} fed in {printing.span(outcome.seconds)}, {rate:,.0f}/s{bad}"
        )
        if rows_before:
            click.echo(f"{outcome.rows:,} in all, with those before")
    elif not outcome.rows:
        click.echo(f"{name}  nothing to feed: there are no rows in {printing.clean(source)}")
    elif not rows_before:
        click.echo(
            f"{name}  nothing to feed: there are only blank lines in {printing.clean(source)}"
        )
    elif outcome.rows > rows_before:
        blank = printing.count(outcome.rows - rows_before, "blank line")
        click.echo(
            f"{name}  nothing new but {blank}; {outcome.rows:,} rows in all, with those before"
        )
    else:
        click.echo(f"{name}  nothing new: all {outcome.rows:,} rows are done already")


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _print_json(outcome: FeedOutcome) -> None:
    printing.print_json(
        "feed",
        name=outcome.feed,
        queue=outcome.queue,
        finished=outcome.is_finished,
        rows=outcome.rows,
        fed=outcome.fed,
        skipped=outcome.skipped,
        seconds=round(outcome.seconds, 3),
    )
