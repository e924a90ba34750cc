"""What a page for some queues leaves out: other tasks, groups and schedules, even where its own
tasks name them. A page for all queues leaves out nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from blueque.errors import NoSuchGroup
from blueque.model.group import batch_of, group_of
from blueque.queries import groups
from blueque.text.terminal import short_id, short_node

if TYPE_CHECKING:
    from blueque.audit.server_check import Check
    from blueque.client import Client
    from blueque.model.task import Task
    from blueque.queries.dependencies import Dependencies
    from blueque.queries.groups import GroupSeen
    from blueque.queries.history import Event
    from blueque.queries.overview import Overview
    from blueque.queries.task_graph import Graph
    from blueque.queries.why_facts import Inquiry
    from blueque.sentences.reason import Reason
    from blueque.web.site import Site

MOST_MEMBERS = 100  # tasks of a group that are looked at
Kind = TypeVar("Kind")
OTHER = "another one"  # in place of an id or a queue
# Fields whose texts may name other tasks and queues.
_NAMING = frozenset({"broken_by", "spawned_by", "cancel_reason", "expired_to", "error", "facts"})
_WORD = re.compile(r"[^\s,;:'\"()]+")
_OF_QUEUES = ("aliases", "archives", "clock", "due", "process", "tasks")  # names of checks


def narrowed(found: Overview, client: Client, site: Site) -> Overview:
    """Return an overview of the queues of the page."""
    has = site.has
    if not site.queues:
        return found
    nodes = [node for node in found.nodes if has(node.queue)]
    ids = {node.id for node in nodes}
    names = [group_of(one.task) or "" for one in found.groups.holders]
    mine = _with_mine([*names, *(one.group for one in found.groups.unclosed)], client, site)
    return found._replace(
        running=[task for task in found.running if has(task.queue)],
        lines=[line for line in found.lines if has(line.queue)],
        nodes=nodes,
        feeds=[record for record in found.feeds if has(record["queue"])],
        ahead={node: seconds for node, seconds in found.ahead.items() if node in ids},
        schedules=[one for one in found.schedules if has(one.queue)],
        groups=found.groups._replace(
            holders=[one for one in found.groups.holders if group_of(one.task) in mine],
            unclosed=[one for one in found.groups.unclosed if one.group in mine],
        ),
    )


def all_groups(client: Client, site: Site) -> list[GroupSeen]:
    """Return the groups that have a task of the page among their first, newest first."""
    found = groups.load_all(client.connections)
    if not site.queues:
        return found
    mine = _with_mine([seen.name for seen in found], client, site)
    return [_without_maker(seen, site) for seen in found if seen.name in mine]


def one_group(name: str, client: Client, site: Site) -> GroupSeen:
    """Return a group. Raises NoSuchGroup."""
    seen = groups.load(client.connections, name)
    if seen is None or (site.queues and name not in _with_mine([name], client, site)):
        raise NoSuchGroup(name)
    return _without_maker(seen, site) if site.queues else seen


def mine_of(tasks: Sequence[Task], site: Site) -> list[Task]:
    """Return the tasks of the page among these."""
    return [task for task in tasks if not site.queues or site.has(task.queue)]


def dependencies(task: Task, client: Client, site: Site) -> Dependencies:
    """Return what a task waits for, and what waits for it."""
    found = client.get_inspector().dependencies(task)
    if not site.queues:
        return found
    return found._replace(
        conditions=[each for each in found.conditions if site.has(each.task.queue)],
        first=mine_of(found.first, site),
    )


def cause(task: Task, client: Client, site: Site) -> Task | None:
    """Return what caused the cancellation of a task, if that is on the page."""
    found = client.get_inspector().cause(task)
    return None if found is None or not mine_of([found], site) else found


def graph(task_or_group: str, client: Client, site: Site) -> Graph:
    """Return the tasks around a task, or around a group in conditions."""
    found = client.get_inspector().graph(task_or_group)
    if not site.queues:
        return found
    kept = {
        name: task
        for name, task in found.tasks.items()
        if site.has(task.queue) or name == task_or_group
    }

    def among(edges: Mapping[str, Mapping[str, Kind]]) -> dict[str, dict[str, Kind]]:
        return {
            name: {other: kind for other, kind in others.items() if other in kept}
            for name, others in edges.items()
            if name in kept
        }

    counts = {name: number for name, number in found.counts.items() if name in kept}
    parents, children = among(found.parents), among(found.children)
    return found._replace(tasks=kept, parents=parents, children=children, counts=counts)


def reasons(inquiry: Inquiry, found: Sequence[Reason], site: Site) -> list[Reason]:
    """Return why a task waits, without ids and queues that are not on the page."""
    if not site.queues:
        return [*found]
    tasks = [*inquiry.tasks.values(), *chain(*inquiry.causes.values())]
    tasks += [one for some in inquiry.broken.values() for one in some]
    tasks += [each.task for each in inquiry.dependencies.conditions]
    mine = {node.id for node in inquiry.nodes}
    outside = _outside(tasks, site, [node.queue for node in inquiry.others], mine)
    return [*found] if outside is None else [_without(outside, each) for each in found]


def scrubber(task: Task, client: Client, site: Site) -> Callable[[str], str]:
    """Return a function that removes other tasks and queues from a text about a task."""
    if not site.queues:
        return lambda text: text
    inspector = client.get_inspector()
    found = inspector.dependencies(task)
    ids = [task.fields[name] for name in ("broken_by", "spawned_by") if name in task.fields]
    tasks = [*(each.task for each in found.conditions), *found.first, *inspector.tasks(ids)]
    outside = _outside(tasks, site)
    return lambda text: text if outside is None else outside.sub(OTHER, text)


def events(found: Sequence[Event], client: Client, site: Site) -> list[Event]:
    """Return events without facts that name tasks and queues outside of the page."""
    if not site.queues:
        return [*found]
    facts = without_others({"facts": [dict(each.facts) for each in found]}, client, site)["facts"]
    return [each._replace(facts=own) for each, own in zip(found, facts, strict=True)]


def without_others(content: Mapping[str, Any], client: Client, site: Site) -> Mapping[str, Any]:
    """Return the content of an object whose own texts name no tasks and queues outside of the page."""
    if not site.queues:
        return content
    words = {word for text in _texts(content) for word in _WORD.findall(text)}
    inspector = client.get_inspector()
    tasks = [task for task in inspector.tasks([*words]) if task.status is not None]
    outside = _outside(tasks, site, words.intersection(inspector.queues()))
    if outside is None:
        return content
    changed: Mapping[str, Any] = _changed(content, lambda text: outside.sub(OTHER, text))
    return changed


def _texts(value: Any, is_ours: bool = False) -> Iterator[str]:
    """Yield the texts of an object that Blueque, or a person who gave an order, has written."""
    if isinstance(value, str) and is_ours:
        yield value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _texts(each, is_ours or name in _NAMING)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, is_ours)


def _changed(value: Any, change: Callable[[str], str], is_ours: bool = False) -> Any:
    """Return an object with the texts of `_texts` replaced."""
    if isinstance(value, str):
        return change(value) if is_ours else value
    if isinstance(value, Mapping):
        return {
            name: _changed(each, change, is_ours or name in _NAMING) for name, each in value.items()
        }
    return [_changed(each, change, is_ours) for each in value] if isinstance(value, list) else value


def checks(found: Iterable[Check], site: Site) -> list[Check]:
    """Return the checks of the server. Those of single queues are for a page of all queues."""
    return [check for check in found if not site.queues or check.name not in _OF_QUEUES]


def _with_mine(names: Sequence[str], client: Client, site: Site) -> set[str]:
    """Return the groups that have a task of the page among their first."""
    known = [name for name in dict.fromkeys(names) if name]
    redis = client.connections
    members = {name: groups.members(redis, name, 0, MOST_MEMBERS) for name in known}
    ids = [*dict.fromkeys(task for some in members.values() for task in some)]
    mine = {
        each.task
        for first in range(0, len(ids), groups.TASKS_AT_ONCE)
        for each in groups.look_at(redis, ids[first : first + groups.TASKS_AT_ONCE])
        if site.has(each.queue)
    }
    return {name for name, some in members.items() if mine.intersection(some)}


def _without_maker(seen: GroupSeen, site: Site) -> GroupSeen:
    """Return a workflow without its maker; a keyed group without a queue not on the page."""
    made_by = seen.record.get("made_by")
    if made_by is None:
        return seen
    queue = made_by.partition(" of ")[2]
    of_batch = batch_of(queue if site.has(queue) else OTHER)
    shown = "workflow" if seen.kind == "workflow" else of_batch
    return seen._replace(record={**seen.record, "made_by": shown})


def _outside(
    tasks: Iterable[Task], site: Site, queues: Iterable[str] = (), nodes: Collection[str] = ()
) -> re.Pattern[str] | None:
    """Return a pattern for the names of tasks and queues outside of the page, and of their
    listeners; None: there are none.

    nodes: those of the page.
    """
    words = {queue for queue in queues if not site.has(queue)}
    for task in tasks:
        if not site.has(task.queue):
            words |= {task.id, short_id(task.id), *([task.queue] if task.queue else ())}
            if task.node and task.node not in nodes:
                words |= {task.node, short_node(task.node)}
    if not words:
        return None
    return re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))))


def _without(outside: re.Pattern[str], reason: Reason) -> Reason:
    command = reason.command
    if command is not None and outside.search(command):
        command = None
    return reason._replace(sentence=outside.sub(OTHER, reason.sentence), command=command)
