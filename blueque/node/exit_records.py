"""ExitRecords: finds out how an attempt ended, from its exit record or else from its process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from blueque.node.attempt_watch import AttemptWatch
from blueque.node.memory_kills import MemoryKills
from blueque.node.unreadable import log_failure
from blueque.node.waiting import Waiting
from blueque.spool import outcome_record
from blueque.spool.outcome_record import Record
from blueque.system import process

log = logging.getLogger("blueque")

NOTED = 2.0  # seconds within which the process that reaps another has noted its end
STEP = 0.02
UNREADABLE = 60.0  # seconds for which an exit record that cannot be read is tried again
TRY_AGAIN = 2.0
BY_LISTENER = ("cancelled", "stopped")  # error types of ends that are no failures


class _Found(NamedTuple):
    """What is left of an attempt: its exit record, how its process ended, and what it used."""

    record: Record | None
    ending: process.Ending | None
    measured: dict[str, Any]


class ExitRecords:
    """Finds the exit records of the attempts that one listener watches, or creates them.

    ending: returns how the process of our own task ended, as far as the listener knows.
    """

    def __init__(
        self,
        waiting: Waiting,
        memory_kills: MemoryKills,
        ending: Callable[[], process.Reaped | None],
    ) -> None:
        self._waiting, self._memory_kills, self._ending = waiting, memory_kills, ending

    def find(self, watch: AttemptWatch) -> Record | None:
        """Return the exit record, written by the task process or else by us; None: the end is unknown."""
        found = self._look(watch)
        if (
            found.record is None
            and watch.reason is None
            and not (found.ending and watch.attempt.has_begun())
        ):
            return None
        if found.record is not None:
            watch.attempt.note_begun()
        record = self._complete(watch, *found)
        if found.record is None or watch.reason is not None or record.get("error_type") == "memory":
            try:
                watch.attempt.write_exit(record)
            except OSError as error:
                log.error("cannot write the exit record: %s", error)
        error_type = record.get("error_type")
        if watch.reason is None and record["status"] == "failed" and error_type in BY_LISTENER:
            watch.reason = error_type  # Redis has lost that this was reported once
        return record

    def end_process(self, watch: AttemptWatch) -> None:
        """End the process that waits for another task, and gets none."""
        watch.end_process()
        while not self._waiting.wait(TRY_AGAIN, watch.descriptors).intersection(watch.descriptors):
            pass

    def _look(self, watch: AttemptWatch) -> _Found:
        record = self._read_exit(watch)
        if watch.is_at_rest and record is None:  # what the task has left may have removed it
            self.end_process(watch)
        if record is None and watch.attempt.has_begun():
            return self._look_again(watch)
        return _Found(record, None, watch.measured)

    def _look_again(self, watch: AttemptWatch) -> _Found:
        """Wait for the report of the process that reaps the task process, or a late exit record."""
        noted = self._noted_end(watch)
        record = self._read_exit(watch)
        if noted is None:
            return _Found(record, None, watch.measured)
        return _Found(record, process.Ending.of(noted), _measured(noted, watch))

    def _complete(
        self,
        watch: AttemptWatch,
        record: Record | None,
        ending: process.Ending | None,
        measured: dict[str, Any],
    ) -> Record:
        """Return the record with what we know: how the process ended, what it used, why we ended it."""
        if record is None and ending is not None:
            attempt = watch.attempt if watch.reason is None else None
            record = outcome_record.record_of_ending(ending, attempt)
        record = record or {
            "status": "failed",
            "error": "its process is gone",
            "error_type": watch.reason,
        }
        record = {
            **record,
            **{name: max(value, record.get(name) or 0) for name, value in measured.items()},
        }
        record.setdefault("finished", time.time())
        is_killed = watch.reason is None and outcome_record.is_killed(record)
        if is_killed and self._memory_kills.are_new():
            record = outcome_record.as_out_of_memory(record)
        is_handed_back = watch.reason == "stopped" and record.get("handed_back")
        if watch.reason is not None and record["status"] == "failed" and not is_handed_back:
            record |= {"error_type": watch.reason, "error": f"{watch.error}: {record['error']}"}
            record.pop("retry_after", None)
            record.pop("handed_back", None)
            if watch.reason == "interrupted":  # a person has asked for it, so it costs nothing
                record["handed_back"] = True
        return record

    def _read_exit(self, watch: AttemptWatch) -> Record | None:
        """Return the exit record. If it is unreadable, as without free descriptors, retry a while."""
        deadline = time.monotonic() + UNREADABLE
        while True:
            try:
                return watch.attempt.read_exit()
            except (OSError, MemoryError):
                log_failure(watch.attempt, "exit record")
                if time.monotonic() >= deadline:
                    return None
            except Exception:  # the task has written it
                log_failure(watch.attempt, "exit record")
                return None
            self._waiting.wait(TRY_AGAIN)

    def _noted_end(self, watch: AttemptWatch) -> process.Reaped | None:
        """Return how the process ended, as reported by the one that reaps it; None: not yet."""
        deadline = time.monotonic() + NOTED
        while True:
            if not watch.is_adopted and (ending := self._ending()) is not None:
                return ending
            noted = watch.attempt.read_ending()
            if noted is not None and noted["max_rss_bytes"]:  # else it is just being reaped
                return process.Reaped(**noted)
            if watch.attempt.has_exit():
                return None
            if time.monotonic() >= deadline:
                seen = watch.ending_of_zombie()
                return process.Reaped(**noted) if seen is None and noted is not None else seen
            self._waiting.wait(STEP)


def _measured(reaped: process.Reaped, watch: AttemptWatch) -> dict[str, Any]:
    """Return what an attempt has used: as measured while it ran, and as the kernel reports at its end."""
    measured = watch.measured
    own = max(reaped.cpu_seconds - watch.used_before, 0.0)  # without the tasks before it
    return {
        **measured,
        "cpu_seconds": round(max(own, measured.get("cpu_seconds", 0.0)), 3),
        "memory_peak": max(reaped.max_rss_bytes, measured.get("memory_peak", 0)),
    }
