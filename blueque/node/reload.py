"""Reload: what a listener and a scheduler do at SIGHUP.

A child checks the arguments, blueque.toml and the handlers. If it finds no mistake, the program
replaces itself by exec and keeps its pid. Otherwise nothing changes.

The listeners of such a master lose their lifeline and leave, those with a task when it has ended.
They stay children of this process, and the new program gets their pids: each keeps its slot until
it leaves.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from blueque.system import process
from blueque.system.process_tree import Tree

log = logging.getLogger("blueque")

# Running programs of other versions use these names, too.
# Set in a child that only checks: the descriptor that takes the choices of a listener.
ANSWER_TO = "BLUEQUE_LISTENER_ANSWER_TO"
TOLD = "BLUEQUE_LISTENER_TOLD"  # the descriptor that has the rest of the child's environment
KEPT = "BLUEQUE_LISTENER_KEPT"  # set where one program has replaced another, see `Kept`


class Check:
    """Runs a program in a child that only checks whether it could start.

    arguments: of the program.
    environment: variables of the child in addition to ours. They may hold a password, so the child
        reads them from memory that no list of processes shows.
    """

    def __init__(self, arguments: list[str], environment: Mapping[str, str] | None = None) -> None:
        self.pid: int | None = None  # of the child, while there is one
        self.answer = -1  # the descriptor of what the child has written
        self._arguments, self._environment = arguments, environment or {}
        self._is_out_of_date = False
        self._is_cancelled = False

    def begin(self) -> None:
        """Fork the child. End an earlier one first, and `end` then forks another.

        The earlier one may have read the file before the last change, or never end an import.
        """
        if self.pid is not None:
            log.warning("ending the check that is still running, to begin a new one")
            self._is_out_of_date = True
            self._kill(self.pid)
            return
        self.forget()
        try:
            self.answer = os.memfd_create("blueque")
            self.pid = process.fork(functools.partial(self._become_program, os.getpid()))
        except OSError as error:
            self.forget()
            log.error("cannot check: %s; nothing changes", error.strerror)

    def cancel(self) -> None:
        """End the child, if there is one, and fork no other, because this program leaves."""
        if self.pid is not None:
            self._is_cancelled = True
            self._kill(self.pid)

    def forget(self) -> None:
        """Close what the child has written: it may hold a password."""
        if self.answer >= 0:
            os.close(self.answer)
            self.answer = -1

    def read(self) -> dict[str, Any] | None:
        """Return the choices that the child has written; None: it has not written all of them.

        A handler's module may end the child with status 0 before it has written them.
        """
        content = os.pread(self.answer, os.fstat(self.answer).st_size, 0)
        try:
            choices = json.loads(content) if content.endswith(b"\n") else None
        except ValueError:
            return None
        return choices if isinstance(choices, dict) else None

    def poll(self) -> bool:
        """Call `end` if the child has ended. Return whether the program is to be replaced now."""
        if self.pid is None:
            return False
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return pid != 0 and self.end(os.waitstatus_to_exitcode(status))

    def end(self, code: int) -> bool:
        """Take the exit code of the child; return whether the program is to be replaced now."""
        self.pid = None
        if code == 0 and not self._is_out_of_date and not self._is_cancelled:
            return True
        self.forget()
        if self._is_cancelled:
            return False
        if self._is_out_of_date:
            self._is_out_of_date = False
            self.begin()
        else:
            log.error(
                "cannot reload the configuration (%s; the lines above say why); nothing changes",
                process.describe(code),
            )
        return False

    def _kill(self, pid: int) -> None:
        """Kill the child and what it started, without waiting; one that waits for a disk ends later."""
        Tree(pid).signal(signal.SIGKILL)

    def _become_program(self, parent: int) -> int:
        process.die_with_parent(True)  # its import may wait for ever
        if os.getppid() != parent:
            return 1
        os.setsid()  # so that what it starts is found, see `_kill`
        try:
            os.chdir(os.environ.get("PWD", "."))
        except OSError as error:
            log.error("cannot enter %s: %s", os.environ.get("PWD"), error.strerror)
            return 1
        os.set_inheritable(self.answer, True)
        told = process.keep_in_memory(json.dumps(self._environment))
        variables = {ANSWER_TO: str(self.answer), TOLD: str(told)}
        os.execve(sys.executable, self._arguments, {**os.environ, **variables})


class Kept(NamedTuple):
    """What a master keeps from the program that it has replaced.

    started: when the first one under this pid started, on the monotonic clock. pause: the cause, as
        in `Pause.by`.
    slots, adopters: the pids of its children that are listeners, and of those that only adopt.
    """

    started: float
    pause: str | None = None
    slots: Sequence[int] = ()
    adopters: Sequence[int] = ()

    @property
    def environ(self) -> dict[str, str]:
        return {KEPT: json.dumps(self)}

    @classmethod
    def take(cls) -> Kept | None:
        """Return what is kept in the environment, and remove it there; None: this is the first program."""
        text = os.environ.pop(KEPT, None)
        return None if text is None else cls(*json.loads(text))


class Reload(NamedTuple):
    """What a master needs for a SIGHUP.

    replace: replaces the program once the check has passed; returns only if that fails.
    """

    check: Check
    replace: Callable[[Kept], None]


def replace_program(
    arguments: list[str], environment: Mapping[str, str], keep: Iterable[int] = ()
) -> None:
    """Replace this program by exec; return only if that fails.

    The caller blocks its signals, and the new program unblocks them when it can handle them.
    keep: descriptors that stay open.
    """
    keep = list(keep)
    for descriptor in keep:
        os.set_inheritable(descriptor, True)
    here = -1
    with contextlib.suppress(OSError):  # the server of its file system does not know it any more
        here = os.open(".", os.O_PATH)
    try:
        os.chdir(os.environ.get("PWD", "."))
        os.execve(sys.executable, arguments, environment)
    except OSError as error:
        log.error("cannot run %s: %s; nothing changes", sys.executable, error.strerror)
    if here >= 0:
        os.fchdir(here)
        os.close(here)
    for descriptor in keep:
        os.set_inheritable(descriptor, False)


def note_directory() -> None:
    """Set PWD to the directory in which this program was started, as a shell called it.

    SIGHUP enters the directory that has this name then: a release may be a symbolic link.
    """
    here, name = os.getcwd(), os.environ.get("PWD", "")
    if not (os.path.isabs(name) and os.path.realpath(name) == here):
        os.environ["PWD"] = here


def complete_environment() -> None:
    """In a child that only checks: add the variables that `Check` has kept in memory."""
    if TOLD in os.environ:
        os.environ.update(json.loads(process.read_from_memory(int(os.environ.pop(TOLD)))))
