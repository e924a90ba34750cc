"""ClientSettings: what blueque.toml and the environment say of all queues of a client."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class ClientSettings(NamedTuple):
    """The settings of one client that matter to what it writes.

    days_kept: for how many days statistics are kept. aliases: the names of queues, by their second
        names. replicas: how many have to confirm a change, within replicas_timeout seconds for each try.
    """

    days_kept: int = 90
    aliases: Mapping[str, str] = MappingProxyType({})
    replicas: int = 0
    replicas_timeout: float = 1.0

    def queue_name(self, name: str) -> str:
        """Return the name of a queue that is named by it, or by an alias."""
        return self.aliases.get(name, name)
