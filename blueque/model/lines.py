"""Lines: a task waits in the line of its priority and its needs.

A task of priority 0 without needs waits in the list of 1.0.0. Each other combination has a list of
its own, named `[priority]` or `[priority],[needs]`: `5`, `0,gpu=1`,
`-3,gpu=1,memory=8589934592,lock:licence=3`. A name holds no `_`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from blueque.errors import InvalidInput, InvalidType
from blueque.model.units import parse_size

LOWEST, HIGHEST = -100, 100
MAX_AMOUNT = 2**60
MAX_LOCK_BYTES = 200
MAX_RESOURCES = 8
DEFAULT = "0"  # the line of tasks without priority or needs: the list of 1.0.0

# How the name of a payload key begins, as an encrypted task needs it: `key.k2.3fa9c1b2=1`. A listener
# that has the key offers so many of it that they are never all taken.
KEY, OFFERED = "key.", 1_000_000

_NAME = re.compile(r"[a-z][a-z0-9.-]{0,62}\Z")
_LOCK = "lock:"


class Needs(NamedTuple):
    """What a task needs in order to run.

    resources: names and amounts that its node must have free. lock: its name; None: no lock.
    limit: how many tasks may hold the lock at a time.
    """

    resources: tuple[tuple[str, int], ...] = ()
    lock: str | None = None
    limit: int = 1


def line_of(priority: str | None, needs: str | None) -> str:
    """Return the name of the line of a task with these two fields."""
    return f"{priority or '0'},{needs}" if needs else priority or DEFAULT


def priority_of(line: str) -> int:
    """Return the priority of a line, by its name; 0 for a malformed name."""
    text = line.partition(",")[0]
    return int(text) if re.fullmatch(r"-?[0-9]{1,3}", text) else 0


def needs_of(line: str) -> Needs | None:
    """Return what the tasks of a line need, by its name; None: the name is malformed."""
    return parse_needs(line.partition(",")[2])


def write_needs(resources: Mapping[str, int], lock: str | None = None, limit: int = 1) -> str:
    """Return needs as text. Equal needs give equal text; no needs give an empty one."""
    words = [f"{name}={amount}" for name, amount in sorted(resources.items()) if amount]
    if lock is not None:
        words.append(f"{_LOCK}{quote(lock, safe='').replace('_', '%5F')}={limit}")
    return ",".join(words)


def parse_needs(text: str) -> Needs | None:
    """Return the needs in a text; None: it is malformed, and no node can meet them."""
    resources: list[tuple[str, int]] = []
    lock, limit = None, 1
    for word in text.split(",") if text else []:
        name, _, amount = word.rpartition("=")
        if not amount.isdecimal() or len(amount) > 19 or not 0 < int(amount) <= MAX_AMOUNT:
            return None
        if name.startswith(_LOCK) and lock is None:
            lock, limit = unquote(name.removeprefix(_LOCK)), int(amount)
        elif _NAME.match(name):
            resources.append((name, int(amount)))
        else:
            return None
    return Needs(tuple(resources), lock, limit)


def with_key(options: Mapping[str, Any], encoding: str | None) -> dict[str, Any]:
    """Return the fields of a task that needs the payload key of an encoding, if that has one."""
    key = key_of(encoding)
    if key is None:
        return dict(options)
    needs = parse_needs(str(options.get("needs", ""))) or Needs()
    wanted = without_keys(dict(needs.resources))
    wanted[f"{KEY}{key}"] = 1
    return {**options, "needs": write_needs(wanted, needs.lock, needs.limit)}


def needing_key(needs: str | None, key: str) -> str:
    """Return the needs of a task, as text, with this payload key as well."""
    found = parse_needs(needs or "") or Needs()
    return write_needs({**dict(found.resources), f"{KEY}{key}": 1}, found.lock, found.limit)


def key_of(encoding: str | None) -> str | None:
    """Return the name of the payload key in an encoding, or in a text that begins with its encoding."""
    kind, _, rest = (encoding or "").partition(" ")[0].partition(":")
    return rest.partition(":")[0] if kind == "aes" else None


def key_needed(needs: str | None, sealed: str | None) -> dict[str, str]:
    """Return the field `needs` of a task, if the payload key of a text for it is missing there."""
    key, found = key_of(sealed), parse_needs(needs or "")
    if key is None or found is None or key in keys_among(found.resources):
        return {}
    return {"needs": needing_key(needs, key)}


def keys_among(resources: Iterable[tuple[str, int]]) -> list[str]:
    """Return the names of the payload keys among resources: k2.3fa9c1b2."""
    return [name.removeprefix(KEY) for name, _ in resources if name.startswith(KEY)]


def without_keys(resources: Mapping[str, int]) -> dict[str, int]:
    """Return the resources without payload keys."""
    return {name: amount for name, amount in resources.items() if not name.startswith(KEY)}


def with_keys(resources: Mapping[str, int], keys: Iterable[str]) -> dict[str, int]:
    """Return the resources of a listener that has these payload keys."""
    return {**resources, **{f"{KEY}{key}": OFFERED for key in keys}}


def require_priority(priority: object) -> int:
    """Return a valid priority, -100 to 100; higher is first."""
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise InvalidType(f"a priority must be a whole number, not {type(priority).__name__}")
    if not LOWEST <= priority <= HIGHEST:
        raise InvalidInput(f"priority {priority} is not between {LOWEST} and {HIGHEST}")
    return priority


def require_resources(resources: object) -> dict[str, int]:
    """Return amounts of resources, given as whole numbers or as sizes like "64GiB", by name."""
    if not isinstance(resources, Mapping):
        raise InvalidType(
            f'resources are a dict such as {{"gpu": 1}}, not {type(resources).__name__}'
        )
    if len(resources) > MAX_RESOURCES:
        raise InvalidInput(f"{len(resources)} resources are more than {MAX_RESOURCES}")
    return {
        require_resource_name(name): _amount(name, amount) for name, amount in resources.items()
    }


def require_resource_name(name: object) -> str:
    if isinstance(name, str) and name.startswith(KEY):
        raise InvalidInput(f"{name!r} is not a resource: names with {KEY!r} are payload keys")
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidInput(
            f"a resource has a name of small letters, digits, '.' and '-', not {name!r}"
        )
    return name


def require_lock(lock: object) -> tuple[str, int]:
    """Return the name of a lock and how many tasks may hold it, from "name" or ("name", 3)."""
    name, limit = lock if isinstance(lock, tuple) and len(lock) == 2 else (lock, 1)
    if not isinstance(name, str) or isinstance(limit, bool) or not isinstance(limit, int):
        raise InvalidType(
            f'a lock is a name, or a name and a number such as ("licence", 3), not {lock!r}'
        )
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= MAX_LOCK_BYTES or "\0" in name:
        raise InvalidInput(
            f"the name of a lock takes 1 to {MAX_LOCK_BYTES} bytes of UTF-8, without NUL, not {name!r}"
        )
    if not 0 < limit <= 1_000_000:
        raise InvalidInput(f"a lock can be held by 1 to 1000000 tasks, not by {limit}")
    return name, limit


def _amount(name: object, amount: object) -> int:
    if isinstance(amount, str):
        amount = parse_size(amount)
    if isinstance(amount, bool) or not isinstance(amount, int):
        raise InvalidType(
            f'an amount of {name} is a whole number or a size such as "8GiB", not {amount!r}'
        )
    if not 0 <= amount <= MAX_AMOUNT:
        raise InvalidInput(f"{amount} is not an amount of {name}: give 0 to 2**60")
    return amount


def read_resources(words: Iterable[str]) -> dict[str, int | str]:
    """Return the resources in words such as `gpu=1` and `memory=8GiB`. Raises InvalidInput."""
    amounts: dict[str, int | str] = {}
    for word in words:
        name, _, amount = word.partition("=")
        if not amount:
            raise InvalidInput(f"{word!r}: write NAME=AMOUNT, such as gpu=1 or memory=8GiB")
        if name in amounts:
            raise InvalidInput(f"{word!r}: {name} is named twice")
        amounts[name] = int(amount) if amount.isdecimal() else amount
        try:
            require_resources({name: amounts[name]})
        except InvalidInput as error:
            raise InvalidInput(f"{word!r}: {error}") from error
    return amounts


def read_lock(text: str) -> tuple[str, int]:
    """Return a lock and its limit from `name` or `name=3`. Raises InvalidInput."""
    name, sign, limit = text.rpartition("=")
    if not sign:
        return text, 1
    if not limit.isdecimal():
        raise InvalidInput(
            f"{text!r}: {limit!r} is not a number: write NAME=N; write a lock whose name contains = as {text + '=1'!r}"
        )
    return name, int(limit)
