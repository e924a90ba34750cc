"""The picture of tasks that wait for each other: those that come first on the left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from blueque.model.group import group_of
from blueque.queries.task_graph import Graph
from blueque.report import svg
from blueque.text.what import what
from blueque.web.visit import Visit

MOST = 120  # tasks that are drawn
WIDTH, HEIGHT, GAP_X, GAP_Y = 150, 30, 56, 12  # pixels of a task, and between two
_ORDER = (
    "failed",
    "cancelled",
    "started",
    "reserved",
    "pending",
    "scheduled",
    "blocked",
    "complete",
)


def picture(graph: Graph, visit: Visit) -> Markup | None:
    """Return the picture of a graph; None: nothing depends on anything in it."""
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
    places = _places(levels, graph)
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
    says = f"{len(places)} tasks, of which {len(edges)} pairs wait for each other"
    return svg.tag(
        "svg", *drawn, class_="graph", width=width, height=height, role="group", aria_label=says
    )


def _levels(tasks: set[str], edges: set[tuple[str, str]]) -> dict[str, int]:
    """Return on which level each task is: one more than the last of those for which it waits."""
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


def _places(levels: Mapping[str, int], graph: Graph) -> dict[str, tuple[int, int]]:
    """Return where each task is drawn, in pixels."""
    rows: dict[int, int] = {}
    places = {}

    def rank(task: str) -> tuple[int, int, str]:
        status = graph.tasks[task].status or ""
        return levels[task], _ORDER.index(status) if status in _ORDER else 99, task

    for task in sorted(levels, key=rank)[:MOST]:
        number = rows.get(levels[task], 0)
        rows[levels[task]] = number + 1
        places[task] = (1 + levels[task] * (WIDTH + GAP_X), 1 + number * (HEIGHT + GAP_Y))
    return places


def _edge(one: tuple[int, int], other: tuple[int, int]) -> Markup:
    x1, y1 = one[0] + WIDTH, one[1] + HEIGHT // 2
    x2, y2 = other[0], other[1] + HEIGHT // 2
    middle = (x1 + x2) // 2
    return svg.path([f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"], "edge")


def _node(task_id: str, place: tuple[int, int], graph: Graph, visit: Visit) -> Markup:
    task, (x, y) = graph.tasks[task_id], place
    status = task.status or "gone"
    name = what(task, visit.site.hide) or task_id[:8]
    says = f"{name}: {status}"
    box = svg.tag("rect", x=x, y=y, width=WIDTH, height=HEIGHT, rx=5, class_=f"box {status}")
    mark = svg.tag("circle", cx=x + 12, cy=y + HEIGHT // 2, r=4, class_=f"mark {status}")
    words = svg.tag("text", svg.text(name, 18), x=x + 22, y=y + HEIGHT // 2 + 4, class_="tick name")
    href = visit.task_url(task_id)
    title = svg.tag("title", says)
    return svg.tag("a", title, box, mark, words, href=href, aria_label=says)


__all__: Sequence[str] = ("picture",)
