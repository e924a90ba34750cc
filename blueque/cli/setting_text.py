"""Settings of a queue in Redis, as a person writes them: as in blueque.toml."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

_OF_MAX_RUNNING = ("concurrency", "max_concurrency", "limit", "max_tasks", "parallel")


def given_settings(words: Sequence[str]) -> dict[str, Any]:
    """Return the values of words such as time_limit=2h or max-running=8; None: NAME= removes it.

    Ends the program if a word is not one of these.
    """
    found: dict[str, Any] = {}
    for word in words:
        name, sign, text = word.partition("=")
        name = name.replace("-", "_")
        if not sign:
            raise click.UsageError(f"{word!r}: write NAME=VALUE, as in time_limit=2h")
        if name in _OF_MAX_RUNNING:
            raise click.UsageError(f"{name} is called max-running here: max-running=N")
        if name in found:
            raise click.UsageError(f"{name} is named twice")
        found[name] = _value(text) if text else None
    return found


def _value(text: str) -> Any:
    """Return the value of a text in TOML or JSON; other text stays text."""
    import tomllib  # here: for this verb only

    for load in (json.loads, lambda value: tomllib.loads(f"value = {value}")["value"]):
        try:
            return load(text)
        except (ValueError, RecursionError):  # so are the errors of both
            continue
    return text
