"""`blueque archive`: move finished tasks from Redis into Parquet files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.named import queues_matching
from blueque.cli.options import Invocation, shared_options
from blueque.cli.progress_line import Line
from blueque.cli.states import state_option
from blueque.cli.values import DURATION
from blueque.model.states import FINISHED

if TYPE_CHECKING:
    from blueque.archives import Archived, ArchiveProgress

_VERBS = {"write": "written", "delete": "deleted from Redis"}


@click.command()
@click.argument("pattern", metavar="QUEUE")
@click.argument("directory")
@click.option(
    "--older-than", type=DURATION, help="Only tasks that ended at least this long ago: 12h, 7d."
)
@state_option(FINISHED)
@click.option(
    "--by-group",
    "is_by_group",
    is_flag=True,
    default=None,
    help="Start a new archive with a folder for each day and group.",
)
@click.option(
    "--unverified",
    is_flag=True,
    help="Use a store that Blueque was not tested with: gs://, abfss://, hdfs:// and others.",
)
@shared_options
def archive(
    invocation: Invocation,
    pattern: str,
    directory: str,
    older_than: float | None,
    states: Sequence[str],
    is_by_group: bool | None,
    unverified: bool,
) -> None:
    """Move the finished tasks of a queue from Redis into Parquet files.

    \b
    blueque archive 'video.*' /data/archive --older-than 1d
    blueque archive video.encode s3://bucket/archive --older-than 1d

    The files are in DIRECTORY, which is created if needed: queue=video.encode/day=2026-11-21/, by the day in UTC on which a
    task finished. Several queues may share it; a pattern as QUEUE archives one queue after the other. A task is deleted
    from Redis only when its file is complete.

    You can stop or kill it at any time. The next run goes on where it was: no task is lost, and none is archived twice. A
    task that is requeued meanwhile stays in Redis, and is archived again when it ends. It needs pip install
    '.[arrow]'.
    """
    from blueque import archives  # here: --help does not need it

    queues = _queues(invocation, pattern)
    client = invocation.client(patience=30.0)  # a batch should survive a restart of Redis
    screen = _Screen()
    try:
        for queue in queues:
            done = archives.archive(
                queue,
                directory,
                older_than=older_than,
                statuses=states or FINISHED,
                client=client,
                tell=screen.tell,
                by_group=is_by_group,
                unverified=unverified,
            )
            screen.clear()
            (_print_json if invocation.as_json else _print_text)(done)
    except BaseException as error:
        screen.clear()
        if isinstance(error, KeyboardInterrupt):
            printing.talk("Stopped. Nothing is lost: the next run continues.")
        raise


def _queues(invocation: Invocation, pattern: str) -> list[str]:
    """Return the queues that match; end the program if none does."""
    client = invocation.client()
    return queues_matching(client.get_inspector().queues(), [pattern])


def _print_text(done: Archived) -> None:
    name = printing.clean(done.queue)
    if done.batches:
        rate = done.written / max(done.seconds, 0.001)
        tasks = f"{done.written:,} task{'s' * (done.written != 1)}"
        click.echo(
            f"{name}  {tasks} archived in {printing.span(done.seconds)} ({rate:,.0f}/s){_fate(done)}"
        )
        click.echo(f"in {printing.clean(done.directory)}")
    else:
        click.echo(f"{name}  nothing to archive")
    if done.resumed:
        printing.talk("It finished an interrupted run first.")


def _fate(done: Archived) -> str:
    kept = done.written - done.deleted
    if not kept:
        return " and deleted from Redis"
    return f"; {done.deleted:,} deleted from Redis, {kept:,} changed or deleted by others meanwhile"


def _print_json(done: Archived) -> None:
    printing.print_json(
        "archive",
        queue=done.queue,
        directory=done.directory,
        written=done.written,
        deleted=done.deleted,
        batches=list(done.batches),
        resumed=list(done.resumed),
        seconds=round(done.seconds, 3),
    )


class _Screen:
    """Shows the progress in a line on the terminal."""

    def __init__(self) -> None:
        self._line = Line()
        self._stage: tuple[str, str] = ("", "")
        self._began = 0.0
        self.clear = self._line.clear

    def tell(self, progress: ArchiveProgress) -> None:
        if progress.stage == "wait":
            self._tell_waiting(progress)
            return
        if self._stage != (progress.stage, progress.batch):
            self._stage, self._began = (progress.stage, progress.batch), time.monotonic()
            self.clear()  # each stage is shown, however short it is
        rate = progress.done / max(time.monotonic() - self._began, 0.001)
        self._line.draw(
            lambda: (
                f"{progress.done:,} of {progress.total:,} {_VERBS[progress.stage]}, {rate:,.0f}/s"
            )
        )

    def _tell_waiting(self, progress: ArchiveProgress) -> None:
        if self._stage == ("wait", progress.batch):
            return
        self._stage, other = ("wait", progress.batch), progress.other or {}
        self.clear()
        printing.talk(
            f"Waiting for another archiver of this queue: {other.get('by')}, process {other.get('pid')}."
        )
