"""Log what a listener cannot read of an attempt: the task may have left anything in its files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from blueque.spool.attempt import Attempt

log = logging.getLogger("blueque")

T = TypeVar("T")


def guarded(attempt: Attempt, kind: str, look: Callable[[], T], otherwise: T) -> T:
    """Return what `look` returns, or `otherwise` if it raises. Log each kind of failure once.

    kind: what it reads, in a word or two.
    """
    try:
        return look()
    except Exception:
        log_failure(attempt, kind)
        return otherwise


def log_failure(attempt: Attempt, kind: str) -> None:
    """Log the current exception, once for each attempt and kind."""
    if kind not in attempt.unreadable:
        attempt.unreadable.add(kind)
        log.exception(
            "cannot read the %s of the attempt in %s; going on without", kind, attempt.path
        )
