"""A task that waits for others: how its conditions compare with its parents, and the commands that
put it in line or cancel it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from blueque.connection.redis import Command, Look, Redis
from blueque.model import inputs, keys
from blueque.model.conditions import DROPPED, is_marked, mark
from blueque.model.encoding import count_of, time_or
from blueque.model.group import group_of, workflow_of
from blueque.model.lines import key_needed
from blueque.model.states import FINISHED
from blueque.protocol.cancelling import cancelled
from blueque.protocol.events import Event, after, count, record_in_task
from blueque.protocol.fields import TaskFields, flat
from blueque.protocol.moves import enter, leave
from blueque.protocol.parents import parent_of, tasks_among, tell_later
from blueque.protocol.watches import read_task

CANCEL = "cancel"  # the value of `broken`: cancel the task if a condition cannot be met
# The statuses in which conditions of a task still matter: a cancelled one may be requeued.
OPEN = ("blocked", "cancelled")
AFTER_ALL = "inf"  # the score of a dependent that waits on although the parent has ended
MAX_INPUTS = 64 * 1024 * 1024  # bytes of results that one task gets


class ParentSeen(NamedTuple):
    """A parent as `recheck` has read it. score: of the task among its dependents.

    dependents: its field; a group needs none.
    """

    status: str | None
    dependents: str | None
    score: str | None

    @property
    def knows(self) -> bool:
        """Return whether the parent knows that the task waits for it."""
        return None not in (self.dependents, self.score)

    @property
    def has_ended(self) -> bool:
        return self.status is None or self.status in FINISHED

    @property
    def has_ended_badly(self) -> bool:
        return self.has_ended and self.status != "complete"


class Comparison:
    """The conditions of a task, compared with the present state of its parents.

    result: of the parent, as in `inputs`; None: it was not read.
    marks: of the conditions that are decided. undecided: the parents that the task still waits for.
    """

    def __init__(
        self,
        task: str,
        fields: TaskFields,
        conditions: Mapping[str, str],
        states: Mapping[str, ParentSeen],
        result: str | None,
    ) -> None:
        self.task, self.fields, self.states, self._result = task, fields, states, result
        self.marks = dict[str, str]()
        self.undecided: list[str] = []
        self.lacks_result = False
        self._copies: list[Command] = []  # the commands that give the task the result
        if fields.status in OPEN:
            for parent, state in states.items():
                self._compare(parent, conditions.get(parent, DROPPED), state.status)
        self.conditions = {**conditions, **self.marks}

    def _compare(self, parent: str, condition: str, status: str | None) -> None:
        """Decide a condition, if the status of its parent does."""
        if is_marked(condition):
            return
        found = mark(condition, status)
        is_copied = self.fields.inputs is not None and group_of(parent) is None
        wants_result = is_copied and found == "+complete"
        if found is None:
            self.undecided.append(parent)
        elif wants_result and self._result is None:
            self.undecided.append(parent)
            # Of several parents, `settle` copies the results: it is called for each of them.
            self.lacks_result = len(self.states) == 1
        else:
            self.marks[parent] = found
            if wants_result:
                self._copy(parent, self._result or "")

    def commands(self, now: float, is_due: bool) -> list[Command]:
        """Return the commands that write the marks, copy the result, and tell the parents whether
        the task waits.

        is_due: the time of the task itself has come; else one of its parents is being settled.
        """
        key = keys.conditions(self.task)
        return [
            *[("HSET", key, parent, known) for parent, known in self.marks.items()],
            *self._copies,
            *self._entries(now, is_due),
        ]

    def _entries(self, now: float, is_due: bool) -> list[Command]:
        task, states, waits_for = self.task, self.states, self.undecided
        unlinked = [each for each in waits_for if not states[each].knows]
        removed = [
            each for each in states if each not in waits_for and states[each].score is not None
        ]
        not_met = [
            each
            for each in waits_for
            if states[each].has_ended_badly and states[each].score not in (None, AFTER_ALL)
        ]
        complete = [each for each in waits_for if states[each].status == "complete"]
        to_settle = [
            each
            for each in dict.fromkeys([*removed, *unlinked, *complete])
            if states[each].has_ended and (is_due or group_of(each) is None)
        ]
        return [
            *[("HSET", keys.task(each), "dependents", 1) for each in tasks_among(unlinked)],
            *[("ZADD", _dependents(each), "NX", now, task) for each in unlinked],
            *[("ZREM", _dependents(each), task) for each in removed],
            *[("ZADD", _dependents(each), "XX", "+inf", task) for each in not_met],
            # Others see that the parent is being settled. A copy that arrives late adds nothing.
            *[("ZADD", keys.UNSETTLED_TASKS, "XX", now, each) for each in tasks_among(not_met)],
            *tell_later(to_settle, now),
        ]

    def _copy(self, parent: str, copied: str) -> None:
        """Give the task the result of a parent. From then on it needs the payload key of the result."""
        before = count_of(self.fields.inputs)
        size = before + inputs.size_of(copied)
        if size > MAX_INPUTS:
            copied, size = inputs.LEFT, before
        needs = key_needed(self.fields.needs, inputs.sealed(copied))
        self.fields = self.fields._replace(**needs)
        self._copies += [("HSET", keys.inputs(self.task), parent, copied)]
        self._copies += [("HSET", keys.task(self.task), "inputs", size, *flat(needs))]

    def culprit(self) -> tuple[str, str | None] | None:
        """Return the parent because of which a blocked task is to be cancelled, and its status, if any."""
        for parent, condition in self.conditions.items():
            if condition == "-complete":
                return parent, "complete"
            if self.fields.broken != CANCEL:
                continue
            if condition.startswith("-"):
                return parent, None
            if parent in self.undecided and self.states[parent].has_ended_badly:
                return parent, self.states[parent].status
        return None


def _dependents(parent: str) -> str:
    """Return the key of the dependents of a parent, as conditions name it."""
    return parent_of(parent).dependents


def child_look(
    task: str, groups: Sequence[str] = ()
) -> Look[list[str | None], list[str], *tuple[list[str | None], ...]]:
    """Return the look for a change of the conditions of one task.

    It reads its fields, all conditions, and for each of these groups whether its workflow is complete.
    """
    key, conditions = keys.task(task), keys.conditions(task)
    reads: list[Command] = [read_task(task), ("HGETALL", conditions)]
    reads += [("HMGET", keys.group(group), "state", "gate") for group in groups]
    return Look([key, conditions, *map(keys.group, groups)], reads, task)


def let_go(
    redis: Redis, task: str, fields: TaskFields, by: str, now: float
) -> tuple[list[Command], str]:
    """Return the commands that put a blocked task in line, or schedule it if its eta is in the
    future; and its new status.

    by: the last task that it waited for, or a person.
    """
    eta = later_than(fields.eta, now)
    status = "pending" if eta is None else "scheduled"
    queued = {"queued": now} if eta is None else {}
    written = flat({"status": status, **queued, "updated": now, **after(fields)})
    commands = [
        *leave(task, fields),
        ("HSET", keys.task(task), *written),
        *enter(task, fields._replace(status=status), eta or 0),
        *record_in_task(task, fields, Event("unblocked", by, now)),
        *count(redis, fields.queue_name, "unblocked", now),
    ]
    return commands, status


def cancel_child(
    redis: Redis, task: str, fields: TaskFields, parent: str, status: str | None, now: float
) -> list[Command]:
    """Return the commands that cancel a blocked task, because a condition on its parent cannot be met.

    parent: as named in the condition. status: of the parent; None: it is gone.
    """
    workflow = workflow_of(parent)
    what = f"task {parent}" if group_of(parent) is None else parent
    reason = f"{what} is {status or 'gone'}"
    if workflow is not None:
        reason = f"not all tasks of workflow {workflow} were made"
    return cancelled(redis, task, fields, now, reason, parent=parent)


def later_than(eta: str | None, now: float) -> float | None:
    """Return the time if it is in the future, else None."""
    time = now if eta is None else float(time_or(eta, now))
    return time if time > now else None
