"""Search the tasks of many queues: read them in bounded pieces, and keep those that match.

The cost has a bound that does not depend on how many tasks there are: the tasks at the beginning of
each list are searched, so that it is MOST_SEARCHED of all lists together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.connection.redis import as_fields
from blueque.model import keys
from blueque.model.parts import in_parts
from blueque.model.task import Task
from blueque.queries.beginnings import LISTS, SETS
from blueque.queries.listeners import Members, ask_members, read_groups, read_held_and
from blueque.queries.listing import Listing, entered, in_order, shown, to_seconds
from blueque.queries.waiting_lines import MAX_HEADS, ask_names, in_turn, with_default

if TYPE_CHECKING:
    from blueque.connection.redis import Command, Redis

MOST_SEARCHED = 100_000  # tasks, of all lists together
MOST_KEPT = 20_000  # tasks that match; then the search ends
IDS_AT_ONCE = 10_000  # in one command
TASKS_AT_ONCE, TEXTS_AT_ONCE = 1000, 100  # in one round trip
TEXTS = ("parameters", "parameters_encoding", "error", "last_error")  # what `inside` can look at


class Choice(NamedTuple):
    """Which tasks are wanted, and in which order. The functions take a task, the first two the time.

    rank: the sort key, the largest first if is_reversed; tasks of rank None come last. Without a
        rank the order is that of `Inspector.listing`.
    inside: whether a task is wanted that has the fields TEXTS besides, which may be large.
    ids: tasks that are looked at in any case.
    is_indexed: no others are looked at.
    is_oldest_first: finished tasks are searched and returned in the order in which they ended.
    """

    wants: Callable[[Task, float], bool]
    rank: Callable[[Task, float], Any] | None = None
    is_reversed: bool = False
    inside: Callable[[Task], bool] | None = None
    ids: Sequence[str] = ()
    is_indexed: bool = False
    is_oldest_first: bool = False


class _Source(NamedTuple):
    """A list of ids. from_tail: its first task is its last entry. line: of pending tasks."""

    read: str
    key: str
    length: int
    from_tail: bool = False
    line: tuple[str, str] | None = None

    def pages(self, depth: int) -> Iterator[Command]:
        """Yield the commands that read the first `depth` ids."""
        for first in range(0, min(self.length, depth), IDS_AT_ONCE):
            last = min(first + IDS_AT_ONCE, depth) - 1
            ends = (-last - 1, -first - 1) if self.from_tail else (first, last)
            yield (self.read, self.key, *ends)

    def take(self, depth: int, replies: Iterator[Sequence[str]]) -> list[str]:
        pages = [next(replies) for _ in self.pages(depth)]
        return [task for page in pages for task in (page[::-1] if self.from_tail else page)]


def search(
    redis: Redis, queues: Sequence[str], statuses: Collection[str], limit: int, choice: Choice
) -> Listing:
    """See Inspector.listing."""
    searched = [] if choice.is_indexed else queues
    now, found, sources = _sources(redis, searched, statuses, choice.is_oldest_first)
    depth = _depth([source.length for source in sources])
    commands = [page for source in sources for page in source.pages(depth)]
    replies = iter(redis.read(*commands))
    pages = [source.take(depth, replies) for source in sources]
    ids = dict.fromkeys(chain(choice.ids, found, *pages))
    tasks = _matching(redis, ids, queues, statuses, choice, now)
    is_cut = len(tasks) >= MOST_KEPT or any(source.length > depth for source in sources)
    lines = {
        source.line: [tasks[task] for task in page if task in tasks]
        for source, page in zip(sources, pages, strict=True)
        if source.line is not None
    }
    if choice.is_oldest_first:
        listed = list(tasks.values())
        if len(queues) > 1 or choice.is_indexed:
            listed.sort(key=lambda task: entered(task) or 0.0)
    else:
        found_tasks: Iterable[Task] = tasks.values()
        if choice.is_indexed:  # in no line: the oldest first
            found_tasks = sorted(found_tasks, key=lambda task: task.created or 0.0)
        listed = in_order(found_tasks, in_turn(lines))
    if choice.rank is not None:
        listed = _ranked(listed, choice.rank, choice.is_reversed, now)
    rest = max(len(listed) - limit, 0)
    more, looked_at = (None, depth) if is_cut else (rest, None)
    return Listing(now, listed[:limit], rest > 0, more, looked_at)


def _sources(
    redis: Redis, queues: Sequence[str], statuses: Collection[str], is_oldest_first: bool
) -> tuple[float, list[str], list[_Source]]:
    """Return the time, the ids of held and started tasks, and the lists to search: two round trips."""
    groups = [
        [*ask_members(queue), ask_names(queue, MAX_HEADS), *_ask_lengths(queue, statuses)]
        for queue in queues
    ]
    (time,), *replies = read_groups(redis, [[("TIME",)], *groups])
    now = to_seconds(time)
    sources = [
        _Source(command, key, length, is_oldest_first and command == "LRANGE")
        for queue, reply in zip(queues, replies, strict=True)
        for (command, key), length in zip(_keys(queue, statuses), reply[4:], strict=True)
    ]
    if {"started", "reserved", "pending"}.isdisjoint(statuses):
        return now, [], sources
    members = {queue: Members(*reply[:3]) for queue, reply in zip(queues, replies, strict=True)}
    names = with_default({queue: reply[3] for queue, reply in zip(queues, replies, strict=True)})
    lines = [(queue, line) for queue, some in names.items() for line in some]
    lines = lines if "pending" in statuses else []
    # A pending task may be in a listener's own list: the listener died between pop and reserve.
    asked: list[Command] = [("LLEN", keys.line(*line)) for line in lines]
    held, started, lengths = read_held_and(redis, members, asked)
    sources += [
        _Source("LRANGE", keys.line(*line), length, True, line)
        for line, length in zip(lines, lengths, strict=True)
    ]
    return now, [*held, *started], sources


def _keys(queue: str, statuses: Collection[str]) -> list[tuple[str, str]]:
    """Return the command that reads each list, and its key."""
    sets = [("ZRANGE", key(queue)) for status, key in SETS.items() if status in statuses]
    lists = [("LRANGE", key(queue)) for status, key in LISTS.items() if status in statuses]
    return [*sets, *lists]


def _ask_lengths(queue: str, statuses: Collection[str]) -> list[Command]:
    return [
        ("ZCARD" if command == "ZRANGE" else "LLEN", key) for command, key in _keys(queue, statuses)
    ]


def _depth(lengths: Iterable[int]) -> int:
    """Return how many tasks of each list to search, so that short ones are searched as a whole."""
    room, share = MOST_SEARCHED, MOST_SEARCHED
    ordered = sorted(length for length in lengths if length)
    for place, length in enumerate(ordered):
        share = max(room // (len(ordered) - place), 1)
        if length > share:
            return share
        room -= length
    return ordered[-1] if ordered else share


def _matching(
    redis: Redis,
    ids: Iterable[str],
    queues: Collection[str],
    statuses: Collection[str],
    choice: Choice,
    now: float,
) -> dict[str, Task]:
    left, of_queues, kept = iter(ids), set(queues), dict[str, Task]()
    while len(kept) < MOST_KEPT and (piece := list(islice(left, TASKS_AT_ONCE))):
        found = [
            task
            for task in shown(redis, piece).values()
            if task.status in statuses and task.queue in of_queues and choice.wants(task, now)
        ]
        if choice.inside is not None:
            inside = _inside(redis, found, choice.inside)
            found = [task for task in found if task.id in inside]
        kept |= {task.id: task for task in found}
    return kept


def _inside(redis: Redis, tasks: Sequence[Task], inside: Callable[[Task], bool]) -> set[str]:
    """Return the ids of those of these tasks that are wanted for what they contain."""
    wanted = set()
    for some in in_parts(tasks, TEXTS_AT_ONCE):
        replies = redis.read(*[("HMGET", keys.task(task.id), *TEXTS) for task in some])
        for task, reply in zip(some, replies, strict=True):
            more = as_fields(TEXTS, reply)
            if inside(Task(task.id, task.fields | more)):
                wanted.add(task.id)
    return wanted


def _ranked(
    tasks: Sequence[Task], rank: Callable[[Task, float], Any], is_reversed: bool, now: float
) -> list[Task]:
    ranks = {task.id: rank(task, now) for task in tasks}
    ranked = [task for task in tasks if ranks[task.id] is not None]
    ranked.sort(key=lambda task: ranks[task.id], reverse=is_reversed)
    return ranked + [task for task in tasks if ranks[task.id] is None]
