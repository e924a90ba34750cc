"""`blueque logs`: show and follow what tasks print."""

from __future__ import annotations

import shlex
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.log_files import from_files
from blueque.cli.log_printer import Printer
from blueque.cli.named import pattern_option, queues_matching
from blueque.cli.named_tasks import find_one
from blueque.cli.options import Invocation, shared_options
from blueque.cli.values import WholeRange
from blueque.errors import RedisAway
from blueque.model.states import FINISHED, LOST
from blueque.queries import task_log
from blueque.queries.task_log import LogLine, Place
from blueque.sentences.pace import progress_words
from blueque.system.outage import Outage

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.model.task import Task

PACE = 0.5  # seconds between two reads
SHOWN = 200  # lines on a terminal, by default
MAX_NAMED = 4  # tasks that a command names
MOST_TASKS = 1000  # running tasks of queues that are followed
RUNNING = ("started", "reserved")


@click.command()
@click.argument("prefixes", nargs=-1, metavar="[ID...]")
@pattern_option
@click.option(
    "-f", "--follow", is_flag=True, help="Follow until the tasks have ended; with -q, for ever."
)
@click.option(
    "-n",
    "--lines",
    "count",
    type=WholeRange(0),
    metavar="N",
    help=f"The last N lines; default {SHOWN} on a terminal, all in a pipe.",
)
@click.option(
    "--all", "want_all", is_flag=True, help="Read everything, from the files on this host."
)
@click.option(
    "--attempt", type=WholeRange(1), metavar="N", help="Show this attempt; default: the last one."
)
@click.option("--times", "with_times", is_flag=True, help="Show when each line was read.")
@shared_options
def logs(
    invocation: Invocation,
    prefixes: Sequence[str],
    patterns: Sequence[str],
    follow: bool,
    count: int | None,
    want_all: bool,
    attempt: int | None,
    with_times: bool,
) -> None:
    """Show what tasks print.

    \b
    blueque logs -f 4f1e2c80
    blueque logs -f -q render

    With -q it shows the running tasks of these queues. With -f -q it follows each new task until Ctrl-C, even if none
    runs now.

    Redis keeps the last 1,000 lines of a task, and the first 64 KB of its last attempt. The host where the task ran
    has everything in files. Where lines are missing, a line that begins with ... says how many. A moving progress bar
    is not a line: it comes last, on standard error. With --json each line is an object.
    """
    if want_all and (follow or patterns or len(prefixes) != 1):
        raise click.UsageError(
            "--all needs one ID, and cannot be combined with --follow or --queue"
        )
    if not prefixes and not patterns:
        raise click.UsageError("name the tasks: ID..., or --queue QUEUE")
    client = invocation.client()
    queues = queues_matching(client.get_inspector().queues(), patterns) if patterns else ()
    tasks = _chosen(client, prefixes, queues)
    printer = Printer(
        len(tasks) > 1 or bool(queues and follow), with_times, invocation.as_json, invocation.is_utc
    )
    if want_all:
        task = client.get_task(tasks[0])
        printer.print(_last(from_files(task, attempt), count))
        return
    places = [_show(client, task_id, attempt, count, printer, follow) for task_id in tasks]
    if follow:
        _follow(client, places, queues, attempt, printer)


def _of(lines: Iterable[LogLine], attempt: int | None) -> Iterator[LogLine]:
    """Yield the lines of this attempt, or of any."""
    for line in lines:
        if attempt is None or line.attempt == attempt:
            yield line


def _chosen(client: Client, prefixes: Sequence[str], queues: Sequence[str]) -> list[str]:
    inspector = client.get_inspector()
    found = [find_one(inspector, prefix) for prefix in prefixes]
    if queues:
        found += [task.id for task in inspector.listing(queues, RUNNING, MOST_TASKS).tasks]
    return list(dict.fromkeys(found))


def _show(
    client: Client,
    task_id: str,
    wanted: int | None,
    count: int | None,
    printer: Printer,
    is_followed: bool,
) -> Place:
    """Print what Redis has of a task, and return the place after it."""
    lines, place = client.get_log(task_id)
    task = client.get_task(task_id)
    told = progress_words(task) if task.status == "started" else None
    attempt = (
        wanted
        or (task.attempt if task.status in RUNNING else None)
        or (lines[-1].attempt if lines else None)
    )
    chosen = list(_of(lines, attempt))
    shown = list(_last(chosen, SHOWN if count is None and printing.is_terminal() else count))
    missing = _missing(chosen)
    hidden = len(chosen) - len(shown)
    if hidden and shown:
        missing[shown[0].number] = 0  # the lines before it were not asked for
    for line in shown:
        printer.gap(task_id, missing[line.number])
        printer.print([line])
    if not chosen and not is_followed:
        _say_why_empty(client, task, wanted)
    elif not is_followed:
        _say_more(
            task,
            hidden if count is None else 0,
            len(chosen),
            sum(missing[line.number] for line in shown),
        )
    if told is not None and not is_followed and attempt == task.attempt:
        printer.now(f"{told}, as of {printing.stamp(task.progress_at, printer.is_utc)}")
    return place


def _missing(lines: Iterable[LogLine]) -> dict[int, int]:
    """Return how many lines are missing before each line."""
    found, before = {}, 0
    for line in lines:
        found[line.number] = line.number - before - 1
        before = line.number
    return found


def _last(lines: Iterable[LogLine], count: int | None) -> Iterable[LogLine]:
    return lines if count is None else deque(lines, count)


def _say_more(task: Task, hidden: int, known: int, missing: int) -> None:
    """Say how to see the other lines. hidden: in Redis. missing: no longer in Redis."""
    name = printing.short_id(task.id)
    if hidden:
        printing.talk(
            f"{printing.count(hidden, 'line')} before these: blueque logs -n {known} {name}"
        )
    if missing:
        printing.talk(
            f"{printing.count(missing, 'line')} left out; on its host, to see everything: blueque logs --all {name}"
        )


def _say_why_empty(client: Client, task: Task, wanted: int | None) -> None:
    files = task.files or task.last_files
    where = f"; everything it printed, if anything: {files}" if files else ""
    name = printing.short_id(task.id)
    if task.status == "complete" and not task.attempt:
        printing.talk(f"{name}: it ran on a listener of 1.0.0, which keeps no output")
    elif task.status is None or not task.attempt:
        printing.talk(f"{name}: has not run yet")
    elif wanted is not None:
        printing.talk(f"{name}: Redis has no line of attempt {wanted}{where}")
    elif _was_silent(client, task):
        printing.talk(f"{name}: attempt {task.attempt} has printed nothing")
    else:
        printing.talk(f"{name}: Redis has no line of attempt {task.attempt}{where}")
        if task.attempt > 1:
            before = f"blueque logs {name} --attempt {task.attempt - 1}"
            printing.talk(f"To see the attempt before: {before}")


def _was_silent(client: Client, task: Task) -> bool:
    """Return whether the last attempt has ended without printing anything."""
    if task.status not in ("complete", "failed") or task.error_type in LOST or task.started is None:
        return False
    from blueque.protocol.logs_and_checkpoints import KEPT  # here: --help does not need it

    return client.get_inspector().now() - task.started < KEPT  # its log would still exist


def _follow(
    client: Client,
    places: list[Place],
    queues: Sequence[str],
    attempt: int | None,
    printer: Printer,
) -> None:
    """Print new lines until all tasks have ended; of queues, for ever."""
    reached = {place.task: place for place in places}
    outage = Outage("Redis answers again")
    try:
        while places or queues:
            places = _look(client, places, queues, attempt, printer, reached, outage)
    except KeyboardInterrupt:
        printer.clear()
        printing.talk(_still([place.task for place in places], queues))
        raise
    printer.clear()


def _look(
    client: Client,
    places: list[Place],
    queues: Sequence[str],
    attempt: int | None,
    printer: Printer,
    reached: dict[str, Place],
    outage: Outage,
) -> list[Place]:
    """Print new lines, wait a moment, and return where to go on. reached: where each task was read
    last.
    """
    try:
        lines, behind, statuses, progress = task_log.follow(client.connections, places)
        running = (
            client.get_inspector().listing(queues, RUNNING, MOST_TASKS).tasks if queues else []
        )
        outage.note(None)
    except RedisAway as error:
        printer.clear()
        outage.note(str(error), "waiting")
        time.sleep(outage.pause())
        return places
    printer.follow(_of(lines, attempt))
    talking = {line.task for line in lines}
    places = [
        place
        for place in behind
        if statuses[place.task] not in (*FINISHED, None) or place.task in talking
    ]
    reached.update({place.task: place for place in behind})
    followed = {place.task for place in places}
    places += [reached.get(task.id, Place(task.id)) for task in running if task.id not in followed]
    if len(places) == 1:
        printer.draw(progress.get(places[0].task))
    time.sleep(PACE)
    return places


def _still(ids: Sequence[str], queues: Sequence[str]) -> str:
    """Return the remark after Ctrl-C."""
    if queues:
        again = " ".join(f"-q {shlex.quote(queue)}" for queue in queues)
        return f"No longer following; the tasks run on: blueque logs -f {again}"
    named = " ".join(printing.short_id(task) for task in ids[:MAX_NAMED])
    more = " ..." if len(ids) > MAX_NAMED else ""
    return f"No longer following; still running: blueque logs -f {named}{more}"
