"""A batch of up to 1,000 new tasks in columnar form, and a pipeline that sends batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

from blueque.errors import InvalidInput, InvalidType, TooLarge
from blueque.model.encoding import require_time
from blueque.model.ids import MAX_KEY_BYTES, require_key
from blueque.model.lines import require_priority
from blueque.protocol.bulk import NewTasks

# Rows, and bytes of their parameters, in one transaction: Redis serves nothing else meanwhile.
MAX_ROWS, MAX_BYTES = 1000, 4 * 2**20
SLOW = 0.05  # seconds to make a batch; a slower iterable is not read while Redis works

Packed = TypeVar("Packed")
Made = TypeVar("Made")


class Rows(NamedTuple):
    """A batch of up to 1,000 new tasks in columnar form. Each column has a value for each of the
    parameters, or is left out.

    parameters: in UTF-8. are_json: all of them are JSON, or none. keys: 1 to 1000 bytes of text
        each, or whole numbers. etas: Unix seconds, None: at once.
    priorities: -100 to 100.
    """

    parameters: Sequence[bytes]
    keys: Sequence[str | int] | None = None
    are_json: bool = True
    etas: Sequence[float | None] | None = None
    priorities: Sequence[int] | None = None

    def require(self, max_bytes: int) -> None:
        """Check all values. The error names the position of a wrong one."""
        count = len(self.parameters)
        if not 0 < count <= MAX_ROWS:
            raise InvalidInput(f"1 to {MAX_ROWS} rows are taken at a time, not {count}")
        columns = {"keys": self.keys, "etas": self.etas, "priorities": self.priorities}
        for name, column in columns.items():
            if column is not None and len(column) != count:
                raise InvalidInput(
                    f"{name}: there are {len(column)} for {count} row{'' if count == 1 else 's'}"
                )
        if {*map(type, self.parameters)} != {bytes} or max(map(len, self.parameters)) > max_bytes:
            _each(
                "the parameters",
                self.parameters,
                lambda value, what: _require_parameters(value, what, max_bytes),
            )
        if self.etas is not None:
            _each("etas", self.etas, lambda value, what: value is None or require_time(value))
        if self.priorities is not None:
            _each("priorities", self.priorities, lambda value, what: require_priority(value))

    def parts(self, size: int, most_bytes: int = MAX_BYTES) -> Iterator[Rows]:
        """Yield the rows in batches of at most so many, and of so many bytes of parameters; a row
        that has more is alone.
        """
        start = 0
        while start < len(self.parameters):
            end = start + size
            while end > start + 1 and sum(map(len, self.parameters[start:end])) > most_bytes:
                end -= (end - start) // 2
            columns = [
                value if value is None or isinstance(value, bool) else value[start:end]
                for value in self
            ]
            yield Rows._make(columns)
            start = end

    def packed_keys(self) -> list[bytes]:
        """Return the keys in UTF-8. Raises InvalidInput."""
        its_keys = self.keys or ()
        try:
            packed = [key.encode() for key in its_keys]  # type: ignore[union-attr]
        except (AttributeError, UnicodeEncodeError):
            packed = []
        if not packed or not all(packed) or max(map(len, packed)) > MAX_KEY_BYTES:
            packed = [
                require_key(key, f"keys at position {number}").encode()
                for number, key in enumerate(its_keys)
            ]
        return packed

    def as_tasks(self, ids: Sequence[bytes], keys: Sequence[bytes] | None, now: float) -> NewTasks:
        """Return the tasks. A task whose eta is past is put in line, as by `Queue.schedule`."""
        etas = None
        if self.etas is not None:
            due = [float(eta) if eta is not None and eta >= now else None for eta in self.etas]
            etas = due if any(eta is not None for eta in due) else None
        parameters = list(zip(self.parameters, repeat(self.are_json)))
        return NewTasks(ids, parameters, self.priorities, etas, keys)


def relay(
    packed: Iterator[Packed | None], send: Callable[[Packed, Callable[[], object] | None], Made]
) -> Iterator[Made]:
    """Send batch after batch and yield the result of each. The next batch is packed while Redis
    works: `enqueue_many` then reaches the raw limit of one socket, and two thirds of it without.

    packed: the batches; None: there is nothing yet. An error of this iterator is raised when all
        batches before it are in Redis.
    send: takes the batch, and what to call meanwhile.
    """
    ready: list[Packed] = []  # one at most
    ends: list[BaseException] = []  # an error or a Ctrl-C that ended the iterator
    seconds = 0.0

    def fetch() -> None:
        nonlocal seconds
        if ends or ready:
            return
        began = time.monotonic()
        try:
            batch = next(packed)
        except BaseException as error:
            ends.append(error)
            return
        seconds = time.monotonic() - began
        if batch is not None:
            ready.append(batch)

    while ready or not ends:
        if not ready:
            fetch()
            continue
        # A slow iterable would keep us from the reply for long.
        yield send(ready.pop(), fetch if seconds < SLOW else None)
    if not isinstance(ends[0], StopIteration):
        raise ends[0]


def _each(name: str, values: Iterable[Any], require: Callable[[Any, str], object]) -> None:
    for position, value in enumerate(values):
        try:
            require(value, f"{name} at position {position}")
        except InvalidInput as error:
            if f"position {position}" in str(error):
                raise
            raise type(error)(f"{name}: at position {position}: {error}") from error


def _require_parameters(value: Any, what: str, max_bytes: int) -> None:
    if not isinstance(value, bytes):
        raise InvalidType(f"{what} must be bytes of UTF-8, and are of type {type(value).__name__}")
    if len(value) > max_bytes:
        raise TooLarge(what, len(value), max_bytes)
