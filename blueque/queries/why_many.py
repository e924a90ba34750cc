"""Everything that bears on why each of many pending tasks does not run, in four round trips for any
number of them. Each `Inquiry` is as `why_facts.inquire` makes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.model import keys
from blueque.model.lines import line_of, needs_of
from blueque.queries.dependencies import load_all
from blueque.queries.listeners import Members, ask_members, read_groups, read_nodes_and
from blueque.queries.listing import to_seconds
from blueque.queries.statistics import USUAL_DAYS, ask_usual, take_usual
from blueque.queries.why_facts import (
    MAX_HOLDERS,
    MAX_QUEUES,
    Inquiry,
    ask_lengths,
    ask_lines,
    ask_place,
    ask_settings,
    count_others,
    lines_before,
    members_of,
    read_settings,
    sharing,
)

if TYPE_CHECKING:
    from blueque.connection.redis import Command, Redis
    from blueque.model.task import Task


class _Queue(NamedTuple):
    """The replies about a queue. lengths: of its lines, and of their locks."""

    members: Sequence[Any]
    lines: Sequence[Any]
    settings: Sequence[Any]
    counted: Sequence[str]
    lengths: Sequence[int] = ()
    days: Sequence[Any] = ()


def inquire_many(redis: Redis, tasks: Sequence[Task]) -> list[Inquiry]:
    """Return the circumstances of these pending tasks, which have the fields in `listing.SHOWN`."""
    names = list(dict.fromkeys(task.queue or "" for task in tasks))
    wanted = [line_of(task.fields.get("priority"), task.fields.get("needs")) for task in tasks]
    locks = [needs.lock for line in wanted if (needs := needs_of(line)) and needs.lock is not None]
    locks = list(dict.fromkeys(locks))
    groups: list[Sequence[Command]] = [
        [("TIME",), ("ZRANGE", keys.QUEUES, 0, MAX_QUEUES - 1, "REV")],
        [("SRANDMEMBER", keys.lock(lock), MAX_HOLDERS) for lock in locks],
        *[
            ask_place(task.queue or "", line, task.id)
            for task, line in zip(tasks, wanted, strict=True)
        ],
    ]
    for name in names:
        counted = ("SRANDMEMBER", keys.counted(name), MAX_HOLDERS)
        groups += [ask_members(name), ask_lines(name), ask_settings(name), [counted]]
    (time, every_queue), held, *replies = read_groups(redis, groups)
    now, places, of_queues = to_seconds(time), replies[: len(tasks)], replies[len(tasks) :]
    groups_of = zip(of_queues[::4], of_queues[1::4], of_queues[2::4], of_queues[3::4], strict=True)
    queues = {
        name: _Queue(seen, lines, settings, counted)
        for name, (seen, lines, settings, (counted,)) in zip(names, groups_of, strict=True)
    }
    holders = dict(zip(locks, held, strict=True))
    members = {name: Members(*queue.members) for name, queue in queues.items()}
    members |= members_of(redis, [name for name in every_queue if name not in queues])
    asked = [
        command
        for name, queue in queues.items()
        for command in (*ask_lengths(name, queue.lines[0]), *ask_usual(name, now))
    ]
    every, found = read_nodes_and(redis, members, now, asked)
    left = iter(found)
    for name, queue in queues.items():
        lengths = [next(left) for _ in ask_lengths(name, queue.lines[0])]
        queues[name] = queue._replace(lengths=lengths, days=[next(left) for _ in range(USUAL_DAYS)])
    ids = [task for node in every for task in node.held]
    ids += [task for some in holders.values() for task in some]
    ids += [task for queue in queues.values() for task in queue.counted]
    loaded = load_all(redis, ids)
    inquiries = []
    for task, line, (index, length) in zip(tasks, wanted, places, strict=True):
        name, needs = task.queue or "", needs_of(line)
        queue = queues[name]
        pairs = dict(
            zip(
                queue.lines[0],
                zip(queue.lengths[::2], queue.lengths[1::2], strict=True),
                strict=True,
            )
        )
        others = lines_before(line, queue.lines[0])
        counts = [number for other in others for number in pairs[other]]
        inquiries.append(
            Inquiry(
                task,
                now,
                line,
                needs,
                None if index is None else length - 1 - index,
                length,
                *count_others(line, others, counts, queue.lines[1]),
                *read_settings(queue.settings),
                *sharing(every, name),
                holders[needs.lock] if needs is not None and needs.lock is not None else [],
                queue.counted,
                loaded,
                usual=take_usual(queue.days),
            )
        )
    return inquiries
