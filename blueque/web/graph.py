"""The picture of tasks that wait for each other: those that come first on the left."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from markupsafe import Markup

from blueque.model.group import group_of
from blueque.queries import groups
from blueque.queries.task_graph import MAX_TASKS, Graph
from blueque.report import svg
from blueque.text.what import what
from blueque.web.visit import Visit

MOST = 120  # tasks that are drawn
WIDTH, HEIGHT, GAP_X, GAP_Y = 150, 30, 56, 12  # pixels of a task, and between two
_STATES = (  # of the legend
    "failed",
    "cancelled",
    "started",
    "reserved",
    "pending",
    "scheduled",
    "blocked",
    "complete",
)


def picture(graph: Graph, visit: Visit, members: int) -> Markup | None:
    """Return the picture of a graph; None: nothing depends on anything in it. members: how many tasks
    belong to it, drawn or not.
    """
    parents = {task: [*some] for task, some in graph.parents.items() if group_of(task) is None}
    edges = {
        (parent, task)
        for task, some in parents.items()
        for parent in some
        if group_of(parent) is None
    }
    for parent, some in graph.children.items():
        if group_of(parent) is None:
            edges |= {(parent, task) for task in some}
    known = {task for edge in edges for task in edge if task in graph.tasks}
    if not known:
        return None
    levels = _levels(known, edges)
    places = _places(levels, edges, _made(graph, visit))
    shown = visit.reader.inspector.with_contents([graph.tasks[task] for task in places])
    graph = graph._replace(tasks={**graph.tasks, **{task.id: task for task in shown}})
    drawn = [
        _edge(places[one], places[other])
        for one, other in sorted(edges)
        if one in places and other in places
    ]
    drawn += [_node(task, places[task], graph, visit) for task in places]
    width = max(x for x, _ in places.values()) + WIDTH + 2
    height = max(y for _, y in places.values()) + HEIGHT + 2
    says = f"{len(places):,} tasks with {len(edges):,} dependencies"
    drawing = svg.tag(
        "svg", *drawn, class_="graph", width=width, height=height, role="group", aria_label=says
    )
    return drawing + _legend(places, graph, members)


def _made(graph: Graph, visit: Visit) -> dict[str, tuple[int, float, str]]:
    """Return the ranks of tasks in the order in which they were made, which is that of their group."""
    group = group_of(graph.task)
    members = groups.members(visit.reader.client.connections, group, 0, MAX_TASKS) if group else []
    first = {task: number for number, task in enumerate(members)}
    return {
        name: (first.get(name, MAX_TASKS), task.created or 0.0, name)
        for name, task in graph.tasks.items()
    }


def _levels(tasks: set[str], edges: set[tuple[str, str]]) -> dict[str, int]:
    """Return the level of each task: one more than the last of those that it waits for."""
    waits: dict[str, list[str]] = {task: [] for task in tasks}
    for parent, task in edges:
        if parent in tasks and task in tasks:
            waits[task].append(parent)
    levels: dict[str, int] = {}

    def level(task: str, path: frozenset[str]) -> int:
        if task not in levels:
            before = [level(one, path | {task}) for one in waits[task] if one not in path]
            levels[task] = max(before, default=-1) + 1
        return levels[task]

    for task in sorted(tasks):
        level(task, frozenset({task}))
    return levels


def _places(
    levels: Mapping[str, int],
    edges: set[tuple[str, str]],
    made: Mapping[str, tuple[int, float, str]],
) -> dict[str, tuple[int, int]]:
    """Return where each task is drawn, in pixels: beside the middle of those that it waits for, so
    that few lines cross.

    The states of tasks do not matter, so no task moves when its state changes.
    """
    parents: dict[str, list[str]] = {task: [] for task in levels}
    for parent, task in edges:
        if parent in levels and task in levels and levels[parent] < levels[task]:
            parents[task].append(parent)
    rows: dict[str, int] = {}

    def rank(task: str) -> tuple[float, tuple[int, float, str]]:
        above = [rows[parent] for parent in parents[task] if parent in rows]
        return sum(above) / len(above) if above else 0.0, made[task]

    for level in range(max(levels.values()) + 1):
        of_level = [task for task in levels if levels[task] == level]
        for number, task in enumerate(sorted(of_level, key=rank)[: MOST - len(rows)]):
            rows[task] = number
    return {
        task: (1 + levels[task] * (WIDTH + GAP_X), 1 + number * (HEIGHT + GAP_Y))
        for task, number in rows.items()
    }


def _legend(places: Collection[str], graph: Graph, number: int) -> Markup:
    """Return which state each dot stands for, and whether tasks are left out."""
    found = {graph.tasks[task].status or "gone" for task in places}
    words = [
        svg.tag(
            "span",
            svg.tag(
                "svg", svg.tag("circle", cx=5, cy=5, r=4, class_=f"mark {state}"), class_="graph"
            ),
            state,
        )
        for state in (*_STATES, "gone")
        if state in found
    ]
    if number > len(places):
        words.append(svg.tag("span", f"{number - len(places):,} more tasks are not drawn"))
    return svg.tag("p", *words, class_="legend")


def _edge(one: tuple[int, int], other: tuple[int, int]) -> Markup:
    x1, y1 = one[0] + WIDTH, one[1] + HEIGHT // 2
    x2, y2 = other[0], other[1] + HEIGHT // 2
    middle = (x1 + x2) // 2
    return svg.path([f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"], "edge")


def _node(task_id: str, place: tuple[int, int], graph: Graph, visit: Visit) -> Markup:
    task, (x, y) = graph.tasks[task_id], place
    status = task.status or "gone"
    name = what(task, visit.site.hide) or task.queue or task_id[:8]
    says = f"{name}: {status}"
    box = svg.tag("rect", x=x, y=y, width=WIDTH, height=HEIGHT, rx=5, class_=f"box {status}")
    mark = svg.tag("circle", cx=x + 12, cy=y + HEIGHT // 2, r=4, class_=f"mark {status}")
    words = svg.tag("text", svg.text(name, 18), x=x + 22, y=y + HEIGHT // 2 + 4, class_="tick name")
    href = visit.task_url(task_id)
    title = svg.tag("title", says)
    return svg.tag("a", title, box, mark, words, href=href, aria_label=says)


__all__: Sequence[str] = ("picture",)
