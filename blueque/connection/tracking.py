"""Tracking: a connection with CLIENT TRACKING on, over which Redis itself says which of the keys
read have changed since.
"""

from __future__ import annotations

from collections.abc import Callable

from blueque.connection.redis import Connection


class Tracking:
    """The connection, made when it is first needed, and again when it was lost: then whatever was
    known may be old.

    is_tracking: whether Redis says so. It cannot be had through redis-py, as for TLS, nor where an
        ACL forbids it.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self.is_tracking = False
        self._connect = connect
        self._connection: Connection | None = None

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def open(self) -> tuple[Connection, bool]:
        """Return the connection, and whether it is a new one. Raises RedisAway."""
        if self._connection is not None:
            return self._connection, False
        self._connection = self._connect()
        self.is_tracking = self._connection.track()
        return self._connection, True

    def fileno(self) -> int | None:
        """Return what is readable when there is news; None: it never is."""
        return (
            self._connection.fileno() if self._connection is not None and self.is_tracking else None
        )

    def has_news(self) -> bool:
        """Tell whether there is news that came along with something else, so that `fileno()` will
        not show it.
        """
        return self._connection is not None and self._connection.has_invalidated()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
