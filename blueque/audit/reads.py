"""How a scan reads Redis: in pieces, so that Redis serves others in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from blueque.audit.observation import TaskSeen
from blueque.connection.redis import Command, Redis, as_fields, raise_refusal
from blueque.model import keys
from blueque.model.parts import in_parts

BATCH = 1000  # commands, keys or entries in one round trip

T = TypeVar("T")


def hashes(
    redis: Redis, tasks: Sequence[str], judged: Sequence[str]
) -> Iterator[tuple[str, TaskSeen]]:
    """Yield each task with its hash. judged: the fields for `TaskSeen.judged`."""
    own = TaskSeen._fields[1:-1]
    groups = [
        (("HKEYS", key), ("HMGET", key, *own), ("HMGET", key, *judged))
        for key in map(keys.task, tasks)
    ]
    for task, (names, values, texts) in zip(tasks, read_groups(redis, groups), strict=True):
        seen = TaskSeen(frozenset(names), *values)
        yield task, seen._replace(judged=as_fields(judged, texts))


def read_groups(redis: Redis, groups: Sequence[Sequence[Command]]) -> Iterator[list[Any]]:
    """Yield the replies to each group of commands. A group is read at one instant."""
    most = max(map(len, groups), default=1)
    for some in in_parts(groups, BATCH // most):
        commands = [command for group in some for command in group]
        replies = redis.read(("MULTI",), *commands, ("EXEC",))[-1]
        raise_refusal(replies)
        rest = iter(replies)
        for group in some:
            yield list(islice(rest, len(group)))


def read_all(redis: Redis, key: str, kind: str) -> list[str]:
    """Return all entries of a list, a set or a sorted set."""
    return _read_list(redis, key) if kind == "list" else _read_members(redis, key, kind)


def _read_list(redis: Redis, key: str) -> list[str]:
    """Return a list: piece by piece, or all of it at one instant if it shifts meanwhile."""
    texts: list[str] = []
    while True:
        # Each piece begins with the last entry of the piece before: otherwise the list has shifted.
        first = max(len(texts) - 1, 0)
        (piece,) = redis.read(("LRANGE", key, first, first + BATCH))
        if texts and piece[:1] != texts[-1:]:
            (texts,) = redis.read(("LRANGE", key, 0, -1))
            return texts
        texts[first:] = piece
        if len(piece) <= BATCH:
            return texts


def _read_members(redis: Redis, key: str, kind: str) -> list[str]:
    """Return the members of a set or a sorted set. It includes every member that is there all the time."""
    cursor, members = "0", dict[str, None]()  # a cursor may return a member twice
    command, step = ("SSCAN", 1) if kind == "set" else ("ZSCAN", 2)
    while True:
        ((cursor, piece),) = redis.read((command, key, cursor, "COUNT", BATCH))
        members.update(dict.fromkeys(piece[::step]))
        if cursor == "0":
            return list(members)


def read_flat(redis: Redis, commands: Sequence[Command], size: int = BATCH) -> Iterator[Any]:
    """Yield the reply to each command, `size` commands in a round trip."""
    for some in in_parts(commands, size):
        yield from redis.read(*some)
