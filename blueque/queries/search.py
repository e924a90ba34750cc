"""Search the tasks of many queues: read them in bounded pieces, and keep the matches.

The cost does not depend on how many tasks there are. Only the beginning of each list is searched,
at most MOST_SEARCHED tasks in total.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.connection.redis import as_fields
from blueque.model import keys
from blueque.model.ids import begins_uuid, is_uuid
from blueque.model.parts import in_parts
from blueque.model.task import Task
from blueque.queries.listing import MAX_FOUND, MIN_PREFIX, Listing, entered, in_order, shown
from blueque.queries.steps import clock, in_step, of_each, read
from blueque.queries.task_lists import lists_of, unfinished
from blueque.queries.waiting_lines import in_turn

if TYPE_CHECKING:
    from blueque.connection.redis import Redis
    from blueque.queries.steps import Reader

MOST_SEARCHED = 100_000  # tasks, of all lists together
MOST_KEPT = 20_000  # tasks that match; then the search ends
TASKS_AT_ONCE, TEXTS_AT_ONCE = 1000, 100  # in one round trip
TEXTS = ("parameters", "parameters_encoding", "error", "last_error")  # what `inside` can look at
NEXT = 100  # next tasks of each line that are read
MAX_IDS = 10_000  # ids of a queue's index that are read
MAX_ENDS = 1000  # ids at one end of a list that are read
QUEUES_AT_ONCE = 20  # searched in one round trip: their ids are all in memory


class Choice(NamedTuple):
    """Which tasks are wanted, and in which order. The functions take a task, the first two also the time.

    rank: the sort key, largest first if is_reversed; tasks of rank None come last. Without it the
        order is that of `Inspector.listing`.
    inside: whether a task is wanted because of its fields TEXTS, which may be large.
    ids: tasks to check in any case. is_indexed: check no others.
    is_oldest_first: search and return finished tasks in the order in which they ended.
    """

    wants: Callable[[Task, float], bool]
    rank: Callable[[Task, float], Any] | None = None
    is_reversed: bool = False
    inside: Callable[[Task], bool] | None = None
    ids: Sequence[str] = ()
    is_indexed: bool = False
    is_oldest_first: bool = False


def search(
    redis: Redis, queues: Sequence[str], statuses: Collection[str], limit: int, choice: Choice
) -> Listing:
    """See Inspector.listing."""
    searched = [] if choice.is_indexed else queues
    lists = [one for name in searched for one in lists_of(name, statuses, choice.is_oldest_first)]
    now, lengths, found = read(
        redis,
        in_step(
            clock(),
            of_each({one: one.length() for one in lists}),
            of_each(
                {name: unfinished(name, statuses, lambda one, _: one.length()) for name in searched}
            ),
        ),
    )
    for queue in found.values():
        lengths |= queue.lines
    depth = _depth(lengths.values())
    pages = read(
        redis, of_each({one: one.first(min(count, depth)) for one, count in lengths.items()})
    )
    held = [task for queue in found.values() for task in (*queue.held, *queue.started)]
    ids = dict.fromkeys(chain(choice.ids, held, *pages.values()))
    tasks = _matching(redis, ids, queues, statuses, choice, now)
    is_cut = len(tasks) >= MOST_KEPT or any(length > depth for length in lengths.values())
    lines = {
        (one.queue, one.line): [tasks[task] for task in page if task in tasks]
        for one, page in pages.items()
        if one.line is not None
    }
    listed = _ordered(tasks, lines, choice, len(queues) > 1, now)
    rest = max(len(listed) - limit, 0)
    more, looked_at = (None, depth) if is_cut else (rest, None)
    return Listing(now, listed[:limit], rest > 0, more, looked_at)


def _ordered(
    tasks: Mapping[str, Task],
    lines: Mapping[tuple[str, str], Sequence[Task]],
    choice: Choice,
    are_many: bool,
    now: float,
) -> list[Task]:
    """Return tasks in the wanted order. are_many: they are of several queues."""
    found: Iterable[Task] = tasks.values()
    if choice.is_oldest_first:
        listed = list(found)
        if are_many or choice.is_indexed:
            listed.sort(key=lambda task: entered(task) or 0.0)
    else:
        if choice.is_indexed:  # in no line: the oldest first
            found = sorted(found, key=lambda task: task.created or 0.0)
        listed = in_order(found, in_turn(lines))
    return listed if choice.rank is None else _ranked(listed, choice.rank, choice.is_reversed, now)


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
    """Return the ids of the tasks that are wanted for their contents."""
    wanted = set()
    for some in in_parts(tasks, TEXTS_AT_ONCE):
        replies = redis.read(*[("HMGET", keys.task(task.id), *TEXTS) for task in some])
        for task, reply in zip(some, replies, strict=True):
            more = as_fields(TEXTS, reply)
            if inside(Task(task.id, task.fields | more).for_people()):
                wanted.add(task.id)
    return wanted


def _ranked(
    tasks: Sequence[Task], rank: Callable[[Task, float], Any], is_reversed: bool, now: float
) -> list[Task]:
    ranks = {task.id: rank(task, now) for task in tasks}
    ranked = [task for task in tasks if ranks[task.id] is not None]
    ranked.sort(key=lambda task: ranks[task.id], reverse=is_reversed)
    return ranked + [task for task in tasks if ranks[task.id] is None]


def find(redis: Redis, prefix: str) -> list[str]:
    """See Inspector.find."""
    exists, names = redis.read(("EXISTS", keys.task(prefix)), ("ZRANGE", keys.QUEUES, 0, -1))
    # "order-1" is a whole id: never "order-10", though it may be gone
    if exists or len(prefix) < MIN_PREFIX or not begins_uuid(prefix):
        return [prefix] if exists else []
    ids: set[str] = set()
    for some in in_parts(names, QUEUES_AT_ONCE):
        pages = read(redis, of_each({queue: _pages(queue) for queue in some})).values()
        ids.update(task for page in chain(*pages) for task in page if task.startswith(prefix))
    # The index and the lists may still name what 1.0.0 has deleted.
    candidates = sorted(filter(is_uuid, ids))[: 10 * MAX_FOUND]
    replies = redis.read(*[("EXISTS", keys.task(task_id)) for task_id in candidates])
    existing = [task_id for task_id, exists in zip(candidates, replies, strict=True) if exists]
    return existing[:MAX_FOUND]


def _pages(queue: str) -> Reader[list[Sequence[str]]]:
    """Read ids of tasks of a queue: two round trips."""
    found, pages = yield from in_step(
        unfinished(queue, ("pending",), lambda line, _: line.first(NEXT)), _ends(queue)
    )
    return [found.held, found.started, *found.lines.values(), *pages]


def _ends(queue: str) -> Reader[list[Sequence[str]]]:
    # The index first; then the lists: a task that 1.0.0 made is not in the index until we touch it.
    return (
        yield [
            ("ZREVRANGE", keys.tasks(queue), 0, MAX_IDS - 1),
            ("LRANGE", keys.pending(queue), -MAX_ENDS, -1),
            ("LRANGE", keys.pending(queue), 0, MAX_ENDS - 1),
            ("ZRANGE", keys.scheduled(queue), 0, MAX_ENDS - 1),
            ("ZRANGE", keys.blocked(queue), 0, MAX_ENDS - 1),
            ("LRANGE", keys.failed(queue), 0, MAX_ENDS - 1),
            ("LRANGE", keys.cancelled(queue), 0, MAX_ENDS - 1),
            ("LRANGE", keys.complete(queue), 0, MAX_ENDS - 1),
        ]
    )
