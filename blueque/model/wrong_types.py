"""Keys of a wrong type, written by another program. They stop only what needs them.

Programs continue with other queues and tasks, by `unless_wrong_type` and `all_or_each`. Verbs that
only read take such keys as empty and report them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from blueque.errors import RedisRefused

T = TypeVar("T")
R = TypeVar("R")

# Commands that only read, with the reply of Redis for a missing key.
_NOTHING = {"GET", "HGET", "LINDEX", "LPOS", "ZRANK", "ZSCORE"}
_ZERO = {"HEXISTS", "HLEN", "HSTRLEN", "LLEN", "SCARD", "SISMEMBER", "XLEN", "ZCARD", "ZCOUNT"}
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


def unless_wrong_type(action: Callable[[], T], otherwise: Callable[[RedisRefused], T]) -> T:
    """Return the result of `action`, or of `otherwise` if a key that it needs has a wrong type."""
    try:
        return action()
    except RedisRefused as error:
        if not error.is_wrong_type:
            raise
        return otherwise(error)


def all_or_each(
    items: Sequence[T],
    action: Callable[[Sequence[T]], R],
    on_refusal: Callable[[T, RedisRefused], object],
) -> list[R]:
    """Process all items at once; if Redis refuses the keys of one, each of them alone.

    Return the result of each call. on_refusal: called for an item whose keys are refused.
    """
    try:
        return [action(items)]
    except RedisRefused as error:
        if not error.concerns_keys:
            raise
        if len(items) == 1:
            on_refusal(items[0], error)
            return []
    return [done for item in items for done in all_or_each([item], action, on_refusal)]


class WrongTypes:
    """The keys of a wrong type that were read, with their types."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def sentences(self) -> list[str]:
        """Return a line for the user about each key."""
        return [
            f"{key} is a {kind}, which Blueque does not keep there: it was taken for empty. See: blueque doctor"
            for key, kind in sorted(self.kinds.items())
        ]


def is_look(command: object) -> bool:
    """Return whether the command only reads, and `empty` has its reply for a missing key."""
    return isinstance(command, Sequence) and not isinstance(command, bytes) and command[0] in _LOOKS


def empty(command: Sequence[Any]) -> Any:
    """Return the reply of Redis to such a command for a missing key."""
    name = command[0]
    if name in _EMPTY_LIST:
        return []
    if name in _NONE_OF_EACH:
        return [None] * (len(command) - 2)
    if name in ("SSCAN", "ZSCAN"):
        return ["0", []]
    return 0 if name in _ZERO else None
