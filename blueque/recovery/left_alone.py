"""LeftAlone: names that are not tried for a while, because a key of theirs has a wrong type."""

from __future__ import annotations

import time
from collections.abc import Iterable

PAUSE = 60.0  # seconds until it is tried again


class LeftAlone:
    """Names of tasks or groups that are left alone for a minute, so that others need not wait.

    To get N others, ask for N + len(names()).
    """

    def __init__(self) -> None:
        self._until: dict[str, float] = {}  # on the monotonic clock

    def names(self) -> frozenset[str]:
        """Return those that are to be left alone now."""
        now = time.monotonic()
        self._until = {name: until for name, until in self._until.items() if until > now}
        return frozenset(self._until)

    def add(self, names: Iterable[str]) -> None:
        self._until |= dict.fromkeys(names, time.monotonic() + PAUSE)

    def forget(self) -> None:
        """Try all of them again."""
        self._until.clear()
