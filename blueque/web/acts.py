"""What a viewer may order for tasks: in which states, what it costs, and how it is done.

One table, `ACTS`, is used for the buttons of the pages, for the question before an act, and for the
act itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.model.states import FINISHED
from blueque.sentences import consent
from blueque.text.format import count

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.model.task import Task

WAITS = frozenset({"pending", "scheduled", "blocked"})
RUNS = frozenset({"started", "reserved"})
FEW = 20  # tasks; for more than that, their number has to be typed


class Order(NamedTuple):
    """An order for tasks. by: who gives it. states: in which a task may be. value: of a field."""

    by: str
    reason: str | None
    states: Collection[str]
    value: str = ""


class Act(NamedTuple):
    """One kind of order.

    word: of the button. states: in which a task can be ordered so. ask: what would happen, in words.
    do: gives the order to one task and returns its new state, in words. kind: of its object in
        docs/json.md. status: the new state there, if it is always the same. field: a value that it needs: its
    name, its label and the kind of input. is_grave: whether running work or results are lost.
    """

    word: str
    states: Collection[str]
    ask: Callable[[Sequence[Task], float], str]
    do: Callable[[Client, Task, Order], str]
    field: tuple[str, str, str] | None = None
    has_reason: bool = False
    is_grave: bool = False
    kind: str = ""
    status: str = ""


def _cancel(client: Client, task: Task, order: Order) -> str:
    queue = client.get_queue(task.queue or "")
    return queue.cancel(task.id, order.by, order.reason, only={*order.states})


def _requeue(client: Client, task: Task, order: Order) -> str:
    return client.get_queue(task.queue or "").requeue(task.id, order.by)


def _delete(client: Client, task: Task, order: Order) -> str:
    client.get_queue(task.queue or "").delete_task(task)
    return "deleted"


def _interrupt(client: Client, task: Task, order: Order) -> str:
    client.get_queue(task.queue or "").interrupt(task.id, order.by, order.reason)
    return "interrupting"


def _first(client: Client, task: Task, order: Order) -> str:
    client.get_queue(task.queue or "").put_first(task.id, order.by)
    return "first in line"


def _run_now(client: Client, task: Task, order: Order) -> str:
    client.get_queue(task.queue or "").bring_forward(task.id)
    return "in line"


def _prioritize(client: Client, task: Task, order: Order) -> str:
    client.get_queue(task.queue or "").set_priority(task.id, int(order.value), order.by)
    return f"priority {int(order.value)}"


def _move(client: Client, task: Task, order: Order) -> str:
    client.get_queue(task.queue or "").move(task.id, order.value, order.by)
    return f"moved to {order.value}"


def _unblock(client: Client, task: Task, order: Order) -> str:
    return client.get_queue(task.queue or "").unblock(task.id, None, order.by)


def _would(what: str) -> Callable[[Sequence[Task], float], str]:
    return lambda tasks, now: f"{count(len(tasks), 'task')} would {what}"


def _ask_interrupt(tasks: Sequence[Task], now: float) -> str:
    return consent.of_interrupt(tasks) or _would("leave their hosts and be next in line")(
        tasks, now
    )


ACTS: Mapping[str, Act] = {
    "cancel": Act(
        "Cancel", WAITS | RUNS, consent.of_cancel, _cancel, has_reason=True, is_grave=True
    ),
    "interrupt": Act(
        "Interrupt", {"started"}, _ask_interrupt, _interrupt, has_reason=True, is_grave=True
    ),
    "requeue": Act(
        "Requeue", {"failed", "cancelled"}, lambda tasks, now: consent.of_requeue(tasks), _requeue
    ),
    "now": Act(
        "Run now",
        {"scheduled"},
        _would("be in line at once"),
        _run_now,
        kind="schedule_run",
        status="pending",
    ),
    "first": Act(
        "Put first", {"pending"}, _would("be the next of their line"), _first, status="pending"
    ),
    "priority": Act(
        "Set priority",
        {"pending"},
        _would("get another priority"),
        _prioritize,
        ("value", "Priority; higher ones run first", "number"),
        status="pending",
    ),
    "move": Act(
        "Move",
        {"pending"},
        _would("wait in another queue"),
        _move,
        ("value", "To which queue", "text"),
        status="pending",
    ),
    "unblock": Act("Unblock", {"blocked"}, _would("no longer wait for other tasks"), _unblock),
    "delete": Act(
        "Delete", FINISHED, lambda tasks, now: consent.of_delete(tasks), _delete, is_grave=True
    ),
}


def allowed(status: str | None) -> list[tuple[str, Act]]:
    """Return what can be ordered for a task in this state."""
    return [(verb, act) for verb, act in ACTS.items() if status in act.states]
