"""The log of the daemons: one line for each event, on standard error."""

from __future__ import annotations

import datetime
import io
import json
import logging
import os
import re
import sys
import time
from typing import Any, NamedTuple

from blueque.system.log_writer import STDERR, Writer

log = logging.getLogger("blueque")

# What `logging` finds out for each record and no format of ours shows; see "Optimization" in its
# documentation.
_UNSHOWN = ("logThreads", "logProcesses", "logMultiprocessing", "_srcfile")


class _Configuration(NamedTuple):
    """How a logger is configured. unshown: the values of _UNSHOWN."""

    handlers: list[logging.Handler]
    level: int
    propagate: bool
    disabled: bool
    unshown: dict[str, Any]


# our handler, and what it has taken the place of
_before: tuple[Writer, _Configuration] | None = None


def log_to_stderr(form: str = "text", level: str = "info") -> None:
    """Send the log of our programs to standard error, with times unless the journal reads it.

    This configures only the logger `blueque`, because task processes are forked from here. Call
    `stop_logging` before an import that may configure `logging`. form: one of LOG_FORMATS. level: one of LOG_LEVELS.
    """
    global _before
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # as the task processes want it, too
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    stop_logging()
    writer = Writer()
    text = _Journal() if _is_journal(STDERR) else _OneLine()
    writer.setFormatter(_Json() if form == "json" else text)
    unshown = {name: getattr(logging, name) for name in _UNSHOWN}
    _before = writer, _Configuration(log.handlers, log.level, log.propagate, log.disabled, unshown)
    for name in _UNSHOWN:
        setattr(logging, name, None)
    log.handlers = [writer]
    log.setLevel(level.upper())
    log.propagate = log.disabled = False


def stop_logging() -> None:
    """Undo `log_to_stderr`, as in a task process."""
    global _before
    if _before is None:
        return
    (writer, found), _before = _before, None
    writer.close()
    log.handlers, log.propagate, log.disabled = found.handlers, found.propagate, found.disabled
    log.setLevel(found.level)
    for name, value in found.unshown.items():
        setattr(logging, name, value)


def _is_journal(descriptor: int) -> bool:
    """Return whether the descriptor leads to the journal, see JOURNAL_STREAM in systemd.exec(5)."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class _OneLine(logging.Formatter):
    """Writes each record on one line, whatever characters are in names and ids."""

    def __init__(self) -> None:
        super().__init__()
        self._second, self._time = -1, ""  # of the record before

    def format(self, record: logging.LogRecord) -> str:
        line = self._show(record).translate(_CONTROL)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line

    def _show(self, record: logging.LogRecord) -> str:
        return f"{self._get_time(record)} {record.getMessage()}"

    def _get_time(self, record: logging.LogRecord) -> str:
        """Return the local time with the date: tasks run for days, and an hour may repeat."""
        second = int(record.created)
        if second != self._second:
            moment = datetime.datetime.fromtimestamp(second).astimezone()
            self._second, self._time = second, moment.isoformat(timespec="seconds")
        return self._time


class _Journal(_OneLine):
    """Writes no time, which the journal adds, but the priority; see sd-daemon(3)."""

    def _show(self, record: logging.LogRecord) -> str:
        return record.getMessage()

    def format(self, record: logging.LogRecord) -> str:
        mark = next(mark for level, mark in _PRIORITIES if record.levelno >= level)
        return "\n".join(f"{mark}{line}" for line in super().format(record).split("\n"))


class _Json(logging.Formatter):
    """Writes one JSON object on each line: at, level, message, and each `name=value` of the message."""

    def format(self, record: logging.LogRecord) -> str:
        whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        item: dict[str, Any] = {
            "at": f"{whole}.{int(record.created % 1 * 1e6):06d}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            item["traceback"] = self.formatException(record.exc_info)
        return json.dumps({**item, **_fields(record), **item})


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the named values of the message, and its event."""
    template, found = str(record.msg), dict[str, Any]()
    event = _EVENT.match(template)
    if event:
        found["event"] = event[1]
    values = iter(record.args if isinstance(record.args, tuple) else ())
    for name, kind in _PLACES.findall(template):
        value = next(values, None) if kind != "%" else None
        if name:
            found[name] = (
                value if value is None or isinstance(value, str | int | float) else str(value)
            )
    return found


_PLACES = re.compile(r"(?:\b(\w+)=)?%[-#0 +]*\d*(?:\.\d+)?([a-zA-Z%])")
_EVENT = re.compile(r"(\w+) \w+=%")
_PRIORITIES = ((logging.ERROR, "<3>"), (logging.WARNING, "<4>"), (logging.INFO, "<6>"), (0, "<7>"))
_CONTROL = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)]}
