"""The orders of an operator: cancel, interrupt, requeue, ask_stack, decline_stack, order."""

from __future__ import annotations

from collections.abc import Collection

from blueque.connection.redis import Command, Look, Redis, as_hash
from blueque.errors import WrongQueue, WrongState
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.conditions import DROPPED, are_met
from blueque.model.group import require_whole
from blueque.protocol.cancelling import cancelled
from blueque.protocol.children import child_look
from blueque.protocol.events import Event, record_event, record_in_queue
from blueque.protocol.fields import IDENTITY, OUTCOME, TaskFields, flat
from blueque.protocol.moves import enter, leave
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import fields_of

# The fields that requeue removes besides those of the attempt.
_OF_FAILURES = (
    "failures",
    "interruptions",
    "last_error",
    "last_error_type",
    "cancel",
    "cancelled_by",
    "cancel_reason",
    "broken",
    "broken_by",
    "interrupt",
    "interrupted_at",
    "interrupted_by",
    "interrupt_reason",
    "start_before",
    "expired_to",
)
_EVENTS_OF_ORDERS = {
    "drain": "listener_draining",
    "pause": "listener_paused",
    "work": "listener_resumed",
}


def cancel(
    redis: Redis,
    queue: str,
    task: str,
    by: str,
    reason: str | None,
    now: float,
    only: Collection[str] | None = None,
) -> str:
    """Cancel a task. Return `cancelled`, or `cancelling` when its listener has to end it first.

    by, reason: who asks, and why. only: the statuses in which the task may be cancelled.
    Raises WrongState, WrongQueue.
    """

    def decide(reply: list[str | None]) -> Verdict[str]:
        fields = TaskFields._make(reply)
        _require_cancellable(queue, task, fields, only)
        if fields.status == "cancelled":
            return Answer("cancelled")
        if fields.status == "started" and fields.cancel is not None:
            return Answer("cancelling")
        if fields.status != "started":
            return Change(cancelled(redis, task, fields, now, reason, by), "cancelled")
        who = {"cancelled_by": by, **({"cancel_reason": reason} if reason else {})}
        event = Event("cancelling", by, now, {"reason": reason})
        return Change(
            [
                ("HSET", keys.task(task), "cancel", now, *flat(who), "updated", now),
                ("ZADD", keys.orders(queue, fields.node or ""), 0, 0),
                *record_event(redis, queue, task, fields, event),
            ],
            "cancelling",
        )

    look = fields_of(task)
    return transact(redis, "cancel", look, decide)


def _require_cancellable(
    queue: str, task: str, fields: TaskFields, only: Collection[str] | None
) -> None:
    status, node = fields.status, fields.node
    if status is None:
        raise WrongState(task, None, "cancel")
    if fields.queue != queue:
        raise WrongQueue(task, queue)
    if status == "cancelled":
        return
    if status not in ("blocked", "scheduled", "pending", "reserved", "started"):
        raise WrongState(task, status, "cancel", f"it is {status} already")
    if only is not None and status not in only:
        raise WrongState(task, status, "cancel", f"it is {status} by now")
    if status in ("reserved", "started") and fields.token is None:
        raise WrongState(
            task, status, "cancel", f"{node} has it, a listener of 1.0.0, which takes no orders"
        )
    if status == "reserved" and fields.reclaimed_node is not None:
        raise WrongState(
            task,
            status,
            "cancel",
            f"{fields.reclaimed_node} has claimed it, as 1.0.0 does, and takes no orders",
        )


def interrupt(redis: Redis, queue: str, task: str, by: str, reason: str | None, now: float) -> None:
    """Have the listener of a running task end its attempt and hand the task back.

    by, reason: who asks, and why. The order is for this attempt only.
    Raises WrongState, WrongQueue.
    """
    key = keys.task(task)

    def decide(reply: list[str | None]) -> Verdict[None]:
        fields = TaskFields._make(reply)
        if fields.interrupted_at == str(now):
            return Answer(None)
        token = _require_interruptible(queue, task, fields)
        if fields.interrupt == token:
            return Answer(None)
        who = {"interrupted_by": by, **({"interrupt_reason": reason} if reason else {})}
        told = ("interrupt", token, "interrupted_at", now, *flat(who), "updated", now)
        event = Event("interrupting", by, now, {"reason": reason})
        return Change(
            [
                ("HDEL", key, "interrupt_reason"),
                ("HSET", key, *told),
                ("ZADD", keys.orders(queue, fields.node or ""), 0, 0),
                *record_event(redis, queue, task, fields, event),
            ],
            None,
        )

    look = fields_of(task)
    transact(redis, "interrupt", look, decide)


def _require_interruptible(queue: str, task: str, fields: TaskFields) -> str:
    """Return the token of the attempt that runs."""
    status, node = fields.status, fields.node
    if status is None:
        raise WrongState(task, None, "interrupt")
    if fields.queue != queue:
        raise WrongQueue(task, queue)
    if status != "started":
        raise WrongState(task, status, "interrupt", f"it is {status}, so it does not run")
    if fields.token is None:
        raise WrongState(
            task, status, "interrupt", f"{node} has it, a listener of 1.0.0, which takes no orders"
        )
    if fields.cancel is not None:
        raise WrongState(task, status, "interrupt", "it is being cancelled")
    return fields.token


def requeue(redis: Redis, queue: str, task: str, mark: str, now: float, by: str = "") -> str:
    """Put a failed or cancelled task in line again and return its new status.

    Its failures and interruptions count from 0. If it waits for others, it still does, except for
    conditions that can never be met.
    mark: random, the same for every try of one call. by: who asks.
    Raises WrongState, WrongQueue; WrongGroup for a task of an incomplete workflow.
    """
    key = keys.task(task)
    (group,) = redis.read(("HGET", key, "group"))
    groups = [] if group is None else [group]

    def decide(
        reply: list[str | None], held: list[str], *of_group: list[str | None]
    ) -> Verdict[str | None]:
        fields, conditions = TaskFields._make(reply), as_hash(held)
        if fields.requeued == mark:
            return Answer(fields.status or "")
        if fields.status not in ("failed", "cancelled"):
            raise WrongState(task, fields.status, "requeue")
        if fields.queue != queue:
            raise WrongQueue(task, queue)
        if fields.group != group:
            return Answer(None)  # it was made anew meanwhile
        requeued = ("requeued", mark, *flat({"last_files": fields.files} if fields.files else {}))
        dropped = {each: DROPPED for each, kind in conditions.items() if kind.startswith("-")}
        for state, gate in of_group:
            require_whole(group or "", state, gate, dropped)
        is_blocked = not are_met({**conditions, **dropped})
        status = "blocked" if is_blocked else "pending"
        return Change(
            [
                *leave(task, fields),
                ("HDEL", key, *IDENTITY, *OUTCOME, *_OF_FAILURES),
                ("HSET", key, "status", status, "queued", now, *requeued, "updated", now),
                *[("HSET", keys.conditions(task), each, DROPPED) for each in dropped],
                *enter(task, fields._replace(status=status)),
                *record_event(redis, queue, task, fields, Event("requeued", by, now)),
            ],
            status,
        )

    done = transact(redis, "requeue", child_look(task, groups), decide)
    return requeue(redis, queue, task, mark, now, by) if done is None else done


def ask_stack(redis: Redis, queue: str, task: str, mark: str) -> str | None:
    """Ask the listener of a running task for its stack. Return the status of the task; None: there
    is no such task.

    mark: random, the same for every try of one call. Nothing is written unless a listener of this
        version runs the task.
    """
    key = keys.task(task)

    def decide(reply: list[str | None]) -> Verdict[str | None]:
        fields = TaskFields._make(reply)
        is_ours = fields.queue == queue and fields.token is not None
        if fields.status != "started" or not is_ours or fields.stack == mark:
            return Answer(fields.status)
        return Change(
            [("HSET", key, "stack", mark), ("ZADD", keys.orders(queue, fields.node or ""), 0, 0)],
            fields.status,
        )

    look = fields_of(task)
    return transact(redis, "ask_stack", look, decide)


def decline_stack(redis: Redis, attempt: AttemptRef, mark: str, reason: str) -> bool:
    """Answer the request with this mark: the task cannot show its stack. False: the request is closed."""
    _, task, token, node = attempt

    def decide(reply: list[str | None]) -> Verdict[bool]:
        fields = TaskFields._make(reply)
        request = fields.status, fields.token, fields.node, fields.stack
        if request != ("started", token, node, mark):
            return Answer(False)
        return Change([("HSET", keys.task(task), "stack", f"{mark} {reason}")], True)

    look = fields_of(task)
    return transact(redis, "decline_stack", look, decide)


def order(
    redis: Redis, queue: str, node: str, what: str, by: str, now: float | None = None
) -> bool:
    """Leave an order for a listener: `drain`, `leave`, `pause` or `work`. False: no such listener
    is alive.

    now: when a person gives it, for the stream of the queue; None: the listener writes it itself.
    """
    registration = keys.listener(queue, node)

    def decide(reply: list[str | None]) -> Verdict[bool]:
        state, standing_order = reply
        if state != "alive":
            return Answer(False)
        is_weaker = (what, standing_order) == ("leave", "drain") or (
            what in ("pause", "work") and standing_order in ("drain", "leave")
        )
        if standing_order == what or is_weaker:
            return Answer(True)
        commands: list[Command] = [
            ("HSET", registration, "order", what, "order_by", by),
            ("ZADD", keys.orders(queue, node), 0, 0),
        ]
        if now is not None:
            event = Event(_EVENTS_OF_ORDERS[what], by, now, {"node": node})
            commands.append(record_in_queue(queue, event))
        return Change(commands, True)

    look: Look[list[str | None]] = Look([registration], [("HMGET", registration, "state", "order")])
    return transact(redis, "order", look, decide)
