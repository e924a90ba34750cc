"""What a listener and a scheduler may do in Redis, tried when they start, so that a missing right
is seen by a person.

The commands stand behind a MULTI that never gets its EXEC: Redis says of each whether this user may
run it, and runs none.
"""

from __future__ import annotations

from collections.abc import Iterable

from blueque.connection.redis import Command, Redis, exchange, raise_refusal
from blueque.errors import CLUSTER, RedisRefused
from blueque.model import keys
from blueque.protocol.transaction import prove

# Each with what Redis wants to see behind the key before it looks at the rights.
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
    "RPOPLPUSH": (keys.QUEUES,),
    "RPUSH": ("m",),
    "SADD": ("m",),
    "SCARD": (),
    "SET": ("",),
    "SISMEMBER": ("m",),
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
    """Raise RedisRefused if this user may not run one of these commands, or if this is a node of a
    cluster.

    queues: whose keys the user has to reach.
    """
    tried: list[Command] = [
        (name, keys.QUEUES, *_OF_A_KEY[name]) for name in sorted(commands & _OF_A_KEY.keys())
    ]
    tried += [(name,) for name in ("TIME", "UNWATCH")]
    of_queues = [
        key for queue in queues for key in (keys.pending(queue), keys.listener(queue, "n"))
    ]
    tried.append(("EXISTS", keys.QUEUES, keys.task("0"), *of_queues))
    connection = redis.connection()
    try:
        prove(connection)  # MULTI and EXEC
        # again: without it, all that follows would be done
        raise_refusal(exchange(connection, [("MULTI",)]))
        refusals = [
            reply for reply in exchange(connection, tried) if isinstance(reply, RedisRefused)
        ]
    finally:
        connection.close()  # without an EXEC, so nothing of it is done
    for refusal in refusals:
        if refusal.code in CLUSTER:
            raise refusal
    missing = [refusal for refusal in refusals if refusal.code == "NOPERM"]
    if missing:
        names = ", ".join(
            dict.fromkeys(refusal.command.partition(" ")[0].lower() for refusal in missing)
        )
        raise RedisRefused(f"{missing[0].answer}; this user lacks: {names}")
