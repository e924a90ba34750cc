"""How a listener comes by a task: wait, wake, pop, reserve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import (
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
from blueque.model.encoding import count_of
from blueque.model.lines import DEFAULT, Needs, line_of, needs_of
from blueque.protocol.events import after, event, past_of, waited
from blueque.protocol.fields import flat, stand
from blueque.protocol.transaction import Answer, Change, transact
from blueque.protocol.watches import ownership, turn


class Popped(NamedTuple):
    """What came of a pop: the task, and how many are left in its line.

    refusal: why nothing was taken: `paused`, or `choose`: there are several lines, or a limit;
        look, and say which line.
    """

    task: str | None = None
    left: int = 0
    refusal: str | None = None


def pop(redis: Redis, queue: str, node: str, instance: str, line: str | None = None) -> Popped:
    """Move the next task id of a line into the listener's own list.

    line: None when the caller has not looked which lines there are; then it is the default one if
    that is all there is. The id is only a hint: `reserve` it next.
    Raises NotRegistered; OutcomeUnknown when the answer was lost: look through the own list then.
    """

    def decide(known: list[str | None], settings: list[str | None], others: int) -> Answer | Change:
        if known != [instance, "alive"]:
            raise NotRegistered(node, queue)
        paused, max_concurrency = settings
        if paused is not None:
            return Answer(Popped(refusal="paused"))
        if line is None and (others or max_concurrency is not None):
            return Answer(Popped(refusal="choose"))
        key = keys.line(queue, line or DEFAULT)
        return Change(
            [("RPOPLPUSH", key, keys.reserved(queue, node)), ("LLEN", key)],
            lambda replies: Popped(replies[0], replies[1]),
        )

    popped: Popped = transact(redis, "pop", turn(queue, node), decide, repeatable=False)
    return popped


class _Room(NamedTuple):
    """What has to be free for a task: a lock, and a place among those that the queue may run."""

    lock: str | None = None
    is_limited: bool = False


def reserve(
    redis: Redis,
    attempt: AttemptRef,
    instance: str,
    now: float,
    is_met: bool = True,
    line: str | None = None,
    newest: Mapping[str, int] | None = None,
) -> dict[str, str] | None:
    """Make a popped task ours and return its fields; None: it was not to be had, and its hint is
    dropped.

    attempt: with a token that is random: the caller that holds it owns the attempt.
    is_met: False when our node has not free what the task needs of it: then it is put back.
    line: from which it was popped: what the tasks of that line need of our node is set aside for
        it. None: not known.
    newest: number of the newest attempt that our spool has, by `created` of the task: Redis may
    have forgotten it. A task that a former life of this listener reserved or started is left as it
    is: None, and its hint stays.
    Raises NotFree when the task is back at the head of its line, for what it needs is taken.
    """
    room = _Room()
    while True:
        taken = _reserve(redis, attempt, instance, now, is_met, line, newest or {}, room)
        if not isinstance(taken, _Room):
            break
        room = taken  # now that we know what to look at
    if isinstance(taken, str):
        raise NotFree(attempt.task, taken)
    return taken


def _reserve(
    redis: Redis,
    attempt: AttemptRef,
    instance: str,
    now: float,
    is_met: bool,
    popped_from: str | None,
    newest: Mapping[str, int],
    room: _Room,
) -> dict[str, str] | str | _Room | None:
    queue, task, token, node = attempt
    reserved = keys.reserved(queue, node)
    assert token is not None, "every attempt of ours has a token"
    at_hand = None if popped_from is None else (needs_of(popped_from) or Needs()).resources

    def decide(
        known: list[str | None],
        reply: list[str],
        place: int | None,
        limit: str | None,
        holders: int,
        *counts: int,
    ) -> Answer | Change:
        if known != [instance, "alive"]:
            raise NotRegistered(node, queue)
        fields = as_hash(reply)
        status = fields.get("status")
        if status == "reserved" and fields.get("token") == token:
            return Answer(fields)
        if place is None:
            return Answer(None)
        if status in ("reserved", "started") and fields.get("node") == node:
            return Answer(None)
        # A hash without a queue is the stump of a deleted task, as 1.0.0 makes them.
        if status != "pending" or fields.get("queue") != queue:
            return Change([("LREM", reserved, 1, task)], None)
        line = line_of(fields.get("priority"), fields.get("needs"))
        named = needs_of(line)  # None: nobody can meet what makes no sense
        needs = named or Needs()
        if room != (needs.lock, limit is not None):
            return Answer(_Room(needs.lock, limit is not None))
        # It may have been put in a line where it does not belong, as by a producer of 1.0.0 that
        # sends an id again.
        want = (
            None
            if named is not None and is_met and at_hand in (None, needs.resources)
            else "resources"
        )
        if needs.lock is not None and holders >= needs.limit:
            want = "lock"
        elif limit is not None and limit.isdecimal() and max(counts) >= int(limit[:20]):
            want = "limit"
        if want is not None:
            return Change(
                [("LREM", reserved, 1, task), *stand(queue, line, task, is_first=True)], want
            )
        number = max(count_of(fields.get("attempt")), newest.get(fields.get("created", ""), 0)) + 1
        news: dict[str, str | int | float] = {
            "status": "reserved",
            "node": node,
            "token": token,
            "attempt": number,
            "updated": now,
        }
        commands: list[Command] = []
        if needs.lock is not None:
            news["lock"] = needs.lock
            commands += [("SADD", keys.lock(needs.lock), task)]
        if limit is not None:
            news["counted"] = 1
            commands += [("SADD", keys.counted(queue), task)]
        commands += [
            ("HSET", keys.task(task), *flat(news)),
            ("HDEL", keys.task(task), "pid"),
            *event(
                redis,
                queue,
                task,
                "reserved",
                node,
                (str(number), fields.get("events"), None),
                now,
                {
                    "took": waited(
                        fields.get("created"), fields.get("eta"), fields.get("queued"), now
                    )
                },
            ),
        ]
        if "attempt" not in fields:  # perhaps made by 1.0.0, which keeps no such index
            commands += [("ZADD", keys.tasks(queue), fields.get("created", now), task)]
        fields.pop("pid", None)
        return Change(
            commands,
            fields | {name: str(value) for name, value in news.items()} | after(past_of(fields)),
        )

    watch = [keys.listener(queue, node), keys.task(task), reserved, keys.settings(queue)]
    reads: list[Command] = [
        ("HMGET", keys.listener(queue, node), "instance", "state"),
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

    def decide_with(*replies: Any) -> Answer | Change:
        first, rest = replies[:4], list(replies[4:])
        holders = rest.pop(0) if room.lock is not None else 0
        return decide(*first, holders, *rest)

    taken: dict[str, str] | str | _Room | None = transact(
        redis, "reserve", Look(watch, reads, task), decide_with, ahead=ownership(task)
    )
    return taken


def wait(
    redis: Redis,
    listeners: Sequence[tuple[str, str]],
    seconds: float,
    is_answered: Callable[[Connection], bool],
    is_idle: bool = True,
) -> str | None:
    """Wait for a marker and take it; return its key, or None: none came, or the wait was given up.

    listeners: the queue and the node of each registration of this listener.
    is_idle: wait for the wake-up markers of these queues too, not only for those of its orders.
    is_answered: waits until the connection has an answer; False gives up, and closes the
    connection, for what the server sends now must not be read as the answer to something else. A
    marker may be lost with it: look for work then.
    """
    markers = [keys.wake(queue) for queue, _ in listeners] if is_idle else []
    markers += [keys.orders(queue, node) for queue, node in listeners]
    command: Command = ("BZPOPMIN", *markers, max(seconds, 0.01))  # 0 would be for ever
    connection = redis.connection()
    try:
        connection.send([command])
        if not is_answered(connection):
            connection.close()
            return None
        replies = connection.receive(1)
    except BaseException:
        connection.close()
        raise
    name_refused([command], replies)
    raise_refusal(replies)
    return None if replies[0] is None else str(replies[0][0])


def wake(redis: Redis, queue: str) -> None:
    """Wake up one idle listener of the queue. There is one marker at most, so this is safe at any
    time.
    """
    # it has the same effect twice, so it may be repeated like a look
    redis.read(("ZADD", keys.wake(queue), 0, 0))
