"""Proxies in front of the page: their headers are trusted, those of others are not."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from blueque.system.hosts import network_of
from blueque.web.access import Scope, Viewer, is_name

NAMED = "blueque.viewer"  # in a scope: the viewer whom a proxy has named
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Proxies:
    """Which proxies are trusted, and in which headers they name the viewer.

    networks: their addresses. has_socket: requests by a Unix socket are trusted, too.
    role_of: returns the role of a person if no header has it; None: a viewer.
    """

    networks: Sequence[Network] = ()
    has_socket: bool = False
    user_header: str = ""
    role_header: str = ""
    role_of: Callable[[str], str | None] = lambda name: None

    def believed(self, scope: Scope) -> dict[str, Any]:
        """Return the scope as the proxy saw the request. Other requests lose these headers."""
        own = {name.lower().encode() for name in (self.user_header, self.role_header) if name}
        others = [(name, value) for name, value in scope["headers"] if name not in own]
        if not self._is_trusted(scope):
            untold = {name.encode() for name in _FORWARDED}
            return {**scope, "headers": [pair for pair in others if pair[0] not in untold]}
        seen = {**scope, "headers": others}
        if address := self._address_in(_words(scope, "x-forwarded-for")):
            seen["client"] = (address, 0)
        scheme = _words(scope, "x-forwarded-proto")[-1:]
        if scheme in (["http"], ["https"]):
            seen["scheme"] = scheme[0]
        viewer = self._named(scope)
        return seen if viewer is None else {**seen, NAMED: viewer}

    def _is_trusted(self, scope: Scope) -> bool:
        client = scope.get("client")
        return self.has_socket if not client or not client[0] else self._has(client[0])

    def _has(self, address: str) -> bool:
        found = _address(address)
        return found is not None and any(found in network for network in self.networks)

    def _address_in(self, forwarded: Sequence[str]) -> str | None:
        """Return the last address that is not a proxy's: all before it may be invented."""
        for word in reversed(forwarded):
            found = _address(_without_port(word))
            if found is None:
                return None
            if not self._has(str(found)) or word is forwarded[0]:
                return str(found)
        return None

    def _named(self, scope: Scope) -> Viewer | None:
        """Return the viewer that the proxy names; None: none, or an ambiguous one."""
        names = _values(scope, self.user_header)
        if len(names) != 1 or not is_name(name := names[0].strip()):
            return None
        if not self.role_header:
            return Viewer(name, self.role_of(name) or "viewer")
        roles = _values(scope, self.role_header)
        words = roles[0].replace(",", " ").replace(";", " ").split() if len(roles) == 1 else []
        return Viewer(name, "operator" if "operator" in words else "viewer")


def networks_of(texts: Iterable[str]) -> list[Network]:
    """Read addresses and networks. Raises InvalidInput."""
    return [network_of(text) for text in texts]


def _values(scope: Scope, name: str) -> list[str]:
    """Return the values of a header, one for each time that it is there."""
    wanted = name.lower().encode()
    return [
        value.decode("utf-8", "replace")
        for key, value in scope["headers"]
        if name and key == wanted
    ]


def _words(scope: Scope, name: str) -> list[str]:
    """Return the elements of a header that is a list."""
    return [word.strip() for word in ",".join(_values(scope, name)).split(",") if word.strip()]


def _without_port(word: str) -> str:
    if word.startswith("["):
        return word[1:].partition("]")[0]
    return word.partition(":")[0] if word.count(":") == 1 else word


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found
