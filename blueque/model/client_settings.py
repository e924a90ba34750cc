"""ClientSettings: what blueque.toml and the environment say of all queues of a client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from blueque.model.payloads import Payloads


class ClientSettings(NamedTuple):
    """The settings of one client that matter to what it writes.

    days_kept: for how many days statistics are kept. aliases: the names of queues, by their second
        names. replicas: how many have to confirm a change, within replicas_timeout seconds for each try.
        payloads: how parameters, results and the like are stored; None: as they are.
    """

    days_kept: int = 90
    aliases: Mapping[str, str] = MappingProxyType({})
    replicas: int = 0
    replicas_timeout: float = 1.0
    payloads: Payloads | None = None

    def queue_name(self, name: str) -> str:
        """Return the name of a queue that is named by it, or by an alias."""
        return self.aliases.get(name, name)


def payloads_of(
    said: Mapping[str, Any],
    environ: Mapping[str, str] = os.environ,
    aliases: Mapping[str, str] = MappingProxyType({}),
) -> Payloads | None:
    """Return what the environment, or else the table `[payloads]`, says; None: payloads are stored as
    they are. Raises InvalidInput.

    aliases: as in ClientSettings; a pattern that fits one holds for its queue.
    """
    if not (
        said
        or environ.get("BLUEQUE_PAYLOADS_KEYS")
        or environ.get("BLUEQUE_PAYLOADS_COMPRESS_FROM")
    ):
        return None
    from blueque.model.payloads import Payloads  # here: most programs have plain payloads

    return Payloads.of(said, environ, aliases)
