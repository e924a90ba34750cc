"""Fit text to a terminal: names are cut, ids shortened, sentences wrapped. In a pipe, a file and on
a page, every value is whole.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# A command at the end of a sentence or in it: `To see why: blueque why ID`.
_COMMAND = re.compile(r"(?<=: )blueque[ -](?:(?![.,;)] ).)*")
_GLUE = "\0"  # for the spaces of a command; `clean` leaves none in a text
_LONGEST_PATH = 1024  # characters


def short_id(task_id: str) -> str:
    """Return the first eight characters of a UUID on a terminal; else the whole id."""
    return task_id[:8] if is_terminal() and _UUID.fullmatch(task_id) else task_id


def short_ids(text: str) -> str:
    """Shorten the UUIDs in a text as `short_id` does."""
    return _UUID.sub(lambda match: short_id(match[0]), text)


def short_node(node: str) -> str:
    """Return the node id without the domain of its host on a terminal, whole in a pipe."""
    host, separator, pid = node.rpartition("_")
    return f"{host.partition('.')[0]}{separator}{pid}" if is_terminal() and host else node


def within(text: str, columns: int | None = None) -> str:
    """Cut the text to the width of the terminal, if there is one.

    columns: how many to use; None: all.
    """
    if not is_terminal():
        return text
    return cut(text, terminal_width() if columns is None else columns)


def lines(text: str, columns: int) -> list[str]:
    """Wrap the text between words; a path stays whole, however long it is."""
    found = [""]
    for place, word in enumerate(text.split(" ")):
        if place:
            word = f" {word}"
        if width(found[-1]) + width(word) <= columns:
            found[-1] += word
            continue
        word = word.lstrip() if found[-1] else word
        parts = [word] if _is_path(word) or _GLUE in word else pieces(word, columns)
        found[-1:] = [found[-1], *parts] if found[-1] else parts
    return found


def wrapped(text: str, columns: int | None = None) -> list[str]:
    """Wrap a sentence; a command in it stays whole, to be copied.

    columns: None: those of the terminal.
    """
    glued = _COMMAND.sub(lambda match: match[0].replace(" ", _GLUE), text)
    return [
        line.replace(_GLUE, " ")
        for line in lines(glued, terminal_width() if columns is None else columns)
    ]


def pieces(text: str, columns: int) -> list[str]:
    """Cut the text into pieces of at most `columns`; an empty text is one empty piece."""
    found, used = [""], 0
    for character in text:
        used += _columns(character)
        if used > columns:
            found.append("")
            used = _columns(character)
        found[-1] += character
    return found


def width(text: str) -> int:
    """Return the columns of a text: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def is_terminal() -> bool:
    return sys.stdout.isatty()


def terminal_width() -> int:
    """Return the columns of the terminal on standard output, or else on standard error."""
    try:
        otherwise = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        otherwise = os.terminal_size((80, 24))
    return max(shutil.get_terminal_size(otherwise).columns, 20)


def _is_path(word: str) -> bool:
    """Return whether a word is a path, also on another host, or an address."""
    name = word.strip(" \"'(),.:;")
    return "/" in name and len(name) <= _LONGEST_PATH and not {'"', "'"} & set(name)


def cut(text: str, columns: int) -> str:
    """Cut the text to this many columns, with a mark at the end. A number that does not fit is left
    out, unless it is part of a word, or all that there is.
    """
    if width(text) <= columns:
        return text
    mark, used, kept = _ellipsis(), 1, ""
    for character in text:
        used += _columns(character)
        if used > columns:
            break
        kept += character
    is_in_number = text[len(kept)] in "0123456789.,"
    return (re.sub(r"(?<![\w.,])(?<!^)[\d.,]+$", "", kept) if is_in_number else kept) + mark


def _ellipsis() -> str:
    try:
        "…".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return "~"
    return "…"


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
