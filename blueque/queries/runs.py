"""The records of runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from blueque.connection.redis import Redis, as_hash
from blueque.model import keys
from blueque.model.group import is_held
from blueque.model.run import Record, parse


def load(redis: Redis, queue: str, run: str) -> Record | None:
    """Return the record of a run, with `moved`: when it was last opened, or got tasks. None: there
    is no such run.
    """
    found = _load(redis, [(queue, run)])
    return found[0] if found else None


def load_all(redis: Redis, queues: Sequence[str]) -> list[Record]:
    """Return the records of all runs of these queues, of each the oldest first: two round trips."""
    replies = (
        redis.read(*[("ZRANGE", keys.runs(queue), 0, -1) for queue in queues]) if queues else []
    )
    wanted = [(queue, name) for queue, some in zip(queues, replies, strict=True) for name in some]
    return _load(redis, wanted) if wanted else []


def count_ledgers(redis: Redis, wanted: Iterable[tuple[str, str, int]]) -> list[int]:
    """Return how many tasks the ledgers of keyed runs contain: each a queue, a name and a number of
    shards.
    """
    ledgers = [
        [("SCARD", keys.ledger(queue, run, shard)) for shard in range(shards)]
        for queue, run, shards in wanted
    ]
    commands = [command for some in ledgers for command in some]
    counts = iter(redis.read(*commands) if commands else ())
    return [sum(islice(counts, len(some))) for some in ledgers]


def held(redis: Redis, queue: str, names: Iterable[str], now: float) -> set[str]:
    """Return those of these runs whose tasks stay until they were collected."""
    wanted = [*names]
    if not wanted:
        return set()
    records = redis.read(*[("HMGET", keys.run(queue, run), "hold", "collected") for run in wanted])
    found = zip(wanted, records, strict=True)
    return {run for run, (hold, collected) in found if is_held(hold, collected, now)}


def holds_back(redis: Redis, queue: str, run: str) -> bool:
    """Tell whether tasks of a run of an earlier version are in no line yet."""
    parts = keys.staging(queue, run), keys.manifest(queue, run)
    return any(redis.read(*[("EXISTS", key) for key in parts]))


def _load(redis: Redis, wanted: Sequence[tuple[str, str]]) -> list[Record]:
    replies = redis.read(
        *[
            command
            for queue, name in wanted
            for command in (("HGETALL", keys.run(queue, name)), ("ZSCORE", keys.runs(queue), name))
        ]
    )
    records = []
    for (queue, _), fields, moved in zip(wanted, replies[::2], replies[1::2], strict=True):
        record = parse(as_hash(fields))
        if record.get("queue") == queue:
            records.append({**record, "moved": float(moved or 0.0)})
    return records
