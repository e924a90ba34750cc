"""Wakes the pages that have viewers when something happens: one connection waits for the events of all
queues in view. Without viewers there is no connection.

The clock wakes a page, too, for what is no event: new tasks, progress and beats.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from blueque.connection.redis import Connection
from blueque.errors import BluequeError, NoSuchTask
from blueque.queries import history
from blueque.queries.history import Heard
from blueque.queries.steps import begin, finish
from blueque.web.shared import Shared
from blueque.web.views.tasks import matching
from blueque.web.visit import Visit

WAIT = 1.0  # seconds that Redis waits for an event
LOST = 10.0  # seconds without an answer, after which the connection is opened anew
AGAIN = 2.0  # seconds before that
GATHER = 0.05  # seconds in which events are gathered
MOST_QUEUES = 1000
LASTS = 60.0  # seconds for which the queue of a task is not read again
_UNMOVED = ("activity", "doctor", "settings", "statistics")  # pages that need no waking


class Scope(NamedTuple):
    """The events that change a page: those of some queues, or of one task."""

    queues: Sequence[str]
    task: str = ""

    def has(self, heard: Heard) -> bool:
        """Tell whether some of these events change the page."""
        return heard.queue in self.queues and (not self.task or self.task in heard.tasks)


class Sleeper(Protocol):
    """A page that has viewers."""

    visit: Visit

    def wake(self) -> None: ...


class Waker:
    """Hears events for all pages that have viewers."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._sleepers: set[Sleeper] = set()
        self._hearing: asyncio.Task[None] | None = None

    def join(self, sleeper: Sleeper) -> None:
        """Wake this page from now on."""
        self._sleepers.add(sleeper)
        if self._hearing is None:
            self._hearing = asyncio.ensure_future(self._hear())

    def leave(self, sleeper: Sleeper) -> None:
        """Wake it no longer."""
        self._sleepers.discard(sleeper)
        if not self._sleepers and self._hearing is not None:
            self._hearing.cancel()
            self._hearing = None

    async def _hear(self) -> None:
        connect = self._shared.reader.client.connections.connect
        while True:
            with contextlib.suppress(BluequeError, TimeoutError):  # the pages say what is wrong
                connection: Connection = await self._shared.in_thread(connect)
                with contextlib.closing(connection):
                    await self._follow(connection)
            await asyncio.sleep(AGAIN)

    async def _follow(self, connection: Connection) -> None:
        """Wake pages for what comes on this connection. Raises RedisAway, TimeoutError."""
        shared = self._shared
        places: dict[str, str] = {}
        while True:
            scopes: Mapping[Sleeper, Scope] = await shared.in_thread(self._scopes)
            places = await shared.in_thread(self._places, scopes, places)
            if not places:
                await asyncio.sleep(WAIT)
                continue
            reader = history.heard(places, WAIT)
            await shared.in_thread(connection.send, begin(reader))
            await _readable(connection)
            found = finish(reader, await shared.in_thread(connection.receive, 1))
            if not found:
                continue
            places |= {heard.queue: heard.place for heard in found}
            shared.reader.stir()
            for sleeper, scope in scopes.items():
                if sleeper in self._sleepers and any(map(scope.has, found)):
                    sleeper.wake()
            await asyncio.sleep(GATHER)

    def _scopes(self) -> dict[Sleeper, Scope]:
        return {sleeper: scope_of(sleeper.visit) for sleeper in [*self._sleepers]}

    def _places(self, scopes: Mapping[Sleeper, Scope], known: Mapping[str, str]) -> dict[str, str]:
        """Return how far the events of the queues in view have been read."""
        names = dict.fromkeys(name for scope in scopes.values() for name in scope.queues)
        queues = [*names][:MOST_QUEUES]
        new = [queue for queue in queues if queue not in known]
        found = history.last_places(self._shared.reader.client.connections, new) if new else {}
        return {queue: known.get(queue) or found[queue] for queue in queues}


def scope_of(visit: Visit) -> Scope:
    """Return which events change a page."""
    page, _, rest = visit.path.strip("/").partition("/")
    if page in _UNMOVED:
        return Scope(())
    if page == "queues" and rest:
        return Scope((rest,))
    if page == "tasks" and rest:
        return _scope_of_task(visit, rest.partition("/")[0])
    pattern = visit.one("queue").strip() if page == "tasks" else ""
    return Scope(matching(pattern, visit))


def _scope_of_task(visit: Visit, task: str) -> Scope:
    def look() -> str | None:
        return visit.reader.task(task).queue

    try:
        queue = visit.reader.shared(("queue of", task), look, LASTS)
    except NoSuchTask:
        return Scope(())
    return Scope((queue,) if queue else (), task)


async def _readable(connection: Connection) -> None:
    """Wait until an answer comes. Raises TimeoutError."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    number = connection.fileno()
    loop.add_reader(number, ready.set)
    try:
        async with asyncio.timeout(LOST):
            await ready.wait()
    finally:
        loop.remove_reader(number)
