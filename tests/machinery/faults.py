"""A way to Redis that loses, cuts and delays chosen writes of a client."""

from __future__ import annotations

import enum
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from wire import Wire


class Fault(enum.Enum):
    """What may happen to one write of a client. In each case the client finds its connection
    closed.
    """

    CUT_BEFORE = "the server never gets it"
    CUT_AFTER = "the server executes it, and its answer is lost"
    HOLD = "the server gets it at release(), on the old connection, when the client has long tried again"


class FaultProxy(Wire):
    """Listens at `url` and forwards. What arrives at once is one write, for a client waits for the
    answer to each.
    """

    def __init__(self, server_url: str) -> None:
        self.writes = 0
        self.on_write: Callable[[bytes], object] = lambda data: None
        self.has_struck = False
        self._plan: tuple[Fault, int, bytes] | None = None
        self._held: list[tuple[socket.socket, bytes]] = []
        super().__init__(_port_of(server_url))

    def arm(self, fault: Fault, write: int = 1, having: bytes = b"") -> None:
        """Let `fault` strike once, at the write-th write from here on that has these bytes in it."""
        self._plan, self.has_struck = (fault, write, having), False

    def release(self) -> list[bytes]:
        """Deliver what was held, each on its old connection; return what the server answered, when
        it has executed.
        """
        held, self._held = self._held, []
        return [_deliver(server, data) for server, data in held]

    def lead_to(self, server_url: str) -> None:
        """Lead the connections to come to another server; those that are open stay where they are."""
        self._server = ("127.0.0.1", _port_of(server_url))

    def close(self) -> None:
        super().close()
        for server, _ in self._held:
            server.close()

    def strikes(self, server: socket.socket, data: bytes) -> bool:
        self.writes += 1
        self.on_write(data)
        if self._plan is None or self._plan[2] not in data:
            return False
        fault, write, having = self._plan
        self.has_struck = write == 1
        self._plan = None if self.has_struck else (fault, write - 1, having)
        if self.has_struck and fault is Fault.CUT_AFTER:
            _deliver(server, data)
        if self.has_struck and fault is Fault.HOLD:
            self._held.append((server.dup(), data))
        return self.has_struck


def _deliver(server: socket.socket, data: bytes) -> bytes:
    """Send the data and return the answer. The server closes at our end of file, and by then it has
    executed everything.
    """
    with server:
        server.sendall(data)
        server.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: server.recv(65536), b""))


def _port_of(server_url: str) -> int:
    port = urlsplit(server_url).port
    assert port is not None
    return port
