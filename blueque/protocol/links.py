"""What the tasks of a run have to do with others: the group that they join, and what they wait for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from blueque.connection.redis import Command
from blueque.errors import NoSuchGroup, WrongGroup
from blueque.model import keys
from blueque.model.group import RUN, Links, condition_on
from blueque.protocol.dependencies import FIRST_LOOK, LINKS_AT_ONCE
from blueque.protocol.fields import flat
from blueque.protocol.groups import closing
from blueque.protocol.opening import new_record, opening, opening_again
from blueque.protocol.parents import (
    Joins,
    Parents,
    closed,
    enter_dependents,
    groups_among,
    join_groups,
    require_parents,
    tasks_among,
)

WAITING_AT_ONCE = 250  # tasks that wait for others: they take Redis four times as long
GROUP_KEEP = 7 * 86400  # seconds for which the group of a run is kept after its end


def parents_of(links: Links) -> Parents:
    """Return the parents of the tasks of a run, and the group that these join."""
    return Parents(links.conditions, joins_of_run(links))


def joins_of_run(links: Links) -> Joins:
    """Return the group that the tasks of a run join. `open_run` has seen who waits for it."""
    return {} if links.group is None else {links.group: []}


def rows_at_once(links: Links) -> int:
    """Return how many tasks of a run with these links one transaction takes."""
    if not links.conditions:
        return LINKS_AT_ONCE
    return min(WAITING_AT_ONCE, LINKS_AT_ONCE // len(links.conditions))


def made_by(queue: str, run: str) -> str:
    """Return who has made the group of a run, as its record says. The run closes no other."""
    return f"{RUN}{run} of {queue}"


class NewLinks:
    """The links of a run that is opened: the look at them, and what they change.

    maker: see made_by. hold: for how many seconds the tasks of the run are held.
    """

    def __init__(self, links: Links, maker: str, hold: int = 0) -> None:
        self._links, self._maker, self._keep = links, maker, max(GROUP_KEEP, hold)
        self._parents = Parents(links.conditions)
        self.watch, self.reads = self._parents.watch, self._parents.reads
        if links.group is not None:
            key, awaiting = keys.group(links.group), keys.awaiting(links.group)
            self.watch = [*self.watch, key, awaiting]
            self.reads = [
                *self.reads,
                ("HMGET", key, "state", "cancel", "made_by"),
                ("ZCARD", awaiting),
            ]

    def commands(self, replies: Sequence[Any], now: float) -> list[Command]:
        """Return the commands that make the group, if there is none.

        replies: to `reads`. Raises NoSuchTask, NoSuchGroup, WrongGroup.
        """
        group, conditions = self._links.group, self._links.conditions
        asked = replies[: len(self._parents.reads)]
        require_parents(conditions, self._parents.statuses(asked), self._parents.making(asked))
        if group is None:
            return []
        (state, cancel, maker), waiting = replies[-2:]
        if state is not None and maker not in (None, self._maker):
            owner = maker if maker.startswith("run ") else "a workflow"
            raise WrongGroup(group, f"it is the group of {owner}")
        if cancel is not None:
            raise WrongGroup(group, "it was cancelled", "cancelled")
        if state not in (None, "open") and maker != self._maker:
            raise closed(group, state)
        if conditions:
            self._require_no_circle(group, replies, waiting if state is not None else 0)
        if state is not None:  # of an earlier run of this name, which was dropped
            return [] if state == "open" else opening_again(group, now)
        return opening(new_record(group, self._keep, now) | {"made_by": self._maker}, now)

    def _require_no_circle(self, group: str, replies: Sequence[Any], waiting: int) -> None:
        """Refuse what might let tasks wait for each other: later, the run joins and waits without
        another look. One way is left: docs/protocol/bulk.md, "Circles of runs".
        """
        if condition_on(group) in self._links.conditions:
            raise WrongGroup(group, "a task that joins it cannot wait for it")
        if waiting:
            why = "tasks wait for it already, so no task can join that waits for others itself"
            raise WrongGroup(group, why)
        others, first = groups_among(self._parents.names), len(tasks_among(self._parents.names))
        for other, (state, *_) in zip(others, replies[first:], strict=False):
            if state in ("open", "making"):
                why = "it is open still: close it before tasks of another group wait for it"
                raise WrongGroup(other, why)


def joining(links: Links, tasks: Sequence[str], now: float) -> list[Command]:
    """Return the commands by which tasks join the group of their run."""
    return join_groups([(links.group, task) for task in tasks], now)


def blocking(links: Links, queue: str, tasks: Sequence[str], now: float) -> list[Command]:
    """Return the commands that note what tasks wait for, and that they do."""
    if not links.conditions or not tasks:
        return []
    conditions = flat(links.conditions)
    looks = [word for task in tasks for word in (now + FIRST_LOOK, task)]
    return [
        # A task with this id may have been deleted by 1.0.0, which leaves its conditions.
        *[("DEL", keys.conditions(task)) for task in tasks],
        *[("HSET", keys.conditions(task), *conditions) for task in tasks],
        ("ZADD", keys.blocked(queue), *looks),
    ]


def entering(
    links: Links, parents: Parents, replies: Sequence[Any], tasks: Iterable[str], now: float
) -> list[Command]:
    """Return the commands by which the parents know who waits for them. Those that are gone are left
    to `recheck`.

    parents, replies: of these links, and what their reads have answered.
    """
    if not links.conditions:
        return []
    states = parents.statuses(replies)
    there = {name: status for name, status in states.items() if status is not None}
    return enter_dependents(dict.fromkeys(tasks, links.conditions), there, now)


def closing_of(
    links: Links, queue: str, run: str, replies: Sequence[Any], now: float
) -> list[Command]:
    """Return the commands that close the group of a run, if the run has made it.

    replies: to the look at its `state` and `made_by`; empty: the run has no group.
    """
    if links.group is None or tuple(replies[0]) != ("open", made_by(queue, run)):
        return []
    return closing(links.group, now)


def reopening_of(
    links: Links, queue: str, run: str, replies: Sequence[Any], now: float
) -> list[Command]:
    """Return the commands that open the group of a run again, if the run has made it.

    replies: to the look at its `state`, `made_by` and `cancel`; empty: the run has no group.
    Raises NoSuchGroup, WrongGroup.
    """
    if links.group is None:
        return []
    state, maker, cancel = replies[0]
    if state is None:
        raise NoSuchGroup(links.group)
    if cancel is not None:
        raise WrongGroup(links.group, "it was cancelled", "cancelled")
    if maker != made_by(queue, run):
        if state != "open":
            raise closed(links.group, state)
        return []
    return opening_again(links.group, now)


def look_at_group(links: Links, *names: str) -> tuple[list[str], list[Command]]:
    """Return what to watch and to read of the group of a run: these fields of its record."""
    if links.group is None:
        return [], []
    key = keys.group(links.group)
    return [key], [("HMGET", key, *names)]
