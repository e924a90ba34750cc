"""How values become text in Redis and come back, and which values and names are refused."""

from __future__ import annotations

import json
from typing import Any

from blueque.errors import InvalidInput, InvalidType, TooLarge

MAX_QUEUE_NAME = 200                                   # bytes
CENTURY = 36525 * 86400.0                              # seconds; nothing that is meant takes longer


def encode(value: Any, what: str, limit: int) -> tuple[str, str | None]:
    """Return (text, encoding): a string as it is and None, anything else as JSON and "json".

    what: how a refusal names the value.
    limit: in bytes.
    Raises InvalidType, InvalidInput or TooLarge.
    """
    if isinstance(value, str):
        text, encoding = value, None
    elif isinstance(value, bytes | bytearray | memoryview):
        raise InvalidType(f"{what}: {type(value).__name__} cannot be stored; decode it, or pass a str of base64")
    else:
        text, encoding = _to_json(value, what), "json"
    size = len(text) if text.isascii() else len(_to_utf8(text, what))
    if size > limit:
        raise TooLarge(what, size, limit)
    return text, encoding


def decode(text: str | None, encoding: str | None) -> Any:
    """Return the value that `encode` was given."""
    if text is None or encoding != "json":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):               # marked as JSON by somebody else: better seen than hidden
        return text


def require_text_keys(value: Any, what: str) -> None:
    """Refuse a dict with keys that JSON would silently turn into text."""
    try:
        _require_text_keys(value, what)
    except RecursionError as error:
        raise InvalidInput(f"{what}: nested too deeply for JSON") from error


def printable(value: object, limit: int) -> str:
    """Return a text that Redis can hold, of `limit` bytes at most: what a failure leaves must never be refused itself."""
    try:
        text = str(value)
    except Exception:
        text = f"<{type(value).__name__} that cannot be shown>"
    return text.encode("utf-8", "backslashreplace")[:limit].decode("utf-8", "ignore")


def require_queue_name(name: object) -> str:
    """Return the name if a queue may have it."""
    if not isinstance(name, str):
        raise InvalidType(f"a queue name is a str, not {type(name).__name__}")
    if not name:
        raise InvalidInput("a queue name cannot be empty")
    if "\0" in name:
        raise InvalidInput(f"the queue name {name!r} holds a NUL character")
    size = len(_to_utf8(name, "the queue name"))
    if size > MAX_QUEUE_NAME:
        raise InvalidInput(f"the queue name {name[:20]!r}... takes {size} bytes; the limit is {MAX_QUEUE_NAME}")
    return name


def require_number(value: object, what: str, lowest: float = 0, highest: float = CENTURY) -> float:
    """Return the number if it lies between these two, or is one of them."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidType(f"{what} is a number, not {type(value).__name__}")
    if not lowest <= value <= highest:                 # NaN is neither
        raise InvalidInput(f"{what} is {value}; it must be from {lowest:.15g} to {highest:.15g}")
    return float(value)


def require_whole(value: object, what: str, lowest: int, highest: int) -> int:
    """Return the number if it is whole and lies between these two, or is one of them."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidType(f"{what} is a whole number, not {type(value).__name__}")
    if not lowest <= value <= highest:
        raise InvalidInput(f"{what} is {value}; it must be from {lowest} to {highest}")
    return value


def _require_text_keys(value: Any, what: str) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InvalidType(f"{what}: the key {key!r} is not a string, and would come back as one")
            _require_text_keys(inner, what)
    elif isinstance(value, list | tuple):
        for inner in value:
            _require_text_keys(inner, what)


def _to_json(value: Any, what: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except TypeError as error:
        raise InvalidType(f"{what}: {error}") from error
    except ValueError as error:                        # NaN, infinity, a value that holds itself
        raise InvalidInput(f"{what}: {error}") from error
    except RecursionError as error:
        raise InvalidInput(f"{what}: nested too deeply for JSON") from error


def _to_utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{what}: {text[error.start]!r} at position {error.start} is not a character") from error
