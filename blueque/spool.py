"""The spool: the files of each attempt on the node's disk, `[spool]/[task]/[attempt]/`.

    task            the task as it was reserved: its id and fields, as JSON
    parameters      of a program: what was enqueued, as it gets it on its standard input
    stdout, stderr  what the task prints
    began           there once the task may have begun: the gate had opened
    result          of a program: its result, if it does not print it as its last line
    exit            how it ended; written in full before anybody tells Redis
    reported        there once Redis knows, or has refused to

The task process writes, its listener reads. Nothing here needs Redis, so a task runs on while Redis is away.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Mapping
from typing import Any

from blueque import process
from blueque.errors import SpoolRefused

# Room that must be free besides what is set aside, for directories, `began` and the first lines of output.
MARGIN = 1024 * 1024
# An exit record holds the result as a JSON string (at worst most characters escaped once), an error and a traceback.
RECORD_OVERHEAD = 128 * 1024


class Spool:
    """The spool directory of a node.

    max_bytes: the largest result that an exit record must have room for.
    """

    def __init__(self, root: str, max_bytes: int) -> None:
        self.root = os.path.abspath(root)
        self._room = 2 * max_bytes + RECORD_OVERHEAD
        self._margin = 2 * max_bytes + MARGIN          # the files of the task hold the parameters twice at most
        self._room_path = f"{self.root}/room.{os.getpid()}"

    def open(self) -> None:
        """Make the directory if need be; refuse one that others could read or have made.

        Parameters and results lie in it, and in a shared place such as /tmp somebody else may have been there first.
        """
        try:
            os.makedirs(self.root, mode=0o700, exist_ok=True)
            status = os.lstat(self.root)
        except OSError as error:
            raise SpoolRefused(f"spool {self.root}: {error.strerror}; choose another with --spool") from error
        if not stat.S_ISDIR(status.st_mode):
            raise SpoolRefused(f"spool {self.root} is not a directory (nor may it be a symbolic link)")
        if status.st_uid != os.geteuid():
            raise SpoolRefused(f"spool {self.root} belongs to user {status.st_uid}, not to us ({os.geteuid()})")
        if status.st_mode & 0o077:
            self._make_private(status.st_mode)
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise SpoolRefused(f"spool {self.root} cannot be written to")

    def _make_private(self, mode: int) -> None:
        """Close an empty directory to others; one with something in it may be anybody's, such as /tmp."""
        if mode & stat.S_ISVTX or os.listdir(self.root):
            raise SpoolRefused(
                f"spool {self.root} is open to others (mode {stat.S_IMODE(mode):o}) and in use: choose another directory"
            )
        os.chmod(self.root, 0o700)

    def want_of_room(self) -> str | None:
        """Set aside room for the next exit record; return why no attempt should begin now, in a sentence, or None."""
        try:
            if not os.path.exists(self._room_path):
                _allocate(self._room_path, self._room)
            disk = os.statvfs(self.root)
        except OSError as error:
            return f"spool {self.root}: {error.strerror}; a task needs {self._room + self._margin:,} bytes to begin"
        free = disk.f_bavail * disk.f_frsize
        if free < self._margin:
            return f"spool {self.root} has {free:,} bytes free; a task needs {self._margin:,} to begin"
        if disk.f_files and disk.f_favail < 16:
            return f"spool {self.root} has no room for more files"
        return None

    def close(self) -> None:
        """Give back the room that was set aside."""
        _remove(self._room_path)

    def create(self, task_id: str, number: int, fields: Mapping[str, str]) -> Attempt:
        """Make the directory of an attempt. Raises OSError."""
        attempt = self.attempt(task_id, number)
        try:
            os.mkdir(os.path.dirname(attempt.path), 0o700)
        except FileExistsError:                        # of an earlier attempt
            pass
        try:
            os.mkdir(attempt.path, 0o700)
        except FileExistsError:                        # a Redis that lost its data counts attempts from the start again
            os.rename(attempt.path, f"{attempt.path}.{os.urandom(4).hex()}")
            os.mkdir(attempt.path, 0o700)
        content = json.dumps({"id": task_id, "fields": dict(fields)}, ensure_ascii=False)
        try:
            with open(f"{attempt.path}/task", "wb") as file:
                file.write(content.encode("utf-8", "surrogateescape"))
        except OSError:
            _remove(f"{attempt.path}/task")
            os.rmdir(attempt.path)
            raise
        return attempt

    def attempt(self, task_id: str, number: int) -> Attempt:
        return self.attempt_at(f"{self.root}/{_file_name(task_id)}/{number}")

    def attempt_at(self, path: str) -> Attempt:
        return Attempt(path, self._room_path)

    def prune(self, before: float) -> int:
        """Remove the attempts whose end Redis has known since before that time; return how many."""
        import shutil  # here: what a listener imports, each of its forks copies

        removed = 0
        for name in os.listdir(self.root):
            path = f"{self.root}/{name}"
            kind, _, pid = name.partition(".")
            if kind == "room" and pid.isdecimal():
                if not process.is_running(int(pid)):
                    _remove(path)                      # its listener was killed
                continue
            old = [attempt for attempt in _attempts(path) if _is_older(f"{path}/{attempt}/reported", before)]
            for attempt in old:
                shutil.rmtree(f"{path}/{attempt}", ignore_errors=True)
            if old:
                removed += len(old)
                try:
                    os.rmdir(path)                     # only succeeds when it is empty
                except OSError:
                    pass
        return removed


class Attempt:
    """The files of one attempt, in the directory `path`.

    room: a file of allocated blocks that the exit record may take over when the disk is full.
    """

    def __init__(self, path: str, room: str) -> None:
        self.path = path
        self._room = room

    def read_task(self) -> tuple[str, dict[str, str]]:
        """Return the id and the fields of the task as it was reserved."""
        with open(f"{self.path}/task", "rb") as file:
            written = json.loads(file.read().decode("utf-8", "surrogateescape"))
        return written["id"], written["fields"]

    def write_parameters(self, text: str) -> str:
        """Write what a program gets on its standard input, and return the path."""
        path = f"{self.path}/parameters"
        with open(path, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        return path

    def begin(self) -> None:
        _touch(f"{self.path}/began")

    def has_begun(self) -> bool:
        return os.path.exists(f"{self.path}/began")

    def write_exit(self, record: Mapping[str, Any]) -> None:
        """Write how the attempt ended: whole and on the disk, or not at all.

        record: status (complete or failed); result and result_encoding, or error; error_type, traceback, exit_code,
        signal where they apply; finished, in Unix seconds.
        """
        content = json.dumps(record, ensure_ascii=False).encode("utf-8", "backslashreplace")
        new = f"{self.path}/exit.new"
        try:
            _write(new, content)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            os.rename(self._room, new)                 # its blocks are ours already: a full disk cannot refuse them
            _write(new, content)
        os.rename(new, f"{self.path}/exit")

    def read_exit(self) -> dict[str, Any] | None:
        """Return how the attempt ended, or None when it left no record."""
        # exit.new: a power failure may have undone the rename, but not what was synced. It is JSON only when it is whole.
        for name in ("exit", "exit.new"):
            try:
                with open(f"{self.path}/{name}", "rb") as file:
                    record = json.loads(file.read())
            except (OSError, ValueError):
                continue
            if isinstance(record, dict) and "status" in record:
                return record
        return None

    def mark_reported(self) -> None:
        """Note that Redis knows the end: from now on the directory may be pruned."""
        _touch(f"{self.path}/reported")

    def tail(self, name: str, size: int) -> str:
        """Return the last bytes of a file as text; empty when there is no such file."""
        try:
            with open(f"{self.path}/{name}", "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - size))
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""


def _file_name(task_id: str) -> str:
    """Return the id, or something safe in its place: another program may have put any text in the queue."""
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", task_id) and not task_id.startswith("room."):
        return task_id
    import hashlib  # here: what a listener imports, each of its forks copies

    return "id-" + hashlib.sha256(task_id.encode("utf-8", "surrogateescape")).hexdigest()


def _attempts(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:                                    # not a directory, or gone
        return []


def _is_older(path: str, before: float) -> bool:
    try:
        return os.stat(path).st_mtime < before
    except OSError:
        return False


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _allocate(path: str, size: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def _write(path: str, content: bytes) -> None:
    """Write over what is there, and wait until it is on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        written = 0
        while written < len(content):
            written += os.pwrite(descriptor, content[written:], written)
        if os.fstat(descriptor).st_size > len(content):
            os.ftruncate(descriptor, len(content))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
