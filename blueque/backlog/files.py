"""The files of a backlog: which exist, their order, and how to recognise a file that was fed."""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import os
import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, NoReturn
from urllib.parse import unquote

from blueque.errors import BacklogRefused, InvalidInput, InvalidType

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

PARQUET = (".parquet", ".pq")
JSON_LINES = (".jsonl", ".ndjson", ".json")
_ENDS = (*PARQUET, *JSON_LINES, *(f"{end}.gz" for end in JSON_LINES))
_SAMPLE = 1 << 16  # bytes at each end of a file from which its mark is made
_WILDCARD = re.compile(r"[*?[]")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


class BacklogFile(NamedTuple):
    """One file.

    name: its name in the record of the feed. path: where it is.
    constants: columns that its directories add to all its rows, such as `day=2026-11-21`.
    """

    name: str
    path: str
    constants: dict[str, str | None]

    @property
    def is_parquet(self) -> bool:
        return self.path.lower().endswith(PARQUET)

    @property
    def order(self) -> list[str]:
        """The sort key: the name, directory by directory."""
        return self.name.split("/")


class Backlog:
    """The files to feed: a directory tree, a file, a pattern such as `backlog/*.parquet`, or
    several of these.

    The name of a file below a given directory is its path from there. For a pattern, it is the path
    from the last directory before the wildcards. For a given file, it is the last name. So
    `backlog`, `backlog/*.jsonl` and its expansion by a shell give the same names, for any number of
    files and wherever the directory is mounted. In a directory, names that begin with `_` or `.`
    are left out, and names without the ending of Parquet or JSON lines.
    """

    def __init__(self, source: Source) -> None:
        given = [source] if isinstance(source, str | os.PathLike) else source
        if isinstance(given, bytes) or not isinstance(given, Sequence):
            raise InvalidType(
                f"a backlog is a path, or a list of paths, not {type(source).__name__}"
            )
        self._paths = [os.fsdecode(path) for path in given]
        if not self._paths:
            raise InvalidInput("a backlog needs at least one path")

    def __str__(self) -> str:
        more = f" and {len(self._paths) - 1} more" if len(self._paths) > 1 else ""
        return f"{self._paths[0]}{more}"

    def files(self, known: Collection[str] = ()) -> list[BacklogFile]:
        """Return the files that exist now, sorted.

        known: names of files that may be gone.
        Raises BacklogRefused when a path does not exist, when two files have the same name, or when
        a file is given twice.
        """
        found: dict[str, BacklogFile] = {}
        names: dict[str, str] = {}  # by the paths
        for path in self._paths:
            for one in _expand(path, known):
                first, place = found.setdefault(one.name, one), os.path.abspath(one.path)
                if os.path.abspath(first.path) != place:
                    why = f"both {first.path} and {one.path} have that name: give the directory above them"
                    raise BacklogRefused(one.name, None, why)
                if names.setdefault(place, one.name) != one.name:
                    raise BacklogRefused(
                        one.path, None, f"it is given twice, as {names[place]} and as {one.name}"
                    )
        return sorted(found.values(), key=lambda one: one.order)

    def is_there(self) -> bool:
        """Return whether there is any file."""
        return any(os.path.exists(path) or glob.glob(path, recursive=True) for path in self._paths)


def mark_of(file: BacklogFile, known: str | None = None) -> str:
    """Return what tells a file from another of the same name: its size, its time, and a digest of
    both its ends.

    known: an earlier mark, which is returned if it is the same file, even copied or touched.
    Raises BacklogRefused when it cannot be read.
    """
    try:
        status = os.stat(file.path)
        size, changed = status.st_size, status.st_mtime_ns
        if known is not None and known.split(" ")[:2] == [str(size), str(changed)]:
            return known
        with open(file.path, "rb") as opened:
            digest = hashlib.blake2b(opened.read(_SAMPLE), digest_size=16)
            opened.seek(max(size - _SAMPLE, 0))
            digest.update(opened.read(_SAMPLE))
    except OSError as error:
        raise BacklogRefused(file.name, None, f"cannot be read: {error.strerror}") from error
    mark = f"{size} {changed} {digest.hexdigest()}"
    return known if known is not None and known.split(" ")[::2] == mark.split(" ")[::2] else mark


def size_of(mark: str) -> int:
    """Return the size in bytes of the file with this mark."""
    return int(mark.partition(" ")[0])


def _expand(path: str, known: Collection[str]) -> Iterable[BacklogFile]:
    if os.path.isdir(path):
        return _below(path)
    if os.path.exists(path):
        if not _is_readable(path):
            raise BacklogRefused(path, None, f"it ends in none of {', '.join(_ENDS)}")
        return [BacklogFile(os.path.basename(path), path, {})]
    matches = [match for match in glob.glob(path, recursive=True) if not os.path.isdir(match)]
    if not matches and not _is_known(path, known):
        raise BacklogRefused(path, None, "there is no such file or directory")
    base = _base(path)
    return [
        BacklogFile(os.path.relpath(match, base).replace(os.sep, "/"), match, {})
        for match in matches
        if _is_readable(match)
    ]


def _is_known(path: str, known: Collection[str]) -> bool:
    """Return whether a path without a file stands for known files that are gone."""
    if os.path.basename(path) in known:
        return True
    if not _WILDCARD.search(path) or not os.path.isdir(_base(path)):
        return False
    pattern = os.path.relpath(path, _base(path)).replace(os.sep, "/").replace("**/", "*")
    return any(fnmatch.fnmatchcase(name, pattern) for name in known)


def _base(pattern: str) -> str:
    """Return the directory before the first wildcard of a pattern."""
    return os.path.dirname(_WILDCARD.split(pattern, maxsplit=1)[0]) or os.curdir


def _below(directory: str) -> Iterable[BacklogFile]:
    def refuse(error: OSError) -> NoReturn:
        raise BacklogRefused(
            str(error.filename), None, f"cannot be read: {error.strerror}"
        ) from error

    for place, inner, names in os.walk(directory, onerror=refuse, followlinks=True):
        inner[:] = [name for name in inner if not name.startswith(("_", "."))]
        below = os.path.relpath(place, directory)
        parts = [] if below == "." else below.split(os.sep)
        for name in names:
            path = os.path.join(place, name)
            if _is_readable(name):
                yield BacklogFile("/".join([*parts, name]), path, dict(_constants(parts)))


def _constants(parts: Iterable[str]) -> Iterable[tuple[str, str | None]]:
    for part in parts:
        column, sign, value = part.partition("=")
        if sign and column:
            yield unquote(column), None if value == _NO_VALUE else unquote(value)


def _is_readable(path: str) -> bool:
    name = os.path.basename(path)
    return name.lower().endswith(_ENDS) and not name.startswith(("_", "."))
