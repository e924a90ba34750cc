"""Keys of a wrong type, which another program has written: looks for people take them for empty and
name them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# The looks, by what Redis answers when their key is not there.
_NOTHING = {"GET", "HGET", "LINDEX", "LPOS", "ZRANK", "ZSCORE"}
_ZERO = {"HEXISTS", "HLEN", "LLEN", "SCARD", "SISMEMBER", "XLEN", "ZCARD", "ZCOUNT"}
_NONE_OF_EACH = {"HMGET", "ZMSCORE"}
_EMPTY_LIST = {
    "HGETALL",
    "HKEYS",
    "HVALS",
    "LRANGE",
    "SMEMBERS",
    "SRANDMEMBER",
    "XRANGE",
    "XREVRANGE",
    "ZRANDMEMBER",
    "ZRANGE",
    "ZRANGEBYSCORE",
    "ZREVRANGE",
    "ZREVRANGEBYSCORE",
}
_LOOKS = {*_NOTHING, *_ZERO, *_NONE_OF_EACH, *_EMPTY_LIST, "SSCAN", "ZSCAN"}


class WrongTypes:
    """The keys of a wrong type that looks have met, with the type that each has."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.found)

    def sentences(self) -> list[str]:
        """Return a line for each key, for a person."""
        return [
            f"{key} is a {kind}, which Blueque does not keep there: it was taken for empty. See: blueque doctor"
            for key, kind in sorted(self.found.items())
        ]


def is_look(command: object) -> bool:
    """Tell whether it is known what Redis answers to the command when its key is not there."""
    return isinstance(command, Sequence) and not isinstance(command, bytes) and command[0] in _LOOKS


def empty(command: Sequence[Any]) -> Any:
    """Return what Redis answers to such a look when its key is not there."""
    name = command[0]
    if name in _EMPTY_LIST:
        return []
    if name in _NONE_OF_EACH:
        return [None] * (len(command) - 2)
    if name in ("SSCAN", "ZSCAN"):
        return ["0", []]
    return 0 if name in _ZERO else None
