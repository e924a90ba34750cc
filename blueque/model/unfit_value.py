"""Say which part of a value JSON cannot hold."""

from __future__ import annotations

import json
from typing import Any

# An attribute of the types that people pass most, and what they pass instead.
_ADVICE = {
    "__dataclass_fields__": "dataclasses.asdict() of it",
    "model_dump": "its model_dump()",
    "__members__": "its value",
    "isoformat": "its isoformat()",
    "tolist": "its tolist()",
    "__fspath__": "str() of it",
    "as_integer_ratio": "str() or float() of it",
    "bytes_le": "str() of it",
    "fromhex": "a str of base64",
    "isdisjoint": "a list of it",
}

_ENDLESS = float("inf")


def plain_number(value: Any) -> bool | int | float:
    """Return a scalar of NumPy, PyTorch or the like as a plain number. Raises TypeError."""
    kind = getattr(value, "dtype", None)
    if kind is not None and getattr(value, "shape", None) == () and hasattr(value, "item"):
        plain = value.item()
        # numpy gives a time as a number, too, but without its unit.
        if isinstance(plain, int | float) and getattr(kind, "kind", "") not in "mM":
            return plain
    raise TypeError


def why(value: Any, what: str, error: object = "") -> str:
    """Return a sentence about the first part that JSON cannot represent.

    what: names the value, as "the result". error: the text to use if no part is found.
    """
    name = what.removeprefix("the ")
    place = name.partition(" ")[0]
    try:
        found = _why(value, place, ())
    except RecursionError:
        return f"{what}: nested too deeply for JSON"
    if found is None:
        return f"{what}: {error}"
    if found.startswith(f"{place} "):
        return f"{what}: it{found[len(place) :]}"
    return found if place == name else f"{what}: {found}"


def _why(value: Any, place: str, around: tuple[int, ...]) -> str | None:
    if value is None or isinstance(value, str | bool | int):
        return None
    if isinstance(value, float):
        return (
            None
            if -_ENDLESS < value < _ENDLESS
            else f"{place} is {value}, which JSON does not have; pass None"
        )
    if isinstance(value, dict | list | tuple):
        return _why_inside(value, place, around)
    try:
        return _why(plain_number(value), place, around)
    except TypeError:
        kind = type(value)
    advice = next((f"; pass {say}" for name, say in _ADVICE.items() if hasattr(kind, name)), "")
    return f"{place} is of the type {kind.__name__}, which JSON does not have{advice}"


def _why_inside(value: Any, place: str, around: tuple[int, ...]) -> str | None:
    if id(value) in around:
        return f"{place} holds itself"
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in pairs:
        if isinstance(value, dict) and not isinstance(key, str):
            return f"{place} has the key {key!r}, not a string: write it as one"
        step = json.dumps(key, ensure_ascii=False)
        if found := _why(inner, f"{place}[{step}]", (*around, id(value))):
            return found
    return None
