"""The values in effect, and where each comes from: for `blueque config`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from datetime import date
from datetime import time as clock_time
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.cli import printing
from blueque.cli.failure import CONFIGURATION, Failure
from blueque.connection.address import hide_password
from blueque.model import units
from blueque.model.working_directory import CWD, KEEP_CWD
from blueque.system import hosts
from blueque.text.hints import amount

if TYPE_CHECKING:
    from blueque.cli.options import Invocation

_WITH_SECRETS = ("parameters", "context")  # names of values whose secrets are hidden
# a variable for one overrules the other one in the file
_HANDLERS = {"listener.handler", "listener.exec"}


# The defaults of [web].
_WEB: Mapping[str, Any] = MappingProxyType(
    {
        "listen": "127.0.0.1:8264",
        "public": False,
        "host_names": [],
        "prefix": None,
        "env": None,
        "frame_ancestors": [],
        "queues": [],
        "read_only": False,
        "password_file": None,
        "trust_proxy": [],
        "user_header": None,
        "role_header": None,
    }
)


class Setting(NamedTuple):
    """A value in effect.

    origin: option, environment, file, handler, redis or default. place: the option, the variable, the file,
        with its table if one queue was asked for, or the handler that says it.
    """

    name: str
    value: Any
    origin: str
    place: str | None = None


def effective(invocation: Invocation, environ: Mapping[str, str] = os.environ) -> Iterator[Setting]:
    """Yield every value in effect. Ends the program if one is wrong."""
    said = file_values(invocation)
    path = invocation.config.path
    yield _address(invocation)
    is_lottery = any(queue.weight is not None for queue in invocation.config.queues.values())
    named = variables()
    said = without_overruled(
        said, {name for name, variable in named.items() if environ.get(variable)}
    )
    for name, default in defaults(environ, is_lottery).items():
        variable = named.get(name)
        if variable is not None and environ.get(variable):
            yield Setting(name, environ[variable], "environment", variable)
        elif name in said:
            yield Setting(name, said[name], "file", path)
        else:
            yield Setting(name, default, "default")
    for name, value in said.items():
        if name != "redis_url" and name not in defaults(environ, is_lottery):
            yield Setting(name, value, "file", path)


def without_overruled(said: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Return the values of the file that variables do not overrule. given: set by variables."""
    overruled: set[str] = set()
    if _HANDLERS & {*given}:
        overruled = {*_HANDLERS, "listener.modules"} | {
            name
            for name in said
            if name.startswith("queues.") and name.endswith((".handler", ".exec"))
        }
    return {name: value for name, value in said.items() if name not in overruled}


def variables() -> dict[str, str]:
    """Return the environment variable of each value that has one."""
    from blueque.cli import listener, program, scheduler  # here: large, and only for this verb

    found = {"max_bytes": "BLUEQUE_MAX_BYTES", "statistics.keep": "BLUEQUE_STATISTICS_KEEP"}
    for table, command in (("listener", listener.command), ("scheduler", scheduler.command)):
        for option in program.settings_of(command):
            found[f"{table}.{option.name}"] = program.variable(option)
    return found


def _address(invocation: Invocation) -> Setting:
    url, origin = invocation.address()
    shown = hide_password(url)
    if origin == invocation.config.path:
        return Setting("redis_url", shown, "file", origin)
    if origin == "default":
        return Setting("redis_url", shown, "default")
    return Setting(
        "redis_url", shown, "option" if origin.startswith("--") else "environment", origin
    )


def defaults(environ: Mapping[str, str], is_lottery: bool) -> dict[str, Any]:
    """Return the default of every value but those of queues."""
    from blueque.cli.listener import KEEP  # here: large, and only for this verb
    from blueque.system.process import is_in_container

    timing = units.Timing()
    listener: dict[str, Any] = {
        "slots": 1,
        "select": "lottery" if is_lottery else "ordered",
        "spool": units.spool({**environ, "BLUEQUE_SPOOL": ""}),
        "host": hosts.default_name(),
        "spool_limit": f"{units.SPOOL_LIMIT:.0%}",
        "log_limit": amount(units.LOG_LIMIT),
        "keep": printing.span(KEEP),
        "beat": printing.span(timing.beat),
        "lease": printing.span(timing.lease),
        "lost_after": printing.span(timing.lost_after),
        "on_term": "drain" if is_in_container() else "leave",
        "handler": None,
        "exec": None,
        "modules": [],
        "hooks": None,
        "task_redis": None,
        "until_empty": False,
        "max_runtime": None,
        "log_format": units.LOG_FORMATS[0],
        "log_level": units.LOG_LEVEL,
        "resources": {},
        "warm": True,
        "preload": [],
        "reuse": 1,
        "reuse_for": None,
        "cwd": CWD[0],
        "keep_cwd": KEEP_CWD[0],
        "retry": False,
        "time_limit": None,
        "stall_limit": None,
        "memory_limit": None,
        "grace": printing.span(units.GRACE),
        "lead": 0,
    }
    retention = {
        status: {
            "age": printing.span(keep.age),
            **({} if keep.newest is None else {"newest": keep.newest}),
        }
        for status, keep in units.RETENTION.items()
    }
    return {
        "max_bytes": units.DEFAULT_MAX_BYTES,
        **{f"listener.{name}": value for name, value in listener.items()},
        **{f"retention.{status}": keep for status, keep in retention.items()},
        "statistics.keep": f"{units.STATISTICS_KEEP} d",
        "show.redact": [],
        **{f"web.{name}": value for name, value in _WEB.items()},
        "scheduler.log_format": units.LOG_FORMATS[0],
        "scheduler.log_level": units.LOG_LEVEL,
        "scheduler.apply_schedules": False,
    }


def file_values(invocation: Invocation) -> dict[str, Any]:
    """Return the values of the file as they are written there, by names with dots."""
    found = invocation.config.path  # a mistake in it ends the program here
    if found is None:
        return {}
    import tomllib  # here: only with a file

    from blueque.config.checker import shown_path

    try:
        text = Path(found).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise Failure(CONFIGURATION, f"{found}: {error.strerror}") from error
    hide = invocation.hider(False)
    return {
        shown_path(path): hide(value) if path[-1] in _WITH_SECRETS else _without_dates(value)
        for path, value in _leaves((), tomllib.loads(text))
    }


def _without_dates(value: Any) -> Any:
    """Return what JSON has for a value of TOML: a date or time is text."""
    return value.isoformat() if isinstance(value, date | clock_time) else value


def _leaves(
    path: tuple[str, ...], table: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values of tables. A table in the table of a listener, a queue, a schedule or retention
    is one value.
    """
    for key, value in table.items():
        depth = 2 if (*path, key)[0] in ("queues", "schedules") else 1
        if isinstance(value, dict) and len(path) < depth:
            yield from _leaves((*path, key), value)
        else:
            yield (*path, key), value
