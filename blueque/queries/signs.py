"""When a task and its listener last showed a sign of life."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from blueque.connection.redis import as_fields
from blueque.model import keys
from blueque.model.encoding import is_sealed
from blueque.model.states import HELD
from blueque.queries import task_log
from blueque.queries.listeners import Node, Stuck, listener
from blueque.queries.statistics import Usual, is_quiet, ran, usual
from blueque.queries.steps import answer, clock, in_step

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.steps import Reader

# the fields of a checkpoint
_CHECKPOINT = ("attempt", "at", "value", "directory", "created")


class Signs(NamedTuple):
    """The present time, when a listener last beat, and when its task last printed, in Unix seconds.

    listener: of the task, if one holds it.
    checkpoint: as `Inspector.checkpoint` returns it.
    usual: how long tasks of the queue usually run, for a running task without progress.
    stuck: that SIGKILL does not end it.
    """

    now: float
    beat: float | None = None
    listener: Node | None = None
    printed: float | None = None
    usual: Usual | None = None
    checkpoint: Mapping[str, str] = {}
    stuck: Stuck | None = None


def signs(task: Task, now: float | None) -> Reader[Signs]:
    """Read the signs of a task: one round trip. now: the caller's time, needed for `usual`."""
    queue, node = task.queue, task.node
    if task.status not in HELD or not queue or not node:
        checkpoint, at = yield from in_step(_checkpoint(task), clock())
        return Signs(at, checkpoint=checkpoint)
    checkpoint, (at, beat, its), printed, durations = yield from in_step(
        _checkpoint(task),
        listener(queue, node, is_legacy=task.token is None),
        task_log.printed(task.id, task.attempt),
        ran(queue, now) if now is not None and is_quiet(task) else answer(None),
    )
    stuck = Stuck.parse(its.stuck)
    return Signs(
        at,
        beat,
        its,
        printed,
        None if durations is None else usual(durations),
        checkpoint,
        stuck if stuck is not None and stuck.task == task.id else None,
    )


def _checkpoint(task: Task) -> Reader[dict[str, str]]:
    (reply,) = yield [("HMGET", keys.checkpoint(task.id), *_CHECKPOINT)]
    found, created = as_fields(_CHECKPOINT, reply), task.fields.get("created")
    if is_sealed(found.get("value")):
        from blueque.model.payloads import shown_whole  # here: few are encrypted

        found["value"] = shown_whole(found["value"], task.id, "checkpoint")
    # One with another time is of an earlier task with this id, which 1.0.0 has deleted.
    return found if found.get("created", created) == created else {}
