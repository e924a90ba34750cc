"""The index of tags: which exist, and which tasks have them. An entry is a hint; the hash of the
task decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from blueque.connection.redis import Command, Redis
from blueque.model import keys
from blueque.model.labels import require_tags

MOST = 10_000  # tasks that are read
_PAGE = 1000  # entries
_AFTER = "!"  # the character that comes after the space of an entry


class TagSeen(NamedTuple):
    """A tag. tasks: how many entries it has.

    states: how many of its tasks have each status; None: there are too many to read.
    """

    tag: str
    tasks: int
    states: dict[str, int] | None


def tagged(redis: Redis, tags: Sequence[str]) -> tuple[list[str], bool]:
    """Return the ids of the tasks that have all of these tags, and whether there may be more.

    It reads 10,000 ids of each tag. Without a tag: none. Raises InvalidInput, InvalidType.
    """
    if not (wanted := require_tags(tags)):
        return [], False
    pages = redis.read(*[_entries(tag) for tag in wanted])
    found = [
        dict.fromkeys(keys.parse_tag_entry(entry)[1] for entry in page[:MOST]) for page in pages
    ]
    ids = [task for task in found[0] if all(task in each for each in found[1:])]
    return ids, any(len(page) > MOST for page in pages)


def list_tags(redis: Redis, prefix: str, limit: int) -> tuple[list[TagSeen], bool]:
    """Return the tags with this prefix, sorted, with their numbers of tasks, and whether there are more.

    One round trip for about 1,000 entries, or for each tag with more.
    """
    names = _names(redis, prefix, limit + 1)
    has_more, names = len(names) > limit, names[:limit]
    counts: list[int] = redis.read(*[_count(tag) for tag in names])
    room, states = MOST, dict[str, dict[str, int]]()
    for tag, count in zip(names, counts, strict=True):
        if count <= room:
            room -= count
            states[tag] = _states(redis, tag)
    seen = [TagSeen(tag, count, states.get(tag)) for tag, count in zip(names, counts, strict=True)]
    return seen, has_more


def _names(redis: Redis, prefix: str, most: int) -> list[str]:
    names: dict[str, None] = {}
    start = f"[{prefix}"
    while len(names) < most:
        (page,) = redis.read(("ZRANGEBYLEX", keys.TAGS, start, "+", "LIMIT", 0, _PAGE))
        tags = [keys.parse_tag_entry(entry)[0] for entry in page]
        names |= dict.fromkeys(tag for tag in tags if tag.startswith(prefix))
        if len(page) < _PAGE or not tags[-1].startswith(prefix):
            break
        start = f"({tags[-1]}{_AFTER}"
    return list(names)[:most]


def _states(redis: Redis, tag: str) -> dict[str, int]:
    (page,) = redis.read(_entries(tag))
    ids = [keys.parse_tag_entry(entry)[1] for entry in page]
    asked = [("HMGET", keys.task(task), "status", "tags") for task in ids]
    found = redis.read(*asked)
    return dict(Counter(status for status, tags in found if status and tag in (tags or "").split()))


def _entries(tag: str) -> Command:
    return ("ZRANGEBYLEX", keys.TAGS, f"[{tag} ", f"[{tag}{_AFTER}", "LIMIT", 0, MOST + 1)


def _count(tag: str) -> Command:
    return ("ZLEXCOUNT", keys.TAGS, f"[{tag} ", f"[{tag}{_AFTER}")
