"""Opens an archive, and creates one in a new place."""

from __future__ import annotations

import hashlib
import json
import logging
import os

from blueque.archives import stores
from blueque.archives.layout import MARK, VERSION, Archive, mark_of
from blueque.archives.stores import Store
from blueque.errors import ArchiveRefused

log = logging.getLogger("blueque")


def create(
    path: str | os.PathLike[str], is_by_group: bool | None = None, unverified: bool = False
) -> Archive:
    """Return the archive in this place; create it if needed. Raises ArchiveRefused.

    is_by_group: whether a new archive is by group, too; None: no, or as the archive is.
    """
    root = _root(path, unverified)
    scheme, store = stores.scheme_of(root), Store(root)
    if scheme is not None and scheme not in stores.TESTED:
        log.warning("archive %s: Blueque was not tested on %s:", root, scheme)
    try:
        if store.is_file():
            raise ArchiveRefused(root, "is not a directory")
        found = mark_of(store)
        if found is None or (not found and store.is_empty()):
            # All would write the same: two at once do no harm, nor does one that has died over it.
            identity = hashlib.sha256(root.encode()).hexdigest()[:32]
            by = ["queue", "day", *(["group"] if is_by_group else [])]
            content = json.dumps({"archive": identity, "version": VERSION, "by": by})
            store.replace(store.path(MARK), content.encode())
    except OSError as error:
        raise ArchiveRefused(root, f"cannot be written to: {error}") from error
    made = open_(path, unverified)
    if is_by_group is not None and made.is_by_group != is_by_group:
        how = "is" if made.is_by_group else "is not"
        raise ArchiveRefused(root, f"{how} by group, and stays so: begin another archive")
    return made


def open_(path: str | os.PathLike[str], unverified: bool = False) -> Archive:
    """Return the archive in this place; an empty place is an empty archive. Raises ArchiveRefused."""
    root = _root(path, unverified)
    store = Store(root)
    try:
        found = mark_of(store)
        if not found and store.is_empty():
            return Archive(root, "")
    except OSError as error:
        raise ArchiveRefused(root, f"cannot be read: {error}") from error
    if found is None:
        raise ArchiveRefused(root, f"is not an archive: it has no {MARK}")
    if not isinstance(found.get("archive"), str):
        raise ArchiveRefused(
            root,
            f"cannot be read: its {MARK} is damaged. Put it back; if you have no copy and no batch is open, remove it, "
            "and archive again with the same options",
        )
    if found.get("version") != VERSION:
        raise ArchiveRefused(root, "is an archive of another version of Blueque")
    return Archive(root, found["archive"], "group" in found.get("by", ()))


def _root(path: str | os.PathLike[str], unverified: bool) -> str:
    text = os.fspath(path)
    root = os.path.realpath(text) if stores.scheme_of(text) is None else text
    try:
        root.encode()
    except UnicodeEncodeError as error:
        shown = root.encode("utf-8", "backslashreplace").decode()
        raise ArchiveRefused(shown, "has a name that is not UTF-8, which pyarrow needs") from error
    return root if stores.scheme_of(text) is None else stores.require(text, unverified)
