"""Count wrong passwords, so that an address can try only a few for a name in a minute."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable

from blueque.web.access import MOST_NAME

TRIES, WITHIN = 5, 60.0  # wrong passwords from an address for a name in so many seconds
TRIES_OF_ADDRESS = 50  # for all names together
MOST_ADDRESSES = 10_000  # with a name each, that are remembered

_Key = tuple[str, str | None]  # an address, and a name or all of them


class WrongTries:
    """The wrong passwords from each address in the last minute, for each name and for all."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._wrong: dict[_Key, list[float]] = {}
        self._guard = threading.Lock()

    def is_blocked(self, address: str, name: str) -> bool:
        """Return whether an address has sent too many wrong passwords lately, for a name or for all."""
        return any(len(self._recent(key)) >= most for key, most in _most_of(address, name))

    def note(self, address: str, name: str) -> None:
        """Remember that an address has sent a wrong password for a name."""
        with self._guard:
            for key, most in _most_of(address, name):
                recent = [*self._recent(key), self._clock()]
                self._wrong.pop(key, None)
                self._wrong[key] = recent[-most:]  # as the newest
            while len(self._wrong) > MOST_ADDRESSES:
                del self._wrong[next(iter(self._wrong))]

    def _recent(self, key: _Key) -> list[float]:
        now = self._clock()
        return [at for at in self._wrong.get(key, ()) if now - at < WITHIN]


def _most_of(address: str, name: str) -> list[tuple[_Key, int]]:
    network = network_of(address)
    return [((network, name[:MOST_NAME]), TRIES), ((network, None), TRIES_OF_ADDRESS)]


def network_of(address: str) -> str:
    """Return what counts as one address: for IPv6, where a host has many, the first 64 bits."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
