"""Groups whose members have keys: a call opens one, makes its members, and closes it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from blueque.connection.redis import Redis
from blueque.errors import NoSuchGroup, WrongGroup
from blueque.model.group import Links, batch_of
from blueque.model.group_terms import Terms
from blueque.model.ids import ids_of_group_keys, require_keep
from blueque.model.new_task import Fields
from blueque.producer.groups import end_if_over
from blueque.producer.room import ask_for_room_of
from blueque.producer.sealing import store_many
from blueque.protocol.bulk import NewTasks
from blueque.protocol.groups import close_group, fewer
from blueque.protocol.members import MemberBatch, enqueue_members, most_members
from blueque.protocol.opening import OTHERWISE, open_group, reopen_group
from blueque.queries import groups

KEEP = "90d"  # how long a group that a call opens is kept after its end
# Redis had acknowledged each of the expected tasks.
PUT_AGAIN = "put all of them again; Redis may have lost some, as in a failover"

log = logging.getLogger("blueque")


class KeyedGroup(NamedTuple):
    """A group of tasks with keys, for the call that creates them. It can be sent to other processes.

    Spark opens it in its driver and puts members in its workers. Any number of workers may put any
    part of the rows again: each key makes one task.

        terms = terms_for(keep="30d", otherwise=KEEP, after=..., hold="until_collected")
        opened = open_keyed(redis, "video", "night", terms)
        rows = NewTasks((), [(b"1", True), (b"2", True)], keys=[b"key 1", b"key 2"])
        new = opened.put(redis, rows, client.get_queue("video").fields_of(**options))
        opened.close(redis, opened.made + new)

    links: the group, and what its members wait for. made: how many members it had.
    is_ours: this call, or an earlier try of it, opened the group, and so closes it.
    """

    queue: str
    links: Links
    made: int
    is_ours: bool

    @property
    def name(self) -> str:
        return str(self.links.group)

    @property
    def at_once(self) -> int:
        """How many of its members one transaction creates."""
        return most_members(self.links)

    def ids_of(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the ids of the tasks of these keys, in ASCII. keys: in UTF-8."""
        return ids_of_group_keys(self.queue, self.name, keys)

    def batch(self, tasks: NewTasks, now: float, options: Fields) -> MemberBatch:
        """Return new members, packed for one transaction. options: the fields that all have."""
        ids = tasks.ids or self.ids_of(tasks.keys or ())
        new = tasks._replace(ids=ids).due_after(now).once()
        return MemberBatch(self.queue, self.links, new, now, options)

    def put(self, redis: Redis, tasks: NewTasks, options: Fields) -> int:
        """Create the tasks whose keys are new to the group, and return how many.

        After a lost answer the number may include tasks that another process has just created;
        `count` is exact. Raises as `put_members`.
        """
        new = 0
        for some in tasks.parts(self.at_once):
            some = some._replace(ids=self.ids_of(some.keys or ()))
            some = store_many(redis, self.queue, some, options)
            made = put_members(redis, self.batch(some, time.time(), options))
            new += sum(made)
            log.info(
                "enqueue_members group=%s queue=%s tasks=%d new=%d",
                self.name,
                self.queue,
                len(made),
                sum(made),
            )
        return new

    def count(self, redis: Redis) -> int:
        """Return how many members it has."""
        seen = groups.load(redis, self.name)
        return 0 if seen is None else seen.members

    def close(self, redis: Redis, expected: int) -> None:
        """Close the group, if this call opened it. expected: how many members it must have.

        Raises NoSuchGroup; WrongGroup if it has fewer: make all of them again, then close it.
        """
        if not self.is_ours:
            if (members := self.count(redis)) < expected:
                raise WrongGroup(self.name, fewer(members, expected, PUT_AGAIN))
            return
        now = time.time()
        close_group(redis, self.name, now, expected, PUT_AGAIN)
        log.info("close_group group=%s", self.name)
        end_if_over(redis, self.name, now)


def open_keyed(
    redis: Redis, queue: str, name: str, terms: Terms, append: bool = False
) -> KeyedGroup:
    """Open the group for a call with keys, unless it exists, and return it.

    append: open it again if it was closed. The call that adds to it then closes it.
    Raises WrongGroup if it was opened with other terms, or by another program and the call has
        `keep` or `hold`; NoSuchTask, NoSuchGroup for what its members wait for.
    """
    now, terms = time.time(), terms._replace(made_by=batch_of(queue))
    seen = groups.load(redis, name)
    if seen is None or seen.record.get("made_by") == terms.made_by:
        keep = require_keep(KEEP) if terms.keep is None else terms.keep
        open_group(redis, name, keep, now, terms)
        seen = groups.load(redis, name)
    elif terms.keep is not None or terms.hold is not None:
        raise WrongGroup(name, "another program has opened it: leave out `keep` and `hold`")
    if seen is None:
        raise NoSuchGroup(name)
    if terms.conditions and "after" in seen.record and not terms.are_of(seen.record):
        raise WrongGroup(name, OTHERWISE)
    if append and seen.state in ("closed", "ended"):
        reopen_group(redis, name, now, terms.hold, terms.made_by)
        # After a lost answer only the record says who closes it.
        seen = groups.load(redis, name) or seen
    record = seen.record
    links = Links(name, terms.conditions, terms.broken)
    links = Links.of(record) if "after" in record else links
    is_ours = record.get("made_by") == terms.made_by and seen.state == "open"
    return KeyedGroup(queue, links, seen.members, is_ours)


def put_members(
    redis: Redis, batch: MemberBatch, meanwhile: Callable[[], object] | None = None
) -> list[bool]:
    """Create members of a group if there is room in their queue; return for each whether it is new.

    meanwhile: called while Redis works. Raises QueueFull; as `enqueue_members`.
    """
    ask_for_room_of(redis, batch.new, batch.group)
    return enqueue_members(redis, batch, meanwhile)
