"""The Python files of some modules, and whether one has changed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

MOST = 2000  # files that are looked at


class Sources:
    """The files of modules, and the other files of their packages."""

    def __init__(self, modules: Iterable[str], directory: Path) -> None:
        self._modules = [*modules]
        self._directory = directory
        self._seen = self._look()

    def has_changed(self) -> bool:
        """Return whether a file was changed, added or removed since the last call."""
        seen = self._look()
        is_other = seen != self._seen
        self._seen = seen
        return is_other

    def _look(self) -> dict[Path, tuple[float, int]]:
        found = {}
        for path in list(_files(self._modules, self._directory))[:MOST]:
            try:
                stat = path.stat()
            except OSError:  # removed meanwhile
                continue
            found[path] = (stat.st_mtime, stat.st_size)
        return found


def _files(modules: Iterable[str], directory: Path) -> Iterator[Path]:
    """Yield the files of modules; for a package, all of its files."""
    yield directory / "blueque.toml"
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    for name in modules:
        top = name.partition(".")[0]
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            continue
        for place in (spec.submodule_search_locations or ()) if spec else ():
            yield from sorted(Path(place).rglob("*.py"))
        if spec is not None and spec.origin and spec.origin.endswith(".py"):
            yield Path(spec.origin)
