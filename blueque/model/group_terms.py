"""Terms: the settings with which a group is opened."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from blueque.errors import InvalidInput
from blueque.model.conditions import After, Ids
from blueque.model.group import Links
from blueque.model.ids import require_keep
from blueque.model.options import Broken, GroupOptions
from blueque.model.wait import wait_for

UNTIL_COLLECTED = "until_collected"  # of `hold`, which has a bound all the same
LONGEST_HOLD = "30d"


class Terms(NamedTuple):
    """The settings with which a group is opened.

    conditions: on each parent, the same for all its members. broken: see `Wait`.
    keep: for how many seconds the group is remembered after its end; None: not given.
    hold: for how many seconds at most its members are kept from pruning; None: as usual.
    made_by: who closes it, see `batch_of`; None: a program or a person.
    """

    conditions: Mapping[str, str] = MappingProxyType({})
    broken: str = "hold"
    keep: int | None = None
    hold: int | None = None
    made_by: str | None = None

    def record(self, now: float) -> dict[str, str]:
        """Return the fields of the record of a group that is opened now."""
        fields = Links(None, self.conditions, self.broken).record()
        fields |= {} if self.hold is None else {"hold": str(now + self.hold)}
        return fields if self.made_by is None else {**fields, "made_by": self.made_by}

    def are_of(self, record: Mapping[str, str]) -> bool:
        """Return whether the members of a group with this record wait for the same."""
        theirs = Links.of(record)
        return (dict(self.conditions), self.broken) == (dict(theirs.conditions), theirs.broken)


def terms_for(
    keep: float | str | None,
    otherwise: float | str,
    after: After | Ids | None = None,
    broken: Broken = "hold",
    hold: float | str | None = None,
) -> Terms:
    """Return the terms for these options. otherwise: the default of keep.

    Raises InvalidInput, InvalidType.
    """
    options: GroupOptions = {"after": after, "broken": broken}
    links = wait_for(options).of_many().links()
    kept = None if keep is None else require_keep(keep)
    held = _held(hold, otherwise if keep is None else keep)
    return Terms(links.conditions, links.broken, kept, held)


def _held(hold: float | str | None, keep: float | str) -> int | None:
    """Return for how many seconds tasks are held at most. Raises InvalidInput."""
    if hold is None:
        return None
    seconds = require_keep(LONGEST_HOLD if hold == UNTIL_COLLECTED else hold)
    if seconds > require_keep(keep):
        raise InvalidInput(f"hold is {hold!r}: the group itself is kept for {keep!r} after its end")
    return seconds
