"""TaskSpool: the part of the spool that a task process uses. spool.py describes the files.

It imports neither `logging` nor `threading`: both do work in each forked process.
"""

from __future__ import annotations

import os
from typing import Any

from blueque.spool.attempt import Attempt, parse_task
from blueque.system import plain_files, process

# An exit record holds the result as a JSON string (at worst most characters escaped once), with new
# tasks in at most the same room, or an error and a traceback.
RECORD_OVERHEAD = 128 * 1024


class Blank:
    """A directory for the next attempt, in `path`. files: its stdout and stderr, open."""

    def __init__(self, directory: str, path: str, files: list[int]) -> None:
        self._directory, self.path, self.files = directory, path, files

    def give_to(self, pid: int | None) -> None:
        """Give it to the attempt that this process runs: completely or not at all. None: remove it."""
        try:
            if pid is not None:
                os.rename(self.path, f"{self._directory}/{pid}")
                return
        except OSError:  # of an earlier process with this pid; the attempt makes its own
            pass
        remove_tree(self.path)

    def close(self) -> None:
        """Close the files here."""
        for file in self.files:
            os.close(file)


class TaskSpool:
    """The spool directory of a host, and the space that one listener has reserved in it.

    max_bytes: the largest result that an exit record must hold.
    slot: the pid of the listener that reserves the space; None: this process.
    """

    def __init__(self, root: str, max_bytes: int, slot: int | None = None) -> None:
        self.root = os.path.abspath(root)
        self.max_bytes = max_bytes
        self.slot = slot or os.getpid()
        self.is_synced = True  # see Attempt
        self.open_path = f"{self.root}/open"
        self._blanks_path = f"{self.root}/blanks"
        self._room_path = f"{self.root}/room.{self.slot}"

    def attempt_at(self, path: str, link: str | None = None) -> Attempt:
        return Attempt(path, self._room_path, link, self.is_synced)

    def reap(self, pid: int) -> process.Reaped:
        """Reap a child that has ended, and record how, see `note_ending`.

        This is also done before, without its memory: whenever we are killed or stopped, there is a
        record or a process that its next parent reaps.
        """
        ticks = process.start_ticks(pid) or 0
        if (seen := process.ending_of_zombie(pid, ticks)) is not None:
            self.note_ending(pid, ticks, seen)
        reaped = process.wait_usage(pid)
        self.note_ending(pid, ticks, reaped)
        return reaped

    def note_ending(self, pid: int, ticks: int, reaped: process.Reaped) -> None:
        """Record how a process ended, if it has begun an attempt and left no exit record.

        The listener that watches the attempt reads it.
        """
        link = f"{self.open_path}/{pid}-{ticks}"
        written = written_at(link)
        if written is None:
            return
        attempt = self.attempt_at(written["path"], link)
        if attempt.has_begun() and not attempt.has_exit():
            attempt.write_ending(reaped._asdict())

    def make_blank(self, name: str) -> Blank | None:
        """Prepare a directory with the files of each attempt, for the next task. None: that failed,
        and `Spool.create` does it.

        name: of the directory until `Blank.give_to`, unused elsewhere. Creating files is slow,
            renaming a directory is not: on ext4 a waiting process is ready for its task in 0.45 ms
            instead of 0.8 ms.
        """
        path = f"{self._blanks_path}/{name}.new"
        files: list[int] = []
        try:
            os.mkdir(path, 0o700)
            for empty in ("task", "exit.new"):
                os.close(os.open(f"{path}/{empty}", os.O_WRONLY | os.O_CREAT, 0o600))
            for stream in ("stdout", "stderr"):
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
                files.append(os.open(f"{path}/{stream}", flags, 0o600))
        except OSError:
            for file in files:
                os.close(file)
            return None
        return Blank(self._blanks_path, path, files)

    def remove_blank(self, pid: int) -> None:
        """Remove what `make_blank` has prepared for process `pid`, if it was not used."""
        for path in (f"{self._blanks_path}/{pid}", f"{self._blanks_path}/{pid}.new"):
            if os.path.lexists(path):
                remove_tree(path)


def written_at(path: str) -> dict[str, Any] | None:
    """Return the content of a file `task`, see `parse_task`; None: it is gone or malformed."""
    try:
        return parse_task(plain_files.read(path))
    except (OSError, ValueError):
        return None


def remove_tree(path: str) -> None:
    """Remove a directory tree, as far as possible."""
    for _ in plain_files.remove_by_steps(path):
        pass
