"""A process that has imported all that a listener needs. The listeners of tests are forks of it:
they have the memory of a listener and nothing left to import, which is half of a start.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import prepared_listener
import process_state
from running import AHEAD, MARK, PATCHED

from blueque.node.main import CHOICES
from blueque.system import unix_sockets

# How the names of variables begin that a program reads only when it begins.
READ_AT_START = ("PYTHON", "LC_", "LANG", PATCHED, AHEAD)
MOST = 3  # processes that are kept

_kept: dict[frozenset[tuple[str, str]], Prepared | None] = {}


def prepared_for(environ: Mapping[str, str]) -> Prepared | None:
    """Return the process for listeners with such an environment. There is one from the second time on
    that it is asked for.
    """
    kind = frozenset(pair for pair in environ.items() if pair[0].startswith(READ_AT_START))
    if kind not in _kept:
        _kept[kind] = None
        return None
    found = _kept.pop(kind) or Prepared(environ)
    _kept[kind] = found  # the last of them
    living = [other for other in _kept.values() if other is not None]
    if len(living) > MOST:
        living[0].close()
        del _kept[next(kind for kind, other in _kept.items() if other is living[0])]
    return found


class Prepared:
    """The process. It ends with the process that tests run in, or when it is closed."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._end, theirs = unix_sockets.pair()
        # A listener writes its own arguments and environment over these.
        program = [sys.executable, "-P", prepared_listener.__file__, str(theirs)]
        room = " " * prepared_listener.ROOM
        self._process = subprocess.Popen(
            [*program, room],
            env={**environ, MARK: "", "ROOM": room},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs],
            process_group=0,
        )
        os.close(theirs)
        process_state.KEPT.update([self._process.pid, self._end])

    def close(self) -> None:
        os.close(self._end)
        self._process.wait()
        process_state.KEPT.difference_update([self._process.pid, self._end])

    @property
    def descriptor(self) -> int:
        """What a process needs to become a listener."""
        return self._end

    def become(self, program: str, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
        """Stand for `os.execve` in a process that is to become a listener: have a fork be that
        listener, and end.
        """
        request = ["become", os.getpid(), os.getcwd(), [*arguments], {**environ}]
        files = [0, 1, 2, int(environ[CHOICES])]
        unix_sockets.send(self._end, json.dumps(request).encode(), files)
        os._exit(0)

    def listener_of(self, pid: int, seconds: float) -> Listener | None:
        """Wait for the end of a child of ours. Reap it and return the listener that it has become, if
        it has.
        """
        end = os.pidfd_open(pid)
        has_ended = select.select([end], [], [], seconds)[0]
        os.close(end)
        assert has_ended, f"it has read its arguments for {seconds:g} s"
        listener: int | None = self._ask("listener of", pid)
        if listener is None:
            return None
        os.waitpid(pid, 0)
        return Listener(listener, self)

    def code_of(self, pid: int) -> int:
        """Return the exit code of a listener that has ended, or minus the signal."""
        code: int = self._ask("code of", pid)
        return code

    def _ask(self, what: str, pid: int) -> Any:
        unix_sockets.send(self._end, json.dumps([what, pid]).encode())
        return json.loads(unix_sockets.receive(self._end, prepared_listener.MOST, 0)[0])


class Listener:
    """What subprocess.Popen is for a process that it has started, as far as `Program` asks it."""

    def __init__(self, pid: int, prepared: Prepared) -> None:
        self.pid, self._prepared = pid, prepared
        self._end = os.pidfd_open(pid)  # it is not reaped before its code is asked for
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None and select.select([self._end], [], [], 0)[0]:
            self._code = self._prepared.code_of(self.pid)
            os.close(self._end)
        return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._end, number)

    def wait(self, seconds: float) -> int:
        if self._code is None:
            select.select([self._end], [], [], seconds)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("a listener", seconds)
        return code
