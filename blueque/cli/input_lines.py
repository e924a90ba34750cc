"""Make a task of each line of a file or a pipe, and print the ids as soon as the tasks are in Redis."""

from __future__ import annotations

import io
import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import IO, TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.failure import USAGE, Failure
from blueque.cli.progress_line import Line
from blueque.errors import BluequeError, InvalidInput
from blueque.model.encoding import FLUSH, quick_encoder
from blueque.model.ids import require_key
from blueque.text.json_errors import NotJson, as_json, as_text

if TYPE_CHECKING:
    from blueque.model.task_id import TaskId

PATIENCE = 0.2  # seconds that a line waits for more lines
READ = 1 << 16
MOST_COMPARED = 100_000  # rows whose keys are compared: their ids take 18 MB

Read = Callable[[bytes], Any]

# Types of JSON that cannot be a key.
_KINDS = {
    float: "a number with a fraction",
    bool: "a boolean",
    dict: "an object",
    list: "a list",
    type(None): "null",
}


class Lines:
    """The lines of @FILE, or of standard input if the source is `-`, as parameters."""

    def __init__(self, source: str, read: Read, max_bytes: int, key_field: str | None) -> None:
        self._source, self._read, self._key_field = source, read, key_field
        self._encode = quick_encoder(max_bytes)
        if source != "-" and not source.startswith("@"):
            raise click.UsageError("--lines takes @FILE, or - for standard input")

    def values(self) -> Iterator[Any]:
        """Yield the parameters, those of a file only if all are valid; FLUSH: send what was yielded."""
        if self._source == "-":
            return self._values(_arriving(sys.stdin.buffer))
        lines = _FileLines(self._source)
        try:
            for _ in self._values(lines):  # first all lines, so that a bad one stops everything
                pass
        except Failure as failure:
            raise Failure(
                failure.exit_code, failure.message, "Nothing was enqueued.", *failure.advice
            ) from failure
        return self._values(lines)

    def _values(self, lines: Iterable[Any]) -> Iterator[Any]:
        number = 0
        for line in lines:
            if line is FLUSH:
                yield FLUSH
                continue
            number += 1
            if self._read is as_json and not line.strip():
                continue
            try:
                value = self._read(line)
                self._encode(value)
                self._require_key(value)
            except InvalidInput as error:
                yield FLUSH  # the valid lines before it are enqueued
                raise Failure(USAGE, f"line {number}: {error}", advice(error)) from error
            yield value

    def _require_key(self, value: Any) -> None:
        if self._key_field is None:
            return
        if not isinstance(value, dict) or self._key_field not in value:
            raise InvalidInput(f"the key is missing: there is no field {self._key_field!r}")
        key = value[self._key_field]
        if type(key) in _KINDS:
            raise InvalidInput(
                f"the field {self._key_field!r} holds {_KINDS[type(key)]}; a key is text or a whole number"
            )
        require_key(key, f"the key in {self._key_field!r}")


class _FileLines:
    """The lines of @FILE, which can be read again. The lines of a pipe are kept for that."""

    def __init__(self, source: str) -> None:
        self._path = source[1:]
        self._content = None if os.path.isfile(self._path) else io.BytesIO(read_file(source, ""))

    def __iter__(self) -> Iterator[bytes]:
        if self._content is not None:
            self._content.seek(0)
        with (
            open_file(f"@{self._path}", "")
            if self._content is None
            else nullcontext(self._content) as file
        ):
            for line in file:
                yield line.removesuffix(b"\n")


def print_ids(batches: Iterator[list[TaskId]], has_keys: bool) -> None:
    """Print the ids of each batch. If an error ends this, print how far it got."""
    progress = Progress(has_keys)
    try:
        for ids in batches:
            progress.add(ids)
            click.echo("\n".join(ids))
    except (BluequeError, Failure, OSError, KeyboardInterrupt) as error:
        progress.clear()
        reason = " the output was closed" if isinstance(error, BrokenPipeError) else ""
        new = f", {progress.new} of them new" if has_keys else ""
        printing.talk(f"{progress.tasks} enqueued{new}, then it stopped:{reason}")
        raise
    progress.end()
    if has_keys and not progress.is_shown:
        printing.talk(progress.summary())


class Progress:
    """Shows on the terminal how many tasks are in Redis, unless the ids are printed there."""

    def __init__(self, has_keys: bool) -> None:
        self.tasks = self.new = 0
        self._has_keys = has_keys
        self._different: set[str] = set()
        self._began = time.monotonic()
        self._line = Line(is_wanted=not sys.stdout.isatty())
        self.is_shown = self._line.is_shown

    def add(self, ids: list[TaskId]) -> None:
        self.tasks += len(ids)
        self.new += sum(task.is_new for task in ids)
        if self._has_keys and self.tasks <= MOST_COMPARED:
            self._different.update(ids)
        self._line.draw(self._text)

    def clear(self) -> None:
        self._line.clear()

    def end(self) -> None:
        self._line.end(self._text() + self._remark())

    def summary(self) -> str:
        """Return how many tasks the rows have made, and how many rows repeat a key of another row."""
        repeats = self._repeats()
        rows = f"{printing.count(self.tasks, 'row')}, " if repeats else ""
        tasks = printing.count(self.tasks - repeats, "task")
        return f"{rows}{tasks}, {self.new} of them new{self._remark()}"

    def _repeats(self) -> int:
        """Return how many rows repeat a key; 0 if there are too many rows to compare."""
        is_compared = self._has_keys and self.tasks <= MOST_COMPARED
        return self.tasks - len(self._different) if is_compared else 0

    def _remark(self) -> str:
        repeats = self._repeats()
        verb = "repeats" if repeats == 1 else "repeat"
        return f": {printing.count(repeats, 'row')} {verb} a key" if repeats else ""

    def _text(self) -> str:
        rate = self.tasks / max(time.monotonic() - self._began, 0.001)
        new = f", {self.new:,} of them new" if self._has_keys else ""
        return f"{self.tasks:,} enqueued{new}, {rate:,.0f}/s"


def _arriving(stream: Any) -> Iterator[Any]:
    """Yield the lines as they arrive, and FLUSH when the first of them has waited long enough."""
    try:
        descriptor, poll = stream.fileno(), select.poll()
    except (
        OSError,
        AttributeError,
        io.UnsupportedOperation,
    ):  # it cannot be polled, or nothing can
        yield from (line.removesuffix(b"\n") for line in stream)
        return
    poll.register(descriptor, select.POLLIN)
    parts: list[bytes] = []  # of a line that has not ended
    flush_at: float | None = None
    while True:
        if flush_at is not None and not poll.poll(max(flush_at - time.monotonic(), 0) * 1000):
            flush_at = None
            yield FLUSH
        data = os.read(descriptor, READ)
        if not data:
            break
        first, *others = data.split(b"\n")
        parts.append(first)
        if others:
            yield b"".join(parts)
            parts = [others.pop()]
            yield from others
            flush_at = flush_at or time.monotonic() + PATIENCE
    if parts != [b""] and parts:
        yield b"".join(parts)


def read_file(source: str, advice: str) -> bytes:
    with open_file(source, advice) as file:
        return file.read()


@contextmanager
def open_file(source: str, advice: str) -> Iterator[IO[bytes]]:
    try:
        with open(source[1:], "rb") as file:
            yield file
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Failure(USAGE, f"cannot read {source[1:]!r}: {reason}", advice) from error


def advice(error: InvalidInput) -> str:
    return "To send a plain string: --text" if isinstance(error, NotJson) else ""


def parameters_of(source: str | None, is_text: bool) -> Any:
    """Return the parameters of one task from the command line."""
    read: Read = as_text if is_text else as_json
    if source is None:
        if is_text:
            raise click.UsageError("--text needs a string, @FILE, or - for standard input")
        raise click.UsageError(
            "the input is missing: JSON, @FILE, or - for standard input; null for none"
        )
    if source == "-":
        content = sys.stdin.buffer.read()
    elif source.startswith("@"):
        content = read_file(
            source, "Pass a string that begins with @ through standard input: --text -"
        )
    else:
        content = source.encode("utf-8", "surrogateescape")
    try:
        return read(content)
    except InvalidInput as error:
        raise Failure(USAGE, str(error), advice(error)) from error
