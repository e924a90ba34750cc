"""The invariants of groups of tasks: the sets agree with the hash of each member.

The members of a group are read a thousand at a time, and not kept. docs/protocol/audit.md,
"Invariants", has the same in words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from blueque.audit.observation import Finding
from blueque.audit.reads import BATCH, read_all, read_groups
from blueque.connection.redis import Command, Redis
from blueque.model import keys
from blueque.model.group import MAKING
from blueque.model.parts import in_parts
from blueque.model.states import FINISHED
from blueque.queries.groups import members

CODES = ("open_member", "bad_member", "group_end")  # of findings, whose text is the group
_OF_A_GROUP = (keys.group, keys.members, keys.open_members, keys.bad_members, keys.awaiting)
_NOW = 0.0  # the score of a group at which a listener or scheduler is about to look


class _Member(NamedTuple):
    """A member: status, queue and group as in its hash, and whether the sets have it.

    unsettled: its score among those whose end is about to be recorded.
    """

    task: str
    status: str | None
    queue: str | None
    group: str | None
    is_open: int
    is_bad: int
    unsettled: str | None


def judge(redis: Redis, groups: Iterable[str], bad_keys: Collection[str]) -> Iterator[Finding]:
    """Yield the faults of groups."""
    for group in groups:
        if not any(key(group) in bad_keys for key in _OF_A_GROUP):
            yield from _judge_group(redis, group, bad_keys)


def _judge_group(redis: Redis, group: str, bad_keys: Collection[str]) -> Iterator[Finding]:
    found = _not_ended(redis, group)
    if found is not None:
        yield found
    is_open = 0
    for some in _pieces(redis, group):
        sound = [task for task in some if keys.task(task) not in bad_keys]
        for member in _members(redis, group, sound):
            is_open += member.is_open
            yield from _judge_member(group, member)
    yield from _strangers(redis, group, is_open, bad_keys)


def _not_ended(redis: Redis, group: str) -> Finding | None:
    key = keys.group(group)
    state, is_open, score = redis.read(
        ("HGET", key, "state"), ("SCARD", keys.open_members(group)), ("ZSCORE", keys.GROUPS, group)
    )
    if state not in ("open", "closed", MAKING):
        return None
    if score is None:
        why = f"group {group} has not ended, and no program ever looks at it."
    elif state == "closed" and not is_open and float(score) != _NOW:
        why = f"group {group} is closed, none of its members is open, and it has not ended."
    else:
        return None
    return Finding("group_end", key, None, None, why, "finish_group", text=group)


def _pieces(redis: Redis, group: str) -> Iterator[list[str]]:
    """Yield the ids of all members, some at a time. Their number only grows."""
    first = 0
    while True:
        some = members(redis, group, first, BATCH)
        if some:
            yield some
        if len(some) < BATCH:
            return
        first += BATCH


def _members(redis: Redis, group: str, tasks: Sequence[str]) -> Iterator[_Member]:
    reads: list[list[Command]] = [
        [
            ("HMGET", keys.task(task), "status", "queue", "group"),
            ("SISMEMBER", keys.open_members(group), task),
            ("SISMEMBER", keys.bad_members(group), task),
            ("ZSCORE", keys.UNSETTLED_MEMBERS, task),
        ]
        for task in tasks
    ]
    for task, (fields, *sets) in zip(tasks, read_groups(redis, reads), strict=True):
        yield _Member(task, *fields, *sets)


def _judge_member(group: str, member: _Member) -> Iterator[Finding]:
    if member.unsettled is not None:  # its end is about to be noted, or that it runs again
        return
    is_there = member.group == group
    is_over = not is_there or member.status in FINISHED
    said = f"is {member.status}" if is_there else "is gone"
    if bool(member.is_open) == is_over:
        what = "among the open members" if is_over else "not among the open members"
        sentence = f"task {member.task} {said}, and is {what} of group {group}."
        yield _find("open_member", keys.open_members(group), group, member, sentence)
    # Whether a member that is gone was complete is unknown.
    elif is_there and bool(member.is_bad) != (member.status in FINISHED[1:]):
        what = "among those that are not complete" if member.is_bad else "counted as complete"
        sentence = f"task {member.task} {said}, and is {what} in group {group}."
        yield _find("bad_member", keys.bad_members(group), group, member, sentence)


def _find(code: str, key: str, group: str, member: _Member, sentence: str) -> Finding:
    return Finding(code, key, member.task, member.queue, sentence, "settle_members", text=group)


def _strangers(
    redis: Redis, group: str, known: int, bad_keys: Collection[str]
) -> Iterator[Finding]:
    """Yield the open members that are missing in the list of members.

    known: how many are in it; the set is read only if it has more. Members that are gone may be
        among the bad ones.
    """
    key = keys.open_members(group)
    (size,) = redis.read(("SCARD", key))
    entries = read_all(redis, key, "set") if size > known else []
    for some in in_parts([task for task in entries if keys.task(task) not in bad_keys], BATCH):
        for member in _members(redis, group, some):
            if member.unsettled is None and member.group != group:
                sentence = f"task {member.task} is in {key}, and is no member of group {group}."
                yield _find("open_member", key, group, member, sentence)
