"""A way to Redis that can be slow, stand still and be cut, as a network does it."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time

import redis as redis_py

ANSWER = 2.0  # seconds
# What only replicas and Sentinels send, at the beginning of each connection.
OF_SERVERS = (b"REPLCONF", b"sentinel-")


class Wire:
    """A way to Redis that can be slow, stand still, be cut, and be cut when the server has executed
    a transaction.

    admin_port: where the server can be asked without TLS.
    """

    def __init__(self, port: int, admin_port: int = 0) -> None:
        self._server, self._admin_port = ("127.0.0.1", port), admin_port or port
        self.delay = 0.0
        self.is_cut = False
        self.cuts_after = False  # the next EXEC; False again when it has
        # of clients, and of other servers
        self._moves = {False: threading.Event(), True: threading.Event()}
        self._let_move()
        self._open: set[tuple[socket.socket, socket.socket]] = set()
        self._threads: set[threading.Thread] = set()
        self.port = 0  # a free one
        self.listen_again()
        self.url = f"redis://127.0.0.1:{self.port}/0"

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
        for end in [end for ends in list(self._open) for end in ends]:
            _shut(end)

    def heal(self) -> None:
        self.delay, self.is_cut = 0.0, False
        self._let_move()

    def stop_listening(self) -> None:
        _shut(self._listening)  # a close alone does not wake up who accepts
        self._listening.close()

    def listen_again(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", self.port), backlog=200)
        self.port = self._listening.getsockname()[1]
        self._start(threading.Thread(target=self._accept, args=(self._listening,), daemon=True))

    def close(self) -> None:
        """Close all connections, and wait until they are closed."""
        self.cut()
        self._let_move()
        self.stop_listening()
        # The one that accepts may still start others.
        while alive := [thread for thread in list(self._threads) if thread.is_alive()]:
            alive[0].join()

    def _start(self, thread: threading.Thread) -> None:
        self._threads.add(thread)
        thread.start()

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = listening.accept()
                self._start(threading.Thread(target=self._serve, args=(client,), daemon=True))
        self._threads.discard(threading.current_thread())

    def _serve(self, client: socket.socket) -> None:
        # Redis may be down, either end may go away.
        with client, contextlib.suppress(OSError):
            self._moves[False].wait()
            if not self.is_cut:
                self._connect(client)
        self._threads.discard(threading.current_thread())

    def _connect(self, client: socket.socket) -> None:
        with socket.create_connection(self._server, ANSWER) as server:
            self._forward(client, server)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        poll = select.poll()
        for end in (client, server):
            end.settimeout(None)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            poll.register(end, select.POLLIN)
        self._open.add((client, server))
        try:
            self._pass_on(client, server, poll)
        finally:
            self._open.discard((client, server))

    def _pass_on(self, client: socket.socket, server: socket.socket, poll: select.poll) -> None:
        is_of_server = False
        while not self.is_cut:
            for descriptor, _ in poll.poll():
                is_answer = descriptor == server.fileno()
                giving, taking = (server, client) if is_answer else (client, server)
                data = giving.recv(65536)
                is_of_server |= not is_answer and any(mark in data for mark in OF_SERVERS)
                self._moves[is_of_server].wait()
                if not data or self.is_cut:
                    return
                time.sleep(self.delay)
                strikes = self.answer_strikes if is_answer else self.strikes
                if strikes(server, data):
                    return  # nobody hears of it
                taking.sendall(self._named(data) if is_answer else data)

    def strikes(self, server: socket.socket, data: bytes) -> bool:
        """Tell whether the connection is to be cut before the server gets what a client sends."""
        return False

    def answer_strikes(self, server: socket.socket, data: bytes) -> bool:
        """Tell whether the connection is to be cut before a client gets an answer.

        The server is asked what it has executed, for nobody can look into TLS.
        """
        if not self.cuts_after:
            return False
        own = f"127.0.0.1:{server.getsockname()[1]}"
        try:
            with redis_py.Redis(
                port=self._admin_port, decode_responses=True, socket_timeout=ANSWER
            ) as admin:
                commands = [each["cmd"] for each in admin.client_list() if each["addr"] == own]
        except redis_py.RedisError:  # it is away
            return False
        self.cuts_after = commands != ["exec"]
        return not self.cuts_after

    def _named(self, data: bytes) -> bytes:
        """Return what the server says as clients are to have it."""
        return data


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
