"""The files of one attempt, in a directory of its own: see `spool` for what they are.

To make a file takes a file system 20 times as long as to give one another name. So the file `task` serves for several
things: it has the names `reported`, `wanted` and `open/[pid]-[start]` as well, and a second line once the task has begun.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Mapping
from typing import Any

from blueque import gauge
from blueque.wording import one_line

STOP = "stop"                                          # the file that asks the task to come to an end
WANTED = "wanted"                                      # the file that says that the next attempt may go on from here
ASKED = "asked"                                        # there as long as it is asked, whether it has removed that or not
MAX_PROGRESS = 1000                                    # bytes of the file `progress` that are read


class Attempt:
    """The files of one attempt, in the directory `path`.

    room: a file of allocated blocks that the exit record may take over when the disk is full.
    link: its other name in `open`, as long as Redis does not know the end of the attempt; None when there is none.
    """

    def __init__(self, path: str, room: str, link: str | None = None) -> None:
        self.path = path
        self._room = room
        self._link = link

    def read_task(self) -> tuple[str, dict[str, str]]:
        """Return the id and the fields of the task as it was reserved. Raises OSError, ValueError."""
        with open(f"{self.path}/task", "rb") as file:
            return _parse_task(self.path, file.read())

    def write_parameters(self, text: str) -> str:
        """Write what a program gets on its standard input, and return the path."""
        path = f"{self.path}/parameters"
        with open(path, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        return path

    def begin(self) -> None:
        """Note that the task may begin, and when, by the clock that all processes of this boot share and nobody sets."""
        descriptor = os.open(f"{self.path}/task", os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, b"\n%.3f" % time.monotonic())
        finally:
            os.close(descriptor)

    def began_at(self) -> float | None:
        """Return when it began, on the monotonic clock; None when it has not, or nobody could write it down."""
        try:
            return float(self._beginning() or "")
        except ValueError:
            return None

    def has_begun(self) -> bool:
        """Tell whether the task has begun to run; True when that cannot be told."""
        return self._beginning() is not None

    def _beginning(self) -> str | None:
        try:
            with open(f"{self.path}/task", "rb") as file:
                _, separator, text = file.read().partition(b"\n")
        except OSError:                                # removed, or not to be read now: it may have begun
            return ""
        return text.decode("utf-8", "replace") if separator else None

    def has_ended(self) -> bool:
        """Tell whether there is word of its end."""
        return any(os.path.exists(f"{self.path}/{name}") for name in ("exit", "exit.new", "status"))

    def write_exit(self, record: Mapping[str, Any]) -> None:
        """Write how the attempt ended: whole and on the disk, or not at all.

        record: status (complete or failed); result and result_encoding, or error; error_type, traceback, exit_code,
        signal where they apply; finished, in Unix seconds.
        """
        content = json.dumps(record, ensure_ascii=False).encode("utf-8", "backslashreplace")
        new = f"{self.path}/exit.new"
        try:
            write_whole(new, content)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            os.rename(self._room, new)                 # its blocks are ours already: a full disk cannot refuse them
            write_whole(new, content)
        os.rename(new, f"{self.path}/exit")

    def read_exit(self) -> dict[str, Any] | None:
        """Return how the attempt ended, or None when it left no record. Raises OSError when that cannot be told now."""
        # exit.new: a power failure may have undone the rename, but not what was synced. It is JSON only when it is whole.
        for name in ("exit", "exit.new"):
            record = _read_json(f"{self.path}/{name}")
            if record is not None and "status" in record:
                return record
        return None

    def has_exit(self) -> bool:
        """Tell whether there is a record of its end that can be read now."""
        try:
            return self.read_exit() is not None
        except OSError:
            return False

    def open(self, directory: str, pid: int, ticks: int) -> None:
        """Note which process runs it, before it runs: whoever sees its end, or has to find it, can then tell what it was."""
        self._link = f"{directory}/{pid}-{ticks}"
        try:
            os.link(f"{self.path}/task", self._link)
        except FileExistsError:                        # of another boot, which gave the same numbers
            remove(self._link)
            os.link(f"{self.path}/task", self._link)

    def mark_reported(self, is_wanted: bool = False) -> None:
        """Note that Redis knows the end: from now on the directory may be pruned.

        is_wanted: the next attempt may go on from what is in it, so it is not to be among the first that go.
        """
        mark = f"{self.path}/reported"
        if is_wanted and not self.is_wanted():
            os.link(f"{self.path}/task", f"{self.path}/{WANTED}")
        try:
            os.link(f"{self.path}/task", mark)
        except FileExistsError:
            return self.close()
        os.utime(mark)
        self.close()

    def is_wanted(self) -> bool:
        """Tell whether the next attempt may go on from what is in the directory."""
        return is_wanted(self.path)

    def release(self) -> None:
        """Note that no attempt will look into the directory any more."""
        remove(f"{self.path}/{WANTED}")

    def close(self) -> None:
        """Take it out of the attempts whose end Redis does not know."""
        if self._link is not None:
            remove(self._link)

    def write_ending(self, ending: Mapping[str, Any]) -> None:
        """Note how the process ended, as its reaper saw it, for whoever reports it."""
        try:
            write_whole(f"{self.path}/status.new", json.dumps(ending).encode())
            os.rename(f"{self.path}/status.new", f"{self.path}/status")
        except OSError:                                # a full disk: its end is then not known, and it counts as lost
            remove(f"{self.path}/status.new")

    def read_ending(self) -> dict[str, Any] | None:
        """Return what its reaper noted, as `process.Reaped` has it; None when nobody has, or it cannot be read."""
        try:
            return _read_json(f"{self.path}/status")
        except OSError:
            return None

    def ask_to_stop(self, reason: str) -> None:
        """Have the task know that it should come to an end, and why, in a word. Raises OSError."""
        if self.has_taken_notice():                    # another file would look as if it had not
            return
        path = f"{self.path}/{STOP}"
        try:
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                file.write(f"{reason}\n")
            os.rename(f"{path}.new", path)
        except OSError:                                # a full disk has room for a name
            if not os.path.exists(path):
                os.link(f"{self.path}/task", path)
        try:
            os.link(f"{self.path}/task", f"{self.path}/{ASKED}")
        except FileExistsError:
            pass

    def withdraw_stop(self) -> None:
        """Ask for it no longer, unless the task has taken notice. Raises OSError."""
        try:
            os.unlink(f"{self.path}/{STOP}")
        except FileNotFoundError:
            return
        remove(f"{self.path}/{ASKED}")

    def has_taken_notice(self) -> bool:
        """Tell whether the task was asked to come to an end, and has removed the file that asks."""
        return os.path.exists(f"{self.path}/{ASKED}") and not os.path.exists(f"{self.path}/{STOP}")

    def told(self) -> gauge.Told | None:
        """Return what `task.progress` has told last, another value each time; None: nothing."""
        return gauge.read(self.path)

    def wrote_progress(self) -> float | None:
        """Return when the file `progress` was written last, in Unix seconds; None: it was not."""
        try:
            return os.stat(f"{self.path}/progress").st_mtime
        except OSError:
            return None

    def read_progress(self) -> str:
        """Return what the file `progress` says, in a line; empty when there is none, or nothing in it."""
        try:
            with open(f"{self.path}/progress", "rb") as file:
                return one_line(file.read(MAX_PROGRESS).decode("utf-8", "replace"))
        except OSError:
            return ""

    def tail(self, name: str, size: int) -> str:
        """Return the last bytes of a file as text; empty when there is no such file."""
        try:
            with open(f"{self.path}/{name}", "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - size))
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""


def is_wanted(path: str) -> bool:
    """Tell whether the next attempt may go on from what is in this directory of an attempt."""
    return os.path.exists(f"{path}/{WANTED}")


def _read_json(path: str) -> dict[str, Any] | None:
    """Return the JSON object in the file, or None: it is not there, or not whole."""
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _parse_task(path: str, content: bytes) -> tuple[str, dict[str, str]]:
    try:
        written = json.loads(content.partition(b"\n")[0].decode("utf-8", "surrogateescape"))
        return written["id"], written["fields"]
    except (KeyError, TypeError):
        raise ValueError(f"{path}/task is not what we have written") from None


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of it from the beginning of the file. A disk that is nearly full takes a part at first, and then refuses."""
    written = 0
    while written < len(content):
        written += os.pwrite(descriptor, content[written:], written)


def write_whole(path: str, content: bytes) -> None:
    """Write over what is there, and wait until it is on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        write_all(descriptor, content)
        if os.fstat(descriptor).st_size > len(content):
            os.ftruncate(descriptor, len(content))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
