"""`blueque host ls` and `host show`: list hosts, and show what their listeners do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.failure import MISSING, Failure
from blueque.cli.named import pattern_option
from blueque.cli.options import Invocation, shared_options
from blueque.cli.printing import Column, number_columns, text_columns
from blueque.cli.task_columns import chosen
from blueque.documents.status import of_node, of_nodes
from blueque.model.encoding import seconds_of
from blueque.model.parts import grouped
from blueque.queries.listeners import Node, find_named, youngest_beat
from blueque.queries.resources import Resource, resources
from blueque.text import hints

if TYPE_CHECKING:
    from blueque.model.task import Task

_HOSTS = [
    Column("HOST", can_shrink=True),
    *number_columns("SLOTS", "RUNNING"),
    *text_columns("QUEUES", "VERSION"),
    Column("SEEN", True),
    Column("STATE"),
]
_LISTENERS = [
    *text_columns("NODE", "QUEUES", "TASK", "VERSION"),
    Column("SEEN", True),
    Column("STATE"),
]
_TASKS = ("id", "what", "queue", "state", "for", "progress", "left", "note")


@click.command("ls", short_help="List the hosts that serve queues.")
@pattern_option
@shared_options
def list_hosts(invocation: Invocation, patterns: Sequence[str]) -> None:
    """List the hosts that serve queues: their slots, how many of these are busy, and their last beat.

    \b
    blueque host ls
    blueque host ls -q video.encode

    A host has a line for each state and version of its listeners. blueque help listeners explains the states.
    """
    inspector = invocation.client().get_inspector()
    nodes, now = inspector.nodes(), inspector.now()
    serving = {
        node.id
        for node in nodes
        if not patterns or any(fnmatchcase(node.queue, pattern) for pattern in patterns)
    }
    found = [node for node in nodes if node.id in serving]
    if invocation.as_json:
        printing.print_json("hosts", **of_nodes(found, now))
    elif not found:
        printing.talk("no listeners")
    else:
        printing.print_table(_HOSTS, _host_rows(found))


@click.command("show", short_help="Show the listeners of a host, or one of them.")
@click.argument("name", metavar="HOST|NODE")
@shared_options
def show_host(invocation: Invocation, name: str) -> None:
    """Show the listeners of a host, or one of them: queues, resources, orders and tasks.

    \b
    blueque host show gpu-1
    blueque host show 'gpu-*'
    """
    inspector = invocation.client().get_inspector()
    all_nodes = inspector.nodes()
    nodes = find_named(all_nodes, name) or [one for one in all_nodes if fnmatchcase(one.host, name)]
    if not nodes:
        raise no_host(name)
    now = inspector.now()
    tasks = inspector.tasks(list(dict.fromkeys(task_id for node in nodes for task_id in node.held)))
    tasks, hide = inspector.with_contents(tasks), invocation.hider(False)
    if invocation.as_json:
        printing.print_json("host_show", **of_node(nodes, tasks, now, hide))
        return
    for label, value in _facts(nodes, tasks, now):
        click.echo(printing.within(printing.clean(f"{label:<12}{value}")))
    click.echo()
    printing.print_table(_LISTENERS, _listener_rows(nodes))
    if tasks:
        click.echo()
        shown = chosen(_TASKS, hide, nodes)
        rows = [[one.cell(task, now, invocation.is_utc) for one in shown] for task in tasks]
        printing.print_table([one.column for one in shown], rows)


def no_host(name: str) -> Failure:
    """Return what ends the program if there is no host and no listener with this name."""
    return Failure(MISSING, f"no listener and no host {name!r}", "See the names: blueque host ls")


def _host_rows(nodes: Iterable[Node]) -> list[list[str]]:
    groups = grouped(nodes, lambda node: (node.host, node.version or "-", node.state))
    rows = []
    for (host, version, state), members in sorted(groups.items()):
        slots, busy = {node.id for node in members}, {node.id for node in members if node.held}
        rows.append(
            [
                host,
                str(len(slots)),
                str(len(busy)),
                _names(node.queue for node in members),
                version,
                printing.span(youngest_beat(members)),
                state,
            ]
        )
    return rows


def _listener_rows(nodes: Iterable[Node]) -> list[list[str]]:
    """Return a row for each listener, whatever the number of its queues."""
    groups = grouped(nodes, lambda node: (node.id, node.state))
    return [
        [
            printing.short_node(node_id),
            _names(node.queue for node in members),
            _names(printing.short_id(task_id) for node in members for task_id in node.held) or "-",
            members[0].version or "-",
            printing.span(youngest_beat(members)),
            state,
        ]
        for (node_id, state), members in sorted(groups.items())
    ]


def _facts(nodes: Sequence[Node], tasks: Sequence[Task], now: float) -> list[tuple[str, str]]:
    """Return what the listeners share: the host, its resources, the spool, and orders."""
    states = {node.id: node.state for node in nodes}
    ends = [end for node in nodes if (end := seconds_of(node.ends_at)) is not None]
    each = ", ".join(
        f"{list(states.values()).count(state)} {state}" for state in sorted(set(states.values()))
    )
    told = {
        "host": _names(node.host for node in nodes),
        "slots": f"{each}; {len({node.id for node in nodes if node.held})} busy",
        "queues": _names(node.queue for node in nodes),
        "resources": ", ".join(map(_in_use, resources(nodes, tasks))),
        "spool": _names(node.spool for node in nodes if node.spool),
        "stops tasks": f"in {printing.span(max(min(ends) - now, 0.0))}" if ends else "",
        "told by": _names(
            f"{node.order_by or 'unknown'}: {node.order}"
            for node in nodes
            if node.order not in (None, "work")
        ),
    }
    return [(label, value) for label, value in told.items() if value]


def _in_use(resource: Resource) -> str:
    """Return `gpu 2 of 3 in use (2 by 7c1f2a90)`."""
    users = ", ".join(
        f"{hints.amount(amount)} by {printing.short_id(task.id)}" for task, amount in resource.users
    )
    in_use = (
        f"{resource.name} {hints.amount(resource.used)} of {hints.amount(resource.total)} in use"
    )
    return f"{in_use} ({users})" if users else in_use


def _names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
