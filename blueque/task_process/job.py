"""Job: what the task processes of a listener run."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

from blueque.errors import InvalidInput
from blueque.model.units import HandlerName
from blueque.task_process import handlers as work
from blueque.task_process.hooks import hooked


class Job(NamedTuple):
    """The handlers of a listener and their settings.

    handlers: by queue.
    redis_url: the address of Redis for `Client()` in a handler; None: tasks do not get it.
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
