"""The state of everything at one instant, in six round trips for any number of tasks and queues.

Every read is bounded, and a list entry is only a hint, as in listing.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from blueque.connection.redis import Redis, raise_refusal, time_of
from blueque.model import keys
from blueque.model.group import is_gate
from blueque.queries.groups_overview import MAX_GROUPS, Groups, groups
from blueque.queries.holders import holders
from blueque.queries.listeners import Members, Node, with_dead
from blueque.queries.queue_looks import (
    complete_only,
    details,
    locks,
    look,
    tasks_of,
    too_many_failed,
)
from blueque.queries.queue_overview import Counts, QueueOverview, overview_of
from blueque.queries.schedules import MAX_WATCHED, Watched, watched
from blueque.queries.server import ASKED, server_facts
from blueque.queries.statistics import Usual, tail, usual
from blueque.queries.steps import clock, in_step, of_each, read

if TYPE_CHECKING:
    from blueque.model.task import Task


T = TypeVar("T")


class Overview(NamedTuple):
    """Everything at one instant: queues and nodes by name, running tasks longest first, the records
    of open feeds.

    server: the fields of INFO, and `save` of CONFIG. None: this user may not call INFO.
    printed: when the tasks that have run longest last printed, in Unix seconds, by task id.
    usual: how long tasks usually run, by queue; tails: what 19 of 20 do not exceed. Both only for
        the queues whose tasks run longest.
    ahead: how many seconds at least the clock of a listener is ahead of Redis, by its id. A beat in
        the future shows it; a clock that is behind looks like a late beat.
    schedules: those that make the next tasks, and paused ones; failures of each include the last task.
    """

    now: float
    lines: list[QueueOverview]
    running: list[Task]
    nodes: list[Node]
    feeds: list[dict[str, str]]
    server: Mapping[str, str] | None = None
    printed: Mapping[str, float] = {}
    usual: Mapping[str, Usual] = {}
    tails: Mapping[str, float] = {}
    ahead: Mapping[str, float] = {}
    groups: Groups = Groups()
    schedules: Sequence[Watched] = ()


def overview(redis: Redis, only: Collection[str] | None = None) -> Overview:
    """See Inspector.overview."""
    begun = _begin(redis)
    now, every = begun.now, [queue for queue in begun.queues if only is None or queue in only]
    complete = read(redis, of_each({queue: complete_only(queue) for queue in every}))
    queues = [queue for queue in every if complete[queue] is None]
    looks, seen_groups, schedules, later = read(
        redis,
        in_step(
            of_each({queue: look(queue, now, len(queues)) for queue in queues}),
            groups(begun.groups),
            watched(begun.schedules),
            clock(),  # last, so that it is later than every beat
        ),
    )
    is_any = any(each.seen.blocked for each in looks.values())
    found = read(redis, of_each({name: details(each, is_any, now) for name, each in looks.items()}))
    found = {name: each._replace(nodes=with_dead(each.nodes)) for name, each in found.items()}
    awaited = [*chain(*(each.failed.awaited for each in found.values())), *seen_groups.holders]
    tasks, held, failing, held_up = read(
        redis,
        in_step(
            tasks_of(looks, found, schedules, now),
            locks(found.values()),
            too_many_failed(found, now),
            holders(awaited),
        ),
    )
    lines = {
        name: QueueOverview(name, Counts(complete=count or 0)) for name, count in complete.items()
    }
    for name, each in looks.items():
        is_failing = name in failing
        lines[name] = overview_of(each, found[name], tasks.tasks, held, is_failing, held_up, now)
    return Overview(
        now,
        [*lines.values()],
        tasks.running,
        [node for each in found.values() for node in each.nodes],
        [record for each in found.values() for record in each.feeds],
        begun.server,
        tasks.printed,
        _present({queue: usual(ran) for queue, ran in tasks.ran.items()}),
        _present({queue: tail(ran) for queue, ran in tasks.ran.items()}),
        _ahead([each.members for each in looks.values()], later),
        seen_groups.holding(held_up),
        [_with_last(each, tasks.tasks) for each in schedules],
    )


class _Begun(NamedTuple):
    """The time, the names of queues, groups (unended first) and schedules, and the facts of the server."""

    now: float
    queues: list[str]
    groups: list[str]
    schedules: list[str]
    server: Mapping[str, str] | None


def _begin(redis: Redis) -> _Begun:
    time, names, groups, first, last, *server = redis.answers(
        ("TIME",),
        ("ZRANGE", keys.QUEUES, 0, -1),
        ("ZRANGE", keys.GROUPS, 0, MAX_GROUPS - 1),
        ("ZRANGE", keys.SCHEDULES, 0, MAX_WATCHED - 1),
        # those that make no next task
        ("ZRANGEBYSCORE", keys.SCHEDULES, "+inf", "+inf", "LIMIT", 0, MAX_WATCHED),
        *ASKED,
    )
    raise_refusal([time, names, groups, first, last])
    return _Begun(
        time_of(time),
        sorted(names),
        [name for name in groups if not is_gate(name)],
        [*dict.fromkeys([*first, *last])],
        server_facts(redis, *server),
    )


def _present(found: Mapping[str, T | None]) -> dict[str, T]:
    return {name: value for name, value in found.items() if value is not None}


def _ahead(members: Iterable[Members], now: float) -> dict[str, float]:
    """Return which listeners have a beat in the future, and by how much."""
    beats = [beat for seen in members for beat in seen.beats.items()]
    return {node: at - now for node, at in beats if at > now}


def _with_last(schedule: Watched, tasks: Mapping[str, Task]) -> Watched:
    """Count the last task of a schedule among its failures."""
    status = None if schedule.current is None else tasks[schedule.current].status
    if status == "complete":
        return schedule._replace(failures=0)
    return schedule._replace(failures=schedule.failures + (status == "failed"))
