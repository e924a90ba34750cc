"""Check the rights of a listener or a scheduler in Redis when it starts.

The commands follow a MULTI without an EXEC: Redis says for each whether the user may run it, and
runs none.
"""

from __future__ import annotations

from collections.abc import Iterable

from blueque.connection.redis import Command, Redis, raise_refusal
from blueque.errors import CLUSTER, RedisRefused
from blueque.model import keys
from blueque.protocol.transaction import TO_REPLICAS, prove

# For each command the words after the key: Redis checks their number before the rights.
_OF_A_KEY: dict[str, tuple[str | int, ...]] = {
    "BZPOPMIN": (1,),
    "COPY": (keys.QUEUES,),
    "DEL": (),
    "EXISTS": (),
    "EXPIRE": (1,),
    "EXPIREAT": (1,),
    "HDEL": ("f",),
    "HEXISTS": ("f",),
    "HGET": ("f",),
    "HGETALL": (),
    "HINCRBY": ("f", 0),
    "HINCRBYFLOAT": ("f", 0),
    "HKEYS": (),
    "HMGET": ("f",),
    "HSET": ("f", ""),
    "LINDEX": (0,),
    "LLEN": (),
    "LPOS": ("m",),
    "LPUSH": ("m",),
    "LRANGE": (0, -1),
    "LREM": (0, "m"),
    "LTRIM": (0, -1),
    "MGET": (),
    "PERSIST": (),
    "RPOPLPUSH": (keys.QUEUES,),
    "RPUSH": ("m",),
    "SADD": ("m",),
    "SCARD": (),
    "SET": ("",),
    "SISMEMBER": ("m",),
    "SMISMEMBER": ("m",),
    "SMEMBERS": (),
    "SRANDMEMBER": (),
    "SREM": ("m",),
    "UNLINK": (),
    "WATCH": (),
    "XADD": ("*", "f", ""),
    "XREVRANGE": ("+", "-"),
    "ZADD": (0, "m"),
    "ZCARD": (),
    "ZINCRBY": (0, "m"),
    "ZMSCORE": ("m",),
    "ZRANGE": (0, -1),
    "ZRANGEBYSCORE": (0, 1),
    "ZREM": ("m",),
    "ZSCORE": ("m",),
}
LISTENER = frozenset({*_OF_A_KEY, "MULTI", "EXEC", "TIME", "UNWATCH"})
SCHEDULER = LISTENER - {"BZPOPMIN", "RPOPLPUSH"}


def require_rights(redis: Redis, commands: frozenset[str], queues: Iterable[str]) -> None:
    """Raise RedisRefused if this user may not run one of the commands, or if Redis is a cluster.

    queues: the user must have access to their keys.
    """
    tried: list[Command] = [
        (name, keys.QUEUES, *_OF_A_KEY[name]) for name in sorted(commands & _OF_A_KEY.keys())
    ]
    tried += [(name,) for name in ("TIME", "UNWATCH")]
    if redis.settings.replicas:
        tried += [TO_REPLICAS, ("WAIT", 0, 0)]
    of_queues = [
        key for queue in queues for key in (keys.pending(queue), keys.listener(queue, "n"))
    ]
    tried.append(("EXISTS", keys.QUEUES, keys.task("0"), *of_queues))
    connection = redis.connection()
    try:
        prove(connection)  # MULTI and EXEC
        # Once more, for the commands below: without it, Redis would run them.
        raise_refusal(connection.exchange([("MULTI",)]))
        refusals = [
            reply for reply in connection.exchange(tried) if isinstance(reply, RedisRefused)
        ]
    finally:
        connection.close()  # without an EXEC: Redis discards the commands
    for refusal in refusals:
        if refusal.code in CLUSTER:
            raise refusal
    missing = [refusal for refusal in refusals if refusal.code == "NOPERM"]
    if missing:
        names = ", ".join(
            dict.fromkeys(refusal.command.partition(" ")[0].lower() for refusal in missing)
        )
        raise RedisRefused(f"{missing[0].answer}; this user lacks: {names}")
