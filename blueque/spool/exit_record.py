"""The fields of an exit record, and the check of a record that the task may have written itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _is_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and value.encode("utf-8", "surrogateescape") is not None
    except UnicodeEncodeError:  # half of a surrogate pair, which cannot be sent to Redis
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) < value < 2**63


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_list_of_new_tasks(value: Any) -> bool:
    """Return whether these are tasks that the task creates at its end, see `new_task.NewTask`."""
    return isinstance(value, list) and all(map(_is_new_task, value))


def _is_new_task(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 6:
        return False
    task, queue, parameters, options, conditions, eta = value
    return (
        all(map(_is_text, (task, queue, parameters)))
        and isinstance(options, dict)
        and all(
            _is_text(field) or _is_number(field) or _is_whole(field) for field in options.values()
        )
        and isinstance(conditions, dict)
        and _is_list_of_texts([*options, *conditions, *conditions.values()])
        and (eta is None or _is_number(eta))
    )


_FIELDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(
        ("result", "result_encoding", "error", "error_type", "traceback", "signal", "retry"),
        _is_text,
    ),
    **dict.fromkeys(("cpu_seconds", "finished", "retry_after"), _is_number),
    **dict.fromkeys(("exit_code", "memory_peak", "leaked"), _is_whole),
    "error_types": _is_list_of_texts,
    "handed_back": _is_flag,
}


def usable(content: dict[str, Any]) -> dict[str, Any] | None:
    """Return the record without fields of a wrong type; None: it has no valid status or new tasks."""
    status = content.get("status")
    record = {
        name: value
        for name, value in content.items()
        if name not in _FIELDS or value is None or _FIELDS[name](value)
    }
    if "then" in content and not _is_list_of_new_tasks(content["then"]):
        return None
    if status not in ("complete", "failed") or (status == "failed" and record.get("error") is None):
        return None
    return record


def usable_ending(content: dict[str, Any]) -> dict[str, Any] | None:
    """Return the record of a reaper, see `process.Reaped`; None: it is something else."""
    found = {name: content.get(name) for name in ("code", "cpu_seconds", "max_rss_bytes")}
    is_whole = (
        _is_whole(found["code"])
        and _is_number(found["cpu_seconds"])
        and _is_whole(found["max_rss_bytes"])
    )
    if content.get("dumped_core") is True:
        found["dumped_core"] = True
    return found if is_whole else None
