"""The files of one attempt in its directory; spool.py describes them.

Creating a file takes 20 times as long as adding a name to one. So the file `task` has several uses:
it also has the names `reported`, `wanted` and `open/[pid]-[start]`, and a second line once the task
has begun.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from typing import Any

from blueque.model.encoding import quick_json, seconds_of
from blueque.spool import progress_file
from blueque.spool.exit_record import usable, usable_ending
from blueque.system import plain_files
from blueque.system.plain_files import (
    NotPlain,
    remove,
    remove_by_steps,
    replace,
    write_all,
    write_whole,
)
from blueque.text.format import one_line

MAX_BEGINNING = 64  # bytes at the end of `task` that say when it began
STOP = "stop"  # the file that asks the task to come to an end
WANTED = "wanted"  # the file that says that the next attempt may go on from here
INPUTS = "inputs"  # the results of the tasks that the task waited for, as JSON
ASKED = "asked"  # exists as long as it is asked, even if it has removed `stop`
STACK = "stack"  # the stacks that were asked for
NOTES = "notes"  # what the task has noted for its history, a line each
MAX_NOTES = 20  # of an attempt that go there
_MOST_OF_NOTES = 32 * 1024  # bytes
CWD = "work"  # the working directory of the task, if it has one of its own
MAX_PROGRESS = 1000  # bytes of the file `progress` that are read
# files of an attempt that says nothing
_OF_EACH = frozenset({"task", "stdout", "stderr", "exit", "exit.new"})
_LATEST = 1e11  # seconds since 1970 that a time may be
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_FULL = (errno.ENOSPC, errno.EDQUOT)  # of a disk
_to_json = quick_json()


class Attempt:
    """The files of one attempt, in the directory `path`.

    room: a file of allocated blocks that the exit record may take over when the disk is full.
    link: its other name in `open`, while Redis does not know the end of the attempt; None: there is none.
    is_synced: whether the exit record must be on the disk when it is written.
    """

    def __init__(
        self, path: str, room: str, link: str | None = None, is_synced: bool = True
    ) -> None:
        self.path, self._is_synced = path, is_synced
        self._room = room
        self._link = link
        self._exit: tuple[int, tuple[int, int]] | None = None  # see `open_exit`
        self.is_new = False  # we have created it, and its process has not begun yet
        self._is_begun = False  # known to have begun
        self._left: bool | None = None  # see `has_left_files`
        self.unreadable: set[str] = set()  # kinds of files whose failure has been logged

    def read_task(self) -> tuple[str, dict[str, str]]:
        """Return the id and the fields of the task as it was reserved. Raises OSError, ValueError."""
        written = parse_task(plain_files.read(self._task_file))
        return written["id"], written["fields"]

    @property
    def _task_file(self) -> str:
        """The file `task`, if possible under the name that the task cannot change."""
        return self._link or f"{self.path}/task"

    def write_parameters(self, text: str) -> str:
        """Write the standard input of a program, and return the path."""
        path = f"{self.path}/parameters"
        write_whole(path, text.encode("utf-8", "surrogateescape"), is_synced=False)
        return path

    def write_inputs(self, text: str) -> None:
        """Write the results that the task gets, as a JSON object. Raises OSError."""
        content = text.encode("utf-8", "surrogateescape")
        write_whole(f"{self.path}/{INPUTS}", content, is_synced=False)

    def make_cwd(self) -> None:
        """Make the working directory of the task. Raises OSError."""
        os.makedirs(f"{self.path}/{CWD}", mode=0o700, exist_ok=True)

    def has_cwd(self) -> bool:
        """Return whether the task has, or has had, a working directory of its own."""
        return self.has_left_files() and os.path.lexists(f"{self.path}/{CWD}")

    def remove_cwd(self) -> Iterator[None]:
        """Remove the working directory of the task, and yield after each file: there may be many."""
        self._left = None
        yield from remove_by_steps(f"{self.path}/{CWD}")

    def begin(self, used_before: float = 0.0) -> None:
        """Record that the task may begin, with the monotonic time of this boot.

        used_before: seconds of CPU time that its process has used for earlier tasks.
        """
        before = b" %.2f" % used_before if used_before else b""
        descriptor = plain_files.open_plain(f"{self.path}/task", os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, b"\n%.3f%b" % (time.monotonic(), before))
        finally:
            os.close(descriptor)

    def began_at(self) -> float | None:
        """Return when it began, on the monotonic clock; None if it has not, or that is not recorded."""
        try:
            began = float((self._beginning() or "").partition(" ")[0])
        except ValueError:
            return None
        now = time.monotonic()
        return min(began, now) if 0 <= began <= now + 1 else None  # else the task has written there

    def used_before(self) -> float:
        """Return the seconds of CPU time that its process had used before; 0.0 if unknown."""
        try:
            used = float((self._beginning() or "").partition(" ")[2])
        except ValueError:
            return 0.0
        return used if 0 <= used < float("inf") else 0.0  # else the task has written there

    def has_begun(self) -> bool:
        """Return whether the task has begun to run; True if unknown."""
        self._is_begun = self._is_begun or self._beginning() is not None
        return self._is_begun

    def note_begun(self) -> None:
        """Record that its process has left its exit record."""
        self._is_begun = True

    def _beginning(self) -> str | None:
        """Return the last line of the file `task`; None: it has one line, as `Spool.create` left it."""
        try:
            end = plain_files.tail(self._task_file, MAX_BEGINNING)
            _, separator, text = end.rpartition(b"\n")
            if separator:
                return text.decode("utf-8", "replace")
            content = plain_files.read(self._task_file)
            parse_task(content)
        except (OSError, ValueError):
            # the task has written there, or it is unknown: it may have begun
            return ""
        return "" if b"\n" in content else None  # "": it has begun, and has written after that

    def has_ended(self) -> bool:
        """Return whether its end is recorded."""
        with contextlib.suppress(OSError):
            if os.stat(f"{self.path}/exit.new").st_size > 0:
                return True
        return any(os.path.exists(f"{self.path}/{name}") for name in ("exit", "status"))

    def open_exit(self) -> None:
        """Open the file of the exit record before the task runs, which may drop the right to do so.

        If that fails, it is tried again at the end.
        """
        with contextlib.suppress(OSError):
            file = plain_files.open_plain(f"{self.path}/exit.new", os.O_WRONLY | os.O_CREAT)
            self._exit = file, plain_files.identity(file)

    def write_exit(self, record: Mapping[str, Any]) -> None:
        """Write how the attempt ended, completely and synced to the disk, or not at all.

        record: status (complete or failed); result and result_encoding, or error; error_type,
        traceback, exit_code, signal where they apply; finished, in Unix seconds.
        """
        content = "".join(_to_json(dict(record), 0)).encode("utf-8", "backslashreplace")
        path = f"{self.path}/exit"
        if self._write_open_exit(content, path):
            return
        try:
            descriptor = os.open(path, _NEW, 0o600)
        except FileExistsError:  # it stays as it is until the new one is whole
            self._replace_exit(content, path)
            return
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._use_room(content, path)
            return
        try:
            write_all(descriptor, content)
            if self._is_synced:
                os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._use_room(content, path)
        finally:
            os.close(descriptor)

    def _write_open_exit(self, content: bytes, path: str) -> bool:
        """Write to the file of `open_exit`; False: the task has closed or removed it."""
        file, identity = self._exit or (-1, None)
        self._exit = None
        try:
            if identity is None or plain_files.identity(file) != identity:
                return False
            if os.fstat(file).st_nlink == 0:
                return False
            os.ftruncate(file, 0)
        except OSError:
            return False
        try:
            write_all(file, content)
            if self._is_synced:
                os.fsync(file)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._use_room(content, path)
        else:
            with contextlib.suppress(
                OSError
            ):  # no right to do so: it is read under this name as well
                replace(f"{path}.new", path)
        finally:
            os.close(file)
        return True

    def _replace_exit(self, content: bytes, path: str) -> None:
        new = f"{path}.new"
        try:
            write_whole(new, content, self._is_synced)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._use_room(content, new)
        replace(new, path)

    def _use_room(self, content: bytes, path: str) -> None:
        """Write to a file of allocated blocks, for which the disk may be full."""
        os.rename(self._room, path)
        write_whole(path, content)

    def read_exit(self) -> dict[str, Any] | None:
        """Return how the attempt ended; None if it left no record. Raises OSError if unreadable."""
        # exit.new: the task had given up the right to rename it, or a power failure has undone the
        # rename, but not what was synced. It is JSON only when it is whole.
        for name in ("exit", "exit.new"):
            content = _read_json(f"{self.path}/{name}")
            record = usable(content) if content is not None else None
            if record is not None:
                return record
        return None

    def has_exit(self) -> bool:
        """Return whether there is a readable record of its end."""
        try:
            return self.read_exit() is not None
        except OSError:
            return False

    def open(self, directory: str, pid: int, ticks: int) -> None:
        """Record which process will run it, so that the end of that process can be attributed."""
        self._link = f"{directory}/{pid}-{ticks}"
        try:
            os.link(f"{self.path}/task", self._link)
        except FileExistsError:  # of another boot, with the same numbers
            remove(self._link)
            os.link(f"{self.path}/task", self._link)

    @property
    def process(self) -> tuple[int, int]:
        """The process that runs or ran it: pid and start ticks.

        (0, 0) when the end has been reported, or no process is noted.
        """
        pid, _, ticks = os.path.basename(self._link or "").partition("-")
        return (int(pid), int(ticks)) if pid.isdecimal() and ticks.isdecimal() else (0, 0)

    @property
    def is_open(self) -> bool:
        """Whether it has its other name in `open`."""
        return self._link is not None

    def mark_reported(self, is_wanted: bool = False) -> None:
        """Record that Redis knows the end: from now on the directory may be pruned.

        is_wanted: the next attempt may need its files, so it is pruned last.
        """
        try:
            if is_wanted and not self.is_wanted():
                self._mark(WANTED)
            if self._mark_last("reported"):
                os.utime(f"{self.path}/reported", follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError, NotPlain):
            pass  # the task has removed its directory: nothing to prune
        except PermissionError:  # the task has made its directory unwritable: waiting does not help
            self.close()
            raise
        self.close()

    def _mark(self, name: str) -> bool:
        """Add this name to the file `task`; False: it exists. Raises OSError."""
        path = f"{self.path}/{name}"
        try:
            os.link(self._task_file, path)
        except FileExistsError:
            return False
        except OSError:  # the task has removed it, or put a directory there
            try:
                os.close(plain_files.open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return False
        return True

    def _mark_last(self, name: str) -> bool:
        """Do the same, and remove its name in `open`, if possible in one step."""
        path = f"{self.path}/{name}"
        if self._link is not None and not os.path.lexists(path):
            try:
                os.rename(self._link, path)
            except OSError:  # the task has removed its directory, or put something else there
                return self._mark(name)
            self._link = None
            return True
        return self._mark(name)

    def has_left_files(self) -> bool:
        """Return whether an ended attempt has left output or files of its own. Checks once."""
        if self._left is None:
            self._left = self._looks_full()
        return self._left

    def _looks_full(self) -> bool:
        try:
            if not _OF_EACH.issuperset(os.listdir(self.path)):
                return True
            return any(os.lstat(f"{self.path}/{name}").st_size for name in ("stdout", "stderr"))
        except OSError:
            return True

    def is_wanted(self) -> bool:
        """Return whether the next attempt may continue from the directory."""
        return is_wanted(self.path)

    def release(self) -> None:
        """Record that no attempt needs the directory any more."""
        remove(f"{self.path}/{WANTED}")

    def close(self) -> None:
        """Remove it from the attempts whose end Redis does not know."""
        if self._link is not None:
            remove(self._link)
            self._link = None

    def write_ending(self, ending: Mapping[str, Any]) -> None:
        """Record how the process ended, as its reaper saw it, for the listener that reports it."""
        try:
            write_whole(f"{self.path}/status.new", json.dumps(ending).encode())
            replace(f"{self.path}/status.new", f"{self.path}/status")
        except OSError:  # a full disk: its end is then not known, and it counts as lost
            with contextlib.suppress(OSError):
                remove(f"{self.path}/status.new")

    def read_ending(self) -> dict[str, Any] | None:
        """Return what its reaper recorded, see `process.Reaped`; None if missing or unreadable."""
        try:
            content = _read_json(f"{self.path}/status")
        except OSError:
            return None
        return usable_ending(content) if content is not None else None

    def ask_to_stop(self, reason: str) -> None:
        """Ask the task to stop, with a reason in one word. Raises OSError."""
        if self.has_taken_notice():  # another file would look as if it had not
            return
        path = f"{self.path}/{STOP}"
        try:
            write_whole(f"{path}.new", f"{reason}\n".encode(), is_synced=False)
            replace(f"{path}.new", path)
        except OSError:  # a full disk has room for a name
            self._mark(STOP)
        self._mark(ASKED)

    def withdraw_stop(self) -> None:
        """Withdraw the request to stop, unless the task has noticed it. Raises OSError."""
        try:
            os.unlink(f"{self.path}/{STOP}")
        except FileNotFoundError:
            return
        except IsADirectoryError:
            remove(f"{self.path}/{STOP}")
        remove(f"{self.path}/{ASKED}")

    def has_taken_notice(self) -> bool:
        """Return whether the task was asked to stop and has removed the file `stop`."""
        return os.path.exists(f"{self.path}/{ASKED}") and not os.path.exists(f"{self.path}/{STOP}")

    def told(self) -> progress_file.Told | None:
        """Return the last progress of `task.progress`, a new value for each report; None: none."""
        return progress_file.read(self.path)

    def wrote_progress(self) -> float | None:
        """Return when the file `progress` was last written, in Unix seconds; None: never."""
        try:
            status = os.stat(f"{self.path}/progress")
        except OSError:
            return None
        return status.st_mtime if stat.S_ISREG(status.st_mode) else None

    def read_progress(self) -> str:
        """Return the content of the file `progress` as one line; empty if there is none."""
        try:
            said = plain_files.head(f"{self.path}/progress", MAX_PROGRESS, may_be_link=True)
        except OSError:
            return ""
        return one_line(said.decode("utf-8", "replace"))

    def write_note(self, text: str, at: float) -> bool:
        """Add a note. False: it is empty, or an attempt may not have so many. Raises OSError."""
        if not (said := one_line(text)) or len(self._note_lines(is_over=True)) >= MAX_NOTES:
            return False
        line = f"{at:.3f}\t{said}\n".encode("utf-8", "replace")
        descriptor = plain_files.open_plain(
            f"{self.path}/{NOTES}", os.O_WRONLY | os.O_APPEND | os.O_CREAT
        )
        try:
            return os.write(descriptor, line) == len(line)
        finally:
            os.close(descriptor)

    def read_notes(self, is_over: bool) -> list[tuple[str, float | None]]:
        """Return the notes for the history, with the time of each; None: a program wrote it without one.

        is_over: no more will come, so a last line without an end counts.
        """
        notes = []
        for line in self._note_lines(is_over)[:MAX_NOTES]:
            time_of, separator, text = line.partition("\t")
            seconds = seconds_of(time_of) if separator else None
            at = seconds if seconds is not None and 0 < seconds < _LATEST else None
            notes.append((one_line(line if at is None else text), at))
        return notes

    def _note_lines(self, is_over: bool) -> list[str]:
        try:
            content = plain_files.head(f"{self.path}/{NOTES}", _MOST_OF_NOTES)
        except (OSError, NotPlain):
            return []
        lines = content.decode("utf-8", "replace").split("\n")
        return [line for line in (lines if is_over else lines[:-1]) if line.strip()]

    def tail(self, name: str, size: int) -> str:
        """Return the last bytes of a file as text; empty if it does not exist."""
        try:
            return plain_files.tail(f"{self.path}/{name}", size).decode("utf-8", "replace")
        except OSError:
            return ""


def is_wanted(path: str) -> bool:
    """Return whether the next attempt may continue from this directory of an attempt."""
    return os.path.exists(f"{path}/{WANTED}")


def _read_json(path: str) -> dict[str, Any] | None:
    """Return the JSON object in the file; None if it is missing or incomplete. Raises OSError."""
    try:
        content = json.loads(plain_files.read(path))
    except (FileNotFoundError, NotADirectoryError, NotPlain, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def parse_task(content: bytes) -> dict[str, Any]:
    """Return id, path, room and fields from the first line of a file `task`. Raises ValueError.

    The room is the name of the space that its listener has reserved: see `spool.Spool.want_of_room`.
    """
    try:
        found = json.loads(content.partition(b"\n")[0].decode("utf-8", "surrogateescape"))
        texts = [*(found[name] for name in ("id", "path", "room")), *found["fields"].values()]
    except (KeyError, TypeError, AttributeError, RecursionError):
        texts = [None]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("the file `task` is not what we have written")
    return dict(found)
