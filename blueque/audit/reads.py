"""What the two looks of an audit ask, and where the answers go: into a picture of Redis, as
`invariants` wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from blueque.audit.observation import Hash, Picture, Standing
from blueque.connection.redis import Command, Redis
from blueque.model import keys
from blueque.model.lines import needs_of
from blueque.model.states import MARK, Entry, Place

BATCH = 1000  # keys or entries in one round trip

T = TypeVar("T")
Pair = tuple[str, str]  # queue, node
Question = tuple[Command, Callable[[Any], object]]  # and what to do with the answer

_FIELDS = (
    "status",
    "queue",
    "node",
    "pid",
    "token",
    "attempt",
    "reclaimed_node",
    "updated",
    "priority",
    "needs",
    "lock",
    "counted",
    "run",
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
        self.running: set[str] = set()  # nodes of started tasks
        self.registrations: dict[str, Sequence[str | None]] = {}
        self.held: dict[str, int] = {}
        self.orders: set[str] = set()

    @property
    def nodes(self) -> set[str]:
        return (
            self.members | self.noted | self.registrations.keys() | self.held.keys() | self.orders
        )


def conclude(picture: Picture, rolls: dict[str, Rolls]) -> None:
    """Put what is known of the listeners into the picture."""
    for queue, roll in rolls.items():
        picture.members[queue] = len(roll.members)
        for node in roll.nodes:
            instance, state, resources = roll.registrations.get(node, (None, None, None))
            if node in roll.registrations and state is None:
                state = "?"
            picture.listeners[queue, node] = Standing(
                state,
                instance,
                node in roll.members,
                node in roll.noted,
                node in roll.orders,
                roll.held.get(node, 0),
                resources or "",
            )


def note(
    picture: Picture,
    place: Place,
    texts: Iterable[str],
    roll: Rolls,
    only: Iterable[str] | None = None,
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


def note_staged(
    picture: Picture, chunk: str, texts: Iterable[str], only: Iterable[str] | None = None
) -> None:
    """Remember the tasks of a chunk, without what stands before them; only these, if told which."""
    for text in texts:
        task = text.partition(" ")[0]
        if only is None or task in only:
            picture.note(task, Place("staged", "", line=chunk), text)


def note_waiting(picture: Picture, lock: str, members: Iterable[str]) -> Iterator[Pair]:
    """Remember what cannot mean anything among the lines that wait for a lock; yield the others,
    and their queues.
    """
    for member in members:
        line, is_there, queue = member.partition("_")
        needs = needs_of(line)
        if is_there and needs is not None and needs.lock == lock:
            yield queue, line
        else:
            picture.garbage.append(Entry(Place("waiting", "", line=lock), member))


def _task_of(member: str) -> str | None:
    try:
        return keys.parse_started_member(member)[2]
    except ValueError:  # another program's
        return None


def about_task(task: str, found: dict[str, Hash]) -> list[Question]:
    names: list[str] = []

    def take_fields(values: Sequence[str | None]) -> None:
        found[task] = Hash(frozenset(names), *values)

    return [
        (("HKEYS", keys.task(task)), names.extend),
        (("HMGET", keys.task(task), *_FIELDS), take_fields),
    ]


def about_listeners(
    picture: Picture,
    rolls: dict[str, Rolls],
    pairs: Iterable[Pair],
    only: Iterable[str] | None = None,
) -> list[Question]:
    questions: list[Question] = []
    for queue, node in pairs:
        roll = rolls[queue]

        def take_existence(exists: int, roll: Rolls = roll, node: str = node) -> None:
            if exists:
                roll.registrations[node] = (None, None, None)

        def take_registration(
            values: Sequence[str | None], roll: Rolls = roll, node: str = node
        ) -> None:
            if node in roll.registrations:
                roll.registrations[node] = values

        def take_held(
            held: Sequence[str], roll: Rolls = roll, queue: str = queue, node: str = node
        ) -> None:
            if held:
                roll.held[node] = len(held)
            note(picture, Place("reserved", queue, node), held, roll, only)

        def take_orders(
            marks: Sequence[str], roll: Rolls = roll, queue: str = queue, node: str = node
        ) -> None:
            if marks:
                roll.orders.add(node)
            note(picture, Place("orders", queue, node), marks, roll)

        questions += [
            (("EXISTS", keys.listener(queue, node)), take_existence),
            (
                ("HMGET", keys.listener(queue, node), "instance", "state", "resources"),
                take_registration,
            ),
            (("LRANGE", keys.reserved(queue, node), 0, -1), take_held),
            (("ZRANGE", keys.orders(queue, node), 0, -1), take_orders),
        ]
    return questions


def about_line(picture: Picture, queue: str, line: str) -> list[Question]:
    key, needs = keys.line(queue, line), needs_of(line)
    questions: list[Question] = [
        (("LLEN", key), lambda length: picture.see(queue, line, length=length)),
        (("LINDEX", key, -1), lambda task: picture.see(queue, line, first=task)),
        (
            ("ZSCORE", keys.lines(queue), line),
            lambda score: picture.see(queue, line, score=None if score is None else float(score)),
        ),
    ]
    if needs is not None and needs.lock is not None:
        command = ("SISMEMBER", keys.waiting(needs.lock), f"{line}_{queue}")
        questions += [
            (command, lambda is_waited: picture.see(queue, line, is_waited=bool(is_waited)))
        ]
    return questions


def about_settings(picture: Picture, queue: str) -> list[Question]:
    """Ask how a queue is set, and whether there is work in its default line."""
    command = ("HMGET", keys.settings(queue), "max_concurrency", "paused")
    return [
        (command, lambda found: picture.settings.update({queue: (found[0], found[1])})),
        (("LLEN", keys.pending(queue)), lambda length: picture.in_line.update({queue: length})),
    ]


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
    connection.ahead = None  # our EXEC ends the watch of what was looked at ahead
    replies = redis.read(("MULTI",), *[command for command, _ in questions], ("EXEC",))
    for (_, take_reply), reply in zip(questions, replies[-1], strict=True):
        if isinstance(reply, Exception):
            raise reply
        take_reply(reply)


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in pieces of so many."""
    for first in range(0, len(items), size):
        yield items[first : first + size]
