"""How far a feed is, told to whoever wants to know."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

log = logging.getLogger("blueque")


class FeedProgress(NamedTuple):
    """How far a feed is.

    rows: done since its beginning. total: of the whole backlog; None: not known. is_exact: or an
        estimate.
    share: which part of the backlog's bytes is done, 0 to 1. waiting: tasks in line; None: not seen
        yet.
    skipped: bad rows that this feeder has left out. file: the one that is being fed. note:
        something happened.
    """

    rows: int = 0
    total: int | None = None
    is_exact: bool = False
    share: float = 0.0
    waiting: int | None = None
    skipped: int = 0
    file: str = ""
    note: str | None = None


Tell = Callable[[FeedProgress], object]


class Teller:
    """Tells how far one feed is. total: rows in all, if that is known; skipped: bad rows that were
    left out.
    """

    def __init__(self, feed: str, queue: str, tell: Tell | None) -> None:
        self.total: int | None = None
        self.skipped = 0
        self._feed, self._queue, self._tell = feed, queue, tell
        self._progress = FeedProgress()

    @property
    def has_listener(self) -> bool:
        """Whether anybody is told."""
        return self._tell is not None

    def report(self, rows: int, **news: Any) -> None:
        """Tell that so many rows are done, and what else is new: fields of FeedProgress."""
        share = news.get("share", self._progress.share)
        total = self.total if self.total is not None else round(rows / share) if share else None
        self._progress = self._progress._replace(
            rows=rows, skipped=self.skipped, total=total, is_exact=self.total is not None, **news
        )
        if self._tell is not None:
            self._tell(self._progress)

    def remark(self, note: str) -> None:
        """Tell that something has happened."""
        # else a terminal would have it twice
        level = logging.INFO if self.has_listener else logging.WARNING
        log.log(level, "feed feed=%s queue=%s: %s", self._feed, self._queue, note)
        if self._tell is not None:
            self._tell(self._progress._replace(note=note))

    def leave_out(self, bad: Iterable[Exception]) -> None:
        """Tell which rows were left out."""
        for why in bad:
            self.skipped += 1
            self.remark(f"left out: {why}")
