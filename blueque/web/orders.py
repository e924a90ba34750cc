"""Orders for tasks: the question, the order itself, and its result.

After a yes, the server selects the tasks again: if there are more by then, nothing is done.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from blueque.errors import BluequeError, InvalidInput, RedisAway
from blueque.faces.orders import ORDERS, Given, Order
from blueque.model.task import Task
from blueque.text.eta import read_progress
from blueque.text.what import what
from blueque.web.api import answered, wants_json
from blueque.web.filters import command_of, filter_of
from blueque.web.preferences import form_of, is_path, reason_of
from blueque.web.shared import Shared
from blueque.web.views.tasks import look
from blueque.web.visit import Page, Visit

log = logging.getLogger("blueque")

MOST = 10_000  # tasks of one order
SHOWN = 10  # of the tasks on the page of the question
NAMED = 50  # of those on the page of the outcome

Form = Mapping[str, str]


class Outcome(NamedTuple):
    """The result for one task: its new state with a remark, or why it was refused."""

    task: Task
    state: str
    refusal: str = ""
    remark: str = ""


class Done(NamedTuple):
    """The result of an order. trouble: why it stopped before its end."""

    outcomes: Sequence[Outcome]
    trouble: str = ""


class Orders:
    """Answers the forms of orders for tasks."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    async def answer(self, request: Request) -> Response:
        """Answer GET with the question, and POST by giving the order."""
        visit, verb = self._shared.visit(request), request.path_params["verb"]
        if request.method != "POST":
            return await self._shared.guarded(visit, _ask, verb)
        form = await form_of(request)
        if wants_json(request):
            kind = ORDERS[verb].kind if verb in ORDERS else verb
            return await answered(self._shared, visit, kind, _order_of_program, verb, form)
        return await self._shared.guarded(visit, _order, verb, form)


def _ask(visit: Visit, verb: str) -> Page:
    order = _allowed(visit, verb)
    return _question(visit, verb, _selected(visit, order))


def _order(visit: Visit, verb: str, form: Form) -> Page:
    """Give the order that a person has confirmed, and return the result."""
    order = _allowed(visit, verb)
    tasks = _selected(visit, order)
    mistake = _mistake(order, len(tasks), form) or _more_running(tasks, form)
    if mistake or not tasks:
        return _question(visit, verb, tasks, mistake, form)
    done = _give(visit, verb, tasks, form)
    context = {
        "order": order,
        "done": [one for one in done.outcomes if not one.refusal],
        "refused": [one for one in done.outcomes if one.refusal],
        "trouble": done.trouble,
        "most": NAMED,
        "back": _back(visit),
        "is_live": False,
    }
    return Page("outcome.html", context)


def _order_of_program(visit: Visit, verb: str, form: Form) -> dict[str, Any]:
    """Give an order without a question, and return the content of its object.

    A filter needs `expected`, the largest number of tasks that it may select.
    """
    order = _allowed(visit, verb)
    tasks = _selected(visit, order)
    ids = [task for task in visit.query.get("id", ()) if task]
    expected = form.get("expected") or (str(len(ids)) if ids else "")
    if not expected:
        raise HTTPException(409, f"{len(tasks)} are selected: send expected={len(tasks)}.")
    if mistake := _mistake(order, len(tasks), {**form, "expected": expected}):
        raise HTTPException(409, mistake)
    done = _give(visit, verb, tasks, form)
    if done.trouble:
        raise HTTPException(503, f"{len(done.outcomes):,} done, then it stopped: {done.trouble}")
    left_out = {*ids} - {task.id for task in tasks}
    refusal = "its state does not allow that"
    refused = [Outcome(Task(name, {}), "", refusal) for name in sorted(left_out)]
    more: dict[str, Any] = {"dry_run": False} if order.selects else {}
    return more | {
        "items": [
            {
                "id": one.task.id,
                "queue": form["value"].strip() if verb == "move" and one.state else one.task.queue,
                "status": None if one.refusal else one.state,
                "refusal": one.refusal or None,
            }
            for one in [*done.outcomes, *refused]
        ]
    }


def _allowed(visit: Visit, verb: str) -> Order:
    """Return an order that this viewer may give. Raises HTTPException."""
    order = ORDERS.get(verb)
    if order is None:
        raise HTTPException(404, f"There is no order {verb}.")
    require_operator(visit)
    return order


def _selected(visit: Visit, order: Order) -> Sequence[Task]:
    """Return the tasks that the address selects and that can be ordered so.

    With `id`, even an empty one, it selects no others: a list without a ticked task sends an empty one.
    """
    reader = visit.reader
    ids = [task for task in visit.query.get("id", ()) if task]
    if "id" in visit.query:
        found = reader.inspector.tasks(ids[:MOST])
    else:
        wanted = filter_of(visit)
        states = [state for state in (wanted.states or order.states) if state in order.states]
        found = look(wanted._replace(states=states), MOST, visit).tasks if states else []
    mine = [task for task in found if task.status in order.states and visit.site.has(task.queue)]
    return order.loaded(reader.client, mine)


def _question(
    visit: Visit, verb: str, tasks: Sequence[Task], mistake: str = "", form: Form | None = None
) -> Page:
    order, inspector = ORDERS[verb], visit.reader.inspector
    now = inspector.now()
    sentence = order.ask(visit.reader.client, tasks) if tasks else ""
    shown = sorted(tasks, key=lambda task: task.started or now)[:SHOWN]
    context = {
        "order": order,
        "sentence": f"{sentence[:1].upper()}{sentence[1:]}",
        "tasks": [
            (task, what(task, visit.site.hide), read_progress(task.fields.get("progress", "")))
            for task in inspector.with_contents(shown)
        ],
        "number_of_tasks": len(tasks),
        "states": [*Counter(task.status for task in tasks).items()],
        "running": sum(task.status == "started" for task in tasks),
        "mistake": mistake,
        "form": form or {},
        "back": _back(visit),
        "command": _command(visit, verb) if tasks else "",
        "is_live": False,
    }
    return Page("consent.html", context)


def _command(visit: Visit, verb: str) -> str:
    """Return the command that would select the same tasks; empty: there is none."""
    order = ORDERS[verb]
    is_by_filter = order.selects and not visit.query.get("id")
    is_of_all_queues = bool(visit.site.queues) and not visit.one("queue").strip()
    if not is_by_filter or visit.one("node").strip() or is_of_all_queues:
        return ""
    return command_of(visit, verb, order.states)


def _mistake(order: Order, number: int, form: Form) -> str:
    """Return why an order for so many tasks is not given; empty: nothing is wrong."""
    expected = form.get("expected", "")
    if not re.fullmatch("[0-9]{1,9}", expected):
        return "The form is not complete: check it and confirm again."
    if number > int(expected):
        return f"{number - int(expected):,} more by now: check and confirm again."
    return order.mistake(form.get("value", "").strip())


def _more_running(tasks: Sequence[Task], form: Form) -> str:
    """Return that more of the tasks run than the question named; empty: they do not.

    If none ran, those that have started since are left alone.
    """
    said, running = form.get("running", "0"), sum(task.status == "started" for task in tasks)
    more = running - int(said) if re.fullmatch("[1-9][0-9]{0,8}", said) else 0
    return f"{more:,} more running by now: check and confirm again." if more > 0 else ""


def _give(visit: Visit, verb: str, tasks: Sequence[Task], form: Form) -> Done:
    """Give the order to each task, and return what became of it."""
    order, states = ORDERS[verb], {*ORDERS[verb].states}
    if form.get("running", "0") == "0":
        states.discard("started")  # the viewer has not agreed to end running work
    by = f"{visit.viewer.name}@web"
    given = Given(by, reason_of(form), states, form.get("value", "").strip())
    _note("order", visit, verb, tasks=len(tasks), reason=given.reason)
    outcomes: list[Outcome] = []
    trouble = ""
    for task in tasks:
        try:
            if task.status == "started" and "started" not in states:
                raise InvalidInput("it has started meanwhile")
            state = order.do(visit.reader.client, task, given)
            outcomes.append(Outcome(task, state, remark=order.remark(given)))
        except RedisAway as error:
            trouble = str(error)
            break
        except (BluequeError, ValueError) as error:
            outcomes.append(Outcome(task, "", str(error)))
    visit.reader.forget()
    refused = sum(bool(one.refusal) for one in outcomes)
    _note("done", visit, verb, tasks=len(outcomes), refused=refused, trouble=trouble)
    return Done(outcomes, trouble)


def _note(event: str, visit: Visit, verb: str, **facts: object) -> None:
    """Log who has ordered what."""
    who = {"by": visit.viewer.name, "role": visit.viewer.role, "verb": verb}
    log.info("web %s %s", event, json.dumps({**who, **facts, "query": dict(visit.query)}))


def _back(visit: Visit) -> str:
    """Return the path of the page that led here."""
    path = visit.one("back", "/tasks")
    return path if is_path(path) else "/tasks"


def require_operator(visit: Visit) -> None:
    """Refuse viewers that may only look. Raises HTTPException."""
    if visit.site.is_read_only:
        raise HTTPException(403, "This page is read-only: nothing can be changed here.")
    if not visit.viewer.may_act:
        who = visit.viewer.name
        raise HTTPException(403, f"This needs the role operator; {who} may only look.")
