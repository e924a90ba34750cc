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
    "batch": int,
    "query": str,
    "rows": int,
    "tasks": int,
    "decided_by": str,
    "created": record.number,
    "decided": record.number,
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
# The kinds of runs with keys, and of those whose tasks come all at once. A linked run is of a kind
# of its own, and has a state of its own while it is published: programs that know nothing of links
# then refuse it, and leave it alone.
KEYED = ("keyed", "keyed_linked")
STAGED = ("staged", "staged_linked")
PUBLISHED = ("committing", "publishing")  # the states of a run that is being published

Record = dict[str, Any]


def kinds_like(kind: str) -> tuple[str, ...]:
    """Return this kind of run with and without links."""
    return next((kinds for kinds in (KEYED, STAGED) if kind in kinds), (kind,))


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


def require_same(fields: Mapping[str, str | None], queue: str, run: str, *kinds: str) -> None:
    """Raise WrongRun for the record of another run or of another kind.

    Two names may make the same key: run a_b of queue c, and run a of queue b_c.
    """
    if (fields.get("run"), fields.get("queue")) != (run, queue):
        why = f"run {fields.get('run')!r} of queue {fields.get('queue')!r} has the same key; choose another name"
        raise WrongRun(run, queue, why)
    if fields.get("kind") not in kinds:
        wanted = " or ".join(kind for kind in kinds if not kind.endswith("_linked"))
        found = str(fields.get("kind"))
        plain = found.removesuffix("_linked")
        kind = found if plain in kinds else plain
        raise WrongRun(run, queue, f"it is a {kind} run, not a {wanted} one")
