"""The ids of tasks: random ones, and those made from a key."""

from __future__ import annotations

import math
import os
import re
import uuid
from collections.abc import Sequence

from blueque.errors import InvalidInput, InvalidType
from blueque.model.encoding import require_number, to_utf8
from blueque.model.units import parse_duration

MAX_KEY_BYTES = 1000
DEFAULT_KEEP = "1d"
_ID = re.compile("[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ZEROS = str(uuid.UUID(int=0))
_TOO_LARGE = 10**MAX_KEY_BYTES  # as a key
# uuid.uuid5(uuid.NAMESPACE_DNS, "key.blueque"); docs/protocol.md has it, too, and it must never
# change.
NAMESPACE = uuid.UUID("17761b3b-95be-5b30-861e-66b389d901b0")
# The same for "group.blueque": keys in a group.
GROUP_NAMESPACE = uuid.UUID("ada8713c-9edb-588b-9be8-6812fb2268e3")
# The same for "feed.blueque": rows of a backlog.
FEED_NAMESPACE = uuid.UUID("9626c163-b9f2-5216-a484-ebdd48d4297e")
# The same for "spawn.blueque": keys of the tasks that a running task makes.
SPAWN_NAMESPACE = uuid.UUID("69b45547-495d-55d8-a46a-9b0a640c7776")
# The same for "workflow.blueque": keys of the tasks of a workflow.
WORKFLOW_NAMESPACE = uuid.UUID("70a739db-3681-5daa-a3d7-1eb3fbb47d2c")
# The same for "schedule.blueque": occurrences of a schedule.
SCHEDULE_NAMESPACE = uuid.UUID("6292946b-2b72-592e-ad89-81361792d4ab")

_WIDTH = 36
_DIGITS = [place for place in range(_WIDTH) if place not in (8, 13, 18, 23)]
_VERSION_4 = bytes(byte & 0x0F | 0x40 for byte in range(256))
_VERSION_5 = bytes(byte & 0x0F | 0x50 for byte in range(256))
_VARIANT = bytes(byte & 0x3F | 0x80 for byte in range(256))


def random_id() -> str:
    """Return a version 4 UUID, twice as fast as uuid.uuid4."""
    return _text(bytearray(os.urandom(16)), 4)


def random_ids(count: int) -> list[bytes]:
    """Return random ids as ASCII, ten times as fast as uuid.uuid4 when there are many."""
    return _texts(os.urandom(16 * count), _VERSION_4)


def ids_of_keys(queue: str, keys: Sequence[bytes]) -> list[bytes]:
    """Return the ids of tasks made from their keys, as ASCII: `id_of_key` for many."""
    return _ids_in(NAMESPACE, f"{queue}\0", keys)


def ids_of_group_keys(queue: str, group: str, keys: Sequence[bytes]) -> list[bytes]:
    """Return the ids of tasks of a group, made from their keys, as ASCII."""
    return _ids_in(GROUP_NAMESPACE, f"{queue}\0{group}\0", keys)


def ids_of_feed(queue: str, scope: str, texts: Sequence[bytes]) -> list[bytes]:
    """Return the ids of the tasks of a feed, from their keys or row numbers, as ASCII.

    scope: the name of the feed for keys, the instance of its record for numbers.
    """
    return _ids_in(FEED_NAMESPACE, f"{queue}\0{scope}\0", texts)


def ids_of_workflow(workflow: str, keys: Sequence[bytes]) -> list[bytes]:
    """Return the ids of the tasks of a workflow, made from their keys, as ASCII."""
    return _ids_in(WORKFLOW_NAMESPACE, f"{workflow}\0", keys)


def ids_of_spawned(task: str, keys: Sequence[bytes]) -> list[bytes]:
    """Return the ids of the tasks that a running task creates, from their keys, as ASCII."""
    return _ids_in(SPAWN_NAMESPACE, f"{task}\0", keys)


def ids_of_schedule(name: str, texts: Sequence[bytes]) -> list[bytes]:
    """Return the ids of the tasks of a schedule, as ASCII.

    texts: the planned time of each in Unix seconds. For a task that a person has asked for:
        `trigger`, a NUL character and a random mark.
    """
    return _ids_in(SCHEDULE_NAMESPACE, f"{name}\0", texts)


def id_of_occurrence(name: str, planned: int) -> str:
    """Return the id of the task for a planned time, in Unix seconds."""
    return ids_of_schedule(name, [str(planned).encode()])[0].decode()


def id_of_trigger(name: str, mark: str) -> str:
    """Return the id of a task that a person has asked for. mark: a random text."""
    return ids_of_schedule(name, [f"trigger\0{mark}".encode()])[0].decode()


def octets_of(ids: Sequence[bytes]) -> list[bytes]:
    """Return the 16 bytes of each of these UUIDs."""
    octets = bytes.fromhex(b"".join(ids).replace(b"-", b"").decode())
    return [octets[start : start + 16] for start in range(0, len(octets), 16)]


def id_of_key(queue: str, key: str) -> str:
    """Return the id of a task with a key: a version 5 UUID of queue and key."""
    import hashlib  # here: OpenSSL takes 3 ms, and few tasks have keys

    # As uuid.uuid5(NAMESPACE, ...), in a quarter of the time.
    octets = bytearray(
        hashlib.sha1(NAMESPACE.bytes + f"{queue}\0{key}".encode(), usedforsecurity=False).digest()[
            :16
        ]
    )
    return _text(octets, 5)


def _ids_in(namespace: uuid.UUID, prefix: str, texts: Sequence[bytes]) -> list[bytes]:
    import hashlib  # here: as above

    begun = hashlib.sha1(namespace.bytes + prefix.encode(), usedforsecurity=False)
    digests = []
    for text in texts:
        sha1 = begun.copy()
        sha1.update(text)
        digests.append(sha1.digest()[:16])
    return _texts(b"".join(digests), _VERSION_5)


def _text(octets: bytearray, version: int) -> str:
    """Return the UUID of 16 bytes, once version and variant are set."""
    octets[6] = octets[6] & 0x0F | version << 4
    octets[8] = octets[8] & 0x3F | 0x80
    text = octets.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _texts(octets: bytes, version: bytes) -> list[bytes]:
    """Return UUIDs of 16 bytes each as ASCII, once version and variant are set."""
    made = bytearray(octets)
    made[6::16] = made[6::16].translate(version)
    made[8::16] = made[8::16].translate(_VARIANT)
    digits = made.hex().encode()
    text = bytearray(b"-") * (_WIDTH * (len(made) // 16))
    for number, place in enumerate(_DIGITS):  # the n-th digit of all ids at once
        text[place::_WIDTH] = digits[number::32]
    whole = bytes(text)
    return [whole[start : start + _WIDTH] for start in range(0, len(whole), _WIDTH)]


def key_fields(key: str | int | None, keep: float | str) -> dict[str, str | int | float]:
    """Return the fields about the key of a task; `enqueued_by` is random. Without a key: none."""
    if key is None and keep is DEFAULT_KEEP:  # the usual case
        return {}
    kept = require_keep(keep)
    return (
        {}
        if key is None
        else {"key": require_key(key), "keep": kept, "enqueued_by": os.urandom(8).hex()}
    )


def id_fields(keep: float | str) -> dict[str, str | int | float]:
    """Return the same fields for a task whose producer has chosen its id."""
    return {"keep": require_keep(keep), "enqueued_by": os.urandom(8).hex()}


def require_id(task: object) -> str:
    """Return a valid task id: 1 to 200 ASCII letters, digits and `._:-`; no mark comes first."""
    if not isinstance(task, str):
        raise InvalidType(f"an id is text, not {type(task).__name__}")
    if _ID.fullmatch(task) is None:
        what = "1 to 200 letters, digits and . _ : - of ASCII, the first a letter or a digit"
        raise InvalidInput(f"{task[:40]!r} is not a task id: write {what}")
    return task


def is_uuid(task: str) -> bool:
    """Return whether an id is a UUID, as random ids and those from keys are."""
    return _UUID.fullmatch(task) is not None


def begins_uuid(text: str) -> bool:
    """Return whether a text may be the beginning of a UUID, or all of one."""
    return is_uuid(text + _ZEROS[len(text) :])


def require_keep(keep: object) -> int:
    """Return whole seconds: how long a key stays in use after its task is deleted."""
    seconds = parse_duration(keep) if isinstance(keep, str) else keep
    return math.ceil(require_number(seconds, "keep"))


def require_key(key: object, what: str = "a key") -> str:
    """Return a valid key as text: 1 to 1000 bytes of UTF-8. A whole number stands for its digits."""
    if isinstance(key, int) and not isinstance(key, bool) and abs(key) < _TOO_LARGE:
        key = f"{int(key)}"  # the digits, even of a subclass that prints otherwise
    if not isinstance(key, str):
        raise InvalidType(
            f"{what} must be text or a whole number, and this is of type {type(key).__name__}"
        )
    size = len(to_utf8(key, what))
    if not 0 < size <= MAX_KEY_BYTES:
        raise InvalidInput(f"{what} takes 1 to {MAX_KEY_BYTES} bytes, not {size}")
    return key
