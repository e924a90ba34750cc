"""What the daemons print: one line for each event, on standard error."""

from __future__ import annotations

import logging
import os


def log_to_stderr() -> None:
    """Send the log of the programs to standard error, with the time unless the journal adds it."""
    form = "%(message)s" if "JOURNAL_STREAM" in os.environ else "%(asctime)s %(message)s"
    logging.basicConfig(format=form, datefmt="%H:%M:%S", level=logging.INFO)
