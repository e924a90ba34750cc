"""The facts about groups of tasks that may need attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.connection.redis import as_fields
from blueque.model import keys
from blueque.model.group import MAKING, condition_on, parse
from blueque.queries.holders import Holder
from blueque.queries.steps import of_each

if TYPE_CHECKING:
    from blueque.queries.steps import Reader

MAX_GROUPS = 1000  # groups that are read for what needs attention
_OF_GROUPS = ("state", "created", "updated", "cancel")


class Unclosed(NamedTuple):
    """A group that its producer has not closed and may have forgotten.

    state: open, or making: not all tasks of a workflow are there. since: when its last task was
        added, or when it was opened.
    """

    group: str
    state: str
    since: float


class Groups(NamedTuple):
    """The groups of tasks, at most MAX_GROUPS.

    unended: how many have not ended. bad: how many have members that ended without being complete.
    holders: those that have ended and hold up tasks, by their names in conditions.
    """

    unended: int = 0
    bad: int = 0
    holders: Sequence[Holder] = ()
    unclosed: Sequence[Unclosed] = ()

    def holding(self, found: Mapping[str, Holder]) -> Groups:
        """Keep the holders that hold up tasks. found: these, by name."""
        holders = (each.task for each in self.holders)
        return self._replace(holders=tuple(found[name] for name in holders if name in found))


def groups(names: Sequence[str]) -> Reader[Groups]:
    """Read the facts about these groups that may need attention: one round trip."""
    found = yield from of_each({name: _ends(name) for name in names})
    bad = {name: record for name, (record, _, size, _) in found.items() if size}
    # Of others it is not decided how they end.
    ended = [
        Holder(condition_on(name), "failed", 0)
        for name, record in bad.items()
        if record.get("state") == "ended"
    ]
    unended = sum(record.get("state") not in ("ended", None) for record, *_ in found.values())
    unclosed = [_unclosed(name, record, last) for name, (record, *_, last) in found.items()]
    return Groups(unended, len(bad), ended, tuple(each for each in unclosed if each is not None))


def _ends(name: str) -> Reader[tuple[dict[str, str], int, int, float | None]]:
    """Read fields of a group, its open and its bad members, and when the last was added."""
    record, left, bad, last = yield [
        ("HMGET", keys.group(name), *_OF_GROUPS),
        ("SCARD", keys.open_members(name)),
        ("SCARD", keys.bad_members(name)),
        ("ZRANGE", keys.members(name), -1, -1, "WITHSCORES"),
    ]
    return as_fields(_OF_GROUPS, record), left, bad, float(last[1]) if last else None


def _unclosed(name: str, fields: Mapping[str, str], last: float | None) -> Unclosed | None:
    state, record = fields.get("state"), parse(fields)
    since = record.get("updated") if state == MAKING else last or record.get("created")
    if "cancel" in record or since is None or state not in (MAKING, "open"):
        return None
    return Unclosed(name, state, since)
