"""The settings of programs: listener, scheduler and page."""

from __future__ import annotations

import os

from blueque.model import queue_order, units
from blueque.settings import values
from blueque.settings.kinds import (
    CALLABLE,
    DURATION,
    LOG_SIZE,
    RESOURCES,
    ROOM,
    TASK_REDIS,
    TEXT,
    YES_OR_NO,
    Kind,
    one_of,
    texts,
    whole,
)
from blueque.settings.of_tasks import CWD_KEYS, HANDLER, OF_TASKS, REUSE
from blueque.settings.setting import Setting
from blueque.system import hosts
from blueque.system.process import is_in_container

ON_TERM = ("leave", "drain", "stop")
MAX_SLOTS = 1000
KEPT_FILES = 7 * 86400.0  # seconds for which the files of a finished attempt stay


def _where_files_lie() -> str:
    return units.spool({**os.environ, "BLUEQUE_SPOOL": ""})


def _at_sigterm() -> str:
    return "drain" if is_in_container() else "leave"


_LOG = (
    Setting(
        "log_format",
        one_of(units.LOG_FORMATS),
        "Format of the log on standard error: lines of text, or one JSON object on each line.",
        default=units.LOG_FORMATS[0],
    ),
    Setting(
        "log_level",
        one_of(units.LOG_LEVELS),
        "Log lines of this level and above.",
        default=units.LOG_LEVEL,
    ),
)
LISTENER = (
    Setting(
        "modules",
        texts("MODULE", values.read_modules),
        "Import these modules: their functions with @blueque.handler run the tasks of their queues. Without a QUEUE, listen to all "
        "of these queues.",
        default=(),
        example=["mypackage.tasks"],
        option="--module",
    ),
    *HANDLER,
    Setting(
        "hooks",
        CALLABLE._replace(metavar="MODULE:CLASS"),
        "Call before_start and after_end of this class around each task.",
        example="mypackage.hooks:Hooks",
    ),
    Setting(
        "select",
        Kind(values.read_select, f"[{'|'.join(queue_order.NAMES)}|MODULE:CALLABLE]"),
        "How to choose among several queues: the first with work, each in turn, at random by weight, or by a callable.",
        default="ordered",
        default_text="lottery if a queue has a weight, else ordered",
        example="lottery",
    ),
    Setting("slots", whole(1, MAX_SLOTS), "Number of tasks at a time.", default=1, example=4),
    Setting(
        "resources",
        RESOURCES,
        "Resources of this host for tasks that need them; shared by all listeners with the same spool.",
        default={},
        example={"gpu": 2, "memory": "64GiB"},
        option="--resource",
    ),
    Setting(
        "warm",
        YES_OR_NO,
        "Import the callable before a task comes: true at the start of the listener, false never.",
        default_text="true after the first task of a slot; false if the listener has the resource gpu",
        example=True,
    ),
    Setting(
        "preload",
        texts("MODULE"),
        "Import these modules once for all tasks of a slot.",
        default=(),
        example=["numpy"],
    ),
    *REUSE,
    *CWD_KEYS,
    Setting(
        "task_redis",
        TASK_REDIS,
        "Give tasks the address of Redis; programs get it in BLUEQUE_REDIS_URL. A file may name another address.",
        default_text="callables only, for Client()",
        example=True,
    ),
    Setting(
        "host",
        Kind(values.read_host, "NAME"),
        "Name of this host in the ids of listeners.",
        default=hosts.default_name,
        default_text="the full name, or the short one if that is localhost",
        example="gpu-1.example.com",
    ),
    Setting(
        "spool",
        TEXT._replace(metavar="DIR"),
        "Directory for the files of attempts.",
        default=_where_files_lie,
        default_text="~/.local/state/blueque/spool, for root /var/lib/blueque/spool",
        example="/var/lib/blueque/spool",
    ),
    Setting("keep", DURATION, "How long the files of a finished attempt stay.", default=KEPT_FILES),
    Setting(
        "spool_limit",
        ROOM,
        "Remove the oldest files when the spool is larger than this size, or this share of its disk.",
        default=units.SPOOL_LIMIT,
    ),
    Setting(
        "log_limit",
        LOG_SIZE,
        "Remove the middle of stdout or stderr of a task when it is larger than this; at least 1MiB.",
        default=units.LOG_LIMIT,
    ),
    Setting("beat", DURATION, "How often a listener sends a beat.", default=units.BEAT),
    Setting(
        "lease", DURATION, "A listener without a beat for this long is dead.", default=units.LEASE
    ),
    Setting(
        "lost_after",
        DURATION,
        "Tasks of a listener without a beat for this long are lost.",
        default=units.LOST_AFTER,
    ),
    Setting(
        "on_term",
        one_of(ON_TERM),
        "At SIGTERM: leave running tasks to their listeners, wait for them, or stop them.",
        default=_at_sigterm,
        default_text="drain in a container, else leave",
        example="drain",
    ),
    Setting(
        "until_empty", YES_OR_NO, "Exit when no queue has a pending or due task.", default=False
    ),
    Setting(
        "max_runtime",
        DURATION,
        "After this time, take nothing new and do what --on-term says. With --on-term stop, take no task whose time limit is "
        "longer than the time left.",
        example="12h",
    ),
    *_LOG,
    *OF_TASKS,
)
SCHEDULER = (
    Setting(
        "apply_schedules",
        YES_OR_NO,
        "Write the recurring tasks of [schedules] to Redis, at the start and at SIGHUP.",
        default=False,
    ),
    *_LOG,
)
WEB = (
    Setting(
        "listen",
        Kind(values.read_listen, "HOST:PORT"),
        "Address, or unix:PATH.",
        default_text="127.0.0.1 and the first free port from 8264 on",
        example="unix:/run/blueque/web.sock",
    ),
    Setting(
        "public",
        YES_OR_NO,
        "Allow an address that other machines can reach, without TLS.",
        default=False,
    ),
    Setting(
        "host_names",
        texts("NAME"),
        "Names by which browsers may call this server.",
        default=(),
        example=["queue.example.com"],
        option="--host-name",
    ),
    Setting(
        "prefix",
        Kind(values.read_prefix, "/PATH"),
        "Path under which a proxy serves the page.",
        default="",
        example="/blueque",
    ),
    Setting(
        "env",
        TEXT._replace(metavar="NAME"),
        "Show this name on each page; prod is marked red.",
        default="",
        example="prod",
    ),
    Setting(
        "frame_ancestors",
        texts("ORIGIN", values.read_origins),
        "Pages of these origins may show this page in a frame.",
        default=(),
        example=["https://portal.example.com"],
    ),
    Setting(
        "queues",
        texts("PATTERN"),
        "Show only these queues.",
        default=(),
        example=["render.*"],
        option="-q --queue",
    ),
    Setting("read_only", YES_OR_NO, "Allow no changes from the page.", default=False),
    Setting(
        "password_file",
        TEXT._replace(metavar="FILE"),
        "File of the users who may log in, with a line of `blueque web --hash NAME` for each.",
        example="/etc/blueque/web.passwords",
    ),
    Setting(
        "trust_proxy",
        texts("ADDRESS|NETWORK", values.read_networks),
        "Trust the headers of these proxies: X-Forwarded-For, -Proto, and the next two.",
        default=(),
        example=["10.0.0.2"],
    ),
    Setting(
        "user_header",
        Kind(values.read_header, "NAME"),
        "Header in which a proxy sends the user.",
        example="X-Forwarded-User",
    ),
    Setting(
        "role_header",
        Kind(values.read_header, "NAME"),
        "Header in which it sends the role: operator or viewer.",
        example="X-Forwarded-Groups",
    ),
)
