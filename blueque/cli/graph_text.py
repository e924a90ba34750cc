"""Draw what a task waits for, and what waits for it, as indented trees. Nothing here talks to
Redis.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from blueque.cli import printing
from blueque.cli.printing import count
from blueque.model.conditions import DROPPED, is_marked
from blueque.model.group import group_of
from blueque.model.parts import grouped
from blueque.model.states import FINISHED
from blueque.queries.listing import STATUSES, entered
from blueque.sentences.why_blocked import members_of, state_of_group, why_it_ended
from blueque.text.what import NAMES

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.task_graph import Graph

MOST_LINES = 200
MOST_ALIKE = 5  # tasks of one queue that get a line each; more are folded
MOST_BAD = 3  # of those that are folded, failed and cancelled ones that get a line
LEAST_NAME = 12  # columns that a name has, however long what stands behind it is
GONE = "gone"
# What needs a person comes first.
_ORDER = tuple(dict.fromkeys(("failed", "cancelled", GONE, "open", *STATUSES)))


class _Side(NamedTuple):
    """One direction.

    neighbours: returns those of a task, each with the condition; None: unknown.
    left: returns how many neighbours of a task were not read; None: some.
    """

    neighbours: Callable[[str], Mapping[str, str | None]]
    left: Callable[[str], int | None]


def lines(graph: Graph) -> list[str]:
    """Return what a task waits for, the task itself, and what waits for it: at most MOST_LINES."""
    above, below = _above(graph), _below(graph)
    room = MOST_LINES - 3
    # Both get half of the lines, and what the other one leaves.
    least = sum(1 for _ in islice(_tree(graph, below), room // 2))
    over = _cut(_tree(graph, above), room - least)
    under = _cut(_tree(graph, below), room - len(over))
    head = printing.paint(_line(graph, graph.task, None, 0), "", bold=True)
    return [_of_above(graph), *over, head, _of_below(graph), *under]


def _above(graph: Graph) -> _Side:
    def left(task: str) -> int:
        if task not in graph.parents:
            return graph.tasks[task].after or 0
        missing = sum(name not in graph.tasks for name in graph.parents[task])
        size = int(graph.tasks[task].fields.get("members", 0))  # of a group
        return max(
            missing, size - sum(name in graph.tasks for name in graph.parents[task]) if size else 0
        )

    return _Side(lambda task: graph.parents.get(task, {}), left)


def _below(graph: Graph) -> _Side:
    def left(task: str) -> int | None:
        if task not in graph.children:
            return None if "dependents" in graph.tasks[task].fields else 0
        return graph.counts[task] - sum(name in graph.tasks for name in graph.children[task])

    return _Side(lambda task: graph.children.get(task, {}), left)


def _of_above(graph: Graph) -> str:
    conditions = graph.parents[graph.task].values()
    total = count(len(conditions), "task")
    if group_of(graph.task) is not None:
        return "Its tasks:" if conditions else "No task has joined it."
    unmet = sum(not condition.startswith("+") for condition in conditions)
    if unmet and graph.tasks[graph.task].status == "blocked":
        return f"It waits for {unmet} of {total}:"
    return f"It waited for {total}:" if conditions else "It waits for no other task."


def _of_below(graph: Graph) -> str:
    number, fields = graph.counts[graph.task], graph.tasks[graph.task].fields
    children = graph.children.get(graph.task, {})
    ended = sum(graph.tasks[each].status in FINISHED for each in children if each in graph.tasks)
    verb = "waits" if number - ended == 1 else "wait"
    if number > ended:
        some = f"; {count(ended, 'other')} {'has' if ended == 1 else 'have'} ended" if ended else ""
        return f"{count(number - ended, 'task')} {verb} for it{some}:"
    if number:
        return "No task waits for it any more; these would if they were requeued:"
    has_ended = fields.get("state") == "ended" or fields.get("status") in FINISHED
    return "No task waits for it any more: it has ended." if has_ended else "No task waits for it."


def _cut(tree: Iterator[str], most: int) -> list[str]:
    found = [*islice(tree, most + 1)]
    return found if len(found) <= most else [*found[: most - 1], "  ... (--json shows more)"]


def _tree(graph: Graph, side: _Side) -> Iterator[str]:
    """Yield a line for each neighbour of the task and, indented below it, for its neighbours."""
    return _branch(graph, side, graph.task, 1, {graph.task})


def _branch(graph: Graph, side: _Side, task: str, depth: int, seen: set[str]) -> Iterator[str]:
    neighbours = side.neighbours(task)
    known = [graph.tasks[name] for name in neighbours if name in graph.tasks]
    queues = grouped(known, lambda task: task.queue or "")
    for queue, members in sorted(queues.items()):
        shown = sorted(members, key=lambda each: _ORDER.index(_state(each)))
        indent = depth
        if len(members) > MOST_ALIKE:
            yield _folded(queue, members, depth)
            bad = [each for each in shown if each.status in ("failed", "cancelled")]
            shown, indent = bad[:MOST_BAD], depth + 1
        for each in shown:
            is_new = each.id not in seen
            seen.add(each.id)
            yield _line(graph, each.id, neighbours[each.id], indent, is_new)
            if is_new:
                yield from _branch(graph, side, each.id, indent + 1, seen)
    left = side.left(task)
    if left != 0:
        number = "" if left is None else f"{left:,} "
        how = (
            "" if task == graph.task else f": blueque graph {shlex.quote(printing.short_id(task))}"
        )
        yield f"{'  ' * depth}... {number}more{how}"


def _folded(queue: str, members: Sequence[Task], depth: int) -> str:
    """Return `x 412 render: 3 failed, 409 complete`."""
    states = Counter(_state(each) for each in members)
    parts = ", ".join(f"{states[state]:,} {state}" for state in _ORDER if states[state])
    text = f"{'  ' * depth}x {len(members):,} {queue or 'tasks'}: {parts}"
    return printing.within(printing.clean(text))


def _line(
    graph: Graph, task_id: str, condition: str | None, depth: int, is_new: bool = True
) -> str:
    """Return `7c1f2a9e  intro-17  render  started for 2 h on gpu-3`."""
    task = graph.tasks[task_id]
    remarks = [*_remarks(condition or "ok", _state(task)), *([] if is_new else ["see above"])]
    more = f"  ({', '.join(remarks)})" if remarks else ""
    before = f"{'  ' * depth}{printing.short_id(task_id)}"
    behind = f"{'  ' if task.queue else ''}{task.queue or ''}  {_words(task, graph.now)}{more}"
    name = next((f"  {task.fields[name]}" for name in NAMES if name in task.fields), "")
    room = printing.terminal_width() - printing.width(printing.clean(before + behind))
    name = printing.within(printing.clean(name), max(room, LEAST_NAME))
    return printing.within(f"{printing.clean(before)}{name}{printing.clean(behind)}")


def _remarks(condition: str, state: str) -> list[str]:
    """Return the parts of a condition besides the state of the other task."""
    if is_marked(condition):
        known = condition[1:]
        words = "no longer needed" if condition == DROPPED else f"was {known}"
        return [] if known == state else [words]
    return [] if condition == "ok" else [condition]


def _words(task: Task, now: float) -> str:
    """Return the state of a task, since when, and where or why."""
    state, since = _state(task), entered(task)
    if group_of(task.id) is not None and state != GONE:
        return f"{state_of_group(task)}, {members_of(task)}"
    if since is None:
        return state
    if state == "scheduled":
        return f"{state}, {printing.due(since, now)}"
    span = printing.span(max(now - since, 0.0))
    if state in ("failed", "cancelled"):
        why = why_it_ended(task)
        return f"{state} {span} ago{f', {why}' if why else ''}"
    where = f" on {printing.short_node(task.node)}" if state == "started" and task.node else ""
    return f"{state} for {span}{where}"


def _state(task: Task) -> str:
    return task.status if task.status in _ORDER else GONE
