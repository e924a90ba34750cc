"""A listener comes, lives and goes: register, beat, deregister; when it is found dead: fence,
strike, forget, claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import Command, Look, Redis, as_hash
from blueque.errors import NodeTaken, NotRegistered
from blueque.model import keys
from blueque.protocol.transaction import Answer, Change, transact


class Standing(NamedTuple):
    """What a beat tells the listener: the order left for it, and how the task that it watches
    stands.

    order: drain, or None. The others are fields of the task; all None when it watches none, or when
        it is gone.
    held: the entries of the listener's own lists, each as (queue, task id).
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
    held: tuple[tuple[str, str], ...] = ()


STANDING = Standing._fields[1:-1]  # what is read of the task


def order_of(orders: Iterable[str | None]) -> str | None:
    """Return which of these a listener of several queues obeys: somebody's drain, before what it
    has written itself.
    """
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
    """Make a listener known.

    instance: random, one for each life of a listener: a host name and a pid come back, an instance
        does not.
    facts: what the registration says besides, see docs/protocol.md, "Listener".
    dead: an instance under the same node id that the caller knows to be dead; it is replaced.
    Raises NodeTaken when another instance, not known to be dead, has the node id.
    """
    registration = keys.listener(queue, node)

    def decide(reply: list[str], is_member: int) -> Answer | Change:
        known = as_hash(reply)
        if known.get("instance") == instance:
            return Answer(None)
        if known and known.get("state") == "alive" and known.get("instance") != dead:
            beat = known.get("beat", "")
            raise NodeTaken(
                node, queue, known.get("instance", ""), int(beat) if beat.isdecimal() else 0
            )
        given = [item for fact in facts.items() for item in fact]
        commands: list[Command] = [
            ("DEL", registration),
            (
                "HSET",
                registration,
                "instance",
                instance,
                "state",
                "alive",
                "beat",
                0,
                "beat_at",
                now,
                *given,
            ),
            ("ZADD", keys.nodes(queue), now, node),
        ]
        return Change(commands + _join(queue, node, is_member))

    look = Look(
        [registration, keys.listeners(queue)],
        [("HGETALL", registration), ("SISMEMBER", keys.listeners(queue), node)],
    )
    transact(redis, "register", look, decide)


def beat(
    redis: Redis,
    queue: str,
    node: str,
    instance: str,
    beat: int,
    now: float,
    task: str | None = None,
) -> Standing:
    """Show that the listener lives, and see what is wanted of it.

    beat: one more than the last time.
    task: the id of the task that it watches, if there is one.
    Raises NotRegistered when the registration is gone or another's: register again before taking
    anything.
    """
    registration = keys.listener(queue, node)

    def decide(
        known: list[str | None], is_member: int, snapshot: Sequence[Any] = ()
    ) -> Answer | Change:
        instance_and_state, order = known[:2], known[2]
        _require(instance_and_state, instance, node, queue)
        commands: list[Command] = [
            # In here, so that a key of another type does not keep the beat from being written.
            ("LRANGE", keys.reserved(queue, node), 0, -1),
            ("HSET", registration, "beat", beat, "beat_at", now),
            ("ZADD", keys.nodes(queue), now, node),
        ]
        # A 1.0.0 listener on this host that takes us for dead has struck us off; we are not.
        commands += _join(queue, node, is_member)
        standing = Standing(order, *snapshot)
        return Change(
            commands,
            lambda replies: standing._replace(held=tuple((queue, held) for held in replies[0])),
        )

    reads: list[Command] = [
        ("HMGET", registration, "instance", "state", "order"),
        ("SISMEMBER", keys.listeners(queue), node),
    ]
    if task is not None:
        reads += [("HMGET", keys.task(task), *STANDING)]
    look = Look([registration, keys.listeners(queue)], reads)
    standing: Standing = transact(redis, "beat", look, decide)
    return standing


def deregister(redis: Redis, queue: str, node: str, instance: str) -> bool:
    """Take leave. False: the listener still holds a task, or another has its node id; nothing was
    written.
    """
    registration = keys.listener(queue, node)
    reserved = keys.reserved(queue, node)

    def decide(known: list[str | None], is_member: int, held: int) -> Answer | Change:
        if held or known[0] != instance:
            return Answer(not held and known[0] is None)
        commands: list[Command] = [
            ("DEL", registration, keys.orders(queue, node)),
            ("ZREM", keys.nodes(queue), node),
        ]
        return Change(commands + _part(queue, node, is_member), True)

    look = Look(
        [registration, keys.listeners(queue), reserved],
        [
            ("HMGET", registration, "instance"),
            ("SISMEMBER", keys.listeners(queue), node),
            ("LLEN", reserved),
        ],
    )
    return bool(transact(redis, "deregister", look, decide))


def fence(redis: Redis, queue: str, node: str, instance: str, beat: str | None) -> bool:
    """Declare a listener dead: from now on it can take nothing, and what it holds can be recovered.

    instance, beat: as the caller has seen them all the while. False: it has beaten since, or
        another has the node id.
    """
    registration = keys.listener(queue, node)

    def decide(known: list[str | None], is_member: int) -> Answer | Change:
        if known[:2] == [instance, "dead"]:
            return Answer(True)
        if known != [instance, "alive", beat]:
            return Answer(False)
        # Not a member: a 1.0.0 listener has struck it off, and may be about to claim its newest
        # entry.
        doubt: list[str | int] = [] if is_member else ["struck", 1]
        return Change(
            [("HSET", registration, "state", "dead", *doubt), *_part(queue, node, is_member)], True
        )

    look = Look(
        [registration, keys.listeners(queue)],
        [
            ("HMGET", registration, "instance", "state", "beat"),
            ("SISMEMBER", keys.listeners(queue), node),
        ],
    )
    return bool(transact(redis, "fence", look, decide))


def strike(redis: Redis, queue: str, node: str) -> bool:
    """Strike a dead listener of 1.0.0, which has no registration, off the listeners; what it holds
    can then be recovered.

    The caller has made sure that its process is gone. False: somebody else was first, and recovers
    it.
    """

    def decide(exists: int, is_member: int) -> Answer | Change:
        if exists or not is_member:
            return Answer(False)
        return Change(_part(queue, node, is_member), True)

    look = Look(
        [keys.listener(queue, node), keys.listeners(queue)],
        [("EXISTS", keys.listener(queue, node)), ("SISMEMBER", keys.listeners(queue), node)],
    )
    return bool(transact(redis, "strike", look, decide))


def forget(redis: Redis, queue: str, node: str, instance: str | None) -> bool:
    """Remove what is left of a dead listener that holds nothing any more. False: it holds
    something, or is not dead.

    instance: of its registration, which says dead; None when it has none.
    """
    registration = keys.listener(queue, node)
    reserved = keys.reserved(queue, node)

    def decide(known: list[str | None], held: int) -> Answer | Change:
        if held or known != [instance, instance and "dead"]:
            return Answer(known == [None, None] and not held)
        return Change(
            [("DEL", registration, keys.orders(queue, node)), ("ZREM", keys.nodes(queue), node)],
            True,
        )

    look = Look(
        [registration, reserved], [("HMGET", registration, "instance", "state"), ("LLEN", reserved)]
    )
    return bool(transact(redis, "forget", look, decide))


def observe(redis: Redis, queue: str) -> tuple[dict[str, float], set[str]]:
    """Look at the beats of all listeners of a queue: ({node: a number that changes with each beat},
    the set of listeners).

    It writes as well, without changing anything: while Redis refuses to write, nobody can beat, and
    nobody is dead for it.
    """
    _, beats, members = redis.read(
        ("ZADD", keys.QUEUES, "XX", "INCR", 0, queue),
        ("ZRANGE", keys.nodes(queue), 0, -1, "WITHSCORES"),
        ("SMEMBERS", keys.listeners(queue)),
    )
    return {node: float(score) for node, score in zip(beats[::2], beats[1::2], strict=True)}, set(
        members
    )


def claim(redis: Redis, queue: str, node: str, dead: str, instance: str | None) -> str | None:
    """Claim one task of a listener that died, as 1.0.0 does, and return its id; None when there is
    none to claim.

    The task stays in the dead listener's list and keeps its node. The dead listener is forgotten
    with its last task. One that we have claimed and not started is returned again.
    dead: a node id. The caller has made sure that its process is gone.
    instance: of the dead listener's registration; None for one of 1.0.0.
    """
    reserved, registration = keys.reserved(queue, dead), keys.listener(queue, dead)
    (held,) = redis.read(("LRANGE", reserved, 0, -1))

    def decide(
        is_member: int, known: list[str | None], still_held: list[str], *snapshots: list[str | None]
    ) -> Answer | Change:
        entries = [
            (task, status, by) for task, (status, by) in zip(held, snapshots, strict=True) if status
        ]
        for task, status, by in entries:
            if by == node and status == "reserved":
                return Answer(task)
        if not is_member or known[0] != instance or still_held != held:
            return Answer(None)
        ended = ("complete", "failed", "cancelled")
        unclaimed = [
            (task, status) for task, status, by in entries if not by and status not in ended
        ]
        claimed = next(
            (task for task, status in unclaimed if status in ("reserved", "started")), None
        )
        commands: list[Command] = []
        if claimed:
            commands += [("HSET", keys.task(claimed), "reclaimed_node", node)]
        if len(unclaimed) == bool(claimed):
            commands += [("SREM", keys.listeners(queue), dead), ("ZINCRBY", keys.QUEUES, -1, queue)]
            if instance is not None:
                commands += [("HSET", registration, "state", "dead")]
        return Change(commands, claimed) if commands else Answer(None)

    look = Look(
        [keys.listeners(queue), registration, reserved, *[keys.task(task) for task in held]],
        [
            ("SISMEMBER", keys.listeners(queue), dead),
            ("HMGET", registration, "instance"),
            ("LRANGE", reserved, 0, -1),
            *[("HMGET", keys.task(task), "status", "reclaimed_node") for task in held],
        ],
    )
    claimed: str | None = transact(redis, "claim", look, decide)
    return claimed


def _join(queue: str, node: str, is_member: int) -> list[Command]:
    if is_member:
        return []
    return [("SADD", keys.listeners(queue), node), ("ZINCRBY", keys.QUEUES, 1, queue)]


def _part(queue: str, node: str, is_member: int) -> list[Command]:
    if not is_member:
        return []
    return [("SREM", keys.listeners(queue), node), ("ZINCRBY", keys.QUEUES, -1, queue)]


def _require(known: Sequence[str | None], instance: str, node: str, queue: str) -> None:
    if list(known) != [instance, "alive"]:
        raise NotRegistered(node, queue)
