"""The census: the first look of an audit, at everything that Blueque has in Redis, piece by piece.

Here, and nowhere else, SCAN is allowed: what nobody remembers can be found in no other way. It is for a person or a test
that asks for an audit, never for a program that runs all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from blueque import keys
from blueque.connection import Redis
from blueque.invariants import Finding, Picture
from blueque.places import TYPES, Place
from blueque.questions import BATCH, Pair, Rolls, about_listeners, ask, batches, conclude, note, readable

_OF_A_QUEUE = {
    **{kind: TYPES[kind] for kind in TYPES if kind not in ("reserved", "orders", "line")},
    "listeners": "set", "nodes": "zset",
}
_OF_A_LISTENER = {keys.reserved: "list", keys.listener: "hash", keys.orders: "zset"}


class Census(NamedTuple):
    """Redis as one look has seen it, with the ids of all tasks of which there is a hash or an entry.

    hashes: how many of these have a hash.
    """

    picture: Picture
    tasks: list[str]
    hashes: int


def take(redis: Redis) -> Census:
    """Look at everything. What moves meanwhile may be seen at two places or at none."""
    picture, types = Picture(), dict(_scan(redis))
    tasks = [key.removeprefix(keys.task("")) for key in types if key.startswith(keys.task(""))]
    for task in tasks:
        _expect(picture, types, keys.task(task), "hash", None)
    tasks = [task for task in tasks if keys.task(task) not in picture.oddities]
    queues = _queues(redis, picture, types)
    rolls = {queue: Rolls() for queue in queues}
    for queue in queues:
        _read_queue(redis, picture, types, queue, rolls[queue])
    pairs = _pairs(redis, picture, types, rolls)
    for queue, node in pairs:
        for name, kind in _OF_A_LISTENER.items():
            _expect(picture, types, name(queue, node), kind, queue)
    for some in batches(pairs, BATCH):
        questions = about_listeners(picture, rolls, some)
        ask(redis, [question for question in readable(questions, picture) if question[0][1] in types])
    conclude(picture, rolls)
    known = set(tasks)
    others = [task for task in picture.entries if task not in known and keys.task(task) not in picture.oddities]
    return Census(picture, tasks + others, len(tasks))


def _scan(redis: Redis) -> Iterator[tuple[str, str]]:
    """Yield every key of ours and its type."""
    cursor = "0"
    while True:
        ((cursor, found),) = redis.read(("SCAN", cursor, "MATCH", f"{keys.PREFIX}*", "COUNT", BATCH))
        types = redis.read(*[("TYPE", key) for key in found]) if found else []
        yield from ((key, kind) for key, kind in zip(found, types, strict=True) if kind != "none")
        if cursor == "0":
            return


def _expect(picture: Picture, types: dict[str, str], key: str, kind: str, queue: str | None) -> bool:
    """Tell whether the key is there and of this type; one of another type is an oddity."""
    found = types.get(key)
    if found not in (None, kind):
        sentence = f"{key} is a {found}, not a {kind}: has another program written there?"
        picture.oddities[key] = Finding("wrong_type", key, None, queue, sentence, None, text=found)
    return found == kind


def _queues(redis: Redis, picture: Picture, types: dict[str, str]) -> list[str]:
    """Return the names of all queues that are registered or have a key of their own."""
    if _expect(picture, types, keys.QUEUES, "zset", None):
        (reply,) = redis.read(("ZRANGE", keys.QUEUES, 0, -1, "WITHSCORES"))
        picture.scores = {name: float(score) for name, score in zip(reply[::2], reply[1::2], strict=True)}
    named = set(picture.scores)
    for kind, wanted in _OF_A_QUEUE.items():
        prefix = _key(kind, "")
        named |= {key.removeprefix(prefix) for key, its in types.items() if key.startswith(prefix) and its == wanted}
    if keys.QUEUES not in picture.oddities:
        picture.scores |= dict.fromkeys(sorted(named - picture.scores.keys()))
    return sorted(named)


def _read_queue(redis: Redis, picture: Picture, types: dict[str, str], queue: str, roll: Rolls) -> None:
    for kind, wanted in _OF_A_QUEUE.items():
        key = _key(kind, queue)
        if not _expect(picture, types, key, wanted, queue):
            continue
        for texts in _READERS[wanted](redis, key):
            if kind == "listeners":
                roll.members.update(texts)
            elif kind == "nodes":
                roll.noted.update(texts)
            else:
                note(picture, Place(kind, queue), texts, roll)


def _pairs(redis: Redis, picture: Picture, types: dict[str, str], rolls: dict[str, Rolls]) -> list[Pair]:
    """Return every queue and listener that has a key of its own, or is known; a key that is nobody's is an oddity."""
    known = [(queue, node) for queue, roll in rolls.items() for node in roll.members | roll.noted | roll.running]
    pairs = dict.fromkeys(known)
    owners: dict[str, list[Pair]] = {}
    for pair in pairs:
        for name in _OF_A_LISTENER:
            owners.setdefault(name(*pair), []).append(pair)
    others = (keys.task(""), keys.key_kept(""), *[_key(kind, "") for kind in _OF_A_QUEUE])
    for key in types:
        if key == keys.QUEUES or key.startswith(others):
            continue
        its = owners.get(key) or _owners(redis, types, key, rolls)
        if len(its) == 1:
            pairs[its[0]] = None
        else:
            why = f"may be of {' or '.join(queue for queue, _ in its)}" if its else "is none that Blueque knows"
            sentence = f"the key {key} {why}."
            picture.oddities[key] = Finding("unknown_key", key, None, None, sentence, None, text=types[key])
    return list(pairs)


def _owners(redis: Redis, types: dict[str, str], key: str, rolls: dict[str, Rolls]) -> list[Pair]:
    """Return to which queue and listener a key may belong. It cannot be taken apart: both names may hold a `_`."""
    found = [
        (queue, key.removeprefix(name(queue, "")))
        for name in _OF_A_LISTENER for queue in rolls if key.startswith(name(queue, ""))
    ]
    if len(found) > 1 and types[key] == "list":
        # The tasks in it know.
        (held,) = redis.read(("LRANGE", key, 0, 9))
        tasks = [key for key in map(keys.task, held) if types.get(key) == "hash"]
        queues = redis.read(*[("HGET", key, "queue") for key in tasks]) if tasks else []
        found = [pair for pair in found if pair[0] in queues] or found
    return found


def _read_list(redis: Redis, key: str) -> Iterator[list[str]]:
    for first in range(0, 1 << 40, BATCH):
        (some,) = redis.read(("LRANGE", key, first, first + BATCH - 1))
        yield some
        if len(some) < BATCH:
            return


def _read_sorted_set(redis: Redis, key: str) -> Iterator[list[str]]:
    for first in range(0, 1 << 40, BATCH):
        (some,) = redis.read(("ZRANGE", key, first, first + BATCH - 1))
        yield some
        if len(some) < BATCH:
            return


def _read_set(redis: Redis, key: str) -> Iterator[set[str]]:
    cursor, seen = "0", set[str]()
    while True:
        ((cursor, some),) = redis.read(("SSCAN", key, cursor, "COUNT", BATCH))
        yield set(some) - seen                         # it may return one twice
        seen.update(some)
        if cursor == "0":
            return


_READERS: dict[str, Callable[[Redis, str], Iterator[Iterable[str]]]] = {
    "list": _read_list, "set": _read_set, "zset": _read_sorted_set
}


def _key(kind: str, queue: str) -> str:
    if kind in TYPES:
        return Place(kind, queue).key
    return keys.listeners(queue) if kind == "listeners" else keys.nodes(queue)
