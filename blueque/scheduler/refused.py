"""Queues that Redis refuses to serve: they are left alone for a while, and the others go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from blueque.client import Client
from blueque.errors import InvalidInput, RedisRefused
from blueque.producer.queue import Queue
from blueque.system.outage import Outage

REFUSED_PAUSE = 5.0  # seconds before such a queue is tried again


class RefusedQueues:
    """Tries what is to be done for a queue, and remembers where Redis refused it.

    show_life: called before each try: there may be many queues, with much to do.
    """

    def __init__(self, client: Client, show_life: Callable[[], None]) -> None:
        self._client, self._show_life = client, show_life
        self._retry_at: dict[str, float] = {}  # by queue, on the monotonic clock
        self._outages: dict[tuple[str, str], Outage] = {}  # by queue and duty

    def __contains__(self, queue: str) -> bool:
        """Tell whether a queue is left alone for now."""
        return time.monotonic() < self._retry_at.get(queue, 0.0)

    def attempt(self, name: str, duty: str, action: Callable[[Queue], object]) -> None:
        """Do a duty for a queue; what is wrong with one must not keep the others waiting.

        Raises RedisRefused for a reason that concerns all queues.
        """
        self._show_life()
        try:
            action(self._client.get_queue(name))
        except (RedisRefused, InvalidInput) as error:  # InvalidInput: a name of another program's
            if isinstance(error, RedisRefused) and not error.concerns_keys:
                raise
            self.note(name, duty, str(error))
        else:
            self.note(name, duty, None)

    def note(self, name: str, duty: str, reason: str | None) -> None:
        """Leave a queue alone for a while; None: its duty has been done. Log the first and the last time."""
        if reason is not None:
            outage = self._outages.setdefault((name, duty), Outage(f"serving queue {name!r} again"))
            outage.note(reason, f"leaving queue {name!r} alone")
            self._retry_at[name] = time.monotonic() + REFUSED_PAUSE
        elif (name, duty) in self._outages:
            self._outages.pop((name, duty)).note(None)

    def retry_times(self) -> Iterable[float]:
        """Return when each queue that is left alone now is to be tried again."""
        return [at for name, at in self._retry_at.items() if name in self]
