"""Checks of the Sentinels: can they replace a primary that dies?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from blueque.audit.server_check import Check
from blueque.connection.redis import Redis, as_hash
from blueque.errors import RedisAway, RedisRefused
from blueque.text.format import count

FEWEST = 3  # of two, one that is left has no majority


def judge_sentinels(redis: Redis) -> Iterator[Check]:
    """Yield the checks of the Sentinels that the address names; none if it names none."""
    ask = redis.connection().ask_sentinels
    answers = [] if ask is None else ask("CKQUORUM", "SENTINELS", "REPLICAS")
    for answer in answers:
        if isinstance(answer, (RedisAway, RedisRefused)):
            sentence = f"a Sentinel of the address does not work: {answer}."
            yield Check("sentinel", "warn", sentence)
    for answer in answers:
        if not isinstance(answer, (RedisAway, RedisRefused)):
            yield from _of_one(*answer)
            return


def _of_one(quorum: Any, others: Any, replicas: Any) -> Iterator[Check]:
    """Yield what prevents Sentinels from a failover, or makes it lose more, as one of them sees it."""
    if isinstance(others, RedisRefused) or isinstance(replicas, RedisRefused):
        yield Check("sentinel", "unknown", "this user may not ask Sentinel about the servers.")
        return
    watch = f"{count(1 + len(others), 'Sentinel')} {'watch' if others else 'watches'} it"
    if isinstance(quorum, RedisRefused):
        sentence = f"no failover can happen (SENTINEL CKQUORUM: {quorum.answer})."
        yield Check("sentinel", "fail", sentence)
    elif 1 + len(others) < FEWEST:
        sentence = f"{watch}: if one is lost, no failover can happen. Run 3, on 3 hosts."
        yield Check("sentinel", "warn", sentence)
    else:
        yield Check("sentinel", "ok", f"{watch}, and they agree.")
    found = {each["name"]: each["slave-priority"] for each in map(as_hash, replicas)}
    if len(set(found.values())) > 1:
        differ = ", ".join(f"{name}: {priority}" for name, priority in sorted(found.items()))
        sentence = (
            "Sentinel may choose a replica that lacks accepted tasks before one that has them."
        )
        sentence = f"replicas differ ({differ}): {sentence} Set replica-priority 100 on each."
        yield Check("replica-priority", "warn", sentence)
