"""Tracking: a connection with CLIENT TRACKING, on which Redis reports changes of keys that were read."""

from __future__ import annotations

from collections.abc import Callable

from blueque.connection.redis import Connection


class Tracking:
    """The connection, opened when it is first needed, and again after it was lost: then any key may
    have changed.

    is_tracking: whether Redis reports changes. It does not through redis-py, as for TLS, or if an
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
        """Return a descriptor that is readable when Redis has reported a change; None: there is none."""
        return (
            self._connection.fileno() if self._connection is not None and self.is_tracking else None
        )

    def has_news(self) -> bool:
        """Tell whether a report was received together with a reply. Then `fileno()` does not become
        readable for it.
        """
        return self._connection is not None and self._connection.has_invalidated()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
