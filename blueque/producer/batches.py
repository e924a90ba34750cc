"""Puts many tasks from any iterable into Redis, batch by batch.

At most two batches are in memory: one that Redis works on, and one that is being packed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import Redis
from blueque.errors import (
    BatchFailed,
    Contended,
    InvalidInput,
    InvalidType,
    OutcomeUnknown,
    RedisAway,
    RedisRefused,
)
from blueque.model.conditions import conditions_of
from blueque.model.encoding import FLUSH, encode, quick_encoder, require_time
from blueque.model.group_terms import Terms
from blueque.model.ids import TaskId, ids_of_keys, random_ids, require_key
from blueque.model.lines import require_priority
from blueque.model.start_time import ANY_TIME, StartTime
from blueque.model.wait import NOTHING, Wait
from blueque.producer.dependent_tasks import DependentBatch, dependent_batch
from blueque.producer.keyed_groups import KeyedGroup, open_keyed, put_members
from blueque.producer.room import ask_for_room_of
from blueque.producer.row_batch import MAX_BYTES, relay
from blueque.protocol.bulk import MAX_KEYED, Batch, NewTasks
from blueque.protocol.create import create
from blueque.protocol.members import MemberBatch

_END = object()

log = logging.getLogger("blueque")

Column = Iterable[Any] | Callable[[Any], Any] | str


class Plan(NamedTuple):
    """How parameters become tasks.

    options: the fields that all tasks have. size: how many tasks make a batch.
    keys, priorities, etas: what each task has of its own: an iterable of the same length, a
        function of the parameters, or the name of a field of parameters that are dicts.
    keep: for how many seconds a key counts after its task was deleted.
    wait: what all tasks wait for, and the group that they join. after_each: what each of them waits for besides; in one of the
        ways of keys. start: until when they may start. terms: with which the group is opened, if the
        tasks have keys.
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


class Made(NamedTuple):
    """A batch that is in Redis: for each of the parameters the id, and whether this call has made
    the task.
    """

    ids: Sequence[bytes]
    are_new: Sequence[bool]

    def task_ids(self) -> list[TaskId]:
        return [
            TaskId(task.decode(), is_new)
            for task, is_new in zip(self.ids, self.are_new, strict=True)
        ]


class _Part(NamedTuple):
    """A batch that is ready to be sent.

    number: of the batch. position: of its first task. tasks: the id for each of the parameters.
    """

    number: int
    position: int
    batch: Batch | DependentBatch
    tasks: Sequence[bytes]
    is_last: bool


class Batches:
    """One pass over an iterable: each step puts a batch into Redis and yields what it has made.

    A FLUSH among the parameters ends a batch early.
    """

    def __init__(self, redis: Redis, plan: Plan, iterable: Iterable[Any]) -> None:
        if isinstance(
            iterable, str | bytes | Mapping
        ):  # its characters or keys would be the parameters
            raise InvalidType(f"not an iterable of parameters: {type(iterable).__name__}")
        self._redis, self._plan, self._iterable = redis, plan, iterable
        self._encode = quick_encoder("the parameters", plan.max_bytes)
        self._begin()
        self._size = plan.size if plan.keys is None else min(plan.size, MAX_KEYED)
        self.group = plan.wait.group
        # The members of the group say which keys have made a task.
        self._keyed: KeyedGroup | None = None
        self._name = "enqueue_many" if plan.etas is None else "schedule_many"
        self._own: Redis | None = None
        self._made = 0  # members that the group had, and those that this pass has made

    def _begin(self) -> None:
        plan = self._plan
        self._rows = iter(self._iterable)
        self._keys = _Column("keys", plan.keys, require_key)
        self._priorities = _Column("priorities", plan.priorities, require_priority)
        self._etas = _Column("etas", plan.etas, require_time)
        self._afters = _Column("after_each", plan.after_each, conditions_of)
        self._number = self._position = 0

    def __iter__(self) -> Iterator[Made]:
        plan, keyed = self._plan, None
        if plan.terms is not None:
            keyed = open_keyed(self._redis, plan.queue, str(self.group), plan.terms)
            self._keyed, self._made = keyed, keyed.made
            self._size = min(self._size, keyed.at_once)
        try:
            yield from relay(self._parts(), self._send)
            if keyed is not None:
                self._make_missing(keyed)
        finally:
            if self._own is not None:
                self._own.close()
        if keyed is not None:
            keyed.close(self._redis, self._made)

    def _make_missing(self, keyed: KeyedGroup) -> None:
        """Go over the iterable again until the group has all that was put: a failover takes tasks
        back.

        If other programs make members meanwhile, those hide how many are missing. So a first
        pass counts only if it has grown by what this pass has made. Where a source can be read only
        once, a further pass ends early, and what is missing is seen then.
        """
        plan, rows, made = self._plan, self._position, self._made
        sources = (self._iterable, plan.keys, plan.priorities, plan.etas)
        if any(isinstance(source, Iterator) for source in sources):
            return
        has_all = (count := keyed.count(self._redis)) == made
        while not has_all:
            if count < made:
                log.warning(
                    "group %s has lost %d tasks of queue %s, as in a failover: its rows are put again",
                    self.group,
                    made - count,
                    plan.queue,
                )
            self._made = count
            if not self._is_repeated(rows):
                self._made = made
                break
            rows, made = self._position, self._made
            has_all = (count := keyed.count(self._redis)) >= made

    def _is_repeated(self, rows: int) -> bool:
        """Make another pass, and tell whether it has had all rows."""
        self._begin()
        try:
            for _ in relay(self._parts(), self._send):
                pass
        except InvalidInput:  # the rows are longer or shorter than what each has of its own
            return False
        return self._position >= rows

    def _parts(self) -> Iterator[_Part | None]:
        is_over = False
        while not is_over:
            part, is_over = self._make()
            if part is not None and isinstance(part.batch, DependentBatch):
                yield from self._divided(part, part.batch)
            else:
                yield part

    def _divided(self, part: _Part, whole: DependentBatch) -> Iterator[_Part]:
        """Yield a batch as several that each fit into one transaction."""
        done, size = 0, len(whole.tasks)
        for batch in whole.parts():
            end = done + len(batch.tasks)
            yield _Part(
                self._number - 1,
                part.position + done,
                batch,
                part.tasks[done:end],
                part.is_last and end == size,
            )
            done = end
            self._number += end < size

    def _send(self, part: _Part, meanwhile: Callable[[], object] | None) -> Made:
        if self._own is None and not part.is_last:
            # The iterable may use this thread's connection while we wait for a reply.
            self._own = self._redis.another()
        try:
            redis = self._own or self._redis
            while_redis_works = None if part.is_last else meanwhile
            are_new = self._put(redis, part, while_redis_works)
        except (RedisAway, RedisRefused, Contended) as error:
            # Redis notices a key of a wrong type when other commands of the MULTI have been run.
            is_unknown = isinstance(error, OutcomeUnknown) or (
                isinstance(error, RedisRefused) and error.is_wrong_type
            )
            ids = [task.decode() for task in part.tasks]
            raise BatchFailed(part.number, part.position, ids, is_unknown, error) from error
        made = Made(part.tasks, are_new)
        log.info(
            "%s queue=%s tasks=%d new=%d",
            self._name if self._keyed is None else "enqueue_members",
            self._plan.queue,
            len(made.ids),
            sum(made.are_new),
        )
        return made

    def _put(
        self, redis: Redis, part: _Part, meanwhile: Callable[[], object] | None
    ) -> Sequence[bool]:
        if isinstance(part.batch, DependentBatch):
            return part.batch.put(redis)
        if isinstance(part.batch, MemberBatch):
            are_new = put_members(redis, part.batch, meanwhile)
            self._made += sum(are_new)
            return _spread(part.tasks, part.batch.tasks.ids, are_new)
        ask_for_room_of(redis, part.batch)
        are_new = create(redis, part.batch, is_drawn=not part.batch.is_keyed, meanwhile=meanwhile)
        if self._plan.keys is None:
            return are_new
        return _spread(part.tasks, part.batch.tasks.ids, are_new)

    def _make(self) -> tuple[_Part | None, bool]:
        """Return the next batch, and whether it is the last. None: there was only a FLUSH, or
        nothing more.
        """
        first = self._position
        rows, parameters, is_last = self._pull(first)
        its_keys, priorities, etas, afters = [
            column.take(rows, first, is_last)
            for column in (self._keys, self._priorities, self._etas, self._afters)
        ]
        if not rows:
            return None, is_last
        self._position += len(rows)
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
        return _Part(self._number - 1, first, batch, tasks, is_last), is_last

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


class _Column:
    """What each task has of its own."""

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
        """Return the values for the next parameters; None: there is no such column.

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
        elif isinstance(row, Mapping) and self._field in row:
            value = row[self._field]
        else:
            raise InvalidInput(
                f"{self._name}: the parameters at position {position} have no field {self._field!r}"
            )
        try:
            return self._require(value)
        except InvalidInput as error:
            raise type(error)(f"{self._name}: at position {position}: {error}") from error


def _spread(tasks: Sequence[bytes], made: Sequence[bytes], are_new: Sequence[bool]) -> list[bool]:
    """Return whether each of the parameters has made its task. A key that comes again in its batch
    has not.

    tasks: the id for each of the parameters. made: the same, each once.
    """
    new = {task for task, is_new in zip(made, are_new, strict=True) if is_new}
    spread = []
    for task in tasks:
        spread.append(task in new)
        new.discard(task)
    return spread
