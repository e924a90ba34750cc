"""Searches through many tasks have threads of their own, so that pages do not wait for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
from starlette.exceptions import HTTPException

from blueque.web.visit import Visit

SEARCHES_AT_ONCE = 2  # searches of all logins; each makes one at a time
PATIENCE, PAUSE = 1.0, 0.05  # seconds that a search waits for others, and between two looks at them
# Names in a query that make a list read each task. Others are answered from an index.
READS = ("text", "error", "schedule", "node", "since", "until", "sort")


def is_search(visit: Visit) -> bool:
    """Return whether a visit searches many tasks, or gives an order to many."""
    if visit.path in ("/tasks", "/api/v1/tasks"):
        return any(map(visit.one, READS))
    return visit.path == "/tasks.csv" or _is_order(visit)


def _is_order(visit: Visit) -> bool:
    return visit.path.startswith("/acts/") and not visit.one("id")


class Searches:
    """Runs a few searches at a time: one for each login, and one for all live pages."""

    def __init__(self) -> None:
        self._threads = anyio.CapacityLimiter(SEARCHES_AT_ONCE)
        self._logins: set[str] = set()  # for which one goes on

    async def run(self, visit: Visit, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function with a visit in a thread for searches.

        Orders and live pages wait for others. Raises HTTPException if a search would wait too long.
        """
        login, until = "" if visit.is_live else visit.login, time.monotonic() + PATIENCE
        may_wait = visit.is_live or _is_order(visit)
        while login in self._logins or len(self._logins) >= SEARCHES_AT_ONCE:
            if not may_wait and time.monotonic() > until:
                raise HTTPException(503, "Another search is running. Try again in a moment.")
            await anyio.sleep(PAUSE)
        self._logins.add(login)
        try:
            return await anyio.to_thread.run_sync(
                function, visit, *arguments, limiter=self._threads
            )
        finally:
            self._logins.discard(login)
