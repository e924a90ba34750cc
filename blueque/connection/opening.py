"""Open the connection to one server that an address asks for."""

from __future__ import annotations

from collections.abc import Callable

from blueque.connection.address import Address
from blueque.connection.plain import SocketConnection
from blueque.connection.redis import Connection


def connect(
    address: Address, has_answer: Callable[[Connection], bool] | None = None
) -> SocketConnection:
    """Return a connection, with TLS or without. has_answer: see Connection."""
    if address.tls is None:
        return SocketConnection(address, has_answer)
    from blueque.connection.tls import TlsConnection  # here: few need it

    return TlsConnection(address, has_answer)
