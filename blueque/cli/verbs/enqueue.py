"""`blueque enqueue`: make tasks from the command line, a file or standard input."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.failure import Failure
from blueque.cli.input_lines import Lines, parameters_of, print_ids
from blueque.cli.options import Invocation, text_options
from blueque.cli.task_options import label_options, needs, needs_options, task_limit_options
from blueque.cli.unserved import warn_of_no_listener
from blueque.cli.values import DURATION, TIME_TO_COME
from blueque.cli.waits import open_group, proved, wait_options, waits
from blueque.errors import NoSuchGroup
from blueque.model.encoding import FIRST_ETA, LAST_SECOND
from blueque.sentences.made import not_new
from blueque.text.hints import of_group
from blueque.text.json_errors import as_json, as_text

if TYPE_CHECKING:
    from blueque.producer.groups import TaskGroup


@click.command()
@click.argument("queue")
@click.argument("source", required=False, metavar="[JSON | @FILE | -]")
@click.option("--text", "is_text", is_flag=True, help="Send the input as a string, not as JSON.")
@click.option("--lines", "is_lines", is_flag=True, help="Make a task of each line.")
@click.option(
    "--at",
    "eta",
    type=TIME_TO_COME,
    metavar="TIME",
    help="When it is due: 2030-01-31T08:00, 'tomorrow 08:00'.",
)
@click.option("--in", "delay", type=DURATION, help="Delay until it is due: 90, 30s, 2h, 1d12h.")
@click.option(
    "--key", metavar="TEXT", help="Key of the task: if a task with this key exists, none is made."
)
@click.option(
    "--key-field",
    metavar="NAME",
    help="With --lines: the field of the JSON objects that holds the key.",
)
@click.option(
    "--start-within",
    metavar="DURATION",
    help="Cancel the task if it has not started this long after it is due: 2h.",
)
@click.option(
    "--start-before",
    type=TIME_TO_COME,
    metavar="TIME",
    help="Cancel the task if it has not started by this time.",
)
@click.option(
    "--expired-to", metavar="QUEUE", help="Move it to this queue instead of cancelling it."
)
@wait_options
@needs_options
@label_options
@task_limit_options
@text_options
def enqueue(
    invocation: Invocation,
    /,
    queue: str,
    source: str | None,
    is_text: bool,
    is_lines: bool,
    eta: float | None,
    delay: float | None,
    key: str | None,
    key_field: str | None,
    resources: Sequence[str],
    lock: str | None,
    **options: Any,
) -> None:
    """Put a task in QUEUE and print its id.

    \b
    blueque enqueue video.encode '{"input": "a.mov"}'
    blueque enqueue mail.send --text 'Hello you' --in 2h
    blueque enqueue video.encode @task.json --priority 5 --resource gpu=1
    find . -name '*.mov' | blueque enqueue video.encode --lines --text
    blueque enqueue mail.send '"it is done"' --after 7c1f
    blueque enqueue video.encode '"a.mov"' --group night-1

    The input must be JSON; a JSON string arrives as that string. With --text the input is a string, its last newline
    included. For a task without input, write null. Pass a string that begins with @, or is just -, through standard
    input: printf %s "$name" | blueque enqueue QUEUE --text -

    --lines reads standard input if you give no file, and skips blank lines; with --text an empty line is an empty
    string. A file is checked as a whole before its first task is enqueued, standard input line by line. With
    --key-field and --group each key makes one task in the group, even if that task was deleted. If the command stops
    halfway, run it again: it makes only the missing tasks.

    You can repeat --after, --after-any and --after-not-ok; with --lines, each of the tasks waits. ID may also be
    'group NAME'. If all of these have already ended that way, the task does not wait.

    Close a group when no more tasks join it: blueque group close NAME. With --key-field this command closes a group
    that it has opened.
    """
    client = invocation.client()
    due = _due(eta, delay)
    options = waits(client.get_inspector(), options) | needs(resources, lock)
    sink = client.get_queue(queue)
    if is_lines:
        if key is not None:
            raise click.UsageError("--key is for one task; use --key-field with --lines")
        # refuses bad options, before the first line is read
        sink.enqueue_iter((), keys=key_field, **options)
        lines = Lines(source or "-", as_text if is_text else as_json, client.max_bytes, key_field)
        values = lines.values()
        if options.get("group") is not None:
            values = proved(values, options["group"])
            if key_field is None:  # a call with keys opens its group, and closes it at its end
                open_group(client, options)
        batches = (
            sink.enqueue_iter(values, keys=key_field, **options)
            if due is None
            else sink.schedule_iter(values, due, keys=key_field, **options)
        )
        try:
            print_ids(batches, has_keys=key_field is not None)
        except Failure as failure:  # a bad line
            if key_field is None or options.get("group") is None:
                raise
            raise _with_way_on(failure, client.group(options["group"])) from failure
        return
    if key_field is not None:
        raise click.UsageError("--key-field needs --lines; for one task use --key")
    parameters = parameters_of(source, is_text)
    make = sink.enqueue if due is None else functools.partial(sink.schedule, eta=due)
    try:
        task = make(parameters, key=key, **options)
    except NoSuchGroup:  # then all else is good
        open_group(client, options)
        task = make(parameters, key=key, **options)
    click.echo(task)
    if not task.is_new:
        found = client.get_inspector().tasks([task])[0]
        printing.talk(not_new(found))
    elif due is None and _is_watched():
        warn_of_no_listener(invocation, client, queue)


def _with_way_on(failure: Failure, group: TaskGroup) -> Failure:
    """Return the failure with how to go on, if a call with keys has left its group open."""
    try:
        is_open = group.progress().state == "open"
    except NoSuchGroup:  # the first line was bad
        is_open = False
    if not is_open:
        return failure
    again = "correct the line and run the same command again"
    way_on = f"Group {group.name} stays open: {again}, or: {of_group('close', group.name)}"
    return Failure(failure.exit_code, failure.message, way_on, *failure.advice)


def _is_watched() -> bool:
    """Return whether a person reads the output: a script may run before its listener does."""
    return sys.stderr.isatty()


def _due(eta: float | None, delay: float | None) -> float | None:
    if eta is not None and delay is not None:
        raise click.UsageError("give --at or --in, not both")
    if delay is None:
        if eta is not None and 0 < eta < FIRST_ETA:
            raise click.UsageError(
                "--at is a time, in Unix seconds; give a delay with --in DURATION"
            )
        if eta is not None and eta < time.time():
            printing.talk("That time is past: the task is enqueued at once.")
        return eta
    due = time.time() + delay
    if due > LAST_SECOND:
        raise click.UsageError("--in: the time would be after the year 9999")
    return due
