"""Recurring and scheduled tasks, for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from blueque.documents.schema import to_object
from blueque.model.schedule import read_options
from blueque.text.format import times

if TYPE_CHECKING:
    from blueque.model.schedule import Occurrence
    from blueque.queries.schedules import ScheduleSeen
    from blueque.sentences.reason import Reason
    from blueque.text.redaction import Hide

_COUNTED = ("made", "skipped", "missed", "triggered", "failures")


def of_schedules(
    seen: Sequence[ScheduleSeen], count: int, now: float, hide: Hide
) -> dict[str, Any]:
    """Return the content of `schedules`: recurring tasks. count: how many there are."""
    return {
        **times(now=now),
        "items": [item(each, hide) for each in seen],
        "has_more": count > len(seen),
        "more": count - len(seen),
    }


def of_recurring(
    seen: ScheduleSeen, planned: Iterable[float], reasons: Iterable[Reason], hide: Hide
) -> dict[str, Any]:
    """Return the content of `recurring`. planned: the next times."""
    return {
        **times(now=seen.now),
        "item": item(seen, hide),
        "next": [times(planned=each) for each in planned],
        "reasons": [reason._asdict() for reason in reasons],
    }


def of_history(
    seen: ScheduleSeen, found: Iterable[Occurrence], states: Mapping[str, str | None]
) -> dict[str, Any]:
    """Return the content of `schedule_history`. states: of the tasks now, by id."""
    items = [_entry(each, states) for each in found]
    return {"name": seen.name, **times(now=seen.now), "items": items}


def item(seen: ScheduleSeen, hide: Hide) -> dict[str, Any]:
    """Return a recurring task."""
    counts = {name: seen.record.get(name, 0) for name in _COUNTED}
    return to_object(
        "one recurring task",
        seen.record,
        name=seen.name,
        parameters=hide(seen.template.parameters),
        options=options_of(seen, hide),
        overdue_seconds=seen.overdue,
        current_status=seen.status,
        current_since=seen.since,
        **counts,
    )


def options_of(seen: ScheduleSeen, hide: Hide) -> dict[str, Any]:
    """Return the options of its tasks, with the secrets of the context hidden."""
    found = read_options(seen.fields)
    if "context" not in found:
        return found
    return found | {"context": hide(seen.template.fields["context"])}


def _entry(each: Occurrence, states: Mapping[str, str | None]) -> dict[str, Any]:
    status = None if each.task is None else states[each.task]
    return to_object("one occurrence", each, times=each.times or 1, status=status, was=each.status)
