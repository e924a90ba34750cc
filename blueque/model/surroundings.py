"""Surroundings: what the processes of the tasks of a queue find, besides handler and environment."""

from __future__ import annotations

import re
from typing import NamedTuple

from blueque.errors import InvalidInput, InvalidType

CWD = ("listener", "task")  # whose working directory a task has; the first is the default
KEEP_CWD = ("never", "on-failure", "always")  # when that of a task stays; the first is the default
_UMASK = re.compile("0?[0-7]{1,3}").fullmatch
_OF_OWNER = 0o700

# For a task process, in a message: has a working directory of its own, umask, niceness.
ForProcess = tuple[bool, int | None, int | None]


class Surroundings(NamedTuple):
    """What the file and the options say.

    cwd: of `CWD`. keep_cwd: of `KEEP_CWD`. cgroup: a directory, or a name below that of the
        listener.
    """

    cwd: str = CWD[0]
    keep_cwd: str = KEEP_CWD[0]
    umask: int | None = None
    nice: int | None = None
    cgroup: str | None = None

    @property
    def has_own_cwd(self) -> bool:
        """Whether each attempt works in a directory of its own."""
        return self.cwd == "task"

    def keeps_cwd(self, has_failed: bool) -> bool:
        """Tell whether the working directory of an attempt that has ended stays."""
        return self.keep_cwd == "always" or (has_failed and self.keep_cwd == "on-failure")

    def for_process(self) -> ForProcess | None:
        """Return what a task process has to do; None: nothing."""
        values = (self.has_own_cwd, self.umask, self.nice)
        return None if values == (False, None, None) else values


def require_umask(value: object) -> int:
    """Return a umask that is written as octal digits. Raises InvalidInput, InvalidType."""
    if not isinstance(value, str):
        raise InvalidType('must be text, as "027"')
    if not _UMASK(value):
        raise InvalidInput(f'{value!r} is not a umask: write octal digits, as "027"')
    mask = int(value, 8)
    if mask & _OF_OWNER:
        raise InvalidInput(f"{value!r} would take rights from the user of the task itself")
    return mask
