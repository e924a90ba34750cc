"""The facts that `blueque schedule show` and the page of a recurring task show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from blueque.documents.schedules import options_of
from blueque.text.format import size, span
from blueque.text.hints import words_of

if TYPE_CHECKING:
    from blueque.queries.schedules import ScheduleSeen
    from blueque.text.redaction import Hide

_DURATIONS = ("time_limit", "stall_limit", "grace", "lead", "keep")
_COUNTS = ("made", "skipped", "missed", "triggered")


def facts(seen: ScheduleSeen, hide: Hide) -> Iterator[tuple[str, str]]:
    """Yield labels and texts: its policies, task options, recent occurrences and origin."""
    record = seen.record
    yield "overlap", record.get("overlap", "-")
    within = f", within {span(record['window'])}" if record.get("window") else ""
    yield "catch up", f"{record.get('catch_up', '-')}{within}"
    if record.get("jitter"):
        yield "jitter", f"up to {span(record['jitter'])}"
    for name, value in options_of(seen, hide).items():
        yield name.replace("_", " "), _option(name, value)
    counts = [f"{record[what]} {what}" for what in _COUNTS if record.get(what)]
    yield "so far", ", ".join(counts) or "nothing"
    origin = "a file" if record.get("origin") == "file" else "made by hand"
    yield "origin", f"{origin}, version {record.get('version', '-')}"


def _option(name: str, value: Any) -> str:
    """Return the value of an option as text; a malformed one unchanged."""
    if name == "needs":
        return words_of(str(value))
    if not isinstance(value, int | float):
        return str(value)
    if name == "memory_limit":
        return size(value)
    return span(value) if name in _DURATIONS else str(value)
