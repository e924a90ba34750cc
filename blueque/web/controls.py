"""Orders that need no question: for queues, hosts and recurring tasks, which can be undone, and those
that only ask.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from blueque.audit.doctor import Doctor
from blueque.client import Client
from blueque.errors import InvalidInput, NoSuchSchedule
from blueque.text.terminal import short_id
from blueque.web.acting import require_operator
from blueque.web.preferences import form_of
from blueque.web.shared import Shared
from blueque.web.visit import Visit

log = logging.getLogger("blueque")

Fields = Mapping[str, str]
Control = Callable[[Client, str, str, Fields], object]


def _pause_queue(client: Client, name: str, by: str, form: Fields) -> object:
    return client.get_queue(name).pause(by, form.get("reason", "").strip() or None)


def _resume_queue(client: Client, name: str, by: str, form: Fields) -> object:
    return client.get_queue(name).resume(by)


def _limit_queue(client: Client, name: str, by: str, form: Fields) -> None:
    text = form.get("most", "").strip()
    if text and not text.isdecimal():
        raise InvalidInput(f"the limit is a number, or empty for none, not {text!r}")
    client.get_queue(name).set_max_concurrency(int(text) if text else None, by)


def _pause_schedule(client: Client, name: str, by: str, form: Fields) -> object:
    return client.get_schedule(name).pause(by, form.get("reason", "").strip() or None)


def _trigger(client: Client, name: str, by: str, form: Fields) -> object:
    return client.get_schedule(name).trigger(by=by)


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


PLACES = {"queue": "/queues/", "node": "/nodes/", "schedule": "/schedule/", "task": "/tasks/"}
SETTLE = 2.0  # seconds that a finding must last, as for `blueque doctor`
# By the kind of thing and the verb.
CONTROLS: Mapping[tuple[str, str], Control] = {
    ("queue", "pause"): _pause_queue,
    ("queue", "resume"): _resume_queue,
    ("queue", "limit"): _limit_queue,
    ("node", "drain"): lambda client, name, by, form: client.get_listeners().drain(name, by),
    ("node", "pause"): lambda client, name, by, form: client.get_listeners().pause(name, by),
    ("node", "resume"): lambda client, name, by, form: client.get_listeners().resume(name, by),
    ("schedule", "pause"): _pause_schedule,
    ("schedule", "resume"): lambda client, name, by, form: client.get_schedule(name).resume(),
    ("schedule", "trigger"): _trigger,
    ("task", "stack"): _stack,
    ("schedule", "skip"): lambda client, name, by, form: client.get_schedule(name).skip(by=by),
}


class Controls:
    """The forms on the pages of queues, hosts, recurring tasks and running ones, and of the doctor."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def routes(self) -> list[Route]:
        return [
            Route("/controls/{kind}/{verb}", self.answer, methods=["POST"]),
            Route("/doctor", self.look, methods=["POST"]),
        ]

    async def look(self, request: Request) -> Response:
        """Begin a look at every key, and lead back to the page."""
        return await self._shared.guarded(self._shared.visit(request), _look)

    async def answer(self, request: Request) -> Response:
        """Give the order of a form, and lead back to the page."""
        visit = self._shared.visit(request)
        form = await form_of(request)
        kind, verb = request.path_params["kind"], request.path_params["verb"]
        return await self._shared.guarded(visit, self._give, kind, verb, form)

    def _give(self, visit: Visit, kind: str, verb: str, form: Fields) -> Response:
        control = CONTROLS.get((kind, verb))
        if control is None:
            raise HTTPException(404, f"There is no order {verb} for a {kind}.")
        require_operator(visit)
        name = form.get("name", "")
        _require_mine(visit, kind, name)
        by = f"{visit.viewer.name}@web"
        told = {"by": by, "role": visit.viewer.role, "verb": f"{kind} {verb}", "name": name}
        log.info("web order %s", json.dumps(told | {"reason": form.get("reason")}))
        limit = visit.reader.inspector.room(name).limit if verb == "limit" else None
        control(visit.reader.client, name, by, form)
        visit.reader.forget()
        back = visit.url(f"{PLACES[kind]}{name}", did=verb, was=limit)
        return RedirectResponse(back, 303)


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
    elif kind == "schedule":
        try:
            is_mine = visit.site.has(client.get_schedule(name).seen.record.get("queue"))
        except NoSuchSchedule:
            is_mine = False
    else:
        nodes = client.get_listeners().find(name)
        is_mine = bool(nodes) and all(visit.site.has(node.queue) for node in nodes)
    if not is_mine:
        raise HTTPException(404, f"There is no {kind} {name}.")
