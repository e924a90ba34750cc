"""Snapshots: copies of the lists of tasks, all at one instant: freeze, thaw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import AnyLook, Look, Redis
from blueque.model import keys
from blueque.model.snapshot import Slice
from blueque.protocol.transaction import Answer, Change, Verdict, transact

_LISTS: dict[str, Callable[[str], str]] = {
    "pending": keys.pending,
    "complete": keys.complete,
    "failed": keys.failed,
    "cancelled": keys.cancelled,
}
_SETS: dict[str, Callable[[str], str]] = {"blocked": keys.blocked, "scheduled": keys.scheduled}
_HELD = ("reserved", "started")


class _Copy(NamedTuple):
    """One list and the key of its copy."""

    queue: str
    listed_as: str
    source: str
    key: str
    is_scored: bool = False


def freeze(
    redis: Redis,
    snapshot: str,
    queues: Sequence[str],
    statuses: Sequence[str],
    keep: int,
    now: float,
) -> list[Slice]:
    """Keep the ids of all tasks with these statuses as of this instant. Return the parts.

    snapshot: a random name, the same for every try. keep: for how many seconds.
    """
    lined = queues if "pending" in statuses else []
    held = queues if {*_HELD} & {*statuses} else []

    def decide(*replies: Any) -> Change[list[Slice]]:
        lines = dict(zip(lined, replies, strict=False))
        nodes = _nodes(held, replies[len(lined) :])
        copies = [
            copy
            for queue in queues
            for copy in _copies(snapshot, queue, statuses, lines.get(queue, []))
        ]
        copies.sort(key=lambda copy: copy.is_scored)
        return Change(
            [
                ("SET", keys.snapshot(snapshot), now, "EX", keep),
                *[("UNLINK", copy.key) for copy in copies],
                *[("COPY", copy.source, copy.key) for copy in copies],
                *[("EXPIRE", copy.key, keep) for copy in copies],
                *[("ZCARD" if copy.is_scored else "LLEN", copy.key) for copy in copies],
                *[("SMEMBERS", keys.started(queue)) for queue in held],
                *[
                    ("LRANGE", keys.reserved(queue, node), 0, -1)
                    for queue in held
                    for node in nodes[queue]
                ],
            ],
            lambda replies: _parts(copies, nodes, statuses, replies[1 + 3 * len(copies) :]),
        )

    return transact(redis, "freeze", _lists(snapshot, lined, held), decide)


def _nodes(queues: Sequence[str], replies: Sequence[Any]) -> dict[str, list[str]]:
    """Return the nodes of each queue: its listeners, and those that beat."""
    listeners, beats = replies[: len(queues)], replies[len(queues) :]
    return {
        queue: sorted({*members, *beating})
        for queue, members, beating in zip(queues, listeners, beats, strict=True)
    }


def _lists(snapshot: str, lined: Sequence[str], held: Sequence[str]) -> AnyLook:
    """Which lines and which listeners do these queues have?"""
    return Look(
        [keys.snapshot(snapshot), *map(keys.lines, lined), *map(keys.listeners, held)],
        [
            *[("ZRANGE", keys.lines(queue), 0, -1) for queue in lined],
            *[("SMEMBERS", keys.listeners(queue)) for queue in held],
            *[("ZRANGE", keys.nodes(queue), 0, -1) for queue in held],
        ],
    )


def thaw(redis: Redis, snapshot: str, copies: Sequence[str]) -> bool:
    """Remove a snapshot before it expires. False: it was gone already.

    copies: the keys of its parts.
    """
    key = keys.snapshot(snapshot)

    def decide(exists: int) -> Verdict[bool]:
        return Change([("UNLINK", key, *copies)], True) if exists else Answer(False)

    look: Look[int] = Look([key], [("EXISTS", key)])
    return transact(redis, "thaw", look, decide)


def _copies(
    snapshot: str, queue: str, statuses: Sequence[str], lines: Sequence[str]
) -> list[_Copy]:
    copies = []
    for status in statuses:
        if status in _LISTS:
            copies += [
                _Copy(queue, status, _LISTS[status](queue), keys.frozen(snapshot, status, queue))
            ]
        if status in _SETS:
            source, key = _SETS[status](queue), keys.frozen(snapshot, status, queue)
            copies += [_Copy(queue, status, source, key, True)]
        if status == "pending":
            copies += [
                _Copy(
                    queue,
                    status,
                    keys.line(queue, line),
                    keys.frozen(snapshot, f"line:{line}", queue),
                )
                for line in lines
            ]
    return copies


def _parts(
    copies: Sequence[_Copy],
    nodes: dict[str, list[str]],
    statuses: Sequence[str],
    replies: Sequence[Any],
) -> list[Slice]:
    """Return the parts: the copies with their lengths, and the tasks read at the same instant."""
    parts = [
        Slice(copy.queue, copy.listed_as, copy.key, 0, length, copy.is_scored)
        for copy, length in zip(copies, replies, strict=False)
        if length
    ]
    rest = list(replies[len(copies) :])
    lists = iter(rest[len(nodes) :])
    for queue, members in zip(nodes, rest, strict=False):
        started = [member.rpartition(" ")[2] for member in members]
        is_started = {*started}
        waiting = [task for _ in nodes[queue] for task in next(lists) if task not in is_started]
        ids = {"reserved": tuple(dict.fromkeys(waiting)), "started": tuple(sorted(is_started))}
        parts += [
            Slice(queue, status, "", 0, len(ids[status]), ids=ids[status])
            for status in statuses
            if ids.get(status)
        ]
    return parts
