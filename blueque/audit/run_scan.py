"""The part of a scan that is about runs: which tasks are staged, and what belongs to no run."""

from __future__ import annotations

from collections.abc import Iterable

from blueque.audit.observation import Keys, Observation
from blueque.audit.reads import read_all, read_flat
from blueque.connection.redis import Redis
from blueque.model import keys
from blueque.model.states import Place

_KINDS = {"run": "hash", "ledger": "set", "staging": "zset", "manifest": "list"}
_CHUNKS_AT_ONCE = 100  # each has up to 1000 tasks


def read(redis: Redis, observed: Observation, found: Keys, queues: Iterable[str]) -> None:
    """Note the staged tasks, and the keys and chunks that belong to no run that is listed."""
    runs = {
        f"{name}_{queue}"
        for queue in queues
        if found.types.get(keys.runs(queue)) == "zset"
        for name in read_all(redis, keys.runs(queue), "zset")
    }
    lists: dict[str, list[str]] = {kind: [] for kind in _KINDS}
    for kind in _KINDS:
        for key in found.starting(f"{keys.PREFIX}{kind}_"):
            parsed = keys.parse_run(key)
            if parsed is None or not found.is_of(key, _KINDS[kind]):
                continue
            if parsed[1] in runs:
                lists[kind].append(key)
            else:
                sentence = f"{key} belongs to no run that is listed: DEL it if no producer works on that run."
                observed.reject("leftover", key, sentence, found.types[key])
    # First the staged chunks: one that is committed in between is then found in one of the two
    # lists, or in both.
    reads = [("ZRANGE", key, 0, -1) for key in lists["staging"]]
    reads += [("LRANGE", key, 0, -1) for key in lists["manifest"]]
    _read_chunks(
        redis, observed, found, {chunk for some in read_flat(redis, reads) for chunk in some}
    )


def _read_chunks(redis: Redis, observed: Observation, found: Keys, listed: set[str]) -> None:
    chunks = found.of(keys.staged(""), "list")
    reads = [("LRANGE", keys.staged(chunk), 1, -1) for chunk in chunks]  # the first is a time
    for chunk, texts in zip(chunks, read_flat(redis, reads, _CHUNKS_AT_ONCE), strict=True):
        observed.note(Place("staged", "", line=chunk), texts)
        if chunk not in listed:
            key = keys.staged(chunk)
            sentence = f"{key} holds staged tasks that belong to no run: no program publishes or discards them."
            observed.reject("leftover", key, sentence, "list")
