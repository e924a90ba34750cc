"""Which queues have nothing but complete tasks: of a hundred thousand queues most are like that.

What an overview reads of a queue takes twenty commands. Two tell whether that is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from blueque.connection.redis import Command, Redis, pack
from blueque.model import keys
from blueque.model.parts import in_parts

AT_ONCE = 2000  # queues in one write

# The keys that a quiet queue does not have. Each vanishes with its last entry.
_KEYS = (
    keys.pending,
    keys.lines,
    keys.scheduled,
    keys.blocked,
    keys.started,
    keys.failed,
    keys.cancelled,
    keys.listeners,
    keys.nodes,
    keys.settings,
    keys.counted,
    keys.feeds,
)


def quiet_queues(redis: Redis, queues: Sequence[str]) -> dict[str, int]:
    """Return how many complete tasks each quiet queue has: one round trip for 2,000 queues."""
    found: dict[str, int] = {}
    left = iter(queues)
    for replies in redis.read_batches(map(_ask, in_parts(queues, AT_ONCE))):
        count = len(replies) // 2
        some = zip(islice(left, count), replies[:count], replies[count:], strict=True)
        found.update((queue, complete) for queue, others, complete in some if not others)
    return found


def _ask(queues: Sequence[str]) -> list[Command]:
    return [*_looks(queues), *(("LLEN", keys.complete(queue)) for queue in queues)]


def _looks(queues: Sequence[str]) -> Iterator[Command]:
    """Yield the commands, packed: while Redis works on the queues before, and once for all names of
    a length.
    """
    parts: dict[int, list[bytes]] = {}
    for queue in queues:
        name = queue.encode("utf-8", "surrogateescape")
        if len(name) not in parts:
            parts[len(name)] = _parts(len(name))
        yield name.join(parts[len(name)])


def _parts(length: int) -> list[bytes]:
    """Return the command for a name of so many bytes, without the name."""
    mark = "\0" * length
    packed = pack(("EXISTS", *[key(mark) for key in _KEYS]))
    return packed.split(mark.encode()) if mark else [packed]
