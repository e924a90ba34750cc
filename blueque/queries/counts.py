"""How many tasks many queues have in each status, without reading the tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from blueque.model import keys
from blueque.queries.listeners import MAX_MEMBERS, Members, ask_members, read_groups, read_held_and
from blueque.queries.waiting_lines import ask_names

if TYPE_CHECKING:
    from blueque.connection.redis import Command, Redis

_LISTS = {"pending": keys.pending, "complete": keys.complete, "failed": keys.failed}
# What most of many queues do not have: one command tells so.
_RARE = (keys.lines, keys.scheduled, keys.blocked, keys.cancelled)


def counts(redis: Redis, queues: Sequence[str]) -> Counter[str]:
    """Return how many tasks of these queues have each status: two round trips, or three.

    A list of Redis counts with all its entries, whatever the hashes of their tasks say.
    """
    replies = read_groups(redis, [_ask(queue) for queue in queues])
    found, members, others = Counter[str](), dict[str, Members](), list[str]()
    for queue, reply in zip(queues, replies, strict=True):
        members[queue] = seen = Members(*reply[:3])
        *lengths, rare = reply[3:]
        found.update(dict(zip(_LISTS, lengths, strict=True)))
        if rare or len(seen.started) >= MAX_MEMBERS:
            others.append(queue)
        else:
            found["started"] += len(seen.started)
    asked = [command for queue in others for command in _ask_others(queue)]
    held, started, read = read_held_and(redis, members, asked)
    for status, place in {"started": 1, "scheduled": 2, "blocked": 3, "cancelled": 4}.items():
        found[status] += sum(read[place::5])
    popped = {*held}.difference(started)
    lines: list[Command] = [
        ("LLEN", keys.line(queue, name))
        for queue, names in zip(others, read[::5], strict=True)
        for name in names
    ]
    states: list[Command] = [("HGET", keys.task(task), "status") for task in popped]
    more = redis.read(*lines, *states) if lines or states else []
    found["pending"] += sum(more[: len(lines)])
    found["reserved"] = more[len(lines) :].count("reserved")
    return found


def _ask(queue: str) -> list[Command]:
    lengths: list[Command] = [("LLEN", key(queue)) for key in _LISTS.values()]
    return [*ask_members(queue), *lengths, ("EXISTS", *(key(queue) for key in _RARE))]


def _ask_others(queue: str) -> list[Command]:
    return [
        ask_names(queue),
        ("SCARD", keys.started(queue)),
        ("ZCARD", keys.scheduled(queue)),
        ("ZCARD", keys.blocked(queue)),
        ("LLEN", keys.cancelled(queue)),
    ]
