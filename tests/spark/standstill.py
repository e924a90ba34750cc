"""A way to Redis on which a program comes to a stand at a given write of its own, so that it can be
killed there.
"""

from __future__ import annotations

import socket
import threading

from faults import FaultProxy


class Standstill(FaultProxy):
    """Whoever sends the write-th write with some bytes in it never gets an answer, nor does anybody
    else until `let_go`.

    is_executed: Redis gets that write, and has executed it when `is_reached` is set.
    """

    def __init__(
        self, server_url: str, having: bytes, write: int = 1, *, is_executed: bool = False
    ) -> None:
        self._having, self._left, self._is_executed = having, write, is_executed
        self._lock, self._is_let_go = threading.Lock(), threading.Event()
        self.is_reached = threading.Event()
        super().__init__(server_url)

    def let_go(self) -> None:
        """Serve whoever comes from here on, and those who have been held but the first."""
        self._is_let_go.set()

    def close(self) -> None:
        """Close all connections, those that are held without a further word to Redis."""
        self.is_cut = True
        self._is_let_go.set()
        super().close()

    def strikes(self, server: socket.socket, data: bytes) -> bool:
        with self._lock:
            is_first = not self.is_reached.is_set()
            if is_first:
                self._left -= self._having in data
                if self._left > 0:
                    return False
                if self._is_executed:
                    server.sendall(data)
                    # somebody changed a watched key: it will be tried again
                    if b"*-1" in server.recv(65536):
                        self._left = 1
                        return True
                self.is_reached.set()
        self._is_let_go.wait()
        return is_first or self.is_cut  # then its connection is closed
