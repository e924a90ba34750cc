"""The census: the first look of an audit, at everything that Blueque has in Redis, piece by piece.

Here, and nowhere else, SCAN is allowed: what nobody remembers can be found in no other way. It is
for a person or a test that asks for an audit, never for a program that runs all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from blueque.audit import run_scan
from blueque.audit.observation import Finding, Picture
from blueque.audit.reads import (
    BATCH,
    Pair,
    Rolls,
    about_line,
    about_listeners,
    about_settings,
    ask,
    batches,
    conclude,
    note,
    note_waiting,
    readable,
)
from blueque.connection.redis import Redis
from blueque.model import keys
from blueque.model.states import TYPES, Place

_OF_A_QUEUE = {
    **{
        kind: TYPES[kind]
        for kind in TYPES
        if kind not in ("reserved", "orders", "line", "lock", "waiting", "staged")
    },
    "listeners": "set",
    "nodes": "zset",
    "lines": "zset",
    "settings": "hash",
    "runs": "zset",
    "feeds": "zset",
}
_FEEDS = tuple(name("", "")[:-1] for name in (keys.feed, keys.fed))
_HASHES = (*_FEEDS, keys.archive(""))  # of which an audit knows no more
_OF_A_TASK = {
    keys.log(""): "stream",
    keys.log_head(""): "stream",
    keys.history(""): "list",
    keys.recent(""): "list",
    keys.checkpoint(""): "hash",
}
_NUMBERS = {keys.events(""): "stream", keys.stats("", "")[:-1]: "hash", keys.totals(""): "hash"}
_UNREAD = ("lines", "settings", "runs", "feeds")  # with the queue
_BEFORE_TASKS = ("wake", "settings")  # a queue may be paused before it has had any
_OF_A_LISTENER = {keys.reserved: "list", keys.listener: "hash", keys.orders: "zset"}


class Census(NamedTuple):
    """Redis as one look has seen it, with the ids of all tasks of which there is a hash or an
    entry.

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
    _read_lines(redis, picture, types, rolls)
    _read_locks(redis, picture, types)
    _read_kept(redis, picture, types)
    _read_belongings(picture, types)
    run_scan.read(redis, picture, types, queues, _expect)
    for key in types:
        if key.startswith(_HASHES):
            _expect(picture, types, key, "hash", None)
    pairs = _pairs(redis, picture, types, rolls)
    for queue, node in pairs:
        for name, kind in _OF_A_LISTENER.items():
            _expect(picture, types, name(queue, node), kind, queue)
    for some in batches(pairs, BATCH):
        questions = about_listeners(picture, rolls, some)
        ask(
            redis,
            [question for question in readable(questions, picture) if question[0][1] in types],
        )
    conclude(picture, rolls)
    known = set(tasks)
    others = [
        task
        for task in picture.entries
        if task not in known and keys.task(task) not in picture.oddities
    ]
    return Census(picture, tasks + others, len(tasks))


def _scan(redis: Redis) -> Iterator[tuple[str, str]]:
    """Yield every key of ours and its type."""
    cursor = "0"
    while True:
        ((cursor, found),) = redis.read(
            ("SCAN", cursor, "MATCH", f"{keys.PREFIX}*", "COUNT", BATCH)
        )
        types = redis.read(*[("TYPE", key) for key in found]) if found else []
        yield from ((key, kind) for key, kind in zip(found, types, strict=True) if kind != "none")
        if cursor == "0":
            return


def _expect(
    picture: Picture, types: dict[str, str], key: str, kind: str, queue: str | None
) -> bool:
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
        picture.scores = {
            name: float(score) for name, score in zip(reply[::2], reply[1::2], strict=True)
        }
    named, others = set(picture.scores), set[str]()
    for kind, wanted in _OF_A_QUEUE.items():
        prefix = _key(kind, "")
        some = {
            key.removeprefix(prefix)
            for key, its in types.items()
            if key.startswith(prefix) and its == wanted
        }
        named, others = (named, others | some) if kind in _BEFORE_TASKS else (named | some, others)
    named |= {line[0] for key in types if (line := keys.parse_line(key)) is not None}
    if keys.QUEUES not in picture.oddities:
        picture.scores |= dict.fromkeys(sorted(named - picture.scores.keys()))
    return sorted(named | others)


def _read_queue(
    redis: Redis, picture: Picture, types: dict[str, str], queue: str, roll: Rolls
) -> None:
    for kind, wanted in _OF_A_QUEUE.items():
        key = _key(kind, queue)
        if not _expect(picture, types, key, wanted, queue) or kind in _UNREAD:
            continue
        for texts in _READERS[wanted](redis, key):
            if kind == "listeners":
                roll.members.update(texts)
            elif kind == "nodes":
                roll.noted.update(texts)
            else:
                note(picture, Place(kind, queue), texts, roll)


def _read_lines(
    redis: Redis, picture: Picture, types: dict[str, str], rolls: dict[str, Rolls]
) -> None:
    """Read the lines of all queues, how they are listed, and how each queue is set."""
    found: dict[Pair, None] = {}
    for key in types:
        pair = keys.parse_line(key)
        if pair is not None and _expect(picture, types, key, "list", pair[0]):
            found[pair] = None
            for texts in _read_list(redis, key):
                note(picture, Place("line", pair[0], line=pair[1]), texts, rolls[pair[0]])
    for queue in rolls:
        if types.get(keys.lines(queue)) == "zset":
            found |= dict.fromkeys(
                (queue, name)
                for names in _read_sorted_set(redis, keys.lines(queue))
                for name in names
            )
    prefix = keys.waiting("")
    for key in types:
        if key.startswith(prefix) and _expect(picture, types, key, "set", None):
            lock = key.removeprefix(prefix)
            for members in _read_set(redis, key):
                found |= dict.fromkeys(note_waiting(picture, lock, members))
    questions = [question for queue, name in found for question in about_line(picture, queue, name)]
    questions += [question for queue in rolls for question in about_settings(picture, queue)]
    ask(redis, [question for question in readable(questions, picture) if question[0][1] in types])


def _read_locks(redis: Redis, picture: Picture, types: dict[str, str]) -> None:
    prefix = keys.lock("")
    for key in types:
        if key.startswith(prefix) and _expect(picture, types, key, "set", None):
            place = Place("lock", "", line=key.removeprefix(prefix))
            for texts in _read_set(redis, key):
                note(picture, place, texts, Rolls())


def _read_kept(redis: Redis, picture: Picture, types: dict[str, str]) -> None:
    """Look at the keys that outlive their tasks for a while: each has to have an end."""
    prefix = keys.key_kept("")
    kept = [
        key
        for key in types
        if key.startswith(prefix) and _expect(picture, types, key, "string", None)
    ]
    for some in batches(kept, BATCH):
        for key, seconds in zip(some, redis.read(*[("TTL", key) for key in some]), strict=True):
            if seconds == -1:
                sentence = f"{key} never expires: delete it, or a new task with that key is taken for the old one for ever."
                picture.oddities[key] = Finding(
                    "kept", key, None, None, sentence, None, text="string"
                )


def _read_belongings(picture: Picture, types: dict[str, str]) -> None:
    """Look at what belongs to tasks, and what counts events: of which an audit knows no more than
    whose they are.
    """
    for prefix, kind in _OF_A_TASK.items():
        for key in types:
            if key.startswith(prefix) and _expect(picture, types, key, kind, None):
                task = key.removeprefix(prefix)
                if keys.task(task) not in types:
                    sentence = f"{key} belongs to a task that is gone."
                    picture.oddities[key] = Finding(
                        "left_behind", key, task, None, sentence, "mend", text=kind
                    )
    for prefix, kind in _NUMBERS.items():
        for key in types:
            if key.startswith(prefix):
                _expect(picture, types, key, kind, None)


def _pairs(
    redis: Redis, picture: Picture, types: dict[str, str], rolls: dict[str, Rolls]
) -> list[Pair]:
    """Return every queue and listener that has a key of its own, or is known; a key that is
    nobody's is an oddity.
    """
    known = [
        (queue, node)
        for queue, roll in rolls.items()
        for node in roll.members | roll.noted | roll.running
    ]
    pairs = dict.fromkeys(known)
    owners: dict[str, list[Pair]] = {}
    for pair in pairs:
        for name in _OF_A_LISTENER:
            owners.setdefault(name(*pair), []).append(pair)
    others = (
        keys.task(""),
        keys.lock(""),
        keys.waiting(""),
        keys.key_kept(""),
        keys.staged(""),
        keys.snapshot(""),
        *_HASHES,
        *_OF_A_TASK,
        *_NUMBERS,
        *[_key(kind, "") for kind in _OF_A_QUEUE],
    )
    for key in types:
        if (
            key == keys.QUEUES
            or key.startswith(others)
            or (keys.parse_line(key) or keys.parse_run(key)) is not None
        ):
            continue
        its = owners.get(key) or _owners(redis, types, key, rolls)
        if len(its) == 1:
            pairs[its[0]] = None
        else:
            why = (
                f"may be of {' or '.join(queue for queue, _ in its)}"
                if its
                else "is none that Blueque knows"
            )
            sentence = f"the key {key} {why}."
            picture.oddities[key] = Finding(
                "unknown_key", key, None, None, sentence, None, text=types[key]
            )
    return list(pairs)


def _owners(redis: Redis, types: dict[str, str], key: str, rolls: dict[str, Rolls]) -> list[Pair]:
    """Return to which queue and listener a key may belong. It cannot be taken apart: both names may
    hold a `_`.
    """
    found = [
        (queue, key.removeprefix(name(queue, "")))
        for name in _OF_A_LISTENER
        for queue in rolls
        if key.startswith(name(queue, ""))
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
        yield set(some) - seen  # it may return one twice
        seen.update(some)
        if cursor == "0":
            return


_READERS: dict[str, Callable[[Redis, str], Iterator[Iterable[str]]]] = {
    "list": _read_list,
    "set": _read_set,
    "zset": _read_sorted_set,
}


def _key(kind: str, queue: str) -> str:
    return _NAMES[kind](queue) if kind in _NAMES else Place(kind, queue).key


_NAMES = {
    "listeners": keys.listeners,
    "nodes": keys.nodes,
    "lines": keys.lines,
    "settings": keys.settings,
    "runs": keys.runs,
    "feeds": keys.feeds,
}
