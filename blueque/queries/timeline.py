"""Which attempts ran when and on which node, from the events of queues and from what runs now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.model import keys
from blueque.model.parts import in_parts
from blueque.model.states import LOST
from blueque.queries import history, listing
from blueque.queries.steps import clock, read

if TYPE_CHECKING:
    from blueque.connection.redis import Command, Redis
    from blueque.model.task import Task
    from blueque.queries.history import Event
    from blueque.queries.listeners import Node

MOST_EVENTS = 10_000  # events of a queue that are read; its stream has few more
MOST_RUNNING = 1000
QUEUES_AT_ONCE = 4
# The events that end a run, and its outcome.
ENDS = {
    "complete": "complete",
    "failed": "failed",
    "retried": "failed",
    "cancelled": "cancelled",
    "released": "released",
    "postponed": "released",
    "lost": "lost",
}
_BEGINS = ("started", "restored", "reasserted")


class Run(NamedTuple):
    """One attempt while its process ran.

    node: the last listener that watched it.
    began, ended: Unix seconds; `ended` is None while it runs.
    outcome: complete, failed, cancelled, released or lost; None while it runs.
    """

    task: str
    attempt: int
    queue: str
    node: str
    began: float
    ended: float | None
    outcome: str | None


class Timeline(NamedTuple):
    """The runs that overlap a time span, earliest first.

    since, until: the span, by the clock of Redis.
    cut: the queues whose first events are gone or were not read.
    has_more: more tasks run now than are listed.
    deaths: the listeners that were found dead, and when, in Unix seconds.
    """

    since: float
    until: float
    runs: list[Run]
    cut: list[str]
    has_more: bool = False
    deaths: Sequence[tuple[str, float]] = ()


def load(redis: Redis, queues: Sequence[str], seconds: float, most: int | None = None) -> Timeline:
    """Return what ran in the last `seconds` seconds.

    Three round trips for what runs now, and one for each 4 queues.
    most: how many of the newest events of all queues together are read, in two round trips; None:
        10,000 of each queue.
    """
    until = read(redis, clock())
    since = until - seconds
    runs: list[Run] = []
    cut: list[str] = []
    deaths: list[tuple[str, float]] = []
    for queue, entries, is_cut in (
        _shared(redis, queues, since, most) if most else _each(redis, queues, since)
    ):
        events = [*history.parse(queue, reversed(entries), without="reserved")]
        runs += over(events, since)
        deaths += [(event.by, event.at) for event in events if event.event == "died" and event.by]
        if is_cut:
            cut.append(queue)
    has_more = False
    if queues:
        listed = listing.listing(redis, queues, ("started",), MOST_RUNNING)
        runs += [running(task) for task in listed.tasks]
        has_more = listed.has_more
    runs.sort(key=lambda run: (run.began, run.task))
    return Timeline(since, until, runs, cut, has_more, deaths)


def silenced(found: Timeline, nodes: Iterable[Node]) -> Timeline:
    """Return a timeline in which runs of unheard listeners end at their last beats, as `not heard`."""
    last = {node.id: found.until - node.seen for node in nodes if node.is_unheard and node.seen}
    runs = [
        run._replace(ended=max(last[run.node], run.began), outcome="not heard")
        if run.ended is None and run.node in last
        else run
        for run in found.runs
    ]
    return found._replace(runs=runs)


def _each(
    redis: Redis, queues: Sequence[str], since: float
) -> Iterator[tuple[str, Sequence[Any], bool]]:
    """Yield the newest entries of each queue, newest first, and whether there may be more."""
    for some in in_parts(queues, QUEUES_AT_ONCE):
        asked = [_newest(queue, since, MOST_EVENTS) for queue in some]
        for queue, entries in zip(some, redis.read(*asked), strict=True):
            yield queue, entries, len(entries) >= MOST_EVENTS


def _shared(
    redis: Redis, queues: Sequence[str], since: float, most: int
) -> Iterator[tuple[str, Sequence[Any], bool]]:
    """Do the same for a number of entries in all. Busy queues get what quiet ones leave."""
    if not queues:
        return
    share = max(most // len(queues), 1)
    asked = [_newest(queue, since, share) for queue in queues]
    found = dict(zip(queues, redis.read(*asked), strict=True))
    full = [queue for queue in queues if len(found[queue]) >= share]
    left = most - sum(map(len, found.values()))
    more = left // len(full) if full else 0
    if more > 0:
        ends = [f"({found[queue][-1][0]}" for queue in full]
        asked = [_newest(queue, since, more, end) for queue, end in zip(full, ends, strict=True)]
        for queue, entries in zip(full, redis.read(*asked), strict=True):
            found[queue] += entries
    for queue, entries in found.items():
        yield queue, entries, queue in full and len(entries) >= share + more


def _newest(queue: str, since: float, count: int, end: str = "+") -> Command:
    return ("XREVRANGE", keys.events(queue), end, history.entry_at(since), "COUNT", count)


def over(events: Iterable[Event], since: float) -> list[Run]:
    """Return the runs that have ended, from events in the order of their times."""
    begun: dict[tuple[str, int], tuple[str, float]] = {}
    found = []
    for event in events:
        its = (event.task, event.attempt)
        node, began = begun.get(its, (event.by or "", None))
        if event.event in _BEGINS:
            begun[its] = event.by or "", event.at
        elif event.event == "adopted" and began is not None:
            begun[its] = event.by or "", began
        elif event.event in ENDS:
            began = _began(event, since) if began is None else began
            if began is not None:  # else it ended before it started
                is_lost = event.facts.get("error_type") in LOST
                outcome = "lost" if is_lost else ENDS[event.event]
                found.append(Run(*its, event.queue or "", node, began, event.at, outcome))
                begun.pop(its, None)
    return found


def _began(event: Event, since: float) -> float | None:
    """Return when a run began that ended with this event, if its beginning was not seen."""
    took, began = event.facts.get("took"), event.facts.get("began")
    if isinstance(took, (int, float)):
        return event.at - took
    try:
        if began is not None:
            return float(began)
    except (TypeError, ValueError):  # written by another program
        pass
    return since if event.event in ("lost", "released") else None


def running(task: Task) -> Run:
    """Return the run of a started task."""
    began = task.started or task.updated or 0.0
    return Run(task.id, task.attempt or 0, task.queue or "", task.node or "", began, None, None)
