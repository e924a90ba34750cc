"""`blueque run`: enqueue a task, show its output, and exit as it does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.endings import detached, tell_ending
from blueque.cli.failure import NOT_COMPLETE
from blueque.cli.input_lines import parameters_of
from blueque.cli.options import Invocation, shared_options
from blueque.cli.task_options import needs, needs_options, task_limit_options
from blueque.cli.unserved import warn_of_no_listener
from blueque.documents.contents import contents
from blueque.documents.tasks import as_item
from blueque.errors import NoSuchTask, RedisAway
from blueque.model.states import FINISHED
from blueque.queries import task_log
from blueque.queries.task_log import LogLine, Place
from blueque.sentences.made import not_new
from blueque.system.outage import Outage

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.model.task import Task

PACE = 0.5  # seconds between two reads
LONG = 5.0  # seconds in line after which it mentions blueque why


@click.command()
@click.argument("queue")
@click.argument("source", required=False, metavar="[JSON | @FILE | -]")
@click.option("--text", "is_text", is_flag=True, help="Send the input as a string, not as JSON.")
@click.option(
    "--key", metavar="TEXT", help="Key of the task: if a task with this key exists, follow it."
)
@needs_options
@task_limit_options
@shared_options
def run(
    invocation: Invocation,
    /,
    queue: str,
    source: str | None,
    is_text: bool,
    key: str | None,
    resources: Sequence[str],
    lock: str | None,
    **options: Any,
) -> int:
    """Put a task in QUEUE, show its output, and exit when it ends.

    \b
    blueque run video.encode '{"input": "a.mov"}'
    blueque run scripts --text 'make all' >made.log

    The output of the task appears about a second later: standard output on standard output, standard error on
    standard error. The result comes last, unless it is null or was the last line. With --json standard output has
    only the task, as in `blueque show --json`.

    The exit code is 0 if the task is complete, and 4 if it failed, was cancelled or lost. A listener of the queue runs it;
    without a listener it waits. After Ctrl-C the task goes on, and a message says how to follow or end it.
    """
    client = invocation.client()
    task_id = client.get_queue(queue).enqueue(
        parameters_of(source, is_text), key=key, **options, **needs(resources, lock)
    )
    output = _Output(invocation.as_json)
    try:
        printing.talk(f"task {task_id}")
        if not task_id.is_new:
            printing.talk(not_new(client.get_inspector().tasks([task_id])[0]))
        else:
            warn_of_no_listener(invocation, client, queue)
        task = _follow(client, task_id, output)
    except KeyboardInterrupt:
        printing.talk(detached([task_id]))
        raise
    tell_ending(task)
    if task.status == "failed":
        printing.talk(f"To see more: blueque show {printing.short_id(task_id)}")
    if invocation.as_json:
        now = client.get_inspector().now()
        item = as_item(task, now) | contents(task, invocation.hider(False))
        printing.print_json("task", **printing.times(now=now), item=item)
    elif task.status == "complete":
        output.print_result(task)
    return 0 if task.status == "complete" else NOT_COMPLETE


class _Output:
    """Prints the output of the task. has_object: standard output is for one JSON object."""

    def __init__(self, has_object: bool) -> None:
        self._has_object = has_object
        self._last = (0, 0)  # attempt and number of the last line
        self._said: str | None = None  # the last line on standard output

    def print(self, lines: Iterable[LogLine]) -> None:
        for line in lines:
            if line[1:3] <= self._last:  # it is in both parts of the log
                continue
            before = self._last[1] if self._last[0] == line.attempt else 0
            if line.number > before + 1:
                missing = printing.count(line.number - before - 1, "line")
                printing.talk(
                    f"... {missing} left out; on its host, to see everything: blueque logs --all {line.task}"
                )
            self._last = line.attempt, line.number
            is_error = line.stream != "stdout"
            if not is_error:
                self._said = line.text
            click.echo(
                printing.harmless(line.text) if printing.is_terminal() else line.text,
                err=is_error or self._has_object,
            )

    def print_result(self, task: Task) -> None:
        """Print the result, unless it was printed already."""
        result = task.for_people().result
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        if result is not None and text != self._said:
            click.echo(printing.harmless(text) if printing.is_terminal() else text)


def _follow(client: Client, task_id: str, output: _Output) -> Task:
    """Print new output until the task has ended, and return the task; wait while Redis is away."""
    place, outage = Place(task_id), Outage("Redis answers again")
    began, has_waited, last = time.monotonic(), False, "pending"
    attempt: int | None = None
    while True:
        try:
            lines, (place,), statuses, _ = task_log.follow(client.connections, [place])
            status = statuses[task_id]
            is_read = status in (*FINISHED, "scheduled") and not lines
            task = client.get_task(task_id) if is_read else None
            if task is not None and task.status == "scheduled" and task.attempt != attempt:
                _tell_of_next(task, client.get_inspector().now())
                attempt = task.attempt
            outage.note(None)
        except RedisAway as error:
            outage.note(str(error), "waiting")
            time.sleep(outage.pause())
            continue
        output.print(lines)
        if status is None:
            raise NoSuchTask(task_id, last)
        last = status
        if task is not None and task.status in FINISHED:
            return task
        if status != "pending":
            began = time.monotonic()
        elif not has_waited and time.monotonic() - began > LONG:
            has_waited = True
            printing.talk(
                f"It is still in line; to see why: blueque why {printing.short_id(task_id)}"
            )
        time.sleep(PACE if not lines else PACE / 5)


def _tell_of_next(task: Task, now: float) -> None:
    """Say why an attempt has ended, and when the next one is due."""
    error = (task.last_error or "").partition("\n")[0]
    ended = f"failed: {error}" if error else "has ended"
    due = printing.due(task.eta or now, now)
    printing.talk(f"attempt {task.attempt} {ended}; the next one is {due}")
