"""The result of one scan of Redis, and the form of a finding. Nothing here talks to Redis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from blueque.model import keys
from blueque.model.lines import keys_among, needs_of, parse_needs
from blueque.model.states import HELD, MARK, Entry, Place, Whereabouts

# What costs order and time, but neither loses a task nor runs a task twice.
WARNINGS = frozenset(
    {
        "bad_member",
        "dead_listener",
        "double",
        "empty_line",
        "garbage",
        "group_end",
        "kept",
        "left_behind",
        "line_score",
        "malformed",
        "node",
        "open_member",
        "orders",
        "overfull",
        "popped",
        "score",
        "ripe",
        "schedule_order",
        "schedule_queue",
        "settings",
        "stale_dependent",
        "stuck",
        "unknown_key",
        "unlinked",
        "untold",
        "waiting",
    }
)

Pair = tuple[str, str]  # a queue, and a node or a line
Holder = tuple[str, tuple[str | None, ...]]  # a task that holds a lock, and its position


class Finding(NamedTuple):
    """A fault.

    code: a code of docs/protocol/audit.md, "Invariants".
    key: where it is. task, queue, node: what it concerns, if it concerns one.
    sentence: the facts, for a person.
    fix: the repair; None: a person has to decide.
    text, place: the wrong or missing entry. For a key of a wrong type, text is that type.
    seen: the hash of the task, so that a repair can check that it has not changed.
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
    seen: TaskSeen | None = None

    @property
    def is_warning(self) -> bool:
        """Return whether neither a task nor its only run is in danger."""
        return self.code in WARNINGS

    @property
    def identity(self) -> tuple[object, ...]:
        """What two scans must agree on, for the finding to be in both."""
        position = None if self.seen is None else self.seen.position
        return self.code, self.key, self.task, self.queue, self.node, self.text, position


class TaskSeen(NamedTuple):
    """The fields of a task's hash that an audit needs. Without names, there is no hash."""

    names: frozenset[str] = frozenset()
    status: str | None = None
    queue: str | None = None
    node: str | None = None
    pid: str | None = None
    token: str | None = None
    attempt: str | None = None
    reclaimed_node: str | None = None
    updated: str | None = None
    priority: str | None = None
    needs: str | None = None
    lock: str | None = None
    counted: str | None = None
    tags: str | None = None
    dependents: str | None = None
    judged: Mapping[str, str] = {}  # the fields that hash_fields.py judges

    @property
    def whereabouts(self) -> Whereabouts:
        """The fields that determine where the task must be."""
        return Whereabouts.of(self)

    @property
    def position(self) -> tuple[str | None, ...]:
        """The fields that change whenever the task moves. Progress of an attempt changes `updated`, too."""
        updated = None if self.status in HELD else self.updated
        return self.token, updated, *self.whereabouts


class ListenerSeen(NamedTuple):
    """A listener of a queue.

    state: of the registration. None: it has none, and is a 1.0.0 listener if it is a member of the
        listeners.
    """

    state: str | None = None
    instance: str | None = None
    is_member: bool = False
    has_beat: bool = False  # it is among the nodes, which have their last beat
    has_orders: bool = False
    holds: int = 0
    resources: str = ""  # of its node, as text of `lines.write_needs`

    @property
    def lives(self) -> bool:
        """Return whether it is registered as alive, or a member without registration, as of 1.0.0."""
        return self.is_member if self.state is None else self.state != "dead"


class LineSeen(NamedTuple):
    """A line besides the default line.

    score: among the lines of its queue; None: it is not listed there.
    is_waiting: whether it is listed as waiting for its lock, if its name says that it needs a lock.
    first: the id of the next task in it.
    """

    length: int
    first: str | None
    score: float | None
    is_waiting: bool


class QueueSeen(NamedTuple):
    """A queue.

    is_used: it has keys besides those that a queue may have before its first task.
    score: in the list of queues, the number of its listeners; None: it is not listed.
    members: the number of its listeners. length: of its default line.
    malformed: its other settings that have no effect.
    """

    is_used: bool
    score: float | None
    members: int
    max_running: str | None
    paused: str | None
    length: int
    malformed: Mapping[str, str]


@dataclass
class Observation:
    """The result of one scan, without the hashes of the tasks: these are judged one by one and not kept.

    bad_keys: the keys that should not exist, or not as they are.
    entries: by task. listeners, lines: by queue and name. nodes: the listeners that a key names.
    holders: for each lock, the tasks that hold it, and how many holders each allows.
    groups: the names of those that have a record. schedules: of those that have a record or are
        listed. malformed: the faulty fields of hashes that are not tasks.
    payload_keys: how many unfinished tasks and schedules need each key.
    """

    bad_keys: dict[str, Finding] = field(default_factory=dict)
    queues: dict[str, QueueSeen] = field(default_factory=dict)
    nodes: dict[Pair, None] = field(default_factory=dict)
    listeners: dict[Pair, ListenerSeen] = field(default_factory=dict)
    lines: dict[Pair, LineSeen] = field(default_factory=dict)
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    garbage: list[Entry] = field(default_factory=list)
    holders: dict[str, dict[Holder, int]] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    schedules: list[str] = field(default_factory=list)
    malformed: list[Finding] = field(default_factory=list)
    payload_keys: Counter[str] = field(default_factory=Counter)

    def note_keys(self, text: str | None) -> None:
        """Record the payload keys that an unfinished task or a schedule needs. text: its needs."""
        needs = parse_needs(text or "")
        self.payload_keys.update(keys_among(needs.resources if needs is not None else ()))

    def listener(self, queue: str, node: str | None) -> ListenerSeen:
        return self.listeners.get((queue, node or ""), ListenerSeen())

    def reject(self, code: str, key: str, sentence: str, text: str, **about: Any) -> None:
        """Record a key that should not exist, or not as it is."""
        finding = Finding(code, key, None, None, sentence, None, text=text)
        self.bad_keys[key] = finding._replace(**about)

    def note(self, place: Place, texts: Iterable[str]) -> None:
        """Record the entries of a place."""
        if place.kind in ("wake", "orders"):
            self.garbage += [Entry(place, text) for text in texts if text != MARK]
            return
        for text in texts:
            task = text
            if place.kind == "started":
                try:
                    node, _, task = keys.parse_started_member(text)
                except ValueError:  # written by another program
                    self.garbage.append(Entry(place, text))
                    continue
                self.nodes[place.queue, node] = None
            elif place.kind == "tags":
                tag, task = keys.parse_tag_entry(text)
                place = place._replace(line=tag)
            self.entries.setdefault(task, []).append(Entry(place, text))

    def note_waiting(self, lock: str, members: Iterable[str]) -> Iterator[Pair]:
        """Yield the lines that wait for a lock, with their queues; record invalid entries."""
        for member in members:
            line, separator, queue = member.partition("_")
            needs = needs_of(line)
            if separator and needs is not None and needs.lock == lock:
                yield queue, line
            else:
                self.garbage.append(Entry(Place("waiting", "", line=lock), member))


class Keys:
    """Every key of Blueque in Redis, with its type. Keys of a wrong type are recorded as bad."""

    def __init__(self, types: dict[str, str], observed: Observation) -> None:
        self.types = types
        self._observed = observed
        self._by_word: dict[str, list[str]] = {}
        for key in types:
            self._by_word.setdefault(_word(key), []).append(key)

    def starting(self, prefix: str) -> list[str]:
        """Return the keys with this prefix, which has at least the word after `blueque_`."""
        return [key for key in self._by_word.get(_word(prefix), ()) if key.startswith(prefix)]

    def is_of(self, key: str, kind: str, queue: str | None = None) -> bool:
        """Return whether the key exists and is of this type."""
        found = self.types.get(key)
        if found not in (None, kind):
            sentence = f"{key} is a {found}, not a {kind}: has another program written there?"
            self._observed.reject("wrong_type", key, sentence, str(found), queue=queue)
        return found == kind

    def of(self, prefix: str, kind: str) -> list[str]:
        """Return what follows the prefix in each key that has it and is of this type."""
        return [key.removeprefix(prefix) for key in self.starting(prefix) if self.is_of(key, kind)]


def _word(key: str) -> str:
    return key.removeprefix(keys.PREFIX).partition("_")[0]
