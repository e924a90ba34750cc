"""Try handlers, and find those of `blueque.handler`, in a child process: no user code runs in a
listener or its master.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, NoReturn

from blueque.errors import BluequeError, InvalidInput
from blueque.model import units
from blueque.model.retry import Retry
from blueque.model.units import HandlerName
from blueque.node import own_select
from blueque.system import log_writer, process
from blueque.system.dropped_prints import dropping_prints
from blueque.system.log_format import stop_logging
from blueque.task_process.handlers import place_of, resolve, search_first, unfit
from blueque.task_process.hooks import METHODS, load
from blueque.task_process.registered import QueueHandler, name_of, registered
from blueque.text.format import names_of

_MOST = 4000  # characters of an error


class Registered(NamedTuple):
    """A handler from `blueque.handler`.

    is_own: one of the named modules, or a module of such a package, defines it.
    retry: the text of its policy; "null": no retries; None: not set.
    """

    queues: Sequence[str]
    run: str
    is_own: bool
    retry: str | None
    limits: dict[str, int | float]

    def get_retry(self) -> Retry | Literal[False] | None:
        """Return the policy; False: no retries; None: not set."""
        return None if self.retry is None else Retry.parse(self.retry) or False


def check_program(name: HandlerName) -> str | None:
    """Return why the program of a handler cannot run, or either kind cannot have its pythonpath."""
    for path in name.paths:
        if not os.path.isdir(path):
            return f"pythonpath: {path} is not a directory"
    if name.exec is not None and process.find_program(name.exec[0]) is None:
        return f"cannot run {name.exec[0]!r}: no such program, or it is not executable"
    return None


def find(
    name: HandlerName, redis_url: str | None, before: Callable[[], object] = lambda: None
) -> Registered | None:
    """Import a callable in a child; return it if it comes from `blueque.handler`, else None.

    redis_url: what tasks get. before: called in the child first. Raises InvalidInput: it cannot be
        a handler.
    """
    if (refusal := check_program(name)) is not None:
        raise InvalidInput(refusal)

    def look() -> Registered | None:
        before()
        search_first([*name.paths, os.getcwd()])
        run = name.run or ""
        try:
            found = resolve(run)
            reason = unfit(found)
        except BaseException as error:  # a module may call sys.exit when it is imported
            _refuse(f"the handler {run}", error)
        if reason:
            raise InvalidInput(f"the handler {run} {reason}")
        return _as_registered(found, run) if isinstance(found, QueueHandler) else None

    found = _in_child(redis_url, look, f"the handler {name.run}")
    return None if found is None else Registered(*found)


def check_select(name: str, queues: Sequence[str], redis_url: str | None) -> str | None:
    """Return why this cannot choose among the queues, or None. A child imports and calls it."""

    def look() -> None:
        if reason := own_select.refusal(name, queues):
            raise InvalidInput(reason)

    try:
        _in_child(redis_url, look, f"the selector {name}")
    except InvalidInput as refusal:
        return str(refusal)
    return None


def discover(
    modules: Sequence[str], redis_url: str | None, before: Callable[[], object] = lambda: None
) -> dict[str, Registered]:
    """Import the modules in a child and return their registered handlers by queue, in the order of
    definition.

    before: called in the child first. Raises InvalidInput: a module cannot be imported, a handler
        is unusable, or there are two for a queue.
    """

    def look() -> list[Registered]:
        before()
        sys.path.insert(0, os.getcwd())
        for name in modules:
            try:
                importlib.import_module(name)
            except BaseException as error:  # a module may call sys.exit when it is imported
                _refuse(f"the module {name}", error)
        return [*_registered(modules)]

    what = f"the module{'s' * (len(modules) > 1)} {', '.join(modules)}"
    found = [Registered(*each) for each in _in_child(redis_url, look, what)]
    return {queue: each for each in found for queue in each.queues}


def check_hooks(
    name: str, redis_url: str | None, before: Callable[[], object] = lambda: None
) -> None:
    """Import a class of hooks in a child and create an object of it.

    before: called in the child first. Raises InvalidInput: the class cannot be used.
    """

    def look() -> None:
        before()
        sys.path.insert(0, os.getcwd())
        try:
            hooks = load(name)
        except BaseException as error:
            _refuse(f"the hooks {name}", error)
        found = [method for method in METHODS if getattr(hooks, method, None) is not None]
        if not found:
            raise InvalidInput(f"the hooks {name} have none of {', '.join(METHODS)}")
        for method in found:
            if reason := _unfit_hook(getattr(hooks, method), 2 if method == METHODS[1] else 1):
                raise InvalidInput(f"the hook {name}.{method} {reason}")

    _in_child(redis_url, look, f"the hooks {name}")


def _unfit_hook(hook: Any, arguments: int) -> str | None:
    import inspect

    if inspect.iscoroutinefunction(hook):
        return "is a coroutine function (async def): give a plain function"
    try:
        inspect.signature(hook).bind(*[None] * arguments)
    except TypeError as error:
        return f"cannot be called with {'the task and its end' if arguments > 1 else 'the task'}: {error}"
    return None


def _registered(modules: Sequence[str]) -> Iterable[Registered]:
    def origin(handler: QueueHandler[Any, Any]) -> str:
        code = getattr(handler.function, "__code__", None)
        line = f" (line {code.co_firstlineno})" if code is not None else ""
        return f"{name_of(handler)}{line}"

    first: dict[str, QueueHandler[Any, Any]] = {}
    for handler in registered:
        for queue in handler.queues:
            if (other := first.setdefault(queue, handler)) is not handler:
                both = f"{origin(other)} and {origin(handler)}"
                raise InvalidInput(f"queue {queue!r} has two handlers: {both}")
    for handler in dict.fromkeys(first.values()):
        queues = names_of(handler.queues)
        run = _path_to(handler, modules)
        if run is None:
            where = "no name at the top of its module, or another object has taken that name"
            raise InvalidInput(f"the handler {origin(handler)} of {queues} has {where}")
        if reason := unfit(handler):
            raise InvalidInput(f"the handler {run} of {queues} {reason}")
        home = f"{handler.__module__}."
        is_own = any(home.startswith(f"{name}.") for name in modules)
        yield _as_registered(handler, run, is_own)


def _as_registered(handler: QueueHandler[Any, Any], run: str, is_own: bool = False) -> Registered:
    policy = handler.settings.retry
    retry = None if policy is None else policy.to_text() if policy else "null"
    return Registered(handler.queues, run, is_own, retry, dict(handler.settings.limits))


def _path_to(handler: object, modules: Sequence[str]) -> str | None:
    """Return the name by which a task process finds it, `module:name`."""
    for module in dict.fromkeys((handler.__module__, *modules)):
        loaded = sys.modules.get(module)
        for name, value in [] if loaded is None else [*vars(loaded).items()]:
            if value is handler:
                return f"{module}:{name}"
    return None


def _refuse(what: str, error: BaseException) -> NoReturn:
    said = str(error)
    if not isinstance(error, BluequeError):
        said = f"{type(error).__name__}: {error}{place_of(error)}"
    raise InvalidInput(f"cannot import {what}: {said}") from error


def _import_own() -> None:
    """Import the standard modules that the checks need, before user modules can hide them."""
    own = os.getcwd()
    kept, sys.path[:] = sys.path[:], [path for path in sys.path if path != own]
    import inspect  # noqa: F401

    sys.path[:] = kept


def _in_child(redis_url: str | None, look: Callable[[], Any], what: str) -> Any:
    """Return what `look` returns in a child, as JSON. Raises InvalidInput as it does.

    what: what it imports, for the case that the child ends before it reports.
    """
    read, write = os.pipe()

    def answer() -> int:
        process.die_with_parent(True)
        stop_logging()
        _import_own()
        refusal, found = None, None
        try:
            units.connect_as_listener(redis_url)
            if sys.stderr is not None:
                log_writer.reopen()  # prints of a module wait for no reader
            with dropping_prints():
                found = look()
        except InvalidInput as error:
            refusal = str(error)[:_MOST]
        with open(write, "wb", closefd=False) as pipe:
            pipe.write(json.dumps([refusal, found]).encode() + b"\n")
        return 0 if refusal is None else 1

    pid = process.fork(answer)
    os.close(write)
    said = b""
    # Not to the end of the pipe: what a module starts when it is imported may hold it open for ever.
    while not said.endswith(b"\n") and (part := os.read(read, 65536)):
        said += part
    os.close(read)
    process.signal_group(pid, signal.SIGKILL)
    code = process.wait_for(pid)
    if not said.endswith(b"\n"):
        raise InvalidInput(f"cannot import {what}: {process.describe(code)}")
    refusal, found = json.loads(said)
    if refusal is not None:
        raise InvalidInput(refusal)
    return found
