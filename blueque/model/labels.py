"""What a producer says about a task besides its work: a title, for people."""

from __future__ import annotations

from typing import Any

from blueque.errors import InvalidInput, InvalidType

MAX_TITLE = 200  # bytes
NAMES = ("title",)


def fields(title: str | None = None) -> dict[str, str]:
    """Return the labels that are given as fields of a task. Raises InvalidInput, InvalidType."""
    return {} if title is None else {"title": require_title(title)}


def take_fields(options: dict[str, Any]) -> dict[str, str]:
    """Take the labels out of the options of a task, and return them as fields."""
    return fields(**{name: options.pop(name) for name in NAMES if name in options})


def require_title(title: object) -> str:
    """Return a title of one line: 1 to 200 bytes of UTF-8."""
    if not isinstance(title, str):
        raise InvalidType(f"title: it is text, not {type(title).__name__}")
    try:
        size = len(title.encode())
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"title: {title[error.start]!r} at position {error.start} is not a character"
        ) from error
    if not 0 < size <= MAX_TITLE:
        raise InvalidInput(f"title: it takes 1 to {MAX_TITLE} bytes, not {size}")
    if not title.isprintable() or title.isspace():
        raise InvalidInput(f"title: {title!r} is not one line of printable text")
    return title
