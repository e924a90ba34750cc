"""TaskSpool: what a task process needs of the spool. spool.py describes the files.

It imports neither `logging` nor `threading`: both do work in each forked process.
"""

from __future__ import annotations

import os

from blueque.spool.attempt import Attempt

# An exit record holds the result as a JSON string (at worst most characters escaped once), an error
# and a traceback.
RECORD_OVERHEAD = 128 * 1024


class TaskSpool:
    """The spool directory of a host, and the space that one listener has reserved in it.

    max_bytes: the largest result that an exit record must hold.
    slot: the pid of the listener that reserves the space; None: this process.
    """

    def __init__(self, root: str, max_bytes: int, slot: int | None = None) -> None:
        self.root = os.path.abspath(root)
        self.max_bytes = max_bytes
        self.slot = slot or os.getpid()
        self.open_path = f"{self.root}/open"
        self._blanks_path = f"{self.root}/blanks"
        self._room_path = f"{self.root}/room.{self.slot}"

    def attempt_at(self, path: str, link: str | None = None) -> Attempt:
        return Attempt(path, self._room_path, link)

    def make_blank(self) -> str | None:
        """Prepare a directory with the files of each attempt, for the next task; return it, or None.

        Creating files is slow, renaming a directory is not. If this fails, `Spool.create` does it.
        """
        path = f"{self._blanks_path}/{os.getpid()}"
        try:
            os.mkdir(f"{path}.new", 0o700)
            os.mkdir(f"{path}.new/1", 0o700)
            for name in ("task", "stdout", "stderr"):
                os.close(os.open(f"{path}.new/1/{name}", os.O_WRONLY | os.O_CREAT, 0o600))
            os.rename(f"{path}.new", path)  # completely or not at all
        except OSError:
            return None
        return f"{path}/1"

    def remove_blank(self, pid: int) -> None:
        """Remove what `make_blank` has prepared in process `pid`, if it was not used."""
        for path in (f"{self._blanks_path}/{pid}", f"{self._blanks_path}/{pid}.new"):
            if os.path.lexists(path):
                remove_tree(path)


def remove_tree(path: str) -> None:
    """Remove a directory and what is in it, as far as that is possible."""
    import shutil  # here: what a listener imports, each of its forks copies

    try:
        shutil.rmtree(path, ignore_errors=True)
    except RecursionError:  # directories a thousand levels deep stay
        pass
