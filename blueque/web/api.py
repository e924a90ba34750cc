"""The objects of `--json` over HTTP, for programs: /api/v1/status is that of `blueque status --json`.

The query selects as on the pages: /api/v1/tasks takes the query of /tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from blueque.text.format import envelope, to_json
from blueque.web import own_queues
from blueque.web.objects import OBJECTS, Content
from blueque.web.shared import Shared, explained
from blueque.web.visit import Visit


class Api:
    """Answers GET with an object of docs/json.md."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    async def answer(self, request: Request) -> Response:
        """Answer with the object of a kind."""
        visit, kind = self._shared.visit(request), request.path_params["kind"]
        return await answered(self._shared, visit, kind, _content, kind)


async def answered(
    shared: Shared,
    visit: Visit,
    kind: str,
    content_of: Callable[..., Content | Sequence[Content]],
    *arguments: Any,
) -> Response:
    """Answer with an object, with several as lines, or with an `error` in a sentence."""
    try:
        content = await shared.looked(visit, content_of, *arguments)
        if not isinstance(content, Mapping):
            lines = "".join(f"{to_json(envelope(kind, each))}\n" for each in content)
            return Response(lines, media_type="application/x-ndjson")
        return as_json(envelope(kind, content))
    except Exception as error:
        failure = explained(error, visit.path)
        return as_json(envelope("error", {"error": failure.text}), failure.status)


def wants_json(request: Request) -> bool:
    """Return whether a program has sent a request and expects an object."""
    return "application/json" in request.headers.get("accept", "")


def as_json(content: Content, number: int = 200) -> Response:
    """Return an answer with an object. number: the status of HTTP."""
    headers = {"Retry-After": "5"} if number == 503 else None
    return Response(f"{to_json(content, 2)}\n", number, headers, "application/json")


def _content(visit: Visit, kind: str) -> Content | Sequence[Content]:
    """Return the content of an object. Raises HTTPException if there is no such kind."""
    if kind not in OBJECTS:
        raise HTTPException(404, f"There is no such kind; the kinds are {', '.join(OBJECTS)}.")
    content = OBJECTS[kind](visit)
    if not isinstance(content, Mapping):
        return content
    return own_queues.without_others(content, visit.reader.client, visit.site)
