"""A TCP proxy in front of Redis that loses, cuts and delays what a client writes."""

from __future__ import annotations

import contextlib
import enum
import select
import socket
import threading
from collections.abc import Callable
from urllib.parse import urlsplit


class Fault(enum.Enum):
    """What may happen to one write of a client. In each case the client finds its connection
    closed.
    """

    CUT_BEFORE = "the server never gets it"
    CUT_AFTER = "the server executes it, and its answer is lost"
    HOLD = "the server gets it at release(), on the old connection, when the client has long tried again"


class FaultProxy:
    """Listens at `url` and forwards. What arrives at once is one write, for a client waits for the
    answer to each.
    """

    def __init__(self, server_url: str) -> None:
        self.lead_to(server_url)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._port = self._listening.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.writes = 0
        self.on_write: Callable[[bytes], object] = lambda data: None
        self.has_struck = self._is_closed = False
        self._plan: tuple[Fault, int, bytes] | None = None
        self._held: list[tuple[socket.socket, bytes]] = []
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

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
        place = urlsplit(server_url)
        self._server = (place.hostname, place.port)

    def stop_listening(self) -> None:
        _shut(self._listening)  # a close alone does not wake up who accepts
        self._listening.close()

    def listen_again(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", self._port))
        self._threads.append(threading.Thread(target=self._accept, daemon=True))
        self._threads[-1].start()

    def close(self) -> None:
        """Close all connections, and wait until they are closed."""
        self._is_closed = True
        self.stop_listening()
        for thread in self._threads:  # the first accepts; those that it has started come after it
            for end in self._open:
                _shut(end)
            thread.join()
        for server, _ in self._held:
            server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                thread = threading.Thread(target=self._forward, args=(client,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _forward(self, client: socket.socket) -> None:
        server = socket.create_connection(self._server)
        for end in (client, server):  # or it would wait for an acknowledgement, 40 ms each time
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open += [client, server]
        with client, server, contextlib.suppress(OSError):
            while not self._is_closed:
                readable, _, _ = select.select([client, server], [], [])
                if server in readable:
                    answer = server.recv(65536)
                    client.sendall(answer)
                    if not answer:
                        break
                if client in readable:
                    data = client.recv(65536)
                    if not data or self.strikes(server, data):
                        break
                    server.sendall(data)

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


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
