"""The transactions of a listener of several queues: beat_all, observe_all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

from blueque.connection.redis import AnyLook, Command, Look, Redis, as_hash
from blueque.model import keys
from blueque.protocol.membership import TASK_FIELDS, News, Registration, Standing, order_of, scores
from blueque.protocol.transaction import Answer, Change, Verdict, transact


class Pulse(NamedTuple):
    """What `beat_all` writes for one of the queues; see `beat`.

    facts: fields of the registration that have changed; None: the listener obeys no settings.
    """

    queue: str
    node: str
    instance: str
    beat: int
    facts: News | None = None


def beat_all(
    redis: Redis,
    pulses: Sequence[Pulse],
    now: float,
    task: str | None = None,
    may_hold: bool = True,
) -> tuple[Standing, list[str]]:
    """Show in several queues that the listener is alive, and read its orders and the state of its
    task.

    task, may_hold: as for `beat`.
    Return the standing, with the order that the listener obeys, and the queues in which it is no
    longer registered: there it has not beaten.
    """

    def decide(*replies: Any) -> Verdict[tuple[Standing, list[str]]]:
        registered = dict(zip(pulses, map(Registration._make, replies[: len(pulses)]), strict=True))
        members = dict(zip(pulses, replies[len(pulses) :], strict=False))
        ours = [pulse for pulse in pulses if registered[pulse][:2] == (pulse.instance, "alive")]
        struck = [pulse for pulse in ours if pulse.node not in members[pulse]]
        holders = ours if may_hold else []
        obeying = [pulse for pulse in ours if pulse.facts is not None]
        commands: list[Command] = [
            *[("LRANGE", keys.reserved(pulse.queue, pulse.node), 0, -1) for pulse in holders],
            *[("HGETALL", keys.settings(pulse.queue)) for pulse in obeying],
            *[
                ("HSET", keys.listener(pulse.queue, pulse.node), "beat", pulse.beat, "beat_at", now)
                for pulse in ours
            ],
            *[
                ("HSET", keys.listener(pulse.queue, pulse.node), *fact)
                for pulse in ours
                for fact in pulse.facts or ()
            ],
            *[("ZADD", keys.nodes(pulse.queue), now, pulse.node) for pulse in ours],
            *[("SADD", keys.listeners(pulse.queue), pulse.node) for pulse in struck],
            *[("ZINCRBY", keys.QUEUES, 1, pulse.queue) for pulse in struck],
        ]
        order = order_of(registered[pulse].order for pulse in ours)
        standing = Standing(order, *(replies[-1] if task is not None else ()))
        lost = [pulse.queue for pulse in pulses if pulse not in ours]

        def result(executed: Sequence[list[str]]) -> tuple[Standing, list[str]]:
            lists = zip(holders, executed, strict=False)
            held = tuple((pulse.queue, entry) for pulse, entries in lists for entry in entries)
            seen = {pulse.queue: {*members[pulse]} for pulse in ours}
            hashes = zip(obeying, executed[len(holders) :], strict=False)
            settings = {pulse.queue: as_hash(reply) for pulse, reply in hashes}
            return standing._replace(held=held, members=seen, settings=settings), lost

        return Change(commands, result) if commands else Answer((standing, lost))

    return transact(redis, "beat_all", _beat_all_look(pulses, task), decide)


def _beat_all_look(pulses: Sequence[Pulse], task: str | None) -> AnyLook:
    registrations = [keys.listener(pulse.queue, pulse.node) for pulse in pulses]
    listeners = [keys.listeners(pulse.queue) for pulse in pulses]
    reads: list[Command] = [("HMGET", key, *Registration._fields) for key in registrations]
    reads += [("SMEMBERS", key) for key in listeners]
    if task is not None:
        reads += [("HMGET", keys.task(task), *TASK_FIELDS)]
    return Look([*registrations, *listeners], reads)


def observe_all(
    redis: Redis, queues: Sequence[str], members: Mapping[str, Set[str]] | None = None
) -> list[tuple[dict[str, float], Set[str]]]:
    """Read the beats of all listeners of several queues in one write; see `observe`.

    members: the listeners of each queue, as for `observe`.
    """
    ask: list[Command] = [("ZRANGE", keys.nodes(queue), 0, -1, "WITHSCORES") for queue in queues]
    if members is not None:
        return [
            (scores(beats), members[queue])
            for queue, beats in zip(queues, redis.read(*ask), strict=True)
        ]
    _, *replies = redis.read(
        ("ZADD", keys.QUEUES, "XX", "INCR", 0, queues[0]),
        *ask,
        *[("SMEMBERS", keys.listeners(queue)) for queue in queues],
    )
    pairs = zip(replies[: len(queues)], replies[len(queues) :], strict=True)
    return [(scores(beats), set(found)) for beats, found in pairs]
