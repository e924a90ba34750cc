"""What a producer says about a task besides its work: a title, for people, and tags to find it by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from blueque.errors import InvalidInput, InvalidType

MAX_BYTES = 200  # of a title or a tag
MOST_TAGS = 20
NAMES = ("title", "tags")


def fields(title: str | None = None, tags: Iterable[str] | None = None) -> dict[str, str]:
    """Return the labels that are given as fields of a task. Raises InvalidInput, InvalidType."""
    if title is tags is None:  # the usual case
        return {}
    given = {} if title is None else {"title": require_title(title)}
    named = () if tags is None else require_tags(tags)
    return {**given, "tags": " ".join(named)} if named else given


def take_fields(options: dict[str, Any]) -> dict[str, str]:
    """Take the labels out of the options of a task, and return them as fields."""
    return fields(**{name: options.pop(name) for name in NAMES if name in options})


def require_title(title: object) -> str:
    """Return a title: one line of 1 to 200 bytes of UTF-8."""
    text = _require_text(title, "title: it")
    if not text.isprintable() or text.isspace():
        raise InvalidInput(f"title: {text!r} is not one line of printable text")
    return text


def require_tags(tags: object) -> list[str]:
    """Return tags, each once, in their order: at most 20."""
    if isinstance(tags, str | bytes) or not isinstance(tags, Iterable):
        raise InvalidType(f'tags: they are a list, as ["customer:17"], not {type(tags).__name__}')
    found = list(dict.fromkeys(require_tag(tag) for tag in tags))
    if len(found) > MOST_TAGS:
        raise InvalidInput(f"tags: a task has {MOST_TAGS} at most, not {len(found)}")
    return found


def require_tag(tag: object) -> str:
    """Return a tag: 1 to 200 bytes of printable UTF-8 without spaces."""
    text = _require_text(tag, "tags: a tag")
    if not text.isprintable() or " " in text:
        raise InvalidInput(f"tags: {text!r} has a space or a character that cannot be printed")
    return text


def _require_text(text: object, what: str) -> str:
    if not isinstance(text, str):
        raise InvalidType(f"{what} is text, not {type(text).__name__}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{what}: {text[error.start]!r} at position {error.start} is not a character"
        ) from error
    if not 0 < size <= MAX_BYTES:
        raise InvalidInput(f"{what} takes 1 to {MAX_BYTES} bytes, not {size}")
    return text
