"""What Redis says about itself, as far as this user may ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blueque.connection.redis import as_hash
from blueque.errors import RedisRefused

if TYPE_CHECKING:
    from blueque.connection.redis import Redis

ASKED = (("INFO",), ("CONFIG", "GET", "save"), ("CONFIG", "GET", "min-replicas-to-write"))
# Facts of ours: the address names Sentinels; how many replicas have to confirm a change.
WATCHED, CONFIRMING = "behind_sentinels", "confirming_replicas"


def server_facts(redis: Redis, info: Any, *settings: Any) -> dict[str, str] | None:
    """Return the facts of INFO and the settings, by name, from the replies to ASKED.

    None: this user may not call INFO.
    """
    if isinstance(info, RedisRefused):
        return None
    facts = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    for reply in settings:
        facts |= {} if isinstance(reply, RedisRefused) else as_hash(reply)
    facts[CONFIRMING] = str(redis.settings.replicas)
    return facts if redis.connection().ask_sentinels is None else facts | {WATCHED: "yes"}
