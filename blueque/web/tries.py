"""Count wrong logins, so that an address can try only a few in a minute."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable

TRIES, WITHIN = 5, 60.0  # wrong logins of an address in so many seconds
MOST_ADDRESSES = 10_000  # that are remembered


class WrongTries:
    """The wrong logins of each address in the last minute."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._wrong: dict[str, list[float]] = {}
        self._guard = threading.Lock()

    def is_blocked(self, address: str) -> bool:
        """Tell whether an address has sent too many wrong logins lately."""
        return len(self._recent(network_of(address))) >= TRIES

    def note(self, address: str) -> None:
        """Remember that an address has sent a wrong login."""
        name = network_of(address)
        with self._guard:
            recent = [*self._recent(name), self._clock()]
            self._wrong.pop(name, None)
            self._wrong[name] = recent[-TRIES:]  # as the newest
            if len(self._wrong) > MOST_ADDRESSES:
                del self._wrong[next(iter(self._wrong))]

    def _recent(self, name: str) -> list[float]:
        now = self._clock()
        return [at for at in self._wrong.get(name, ()) if now - at < WITHIN]


def network_of(address: str) -> str:
    """Return what counts as one address: of IPv6, where a host has many, the first 64 bits."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
