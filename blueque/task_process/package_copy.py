"""A copy of the package in memory, as it was when a listener began.

Without it, replacing the package under a running listener would make late imports of its handlers
fail or load another version.
"""

from __future__ import annotations

import contextlib
import fcntl
import marshal
import os
from collections.abc import Collection, Iterator, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source, spec_from_file_location
from types import CodeType, ModuleType
from typing import NamedTuple

_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_NO_PART_OF_A_TASK = {"cli", "demo", "report", "__pycache__"}
# What a task process may need late of the standard library, with all that these modules import and
# that is not built in: 1 MB in each process that has it. An upgrade of Python may replace it, too.
_LIBRARY = (
    "datetime",
    "fnmatch",
    "glob",
    "ipaddress",
    "linecache",
    "ntpath",
    "pathlib",
    "shutil",
    "textwrap",
    "token",
    "tokenize",
    "traceback",
    "urllib",
)
_HEADER = 16  # bytes before the code in a .pyc file
_DESCRIPTOR = 251  # of the copy: higher than what open() gives to a task
_END = 8  # bytes at the end of the file that say where the list of the copies begins


class _Copy(NamedTuple):
    """The place of the copy of a module. is_compiled: False: it is the source."""

    path: str
    is_package: bool
    first: int
    size: int
    is_compiled: bool


class _Copied(SourceFileLoader):
    """Loads a module of Blueque from the copy of its file."""

    def __init__(self, name: str, copy: _Copy, copies: PackageCopy) -> None:
        super().__init__(name, copy.path)
        self._copy, self._copies = copy, copies

    def get_code(self, fullname: str) -> CodeType | None:
        content = self._copies.read(self._copy)
        if content is None:
            return super().get_code(fullname)
        if self._copy.is_compiled:
            code: CodeType = marshal.loads(content)
            return code
        return self.source_to_code(content, self.path)


def make() -> int:
    """Copy all modules of Blueque that a task may import, and some of the standard library, into a
    file in memory.

    Return its descriptor, for `PackageCopy`. The master creates it, so that no fork copies any of
    it and all keepers read the same file.
    Raises OSError.
    """
    file = os.memfd_create("blueque-package", os.MFD_CLOEXEC)
    with contextlib.suppress(OSError):  # the limit of open files is lower
        opened = file
        file = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, _DESCRIPTOR)
        os.close(opened)
    copies: dict[str, _Copy] = {}
    end = 0
    library = os.path.dirname(os.__file__)
    for name, path in (
        ("blueque", f"{_PACKAGE}/__init__.py"),
        *_sources("blueque", _PACKAGE),
        *_sources("", library, _LIBRARY),
    ):
        content, is_compiled = _content(path)
        is_package = os.path.basename(path) == "__init__.py"
        copies[name] = _Copy(path, is_package, end, len(content), is_compiled)
        end += os.pwrite(file, content, end)
    listed = marshal.dumps({name: tuple(copy) for name, copy in copies.items()})
    os.pwrite(file, listed + end.to_bytes(_END, "little"), end)
    return file


def program(file: int, module: str) -> str:
    """Return a program for `python -c` that imports all of Blueque from the copy and calls
    `main_program` of a module.
    """
    own = _list(file)[__name__]
    code = f"os.pread({file}, {own.size}, {own.first})"
    return f"""\
import marshal, os, sys
from importlib.machinery import PathFinder
own = {{"__name__": {__name__!r}, "__file__": {own.path!r}}}
exec({f"marshal.loads({code})" if own.is_compiled else code}, own)
sys.meta_path.insert(sys.meta_path.index(PathFinder), own["PackageCopy"]({file}))
from {module} import main_program
main_program()
"""


def _list(file: int) -> dict[str, _Copy]:
    """Return the places of the copies, by the names of the modules."""
    size = os.fstat(file).st_size
    begin = int.from_bytes(os.pread(file, _END, size - _END), "little")
    listed = marshal.loads(os.pread(file, size - _END - begin, begin))
    return {name: _Copy(*copy) for name, copy in listed.items()}


class PackageCopy:
    """A finder of the modules in a copy. file: see `make`."""

    def __init__(self, file: int) -> None:
        self.file = file
        self._identity = self._identify()
        self._copies = _list(file)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to load the module; None: there is no copy of it."""
        copy = self._copies.get(name)
        if copy is None:
            return None
        below = [os.path.dirname(copy.path)] if copy.is_package else None
        loader = _Copied(name, copy, self)
        return spec_from_file_location(
            name, copy.path, loader=loader, submodule_search_locations=below
        )

    def read(self, copy: _Copy) -> bytes | None:
        """Return the content; None: the task has closed the file or opened another under its number."""
        if self._identify() != self._identity:
            return None
        return os.pread(self.file, copy.size, copy.first)

    def _identify(self) -> tuple[int, int] | None:
        try:
            status = os.fstat(self.file)
        except OSError:
            return None
        return status.st_dev, status.st_ino


def _sources(
    package: str, directory: str, wanted: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """Yield name and path of each module of the package that a task may import.

    package: empty: they belong to no package. wanted: names of modules; empty: all.
    """
    for entry in os.scandir(directory):
        stem, suffix = os.path.splitext(entry.name)
        name = f"{package}.{stem}" if package else stem
        if wanted and stem not in wanted:
            continue
        if suffix == ".py" and stem != "__init__":
            yield name, entry.path
        elif entry.name not in _NO_PART_OF_A_TASK and entry.is_dir():
            path = f"{entry.path}/__init__.py"
            if os.path.exists(path):
                yield name, path
                yield from _sources(name, entry.path)


def _content(path: str) -> tuple[bytes, bool]:
    """Return the compiled code of a source file, or else the source; and whether it is compiled."""
    status = os.stat(path)
    wanted = b"".join(
        number.to_bytes(4, "little")
        for number in (0, int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
    )
    with contextlib.suppress(OSError, NotImplementedError):
        with open(cache_from_source(path), "rb") as file:
            content = file.read()
        if content[:_HEADER] == MAGIC_NUMBER + wanted:
            return content[_HEADER:], True
    with open(path, "rb") as file:
        return file.read(), False
