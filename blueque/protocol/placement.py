"""While tasks wait: set_priority, put_first, bring_forward, move; pause, resume,
set_max_concurrency.

And who may go on: free, call.
"""

from __future__ import annotations

from collections.abc import Callable

from blueque.connection.redis import Command, Look, Redis
from blueque.errors import NotWaiting, WrongQueue
from blueque.model import keys
from blueque.model.lines import DEFAULT, line_of, needs_of
from blueque.protocol.events import FIELDS, event
from blueque.protocol.fields import flat, stand
from blueque.protocol.transaction import Answer, Change, transact


def set_priority(
    redis: Redis, queue: str, task: str, priority: int, now: float, by: str = ""
) -> None:
    """Have a waiting task take its place among those of another priority, as the last of them for
    now.

    One that a listener is about to reserve stays with it. by: who wants it. Raises NotWaiting,
    WrongQueue.
    """

    def decide(snapshot: list[str | None], is_in_line: bool, first: str | None) -> Answer | Change:
        _, before, needs, _ = _waiting(task, queue, snapshot)
        if (before or "0") == str(priority):
            return Answer(None)
        given: Command = ("HDEL", keys.task(task), "priority")
        if priority:
            given = ("HSET", keys.task(task), "priority", priority)
        commands: list[Command] = [given, ("HSET", keys.task(task), "updated", now)]
        if is_in_line:
            commands += [
                ("LREM", keys.line(queue, line_of(before, needs)), 0, task),
                *stand(queue, line_of(str(priority), needs), task),
                ("ZADD", keys.wake(queue), 0, 0),
            ]
        commands += event(
            redis, queue, task, "prioritized", by, snapshot[6:], now, {"priority": priority}
        )
        return Change(commands)

    _transact(redis, "set_priority", queue, task, decide)


def put_first(redis: Redis, queue: str, task: str, now: float, by: str = "") -> None:
    """Make a pending task the next of its line. by: who wants it. Raises NotWaiting, WrongQueue."""

    def decide(snapshot: list[str | None], is_in_line: bool, first: str | None) -> Answer | Change:
        status, priority, needs, _ = _waiting(task, queue, snapshot)
        if not is_in_line:
            raise NotWaiting(task, status)
        if first == task:
            return Answer(None)
        line = line_of(priority, needs)
        return Change(
            [
                ("LREM", keys.line(queue, line), 0, task),
                *stand(queue, line, task, is_first=True),
                ("HSET", keys.task(task), "updated", now),
                ("ZADD", keys.wake(queue), 0, 0),
                *event(redis, queue, task, "put_first", by, snapshot[6:], now),
            ]
        )

    _transact(redis, "put_first", queue, task, decide)


def bring_forward(redis: Redis, queue: str, task: str, now: float) -> None:
    """Make a scheduled task due now. Raises NotWaiting, WrongQueue."""

    def decide(snapshot: list[str | None]) -> Answer | Change:
        status, its_queue, eta = snapshot
        if status != "scheduled":
            raise NotWaiting(task, status)
        if its_queue != queue:
            raise WrongQueue(task, queue)
        if _is_due(eta, now):
            return Answer(None)
        return Change(
            [
                ("HSET", keys.task(task), "eta", now, "updated", now),
                ("ZADD", keys.scheduled(queue), "XX", now, task),
            ]
        )

    look = Look([keys.task(task)], [("HMGET", keys.task(task), "status", "queue", "eta")], task)
    transact(redis, "bring_forward", look, decide)


def move(redis: Redis, queue: str, task: str, to: str, now: float, by: str = "") -> None:
    """Have a waiting task wait in another queue instead, as the last of its line there.

    by: who wants it. Raises NotWaiting, WrongQueue.
    """

    def decide(snapshot: list[str | None], is_in_line: bool, first: str | None) -> Answer | Change:
        if snapshot[1] == to and snapshot[0] is not None:
            return Answer(None)
        status, priority, needs, (eta, created) = _waiting(task, queue, snapshot)
        if status == "pending" and not is_in_line:
            raise NotWaiting(task, status)
        line = line_of(priority, needs)
        commands: list[Command] = [
            ("HSET", keys.task(task), "queue", to, "updated", now),
            ("ZINCRBY", keys.QUEUES, 0, to),
            ("ZREM", keys.tasks(queue), task),
            ("ZADD", keys.tasks(to), now if created is None else created, task),
            *event(redis, to, task, "moved", by, snapshot[6:], now, {"from": queue}),
            ("HINCRBY", keys.totals(queue), "moved_away", 1),
        ]
        if status == "scheduled":
            commands += [
                ("ZREM", keys.scheduled(queue), task),
                ("ZADD", keys.scheduled(to), now if eta is None else eta, task),
            ]
            return Change(commands)
        commands += [
            ("LREM", keys.line(queue, line), 0, task),
            *stand(to, line, task),
            ("ZADD", keys.wake(to), 0, 0),
        ]
        return Change(commands)

    _transact(redis, "move", queue, task, decide)


def pause(redis: Redis, queue: str, by: str, reason: str | None, now: float) -> bool:
    """Have our listeners take nothing from a queue. False: it was paused already, and that stands."""

    def decide(paused: str | None) -> Answer | Change:
        if paused is not None:
            return Answer(False)
        why = {"paused_reason": reason} if reason else None
        return Change(
            [
                ("HSET", keys.settings(queue), "paused", now, "paused_by", by, *flat(why)),
                ("ZINCRBY", keys.QUEUES, 0, queue),
            ],
            True,
        )

    return bool(
        transact(
            redis,
            "pause",
            Look([keys.settings(queue)], [("HGET", keys.settings(queue), "paused")]),
            decide,
        )
    )


def resume(redis: Redis, queue: str) -> bool:
    """End a pause. False: the queue was not paused."""

    def decide(paused: str | None) -> Answer | Change:
        if paused is None:
            return Answer(False)
        return Change(
            [
                ("HDEL", keys.settings(queue), "paused", "paused_by", "paused_reason"),
                ("ZADD", keys.wake(queue), 0, 0),
            ],
            True,
        )

    return bool(
        transact(
            redis,
            "resume",
            Look([keys.settings(queue)], [("HGET", keys.settings(queue), "paused")]),
            decide,
        )
    )


def set_max_concurrency(redis: Redis, queue: str, most: int | None) -> None:
    """Set how many tasks of a queue our listeners run at a time, all together; None: as many as
    they can.
    """

    def decide(known: str | None) -> Answer | Change:
        if known == (None if most is None else str(most)):
            return Answer(None)
        given: list[Command] = [("HDEL", keys.settings(queue), "max_concurrency")]
        if most is not None:
            given = [
                ("HSET", keys.settings(queue), "max_concurrency", most),
                ("ZINCRBY", keys.QUEUES, 0, queue),
            ]
        return Change([*given, ("ZADD", keys.wake(queue), 0, 0)])

    look = Look([keys.settings(queue)], [("HGET", keys.settings(queue), "max_concurrency")])
    transact(redis, "set_max_concurrency", look, decide)


def free(redis: Redis, queue: str, task: str, lock: str | None = None) -> bool:
    """Free the room that a task is said to hold, but has no attempt that could. False: it holds it.

    lock: its name; None: a place among those that the queue may run.
    """
    key, field = (keys.counted(queue), "counted") if lock is None else (keys.lock(lock), "lock")

    def decide(snapshot: list[str | None]) -> Answer | Change:
        status, held = snapshot
        if status in ("reserved", "started") and held == (lock or "1"):
            return Answer(False)
        return Change([("SREM", key, task)], True)

    look = Look([keys.task(task), key], [("HMGET", keys.task(task), "status", field)], task)
    return bool(transact(redis, "free", look, decide))


def drop_line(redis: Redis, queue: str, line: str) -> bool:
    """Forget a line in which nobody stands any more. False: somebody does."""
    key, needs = keys.line(queue, line), needs_of(line)

    def decide(exists: int) -> Answer | Change:
        if exists or line == DEFAULT:
            return Answer(False)
        commands: list[Command] = [("ZREM", keys.lines(queue), line)]
        if needs is not None and needs.lock is not None:
            commands += [("SREM", keys.waiting(needs.lock), f"{line}_{queue}")]
        return Change(commands, True)

    return bool(transact(redis, "drop_line", Look([key], [("EXISTS", key)]), decide))


def call(redis: Redis, queue: str, node: str) -> None:
    """Have one listener look for work: one that has what a task needs, which we have not."""
    redis.read(("ZADD", keys.orders(queue, node), 0, 0))


def wake_waiting(redis: Redis, lock: str) -> None:
    """Wake one listener of each queue that has tasks which wait for a lock. It is free now, or may
    be.
    """
    (lines,) = redis.read(("SMEMBERS", keys.waiting(lock)))
    queues = sorted({line.partition("_")[2] for line in lines})
    if queues:
        redis.read(*[("ZADD", keys.wake(queue), 0, 0) for queue in queues])


def _is_due(eta: str | None, now: float) -> bool:
    try:
        return eta is not None and float(eta) <= now
    except ValueError:  # by another program's grace
        return False


def _transact(
    redis: Redis,
    name: str,
    queue: str,
    task: str,
    decide: Callable[[list[str | None], bool, str | None], Answer | Change],
) -> None:
    """Run one of these transactions; `decide` gets the task, whether it stands in its line, and
    which task is the next.

    One that does not may be with a listener of 1.0.0, which is about to run it: it must not be
    promised to another.
    """
    fields = ("status", "queue", "priority", "needs", "eta", "created", *FIELDS)
    line: str | None = DEFAULT
    while line is not None:
        key = keys.line(queue, line)

        def decide_here(
            snapshot: list[str | None],
            place: int | None,
            first: str | None = None,
            line: str = line,
        ) -> Answer | Change:
            its_line = line_of(*snapshot[2:4])
            if its_line != line and snapshot[:2] == ["pending", queue]:
                return Answer(its_line)
            return decide(snapshot, place is not None and snapshot[0] == "pending", first)

        reads: list[Command] = [("HMGET", keys.task(task), *fields), ("LPOS", key, task)]
        if name == "put_first":
            reads.append(("LINDEX", key, -1))
        look = Look([keys.task(task), key], reads, task)
        line = transact(redis, name, look, decide_here)


def _waiting(
    task: str, queue: str, snapshot: list[str | None]
) -> tuple[str, str | None, str | None, tuple[str | None, str | None]]:
    """Return status, priority, needs, and eta and created, of a task that waits."""
    status, its_queue, priority, needs, eta, created, *_ = snapshot
    if status not in ("pending", "scheduled"):
        raise NotWaiting(task, status)
    if its_queue != queue:
        raise WrongQueue(task, queue)
    return status, priority, needs, (eta, created)
