"""The part of a scan that is about earlier versions: keys that only they used, and the tasks that their
runs hold back.
"""

from __future__ import annotations

from blueque.audit.observation import Keys, Observation
from blueque.audit.reads import read_all, read_flat
from blueque.connection.redis import Redis
from blueque.model import keys

_OF_EARLIER = {"staging": "zset", "manifest": "list"}  # names of chunks
_KINDS = ("run", "runs", "ledger", "staging", "manifest", "staged", "bounded")
_CHUNKS_AT_ONCE = 100  # each has up to 1000 tasks
_WAY_OUT = (
    "in no line: end the run, or discard it, with the version of Blueque that has made it. The "
    "repairs leave these tasks alone"
)


def read(redis: Redis, observed: Observation, found: Keys) -> None:
    """Note the tasks that earlier versions have written out of sight, to put them in line together."""
    listed = set[str]()
    for kind, its_type in _OF_EARLIER.items():
        for key in found.starting(f"{keys.PREFIX}{kind}_"):
            if found.is_of(key, its_type):
                listed.update(read_all(redis, key, its_type))
                sentence = f"{key} is of a run of an earlier version, whose tasks are {_WAY_OUT}."
                observed.reject("leftover", key, sentence, its_type)
    chunks = found.of(keys.staged(""), "list")
    reads = [("LRANGE", keys.staged(chunk), 1, -1) for chunk in chunks]  # the first is a time
    for chunk, texts in zip(chunks, read_flat(redis, reads, _CHUNKS_AT_ONCE), strict=True):
        observed.staged.update(text.partition(" ")[0] for text in texts)
        if chunk not in listed:
            key = keys.staged(chunk)
            sentence = f"{key} holds tasks of an earlier version that belong to no run, and are in no line."
            observed.reject("leftover", key, sentence, "list")


def is_of_earlier_version(key: str) -> bool:
    """Tell whether a key is of a run, or the set of bounded queues, of an earlier version."""
    kind = key.removeprefix(keys.PREFIX).partition("_")[0]
    return key.startswith(keys.PREFIX) and kind in _KINDS
