"""What the daemons print: one line for each event, on standard error."""

from __future__ import annotations

import io
import logging
import os
import sys


def log_to_stderr() -> None:
    """Send the log of the programs to standard error, with the time unless the journal adds it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):       # as the task processes want it, too
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    # What our lines do not say need not be found out for each of them, and each task process would copy the pages it is on.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None                            # the switch that the logging howto names for this
    logging.raiseExceptions = False                    # when nobody reads us any more, that is no reason to say so
    form = "%(message)s" if "JOURNAL_STREAM" in os.environ else "%(asctime)s %(message)s"
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine(form, "%H:%M:%S"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)


class _OneLine(logging.Formatter):
    """Keeps to one line what holds a queue's name or a task's id: they may hold anything."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).translate(_CONTROL)


_CONTROL = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)]}
