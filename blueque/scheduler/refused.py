"""Queues that Redis refuses to serve: they are left alone for a while, and the others go on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from blueque.client import Client
from blueque.errors import InvalidInput, RedisRefused
from blueque.producer.queue import Queue

REFUSED_PAUSE = 5.0  # seconds before such a queue is tried again

log = logging.getLogger("blueque")


class RefusedQueues:
    """Tries what is to be done for a queue, and remembers where Redis refused it.

    show_life: called before each try: there may be many queues, with much to do.
    """

    def __init__(self, client: Client, show_life: Callable[[], None]) -> None:
        self._client, self._show_life = client, show_life
        self._retry_at: dict[str, float] = {}  # by queue, on the monotonic clock

    def __contains__(self, queue: str) -> bool:
        """Tell whether a queue is left alone for now."""
        return time.monotonic() < self._retry_at.get(queue, 0.0)

    def attempt(self, name: str, action: Callable[[Queue], object]) -> None:
        """Do something for a queue; what is wrong with one must not keep the others waiting."""
        self._show_life()
        try:
            action(self._client.get_queue(name))
        except (RedisRefused, InvalidInput) as error:  # InvalidInput: a name of another program's
            self.add(name, str(error))
        else:
            self._retry_at.pop(name, None)

    def add(self, name: str, reason: str | None) -> None:
        """Leave a queue alone for a while."""
        if name not in self._retry_at:
            log.warning("leaving queue %r alone: %s", name, reason)
        self._retry_at[name] = time.monotonic() + REFUSED_PAUSE

    def retry_times(self) -> Iterable[float]:
        """Return when each queue that is left alone now is to be tried again."""
        return [at for name, at in self._retry_at.items() if name in self]
