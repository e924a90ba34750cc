"""The values in effect, and where each comes from: for `blueque config`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from datetime import time as clock_time
from typing import TYPE_CHECKING, Any

from blueque.cli import listener_handlers, printing
from blueque.cli.listener import Importer, of_listener
from blueque.cli.setting_options import checked
from blueque.connection.address import hide_password
from blueque.errors import InvalidInput, RedisAway, RedisRefused
from blueque.model.encoding import require_queue_name
from blueque.model.queue_settings import malformed, read_setting
from blueque.settings.contents import RUNS, shown_path
from blueque.settings.of_tasks import IN_REDIS
from blueque.settings.resolver import Found, Layer, Sources
from blueque.settings.table import NAMED, TABLES, VARIABLES

if TYPE_CHECKING:
    from blueque.cli.listener_handlers import Modules
    from blueque.cli.options import Invocation
    from blueque.model.units import HandlerName
    from blueque.node.handler_check import Registered

_WITH_SECRETS = ("parameters", "context")  # keys of values whose secrets are hidden


def effective(invocation: Invocation) -> Iterator[Found]:
    """Yield every value in effect, by its table and key. Ends the program if one is wrong."""
    sources = checked(invocation.config, list(VARIABLES))
    # some values depend on others: a time on the other times, warm on the resources
    used = of_listener(sources.of("listener"), invocation.config.path)
    del used["host"]  # without its default
    yield _address(invocation)
    for table in TABLES:
        if table in NAMED:
            continue
        resolver = sources.of(table)
        for found in resolver.all():
            if table == "listener":
                found = found._replace(value=used.get(found.key, found.value))
            if found.key != "redis_url":
                name = f"{table}.{found.key}" if table else found.key
                yield found._replace(key=name, value=resolver.write(found))
    yield from _named(invocation, sources)


def of_queue(invocation: Invocation, queue: str) -> Iterator[Found]:
    """Yield the settings of a listener without options for tasks of a queue, as in blueque.toml.

    Ends the program if a value is wrong, or a module cannot be imported.
    """
    config = invocation.config
    queue = config.aliases.get(require_queue_name(queue), queue)
    sources = checked(config, ["listener"])
    importer = Importer.of(invocation, sources.of("listener"))
    nearer, farther = sources.nearer(queue), sources.farther()
    modules = listener_handlers.find(sources, [queue], importer.look)
    runs = listener_handlers.chosen(sources, queue, modules)
    handler = None
    if runs is None:
        yield Found("handler", None, "default")
    else:
        handler = _registered(importer, sources, queue, runs.value, modules)
        yield runs._replace(value=runs.value.run or runs.value.exec)
    decorated = listener_handlers.decorated(config, queue, handler)
    whole = nearer.then(decorated, _in_redis(invocation, queue), *farther.layers)
    for found in whole.all():
        if found.key not in RUNS:
            yield found._replace(value=whole.write(found))


def _registered(
    importer: Importer, sources: Sources, queue: str, name: HandlerName, modules: Modules
) -> Registered | None:
    """Return what runs the tasks of a queue, if it comes from `blueque.handler` and can be imported here."""
    known = modules.handlers.get(queue)
    if name.run is None:
        return None
    if known is not None and known.run == name.run:
        return known
    paths = sources.config.queue(queue).get("pythonpath", ())
    try:
        return importer.look_at(name._replace(paths=paths))
    except InvalidInput as error:
        printing.talk(f"{error}; the settings of its decorator are left out")
        return None


def _address(invocation: Invocation) -> Found:
    url, source = invocation.address()
    origins = {invocation.config.path: "file", "default": "default", "--redis-url": "option"}
    origin = origins.get(source, "environment")
    place = None if origin == "default" else source
    return Found("redis_url", hide_password(url), origin, place)


def _in_redis(invocation: Invocation, queue: str) -> Layer:
    """Return the settings of the queue in Redis; none if Redis does not answer."""
    try:
        fields = invocation.client().get_inspector().settings([queue])[queue]
    except (RedisAway, RedisRefused) as error:
        printing.talk(f"{error}; the settings of {queue} in Redis are left out")
        return Layer("redis", {})
    names = [row.key for row in IN_REDIS if row.key in fields.keys() - malformed(fields).keys()]
    return Layer("redis", {name: read_setting(name, fields[name]) for name in names})


def _named(invocation: Invocation, sources: Sources) -> Iterator[Found]:
    """Yield the contents of the tables with names, as in the file."""
    config, hide = invocation.config, invocation.hider(False)
    has_handler = sources.has_handler_for_all()
    for table in NAMED:
        for path, value in _leaves((table,), config.document.get(table, {})):
            if table != "queues" or not (has_handler and path[-1] in RUNS):
                shown = hide(value) if path[-1] in _WITH_SECRETS else _without_dates(value)
                yield Found(shown_path(path), shown, "file", config.path)


def _leaves(
    path: tuple[str, ...], table: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values of a table with names; a table below a name is one value."""
    for key, value in table.items():
        if isinstance(value, dict) and len(path) == 1:
            yield from _leaves((*path, key), value)
        else:
            yield (*path, key), value


def _without_dates(value: Any) -> Any:
    """Return a value of TOML as JSON: dates and times are text."""
    return value.isoformat() if isinstance(value, date | clock_time) else value
