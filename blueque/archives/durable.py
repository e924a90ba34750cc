"""Files that survive a power cut: each function returns when its change is on the disk."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from blueque.errors import ArchiveRefused


def sync(path: str) -> None:
    """Write the content of a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: str) -> None:
    """Make a directory and those above it, durably."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_folder(above)
    try:
        os.mkdir(path)
    except FileExistsError:
        pass
    except OSError as error:
        raise ArchiveRefused(path, f"cannot be made: {error.strerror}") from error
    sync(above)


def move(source: str, target: str) -> bool:
    """Rename a file within the file system. False: it was moved before. The caller then syncs the
    folders.
    """
    try:
        os.rename(source, target)
    except FileNotFoundError:
        return False
    return True


def remove(paths: Iterable[str]) -> None:
    """Remove files durably; files that are gone already are fine."""
    folders = set()
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue
        folders.add(os.path.dirname(path))
    for folder in sorted(folders):
        sync(folder)


def remove_tree(path: str) -> None:
    """Remove a directory and everything in it. Another process may be doing the same."""
    import shutil  # here, because each fork of a listener copies what it has imported

    shutil.rmtree(path, ignore_errors=True)
    if os.path.isdir(os.path.dirname(path)):
        sync(os.path.dirname(path))


def write_json(path: str, value: Any, temporary: str) -> None:
    """Write a file as a whole or not at all. `temporary` is in the same file system."""
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
    sync(os.path.dirname(path))


def read_json(path: str) -> Any:
    """Return the content of the file. None: there is no file."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None
