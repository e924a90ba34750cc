"""Read the address of Redis, of one server or of a service behind Sentinel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blueque.connection.address import Address

if TYPE_CHECKING:
    from blueque.connection.sentinel import SentinelAddress


def address_of(url: str) -> Address | SentinelAddress:
    """Return the address in a URL. Raises InvalidInput."""
    if not url.partition(":")[0].endswith("+sentinel"):
        return Address(url)
    from blueque.connection.sentinel import SentinelAddress  # here: few need it

    return SentinelAddress(url)
