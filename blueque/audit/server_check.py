"""Checks of the Redis server: does it keep what it acknowledges, and does Blueque work with it?"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from blueque.connection.redis import Redis, raise_refusal, time_of
from blueque.errors import RedisRefused
from blueque.model import keys
from blueque.model.encoding import known_count
from blueque.queries.listeners import shared_hosts
from blueque.queries.server import ASKED, CONFIRMING, WATCHED, server_facts
from blueque.text.format import size, span

if TYPE_CHECKING:
    from blueque.queries.listeners import Node
    from blueque.queries.queue_overview import QueueOverview
    from blueque.queries.schedules import Watched

OLDEST = (6, 2)
FULL = 0.8  # of the memory that it may use
FORGOTTEN = 86400.0  # seconds after which something may have been forgotten
MOST_BOOTS = 4  # boot ids that are named
AHEAD = 60.0  # seconds by which a decided time may lie in the future
SKEW = 2.0  # seconds between two clocks that do no harm
BEHIND = 10  # seconds that a replica may be behind
REFUSES = "refuses changes"  # in the sentence of a check
_CHOSEN = {"appendonly", "min-replicas-to-write"}  # they have a price, so a person may do without
_WRITES = {
    "aof_last_write_status": ("append-only file", f"it {REFUSES} (MISCONF)"),
    "aof_last_bgrewrite_status": ("rewrite of the append-only file", "that file grows"),
    "rdb_last_bgsave_status": (
        "snapshot",
        f"it {REFUSES} (MISCONF), unless stop-writes-on-bgsave-error is no",
    ),
}


class Check(NamedTuple):
    """The result of one check.

    level: ok, warn, fail, or unknown: this user has no right to ask.
    """

    name: str
    level: str
    sentence: str


def check(redis: Redis, clock: Callable[[], float] = time.time) -> list[Check]:
    """Run all checks of the server."""
    facts, latency = _facts(redis)
    speed = f"answers in {1000 * latency:.1f} ms"
    unknown = f"{speed}; this user may not ask for INFO about its version, memory and files."
    found = [Check("info", "unknown", unknown)]
    if facts is not None:
        found = [*judge(facts, speed)]
    return [*found, _transactions(redis), _clock(redis, clock)]


def judge(facts: Mapping[str, str], speed: str) -> Iterator[Check]:
    """Yield the checks of the facts in INFO."""
    yield from _version(facts, speed)
    yield from _role(facts)
    yield from _replicas(facts)
    yield from _memory(facts)
    yield from _persistence(facts)


def concerns(facts: Mapping[str, str]) -> Iterator[Check]:
    """Yield the checks that need attention even on a server that was set up so on purpose.

    They concern what may lose tasks, or will soon stop everything.
    """
    for result in judge(facts, ""):
        if result.level in ("warn", "fail") and result.name not in _CHOSEN:
            yield result


def refuses_changes(checks: Iterable[Check], nodes: Iterable[Node]) -> bool:
    """Return whether the server has refused changes for a while: no listener has just beaten."""
    return any(REFUSES in check.sentence for check in checks) and not any(
        node.seen is not None and not node.is_late for node in nodes
    )


def judge_due(lines: Iterable[QueueOverview]) -> Iterator[Check]:
    """Yield a warning for each queue with scheduled tasks that should be in line by now."""
    for line in lines:
        if line.due.overdue:
            late = (
                "1 task is overdue by"
                if line.due.overdue == 1
                else f"{line.due.overdue} tasks are overdue by up to"
            )
            tasks = "it" if line.due.overdue == 1 else "them"
            cause = (
                f"no program puts {tasks} in line"
                if line.due.is_minded
                else f"no listener serves it, and no scheduler has put {tasks} in line"
            )
            sentence = f"queue {line.queue}: {late} {line.due.overdue_for or 0:.0f} s; {cause}: "
            yield Check("due", "warn", f"{sentence}start blueque-scheduler.")


def ahead(schedule: Watched, now: float, served: Collection[str] = ()) -> str | None:
    """Return a sentence if the last decided time of a schedule is in the future; else None."""
    if schedule.last is None or schedule.last - now <= AHEAD:
        return None
    comes = span(schedule.last - now)
    return (
        f"it makes no task for {comes}: the clock of Redis was ahead; remove it and define it again"
    )


def judge_hosts(nodes: Iterable[Node]) -> Iterator[Check]:
    """Yield the host names that several machines share."""
    for host, boots in shared_hosts(nodes).items():
        ids = ", ".join(boot[:8] for boot in boots[:MOST_BOOTS])
        ids += ", ..." if len(boots) > MOST_BOOTS else ""
        sentence = f"{len(boots)} machines are called {host} (boot ids {ids}): "
        yield Check(
            "hosts", "warn", f"{sentence}give each a name of its own with --host or BLUEQUE_HOST."
        )


def _facts(redis: Redis) -> tuple[dict[str, str] | None, float]:
    """Return the facts in INFO, and how many seconds a round trip takes."""
    asked = ("EXISTS", keys.QUEUES)  # a server that cannot save refuses PING
    redis.read(asked)  # connects, so that the next measures a round trip only
    began = time.perf_counter()
    redis.read(asked)
    latency = time.perf_counter() - began
    return server_facts(redis, *redis.answers(*ASKED)), latency


def _transactions(redis: Redis) -> Check:
    connection = redis.connection()
    connection.look_ahead = None  # our EXEC ends its watch
    try:
        raise_refusal(connection.exchange([("MULTI",), ("EXEC",)]))
    except RedisRefused as error:
        return Check(
            "transactions",
            "fail",
            f"it refuses MULTI ({error.answer}): nothing can be changed safely.",
        )
    return Check("transactions", "ok", "it takes MULTI and EXEC.")


def _version(facts: Mapping[str, str], speed: str) -> Iterator[Check]:
    name = "Valkey" if "valkey_version" in facts else "Redis"
    version = facts.get("valkey_version") or facts.get("redis_version", "of unknown version")
    numbers = [part for part in facts.get("redis_version", "").split(".") if part.isdecimal()]
    if numbers and tuple(map(int, numbers[:2])) < OLDEST:
        yield Check("version", "fail", f"{name} {version} is too old: 6.2 or newer is needed.")
    else:
        yield Check("version", "ok" if numbers else "unknown", f"{name} {version}, {speed}.")


def _role(facts: Mapping[str, str]) -> Iterator[Check]:
    if facts.get("role") == "slave":
        yield Check(
            "role", "fail", f"it is a replica, which {REFUSES}: use the address of its primary."
        )
    if facts.get("cluster_enabled") == "1":
        yield Check(
            "cluster",
            "fail",
            "it is part of a cluster, where one transaction cannot reach all keys.",
        )


def _memory(facts: Mapping[str, str]) -> Iterator[Check]:
    used = known_count(facts.get("used_memory"))
    limit = known_count(facts.get("maxmemory")) or known_count(facts.get("total_system_memory"))
    if used is not None:
        sentence = f"memory: {size(used)}{f' of {size(limit)}' if limit else ''} in use"
        if limit and used > FULL * limit:
            then = "the machine has no more: set maxmemory, so that Redis refuses changes (OOM) and is not killed"
            if known_count(facts.get("maxmemory")):
                evicts = facts.get("maxmemory_policy", "noeviction") != "noeviction"
                is_full = used > limit and not evicts
                when = f"it {REFUSES}" if is_full else "when it is full, Redis refuses all"
                then = f"{when} (OOM): raise maxmemory"
            sentence = f"{sentence}, and {then}; delete finished tasks (blueque delete)."
            yield Check("memory", "warn", sentence)
        else:
            yield Check("memory", "ok", f"{sentence}.")
    policy = facts.get("maxmemory_policy")
    if policy is None:
        yield Check(
            "maxmemory-policy", "unknown", "it does not say what it does when its memory is full."
        )
    elif policy != "noeviction":
        sentence = f"maxmemory-policy is {policy}: Redis may delete tasks when its memory is full. Set it to noeviction."
        yield Check("maxmemory-policy", "warn", sentence)
    else:
        yield Check("maxmemory-policy", "ok", "maxmemory-policy is noeviction.")


def _persistence(facts: Mapping[str, str]) -> Iterator[Check]:
    if facts.get("aof_enabled") == "0" and facts.get("save") == "":
        sentence = "nothing is written to disk: if it dies, all tasks are lost. Set appendonly yes."
        yield Check("persistence", "warn", sentence)
    elif facts.get("aof_enabled") == "0":
        sentence = "appendonly is off: if the server dies, all changes since the last snapshot are lost. Set appendonly yes."
        yield Check("appendonly", "warn", sentence)
    elif facts.get("aof_enabled") == "1":
        yield Check("appendonly", "ok", "appendonly is on.")
    else:
        yield Check(
            "appendonly", "unknown", "it does not say whether it writes an append-only file."
        )
    for name, (file, then) in _WRITES.items():
        if facts.get(name, "ok") != "ok":
            sentence = f"its {file} could not be written ({name} is {facts[name]}), and {then}: see its log and its disk."
            yield Check(name.replace("_", "-"), "fail", sentence)


def _replicas(facts: Mapping[str, str]) -> Iterator[Check]:
    """Yield a failure if missing replicas make changes refused or unconfirmed. Yield warnings if a
    failover may lose acknowledged changes, or cannot happen.
    """
    replicas, confirming = (
        known_count(facts.get(name)) or 0 for name in ("connected_slaves", CONFIRMING)
    )
    least, close = (
        known_count(facts.get(name)) for name in ("min-replicas-to-write", "min_slaves_good_slaves")
    )
    has = "it has 1 replica" if replicas == 1 else f"it has {replicas} replicas"
    if facts.get("role") != "master":
        return
    if close is not None and close < (least or 1):
        few = {0: "no replica keeps", 1: "only 1 replica keeps"}.get(close, f"only {close} keep")
        wanted = "asks for more" if least is None else f"is {least}"
        sentence = f"{few} up, and min-replicas-to-write {wanted}: it {REFUSES} (NOREPLICAS)."
        yield Check("replicas", "fail", sentence)
    elif replicas < confirming:
        sentence = (
            f"{has}, and [redis] replicas is {confirming}: no change is confirmed (NotReplicated)."
        )
        yield Check("replicas", "fail", sentence)
    elif least is not None and least < replicas:
        sentence = f"{has}, and min-replicas-to-write is {least}: a failover may lose tasks that were accepted seconds before."
        sentence = f"{sentence} Set min-replicas-to-write {replicas} and min-replicas-max-lag."
        yield Check("min-replicas-to-write", "warn", sentence)
    elif WATCHED in facts and not replicas:
        sentence = (
            "it has no replica, so Sentinel cannot replace it: if it dies, all programs wait."
        )
        yield Check("no-replica", "warn", f"{sentence} Start a server with replicaof.")
    for name, text in facts.items():
        if re.fullmatch("slave[0-9]+", name):
            yield from _replica(dict(part.split("=", 1) for part in text.split(",")))


def _replica(facts: Mapping[str, str]) -> Iterator[Check]:
    """Yield a warning if a replica is not up to date."""
    lag = known_count(facts.get("lag")) or 0
    stands = f"is {lag} s behind"
    if facts.get("state") != "online":
        stands = f"has no copy yet (state {facts.get('state')})"
    elif lag <= BEHIND:
        return
    name = f"replica {facts.get('ip')}:{facts.get('port')}"
    then = (
        "as the primary it would lack tasks that were accepted; min-replicas-max-lag prevents that"
    )
    yield Check("replica-behind", "warn", f"{name} {stands}: {then}.")


def _clock(redis: Redis, clock: Callable[[], float]) -> Check:
    before = clock()
    (reply,) = redis.read(("TIME",))
    after = clock()
    skew = abs(time_of(reply) - (before + after) / 2)
    sentence = f"its clock and the one here are {skew:.1f} s apart"
    if skew - (after - before) / 2 > SKEW:
        return Check("clock", "warn", f"{sentence}: times and ages shown are wrong by that.")
    return Check("clock", "ok", f"{sentence}.")
