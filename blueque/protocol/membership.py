"""The life of a listener: register, beat, deregister; after its death: fence, claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import Any, NamedTuple

from blueque.connection.redis import AnyLook, Command, Look, Redis, as_hash, as_scores
from blueque.errors import Taken
from blueque.model import keys
from blueque.model.states import FINISHED, HELD
from blueque.protocol.events import Event, record_in_queue
from blueque.protocol.fields import flat
from blueque.protocol.transaction import Answer, Change, Verdict, transact

News = tuple[tuple[str, str | float], ...]  # fields of a registration that have changed


class BeatReply(NamedTuple):
    """What a listener learns from a beat.

    order: left for the listener; None: there is none.
    status to interrupt: fields of the task that the listener watches; all None without a task.
    held: the entries of the listener's own lists, each as (queue, task id).
    members: the listeners of each of its queues. settings: the settings of each of its queues.
    """

    order: str | None = None
    status: str | None = None
    token: str | None = None
    node: str | None = None
    attempt: str | None = None
    cancel: str | None = None
    error_type: str | None = None
    created: str | None = None
    stack: str | None = None
    interrupt: str | None = None
    held: tuple[tuple[str, str], ...] = ()
    members: Mapping[str, Set[str]] = {}
    settings: Mapping[str, Mapping[str, str]] = {}


TASK_FIELDS = BeatReply._fields[1:-3]  # the fields that a beat reads of the task


class Registration(NamedTuple):
    """The fields of a registration that a beat reads."""

    instance: str | None
    state: str | None
    order: str | None


class Heartbeat(NamedTuple):
    """What `beat` writes in one of the queues of a listener.

    number: one more than the last time.
    facts: fields of the registration that have changed; None: the listener obeys no settings.
    """

    queue: str
    node: str
    instance: str
    number: int
    facts: News | None = None


class _Holding(NamedTuple):
    """The fields of a task in the list of a dead listener that claim reads."""

    status: str | None
    reclaimed_node: str | None


def order_of(orders: Iterable[str | None]) -> str | None:
    """Return which of these orders a listener of several queues obeys: `drain` before any other."""
    given = [order for order in orders if order]
    return "drain" if "drain" in given else given[0] if given else None


def register(
    redis: Redis,
    queue: str,
    node: str,
    instance: str,
    facts: Mapping[str, str | int | float],
    now: float,
    dead: str | None = None,
) -> None:
    """Register a listener.

    instance: random, one for each life of a listener: host names and pids repeat, instances do not.
    facts: further fields of the registration, see docs/protocol.md, "Listener".
    dead: an instance with the same node id that is known to be dead; it is replaced.
    Raises Taken when another instance, not known to be dead, has the node id.
    """
    registration = keys.listener(queue, node)

    def decide(reply: list[str], is_member: int) -> Verdict[None]:
        registered = as_hash(reply)
        if registered.get("instance") == instance:
            return Answer(None)
        if registered.get("state") == "alive" and registered.get("instance") != dead:
            why = f"another listener is registered as {node} on queue {queue!r}"
            raise Taken(why, registered.get("instance"))
        fields = ("instance", instance, "state", "alive", "beat", 0, "beat_at", now, *flat(facts))
        commands: list[Command] = [
            ("DEL", registration),
            ("HSET", registration, *fields),
            ("ZADD", keys.nodes(queue), now, node),
        ]
        return Change(commands + _join(queue, node, is_member), None)

    look: Look[list[str], int] = Look(
        [registration, keys.listeners(queue)],
        [("HGETALL", registration), ("SISMEMBER", keys.listeners(queue), node)],
    )
    transact(redis, "register", look, decide)


def beat(
    redis: Redis,
    heartbeats: Sequence[Heartbeat],
    now: float,
    task: str | None = None,
    may_hold: bool = True,
) -> tuple[BeatReply, list[str]]:
    """Show in some queues that the listener is alive. Read its orders, the state of its task, and
    the listeners and settings of the queues.

    task: the id of the task that the listener watches, if there is one.
    may_hold: whether to read its own lists; False when they were empty a moment ago.
    Return the standing, with the order that the listener obeys, and the queues in which it is no
    longer registered and has not beaten. Register there again before taking anything.
    """

    def decide(*replies: Any) -> Verdict[tuple[BeatReply, list[str]]]:
        count = len(heartbeats)
        registered = dict(zip(heartbeats, map(Registration._make, replies[:count]), strict=True))
        members = dict(zip(heartbeats, replies[count : 2 * count], strict=True))
        ours = [each for each in heartbeats if registered[each][:2] == (each.instance, "alive")]
        holders = ours if may_hold else []
        obeying = [each for each in ours if each.facts is not None]
        # In the MULTI: a list or settings of a wrong type must not prevent the beat.
        commands: list[Command] = [
            *[("LRANGE", keys.reserved(each.queue, each.node), 0, -1) for each in holders],
            *[("HGETALL", keys.settings(each.queue)) for each in obeying],
            *_beats(ours, members, now),
        ]
        order = order_of(registered[each].order for each in ours)
        standing = BeatReply(order, *(replies[-1] if task is not None else ()))
        lost = [each.queue for each in heartbeats if each not in ours]

        def result(executed: Sequence[list[str]]) -> tuple[BeatReply, list[str]]:
            lists = zip(holders, executed, strict=False)
            held = tuple((each.queue, entry) for each, entries in lists for entry in entries)
            seen = {each.queue: {*members[each]} for each in ours}
            hashes = zip(obeying, executed[len(holders) :], strict=False)
            settings = {each.queue: as_hash(reply) for each, reply in hashes}
            return standing._replace(held=held, members=seen, settings=settings), lost

        return Change(commands, result) if commands else Answer((standing, lost))

    return transact(redis, "beat", _beat_look(heartbeats, task), decide)


def _beat_look(heartbeats: Sequence[Heartbeat], task: str | None) -> AnyLook:
    registrations = [keys.listener(each.queue, each.node) for each in heartbeats]
    listeners = [keys.listeners(each.queue) for each in heartbeats]
    reads: list[Command] = [("HMGET", key, *Registration._fields) for key in registrations]
    reads += [("SMEMBERS", key) for key in listeners]
    if task is not None:
        reads += [("HMGET", keys.task(task), *TASK_FIELDS)]
    return Look([*registrations, *listeners], reads)


def _beats(
    ours: Sequence[Heartbeat], members: Mapping[Heartbeat, Sequence[str]], now: float
) -> list[Command]:
    """Return the commands that show that the listener is alive. members: the listeners of each queue."""
    # A 1.0.0 listener on this host that took us for dead has struck us off.
    struck = [each for each in ours if each.node not in members[each]]
    return [
        *[_beat(each, now) for each in ours],
        *[("ZADD", keys.nodes(each.queue), now, each.node) for each in ours],
        *[("SADD", keys.listeners(each.queue), each.node) for each in struck],
        *[("ZINCRBY", keys.QUEUES, 1, each.queue) for each in struck],
    ]


def _beat(one: Heartbeat, now: float) -> Command:
    registration, facts = keys.listener(one.queue, one.node), chain.from_iterable(one.facts or ())
    return "HSET", registration, "beat", one.number, "beat_at", now, *facts


def deregister(
    redis: Redis, queue: str, node: str, instance: str | None, is_dead: bool = False
) -> bool:
    """Remove the registration of a listener that holds nothing.

    False: nothing was written, because it still holds a task, another one has its node id, or it is
        not dead.
    is_dead: a judge has declared it dead; otherwise it leaves by itself. instance: of the
        registration; None: a judge has seen that there is none.
    """
    registration, reserved = keys.listener(queue, node), keys.reserved(queue, node)

    def decide(registered: list[str | None], is_member: int, held: int) -> Verdict[bool]:
        expected = [instance, instance and "dead"] if is_dead else [instance, registered[1]]
        if held or registered != expected or (instance is None and is_member):
            return Answer(not held and registered == [None, None])
        commands: list[Command] = [
            ("DEL", registration, keys.orders(queue, node)),
            ("ZREM", keys.nodes(queue), node),
        ]
        return Change(commands + _part(queue, node, is_member), True)

    look: Look[list[str | None], int, int] = Look(
        [registration, keys.listeners(queue), reserved],
        [
            ("HMGET", registration, "instance", "state"),
            ("SISMEMBER", keys.listeners(queue), node),
            ("LLEN", reserved),
        ],
    )
    return transact(redis, "deregister", look, decide)


def fence(
    redis: Redis, queue: str, node: str, instance: str | None, beat: str | None, now: float
) -> bool:
    """Declare a listener dead: it can take no more tasks, and its tasks can be recovered.

    instance, beat: as seen for the whole lease. None: a 1.0.0 listener, without a registration,
        whose process is certainly gone.
    False: the listener has beaten since, or another one has the node id; or another program has
        removed the 1.0.0 listener and recovers its tasks.
    """
    registration = keys.listener(queue, node)

    def decide(registered: list[str | None], is_member: int) -> Verdict[bool]:
        if instance is None:
            is_legacy = registered == [None, None, None] and is_member
            return Change(_part(queue, node, is_member), True) if is_legacy else Answer(False)
        if registered[:2] == [instance, "dead"]:
            return Answer(True)
        if registered != [instance, "alive", beat]:
            return Answer(False)
        # Not a member: a 1.0.0 listener has struck it off, and may be about to claim its newest
        # entry.
        struck: list[str | int] = [] if is_member else ["struck", 1]
        return Change(
            [
                ("HSET", registration, "state", "dead", *struck),
                *_part(queue, node, is_member),
                record_in_queue(queue, Event("died", node, now)),
            ],
            True,
        )

    look: Look[list[str | None], int] = Look(
        [registration, keys.listeners(queue)],
        [
            ("HMGET", registration, "instance", "state", "beat"),
            ("SISMEMBER", keys.listeners(queue), node),
        ],
    )
    return transact(redis, "fence", look, decide)


def observe(
    redis: Redis, queues: Sequence[str], members: Mapping[str, Set[str]] | None = None
) -> list[tuple[dict[str, float], Set[str]]]:
    """Read for each queue the beats of its listeners, {node: a number that changes with each beat},
    and the set of listeners.

    This includes a write without effect, so that it fails while Redis refuses writes: then no
    listener can beat, and no lease expires.
    members: the listeners of each queue, from a beat that the caller has just made, which has written.
    """
    if members is not None:
        beats = redis.read(*map(ask_beats, queues))
        return [
            (as_scores(reply), members[each]) for each, reply in zip(queues, beats, strict=True)
        ]
    asked = [*map(ask_beats, queues), *map(ask_members, queues)]
    _, *replies = redis.read(write_nothing(queues[0]), *asked)
    pairs = zip(replies[: len(queues)], replies[len(queues) :], strict=True)
    return [(as_scores(beats), set(found)) for beats, found in pairs]


def write_nothing(queue: str) -> Command:
    """Return a command of `observe` that writes without effect and does not restore a forgotten queue."""
    return "ZADD", keys.QUEUES, "XX", "INCR", 0, queue


def ask_beats(queue: str) -> Command:
    return "ZRANGE", keys.nodes(queue), 0, -1, "WITHSCORES"


def ask_members(queue: str) -> Command:
    return "SMEMBERS", keys.listeners(queue)


def claim(redis: Redis, queue: str, node: str, dead: str, instance: str | None) -> str | None:
    """Claim a task of a dead listener, as 1.0.0 does. Return its id; None: there is none to claim.

    The task stays in the list of the dead listener and keeps its node. With the last task, the dead
    listener is removed. A task that we have claimed and not started is returned again.
    dead: a node id whose process is certainly gone.
    instance: of the dead listener's registration; None for a listener of 1.0.0.
    """
    reserved, registration = keys.reserved(queue, dead), keys.listener(queue, dead)
    (held,) = redis.read(("LRANGE", reserved, 0, -1))

    def decide(
        is_member: int,
        registered: list[str | None],
        still_held: list[str],
        *replies: list[str | None],
    ) -> Verdict[str | None]:
        entries = [
            (task, fields)
            for task, fields in zip(held, map(_Holding._make, replies), strict=True)
            if fields.status
        ]
        for task, fields in entries:
            if fields.reclaimed_node == node and fields.status == "reserved":
                return Answer(task)
        if not is_member or registered != [instance] or still_held != held:
            return Answer(None)
        unclaimed = [
            (task, fields.status)
            for task, fields in entries
            if not fields.reclaimed_node and fields.status not in FINISHED
        ]
        claimed = next((task for task, status in unclaimed if status in HELD), None)
        commands: list[Command] = []
        if claimed:
            commands += [("HSET", keys.task(claimed), "reclaimed_node", node)]
        if len(unclaimed) == bool(claimed):
            commands += [("SREM", keys.listeners(queue), dead), ("ZINCRBY", keys.QUEUES, -1, queue)]
            if instance is not None:
                commands += [("HSET", registration, "state", "dead")]
        return Change(commands, claimed) if commands else Answer(None)

    return transact(redis, "claim", _claim_look(queue, dead, held), decide)


def _claim_look(
    queue: str, dead: str, held: Sequence[str]
) -> Look[int, list[str | None], list[str], *tuple[list[str | None], ...]]:
    reserved, registration = keys.reserved(queue, dead), keys.listener(queue, dead)
    hashes = [keys.task(task) for task in held]
    reads: list[Command] = [
        ("SISMEMBER", keys.listeners(queue), dead),
        ("HMGET", registration, "instance"),
        ("LRANGE", reserved, 0, -1),
        *[("HMGET", key, *_Holding._fields) for key in hashes],
    ]
    return Look([keys.listeners(queue), registration, reserved, *hashes], reads)


def _join(queue: str, node: str, is_member: bool | int) -> list[Command]:
    if is_member:
        return []
    return [("SADD", keys.listeners(queue), node), ("ZINCRBY", keys.QUEUES, 1, queue)]


def _part(queue: str, node: str, is_member: int) -> list[Command]:
    if not is_member:
        return []
    return [("SREM", keys.listeners(queue), node), ("ZINCRBY", keys.QUEUES, -1, queue)]
