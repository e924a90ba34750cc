"""A look at the machine while chaos goes on: when did it let nobody run? What comes late then is
nobody's fault.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from chaos_ledger import now

LOOK = 0.02  # seconds between two looks
SHORTEST = 0.3  # seconds; what is shorter, everybody has to live with


@contextlib.contextmanager
def stalls_noted(note: Callable[[float, float], None]) -> Iterator[None]:
    """Call `note`, from a thread, with the beginning and the end of each time for which this
    process stood still.

    A process that waits does not stand still. When ours does, so does the network of chaos, which
    is in it.
    """
    is_over = threading.Event()

    def watch() -> None:
        last = now()
        while not is_over.wait(LOOK):
            at = now()
            if at - last >= SHORTEST:
                note(last, at)
            last = at

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
