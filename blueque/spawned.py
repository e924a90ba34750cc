"""Spawned: a task process that is a fresh interpreter, for what does not agree with being forked, such as CUDA or threads.

All else is as in one that was only forked: its gate, its import path, its environment, its life.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from typing import NamedTuple, NoReturn

from blueque import process, task_process, work
from blueque.logs import log_to_stderr
from blueque.spool import Spool

ORDERS = "BLUEQUE_SPAWNED"


class Orders(NamedTuple):
    """What the interpreter is to be, see `task_process.main`. paths: its import path."""

    handler: str | None
    command: list[str] | None
    max_bytes: int
    spool: str
    gate: int
    is_warm: bool
    paths: list[str]


def work_of(handler: str | None, command: list[str] | None, max_bytes: int) -> work.Work:
    """Return the work that `--run` or `--exec` asks for."""
    if command is not None:
        return work.program(command, max_bytes)
    return work.handler(functools.partial(work.resolve, handler or ""), max_bytes)


def become(
    handler: str | None, command: list[str] | None, max_bytes: int, spool: Spool, gate: int, is_warm: bool
) -> NoReturn:
    """Become, in a forked child, a fresh interpreter with the same work. Raises OSError."""
    orders = Orders(handler, command, max_bytes, spool.root, gate, is_warm, sys.path)
    os.set_inheritable(gate, True)
    arguments = [sys.executable, "-P", "-m", "blueque.spawned", handler or "--exec"]
    os.execve(sys.executable, arguments, {**os.environ, ORDERS: json.dumps(orders)})


def main() -> int:
    """Be the task process that the environment asks for."""
    orders = Orders(*json.loads(os.environ.pop(ORDERS)))
    os.set_inheritable(orders.gate, False)
    log_to_stderr()
    sys.path[:] = orders.paths
    own = work_of(orders.handler, orders.command, orders.max_bytes)
    return task_process.main(own, Spool(orders.spool, orders.max_bytes), orders.gate, orders.is_warm)


if __name__ == "__main__":
    process.leave_with(main)
