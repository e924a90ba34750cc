"""The invariants of tasks that wait for others, and of those that others wait for.

The scan knows who they are; their conditions and dependents are read here, a hundred tasks at a
time, and not kept. docs/protocol/audit.md, "Invariants", has the same in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from blueque.audit.circles import circles
from blueque.audit.observation import Finding, Observation
from blueque.audit.reads import read_groups
from blueque.connection.redis import Command, Redis, as_hash
from blueque.model import keys
from blueque.model.conditions import are_met, is_marked, mark, unmet
from blueque.model.group import condition_on, group_of
from blueque.model.parts import in_parts
from blueque.model.states import FINISHED, Place

TASKS_AT_ONCE = 100  # tasks whose conditions, or dependents, are in memory
NAMED = 10  # tasks of a circle that a sentence names
# The score of a blocked task at which a listener or scheduler is about to look.
_NOW = 0.0
_TOLD = float("inf")  # the score of a dependent that waits on, though the task has ended badly


class _Child(NamedTuple):
    """A blocked task. look: its score among the blocked tasks of its queue. group: its group."""

    task: str
    queue: str
    look: str | None
    conditions: Mapping[str, str]
    group: str | None

    @property
    def is_looked_at(self) -> bool:
        return self.look is not None and float(self.look) == _NOW

    def find(self, code: str, sentence: str, fix: str | None) -> Finding:
        return Finding(code, keys.conditions(self.task), self.task, self.queue, sentence, fix)


class _Parent(NamedTuple):
    """A finished task that has dependents."""

    task: str
    queue: str | None
    status: str


class _Entry(NamedTuple):
    """A dependent: its score, its status, and its condition on the parent."""

    task: str
    score: float
    status: str | None
    condition: str | None

    @property
    def waits(self) -> bool:
        is_open = self.status in ("blocked", "cancelled")
        return is_open and self.condition is not None and not is_marked(self.condition)


def judge(
    redis: Redis, observed: Observation, blocked: Mapping[str, str], awaited: Iterable[str]
) -> Iterator[Finding]:
    """Yield the faults of tasks that wait for others.

    blocked: the blocked tasks, with their queues. awaited: the finished tasks that have dependents.
    """
    bad = observed.bad_keys
    names = {task: task for task in blocked}  # each id and each group is in memory once
    waits: dict[str, list[str]] = {}  # a group waits for its members
    for some in in_parts(list(blocked.items()), TASKS_AT_ONCE):
        sound = [each for each in some if keys.conditions(each[0]) not in bad]
        children = list(_children(redis, sound))
        for child in children:
            above = [
                names.setdefault(parent, parent)
                for parent in unmet(child.conditions)
                if parent in names or group_of(parent) is not None
            ]
            if above:
                waits[names[child.task]] = above
            if child.group is not None:
                group = condition_on(child.group)
                waits.setdefault(names.setdefault(group, group), []).append(names[child.task])
            yield from _ripe(child)
        for found, parent in _unlinked(redis, children):
            if keys.dependents(parent) not in bad:
                yield found
    for circle in circles(waits):
        yield _circle(circle, blocked)
    for some_tasks in in_parts(list(awaited), TASKS_AT_ONCE):
        for ended in _settled(redis, some_tasks):
            if keys.dependents(ended.task) not in bad:
                yield from _entries(redis, ended)


def _children(redis: Redis, tasks: Sequence[tuple[str, str]]) -> Iterator[_Child]:
    """Yield the tasks that are still blocked."""
    groups: list[list[Command]] = [
        [
            ("HMGET", keys.task(task), "status", "queue", "group"),
            ("ZSCORE", keys.blocked(queue), task),
            ("HGETALL", keys.conditions(task)),
        ]
        for task, queue in tasks
    ]
    for (task, queue), (fields, look, held) in zip(tasks, read_groups(redis, groups), strict=True):
        *place, group = fields
        if place == ["blocked", queue]:
            yield _Child(task, queue, look, as_hash(held), group)


def _ripe(child: _Child) -> Iterator[Finding]:
    if not child.conditions:
        command = f"blueque move {child.task} --unblock"
        sentence = f"task {child.task} is blocked, and has no conditions any more. {command} puts it in line."
        yield child.find("ripe", sentence, None)
    elif are_met(child.conditions) and not child.is_looked_at:
        sentence = f"task {child.task} is blocked, and all of its conditions are met."
        yield child.find("ripe", sentence, "recheck")


def _unlinked(redis: Redis, children: Sequence[_Child]) -> Iterator[tuple[Finding, str]]:
    """Yield the tasks that are missing among the dependents of one that they wait for, and that one."""
    waiting = [child for child in children if not child.is_looked_at]
    pairs = [(child, parent) for child in waiting for parent in unmet(child.conditions)]
    groups: list[list[Command]] = [
        [
            ("HMGET", keys.task(parent), "status", "dependents"),
            ("ZSCORE", keys.dependents(parent), child.task),
        ]
        for child, parent in pairs
    ]
    lacking: dict[str, tuple[_Child, str]] = {}
    for (child, parent), replies in zip(pairs, read_groups(redis, groups), strict=True):
        (status, dependents), score = replies
        if status is not None and (dependents is None or score is None):
            lacking.setdefault(child.task, (child, parent))
    for child, parent in lacking.values():
        sentence = f"task {child.task} waits for task {parent}, which does not have it among its dependents."
        yield child.find("unlinked", sentence, "recheck"), parent


def _circle(circle: Sequence[str], blocked: Mapping[str, str]) -> Finding:
    tasks = sorted(name for name in circle if name in blocked)
    through = ", ".join(sorted(name for name in circle if name not in blocked)[:NAMED])
    first, more = tasks[0], len(tasks) - NAMED
    names = ", ".join(tasks[:NAMED]) + (f" and {more} more" if more > 0 else "")
    through = f" through {through}" if through else ""
    sentence = f"tasks {names} wait for each other{through}, and none of them can start: blueque move --unblock or blueque cancel one."
    if len(tasks) == 1:
        sentence = f"task {first} waits for itself{through}, and can never start: blueque move {first} --unblock, or cancel it."
    key, text = keys.conditions(first), " ".join(tasks)
    return Finding("circle", key, first, blocked[first], sentence, None, text=text)


def _settled(redis: Redis, tasks: Sequence[str]) -> Iterator[_Parent]:
    """Yield the ended tasks whose dependents are not about to be told."""
    groups: list[list[Command]] = [
        [
            ("HMGET", keys.task(task), "status", "queue", "dependents"),
            ("ZSCORE", keys.UNSETTLED_TASKS, task),
        ]
        for task in tasks
    ]
    for task, replies in zip(tasks, read_groups(redis, groups), strict=True):
        (status, queue, dependents), score = replies
        if status in FINISHED and dependents is not None and score is None:
            yield _Parent(task, queue, status)


def _entries(redis: Redis, parent: _Parent) -> Iterator[Finding]:
    """Yield a finding if a finished task has dependents that were not told, or do not wait."""
    key, stale = keys.dependents(parent.task), None
    for entry in _dependents(redis, parent.task):
        if entry.waits and _is_to_be_told(parent, entry):
            sentence = f"task {parent.task} is {parent.status}, and task {entry.task}, which waits for it, was not told."
            yield Finding(
                "untold",
                keys.UNSETTLED_TASKS,
                parent.task,
                parent.queue,
                sentence,
                "align_task",
                text=parent.task,
                place=Place("unsettled", ""),
            )
            return
        # An entry of a task that was deleted does no harm: retention drops it.
        if not entry.waits and entry.status is not None:
            stale = entry.task
    if stale is not None:
        sentence = f"task {parent.task} is {parent.status}, and has task {stale} among its dependents, which does not wait for it."
        yield Finding("stale_dependent", key, parent.task, parent.queue, sentence, "drop_stale")


def _is_to_be_told(parent: _Parent, entry: _Entry) -> bool:
    return entry.score != _TOLD or mark(entry.condition or "", parent.status) is not None


def _dependents(redis: Redis, parent: str) -> Iterator[_Entry]:
    first = 0
    while True:
        last = first + TASKS_AT_ONCE - 1
        (flat,) = redis.read(("ZRANGE", keys.dependents(parent), first, last, "WITHSCORES"))
        tasks, scores = flat[::2], map(float, flat[1::2])
        groups: list[list[Command]] = [
            [("HGET", keys.task(task), "status"), ("HGET", keys.conditions(task), parent)]
            for task in tasks
        ]
        states = read_groups(redis, groups)
        for task, score, (status, condition) in zip(tasks, scores, states, strict=True):
            yield _Entry(task, score, status, condition)
        if len(tasks) < TASKS_AT_ONCE:
            return
        first += TASKS_AT_ONCE
