"""The keys of each table of a blueque.toml, and what reads their values.

docs/configuration.md explains every key.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from blueque.config.values import (
    LIMITS,
    as_it_is,
    limit_checks,
    named,
    one_of,
    read_address,
    read_callable_name,
    read_context,
    read_duration,
    read_header,
    read_host,
    read_limit,
    read_listen,
    read_lock,
    read_log_limit,
    read_modules,
    read_networks,
    read_origins,
    read_parameters,
    read_paths,
    read_prefix,
    read_program,
    read_retry,
    read_room,
    read_select,
    read_size,
    read_text,
    read_texts,
    read_yes_or_no,
)
from blueque.model import queue_order
from blueque.model.encoding import require_queue_name, require_whole
from blueque.model.ids import require_keep
from blueque.model.labels import require_tags, require_title
from blueque.model.lines import require_priority, require_resources
from blueque.model.schedule import POLICIES
from blueque.model.start_time import require_within
from blueque.model.units import LOG_FORMATS, LOG_LEVELS
from blueque.model.working_directory import CWD, KEEP_CWD

FINISHED = ("complete", "failed", "cancelled")
ON_TERM = ("leave", "drain", "stop")
MAX_SLOTS = 1000
MOST_REUSED = 10**9  # tasks of one process
RULE = ("cron", "every", "timezone", "start", "until")

# A program in a file is named as on the command line; no shell is involved.
HANDLER: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {"handler": read_callable_name, "exec": read_program}
)

# How many tasks a process takes, and for how long.
REUSE: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {"reuse": lambda value: require_whole(value, "it", 1, MOST_REUSED), "reuse_for": read_duration}
)

# Where a task works; in the table of a queue and in that of the listener.
CWD_KEYS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {"cwd": one_of(CWD), "keep_cwd": one_of(KEEP_CWD)}
)

_TABLES = (
    *("listener", "queues", "retention", "statistics", "show", "scheduler", "schedules"),
    *("aliases", "fanouts", "web"),
)


def top_checks() -> dict[str, Callable[[Any], Any]]:
    return {"redis_url": read_address, "max_bytes": read_size, **dict.fromkeys(_TABLES, dict)}


def listener_checks() -> dict[str, Callable[[Any], Any]]:
    return {
        "slots": lambda value: require_whole(value, "it", 1, MAX_SLOTS),
        "select": read_select,
        "spool": read_text,
        "host": read_host,
        "keep": read_duration,
        "spool_limit": read_room,
        "log_limit": read_log_limit,
        "beat": read_duration,
        "lease": read_duration,
        "lost_after": read_duration,
        "on_term": one_of(ON_TERM),
        "resources": require_resources,
        "warm": read_yes_or_no,
        "preload": read_texts,
        "modules": read_modules,
        "hooks": read_callable_name,
        "retry": read_retry,
        "until_empty": read_yes_or_no,
        "max_runtime": read_duration,
        "task_redis": read_yes_or_no,
        **CWD_KEYS,
        **REUSE,
        **log_checks(),
        **HANDLER,
        **limit_checks(),
    }


def queue_checks() -> dict[str, Callable[[Any], Any]]:
    return {
        "weight": queue_order.require_weight,
        "retry": read_retry,
        "retention": dict,
        "resources": require_resources,
        "start_within": require_within,
        "pythonpath": read_paths,
        **HANDLER,
        **REUSE,
        **CWD_KEYS,
        **limit_checks(),
    }


def log_checks() -> dict[str, Callable[[Any], Any]]:
    return {"log_format": one_of(LOG_FORMATS), "log_level": one_of(LOG_LEVELS)}


def web_checks() -> dict[str, Callable[[Any], Any]]:
    return {
        "listen": read_listen,
        "public": read_yes_or_no,
        "host_names": read_texts,
        "prefix": read_prefix,
        "env": read_text,
        "frame_ancestors": read_origins,
        "queues": read_texts,
        "read_only": read_yes_or_no,
        "password_file": read_text,
        "trust_proxy": read_networks,
        "user_header": read_header,
        "role_header": read_header,
    }


def schedule_checks() -> dict[str, Callable[[Any], Any]]:
    """Return the checks of a schedule. `read_rule` and `read_policies` check the other keys."""
    return {
        "queue": require_queue_name,
        **dict.fromkeys(RULE, as_it_is),
        "parameters": read_parameters,
        **dict.fromkeys(POLICIES, as_it_is),
        "keep": lambda value: named("keep", lambda: require_keep(value)),
        "priority": require_priority,
        "resources": require_resources,
        "lock": read_lock,
        "retry": read_retry,
        **{name: functools.partial(read_limit, name) for name in LIMITS},
        "title": lambda value: named("title", lambda: require_title(value)),
        "tags": lambda value: named("tags", lambda: require_tags(value)),
        "context": read_context,
    }
