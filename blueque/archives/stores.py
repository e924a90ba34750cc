"""The place of an archive through pyarrow.fs: a directory or an object store; and which stores are
tested.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from blueque.errors import ArchiveRefused
from blueque.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa

TESTED = ("s3",)
REQUESTS_AT_ONCE = 16  # requests
# the scheme of a URL, also without slashes behind it: dbfs:/x
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
# These have no folders, or make them by themselves.
_WITHOUT_FOLDERS = ("s3", "gcs", "abfs")


class Store:
    """The files below a directory or a URL. Paths are those of pyarrow, from `path` and `below`."""

    def __init__(self, url: str) -> None:
        self._url = url

    def is_file(self) -> bool:
        """Return whether the place is a file, not a directory."""
        return bool(self._files.get_file_info(self.path()).is_file)

    def is_empty(self) -> bool:
        """Return whether the place exists and has nothing but hidden names, which begin with _ or a dot."""
        from pyarrow.fs import FileType  # here, because it takes time: see arrow.py

        kind = self._files.get_file_info(self.path()).type
        is_there = kind == FileType.Directory
        return is_there and all(name[0] in "._" for name in self.names(self.path()))

    def path(self, *names: str) -> str:
        return posixpath.join(self._opened[1], *names)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; nothing if there is no such folder."""
        return sorted(info.base_name for info in self._list(folder, is_deep=False))

    def below(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder."""
        return [info.path for info in self._list(folder, is_deep=True) if info.is_file]

    def get(self, path: str) -> bytes | None:
        """Return the content of a file. None: there is none."""
        try:
            with self._files.open_input_stream(path) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def put(self, path: str, content: bytes) -> None:
        """Write a file; it is durable when this returns."""
        with self.create(path) as file:
            file.write(content)
        self.sync([path])

    def replace(self, path: str, content: bytes) -> None:
        """Write or overwrite a file; in a directory, a reader never sees half of it."""
        if self._files.type_name != "local":
            self.put(path, content)
            return
        self.put(temporary := f"{path}.{os.urandom(8).hex()}", content)
        self._files.move(temporary, path)
        self.sync([path])

    def sync(self, paths: Iterable[str]) -> None:
        """Make files survive a power cut. Object stores do so anyway."""
        if self._files.type_name != "local":
            return
        folders = set()
        for path in paths:
            _sync(path)
            while path != (path := posixpath.dirname(path)):
                folders.add(path)
        for folder in sorted(folders):
            with contextlib.suppress(PermissionError):  # one far above, which was not made here
                _sync(folder)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files; missing files are not an error."""

        def remove(path: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                self._files.delete_file(path)

        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as threads:
            list(threads.map(remove, paths))

    def open(self, path: str) -> pa.NativeFile:
        return self._files.open_input_file(path)

    def create(self, path: str) -> pa.NativeFile:
        if self._files.type_name not in _WITHOUT_FOLDERS:
            self._files.create_dir(posixpath.dirname(path), recursive=True)
        return self._files.open_output_stream(path)

    @property
    def _files(self) -> Any:
        return self._opened[0]

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        arrow.pyarrow()  # raises if it is missing
        try:
            files, path = connect(self._url)
        except (ImportError, OSError, ValueError, arrow.pyarrow().ArrowException) as error:
            reason = str(error).partition("\n")[0]
            raise ArchiveRefused(self._url, f"cannot be opened: {reason}") from error
        return files, path.rstrip("/")

    def _list(self, folder: str, is_deep: bool) -> list[Any]:
        from pyarrow.fs import FileSelector  # here, because it takes time: see arrow.py

        selector = FileSelector(folder, allow_not_found=True, recursive=is_deep)
        return list(self._files.get_file_info(selector))


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def connect(url: str) -> tuple[Any, str]:
    """Return a file system of pyarrow, and the path in it."""
    from pyarrow import fs  # here, because it takes time: see arrow.py

    if scheme_of(url) is None:
        return fs.LocalFileSystem(), url
    scheme, _, rest = url.partition(":")
    if scheme.lower() in ("s3a", "s3n"):  # as Hadoop names it
        return fs.FileSystem.from_uri(f"s3:{rest}")
    try:
        return fs.FileSystem.from_uri(url)
    except ValueError:  # pyarrow does not know the scheme; fsspec may
        from fsspec.core import url_to_fs

        files, path = url_to_fs(url)
        return fs.PyFileSystem(fs.FSSpecHandler(files)), path


def scheme_of(place: str) -> str | None:
    """Return the scheme of a URL. None: it is a path."""
    found = _SCHEME.match(place)
    return found[1].lower() if found else None


def require(url: str, unverified: bool) -> str:
    """Return the URL of an archive as it is recorded. Raises ArchiveRefused."""
    scheme = scheme_of(url)
    if scheme == "file":
        raise ArchiveRefused(url, "file: is not supported: give the path alone")
    if scheme not in TESTED and not unverified:
        raise ArchiveRefused(
            url,
            f"Blueque was not tested on {scheme}:, only on local and shared directories and on s3:. With unverified=True "
            f"it goes the same way there as on s3: (if it is the name of a directory here: ./{url})",
        )
    if urlsplit(url).username is not None:
        raise ArchiveRefused(
            re.sub("//.*@", "//", url),
            "holds a user or a key, which would be shown to others: give them by the environment",
        )
    return url
