"""Report to systemd if it asks for it: sd_notify(3), without a library."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """Sends to the socket in the environment; removes its variables, so that no task has them."""

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        # the variables that were removed
        self.environ = {name: environ.pop(name) for name in _VARIABLES if name in environ}
        self._address = self.environ.get("NOTIFY_SOCKET", "")
        microseconds = self.environ.get("WATCHDOG_USEC", "")
        pid = self.environ.get("WATCHDOG_PID", str(os.getpid()))
        is_watched = self._address and microseconds.isdecimal() and pid == str(os.getpid())
        # seconds in which it wants a sign
        self.watchdog = int(microseconds) / 1e6 if is_watched else float("inf")
        self._said = ""

    @property
    def is_wanted(self) -> bool:
        return bool(self._address)

    def tell(self, *lines: str) -> None:
        """Send assignments such as READY=1, unless they are unchanged."""
        text = "\n".join(lines)
        if self._address and text != self._said and self._send(text):
            self._said = text

    def show_life(self) -> None:
        """Reset the watchdog."""
        self._send("WATCHDOG=1")

    def _send(self, text: str) -> bool:
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            ) as own:
                own.sendto(text.encode(), address)
        except OSError:  # no process listens, or its queue is full: no reason to stop
            return False
        return True
