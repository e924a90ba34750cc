"""Python-Markdown wants an empty line before a list, and four spaces before what belongs to an item."""

from __future__ import annotations

import re
from collections.abc import Iterator

ITEM = re.compile(r"(?:[-*]|\d+\.) +")


def as_python_markdown(text: str) -> str:
    """Return a page of GitHub with its lists as Python-Markdown reads them."""
    return "\n".join(_lines(text.splitlines())) + "\n"


def _lines(lines: list[str]) -> Iterator[str]:
    columns: list[int] = []  # where the text of each open item begins
    is_code = is_paragraph = False
    for line in lines:
        words = line.lstrip()
        column = len(line) - len(words)
        while columns and words and not is_code and column < columns[-1]:
            columns.pop()
        item = None if is_code else ITEM.match(words)
        if item and is_paragraph:
            yield ""
        yield (" " * (4 * len(columns)) + line[columns[-1] if columns else 0 :]).rstrip()
        if words.startswith("```"):
            is_code = not is_code
        is_paragraph = bool(words) and not is_code and not columns and not item
        if item:
            columns.append(column + len(item[0]))
