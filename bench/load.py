"""The load of the machine: how much of it other programs use."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

SAMPLE = 0.3  # seconds over which the load is measured
CALM = 0.05  # share of all cores that others may use
CHECK_AGAIN = 0.7  # seconds


def busy_ticks() -> tuple[int, int]:
    """Return (ticks in which a core was busy, all ticks) since the machine was started."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


def busy_share(seconds: float = SAMPLE) -> float:
    """Return the share of all cores that is in use just now, 0 to 1. Ours: the benchmark itself
    sleeps meanwhile.
    """
    busy, whole = busy_ticks()
    time.sleep(seconds)
    busy_after, whole_after = busy_ticks()
    return (busy_after - busy) / max(whole_after - whole, 1)


class Quiet:
    """Waits before a run until others are quiet, but never longer than `patience` seconds in all;
    keeps what it saw.
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.seen: list[float] = []

    def wait(self) -> None:
        while True:
            share = busy_share()
            if share <= CALM or self.patience <= 0:
                break
            time.sleep(CHECK_AGAIN)
            self.patience -= CHECK_AGAIN + SAMPLE
        self.seen.append(share)


def machine() -> dict[str, str]:
    """Return what a reader must know of this machine; nothing that names it."""
    model = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return {
        "cores": f"{cores} ({model[0]})" if model else str(cores),
        "memory": f"{memory:.0f} GiB",
        "system": f"Linux {platform.release().partition('-')[0]}",
        "Python": platform.python_version(),
    }
