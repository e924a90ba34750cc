"""What the two looks of an audit ask, and where the answers go: into a picture of Redis, as `invariants` wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from blueque import keys
from blueque.connection import Command, Redis
from blueque.invariants import Hash, Picture, Standing
from blueque.places import MARK, Entry, Place

BATCH = 1000                                           # keys or entries in one round trip

T = TypeVar("T")
Pair = tuple[str, str]                                 # queue, node
Question = tuple[Command, Callable[[Any], object]]     # and what to do with the answer

_FIELDS = (
    "status", "queue", "node", "pid", "token", "attempt", "reclaimed_node", "updated", "priority", "needs", "lock",
    "counted",
)


def hashes(redis: Redis, tasks: Iterable[str]) -> dict[str, Hash]:
    """Return the hash of each task that has one, or none, but not something else."""
    found: dict[str, Hash] = {}
    ask(redis, [question for task in tasks for question in about_task(task, found)])
    return found


class Rolls:
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


def conclude(picture: Picture, rolls: dict[str, Rolls]) -> None:
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


def note(
    picture: Picture, place: Place, texts: Iterable[str], roll: Rolls, only: Iterable[str] | None = None
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


def about_task(task: str, found: dict[str, Hash]) -> list[Question]:
    names: list[str] = []

    def take_fields(values: Sequence[str | None]) -> None:
        found[task] = Hash(frozenset(names), *values)

    return [(("HKEYS", keys.task(task)), names.extend), (("HMGET", keys.task(task), *_FIELDS), take_fields)]


def about_listeners(
    picture: Picture, rolls: dict[str, Rolls], pairs: Iterable[Pair], only: Iterable[str] | None = None
) -> list[Question]:
    questions: list[Question] = []
    for queue, node in pairs:
        roll = rolls[queue]

        def take_existence(exists: int, roll: Rolls = roll, node: str = node) -> None:
            if exists:
                roll.registrations[node] = (None, None)

        def take_registration(values: Sequence[str | None], roll: Rolls = roll, node: str = node) -> None:
            if node in roll.registrations:
                roll.registrations[node] = values

        def take_held(held: Sequence[str], roll: Rolls = roll, queue: str = queue, node: str = node) -> None:
            if held:
                roll.held[node] = len(held)
            note(picture, Place("reserved", queue, node), held, roll, only)

        def take_orders(marks: Sequence[str], roll: Rolls = roll, queue: str = queue, node: str = node) -> None:
            if marks:
                roll.orders.add(node)
            note(picture, Place("orders", queue, node), marks, roll)

        questions += [
            (("EXISTS", keys.listener(queue, node)), take_existence),
            (("HMGET", keys.listener(queue, node), "instance", "state"), take_registration),
            (("LRANGE", keys.reserved(queue, node), 0, -1), take_held),
            (("ZRANGE", keys.orders(queue, node), 0, -1), take_orders),
        ]
    return questions


def readable(questions: Iterable[Question], picture: Picture) -> list[Question]:
    """Leave out the keys that cannot be read, being of another type."""
    return [question for question in questions if question[0][1] not in picture.oddities]


def ask(redis: Redis, questions: Sequence[Question]) -> None:
    for some in batches(questions, BATCH):
        replies = redis.read(*[command for command, _ in some])
        for (_, take_reply), reply in zip(some, replies, strict=True):
            take_reply(reply)


def ask_at_once(redis: Redis, questions: Sequence[Question]) -> None:
    connection = redis.connection()
    connection.ahead = None                            # our EXEC ends the watch of what was looked at ahead
    replies = redis.read(("MULTI",), *[command for command, _ in questions], ("EXEC",))
    for (_, take_reply), reply in zip(questions, replies[-1], strict=True):
        if isinstance(reply, Exception):
            raise reply
        take_reply(reply)


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in pieces of so many."""
    for first in range(0, len(items), size):
        yield items[first : first + size]
