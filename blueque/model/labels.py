"""The labels of a task: a title for people, tags to find it by, and the context of its producer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from blueque.errors import InvalidInput, InvalidType, TooLarge
from blueque.model.encoding import encode_json, to_utf8

MAX_BYTES = 200  # of a title or a tag
MOST_TAGS = 20
MAX_CONTEXT = 65536  # bytes; a program gets it in a variable, which Linux limits
NAMES = ("title", "tags", "context")
NO_TRACE: Mapping[str, str] = MappingProxyType({})


def fields(
    title: str | None = None,
    tags: Iterable[str] | None = None,
    context: Mapping[str, Any] | None = None,
    trace: Mapping[str, str] = NO_TRACE,
) -> dict[str, str]:
    """Return these labels as fields of a task. Raises InvalidInput, InvalidType.

    trace: of the caller, see trace.py. It is added to the context, unless that has a trace or no room.
    """
    if title is tags is context is None and not trace:  # the usual case
        return {}
    given = {} if title is None else {"title": require_title(title)}
    if tags is not None and (named := require_tags(tags)):
        given["tags"] = " ".join(named)
    if context is not None and (text := require_context(context)) != "{}":
        given["context"] = text
    if trace and not trace.keys() & (context or {}).keys():
        with suppress(TooLarge):
            given["context"] = require_context({**(context or {}), **trace})
    return given


def require_title(title: object) -> str:
    """Return a title: one line of 1 to 200 bytes of UTF-8."""
    text = _require_text(title, "title: it")
    if not text.isprintable() or text.isspace():
        raise InvalidInput(f"title: {text!r} is not one line of printable text")
    return text


def require_tags(tags: object) -> list[str]:
    """Return at most 20 tags, each once, in their order; a set is sorted."""
    if isinstance(tags, str | bytes | Mapping) or not isinstance(tags, Iterable):
        raise InvalidType(f'tags: write a list, as ["customer:17"], not {type(tags).__name__}')
    found = list(dict.fromkeys(require_tag(tag) for tag in tags))
    if isinstance(tags, Set):
        found.sort()
    if len(found) > MOST_TAGS:
        raise InvalidInput(f"tags: a task has {MOST_TAGS} at most, not {len(found)}")
    return found


def require_tag(tag: object) -> str:
    """Return a tag: 1 to 200 bytes of printable UTF-8 without spaces."""
    text = _require_text(tag, "tags: a tag")
    if not text.isprintable() or " " in text:
        raise InvalidInput(f"tags: {text!r} has a space or a character that cannot be printed")
    return text


def require_context(context: object) -> str:
    """Return a context as JSON, which takes 64 KiB at most. Raises InvalidType, InvalidInput, TooLarge."""
    if not isinstance(context, Mapping):
        raise InvalidType(f"context: it is a dict, not {type(context).__name__}")
    return encode_json(dict(context), "context", MAX_CONTEXT)


def read_context(text: str) -> dict[str, Any]:
    """Return the context in a field. Raises ValueError if it is malformed."""
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def bytes_left_for_parameters(options: Mapping[str, Any], max_bytes: int) -> int:
    """Return how many bytes the parameters of tasks with these fields may take, besides the context.

    Raises TooLarge if the context takes more than there are.
    """
    if "context" not in options:
        return max_bytes
    size = len(str(options["context"]).encode())
    if size > max_bytes:
        raise TooLarge("context", size, max_bytes)
    return max_bytes - size


def _require_text(text: object, what: str) -> str:
    if not isinstance(text, str):
        raise InvalidType(f"{what} is text, not {type(text).__name__}")
    size = len(to_utf8(text, what))
    if not 0 < size <= MAX_BYTES:
        raise InvalidInput(f"{what} takes 1 to {MAX_BYTES} bytes, not {size}")
    return text
