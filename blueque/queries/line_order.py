"""The lines of a queue that have work, the order in which to try them, and their oldest tasks."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.model import keys
from blueque.model.encoding import seconds_of
from blueque.model.lines import DEFAULT, Needs, needs_of, priority_of

if TYPE_CHECKING:
    from blueque.connection.redis import Redis

LINES_AT_ONCE = 100  # lines that are read at a time


class Head(NamedTuple):
    """A line and its next task.

    length: 0 if the line is empty and its name should be dropped.
    needs: what each of its tasks needs; None: the name of the line is malformed.
    holders: how many tasks hold the lock that its tasks need. first: the id of the next task.
    """

    line: str
    length: int
    needs: Needs | None
    holders: int
    first: str | None = None

    @property
    def is_locked(self) -> bool:
        return (
            self.needs is not None
            and self.needs.lock is not None
            and self.holders >= self.needs.limit
        )


def heads(redis: Redis, queue: str) -> Iterator[Head]:
    """Yield the lines that have tasks, and the empty lines to drop, highest priority first.

    Lines of one priority are sorted by the age of their next tasks. With more than a hundred, this
    holds within each hundred, and the first hundred is random so that no line is always last. Two
    or three round trips for a hundred lines.
    """
    first, count, pending = redis.read(
        ("ZRANGE", keys.lines(queue), 0, LINES_AT_ONCE - 1, "REV"),
        ("ZCARD", keys.lines(queue)),
        ("LLEN", keys.pending(queue)),
    )
    others = [DEFAULT] if pending else []
    if count <= LINES_AT_ONCE:
        yield from _sorted(redis, queue, [*first, *others])
        return
    highest: float | str = "+inf"
    while True:
        range_of = (highest, "-inf", "BYSCORE", "REV", "LIMIT", 0, 1, "WITHSCORES")
        (top,) = redis.read(("ZRANGE", keys.lines(queue), *range_of))
        if others and (not top or float(top[1]) < 0):
            yield from _sorted(redis, queue, others)
            others = []
        if not top:
            return
        score = float(top[1])
        yield from _equals(redis, queue, score, others if score == 0 else [])
        others = [] if score == 0 else others
        highest = f"({score:g}"


def _equals(redis: Redis, queue: str, score: float, others: Sequence[str]) -> Iterator[Head]:
    """Yield the lines of one priority, a hundred at a time from a random start.

    others: go with the first hundred.
    """
    (left,) = redis.read(("ZCOUNT", keys.lines(queue), score, score))
    at = random.randrange(left) if left > LINES_AT_ONCE else 0
    while left > 0:
        range_of = (score, score, "BYSCORE", "LIMIT", at, min(LINES_AT_ONCE, left))
        (names,) = redis.read(("ZRANGE", keys.lines(queue), *range_of))
        if not names and not at:
            break
        left -= len(names)
        for head in _sorted(redis, queue, [*others, *names]):
            # The caller has dropped an empty line: the lines behind it have moved up.
            at += head.length > 0 and head.line not in others
            yield head
        at, others = at if names else 0, ()
    yield from _sorted(redis, queue, others)


def _sorted(redis: Redis, queue: str, names: Sequence[str]) -> Iterator[Head]:
    if not names:
        return
    needs = [needs_of(name) for name in names]
    questions: list[tuple[str | int, ...]] = []
    for name, need in zip(names, needs, strict=True):
        key = keys.line(queue, name)
        questions += [("LLEN", key), ("LINDEX", key, -1)]
        questions += (
            [("SCARD", keys.lock(need.lock))] if need is not None and need.lock is not None else []
        )
    replies: Iterator[Any] = iter(redis.read(*questions))
    read = []
    for name, need in zip(names, needs, strict=True):
        length, task = next(replies), next(replies)
        holders = next(replies) if need is not None and need.lock is not None else 0
        read.append((Head(name, length, need, holders, task), task))
    for priority in sorted({priority_of(name) for name in names}, reverse=True):
        equals = [(head, task) for head, task in read if priority_of(head.line) == priority]
        yield from [head for head, task in equals if task is None]
        waiting = [(head, task) for head, task in equals if task is not None]
        if len(waiting) > 1:
            # From the hash: a task that 1.0.0 made is not in the index before it has run.
            created = redis.read(*[("HGET", keys.task(task), "created") for _, task in waiting])
            ages = {
                head.line: age_of(text) for (head, _), text in zip(waiting, created, strict=True)
            }
            waiting.sort(key=lambda entry: ages[entry[0].line])
        yield from [head for head, _ in waiting]


def age_of(created: str | None) -> float:
    """Return when a task was made. A task that is gone, or has no such time, sorts first."""
    return seconds_of(created) or 0.0


def oldest_pending(redis: Redis, queue: str, count: int) -> list[str]:
    """Return at most `count` tasks in all lines of a queue, the first made first.

    The next tasks of a line count as its oldest ones. The result is empty only if none is pending.
    """
    seen: list[str] = []
    while True:
        tasks = _next_of_all_lines(redis, queue, count)
        found = _pending(redis, queue, tasks)
        # Others may have taken all of them meanwhile. What stays there and is not pending never goes.
        if found or tasks == seen:
            return found[:count]
        seen = tasks


def _next_of_all_lines(redis: Redis, queue: str, count: int) -> list[str]:
    (names,) = redis.read(("ZRANGE", keys.lines(queue), 0, -1))
    ends = redis.read(
        *[("LRANGE", keys.line(queue, name), -count, -1) for name in (DEFAULT, *names)]
    )
    return [task for end in ends for task in reversed(end)]


def _pending(redis: Redis, queue: str, tasks: Sequence[str]) -> list[str]:
    """Return the tasks that are pending in this queue, the first made first."""
    if not tasks:
        return []
    asked = [("HMGET", keys.task(task), "status", "queue", "created") for task in tasks]
    waiting = [
        (age_of(created), task)
        for task, (*state, created) in zip(tasks, redis.read(*asked), strict=True)
        if state == ["pending", queue]
    ]
    return [task for _, task in sorted(waiting, key=lambda pair: pair[0])]
