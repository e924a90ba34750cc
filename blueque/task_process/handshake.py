"""Handshake: how a task process, forked ahead, gets its task from its listener.

They use a pair of sockets. The first message is an assignment: it says for which attempt to
prepare, and passes open files. The second message lets the process begin. If the listener closes
its end or dies before that, the process exits without running anything.
"""

from __future__ import annotations

import array
import functools
import json
import os
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

_MOST = 200_000  # bytes; a path takes 4,096, six times that as JSON at worst
_MOST_DESCRIPTORS = 64
_GO = b"go"
_receive = socket.recv_fds  # before a line of the user's has run, which may replace it


class Assignment(NamedTuple):
    """What a task process gets ready for.

    path: the directory of the attempt. resources: what the task has been given, by name: numbers,
        or an amount.
    environ: variables for it. time_limit: in seconds, if it has one.
    """

    path: str
    resources: dict[str, list[int] | int]
    environ: dict[str, str]
    time_limit: float | None = None


def make() -> tuple[int, int]:
    """Return the two ends of a handshake: that of the task process, and that of its listener. Raises
    OSError.
    """
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return theirs.detach(), ours.detach()


def assign(handshake: int, assignment: Assignment, descriptors: Sequence[int] = ()) -> None:
    """Have the process at the other end get ready, with copies of the descriptors. Raises
    BrokenPipeError: it is gone.
    """
    _send(handshake, json.dumps(assignment).encode(), descriptors)


def begin(handshake: int) -> None:
    """Let the process at the other end run what was assigned. Raises BrokenPipeError: it is gone."""
    _send(handshake, _GO)


def _send(handshake: int, message: bytes, descriptors: Sequence[int] = ()) -> None:
    rights = (
        [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        if descriptors
        else []
    )
    end = _socket(handshake)
    try:
        end.sendmsg([message], rights)
    except ConnectionResetError as error:
        raise BrokenPipeError from error
    finally:
        end.detach()


class Handshake:
    """The end of the task process. Create it before any user code runs, because user code may
    replace functions that it needs.
    """

    def __init__(self, handshake: int) -> None:
        self._end = _socket(handshake)

    def assignment(self) -> Assignment | None:
        """Wait for the assignment; None: there will be none. The descriptors that come with it stay open
        until this process ends.
        """
        try:
            said, descriptors, _, _ = _receive(
                self._end, _MOST, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
        except OSError:  # what has been imported has closed it
            return None
        if descriptors:
            # What is set aside is the task's, not of a helper that it forks and that outlives it.
            os.register_at_fork(after_in_child=functools.partial(_close, descriptors))
        found: Any = json.loads(said) if said else None
        return Assignment(*found) if found is not None else None

    def may_begin(self) -> bool:
        """Wait until the start is recorded; False: it never will be."""
        try:
            said = self._end.recv(len(_GO))
        except OSError:
            return False
        self._end.close()
        return said == _GO


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        try:
            os.close(descriptor)
        except OSError:  # the task has closed it itself
            pass


def _socket(descriptor: int) -> socket.socket:
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, descriptor)
    end.settimeout(None)  # an imported module may have changed the default timeout
    return end
