"""Create, promote and delete tasks: enqueue, schedule, enqueue_due, delete."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import Command, Look, Redis, as_bytes, pack
from blueque.errors import HasDependents, WrongQueue, WrongState
from blueque.model import keys
from blueque.model.encoding import CENTURY
from blueque.model.lines import line_of
from blueque.model.states import FINISHED
from blueque.protocol.events import Event, after, count, record_in_queue, record_in_task
from blueque.protocol.fields import (
    TaskFields,
    enter_tags,
    flat,
    join_lines,
    put_in_line,
    remove_tags,
)
from blueque.protocol.moves import leave
from blueque.protocol.packing import HOLE, packed_words, template
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import absence, absence_of_keys, read_task

Options = Mapping[str, str | int | float] | None  # further fields of a new task

_FORMS = 100  # lines whose commands are kept packed


class _Form(NamedTuple):
    """The commands of enqueue for a line, in Redis' wire format, with holes.

    words: how many the record has without further fields. record: for the number of words, the key,
        the parameters, twice the time, and the further fields, packed. join: for the id. indexed: for
        the time and the id.
    """

    words: int
    record: bytes
    queue: bytes
    join: bytes
    listed: Sequence[bytes]
    indexed: bytes
    wake: bytes


def enqueue(
    redis: Redis,
    queue: str,
    task: str,
    parameters: str,
    now: float,
    options: Options = None,
    spare: str | None = None,
    is_drawn: bool = False,
) -> bool:
    """Create a task and put it in line. True: this call created it; False: the id existed before,
    or its key is still in use.

    options: further fields, `parameters_encoding` first if the parameters have one; then such as
        retry, time_limit, priority and needs. With a key or a chosen id also keep and enqueued_by, a
        random mark of this call.
    spare: an id drawn at random for the next call on this connection; it is watched from our EXEC
        on. That saves the look of that call: one by one, 1.9 times as many tasks a second as 1.0.0,
        and 1.2 times without. is_drawn: the id was drawn at random for this call, or was its spare id.
    """
    given = options or {}
    line = line_of(str(given.get("priority", "")), str(given.get("needs", "")))

    def decide(exists: int = 0, *marks: Any) -> Verdict[bool]:
        if _is_taken(exists, *marks):
            return Answer(_is_own(given, *marks))
        return Change(_filled(_form(queue, line), task, parameters, now, given), True)

    look = absence_of_keys([task]) if "enqueued_by" in given else absence(task, is_drawn)
    return transact(
        redis,
        "enqueue",
        look,
        decide,
        spare=absence(spare, is_drawn=True) if spare else None,
        again=lambda is_unknown: absence(task) if is_drawn else look,
    )


def schedule(
    redis: Redis,
    queue: str,
    task: str,
    parameters: str,
    eta: float,
    now: float,
    options: Options = None,
    is_drawn: bool = False,
) -> bool:
    """Create a task that joins the line at `eta`. The rest is as for enqueue."""
    given = options or {}
    fields = new_fields(queue, parameters, now, options)

    def decide(exists: int = 0, *marks: Any) -> Verdict[bool]:
        if _is_taken(exists, *marks):
            return Answer(_is_own(given, *marks))
        return Change(
            [
                ("HSET", keys.task(task), "status", "scheduled", *fields, "eta", eta),
                ("ZINCRBY", keys.QUEUES, 0, queue),
                ("ZADD", keys.scheduled(queue), eta, task),
                ("ZADD", keys.tasks(queue), now, task),
                *enter_tags({task: given.get("tags")}),
                *expiring(task, given),
            ],
            True,
        )

    look = absence_of_keys([task]) if "enqueued_by" in given else absence(task, is_drawn)
    again = absence(task) if is_drawn else look
    return transact(redis, "schedule", look, decide, again=lambda is_unknown: again)


def enqueue_due(redis: Redis, queue: str, now: float, limit: int = 100) -> list[str] | None:
    """Put up to `limit` tasks whose eta has come in line, earliest first; return their ids, or None
    if nothing was due.
    """
    (due,) = redis.read(("ZRANGEBYSCORE", keys.scheduled(queue), "-inf", now, "LIMIT", 0, limit))
    if not due:
        return None

    def decide(scores: list[str | None], *replies: list[str | None]) -> Verdict[list[str]]:
        fields_of = dict(zip(due, map(TaskFields._make, replies), strict=True))
        # The score is read again: a task may have run meanwhile, and wait for a later eta.
        etas = {
            task: float(score)
            for task, score in zip(due, scores, strict=True)
            if score is not None and float(score) <= now
        }
        # A task that was moved to another queue is promoted there.
        moved = {
            task: fields_of[task] for task in etas if fields_of[task][:2] == ("scheduled", queue)
        }
        if not etas:
            return Answer([])
        commands: list[Command] = [("ZREM", keys.scheduled(queue), *etas)]
        if moved:
            commands += _promote(redis, queue, moved, etas, now)
        return Change(commands, [*moved])

    watch = [keys.task(task) for task in due]
    look: Look[list[str | None], *tuple[list[str | None], ...]] = Look(
        watch, [("ZMSCORE", keys.scheduled(queue), *due), *[read_task(task) for task in due]]
    )
    return transact(redis, "enqueue_due", look, decide)


def _promote(
    redis: Redis, queue: str, moved: Mapping[str, TaskFields], etas: Mapping[str, float], now: float
) -> list[Command]:
    by_line: dict[str, list[str]] = {}
    for task, fields in moved.items():
        by_line.setdefault(fields.line, []).append(task)
    commands = join_lines(queue, by_line)
    pending = ("status", "pending", "updated", now)
    commands += [
        ("HSET", keys.task(task), *pending, *flat(after(fields))) for task, fields in moved.items()
    ]
    commands += [("ZADD", keys.wake(queue), 0, 0)]
    for task, fields in moved.items():
        # Perhaps created by 1.0.0, which keeps no such index.
        if fields.attempt is None and fields.created is not None:
            commands += [("ZADD", keys.tasks(queue), fields.created, task)]
    for task, fields in moved.items():
        commands += record_in_task(task, fields, Event("due", "", now, {"eta": etas[task]}))
    return [*commands, *count(redis, queue, "due", now, len(moved))]


def delete(
    redis: Redis, queue: str, task: str, is_forced: bool = False, event: Event | None = None
) -> bool:
    """Remove a finished task for good. False: it was gone already.

    is_forced: even if others wait for it; it is gone for them then. event: for the stream of the
        queue; None: it is told nothing.
    Raises WrongState, WrongQueue, HasDependents.
    """

    def decide(exists: int, reply: list[str | None], unsettled: str | None) -> Verdict[bool]:
        fields = TaskFields._make(reply)
        if not exists:
            return Answer(False)
        if fields.queue not in (None, queue):
            raise WrongQueue(task, queue)
        if fields.status not in FINISHED:
            raise WrongState(task, fields.status, "delete")
        if fields.dependents is not None and not is_forced:
            raise HasDependents(task)
        if unsettled is not None:
            raise HasDependents(task, is_group=True)
        commands: list[Command] = [
            ("DEL", *keys.belongings(task)),
            *leave(task, fields._replace(queue=queue)),
            ("ZREM", keys.tasks(queue), task),
            *remove_tags({task: fields.tags}),
            ("HINCRBY", keys.totals(queue), "deleted", 1),
            *keep_key(task, fields.keep, fields.enqueued_by),
        ]
        if event is not None:
            facts = {"status": fields.status, **(event.facts or {})}
            commands.append(record_in_queue(queue, event._replace(facts=facts), task))
        return Change(commands, True)

    key = keys.task(task)
    look: Look[int, list[str | None], str | None] = Look(
        [key], [("EXISTS", key), read_task(task), ("ZSCORE", keys.UNSETTLED_MEMBERS, task)], task
    )
    return transact(redis, "delete", look, decide)


def keep_key(task: str, keep: str | None, mark: str | None) -> list[Command]:
    """Return the command that keeps the key of a deleted task in use for `keep` seconds."""
    if keep is not None and keep.isdecimal() and 0 < int(keep) <= CENTURY:
        return [("SET", keys.key_kept(task), mark or "", "EX", keep)]
    return []


def _is_taken(exists: int, mark: str | None = None, kept: Sequence[str | None] = (None,)) -> bool:
    return bool(exists) or kept[0] is not None


def _is_own(
    options: Mapping[str, Any], mark: str | None = None, kept: Sequence[str | None] = (None,)
) -> bool:
    """Tell whether an earlier try of this very call created the task. Only a task with a key, or
    with an id that its producer has chosen, says so.
    """
    own = options.get("enqueued_by")
    return own is not None and own in (mark, kept[0])


def new_fields(
    queue: str, parameters: str, now: float | str, options: Options
) -> list[str | float]:
    fields: list[str | float] = ["queue", queue, "parameters", parameters]
    fields += ["created", now, "updated", now]
    for name, value in (options or {}).items():
        fields += [name, value]
    return fields


def expiring(task: str, options: Mapping[str, Any]) -> list[Command]:
    """Return the command that notes when a new task is cancelled or moved if it has not started."""
    if "start_before" not in options:
        return []
    return [("ZADD", keys.EXPIRING, options["start_before"], task)]


@functools.lru_cache(_FORMS)
def _form(queue: str, line: str) -> _Form:
    record = ["HSET", HOLE, "status", "pending", *new_fields(queue, HOLE, HOLE, None)]
    join, *listed = put_in_line(queue, line, HOLE)
    index = ["ZADD", keys.tasks(queue), HOLE, HOLE]
    return _Form(
        len(record),
        b"*%d\r\n" + template(record) + b"%b",
        pack(("ZINCRBY", keys.QUEUES, 0, queue)),
        b"*%d\r\n" % len(join) + template(join),
        [pack(command) for command in listed],
        b"*%d\r\n" % len(index) + template(index),
        pack(("ZADD", keys.wake(queue), 0, 0)),
    )


def _filled(
    form: _Form, task: str, parameters: str, now: float, options: Mapping[str, str | int | float]
) -> list[Command]:
    """Return the commands of enqueue, in the order of the document."""
    key, name = as_bytes(keys.task(task)), as_bytes(task)
    text, at = as_bytes(parameters), str(now).encode()
    further = flat(options)
    fields = len(key), key, len(text), text, len(at), at, len(at), at
    return [
        form.record % (form.words + len(further), *fields, packed_words(further)),
        form.queue,
        form.join % (len(name), name),
        *form.listed,
        form.indexed % (len(at), at, len(name), name),
        *(map(pack, enter_tags({task: options["tags"]})) if "tags" in options else ()),
        form.wake,
        *expiring(task, options),
    ]
