"""Create tasks that wait for others, or join groups: enqueue_after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import AnyLook, Command, Look, Redis
from blueque.errors import InvalidInput, WrongGroup
from blueque.model import keys
from blueque.model.conditions import are_met, mark
from blueque.model.group import condition_on, group_of
from blueque.model.new_task import NewTask
from blueque.protocol.create import expiring, new_fields
from blueque.protocol.fields import enter_tags, flat, join_lines_of_queues
from blueque.protocol.parents import (
    Parents,
    enter_dependents,
    join_groups,
    joins_of,
    require_parents,
)
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import Known, LookAtEach

AT_ONCE = 100  # tasks of one transaction, and parents that several of them have together
LINKS_AT_ONCE = 1000  # conditions of all its tasks together, and parents of a task that comes alone
FIRST_LOOK = 60.0  # seconds after which `recheck` looks at a new task


def enqueue_after(redis: Redis, tasks: Sequence[NewTask], now: float) -> list[bool]:
    """Create tasks, each in its queue, all at once. Return for each whether this call created it.

    Tasks that have nothing to wait for join the line.
    tasks: at most 100, of any queues, with at most 100 parents and 1,000 conditions together.
        Either all or none have a key or a chosen id. They join the group in their options.
    Raises NoSuchTask or NoSuchGroup for a parent that is not in Redis; NoSuchGroup, WrongGroup for
        a group that does not take the task.
    """
    parents = Parents([each for new in tasks for each in new.conditions], joins_of(tasks))
    _require_room(tasks, parents.names)
    is_keyed = not tasks[0].is_drawn
    of_each = LookAtEach([new.task for new in tasks], is_keyed)
    of_parents = of_each.reads.add(parents.reads)

    def decide(*replies: Any) -> Verdict[list[bool]]:
        is_new, is_ours = _new_and_ours(tasks, of_each.known(replies), is_keyed)
        if not any(is_new):
            return Answer(is_ours)
        found = parents.found(replies[of_parents])
        made = [new for new, is_wanted in zip(tasks, is_new, strict=True) if is_wanted]
        found.require_open(joins_of(made))
        for new in made:
            require_parents(new.conditions, found.statuses, found.making)
        done = [any(either) for either in zip(is_new, is_ours, strict=True)]
        return Change([*creation(made, found.statuses, now), *expiring(made)], done)

    look: AnyLook = Look([*of_each.watch, *parents.watch], of_each.reads.commands, tasks[0].task)
    return transact(redis, "enqueue_after", look, decide)


def _require_room(tasks: Sequence[NewTask], parents: Sequence[str]) -> None:
    if not 0 < len(tasks) <= AT_ONCE or (len(tasks) > 1 and len(parents) > AT_ONCE):
        raise InvalidInput(f"one transaction takes at most {AT_ONCE} tasks and {AT_ONCE} parents")
    links = sum(len(new.conditions) for new in tasks)
    if links > LINKS_AT_ONCE:
        raise InvalidInput(f"one transaction takes {LINKS_AT_ONCE:,} conditions, not {links:,}")
    for new in tasks:
        if new.group is not None and condition_on(new.group) in new.conditions:
            raise WrongGroup(new.group, "a task that joins it cannot wait for it")


def _new_and_ours(
    tasks: Sequence[NewTask], known: Sequence[Known], is_keyed: bool
) -> tuple[list[bool], list[bool]]:
    """Return for each task whether to make it, and whether an earlier try has made it."""
    size = len(tasks)
    if not is_keyed:
        # All or none: if one exists, all do, or did.
        return [not any(task.exists for task in known)] * size, [True] * size
    is_ours = [task.is_of(new.mark) for new, task in zip(tasks, known, strict=True)]
    return [task.is_new for task in known], is_ours


def creation(
    tasks: Sequence[NewTask], states: Mapping[str, str | None], now: float
) -> list[Command]:
    """Return the commands that create tasks, each in its queue. states: the status of each parent."""
    conditions = {
        new.task: marked(new.conditions, states, "inputs" in new.options) for new in tasks
    }
    joining: dict[tuple[str, str], list[str]] = {}
    # What is added to the blocked and the scheduled tasks of each queue, and to all of them.
    blocked, later, index = _Scores({}), _Scores({}), _Scores({})
    commands: list[Command] = []
    for new in tasks:
        queue, status = new.queue, "blocked"
        if not are_met(conditions[new.task]):
            blocked.add(queue, now + FIRST_LOOK, new.task)
        elif new.eta is not None and new.eta > now:
            status = "scheduled"
            later.add(queue, new.eta, new.task)
        else:
            status = "pending"
            joining.setdefault((queue, new.line), []).append(new.task)
        index.add(queue, now, new.task)
        commands.append(_record(new, status, now))
    # 1.0.0 may have deleted a task with this key, and left what belonged to it.
    commands += [
        ("DEL", key(task)) for key in (keys.conditions, keys.inputs) for task in conditions
    ]
    commands += [
        ("HSET", keys.conditions(task), *flat(each)) for task, each in conditions.items() if each
    ]
    commands += [("ZINCRBY", keys.QUEUES, 0, queue) for queue in index.words]
    commands += blocked.commands(keys.blocked)
    commands += join_lines_of_queues(joining)
    commands += later.commands(keys.scheduled)
    commands += index.commands(keys.tasks)
    commands += enter_tags({new.task: new.options.get("tags") for new in tasks})
    commands += [("ZADD", keys.wake(queue), 0, 0) for queue in {queue: 0 for queue, _ in joining}]
    commands += enter_dependents(conditions, states, now)
    return [*commands, *join_groups([(new.group, new.task) for new in tasks], now)]


def _record(new: NewTask, status: str, now: float) -> Command:
    fields = new_fields(new.queue, new.parameters, now, new.options)
    after: Command = ("after", len(new.conditions)) if new.conditions else ()
    eta: Command = () if new.eta is None else ("eta", new.eta)
    return ("HSET", keys.task(new.task), "status", status, *fields, *after, *eta)


class _Scores(NamedTuple):
    """Entries of a sorted set of each queue: scores and members in turn."""

    words: dict[str, list[float | str]]

    def add(self, queue: str, score: float, task: str) -> None:
        self.words.setdefault(queue, []).extend((score, task))

    def commands(self, key: Callable[[str], str]) -> list[Command]:
        return [("ZADD", key(queue), *words) for queue, words in self.words.items()]


def marked(
    conditions: Mapping[str, str], states: Mapping[str, str | None], wants_results: bool
) -> dict[str, str]:
    """Return the conditions of a new task, with the marks of those that are met."""
    found: dict[str, str] = {}
    for parent, kind in conditions.items():
        known = mark(kind, states[parent]) if parent in states else None
        # `settle` sees to what can never be met, for which it may cancel the task; and to results,
        # which it copies.
        is_left = known is None or known.startswith("-")
        is_copied = wants_results and group_of(parent) is None
        is_left = is_left or (is_copied and known == "+complete")
        found[parent] = kind if known is None or is_left else known
    return found
