"""Awaiting: run what waits for Redis so that an event loop goes on meanwhile.

The transactions, queries and connections of Blueque are plain functions, and there is one of each.
`awaited` runs such a function in a greenlet, a stack of its own in the same thread. Where the
function would wait, for a socket or between two tries, the greenlet hands an awaitable to the
coroutine and stands still until it is done. So there is no second protocol for asyncio, and no
thread but for opening a connection.
"""

from __future__ import annotations

import asyncio
import select
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from blueque.connection.plain import SocketConnection
from blueque.connection.redis import Connection
from blueque.errors import NotInstalled

try:
    from greenlet import getcurrent, greenlet
except ImportError as error:
    raise NotInstalled("AsyncClient", "greenlet", "async") from error

T = TypeVar("T")


async def awaited(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function of Blueque, and return or raise what it does. The event loop goes on while
    it waits.

    When this is cancelled, CancelledError is raised where the function waits, which closes the
    connection if an answer was awaited on it.
    """
    here = getcurrent()
    runner = greenlet(function, here)
    runner.gr_context = here.gr_context  # the context variables of the caller
    asked = runner.switch(*arguments)
    while not runner.dead:
        try:
            answer = await asked
        except BaseException:
            asked = runner.throw(*sys.exc_info())
        else:
            asked = runner.switch(answer)
    returned: T = asked
    return returned


def wait_for(awaitable: Awaitable[T]) -> T:
    """Return the result of an awaitable, inside a function that `awaited` runs."""
    coroutine = getcurrent().parent
    if coroutine is None:
        raise TypeError("nothing awaits this function")
    result: T = coroutine.switch(awaitable)
    return result


def sleep(seconds: float) -> None:
    wait_for(asyncio.sleep(seconds))


def connect(open_one: Callable[[], Connection]) -> Connection:
    """Return a connection on which functions wait as above. Raises what `open_one` does.

    open_one: looks up names, waits for the server, for Sentinels and for TLS; it runs in a thread.
    """
    connection: Connection = wait_for(_in_thread(open_one))
    if not isinstance(connection, SocketConnection):
        connection.close()
        raise TypeError(f"no event loop can wait for a {type(connection).__name__}")
    connection.wait_by(_Poll)
    asks = connection.is_current
    if asks is not None:
        connection.is_current = lambda *every: wait_for(asyncio.to_thread(asks, *every))
    return connection


async def _in_thread(open_one: Callable[[], Connection]) -> Connection:
    opening = asyncio.ensure_future(asyncio.to_thread(open_one))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close)
        raise


def _close(opening: asyncio.Future[Connection]) -> None:
    """Close a connection that nobody waits for any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


class _Poll:
    """Waits for a socket by the event loop."""

    def __init__(self, connected: socket.socket, event: int) -> None:
        self._descriptor, self._is_write = connected.fileno(), event == select.POLLOUT
        self._now = select.poll()
        self._now.register(connected, event)

    def poll(self, milliseconds: float, /) -> bool:
        if self._now.poll(0):
            return True
        return milliseconds > 0 and wait_for(self._is_ready(milliseconds / 1000))

    async def _is_ready(self, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        add, remove = (
            (loop.add_writer, loop.remove_writer)
            if self._is_write
            else (loop.add_reader, loop.remove_reader)
        )
        add(self._descriptor, _set, ready)
        try:
            async with asyncio.timeout(seconds):
                await ready
        except TimeoutError:
            return False
        finally:
            remove(self._descriptor)
        return True


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
