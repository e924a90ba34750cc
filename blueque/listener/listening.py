"""The loop of `Listener.listen` and `ListenerGroup.listen`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from blueque.connection.redis import Connection, Patience, Redis
from blueque.errors import InvalidInput, NotRegistered, RedisAway, RedisRefused
from blueque.model import units
from blueque.model.task import Task

if TYPE_CHECKING:
    from blueque.listener.member import Member


class Source(Protocol):
    """What takes tasks: a Listener or a ListenerGroup."""

    def take(self) -> Task | None: ...
    def idle(self, seconds: float, is_answered: Callable[[Connection], bool]) -> bool: ...
    def lost(self, error: NotRegistered) -> None: ...


def wait_for_task(
    redis: Redis,
    source: Source,
    listeners: Iterable[Member],
    callback: Callable[[Task], object] | None,
    timeout: float | None,
) -> Task | None:
    """Wait until a task is reserved, call `callback` with it, and return it; None: none has come.

    listeners: to register before a task is taken. timeout: in seconds; None: no limit.
    """
    patience, turn = Patience(redis.patience), Turn(timeout)
    while True:
        try:
            for listener in listeners:
                if not listener.is_registered:
                    listener.register(None)
            task = source.take()
            if task is not None:
                break
            if turn.is_over:
                return None
            source.idle(turn.seconds, turn.is_answered)
            patience = Patience(redis.patience)
        except NotRegistered as error:
            source.lost(error)
        except (RedisAway, RedisRefused) as error:
            redis.close()
            if not patience.may_reconnect(error):
                patience.pause_or_raise(error)
    if callback is not None:
        callback(task)
    return task


class Turn:
    """How long a call waits for a task: the waits of `listen`, each for one beat at most.

    timeout: of the call; None: no limit. Raises InvalidInput.
    """

    def __init__(self, timeout: float | None) -> None:
        if timeout is not None and not timeout >= 0:  # or NaN
            raise InvalidInput(f"timeout is {timeout!r}; it has to be 0 or more seconds")
        self._deadline = math.inf if timeout is None else time.monotonic() + timeout

    @property
    def seconds(self) -> float:
        """For how long to wait now."""
        return min(max(self._deadline - time.monotonic(), 0.0), units.BEAT)

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._deadline

    def is_answered(self, connection: Connection) -> bool:
        """Wait for the answer to a command that waits for that long."""
        return connection.wait(self.seconds + 5)
