"""Orders for tasks: the question before, the order itself, and what became of it.

The server selects the tasks again when the yes comes: if there are more by then, nothing is done. An
order is done once, however often its form is sent: it has a number of its own.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from blueque.errors import BluequeError, InvalidInput, RedisAway
from blueque.faces.orders import FEW, ORDERS, Given, Order
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
KEPT, MOST_KEPT = 200, 100_000  # orders whose outcomes are remembered, and tasks of all of them
LOCKS = 64
MOST_SEEN = 2000  # tasks that a form names


class Outcome(NamedTuple):
    """What became of one task: its new state with a remark, or why it was refused."""

    task: str
    state: str
    refusal: str = ""
    remark: str = ""


class Done(NamedTuple):
    """What became of an order. trouble: why it stopped before its end."""

    verb: str
    outcomes: Sequence[Outcome]
    trouble: str = ""


class Orders:
    """The orders of all viewers, and what became of the last ones."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._done: OrderedDict[str, Done] = OrderedDict()
        self._guard = threading.Lock()
        self._locks = [threading.Lock() for _ in range(LOCKS)]

    async def answer(self, request: Request) -> Response:
        """Answer GET with the question, and POST by giving the order."""
        visit = self._shared.visit(request)
        form = await form_of(request) if request.method == "POST" else None
        if form is not None and wants_json(request):
            verb = request.path_params["verb"]
            kind = kind_of(verb)
            return await answered(self._shared, visit, kind, self._for_program, verb, form)
        return await self._shared.guarded(visit, self._answer, request.path_params["verb"], form)

    async def outcome(self, request: Request) -> Response:
        """Answer with what became of an order."""
        visit = self._shared.visit(request)
        return await self._shared.guarded(visit, self._show, request.path_params["number"])

    def _answer(self, visit: Visit, verb: str, form: Mapping[str, str] | None) -> Page | Response:
        act = _act(verb)
        require_operator(visit)
        tasks = self._tasks(visit, act)
        if form is None:
            return self._question(visit, verb, act, tasks)
        number = form.get("number", "")
        with self._lock(number):
            if number not in self._done:
                mistake = _mistake(act, tasks, form)
                if mistake:
                    return self._question(visit, verb, act, tasks, mistake, form)
                self._give(visit, verb, act, tasks, form)
        return RedirectResponse(visit.url(f"/done/{number}", back=form.get("back")), 303)

    def _for_program(self, visit: Visit, verb: str, form: Mapping[str, str]) -> dict[str, Any]:
        """Give an order without a question before, and return the content of its object.

        What a filter selects needs `expected`, the largest number of tasks that it may select.
        """
        act = _act(verb)
        require_operator(visit)
        tasks = self._tasks(visit, act)
        ids = [task for task in visit.query.get("id", ()) if task]
        expected = form.get("expected") or (str(len(ids)) if ids else "")
        if not expected:
            raise HTTPException(409, f"{len(tasks)} are selected: send expected={len(tasks)}.")
        number = form.get("number") or secrets.token_hex(8)
        number = f"{visit.viewer.name} {verb} {number}"  # others may count so, too
        whole = {**form, "expected": expected, "number": number, "typed": str(len(tasks))}
        with self._lock(number):
            if number not in self._done:
                if mistake := _mistake(act, tasks, whole):
                    raise HTTPException(409, mistake)
                self._give(visit, verb, act, tasks, whole)
            done = self._done[number]
        if done.trouble:
            raise HTTPException(503, f"{len(done.outcomes)} done, then it stopped: {done.trouble}")
        return _content(verb, act, done, form, {task.id: task.queue for task in tasks}, ids)

    def _tasks(self, visit: Visit, act: Order) -> list[Task]:
        """Return the tasks that the address selects and that can be ordered so."""
        reader = visit.reader
        ids = [task for task in visit.query.get("id", ()) if task]
        if ids:
            found = reader.inspector.tasks(ids[:MOST])
        else:
            wanted = filter_of(visit)
            states = [state for state in (wanted.states or act.states) if state in act.states]
            found = look(wanted._replace(states=states), MOST, visit).tasks if states else []
        mine = [task for task in found if task.status in act.states and visit.site.has(task.queue)]
        return [*act.loaded(reader.client, mine)]

    def _question(
        self,
        visit: Visit,
        verb: str,
        act: Order,
        tasks: Sequence[Task],
        mistake: str = "",
        form: Mapping[str, str] | None = None,
    ) -> Page:
        now = visit.reader.inspector.now()
        sentence = act.ask(visit.reader.client, tasks) if tasks else ""
        shown = sorted(tasks, key=lambda task: task.started or now)[:SHOWN]
        named = visit.reader.inspector.with_contents(shown)
        context = {
            "act": act,
            "verb": verb,
            "sentence": f"{sentence[:1].upper()}{sentence[1:]}",
            "tasks": [
                (task, what(task, visit.site.hide), read_progress(task.fields.get("progress", "")))
                for task in named
            ],
            "number_of_tasks": len(tasks),
            "states": [*Counter(task.status for task in tasks).items()],
            "running": sum(task.status == "started" for task in tasks),
            "has_to_type": act.is_grave and len(tasks) > FEW,
            "number": secrets.token_hex(8),
            "seen": " ".join(_mark(task) for task in tasks) if len(tasks) <= MOST_SEEN else "",
            "mistake": mistake,
            "form": form or {},
            "back": _back(visit),
            "command": command_of(visit, verb, act.states)
            if act.selects and not visit.query.get("id")
            else "",
            "is_live": False,
        }
        return Page("consent.html", context)

    def _give(
        self, visit: Visit, verb: str, act: Order, tasks: Sequence[Task], form: Mapping[str, str]
    ) -> None:
        """Give the order to each task, and remember what became of it."""
        states = {*act.states}
        if form.get("running", "0") == "0":
            states.discard("started")  # the viewer has not agreed to end running work
        by = f"{visit.viewer.name}@web"
        given = Given(by, reason_of(form), states, form.get("value", "").strip())
        self._note("order", visit, verb, tasks=len(tasks), reason=given.reason)
        outcomes: list[Outcome] = []
        trouble = ""
        for task in tasks:
            try:
                if task.status not in states:
                    raise InvalidInput("it has started meanwhile")
                state = act.do(visit.reader.client, task, given)
                outcomes.append(Outcome(task.id, state, remark=act.remark(given)))
            except RedisAway as error:
                trouble = str(error)
                break
            except (BluequeError, ValueError) as error:
                outcomes.append(Outcome(task.id, "", str(error)))
        visit.reader.forget()
        with self._guard:
            self._done[form["number"]] = Done(verb, outcomes, trouble)
            while len(self._done) > 1 and self._has_too_many():
                self._done.popitem(last=False)
        refused = sum(bool(one.refusal) for one in outcomes)
        self._note("done", visit, verb, tasks=len(outcomes), refused=refused, trouble=trouble)

    def _show(self, visit: Visit, number: str) -> Page:
        done = self._done.get(number)
        if done is None:
            raise HTTPException(404, "What became of this order is no longer known.")
        context = {
            "act": ORDERS[done.verb],
            "done": [one for one in done.outcomes if not one.refusal],
            "refused": [one for one in done.outcomes if one.refusal],
            "trouble": done.trouble,
            "most": NAMED,
            "back": _back(visit),
            "is_live": False,
        }
        return Page("outcome.html", context)

    def _lock(self, number: str) -> threading.Lock:
        """Return the lock of an order: its form may be sent twice at the same time."""
        return self._locks[hash(number) % LOCKS]

    def _has_too_many(self) -> bool:
        tasks = sum(len(one.outcomes) for one in self._done.values())
        return len(self._done) > KEPT or tasks > MOST_KEPT

    def _note(self, what: str, visit: Visit, verb: str, **facts: object) -> None:
        """Write to the log who has ordered what."""
        told = {"by": visit.viewer.name, "role": visit.viewer.role, "verb": verb, **facts}
        log.info("web %s %s", what, json.dumps({**told, "query": dict(visit.query)}))


def kind_of(verb: str) -> str:
    """Return the kind of the object in docs/json.md that answers an order."""
    return ORDERS[verb].command.partition(" ")[0] if verb in ORDERS else verb


def _act(verb: str) -> Order:
    act = ORDERS.get(verb)
    if act is None:
        raise HTTPException(404, f"There is no order {verb}.")
    return act


def _content(
    verb: str,
    act: Order,
    done: Done,
    form: Mapping[str, str],
    queues: Mapping[str, str | None],
    ids: Sequence[str],
) -> dict[str, Any]:
    """Return the content of the object of an order. ids: those that were named."""
    left_out = {*ids} - {one.task for one in done.outcomes}
    refused = [Outcome(task, "", "it is not in a state for that") for task in sorted(left_out)]
    more: dict[str, Any] = {"dry_run": False} if act.selects else {}
    return more | {
        "items": [
            {
                "id": one.task,
                "queue": form["value"] if verb == "move" and one.state else queues.get(one.task),
                "status": None if one.refusal else one.state,
                "refusal": one.refusal or None,
            }
            for one in [*done.outcomes, *refused]
        ]
    }


def _mark(task: Task) -> str:
    """Return what a form has for a task, so that no other one takes its place."""
    return hashlib.sha256(task.id.encode()).hexdigest()[:10]


def _back(visit: Visit) -> str:
    """Return the path of the page that led here."""
    path = visit.one("back", "/tasks")
    return path if is_path(path) else "/tasks"


def require_operator(visit: Visit) -> None:
    """Refuse who may only look. Raises HTTPException."""
    if visit.site.is_read_only:
        raise HTTPException(403, "This page is read-only: nothing can be changed here.")
    if not visit.viewer.may_act:
        who = visit.viewer.name
        raise HTTPException(403, f"This needs the role operator; {who} may only look.")


def _mistake(act: Order, tasks: Sequence[Task], form: Mapping[str, str]) -> str:
    """Return why the order is not given; empty: nothing is wrong."""
    expected = form.get("expected", "")
    if not 0 < len(form.get("number", "")) < 200 or not re.fullmatch("[0-9]{1,9}", expected):
        return "The form is not complete: look again and say yes once more."
    if len(tasks) > int(expected):
        more = len(tasks) - int(expected)
        return f"{more} more by now: look again and say yes once more."
    seen = {*form.get("seen", "").split()}
    if new := sum(_mark(task) not in seen for task in tasks) if seen else 0:
        return f"{new} more by now: look again and say yes once more."
    if act.is_grave and len(tasks) > FEW and form.get("typed", "").strip() != str(len(tasks)):
        return f"Type the number of tasks, {len(tasks)}."
    if act.field is not None:
        value = form.get("value", "").strip()
        is_number = act.field[2] == "number"
        if not value or (is_number and not re.fullmatch("-?[0-9]{1,15}", value)):
            return f"{act.field[1]}: {'a number' if is_number else 'a name'} is needed."
    return ""
