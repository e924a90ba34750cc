"""The form that makes a task."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from blueque.documents.contents import value_of
from blueque.errors import BluequeError, InvalidInput, PayloadRefused, RedisAway, RedisRefused
from blueque.model.lines import Needs, parse_needs, read_lock, read_resources, without_keys
from blueque.model.retry import Retry
from blueque.model.task_id import TaskId
from blueque.model.units import parse_duration
from blueque.sentences import made
from blueque.text.json_errors import as_json
from blueque.text.redaction import HIDDEN
from blueque.web.orders import require_operator
from blueque.web.preferences import form_of
from blueque.web.shared import Shared
from blueque.web.visit import Page, Visit, zone_of

log = logging.getLogger("blueque")

Form = Mapping[str, str]

# The fields of a new task that most do without: name, label, and an example.
LABELS = (
    ("title", "Title", ""),
    ("key", "Key; a key makes one task only", ""),
    ("tags", "Tags", "night customer:17"),
)
NEEDS = (
    ("priority", "Priority, -100 to 100; higher is first", "0"),
    ("resources", "Resources that it needs", "gpu=1 memory=8GiB"),
    ("lock", "Lock; one task with it runs at a time, or N", "licence=3"),
)
LIMITS = (
    ("retry", "Retries after a failure", "3"),
    ("time_limit", "How long it may run", "2h"),
    ("stall_limit", "How long without progress", "30m"),
    ("memory_limit", "How much memory it may use", "8GiB"),
    ("grace", "From SIGTERM to SIGKILL", "30s"),
    ("lead", "How long before a limit it is warned", "1m"),
)
_AS_THEY_ARE = ("title", "key", *(name for name, _, _ in LIMITS[1:]))


class NewTaskForm:
    """The form for a new task."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def routes(self) -> list[Route]:
        return [Route("/new", self.new, methods=["POST", "GET"])]

    async def new(self, request: Request) -> Response:
        """Answer GET with the form of a new task, and POST by making it."""
        form = await form_of(request) if request.method == "POST" else None
        return await self._shared.guarded(self._shared.visit(request), _new, form)


def _new(visit: Visit, form: Form | None) -> Page | Response:
    require_operator(visit)
    if form is None:
        source = visit.one("from")
        return _form(visit, _copied(visit, source) if source else {"queue": visit.one("queue")})
    try:
        task = _make(visit, form)
    except (RedisAway, RedisRefused):
        raise
    except (BluequeError, ValueError, OverflowError) as error:
        return _form(visit, form, str(error))
    visit.reader.forget()
    if task.is_new or not form.get("key", "").strip():
        return RedirectResponse(visit.task_url(task), 303)
    return _form(visit, form, made.not_new(visit.reader.inspector.tasks([task])[0]), task)


def _form(visit: Visit, form: Form, mistake: str = "", there: str = "") -> Page:
    context = {
        "form": {**form, "parameters": form.get("parameters", "").expandtabs(4)},
        "groups": (("", LABELS), ("Needs", NEEDS), ("Limits", LIMITS)),
        "number": form.get("number") or str(uuid.uuid4()),
        "queues": visit.reader.queues()[:1000],
        "mistake": mistake,
        "there": there,
        "is_live": False,
    }
    return Page("new.html", context, 400 if mistake else 200)


def _copied(visit: Visit, task_id: str) -> Form:
    """Return the fields of a form that makes such a task again. Raises NoSuchTask."""
    task = visit.reader.task(task_id)
    needs = parse_needs(task.fields.get("needs", "")) or Needs()
    value = visit.site.hide(value_of(task, "parameters"))
    is_plain = json.dumps(value, ensure_ascii=False).isprintable()
    lock = "" if needs.lock is None else f"{needs.lock}={needs.limit}"
    return {
        **{name: task.fields.get(name, "") for name in ("title", "tags", "priority", "retry")},
        **{name: task.fields.get(name, "") for name, _, _ in LIMITS},
        "from": task.id,
        "queue": task.queue or "",
        "parameters": json.dumps(value, indent=2, ensure_ascii=not is_plain),
        "resources": " ".join(
            f"{name}={amount}" for name, amount in without_keys(dict(needs.resources)).items()
        ),
        "lock": lock,
    }


def _make(visit: Visit, form: Form) -> TaskId:
    """Create a task from a form. A form that is sent twice makes one. Raises BluequeError."""
    name = form.get("queue", "").strip()
    if not name or not form.get("number"):
        raise InvalidInput("the name of a queue is missing")
    if not visit.site.has(name):
        raise InvalidInput(f"queue {name} does not belong to this page")
    text = form.get("parameters", "")
    for word in (HIDDEN, *PayloadRefused.words):
        if word in text:
            shown = word.strip("[: ]")
            raise InvalidInput(f"some values are hidden: enter them in place of [{shown}]")
    parameters = as_json(text.encode()) if text.strip() else None
    options, eta = _options(form), _due(visit, form)
    if "key" not in options:
        options["id"] = form["number"]
    queue = visit.reader.client.get_queue(name)
    make = queue.enqueue if eta is None else partial(queue.schedule, eta=eta)
    task = make(parameters, **options)
    _note(visit, "enqueue", name, task=task, is_new=task.is_new)
    return task


def _options(form: Form) -> dict[str, Any]:
    given = {name: text for name, value in form.items() if (text := value.strip())}
    options: dict[str, Any] = {name: given[name] for name in _AS_THEY_ARE if name in given}
    if "priority" in given:
        if not given["priority"].lstrip("-").isdecimal():
            raise InvalidInput(f"priority: a number is needed, not {given['priority']!r}")
        options["priority"] = int(given["priority"])
    if "tags" in given:
        options["tags"] = given["tags"].split()
    if "resources" in given:
        options["resources"] = read_resources(given["resources"].split())
    if "lock" in given:
        options["lock"] = read_lock(given["lock"])
    if "retry" in given:
        text = given["retry"]
        is_none = text == "null"  # in a copy of a task that is never retried
        options["retry"] = int(text) if text.isdecimal() else not is_none and Retry.from_text(text)
    return options


def _due(visit: Visit, form: Form) -> float | None:
    delay, at = form.get("delay", "").strip(), form.get("at", "").strip()
    if delay and at:
        raise InvalidInput("give a time or how long from now, not both")
    if at:
        return _moment(visit, at)
    return visit.reader.inspector.now() + parse_duration(delay) if delay else None


def _moment(visit: Visit, text: str) -> float:
    """Return Unix seconds of a time; one without a zone is in that of the viewer."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is not a time: write 2030-01-31T08:00") from error
    return (when if when.tzinfo else when.replace(tzinfo=zone_of(visit.zone))).timestamp()


def _note(visit: Visit, verb: str, name: str, **facts: object) -> None:
    told = {"by": visit.viewer.name, "role": visit.viewer.role, "verb": verb, "name": name}
    log.info("web order %s", json.dumps({**told, **facts}))
