"""Spawned: a task process that is a fresh interpreter, for what does not agree with being forked,
such as CUDA or threads.

All else is as in one that was only forked: its gate, its import path, its environment, its life.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple, NoReturn

from blueque.errors import InvalidInput
from blueque.model import units
from blueque.model.units import HandlerName
from blueque.spool.spool import Spool
from blueque.system import process
from blueque.task_process import handlers as work
from blueque.task_process import main as task_process

ORDERS = "BLUEQUE_SPAWNED"


class Orders(NamedTuple):
    """What the interpreter is to be, see `task_process.main` and `Job`.

    slot: the pid of its listener. paths: its import path.
    """

    handlers: Mapping[str, HandlerName]
    max_bytes: int
    redis_url: str | None
    is_for_programs: bool
    spool: str
    slot: int
    gate: int
    prepared: str | None
    paths: list[str]


class Job(NamedTuple):
    """What the task processes of a listener do.

    handlers: by queue. redis_url: where the listener connects, for `Client()` in a handler; None:
        tasks do not get it.
    is_for_programs: a program gets it as well, in its environment.
    """

    handlers: Mapping[str, HandlerName]
    max_bytes: int
    redis_url: str | None = None
    is_for_programs: bool = False

    def work_of(self, queue: str) -> work.Work:
        """Return the work for the tasks of a queue. Raises InvalidInput when no handler is named
        for it.
        """
        if queue not in self.handlers:
            raise InvalidInput(f"no handler is named for queue {queue!r}")
        name = self.handlers[queue]
        if name.exec is not None:
            url = self.redis_url if self.is_for_programs else None
            return work.program(
                name.exec, self.max_bytes, {} if url is None else {"BLUEQUE_REDIS_URL": url}
            )
        return work.handler(functools.partial(work.resolve, name.run or ""), self.max_bytes)


def run(
    job: Job,
    spool: Spool,
    gate: int,
    prepared: str | None,
    is_outdated: Callable[[], bool] = lambda: False,
) -> int:
    """Be a task process that does the job; see `task_process.main`."""
    units.connect_as_listener(job.redis_url)
    return task_process.main(job.work_of, spool, gate, prepared, is_outdated)


def become(job: Job, spool: Spool, gate: int, prepared: str | None) -> NoReturn:
    """Become, in a forked child, a fresh interpreter with the same job. Raises OSError."""
    orders = Orders(*job, spool.root, spool.slot, gate, prepared, sys.path)
    os.set_inheritable(gate, True)
    # The handler is there for whoever reads a list of processes.
    shown = {
        name.run or "--exec" for queue, name in job.handlers.items() if prepared in (None, queue)
    }
    arguments = [
        sys.executable,
        "-P",
        "-m",
        "blueque.task_process.fresh_interpreter",
        *sorted(shown),
    ]
    # not in the environment: there is a password in it
    kept = process.keep_in_memory(json.dumps(orders))
    os.execve(sys.executable, arguments, {**os.environ, ORDERS: str(kept)})


def main() -> int:
    """Be the task process that the environment asks for.

    It waits for its task. If the package has been replaced meanwhile, what it would import for the
    task is of another
    version: then it leaves, and the task goes back.
    """
    version = _version_of_file()
    orders = Orders(*json.loads(process.read_from_memory(int(os.environ.pop(ORDERS)))))
    os.set_inheritable(orders.gate, False)
    sys.path[:] = orders.paths
    handlers = {queue: HandlerName(*name) for queue, name in orders.handlers.items()}
    job = Job(handlers, orders.max_bytes, orders.redis_url, orders.is_for_programs)
    spool = Spool(orders.spool, orders.max_bytes, orders.slot)
    return run(job, spool, orders.gate, orders.prepared, lambda: _version_of_file() != version)


def _version_of_file() -> tuple[int, int] | None:
    """Return what tells this file from another in its place; None: there is none."""
    try:
        its = os.stat(__file__)
    except OSError:
        return None
    return its.st_ino, its.st_mtime_ns


if __name__ == "__main__":
    process.leave_with(main)
