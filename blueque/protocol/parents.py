"""What tasks wait for: other tasks and groups; their states, and who waits for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from blueque.connection.redis import Command
from blueque.errors import NoSuchGroup, NoSuchTask, WrongGroup
from blueque.model import keys
from blueque.model.encoding import count_of
from blueque.model.group import MAKING, condition_on, conditions_in, group_of, status_of
from blueque.model.new_task import NewTask
from blueque.model.states import FINISHED
from blueque.protocol.watches import Reads
from blueque.text.hints import of_group


class Parent(Protocol):
    """A task or a group that others wait for."""

    @property
    def name(self) -> str:
        """Its name in the conditions of the tasks that wait for it."""

    @property
    def dependents(self) -> str:
        """The key of the ids of these tasks."""

    @property
    def watch(self) -> list[str]:
        """The keys to watch for its state."""

    @property
    def reads(self) -> list[Command]: ...

    def status(self, replies: Sequence[Any]) -> str | None:
        """Return its status from the replies to `reads`; None: it is gone."""

    def when_it_runs(self) -> list[Command]:
        """Return the commands that follow when it has not ended, so that there is nothing to tell."""

    def when_settled(self, replies: Sequence[Any], is_awaited: bool, now: float) -> list[Command]:
        """Return the commands that follow when all dependents know how it ended.

        replies: to `reads`. is_awaited: some still wait.
        """


class TaskParent(NamedTuple):
    """A task that others wait for."""

    task: str

    @property
    def name(self) -> str:
        return self.task

    @property
    def dependents(self) -> str:
        return keys.dependents(self.task)

    @property
    def watch(self) -> list[str]:
        return [keys.task(self.task)]

    @property
    def reads(self) -> list[Command]:
        return [("HGET", keys.task(self.task), "status")]

    def status(self, replies: Sequence[Any]) -> str | None:
        status: str | None = replies[0]
        return status

    def when_it_runs(self) -> list[Command]:
        return [("ZREM", keys.UNSETTLED_TASKS, self.task)]

    def when_settled(self, replies: Sequence[Any], is_awaited: bool, now: float) -> list[Command]:
        forget: Command = ("ZREM", keys.UNSETTLED_TASKS, self.task)
        return [forget] if is_awaited else [("HDEL", keys.task(self.task), "dependents"), forget]


class GroupParent(NamedTuple):
    """A group that tasks wait for."""

    group: str

    @property
    def name(self) -> str:
        return condition_on(self.group)

    @property
    def dependents(self) -> str:
        return keys.awaiting(self.group)

    @property
    def watch(self) -> list[str]:
        return watched_of([self.group])

    @property
    def reads(self) -> list[Command]:
        return standing_of([self.group], "gate")

    def status(self, replies: Sequence[Any]) -> str | None:
        return standings_of([self.group], replies)[self.group].status

    def when_it_runs(self) -> list[Command]:
        return []  # `finish_group` sees to it

    def when_settled(self, replies: Sequence[Any], is_awaited: bool, now: float) -> list[Command]:
        key, (state, keep, expires, gate) = keys.group(self.group), replies[0]
        if state is None:  # `finish_group` removes what is left
            return [("ZADD", keys.GROUPS, 0, self.group)]
        seconds = count_of(keep)
        commands: list[Command] = []
        # With a gate, its tasks stand in the way of the same workflow as long as they are there.
        is_kept = is_awaited or gate is not None
        if is_kept and expires is not None:
            commands += [("HDEL", key, "expires"), ("PERSIST", key)]
        if not is_kept and expires is None:
            commands += [("HSET", key, "expires", now + seconds), ("EXPIRE", key, seconds + 1)]
        return [*commands, ("ZADD", keys.GROUPS, now + seconds + LOOK_EVERY, self.group)]


# By group, what new tasks that join it wait for: each kind at least once.
Joins: TypeAlias = "dict[str, list[Mapping[str, str]]]"

MICROSECOND = 1e-6  # between the scores of tasks that are made together
LOOK_EVERY = 60.0  # seconds between two looks at an unchanged group, or a blocked task, at least


def parent_of(name: str) -> Parent:
    """Return the task or the group that a condition names."""
    group = group_of(name)
    return TaskParent(name) if group is None else GroupParent(group)


def tasks_among(names: Iterable[str]) -> list[str]:
    """Return the parents that are tasks."""
    return [name for name in names if group_of(name) is None]


def groups_among(names: Iterable[str]) -> list[str]:
    """Return the names of the parents that are groups."""
    return [group for group in map(group_of, names) if group is not None]


def watched_of(groups: Sequence[str]) -> list[str]:
    """Return the keys to watch for the states of groups."""
    # The open members need no watch: a group that has ended gets one only out of the bad ones.
    return [*map(keys.group, groups), *map(keys.bad_members, groups)]


def standing_of(groups: Sequence[str], *more: str) -> list[Command]:
    """Return the reads for the states of groups. more: further fields to read."""
    return [
        *[("HMGET", keys.group(group), "state", "keep", "expires", *more) for group in groups],
        *[("SCARD", keys.open_members(group)) for group in groups],
        *[("SCARD", keys.bad_members(group)) for group in groups],
    ]


class GroupStanding(NamedTuple):
    """The state of a group, from the reads of `standing_of`. state: None: it is gone."""

    state: str | None
    open_members: int
    bad_members: int

    @property
    def status(self) -> str | None:
        return status_of(*self)


def standings_of(groups: Sequence[str], replies: Sequence[Any]) -> dict[str, GroupStanding]:
    """Return the state of each group, from the replies to `standing_of`."""
    size = len(groups)
    rows = zip(replies[:size], replies[size : 2 * size], replies[2 * size :], strict=True)
    return {
        group: GroupStanding(state, open_members, bad_members)
        for group, ((state, *_), open_members, bad_members) in zip(groups, rows, strict=True)
    }


class Parents:
    """The parents of new tasks, and the groups that these tasks join, as one look reads them.

    names: in conditions. joins: see `joins_of`.
    """

    def __init__(self, names: Iterable[str], joins: Joins | None = None) -> None:
        self.names = list(dict.fromkeys(names))
        self._tasks, self._groups = tasks_among(self.names), groups_among(self.names)
        self._joined = [*(joins or {})]
        self._bound = [group for group, joining in (joins or {}).items() if any(joining)]
        reads = Reads()
        self._statuses = reads.add(("HGET", keys.task(task), "status") for task in self._tasks)
        self._standings = reads.add(standing_of(self._groups))
        self._records = reads.add(
            ("HMGET", keys.group(each), *JoinedGroup._fields) for each in self._joined
        )
        self._awaited = reads.add(("ZCARD", keys.awaiting(each)) for each in self._bound)
        self.reads = reads.commands

    @property
    def watch(self) -> list[str]:
        return [
            *map(keys.task, self._tasks),
            *watched_of(self._groups),
            *map(keys.group, self._joined),
            *map(keys.awaiting, self._bound),
        ]

    def found(self, replies: Sequence[Any]) -> FoundParents:
        """Return what the reads have found. replies: to them; others may follow."""
        statuses = dict(zip(self._tasks, replies[self._statuses], strict=True))
        standings = standings_of(self._groups, replies[self._standings])
        making = [condition_on(each) for each, seen in standings.items() if seen.state == MAKING]
        statuses |= {condition_on(each): seen.status for each, seen in standings.items()}
        # Its later tasks might wait for the new one, in a circle.
        statuses |= dict.fromkeys(making)
        records = map(JoinedGroup._make, replies[self._records])
        return FoundParents(
            statuses,
            making,
            [group for group, seen in standings.items() if seen.state == "open"],
            dict(zip(self._joined, records, strict=True)),
            dict(zip(self._bound, replies[self._awaited], strict=True)),
        )


class JoinedGroup(NamedTuple):
    """The record of a group that new tasks join."""

    state: str | None
    cancel: str | None
    after: str | None


class FoundParents(NamedTuple):
    """What the reads of `Parents` have found.

    statuses: of each parent; None: it is gone, or an incomplete workflow.
    making: the names of these workflows. opened: the groups among the parents that are open.
    joined: the groups that the new tasks join. awaited: how many tasks wait for each of those whose
        new tasks wait for others.
    """

    statuses: dict[str, str | None]
    making: list[str]
    opened: list[str]
    joined: dict[str, JoinedGroup]
    awaited: dict[str, int]

    def require_open(self, joins: Joins, member_of: str | None = None) -> None:
        """Refuse new tasks for a group that does not take them.

        joins: of the tasks that are made; see `joins_of`. Existing tasks have joined before.
        member_of: a group that takes them although it is closed, because a running member makes them.
        Raises NoSuchGroup, WrongGroup.
        """
        for group, joining in joins.items():
            state, cancel, after = self.joined[group]
            is_own = group == member_of
            require_open(group, "open" if is_own and state == "closed" else state, cancel)
            wanted = conditions_in(group, after)
            if not is_own and not all(wanted.items() <= each.items() for each in joining):
                why = "its members wait for others, with which it was opened: give this task a key"
                raise WrongGroup(group, f"{why}, or have it wait for the same")
            if self.awaited.get(group) and any(each != wanted for each in joining if each):
                # The new task might wait for one of these, which waits for the group.
                why = "tasks wait for it already, so no task can join that waits for others itself"
                raise WrongGroup(group, why)

    def require_there(self, group: str) -> None:
        """Raise NoSuchGroup if a group that was opened for new tasks has no record."""
        if self.joined[group].state is None:
            raise NoSuchGroup(group, is_lost=True)

    def is_opened_with(self, group: str, conditions: Mapping[str, str]) -> bool:
        """Return whether a group that new tasks join was opened with these conditions."""
        after = self.joined[group].after
        return after is not None and conditions_in(group, after) == conditions

    def require_closed(self) -> None:
        """Refuse open groups as parents: later members might wait for the new tasks in turn."""
        for group in self.opened:
            why = "it is open still: close it before tasks of another group wait for it"
            raise WrongGroup(group, why)


def joins_of(tasks: Iterable[NewTask]) -> Joins:
    """Return the groups that tasks join, and for each what its new members wait for."""
    joins: Joins = {}
    for new in tasks:
        if new.group is not None:
            conditions, joining = new.conditions, joins.setdefault(new.group, [])
            if conditions not in joining[-1:]:  # many often wait for the same
                joining.append(conditions)
    return joins


def require_parents(
    names: Iterable[str], statuses: Mapping[str, str | None], making: Sequence[str] = ()
) -> None:
    """Raise NoSuchTask or NoSuchGroup for a parent that is gone, or among the `making`."""
    for name in names:
        if name in statuses and statuses[name] is None:
            group = group_of(name)
            raise NoSuchTask(name) if group is None else NoSuchGroup(group, name in making)


def require_open(group: str, state: str | None, cancel: str | None) -> None:
    """Raise NoSuchGroup or WrongGroup unless new tasks may join a group."""
    if state is None:
        raise NoSuchGroup(group, is_joined=True)
    if cancel is not None:
        raise WrongGroup(group, "it was cancelled", "cancelled")
    if state != "open":
        raise closed(group, state)


def closed(group: str, state: str) -> WrongGroup:
    """Return the error for a group that takes no more tasks."""
    if state == MAKING:
        why = "it is making: not all tasks of this workflow are there yet; no other task joins it"
        return WrongGroup(group, why, state)
    why = "it has ended" if state == "ended" else "it is closed"
    reopen = f"client.group({group!r}).reopen(), or {of_group('close --reopen', group)}"
    way_on = f"Take another name, or open it again: {reopen}"
    return WrongGroup(group, f"{why}; no other task joins it. {way_on}", state)


def join_groups(joins: Iterable[tuple[str | None, str]], now: float) -> list[Command]:
    """Return the commands by which new tasks become members of their groups, in this order.

    joins: the group, and the id of each; None: it joins no group.
    """
    scores: dict[str, list[float | str]] = {}
    for place, (group, task) in enumerate(joins):
        if group is not None:
            scores.setdefault(group, []).extend((now + place * MICROSECOND, task))
    return [
        *[("ZADD", keys.members(group), *some) for group, some in scores.items()],
        *[("SADD", keys.open_members(group), *some[1::2]) for group, some in scores.items()],
    ]


def enter_dependents(
    conditions: Mapping[str, Mapping[str, str]], states: Mapping[str, str | None], now: float
) -> list[Command]:
    """Return the commands by which parents know who waits for them.

    conditions: of each task that waits, in the order in which they will be released. states: the
        status of each parent.
    """
    children: dict[str, list[float | str]] = {}
    for place, (task, each) in enumerate(conditions.items()):
        score = now + place * MICROSECOND
        for name, condition in each.items():
            if name in states and not condition.startswith("+"):
                children.setdefault(name, []).extend((score, task))
    # Written even if it is there: an end that has not seen the new entry must fail.
    commands: list[Command] = [
        ("HSET", keys.task(task), "dependents", 1) for task in tasks_among(children)
    ]
    commands += [
        ("ZADD", parent_of(name).dependents, *children[name])
        for name in sorted(children, key=lambda name: group_of(name) is not None)
    ]
    ended = [name for name in children if states[name] in FINISHED]
    return [*commands, *tell_later(ended, now)]


def tell_later(ended: Iterable[str], now: float) -> list[Command]:
    """Return the commands that let `settle` tell the dependents of these parents how they ended."""
    names = list(ended)
    tasks = [word for task in tasks_among(names) for word in (now, task)]
    commands: list[Command] = [("ZADD", keys.UNSETTLED_TASKS, *tasks)] if tasks else []
    return commands + [("ZADD", keys.GROUPS, 0, group) for group in groups_among(names)]
