"""The methods of a Queue that make many tasks: enqueue_many, enqueue_iter, schedule_many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Literal, Unpack, overload

from blueque.connection.redis import Redis
from blueque.errors import InvalidInput
from blueque.model import labels, trace
from blueque.model.converter import Types
from blueque.model.encoding import require_due, require_whole
from blueque.model.group import Group, tracked
from blueque.model.group_terms import Terms, terms_for
from blueque.model.ids import DEFAULT_KEEP, require_keep
from blueque.model.options import (
    Defaults,
    GroupOptions,
    Options,
    StartOptions,
    TaskOptions,
    require_known,
    task_fields,
)
from blueque.model.start_time import StartTime, start_time
from blueque.model.task_id import TaskId
from blueque.model.wait import Wait, wait_for
from blueque.producer.batches import Batches, Made
from blueque.producer.keyed_groups import KEEP
from blueque.producer.packer import Column, Plan
from blueque.system import process
from blueque.text.format import count

MAX_BATCH = 10_000


class Count(int):
    """How many tasks a call has put into Redis. An int that also knows how many are `new`.

    group: the group of the tasks, if any. `after=` of other tasks takes a Count with a group.
    """

    new: int
    group: str | None

    def __new__(cls, tasks: int, new: int, group: str | None = None) -> Count:
        made = super().__new__(cls, tasks)
        made.new, made.group = new, group
        return made

    def as_group(self) -> Group:
        """Return the group of the tasks. Raises InvalidInput if they have none."""
        return tracked(self.group)


class ManyOptions(TaskOptions, GroupOptions, StartOptions, total=False):
    """The options of many tasks, as for `Queue.enqueue`.

    `keys`, `priorities` and `after_each` have a value for each task; the others apply to all.
    """

    keys: Column | None
    keep: float | str
    hold: float | str | None
    priorities: Column | None
    after_each: Column | None


class Batched(ManyOptions, total=False):
    """Those of `enqueue_many`: how many tasks go to Redis at a time, and the others."""

    batch: int


class ManyTasks:
    """The part of a Queue that makes tasks by the thousand."""

    name: str
    _redis: Redis
    _max_bytes: int
    _defaults: Defaults
    _start_within: float | None  # what the configuration says, in seconds
    _types: Types

    @overload
    def enqueue_many(
        self, iterable: Iterable[Any], *, ids: Literal[True], **options: Unpack[Batched]
    ) -> list[TaskId]: ...

    @overload
    def enqueue_many(
        self, iterable: Iterable[Any], *, ids: Literal[False] = False, **options: Unpack[Batched]
    ) -> Count: ...

    @overload
    def enqueue_many(
        self, iterable: Iterable[Any], *, ids: bool, **options: Unpack[Batched]
    ) -> Count | list[TaskId]: ...

    def enqueue_many(
        self,
        iterable: Iterable[Any],
        *,
        ids: bool = False,
        batch: int = 1000,
        **options: Unpack[ManyOptions],
    ) -> Count | list[TaskId]:
        """Put a task in line for each element, in order, and return how many.

        When it returns, all tasks are in Redis.
        iterable: the parameters of each task, as for `enqueue`. Read as it goes, never held as a whole.
        ids: return the ids instead, at 150 bytes each. Each knows whether its task `is_new`.
        batch: how many tasks are written at a time, all or none; with keys at most 200.
        keys, priorities: a value for each task: an iterable of the same length, a function of the
            parameters, or the name of a field in them. With keys, `.new` of the count says how many
            tasks did not exist before.
        after: what all tasks wait for.
        after_each: what each task waits for besides, given as for keys: an id, ids,
            `blueque.after`, or None. At most 100 other tasks for one task. Tasks that wait or join
            a `group` are written a hundred at a time, unless they have keys and a `group`.
        group: the group to join. Without keys, it must be open. With keys, the call opens a missing
            group, with `after`, `broken`, `keep` ("90d") and `hold` as for `TaskGroup.open`, and
            closes it at its end. It leaves open a group that another program has opened. A key
            counts in the group until `keep` after its end, even if its task was deleted. So after
            any failure make the same call again: it makes what is missing and closes the group. See
            docs/protocol/groups.md, "Members by their keys". A closed group takes no new keys, see
            `TaskGroup.reopen`. After a failover that takes tasks back, the call reads the iterable
            again. With keys and a group, `after_each` and `results` are refused.
        start_within, start_before, expired_to: and the other options: as for `enqueue`.
        Raises InvalidInput, which names the position; NoSuchTask for a task to wait for;
            BatchFailed; QueueFull; WrongGroup for a group that takes no new keys. After a failover
            it raises WrongGroup, too, if the iterable or the keys can be read only once: repeat the
            call. Errors of the iterable pass through. The batches before the error are in Redis. A
            note of the error says how many tasks that is, and whether a group stays open.
        Source: docs/protocol.md, "create".
        """
        batches, made = self._batches(iterable, batch, None, options), list[TaskId]()
        if ids:
            _count(batches, lambda each: made.extend(each.task_ids(self._types.result)))
            return made
        return _count(batches)

    def enqueue_iter(
        self, iterable: Iterable[Any], *, batch: int = 1000, **options: Unpack[ManyOptions]
    ) -> Iterator[list[TaskId]]:
        """Do as `enqueue_many`, and yield the ids of each batch once it is in Redis.

        It starts with the first `next`.
        """
        batches = self._batches(iterable, batch, None, options)
        return (made.task_ids(self._types.result) for made in batches)

    def schedule_many(
        self,
        iterable: Iterable[Any],
        eta: float | datetime | None = None,
        *,
        etas: Column | None = None,
        batch: int = 1000,
        **options: Unpack[ManyOptions],
    ) -> Count:
        """Make a task for each element that joins the line at its time, and return how many.

        eta: for all tasks. A past time enqueues at once.
        etas: instead, a value for each task, given as for keys of `enqueue_many`.
        options: as for `enqueue_many`, with the same errors.
        Source: docs/protocol.md, "create".
        """
        return _count(self._batches(iterable, batch, _one_of(eta, etas), options))

    def schedule_iter(
        self,
        iterable: Iterable[Any],
        eta: float | datetime | None = None,
        *,
        etas: Column | None = None,
        batch: int = 1000,
        **options: Unpack[ManyOptions],
    ) -> Iterator[list[TaskId]]:
        """Do as `schedule_many`, and yield the ids of each batch once it is in Redis.

        It starts with the first `next`.
        """
        batches = self._batches(iterable, batch, _one_of(eta, etas), options)
        return (made.task_ids(self._types.result) for made in batches)

    def fields_of(self, **options: Unpack[TaskOptions]) -> Options:
        """Return the fields of a task with these options of `enqueue`, the configuration of the
        queue and the trace of the caller.
        """
        require_known("Queue.fields_of", options, TaskOptions)
        return self._fields(options)

    def _batches(
        self, iterable: Iterable[Any], batch: int, etas: Column | None, options: ManyOptions
    ) -> Batches:
        require_known("Queue.enqueue_many", options, ManyOptions)
        keys, keep, after_each = options.get("keys"), options.get("keep"), options.get("after_each")
        wait = wait_for(options, after_each is not None).of_many()
        has_ledger = keys is not None and wait.group is not None
        if has_ledger and (wait.has_results or after_each is not None):
            raise InvalidInput(
                "with keys, all tasks of a group wait for the same, and get no results: leave out keys, or after_each and "
                "results"
            )
        terms = _terms(wait, keep, options.get("hold")) if has_ledger else None
        if terms is None and options.get("hold") is not None:
            raise InvalidInput("hold needs group and keys")
        start = self._start(options, self._start_within)
        kept = require_keep(DEFAULT_KEEP if keep is None else keep)
        fields = self._fields(options)
        plan = Plan(
            self.name,
            labels.bytes_left_for_parameters(fields, self._max_bytes),
            fields,
            require_whole(batch, "batch", 1, MAX_BATCH),
            keys,
            options.get("priorities"),
            etas,
            kept,
            wait,
            start,
            after_each,
            terms,
            self._types.parameters,
        )
        return Batches(self._redis, plan, iterable)

    def _fields(self, options: TaskOptions, its_trace: Mapping[str, str] | None = None) -> Options:
        """Return the fields of a task with these options; its_trace: None: that of the caller."""
        its_trace = trace.of_caller() if its_trace is None else its_trace
        fields = task_fields(options, its_trace, self._defaults)
        return {**fields, "producer": process.producer()}

    def _start(self, options: StartOptions, default: float | None) -> StartTime:
        """Return by when tasks with these options must start. default: `start_within`."""
        to = options.get("expired_to")
        return start_time(
            self.name,
            options.get("start_within"),
            options.get("start_before"),
            None if to is None else self._redis.settings.queue_name(to),
            default,
        )


def _terms(wait: Wait, keep: float | str | None, hold: float | str | None) -> Terms:
    terms, links = terms_for(keep, KEEP, hold=hold), wait.links()
    return terms._replace(conditions=links.conditions, broken=links.broken)


def _one_of(eta: float | datetime | None, etas: Column | None) -> Column:
    if eta is None:
        if etas is None:
            raise InvalidInput("an eta for all tasks is needed, or etas, one for each")
        return etas
    if etas is not None:
        raise InvalidInput("give an eta for all tasks or etas, not both")
    due = require_due(eta)
    return lambda parameters: due


def _count(batches: Batches, note: Callable[[Made], object] = lambda made: None) -> Count:
    """Put all batches into Redis. note: called with each."""
    tasks = new = 0
    try:
        for made in batches:
            note(made)
            tasks += len(made.ids)
            new += sum(made.are_new)
    except Exception as error:
        error.add_note(_how_far(batches, tasks, new))
        raise
    return Count(tasks, new, batches.group)


def _how_far(batches: Batches, tasks: int, new: int) -> str:
    """Return the note on an error: what is in Redis, and what to do about it."""
    text = f"blueque: the batches before are in Redis, {count(tasks, 'task')}"
    if batches.has_keys:
        text += f", {new} of them new; an earlier call may have made more"
    if batches.left_open:
        text += f". Group {batches.group!r} stays open: make the call again, or close the group"
    return text
