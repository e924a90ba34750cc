"""Tracked: reads whose replies stay valid until Redis reports a change of one of their keys.

It reads over its own connection with CLIENT TRACKING. Redis reports a change of any key that was
read, by any client, and sends the report before the reply to a later command. Where Redis does not
report changes (a connection of redis-py, a proxy, an ACL without +hello +client|tracking), each
read asks for everything.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from blueque.connection.redis import Command, Connection, is_usable
from blueque.errors import RedisRefused

# Seconds until all is read again: a few changes are not reported, such as SWAPDB.
TRUSTED = 60.0
PROOF = 10.0  # seconds of silence after which a wait tests the connection


class Tracked:
    """Reads of one reader.

    It opens its connection when it first needs it, and again after a loss: then any key may have changed.
    is_tracking: whether Redis reports changes.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self.is_tracking = False
        self._connect = connect
        self._connection: Connection | None = None
        self._is_new = False  # the caller does not know yet that any key may have changed
        self._known: dict[Command, Any] = {}  # the replies that hold
        self._readers: defaultdict[str, set[Command]] = defaultdict(set)  # commands by their keys
        self._forget_at = -math.inf  # on the monotonic clock

    def read(self, *commands: Command) -> list[Any]:
        """Return the replies to commands that only read. Valid ones are not asked for again.

        An error reply is a value, and asked for again the next time. Raises RedisAway.
        """
        if time.monotonic() >= self._forget_at:
            self._forget()
        changed = self._reported()
        if changed is None:
            self._forget()
        for key in changed or ():
            for command in self._readers.pop(key, ()):
                self._known.pop(command, None)
        asked = [command for command in commands if command not in self._known]
        replies = dict(zip(asked, self.exchange(*asked) if asked else [], strict=True))
        for command, reply in replies.items():
            if self.is_tracking and not isinstance(reply, RedisRefused):
                self._known[command] = reply
                for key in _keys_of(command):
                    self._readers[key].add(command)
        return [replies[each] if each in replies else self._known[each] for each in commands]

    def changed(self) -> set[str] | None:
        """Return the keys that Redis has reported since the last call; None: any may have changed.

        For a reader that keeps replies itself. Raises RedisAway.
        """
        return self._reported()

    def exchange(self, *commands: Command) -> list[Any]:
        """Send commands and return the replies. Keys they read are then reported. Raises RedisAway."""
        try:
            return self._open().exchange(commands)
        except BaseException:
            self.close()
            raise

    def wait(self, seconds: float) -> None:
        """Wait at most this long for a report; may return earlier. Raises RedisAway."""
        connection = self._open()
        if (
            self._is_new
            or connection.has_invalidated()
            or connection.wait(min(seconds, PROOF))
            or seconds < PROOF
        ):
            return
        # A connection that was cut off silently stays silent for ever. Any answer proves that it is
        # alive: a server that cannot save refuses PING, too.
        self.exchange(("PING",))

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when Redis has reported a change; None: there is none."""
        return (
            self._connection.fileno() if self._connection is not None and self.is_tracking else None
        )

    def has_news(self) -> bool:
        """Return whether a report came with a reply, so that `fileno()` will not show it."""
        return self._connection is not None and self._connection.has_invalidated()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> Connection:
        if self._connection is None or not is_usable(self._connection):
            self._connection = self._connect()
            self._is_new = True
            self.is_tracking = self._connection.track()
        return self._connection

    def _reported(self) -> set[str] | None:
        try:
            connection = self._open()
            reported = connection.take_invalidated() if self.is_tracking else None
        except BaseException:
            self.close()
            raise
        is_new, self._is_new = self._is_new, False
        return None if is_new else reported

    def _forget(self) -> None:
        self._known.clear()
        self._readers.clear()
        self._forget_at = time.monotonic() + TRUSTED


def _keys_of(command: Command) -> Sequence[Any]:
    """Return the keys that a command reads: it has one, except for EXISTS."""
    return command[1:] if command[0] == "EXISTS" else command[1:2]
