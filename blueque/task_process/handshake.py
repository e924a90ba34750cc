"""Handshake: how a task process, forked in advance, gets its task from its listener.

They use a pair of sockets. The first message, an assignment, names the attempt to prepare for. A
second one passes open files, if any. The last message lets the process begin. If the listener
closes its end or dies before that, the process exits without running anything.

With `--reuse`, both keep the sockets. Once the exit record is written, the process sends a `Rest`
and waits for the next assignment.

Assignments are packed by `marshal`: in a newly forked process, each Python function that it calls
copies pages of memory, and `json` has many.
"""

from __future__ import annotations

import functools
import json
import marshal
import os
from collections.abc import Sequence
from typing import NamedTuple

from blueque.system import unix_sockets
from blueque.system.plain_files import identity

_MOST = 200_000  # bytes of a message
# bytes of a task that travels with its assignment; sockets hold four times that
_MOST_OF_TASK = 16_000
_FORMAT = 0  # of marshal: the reader interns no strings
_GO, _RIGHTS = b"go", b"held"
_read = os.read  # before a line of the user's has run, which may replace it


class Assignment(NamedTuple):
    """What a task process prepares for.

    path: the directory of the attempt. resources: what the task has been given, by name: numbers,
        or an amount.
    environ: variables for it. time_limit: in seconds, if it has one.
    may_rest: whether to wait for another task when this one has ended.
    task: id and fields of the task; None: read them from the file `task`.
    has_own_cwd: whether the task works in a directory that is made for the attempt.
    """

    path: str
    resources: dict[str, list[int] | int]
    environ: dict[str, str]
    time_limit: float | None = None
    may_rest: bool = False
    task: tuple[str, dict[str, str]] | None = None
    has_own_cwd: bool = False


class Rest(NamedTuple):
    """The message of a process whose task has ended and that waits for another.

    path: the directory of the attempt. cpu_seconds: of all its tasks so far.
    memory: its resident memory in bytes. descriptors: how many are open.
    threads: how many non-daemon threads the task had left; they have ended.
    has_children: whether child processes are left.
    """

    path: str
    cpu_seconds: float
    memory: int
    descriptors: int
    threads: int
    has_children: bool


def make() -> tuple[int, int]:
    """Return both ends of a handshake: of the task process, and of its listener. Raises OSError."""
    return unix_sockets.pair()


def assign(handshake: int, assignment: Assignment, descriptors: Sequence[int] = ()) -> None:
    """Let the process at the other end prepare, with copies of the descriptors.

    Raises BrokenPipeError if it is gone.
    """
    packed = marshal.dumps((len(descriptors), *assignment), _FORMAT)
    if len(packed) > _MOST_OF_TASK:
        packed = marshal.dumps((len(descriptors), *assignment._replace(task=None)), _FORMAT)
    _send(handshake, packed)
    if descriptors:
        _send(handshake, _RIGHTS, descriptors)


def begin(handshake: int) -> None:
    """Let the process at the other end run its assignment. Raises BrokenPipeError if it is gone."""
    _send(handshake, _GO)


def hear_rest(handshake: int) -> Rest | None:
    """Return the message of a process that waits for another task; None: it never will."""
    try:
        said = os.read(handshake, _MOST)
        return Rest(*json.loads(said)) if said else None
    except (OSError, ValueError, TypeError):  # a child of the task may have the other end, too
        return None


def _send(handshake: int, message: bytes, descriptors: Sequence[int] = ()) -> None:
    try:
        unix_sockets.send(handshake, message, descriptors)
    except ConnectionResetError as error:
        raise BrokenPipeError from error


class Handshake:
    """The end of the task process. Create it before any user code runs, which may close the
    descriptor and open another file under its number.
    """

    def __init__(self, handshake: int) -> None:
        self._end, self._identity = handshake, _identify(handshake)
        self._held: list[int] = []  # descriptors that came with the assignment
        self._has_hook = False  # that closes them in forked children

    def assignment(self) -> Assignment | None:
        """Wait for the assignment; None: there will be none.

        The descriptors that come with it stay open until `rest`, or until this process ends.
        """
        said = self._receive(_MOST)
        if not said:
            return None
        count, *values = marshal.loads(said)
        if count:
            self._keep(count)
        return Assignment(*values)

    def _keep(self, count: int) -> None:
        _, descriptors = unix_sockets.receive(self._end, len(_RIGHTS), count)
        if not self._has_hook:
            self._has_hook = True
            # What is set aside is the task's, not of a helper that it forks and that outlives it.
            os.register_at_fork(after_in_child=functools.partial(_close, self._held))
        self._held += descriptors

    def may_begin(self, may_rest: bool = False) -> bool:
        """Wait until the start is recorded; False: it never will be.

        may_rest: keep our end for `rest`.
        """
        said = self._receive(len(_GO))
        if said and not may_rest:
            os.close(self._end)
        return said == _GO

    def let_go(self) -> None:
        """Close what came with the assignment, because its task has ended."""
        _close(self._held)
        self._held.clear()

    def rest(self, rest: Rest) -> bool:
        """Tell the listener that the task has ended and we wait for another. False: none will come."""
        if self._identity != _identify(self._end):
            return False
        try:
            _send(self._end, json.dumps(rest).encode())
        except OSError:
            return False
        return True

    def _receive(self, most: int) -> bytes:
        """Return the next message; empty: there will be none, or imported code has closed our end."""
        if self._identity != _identify(self._end):
            return b""
        try:
            return _read(self._end, most)
        except OSError:
            return b""


def _identify(descriptor: int) -> tuple[int, int] | None:
    try:
        return identity(descriptor)
    except OSError:
        return None


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        try:
            os.close(descriptor)
        except OSError:  # the task has closed it itself
            pass
