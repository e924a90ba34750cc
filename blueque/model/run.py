"""The record of a run: its fields and their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from blueque.errors import WrongRun

# The fields of a record. Type and meaning as in docs/protocol/bulk.md, "Runs"; every value is text
# in Redis.
FIELDS: dict[str, Callable[[str], Any]] = {
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
    "created": float,
    "decided": float,
    "finished": float,
}

Record = dict[str, Any]


def parse(fields: Mapping[str, str]) -> Record:
    """Return the fields of a record with their types; one that makes no sense is left out."""
    record: Record = {}
    for name, read in FIELDS.items():
        if name in fields:
            try:
                record[name] = read(fields[name])
            except ValueError:
                continue
    return record


def require_same(fields: Mapping[str, str | None], queue: str, run: str, *kinds: str) -> None:
    """Refuse a record that is not of this run. Two names may make the same key: run a_b of queue c,
    and a of b_c.
    """
    if (fields.get("run"), fields.get("queue")) != (run, queue):
        why = f"run {fields.get('run')!r} of queue {fields.get('queue')!r} has the same key; choose another name"
        raise WrongRun(run, queue, why)
    if fields.get("kind") not in kinds:
        raise WrongRun(
            run, queue, f"it is a {fields.get('kind')} run, not a {' or '.join(kinds)} one"
        )
