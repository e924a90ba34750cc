"""Tell tasks how those that they wait for have ended: settle."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from blueque.connection.redis import AnyLook, Command, Look, Redis, as_scores
from blueque.errors import RedisRefused
from blueque.model.states import FINISHED
from blueque.protocol.children import AFTER_ALL
from blueque.protocol.parents import Parent, TaskParent
from blueque.protocol.rechecking import Rechecked, tell
from blueque.protocol.transaction import Answer, Change, Verdict, transact

DEPENDENTS_AT_ONCE = 100  # dependents that one `settle` tells


class Settled(NamedTuple):
    """The result of one `settle`.

    removed: how many dependents the parent no longer knows.
    waiting: how many still wait, although it has ended.
    freed, cancelled: how many of all these have a new status.
    is_over: all have been told. ended: those that were cancelled and that others wait for.
    refused: dependents with a key of a wrong type, and the answer of Redis; they were left out.
    """

    removed: int = 0
    waiting: int = 0
    freed: int = 0
    cancelled: int = 0
    is_over: bool = True
    ended: tuple[str, ...] = ()
    refused: Mapping[str, RedisRefused] = MappingProxyType({})


def settle(redis: Redis, task: str, now: float) -> Settled:
    """Tell up to a hundred dependents of a task how it ended, one by one, and release those that
    have nothing left to wait for.
    """
    return tell_dependents(redis, "settle", TaskParent(task), now)


def tell_dependents(redis: Redis, name: str, parent: Parent, now: float) -> Settled:
    """Do as `settle`, for a task or a group. name: of the transaction."""
    left = next_dependents(redis, name, parent, now)
    if not left:
        return Settled()
    done: dict[str, Rechecked] = {}
    refused: dict[str, RedisRefused] = {}
    for child in left:
        try:
            done[child] = tell(redis, child, parent, now)
        except RedisRefused as error:
            if not error.is_wrong_type:
                raise
            refused[child] = error  # the others must not wait for it
    if len(left) < DEPENDENTS_AT_ONCE or not done:
        left = next_dependents(redis, name, parent, now)
    changed = [child for child in done.values() if child.is_changed]
    cancelled = {
        task: child
        for task, child in done.items()
        if child.is_changed and child.status == "cancelled"
    }
    return Settled(
        removed=sum(not child.waits for child in done.values()),
        waiting=sum(child.waits for child in done.values()),
        freed=len(changed) - len(cancelled),
        cancelled=len(cancelled),
        is_over={*left} <= {*refused},
        ended=tuple(task for task, child in cancelled.items() if child.is_parent),
        refused=refused,
    )


def next_dependents(redis: Redis, name: str, parent: Parent, now: float) -> list[str]:
    """Return up to a hundred dependents that must be told how a task or a group ended.

    If there are none, record that all were told. name: of the transaction.
    """

    def decide(*replies: Any) -> Verdict[list[str]]:
        *of_parent, entries = replies
        status, scores = parent.status(of_parent), as_scores(entries)
        if status is not None and status not in FINISHED:
            commands = parent.when_it_runs()
            return Change(commands, []) if commands else Answer([])
        # Those that wait on are told again if the parent is complete after all, or is gone.
        is_for_all = status in ("complete", None)
        left = [task for task, score in scores.items() if is_for_all or score < float(AFTER_ALL)]
        if left:
            return Answer(left)
        return Change(parent.when_settled(of_parent, bool(scores), now), [])

    asked: Command = ("ZRANGE", parent.dependents, 0, DEPENDENTS_AT_ONCE - 1, "WITHSCORES")
    look: AnyLook = Look([*parent.watch, parent.dependents], [*parent.reads, asked], parent.name)
    return transact(redis, name, look, decide)
