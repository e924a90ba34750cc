"""Packs many tasks from any iterable into batches that are ready to be sent."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from blueque.errors import InvalidInput, InvalidType
from blueque.model.conditions import conditions_of
from blueque.model.encoding import FLUSH, encode, quick_encoder, require_time
from blueque.model.group_terms import Terms
from blueque.model.ids import ids_of_keys, random_ids, require_key
from blueque.model.lines import require_priority
from blueque.model.start_time import ANY_TIME, StartTime
from blueque.model.wait import NOTHING, Wait
from blueque.producer.column import Column, Values
from blueque.producer.dependent_tasks import DependentBatch, dependent_batch
from blueque.producer.keyed_groups import KeyedGroup
from blueque.producer.row_batch import MAX_BYTES
from blueque.protocol.bulk import MAX_KEYED, Batch, NewTasks
from blueque.protocol.members import MemberBatch


class Plan(NamedTuple):
    """How parameters become tasks.

    options: the fields that all tasks have. size: how many tasks make a batch.
    keys, priorities, etas: what each task has of its own: an iterable of the same length, a
        function of the parameters, or the name of a field of parameters that are dicts.
    keep: for how many seconds a key counts after its task was deleted.
    wait: what all tasks wait for, and the group that they join. after_each: what each of them waits
        for besides; in one of the ways of keys. start: until when they may start. terms: with which
        the group is opened, if the tasks have keys.
    """

    queue: str
    max_bytes: int
    options: Mapping[str, str | int | float]
    size: int
    keys: Column | None = None
    priorities: Column | None = None
    etas: Column | None = None
    keep: int = 0
    wait: Wait = NOTHING
    start: StartTime = ANY_TIME
    after_each: Column | None = None
    terms: Terms | None = None


class Part(NamedTuple):
    """A batch that is ready to be sent.

    number: of the batch. position: of its first task. tasks: the id for each of the parameters.
    """

    number: int
    position: int
    batch: Batch | DependentBatch
    tasks: Sequence[bytes]
    is_last: bool


class Packer:
    """Reads parameters, and packs them batch by batch. A FLUSH among them ends a batch early.

    position: how many parameters were read.
    """

    def __init__(self, plan: Plan, iterable: Iterable[Any]) -> None:
        # Its characters or keys would be the parameters.
        if isinstance(iterable, str | bytes | Mapping):
            raise InvalidType(f"not an iterable of parameters: {type(iterable).__name__}")
        self._plan, self._iterable = plan, iterable
        self._encode = quick_encoder("the parameters", plan.max_bytes)
        self._size = plan.size if plan.keys is None else min(plan.size, MAX_KEYED)
        self._keyed: KeyedGroup | None = None
        self.begin()

    def begin(self) -> None:
        """Begin with the first of the parameters, also when all were read before."""
        plan = self._plan
        self._rows = iter(self._iterable)
        self._keys = Values("keys", plan.keys, require_key)
        self._priorities = Values("priorities", plan.priorities, require_priority)
        self._etas = Values("etas", plan.etas, require_time)
        self._afters = Values("after_each", plan.after_each, conditions_of)
        self._number = self.position = 0

    def join(self, keyed: KeyedGroup) -> None:
        """Pack members of this group, whose keys count in it."""
        self._keyed = keyed
        self._size = min(self._size, keyed.at_once)

    @property
    def is_read_once(self) -> bool:
        """Some of what the tasks are made of can be read only once."""
        sources = (self._iterable, self._plan.keys, self._plan.priorities, self._plan.etas)
        return any(isinstance(source, Iterator) for source in sources)

    def parts(self) -> Iterator[Part | None]:
        """Yield the batches. None: there is nothing yet."""
        is_over = False
        while not is_over:
            part, is_over = self._make()
            if part is not None and isinstance(part.batch, DependentBatch):
                yield from self._divided(part, part.batch)
            else:
                yield part

    def _divided(self, part: Part, whole: DependentBatch) -> Iterator[Part]:
        """Yield a batch as several that each fit into one transaction."""
        done, size = 0, len(whole.tasks)
        for batch in whole.parts():
            end = done + len(batch.tasks)
            yield Part(
                self._number - 1,
                part.position + done,
                batch,
                part.tasks[done:end],
                part.is_last and end == size,
            )
            done = end
            self._number += end < size

    def _make(self) -> tuple[Part | None, bool]:
        """Return the next batch, and whether it is the last. None: there was only a FLUSH, or
        nothing more.
        """
        first = self.position
        rows, parameters, is_last = self._pull(first)
        its_keys, priorities, etas, afters = [
            column.take(rows, first, is_last)
            for column in (self._keys, self._priorities, self._etas, self._afters)
        ]
        if not rows:
            return None, is_last
        self.position += len(rows)
        self._number += 1
        now = time.time()
        if etas is not None:
            etas = [eta if eta >= now else None for eta in etas]
        if self._plan.start.before is not None:
            for number, eta in enumerate(etas or ()):
                self._require_start(first + number, now, eta)
        tasks = self._take_ids(its_keys, len(rows))
        packed_keys = None if its_keys is None else [key.encode() for key in its_keys]
        new = NewTasks(
            tasks, parameters, priorities, etas, packed_keys, within=self._plan.start.within
        )
        batch = self._pack(new, self._waits(afters, len(rows), first), now)
        return Part(self._number - 1, first, batch, tasks, is_last), is_last

    def _waits(
        self, afters: Sequence[Mapping[str, str]] | None, count: int, first: int
    ) -> list[Wait] | None:
        """Return what each task waits for; None: they wait for nothing.

        first: the position of the first task.
        """
        wait = self._plan.wait
        if self._keyed is not None:
            return None  # all wait for the same
        if afters is None:
            return [wait] * count if wait else None
        waits = []
        for number, more in enumerate(afters):
            try:
                waits.append(wait.joined(more))
            except InvalidInput as error:
                raise InvalidInput(f"after_each: at position {first + number}: {error}") from error
        return waits

    def _pack(
        self, new: NewTasks, waits: Sequence[Wait] | None, now: float
    ) -> Batch | DependentBatch:
        plan = self._plan
        options = {**plan.options, **plan.start.fields_of_all(now)} if plan.start else plan.options
        if waits is not None:
            new = new._replace(keep=plan.keep)
            return dependent_batch(plan.queue, new, waits, now, options)
        if new.keys is None:
            return Batch(plan.queue, new, now, options)
        new = new.once()
        if self._keyed is not None:
            return MemberBatch(plan.queue, self._keyed.links, new, now, options)
        # A mark for each batch: a key that comes again in a later batch must not look like our own
        # success.
        return Batch(
            plan.queue, new._replace(keep=plan.keep, mark=os.urandom(8).hex()), now, options
        )

    def _require_start(self, position: int, now: float, eta: float | None) -> None:
        try:
            self._plan.start.at(now, eta)
        except InvalidInput as error:
            raise InvalidInput(f"at position {position}: {error}") from error

    def _pull(self, first: int) -> tuple[list[Any], list[tuple[bytes, bool]], bool]:
        """Return the parameters of a batch, as they are and encoded, and whether they are the last."""
        rows: list[Any] = []
        parameters: list[tuple[bytes, bool]] = []
        room = MAX_BYTES
        for row in self._rows:
            if row is FLUSH:
                return rows, parameters, False
            try:
                encoded = self._encode(row)
            except InvalidInput:
                self._refuse(row, first + len(rows))
                raise
            rows.append(row)
            parameters.append(encoded)
            room -= len(encoded[0])
            if len(rows) == self._size or room <= 0:
                return rows, parameters, False
        return rows, parameters, True

    def _take_ids(self, its_keys: list[str] | None, count: int) -> list[bytes]:
        if its_keys is not None:
            packed = [key.encode() for key in its_keys]
            if self._keyed is not None:
                return self._keyed.ids_of(packed)
            return ids_of_keys(self._plan.queue, packed)
        return random_ids(count)

    def _refuse(self, row: Any, position: int) -> None:
        encode(row, f"the parameters at position {position}", self._plan.max_bytes)
