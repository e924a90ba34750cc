"""`blueque enqueue`: tasks from the command line, a file or standard input."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from blueque import limits
from blueque.cli import show
from blueque.cli.failure import USAGE, Failure
from blueque.cli.options import DURATION, LAST_SECOND, TIME, Invocation, limit_options, pass_invocation, shared_options
from blueque.errors import BluequeError, InvalidInput
from blueque.queue import Queue
from blueque.retry import Retry
from blueque.values import encode

Read = Callable[[bytes], Any]
Put = Callable[[Any], str]


@click.command()
@click.argument("queue")
@click.argument("source", required=False, metavar="[JSON | @FILE | -]")
@click.option("--text", "is_text", is_flag=True, help="What is given is no JSON but a string: send it untouched.")
@click.option("--lines", "is_lines", is_flag=True, help="One task for each line of the file or of standard input.")
@click.option("--at", "eta", type=TIME, metavar="TIME", help="When due: Unix seconds, or 2030-01-31T08:00:00+01:00.")
@click.option("--in", "delay", type=DURATION, metavar="DURATION", help="When due, from now: 90, 30s, 2h, 1d12h.")
@limit_options()
@shared_options
@pass_invocation
def enqueue(
    invocation: Invocation,
    /,
    queue: str,
    source: str | None,
    is_text: bool,
    is_lines: bool,
    eta: float | None,
    delay: float | None,
    retry: Retry | None,
    **its_limits: Any,
) -> None:
    """Put a task in QUEUE and print its id.

    \b
    blueque enqueue video.encode '{"input": "a.mov"}'
    blueque enqueue mail.send --text 'Hello you' --in 2h
    blueque enqueue video.encode @task.json
    find . -name '*.mov' | blueque enqueue video.encode --lines --text

    What is given must be JSON; a JSON string arrives as that string. With --text it is a string as it stands, its last
    newline included. Without anything the parameters are null. A string that begins with @, or is just -, goes
    through standard input: printf %s "$name" | blueque enqueue QUEUE --text -

    --lines reads standard input if no file is given, and leaves out blank lines (not with --text: there an empty line is
    an empty string). A file is checked as a whole before its first task is enqueued, standard input line by line.
    """
    client = invocation.client()
    sink = client.get_queue(queue)
    put = _put(sink, _due(eta, delay), retry, its_limits)
    read = _text if is_text else _json
    if is_lines:
        _enqueue_lines(put, source or "-", read, client.max_bytes)
    else:
        click.echo(put(_one(source, read, is_text)))


def _put(queue: Queue, due: float | None, retry: Retry | None, its_limits: dict[str, Any]) -> Put:
    limits.fields(**its_limits)                        # refuses bad ones, before the first line is read
    if due is None:
        return lambda parameters: queue.enqueue(parameters, retry=retry, **its_limits)
    return lambda parameters: queue.schedule(parameters, due, retry=retry, **its_limits)


def _enqueue_lines(put: Put, source: str, read: Read, max_bytes: int) -> None:
    if source == "-":
        _enqueue_each(put, _values(sys.stdin.buffer, read, max_bytes))
        return
    if not source.startswith("@"):
        raise click.UsageError("--lines takes @FILE, or - for standard input")
    lines = _file(source).split(b"\n")
    lines = lines if lines[-1] else lines[:-1]
    try:
        for _ in _values(lines, read, max_bytes):      # first all of them, so that a bad line stops everything
            pass
    except Failure as failure:
        raise Failure(failure.exit_code, failure.message, "Nothing was enqueued.", *failure.advice) from failure
    _enqueue_each(put, _values(lines, read, max_bytes))


def _enqueue_each(put: Put, values: Iterator[Any]) -> None:
    """Enqueue and print the ids; when something ends that before its time, say how far it got."""
    count = 0
    try:
        for parameters in values:
            task_id = put(parameters)
            count += 1
            click.echo(task_id)
    except (BluequeError, Failure, OSError, KeyboardInterrupt) as error:
        reason = " nobody reads the ids any more" if isinstance(error, BrokenPipeError) else ""
        show.talk(f"{count} enqueued, then it stopped:{reason}")
        raise


def _values(lines: Iterable[bytes], read: Read, max_bytes: int) -> Iterator[Any]:
    for number, line in enumerate(lines, 1):
        line = line.removesuffix(b"\n")
        if read is _json and not line.strip():
            continue
        try:
            value = read(line)
            encode(value, "the parameters", max_bytes)
        except InvalidInput as error:
            raise Failure(USAGE, f"line {number}: {error}", _advice(read)) from error
        yield value


def _one(source: str | None, read: Read, is_text: bool) -> Any:
    if source is None:
        if is_text:
            raise click.UsageError("--text needs a string, @FILE, or - for standard input")
        return None
    if source == "-":
        content = sys.stdin.buffer.read()
    elif source.startswith("@"):
        content = _file(source)
    else:
        content = source.encode("utf-8", "surrogateescape")
    try:
        return read(content)
    except InvalidInput as error:
        raise Failure(USAGE, str(error), _advice(read)) from error


def _file(source: str) -> bytes:
    try:
        with open(source[1:], "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        advice = "A string that begins with @ goes through standard input, with --text -"
        raise Failure(USAGE, f"cannot read {source[1:]!r}: {reason}", advice) from error


def _json(content: bytes) -> Any:
    text = _text(content)
    try:
        return json.loads(text)
    except RecursionError as error:
        raise InvalidInput("the JSON is nested too deeply") from error
    except ValueError as error:
        some = text if len(text) <= 30 else f"{text[:30]}..."
        raise InvalidInput(f"not valid JSON: {some!r} ({error})") from error


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"not UTF-8: byte {content[error.start]:#04x} at position {error.start}") from error


def _advice(read: Read) -> str:
    return "A plain string is sent with --text." if read is _json else ""


def _due(eta: float | None, delay: float | None) -> float | None:
    if eta is not None and delay is not None:
        raise click.UsageError("give --at or --in, not both")
    if delay is None:
        if eta is not None and eta < time.time():
            show.talk("That time is past: it is enqueued at once.")
        return eta
    due = time.time() + delay
    if due > LAST_SECOND:
        raise click.UsageError("--in: that is after the year 9999")
    return due
