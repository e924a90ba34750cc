"""`protocol`: every transaction of blueque.protocol, under its name.

A test is about a section of the protocol pages, so it need not say in which module the function stands:

    from transactions import protocol

    protocol.enqueue(redis, "video", "id", "parameters", 1.0)
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import blueque.protocol
from blueque.connection.redis import Redis
from blueque.model.new_task import Fields, NewTask
from blueque.protocol.create import OneTask, create

# What takes a connection and is only a part of transactions.
PARTS = {
    "cancel_child",
    "cancelled",
    "count",
    "ending",
    "lacking",
    "let_go",
    "next_dependents",
    "note_event",
    "record_event",
    "require_rights",
    "tell",
    "tell_dependents",
    "transact",
}


def _functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public functions of blueque.protocol that take a connection, with their names."""
    for found in pkgutil.iter_modules(blueque.protocol.__path__, "blueque.protocol."):
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            if name[0] == "_" or not inspect.isfunction(value) or value.__module__ != found.name:
                continue
            if next(iter(inspect.signature(value).parameters), None) == "redis":
                yield name, value


class _Protocol(ModuleType):
    """A module, so that a test can replace a transaction as it replaces a function of any module."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Replace a transaction wherever the package uses it."""
        before = vars(self)[name]
        super().__setattr__(name, value)
        for module in [
            module for path, module in sys.modules.items() if path.partition(".")[0] == "blueque"
        ]:
            for used_as, used in list(vars(module).items()):
                if used is before:
                    setattr(module, used_as, value)


protocol: Any = _Protocol("protocol")
TRANSACTIONS = {name: function for name, function in _functions() if name not in PARTS}
vars(protocol).update(TRANSACTIONS)


def _enqueue(
    redis: Redis,
    queue: str,
    task: str,
    parameters: str,
    now: float,
    options: Fields | None = None,
    spare: str | None = None,
    is_drawn: bool = False,
    eta: float | None = None,
) -> bool:
    """Create a task, as `Queue.enqueue` does, with this id."""
    new = OneTask(NewTask(task, queue, parameters, options or {}, {}, eta), now)
    (is_new,) = create(redis, new, spare, is_drawn)
    return is_new


def _schedule(
    redis: Redis,
    queue: str,
    task: str,
    parameters: str,
    eta: float,
    now: float,
    options: Fields | None = None,
    is_drawn: bool = False,
) -> bool:
    """Do the same as `Queue.schedule`."""
    return _enqueue(redis, queue, task, parameters, now, options, eta=eta, is_drawn=is_drawn)


# The short ways in which tests create tasks.
vars(protocol).update(
    enqueue=_enqueue, schedule=_schedule, enqueue_many=create, schedule_many=create
)
