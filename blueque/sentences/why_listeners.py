"""Explain in sentences why no listener takes a pending task: none serves its queue, has what it
needs, or is idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from blueque.model import limits
from blueque.model.encoding import seconds_of
from blueque.model.limits import Limits
from blueque.model.lines import KEY, Needs, keys_among, parse_needs
from blueque.model.states import HELD
from blueque.queries.listeners import LOOKS_AT_LINES, Node, has_time
from blueque.queries.why_facts import Inquiry
from blueque.sentences.holders import about, first_end, list_of
from blueque.sentences.reason import MOST_NAMES, Reason
from blueque.text import hints
from blueque.text.format import count, span
from blueque.text.terminal import short_node

if TYPE_CHECKING:
    from blueque.model.task import Task

TAKES = ("up", "unattended", "1.0.0")  # states of a listener that takes tasks


def listeners(inquiry: Inquiry) -> Iterator[Reason]:
    """Yield a reason if there is no listener, or none that could take it."""
    queue, takers = inquiry.task.queue, _takers(inquiry)
    paused = list(dict.fromkeys(node.host for node in inquiry.nodes if node.state == "paused"))
    if not takers and paused:
        hosts = ", ".join(paused[:MOST_NAMES]) + (" and others" if len(paused) > MOST_NAMES else "")
        sentence = f"The listeners of {queue} on {hosts} are paused."
        yield Reason("no_listener", sentence, hints.resume_node(paused[0]))
    elif not takers:
        yield Reason(
            "no_listener", f"No listener serves {queue}.{_last_seen(inquiry)}", serve(inquiry)
        )
    elif inquiry.line != "0" and not [node for node in takers if node.state in LOOKS_AT_LINES]:
        what = "priorities" if inquiry.needs == Needs() else "what a task needs"
        yield Reason(
            "no_listener",
            f"Only listeners of 1.0.0 serve {queue}, and they do not know {what}.",
            serve(inquiry),
        )


def resources(inquiry: Inquiry) -> Iterator[Reason]:
    if inquiry.needs is None:
        yield Reason(
            "senseless",
            "What it needs is malformed, so no listener can take it.",
            f"blueque cancel {inquiry.task.id}",
        )
        return
    nodes = [node for node in inquiry.nodes if node.state in LOOKS_AT_LINES]
    if not inquiry.needs.resources or not nodes:
        return
    if able_listeners(inquiry):
        yield from _of_room(inquiry, inquiry.needs.resources)
    else:
        yield _of_misfit(inquiry, inquiry.needs.resources, nodes)


def _of_misfit(inquiry: Inquiry, needs: Sequence[tuple[str, int]], nodes: Sequence[Node]) -> Reason:
    """Return what the listeners lack, even if they are free."""
    for key in keys_among(needs):
        if not any(f"{KEY}{key}" in _has(node) for node in nodes):
            sentence = f"It needs payload key {key}, which no listener of {inquiry.task.queue} has."
            how = "Add it to the file of keys of a listener: `keys` in [payloads] of its blueque.toml."
            return Reason("never_fits", f"{sentence} {how}", None)
    most = {name: max(_has(node).get(name, 0) for node in nodes) for name, _ in needs}
    best = hints.amounts([pair for pair in most.items() if pair[1]])
    best = best and f": the most is {best}"
    options = " ".join(f"--resource {name}={hints.amount(number)}" for name, number in needs)
    sentence = f"It needs {hints.amounts(needs)}, and no listener of {inquiry.task.queue} has that much{best}."
    return Reason(
        "never_fits",
        f"{sentence} Start one on a host that has it, with {options}, or cancel the task.",
        f"blueque cancel {inquiry.task.id}",
    )


def _of_room(inquiry: Inquiry, needs: Sequence[tuple[str, int]]) -> Iterator[Reason]:
    """Yield a reason if other tasks use what it needs."""
    names = {name for name, _ in needs}
    used = [
        (node, task)
        for node, task in _running(inquiry)
        if not names.isdisjoint(dict(_needs_of(task)))
    ]
    if used and not any(
        _is_room_in(pool, inquiry, used) for pool in {node.pool for node in able_listeners(inquiry)}
    ):
        ids = [task.id for _, task in used]
        free = first_end(inquiry, ids)
        when = "that ends" if len(ids) == 1 else "enough of these have ended"
        when += about(free, len(ids))
        sentence = f"It needs {hints.amounts(needs)}, but too little is free: held by{list_of(inquiry, ids).removeprefix(':')}"
        yield Reason("no_room", f"{sentence}; it starts when {when}.", None, free)


def time_left(inquiry: Inquiry) -> Iterator[Reason]:
    """Yield a reason if each listener that could take it stops its tasks too soon."""
    able = able_listeners(inquiry)
    if not able or any(_has_time(inquiry, node) for node in able):
        return
    limit = max(_limit_on(node, inquiry.task) or 0.0 for node in able)
    left = max((seconds_of(node.ends_at) or 0.0) - inquiry.now for node in able)
    who = {1: "the only listener", 2: "both listeners"}.get(len(able), f"all {len(able)} listeners")
    verb = "stops its tasks" if len(able) == 1 else "stop their tasks"
    sentence = (
        f"It may run for {span(limit)}, and {who} of {inquiry.task.queue} {verb} in {span(left)}"
    )
    sentence += " (--max-runtime)." if len(able) == 1 else " at most (--max-runtime)."
    yield Reason("no_time", f"{sentence} A listener with more time takes it.", serve(inquiry))


def busy(inquiry: Inquiry) -> Iterator[Reason]:
    able = [node for node in able_listeners(inquiry) if _has_time(inquiry, node)]
    # A listener of several queues runs one task at a time.
    has = {node.id: node.held[0] for node in (*inquiry.others, *able) if node.held}
    if not able or any(node.id not in has for node in able):
        return
    which = (
        "that have what it needs " if inquiry.needs is not None and inquiry.needs.resources else ""
    )
    all_of = {1: "The only listener", 2: "Both listeners"}.get(
        len(able), f"All {len(able)} listeners"
    )
    ids = [has[node.id] for node in able]
    tasks, free = list_of(inquiry, ids), first_end(inquiry, ids)
    verb, when = (
        ("has a task", "that ends") if len(able) == 1 else ("have a task", "one of these ends")
    )
    sentence = f"{all_of} of {inquiry.task.queue} {which}{verb}{tasks}; it can start when {when}"
    yield Reason("busy", f"{sentence}{about(free, len(able))}.", None, free)


def able_listeners(inquiry: Inquiry) -> list[Node]:
    """Return the listeners that take tasks and have what this task needs, free or in use."""
    if inquiry.line == "0":
        return [node for node in inquiry.nodes if node.state in TAKES]
    needs = inquiry.needs.resources if inquiry.needs is not None else ()
    return [
        node
        for node in inquiry.nodes
        if node.state in LOOKS_AT_LINES
        and all(_has(node).get(name, 0) >= amount for name, amount in needs)
    ]


def _takers(inquiry: Inquiry) -> list[Node]:
    return [node for node in inquiry.nodes if node.state in TAKES]


def serve(inquiry: Inquiry) -> str:
    """Return the command that starts a listener that could run the task."""
    return hints.serve(
        inquiry.task.queue or "",
        inquiry.needs.resources if inquiry.needs is not None else (),
        inquiry.has_handler,
    )


def _last_seen(inquiry: Inquiry) -> str:
    seen = sorted((node.seen, node) for node in inquiry.nodes if node.seen is not None)
    if not seen:
        return ""
    age, node = seen[0]
    others = (
        f" {count(len(inquiry.nodes), 'listener')} take nothing:" if len(inquiry.nodes) > 1 else ""
    )
    return f"{others} {short_node(node.id)} is {node.state} and was last seen {span(age)} ago."


def _running(inquiry: Inquiry) -> list[tuple[Node, Task]]:
    """Return the tasks of the listeners on its hosts, of any queue, each with its listener."""
    found = (
        (node, inquiry.tasks.get(task_id))
        for node in (*inquiry.nodes, *inquiry.others)
        for task_id in node.held
    )
    return [(node, task) for node, task in found if task is not None and task.status in HELD]


def _is_room_in(
    pool: tuple[str, str, str], inquiry: Inquiry, used: Sequence[tuple[Node, Task]]
) -> bool:
    """Return whether a host has free what the task needs. All its listeners share the resources."""
    totals = [_has(node) for node in able_listeners(inquiry) if node.pool == pool]
    for name, amount in inquiry.needs.resources if inquiry.needs is not None else ():
        taken = sum(dict(_needs_of(task)).get(name, 0) for node, task in used if node.pool == pool)
        if max(total.get(name, 0) for total in totals) - taken < amount:
            return False
    return True


def _needs_of(task: Task) -> tuple[tuple[str, int], ...]:
    return (parse_needs(task.fields.get("needs", "")) or Needs()).resources


def _has(node: Node) -> dict[str, int]:
    return dict((parse_needs(node.resources or "") or Needs()).resources)


def _has_time(inquiry: Inquiry, node: Node) -> bool:
    limit = _limit_on(node, inquiry.task)
    return limit is None or has_time(node.ends_at, inquiry.now + limit)


def _limit_on(node: Node, task: Task) -> float | None:
    """Return how long the task may run there."""
    default = limits.of({"time_limit": node.time_limit or ""}, Limits())
    return limits.of(task.fields, default).time
