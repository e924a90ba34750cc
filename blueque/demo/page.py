"""The page of the demo: its address, for whom looks while the tasks run."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from pathlib import Path

from blueque.cli.verbs.web import missing
from blueque.demo.programs import Interrupts, Program, WentWrong

START_TIMEOUT = 30.0  # seconds in which it says its address
_ADDRESS = re.compile(r"(http://\S+)/login#\S+")


class DemoPage(Program):
    """`blueque web` on the Redis of the demo. address: with the token; url: without."""

    def __init__(self, directory: Path, redis: str) -> None:
        arguments = ["-m", "blueque.cli.main", "web", "--redis-url", redis, "--env", "demo"]
        super().__init__("page", arguments, directory, [signal.SIGTERM])
        self.address = self.url = ""

    def wait(self, interrupts: Interrupts) -> None:
        """Wait until it has said its address. Raises WentWrong, Interrupted."""
        deadline = time.monotonic() + START_TIMEOUT
        while (found := _ADDRESS.search(self.said())) is None:
            self.require_running()
            if time.monotonic() > deadline:
                raise WentWrong("the page has not said its address")
            interrupts.pause(0.05)
        self.address, self.url = found[0], found[1]


def open_page(
    stack: contextlib.ExitStack, directory: Path, redis: str, interrupts: Interrupts
) -> DemoPage | None:
    """Start the page, which ends with the stack; None: its packages are not installed."""
    if missing():
        return None
    page = DemoPage(directory, redis)
    stack.callback(page.stop)
    page.wait(interrupts)
    return page
