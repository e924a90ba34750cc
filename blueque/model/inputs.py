"""The results that a task gets from those that it waited for: as Redis has them, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from blueque.model.encoding import decode, is_sealed

JSON, TEXT = "j", "t"  # before a result: how it is encoded
SEALED = "e"  # the same: in the way that is named up to the first space
LEFT = "l"  # in place of a result that was too much


def pack(result: str | None, encoding: str | None) -> str:
    """Return a result as the hash `inputs` has it."""
    if is_sealed(encoding):
        return f"{SEALED}{encoding} {result or ''}"
    return f"{JSON if encoding == 'json' else TEXT}{result or ''}"


def sealed(packed: str) -> str | None:
    """Return a compressed or encrypted result after the name of its encoding; None: it is neither."""
    return packed[1:] if packed.startswith(SEALED) else None


def size_of(packed: str) -> int:
    """Return the size of the result in bytes."""
    return len(packed.encode("utf-8", "surrogateescape")) - 1


def to_json(packed: Mapping[str, str], parents: Iterable[str]) -> str | None:
    """Return the results as a JSON object, by the id of their task; None: one was left out.

    packed: as the hash `inputs` has them. parents: ids in the order that the object is to have.
    Raises PayloadRefused.
    """
    if LEFT in packed.values():
        return None
    order = dict.fromkeys([*parents, *packed])
    plain = {task: _opened(task, packed[task]) for task in order if task in packed}
    members = [f"{json.dumps(task)}: {_to_json(text)}" for task, text in plain.items()]
    return "{" + ", ".join(members) + "}"


def _opened(task: str, packed: str) -> str:
    if not packed.startswith(SEALED):
        return packed
    from blueque.model.payloads import open_text  # here: few are encrypted

    encoding, _, sealed = packed[1:].partition(" ")
    return pack(*open_text(sealed, encoding, task, "result"))


def _to_json(packed: str) -> str:
    text = packed[1:]
    value: Any = decode(text, "json" if packed[:1] == JSON else None)
    # What is JSON already stays as it is: another program may have written it in its own way.
    return json.dumps(text, ensure_ascii=False) if value is text else text
