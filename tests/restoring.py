"""Puts back what a Redis held: many tests that begin with the same keys make them once."""

from __future__ import annotations

from blueque.connection.redis import Command, Redis


def restoring(redis: Redis) -> list[Command]:
    """Return commands that make every key as it is now."""
    (names,) = redis.read(("KEYS", "*"))
    asked = [(word, name) for name in names for word in ("PTTL", "DUMP")]
    replies = iter(redis.read(*asked) if asked else [])
    keys = zip(names, replies, replies, strict=True)
    return [("FLUSHALL",), *(("RESTORE", name, max(ttl, 0), dump) for name, ttl, dump in keys)]
