"""Keep a result or a checkpoint that cannot be stored, so that the work behind it is not lost."""

from __future__ import annotations

import pickle
import sys
from contextlib import suppress
from typing import Any

from blueque.errors import InvalidInput
from blueque.model.encoding import encode_json
from blueque.system.plain_files import write_whole


def keep(directory: str, name: str, value: Any) -> str:
    """Write the value into the directory of the attempt. Return where it is, or why it is not, for
    the end of a sentence.

    Text is written as it is, a value that is only too large as JSON, anything else with pickle or
    as its repr().
    """
    try:
        content, ending = _packed(value)
        path = f"{directory}/{name}.{ending}"
        write_whole(path, content)
    except Exception as error:  # the disk is full, or the value cannot even be shown
        return f"; it could not be kept: {type(error).__name__}: {error}"
    return f"; it is kept in {path}"


def _packed(value: Any) -> tuple[bytes, str]:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass"), "txt"
    with suppress(InvalidInput):
        return encode_json(value, "", sys.maxsize).encode(), "json"
    try:
        return pickle.dumps(value), "pickle"
    except Exception:
        return repr(value).encode("utf-8", "surrogatepass"), "txt"
