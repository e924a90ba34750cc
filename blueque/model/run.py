"""The record of a run: its fields and their types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from blueque.errors import WrongRun
from blueque.model import record

# The fields of a record. Type and meaning as in docs/protocol/bulk.md, "Runs"; every value is text
# in Redis.
FIELDS: record.Types = {
    "run": str,
    "queue": str,
    "kind": str,
    "state": str,
    "shards": int,
    "keep": int,
    "rows": int,
    "tasks": int,
    "decided_by": str,
    "created": record.number,
    "finished": record.number,
    "group": str,
    "after": str,
    "broken": str,
    "hold": record.number,
    "collected": record.number,
}
LATE = (
    7 * 86400
)  # seconds for which the keys of a committed run are remembered, so that it can grow
# A linked run is of a kind of its own: programs that know nothing of links refuse it.
KEYED = ("keyed", "keyed_linked")

Record = dict[str, Any]


def is_held(hold: str | None, collected: str | None, now: float) -> bool:
    """Tell whether retention leaves the tasks of a run alone, by these fields of its record."""
    return hold is not None and collected is None and float(hold) > now


class Links(NamedTuple):
    """What the tasks of a run have to do with others; false if that is nothing.

    group: that they join. conditions: on each parent, the same for all. broken: see `Wait`.
    """

    group: str | None = None
    conditions: Mapping[str, str] = {}
    broken: str = "hold"

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Links:
        """Return the links in the record of a run."""
        conditions = json.loads(record.get("after", "{}"))
        return cls(record.get("group"), conditions, record.get("broken", "hold"))

    def __bool__(self) -> bool:
        return self.group is not None or bool(self.conditions)

    def record(self) -> dict[str, str]:
        """Return the fields of the record of the run."""
        fields = {} if self.group is None else {"group": self.group}
        if self.conditions:
            fields["after"] = json.dumps(dict(self.conditions), separators=(",", ":"))
            fields |= {} if self.broken == "hold" else {"broken": self.broken}
        return fields

    def fields(self) -> dict[str, str | int | float]:
        """Return the fields of each task."""
        fields: dict[str, str | int | float] = {}
        if self.group is not None:
            fields["group"] = self.group
        if self.conditions:
            fields |= {} if self.broken == "hold" else {"broken": self.broken}
            fields["after"] = len(self.conditions)
        return fields


def parse(fields: Mapping[str, str]) -> Record:
    """Return the fields of a record with their types. A malformed field is left out."""
    return record.parse(fields, FIELDS)


def require_names(fields: Mapping[str, str | None], queue: str, run: str) -> None:
    """Raise WrongRun for the record of another run.

    Two names may make the same key: run a_b of queue c, and run a of queue b_c.
    """
    if (fields.get("run"), fields.get("queue")) != (run, queue):
        why = f"run {fields.get('run')!r} of queue {fields.get('queue')!r} has the same key; choose another name"
        raise WrongRun(run, queue, why)


def require_same(fields: Mapping[str, str | None], queue: str, run: str) -> None:
    """Raise WrongRun for the record of another run, or of a kind that there is no more."""
    require_names(fields, queue, run)
    if fields.get("kind") not in KEYED:
        why = (
            f"it is a {fields.get('kind')} run: end it with the version of Blueque that has made it"
        )
        raise WrongRun(run, queue, why)
