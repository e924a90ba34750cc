"""What the daemons print: one line for each event, on standard error."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import time
from typing import Any

FORMATS = ("text", "json")


def log_to_stderr(form: str = "text") -> None:
    """Send the log of the programs to standard error: in the form of the journal if that reads it, else with the time.

    form: one of FORMATS.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):       # as the task processes want it, too
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    # What our lines do not say need not be found out for each of them, and each task process would copy the pages it is on.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None                            # the switch that the logging howto names for this
    logging.raiseExceptions = False                    # when nobody reads us any more, that is no reason to say so
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if form == "json" else _Journal() if _is_journal(2) else _OneLine())
    logging.basicConfig(handlers=[handler], level=logging.INFO)


def _is_journal(descriptor: int) -> bool:
    """Tell whether the descriptor leads to the journal, see JOURNAL_STREAM in systemd.exec(5)."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class _OneLine(logging.Formatter):
    """Keeps to one line what holds a queue's name or a task's id: they may hold anything."""

    def __init__(self, form: str = "%(asctime)s %(message)s") -> None:
        super().__init__(form, "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).translate(_CONTROL)


class _Journal(_OneLine):
    """Without the time, which the journal adds, and with what it takes for the priority; see sd-daemon(3)."""

    def __init__(self) -> None:
        super().__init__("%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        mark = next(mark for level, mark in _PRIORITIES if record.levelno >= level)
        return "\n".join(f"{mark}{line}" for line in super().format(record).split("\n"))


class _Json(logging.Formatter):
    """One JSON object a line: at, level, message, and what stands in the message as `name=value`."""

    def format(self, record: logging.LogRecord) -> str:
        whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        item: dict[str, Any] = {
            "at": f"{whole}.{int(record.created % 1 * 1e6):06d}Z", "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            item["traceback"] = self.formatException(record.exc_info)
        return json.dumps({**item, **_fields(record), **item})


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the values that the template of the message names, and its first word, if that is one of an event."""
    template, found = str(record.msg), dict[str, Any]()
    event = _EVENT.match(template)
    if event:
        found["event"] = event[1]
    values = iter(record.args if isinstance(record.args, tuple) else ())
    for name, kind in _PLACES.findall(template):
        value = next(values, None) if kind != "%" else None
        if name:
            found[name] = value if value is None or isinstance(value, str | int | float) else str(value)
    return found


_PLACES = re.compile(r"(?:\b(\w+)=)?%[-#0 +]*\d*(?:\.\d+)?([a-zA-Z%])")
_EVENT = re.compile(r"(\w+) \w+=%")
_PRIORITIES = ((logging.ERROR, "<3>"), (logging.WARNING, "<4>"), (logging.INFO, "<6>"), (0, "<7>"))
_CONTROL = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)]}
