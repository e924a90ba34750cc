"""TaskGroup: what producers and operators do with one group of tasks."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any

from blueque.connection.redis import Redis
from blueque.errors import (
    Contended,
    NoSuchGroup,
    RedisAway,
    RedisRefused,
    WrongGroup,
    WrongQueue,
    WrongState,
)
from blueque.model.conditions import After, Ids
from blueque.model.encoding import require_timeout
from blueque.model.group import Group, require_whole
from blueque.model.group_terms import LONGEST_HOLD, terms_for
from blueque.model.ids import DEFAULT_KEEP, require_keep
from blueque.model.options import Broken
from blueque.model.parts import in_parts
from blueque.model.task import Task
from blueque.protocol import operator, submit
from blueque.protocol.groups import (
    MEMBERS_AT_ONCE,
    cancel_group,
    close_group,
    drop_group,
    finish_group,
    settle_group,
    settle_members,
)
from blueque.protocol.opening import collect_group, open_group, reopen_group
from blueque.queries import groups
from blueque.queries.group_ends import GroupWatcher
from blueque.queries.groups import GroupSeen
from blueque.queries.task_ends import ends
from blueque.queries.tasks import load_many
from blueque.system import process

log = logging.getLogger("blueque")

AT_ONCE = 1000  # members in one round trip
WHOLE_AT_ONCE = 100  # the same, with parameters and results


def end_if_over(redis: Redis, group: str, now: float) -> None:
    """End a closed group whose members have ended, and tell its dependents, as far as possible."""
    try:
        if finish_group(redis, group, now) == "ended":
            settle_group(redis, group, now)
    except (Contended, RedisAway, RedisRefused) as error:  # the group is closed all the same
        log.debug("finish_group group=%s: %s", group, error)


class TaskGroup(Group):
    """A group of tasks, in any queues, that other tasks can wait for together.

    As a context manager it opens the group, and closes it unless the block raises.
    """

    def __init__(self, redis: Redis, name: str) -> None:
        super().__init__(name)
        self._redis = redis

    def __enter__(self) -> TaskGroup:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()

    def open(
        self,
        keep: float | str = DEFAULT_KEEP,
        *,
        after: After | Ids | None = None,
        broken: Broken = "hold",
        hold: float | str | None = None,
    ) -> TaskGroup:
        """Create the group, so that tasks can join it, and return it.

        An existing group stays as it is. A closed one takes no more tasks, see `reopen`.
        keep: how long the group and the keys of its members are remembered after its end; seconds,
            or text such as "1d" (the default).
        after, broken: what all its members wait for, as for `Queue.enqueue`; at most 100 tasks.
            Members with keys take this from the group; others must name it themselves.
        hold: "until_collected": retention keeps the members until you call `collected`, for at most
            30 days. Or a time up to `keep`. Held members may still be archived.
        Raises InvalidInput; WrongGroup if it was opened with another `after`; NoSuchTask,
            NoSuchGroup.
        Source: docs/protocol/groups.md, "open_group".
        """
        terms = terms_for(keep, keep, after, broken, hold)
        open_group(self._redis, self.name, require_keep(keep), time.time(), terms)
        log.info("open_group group=%s", self.name)
        return self

    def reopen(self, hold: float | str | None = None) -> bool:
        """Let more tasks join a closed group; then close it again. Return False if it was open.

        If a call with keys opened the group first, the next such call for its queue closes it. What
        was decided for tasks that waited for the group stays decided.
        hold: as for `open`, from now on; None: no change.
        Raises NoSuchGroup; WrongGroup for a cancelled group, a workflow, or a `hold` longer than
            the `keep` of the group.
        Source: docs/protocol/groups.md, "reopen_group".
        """
        held = terms_for(None, LONGEST_HOLD, hold=hold).hold
        is_opened = reopen_group(self._redis, self.name, time.time(), held)
        if is_opened:
            log.info("reopen_group group=%s", self.name)
        return is_opened

    def collected(self) -> bool:
        """End the `hold` of the group: you have its results, so retention may delete its members.

        Return False if there was no `hold`, or an earlier call has ended it.
        Raises NoSuchGroup, also after the `keep` of the group; WrongGroup for a held group that is
            open or has tasks that have not ended: call `wait` first.
        Source: docs/protocol/groups.md, "collect_group".
        """
        is_noted = collect_group(self._redis, self.name, time.time())
        if is_noted:
            log.info("collect_group group=%s", self.name)
        return is_noted

    def wait(self, timeout: float | None = None) -> GroupSeen:
        """Block until the group is closed and all its members have ended; return its progress.

        timeout: in seconds; None: no limit.
        A failed member has ended, even if other tasks wait for it. Redis announces the changes;
        where it cannot, the group is read once a second.
        Raises WaitTimedOut; NoSuchGroup.
        """
        timeout = require_timeout(timeout)
        watcher = GroupWatcher(self._redis, self.name)
        for _ in ends(watcher, self._redis.patience, timeout):
            pass  # it yields no tasks
        return self.progress()

    def close(self, expected: int = 0) -> None:
        """Let no more tasks join: the group ends when the last member ends.

        expected: how many members it must have. With fewer, as after a failover, the group stays
            open and you can make the missing ones.
        Raises NoSuchGroup; WrongGroup if it has fewer.
        Source: docs/protocol/groups.md, "close_group".
        """
        now = time.time()
        close_group(self._redis, self.name, now, expected)
        log.info("close_group group=%s", self.name)
        end_if_over(self._redis, self.name, now)

    def cancel(self, by: str | None = None, reason: str | None = None) -> bool:
        """Close the group and cancel the rest of its members. Return False if it had ended.

        Listeners and schedulers cancel them step by step.
        by, reason: who cancels (default: this user and host), and why.
        Raises NoSuchGroup.
        Source: docs/protocol/groups.md, "cancel_group".
        """
        who = process.who_of(by)
        is_cancelled = cancel_group(self._redis, self.name, who, reason, time.time())
        if is_cancelled:
            log.info("cancel_group group=%s by=%s", self.name, who)
        return is_cancelled

    def requeue(self, by: str | None = None, only: Collection[str] | None = None) -> list[str]:
        """Put the failed and cancelled members in line again and return their ids. `wait` then
        waits for them.

        by: who requeues them. Default: this user and host.
        only: requeue none but these tasks.
        Raises NoSuchGroup; WrongGroup for an incomplete workflow, or while a group is being cancelled.
        """
        seen = self.progress()
        require_whole(self.name, seen.state, seen.record.get("gate"), ())
        if seen.is_cancelling:
            why = "it is being cancelled; wait until its tasks have ended"
            raise WrongGroup(self.name, why)
        who = process.who_of(by)
        bad, requeued = groups.bad_members(self._redis, self.name), list[str]()
        chosen = bad if only is None else [task for task in bad if task in only]
        for task in groups.look_at(self._redis, chosen):
            queue, mark = task.queue or "", os.urandom(16).hex()
            try:
                operator.requeue(self._redis, queue, task.task, mark, time.time(), who)
            except (WrongState, WrongQueue):  # it runs already, or is gone
                continue
            log.info("requeue task=%s queue=%s", task.task, queue)
            requeued.append(task.task)
        for some in in_parts(requeued, MEMBERS_AT_ONCE):
            with suppress(Contended):  # listeners and schedulers do it, too
                settle_members(self._redis, self.name, some)
        return requeued

    def tasks(self) -> Iterator[Task]:
        """Yield a snapshot of each member, with its result, in the order in which they were made.

        Skips deleted members. Raises NoSuchGroup at the first `next`.
        """
        self.progress()
        first = 0
        while ids := groups.members(self._redis, self.name, first, WHOLE_AT_ONCE):
            yield from load_many(self._redis, ids)
            first += WHOLE_AT_ONCE

    def results(self) -> dict[str, Any]:
        """Return the results of the complete members by key, in the order in which they were made.

        The id takes the place of a key that is missing or taken by a member of another queue. This
        holds all results in memory; `tasks` yields one at a time.
        Raises NoSuchGroup.
        """
        found: dict[str, Any] = {}
        for task in self.tasks():
            if task.status == "complete":
                is_id = task.key is None or task.key in found
                found[task.id if is_id else str(task.key)] = task.result
        return found

    def delete(self) -> bool:
        """Remove a group that has ended; its tasks stay. Return False if there is no such group.

        A workflow that was cancelled before all its tasks were in Redis loses them, too: none has run.
        Raises WrongGroup.
        Source: docs/protocol/groups.md, "drop_group".
        """
        seen = groups.load(self._redis, self.name)
        if seen is not None and seen.is_deleted_with_tasks:
            self._delete_tasks()
        return drop_group(self._redis, self.name)

    def _delete_tasks(self) -> None:
        first = 0
        while ids := groups.members(self._redis, self.name, first, AT_ONCE):
            for task in groups.look_at(self._redis, ids):
                if task.group == self.name:
                    submit.delete(self._redis, task.queue or "", task.task, is_forced=True)
            first += AT_ONCE

    def progress(self) -> GroupSeen:
        """Return how many members the group has and how many have ended. Raises NoSuchGroup."""
        seen = groups.load(self._redis, self.name)
        if seen is None:
            raise NoSuchGroup(self.name)
        return seen
