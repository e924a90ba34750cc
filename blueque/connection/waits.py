"""Waits: how the connections of a program wait for their sockets.

These block; those of blueque.connection.awaiting do not block the event loop.
"""

from __future__ import annotations

import select
import socket
import struct
from typing import Protocol

# What to wait for: POLLIN and POLLOUT, which Windows does not have.
READABLE, WRITABLE = getattr(select, "POLLIN", 1), getattr(select, "POLLOUT", 4)
SEND_TIMEOUT = 10.0  # seconds
_TIMEOUT = struct.Struct("ll")  # of the kernel: seconds, microseconds


class Poll(Protocol):
    """Waits for a socket, as `select.poll` does."""

    def poll(self, milliseconds: float, /) -> object:
        """Wait at most this long. Return a false value if the socket was not ready."""


class Waits:
    """Blocks until a socket is connected, can be read or can be written."""

    def connect(self, place: tuple[str, int] | str, seconds: float) -> socket.socket:
        """Return a socket that is connected to host and port, or to a path.

        A send blocks for SEND_TIMEOUT at most or, on Windows, not at all.
        seconds: how long connecting may take.
        Raises OSError.
        """
        if isinstance(place, tuple):
            connected = socket.create_connection(place, seconds)
        else:
            connected = unix_socket()
            try:
                connected.settimeout(seconds)
                connected.connect(place)
            except BaseException:
                connected.close()
                raise
        if not hasattr(select, "poll"):  # Windows, which takes another value for the timeout, too
            connected.setblocking(False)
            return connected
        # With a timeout of its own, the module `socket` asks the kernel before each send and receive.
        connected.settimeout(None)
        timeout = _TIMEOUT.pack(int(SEND_TIMEOUT), int(SEND_TIMEOUT % 1 * 1e6))
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        return connected

    def poll(self, connected: socket.socket, event: int) -> Poll:
        """Return an object that waits until a socket is READABLE, or WRITABLE."""
        if not hasattr(select, "poll"):
            return _Select(connected, event)
        poll = select.poll()  # elsewhere, select.select refuses descriptors above 1023
        poll.register(connected, event)
        return poll


class _Select:
    """Waits for a socket where there is no `select.poll`, which is Windows."""

    def __init__(self, connected: socket.socket, event: int) -> None:
        self._sockets = ([connected], []) if event == READABLE else ([], [connected])

    def poll(self, milliseconds: float, /) -> bool:
        return any(select.select(*self._sockets, [], milliseconds / 1000))


def unix_socket() -> socket.socket:
    """Return a new one. Raises OSError where there are none."""
    if not hasattr(socket, "AF_UNIX"):
        raise OSError("Python has no Unix sockets on this system")
    return socket.socket(socket.AF_UNIX)


BLOCKING = Waits()
