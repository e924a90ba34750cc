"""Makes new tasks that wait for others: one, also with many parents, or a batch."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from blueque.connection.redis import Redis
from blueque.errors import Contended, RedisAway, RedisRefused
from blueque.model.group import group_of
from blueque.model.new_task import Fields, NewTask
from blueque.model.options import Options
from blueque.model.wait import Wait
from blueque.producer.room import Joining, ask_for_room
from blueque.protocol.bulk import NewTasks
from blueque.protocol.dependencies import AT_ONCE, LINKS_AT_ONCE, enqueue_after
from blueque.protocol.parents import MICROSECOND
from blueque.protocol.settling import settle
from blueque.queries.tasks import are_unused, ended_among


def make_one(redis: Redis, new: NewTask, now: float) -> bool:
    """Create a task that waits for others. Return whether this call created it. See `make_each`."""
    (is_new,) = make_each(redis, [new], now)
    return is_new


def make_each(redis: Redis, tasks: Sequence[NewTask], now: float) -> list[bool]:
    """Create at most 100 tasks, each in its queue, all at once. Return whether each is new.

    Arguments and errors are those of `enqueue_after`.
    """
    _ask_for_room(redis, tasks, now)
    are_new = enqueue_after(redis, tasks, now)
    _settle_ended(redis, tasks)
    return are_new


def joining(tasks: Sequence[NewTask], now: float) -> dict[str, int]:
    """Return how many of these tasks join the line at once, by queue: those that wait for nothing.

    A task that waits for others does not count, even if these have ended already.
    """
    counts: dict[str, int] = {}
    for new in tasks:
        if not new.conditions and (new.eta is None or new.eta <= now):
            counts[new.queue] = counts.get(new.queue, 0) + 1
    return counts


def _ask_for_room(redis: Redis, tasks: Sequence[NewTask], now: float) -> None:
    def only_new() -> Joining:
        found = are_unused(redis, [new.task for new in tasks])
        pairs = zip(tasks, found, strict=True)
        return joining([new for new, is_new in pairs if is_new], now)

    joined = {new.group for new in tasks if new.group is not None}
    ask_for_room(redis, joining(tasks, now), only_new, joined)


def _settle_ended(redis: Redis, tasks: Iterable[NewTask]) -> None:
    """Settle parents that have ended, if a task wants their results or is cancelled because of them.

    Listeners and schedulers do it, too, but perhaps only after some seconds.
    """
    parents = dict.fromkeys(
        parent
        for new in tasks
        if not {"inputs", "broken"}.isdisjoint(new.options)
        for parent in new.conditions
        if group_of(parent) is None
    )
    with suppress(RedisAway, RedisRefused, Contended):
        for parent in ended_among(redis, [*parents]) if parents else ():
            settle(redis, parent, time.time())


class DependentBatch(NamedTuple):
    """New tasks that wait for others, one for each element.

    Each waits for at most 100 others.
    """

    tasks: Sequence[NewTask]
    now: float

    @property
    def operation(self) -> str:
        return "enqueue_after"

    def parts(self) -> Iterator[DependentBatch]:
        """Yield the same tasks in batches that each fit into one transaction."""
        first, parents, links = 0, set[str](), 0
        for number, new in enumerate(self.tasks):
            parents |= new.conditions.keys()
            links += len(new.conditions)
            is_full = number - first == AT_ONCE or links > LINKS_AT_ONCE
            if is_full or len(parents) > AT_ONCE:
                yield self._part(first, number)
                first, parents, links = number, {*new.conditions}, len(new.conditions)
        yield self._part(first, len(self.tasks))

    def _part(self, first: int, end: int) -> DependentBatch:
        # By the time they are let go in this order.
        return self._replace(tasks=self.tasks[first:end], now=self.now + first * MICROSECOND)

    def put(self, redis: Redis) -> list[bool]:
        """Create the tasks, all or none; with keys, those with a new key. Return for each element
        whether it created its task.
        """
        new: dict[str, NewTask] = {}
        # A mark for each batch: a key that comes again in a later batch must not look like our own
        # success.
        mark = os.urandom(8).hex()
        for each in self.tasks:
            fields = dict(each.options)
            if "key" in fields:
                fields["enqueued_by"] = mark
            # Of several with the same key, the first one counts.
            new.setdefault(each.task, each._replace(options=fields))
        are_new = make_each(redis, [*new.values()], self.now)
        made = dict(zip(new, are_new, strict=True))
        return [made.pop(each.task, False) for each in self.tasks]


def dependent_batch(
    queue: str, tasks: NewTasks, waits: Sequence[Wait], now: float, options: Fields
) -> DependentBatch:
    """Return new tasks in columnar form as a batch. waits: what each of them waits for."""
    rows, options = range(len(tasks.ids)), tasks.options(options)
    new = [_new_task(queue, tasks, number, waits[number], now, options) for number in rows]
    return DependentBatch(new, now)


def _new_task(
    queue: str, tasks: NewTasks, number: int, wait: Wait, now: float, options: Fields
) -> NewTask:
    text, is_json = tasks.parameters[number]
    encoding, context = ("json" if is_json else None, None)
    if tasks.sealed is not None:
        encoding, context = tasks.sealed[number]
    fields: Options = {} if encoding is None else {"parameters_encoding": encoding}
    fields |= {} if context is None else {"context": context.decode()}
    fields |= {**options, **wait.fields()}
    if tasks.priorities is not None:
        fields.pop("priority", None)
        if tasks.priorities[number]:
            fields["priority"] = tasks.priorities[number]
    if tasks.keys is not None:
        fields |= {"key": tasks.keys[number].decode(), "keep": tasks.keep}
    eta = None if tasks.etas is None else tasks.etas[number]
    before = tasks.start_before(now, eta)
    if before is not None:
        fields["start_before"] = before
    task = tasks.ids[number].decode()
    return NewTask(task, queue, text.decode(), fields, wait.conditions, eta)
