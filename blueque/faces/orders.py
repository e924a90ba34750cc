"""The orders for tasks: in which states, the text to confirm, and how each is done.

Each row of `ORDERS` is an order, for the command line and the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.errors import HasDependents, InvalidInput, WrongState
from blueque.model.group import group_of
from blueque.model.ids import is_uuid
from blueque.model.states import FINISHED
from blueque.queries import groups
from blueque.queries.listing import MIN_PREFIX
from blueque.sentences import consent
from blueque.text.format import count

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.model.task import Task
    from blueque.producer.queue import Queue

WAITS = frozenset({"pending", "scheduled", "blocked"})
RUNS = frozenset({"started", "reserved"})


class Given(NamedTuple):
    """An order from a person.

    by: who; None: the user of this program. states: in which a task may be when it is changed.
    value: the new queue or priority. parents: ids, their beginnings or groups, for `unblock`.
    is_forced: of `delete`: also tasks that others wait for.
    """

    by: str | None = None
    reason: str | None = None
    states: Collection[str] = ()
    value: str = ""
    parents: Sequence[str] = ()
    is_forced: bool = False


class Order(NamedTuple):
    """One kind of order.

    word: of the button. command: as a person types it. states: in which a task can be ordered so.
    ask: what would happen, a sentence without capital and full stop. do: gives the order to one
        task and returns its new state. selects: options of its command can select the tasks.
    asks_about: the tasks that must be confirmed; the page always asks.
    remark: follows the new state. field: a value that it needs: its name, its label and the kind of
        input. is_grave: whether running work or results are lost. needs_all_fields: of a task, to ask.
    """

    word: str
    command: str
    states: Collection[str]
    ask: Callable[[Client, Sequence[Task]], str]
    do: Callable[[Client, Task, Given], str]
    selects: bool = False
    asks_about: Callable[[Sequence[Task]], Sequence[Task]] = lambda tasks: ()
    remark: Callable[[Given], str] = lambda given: ""
    field: tuple[str, str, str] | None = None
    has_reason: bool = False
    is_grave: bool = False
    needs_all_fields: bool = False

    @property
    def kind(self) -> str:
        """The kind of its object in docs/json.md."""
        return self.command.partition(" ")[0]

    def loaded(self, client: Client, tasks: Sequence[Task]) -> Sequence[Task]:
        """Return the tasks with the fields that the order needs; a list has only some."""
        if not self.needs_all_fields:
            return tasks
        inspector = client.get_inspector()
        return [inspector.task(each.id) if each.status in self.states else each for each in tasks]

    def mistake(self, value: str) -> str:
        """Return what is wrong with the value that it needs, in a sentence; empty: nothing is."""
        if self.field is None:
            return ""
        is_number = self.field[2] == "number"
        if value and (not is_number or re.fullmatch("-?[0-9]{1,15}", value)):
            return ""
        return f"{self.field[1]}: {'a number' if is_number else 'a name'} is needed."

    def refusals(self, client: Client, tasks: Sequence[Task], given: Given) -> dict[str, str]:
        """Return why tasks cannot be ordered so, by their ids, as far as that is known in advance."""
        wrong = {
            task.id: str(WrongState(task.id, task.status, self.kind))
            for task in tasks
            if task.status not in self.states
        }
        able = [task for task in tasks if task.id not in wrong]
        if self.kind == "requeue":
            not_whole = groups.not_whole(client.connections, [task.id for task in able])
            return wrong | {task: str(error) for task, error in not_whole.items()}
        if self.kind == "delete" and not given.is_forced:
            awaited = [task.id for task in able if "dependents" in task.fields]
            return wrong | {task: _awaited(HasDependents(task)) for task in awaited}
        return wrong


def _queue(client: Client, task: Task) -> Queue:
    return client.get_queue(task.queue or "")


def _cancel(client: Client, task: Task, given: Given) -> str:
    return _queue(client, task).cancel(task.id, given.by, given.reason, only={*given.states})


def _interrupt(client: Client, task: Task, given: Given) -> str:
    if "started" not in given.states:  # no person has agreed to start it a second time
        why = f"it is {task.status or 'gone'}, so it does not run"
        raise WrongState(task.id, task.status, "interrupt", why)
    _queue(client, task).interrupt(task.id, given.by, given.reason)
    return "interrupting"


def _requeue(client: Client, task: Task, given: Given) -> str:
    return _queue(client, task).requeue(task.id, given.by)


def _delete(client: Client, task: Task, given: Given) -> str:
    try:
        _queue(client, task).delete_task(task, force=given.is_forced, by=given.by)
    except HasDependents as error:
        raise InvalidInput(_awaited(error)) from error
    return "deleted"


def _awaited(error: HasDependents) -> str:
    if error.is_group:  # --force does not delete it either
        return str(error)
    task = error.task_id
    return f"{error}. See: blueque graph {task}; nevertheless: blueque delete --force {task}"


def _run_now(client: Client, task: Task, given: Given) -> str:
    _queue(client, task).bring_forward(task.id, given.by)
    return "pending"


def _put_first(client: Client, task: Task, given: Given) -> str:
    _queue(client, task).put_first(task.id, given.by)
    return "pending"


def _set_priority(client: Client, task: Task, given: Given) -> str:
    _queue(client, task).set_priority(task.id, int(given.value), given.by)
    return task.status or ""


def _move(client: Client, task: Task, given: Given) -> str:
    _queue(client, task).move(task.id, given.value, given.by)
    return task.status or ""


def _unblock(client: Client, task: Task, given: Given) -> str:
    parents = _parents(client, task, given.parents) if given.parents else None
    return _queue(client, task).unblock(task.id, parents, given.by)


def _parents(client: Client, task: Task, words: Sequence[str]) -> list[str]:
    """Return the ids of the tasks that it waits for and that begin with these words."""
    conditions = client.get_inspector().dependencies(task).conditions
    kinds = {each.task.id: each.kind for each in conditions}
    return [_parent(task, kinds, word) for word in words]


def _parent(task: Task, kinds: Mapping[str, str], word: str) -> str:
    found = [name for name in kinds if word in (name, group_of(name))] or [
        name
        for name in kinds
        if name.startswith(word) and len(word) >= MIN_PREFIX and is_uuid(name)
    ]
    if len(found) > 1:
        raise InvalidInput(f"task {task.id} waits for {len(found)} tasks that begin with {word!r}")
    if not found:
        raise InvalidInput(f"task {task.id} does not wait for a task {word!r}")
    if kinds[found[0]].startswith("+"):
        raise InvalidInput(f"task {task.id} does not wait for {found[0]} any more")
    return found[0]


def _would(what: str) -> Callable[[Client, Sequence[Task]], str]:
    return lambda client, tasks: f"{count(len(tasks), 'task')} would {what}"


def _ask_cancel(client: Client, tasks: Sequence[Task]) -> str:
    now = client.get_inspector().now() if consent.running_of(tasks) else 0.0
    return consent.of_cancel(tasks, now)


def _ask_interrupt(client: Client, tasks: Sequence[Task]) -> str:
    leave = _would("leave their hosts and be next in line")
    return consent.of_interrupt(tasks) or leave(client, tasks)


def _ask_delete(client: Client, tasks: Sequence[Task]) -> str:
    names = {task.group for task in tasks if task.group}
    held = groups.held(client.connections, names, client.get_inspector().now()) if names else set()
    return consent.of_delete(tasks, held)


def _if_many(tasks: Sequence[Task]) -> Sequence[Task]:
    return tasks if len(tasks) > 1 else ()


ORDERS: Mapping[str, Order] = {
    "cancel": Order(
        "Cancel",
        "cancel",
        WAITS | RUNS,
        _ask_cancel,
        _cancel,
        selects=True,
        asks_about=consent.running_of,
        has_reason=True,
        is_grave=True,
    ),
    "interrupt": Order(
        "Interrupt",
        "interrupt",
        {"started"},
        _ask_interrupt,
        _interrupt,
        asks_about=consent.unpolicied,
        has_reason=True,
        is_grave=True,
        needs_all_fields=True,
    ),
    "requeue": Order(
        "Requeue",
        "requeue",
        {"failed", "cancelled"},
        lambda client, tasks: consent.of_requeue(tasks),
        _requeue,
        selects=True,
        asks_about=_if_many,
    ),
    "now": Order("Run now", "move --now", {"scheduled"}, _would("be in line at once"), _run_now),
    "first": Order(
        "Put first",
        "move --first",
        {"pending"},
        _would("be the next of their line"),
        _put_first,
        remark=lambda given: "first in its line",
    ),
    "priority": Order(
        "Set priority",
        "move --priority",
        {"pending", "scheduled"},
        _would("get another priority"),
        _set_priority,
        remark=lambda given: f"priority {int(given.value)}",
        field=("value", "Priority; higher ones run first", "number"),
    ),
    "move": Order(
        "Move",
        "move --to",
        {"pending", "scheduled"},
        _would("wait in another queue"),
        _move,
        remark=lambda given: f"in {given.value}",
        field=("value", "To which queue", "text"),
    ),
    "unblock": Order(
        "Unblock",
        "move --unblock",
        {"blocked"},
        _would("no longer wait for other tasks"),
        _unblock,
        asks_about=_if_many,
    ),
    "delete": Order(
        "Delete",
        "delete",
        FINISHED,
        _ask_delete,
        _delete,
        selects=True,
        asks_about=lambda tasks: tasks,
        is_grave=True,
    ),
}


def allowed(status: str | None) -> list[tuple[str, Order]]:
    """Return the orders for a task in this state."""
    return [(verb, order) for verb, order in ORDERS.items() if status in order.states]
