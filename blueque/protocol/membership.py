"""A listener comes, lives and goes: register, beat, deregister, and the claim of 1.0.0's `claim_orphan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from blueque import keys
from blueque.connection import Command, Look, Redis, as_hash
from blueque.errors import NodeTaken, NotRegistered
from blueque.protocol.transaction import Answer, Change, transact


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

    instance: random, one for each life of a listener: a host name and a pid come back, an instance does not.
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
            raise NodeTaken(node, queue, known.get("instance", ""), int(known.get("beat", 0)))
        given = [item for fact in facts.items() for item in fact]
        commands: list[Command] = [
            ("DEL", registration),
            ("HSET", registration, "instance", instance, "state", "alive", "beat", 0, "beat_at", now, *given),
            ("ZADD", keys.nodes(queue), now, node),
        ]
        return Change(commands + _join(queue, node, is_member))

    look = Look(
        [registration, keys.listeners(queue)],
        [("HGETALL", registration), ("SISMEMBER", keys.listeners(queue), node)],
    )
    transact(redis, "register", look, decide)


def beat(redis: Redis, queue: str, node: str, instance: str, beat: int, now: float) -> None:
    """Show that the listener lives.

    beat: one more than the last time.
    Raises NotRegistered when the registration is gone or another's: register again before taking anything.
    """
    registration = keys.listener(queue, node)

    def decide(known: list[str | None], is_member: int) -> Answer | Change:
        _require(known, instance, node, queue)
        commands: list[Command] = [
            ("HSET", registration, "beat", beat, "beat_at", now),
            ("ZADD", keys.nodes(queue), now, node),
        ]
        # A 1.0.0 listener on this host that takes us for dead has struck us off; we are not.
        return Change(commands + _join(queue, node, is_member))

    look = Look(
        [registration, keys.listeners(queue)],
        [("HMGET", registration, "instance", "state"), ("SISMEMBER", keys.listeners(queue), node)],
    )
    transact(redis, "beat", look, decide)


def deregister(redis: Redis, queue: str, node: str, instance: str) -> bool:
    """Take leave. False: the listener still holds a task, or another has its node id; nothing was written."""
    registration = keys.listener(queue, node)
    reserved = keys.reserved(queue, node)

    def decide(known: list[str | None], is_member: int, held: int) -> Answer | Change:
        if held or known[0] != instance:
            return Answer(not held and known[0] is None)
        commands: list[Command] = [
            ("DEL", registration),
            ("ZREM", keys.nodes(queue), node),
        ]
        if is_member:
            commands += [
                ("SREM", keys.listeners(queue), node),
                ("ZINCRBY", keys.QUEUES, -1, queue),
            ]
        return Change(commands, True)

    look = Look(
        [registration, keys.listeners(queue), reserved],
        [
            ("HMGET", registration, "instance"),
            ("SISMEMBER", keys.listeners(queue), node),
            ("LLEN", reserved),
        ],
    )
    return bool(transact(redis, "deregister", look, decide))


def claim(redis: Redis, queue: str, node: str, dead: str, instance: str | None) -> str | None:
    """Claim one task of a listener that died, as 1.0.0 does, and return its id; None when there is none to claim.

    The task stays in the dead listener's list and keeps its node. The dead listener is forgotten with its last task. One
    that we have claimed and not started is returned again.
    dead: a node id. The caller has made sure that its process is gone.
    instance: of the dead listener's registration; None for one of 1.0.0.
    """
    reserved, registration = keys.reserved(queue, dead), keys.listener(queue, dead)
    (held,) = redis.read(("LRANGE", reserved, 0, -1))

    def decide(
        is_member: int, known: list[str | None], still_held: list[str], *snapshots: list[str | None]
    ) -> Answer | Change:
        entries = [(task, status, by) for task, (status, by) in zip(held, snapshots, strict=True) if status]
        for task, status, by in entries:
            if by == node and status == "reserved":
                return Answer(task)
        if not is_member or known[0] != instance or still_held != held:
            return Answer(None)
        unclaimed = [(task, status) for task, status, by in entries if not by and status not in ("complete", "failed")]
        claimed = next((task for task, status in unclaimed if status in ("reserved", "started")), None)
        commands: list[Command] = []
        if claimed:
            commands += [("HSET", keys.task(claimed), "reclaimed_node", node)]
        if len(unclaimed) == bool(claimed):
            commands += [
                ("SREM", keys.listeners(queue), dead),
                ("ZINCRBY", keys.QUEUES, -1, queue),
            ]
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


def _require(known: Sequence[str | None], instance: str, node: str, queue: str) -> None:
    if list(known) != [instance, "alive"]:
        raise NotRegistered(node, queue)
