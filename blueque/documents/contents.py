"""The fields that `blueque show` adds to those of a task in a list, as JSON: see docs/json.md."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from blueque.model.encoding import known_count, seconds_of
from blueque.model.task import FIELDS, Task
from blueque.sentences.attempt_facts import number_of
from blueque.sentences.facts import json_of
from blueque.text.format import times

if TYPE_CHECKING:
    from blueque.queries.dependencies import Dependencies
    from blueque.queries.signs import Signs
    from blueque.text.redaction import Hide

_NUMBERS = (
    "priority",
    "time_limit",
    "stall_limit",
    "memory_limit",
    "grace",
    "lead",
    "failures",
    "interruptions",
    "memory_peak",
    "cpu_seconds",
    "leaked",
)
_TEXTS = (
    "last_error",
    "last_error_type",
    "progress",
    "lost_node",
    "cancelled_by",
    "cancel_reason",
    "interrupted_by",
    "interrupt_reason",
    "expired_to",
    "requeued",
    "files",
    "last_files",
    "needs",
    "broken",
    "group",
    "schedule",
    "spawned_by",
)


def contents(task: Task, hide: Hide) -> dict[str, Any]:
    """Return, as JSON, the fields that `blueque show` adds to those of a list."""
    task = task.for_people()
    found: dict[str, Any] = {name: task.fields.get(name) for name in ("error", "traceback")}
    found |= {"parameters": hide(value_of(task, "parameters")), "result": value_of(task, "result")}
    if "context" in task.fields:
        found["context"] = hide(json_of(task.fields["context"]))
    found |= {name: number_of(task, name) for name in _NUMBERS if name in task.fields}
    found |= {name: task.fields[name] for name in _TEXTS if name in task.fields}
    if "retry" in task.fields:
        found["retry"] = json.loads(task.fields["retry"]) if task.retry else task.fields["retry"]
    found |= times(progress_at=task.progress_at, cancel=task.cancel, last_seen=task.last_seen)
    if "start_before" in task.fields:
        found |= times(start_before=task.start_before)
    if "interrupted_at" in task.fields:
        found |= times(interrupted_at=task.interrupted_at)
    if "planned" in task.fields:
        found |= times(planned=seconds_of(task.fields["planned"]))
    others = {name: text for name, text in task.fields.items() if name not in FIELDS}
    return found | ({"other": others} if others else {})


def value_of(task: Task, name: str) -> Any:
    """Return parameters or result as they were given; as text if JSON cannot represent them."""
    try:
        value = getattr(task.for_people(), name)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):  # NaN, or nested too deeply, written by another program
        return task.fields.get(name)
    return value


def dependencies_item(others: Dependencies) -> dict[str, Any]:
    """Return what a task waits for, and what waits for it, for JSON."""
    conditions = [
        {
            "task": each.task.id,
            "condition": each.kind,
            "status": each.task.status,
            "queue": each.task.queue,
        }
        for each in others.conditions
    ]
    first = [task.id for task in others.first]
    return {"conditions": conditions, "dependents": others.dependents, "first_dependents": first}


def checkpoint_item(signs: Signs) -> dict[str, Any] | None:
    """Return the checkpoint of the next attempt, for JSON. None: there is none."""
    its = signs.checkpoint
    if not its:
        return None
    attempt, at = its.get("attempt", ""), seconds_of(its.get("at"))
    return {
        "attempt": known_count(attempt),
        "value": json_of(its.get("value")),
        "directory": its.get("directory"),
        **times(at=at),
    }
