"""A picture of Redis, or of a part of it, as an audit has seen it, and what a finding is. Nothing
here talks to Redis.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from blueque.model.states import Entry, Place, Whereabouts

# What costs order and time, but neither loses a task nor runs one twice.
WARNINGS = frozenset(
    {
        "dead_listener",
        "double",
        "empty_line",
        "garbage",
        "kept",
        "left_behind",
        "leftover",
        "line_score",
        "node",
        "orders",
        "overfull",
        "popped",
        "score",
        "settings",
        "stuck",
        "unknown_key",
        "waiting",
    }
)


class Finding(NamedTuple):
    """Something that is not as it must be.

    code: one of those in docs/protocol/audit.md, "Invariants".
    key: where it is. task, queue, node: what it is about, where there is one.
    sentence: the facts, for a person.
    fix: the repair, or None when a person has to decide.
    text, place: the entry that is wrong or missing; of a key of a wrong type, text is that type.
    seen: the hash of the task, so that a repair can make sure that it has not changed.
    """

    code: str
    key: str
    task: str | None
    queue: str | None
    sentence: str
    fix: str | None
    node: str | None = None
    text: str | None = None
    place: Place | None = None
    seen: Hash | None = None

    @property
    def is_warning(self) -> bool:
        """Tell whether neither a task nor its only run is in danger."""
        return self.code in WARNINGS

    @property
    def subject(self) -> tuple[str | None, ...]:
        """What makes it the same finding in another look."""
        return self.code, self.key, self.task, self.queue, self.node, self.text


class Hash(NamedTuple):
    """What counts of the hash of a task; no names: there is none."""

    names: frozenset[str] = frozenset()
    status: str | None = None
    queue: str | None = None
    node: str | None = None
    pid: str | None = None
    token: str | None = None
    attempt: str | None = None
    claimant: str | None = None
    updated: str | None = None
    priority: str | None = None
    needs: str | None = None
    lock: str | None = None
    counted: str | None = None
    run: str | None = None

    @property
    def whereabouts(self) -> Whereabouts:
        """What says where it has to be."""
        return Whereabouts(
            self.status,
            self.queue,
            self.node,
            self.pid,
            self.priority,
            self.needs,
            self.lock,
            self.counted,
        )

    @property
    def position(self) -> tuple[str | None, ...]:
        """What changes whenever the task moves on."""
        return self.token, self.attempt, *self.whereabouts


class Standing(NamedTuple):
    """What Redis knows of a listener.

    state: of its registration; None: it has none, and is of 1.0.0 if it is a member of the
        listeners.
    """

    state: str | None = None
    instance: str | None = None
    is_member: bool = False
    is_noted: bool = False  # among the nodes, which have their last beat
    has_orders: bool = False
    holds: int = 0
    resources: str = ""  # what its node has, as text of `lines.write_needs`

    @property
    def lives(self) -> bool:
        """Tell whether it is taken to live: it is registered so, or a member and not registered, as
        1.0.0's are.
        """
        return self.is_member if self.state is None else self.state != "dead"

    @property
    def words(self) -> str:
        return "which is dead" if self.state == "dead" else "which nobody remembers"


class LineSeen(NamedTuple):
    """A line besides the default one.

    score: among the lines of its queue; None: it is not there.
    is_waited: whether it is among those that wait for its lock, if its name says that it needs one.
    first: the id of the next task in it.
    """

    score: float | None = None
    is_waited: bool = False
    length: int = 0
    first: str | None = None


@dataclass
class Picture:
    """Redis at one instant, or a part of it. Tasks are looked at one by one and are not kept.

    oddities: the keys that should not be, or not as they are, with the sentence that says why.
    lines: by queue and name. settings: of a queue, `max_concurrency` and `paused`.
    in_line: how many tasks are in the default line of a queue.
    holders: how many of the tasks that were judged hold a lock. limits: the most that one of those
        allows.
    """

    scores: dict[str, float | None] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    listeners: dict[tuple[str, str], Standing] = field(default_factory=dict)
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    garbage: list[Entry] = field(default_factory=list)
    oddities: dict[str, Finding] = field(default_factory=dict)
    lines: dict[tuple[str, str], LineSeen] = field(default_factory=dict)
    settings: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    in_line: dict[str, int] = field(default_factory=dict)
    holders: dict[str, int] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)

    def standing(self, queue: str, node: str | None) -> Standing:
        return self.listeners.get((queue, node or ""), Standing())

    def note(self, task: str, place: Place, text: str, count: int = 1) -> None:
        """Remember that a place has an entry for a task, or so many."""
        self.entries.setdefault(task, []).extend([Entry(place, text)] * count)

    def see(self, queue: str, line: str, **seen: Any) -> None:
        """Remember something of a line, as the fields of LineSeen."""
        self.lines[queue, line] = self.lines.get((queue, line), LineSeen())._replace(**seen)
