"""The folders of an archive: by queue and day, and perhaps by group, in the style of Hive.

queue=video.encode/day=2026-11-21/[name].parquet
queue=video.encode/day=2026-11-21/group=nightly/[name].parquet  if the archive is by group
"""

from __future__ import annotations

import os
from typing import NamedTuple
from urllib.parse import unquote

from blueque.errors import InvalidInput

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # as Hive and Spark write it
SUFFIX = ".parquet"

# The characters that Hive, and so Spark, escapes in the name of a partition.
_ESCAPED = {chr(code) for code in range(1, 32)} | {*"\"#%'*/:=?\\{[]^\x7f"}
_MAX_NAME = 255  # bytes, on every common file system


class File(NamedTuple):
    """A published file. day: as 2026-11-21; None: its tasks have no time.

    group: of its tasks, if the archive is by group; None: they have none.
    """

    path: str
    queue: str
    day: str | None
    group: str | None = None


def partition(name: str, value: str | None) -> str:
    """Return the name of the folder of a partition."""
    text = (
        NO_VALUE
        if value is None
        else "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in value)
    )
    folder = f"{name}={text}"
    if len(os.fsencode(folder)) > _MAX_NAME:
        raise InvalidInput(f"the {name} {value!r} makes too long a name for a folder")
    return folder


def parse_partition(folder: str, name: str) -> tuple[str | None] | None:
    """Return the value in the name of a folder, in a tuple. None: the folder is not such a partition."""
    label, sign, text = folder.partition("=")
    if label != name or not sign:
        return None
    return (None if text == NO_VALUE else unquote(text, errors="surrogateescape"),)
