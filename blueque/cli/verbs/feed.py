"""`blueque feed`: feed files, which may be larger than Redis, into a queue."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.failure import USAGE, Failure
from blueque.cli.options import Invocation, shared_options
from blueque.cli.progress_line import Line
from blueque.cli.task_options import label_options, needs, needs_options, task_limit_options
from blueque.cli.values import WholeRange
from blueque.errors import BacklogRefused

if TYPE_CHECKING:
    from blueque.backlog.feed_progress import FeedProgress
    from blueque.feeder import FeedOutcome

EVERY, _IDLE = 5.0, 60.0  # seconds between two lines in a pipe: with progress, without
_LATELY = 15.0  # seconds over which the rate is measured
_BAD_ROWS = 20  # that are printed one by one


@click.command()
@click.argument("words", nargs=-1, metavar="PATH... QUEUE")
@click.option(
    "--name", required=True, metavar="NAME", help="Name of the feed; the same name continues it."
)
@click.option(
    "--window",
    type=WholeRange(1),
    default=10_000,
    metavar="N",
    help="Maximum number of waiting tasks; default 10000.",
)
@click.option("--params", metavar="COLUMNS", help="Only these columns: scene,frame; default all.")
@click.option(
    "--value", metavar="COLUMN", help="Pass the value of one column, instead of an object."
)
@click.option(
    "--key", metavar="COLUMN", help="Rows with the same key make one task, while it is in Redis."
)
@click.option("--skip-bad", is_flag=True, help="Skip invalid rows; default: stop at the first.")
@click.option(
    "--follow", is_flag=True, help="Wait for more files; their names must sort after the others."
)
@needs_options
@label_options
@task_limit_options
@shared_options
def feed(
    invocation: Invocation,
    /,
    words: Sequence[str],
    params: str | None,
    value: str | None,
    resources: Sequence[str],
    lock: str | None,
    **options: Any,
) -> int:
    """Put a task in a queue for each row of files, in order and once, with a limited number of waiting tasks.

    \b
    blueque feed backlog/ render --name 2026-11-21
    blueque feed 'backlog/*.jsonl.gz' render --name night --params scene,frame
    blueque feed /data/incoming ingest --name incoming --follow

    PATH is a file, a directory with all files below it, or a pattern; you can give several. The files are Parquet (pip
    install '.[arrow]'), or JSON lines: .jsonl, .ndjson, .json, each also .gz. They are fed in the order of their
    names.

    You can stop or kill it at any time: the same command continues. A second one at the same time is refused with exit
    code 5. Rows that were fed are not fed again, even if their tasks were deleted. Files must appear whole: write them
    elsewhere, or under a name that begins with _, and rename them. A file must not change once its first row is fed.
    blueque group show NAME shows the progress.
    """
    from blueque import feeder
    from blueque.system.stop_signals import StopSignals  # here: --help does not need it

    *paths, queue = words or ("",)
    if not paths:
        raise click.UsageError("give PATH and QUEUE: the files, and the queue to feed")
    columns = _columns(params, value)
    stop, screen = threading.Event(), Screen()
    stopping = StopSignals(stop)
    try:
        outcome = feeder.feed(
            paths if len(paths) > 1 else paths[0],
            queue,
            params=columns,
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
    if invocation.as_json:
        _print_json(outcome)
    else:
        _print_text(outcome, screen.rows_before, " ".join(paths))
    return 0 if outcome.is_finished else stopping.exit_code


def _columns(params: str | None, value: str | None) -> str | list[str] | None:
    """Return the columns that --params names, or the one of --value."""
    if params is not None and value is not None:
        raise click.UsageError("give --params or --value, not both")
    return value if params is None else [name.strip() for name in params.split(",")]


class Screen:
    """Shows the progress: in one line on a terminal, in a line now and then elsewhere."""

    def __init__(self) -> None:
        self.rows = 0
        self.rows_before = 0  # done when this feeder began
        self._has_begun = False
        self._line = Line()
        self._said, self._told = time.monotonic(), -1  # when, and how many rows
        self._lately: deque[tuple[float, int]] = deque()
        self._bad = 0
        self.clear = self._line.clear

    def tell(self, progress: FeedProgress) -> None:
        self.rows = progress.rows
        if not self._has_begun and progress.note is None:
            self._has_begun, self.rows_before = True, progress.rows
        now = time.monotonic()
        self._lately.append((now, progress.rows))
        while self._lately[0][0] < now - _LATELY:
            self._lately.popleft()
        if progress.note is not None:
            self._remark(progress.note)
        elif self._line.is_shown:
            self._line.draw(lambda: self._text(progress))
        elif now > self._said + EVERY and (self._told != self.rows or now > self._said + _IDLE):
            self._said, self._told = now, self.rows
            printing.talk(self._text(progress))

    def _remark(self, note: str) -> None:
        if note.startswith("left out"):
            self._bad += 1
            if self._bad > _BAD_ROWS:
                return
            note += "; further bad rows are only counted" if self._bad == _BAD_ROWS else ""
        self._line.clear()
        printing.talk(f"{note[:1].upper()}{note[1:]}")

    def _text(self, progress: FeedProgress) -> str:
        (began, first), (now, last) = self._lately[0], self._lately[-1]
        rate = (last - first) / (now - began) if now > began else 0.0
        parts = [_rows(progress.rows)]
        if progress.total is not None:
            parts = [
                f"{progress.rows:,} of {'' if progress.is_exact else 'about '}{_rows(progress.total)}"
            ]
        parts.append(f"{rate:,.0f}/s" if rate >= 10 or not rate else f"{rate:.2g}/s")
        if progress.waiting is not None:
            parts.append(f"{progress.waiting:,} in line")
        if progress.total is not None and rate and progress.total > progress.rows:
            parts.append(f"{printing.span((progress.total - progress.rows) / rate)} left")
        return ", ".join(parts)


def _explained(error: BacklogRefused, rows: int) -> Failure:
    fed = f"{_rows(rows)} done. " if rows else ""
    if error.row is None and not rows:
        return Failure(USAGE, str(error))
    if error.row is None:
        advice = (
            "Make the files what they were and run the same command again. Or move those that are not fed yet"
            " into a directory of their own, and feed that with another --name."
        )
    elif error.row > 1:
        advice = "Skip such rows with --skip-bad, and feed them from another file when they are repaired."
    else:
        advice = "Repair the row and run the same command again, or skip such rows with --skip-bad."
    return Failure(USAGE, str(error), f"{fed}{advice}")


def _print_text(outcome: FeedOutcome, rows_before: int, source: str) -> None:
    name = printing.clean(outcome.feed)
    bad = f"; {printing.count(outcome.skipped, 'bad row')} skipped" if outcome.skipped else ""
    if not outcome.is_finished:
        printing.talk(
            f"Stopped after {_rows(outcome.rows)}{bad}. The same command continues from there."
        )
    elif outcome.fed or outcome.skipped:
        rate = outcome.fed / max(outcome.seconds, 0.001)
        click.echo(
            f"{name}  {_rows(outcome.fed)} fed in {printing.span(outcome.seconds)}, {rate:,.0f}/s{bad}"
        )
        if rows_before:
            click.echo(f"{_rows(outcome.rows)} in all, with those fed before")
    elif not outcome.rows:
        click.echo(f"{name}  nothing to feed: there are no rows in {printing.clean(source)}")
    elif not rows_before:
        click.echo(
            f"{name}  nothing to feed: there are only blank lines in {printing.clean(source)}"
        )
    elif outcome.rows > rows_before:
        blank = printing.count(outcome.rows - rows_before, "blank line")
        click.echo(
            f"{name}  nothing new but {blank}; {_rows(outcome.rows)} in all, with those fed before"
        )
    else:
        done = "the only row is" if outcome.rows == 1 else f"all {_rows(outcome.rows)} are"
        click.echo(f"{name}  nothing new: {done} done already")


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
