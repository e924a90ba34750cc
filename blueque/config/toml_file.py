"""Read blueque.toml and check it as a whole; an error names the file and the key.

docs/configuration.md explains every key.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

from blueque.connection.address import Address
from blueque.errors import ConfigRefused, InvalidInput, InvalidType
from blueque.model import limits, queue_settings, selection
from blueque.model.encoding import (
    CENTURY,
    encode,
    require_number,
    require_queue_name,
    require_schedule_name,
    require_whole,
)
from blueque.model.ids import require_keep
from blueque.model.labels import require_context, require_tags, require_title
from blueque.model.lines import require_lock, require_priority, require_resources
from blueque.model.recurrence import read_rule
from blueque.model.retry import Retry
from blueque.model.schedule import POLICIES, read_policies
from blueque.model.start_time import require_within
from blueque.model.surroundings import CWD, KEEP_CWD, require_umask
from blueque.model.units import (
    LOG_FORMATS,
    LOG_LEVELS,
    MOST_KEPT,
    RETENTION,
    SPARED,
    HandlerName,
    Keep,
    parse_duration,
    parse_log_limit,
    parse_program,
    parse_room,
    parse_size,
    require_callable_name,
    require_module_name,
    require_program,
    whole_days,
)
from blueque.system.hosts import require_host_name

NAME = "blueque.toml"
FINISHED = ("complete", "failed", "cancelled")
ON_TERM = ("leave", "drain", "stop")
MAX_SLOTS = 1000
MOST_REUSED = 10**9  # tasks of one process
MOST_FANNED_OUT = 100  # queues

Path = tuple[str, ...]
Checked = TypeVar("Checked")

_EMPTY: Mapping[str, Any] = MappingProxyType({})
LIMITS = ("time_limit", "stall_limit", "memory_limit", "grace", "lead")
_RETRY = Retry.__slots__


class QueueConfig(NamedTuple):
    """What is said of one queue.

    weight: in a lottery. retry: its tasks' policy; False: they have none; None: nothing is said.
    limits: fields of a task, see `limits.fields`; None: without this limit, whatever the listener
        says.
    retention: how long a finished task stays, by its status.
    resources: what a task of it needs that says nothing itself.
    handler: what runs its tasks.
    reused: `reuse` and `reuse_for`, those that are said: how many tasks a process takes.
    start_within: seconds in which a new task has to start.
    pythonpath: directories in which a task finds Python modules first.
    surroundings: of its tasks, those that are said; fields of `Surroundings`.
    """

    weight: float | None = None
    retry: Retry | Literal[False] | None = None
    limits: Mapping[str, int | float | None] = _EMPTY
    retention: Mapping[str, Keep] = _EMPTY
    resources: Mapping[str, int] | None = None
    handler: HandlerName | None = None
    reused: Mapping[str, int | float] = _EMPTY
    start_within: float | None = None
    pythonpath: Sequence[str] = ()
    surroundings: Mapping[str, Any] = _EMPTY


class ScheduleConfig(NamedTuple):
    """A recurring task.

    queue, parameters: of the task that comes each time. options: what else
    `blueque.producer.schedules.define` takes, durations in seconds and sizes in bytes.
    """

    queue: str
    parameters: Any
    options: Mapping[str, Any]


class Config(NamedTuple):
    """A whole file; without one, nothing is said of anything.

    listener: what `[listener]` says, by key, durations in seconds and sizes in bytes; `limits` in
        one dict.
    retention: of queues whose own table says nothing of the status.
    statistics_keep: for how many days the numbers of a day are kept.
    redact: patterns of names whose values are not shown in parameters.
    scheduler: what `[scheduler]` says, by key.
    schedules: the recurring tasks, by name; `blueque schedule apply` brings them to Redis.
    aliases: the names of queues, by their second names, which are not in Redis.
    fanouts: the queues that each get a task, by the name of the fan-out.
    """

    path: str | None = None
    redis_url: str | None = None
    max_bytes: int | None = None
    listener: Mapping[str, Any] = _EMPTY
    queues: Mapping[str, QueueConfig] = _EMPTY
    retention: Mapping[str, Keep] = _EMPTY
    statistics_keep: int | None = None
    redact: tuple[str, ...] = ()
    scheduler: Mapping[str, Any] = _EMPTY
    schedules: Mapping[str, ScheduleConfig] = _EMPTY
    aliases: Mapping[str, str] = _EMPTY
    fanouts: Mapping[str, tuple[str, ...]] = _EMPTY

    def queue(self, name: str) -> QueueConfig:
        return self.queues.get(name, QueueConfig())

    def has_handler(self, queue: str, environ: Mapping[str, str] = os.environ) -> bool:
        """Tell whether the file or a variable names what runs the tasks of a queue."""
        return bool(
            any(environ.get(f"BLUEQUE_{name}") for name in ("HANDLER", "RUN", "EXEC", "MODULES"))
            or self.queue(queue).handler
            or self.listener.keys() & {*_HANDLER, "modules"}
        )

    def retention_of(self, queue: str, settings: Mapping[str, Keep] = _EMPTY) -> dict[str, Keep]:
        """Return how long the finished tasks of a queue stay, by every status in which one may end.

        settings: what those of the queue in Redis say.
        """
        return {**RETENTION, **self.retention, **settings, **self.queue(queue).retention}


def load(
    path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] = os.environ
) -> Config:
    """Return what the file says; without a path that of the file that `find` finds. Raises
    ConfigRefused.
    """
    found = os.fspath(path) if path is not None else find(environ)
    if found is None:
        return Config()
    try:
        with open(found, "rb") as file:
            text = file.read().decode("utf-8-sig")  # some editors put a mark before it
    except OSError as error:
        raise ConfigRefused(found, None, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        reason = f"byte {error.object[error.start]:#04x} at offset {error.start} is not UTF-8"
        raise ConfigRefused(found, None, reason) from error
    return parse(text, found)


def check_setting(name: str, value: Any) -> Any:
    """Return a setting of a queue in Redis, checked as in the table of a queue. Raises InvalidInput.

    name: of `queue_settings.NAMES`. value: as in a file; a `Retry` is one, too.
    """
    checks = {
        "weight": selection.require_weight,
        "retry": lambda given: given if isinstance(given, Retry) else _retry(given),
        **_limits(),
        **dict.fromkeys(queue_settings.RETENTION, _keep),
    }
    try:
        return checks[name](value)
    except (InvalidInput, OverflowError) as error:
        raise InvalidInput(f"{name}: {error}") from error


def require_setting(name: str) -> str:
    """Return the name of a setting that a queue may have in Redis. Raises InvalidInput."""
    if name not in queue_settings.NAMES:
        raise InvalidInput(f"{name}: unknown setting{_hint(name, queue_settings.NAMES)}")
    return name


def find(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the file that is to be read: BLUEQUE_CONFIG, else the first blueque.toml that there
    is.
    """
    if environ.get("BLUEQUE_CONFIG"):
        return environ["BLUEQUE_CONFIG"]
    own = environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    places = (NAME, os.path.join(own, "blueque", NAME), f"/etc/blueque/{NAME}")
    return next((place for place in places if os.path.lexists(place)), None)


def parse(text: str, path: str = NAME) -> Config:
    """Return what the text says. path: how to name it in an error. Raises ConfigRefused."""
    # here: most have no such file, and what a listener imports, each of its forks copies
    import tomllib

    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        twice = re.sub(r"Cannot declare \((.*?),?\) twice", _declared_twice, str(error))
        raise ConfigRefused(path, None, twice) from error
    except RecursionError as error:
        raise ConfigRefused(path, None, "nested too deeply") from error
    return _Checker(path).config(values)


def _declared_twice(found: re.Match[str]) -> str:
    names = tuple(re.findall("'([^']*)'", found[1]))
    return f"[{shown_path(names)}] is there twice"


class _Checker:
    """Turns the values of a file into a Config. path: of the file, for errors."""

    def __init__(self, path: str) -> None:
        self._path = path

    def config(self, values: Mapping[str, Any]) -> Config:
        own = self._table((), values, _top_checks())
        scheduler = self._table(
            ("scheduler",),
            own.get("scheduler", {}),
            {**_log_checks(), "apply_schedules": _yes_or_no},
        )
        statistics = self._table(("statistics",), own.get("statistics", {}), {"keep": _days})
        shown = self._table(("show",), own.get("show", {}), {"redact": _texts})
        listener = self._table(("listener",), own.get("listener", {}), _listener_checks())
        self._require_one_handler(("listener",), listener)
        self._check_together(listener)
        queues = {}
        for name, table in own.get("queues", {}).items():
            self._checked(("queues", name), require_queue_name, name)
            queues[name] = queue = self._queue(("queues", name), table)
            if listener.get("spawn"):
                self._refuse_reuse(("queues", name), queue.reused, _SPAWNED)
            if "exec" in listener if queue.handler is None else queue.handler.exec is not None:
                self._refuse_reuse(
                    ("queues", name), queue.reused, "a program always runs in its own process"
                )
        schedules = {
            name: self._schedule(name, table) for name, table in own.get("schedules", {}).items()
        }
        aliases = self._aliases(own.get("aliases", {}), queues)
        return Config(
            self._path,
            own.get("redis_url"),
            own.get("max_bytes"),
            MappingProxyType(_with_limits(listener)),
            MappingProxyType(queues),
            self._retention(("retention",), own.get("retention", {})),
            statistics.get("keep"),
            tuple(shown.get("redact", ())),
            MappingProxyType(scheduler),
            MappingProxyType(schedules),
            MappingProxyType(aliases),
            MappingProxyType(
                {
                    name: self._fanout(("fanouts", name), words, aliases)
                    for name, words in own.get("fanouts", {}).items()
                }
            ),
        )

    def _check_together(self, listener: Mapping[str, Any]) -> None:
        """Refuse what is right by itself, and makes no sense beside the rest of `[listener]`."""
        beat = listener.get("beat")
        for name in ("lease", "lost_after"):
            if beat is not None and name in listener and listener[name] < round(3 * beat, 9):
                raise self._refused(
                    ("listener", name),
                    f"it is {listener[name]:g} s: at least three beats of {beat:g} s are needed, {3 * beat:g} s",
                )
        if listener.get("spawn"):
            self._refuse_reuse(("listener",), listener, _SPAWNED)
        if listener.get("spawn") and listener.get("preload"):
            raise self._refused(
                ("listener", "preload"),
                "preload works with forks only: with spawn = true, each task imports everything itself",
            )

    def _queue(self, path: Path, values: Any) -> QueueConfig:
        own = _with_limits(
            self._table(
                path,
                values,
                {
                    "weight": selection.require_weight,
                    "retry": _retry,
                    "retention": dict,
                    "resources": require_resources,
                    "start_within": require_within,
                    "pythonpath": _paths,
                    **_HANDLER,
                    **_REUSE,
                    **_CWD,
                    **_SURROUNDINGS,
                    **_limits(),
                },
            )
        )
        reused = {name: own.pop(name) for name in _REUSE if name in own}
        names = (*_CWD, *_SURROUNDINGS)
        surroundings = {name: own.pop(name) for name in names if name in own}
        self._require_one_handler(path, own)
        name = HandlerName(own.pop("handler", None), own.pop("exec", None))
        retention = self._retention((*path, "retention"), own.pop("retention", {}))
        return QueueConfig(
            **own,
            retention=retention,
            handler=name if any(name) else None,
            reused=MappingProxyType(reused),
            surroundings=MappingProxyType(surroundings),
        )

    def _aliases(self, values: Mapping[str, Any], queues: Collection[str]) -> dict[str, str]:
        for name, queue in values.items():
            path = ("aliases", name)
            self._checked(path, require_queue_name, name)
            self._checked(path, require_queue_name, queue)
            if queue in values:
                raise self._refused(path, f"{queue!r} is an alias itself: name the queue")
            if name in queues:
                what = f"[queues] has {name!r} too: a name is a queue or an alias"
                raise self._refused(path, what)
        return dict(values)

    def _fanout(self, path: Path, words: Any, aliases: Mapping[str, str]) -> tuple[str, ...]:
        names = [aliases.get(name, name) for name in self._checked(path, _queue_names, words)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise self._refused(path, f"queue {twice!r} is there twice")
        return tuple(names)

    def _schedule(self, name: str, values: Any) -> ScheduleConfig:
        path = ("schedules", name)
        self._checked(path, require_schedule_name, name)
        own = self._table(path, values, _schedule_checks())
        queue = own.pop("queue", None)
        if queue is None:
            raise self._refused((*path, "queue"), "it is missing: which queue do the tasks go to?")
        try:
            read_rule(**{key: own[key] for key in _RULE if key in own})
            read_policies(**{key: own[key] for key in POLICIES if key in own})
        except InvalidInput as error:
            raise self.of_schedule(name, error) from error
        return ScheduleConfig(queue, own.pop("parameters", None), MappingProxyType(own))

    def of_schedule(self, name: str, error: InvalidInput) -> ConfigRefused:
        """Return the error of a schedule whose sentence begins with the key."""
        key = re.split("[: ]", str(error), maxsplit=1)[0]
        if key in _schedule_checks():
            return self._refused(("schedules", name, key), _without_name(key, str(error)))
        return self._refused(("schedules", name), str(error))

    def _refuse_reuse(self, path: Path, values: Mapping[str, Any], reason: str) -> None:
        for name in _REUSE:
            if values.get(name, 1) != 1:
                raise self._refused((*path, name), reason)

    def _require_one_handler(self, path: Path, values: dict[str, Any]) -> None:
        """Refuse two handlers, and give an earlier name of the key its name."""
        named = [name for name in (_FORMERLY, "handler", "exec") if name in values]
        if len(named) > 1:
            reason = f"{named[0]} is set as well: a task has one handler, so set one of the two"
            raise self._refused((*path, named[1]), reason)
        if _FORMERLY in values:
            values["handler"] = values.pop(_FORMERLY)

    def _retention(self, path: Path, values: Any) -> Mapping[str, Keep]:
        return MappingProxyType(self._table(path, values, dict.fromkeys(FINISHED, _keep)))

    def _table(
        self, path: Path, values: Any, checks: Mapping[str, Callable[[Any], Any]]
    ) -> dict[str, Any]:
        """Return the values of a table, each as its check makes it. A check that is `dict` is for a
        table.
        """
        if not isinstance(values, dict):
            raise self._refused(path, f"must be a table, not {_kind(values)}")
        found = {}
        for key, value in values.items():
            if key not in checks:
                hint = _hint(key, [name for name in checks if name != _FORMERLY])
                if not hint.startswith(_MEANT):
                    hint = _quoted(path, key, value) or hint
                raise self._refused((*path, key), f"unknown key{hint}")
            if checks[key] is not dict:
                found[key] = self._checked((*path, key), checks[key], value)
            elif isinstance(value, dict):
                found[key] = value
            else:
                raise self._refused((*path, key), f"must be a table, not {_kind(value)}")
        return found

    def _checked(self, path: Path, check: Callable[[Any], Any], value: Any) -> Any:
        if isinstance(value, dict) and len(value) > 1:
            for key, part in value.items():  # to name the key that is wrong
                self._checked(path, check, {key: part})
        if isinstance(value, dict) and len(value) == 1:
            path = (*path, *value)
        try:
            return check(value)
        except (InvalidInput, OverflowError) as error:
            raise self._refused(path, str(error)) from error

    def _refused(self, path: Path, reason: str) -> ConfigRefused:
        return ConfigRefused(self._path, shown_path(path), reason)


def refused_schedule(path: str, name: str, error: InvalidInput) -> ConfigRefused:
    """Return what to raise for a schedule of a file that is wrong as a whole.

    error: its sentence begins with the wrong key, if it is about one.
    """
    return _Checker(path).of_schedule(name, error)


def shown_path(path: Path) -> str:
    """Return a path as it is written in TOML."""
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"' for part in path)


_MEANT = "; did you mean "


def _hint(key: str, checks: Collection[str]) -> str:
    from difflib import get_close_matches  # here: for a mistake only

    close = get_close_matches(key.replace("-", "_"), list(checks), n=1)
    return f"{_MEANT}{close[0]}?" if close else f"; the keys are {', '.join(checks)}"


def _quoted(path: Path, key: str, value: object) -> str:
    """Return the advice to quote the name of a queue or a schedule that has a dot; empty if that is
    not the mistake.
    """
    if len(path) != 2 or path[0] not in ("queues", "schedules") or not isinstance(value, dict):
        return ""
    return f'; a name with a dot is written in quotes: [{path[0]}."{path[1]}.{key}"]'


def _kind(value: object) -> str:
    words = {
        str: "text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "an array",
        dict: "a table",
    }
    return words.get(type(value), "a date or time")


def _limits() -> dict[str, Callable[[Any], Any]]:
    def check(name: str, value: Any) -> int | float | None:
        is_none = value is False and name.endswith("_limit")
        return None if is_none else _limit(name, value)

    return {name: functools.partial(check, name) for name in LIMITS}


def _limit(name: str, value: Any) -> int | float:
    return _named(name, lambda: limits.fields(**{name: value})[name])


def _named(name: str, check: Callable[[], Checked]) -> Checked:
    """Return what a check returns that names the key in its error, as the path before it does."""
    try:
        return check()
    except InvalidInput as error:
        raise InvalidInput(_without_name(name, str(error))) from error


def _without_name(name: str, sentence: str) -> str:
    said = sentence.removeprefix(f"{name}: ")
    return f"it{said.removeprefix(name)}" if said.startswith(f"{name} is ") else said


def _with_limits(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with those that are limits in one dict of their own."""
    others = {name: value for name, value in values.items() if name not in LIMITS}
    return {
        **others,
        "limits": MappingProxyType({name: values[name] for name in LIMITS if name in values}),
    }


def _address(value: Any) -> str:
    Address(_text(value))
    return str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidType(f"must be text, not {_kind(value) if value != '' else 'empty'}")
    return value


def _host(value: Any) -> str:
    return require_host_name(_text(value))


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise InvalidType(f"must be an array of texts, not {_kind(value)}")
    return [_text(one) for one in value]


def _paths(value: Any) -> list[str]:
    return [_text(value)] if isinstance(value, str) else _texts(value)


def _queue_names(value: Any) -> list[str]:
    names = [require_queue_name(name) for name in _texts(value)]
    if not 1 <= len(names) <= MOST_FANNED_OUT:
        raise InvalidInput(f"it is 1 to {MOST_FANNED_OUT} queues, not {len(names)}")
    return names


def _modules(value: Any) -> list[str]:
    return [require_module_name(name) for name in _texts(value)]


def _callable_name(value: Any) -> str:
    return require_callable_name(_text(value))


def _program(value: Any) -> list[str]:
    """Return what is written as words in an array, or as one text that is split as a shell would."""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return require_program(value)
    if isinstance(value, list):
        raise InvalidType("must be an array of texts, each a word of the command")
    return parse_program(_text(value))


# A program in a file is named as on the command line; no shell is involved.
_FORMERLY = "run"  # the earlier name of handler
_HANDLER: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {"handler": _callable_name, "exec": _program, _FORMERLY: _callable_name}
)


def _duration(value: Any) -> float:
    seconds = parse_duration(value) if isinstance(value, str) else value
    return require_number(seconds, "it", 0.001, CENTURY)


_SPAWNED = "with spawn = true, each task has a fresh interpreter to itself"
# How many tasks a process takes, and for how long.
_REUSE: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {"reuse": lambda value: require_whole(value, "it", 1, MOST_REUSED), "reuse_for": _duration}
)


def _yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidType(f"must be true or false, not {_kind(value)}")
    return value


def _one_of(words: tuple[str, ...]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in words:
            raise InvalidInput(f"{value!r} is not one of {', '.join(words)}")
        return str(value)

    return check


# Where a task works; in the table of a queue and in that of the listener.
_CWD: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {"cwd": _one_of(CWD), "keep_cwd": _one_of(KEEP_CWD)}
)
# What else its process finds; in the table of a queue only.
_SURROUNDINGS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "umask": require_umask,
        "nice": lambda value: require_whole(value, "it", -20, 19),
        "cgroup": lambda value: _text(value),
    }
)


def _select(value: Any) -> str:
    if isinstance(value, str) and selection.is_own_select(value):
        return require_callable_name(value)
    return _one_of(selection.NAMES)(value)


def _days(value: Any) -> int:
    return whole_days(_duration(value), value)


def _keep(value: Any) -> Keep:
    """Return what is written as an age, as a table of age and newest, as false or as "never"."""
    if _is_never(value):
        return Keep()
    if not isinstance(value, dict):
        return Keep(_duration(value))
    if unknown := sorted(value.keys() - {"age", "newest"}):
        raise InvalidInput(f"unknown key{_hint(unknown[0], ('age', 'newest'))}")
    age, newest = value.get("age", False), value.get("newest", False)
    seconds = None if _is_never(age) else _duration(age)
    if _is_never(newest):
        return Keep(seconds)
    return Keep(seconds, require_whole(newest, "it", 1, MOST_KEPT), spared=SPARED)


def _is_never(value: Any) -> bool:
    return value is False or value == "never"


def _size(value: Any) -> int:
    return require_whole(parse_size(value) if isinstance(value, str) else value, "it", 1, 2**40)


def _room(value: Any) -> float:
    return parse_room(value) if isinstance(value, str) else require_whole(value, "it", 1, 2**62)


def _log_limit(value: Any) -> int:
    return parse_log_limit(
        value if isinstance(value, str) else str(require_whole(value, "it", 1, 2**62))
    )


_TABLES = (
    *("listener", "queues", "retention", "statistics", "show", "scheduler", "schedules"),
    *("aliases", "fanouts"),
)


def _top_checks() -> dict[str, Callable[[Any], Any]]:
    return {"redis_url": _address, "max_bytes": _size, **dict.fromkeys(_TABLES, dict)}


def _listener_checks() -> dict[str, Callable[[Any], Any]]:
    return {
        "slots": lambda value: require_whole(value, "it", 1, MAX_SLOTS),
        "select": _select,
        "spool": _text,
        "host": _host,
        "keep": _duration,
        "spool_limit": _room,
        "log_limit": _log_limit,
        "beat": _duration,
        "lease": _duration,
        "lost_after": _duration,
        "on_term": _one_of(ON_TERM),
        "resources": require_resources,
        "warm": _yes_or_no,
        "spawn": _yes_or_no,
        "preload": _texts,
        "modules": _modules,
        "hooks": _callable_name,
        "retry": _retry,
        "until_empty": _yes_or_no,
        "max_runtime": _duration,
        "task_redis": _yes_or_no,
        **_CWD,
        **_REUSE,
        **_log_checks(),
        **_HANDLER,
        **_limits(),
    }


def _log_checks() -> dict[str, Callable[[Any], Any]]:
    return {"log_format": _one_of(LOG_FORMATS), "log_level": _one_of(LOG_LEVELS)}


_RULE = ("cron", "every", "timezone", "start", "until")


def _schedule_checks() -> dict[str, Callable[[Any], Any]]:
    """Return the checks of a schedule. `read_rule` and `read_policies` check the other keys."""
    return {
        "queue": require_queue_name,
        **dict.fromkeys(_RULE, _as_it_is),
        "parameters": _parameters,
        **dict.fromkeys(POLICIES, _as_it_is),
        "keep": lambda value: _named("keep", lambda: require_keep(value)),
        "priority": require_priority,
        "resources": require_resources,
        "lock": _lock,
        "retry": _retry,
        **{name: functools.partial(_limit, name) for name in LIMITS},
        "title": lambda value: _named("title", lambda: require_title(value)),
        "tags": lambda value: _named("tags", lambda: require_tags(value)),
        "context": _context,
    }


def _as_it_is(value: Any) -> Any:
    return value


def _parameters(value: Any) -> Any:
    """Return parameters of a task. Those that are too large are refused when the task is made."""
    _named("parameters", lambda: encode(value, "parameters", sys.maxsize))
    return value


def _context(value: Any) -> Any:
    _named("context", lambda: require_context(value))
    return value


def _lock(value: Any) -> tuple[str, int]:
    """Return a lock that is written as "disk", or as ["licence", 3]."""
    return require_lock(tuple(value) if isinstance(value, list) else value)


def _retry(value: Any) -> Retry | Literal[False]:
    """Return a policy that is written as 3, as a table, or as false."""
    if value is False:
        return False
    if isinstance(value, dict):
        if unknown := sorted(value.keys() - set(_RETRY)):
            raise InvalidInput(f"unknown key{_hint(unknown[0], _RETRY)}")
        given = {**value}
        if isinstance(given.get("backoff"), str):
            given["backoff"] = parse_duration(given["backoff"])
        return Retry(**given)
    if isinstance(value, bool) or not isinstance(value, int):
        kind = "true" if value is True else _kind(value)
        raise InvalidType(f"must be a number, a retry policy as a table, or false, not {kind}")
    return Retry(max=value)
