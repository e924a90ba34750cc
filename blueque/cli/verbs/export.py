"""`blueque export`: write tasks as JSON lines or CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.named import pattern_option, queues_matching, require_groups
from blueque.cli.options import Invocation, reveal_option, text_options
from blueque.cli.selection import selection_of
from blueque.cli.states import state_option
from blueque.documents.contents import contents
from blueque.documents.tasks import as_item
from blueque.model.states import FINISHED, STATUSES
from blueque.text.format import as_cell

if TYPE_CHECKING:
    from blueque.queries.selection import Selection

PATIENCE = 30.0  # seconds
KEEP = 6 * 3600.0  # seconds that an export may take, if its reader is slow
# Names in JSON that fit a table; times are ISO 8601 in UTC.
CSV_COLUMNS = (
    "id",
    "queue",
    "status",
    "attempt",
    "node",
    "created",
    "started",
    "finished",
    "updated",
    "eta",
    "error_type",
    "error",
    "exit_code",
    "signal",
    "failures",
    "memory_peak",
    "cpu_seconds",
    "priority",
    "needs",
    "title",
    "key",
    "group",
    "producer",
    "progress",
    "parameters",
    "result",
)


@click.command()
@pattern_option
@state_option((*STATUSES, "all"))
@selection_of("group", "tags", "since", "until")
@click.option(
    "--format", "form", type=click.Choice(("jsonl", "csv")), default="jsonl", show_default=True
)
@reveal_option
@text_options
def export(
    invocation: Invocation,
    patterns: Sequence[str],
    states: Sequence[str],
    selection: Selection,
    form: str,
    reveals: bool,
) -> None:
    """Write tasks as JSON lines or CSV to standard output.

    \b
    blueque export -q 'render.*' --since 1d > tasks.jsonl
    blueque export --state all --format csv > tasks.csv

    Without --state it writes the tasks that have ended. It reads all tasks of the queues, even if options select few,
    and writes the oldest of each queue and state first. A task that is enqueued meanwhile, or leaves its state before
    it is read, is left out. A line of JSON is the item of `blueque show ID --json`, without the signs of a running
    task. CSV has a row of titles, times in ISO 8601, and parameters and result as JSON, unless they are text.
    """
    queues = queues_matching(invocation.client().get_inspector().queues(), patterns)
    # from here on: work that has begun may wait
    client = invocation.client(patience=PATIENCE)
    inspector = client.get_inspector()
    hide = invocation.hider(reveals)
    wanted = list(STATUSES) if "all" in states else list(dict.fromkeys(states)) or list(FINISHED)
    now = inspector.now()
    count = 0
    write = _csv(sys.stdout) if form == "csv" else _json_lines(sys.stdout)
    # One queue after the other: copies of the ids of all queues might not fit into Redis.
    for queue in queues:
        snapshot = client.freeze(queue, wanted, KEEP)
        try:
            for task in client.tasks_of(snapshot):
                if task.status in wanted and task.queue == queue and selection.wants(task, now):
                    write(as_item(task, now) | contents(task, hide))
                    count += 1
        finally:
            client.thaw(snapshot)
    if not count:  # a group that is forgotten may still have tasks
        require_groups(inspector, selection.group)
    sys.stdout.flush()


def _json_lines(file: IO[str]) -> Callable[[dict[str, Any]], object]:
    return lambda item: file.write(f"{printing.json_line(item)}\n")


def _csv(file: IO[str]) -> Callable[[dict[str, Any]], object]:
    table = csv.writer(file, lineterminator="\n")
    table.writerow(CSV_COLUMNS)
    # Text of a task must not control a terminal.
    shown = printing.clean if file.isatty() else str
    return lambda item: table.writerow(
        [
            as_cell(shown(cell)) if isinstance(cell, str) else cell
            for cell in (_cell(item.get(name)) for name in CSV_COLUMNS)
        ]
    )


def _cell(value: Any) -> Any:
    return (
        value
        if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool))
        else json.dumps(value, ensure_ascii=False)
    )
