"""Which attempts ran when and on which node, from the events of queues and from what runs now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.model import keys
from blueque.model.states import LOST
from blueque.queries import history, listing

if TYPE_CHECKING:
    from blueque.connection.redis import Redis
    from blueque.model.task import Task
    from blueque.queries.history import Event

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

    node: the last listener that watched it. began, ended: in Unix seconds; ended is None while it
        runs.
    outcome: complete, failed, cancelled, released, lost; None while it runs.
    """

    task: str
    attempt: int
    queue: str
    node: str
    began: float
    ended: float | None
    outcome: str | None


class Timeline(NamedTuple):
    """The runs that overlap a time span, the earliest first.

    since, until: the span, by the clock of Redis. cut: the queues whose events at its beginning are
        gone.
    has_more: more tasks run now than it contains.
    """

    since: float
    until: float
    runs: list[Run]
    cut: list[str]
    has_more: bool = False


def load(redis: Redis, queues: Sequence[str], seconds: float) -> Timeline:
    """Return what ran in the last `seconds` seconds: one round trip for 4 queues, and three for
    what runs now.
    """
    (time,) = redis.read(("TIME",))
    until = listing.to_seconds(time)
    since = until - seconds
    runs: list[Run] = []
    cut: list[str] = []
    for first in range(0, len(queues), QUEUES_AT_ONCE):
        some = queues[first : first + QUEUES_AT_ONCE]
        replies = redis.read(
            *[
                ("XREVRANGE", keys.events(queue), "+", int(since * 1000), "COUNT", MOST_EVENTS)
                for queue in some
            ]
        )
        for queue, entries in zip(some, replies, strict=True):
            runs += over(history.parse(queue, reversed(entries)), since)
            if len(entries) >= MOST_EVENTS:
                cut.append(queue)
    has_more = False
    if queues:
        running = listing.listing(redis, queues, ("started",), MOST_RUNNING)
        runs += [_running(task) for task in running.tasks]
        has_more = running.has_more
    return Timeline(
        since, until, sorted(runs, key=lambda run: (run.began, run.task)), cut, has_more
    )


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
    """Return when a run began that ended with this event, if its begin is not known otherwise."""
    took, began = event.facts.get("took"), event.facts.get("began")
    if isinstance(took, (int, float)):
        return event.at - took
    try:
        if began is not None:
            return float(began)
    except (TypeError, ValueError):  # written by another program
        pass
    return since if event.event in ("lost", "released") else None


def _running(task: Task) -> Run:
    began = task.started or task.updated or 0.0
    return Run(task.id, task.attempt or 0, task.queue or "", task.node or "", began, None, None)
