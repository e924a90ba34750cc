"""Count wrong passwords, so that an address can try only a few for a name in a minute."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable

from blueque.web.access import MOST_NAME

TRIES, WITHIN = 5, 60.0  # wrong passwords from an address for a name in so many seconds
MOST_ADDRESSES = 10_000  # with a name each, that are remembered


class WrongTries:
    """The wrong passwords from each address for each name in the last minute. Who shares an address with
    others is kept out only by tries with the same name.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._wrong: dict[tuple[str, str], list[float]] = {}
        self._guard = threading.Lock()

    def is_blocked(self, address: str, name: str) -> bool:
        """Tell whether an address has sent too many wrong passwords for a name lately."""
        return len(self._recent(_key(address, name))) >= TRIES

    def note(self, address: str, name: str) -> None:
        """Remember that an address has sent a wrong password for a name."""
        key = _key(address, name)
        with self._guard:
            recent = [*self._recent(key), self._clock()]
            self._wrong.pop(key, None)
            self._wrong[key] = recent[-TRIES:]  # as the newest
            if len(self._wrong) > MOST_ADDRESSES:
                del self._wrong[next(iter(self._wrong))]

    def _recent(self, key: tuple[str, str]) -> list[float]:
        now = self._clock()
        return [at for at in self._wrong.get(key, ()) if now - at < WITHIN]


def _key(address: str, name: str) -> tuple[str, str]:
    return network_of(address), name[:MOST_NAME]


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
