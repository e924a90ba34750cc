"""The spool: the files of each attempt on the node's disk, `[spool]/[task]/[attempt]/`.

    parameters      what was enqueued, as text
    stdout, stderr  what the task prints
    began           there once the task may have begun: the gate had opened
    result          of a program: its result, if it does not print it as its last line
    exit            how it ended; written in full before anybody tells Redis
    reported        there once Redis knows

The task process writes, its listener reads. Nothing here needs Redis, so a task runs on while Redis is away.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blueque.errors import BluequeError

# Room that must be free besides what is set aside, for directories, `began` and the first lines of output.
MARGIN = 1024 * 1024
# An exit record holds the result as a JSON string (at worst most characters escaped once), an error and a traceback.
RECORD_OVERHEAD = 128 * 1024


class SpoolRefused(BluequeError):
    """The spool directory cannot be used."""


class Spool:
    """The spool directory of a node.

    max_bytes: the largest result that an exit record must have room for.
    """

    def __init__(self, root: str | os.PathLike[str], max_bytes: int) -> None:
        self.root = Path(root).absolute()
        self.room = 2 * max_bytes + RECORD_OVERHEAD

    def open(self) -> None:
        """Make the directory if need be; refuse one that others could read or have made.

        Parameters and results lie in it, and in a shared place such as /tmp somebody else may have been there first.
        """
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.root.lstat()
        except OSError as error:
            raise SpoolRefused(f"spool {self.root}: {error.strerror}; choose another with --spool") from error
        if not stat.S_ISDIR(status.st_mode):
            raise SpoolRefused(f"spool {self.root} is not a directory (nor may it be a symbolic link)")
        if status.st_uid != os.geteuid():
            raise SpoolRefused(f"spool {self.root} belongs to user {status.st_uid}, not to us ({os.geteuid()})")
        if status.st_mode & 0o077:
            self.root.chmod(0o700)
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise SpoolRefused(f"spool {self.root} cannot be written to")

    def want_of_room(self) -> str | None:
        """Return why no attempt should begin now, in a sentence, or None."""
        try:
            disk = os.statvfs(self.root)
        except OSError as error:
            return f"spool {self.root}: {error.strerror}"
        free = disk.f_bavail * disk.f_frsize
        if free < self.room + MARGIN:
            return f"spool {self.root} has {free:,} bytes free; {self.room + MARGIN:,} are needed to begin a task"
        if disk.f_files and disk.f_favail < 16:
            return f"spool {self.root} has no room for more files"
        return None

    def create(self, task_id: str, number: int, parameters: str) -> Attempt:
        """Make the directory of an attempt, with room set aside for its exit record. Raises OSError."""
        attempt = self.attempt(task_id, number)
        attempt.path.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            attempt.path.mkdir(mode=0o700)
        except FileExistsError:                        # a Redis that lost its data counts attempts from the start again
            attempt.path.rename(f"{attempt.path}.{os.urandom(4).hex()}")
            attempt.path.mkdir(mode=0o700)
        (attempt.path / "parameters").write_bytes(parameters.encode("utf-8", "surrogateescape"))
        attempt.set_aside(self.room)
        return attempt

    def attempt(self, task_id: str, number: int) -> Attempt:
        return Attempt(self.root / _file_name(task_id) / str(number))

    def prune(self, before: float) -> int:
        """Remove the attempts whose end Redis has known since before that time; return how many."""
        import shutil  # here: what a listener imports, each of its forks copies

        removed = 0
        for task in self.root.iterdir():
            for path in task.iterdir() if task.is_dir() else ():
                try:
                    is_old = (path / "reported").stat().st_mtime < before
                except OSError:
                    continue
                if is_old:
                    shutil.rmtree(path, ignore_errors=True)
                    removed += 1
            try:
                task.rmdir()                           # only succeeds when it is empty
            except OSError:
                pass
        return removed


class Attempt:
    """The files of one attempt."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def set_aside(self, size: int) -> None:
        """Reserve room for the exit record now, while there is some."""
        descriptor = os.open(self.path / "exit.room", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)

    def begin(self) -> None:
        (self.path / "began").touch(mode=0o600)

    def has_begun(self) -> bool:
        return (self.path / "began").exists()

    def write_exit(self, record: Mapping[str, Any]) -> None:
        """Write how the attempt ended: whole and on the disk, or not at all.

        record: status (complete or failed); result and result_encoding, or error; error_type, traceback, exit_code,
        signal where they apply.
        """
        content = json.dumps(record, ensure_ascii=False).encode("utf-8", "backslashreplace")
        room = self.path / "exit.room"
        descriptor = os.open(room, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            written = 0
            while written < len(content):              # over what was set aside, which a full disk cannot refuse
                written += os.pwrite(descriptor, content[written:], written)
            os.ftruncate(descriptor, len(content))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        room.rename(self.path / "exit")
        _sync_directory(self.path)

    def read_exit(self) -> dict[str, Any] | None:
        """Return how the attempt ended, or None when it left no record."""
        try:
            record = json.loads((self.path / "exit").read_bytes())
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) and "status" in record else None

    def mark_reported(self) -> None:
        """Note that Redis knows the end: from now on the directory may be pruned."""
        (self.path / "reported").touch(mode=0o600)
        (self.path / "exit.room").unlink(missing_ok=True)

    def tail(self, name: str, size: int) -> str:
        """Return the last bytes of a file as text; empty when there is no such file."""
        try:
            with (self.path / name).open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - size))
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""


def _file_name(task_id: str) -> str:
    """Return the id, or something safe in its place: another program may have put any text in the queue."""
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", task_id):
        return task_id
    return "id-" + hashlib.sha256(task_id.encode("utf-8", "surrogateescape")).hexdigest()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
