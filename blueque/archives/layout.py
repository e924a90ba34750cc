"""Opens archives: in a directory (disk.py), or in a store without rename (objects.py)."""

from __future__ import annotations

import logging
import os

from blueque.archives import disk, objects, stores
from blueque.archives.disk import Disk
from blueque.archives.objects import Objects
from blueque.archives.partitions import MARK, Directory
from blueque.errors import ArchiveRefused

log = logging.getLogger("blueque")


def create(
    path: str | os.PathLike[str], is_by_run: bool | None = None, unverified: bool = False
) -> Directory:
    """Return the archive in this place, and make it if needed. Raises ArchiveRefused.

    is_by_run: whether a new archive is by run, too; None: no, or as the archive is.
    """
    root = _root(path, unverified)
    scheme = stores.scheme_of(root)
    is_url = scheme is not None
    if is_url and scheme not in stores.TESTED:
        log.warning("archive %s: Blueque was not tested on %s:", root, scheme)
    (objects.create if is_url else disk.create)(root, bool(is_by_run))
    made = open_(path, unverified)
    if is_by_run is not None and made.is_by_run != is_by_run:
        how = "is" if made.is_by_run else "is not"
        raise ArchiveRefused(root, f"{how} by run, and stays so: begin another archive")
    return made


def open_(path: str | os.PathLike[str], unverified: bool = False) -> Directory:
    """Return the archive in this place. Raises ArchiveRefused."""
    root = _root(path, unverified)
    is_url = stores.scheme_of(root) is not None
    found = (objects.read_mark if is_url else disk.read_mark)(root)
    if not isinstance(found, dict) or not isinstance(found.get("archive"), str):
        raise ArchiveRefused(root, f"is not an archive: it has no {MARK}")
    if found.get("version") not in (1, 2):
        raise ArchiveRefused(root, "is an archive of a later version of Blueque")
    return (Objects if is_url else Disk)(root, found["archive"], "run" in found.get("by", ()))


def _root(path: str | os.PathLike[str], unverified: bool) -> str:
    text = os.fspath(path)
    if stores.scheme_of(text) is None:
        return os.path.realpath(text)
    return stores.require(text, unverified)
