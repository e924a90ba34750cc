"""Packs many tasks from any iterable into batches that are ready to be sent."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from blueque.connection.redis import Redis
from blueque.errors import InvalidInput, InvalidType
from blueque.model.conditions import conditions_of
from blueque.model.converter import Converter, parts_of
from blueque.model.encoding import FLUSH, encode, quick_encoder, require_due
from blueque.model.group_terms import Terms
from blueque.model.ids import ids_of_keys, random_ids, require_key
from blueque.model.lines import require_priority
from blueque.model.new_task import Fields
from blueque.model.start_time import ANY_TIME, StartTime
from blueque.model.wait import NOTHING, Wait
from blueque.producer.dependent_tasks import DependentBatch, dependent_batch
from blueque.producer.keyed_groups import KeyedGroup, put_members
from blueque.producer.room import ask_for_room_of
from blueque.protocol.bulk import MAX_BYTES, MAX_KEYED, Batch, NewTasks
from blueque.protocol.create import create

# What each task has of its own, such as its key: the values; or a function of the parameters; or
# the name of a field of parameters that are dicts.
Column = Iterable[Any] | Callable[[Any], Any] | str
Meanwhile = Callable[[], object] | None
Put = Callable[..., Sequence[bool]]

_END = object()


class Plan(NamedTuple):
    """How elements become tasks.

    options: the fields of all tasks. size: how many tasks make a batch.
    keys, priorities, etas: the value of each task: an iterable of the same length, a function of
        the parameters, or the name of a field in them.
    keep: for how many seconds a key counts after its task was deleted.
    wait: what all tasks wait for, and the group that they join.
    after_each: what each task waits for besides, given as for keys.
    start: by when they must start.
    terms: to open the group with, if the tasks have keys.
    converter: of the parameters.
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
    converter: Converter | None = None


class Part(NamedTuple):
    """A batch that is ready to be sent.

    number: of the batch. position: of its first task. tasks: the id for each element.
    operation: the name of its transaction.
    put: takes the Redis and `meanwhile`, and creates the tasks; returns for each id, or for each
        element, whether it is new.
    """

    number: int
    position: int
    tasks: Sequence[bytes]
    operation: str
    put: Put
    is_last: bool


class Packer:
    """Reads elements and packs them batch by batch. A FLUSH among them ends a batch early.

    position: how many elements were read.
    """

    def __init__(
        self, plan: Plan, iterable: Iterable[Any], store: Callable[[NewTasks, Fields], NewTasks]
    ) -> None:
        """store: returns the tasks of a batch as they are stored, see sealing.py."""
        # Its characters or keys would be the parameters.
        if isinstance(iterable, str | bytes | Mapping):
            raise InvalidType(f"not an iterable of parameters: {type(iterable).__name__}")
        self._plan, self._iterable, self._store = plan, iterable, store
        self._encode = quick_encoder(plan.max_bytes)
        self._size = plan.size if plan.keys is None else min(plan.size, MAX_KEYED)
        self._keyed: KeyedGroup | None = None
        self.begin()

    def begin(self) -> None:
        """Begin with the first element, even if all were read before."""
        plan = self._plan
        self._rows = iter(self._iterable)
        self._columns = (
            _Values("keys", plan.keys, require_key),
            _Values("priorities", plan.priorities, require_priority),
            _Values("etas", plan.etas, require_due),
            _Values("after_each", plan.after_each, conditions_of),
        )
        self._number = self.position = 0

    def join(self, keyed: KeyedGroup) -> None:
        """Pack members of this group, in which their keys count."""
        self._keyed = keyed
        self._size = min(self._size, keyed.at_once)

    @property
    def is_read_once(self) -> bool:
        """Whether some source of the tasks can be read only once."""
        sources = (self._iterable, self._plan.keys, self._plan.priorities, self._plan.etas)
        return any(isinstance(source, Iterator) for source in sources)

    def parts(self) -> Iterator[Part | None]:
        """Yield the batches. None: there is nothing yet."""
        is_last = False
        while not is_last:
            first = self.position
            rows, parameters, is_last = self._pull(first)
            its_keys, priorities, etas, afters = [
                column.take(rows, first, is_last) for column in self._columns
            ]
            self.position += len(rows)
            if not rows:
                yield None  # there was only a FLUSH, or nothing more
                continue
            packed = None if its_keys is None else [key.encode() for key in its_keys]
            ids, within = self._ids_of(packed, len(rows)), self._plan.start.within
            new = NewTasks(ids, parameters, priorities, etas, packed, within=within)
            new = self._store(new, self._plan.options)
            yield from self._parts_of(new, self._waits(afters, len(rows), first), first, is_last)

    def _parts_of(
        self, new: NewTasks, waits: Sequence[Wait] | None, first: int, is_last: bool
    ) -> Iterator[Part]:
        now, done = time.time(), 0
        if self._plan.start.before is not None:
            for number, eta in enumerate(new.etas or ()):
                self._require_start(first + number, now, eta)
        for size, operation, put in self._pack(new.due_after(now), waits, now):
            tasks, place = new.ids[done : done + size], first + done
            done += size
            is_end = is_last and done == len(new.ids)
            yield Part(self._number, place, tasks, operation, put, is_end)
            self._number += 1

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
    ) -> Iterator[tuple[int, str, Put]]:
        """Yield for each batch how many of the tasks it has, its operation and what puts it."""
        plan, count = self._plan, len(new.ids)
        options = {**plan.options, **plan.start.fields_of_all(now)} if plan.start else plan.options
        if waits is not None:
            whole = dependent_batch(plan.queue, new._replace(keep=plan.keep), waits, now, options)
            for some in whole.parts():
                yield len(some.tasks), some.operation, partial(_put_dependents, batch=some)
        elif self._keyed is not None:
            members = self._keyed.batch(new, now, options)
            yield count, members.operation, partial(put_members, batch=members)
        else:
            if new.keys is not None:
                # A mark for each batch: a key that comes again in a later batch must not look like
                # our own success.
                new = new.once()._replace(keep=plan.keep, mark=os.urandom(8).hex())
            batch = Batch(plan.queue, new, now, options)
            yield count, batch.operation, partial(_put, batch=batch)

    def _require_start(self, position: int, now: float, eta: float | None) -> None:
        try:
            self._plan.start.at(now, eta)
        except InvalidInput as error:
            raise InvalidInput(f"at position {position}: {error}") from error

    def _pull(self, first: int) -> tuple[list[Any], list[tuple[bytes, bool]], bool]:
        """Return the parameters of a batch, plain and encoded, and whether they are the last."""
        rows: list[Any] = []
        parameters: list[tuple[bytes, bool]] = []
        room = MAX_BYTES
        for row in self._rows:
            if row is FLUSH:
                return rows, parameters, False
            try:
                encoded = self._encode(self._plain(row, "parameters"))
            except InvalidInput:
                self._refuse(row, first + len(rows))
                raise
            rows.append(row)
            parameters.append(encoded)
            room -= len(encoded[0])
            if len(rows) == self._size or room <= 0:
                return rows, parameters, False
        return rows, parameters, True

    def _ids_of(self, its_keys: Sequence[bytes] | None, count: int) -> list[bytes]:
        if its_keys is None:
            return random_ids(count)
        if self._keyed is not None:
            return self._keyed.ids_of(its_keys)
        return ids_of_keys(self._plan.queue, its_keys)

    def _plain(self, row: Any, what: str) -> Any:
        converter = self._plan.converter
        return row if converter is None else converter.to_json(row, what)

    def _refuse(self, row: Any, position: int) -> None:
        what = f"the parameters at position {position}"
        try:
            encode(self._plain(row, what), what, self._plan.max_bytes)
        except InvalidInput as error:
            raise error from None  # it says all that the error without a position does


def _put(redis: Redis, batch: Batch, meanwhile: Meanwhile) -> list[bool]:
    ask_for_room_of(redis, batch)
    return create(redis, batch, is_drawn=not batch.is_keyed, meanwhile=meanwhile)


def _put_dependents(redis: Redis, batch: DependentBatch, meanwhile: Meanwhile) -> list[bool]:
    return batch.put(redis)


class _Values:
    """The values of each task for one option."""

    def __init__(self, name: str, source: Column | None, require: Callable[[Any], Any]) -> None:
        self._name, self._require = name, require
        self._field = source if isinstance(source, str) else None
        self._function = source if callable(source) else None
        self._values = (
            iter(source) if isinstance(source, Iterable) and self._field is None else None
        )
        if source is not None and (self._field, self._function, self._values) == (None, None, None):
            raise InvalidType(
                f"{name} are an iterable, a function or the name of a field, not {type(source).__name__}"
            )

    def take(self, rows: Sequence[Any], first: int, is_last: bool) -> list[Any] | None:
        """Return the values for the next elements; None: there is no such column.

        first: the position of the first of them.
        """
        if self._values is None and self._field is None and self._function is None:
            return None
        found = [self._checked(row, first + number) for number, row in enumerate(rows)]
        if is_last and self._values is not None and next(self._values, _END) is not _END:
            raise InvalidInput(
                f"there are more {self._name} than the {first + len(rows)} parameters"
            )
        return found

    def _checked(self, row: Any, position: int) -> Any:
        if self._values is not None:
            value = next(self._values, _END)
            if value is _END:
                raise InvalidInput(
                    f"there are more parameters than {self._name}: none at position {position}"
                )
        elif self._function is not None:
            value = self._function(row)
        elif (parts := parts_of(row)) is not None and self._field in parts:
            value = parts[self._field]
        else:
            raise InvalidInput(
                f"{self._name}: the parameters at position {position} have no field {self._field!r}"
            )
        try:
            return self._require(value)
        except InvalidInput as error:
            raise type(error)(f"{self._name}: at position {position}: {error}") from None
