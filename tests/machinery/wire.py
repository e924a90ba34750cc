"""A way to Redis that can be slow, stand still and be cut, as a network does it."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time

# What only replicas and Sentinels send, at the beginning of each connection.
OF_SERVERS = (b"REPLCONF", b"sentinel-")


class Wire:
    """A way to Redis that can be slow, stand still, be cut, and be cut when the server has executed
    a transaction.
    """

    def __init__(self, port: int) -> None:
        """port: of the server."""
        self._server = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = self._listening.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.delay = 0.0
        self.is_cut = False
        self.cuts_after = False  # the next EXEC; False again when it has
        # of clients, and of other servers
        self._moves = {False: threading.Event(), True: threading.Event()}
        self._let_move()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def connections(self) -> int:
        return len(self._open)

    def stall(self) -> None:
        """Let nothing through any more; nobody is told."""
        for moves in self._moves.values():
            moves.clear()

    def stall_servers(self) -> None:
        """Let nothing of replicas and Sentinels through any more, and clients go on."""
        self._moves[True].clear()

    def _let_move(self) -> None:
        for moves in self._moves.values():
            moves.set()

    def cut(self) -> None:
        """Close every connection, and each that is made until `heal`."""
        self.is_cut = True
        for client in list(self._open):
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        self.delay, self.is_cut = 0.0, False
        self._let_move()

    def close(self) -> None:
        self.heal()
        self.cut()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # a close alone does not wake up who accepts
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._open.add(client)
        # Redis may be down, either end may go away.
        with client, contextlib.suppress(OSError):
            self._moves[False].wait()
            if not self.is_cut:
                self._connect(client)
        self._open.discard(client)

    def _connect(self, client: socket.socket) -> None:
        with socket.create_connection(self._server, 1.0) as server:
            server.settimeout(None)
            self._forward(client, server)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        poll = select.poll()
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            poll.register(end, select.POLLIN)
        is_of_server = may_execute = False
        while True:
            for descriptor, _ in poll.poll():
                giving, taking = (
                    (client, server) if descriptor == client.fileno() else (server, client)
                )
                data = giving.recv(65536)
                is_of_server |= giving is client and any(mark in data for mark in OF_SERVERS)
                self._moves[is_of_server].wait()
                if not data or self.is_cut:
                    return
                if self.delay:
                    time.sleep(self.delay)
                if giving is client:
                    may_execute = self.cuts_after and self._may_execute(data)
                elif may_execute and self.cuts_after and self._has_executed(server):
                    self.cuts_after = False
                    return  # nobody hears of it
                taking.sendall(self._named(data) if giving is server else data)

    # What is other where a layer lies above the bytes

    def _may_execute(self, data: bytes) -> bool:
        """Tell whether a client may have sent an EXEC."""
        return b"EXEC" in data

    def _has_executed(self, server: socket.socket) -> bool:
        """Tell whether what the server answers is an EXEC that a client may have sent."""
        return True

    def _named(self, data: bytes) -> bytes:
        """Return what the server says as clients are to have it."""
        return data
