"""Rereading: has blueque-listener read its arguments and its blueque.toml once more, in a child,
while a master goes on.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from blueque.system import process

if TYPE_CHECKING:
    from blueque.node import slot

log = logging.getLogger("blueque")

# the descriptor that takes the choices, instead of a new program
ANSWER_TO = "BLUEQUE_LISTENER_ANSWER_TO"
TOLD = "BLUEQUE_LISTENER_TOLD"  # the descriptor that has the rest of its environment
_AT_ONCE = 65536

Renewed = tuple["Callable[[slot.Master], int]", "Callable[[], None]"]


class Rereading:
    """What a master needs for a SIGHUP.

    take: makes of the choices, as text, the body and the chore of a master; None: they cannot be
        had.
    environment: what the child is told besides what is in ours.
    """

    def __init__(
        self, take: Callable[[bytes], Renewed | None], environment: dict[str, str]
    ) -> None:
        self._take, self._environment = take, environment
        # readable when there may be an answer; None: nobody has asked
        self.descriptor: int | None = None
        self._said = b""

    def begin(self) -> None:
        """Ask, unless we are asking."""
        if self.descriptor is not None:
            return
        read, write = os.pipe()
        try:
            process.fork(lambda: self._ask(write))
        except OSError as error:
            log.error("cannot fork: %s", error.strerror)
            os.close(read)
        else:
            os.set_blocking(read, False)
            self.descriptor, self._said = read, b""
        os.close(write)

    def take(self) -> Renewed | None:
        """Return what the answer asks for, once; None: there is none yet, or none that could be
        taken.
        """
        if self.descriptor is None:
            return None
        try:
            while said := os.read(self.descriptor, _AT_ONCE):
                self._said += said
        except BlockingIOError:
            # else whatever the handler's module has started may hold the pipe
            if not self._said.endswith(b"\n"):
                return None
        os.close(self.descriptor)
        self.descriptor = None
        renewed = self._take(self._said) if self._said else None
        if renewed is None:
            log.error("there is no new configuration to be had; everything stays as it is")
        return renewed

    def _ask(self, write: int) -> int:
        os.set_inheritable(write, True)
        kept = process.keep_in_memory(json.dumps(self._environment))  # it has a password
        os.execve(
            sys.executable,
            [sys.executable, "-P", "-m", "blueque.cli.listener", *sys.argv[1:]],
            {**os.environ, ANSWER_TO: str(write), TOLD: str(kept)},
        )


def complete_environment() -> None:
    """In the child: add to the environment what the master has told it."""
    if TOLD in os.environ:
        os.environ.update(json.loads(process.read_from_memory(int(os.environ.pop(TOLD)))))
