"""In which line of a TOML text each key stands: the standard library reads such a text and does not
tell.
"""

from __future__ import annotations

import re
import tomllib
from typing import NamedTuple

Path = tuple[str, ...]

_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r]+|\#[^\n]*)"""
    r"""|(?P<line>\n)"""
    r'''|(?P<text>"""(?:\\.|[^\\])*?"{3,5}|\'{3}.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*')'''
    r"""|(?P<mark>[\[\]{},=.])"""
    r"""|(?P<word>[^\s\[\]{},=.\#"']+)""",
    re.DOTALL,
)


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def lines_of_keys(text: str) -> dict[Path, int]:
    """Return the line, counted from 1, where each key and each table is first mentioned, by its
    path from the top.

    text: valid TOML.
    """
    return _Scan(text).found


class _Scan:
    def __init__(self, text: str) -> None:
        self.found: dict[Path, int] = {}
        self._tokens = _tokens(text)
        self._at = 0
        table: Path = ()
        while (token := self._next()).kind != "end":
            if token.kind == "line":
                continue
            if token.text == "[" and token.kind == "mark":
                self._pass("[")  # of an array of tables
                table = self._key(())
                self._pass("]")
                self._pass("]")
            else:
                self._at -= 1
                self._pair(table)

    def _pair(self, table: Path) -> None:
        path = self._key(table)
        self._pass("=")
        self._value(path)

    def _key(self, table: Path) -> Path:
        """Read a key, dotted perhaps, and note where each of its parts was first mentioned."""
        path = table
        while True:
            token = self._next()
            path = (*path, _plain(token))
            self.found.setdefault(path, token.line)
            if not self._pass("."):
                return path

    def _value(self, path: Path) -> None:
        if self._pass("{"):
            while not self._passes("}"):
                self._pair(path)
                self._passes(",")
        elif self._pass("["):
            while not self._passes("]"):
                self._value(path)
                self._passes(",")
        else:
            while not self._is_end_of_value():
                self._at += 1

    def _is_end_of_value(self) -> bool:
        token = self._tokens[self._at]
        return token.kind in ("line", "end") or (token.kind == "mark" and token.text in ",]}")

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        self._at += token.kind != "end"
        return token

    def _pass(self, mark: str) -> bool:
        """Go past the mark, if it comes next."""
        token = self._tokens[self._at]
        is_it = token.kind == "mark" and token.text == mark
        self._at += is_it
        return is_it

    def _passes(self, mark: str) -> bool:
        """The same where there may be ends of lines before it, as between the values of an array."""
        while self._tokens[self._at].kind == "line":
            self._at += 1
        return self._tokens[self._at].kind == "end" or self._pass(mark)


def _tokens(text: str) -> list[_Token]:
    tokens, line = [], 1
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "skip":
            tokens.append(_Token(match.lastgroup or "", match[0], line))
        line += match[0].count("\n")
    return [*tokens, _Token("end", "", line)]


def _plain(token: _Token) -> str:
    """Return the name that a part of a key stands for."""
    return next(iter(tomllib.loads(f"{token.text} = 0"))) if token.kind == "text" else token.text
