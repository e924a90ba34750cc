"""Queues that Redis refuses to serve: they are left alone for a while, and the others continue."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterable

from blueque.client import Client
from blueque.errors import InvalidInput, RedisRefused
from blueque.producer.queue import Queue

log = logging.getLogger("blueque")
REFUSED_PAUSE = 5.0  # seconds before such a queue is tried again


class RefusedQueues:
    """Tries what is to be done for a queue, and remembers where Redis refused it.

    show_life: called before each try: there may be many queues, with much to do.
    """

    def __init__(self, client: Client, show_life: Callable[[], None]) -> None:
        self._client, self._show_life = client, show_life
        self._retry_at: dict[str, float] = {}  # by queue, on the monotonic clock
        # by queue: when it was first refused, on the monotonic clock, and the reasons by duty
        self._refused: dict[str, tuple[float, dict[str, str]]] = {}

    def __contains__(self, queue: str) -> bool:
        """Return whether a queue is left alone for now."""
        return time.monotonic() < self._retry_at.get(queue, 0.0)

    def attempt(self, name: str, duty: str, action: Callable[[Queue], object]) -> None:
        """Do a duty for a queue, so that a fault of one does not delay the others.

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
        """Skip a queue for a while; None: its duty has been done. Log each reason once, and the end."""
        now = time.monotonic()
        if reason is not None:
            reasons = self._refused.setdefault(name, (now, {}))[1]
            if reason not in reasons.values():
                log.warning(
                    "%s; %s queue %r", reason, "still skipping" if reasons else "skipping", name
                )
            reasons[duty] = reason
            self._retry_at[name] = now + REFUSED_PAUSE
        elif name in self._refused:
            began, reasons = self._refused[name]
            reasons.pop(duty, None)
            if not reasons:
                del self._refused[name]
                log.warning("serving queue %r again after %.1f s", name, now - began)

    def end(self, duty: str, due: Container[str]) -> None:
        """Note a duty as done for the queues that are tried again and where it is not due any more."""
        for name in [*self._refused]:
            if name not in due and name not in self:
                self.note(name, duty, None)

    def forget_gone(self, known: Container[str]) -> None:
        """Forget the queues that are not registered any more."""
        for name in [name for name in self._retry_at if name not in known]:
            del self._retry_at[name]
            self._refused.pop(name, None)

    def retry_times(self) -> Iterable[float]:
        """Return when each queue that is left alone now is to be tried again."""
        return [at for name, at in self._retry_at.items() if name in self]
