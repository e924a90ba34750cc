"""Awaiting: run functions that wait for Redis without blocking the event loop.

The transactions, queries and connections of Blueque are plain functions. `awaited` runs such a
function in a greenlet, a separate stack in the same thread. Where the function would wait for a
socket or for its next try, the greenlet passes an awaitable to the coroutine and is suspended. So
asyncio needs no second implementation, and no thread except the one that resolves host names.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from blueque.connection.waits import WRITABLE, Waits, unix_socket
from blueque.errors import NotInstalled

try:
    from greenlet import getcurrent, greenlet
except ImportError:
    greenlet = None

T = TypeVar("T")

READY_AT_ONCE = 8  # polls that find their socket ready, after which others have their turn


def require_greenlet() -> None:
    """Raises NotInstalled."""
    if greenlet is None:
        raise NotInstalled("AsyncClient", "greenlet", "async")


async def awaited(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function of Blueque and return its result. The event loop continues while it waits.

    When this is cancelled, CancelledError is raised where the function waits, which closes the
    connection if it awaited an answer.
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


class LoopWaits(Waits):
    """Waits for sockets by the event loop, in functions that `awaited` runs."""

    def connect(self, place: tuple[str, int] | str, seconds: float) -> socket.socket:
        return wait_for(_connect(place, seconds))

    def poll(self, connected: socket.socket, event: int) -> _LoopPoll:
        return _LoopPoll(connected, event)


class _LoopPoll:
    def __init__(self, connected: socket.socket, event: int) -> None:
        self._descriptor, self._is_write = connected.fileno(), event == WRITABLE
        self._now = Waits().poll(connected, event)
        self._ready_at_once = 0

    def poll(self, milliseconds: float, /) -> bool:
        if self._now.poll(0):
            self._ready_at_once += 1
            if self._ready_at_once == READY_AT_ONCE:
                self._ready_at_once = 0
                sleep(0)
            return True
        self._ready_at_once = 0
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


async def _connect(place: tuple[str, int] | str, seconds: float) -> socket.socket:
    """Return a non-blocking socket that is connected to one of the addresses of a host, or to a path."""
    try:
        async with asyncio.timeout(seconds):
            if not isinstance(place, tuple):
                return await _connected(unix_socket(), place)
            error = OSError("this host has no address")
            loop = asyncio.get_running_loop()
            for family, kind, protocol, _, address in await loop.getaddrinfo(
                *place, type=socket.SOCK_STREAM
            ):
                try:
                    return await _connected(socket.socket(family, kind, protocol), address)
                except OSError as refused:
                    error = refused
            raise error
    except TimeoutError:
        raise OSError("timed out") from None


async def _connected(made: socket.socket, address: Any) -> socket.socket:
    try:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    return made
