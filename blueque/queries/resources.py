"""The resources of hosts, and which of their tasks have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from blueque.model.lines import Needs, parse_needs, without_keys
from blueque.model.task import Task
from blueque.queries.listeners import Node


class Resource(NamedTuple):
    """A resource: how much the hosts have, how much of it tasks have, and which."""

    name: str
    total: int
    used: int
    users: Sequence[tuple[Task, int]]


def resources(nodes: Sequence[Node], held: Sequence[Task]) -> list[Resource]:
    """Return what listeners have for tasks, and how much of it each task that they hold has."""
    by_host: dict[tuple[str, str], int] = {}
    for host, text in {(one.host, one.resources or "") for one in nodes}:
        for name, total in _amounts(text):
            by_host[name, host] = max(total, by_host.get((name, host), 0))
    found = []
    for name in sorted({name for name, _ in by_host}):
        users = [
            (task, amount)
            for task in held
            for needed, amount in _amounts(task.fields.get("needs", ""))
            if needed == name
        ]
        total = sum(amount for (named, _), amount in by_host.items() if named == name)
        found.append(Resource(name, total, sum(amount for _, amount in users), users))
    return found


def _amounts(text: str) -> Sequence[tuple[str, int]]:
    """Return the amounts of a text, without payload keys; none if it is malformed."""
    return [*without_keys(dict((parse_needs(text) or Needs()).resources)).items()]
