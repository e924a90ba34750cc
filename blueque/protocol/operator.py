"""What a person wants: cancel, requeue, order."""

from __future__ import annotations

from collections.abc import Collection

from blueque.connection.redis import Command, Look, Redis
from blueque.errors import NotCancellable, NotFailed, WrongQueue
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.lines import line_of
from blueque.protocol.events import FIELDS, event
from blueque.protocol.fields import IDENTITY, OUTCOME, flat, let_go_of_room, record_cancelled, stand
from blueque.protocol.transaction import Answer, Change, transact


def cancel(
    redis: Redis,
    queue: str,
    task: str,
    by: str,
    reason: str | None,
    now: float,
    only: Collection[str] | None = None,
) -> str:
    """Have a task never run, or ended: return `cancelled`, or `cancelling` when its listener has to
    end it first.

    by, reason: who wants it, and why. only: the statuses in which it may be. Raises NotCancellable,
        WrongQueue.
    """

    def decide(snapshot: list[str | None]) -> Answer | Change:
        status, its_queue, node, token, asked, claimant, priority, needs, lock, counted, *past = (
            snapshot
        )
        if status is None:
            raise NotCancellable(task, None, "it does not exist")
        if its_queue != queue:
            raise WrongQueue(task, queue)
        if status == "cancelled":
            return Answer("cancelled")
        if status not in ("scheduled", "pending", "reserved", "started"):
            raise NotCancellable(task, status, f"it is {status} already")
        if only is not None and status not in only:
            raise NotCancellable(task, status, f"it is {status} by now")
        who: dict[str, str | int | float] = {
            "cancelled_by": by,
            **({"cancel_reason": reason} if reason else {}),
        }
        if status in ("reserved", "started") and token is None:
            raise NotCancellable(
                task, status, f"{node} has it, a listener of 1.0.0, which cannot be told"
            )
        if status == "reserved" and claimant is not None:
            raise NotCancellable(
                task, status, f"{claimant} has claimed it, as 1.0.0 does, and cannot be told"
            )
        if status == "started":
            if asked is not None:
                return Answer("cancelling")
            return Change(
                [
                    ("HSET", keys.task(task), "cancel", now, *flat(who), "updated", now),
                    ("ZADD", keys.orders(queue, node or ""), 0, 0),
                    *event(redis, queue, task, "cancelling", by, past, now, {"reason": reason}),
                ],
                "cancelling",
            )
        places: dict[str | None, Command] = {
            "pending": ("LREM", keys.line(queue, line_of(priority, needs)), 0, task),
            "scheduled": ("ZREM", keys.scheduled(queue), task),
            "reserved": ("LREM", keys.reserved(queue, node or ""), 1, task),
        }
        return Change(
            [
                places[status],
                *let_go_of_room(queue, task, lock, counted),
                ("HDEL", keys.task(task), *IDENTITY),
                *record_cancelled(queue, task, None, now, who),
                *event(redis, queue, task, "cancelled", by, past, now, {"reason": reason}),
            ],
            "cancelled",
        )

    look = Look(
        [keys.task(task)],
        [
            (
                "HMGET",
                keys.task(task),
                "status",
                "queue",
                "node",
                "token",
                "cancel",
                "reclaimed_node",
                "priority",
                "needs",
                "lock",
                "counted",
                *FIELDS,
            )
        ],
        task,
    )
    return str(transact(redis, "cancel", look, decide))


def requeue(redis: Redis, queue: str, task: str, mark: str, now: float, by: str = "") -> None:
    """Put a failed or cancelled task in line again, its budgets new: a person's consent to another
    start.

    mark: random, the same for every try of one call. by: who wants it.
    Raises NotFailed, WrongQueue.
    """

    def decide(snapshot: list[str | None]) -> Answer | Change:
        status, its_queue, its_mark, files, priority, needs, *past = snapshot
        if its_mark == mark:
            return Answer(None)
        if status not in ("failed", "cancelled"):
            raise NotFailed(task, status)
        if its_queue != queue:
            raise WrongQueue(task, queue)
        ended = keys.failed(queue) if status == "failed" else keys.cancelled(queue)
        return Change(
            [
                ("LREM", ended, -1, task),
                (
                    "HDEL",
                    keys.task(task),
                    *IDENTITY,
                    *OUTCOME,
                    "failures",
                    "interruptions",
                    "last_error",
                    "last_error_type",
                    "cancel",
                    "cancelled_by",
                    "cancel_reason",
                ),
                (
                    "HSET",
                    keys.task(task),
                    "status",
                    "pending",
                    "queued",
                    now,
                    "requeued",
                    mark,
                    *flat({"last_files": files} if files else {}),
                    "updated",
                    now,
                ),
                *stand(queue, line_of(priority, needs), task),
                ("ZADD", keys.wake(queue), 0, 0),
                *event(redis, queue, task, "requeued", by, past, now),
            ]
        )

    fields = ("status", "queue", "requeued", "files", "priority", "needs", *FIELDS)
    look = Look([keys.task(task)], [("HMGET", keys.task(task), *fields)], task)
    transact(redis, "requeue", look, decide)


def ask_stack(redis: Redis, queue: str, task: str, mark: str) -> str | None:
    """Have the listener of a running task show where it is; return the status of the task, None:
    there is no such.

    mark: random, the same for every try of one call. Nothing is written unless the task is started,
        by one of ours.
    """

    def decide(snapshot: list[str | None]) -> Answer | Change:
        status, its_queue, token, node, its_mark = snapshot
        if status != "started" or its_queue != queue or token is None or its_mark == mark:
            return Answer(status)
        return Change(
            [
                ("HSET", keys.task(task), "stack", mark),
                ("ZADD", keys.orders(queue, node or ""), 0, 0),
            ],
            status,
        )

    look = Look(
        [keys.task(task)],
        [("HMGET", keys.task(task), "status", "queue", "token", "node", "stack")],
        task,
    )
    status: str | None = transact(redis, "ask_stack", look, decide)
    return status


def decline_stack(redis: Redis, attempt: AttemptRef, mark: str, reason: str) -> bool:
    """Tell the one who asked with this mark that the task cannot show where it is; False: nobody
    waits for that now.
    """
    _, task, token, node = attempt

    def decide(snapshot: list[str | None]) -> Answer | Change:
        if snapshot != ["started", token, node, mark]:
            return Answer(False)
        return Change([("HSET", keys.task(task), "stack", f"{mark} {reason}")], True)

    look = Look(
        [keys.task(task)], [("HMGET", keys.task(task), "status", "token", "node", "stack")], task
    )
    return bool(transact(redis, "decline_stack", look, decide))


def order(redis: Redis, queue: str, node: str, what: str, by: str) -> bool:
    """Leave an order for a listener: `drain`, `leave`, `pause` or `work`. False: there is no such
    listener alive.
    """
    registration = keys.listener(queue, node)

    def decide(known: list[str | None]) -> Answer | Change:
        if known[0] != "alive":
            return Answer(False)
        if known[1] == what or (what in ("pause", "work") and known[1] in ("drain", "leave")):
            return Answer(True)
        return Change(
            [
                ("HSET", registration, "order", what, "order_by", by),
                ("ZADD", keys.orders(queue, node), 0, 0),
            ],
            True,
        )

    look = Look([registration], [("HMGET", registration, "state", "order")])
    return bool(transact(redis, "order", look, decide))
