"""The values in effect for one queue: for `blueque config -q`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from blueque.cli import printing
from blueque.cli.effective import Setting, defaults, file_values, variables
from blueque.cli.failure import CONFIGURATION, Failure
from blueque.config.checker import shown_path
from blueque.config.tables import FINISHED
from blueque.config.values import LIMITS
from blueque.documents.orders import shown_settings
from blueque.errors import InvalidInput, RedisAway, RedisRefused
from blueque.model.encoding import require_queue_name
from blueque.model.queue_settings import BOUNDS
from blueque.model.units import HandlerName

if TYPE_CHECKING:
    from blueque.cli.options import Invocation
    from blueque.node.handler_check import Registered

_OF_LISTENER = ("retry", *LIMITS, "reuse", "reuse_for", "cwd", "keep_cwd")  # which both may have
_OF_QUEUE = {"weight": 1, "resources": {}, "pythonpath": []}
_RUNS = ("handler", "exec")


def of_queue(
    invocation: Invocation, queue: str, environ: Mapping[str, str] = os.environ
) -> Iterator[Setting]:
    """Yield what a listener without options would do with the tasks of a queue that say nothing
    themselves. Ends the program if a value is wrong, or a module cannot be imported.
    """
    queue = invocation.config.aliases.get(require_queue_name(queue), queue)
    values = _Values(invocation, queue, environ, _in_redis(invocation, queue))
    registered = values.registered()
    runs, handler = values.run(registered)
    yield runs
    decorated = _said_by(handler)
    for name in _OF_LISTENER:
        yield values.nearest(name, decorated, runs.value)
    for name, default in _OF_QUEUE.items():
        yield values.own(name) or values.in_redis(name) or Setting(name, default, "default")
    for status in FINISHED:
        yield values.retention(status)
    for name in BOUNDS:
        yield values.in_redis(name) or Setting(name, None, "default")


class _Values:
    """Looks values up where they may be said."""

    def __init__(
        self,
        invocation: Invocation,
        queue: str,
        environ: Mapping[str, str],
        in_redis: Mapping[str, Any],
    ) -> None:
        self._invocation, self._queue, self._environ = invocation, queue, environ
        self._in_redis = in_redis
        self._said = file_values(invocation)
        self._table = shown_path(("queues", queue))
        self._variables = variables()
        self._defaults = defaults(environ, False)

    def own(self, name: str) -> Setting | None:
        """Return what the table of the queue says; None: nothing."""
        return self._in_file(name, self._table)

    def of_listener(self, name: str) -> Setting | None:
        return self._in_file(name, "listener")

    def in_redis(self, name: str) -> Setting | None:
        """Return what the settings of the queue in Redis say; None: nothing."""
        return Setting(name, self._in_redis[name], "redis") if name in self._in_redis else None

    def in_environment(self, name: str) -> Setting | None:
        variable = self._variables[f"listener.{name}"]
        value = self._environ.get(variable)
        return Setting(name, value, "environment", variable) if value else None

    def nearest(self, name: str, decorated: Mapping[str, Any], run: object) -> Setting:
        """Return a value that the tables of the queue and of the listener may have.

        decorated: what the handler says. run: its name.
        """
        says = Setting(name, decorated.get(name), "handler", str(run))
        return (
            self.in_environment(name)
            or self.own(name)
            or (says if name in decorated else None)
            or self.in_redis(name)
            or self.of_listener(name)
            or Setting(name, self._defaults[f"listener.{name}"], "default")
        )

    def retention(self, status: str) -> Setting:
        """Return how long tasks of a status stay."""
        name = f"retention.{status}"
        kept = self.own("retention")
        if kept is not None and status in kept.value:
            return kept._replace(name=name, value=kept.value[status])
        general = self.in_redis(name) or self._in_file(status, "retention")
        if general is not None:
            return general._replace(name=name)
        return Setting(name, self._defaults[name], "default")

    def run(self, registered: Mapping[str, Registered]) -> tuple[Setting, Registered | None]:
        """Return what runs the tasks, and the handler, if it has registered itself."""
        handler = registered.get(self._queue)
        modules = self.in_environment("modules") or self.of_listener("modules")
        is_first = modules is not None and modules.origin == "environment"
        own = None
        if handler is not None and modules is not None:
            own = modules._replace(name="handler", value=handler.run)
        places = [
            *map(self.in_environment, _RUNS),
            own if is_first else None,
            *map(self.own, _RUNS),
            own,
            *map(self.of_listener, _RUNS),
        ]
        found = next((place for place in places if place is not None), None)
        if found is None:
            return Setting("handler", None, "default"), None
        if found is not own:
            handler = self._named(found)
        return found, handler if handler is not None and self._is_ours(handler) else None

    def _is_ours(self, handler: Registered) -> bool:
        aliases = self._invocation.config.aliases
        return aliases.get(handler.queue, handler.queue) == self._queue

    def _named(self, runs: Setting) -> Registered | None:
        """Return the callable that a setting names, if it has registered itself and can be imported
        here.
        """
        if runs.name != "handler":
            return None
        from blueque.cli.listener import look_at  # here: large, and only for callables

        paths = self._invocation.config.queue(self._queue).pythonpath
        try:
            return look_at(*self._addresses(), HandlerName(runs.value, paths=paths))
        except InvalidInput as error:
            printing.talk(f"{error}; what its decorator says is left out")
            return None

    def registered(self) -> dict[str, Registered]:
        """Return the handlers of the modules in effect. Ends the program if they cannot be imported."""
        if any(map(self.in_environment, _RUNS)):
            return {}
        named = self.in_environment("modules")
        config = self._invocation.config.listener
        modules = named.value.split() if named else config.get("modules", ())
        if not modules:
            return {}
        from blueque.cli.listener import look  # here: large, and only for handlers of modules

        try:
            return look(*self._addresses(), modules)
        except InvalidInput as error:
            raise Failure(CONFIGURATION, str(error)) from error

    def _addresses(self) -> tuple[str, str, str | None]:
        """Return the address of Redis, its origin, and the address that tasks get."""
        url, source = self._invocation.address()
        said = self._invocation.config.listener.get("task_redis")
        is_told = self.in_environment("task_redis") or Setting("", said, "")
        is_kept_from_tasks = str(is_told.value).lower() in ("false", "0", "no", "off")
        return url, source, None if is_kept_from_tasks else url

    def _in_file(self, name: str, table: str) -> Setting | None:
        full = f"{table}.{name}"
        if full not in self._said:
            return None
        place = f"{self._invocation.config.path} [{table}]"
        return Setting(name, self._said[full], "file", place)


def _in_redis(invocation: Invocation, queue: str) -> dict[str, Any]:
    """Return the settings of the queue in Redis; none if Redis does not answer."""
    try:
        return shown_settings(invocation.client().get_inspector().settings([queue])[queue])
    except (RedisAway, RedisRefused) as error:
        printing.talk(f"{error}; what the settings of {queue} in Redis say is left out")
        return {}


def _said_by(handler: Registered | None) -> dict[str, Any]:
    """Return what a handler says of the tasks of its queue, as the file would."""
    if handler is None:
        return {}
    retry = {} if handler.retry is None else {"retry": json.loads(handler.retry) or False}
    return {**retry, **handler.limits}
