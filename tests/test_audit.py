"""The audit: a clean Redis has no finding, each damage exactly its own, and each repair leaves a clean Redis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from blueque import keys, protocol
from blueque.audit import audit

Q = 'films "à la carte" \\ [1]'
NODE, OTHER, DEAD, GHOST = "a host_7", "b.example.com_8", "a host_6", "ghost_5"


class House:
    """A queue with a task in each status, two listeners that live and one that is dead and holds a started task."""

    def __init__(self, redis: Any, cli: Any) -> None:
        self.redis, self.cli = redis, cli
        for task in ("started", "complete", "failed", "reserved"):
            self._add(NODE, task)
        protocol.complete(redis, Q, "complete", "t-complete", NODE, "r", None, 5.0)
        protocol.fail(redis, Q, "failed", "t-failed", NODE, "e", 5.0)
        protocol.schedule(redis, Q, "scheduled", "p", None, 100.0, 1.0)
        protocol.enqueue(redis, Q, "cancelled", "p", None, 1.0)
        protocol.cancel(redis, Q, "cancelled", "me", None, 2.0)
        self._add(DEAD, "adrift")
        protocol.fence(redis, Q, DEAD, f"i-{DEAD}", "0")
        protocol.register(redis, Q, OTHER, f"i-{OTHER}", {}, 2.0)
        for task in ("pending", "second"):
            protocol.enqueue(redis, Q, task, "p", None, 1.0)

    def _add(self, node: str, task: str) -> None:
        redis, instance = self.redis, f"i-{node}"
        protocol.register(redis, Q, node, instance, {}, 2.0)
        protocol.enqueue(redis, Q, task, "p", None, 1.0)
        protocol.pop(redis, Q, node, instance)
        protocol.reserve(redis, Q, task, f"t-{task}", node, instance, 3.0)
        if task != "reserved":
            protocol.start(redis, Q, task, f"t-{task}", node, 99, 4.0)


@pytest.fixture
def house(redis: Any, cli: Any) -> House:
    return House(redis, cli)


class Damage(NamedTuple):
    """What is done, and the finding it must give: its code, key and task."""

    name: str
    done: Callable[[Any], object]
    code: str
    key: str
    task: str | None = None
    is_fixed: bool = True


T = keys.task
P, Z, S, C, F, X, L, N, W = (
    name(Q) for name in (
        keys.pending, keys.scheduled, keys.started, keys.complete, keys.failed, keys.cancelled, keys.listeners, keys.nodes,
        keys.wake,
    )
)
INDEX, R = keys.tasks(Q), keys.reserved(Q, NODE)


def both(*actions: Callable[[Any], object]) -> Callable[[Any], object]:
    return lambda cli: [action(cli) for action in actions]


DAMAGES = [
    Damage("an id in line without a task", lambda cli: cli.lpush(P, "nobody"), "no_hash", P, "nobody"),
    Damage("an id scheduled without a task", lambda cli: cli.zadd(Z, {"nobody": 1}), "no_hash", Z, "nobody"),
    Damage("an id held without a task", lambda cli: cli.lpush(R, "nobody"), "no_hash", R, "nobody"),
    Damage("an id held by a ghost without a task", lambda cli: cli.lpush(keys.reserved(Q, GHOST), "nobody"), "no_hash",
           keys.reserved(Q, GHOST), "nobody"),
    Damage("an id complete without a task", lambda cli: cli.lpush(C, "nobody"), "no_hash", C, "nobody"),
    Damage("an id failed without a task", lambda cli: cli.lpush(F, "nobody"), "no_hash", F, "nobody"),
    Damage("an id cancelled without a task", lambda cli: cli.lpush(X, "nobody"), "no_hash", X, "nobody"),
    Damage("a task deleted by 1.0.0", both(lambda cli: cli.delete(T("complete")), lambda cli: cli.lrem(C, 1, "complete")),
           "no_hash", INDEX, "complete"),
    Damage("a member started without a task", lambda cli: cli.sadd(S, f"{NODE} 1 nobody"), "no_hash", S, "nobody"),
    Damage("a member started of another pid", lambda cli: cli.sadd(S, f"{NODE} 1 started"), "misplaced", S, "started"),
    Damage("a member started of another node", lambda cli: cli.sadd(S, f"{OTHER} 99 started"), "misplaced", S, "started"),
    Damage("a member started of a finished task", lambda cli: cli.sadd(S, f"{NODE} 99 complete"), "misplaced", S,
           "complete"),
    Damage("a finished task in line", lambda cli: cli.lpush(P, "complete"), "misplaced", P, "complete"),
    Damage("a started task in line", lambda cli: cli.lpush(P, "started"), "misplaced", P, "started"),
    Damage("a scheduled task in line", lambda cli: cli.lpush(P, "scheduled"), "misplaced", P, "scheduled"),
    Damage("a pending task scheduled", lambda cli: cli.zadd(Z, {"pending": 1}), "misplaced", Z, "pending"),
    Damage("a complete task failed", lambda cli: cli.lpush(F, "complete"), "misplaced", F, "complete"),
    Damage("a failed task cancelled", lambda cli: cli.lpush(X, "failed"), "misplaced", X, "failed"),
    Damage("a pending task complete", lambda cli: cli.lpush(C, "pending"), "misplaced", C, "pending"),
    Damage("a complete task held", lambda cli: cli.lpush(R, "complete"), "misplaced", R, "complete"),
    Damage("a started task held by another", lambda cli: cli.lpush(keys.reserved(Q, OTHER), "started"), "misplaced",
           keys.reserved(Q, OTHER), "started"),
    Damage("a pending task in line and held", lambda cli: cli.lpush(R, "pending"), "misplaced", R, "pending"),
    Damage("a task in the line of another queue", both(lambda cli: cli.lpush(keys.pending("other"), "pending"),
                                                      lambda cli: cli.zadd(keys.QUEUES, {"other": 0})),
           "misplaced", keys.pending("other"), "pending"),
    Damage("a task in the index of another queue", both(lambda cli: cli.zadd(keys.tasks("other"), {"pending": 0}),
                                                       lambda cli: cli.zadd(keys.QUEUES, {"other": 0})),
           "misplaced", keys.tasks("other"), "pending"),
    Damage("a task twice in line", lambda cli: cli.lpush(P, "pending"), "double", P, "pending"),
    Damage("a task completed twice", lambda cli: cli.lpush(C, "complete"), "double", C, "complete"),
    Damage("a task held twice", lambda cli: cli.lpush(R, "started"), "double", R, "started"),
    Damage("a pending task nowhere", lambda cli: cli.lrem(P, 1, "pending"), "missing", P, "pending"),
    Damage("a scheduled task nowhere", lambda cli: cli.zrem(Z, "scheduled"), "missing", Z, "scheduled"),
    Damage("a complete task nowhere", lambda cli: cli.lrem(C, 1, "complete"), "missing", C, "complete"),
    Damage("a failed task nowhere", lambda cli: cli.lrem(F, 1, "failed"), "missing", F, "failed"),
    Damage("a cancelled task nowhere", lambda cli: cli.lrem(X, 1, "cancelled"), "missing", X, "cancelled"),
    Damage("a reserved task that nobody holds", lambda cli: cli.lrem(R, 1, "reserved"), "missing", R, "reserved"),
    Damage("a started task that nobody holds", lambda cli: cli.lrem(R, 1, "started"), "missing", R, "started"),
    Damage("a started task that is not in the set", lambda cli: cli.srem(S, f"{NODE} 99 started"), "missing", S, "started"),
    Damage("a task that is not in the index", lambda cli: cli.zrem(INDEX, "failed"), "missing", INDEX, "failed"),
    Damage("a task popped and not reserved", lambda cli: cli.lmove(P, R, "RIGHT", "LEFT"), "popped", R, "pending", False),
    Damage("a task popped by a dead listener", lambda cli: cli.lmove(P, keys.reserved(Q, DEAD), "RIGHT", "LEFT"), "held",
           keys.reserved(Q, DEAD), "pending"),
    Damage("a task popped by a ghost", lambda cli: cli.lmove(P, keys.reserved(Q, GHOST), "RIGHT", "LEFT"), "held",
           keys.reserved(Q, GHOST), "pending"),
    Damage("a task reserved by a ghost", both(lambda cli: cli.lmove(R, keys.reserved(Q, GHOST), "LEFT", "LEFT"),
                                             lambda cli: cli.hset(T("reserved"), "node", GHOST)),
           "held", keys.reserved(Q, GHOST), "reserved"),
    Damage("a task reserved by a dead listener", both(lambda cli: cli.lmove(R, keys.reserved(Q, DEAD), "LEFT", "LEFT"),
                                                     lambda cli: cli.hset(T("reserved"), "node", DEAD)),
           "held", keys.reserved(Q, DEAD), "reserved"),
    Damage("a task that a dead 1.0.0 listener has claimed", both(
        lambda cli: cli.lmove(R, keys.reserved(Q, DEAD), "LEFT", "LEFT"),
        lambda cli: cli.hset(T("reserved"), mapping={"node": DEAD, "reclaimed_node": GHOST})),
        "held", keys.reserved(Q, DEAD), "reserved", False),
    Damage("a task started by a ghost", both(
        lambda cli: cli.lmove(keys.reserved(Q, DEAD), keys.reserved(Q, GHOST), "LEFT", "LEFT"),
        lambda cli: cli.srem(S, f"{DEAD} 99 adrift"), lambda cli: cli.sadd(S, f"{GHOST} 99 adrift"),
        lambda cli: cli.hset(T("adrift"), "node", GHOST), lambda cli: cli.delete(keys.listener(Q, DEAD)),
        lambda cli: cli.zrem(N, DEAD)),
        "held", keys.reserved(Q, GHOST), "adrift", False),
    Damage("a stump", lambda cli: cli.hset(T("nobody"), mapping={"status": "complete", "result": "r", "updated": 1}),
           "stump", T("nobody"), "nobody"),
    Damage("a task without parameters", lambda cli: cli.hdel(T("pending"), "parameters"), "partial", T("pending"), "pending",
           False),
    Damage("a task without queue", lambda cli: cli.hdel(T("pending"), "queue"), "partial", T("pending"), "pending", False),
    Damage("a task without status", lambda cli: cli.hdel(T("pending"), "status"), "partial", T("pending"), "pending", False),
    Damage("a task in an unknown status", lambda cli: cli.hset(T("pending"), "status", "lazy"), "unknown_status",
           T("pending"), "pending", False),
    Damage("a result beside an error", lambda cli: cli.hset(T("failed"), "result", "r"), "both", T("failed"), "failed"),
    Damage("an error beside a result", lambda cli: cli.hset(T("complete"), "error", "e"), "both", T("complete"), "complete"),
    Damage("a running task with both", lambda cli: cli.hset(T("started"), mapping={"error": "e", "result": "r"}), "both",
           T("started"), "started", False),
    Damage("a reservation without token", lambda cli: cli.hdel(T("reserved"), "token"), "no_token", T("reserved"),
           "reserved", False),
    Damage("a score that drifted", lambda cli: cli.zincrby(keys.QUEUES, 1, Q), "score", keys.QUEUES),
    Damage("a queue that is not in the list", lambda cli: cli.zrem(keys.QUEUES, Q), "unknown_queue", keys.QUEUES),
    Damage("a node without registration", lambda cli: cli.zadd(N, {GHOST: 1}), "node", N),
    Damage("a registration without node", lambda cli: cli.zrem(N, NODE), "node", N),
    Damage("a dead member", both(lambda cli: cli.sadd(L, DEAD), lambda cli: cli.zincrby(keys.QUEUES, 1, Q)), "dead_member",
           L),
    Damage("a dead listener with nothing", both(lambda cli: cli.hset(keys.listener(Q, OTHER), "state", "dead"),
                                               lambda cli: cli.srem(L, OTHER), lambda cli: cli.zincrby(keys.QUEUES, -1, Q)),
           "dead_listener", keys.listener(Q, OTHER)),
    Damage("a registration without instance", lambda cli: cli.hdel(keys.listener(Q, OTHER), "instance"), "registration",
           keys.listener(Q, OTHER), None, False),
    Damage("orders for nobody", lambda cli: cli.zadd(keys.orders(Q, GHOST), {"0": 0}), "orders", keys.orders(Q, GHOST)),
    Damage("orders of a wrong shape", lambda cli: cli.zadd(keys.orders(Q, NODE), {"go": 0}), "garbage",
           keys.orders(Q, NODE)),
    Damage("a wake-up marker of a wrong shape", lambda cli: cli.zadd(W, {"started": 0}), "garbage", W),
    Damage("a started member of another program", lambda cli: cli.sadd(S, "hello"), "garbage", S),
    Damage("a line that is a string", both(lambda cli: cli.delete(P), lambda cli: cli.set(P, "hello")), "wrong_type", P,
           None, False),
    Damage("a task that is a string", lambda cli: cli.set(T("nobody"), "hello"), "wrong_type", T("nobody"), None, False),
    Damage("a registration that is a string", both(
        lambda cli: cli.delete(keys.listener(Q, OTHER)), lambda cli: cli.set(keys.listener(Q, OTHER), "hello")),
        "wrong_type", keys.listener(Q, OTHER), None, False),
    Damage("a key that nobody knows", lambda cli: cli.set("blueque_lock_x", "1"), "unknown_key", "blueque_lock_x", None,
           False),
    Damage("a list of a queue that nobody knows", lambda cli: cli.lpush(keys.reserved("other", GHOST), "nobody"),
           "unknown_key", keys.reserved("other", GHOST), None, False),
]


def test_a_house_in_order_has_no_finding(house):
    assert audit(house.redis) == []


def test_an_empty_redis_has_no_finding(redis):
    assert audit(redis) == []


@pytest.mark.parametrize("settle", [0.0, 0.01])
@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.name for damage in DAMAGES])
def test_each_damage_has_exactly_its_own_finding(house, damage, settle):
    damage.done(house.cli)

    found = audit(house.redis, settle)

    assert [(finding.code, finding.key, finding.task) for finding in found] == [(damage.code, damage.key, damage.task)]
    assert (found[0].fix is not None) == damage.is_fixed
