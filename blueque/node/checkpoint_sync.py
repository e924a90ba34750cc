"""CheckpointSync: copies the checkpoint value from the files of an attempt to Redis, and back for
the next attempt. A checkpoint directory stays on its host; Redis has its place.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from blueque.errors import InvalidInput, PayloadRefused, RedisRefused
from blueque.listener.processor import Processor
from blueque.model.encoding import count_of, is_sealed
from blueque.model.task import Task
from blueque.model.wrong_types import unless_wrong_type
from blueque.spool import checkpoint
from blueque.spool.attempt import Attempt
from blueque.spool.checkpoint import Mark
from blueque.spool.spool import Spool
from blueque.system import hosts

if TYPE_CHECKING:
    from blueque.node.waiting import Waiting
    from blueque.queries.inspector import Inspector

log = logging.getLogger("blueque")

# errors that may be temporary
_WAIT_FOR = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


class CheckpointSync:
    """Copies the checkpoint value of one attempt, and the place of its directory, to Redis.

    limit: the size limit of a value in bytes.
    """

    def __init__(self, attempt: Attempt, limit: int) -> None:
        self._path, self._limit = attempt.path, limit
        # the value and whether the directory has files, as of the last look
        self._seen: tuple[Mark | None, bool] | None = None
        # parts that Redis may have; None: not read yet
        self._sent: frozenset[str] | None = None
        self._is_all_sent = self._has_warned = False

    def step(self, processor: Processor) -> None:
        """Send what has changed. Raises what Redis raises, NotOwner, OSError."""
        self._send(processor, is_over=False)

    def finish(self, processor: Processor) -> None:
        """Send all of it, once, at the end of the attempt. Raises what Redis raises, NotOwner."""
        if self._is_all_sent:
            return
        # If another program has the key, the end must be reported all the same.
        unless_wrong_type(
            lambda: self._send(processor, is_over=True),
            lambda error: log.error("checkpoint task=%s: %s", processor.task.id, error),
        )
        self._is_all_sent = True

    def _send(self, processor: Processor, is_over: bool) -> None:
        seen = checkpoint.mark(self._path), checkpoint.has_files(self._path)
        if seen == self._seen and not is_over:
            return
        mark, has_files = seen
        parts = self._value(processor.task, mark) | self._directory(has_files)
        if parts:
            self._note({name for name in parts if parts[name] is not None})
            try:
                processor.checkpoint(parts)
            except InvalidInput as error:  # missing keys must not delay the end of the task
                log.error("checkpoint task=%s stays on this host: %s", processor.task.id, error)
        self._seen = seen

    def _value(self, task: Task, mark: Mark | None) -> dict[str, str | None]:
        if mark is None:
            return {"value": None} if "value" in self._get_sent() else {}
        value = checkpoint.read(self._path, self._limit) if mark[1] <= self._limit else None
        if value is not None:
            return {"value": value}
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "checkpoint task=%s: %s/%s is not JSON, or takes more than %s bytes; the one before counts",
                task.id,
                self._path,
                checkpoint.VALUE,
                f"{self._limit:,}",
            )
        return {}

    def _directory(self, has_files: bool) -> dict[str, str | None]:
        if has_files:
            return {"directory": f"{hosts.host_name()}:{self._path}/{checkpoint.DIRECTORY}"}
        return {"directory": None} if "directory" in self._get_sent() else {}

    def _get_sent(self) -> frozenset[str]:
        if self._sent is None:
            self._sent = checkpoint.known(self._path)
        return self._sent

    def _note(self, sent: set[str]) -> None:
        """Record what Redis may have from now on, for us and for the next listener."""
        all_sent = self._get_sent() | sent
        if all_sent != self._sent:
            self._sent = all_sent
            try:
                checkpoint.note_known(self._path, all_sent)
            except OSError:  # a full disk: we know it ourselves
                pass


def kept(inspector: Inspector, waiting: Waiting, task: Task) -> dict[str, str] | None:
    """Return the checkpoint in Redis from which the attempt continues; None: it is the first.

    Raises OrderCame; PayloadRefused: we do not have its key.
    """
    if (task.attempt or 1) == 1:
        return None

    def begin_anew(error: RedisRefused) -> dict[str, str]:
        log.error("checkpoint task=%s: %s", task.id, error)
        return {}

    read = functools.partial(inspector.checkpoint, task.id)
    found = waiting.retry_until_order(lambda: unless_wrong_type(read, begin_anew))
    return trusted(task, found)


def carry(spool: Spool, task: Task, attempt: Attempt, kept: Mapping[str, str], limit: int) -> None:
    """Give an attempt the checkpoint of an earlier attempt, from this spool or from Redis.

    kept: the checkpoint in Redis, as `kept` returns it. Files here take precedence, unless their
        attempt is older: Redis may have been away when it ended.
    Raises OSError.
    """
    value, directory = _left_here(spool, task, count_of(kept.get("attempt")), limit)
    value = kept.get("value") if value is None else value
    if value is not None:
        checkpoint.write(attempt.path, value)
    try:
        _carry_directory(spool, task, attempt, directory, kept)
    except OSError as error:
        if error.errno in _WAIT_FOR:
            raise
        log.error(
            "checkpoint task=%s: cannot get its directory, starting without: %s", task.id, error
        )
    except Exception:  # a task may have left anything in it
        log.exception("checkpoint task=%s: cannot get its directory, starting without", task.id)
    names = {"value": checkpoint.VALUE, "directory": checkpoint.DIRECTORY}
    handed = {part for part, name in names.items() if os.path.exists(f"{attempt.path}/{name}")}
    if handed:
        checkpoint.note_known(attempt.path, handed)
    for _, old in spool.earlier(task.id, task.fields):
        old.release()


def _carry_directory(
    spool: Spool, task: Task, attempt: Attempt, directory: str | None, kept: Mapping[str, str]
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
    if "directory" in kept:
        _warn_of_missing(spool, task, kept["directory"])


def _warn_of_missing(spool: Spool, task: Task, place: str) -> None:
    host, _, path = place.partition(":")
    is_here = hosts.has_been_this_machine(host)
    if is_here and not os.path.isdir(path):
        why = "was removed, because of its age or to make room"
    elif is_here and path.startswith(f"{spool.root}/"):
        why = "is of an older attempt than its value"
    else:
        why = "stays on its host"
    log.warning("checkpoint task=%s: its directory %s %s; starting without", task.id, place, why)


def trusted(task: Task, kept: Mapping[str, str]) -> dict[str, str]:
    """Return the checkpoint in Redis as plain text; empty if it belongs to another task with the
    same id, or is not ours.

    Raises PayloadRefused: this process does not have the key.
    """
    if not kept or kept.get("created") != task.fields.get("created"):
        return {}
    found, number = dict(kept), kept.get("attempt", "0")
    if is_sealed(kept.get("value")):
        from blueque.model.payloads import open_whole  # here: few are encrypted

        try:
            found["value"] = open_whole(kept["value"], task.id, "checkpoint")
        except PayloadRefused as error:
            if not error.is_damaged:
                raise
            log.error("checkpoint task=%s: starting without: %s", task.id, error)
            return {}
    if not (number.isdecimal() and len(number) < 10) or not checkpoint.is_json(
        found.get("value", "null")
    ):
        log.error("checkpoint task=%s: its value in Redis was changed; starting without", task.id)
        return {}
    return found


def _left_here(spool: Spool, task: Task, known: int, limit: int) -> tuple[str | None, str | None]:
    """Return the newest value here and the attempt with the newest directory, from `known` on."""
    value: str | None = None
    directory: str | None = None
    for number, old in spool.earlier(task.id, task.fields):
        if number < known:
            break
        if value is None:
            value = checkpoint.read(old.path, limit)
        if directory is None and os.path.isdir(f"{old.path}/{checkpoint.DIRECTORY}"):
            directory = old.path
        if old.has_begun():  # else it may not have received its checkpoint
            break
    return value, directory
