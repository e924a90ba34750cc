"""Describe a task in a few words: its title or key, or else its parameters without secrets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.text.redaction import Hide

NAMES = ("title", "key")  # fields that name a task, the best first
_MOST = 60  # characters of parameters


def what(task: Task, hide: Hide) -> str | None:
    """Return the name of a task; without one, the beginning of its parameters: intro, camera=2.

    None: neither is known.
    """
    for name in NAMES:
        if name in task.fields:
            return task.fields[name]
    if "parameters" not in task.fields:
        return None
    try:
        given = hide(task.for_people().parameters)
        text = "" if given is None else " ".join(_words(given).split())
    except RecursionError:  # nested too deeply; written by another program
        return None
    return (text if len(text) <= _MOST else f"{text[: _MOST - 3]}...") or None


def is_named(task: Task) -> bool:
    """Return whether a task has a name, so that its parameters are not needed."""
    return any(name in task.fields for name in NAMES)


def _words(value: Any) -> str:
    if isinstance(value, dict):
        words = [f"{name}={_word(one)}" for name, one in value.items()]
        first = next(iter(value.values()), None)
        # Text mostly says enough without its name, and the first of several is the best one.
        return ", ".join([first, *words[1:]] if isinstance(first, str) and first else words)
    return ", ".join(map(_word, value)) if isinstance(value, list) else _word(value)


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        value = float(f"{value:.12g}")  # 0.3, not 0.30000000000000004
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
