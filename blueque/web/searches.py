"""Looks through many tasks have threads of their own, so that pages do not wait behind them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
from starlette.exceptions import HTTPException

from blueque.web.visit import Visit

AT_ONCE = 2  # searches of all logins; each makes one at a time
PATIENCE, PAUSE = 1.0, 0.05  # seconds that a search waits for others, and between two looks at them
# Names in a query that make a list read each task. Others are answered from an index.
READS = ("text", "error", "schedule", "node", "since", "until", "sort")


def is_search(visit: Visit) -> bool:
    """Tell whether a visit looks through many tasks, or gives an order to many."""
    if visit.path in ("/tasks", "/api/v1/tasks"):
        return any(map(visit.one, READS))
    is_order = visit.path.startswith(("/acts/", "/controls/workflow/")) and not visit.one("id")
    return is_order or visit.path in ("/tasks.csv", "/prune")


class Searches:
    """Makes a few searches at a time."""

    def __init__(self) -> None:
        self._threads = anyio.CapacityLimiter(AT_ONCE)
        self._logins: set[str] = set()  # for which one goes on

    async def run(self, login: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in a thread for searches. Raises HTTPException if others go on for long."""
        until = time.monotonic() + PATIENCE
        while login in self._logins or len(self._logins) >= AT_ONCE:
            if time.monotonic() > until:
                sentence = "This page is busy with a search. It makes one at a time for each login"
                raise HTTPException(503, f"{sentence}, and {AT_ONCE} for all.")
            await anyio.sleep(PAUSE)
        self._logins.add(login)
        try:
            return await anyio.to_thread.run_sync(function, *arguments, limiter=self._threads)
        finally:
            self._logins.discard(login)
