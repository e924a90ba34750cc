"""The part of a scan that is about runs of earlier versions: the tasks that they hold back."""

from __future__ import annotations

from blueque.audit.observation import Keys, Observation
from blueque.audit.reads import read_all, read_flat
from blueque.connection.redis import Redis
from blueque.model import keys
from blueque.model.earlier_versions import CHUNK_NAMES, staged

_CHUNKS_AT_ONCE = 100  # each has up to 1000 tasks
_WAY_OUT = (
    "in no line: end the run, or discard it, with the version of Blueque that has made it. The "
    "repairs leave these tasks alone"
)


def read(redis: Redis, observed: Observation, found: Keys) -> None:
    """Note the tasks that earlier versions have written out of sight, to put them in line together."""
    listed = set[str]()
    for kind, its_type in CHUNK_NAMES.items():
        for key in found.starting(f"{keys.PREFIX}{kind}_"):
            if found.is_of(key, its_type):
                listed.update(read_all(redis, key, its_type))
                sentence = f"{key} is of a run of an earlier version, whose tasks are {_WAY_OUT}."
                observed.reject("leftover", key, sentence, its_type)
    chunks = found.of(staged(""), "list")
    reads = [("LRANGE", staged(chunk), 1, -1) for chunk in chunks]  # the first is a time
    for chunk, texts in zip(chunks, read_flat(redis, reads, _CHUNKS_AT_ONCE), strict=True):
        observed.staged.update(text.partition(" ")[0] for text in texts)
        if chunk not in listed:
            key = staged(chunk)
            sentence = f"{key} holds tasks of an earlier version that belong to no run, and are in no line."
            observed.reject("leftover", key, sentence, "list")
