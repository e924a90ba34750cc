"""The stream of changes: a page that several viewers look at is made once for all of them.

A viewer opens `/live?page=...`. While a page has a viewer, its parts are made anew about once a
second, and at once when an event changes it; those that say something else are sent. A page without
viewers costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from blueque.errors import BluequeError, RedisAway
from blueque.queries import task_log
from blueque.queries.task_log import Place
from blueque.web import access
from blueque.web.access import Viewer
from blueque.web.bounded_stream import BoundedStream
from blueque.web.log import lines_html
from blueque.web.pages import fingerprint
from blueque.web.searches import is_search
from blueque.web.shared import SLOW, Shared
from blueque.web.visit import Page, Visit
from blueque.web.wake import Waker

log = logging.getLogger("blueque")

PACE = 1.0  # seconds between two looks
SHARE = 10  # and so many times as long as a look takes
QUIET = 15.0  # seconds after which something is sent, so that proxies keep the stream
REFRESH = 60.0  # seconds after which parts are sent of which only durations have changed
MOST_STREAMS = 200
MOST_OF_ONE = 4  # streams of one browser, which has six connections for all its pages
MOST_OF_LOGIN = 100  # streams of one login, so that some are left for others
MOST_WAITING = 64  # messages of a viewer that does not read


class Live:
    """The streams of all viewers. pace: seconds between two looks at a page."""

    def __init__(self, shared: Shared, pace: float = PACE) -> None:
        self._shared = shared
        self._pace = pace
        self._waker = Waker(shared)
        self._channels: dict[object, _Channel] = {}
        self._streams: dict[str, list[tuple[_Channel, asyncio.Queue[str]]]] = {}  # by browser
        self._ending = asyncio.Event()

    def end(self) -> None:
        """End all streams, so that the server can stop."""
        self._ending.set()

    @property
    def pages(self) -> int:
        """How many different pages have viewers."""
        return len(self._channels)

    async def answer(self, request: Request) -> Response:
        """Answer with the stream of a page, whose address is in `page`."""
        if sum(map(len, self._streams.values())) >= MOST_STREAMS:
            return PlainTextResponse("Too many pages are open.", 503)
        viewer = self._shared.visit(request).viewer
        if self._number_of(viewer) >= MOST_OF_LOGIN:
            sentence = f"{viewer.name} has {MOST_OF_LOGIN} pages open: close some."
            return PlainTextResponse(sentence, 429, {"Retry-After": "30"})
        if request.method == "HEAD":
            return PlainTextResponse("")
        path, _, query = request.query_params.get("page", "/").partition("?")
        visit = replace(self._shared.visit(request, unquote(path), query), is_live=True)
        entry = request.headers.get("last-event-id") or request.query_params.get("entry", "")
        return BoundedStream(
            self.messages(visit, entry, _browser_of(request)),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    async def messages(
        self, visit: Visit, entry: str = "", browser: str = ""
    ) -> AsyncIterator[str]:
        """Yield what a viewer gets, whose page shows a log up to `entry`."""
        channel, queue = self._channel(visit), asyncio.Queue[str](MOST_WAITING)
        streams = self._streams.setdefault(browser, [])
        streams.append((channel, queue))
        for oldest, full in streams[:-MOST_OF_ONE] if browser else ():
            oldest.dismiss(full)
        ending = asyncio.ensure_future(self._ending.wait())
        waiting = asyncio.ensure_future(queue.get())
        try:
            yield "retry: 2000\n\n"
            channel.join(queue, entry)
            self._waker.join(channel)
            while not ending.done() and (queue in channel.queues or not queue.empty()):
                await asyncio.wait({waiting, ending}, timeout=QUIET, return_when="FIRST_COMPLETED")
                if waiting.done():
                    yield waiting.result()
                    waiting = asyncio.ensure_future(queue.get())
                else:
                    yield ":\n\n"
        finally:
            ending.cancel()
            waiting.cancel()
            streams.remove((channel, queue))
            if not streams:
                self._streams.pop(browser, None)
            channel.queues.discard(queue)
            if not channel.queues:
                channel.stop()
                self._waker.leave(channel)
                if self._channels.get(channel.name) is channel:
                    del self._channels[channel.name]

    def _number_of(self, viewer: Viewer) -> int:
        """Return how many streams a viewer has."""
        all_of_them = (channel for some in self._streams.values() for channel, _ in some)
        return sum(channel.visit.viewer.name == viewer.name for channel in all_of_them)

    def _channel(self, visit: Visit) -> _Channel:
        query = tuple(sorted((name, tuple(values)) for name, values in visit.query.items()))
        name = (visit.prefix, visit.path, query, visit.zone, visit.viewer)
        if name not in self._channels:
            self._channels[name] = _Channel(self._shared, visit, name, self._pace)
        return self._channels[name]


class _Channel:
    """One page, and the queues of those who look at it. A viewer that reads too slowly is dropped:
    the browser comes again.
    """

    def __init__(self, shared: Shared, visit: Visit, name: object, pace: float) -> None:
        self.name = name
        self.visit = visit
        self._woken = asyncio.Event()
        self._next_waking = 0.0  # by the clock of the loop
        self._pace = pace
        self.queues: set[asyncio.Queue[str]] = set()
        self._shared = shared
        self._place: Place | None = None  # of the log that the page shows
        self._parts: dict[str, str] = {}  # as they were sent last
        self._refreshed = 0.0
        self._trouble = ""
        self._looked = time.time()  # when what the viewers see was true
        self._loop: asyncio.Task[None] | None = None
        self._greetings: set[asyncio.Task[None]] = set()

    def join(self, queue: asyncio.Queue[str], entry: str) -> None:
        """Add a viewer, whose page shows a log up to `entry`."""
        self.queues.add(queue)
        if self._loop is None:
            self._place = self._place_at(entry)
            self._loop = asyncio.ensure_future(self._run())
            return
        greeting = asyncio.ensure_future(self._greet(queue, self._place_at(entry)))
        self._greetings.add(greeting)
        greeting.add_done_callback(self._greetings.discard)

    def dismiss(self, queue: asyncio.Queue[str]) -> None:
        """End the stream of a viewer: another page of the same browser needs the connection."""
        self._put(queue, _event("enough", {}))
        self.queues.discard(queue)

    def wake(self) -> None:
        """Look at once: something has happened."""
        self._woken.set()

    def stop(self) -> None:
        for running in (self._loop, *self._greetings):
            if running is not None:
                running.cancel()

    def _place_at(self, entry: str) -> Place | None:
        task = self.visit.path.removeprefix("/tasks/").partition("/")[0]
        return Place(task, entry) if entry else None

    async def _greet(self, queue: asyncio.Queue[str], place: Place | None) -> None:
        """Send a viewer who has come later what has changed since its page was made."""
        self._put(queue, _event("parts", {"set": self._parts, "now": time.time()}))
        if self._trouble:
            self._put(queue, _event("trouble", {"text": self._trouble, "since": self._looked}))
        if place is not None:
            with contextlib.suppress(BluequeError):  # the loop says what is wrong
                html, behind = await self._shared.in_thread(self._lines, place)
                self._put(queue, _event("lines", {"html": html}, behind.entry))

    async def _run(self) -> None:
        while True:
            began, took = time.monotonic(), 0.0
            try:
                await self._look_patiently()
                took = time.monotonic() - began
            except (BluequeError, HTTPException) as error:
                self._say_trouble(error)
            except Exception:
                log.exception("web live page=%s", self.visit.path)
            await self._rest(took)

    async def _rest(self, took: float) -> None:
        """Wait for the clock, or for an event: that wakes the page once a second at most, and not soon
        after a look that took long.
        """
        now = asyncio.get_running_loop().time()
        until = now + max(self._pace, SHARE * took)
        earliest = min(max(now + SHARE * took, self._next_waking), until)
        await asyncio.sleep(earliest - now)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._woken.wait()
                self._next_waking = asyncio.get_running_loop().time() + min(self._pace, PACE)
        self._woken.clear()

    async def _look_patiently(self) -> None:
        """Look, and say so if Redis takes long to answer."""
        look = asyncio.ensure_future(self._look())
        try:
            patience = None if is_search(self.visit) else SLOW  # a search takes long by itself
            if not (await asyncio.wait({look}, timeout=patience))[0]:
                self._say(f"Redis has not answered for {SLOW:.0f} s.")
            await look
        finally:
            look.cancel()

    async def _look(self) -> None:
        """Make the parts anew and send those that have changed."""
        now = time.time()
        parts = await self._shared.looked(replace(self.visit, now=now), self._render)
        is_refreshed = now - self._refreshed > REFRESH
        changed = {
            name: html
            for name, html in parts.items()
            if (is_refreshed and html != self._parts.get(name))
            or fingerprint(html) != fingerprint(self._parts.get(name, ""))
        }
        self._refreshed = now if is_refreshed else self._refreshed
        self._parts |= changed
        self._looked = now
        if changed or self._trouble:
            self._trouble = ""
            self._send(_event("parts", {"set": changed, "now": now}))
        if self._place is not None:
            html, behind = await self._shared.in_thread(self._lines, self._place)
            if behind != self._place:
                self._place = behind
                self._send(_event("lines", {"html": html}, behind.entry))

    def _render(self, visit: Visit) -> dict[str, str]:
        page = self._shared.look(visit)
        return self._shared.pages.parts(page, visit) if isinstance(page, Page) else {}

    def _lines(self, place: Place) -> tuple[str, Place]:
        """Return the lines of the log behind a place, and the place behind them. Raises NoSuchTask."""
        self._shared.reader.task(place.task)  # it belongs to this page
        news = task_log.follow(self._shared.reader.client.connections, [place])
        return lines_html(news.lines, self.visit), news.places[0]

    def _say_trouble(self, error: Exception) -> None:
        text = getattr(error, "detail", None) or str(error)
        if isinstance(error, RedisAway):
            text = f"Redis does not answer: {text}"
        self._say(text if text.endswith(".") else f"{text}.")

    def _say(self, trouble: str) -> None:
        """Send what is wrong, and since when."""
        if trouble != self._trouble:
            self._trouble = trouble
            self._send(_event("trouble", {"text": trouble, "since": self._looked}))

    def _send(self, message: str) -> None:
        for queue in [*self.queues]:
            self._put(queue, message)

    def _put(self, queue: asyncio.Queue[str], message: str) -> None:
        try:
            queue.put_nowait(message)
        except asyncio.QueueFull:
            self.queues.discard(queue)


def _browser_of(request: Request) -> str:
    """Return what the requests of one browser have in common; empty: it is a program."""
    if access.bearer(request.scope) is not None:
        return ""
    cookie = request.cookies.get(access.COOKIE, "")
    return f"{access.client_of(request.scope)} {request.headers.get('user-agent', '')} {cookie}"


def _event(name: str, data: dict[str, Any], entry: str = "") -> str:
    """Return a message of the stream. entry: from which the browser goes on after an interruption."""
    number = f"id: {entry}\n" if entry else ""
    return f"{number}event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
