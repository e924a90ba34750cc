"""The form that deletes what ended long ago: first it counts, then it deletes as `blueque prune` does."""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from blueque.documents.tasks import of_prune
from blueque.errors import InvalidInput
from blueque.model.states import FINISHED, Place
from blueque.model.units import Keep, parse_duration
from blueque.recovery.retention import Retention
from blueque.sentences import consent
from blueque.web.acting import MOST, require_operator
from blueque.web.acts import FEW
from blueque.web.api import answered, wants_json
from blueque.web.preferences import form_of
from blueque.web.shared import Shared
from blueque.web.views.tasks import matching
from blueque.web.visit import Page, Visit

log = logging.getLogger("blueque")

Form = Mapping[str, str]


class Pruning:
    """The form that deletes old tasks."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def routes(self) -> list[Route]:
        return [Route("/prune", self.answer, methods=["POST", "GET"])]

    async def answer(self, request: Request) -> Response:
        """Answer GET with how many tasks are so old, and POST by deleting them."""
        form = await form_of(request) if request.method == "POST" else None
        visit = self._shared.visit(request)
        if form is not None and wants_json(request):
            return await answered(self._shared, visit, "prune", _for_program, form)
        return await self._shared.guarded(visit, _answer, form)


def _answer(visit: Visit, form: Form | None) -> Page | Response:
    require_operator(visit)
    now = visit.reader.inspector.now()
    try:
        wanted = _wanted(visit, now, form or {})
    except InvalidInput as error:
        return _page(visit, now, mistake=str(error))
    if wanted is None:
        return _page(visit, now)
    found = wanted.count(MOST)
    if form is None or not found:
        return _page(visit, now, found)
    if mistake := _mistake(found.total(), form):
        return _page(visit, now, found, mistake)
    _delete(visit, wanted, found)
    return RedirectResponse(visit.here(deleted=wanted.deleted.total()), 303)


def _for_program(visit: Visit, form: Form) -> dict[str, Any]:
    """Delete without a question before, and return the content of `prune`."""
    require_operator(visit)
    wanted = _wanted(visit, visit.reader.inspector.now(), form)
    if wanted is None:
        raise InvalidInput("older= is missing in the address")
    found = wanted.count(MOST)
    number = found.total()
    if not form.get("expected"):
        raise HTTPException(409, f"{number} are selected: send expected={number}.")
    if mistake := _mistake(number, {**form, "typed": str(number)}):
        raise HTTPException(409, mistake)
    _delete(visit, wanted, found)
    return of_prune(+wanted.deleted, is_dry_run=False)


def _delete(visit: Visit, wanted: Retention, found: Counter[Place]) -> None:
    _note(visit, "order", found)
    wanted.delete_all(found.total())
    visit.reader.forget()
    _note(visit, "done", wanted.deleted)


def _wanted(visit: Visit, now: float, form: Form) -> Retention | None:
    """Return what deletes the tasks that the address selects; None: it selects nothing.

    What is old stays what it was when it was counted, though time goes on while a person reads.
    """
    older, keep = visit.one("older").strip(), visit.one("keep").strip()
    if not older:
        return None
    if keep and not (keep.isascii() and keep.isdecimal()):
        raise InvalidInput(f"how many stay is a number, not {keep!r}")
    age = parse_duration(older)
    with suppress(ValueError):
        age += max(now - float(form.get("at", now)), 0.0)
    queues = matching(visit.one("queue").strip(), visit)
    rules = {
        queue: dict.fromkeys(_states(visit), Keep(age, None, int(keep or 0))) for queue in queues
    }
    return Retention(visit.reader.client.connections, rules)


def _states(visit: Visit) -> list[str]:
    chosen = visit.query.get("state", ())
    return [state for state in FINISHED if not chosen or state in chosen]


def _mistake(number: int, form: Form) -> str:
    """Return why nothing is deleted; empty: nothing is wrong."""
    expected = form.get("expected", "")
    if not re.fullmatch("[0-9]{1,9}", expected):
        return "The form is not complete: look again and say yes once more."
    if number > int(expected):
        return f"{number - int(expected)} more by now: look again and say yes once more."
    if number > FEW and form.get("typed", "").strip() != str(number):
        return f"Type the number of tasks, {number}."
    return ""


def _page(visit: Visit, now: float, found: Counter[Place] | None = None, mistake: str = "") -> Page:
    number = found.total() if found else 0
    names = sorted({*matching(visit.one("queue").strip(), visit)})
    context: dict[str, Any] = {
        "found": None if found is None else sorted(found.items()),
        "number": number,
        "sentence": consent.of_prune(number),
        "has_to_type": number > FEW,
        "is_cut": number == MOST,
        "at": f"{now:.3f}",
        "states": _states(visit),
        "finished": FINISHED,
        "queues": visit.reader.queues()[:1000],
        "skipped": [
            record["queue"]
            for record in (visit.reader.inspector.archiving(names) if found is not None else ())
            if "queue" in record
        ],
        "command": _command(visit),
        "mistake": mistake,
        "is_live": False,
    }
    return Page("prune.html", context, 400 if mistake and found is None else 200)


def _command(visit: Visit) -> str:
    words = ["blueque", "prune"]
    options = ("-q", "queue"), ("--older-than", "older"), ("--keep", "keep")
    for option, name in options:
        words += [option, value] if (value := visit.one(name).strip()) else []
    states = visit.query.get("state", ())
    return shlex.join([*words, *(("--state", ",".join(states)) if states else ())])


def _note(visit: Visit, what: str, found: Counter[Place]) -> None:
    told = {"by": visit.viewer.name, "role": visit.viewer.role, "verb": "prune"}
    query = dict(visit.query)
    log.info("web %s %s", what, json.dumps({**told, "tasks": found.total(), "query": query}))
