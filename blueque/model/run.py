"""The record of a run: its fields and their types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
