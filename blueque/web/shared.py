"""What all requests share: the settings, the reader of Redis, the templates and the threads."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import anyio
import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from blueque.client import Client
from blueque.errors import (
    BluequeError,
    NoSuchGroup,
    NoSuchSchedule,
    NoSuchTask,
    NotReplicated,
    RedisAway,
    RedisRefused,
)
from blueque.web import access
from blueque.web.access import Viewer
from blueque.web.pages import Pages
from blueque.web.preferences import chosen
from blueque.web.proxies import NAMED
from blueque.web.reader import Reader
from blueque.web.searches import Searches, is_search
from blueque.web.site import Site
from blueque.web.views import view_of
from blueque.web.visit import Page, Visit

log = logging.getLogger("blueque")

THREADS = 4  # that read Redis, each with a connection of its own
SLOW = 3.0  # seconds after which it is said that Redis does not answer
AGAIN = 5  # seconds after which a page without Redis loads itself again
_TITLES = {403: "Not allowed", 404: "No such page", 503: "Busy"}
GUEST = Viewer("guest")  # may look, where nothing else is said


class Shared:
    """What all requests share."""

    def __init__(self, client: Client, site: Site) -> None:
        self.site = site
        self.reader = Reader(client, site)
        self.pages = Pages()
        self.threads = anyio.CapacityLimiter(THREADS)
        self.searches = Searches()
        self._asking = anyio.CapacityLimiter(1)  # whether Redis answers
        self._busy: dict[int, float] = {}  # since when each thread is

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that reads Redis in one of the few threads that may."""
        return await anyio.to_thread.run_sync(
            self._call, function, *arguments, limiter=self.threads
        )

    async def looked(self, visit: Visit, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function with a visit, in a thread for searches if it is one."""
        if not is_search(visit):
            return await self.in_thread(function, visit, *arguments)
        if visit.is_live and visit.one("text"):
            raise HTTPException(404, "This search runs only when its page is loaded.")
        return await self.searches.run(visit, function, *arguments)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        thread = threading.get_ident()
        self._busy[thread] = time.monotonic()
        try:
            return function(*arguments)
        finally:
            del self._busy[thread]

    def require_threads(self) -> None:
        """Refuse to queue behind requests that already wait for Redis. Raises RedisAway."""
        since = [*self._busy.values()]
        waits = time.monotonic() - max(since, default=0.0)
        if len(since) >= THREADS and waits > SLOW:
            raise RedisAway(f"Redis has not answered for {waits:.0f} s")

    def visit(self, request: Request) -> Visit:
        """Return the visit of a request."""
        zone, theme = chosen(request.cookies)
        viewer, cookie = request.scope["viewer"] or GUEST, request.cookies.get(access.COOKIE)
        return Visit(
            self.site,
            self.reader,
            access.path_of(request.scope),
            viewer,
            time.time(),
            parse_qs(request.url.query, keep_blank_values=True),
            request.scope.get("root_path", "").rstrip("/"),
            zone,
            theme,
            has_login=cookie is not None and request.scope.get(NAMED) is None,
            login=f"{viewer.name} {cookie or access.client_of(request.scope)}",
        )

    async def is_ready(self, request: Request) -> Response:
        """Answer whether Redis answers; checked once a second at most."""
        reader = self.reader
        try:
            await anyio.to_thread.run_sync(
                reader.shared, "ready", reader.inspector.now, limiter=self._asking
            )
        except BluequeError:
            return PlainTextResponse("Redis does not answer", 503)
        return PlainTextResponse("ok")

    def look(self, visit: Visit) -> Page | Response:
        """Return the answer of the view of a visit. Raises HTTPException, and the errors of Redis."""
        view, visit = view_of(visit)
        return view(visit)

    async def answer(self, request: Request) -> Response:
        """Answer a request for a page."""
        return await self.guarded(self.visit(request), self.look)

    async def guarded(
        self, visit: Visit, view: Callable[..., Page | Response], *arguments: Any
    ) -> Response:
        """Return the answer of a view to a visit as HTML, or what went wrong, in words."""
        try:
            self.require_threads()
            page = await self.looked(visit, view, *arguments)
            if isinstance(page, Response):
                return page
            return HTMLResponse(await self.in_thread(self.pages.page, page, visit), page.status)
        except Exception as error:
            return self._failed(visit, error, is_read=view == self.look)

    def _failed(self, visit: Visit, error: Exception, is_read: bool) -> Response:
        title, text, status, advice = explained(error, visit.path)
        again = AGAIN if status == 503 and is_read else None
        advice = f"This page reloads every {AGAIN} s." if again else advice
        context = {"title": title, "text": text, "advice": advice, "is_live": False, "again": again}
        html = self.pages.page(Page("error.html", context), visit)
        return HTMLResponse(html, status, {"Retry-After": str(AGAIN)} if status == 503 else None)


class Failure(NamedTuple):
    """What went wrong. text: a sentence. status: of HTTP. advice: what may help."""

    title: str
    text: str
    status: int
    advice: str = ""


def explained(error: Exception, path: str) -> Failure:
    """Return what went wrong with a request. A fault of Blueque is logged."""
    if isinstance(error, NoSuchTask):
        advice = "Finished tasks are deleted after a time: see the retention of its queue."
        return Failure("No such task", f"There is no task {error.task_id}.", 404, advice)
    if isinstance(error, NoSuchGroup | NoSuchSchedule):
        return Failure("No such page", _sentence(error), 404)
    if isinstance(error, NotReplicated):
        return Failure("Not confirmed", _sentence(error), 503)
    if isinstance(error, RedisAway):
        return Failure("Redis does not answer", _sentence(error), 503)
    if isinstance(error, RedisRefused) and error.code == "NOPERM":
        advice = "The Redis user of this page lacks a permission: see blueque acl check."
        return Failure(_TITLES[403], _sentence(error), 403, advice)
    if isinstance(error, RedisRefused):
        return Failure("Redis refuses", _sentence(error), 503)
    if isinstance(error, HTTPException):
        title = _TITLES.get(error.status_code, "Not possible")
        return Failure(title, str(error.detail), error.status_code)
    if isinstance(error, BluequeError):
        return Failure("Not possible", _sentence(error), 400)
    number = uuid.uuid4().hex[:8]
    log.error("web request=%s path=%s", number, path, exc_info=error)
    sentence = f"This is a bug in Blueque. The log of the server has it under {number}."
    return Failure("Something went wrong", sentence, 500)


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
