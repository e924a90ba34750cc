"""A task process that is a fresh interpreter (`--spawn`), for libraries that do not survive a fork,
such as CUDA.

Import path, environment and life are those of a forked task process.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, NoReturn

from blueque.errors import InvalidInput
from blueque.model import units
from blueque.model.units import HandlerName
from blueque.spool.task_spool import TaskSpool
from blueque.system import process
from blueque.task_process import handlers as work
from blueque.task_process import main as task_process
from blueque.task_process.hooks import hooked
from blueque.task_process.import_ahead import import_for_tasks

ORDERS = "BLUEQUE_SPAWNED"


class Orders(NamedTuple):
    """What the new interpreter needs, see `task_process.main` and `Job`.

    slot: the pid of its listener. paths: its import path.
    arguments: those of the listener, for `sys.argv` of a handler.
    """

    handlers: Mapping[str, HandlerName]
    max_bytes: int
    redis_url: str | None
    is_for_programs: bool
    hooks: str | None
    spool: str
    slot: int
    handshake: int
    prepared: str | None
    paths: list[str]
    arguments: Sequence[str] = ()  # a listener of an earlier version sends none


class Job(NamedTuple):
    """What the task processes of a listener run.

    handlers: by queue.
    redis_url: the address of the listener, for `Client()` in a handler; None: tasks do not get it.
    is_for_programs: programs get it as well, in their environment.
    hooks: the name of the class, see hooks.py; None: there are none in task processes.
    """

    handlers: Mapping[str, HandlerName]
    max_bytes: int
    redis_url: str | None = None
    is_for_programs: bool = False
    hooks: str | None = None

    def work_of(self, queue: str) -> work.Work:
        """Return how to run tasks of a queue. Raises InvalidInput if it has no handler."""
        return self.with_hooks(self._plain_work_of(queue))

    def with_hooks(self, plain: work.Work) -> work.Work:
        return plain if self.hooks is None else hooked(plain, self.hooks)

    def _plain_work_of(self, queue: str) -> work.Work:
        if queue not in self.handlers:
            raise InvalidInput(f"no handler is named for queue {queue!r}")
        name = self.handlers[queue]
        if name.exec is not None:
            url = self.redis_url if self.is_for_programs else None
            environ = {} if url is None else {"BLUEQUE_REDIS_URL": url}
            if name.paths:
                environ["PYTHONPATH"] = work.python_path(name.paths)
            return work.program(name.exec, self.max_bytes, environ)
        return work.handler(functools.partial(_resolve, name), self.max_bytes)


def _resolve(name: HandlerName) -> work.Handler:
    work.search_first(name.paths)
    return work.resolve(name.run or "")


def run(
    job: Job,
    spool: TaskSpool,
    handshake: int,
    prepared: str | None,
    is_outdated: Callable[[], bool] = lambda: False,
) -> int:
    """Live as a task process for the job; see `task_process.main`."""
    units.connect_as_listener(job.redis_url)
    return task_process.main(job.work_of, spool, handshake, prepared, is_outdated)


def become(job: Job, spool: TaskSpool, handshake: int, prepared: str | None) -> NoReturn:
    """In a forked child: exec a fresh interpreter with the same job. Raises OSError."""
    orders = Orders(*job, spool.root, spool.slot, handshake, prepared, sys.path, sys.argv[1:])
    os.set_inheritable(handshake, True)
    # The name of the handler is for people who read a list of processes.
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
    # not in the environment, which others may read: it has a password
    kept = process.keep_in_memory(json.dumps(orders))
    os.execve(sys.executable, arguments, {**os.environ, ORDERS: str(kept)})


def main() -> int:
    """Live as the task process that the environment describes.

    If the package is replaced while the process waits for its task, later imports would mix two
    versions. Then it exits, and the task goes back to the queue.
    """
    version = _version_of_file()
    import_for_tasks()
    gc.freeze()  # the standard streams are in use until the end
    orders = Orders(*json.loads(process.read_from_memory(int(os.environ.pop(ORDERS)))))
    os.set_inheritable(orders.handshake, False)
    sys.path[:], sys.argv[1:] = orders.paths, orders.arguments
    handlers = {queue: HandlerName(*name) for queue, name in orders.handlers.items()}
    job = Job(handlers, orders.max_bytes, orders.redis_url, orders.is_for_programs, orders.hooks)
    spool = TaskSpool(orders.spool, orders.max_bytes, orders.slot)
    return run(job, spool, orders.handshake, orders.prepared, lambda: _version_of_file() != version)


def _version_of_file() -> tuple[int, int] | None:
    """Return inode and modification time of this file; None if it is gone."""
    try:
        status = os.stat(__file__)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


if __name__ == "__main__":
    process.leave_with(main)
