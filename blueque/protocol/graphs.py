"""Create all tasks of a workflow at once: enqueue_graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import AnyLook, Command, Look, Redis
from blueque.errors import InvalidInput, WrongGroup
from blueque.model import keys
from blueque.model.group import condition_on
from blueque.protocol.dependencies import AT_ONCE, LINKS_AT_ONCE, NewTask, creation
from blueque.protocol.fields import flat
from blueque.protocol.groups import sets_of
from blueque.protocol.parents import LOOK_EVERY, Parents, require_parents
from blueque.protocol.transaction import Answer, Change, Verdict, transact

MOST_TASKS = 200
MOST_BYTES = 4 * 1024 * 1024  # of parameters


class Graph(NamedTuple):
    """A workflow: tasks that wait for each other and for others, and their group.

    keep: as for open_group. mark: random, the same for every try. tasks: each with its queue, and
        with the group in its options.
    """

    group: str
    keep: int
    mark: str
    tasks: Sequence[tuple[str, NewTask]]


def enqueue_graph(redis: Redis, graph: Graph, now: float) -> bool:
    """Create the tasks of a workflow and its group, which is closed; all or nothing. False: there
    is a group with this name.

    Raises InvalidInput for a workflow that is too large; NoSuchTask, NoSuchGroup; WrongGroup if
        tasks of an earlier workflow with this name are in Redis.
    """
    group, new = graph.group, [new for _, new in graph.tasks]
    own = {each.task for each in new}
    others = Parents([name for each in new for name in each.conditions if name not in own])
    _require_room(graph, others.names)

    def decide(reply: list[str | None], exist: int, *replies: Any) -> Verdict[bool]:
        state, made_by = reply
        if state is not None:
            return Answer(made_by == graph.mark)
        if exist:
            raise WrongGroup(group, "tasks of an earlier workflow with this name are in Redis")
        states = others.statuses(replies)
        require_parents(others.names, states)
        known = states | dict.fromkeys(own, "blocked")
        return Change([*_record(graph, now), *creation(graph.tasks, known, now)], True)

    key, hashes = keys.group(group), [keys.task(each.task) for each in new]
    look: AnyLook = Look(
        [key, *hashes, *others.watch],
        [("HMGET", key, "state", "made_by"), ("EXISTS", *hashes), *others.reads],
    )
    return transact(redis, "enqueue_graph", look, decide)


def _record(graph: Graph, now: float) -> list[Command]:
    group = graph.group
    times: dict[str, str | float] = {"created": now, "closed": now}
    record = {"group": group, "state": "closed", "made_by": graph.mark, "keep": str(graph.keep)}
    return [
        # Left by a group with this name whose record has expired.
        ("UNLINK", *sets_of(group)),
        ("HSET", keys.group(group), *flat({**record, **times})),
        ("ZADD", keys.GROUPS, now + LOOK_EVERY, group),
    ]


def _require_room(graph: Graph, others: Sequence[str]) -> None:
    tasks = [new for _, new in graph.tasks]
    size = sum(len(new.parameters.encode()) for new in tasks)
    for taken, most, what in (
        (len(tasks), MOST_TASKS, "tasks"),
        (sum(len(new.conditions) for new in tasks), LINKS_AT_ONCE, "conditions"),
        (len(others), AT_ONCE, "others to wait for"),
        (size, MOST_BYTES, "bytes of parameters"),
    ):
        if not max(taken, len(tasks)) > 0 or taken > most:
            why = f"a workflow has 1 to {most:,} {what}, not {taken:,}; make a group, and its tasks one by one"
            raise InvalidInput(why)
    if any(condition_on(graph.group) in new.conditions for new in tasks):
        raise WrongGroup(graph.group, "a task that joins it cannot wait for it")
