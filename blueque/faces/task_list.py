"""The list of tasks that `blueque ls` and the page show: how it is selected and loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.model.states import HELD
from blueque.queries.listeners import names_of
from blueque.queries.listing import STATUSES

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.inspector import Inspector
    from blueque.queries.listing import Listing
    from blueque.queries.search import Choice
    from blueque.queries.selection import Selection

UNFINISHED = ("started", "reserved", "pending")


class Sorting(NamedTuple):
    """The order of a list of tasks. rank: the sort key of a task at a time, as for `Choice`."""

    rank: Callable[[Task, float], Any] | None
    is_reversed: bool = False


def usual_states(selection: Selection, node: str | None) -> Sequence[str]:
    """Return the states that are listed by default.

    node: of a listener, or a host. A task that was not begun is on none.
    """
    if selection.is_named:
        return STATUSES
    return HELD if node else UNFINISHED


def choice_of(
    queues: Sequence[str],
    inspector: Inspector,
    selection: Selection,
    node: str | None,
    order: Sorting | None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Choice | None:
    """Return which tasks of these queues to list, and in which order; None: all, in their order.

    node: of a listener, or a host, where they run or ran last. say: as for `Selection.choice`.
    """
    if not node and not selection.is_any and order is None:
        return None

    def wants(task: Task, now: float) -> bool:
        if node and (task.node is None or node not in names_of(task.node)):
            return False
        return selection.wants(task, now)

    choice = selection.choice(queues, inspector, say)._replace(wants=wants)
    return choice if order is None else choice._replace(**order._asdict())


def load(
    inspector: Inspector,
    queues: Sequence[str],
    states: Sequence[str],
    limit: int,
    choice: Choice | None,
    contents: Sequence[str] = (),
) -> Listing:
    """Return the first tasks in these states that match the choice.

    contents: names of the long fields to read, as for `Inspector.with_contents`.
    """
    found = inspector.listing(queues, states, limit, choice)
    if not contents:
        return found
    return found._replace(tasks=inspector.with_contents(found.tasks, contents))
