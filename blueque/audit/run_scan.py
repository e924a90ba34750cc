"""The part of an audit that is about runs: which tasks are staged, and what no run knows of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from blueque.audit.observation import Finding, Hash, Picture
from blueque.audit.reads import BATCH, batches, note_staged
from blueque.connection.redis import Command, Redis
from blueque.model import keys
from blueque.model.states import Entry

TYPES = {"run": "hash", "ledger": "set", "staging": "zset", "manifest": "list"}

Expect = Callable[[Picture, dict[str, str], str, str, str | None], bool]

_SOME = 100  # chunks in one round trip: each has up to 1000 tasks


def read(
    redis: Redis, picture: Picture, types: dict[str, str], queues: Iterable[str], expect: Expect
) -> None:
    """Note what is staged, of all keys and their types. What no run knows of is an oddity."""
    runs = set[str]()
    for queue in queues:
        if types.get(keys.runs(queue)) == "zset":
            (names,) = redis.read(("ZRANGE", keys.runs(queue), 0, -1))
            runs |= {f"{name}_{queue}" for name in names}
    lists: dict[str, list[str]] = {"staging": [], "manifest": []}
    for key in types:
        parsed = keys.parse_run(key)
        if parsed is None or not expect(picture, types, key, TYPES[parsed[0]], None):
            continue
        if parsed[1] not in runs:
            _leave_over(
                picture,
                key,
                types[key],
                "is of no run that is listed: DEL it if nobody works on that run.",
            )
        elif parsed[0] in lists:
            lists[parsed[0]].append(key)
    # Those that are staged first: what is decided in between is then found at one of the two, or
    # twice.
    named = _named(redis, [("ZRANGE", key, 0, -1) for key in lists["staging"]])
    named |= _named(redis, [("LRANGE", key, 0, -1) for key in lists["manifest"]])
    chunks = [
        key
        for key in types
        if key.startswith(keys.staged("")) and expect(picture, types, key, "list", None)
    ]
    for some in batches(chunks, _SOME):
        for key, (_, *texts) in zip(some, _contents(redis, some), strict=True):
            chunk = key.removeprefix(keys.staged(""))
            note_staged(picture, chunk, texts)
            if chunk not in named:
                why = "holds staged tasks that no run knows of: nobody publishes or discards them."
                _leave_over(picture, key, "list", why)


def chunks_of(redis: Redis, suspects: Mapping[str, Hash | None]) -> dict[str, set[Entry]]:
    """Return the entries in staged chunks of those tasks that are of a run."""
    runs = {
        (seen.queue, seen.run)
        for seen in suspects.values()
        if seen is not None and seen.queue and seen.run
    }
    picture = Picture()
    for queue, run in sorted(runs):
        chunks = _named(redis, [("ZRANGE", keys.staging(queue, run), 0, -1)])
        chunks |= _named(redis, [("LRANGE", keys.manifest(queue, run), 0, -1)])
        for some in batches(sorted(chunks), _SOME):
            contents = _contents(redis, [keys.staged(chunk) for chunk in some])
            for chunk, (_, *texts) in zip(some, contents, strict=True):
                note_staged(picture, chunk, texts, suspects)
    return {task: set(entries) for task, entries in picture.entries.items()}


def _named(redis: Redis, commands: list[Command]) -> set[str]:
    return {
        name for some in batches(commands, BATCH) for names in redis.read(*some) for name in names
    }


def _contents(redis: Redis, lists: Iterable[str]) -> list[list[str]]:
    """Return what chunks hold, the time first; as if nothing were in those that are gone."""
    return [content or [""] for content in redis.read(*[("LRANGE", key, 0, -1) for key in lists])]


def _leave_over(picture: Picture, key: str, kind: str, why: str) -> None:
    picture.oddities[key] = Finding("leftover", key, None, None, f"{key} {why}", None, text=kind)
