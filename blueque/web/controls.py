"""The orders of the page.

Orders for queues, hosts and recurring tasks can be undone and need no question. Those for whole
groups come with a question. Some only ask.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from blueque.audit.doctor import Doctor
from blueque.client import Client
from blueque.documents import groups as of_groups
from blueque.documents import orders, schedules
from blueque.errors import InvalidInput, NoSuchSchedule
from blueque.faces.hosts import HOST_ORDERS, HostOrder
from blueque.listener.listeners import Told
from blueque.text.terminal import short_id
from blueque.web.api import answered, wants_json
from blueque.web.objects import Content, doctor_of
from blueque.web.orders import require_operator
from blueque.web.preferences import form_of, reason_of
from blueque.web.shared import Shared
from blueque.web.views import groups, nodes
from blueque.web.visit import Page, Visit

log = logging.getLogger("blueque")

Fields = Mapping[str, str]
Control = Callable[[Client, str, str, Fields], Any]


def _pause_queue(client: Client, name: str, by: str, form: Fields) -> object:
    return client.get_queue(name).pause(by, reason_of(form))


def _resume_queue(client: Client, name: str, by: str, form: Fields) -> object:
    return client.get_queue(name).resume(by)


def _limit_queue(client: Client, name: str, by: str, form: Fields) -> None:
    text = form.get("most", "").strip()
    if text and not re.fullmatch("[0-9]{1,9}", text):
        raise InvalidInput(f"the limit is a number, or empty for none, not {text[:20]!r}")
    client.get_queue(name).set_settings({"max_running": int(text) if text else None}, by)


def _order_host(order: HostOrder) -> Control:
    return lambda client, name, by, form: order.tell(client.get_listeners(), name, by)


def _pause_schedule(client: Client, name: str, by: str, form: Fields) -> object:
    return client.get_schedule(name).pause(by, reason_of(form))


def _trigger(client: Client, name: str, by: str, form: Fields) -> object:
    return client.get_schedule(name).trigger(by=by)


def _cancel_group(client: Client, name: str, by: str, form: Fields) -> None:
    if not client.group(name).cancel(by, reason_of(form)):
        raise InvalidInput(f"group {name} has ended already")


def _stack(client: Client, name: str, by: str, form: Fields) -> None:
    """Have the listener of a running task write to its log where the task is."""
    task = client.get_task(name)
    if task.status == "started" and task.token is None:
        raise InvalidInput(
            f"task {short_id(name)} runs on a listener of 1.0.0, which cannot be asked"
        )
    status = client.get_queue(task.queue or "").ask_stack(name, os.urandom(8).hex())
    if status != "started":
        raise InvalidInput(f"task {short_id(name)} does not run: it is {status}")


PLACES = {
    "queue": "/queues/",
    "node": "/nodes/",
    "schedule": "/schedule/",
    "group": "/groups/",
    "task": "/tasks/",
}
# The objects of docs/json.md that programs get; all others are `recurring`.
KINDS = {
    ("queue", "pause"): "queue_pause",
    ("queue", "resume"): "queue_resume",
    ("queue", "limit"): "queue_set",
    **{("node", verb): f"host_{verb}" for verb in HOST_ORDERS},
    ("schedule", "trigger"): "schedule_trigger",
    **{("group", verb): "group" for verb in groups.ORDERS},
}
SETTLE = 2.0  # seconds that a finding must last, as for `blueque doctor`
# By the kind of thing and the verb.
CONTROLS: Mapping[tuple[str, str], Control] = {
    ("queue", "pause"): _pause_queue,
    ("queue", "resume"): _resume_queue,
    ("queue", "limit"): _limit_queue,
    **{("node", verb): _order_host(order) for verb, order in HOST_ORDERS.items()},
    ("schedule", "pause"): _pause_schedule,
    ("schedule", "resume"): lambda client, name, by, form: client.get_schedule(name).resume(by=by),
    ("schedule", "trigger"): _trigger,
    ("task", "stack"): _stack,
    ("group", "cancel"): _cancel_group,
    ("group", "requeue"): lambda client, name, by, form: client.group(name).requeue(by),
    ("group", "close"): lambda client, name, by, form: client.group(name).close(),
}


class Controls:
    """The forms on the pages of queues, hosts, recurring tasks and running ones, and of the doctor."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def routes(self) -> list[Route]:
        return [
            Route("/controls/{kind}/{verb}", self.answer, methods=["POST"]),
            Route("/controls/group/{verb}", self.ask),
            Route("/doctor", self.look, methods=["POST"]),
        ]

    async def look(self, request: Request) -> Response:
        """Start a scan of every key, and redirect to the page. A program gets the findings."""
        visit = self._shared.visit(request)
        answer = await self._shared.guarded(visit, _look)
        if not wants_json(request) or answer.status_code != 303:
            return answer
        await anyio.to_thread.run_sync(visit.reader.scan.is_idle.wait, abandon_on_cancel=True)
        return await answered(self._shared, visit, "doctor", doctor_of)

    async def answer(self, request: Request) -> Response:
        """Give the order of a form, and redirect to the page."""
        visit = self._shared.visit(request)
        form = await form_of(request)
        kind, verb = request.path_params["kind"], request.path_params["verb"]
        if wants_json(request):
            of = KINDS.get((kind, verb), "recurring")
            return await answered(self._shared, visit, of, self._for_program, kind, verb, form)
        return await self._shared.guarded(visit, self._for_person, kind, verb, form)

    async def ask(self, request: Request) -> Response:
        """Answer with the question before an order for a group."""
        visit = self._shared.visit(request)
        return await self._shared.guarded(visit, _ask, request.path_params["verb"])

    def _for_person(self, visit: Visit, kind: str, verb: str, form: Fields) -> Page | Response:
        name = form.get("name", "")
        if kind == "group":
            require_operator(visit)
            seen = groups.order_of(visit, verb, name)
            if mistake := groups.mistake_in(seen, verb, form):
                return groups.question(visit, verb, mistake, form)
        if (kind, verb) == ("node", "drain"):
            require_operator(visit)
            _require_mine(visit, kind, name)
            if mistake := nodes.mistake_in_drain(visit, name, form):
                raise HTTPException(409, mistake)
        is_limit = (kind, verb) == ("queue", "limit")
        before = visit.reader.inspector.queue_seen(name).room.limit if is_limit else None
        self._give(visit, kind, verb, form)
        return RedirectResponse(visit.url(f"{PLACES[kind]}{name}", did=verb, was=before), 303)

    def _for_program(self, visit: Visit, kind: str, verb: str, form: Fields) -> Content:
        """Give the order, and return the content of the object of its command."""
        if kind == "task":
            raise HTTPException(406, "The answer of the task is in its log: ask for no object.")
        given, name = self._give(visit, kind, verb, form), form.get("name", "")
        if kind == "group":
            seen = visit.reader.client.group(name).progress()
            more = {"requeued": given} if verb == "requeue" else {}
            return {"item": of_groups.group_item(seen), "bad": [], **more}
        if kind == "queue":
            of_queue = orders.of_queue_show if verb == "limit" else orders.of_gates
            return of_queue(visit.reader.inspector, [name])
        if isinstance(given, Told):
            return orders.of_told(given, HOST_ORDERS[verb].state)
        if verb == "trigger":
            return {"name": name, "planned": None, "tasks": [given]}
        item = schedules.item(visit.reader.client.get_schedule(name).seen, visit.site.hide)
        return {"item": item}

    def _give(self, visit: Visit, kind: str, verb: str, form: Fields) -> Any:
        control = CONTROLS.get((kind, verb))
        if control is None:
            raise HTTPException(404, f"There is no order {verb} for a {kind}.")
        require_operator(visit)
        name = form.get("name", "")
        _require_mine(visit, kind, name)
        by = f"{visit.viewer.name}@web"
        told = {"by": by, "role": visit.viewer.role, "verb": f"{kind} {verb}", "name": name}
        log.info("web order %s", json.dumps(told | {"reason": reason_of(form)}))
        given = control(visit.reader.client, name, by, form)
        visit.reader.forget()
        return given


def _ask(visit: Visit, verb: str) -> Page:
    require_operator(visit)
    return groups.question(visit, verb)


def _look(visit: Visit) -> Response:
    require_operator(visit)
    doctor = Doctor(visit.reader.client.connections, visit.site.serve)
    is_new = visit.reader.scan.start(lambda: doctor.audit(SETTLE))
    told = {"by": visit.viewer.name, "role": visit.viewer.role, "verb": "doctor", "new": is_new}
    log.info("web order %s", json.dumps(told))
    return RedirectResponse(visit.url("/doctor"), 303)


def _require_mine(visit: Visit, kind: str, name: str) -> None:
    """Refuse what does not belong to the queues of this page. Raises HTTPException, NoSuchTask."""
    if kind == "task":
        visit.reader.task(name)
        return
    if not visit.site.queues:
        return
    client = visit.reader.client
    if kind == "queue":
        is_mine = visit.site.has(name)
    elif kind == "group":
        is_mine = False  # it may have tasks of other queues
    elif kind == "schedule":
        try:
            is_mine = visit.site.has(client.get_schedule(name).seen.record.get("queue"))
        except NoSuchSchedule:
            is_mine = False
    else:
        found = client.get_listeners().find(name)
        is_mine = bool(found) and all(visit.site.has(node.queue) for node in found)
    if not is_mine:
        raise HTTPException(404, f"There is no {kind} {name}.")
