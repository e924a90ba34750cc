"""A task that waits for others: the fields that decide about it, and the commands that put it in
line, cancel it, or have it wait again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from blueque.connection.redis import Command, Look, Redis
from blueque.model import keys
from blueque.model.group import group_of, workflow_of
from blueque.protocol.events import Event, after, count, note_event, record_in_task
from blueque.protocol.fields import OUTCOME, TaskFields, flat, join_lines_of_queues
from blueque.protocol.watches import read_task

CANCEL = "cancel"  # the value of `broken`: cancel the task if a condition cannot be met
BLUEQUE = "blueque"  # who has cancelled it then
# The statuses in which conditions of a task still matter: a cancelled one may be revived.
OPEN = ("blocked", "cancelled")


def child_look(task: str) -> Look[list[str | None], list[str]]:
    """For a change of the conditions of one task: its fields, and all conditions."""
    key, conditions = keys.task(task), keys.conditions(task)
    reads: list[Command] = [read_task(task), ("HGETALL", conditions)]
    return Look([key, conditions], reads, task)


def let_go(redis: Redis, children: Mapping[str, TaskFields], by: str, now: float) -> list[Command]:
    """Return the commands that put blocked tasks in line, or among the scheduled ones if their time
    is still to come.

    by: the task that was the last to be waited for, or the person.
    """
    etas = {task: later_than(fields.eta, now) for task, fields in children.items()}
    joining: dict[tuple[str, str], list[str]] = {}
    for task, fields in children.items():
        if etas[task] is None:
            joining.setdefault((fields.queue_name, fields.line), []).append(task)
    commands: list[Command] = [
        ("ZREM", keys.blocked(fields.queue_name), task) for task, fields in children.items()
    ]
    for task, fields in children.items():
        status: Command = ("status", "pending", "queued", now)
        if etas[task] is not None:
            status = ("status", "scheduled")
        commands += [("HSET", keys.task(task), *status, "updated", now, *flat(after(fields)))]
    commands += join_lines_of_queues(joining)
    commands += [
        ("ZADD", keys.scheduled(fields.queue_name), eta, task)
        for (task, fields), eta in zip(children.items(), etas.values(), strict=True)
        if eta is not None
    ]
    commands += [("ZADD", keys.wake(queue), 0, 0) for queue in {queue: 0 for queue, _ in joining}]
    for task, fields in children.items():
        commands += record_in_task(task, fields, Event("unblocked", by, now))
    for queue, times in Counter(fields.queue_name for fields in children.values()).items():
        commands += count(redis, queue, "unblocked", now, times)
    return commands


def let_one_go(
    redis: Redis, task: str, fields: TaskFields, by: str, now: float
) -> tuple[list[Command], str]:
    """Return the commands for one task, and the status that it has then."""
    status = "pending" if later_than(fields.eta, now) is None else "scheduled"
    return let_go(redis, {task: fields}, by, now), status


def cancel_children(
    redis: Redis, children: Mapping[str, TaskFields], parent: str, status: str | None, now: float
) -> list[Command]:
    """Return the commands that cancel blocked tasks, because a condition on their parent cannot be
    met. parent: as their conditions name it. status: of the parent; None: it is gone.
    """
    workflow = workflow_of(parent)
    what = f"task {parent}" if group_of(parent) is None else parent
    reason = f"{what} is {status or 'gone'}"
    if workflow is not None:
        reason = f"not all tasks of workflow {workflow} were made"
    why = flat({"cancelled_by": BLUEQUE, "cancel_reason": reason, "broken_by": parent})
    ended = ("status", "cancelled", *why, "finished", now, "updated", now)
    event = Event("cancelled", BLUEQUE, now, {"reason": reason})
    homes = {task: fields.queue_name for task, fields in children.items()}
    commands: list[Command] = [
        *[("ZREM", keys.blocked(queue), task) for task, queue in homes.items()],
        *[("HDEL", keys.task(task), *OUTCOME, "cancel") for task in children],
        *[
            ("HSET", keys.task(task), *ended, *flat(after(fields)))
            for task, fields in children.items()
        ],
        *[("LPUSH", keys.cancelled(queue), task) for task, queue in homes.items()],
    ]
    for task, fields in children.items():
        commands += note_event(redis, fields.queue_name, task, fields, event)
    return commands


def revive(
    redis: Redis, children: Mapping[str, TaskFields], parent: str, now: float
) -> list[Command]:
    """Return the commands that have tasks wait again that were cancelled because of their parent.
    `recheck` decides about them at once.
    """
    why = ("broken_by", "cancelled_by", "cancel_reason")
    homes = {task: fields.queue_name for task, fields in children.items()}
    commands: list[Command] = [
        *[("LREM", keys.cancelled(queue), 1, task) for task, queue in homes.items()],
        *[("HDEL", keys.task(task), *OUTCOME, *why) for task in children],
        *[
            ("HSET", keys.task(task), "status", "blocked", "updated", now, *flat(after(fields)))
            for task, fields in children.items()
        ],
        *[("ZADD", keys.blocked(queue), 0, task) for task, queue in homes.items()],
    ]
    for task, fields in children.items():
        commands += note_event(
            redis, fields.queue_name, task, fields, Event("revived", parent, now)
        )
    return commands


def later_than(eta: str | None, now: float) -> float | None:
    """Return the time if it is still to come, else None."""
    try:
        return float(eta) if eta is not None and float(eta) > now else None
    except ValueError:  # malformed; written by another program
        return None
