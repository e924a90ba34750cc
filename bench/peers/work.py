"""What every task does, everywhere: append the time of its first line to the ledger. A line for
each that has run.
"""

from __future__ import annotations

import os
import time

_ledger = -1


def note(text: str = "") -> None:
    """Append the time, Unix seconds, in 18 bytes."""
    global _ledger
    now = time.time()
    if _ledger < 0:
        _ledger = os.open(os.environ["BENCH_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(_ledger, b"%.6f\n" % now)


def handle(task: object) -> str:
    """The same as a handler of Blueque and of 1.0.0."""
    note()
    return ""
