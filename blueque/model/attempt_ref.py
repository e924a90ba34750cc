"""AttemptRef: the attempt of a task that a transaction concerns."""

from __future__ import annotations

from typing import NamedTuple


class AttemptRef(NamedTuple):
    """One attempt and the listener that owns it.

    token: random, one for each attempt; None for a task of a 1.0.0 listener, which has none.
    """

    queue: str
    task: str
    token: str | None
    node: str
