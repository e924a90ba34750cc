"""How a listener gets a task: wait, wake, pop, reserve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from blueque.connection.redis import (
    AnyLook,
    Command,
    Connection,
    Look,
    Redis,
    as_hash,
    name_refused,
    raise_refusal,
)
from blueque.errors import NotFree, NotRegistered
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.encoding import count_of, known_count, time_or
from blueque.model.lines import DEFAULT, Needs, line_of, needs_of
from blueque.model.start_time import EXPIRED, is_over
from blueque.model.states import HELD
from blueque.protocol.events import Event, after, note_event, waited
from blueque.protocol.fields import OUTCOME, TaskFields, flat, put_in_line
from blueque.protocol.transaction import Answer, Change, Verdict, transact


class Popped(NamedTuple):
    """The result of a pop: the task, and the number of tasks left in its line.

    refusal: why no task was taken: `paused`; or `choose`, because there are several lines, or a
        limit: look, and name the line.
    """

    task: str | None = None
    left: int = 0
    refusal: str | None = None


def pop(redis: Redis, queue: str, node: str, instance: str, line: str | None = None) -> Popped:
    """Move the next task id of a line into the list of the listener.

    The id is only a hint: `reserve` it next.
    line: None: the lines are unknown; take from the default one if there is no other.
    Raises NotRegistered; OutcomeUnknown when the reply was lost: look through the list of the
        listener then.
    """

    def decide(
        registered: list[str | None], settings: list[str | None], others: int
    ) -> Verdict[Popped]:
        if registered != [instance, "alive"]:
            raise NotRegistered(node, queue)
        paused, max_running = settings
        if paused is not None:
            return Answer(Popped(refusal="paused"))
        if line is None and (others or max_running is not None):
            return Answer(Popped(refusal="choose"))
        key = keys.line(queue, line or DEFAULT)
        return Change(
            [("RPOPLPUSH", key, keys.reserved(queue, node)), ("LLEN", key)],
            lambda replies: Popped(replies[0], replies[1]),
        )

    registration, settings = keys.listener(queue, node), keys.settings(queue)
    lines = keys.lines(queue)
    look: Look[list[str | None], list[str | None], int] = Look(
        # The lines as well: a line that was added since the look may have the turn.
        (registration, settings, lines),
        (
            ("HMGET", registration, "instance", "state"),
            ("HMGET", settings, "paused", "max_running"),
            ("ZCARD", lines),
        ),
    )
    return transact(redis, "pop", look, decide, repeatable=False)


class _Room(NamedTuple):
    """What must be free for a task: its lock, and a running place in its queue."""

    lock: str | None = None
    is_limited: bool = False


class _Offer(NamedTuple):
    """What the listener has set aside for the task.

    is_met: whether its node has free what the task needs. resources: those of the line from which
        the task was popped; None: unknown.
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
    """Reserve a popped task for a new attempt and return its fields. None: it was not available.

    Its hint is dropped then. A task that an earlier life of this listener has reserved or started
    stays as it is: None, and its hint stays.
    attempt: its token is random, and new for each attempt.
    is_met: False when our node does not have free what the task needs: it is put back.
    line: from which the task was popped; what its tasks need is set aside. None: unknown.
    newest: the number of the newest attempt in our spool, by `created` of the task; Redis may have
        forgotten it. At None, the newest whose end was not reported.
    Raises NotFree when the task is back at the head of its line, because what it needs is in use,
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
        needs = needs_of(line)
        needed = _Room(None if needs is None else needs.lock, limit is not None)
        if room != needed:
            return Answer(needed)
        lacking = EXPIRED if is_over(fields, now) else _lacking(line, offer, limit, counts)
        if lacking is not None:
            return Change([drop, *put_in_line(queue, line, task, is_first=True)], lacking)
        return _reservation(redis, attempt, fields, newest, room, now)

    return transact(redis, "reserve", _reserve_look(queue, task, node, room), decide)


def _reserve_look(queue: str, task: str, node: str, room: _Room) -> AnyLook:
    registration, reserved = keys.listener(queue, node), keys.reserved(queue, node)
    watch = [registration, keys.task(task), reserved, keys.settings(queue)]
    reads: list[Command] = [
        ("HMGET", registration, "instance", "state"),
        ("HGETALL", keys.task(task)),
        ("LPOS", reserved, task),
        ("HGET", keys.settings(queue), "max_running"),
    ]
    if room.lock is not None:
        watch += [keys.lock(room.lock)]
        reads += [("SCARD", keys.lock(room.lock))]
    if room.is_limited:
        watch += [keys.counted(queue), keys.started(queue)]
        reads += [("SCARD", keys.counted(queue)), ("SCARD", keys.started(queue))]
    return Look(watch, reads, task)


def _lacking(line: str, offer: _Offer, limit: str | None, counts: Sequence[int]) -> str | None:
    """Return what the task lacks: `resources`, `lock` or `limit`; None: nothing.

    line: its own. counts: the holders of its lock, if it needs one; then the places taken, by both
        counts.
    """
    needs = needs_of(line)
    if needs is not None and needs.lock is not None and counts[0] >= needs.limit:
        return "lock"
    most = known_count(limit)
    if most is not None and max(counts[-2:]) >= most:
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
    newest: Mapping[str | None, int],
    room: _Room,
    now: float,
) -> Change[_Reserved]:
    """Return the commands that reserve the task, and its new fields."""
    queue, task, token, node = attempt
    assert token is not None, "every attempt of ours has a token"
    latest = max(newest.get(fields.get("created", ""), 0), newest.get(None, 0))
    number = max(count_of(fields.get("attempt")), latest) + 1
    past = TaskFields.of(fields)._replace(attempt=str(number), started=None)
    written: dict[str, str | int | float] = {"status": "reserved", "node": node, "token": token}
    written |= {"attempt": number, "updated": now}
    # Perhaps made by 1.0.0, which leaves what an earlier end has written.
    gone = ("pid",) if "attempt" in fields else ("pid", *OUTCOME)
    commands: list[Command] = []
    if room.lock is not None:
        written["lock"] = room.lock
        commands += [("SADD", keys.lock(room.lock), task)]
    if room.is_limited:
        written["counted"] = 1
        commands += [("SADD", keys.counted(queue), task)]
    written |= after(past)
    took = waited(fields.get("created"), fields.get("eta"), fields.get("queued"), now)
    commands += [
        ("HSET", keys.task(task), *flat(written)),
        ("HDEL", keys.task(task), *gone),
        *note_event(redis, queue, task, past, Event("reserved", node, now, {"took": took})),
    ]
    if "attempt" not in fields:  # perhaps made by 1.0.0, which keeps no such index
        commands += [("ZADD", keys.tasks(queue), time_or(fields.get("created"), now), task)]
    kept = {name: text for name, text in fields.items() if name not in gone}
    return Change(commands, kept | {name: str(value) for name, value in written.items()})


def wait(
    redis: Redis,
    listeners: Sequence[tuple[str, str]],
    seconds: float,
    is_answered: Callable[[Connection], bool],
    is_idle: bool = True,
) -> str | None:
    """Wait for a marker and take it. Return its key; None: none came, or the wait was given up.

    listeners: the queue and the node of each registration of this listener.
    is_answered: waits until the connection has a reply. False gives up and closes the connection,
        because a late reply must not be taken for that to another command. A marker may be lost
        with it: look for work then.
    is_idle: wait for the wake-up markers of these queues too, not only for orders.
    """
    markers = [keys.wake(queue) for queue, _ in listeners] if is_idle else []
    markers += [keys.orders(queue, node) for queue, node in listeners]
    # 0 means for ever
    commands: list[Command] = [("BZPOPMIN", *markers, max(seconds, 0.01))]
    connection = redis.connection()
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
    raise_refusal(replies)
    return None if replies[0] is None else str(replies[0][0])


def wake(redis: Redis, queue: str, node: str | None = None) -> None:
    """Wake one idle listener of the queue, or this one. There is at most one marker: it is safe."""
    # Twice has the same effect as once, so it may be repeated like a read.
    marker = keys.wake(queue) if node is None else keys.orders(queue, node)
    redis.read(("ZADD", marker, 0, 0))
