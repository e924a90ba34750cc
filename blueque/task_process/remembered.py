"""Modules that a keeper has in memory so that its task processes need not read them again.

No user code runs in the keeper: a task process tells it which modules the handler has imported. The
keeper imports only those that a listener has imported as well. So a task process has no more than a
fork of the listener would have. Of the user's own modules it keeps the compiled code, which each
task process runs. This saves a sixth of the processor time of an empty task of a module with one
function.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Collection, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from types import CodeType, ModuleType
from typing import NamedTuple

_MOST_MODULES, _MOST_BYTES = 100, 2**20  # of the user's own code
_PACKAGE = os.path.dirname(os.path.dirname(__file__))

_Stamp = tuple[int, int, int, int] | None


class Imports(NamedTuple):
    """What the import of a handler has loaded.

    library: names of modules that a listener has, too. sources: the user's own, as name and path.
    """

    library: list[str]
    sources: list[tuple[str, str]]

    @classmethod
    def since(cls, before: Collection[str], library: Collection[str]) -> Imports:
        """Return what this process has imported in addition to these modules.

        library: names of the modules that the listener has.
        """
        new = [name for name in list(sys.modules) if name not in before]
        if len(sys._current_frames()) > 1:  # threads import, too; importlib has locks for that
            return cls([name for name in new if name in library], [])
        own = [(name, path) for name in new if (path := _path_of_own(name)) is not None]
        return cls([name for name in new if name in library], own[:_MOST_MODULES])


def _path_of_own(name: str) -> str | None:
    """Return the path of a user's module; None: it is installed, or not a plain source file."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    path = getattr(spec, "origin", None)
    if spec is None or type(spec.loader) is not SourceFileLoader or not isinstance(path, str):
        return None
    installed = (os.path.dirname(os.__file__), sys.prefix, sys.base_prefix, _PACKAGE)
    return None if path.startswith(tuple(place + os.sep for place in installed)) else path


class _Known(SourceFileLoader):
    """Loads a module from code in memory.

    spec: how it is loaded. module: as it is before its code is run; used once.
    """

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name, path)
        self._stamp, self.code = _stamp(path), super().get_code(name)
        is_package = self.is_package(name)
        self._place = os.path.dirname(os.path.dirname(path) if is_package else path)
        self._searched = self._search()
        self.spec = spec_from_file_location(name, path, loader=self)
        self.module = None if self.spec is None else module_from_spec(self.spec)

    def _search(self) -> dict[str, _Stamp]:
        """Return the stamps of its directory, and of those that are searched before it."""
        before: list[str] = []
        if "." not in self.name and self._place in sys.path:
            before = sys.path[: sys.path.index(self._place)]
        searched = {place: _stamp(place) for place in (*before, self._place)}
        found = PathFinder.find_spec(self.name) if before else None
        if found is None or found.origin != self.path:
            return {self._place: searched[self._place]}
        return searched

    def get_code(self, fullname: str) -> CodeType | None:
        return self.code

    def is_found(self, path: Sequence[str]) -> bool:
        """Return whether a search in these directories certainly finds this module, unchanged."""
        for place in path:
            if not place.startswith("/") or _stamp(place) != self._searched.get(place):
                return False
            if place == self._place:
                return _stamp(self.path) == self._stamp
        return False


class Remembered:
    """Imports the user's modules from memory, unless their file or a searched directory has changed."""

    def __init__(self) -> None:
        self._known: dict[str, list[_Known]] = {}  # by name
        self._bytes = 0

    def learn(self, imports: Imports, paths: list[str]) -> None:
        """Import the modules of the library, and read the others.

        paths: the import path for the library, without directories of the user at the front.
        """
        own, sys.path[:] = list(sys.path), paths
        try:
            for name in imports.library:
                with contextlib.suppress(Exception):  # a task process meets the same, and says so
                    importlib.import_module(name)
        finally:
            sys.path[:] = own
        for name, path in imports.sources:
            with contextlib.suppress(Exception):
                self._read(name, path)
        gc.collect()
        gc.freeze()  # a collection in a task process would copy all that it shares with us

    def _read(self, name: str, path: str) -> None:
        size = os.stat(path).st_size
        if self._bytes + size <= _MOST_BYTES:
            self._known.setdefault(name, []).append(_Known(name, path))
            self._bytes += size

    def load(self, name: str) -> ModuleType:
        """Import a module like importlib.

        A module from memory skips what importlib does for other modules, which writes to a hundred
        pages of memory.
        """
        if name in sys.modules:
            return importlib.import_module(name)
        package, _, own_name = name.rpartition(".")
        parent = self.load(package) if package else None
        path = sys.path if parent is None else getattr(parent, "__path__", ())
        known = self._find(name, path)
        if known is None or known.code is None or known.module is None:
            return importlib.import_module(name)
        sys.modules[name], known.module = known.module, None
        try:
            exec(known.code, sys.modules[name].__dict__)
        except BaseException:
            sys.modules.pop(name, None)
            raise
        module = sys.modules[name]  # it may have put another one in its place
        if parent is not None:
            setattr(parent, own_name, module)
        return module

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how importlib is to load a known module. None: as usual."""
        known = self._find(name, sys.path if path is None else path)
        return None if known is None else known.spec

    def _find(self, name: str, path: Sequence[str]) -> _Known | None:
        for known in self._known.get(name, ()):
            if known.is_found(path):
                return known
        return None


def _stamp(path: str) -> _Stamp:
    """Return a value that changes with a file or directory; None: it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
