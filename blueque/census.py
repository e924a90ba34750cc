"""Looks at everything that Blueque has in Redis, as `invariants` wants it: one at the whole, piece by piece, and one at
what is suspect, all at one instant.

Here, and nowhere else, SCAN is allowed: what nobody remembers can be found in no other way. It is for a person or a test
that asks for an audit, never for a program that runs all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from blueque import keys
from blueque.connection import Command, Redis
from blueque.invariants import Finding, Hash, Picture, Standing
from blueque.places import LISTS, MARK, TYPES, Entry, Place, home

BATCH = 1000                                           # keys or entries in one round trip

T = TypeVar("T")
Pair = tuple[str, str]                                 # queue, node
Question = tuple[Command, Callable[[Any], object]]     # and what to do with the answer

_FIELDS = ("status", "queue", "node", "pid", "token", "attempt", "reclaimed_node", "updated")
_OF_A_QUEUE = {
    **{kind: TYPES[kind] for kind in TYPES if kind not in ("reserved", "orders")}, "listeners": "set", "nodes": "zset"
}
_OF_A_LISTENER = {keys.reserved: "list", keys.listener: "hash", keys.orders: "zset"}


class Census(NamedTuple):
    """Redis as one look has seen it, with the ids of all tasks of which there is a hash or an entry."""

    picture: Picture
    tasks: list[str]


def take(redis: Redis) -> Census:
    """Look at everything. What moves meanwhile may be seen at two places or at none."""
    picture, types = Picture(), dict(_scan(redis))
    tasks = [key.removeprefix(keys.task("")) for key in types if key.startswith(keys.task(""))]
    for task in tasks:
        _expect(picture, types, keys.task(task), "hash", None)
    tasks = [task for task in tasks if keys.task(task) not in picture.oddities]
    queues = _queues(redis, picture, types)
    rolls = {queue: _Rolls() for queue in queues}
    for queue in queues:
        _read_queue(redis, picture, types, queue, rolls[queue])
    pairs = _pairs(redis, picture, types, rolls)
    for queue, node in pairs:
        for name, kind in _OF_A_LISTENER.items():
            _expect(picture, types, name(queue, node), kind, queue)
    for some in batches(pairs, BATCH):
        questions = _about_listeners(picture, rolls, some)
        _ask(redis, [question for question in _readable(questions, picture) if question[0][1] in types])
    _conclude(picture, rolls)
    known = set(tasks)
    others = [task for task in picture.entries if task not in known and keys.task(task) not in picture.oddities]
    return Census(picture, tasks + others)


def hashes(redis: Redis, tasks: Iterable[str]) -> dict[str, Hash]:
    """Return the hash of each task that has one, or none, but not something else."""
    found: dict[str, Hash] = {}
    _ask(redis, [question for task in tasks for question in _about_task(task, found)])
    return found


def look_again(redis: Redis, first: Picture, findings: Sequence[Finding]) -> tuple[Picture, dict[str, Hash]]:
    """Look once more at what the findings are about, at one instant."""
    picture, tasks = Picture(oddities=dict(first.oddities)), dict[str, Hash]()
    suspects = {finding.task: finding.seen for finding in findings if finding.task is not None}
    entries = {task: _candidates(first, task, seen or Hash()) for task, seen in suspects.items()}
    places = {entry.place for some in entries.values() for entry in some}
    queues = {finding.queue for finding in findings if finding.queue is not None} | {place.queue for place in places}
    rolls = {queue: _Rolls() for queue in queues}
    pairs = {pair for pair in first.listeners if pair[0] in queues}
    for finding in findings:
        nodes = (finding.node, *((finding.seen.node, finding.seen.claimant) if finding.seen else ()))
        pairs |= {(finding.queue, node) for node in nodes if node is not None and finding.queue is not None}
    questions = [question for queue in queues for question in _about_queue(picture, queue, rolls[queue], suspects)]
    questions += _about_listeners(picture, rolls, sorted(pairs), suspects)
    for task, some in entries.items():
        questions += _about_task(task, tasks)
        questions += [question for entry in some for question in _about_entry(picture, task, entry)]
    kinds = [question for finding in findings for question in _about_key(picture, finding)]
    _ask_at_once(redis, [*_readable(questions, first), *kinds])
    _conclude(picture, rolls)
    return picture, tasks


class _Rolls:
    """The lists of the listeners of one queue, until all of them are read."""

    def __init__(self) -> None:
        self.members: set[str] = set()
        self.noted: set[str] = set()
        self.running: set[str] = set()                 # nodes of started tasks
        self.registrations: dict[str, Sequence[str | None]] = {}
        self.held: dict[str, int] = {}
        self.orders: set[str] = set()

    @property
    def nodes(self) -> set[str]:
        return self.members | self.noted | self.registrations.keys() | self.held.keys() | self.orders


def _conclude(picture: Picture, rolls: dict[str, _Rolls]) -> None:
    """Put what is known of the listeners into the picture."""
    for queue, roll in rolls.items():
        picture.members[queue] = len(roll.members)
        for node in roll.nodes:
            instance, state = roll.registrations.get(node, (None, None))
            if node in roll.registrations and state is None:
                state = "?"
            picture.listeners[queue, node] = Standing(
                state, instance, node in roll.members, node in roll.noted, node in roll.orders, roll.held.get(node, 0)
            )


# The first look


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


def _read_queue(redis: Redis, picture: Picture, types: dict[str, str], queue: str, roll: _Rolls) -> None:
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
                _note(picture, Place(kind, queue), texts, roll)


def _note(
    picture: Picture, place: Place, texts: Iterable[str], roll: _Rolls, only: Iterable[str] | None = None
) -> None:
    """Remember what a place holds; of tasks only these, if told which."""
    for text in texts:
        task: str | None = text
        if place.kind in ("wake", "orders"):
            task = None
            if text != MARK:
                picture.garbage.append(Entry(place, text))
        elif place.kind == "started":
            task = _task_of(text)
            if task is None:
                picture.garbage.append(Entry(place, text))
            else:
                roll.running.add(keys.parse_started_member(text)[0])
        if task is not None and (only is None or task in only):
            picture.note(task, place, text)


def _task_of(member: str) -> str | None:
    try:
        return keys.parse_started_member(member)[2]
    except ValueError:                                 # another program's
        return None


def _pairs(redis: Redis, picture: Picture, types: dict[str, str], rolls: dict[str, _Rolls]) -> list[Pair]:
    """Return every queue and listener that has a key of its own, or is known; a key that is nobody's is an oddity."""
    known = [(queue, node) for queue, roll in rolls.items() for node in roll.members | roll.noted | roll.running]
    pairs = dict.fromkeys(known)
    owners: dict[str, list[Pair]] = {}
    for pair in pairs:
        for name in _OF_A_LISTENER:
            owners.setdefault(name(*pair), []).append(pair)
    others = (keys.task(""), *[_key(kind, "") for kind in _OF_A_QUEUE])
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


def _owners(redis: Redis, types: dict[str, str], key: str, rolls: dict[str, _Rolls]) -> list[Pair]:
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


# What both looks ask


def _about_task(task: str, found: dict[str, Hash]) -> list[Question]:
    names: list[str] = []

    def take_fields(values: Sequence[str | None]) -> None:
        found[task] = Hash(frozenset(names), *values)

    return [(("HKEYS", keys.task(task)), names.extend), (("HMGET", keys.task(task), *_FIELDS), take_fields)]


def _about_listeners(
    picture: Picture, rolls: dict[str, _Rolls], pairs: Iterable[Pair], only: Iterable[str] | None = None
) -> list[Question]:
    questions: list[Question] = []
    for queue, node in pairs:
        roll = rolls[queue]

        def take_existence(exists: int, roll: _Rolls = roll, node: str = node) -> None:
            if exists:
                roll.registrations[node] = (None, None)

        def take_registration(values: Sequence[str | None], roll: _Rolls = roll, node: str = node) -> None:
            if node in roll.registrations:
                roll.registrations[node] = values

        def take_held(held: Sequence[str], roll: _Rolls = roll, queue: str = queue, node: str = node) -> None:
            if held:
                roll.held[node] = len(held)
            _note(picture, Place("reserved", queue, node), held, roll, only)

        def take_orders(marks: Sequence[str], roll: _Rolls = roll, queue: str = queue, node: str = node) -> None:
            if marks:
                roll.orders.add(node)
            _note(picture, Place("orders", queue, node), marks, roll)

        questions += [
            (("EXISTS", keys.listener(queue, node)), take_existence),
            (("HMGET", keys.listener(queue, node), "instance", "state"), take_registration),
            (("LRANGE", keys.reserved(queue, node), 0, -1), take_held),
            (("ZRANGE", keys.orders(queue, node), 0, -1), take_orders),
        ]
    return questions


# The second look


def _about_queue(picture: Picture, queue: str, roll: _Rolls, only: Iterable[str]) -> list[Question]:
    def take_score(score: str | None) -> None:
        picture.scores[queue] = None if score is None else float(score)

    return [
        (("ZSCORE", keys.QUEUES, queue), take_score),
        (("SMEMBERS", keys.listeners(queue)), roll.members.update),
        (("ZRANGE", keys.nodes(queue), 0, -1), roll.noted.update),
        (("SMEMBERS", keys.started(queue)), lambda texts: _note(picture, Place("started", queue), texts, roll, only)),
        (("ZRANGE", keys.wake(queue), 0, -1), lambda texts: _note(picture, Place("wake", queue), texts, roll)),
    ]


def _candidates(first: Picture, task: str, seen: Hash) -> set[Entry]:
    """Return where the task was or should have been, without the places that are read whole."""
    entries = set(first.entries.get(task, ()))
    if seen.queue is not None:
        entries |= {Entry(Place("tasks", seen.queue), task)}
        if seen.status in TYPES:
            entries |= set(home(task, seen.status, seen.queue, seen.node, seen.pid))
    return {entry for entry in entries if entry.place.kind not in ("reserved", "started")}


def _about_entry(picture: Picture, task: str, entry: Entry) -> list[Question]:
    place, text = entry
    if place.kind in LISTS:
        return [(("LPOS", place.key, text, "COUNT", 0), lambda found: picture.note(task, place, text, len(found or ())))]
    return [(("ZSCORE", place.key, text), lambda score: picture.note(task, place, text, int(score is not None)))]


def _about_key(picture: Picture, finding: Finding) -> list[Question]:
    key = finding.key
    if key not in picture.oddities:
        return []
    return [(("TYPE", key), lambda kind: None if kind == finding.text else picture.oddities.pop(key))]


def _readable(questions: Iterable[Question], picture: Picture) -> list[Question]:
    """Leave out the keys that cannot be read, being of another type."""
    return [question for question in questions if question[0][1] not in picture.oddities]


def _ask(redis: Redis, questions: Sequence[Question]) -> None:
    for some in batches(questions, BATCH):
        replies = redis.read(*[command for command, _ in some])
        for (_, take_reply), reply in zip(some, replies, strict=True):
            take_reply(reply)


def _ask_at_once(redis: Redis, questions: Sequence[Question]) -> None:
    connection = redis.connection()
    connection.ahead = None                            # our EXEC ends the watch of what was looked at ahead
    replies = redis.read(("MULTI",), *[command for command, _ in questions], ("EXEC",))
    for (_, take_reply), reply in zip(questions, replies[-1], strict=True):
        if isinstance(reply, Exception):
            raise reply
        take_reply(reply)


def _key(kind: str, queue: str) -> str:
    if kind in TYPES:
        return Place(kind, queue).key
    return keys.listeners(queue) if kind == "listeners" else keys.nodes(queue)


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in pieces of so many."""
    for first in range(0, len(items), size):
        yield items[first : first + size]
