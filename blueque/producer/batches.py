"""Puts many tasks from any iterable into Redis, batch by batch.

At most two batches are in memory: Redis processes one while the other is packed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from blueque.connection.redis import Redis
from blueque.errors import (
    BatchFailed,
    Contended,
    InvalidInput,
    OutcomeUnknown,
    RedisAway,
    RedisRefused,
)
from blueque.model.converter import Converter
from blueque.model.task_id import TaskId
from blueque.producer.keyed_groups import KeyedGroup, open_keyed
from blueque.producer.packer import Packer, Part, Plan
from blueque.producer.sealing import store_many

SLOW = 0.05  # seconds to make a batch; a slower iterable is not read while Redis works

Packed = TypeVar("Packed")
Sent = TypeVar("Sent")

log = logging.getLogger("blueque")


class Made(NamedTuple):
    """A batch in Redis: for each element, the id, and whether this call created the task."""

    ids: Sequence[bytes]
    are_new: Sequence[bool]

    def task_ids(self, converter: Converter | None = None) -> list[TaskId]:
        """Return the ids. converter: of the results."""
        return [
            TaskId(task.decode(), is_new, converter)
            for task, is_new in zip(self.ids, self.are_new, strict=True)
        ]


class Batches:
    """One pass over an iterable: each step puts a batch into Redis and yields what it created."""

    def __init__(self, redis: Redis, plan: Plan, iterable: Iterable[Any]) -> None:
        self._redis, self._plan = redis, plan
        self._packer = Packer(plan, iterable, partial(store_many, redis, plan.queue))
        self.group, self.has_keys = plan.wait.group, plan.keys is not None
        # The members of the group say which keys have made a task.
        self._keyed: KeyedGroup | None = None
        self._own: Redis | None = None
        self._made = 0  # members that the group had, and those that this pass has made

    def __iter__(self) -> Iterator[Made]:
        plan, keyed = self._plan, None
        if plan.terms is not None:
            keyed = open_keyed(self._redis, plan.queue, str(self.group), plan.terms)
            self._keyed, self._made = keyed, keyed.made
            self._packer.join(keyed)
        try:
            yield from relay(self._packer.parts(), self._send)
            if keyed is not None:
                self._make_missing(keyed)
        finally:
            if self._own is not None:
                self._own.close()
        if keyed is not None:
            keyed.close(self._redis, self._made)

    @property
    def left_open(self) -> bool:
        """Return whether an interrupted pass left a group open that it was to close."""
        return self._keyed is not None and self._keyed.is_ours

    def _make_missing(self, keyed: KeyedGroup) -> None:
        """Go over the iterable again until the group has all elements: a failover takes tasks back.

        Other programs may add members during this pass and hide lost ones. So accept a first pass
        only if the group grew by exactly what the pass created. A source that can be read only once
        has no further pass: `KeyedGroup.close` finds what is missing.
        """
        if self._packer.is_read_once:
            return
        rows, made = self._packer.position, self._made
        has_all = (count := keyed.count(self._redis)) == made
        while not has_all:
            if count < made:
                log.warning(
                    "group %s has lost %d tasks of queue %s, as in a failover: its rows are put again",
                    self.group,
                    made - count,
                    self._plan.queue,
                )
            self._made = count
            if not self._is_repeated(rows):
                self._made = made
                break
            rows, made = self._packer.position, self._made
            has_all = (count := keyed.count(self._redis)) >= made

    def _is_repeated(self, rows: int) -> bool:
        """Make another pass; return whether it had all rows."""
        self._packer.begin()
        try:
            for _ in relay(self._packer.parts(), self._send):
                pass
        except InvalidInput:  # the rows are longer or shorter than what each has of its own
            return False
        return self._packer.position >= rows

    def _send(self, part: Part, meanwhile: Callable[[], object] | None) -> Made:
        if self._own is None and not part.is_last:
            # The iterable may use this thread's connection while we wait for a reply.
            self._own = self._redis.another()
        try:
            redis = self._own or self._redis
            found = part.put(redis, meanwhile=None if part.is_last else meanwhile)
        except (RedisAway, RedisRefused, Contended) as error:
            # Redis notices a key of a wrong type when other commands of the MULTI have been run.
            is_unknown = isinstance(error, OutcomeUnknown) or (
                isinstance(error, RedisRefused) and error.is_wrong_type
            )
            ids = [task.decode() for task in part.tasks]
            raise BatchFailed(part.number, part.position, ids, is_unknown, error) from error
        made = Made(part.tasks, _spread(part.tasks, found))
        self._made += sum(made.are_new)
        log.info(
            "%s queue=%s tasks=%d new=%d",
            part.operation,
            self._plan.queue,
            len(made.ids),
            sum(made.are_new),
        )
        return made


def relay(
    packed: Iterator[Packed | None], send: Callable[[Packed, Callable[[], object] | None], Sent]
) -> Iterator[Sent]:
    """Send batch after batch and yield the result of each.

    The next batch is packed while Redis works. `enqueue_many` then reaches the raw limit of one
    socket, and two thirds of it without.
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


def _spread(tasks: Sequence[bytes], are_new: Sequence[bool]) -> Sequence[bool]:
    """Return whether each element created its task. A key that is repeated in its batch did not.

    tasks: the id for each element. are_new: for each element, or for each id.
    """
    if len(are_new) == len(tasks):
        return are_new
    ids = dict.fromkeys(tasks)
    new = {task for task, is_new in zip(ids, are_new, strict=True) if is_new}
    spread = []
    for task in tasks:
        spread.append(task in new)
        new.discard(task)
    return spread
