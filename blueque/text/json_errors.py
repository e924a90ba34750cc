"""Parse JSON, and say what is wrong with text that is not JSON."""

from __future__ import annotations

import json
from typing import Any

from blueque.errors import InvalidInput


class NotJson(InvalidInput):
    """The text is not JSON: perhaps it was meant as a string."""


def as_json(content: bytes) -> Any:
    """Parse JSON in UTF-8. Raises InvalidInput."""
    text = as_text(content)
    try:
        return json.loads(text)
    except RecursionError as error:
        raise InvalidInput("the JSON is nested too deeply") from error
    except ValueError as error:
        some = text if len(text) <= 30 else f"{text[:30]}..."
        raise NotJson(f"not valid JSON: {some!r} ({error})") from error


def as_text(content: bytes) -> str:
    """Decode UTF-8. Raises InvalidInput."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"not UTF-8: byte {content[error.start]:#04x} at position {error.start}"
        ) from error
