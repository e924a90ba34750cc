"""Sockets between processes of this host, by their descriptors. A message may carry open files.

It does without the module `socket`, which takes half a megabyte in each process, and which a task
may have patched.
"""

from __future__ import annotations

import _socket
import array
from collections.abc import Sequence

PACKETS, DATAGRAMS = _socket.SOCK_SEQPACKET, _socket.SOCK_DGRAM


def pair(kind: int = PACKETS) -> tuple[int, int]:
    """Return the two ends of a pair of sockets. Raises OSError."""
    one, other = _socket.socketpair(_socket.AF_UNIX, kind)
    return one.detach(), other.detach()


def send(descriptor: int, message: bytes, files: Sequence[int] = (), may_wait: bool = True) -> None:
    """Send a message, with copies of these open files. Raises OSError.

    may_wait: until there is room for it.
    """
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", files))] if files else []
    end = _socket_of(descriptor, None if may_wait else 0.0)
    try:
        end.sendmsg([message], rights, _socket.MSG_NOSIGNAL)
    finally:
        end.detach()


def receive(descriptor: int, most: int, most_files: int) -> tuple[bytes, list[int]]:
    """Wait for a message and return it with the open files that came with it. Empty: the other end
    is closed. Raises OSError.
    """
    files = array.array("i")
    end = _socket_of(descriptor, None)
    try:
        message, ancillary, _, _ = end.recvmsg(
            most, _socket.CMSG_LEN(most_files * files.itemsize), _socket.MSG_CMSG_CLOEXEC
        )
    finally:
        end.detach()
    for level, kind, data in ancillary:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
    return message, list(files)


def _socket_of(descriptor: int, timeout: float | None) -> _socket.socket:
    end = _socket.socket(_socket.AF_UNIX, PACKETS, 0, descriptor)
    end.settimeout(timeout)  # an imported module may have changed the default
    return end
