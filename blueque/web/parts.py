"""The parts of a page, which an open page requests once a second.

It requests its own address with the header `Blueque-Parts`, whose value is the last log entry that
it shows. The answer has the parts, made once a second for all viewers of the same page, and the
lines after that entry. If both are unchanged, it is the status 304 alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from blueque.errors import RedisAway
from blueque.queries import task_log
from blueque.queries.task_log import Place
from blueque.web.access import PARTS
from blueque.web.log import lines_html
from blueque.web.pages import fingerprint
from blueque.web.searches import is_search
from blueque.web.shared import SLOW, Shared, explained
from blueque.web.visit import Page, Visit

REFRESH = 60.0  # seconds after which parts are sent although only durations have changed
_ENTRY = re.compile("[0-9]{1,20}-[0-9]{1,20}")


class Made(NamedTuple):
    """The HTML of each part by its id. tag: changes with their content."""

    parts: dict[str, str]
    tag: str


class Lines(NamedTuple):
    """Lines of a log as HTML, and the entry after them."""

    html: str
    entry: str


class Parts:
    """Answers open pages. Requests that arrive while a page is being made get the same answer."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._going_on: dict[object, asyncio.Task[Any]] = {}

    async def answer(self, request: Request) -> Response:
        """Answer with what has changed since the answer whose ETag the request names."""
        visit = replace(self._shared.visit(request), is_live=True)
        entry = request.headers[PARTS] if _ENTRY.fullmatch(request.headers[PARTS]) else ""
        try:
            self._shared.require_threads()
            async with asyncio.timeout(SLOW):
                made = await self._made(visit)
                lines = await self._lines(visit, entry)
        except TimeoutError:
            if is_search(visit):  # it takes long by itself: nothing has changed so far
                return Response(status_code=304)
            return self._failed(visit, RedisAway(f"Redis has not answered for {SLOW:.0f} s"))
        except Exception as error:
            return self._failed(visit, error)
        tag = f'W/"{made.tag}.{lines.entry}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        content = {"now": time.time(), "parts": made.parts, **lines._asdict()}
        return _json(content, headers={"ETag": tag})

    async def _made(self, visit: Visit) -> Made:
        query = tuple(sorted((name, tuple(values)) for name, values in visit.query.items()))
        name = ("parts", visit.prefix, visit.path, query, visit.zone, visit.may_act)

        def look(visit: Visit) -> Made:
            return self._shared.reader.shared(name, lambda: self._render(visit))

        made: Made = await self._once(name, self._shared.looked(visit, look))
        return made

    async def _once(self, name: object, work: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of some work, which is done once for all waiting requests.

        It continues when they no longer wait, so that no thread is left behind.
        """
        if name in self._going_on:
            work.close()
        else:
            self._going_on[name] = asyncio.ensure_future(work)
            self._going_on[name].add_done_callback(lambda ended: self._forget(name, ended))
        return await asyncio.shield(self._going_on[name])

    def _forget(self, name: object, ended: asyncio.Task[Any]) -> None:
        del self._going_on[name]
        if not ended.cancelled():
            ended.exception()  # those who still wait for it get it

    def _render(self, visit: Visit) -> Made:
        page = self._shared.look(visit)
        parts = self._shared.pages.parts(page, visit) if isinstance(page, Page) else {}
        said = json.dumps([int(visit.now // REFRESH), *map(fingerprint, parts.values())])
        return Made(parts, hashlib.sha256(said.encode()).hexdigest()[:16])

    async def _lines(self, visit: Visit, entry: str) -> Lines:
        """Return the lines after an entry. The parts were made before, so the task belongs to this page."""
        if not entry or not visit.path.startswith("/tasks/"):
            return Lines("", entry)
        place, reader = Place(visit.path.split("/")[2], entry), self._shared.reader
        name = ("lines", place, visit.zone)

        def look() -> Lines:
            found = task_log.follow(reader.client.connections, [place])
            return Lines(lines_html(found.lines, visit), found.places[0].entry)

        work = self._shared.in_thread(reader.shared, name, look)
        lines: Lines = await self._once(name, work)
        return lines

    def _failed(self, visit: Visit, error: Exception) -> Response:
        failure = explained(error, visit.path)
        is_away = isinstance(error, RedisAway)
        text = f"{failure.title}. {failure.text}" if is_away else failure.text
        return _json({"text": text}, failure.status)


def _json(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    text = json.dumps(content, ensure_ascii=False)
    return Response(text, status, headers, "application/json")
