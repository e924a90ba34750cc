"""`blueque graph`: show for which tasks a task waits, and which wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from blueque.cli import graph_text, printing
from blueque.cli.failure import MISSING, Failure
from blueque.cli.named_tasks import find_one
from blueque.cli.options import Invocation, shared_options
from blueque.documents.tasks import edges, of_graph
from blueque.model.group import condition_on, group_of

if TYPE_CHECKING:
    from blueque.queries.inspector import Inspector
    from blueque.queries.task_graph import Graph

_COLOURS = {"complete": "palegreen", "failed": "salmon", "cancelled": "lightgrey"}
_RUNNING, _WAITING = "lightblue", "white"


@click.command()
@click.argument("name", metavar="ID | GROUP")
@click.option("--dot", "as_dot", is_flag=True, help="Print it for Graphviz: | dot -Tsvg > out.svg")
@shared_options
def graph(invocation: Invocation, name: str, as_dot: bool) -> None:
    """Show which tasks the task ID waits for and which wait for it, or the tasks of GROUP and which wait for it.

    \b
    blueque graph 7c1f
    blueque graph night-1
    blueque graph 7c1f --dot | dot -Tsvg > graph.svg

    Above the task are the tasks that it waits for, and indented below each of these, the tasks that it waits for in
    turn. Below the task are the tasks that still wait for it. The word after a task is the condition: any (it must end
    in any way) or not_ok (it must fail). Without a word, it must complete. More than 5 tasks of one queue are one
    line.

    At most 200 lines are printed, and 20 levels and 1,000 tasks in each direction are read.
    """
    if as_dot and invocation.as_json:
        raise click.UsageError("--dot or --json, not both")
    inspector = invocation.client().get_inspector()
    group = group_of(name) or name
    is_group = inspector.has_group(group) and (group != name or not inspector.find(name))
    found = inspector.graph(condition_on(group) if is_group else _find_one(inspector, name))
    if invocation.as_json:
        printing.print_json("graph", **of_graph(found))
    elif as_dot:
        for line in _dot(found):
            click.echo(line)
    else:
        for line in graph_text.lines(found):
            click.echo(line)


def _find_one(inspector: Inspector, name: str) -> str:
    try:
        return find_one(inspector, name)
    except Failure as failure:
        if failure.exit_code != MISSING or group_of(name) is not None:
            raise
        advice = "See the groups: blueque group ls"
        raise Failure(MISSING, f"no task and no group {name!r}", advice) from failure


def _dot(graph: Graph) -> Iterator[str]:
    """Yield the lines of a graph for Graphviz: an arrow points to the task that waits."""
    yield "digraph blueque {"
    yield "  rankdir=LR; node [shape=box, style=filled];"
    for task in graph.tasks.values():
        name = task.id[:8] if group_of(task.id) is None else task.id
        label = "\n".join(filter(None, [name, task.queue, task.status or "gone"]))
        colour = _RUNNING if task.status in ("reserved", "started") else _WAITING
        colour = _COLOURS.get(task.status or "", colour)
        width = 3 if task.id == graph.task else 1
        yield f"  {_quoted(task.id)} [label={_quoted(label)}, fillcolor={colour}, penwidth={width}];"
    for edge in edges(graph):
        is_usual = edge.condition in (None, "ok", "+complete")
        label = "" if is_usual else f" [label={_quoted(edge.condition or '')}]"
        yield f"  {_quoted(edge.parent)} -> {_quoted(edge.child)}{label};"
    yield "}"


def _quoted(text: str) -> str:
    """Return text as DOT writes it: as in JSON, where only quotes and line ends are special."""
    return (
        '"'
        + "\\n".join(
            printing.clean(line).replace("\\", "\\\\").replace('"', '\\"')
            for line in text.split("\n")
        )
        + '"'
    )
