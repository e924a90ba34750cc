"""Addresses on which a server of ours listens."""

from __future__ import annotations

import ipaddress
import socket

from blueque.errors import InvalidInput


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `127.0.0.1:9464`, `[::1]:9464` or `:9464`. Raises InvalidInput."""
    host, colon, port = text.rpartition(":")
    if (
        not colon
        or not port.isdecimal()
        or int(port) > 65535
        or (":" in host and not host.startswith("["))
    ):
        if colon and port.isdecimal() and int(port) > 65535:
            raise InvalidInput(f"{text!r}: the port is more than 65535")
        raise InvalidInput(
            f"{text!r} is not an address: write HOST:PORT, such as 127.0.0.1:9464 or [::1]:9464"
        )
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches that host. Raises OSError if the name is unknown."""
    found = {
        address[4][0] for address in socket.getaddrinfo(host or None, 0, flags=socket.AI_PASSIVE)
    }
    return all(
        ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found
    )
