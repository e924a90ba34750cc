"""Gate: where a task process, made ahead, waits for a task, and how its listener tells it what to run.

A pair of sockets that keeps messages whole: a word opens the gate, and carries open files with it. When the listener closes
its end, or dies, without a word, there is nothing to run.
"""

from __future__ import annotations

import array
import json
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

_MOST = 65536                                          # bytes; a path takes 4,096, six times that as JSON at worst
_MOST_DESCRIPTORS = 64


class Word(NamedTuple):
    """What opens a gate.

    path: the directory of the attempt. resources: what the task has been given, by name: numbers, or an amount.
    environ: variables for it.
    """

    path: str
    resources: dict[str, list[int] | int]
    environ: dict[str, str]


def make() -> tuple[int, int]:
    """Return the two ends of a gate: that of the task process, and that of its listener. Raises OSError."""
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return theirs.detach(), ours.detach()


def open_gate(gate: int, word: Word, descriptors: Sequence[int] = ()) -> None:
    """Let the process at the other end run something, and have copies of the descriptors.

    Raises BrokenPipeError when it is gone.
    """
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    end = _socket(gate)
    try:
        end.sendmsg([json.dumps(word).encode()], rights)
    except ConnectionResetError as error:
        raise BrokenPipeError from error
    finally:
        end.detach()


class Waiting:
    """The end of the task process. Made before a line of the user's has run, which may replace what it needs."""

    def __init__(self, gate: int) -> None:
        self._end = _socket(gate)

    def wait(self) -> tuple[Word, list[int]] | None:
        """Wait for a word and the descriptors with it; None: there will be none."""
        try:
            said, descriptors, _, _ = socket.recv_fds(self._end, _MOST, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        except OSError:                                # what has been imported has closed it
            return None
        self._end.close()
        if not said:
            return None
        found: Any = json.loads(said)
        return Word(*found), descriptors


def _socket(descriptor: int) -> socket.socket:
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, descriptor)
    end.settimeout(None)                               # somebody may have set another default for the whole process
    return end
