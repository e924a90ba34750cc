"""CheckpointSync: copies checkpoints from the files of an attempt to Redis, and to the files of the
next attempt.
"""

from __future__ import annotations

import binascii
import errno
import logging
import os
import time
from collections.abc import Mapping

from blueque.listener.processor import Processor
from blueque.model.task import Task
from blueque.model.wrong_types import unless_wrong_type
from blueque.spool import checkpoint
from blueque.spool.attempt import Attempt
from blueque.spool.checkpoint import Entry, Mark, TooMuch
from blueque.spool.spool import Spool
from blueque.system import hosts

log = logging.getLogger("blueque")

PACE = 1.0  # seconds between two looks
SHARE = 10  # after a look that took long comes a rest so many times as long
TRIES = 5  # to read value and directory while neither changes
# errors that may pass
_WAIT_FOR = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


class CheckpointSync:
    """Copies the checkpoint of one attempt to Redis.

    limit: bytes that a value may take, and a directory when it is packed.
    """

    def __init__(self, attempt: Attempt, limit: int) -> None:
        self._path, self._limit = attempt.path, limit
        self._mark: Mark | None = None  # of what Redis has
        self._marks: object = None
        self._has_looked = False
        # parts of which Redis may have something; None: not looked at yet
        self._sent: frozenset[str] | None = None
        self._is_all_sent = False
        self._logged: set[str] = set()
        self._next_look = 0.0

    def step(self, processor: Processor) -> None:
        """Send what has changed. Raises what Redis does, NotOwner, OSError."""
        if time.monotonic() >= self._next_look:
            began = time.monotonic()
            self._tell(processor, is_over=False)
            now = time.monotonic()
            self._next_look = began + max(PACE / 2, SHARE * (now - began))

    def finish(self, processor: Processor) -> None:
        """Send all of it, once, at the end of the attempt. Raises what Redis does, NotOwner."""
        if self._is_all_sent:
            return
        # If another program has the key, the end must be reported all the same.
        unless_wrong_type(
            lambda: self._tell(processor, is_over=True),
            lambda error: log.error("checkpoint task=%s: %s", processor.task.id, error),
        )
        self._is_all_sent = True

    def _tell(self, processor: Processor, is_over: bool) -> None:
        look = self._look(processor.task, is_over)
        if look is None:
            return
        parts, mark, marks = look
        if parts:
            self._note({name for name in parts if parts[name] is not None})
            processor.checkpoint(parts)
        self._mark, self._marks, self._has_looked = mark, marks, True

    def _look(
        self, task: Task, is_over: bool
    ) -> tuple[dict[str, str | None], Mark | None, object] | None:
        """Return what to send, and the marks by which a change is seen; None: value and directory
        could not be read together.
        """
        for _ in range(TRIES):
            found = checkpoint.entries(self._path) or []
            mark, marks = checkpoint.mark(self._path), checkpoint.marks(found)
            # The value first: then the files are never older than it.
            parts = self._value(task, mark, is_over)
            if marks != self._marks or is_over:
                files = self._files(task, found)
                if files is None:
                    return None
                parts |= files
            # As long as nothing comes or goes there, what the value names is among what we have
            # read.
            if _names(checkpoint.entries(self._path) or []) == _names(found):
                return parts, mark, marks
        self._log_once(
            "pace",
            "checkpoint task=%s: its directory changes faster than it can be read; the one before counts",
            task.id,
        )
        return None

    def _value(self, task: Task, mark: Mark | None, is_over: bool) -> dict[str, str | None]:
        if self._has_looked and not is_over and mark == self._mark:
            return {}
        if mark is None:
            return {"value": None} if "value" in self._get_sent() else {}
        value = checkpoint.read(self._path, self._limit) if mark[1] <= self._limit else None
        if value is None:
            self._log_once(
                "value",
                "checkpoint task=%s: %s/%s is not JSON, or takes more than %s bytes; the one before counts",
                task.id,
                self._path,
                checkpoint.VALUE,
                f"{self._limit:,}",
            )
            return {}
        return {"value": value}

    def _files(self, task: Task, found: list[Entry]) -> dict[str, str | None] | None:
        """Return what to send of the directory; None: it cannot be read."""
        if not found:
            return {"files": None, "files_left": None} if "files" in self._get_sent() else {}
        try:
            packed = checkpoint.pack(self._path, found, self._limit)
        except TooMuch:
            self._log_once(
                "files",
                "checkpoint task=%s: %s/%s takes more than %s bytes when it is packed, and stays on this host",
                task.id,
                self._path,
                checkpoint.DIRECTORY,
                f"{self._limit:,}",
            )
            return {
                "files": None,
                "files_left": f"{hosts.host_name()}:{self._path}/{checkpoint.DIRECTORY}",
            }
        except OSError as error:
            self._log_once(
                "disk",
                "checkpoint task=%s: its directory cannot be read: %s; the one before counts",
                task.id,
                error,
            )
            return None
        return {"files": binascii.b2a_base64(packed, newline=False).decode(), "files_left": None}

    def _get_sent(self) -> frozenset[str]:
        if self._sent is None:
            self._sent = checkpoint.known(self._path)
        return self._sent

    def _note(self, sent: set[str]) -> None:
        """Note what Redis may have from now on, for us and for the next listener."""
        all_sent = self._get_sent() | {"value" if name == "value" else "files" for name in sent}
        if all_sent != self._sent:
            self._sent = all_sent
            try:
                checkpoint.note_known(self._path, all_sent)
            except OSError:  # a full disk: we know it ourselves
                pass

    def _log_once(self, kind: str, message: str, *values: object) -> None:
        """Log it once."""
        if kind not in self._logged:
            self._logged.add(kind)
            log.warning(message, *values)


def _names(found: list[Entry]) -> list[tuple[str, int]]:
    return [(name, stat.st_ino) for name, stat in found]


def carry(spool: Spool, task: Task, attempt: Attempt, kept: Mapping[str, str], limit: int) -> None:
    """Give an attempt the checkpoint of an earlier attempt, from this spool or from Redis. Raises
    OSError.

    kept: the checkpoint in Redis. Files here go before it, unless they are of an older attempt than
        it is: Redis may have been away when their attempt ended.
    """
    kept = _trusted(task, kept)
    value, directory = _left_here(spool, task, int(kept.get("attempt", "0")), limit)
    value = kept.get("value") if value is None else value
    if value is not None:
        checkpoint.write(attempt.path, value)
    try:
        _carry_directory(spool, task, attempt, directory, kept, limit)
    except OSError as error:
        if error.errno in _WAIT_FOR:
            raise
        log.error(
            "checkpoint task=%s: its directory cannot be had, it begins without: %s", task.id, error
        )
    except Exception:  # a task may have left anything in it
        log.exception("checkpoint task=%s: its directory cannot be had, it begins without", task.id)
    names = {"value": checkpoint.VALUE, "files": checkpoint.DIRECTORY}
    handed = {part for part, name in names.items() if os.path.exists(f"{attempt.path}/{name}")}
    if handed:
        checkpoint.note_known(attempt.path, handed)
    for _, old in spool.earlier(task.id, task.fields):
        old.release()


def _carry_directory(
    spool: Spool,
    task: Task,
    attempt: Attempt,
    directory: str | None,
    kept: Mapping[str, str],
    limit: int,
) -> None:
    # from a try before, when the disk was full
    if os.path.isdir(f"{attempt.path}/{checkpoint.DIRECTORY}"):
        return
    if directory is not None:
        try:
            checkpoint.carry(directory, attempt.path, is_in_use=spool.is_in_use(directory))
        except FileNotFoundError:  # pruned just now
            pass
        else:
            return
    _take_from_redis(task, attempt, kept, limit)


def _take_from_redis(task: Task, attempt: Attempt, kept: Mapping[str, str], limit: int) -> None:
    """Have the directory of an attempt be the one that Redis has, or log why that cannot be."""
    if "files" in kept:
        try:
            left_out = checkpoint.unpack(binascii.a2b_base64(kept["files"]), attempt.path, limit)
        except ValueError as error:
            log.error("checkpoint task=%s: its files cannot be unpacked: %s", task.id, error)
        else:
            if left_out:
                names = ", ".join(left_out)
                log.warning(
                    "checkpoint task=%s: left out what would reach outside of its directory: %s",
                    task.id,
                    names,
                )
    elif "files_left" in kept:
        host, _, path = kept["files_left"].partition(":")
        if hosts.has_been_this_machine(host) and not os.path.isdir(path):
            log.warning(
                "checkpoint task=%s: its directory %s was removed, for its age or for want of room",
                task.id,
                path,
            )
        else:
            log.warning(
                "checkpoint task=%s: its directory was too large to come here from %s",
                task.id,
                kept["files_left"],
            )


def _trusted(task: Task, kept: Mapping[str, str]) -> Mapping[str, str]:
    """Return what Redis has, or nothing: it is of another task that had the same id, or not by us."""
    if not kept or kept.get("created") != task.fields.get("created"):
        return {}
    number = kept.get("attempt", "0")
    if not (number.isdecimal() and len(number) < 10) or not checkpoint.is_json(
        kept.get("value", "null")
    ):
        log.error(
            "checkpoint task=%s: what Redis has is not what we have written; it begins without",
            task.id,
        )
        return {}
    return kept


def _left_here(spool: Spool, task: Task, known: int, limit: int) -> tuple[str | None, str | None]:
    """Return the newest value in this spool, and the attempt that has the newest directory; not
    older than `known`.
    """
    value: str | None = None
    directory: str | None = None
    for number, old in spool.earlier(task.id, task.fields):
        if number < known:
            break
        if value is None:
            value = checkpoint.read(old.path, limit)
        if directory is None and os.path.isdir(f"{old.path}/{checkpoint.DIRECTORY}"):
            directory = old.path
        if old.has_begun():  # else what it was to find may not have come to it yet
            break
    return value, directory
