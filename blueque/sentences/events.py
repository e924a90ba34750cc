"""An event in words: its name, who did it, and its facts."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from blueque.model.group import workflow_of
from blueque.text.format import span

if TYPE_CHECKING:
    from blueque.queries.history import Event

# words for people; JSON has the name of the event
_WORDS = {"released": "handed back", "put_first": "put first"}
BY_PEOPLE = {  # what people do
    *("cancelled", "requeued", "prioritized", "moved", "put_first", "interrupted", "paused"),
    *("resumed", "deleted", "purged", "set", "dropped", "cancelling", "interrupting"),
    *("unblocked", "brought_forward", "listener_paused", "listener_resumed", "listener_draining"),
    *("schedule_added", "schedule_changed", "schedule_removed"),
    *("schedule_paused", "schedule_resumed", "schedule_triggered"),
}
_REASONS = {
    "drain": "its listener drains",
    "stopped": "its listener was stopped",
    "interrupted": "interrupted by a person",
    "needs_taken": "its resources were taken",
    "no_key": "its listener lacks a payload key",
    "no_process": "no process could be started for it",
    **{f"{limit}_limit": f"near its {limit} limit" for limit in ("time", "stall", "memory")},
    "not_begun": "nothing of it has run",
    "former_life": "reserved before its listener restarted",
}


def word(event: Event) -> str:
    """Return the name of an event as people read it."""
    return _WORDS.get(event.event, event.event.replace("_", " "))


def is_wanted(event: Event, kinds: Collection[str]) -> bool:
    """Return whether an event has one of these names, or is called so for people. No kinds: any event."""
    return not kinds or event.event in kinds or word(event) in kinds


def who(event: Event) -> str:
    """Return the listener, person or workflow that did it; empty if unknown."""
    workflow = workflow_of(event.by or "")
    return event.by or "" if workflow is None else f"workflow {workflow}, all tasks made"


def facts(event: Event) -> str:
    """Return the facts of an event in words."""
    told = dict(event.facts)
    words = []
    took = told.pop("took", None)
    if isinstance(took, (int, float)):
        words.append(f"{'waited' if event.event == 'reserved' else 'ran'} {span(took)}")
    eta = told.pop("eta", None)
    if isinstance(eta, (int, float)):
        words.append(
            f"due after {span(eta - event.at)}"
            if eta > event.at
            else f"{span(event.at - eta)} late"
        )
    began = told.pop("began", None)
    if began is not None:
        words.append(f"began {_ago(event, began)}")
    kind, error = told.pop("error_type", None), told.pop("error", None)
    if error is not None:
        words.append(
            str(error) if kind is None or str(error).startswith(str(kind)) else f"{kind}: {error}"
        )
    if event.event == "noted":
        words.append(str(told.pop("text", "")))
    reason = told.pop("reason", None) if event.event in ("released", "postponed") else None
    if reason is not None:
        words.append(_REASONS.get(str(reason), str(reason)))
    words += [f"{name} {value}" for name, value in told.items()]
    return ", ".join(words)


def _ago(event: Event, began: Any) -> str:
    """Return how long before the event the attempt had begun."""
    try:
        return f"{span(max(event.at - float(began), 0.0))} before"
    except (TypeError, ValueError):  # malformed; written by another program
        return str(began)
