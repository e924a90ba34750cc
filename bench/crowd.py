"""Many waiting listeners, each a process forked from one parent, in the library's own
`Listener.listen`.

    python -m bench.crowd URL COUNT FILE

Writes into the file a line "ready" when all are registered; then one for each task, "LATENCY
WAKE-UPS": seconds from the time in its parameters until `listen` returned it, and how often that
listener has been woken since its last task. A line "0 1" tells of one that was woken and found
nothing. It ends, with all of them, at SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from blueque import Client
from blueque.errors import BluequeError
from blueque.protocol import reserving

QUEUE = "crowd"
STAGGER = 0.002  # seconds between two forks


def main() -> None:
    url, count = sys.argv[1], int(sys.argv[2])
    heard = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    pids = []
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    try:
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                _live(url, heard)
            pids.append(pid)
            time.sleep(STAGGER)
        inspector = Client(url).get_inspector()
        while len(inspector.listeners(QUEUE)) < count:
            time.sleep(0.05)
        time.sleep(1.0)  # so that the last has begun to wait
        os.write(heard, b"ready\n")
        while True:
            signal.pause()
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)


def _live(url: str, heard: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        _listen(url, heard)
    except BluequeError as error:
        os.write(2, f"{error}\n".encode())
    finally:
        os._exit(1)


def _listen(url: str, heard: int) -> None:
    client = Client(url)
    listener = client.get_listener(QUEUE)
    woken = 0
    wait = reserving.wait

    def counted(*arguments: Any, **named: Any) -> str | None:
        nonlocal woken
        if woken:  # it waits again: that call was for nothing
            os.write(heard, b"0 %d\n" % woken)
            woken = 0
        marker: str | None = wait(*arguments, **named)
        woken += marker is not None and "_wake_" in marker
        return marker

    reserving.wait = counted
    while True:
        task = listener.listen()
        took = time.time() - float(task.parameters)
        os.write(heard, b"%.6f %d\n" % (took, woken))
        woken = 0
        processor = client.get_processor(task)
        processor.start(os.getpid())
        processor.complete("")


if __name__ == "__main__":
    main()
