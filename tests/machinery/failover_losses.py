"""What failovers take back of what was acknowledged, by kind of change: a primary, two replicas and
three Sentinels, and for each kind a thread that makes changes one by one.

`PYTHONPATH=tests:tests/machinery:tests/legacy python tests/machinery/failover_losses.py [TIMES]`
prints a line for each failover and setting of replicas.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from failovers import REPLICAS, SENTINELS, VARIANTS, Variant
from running import until
from sentinels import WHOLE, watched

from blueque import Client
from blueque.connection.sentinel import ASK_EVERY
from blueque.errors import BluequeError

MANY = 1000  # changes of each kind, at most
RATE = 20.0  # of each kind in a second
# A person has the primary replaced; it dies; it is cut off from replicas and Sentinels, and clients
# reach it still.
KINDS = ("replace", "kill", "part")
SETTINGS = {**VARIANTS, "replicas alone": Variant(replicas=1)}
# Makes the change with this number, and returns the id of its task.
Change: TypeAlias = Callable[[int], str]


def changes(client: Client) -> dict[str, tuple[Change, tuple[str | None, ...]]]:
    """Return how each kind of change is made, and the statuses of a task that has lost it."""
    queue, line, taken = (client.get_queue(name) for name in ("made", "line", "taken"))
    (waiting,) = line.enqueue_iter(["in"] * MANY)
    taken.enqueue_many(["in"] * 2 * MANY)
    listener = client.get_listener("taken")
    held = [client.get_processor(listener.listen()) for _ in range(2 * MANY)]
    for processor in held[MANY:]:
        processor.start(os.getpid())

    def start(number: int) -> str:
        held[number].start(os.getpid())
        return held[number].task.id

    def end(number: int) -> str:
        held[MANY + number].complete("out")
        return held[MANY + number].task.id

    def cancel(number: int) -> str:
        line.cancel(waiting[number])
        return waiting[number]

    return {
        "enqueue": (lambda _: queue.enqueue("in"), (None,)),
        "start": (start, ("reserved",)),
        "end": (end, ("started",)),
        "cancel": (cancel, ("pending",)),
    }


def lost(fault: str, variant: Variant, directory: Path) -> dict[str, tuple[int, int]]:
    """Have one failover; return by kind how many changes are lost, of how many acknowledged ones."""
    with watched(directory, REPLICAS, SENTINELS, *variant.options, by_wire=True) as service:
        until(service.is_whole, WHOLE, "all replicas at the primary")
        client = Client(service.url, patience=30, replicas=variant.replicas)
        kinds = changes(client)
        made: dict[str, list[str]] = {kind: [] for kind in kinds}
        over = threading.Event()

        def make(kind: str, change: Change) -> None:
            for number in range(MANY):
                with suppress(BluequeError):  # not acknowledged
                    made[kind].append(change(number))
                if over.wait(1 / RATE):
                    break
            client.close()

        threads = [
            threading.Thread(target=make, args=(kind, kinds[kind][0]), daemon=True)
            for kind in kinds
        ]
        for thread in threads:
            thread.start()
        time.sleep(2)
        service.strike(fault, "no queue", ASK_EVERY + 3)  # all have left the primary by then
        until(service.is_whole, WHOLE, "all replicas at the primary")
        over.set()
        for thread in threads:
            thread.join()
        found = {
            kind: (sum(client.get_task(one).status in kinds[kind][1] for one in some), len(some))
            for kind, some in made.items()
        }
        client.close()
    return found


def main(times: int) -> None:
    logging.getLogger("blueque").disabled = True
    for fault in KINDS:
        for name, variant in SETTINGS.items():
            gone, made = Counter[str](), Counter[str]()
            for _ in range(times):
                with tempfile.TemporaryDirectory() as directory:
                    for kind, (some, of_all) in lost(fault, variant, Path(directory)).items():
                        gone[kind] += some
                        made[kind] += of_all
            row = ", ".join(f"{kind} {gone[kind]} of {made[kind]}" for kind in made)
            print(f"{fault}, {name}: {row}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 3)
