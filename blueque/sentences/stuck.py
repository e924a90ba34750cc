"""Describe a task that SIGKILL does not end."""

from __future__ import annotations

from blueque.queries.listeners import Stuck
from blueque.text.format import span

_STATES = {
    "D": "It waits in the kernel, for example for a file server",
    "T": "It is stopped",
    "t": "A debugger holds it",
}


def words_of(stuck: Stuck, now: float) -> str:
    """Return what a listener did to the task and since when, and what its process does."""
    does = f". {_STATES[stuck.state]}" if stuck.state in _STATES else ""
    return f"killed it {span(now - stuck.since)} ago, but the process is still there (state {stuck.state}){does}"
