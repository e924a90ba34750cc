"""StopSignals: end a program with threads in good order on SIGINT or SIGTERM."""

from __future__ import annotations

import signal
import threading

from blueque.system.signals import Echoes


class StopSignals:
    """Sets an event on SIGINT or SIGTERM. A second signal interrupts at once. Use it in the main thread."""

    def __init__(self, stop: threading.Event) -> None:
        self._number: int | None = None  # of the signal that came
        self._stop, self._echoes = stop, Echoes()
        self._old = {
            number: signal.signal(number, self._take) for number in (signal.SIGINT, signal.SIGTERM)
        }

    @property
    def exit_code(self) -> int:
        """The exit code that a shell reports for a program ended by the signal."""
        return 128 + (self._number or 0)

    def restore(self) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _take(self, number: int, frame: object) -> None:
        if self._echoes.is_one(number):
            return
        if self._number is not None:
            raise KeyboardInterrupt
        self._number = number
        # From another thread: this one may be waiting for the event and hold its lock.
        threading.Thread(target=self._stop.set, daemon=True).start()
