"""Registry: which listeners share a spool, and for which master: `[spool]/listeners/[pid]`.

A master may exit while a listener still runs a task. That listener takes one of the slots of the
next master, which reads the registry instead of Redis. The health check of a container reads it,
too: `python -m blueque.node.registry`. It exits with 0 if BLUEQUE_SPOOL has live listeners and
Redis accepted a beat of each within BLUEQUE_LEASE.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from blueque.model import units
from blueque.system import process
from blueque.system.plain_files import remove, write_whole
from blueque.text.format import count

log = logging.getLogger("blueque")


class Registry:
    """The listeners that share one spool."""

    def __init__(self, spool: str) -> None:
        self._directory = f"{os.path.abspath(spool)}/listeners"
        self._entry = b""  # of this process, once it has joined

    def join(self, queues: Sequence[str], master: int) -> None:
        """Record that this process is a listener of these queues.

        If the disk is full, log that: without an entry, it would not count as a slot if left behind.
        """
        entry = {
            "queues": list(queues),
            **process.identity(os.getpid()),
            "master": master,
            "master_start": process.start_ticks(master),
        }
        self._entry = json.dumps(entry).encode()
        try:
            self._write()
        except OSError as error:
            log.warning("cannot join the registry %s: %s", self._directory, error.strerror)

    def _write(self) -> None:
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        path = f"{self._directory}/{os.getpid()}"
        write_whole(f"{path}.new", self._entry)
        os.rename(f"{path}.new", path)

    def sign(self) -> None:
        """Record that Redis has just accepted our beat."""
        with contextlib.suppress(OSError):
            try:
                os.utime(f"{self._directory}/{os.getpid()}")
            except FileNotFoundError:
                # with the whole spool; it is made again where tasks are taken
                if self._entry and os.path.isdir(os.path.dirname(self._directory)):
                    self._write()

    def signs(self) -> list[float]:
        """Return for how many seconds each live listener has not beaten."""
        ages = []
        for pid in self._entries():
            with contextlib.suppress(OSError):  # it has left meanwhile
                ages.append(time.time() - os.stat(f"{self._directory}/{pid}").st_mtime)
        return ages

    def leave(self) -> None:
        remove(f"{self._directory}/{os.getpid()}")

    def alive(self) -> set[int]:
        """Return the pids of all live listeners."""
        return set(self._entries())

    def queues(self) -> set[str]:
        """Return the queues of all live listeners."""
        return {
            str(queue) for entry in self._entries().values() for queue in entry.get("queues", [])
        }

    def left_behind(self, queues: Sequence[str]) -> set[int]:
        """Return the pids of live listeners of any of these queues whose master is gone."""
        found: set[int] = set()
        for pid, entry in self._entries().items():
            master = {**_texts(entry), "pid_start": str(entry.get("master_start", ""))}
            queues_of_entry = entry.get("queues")
            is_of_ours = isinstance(queues_of_entry, list) and not set(queues).isdisjoint(
                map(str, queues_of_entry)
            )
            if is_of_ours and not process.is_alive(int(entry.get("master", 0)), master):
                found.add(pid)
        return found

    def _entries(self) -> dict[int, dict[str, Any]]:
        """Return the entries of live listeners; remove the others."""
        found: dict[int, dict[str, Any]] = {}
        try:
            names = os.listdir(self._directory)
        except OSError:
            return found
        for name in names:
            entry = _read(f"{self._directory}/{name}")
            if not name.isdecimal() or entry is None:
                continue
            known = _texts(entry)
            # Another container may use this spool, too; its pids mean nothing to us.
            if process.is_alive(int(name), known):
                if process.shares_pids(known):
                    found[int(name)] = entry
            else:
                remove(f"{self._directory}/{name}")
        return found


def _texts(entry: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in entry.items()}


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:
            entry = json.loads(file.read())
    except (OSError, ValueError):
        return None
    return entry if isinstance(entry, dict) else None


def main() -> int:
    """Print the state of the listeners of the spool; return the exit status of a check."""
    lease, signs = units.timing(None, None, None).lease, Registry(units.spool()).signs()
    silent = sum(age > lease for age in signs)
    print(
        count(len(signs), "listener")
        + (f", {silent} without a beat for {lease:g} s" if silent else "")
    )
    return 0 if signs and not silent else 1


if __name__ == "__main__":
    sys.exit(main())
