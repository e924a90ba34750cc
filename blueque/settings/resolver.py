"""Which value of a setting applies, and where it comes from.

The first place that has one applies. For a program: its options, the environment, its table of
blueque.toml, the default. For the tasks of a queue: the options, the environment, the table of the
queue, its handler, its settings in Redis, [listener] or [retention], the default.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from blueque.errors import InvalidInput
from blueque.settings.contents import RUNS, Config, shown_path
from blueque.settings.of_programs import LISTENER
from blueque.settings.of_tasks import IN_REDIS, QUEUE
from blueque.settings.setting import Setting
from blueque.settings.table import rows, variable

_EMPTY: Mapping[str, Any] = MappingProxyType({})
ONE_HANDLER = "a task has one handler, so give one of the two"
_ALTERNATIVES = {
    ("handler", "exec"): ONE_HANDLER,
    **dict.fromkeys(
        (("handler", "modules"), ("exec", "modules")),
        "these modules name the handlers of their queues, and the other is for all queues",
    ),
}
# What a listener has for all queues, and a queue for itself: the same rows.
_OF_BOTH = frozenset(row.key for row in QUEUE if row in LISTENER)


class Found(NamedTuple):
    """A value that applies.

    origin: option, environment, file, handler, redis or default. place: the option, the variable,
        the file with its table, or the handler.
    """

    key: str
    value: Any
    origin: str
    place: str | None = None


class Layer(NamedTuple):
    """The values of one place. places: by key, as in `Found`."""

    origin: str
    values: Mapping[str, Any]
    places: Mapping[str, str | None] = _EMPTY

    def find(self, key: str) -> Found | None:
        """Return the value of a key; None: it is not set."""
        if key not in self.values:
            return None
        return Found(key, self.values[key], self.origin, self.places.get(key))

    def only(self, keys: Collection[str]) -> Layer:
        """Return the layer with these keys alone."""
        return self._replace(values={key: self.values[key] for key in self.values if key in keys})


_NOTHING = Layer("environment", _EMPTY)


class Resolver:
    """Decides which value applies.

    settings: by key. layers: nearest first.
    """

    def __init__(self, settings: Mapping[str, Setting], layers: Sequence[Layer]) -> None:
        self._settings, self.layers = settings, layers

    def given(self, key: str) -> Found | None:
        """Return the first value; None: no layer has one."""
        return next((found for layer in self.layers if (found := layer.find(key))), None)

    def find(self, key: str) -> Found:
        """Return the first value, or the default."""
        return self.given(key) or Found(key, self._settings[key].get_default(), "default")

    def get(self, key: str) -> Any:
        """Return the value that applies."""
        return self.find(key).value

    def write(self, found: Found) -> Any:
        """Return a value as in blueque.toml; None: there is none."""
        if found.value is None:
            return None
        return self._settings[found.key].kind.write(found.value)

    def then(self, *layers: Layer) -> Resolver:
        """Return a resolver with further layers, farther than these."""
        return Resolver(self._settings, [*self.layers, *layers])

    def all(self) -> Iterator[Found]:
        """Yield the result of `find` for each setting."""
        return map(self.find, self._settings)


class Sources:
    """The values of options, the environment and blueque.toml.

    options: of a program, by key, as `Kind.read` returns them.
    tables: those whose variables are read. Raises InvalidInput if one is wrong.
    """

    def __init__(
        self,
        config: Config,
        options: Mapping[str, Any] = _EMPTY,
        tables: Sequence[str] = (),
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.config, self._options = config, options
        self._environment = {table: _in_environment(table, environ) for table in tables}

    def of(self, table: str) -> Resolver:
        """Return the settings of a table that belongs to a program, or to all."""
        layers = [*self._nearest(table), self._in_file(table)]
        if table == "listener" and any("weight" in own for own in self.config.queues.values()):
            layers.append(Layer("default", {"select": "lottery"}))
        return Resolver(rows(table), _without_overruled(layers))

    def nearer(self, queue: str, weight: float | None = None) -> Resolver:
        """Return what precedes the settings of a queue in Redis, without its handler.

        weight: in the arguments of the listener.
        """
        layers = [layer.only(_OF_BOTH) for layer in self._nearest("listener")]
        if weight is not None:
            layers.insert(0, Layer("option", {"weight": weight}, {"weight": "QUEUE=WEIGHT"}))
        return Resolver(_QUEUE, [*layers, self._in_file("queues", queue)])

    def farther(self) -> Resolver:
        """Return what follows the settings of a queue in Redis."""
        listener, kept = self._in_file("listener"), self._in_file("retention")
        retention = kept._replace(
            values={f"retention.{status}": keep for status, keep in kept.values.items()},
            places={f"retention.{status}": place for status, place in kept.places.items()},
        )
        return Resolver(_QUEUE, [listener.only(_OF_BOTH), retention])

    def modules(self, queues: Sequence[str]) -> Found | None:
        """Return the modules that may have the handlers of the queues; None: none is needed.

        queues: empty: those for which the modules have handlers.
        """
        found = self.of("listener").given("modules")
        has_own = all({*RUNS} & self.config.queue(queue).keys() for queue in queues)
        is_for_all = self.has_handler_for_all()
        return None if queues and has_own and not is_for_all else found

    def has_handler_for_all(self) -> bool:
        """Return whether an option or a variable names what runs the tasks of all queues."""
        return any(layer.values.keys() & {*RUNS} for layer in self._nearest("listener"))

    def handler(self, queue: str, registered: Mapping[str, str]) -> Found | None:
        """Return what runs the tasks of a queue: the name of a callable, or the words of a program.

        registered: the callables of `modules`, by queue.
        """
        layers = [
            *self._nearest("listener"),
            self._in_file("queues", queue),
            self._in_file("listener"),
        ]
        for layer in layers:
            modules = layer.find("modules")
            if modules is not None and queue in registered:
                return modules._replace(key="handler", value=registered[queue])
            if found := layer.find("handler") or layer.find("exec"):
                return found
        return None

    def _nearest(self, table: str) -> tuple[Layer, Layer]:
        settings = rows(table)
        options = {key: value for key, value in self._options.items() if key in settings}
        flags = {key: settings[key].flags[-1] for key in options}
        return Layer("option", options, flags), self._environment.get(table, _NOTHING)

    def _in_file(self, table: str, queue: str | None = None) -> Layer:
        config = self.config
        values: Mapping[str, Any] = {
            "": _said(redis_url=config.redis_url, max_bytes=config.max_bytes),
            "redis": config.redis,
            "listener": config.listener,
            "queues": config.queue(queue or ""),
            "retention": config.retention,
            "statistics": _said(keep=config.statistics_keep),
            "show": _said(redact=config.redact or None),
            "scheduler": config.scheduler,
            "web": config.web,
            "payloads": config.payloads,
        }[table]
        path = shown_path((table,) if queue is None else (table, queue))
        place = f"{config.path} [{path}]" if table else config.path
        return Layer("file", values, dict.fromkeys(values, place))


_QUEUE = {row.key: row for row in (*QUEUE, *(row for row in IN_REDIS if row not in QUEUE))}


def _in_environment(table: str, environ: Mapping[str, str]) -> Layer:
    found, places = {}, {}
    for key, setting in rows(table).items():
        name = variable(table, key)
        if name is not None and (text := environ.get(name)):
            places[key] = name
            try:
                found[key] = setting.kind.from_text(text)
            except (InvalidInput, OverflowError) as error:
                raise InvalidInput(f"{name}: {error}") from error
    layer = Layer("environment", found, places)
    require_one_handler(layer, "set")
    return layer


def _without_overruled(layers: Sequence[Layer]) -> list[Layer]:
    """Return the layers without handlers that a nearer layer overrules."""
    found, is_named = [], False
    for layer in layers:
        others = layer.values.keys() - {*RUNS}
        found.append(layer.only(others) if is_named else layer)
        is_named = is_named or len(others) < len(layer.values)
    return found


def _said(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def require_one_handler(layer: Layer, verb: str) -> None:
    """Raise InvalidInput if one place names two alternatives. verb: what was done with them."""
    for (first, second), advice in _ALTERNATIVES.items():
        if layer.values.keys() >= {first, second}:
            names = f"{layer.places[first]} and {layer.places[second]}"
            raise InvalidInput(f"{names} are both {verb}: {advice}")
