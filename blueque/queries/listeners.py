"""The listeners of all queues, as Redis shows them, and the names that a person may use for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.connection.redis import as_scores, time_of
from blueque.errors import InvalidInput
from blueque.model import keys, units
from blueque.model.encoding import seconds_of
from blueque.queries.steps import of_each
from blueque.system import hosts, process

if TYPE_CHECKING:
    from blueque.connection.redis import Command
    from blueque.queries.steps import Reader

MAX_MEMBERS = 1000  # members of a set, or of one end of a sorted set, that are read
BEATS_TO_BE_LATE = 2  # missing beats after which a listener is late
MAX_HELD = 100  # entries of a listener's list that are read; it mostly has one

LOOKS_AT_LINES = ("up", "unattended")  # states of a listener that takes tasks, from any line

# the state of a listener with such an order
_STATES = {"drain": "draining", "leave": "draining", "pause": "paused"}

# the end of a host's name in the id of a listener whose id was taken
_RANDOM_PART = re.compile("-[0-9a-f]{6}$")
# The fields of a registration, in the order of the fields of Node.
_REGISTRATION = (
    "state",
    "beat_every",
    "lease",
    "order",
    "order_by",
    "boot",
    "resources",
    "ns",
    "spool",
    "version",
    "pid_start",
    "ends_at",
    "time_limit",
    "stuck",
    "lost_after",
    "retry",
)


class Node(NamedTuple):
    """A listener of one queue, as Redis shows it.

    state: up. draining: it takes no more tasks and will exit. paused: it takes none until ordered
        to. silent: no heartbeat for its lease. unattended: used as a library, without heartbeats.
        1.0.0: without a registration. dead. gone: not registered, but it left a task behind.
    """

    id: str
    queue: str
    state: str
    seen: float | None  # seconds since its last beat
    held: tuple[str, ...]  # ids of the tasks in its own list
    order: str | None = None  # its order, and who gave it
    order_by: str | None = None
    boot: str | None = None  # the boot id of its machine
    resources: str | None = None  # of its node, as text of `lines.write_needs`
    ns: str | None = None  # its pid namespace
    spool: str | None = None  # the directory of its attempts' files
    version: str | None = None  # of Blueque
    pid_start: str | None = None  # when its process started, in clock ticks since boot
    ends_at: str | None = None  # Unix seconds as text: when it stops the tasks that run
    time_limit: str | None = None  # of tasks that have none of their own, if it has `ends_at`
    stuck: str | None = None  # see `Stuck`
    lost_after: str | None = None  # seconds without a beat after which its started tasks are lost
    retry: str | None = None  # the policy of tasks that have none of their own
    is_late: bool = False  # its next beat is overdue

    @property
    def pool(self) -> tuple[str, str, str]:
        """What listeners that share the resources of a node have in common."""
        return self.boot or self.host, self.ns or "", self.spool or ""

    @property
    def host(self) -> str:
        """The id without the process id."""
        return self.id.rpartition("_")[0] or self.id

    @property
    def is_unheard(self) -> bool:
        """Whether it should beat and has not done so for its lease."""
        return self.state in ("silent", "dead", "gone")

    @property
    def lost_in(self) -> float | None:
        """Seconds until its started tasks are lost, if it is unheard; 0: at once; None: unknown."""
        if not self.is_unheard or self.seen is None:
            return None
        return max(_seconds(self.lost_after, units.LOST_AFTER) - self.seen, 0.0)


class Stuck(NamedTuple):
    """A task that SIGKILL does not end, as its listener reports it.

    since: when the listener began to end it, in Unix seconds. state: of its process, as in `ps`.
    """

    task: str
    since: float
    state: str

    @classmethod
    def parse(cls, text: str | None) -> Stuck | None:
        """Return what the field `stuck` of a registration says; None: nothing, or it is malformed."""
        task, since, state = ["", "", *(text or "").rsplit(" ", 2)][-3:]
        at = seconds_of(since)
        return cls(task, at, state) if task and at is not None else None


class Members(NamedTuple):
    """The listeners of a queue: those that are registered, that beat, or that its started tasks name.

    started: pairs of listener and task.
    """

    listeners: Sequence[str] = ()
    beats: Mapping[str, float] = {}
    started: Sequence[tuple[str, str]] = ()

    @property
    def names(self) -> list[str]:
        """All of them, sorted."""
        return sorted({*self.listeners, *self.beats, *(node for node, _ in self.started)})

    @property
    def started_tasks(self) -> list[str]:
        return [task for _, task in self.started]


def members(queue: str) -> Reader[Members]:
    """Read which listeners a queue has: one round trip."""
    # SRANDMEMBER returns all members of a set that is not larger than the count.
    names, beats, started = yield [
        ("SRANDMEMBER", keys.listeners(queue), MAX_MEMBERS),
        ("ZREVRANGE", keys.nodes(queue), 0, MAX_MEMBERS - 1, "WITHSCORES"),
        ("SRANDMEMBER", keys.started(queue), MAX_MEMBERS),
    ]
    return Members(names, as_scores(beats), _parse(started))


def listeners(queue: str, found: Members, now: float) -> Reader[list[Node]]:
    """Read these listeners of a queue, sorted by name, and what they hold: one round trip."""
    nodes = yield from of_each({node: _listener(queue, node, found, now) for node in found.names})
    return [*nodes.values()]


def _listener(queue: str, node: str, found: Members, now: float) -> Reader[Node]:
    tasks, registration = yield [_held_command(queue, node), _registration_command(queue, node)]
    is_member, beat = node in found.listeners, found.beats.get(node)
    return _node(queue, node, registration, beat, is_member, now)._replace(held=tuple(tasks))


def all_listeners(queue: str, now: float) -> Reader[list[Node]]:
    """Read the listeners of a queue that are registered, beat, or hold a task: two round trips."""
    found = yield from members(queue)
    return (yield from listeners(queue, found, now))


def listener(queue: str, node: str, is_legacy: bool) -> Reader[tuple[float, float | None, Node]]:
    """Read the time of Redis, the last beat of a listener, and the listener without what it holds.

    One round trip. is_legacy: it may be one of 1.0.0.
    """
    registration, score, time = yield [
        _registration_command(queue, node),
        ("ZSCORE", keys.nodes(queue), node),
        ("TIME",),  # last, so that it is later than the beat
    ]
    now, beat = time_of(time), None if score is None else float(score)
    return now, beat, _node(queue, node, registration, beat, is_legacy, now)


def held(queue: str, found: Members) -> Reader[list[str]]:
    """Read the ids of the tasks that these listeners of a queue hold: one round trip.

    Most started tasks are among them.
    """
    replies = yield [_held_command(queue, node) for node in found.names]
    return [task for tasks in replies for task in tasks]


def _held_command(queue: str, node: str) -> Command:
    return ("LRANGE", keys.reserved(queue, node), 0, MAX_HELD - 1)


def _registration_command(queue: str, node: str) -> Command:
    return ("HMGET", keys.listener(queue, node), *_REGISTRATION)


def _node(
    queue: str,
    node: str,
    registration: Sequence[Any],
    beat: float | None,
    is_member: bool,
    now: float,
) -> Node:
    """Return a listener, without what it holds. is_member: it may be one of 1.0.0."""
    state, beat_every, lease, order, order_by, *facts = registration
    # Another program may have written an infinite time.
    seen = None if beat is None or not isfinite(beat) else max(now - beat, 0.0)
    state = _state(state or ("1.0.0" if is_member else "gone"), beat_every, lease, order, seen)
    is_late = seen is not None and seen > BEATS_TO_BE_LATE * _seconds(beat_every, units.BEAT)
    return Node(node, queue, state, seen, (), order, order_by, *facts)._replace(is_late=is_late)


def has_time(ends_at: str | None, until: float) -> bool:
    """Return whether a listener stops no task before that time."""
    end = seconds_of(ends_at)
    return end is None or end >= until


def puts_in_line(nodes: Iterable[Node]) -> bool:
    """Return whether a listener of a queue puts its due tasks in line."""
    return any(node.state == "up" for node in nodes)


def find_named(nodes: Sequence[Node], name: str) -> list[Node]:
    """Return the listeners that a person means by a node id or a host, with or without the domain.

    Raises InvalidInput when the name fits several hosts.
    """
    for found in ([node for node in nodes if node.id == name], _of_host(nodes, name)):
        if found:
            return found
    hosts = {_RANDOM_PART.sub("", node.host) for node in nodes if name in _short_names(node)}
    if len(hosts) > 1:
        raise InvalidInput(f"{name!r} may be {', '.join(sorted(hosts)[:3])}: give the whole name")
    found = [node for host in hosts for node in _of_host(nodes, host)]
    return [node for node in found if _short_names(node)[0] == name] or found


def names_of(node_id: str) -> set[str]:
    """Return the names of a listener for people: its id and its host, each with and without the domain."""
    host, _, pid = node_id.rpartition("_")
    host = _RANDOM_PART.sub("", host or node_id)
    short = host.partition(".")[0]
    return {node_id, host, short, f"{short}_{pid}"}


def shared_hosts(nodes: Iterable[Node]) -> dict[str, list[str]]:
    """Return the host names with listeners on more than one machine, with the boot ids of these."""
    boots: dict[str, set[str]] = {}
    for node in nodes:
        # A listener without beats may be from before its machine was restarted.
        if node.boot and node.state in ("up", "draining", "paused") and not node.is_late:
            boots.setdefault(_RANDOM_PART.sub("", node.host), set()).add(node.boot)
    return {host: sorted(found) for host, found in sorted(boots.items()) if len(found) > 1}


def youngest_beat(nodes: Iterable[Node]) -> float | None:
    """Return the age in seconds of the newest beat of these listeners; None: there is none."""
    return min((node.seen for node in nodes if node.seen is not None), default=None)


def is_process_gone(node: Node) -> bool:
    """Return whether the process of a listener has ended on this host."""
    known = {"boot": node.boot or "", "ns": node.ns or "", "pid_start": node.pid_start or ""}
    return process.is_gone(process.pid_of(node.id.rpartition("_")[2]), known)


def own_host(node: Node) -> str | None:
    """Return the host name in a listener's id if the listener runs here and this machine has
    another name.

    None: the names agree, or the listener is elsewhere.
    """
    is_here = process.shares_pids({"boot": node.boot or "", "ns": node.ns or ""})
    return node.host if is_here and not hosts.has_been_this_machine(node.host) else None


def with_dead(nodes: Iterable[Node]) -> list[Node]:
    """Mark as dead the listeners whose processes have ended on this host, before other listeners do."""
    return [node._replace(state="dead") if is_process_gone(node) else node for node in nodes]


def _short_names(node: Node) -> tuple[str, str]:
    """Return node id and host without the domain."""
    host = node.host.partition(".")[0]
    return f"{host}_{node.id.rpartition('_')[2]}", host


def _of_host(nodes: Sequence[Node], host: str) -> list[Node]:
    """Return the listeners of a host, including those whose name has a random part.

    Another host may have such a name, too, with another boot id.
    """
    own = [node for node in nodes if node.host == host]
    boots = {node.boot for node in own}
    others = [
        node for node in nodes if node.host != host and _RANDOM_PART.sub("", node.host) == host
    ]
    return own + [node for node in others if not own or node.boot in boots]


def _state(
    registered: str,
    beat_every: str | None,
    lease: str | None,
    order: str | None,
    seen: float | None,
) -> str:
    if registered != "alive":
        return registered if registered in ("dead", "1.0.0") else "gone"
    if beat_every in ("0", "0.0"):
        return "unattended"
    if seen is None or seen > _seconds(lease, units.LEASE):
        return "silent"
    return _STATES.get(order or "", "up")


def _seconds(text: str | None, otherwise: float) -> float:
    """Return a time of a registration; the default if it is missing or malformed."""
    seconds = seconds_of(text)
    return otherwise if seconds is None else seconds


def _parse(members: Iterable[str]) -> list[tuple[str, str]]:
    """Parse the members of a set of started tasks, without those of other programs."""
    parsed = []
    for member in members:
        try:
            node, _, task = keys.parse_started_member(member)
            parsed.append((node, task))
        except ValueError:
            continue
    return parsed
