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
    form = "%(message)s" if "JOURNAL_STREAM" in os.environ else "%(asctime)s %(message)s"
    logging.basicConfig(format=form, datefmt="%H:%M:%S", level=logging.INFO)
