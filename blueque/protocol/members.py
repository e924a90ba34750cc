"""Create the tasks of a group by their keys, each once: enqueue_members.

The set of members is the ledger: a task in it was made, even if it was deleted since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from blueque.connection.redis import AnyLook, Command, Look, Redis, pack
from blueque.errors import WrongGroup
from blueque.model import keys
from blueque.model.group import Links
from blueque.model.new_task import Fields
from blueque.protocol.bulk import MAX_KEYED, Batch, NewTasks
from blueque.protocol.dependencies import FIRST_LOOK, LINKS_AT_ONCE
from blueque.protocol.fields import flat
from blueque.protocol.packing import pack_with
from blueque.protocol.parents import (
    FoundParents,
    Joins,
    Parents,
    enter_dependents,
    join_groups,
    require_parents,
)
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import exist_all


class MemberBatch:
    """New tasks of a group, packed for one transaction: at most MAX_KEYED, each id once.

    links: the group, and what all of them wait for. tasks: their keys count in the group.
    """

    operation = "enqueue_members"

    def __init__(
        self, queue: str, links: Links, tasks: NewTasks, now: float, options: Fields
    ) -> None:
        self.queue, self.group, self.links, self._now = queue, str(links.group), links, now
        self.join: Joins = {self.group: [links.conditions]}
        self.parents = Parents(links.conditions, self.join)
        self.new = Batch(queue, tasks, now, {**options, **links.fields()})
        self.ids = [task.decode() for task in tasks.ids]
        self.hashes = [keys.task(task) for task in self.ids]
        self.look = self._looking(exist_all(tasks.ids))
        self.commands = [*self.new.commands, *self._entry(self.ids)]

    def look_at_each(self) -> AnyLook:
        """Return the look that shows which tasks exist and in which groups, if some exist that are
        no members.
        """
        return self._looking(
            *[("EXISTS", key) for key in self.hashes],
            *[("HGET", key, "group") for key in self.hashes],
        )

    def commands_for(self, chosen: Sequence[int]) -> list[Command]:
        """Return the commands that create the tasks with these numbers as members."""
        return [*self.new.commands_for(chosen), *self._entry(self.ids_of(chosen))]

    def ids_of(self, chosen: Sequence[int]) -> list[str]:
        """Return the ids of the tasks with these numbers."""
        return [self.ids[number] for number in chosen]

    def is_opened_so(self, found: FoundParents) -> bool:
        """Return whether the group was opened with what these tasks wait for.

        Then all of it existed at that time; `recheck` handles what has gone since.
        """
        return found.is_opened_with(self.group, self.links.conditions)

    def exist(self, replies: Sequence[Any]) -> Sequence[int] | None:
        """Return for each task whether it has a hash, from the replies after those about parents.

        Empty: no task has one. None: some tasks have one, but the replies do not say which.
        """
        count = len(self.ids)
        exist, groups = replies[:count], replies[count:]
        if not any(exist):
            return ()
        if len(groups) < count:
            return None
        for number, (is_there, group) in enumerate(zip(exist, groups, strict=False)):
            if is_there and group != self.group:
                (task,) = self.ids_of([number])
                raise WrongGroup(self.group, f"task {task} has this key, and is not in the group")
        return exist

    def creation(self, found: FoundParents, new: Sequence[int]) -> list[Command]:
        """Return the commands that create these tasks."""
        if not new:
            return []
        whole = len(new) == len(self.ids)
        return [
            *(self.commands if whole else self.commands_for(new)),
            *_entering(self.links, found, self.ids_of(new), self._now),
        ]

    def rejoining(self, there: Sequence[int]) -> list[Command]:
        """Return the commands that let the group know of tasks that existed before it."""
        if not there:
            return []
        ids = self.ids_of(there)
        scores = [word for task in ids for word in (self._now, task)]
        return [
            *join_groups([(self.group, task) for task in ids], self._now),
            ("ZADD", keys.UNSETTLED_MEMBERS, *scores),
        ]

    def _entry(self, ids: Sequence[str]) -> list[bytes]:
        """Return the commands that record what these tasks wait for, and enter them in the group.

        They are packed here, while Redis works on the previous batch.
        """
        blocking = _blocking(self.links, self.queue, ids, self._now)
        return [
            *map(pack, [*blocking, *join_groups([(self.group, each) for each in ids], self._now)])
        ]

    def _looking(self, *exist: Command) -> AnyLook:
        ledger = pack_with(("ZMSCORE", keys.members(self.group)), self.new.ids)
        return Look((*self.hashes, *self.parents.watch), [ledger, *self.parents.reads, *exist])


def most_members(links: Links) -> int:
    """Return how many members of a group with these links one transaction makes."""
    return min(MAX_KEYED, LINKS_AT_ONCE // max(len(links.conditions), 1))


def enqueue_members(
    redis: Redis, batch: MemberBatch, meanwhile: Callable[[], object] | None = None
) -> list[bool]:
    """Create the tasks that are not yet members of their group, and return which.

    meanwhile: see transact.
    Raises NoSuchGroup; WrongGroup for a group that does not take the missing ones; NoSuchTask for a
        parent.
    """
    maybe_made: set[int] = set()
    made = _enqueue(redis, batch, batch.look, maybe_made, meanwhile)
    if made is None:
        made = _enqueue(redis, batch, batch.look_at_each(), maybe_made, meanwhile)
    return made or []


def _enqueue(
    redis: Redis,
    batch: MemberBatch,
    look: AnyLook,
    maybe_made: set[int],
    meanwhile: Callable[[], object] | None,
) -> list[bool] | None:
    """Return which tasks this call created; None: some exist, and only a look at each shows which.

    maybe_made: the numbers of tasks in an EXEC whose reply was lost: if they are members, this call
        created them.
    """
    count, asked = len(batch.ids), len(batch.parents.reads)
    last_sent: set[int] = set()  # in the EXEC that was sent last

    def decide(scores: Sequence[str | None], *replies: Any) -> Verdict[list[bool] | None]:
        found = batch.parents.found(replies)
        found.require_there(batch.group)
        missing = [number for number, score in enumerate(scores) if score is None]
        if not missing:
            return Answer([number in maybe_made for number in range(count)])
        found.require_open(batch.join)
        exist = batch.exist(replies[asked:])
        if exist is None:
            return Answer(None)
        new = [number for number in missing if not (exist and exist[number])]
        if new and not batch.is_opened_so(found):
            require_parents(batch.links.conditions, found.statuses, found.making)
        last_sent.clear()
        last_sent.update(new)
        commands = [
            *batch.creation(found, new),
            *batch.rejoining(sorted({*missing}.difference(new))),
        ]
        ours = maybe_made | last_sent
        made = [number in ours for number in range(count)]
        return Change(commands, made)

    def again(is_unknown: bool) -> AnyLook:
        if is_unknown:
            maybe_made.update(last_sent)
        return look

    return transact(redis, "enqueue_members", look, decide, again=again, meanwhile=meanwhile)


def _blocking(links: Links, queue: str, tasks: Sequence[str], now: float) -> list[Command]:
    """Return the commands that record what tasks wait for, and that they do."""
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


def _entering(links: Links, found: FoundParents, tasks: Iterable[str], now: float) -> list[Command]:
    """Return the commands that enter the tasks at their parents. `recheck` sees to missing ones."""
    if not links.conditions:
        return []
    there = {name: status for name, status in found.statuses.items() if status is not None}
    return enter_dependents(dict.fromkeys(tasks, links.conditions), there, now)
