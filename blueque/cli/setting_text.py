"""Settings of a queue in Redis, as a person writes them: as in blueque.toml."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from blueque.cli import printing
from blueque.model.queue_settings import BOUNDS, NAMES, RETENTION, malformed, read_setting
from blueque.text.hints import amount


def given_settings(words: Sequence[str]) -> dict[str, Any]:
    """Return the values of words such as time_limit=2h. Ends the program if a word is none."""
    found: dict[str, Any] = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not (sign and text):
            raise click.UsageError(f"{word!r}: write NAME=VALUE, as in time_limit=2h")
        if name in found:
            raise click.UsageError(f"{name} is named twice")
        found[name] = _value(text)
    return found


def shown_settings(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings in a hash by name; a malformed one as it stands there."""
    wrong = malformed(fields)
    return {
        name: wrong.get(name) or _shown(name, read_setting(name, fields[name]))
        for name in NAMES
        if name in fields
    }


def _value(text: str) -> Any:
    """Return what blueque.toml, or JSON, has for the text of a value; else it is text."""
    import tomllib  # here: for this verb only

    for load in (json.loads, lambda value: tomllib.loads(f"value = {value}")["value"]):
        try:
            return load(text)
        except (ValueError, RecursionError):  # so are the errors of both
            continue
    return text


def _shown(name: str, value: Any) -> Any:
    if name == "retry":
        return json.loads(value.to_text()) if value else False
    if name in RETENTION:
        age = {} if value.age is None else {"age": printing.span(value.age)}
        newest = {} if value.newest is None else {"newest": value.newest}
        return {**age, **newest} or "never"
    if name in BOUNDS:
        return value
    if value is None:
        return False
    if name == "weight":
        return int(value) if value.is_integer() else value
    return amount(value) if name == "memory_limit" else printing.span(value)
