"""Readers: generators that yield the commands of a round trip, get the replies, and return a result.

    def length(queue: str) -> Reader[int]:
        (found,) = yield [("LLEN", keys.pending(queue))]
        return int(found)

`read` runs one. A reader calls another with `yield from`. `in_step` and `of_each` run many at once:
their first steps share a round trip, then their second steps. A step without commands takes none.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from blueque.connection.redis import Command, raise_refusal, time_of

if TYPE_CHECKING:
    from blueque.connection.redis import Redis

T = TypeVar("T")
Name = TypeVar("Name")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")

Reader = Generator[Sequence[Command], list[Any], T]


def read(redis: Redis, reader: Reader[T]) -> T:
    """Return the result of a reader, a round trip for each step. Raises RedisAway, RedisRefused."""
    replies: Any = None  # a generator begins with it
    try:
        while True:
            replies = redis.read(*reader.send(replies))
    except StopIteration as end:
        found: T = end.value
        return found


def begin(reader: Reader[T]) -> Sequence[Command]:
    """Return the commands of a reader that has a single step, for a caller that sends them itself."""
    return next(reader)


def finish(reader: Reader[T], replies: list[Any]) -> T:
    """Return the result of such a reader for these replies. Raises RedisRefused."""
    raise_refusal(replies)
    try:
        reader.send(replies)
    except StopIteration as end:
        found: T = end.value
        return found
    raise TypeError("the reader has another step")


@overload
def in_step(a: Reader[A], b: Reader[B], /) -> Reader[tuple[A, B]]: ...
@overload
def in_step(a: Reader[A], b: Reader[B], c: Reader[C], /) -> Reader[tuple[A, B, C]]: ...
@overload
def in_step(
    a: Reader[A], b: Reader[B], c: Reader[C], d: Reader[D], /
) -> Reader[tuple[A, B, C, D]]: ...
@overload
def in_step(
    a: Reader[A], b: Reader[B], c: Reader[C], d: Reader[D], e: Reader[E], /
) -> Reader[tuple[A, B, C, D, E]]: ...
def in_step(*readers: Reader[Any]) -> Reader[Any]:
    """Run these readers in the same round trips, and return their results."""
    return tuple((yield from _run(readers)))


def of_each(readers: Mapping[Name, Reader[T]]) -> Reader[dict[Name, T]]:
    """Run these readers in the same round trips, and return their results by name."""
    return dict(zip(readers, (yield from _run([*readers.values()])), strict=True))


def answer(value: T) -> Reader[T]:
    """Return this value without a round trip."""
    return value
    yield  # what makes it a generator


def clock() -> Reader[float]:
    """Read the clock of Redis, in Unix seconds."""
    (time,) = yield [("TIME",)]
    return time_of(time)


def _run(readers: Sequence[Reader[Any]]) -> Reader[list[Any]]:
    found: list[Any] = [None] * len(readers)
    left: list[tuple[int, Any]] = [(place, None) for place in range(len(readers))]
    while True:
        asked: list[Command] = []
        counts = []
        for place, replies in left:
            send = readers[place].send
            try:
                commands = send(replies)
                while not commands:  # it has nothing to ask: this is no step
                    commands = send([])
            except StopIteration as end:
                found[place] = end.value
            else:
                asked += commands
                counts.append((place, len(commands)))
        if not counts:
            return found
        answers, first, left = (yield asked), 0, []
        for place, count in counts:
            left.append((place, answers[first : first + count]))
            first += count
