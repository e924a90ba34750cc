"""How a listener gets a task: wait, wake, pop, reserve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from blueque.connection.redis import (
    Ahead,
    AnyLook,
    Command,
    Connection,
    Look,
    Redis,
    as_hash,
    name_refused,
    raise_refusal,
)
from blueque.errors import NotFree, NotOwner, NotRegistered
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.encoding import count_of
from blueque.model.lines import DEFAULT, Needs, line_of, needs_of
from blueque.model.start_time import EXPIRED, is_over
from blueque.model.states import HELD
from blueque.protocol.events import (
    Event,
    after,
    has_room_for_two_events,
    note_two_events,
    past_of,
    record_event,
    waited,
)
from blueque.protocol.fields import IDENTITY, OUTCOME, flat, put_in_line
from blueque.protocol.transaction import Answer, Change, Verdict, forget_ahead, look_ahead, transact
from blueque.protocol.watches import fields_of, ownership_and_turn, turn, turn_and_next


class Popped(NamedTuple):
    """The result of a pop: the task, and the number of tasks left in its line.

    refusal: why no task was taken: `paused`; or `choose`, because there are several lines, or a
        limit: look, and name the line.
    is_awaited: others wait for the task that has ended with this pop.
    """

    task: str | None = None
    left: int = 0
    refusal: str | None = None
    is_awaited: bool = False


def pop(redis: Redis, queue: str, node: str, instance: str, line: str | None = None) -> Popped:
    """Move the next task id of a line into the list of the listener.

    line: None when the caller does not know which lines there are; then it is the default one if
        there is no other. The id is only a hint: `reserve` it next.
    Raises NotRegistered; OutcomeUnknown when the reply was lost: look through the list of the
    listener then.
    """

    def decide(
        registered: list[str | None],
        settings: list[str | None],
        others: int,
        following: str | None = None,
    ) -> Verdict[Popped]:
        if registered != [instance, "alive"]:
            raise NotRegistered(node, queue)
        paused, max_concurrency = settings
        if paused is not None:
            return Answer(Popped(refusal="paused"))
        if line is None and (others or max_concurrency is not None):
            return Answer(Popped(refusal="choose"))
        key = keys.line(queue, line or DEFAULT)
        is_likely = following is not None and max_concurrency is None
        return Change(
            [("RPOPLPUSH", key, keys.reserved(queue, node)), ("LLEN", key)],
            lambda replies: Popped(replies[0], replies[1]),
            _reserve_look(queue, following or "", node, _Room()) if is_likely else None,
        )

    look: AnyLook = turn(queue, node)
    if needs_of(line or DEFAULT) == Needs():
        look = turn_and_next(queue, node, line or DEFAULT)
    popped = transact(redis, "pop", look, decide, repeatable=False)
    if redis.ahead is not None and redis.ahead.look.task != popped.task:
        forget_ahead(redis)  # what it watches concerns another task, and would disturb ours
    return popped


class _Room(NamedTuple):
    """What has to be free for a task: its lock, and a place among those that the queue may run."""

    lock: str | None = None
    is_limited: bool = False


class _Offer(NamedTuple):
    """What the listener has set aside for the task.

    is_met: whether its node has free what the task needs. resources: those of the line from which
        the task was popped; None: not known.
    """

    is_met: bool
    resources: tuple[tuple[str, int], ...] | None


# The fields of the task; or what it lacks, so that it was put back; or the room to look at first;
# or None.
_Reserved: TypeAlias = dict[str, str] | str | _Room | None


def reserve(
    redis: Redis,
    attempt: AttemptRef,
    instance: str,
    now: float,
    is_met: bool = True,
    line: str | None = None,
    newest: Mapping[str | None, int] | None = None,
) -> dict[str, str] | None:
    """Reserve a popped task for a new attempt and return its fields; None: the task was not
    available, and its hint is dropped.

    A task that an earlier life of this listener has reserved or started is left as it is: None, and
    its hint stays.
    attempt: its token is random, and new for each attempt.
    is_met: False when our node does not have free what the task needs: then it is put back.
    line: from which the task was popped; what its tasks need is set aside. None: not known.
    newest: the number of the newest attempt in our spool, by `created` of the task: Redis may have
        forgotten it; at None, of those whose end was not reported, whatever their `created`.
    Raises NotFree when the task is back at the head of its line, because what it needs is taken,
    or because its `start_before` has passed: `expire` it.
    """
    resources = None if line is None else (needs_of(line) or Needs()).resources
    offer, room = _Offer(is_met, resources), _Room()
    while True:
        reserved = _reserve(redis, attempt, instance, now, offer, newest or {}, room)
        if not isinstance(reserved, _Room):
            break
        room = reserved  # which room the task needs is known from its fields only
    if isinstance(reserved, str):
        raise NotFree(attempt.task, reserved)
    return reserved


def _reserve(
    redis: Redis,
    attempt: AttemptRef,
    instance: str,
    now: float,
    offer: _Offer,
    newest: Mapping[str | None, int],
    room: _Room,
) -> _Reserved:
    queue, task, token, node = attempt
    drop: Command = ("LREM", keys.reserved(queue, node), 1, task)

    def decide(
        registered: list[str | None],
        reply: list[str],
        place: int | None,
        limit: str | None,
        *counts: int,
    ) -> Verdict[_Reserved]:
        if registered != [instance, "alive"]:
            raise NotRegistered(node, queue)
        fields = as_hash(reply)
        status = fields.get("status")
        if status == "reserved" and fields.get("token") == token:
            return Answer(fields)
        if place is None or (status in HELD and fields.get("node") == node):
            return Answer(None)
        # A hash without a queue is a rest of a deleted task, as 1.0.0 leaves it.
        if status != "pending" or fields.get("queue") != queue:
            return Change([drop], None)
        line = line_of(fields.get("priority"), fields.get("needs"))
        if is_over(fields, now):
            return Change([drop, *put_in_line(queue, line, task, is_first=True)], EXPIRED)
        needs = needs_of(line)
        needed = _Room(needs.lock if needs is not None else None, limit is not None)
        if room != needed:
            return Answer(needed)
        lacking = _lacking(needs, offer, limit, counts)
        if lacking is not None:
            return Change([drop, *put_in_line(queue, line, task, is_first=True)], lacking)
        number = max(count_of(fields.get("attempt")), _newest(fields, newest)) + 1
        commands, written = _reservation(redis, attempt, fields, number, room, now)
        gone = ("pid",) if "attempt" in fields else ("pid", *OUTCOME)
        kept = {name: text for name, text in fields.items() if name not in gone}
        return Change(commands, kept | written | after(past_of(fields)))

    look = _reserve_look(queue, task, node, room)
    return transact(redis, "reserve", look, decide, ahead=fields_of(task))


def _newest(fields: Mapping[str, str], newest: Mapping[str | None, int] | None) -> int:
    numbers = newest or {}
    return max(numbers.get(fields.get("created", ""), 0), numbers.get(None, 0))


def _reserve_look(queue: str, task: str, node: str, room: _Room) -> AnyLook:
    registration, reserved = keys.listener(queue, node), keys.reserved(queue, node)
    watch = [registration, keys.task(task), reserved, keys.settings(queue)]
    reads: list[Command] = [
        ("HMGET", registration, "instance", "state"),
        ("HGETALL", keys.task(task)),
        ("LPOS", reserved, task),
        ("HGET", keys.settings(queue), "max_concurrency"),
    ]
    if room.lock is not None:
        watch += [keys.lock(room.lock)]
        reads += [("SCARD", keys.lock(room.lock))]
    if room.is_limited:
        watch += [keys.counted(queue), keys.started(queue)]
        reads += [("SCARD", keys.counted(queue)), ("SCARD", keys.started(queue))]
    return Look(watch, reads, task)


def _lacking(
    needs: Needs | None, offer: _Offer, limit: str | None, counts: Sequence[int]
) -> str | None:
    """Return what the task lacks: `resources`, `lock` or `limit`; None: nothing.

    counts: the holders of its lock, if it needs one; then the places taken, by both counts.
    """
    if needs is not None and needs.lock is not None and counts[0] >= needs.limit:
        return "lock"
    if limit is not None and limit.isdecimal() and max(counts[-2:]) >= int(limit[:20]):
        return "limit"
    # No node meets malformed needs. And the task may have been in a line that is not its own, as
    # when 1.0.0 sends an id again.
    if needs is None or not offer.is_met or offer.resources not in (None, needs.resources):
        return "resources"
    return None


def _reservation(
    redis: Redis,
    attempt: AttemptRef,
    fields: Mapping[str, str],
    number: int,
    room: _Room,
    now: float,
) -> tuple[list[Command], dict[str, str]]:
    """Return the commands that reserve the task, and the fields that they write."""
    queue, task, token, node = attempt
    assert token is not None, "every attempt of ours has a token"
    written: dict[str, str | int | float] = {"status": "reserved", "node": node, "token": token}
    written |= {"attempt": number, "updated": now}
    commands: list[Command] = []
    if room.lock is not None:
        written["lock"] = room.lock
        commands += [("SADD", keys.lock(room.lock), task)]
    if room.is_limited:
        written["counted"] = 1
        commands += [("SADD", keys.counted(queue), task)]
    past = past_of(fields)._replace(attempt=str(number), started=None)
    took = waited(fields.get("created"), fields.get("eta"), fields.get("queued"), now)
    commands += [
        ("HSET", keys.task(task), *flat(written)),
        ("HDEL", keys.task(task), "pid"),
        *record_event(redis, queue, task, past, Event("reserved", node, now, {"took": took})),
    ]
    if "attempt" not in fields:
        # Perhaps made by 1.0.0, which keeps no such index, and leaves what an earlier end has written.
        commands += [
            ("HDEL", keys.task(task), *OUTCOME),
            ("ZADD", keys.tasks(queue), fields.get("created", now), task),
        ]
    return commands, {name: str(value) for name, value in written.items()}


def offered(
    redis: Redis, attempt: AttemptRef, now: float, newest: Mapping[str | None, int] | None = None
) -> dict[str, str] | None:
    """Look at a popped task, and return its fields if `reserve_and_start` is for it: it waits for
    its first attempt and needs nothing. None: `reserve` it; that transaction takes over this look.
    """
    queue, task, _, node = attempt
    _, reply, place, limit = look_ahead(redis, _reserve_look(queue, task, node, _Room()))
    fields = as_hash(reply)
    needs = needs_of(line_of(fields.get("priority"), fields.get("needs")))
    is_free = limit is None and needs is not None and needs == Needs()
    is_first = "attempt" not in fields and not _newest(fields, newest)
    is_pending = fields.get("status") == "pending" and fields.get("queue") == queue
    if not (is_pending and place is not None and is_free and is_first) or is_over(fields, now):
        return None
    # What 1.0.0 has left of an earlier attempt, `reserve` removes.
    is_plain = has_room_for_two_events(past_of(fields)) and fields.keys().isdisjoint(
        IDENTITY + OUTCOME
    )
    return fields if is_plain else None


def reserve_and_start(
    redis: Redis,
    attempt: AttemptRef,
    instance: str,
    fields: Mapping[str, str],
    pid: int,
    now: float,
    identity: Mapping[str, str | int] | None = None,
) -> None:
    """Reserve a popped task for its first attempt and record that process `pid` runs it. Nothing of
    the task may run before this returns.

    fields: of the task, as `offered` has returned them. identity: see `start`.
    Raises NotOwner when the task is not as it was then: `reserve` it. NotRegistered.
    """
    queue, task, token, node = attempt

    def decide(
        registered: list[str | None], reply: list[str], place: int | None, limit: str | None
    ) -> Verdict[None]:
        found = as_hash(reply)
        owner = [found.get(name) for name in ("status", "token", "node", "pid")]
        if owner == ["started", token, node, str(pid)]:
            return Answer(None)
        if registered != [instance, "alive"]:
            raise NotRegistered(node, queue)
        if place is None or limit is not None or found != fields or is_over(fields, now):
            raise NotOwner(task, found.get("status"), "it has changed since it was popped")
        return Change(_reservation_and_start(redis, attempt, fields, pid, now, identity), None)

    look = _reserve_look(queue, task, node, _Room())
    ahead = ownership_and_turn(task, queue, node)
    transact(redis, "reserve_and_start", look, decide, ahead=ahead)


def _reservation_and_start(
    redis: Redis,
    attempt: AttemptRef,
    fields: Mapping[str, str],
    pid: int,
    now: float,
    identity: Mapping[str, str | int] | None,
) -> list[Command]:
    queue, task, token, node = attempt
    assert token is not None, "every attempt of ours has a token"
    past = past_of(fields)
    written: dict[str, str | int | float] = {"status": "started", "node": node, "token": token}
    written |= {"attempt": 1, "pid": pid, **(identity or {}), "started": now, "updated": now}
    written |= after(past, 2)
    took = waited(fields.get("created"), fields.get("eta"), fields.get("queued"), now)
    return [
        ("SADD", keys.started(queue), keys.started_member(node, pid, task)),
        ("HSET", keys.task(task), *flat(written)),
        *note_two_events(
            redis,
            queue,
            task,
            past._replace(attempt="1"),
            Event("reserved", node, now, {"took": took}),
            Event("started", node, now, {"pid": pid}),
        ),
        # 1.0.0, which keeps no such index, may have made it
        ("ZADD", keys.tasks(queue), fields.get("created", now), task),
    ]


def wait(
    redis: Redis,
    listeners: Sequence[tuple[str, str]],
    seconds: float,
    is_answered: Callable[[Connection], bool],
    is_idle: bool = True,
    expects_task: bool = False,
) -> str | None:
    """Wait for a marker and take it. Return its key; None: no marker came, or the wait was given
    up.

    listeners: the queue and the node of each registration of this listener.
    is_answered: waits until the connection has a reply. False gives up and closes the connection:
        a late reply must not be taken for that to another command. A marker may be lost with it:
        look for work then.
    is_idle: wait for the wake-up markers of these queues too, not only for orders.
    expects_task: with a single queue, have the look of `pop` answered together with the wait, so
        that the listener can pop at once.
    """
    markers = [keys.wake(queue) for queue, _ in listeners] if is_idle else []
    markers += [keys.orders(queue, node) for queue, node in listeners]
    # 0 means for ever
    commands: list[Command] = [("BZPOPMIN", *markers, max(seconds, 0.01))]
    connection = redis.connection()
    may_look = expects_task and len(listeners) == 1 and connection.is_proven
    look = turn_and_next(*listeners[0]) if may_look else None
    if look is not None:
        commands += [("WATCH", *look.watch), *look.reads]
    try:
        connection.send(commands)
        if not is_answered(connection):
            connection.close()
            return None
        replies = connection.receive(len(commands))
    except BaseException:
        redis.close()
        raise
    name_refused(commands, replies)
    raise_refusal(replies[:1])
    if look is not None:
        connection.ahead = Ahead(look, replies[1:])
    return None if replies[0] is None else str(replies[0][0])


def wake(redis: Redis, queue: str) -> None:
    """Wake one idle listener of the queue. A queue has one marker at most, so this is safe at any
    time.
    """
    # Twice has the same effect as once, so it may be repeated like a read.
    redis.read(("ZADD", keys.wake(queue), 0, 0))
