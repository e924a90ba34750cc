"""WorkingDirectory: where the attempts of the tasks of a queue work."""

from __future__ import annotations

from typing import NamedTuple

CWD = ("listener", "task")  # whose working directory a task has; the first is the default
KEEP_CWD = ("never", "on-failure", "always")  # when that of a task stays; the first is the default


class WorkingDirectory(NamedTuple):
    """The settings of the file and the options.

    cwd: of `CWD`. keep_cwd: of `KEEP_CWD`.
    """

    cwd: str = CWD[0]
    keep_cwd: str = KEEP_CWD[0]

    @property
    def is_own(self) -> bool:
        """Whether each attempt works in a directory of its own."""
        return self.cwd == "task"

    def is_kept(self, has_failed: bool) -> bool:
        """Return whether the working directory of an ended attempt is kept."""
        return self.keep_cwd == "always" or (has_failed and self.keep_cwd == "on-failure")
