"""Say in words that SIGKILL does not end a task."""

from __future__ import annotations

from blueque.queries.listeners import Stuck
from blueque.text.format import span

_STATES = {
    "D": "waits in the kernel, as for a file server that does not answer, or is frozen",
    "T": "is stopped",
    "t": "is held by a debugger",
}


def words_of(stuck: Stuck, now: float) -> str:
    """Return since when it is being ended, and what its process does."""
    does = f"{_STATES.get(stuck.state, 'is still there')} (state {stuck.state})"
    return f"being ended for {span(now - stuck.since)}, and SIGKILL does not end it: its process {does}"
