"""The part of a scan that is about runs: what belongs to no run."""

from __future__ import annotations

from collections.abc import Iterable

from blueque.audit.observation import Keys, Observation
from blueque.audit.reads import read_all
from blueque.connection.redis import Redis
from blueque.model import keys

_KINDS = {"run": "hash", "ledger": "set"}


def read(redis: Redis, observed: Observation, found: Keys, queues: Iterable[str]) -> None:
    """Note the keys that belong to no run that is listed."""
    runs = {
        f"{name}_{queue}"
        for queue in queues
        if found.types.get(keys.runs(queue)) == "zset"
        for name in read_all(redis, keys.runs(queue), "zset")
    }
    for kind, its_type in _KINDS.items():
        for key in found.starting(f"{keys.PREFIX}{kind}_"):
            parsed = keys.parse_run(key)
            if parsed is None or not found.is_of(key, its_type) or parsed[1] in runs:
                continue
            sentence = (
                f"{key} belongs to no run that is listed: DEL it if no producer works on that run."
            )
            observed.reject("leftover", key, sentence, found.types[key])
