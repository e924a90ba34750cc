"""The spool: the files of each attempt on the node's disk, `[spool]/[task]@1/` for the first one of a
task, and `[spool]/[task]/[attempt]/` for the others.

    task            the task as it was reserved, as JSON: id, fields, token; in a second line the
                    time when it may have begun
    parameters      of a program: its standard input
    stdout, stderr  what the task prints
    stack           the stacks that `blueque stack` asked for, see task_process/stack_dump.py
    times           when which lines were read, see log_tail.py
    progress.live   the progress, see progress_file.py
    progress        the progress of a program, as text
    checkpoint.json, checkpoint/, checkpoint.known
                    where the next attempt could go on, see checkpoint.py
    stop            exists once the task should stop, with the reason in one word; a program that
                    notices it removes it
    asked           exists as long as the task should stop
    notes           what the task has noted for its history, a line each
    result          of a program: its result, if that is not its last line of output
    result.pickle, checkpoint.pickle
                    a result or a checkpoint of a handler that cannot be stored; text is in .txt
    work/           the working directory of the task, if it has one of its own
    exit            how it ended; complete before Redis is told
    status          how its process ended, if that left no exit record
    reported        exists once Redis knows the end, or has refused it
    wanted          exists as well while the next attempt may go on from `checkpoint/`

`[spool]/open/[pid]-[start]` is the file `task` of the attempt that this process runs or ran, until
its end is reported. The task process writes, its listener reads. Nothing here needs Redis, so a
task runs on while Redis is away.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping

from blueque.errors import SpoolRefused
from blueque.model.encoding import count_of, quick_json
from blueque.spool.attempt import Attempt, is_wanted
from blueque.spool.size import Shrunk, allowed, shrink
from blueque.spool.task_spool import RECORD_OVERHEAD, TaskSpool, remove_tree, written_at
from blueque.system import process
from blueque.system.plain_files import remove, write_all

log = logging.getLogger("blueque")

# Room that must be free besides what is set aside, for directories and the first lines of output.
MARGIN = 1024 * 1024
_OWN_NAMES = (
    "open",
    "listeners",
    "resources",
    "blanks",
)  # directories that do not belong to a task
# At the end of the name of a directory that has the first attempt of a task. No other name ends so.
FIRST = "@1"
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}").fullmatch
_to_json = quick_json()


class Spool(TaskSpool):
    """The spool directory of a host, as its listeners use it."""

    def __init__(self, root: str, max_bytes: int, slot: int | None = None) -> None:
        super().__init__(root, max_bytes, slot)
        self._room = 2 * max_bytes + RECORD_OVERHEAD
        # its files hold the parameters at most twice
        self._margin = 2 * max_bytes + MARGIN

    def open(self) -> None:
        """Create the directory if needed; refuse one that other users could read or have created.

        It holds parameters and results, and may be in a shared place such as /tmp.
        """
        try:
            os.makedirs(self.root, mode=0o700, exist_ok=True)
            status = os.lstat(self.root)
        except OSError as error:
            raise SpoolRefused(
                f"spool {self.root}: {error.strerror}; choose another with --spool"
            ) from error
        if not stat.S_ISDIR(status.st_mode):
            raise SpoolRefused(
                f"spool {self.root} is not a directory (nor may it be a symbolic link)"
            )
        if status.st_uid != os.geteuid():
            raise SpoolRefused(
                f"spool {self.root} belongs to user {status.st_uid}, but this process runs as {os.geteuid()}"
            )
        if status.st_mode & 0o077:
            self._make_private(status.st_mode)
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise SpoolRefused(f"spool {self.root} cannot be written to")
        try:
            os.makedirs(self.open_path, mode=0o700, exist_ok=True)
            os.makedirs(self._blanks_path, mode=0o700, exist_ok=True)
        except OSError as error:
            raise SpoolRefused(f"spool {self.open_path}: {error.strerror}") from error

    def _make_private(self, mode: int) -> None:
        """Make an empty directory private; one with files may be shared, such as /tmp."""
        if mode & stat.S_ISVTX or os.listdir(self.root):
            raise SpoolRefused(
                f"spool {self.root} is open to others (mode {stat.S_IMODE(mode):o}) and in use: choose another directory"
            )
        os.chmod(self.root, 0o700)

    def want_of_room(self) -> str | None:
        """Reserve space for the next exit record; return why no attempt should begin now, or None.

        Create the directory again if it was removed, as by a program that cleans /tmp.
        """
        try:
            if not os.path.isdir(self.open_path):
                self.open()
                log.warning("spool %s was removed, and is created again", self.root)
            if not os.path.exists(self._room_path):
                _allocate(self._room_path, self._room)
            disk = os.statvfs(self.root)
        except SpoolRefused as error:
            return str(error)
        except OSError as error:
            return f"spool {self.root}: {error.strerror}; a task needs {self._room + self._margin:,} bytes to begin"
        free = disk.f_bavail * disk.f_frsize
        if free < self._margin:
            return (
                f"spool {self.root} has {free:,} bytes free; a task needs {self._margin:,} to begin"
            )
        if disk.f_files and disk.f_favail < 16:
            return f"spool {self.root} has no room for more files"
        return None

    def close(self) -> None:
        """Release the reserved space, unless a running attempt may need it."""
        self.remove_room(self.slot)

    def remove_room(self, slot: int) -> None:
        """Release the space of a listener that exits or is dead, unless one of its attempts still runs."""
        room = f"{self.root}/room.{slot}"
        if os.path.exists(room) and os.path.basename(room) not in self._rooms_in_use():
            with contextlib.suppress(OSError):
                remove(room)

    def _rooms_in_use(self) -> set[str]:
        """Return the names of the reserved spaces of running attempts."""
        running = (link for pid, ticks, link in self._links() if process.start_ticks(pid) == ticks)
        return {written["room"] for link in running if (written := written_at(link)) is not None}

    def create(self, task_id: str, number: int, fields: Mapping[str, str], pid: int = 0) -> Attempt:
        """Create the directory of an attempt, if possible from `make_blank` for process `pid`; 0:
        there is none.

        Raises OSError.
        """
        attempt = self.attempt(task_id, number)
        if number != 1 or not pid or not self._use_blank(pid, attempt.path):
            if pid:
                self.remove_blank(pid)
            attempt = self._make_directory(task_id, number)
        room = os.path.basename(self._room_path)
        written = {"id": task_id, "path": attempt.path, "room": room, "fields": dict(fields)}
        content = "".join(_to_json(written, 0)).encode("utf-8", "surrogateescape")
        try:
            # Not to be truncated, empty as it is: ext4 takes that for an old file replaced, and
            # writes it out at once.
            descriptor = os.open(f"{attempt.path}/task", os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                write_all(descriptor, content)
            finally:
                os.close(descriptor)
        except OSError:
            remove_tree(attempt.path)
            raise
        attempt.is_new = True
        return attempt

    def _use_blank(self, pid: int, path: str) -> bool:
        try:
            os.rename(f"{self._blanks_path}/{pid}", path)
        except OSError:  # not prepared, or the task has files here already
            return False
        return True

    def _make_directory(self, task_id: str, number: int) -> Attempt:
        attempt = self.attempt(task_id, number)
        directory = f"{self.root}/{_file_name(task_id)}"
        if number == 1:
            try:
                os.mkdir(attempt.path, 0o700)
            except FileExistsError:
                pass
            else:
                return attempt
        try:
            if os.path.lexists(directory) and not stat.S_ISDIR(os.lstat(directory).st_mode):
                remove(directory)  # an earlier attempt has put something else there
            os.mkdir(directory, 0o700)
        except FileExistsError:  # from an earlier attempt
            pass
        path = f"{directory}/{number}"
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:  # a Redis that lost its data counts attempts from 1 again
            path = f"{path}.{os.urandom(4).hex()}"
            os.mkdir(path, 0o700)
        return self.attempt_at(path)

    def attempt(self, task_id: str, number: int) -> Attempt:
        """Return the attempt with this number, in its usual directory."""
        name = _file_name(task_id)
        return self.attempt_at(
            f"{self.root}/{f'{name}{FIRST}' if number == 1 else f'{name}/{number}'}"
        )

    def _attempts_of(self, task_id: str) -> Iterator[Attempt]:
        """Yield the attempts of a task that may be here."""
        name = _file_name(task_id)
        yield self.attempt_at(f"{self.root}/{name}{FIRST}")
        for number in _attempts(f"{self.root}/{name}"):
            yield self.attempt_at(f"{self.root}/{name}/{number}")

    def find(self, task_id: str, token: str | None) -> Attempt | None:
        """Return the attempt with this token; None if it is not in this spool."""
        # The open ones first: the task may have removed its file `task`, but not its other name.
        opened = (attempt for _, _, attempt in self.open_attempts())
        for attempt in (*opened, *self._attempts_of(task_id)):
            try:
                found, fields = attempt.read_task()
            except (OSError, ValueError):
                continue
            if found == task_id and token is not None and fields.get("token") == token:
                return attempt
        return None

    def earlier(self, task_id: str, fields: Mapping[str, str]) -> Iterator[tuple[int, Attempt]]:
        """Yield the earlier attempts of a task with their numbers, newest first. fields: of the attempt."""
        # Of another one by the same key, which was deleted, `created` is another.
        found = [
            (number, attempt.path, attempt)
            for number, created, attempt in self._numbered(task_id)
            if created == fields.get("created") and number < int(fields.get("attempt", "1"))
        ]
        for number, _, attempt in sorted(found, key=lambda one: one[:2], reverse=True):
            yield number, attempt

    def newest(self, task_id: str) -> dict[str | None, int]:
        """Return the number of the newest attempt here, by the `created` of the task.

        At None: of those that still run, or whose end was not reported.
        """
        found: dict[str | None, int] = {}
        path = f"{self.root}/{_file_name(task_id)}"
        if not any(map(os.path.lexists, (f"{path}{FIRST}", path))):
            return found  # this is so for most tasks, and takes less than to look for their files
        for number, created, attempt in self._numbered(task_id):
            is_reported = os.path.lexists(f"{attempt.path}/reported")
            for name in [created or ""] if is_reported else [created or "", None]:
                found[name] = max(number, found.get(name, 0))
        return found

    def _numbered(self, task_id: str) -> Iterator[tuple[int, str | None, Attempt]]:
        """Yield the attempts of a task here: number, `created` of the task, attempt."""
        for attempt in self._attempts_of(task_id):
            try:
                its_id, its = attempt.read_task()
                number = count_of(its.get("attempt"))
            except (OSError, ValueError):
                continue
            if its_id == task_id:
                yield number, its.get("created"), attempt

    def is_in_use(self, path: str) -> bool:
        """Return whether the process of the attempt in this directory still runs."""
        return any(
            attempt.path == path and process.start_ticks(pid) == ticks
            for pid, ticks, attempt in self.open_attempts()
        )

    def open_attempts(self) -> Iterator[tuple[int, int, Attempt]]:
        """Yield each attempt whose end Redis does not know: (pid, start ticks, attempt)."""
        for pid, ticks, link in self._links():
            written = written_at(link)
            if written is not None:
                yield pid, ticks, self.attempt_at(written["path"], link)

    def runs(self, pid: int, ticks: int, attempt: Attempt) -> bool:
        """Return whether the process, if it is alive, runs this attempt.

        A process that takes several tasks may run a later one, or wait for it.
        """
        written = written_at(f"{self.open_path}/{pid}-{ticks}")
        return not attempt.has_exit() if written is None else written["path"] == attempt.path

    def _links(self) -> Iterator[tuple[int, int, str]]:
        """Yield the process of each open attempt, and its file: (pid, start ticks, path)."""
        for name in _attempts(self.open_path):
            pid, _, ticks = name.partition("-")
            if pid.isdecimal() and ticks.isdecimal():
                yield int(pid), int(ticks), f"{self.open_path}/{name}"

    @contextlib.contextmanager
    def only_pruner(self) -> Iterator[bool]:
        """Yield whether this process is the only one that prunes this spool; it stays so for its life.

        Raises OSError.
        """
        import fcntl  # here: Windows has none, and `blueque logs` runs there, too

        root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(root, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
        finally:
            os.close(root)

    def prune(self, before: float, but_wanted: bool = False) -> int:
        """Remove the attempts whose end Redis has known since before that time; return how many.

        but_wanted: keep those that the next attempt may need.
        """
        removed, rooms = 0, self._rooms_in_use()
        for name in _attempts(self._blanks_path):
            pid = name.partition(".")[0]
            if pid.isdecimal() and not process.is_running(int(pid)):
                # its process was killed before it had a task
                remove_tree(f"{self._blanks_path}/{name}")
        for name in os.listdir(self.root):
            path = f"{self.root}/{name}"
            kind, _, pid = name.partition(".")
            if kind == "room" and pid.isdecimal():
                if name not in rooms and not process.is_running(int(pid)):
                    remove(path)  # its listener was killed
                continue
            if name in _OWN_NAMES:
                continue
            for attempt in self._attempts_in(name):
                if _is_older(f"{attempt}/reported", before) and not (
                    but_wanted and is_wanted(attempt)
                ):
                    self._remove_attempt(attempt)
                    removed += 1
        return removed

    def forget(self, attempt: Attempt) -> None:
        """Remove the files of an attempt that has not begun and that Redis does not know."""
        attempt.close()
        self._remove_attempt(attempt.path)

    def shrink(self, limit: float) -> Shrunk:
        """Remove attempts whose end Redis knows, oldest first, until the spool is within the limit.

        Those that the next attempt may need are removed last.
        limit: bytes, or below 1 a share of the disk.
        """
        return shrink(self._attempts(), allowed(self.root, limit), self._remove_attempt)

    def _remove_attempt(self, path: str) -> None:
        """Remove the directory of an attempt in one step: other processes see all of it or nothing."""
        gone = f"{self._blanks_path}/{os.getpid()}.gone"
        remove_tree(gone)
        try:
            os.rename(path, gone)
        except OSError:
            gone = path
        remove_tree(gone)
        if (directory := os.path.dirname(path)) != self.root:
            with contextlib.suppress(OSError):  # the task has other attempts here
                os.rmdir(directory)

    def _attempts(self) -> Iterator[str]:
        """Yield the directory of every attempt, without prepared ones."""
        for name in os.listdir(self.root):
            if name not in _OWN_NAMES and not name.startswith("room."):
                yield from self._attempts_in(name)

    def _attempts_in(self, name: str) -> list[str]:
        """Return the directories of the attempts under this name: of one or several of a task."""
        path = f"{self.root}/{name}"
        if name.endswith(FIRST):
            return [path]
        return [f"{path}/{attempt}" for attempt in _attempts(path)]


def number_of(path: str) -> int | None:
    """Return the number of the attempt in this directory; None if its name does not say so."""
    name = os.path.basename(path)
    return 1 if name.endswith(FIRST) else int(name) if name.isdecimal() else None


def paths_beside(path: str, number: int) -> list[str]:
    """Return where another attempt of the same task may be. path: the directory of one."""
    task = path.removesuffix(FIRST) if path.endswith(FIRST) else os.path.dirname(path)
    return ([f"{task}{FIRST}"] if number == 1 else []) + [f"{task}/{number}"]


def _file_name(task_id: str) -> str:
    """Return the id, or a safe name for it: an id of another program may be any text."""
    is_free = task_id not in _OWN_NAMES and not task_id.startswith("room.")
    if is_free and _ID(task_id):
        return task_id
    import hashlib  # here: what a listener imports, each of its forks copies

    return "id-" + hashlib.sha256(task_id.encode("utf-8", "surrogateescape")).hexdigest()


def _attempts(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:  # not a directory, or gone
        return []


def _is_older(path: str, before: float) -> bool:
    try:
        return os.lstat(path).st_mtime < before
    except OSError:
        return False


def _allocate(path: str, size: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)
