"""The groups of tasks in the overview."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import Command
from blueque.model import keys
from blueque.model.group import MAKING, condition_on, parse
from blueque.queries.holders import Holder

MAX_GROUPS = 1000  # that are read
_OF_GROUPS = ("state", "created", "updated", "cancel")


class Unclosed(NamedTuple):
    """A group that its producer has not closed, and for which it may do nothing more.

    state: open: all of its tasks have ended, if there are any; since: when it was opened. making:
        not all tasks of a workflow are there; since: when the last ones came.
    """

    group: str
    state: str
    since: float


class Groups(NamedTuple):
    """The groups of tasks, at most MAX_GROUPS.

    unended: how many have not ended. bad: how many have members that have ended and are not
        complete. holders: those that have ended and hold up tasks, by their names in conditions.
    """

    unended: int = 0
    bad: int = 0
    holders: Sequence[Holder] = ()
    unclosed: Sequence[Unclosed] = ()


def ask_groups(names: Iterable[str]) -> list[Command]:
    return [
        command
        for name in names
        for command in (
            ("HMGET", keys.group(name), *_OF_GROUPS),
            ("SCARD", keys.open_members(name)),
            ("SCARD", keys.bad_members(name)),
        )
    ]


def take_groups(names: Sequence[str], replies: Sequence[Any]) -> Groups:
    records = [dict(zip(_OF_GROUPS, reply, strict=False)) for reply in replies[::3]]
    seen = [*zip(names, records, replies[1::3], replies[2::3], strict=True)]
    states = [record.get("state") for record in records]
    unended = sum(state not in ("ended", None) for state in states)
    bad = [(name, record) for name, record, _, size in seen if size]
    # Of others it is not decided how they end.
    ended = [
        Holder(condition_on(name), "failed", 0)
        for name, record in bad
        if record.get("state") == "ended"
    ]
    unclosed = [_unclosed(name, record, left) for name, record, left, _ in seen]
    return Groups(unended, len(bad), ended, tuple(each for each in unclosed if each is not None))


def _unclosed(name: str, fields: Mapping[str, str | None], left: int) -> Unclosed | None:
    state = fields.get("state")
    record = parse({field: value for field, value in fields.items() if value is not None})
    since = record.get("updated" if state == MAKING else "created")
    if (
        "cancel" in record
        or since is None
        or not (state == MAKING or (state == "open" and not left))
    ):
        return None
    return Unclosed(name, state, since)
