"""Describe why each of many pending tasks waits, in a word, and estimate when they start."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.sentences.holders import time_to_end
from blueque.sentences.why import reasons
from blueque.sentences.why_listeners import able_listeners
from blueque.text.eta import roughly

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.inspector import Inspector
    from blueque.queries.why_facts import Inquiry
    from blueque.sentences.reason import Reason

MOST = 100  # tasks of a list
_HOLDS = ("limit", "lock", "no_room")  # reasons that go when another task ends
# Reasons for which it does not start unless a person acts, or at a time that is not known.
_NEVER = ("paused", "no_listener", "never_fits", "senseless", "missing", "popped")
_WORDS = {
    "paused": "queue paused",
    "limit": "queue limit",
    "no_listener": "no listener",
    "lock": "lock",
    "no_room": "resources in use",
    "never_fits": "fits no listener",
    "senseless": "malformed needs",
    "busy": "listeners busy",
    "behind": "others before it",
    "outranked": "higher priority",
    "beside": "others before it",
    "missing": "not in its line",
    "popped": "being taken",
    "next": "next",
}


class Start(NamedTuple):
    """Why a task waits: the code of the strongest reason, and words for it.

    seconds: until it may start; None: unknown.
    """

    code: str
    words: str
    seconds: float | None

    @property
    def about(self) -> str:
        if self.seconds is None:
            return "-"
        return f"~{roughly(self.seconds)}" if self.seconds >= 1 else "now"


def starts(inspector: Inspector, tasks: Sequence[Task]) -> dict[str, Start]:
    """Return why the first MOST of these pending tasks wait, by their ids."""
    found = {}
    for inquiry in inspector.inquire_all(tasks[:MOST]):
        why = reasons(inquiry)
        lock = inquiry.needs.lock if inquiry.needs is not None else None
        words = f"lock {lock}" if why[0].code == "lock" else _WORDS.get(why[0].code, why[0].code)
        found[inquiry.task.id] = Start(why[0].code, words, seconds_to_start(inquiry, why))
    return found


def about_start(inquiry: Inquiry, why: Sequence[Reason]) -> str:
    """Return the sentence about when a task may start; empty if that is unknown."""
    seconds = seconds_to_start(inquiry, why)
    return f"It may start in ~{roughly(seconds)}." if seconds is not None and seconds >= 1 else ""


def seconds_to_start(inquiry: Inquiry, why: Sequence[Reason]) -> float | None:
    """Return in how many seconds a pending task may start; None: unknown.

    It assumes that running tasks end by their progress or as usual, and that tasks before it run
    for the usual time of the queue.
    """
    if inquiry.task.status != "pending" or inquiry.before is None:
        return None
    if any(reason.code in _NEVER for reason in why):
        return None
    held = [reason.free_in_seconds for reason in why if reason.code in _HOLDS]
    ahead = inquiry.before + inquiry.higher + inquiry.beside
    turn = _turn(_free(inquiry), ahead, inquiry)
    known = [seconds for seconds in (*held, turn) if seconds is not None]
    return max(known) if len(known) == len(held) + 1 else None


def _free(inquiry: Inquiry) -> list[float]:
    """Return in how many seconds each listener that can run the task becomes idle, where that is known."""
    able = able_listeners(inquiry)
    # A listener of several queues runs one task at a time.
    has = {node.id: node.held[0] for node in (*inquiry.others, *able) if node.held}
    ends = [time_to_end(inquiry, has[node.id]) if node.id in has else 0.0 for node in able]
    return [end for end in ends if end is not None]


def _turn(free: list[float], ahead: int, inquiry: Inquiry) -> float | None:
    """Return when a listener is free for the task, after those that are ahead of it."""
    if inquiry.usual is None:
        return sorted(free)[ahead] if ahead < len(free) else None
    middle = (inquiry.usual.low + inquiry.usual.high) / 2
    heapq.heapify(free)
    for _ in range(ahead if free else 0):
        heapq.heapreplace(free, free[0] + middle)
    return free[0] if free else None
