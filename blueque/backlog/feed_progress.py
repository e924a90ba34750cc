"""The progress of a feed, for a callback and the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

log = logging.getLogger("blueque")


class FeedProgress(NamedTuple):
    """The progress of a feed.

    rows: done since its beginning. total: rows of the whole backlog; None: unknown. is_exact: else
        total is an estimate.
    share: the share of the backlog's bytes that is done, 0 to 1. waiting: tasks in line; None:
        unknown yet.
    skipped: bad rows that this feeder has left out. file: the file that is being fed. note: a
        message about an event.
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
    """Reports the progress of a feed. total: all rows, if known; skipped: bad rows left out."""

    def __init__(self, feed: str, queue: str, tell: Tell | None) -> None:
        self.total: int | None = None
        self.skipped = 0
        self._feed, self._queue, self._tell = feed, queue, tell
        self._progress = FeedProgress()

    @property
    def has_listener(self) -> bool:
        """Whether there is a callback."""
        return self._tell is not None

    def report(self, rows: int, **news: Any) -> None:
        """Report how many rows are done. news: other fields of FeedProgress that have changed."""
        share = news.get("share", self._progress.share)
        total = self.total if self.total is not None else round(rows / share) if share else None
        self._progress = self._progress._replace(
            rows=rows, skipped=self.skipped, total=total, is_exact=self.total is not None, **news
        )
        if self._tell is not None:
            self._tell(self._progress)

    def remark(self, note: str) -> None:
        """Report an event."""
        # else a terminal would show it twice
        level = logging.INFO if self.has_listener else logging.WARNING
        log.log(level, "feed feed=%s queue=%s: %s", self._feed, self._queue, note)
        if self._tell is not None:
            self._tell(self._progress._replace(note=note))

    def leave_out(self, bad: Iterable[Exception]) -> None:
        """Report the rows that were left out."""
        for why in bad:
            self.skipped += 1
            self.remark(f"left out: {why}")
