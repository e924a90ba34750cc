"""The settings of tasks: in the table of a queue, in Redis, and some in that of the listener."""

from __future__ import annotations

import functools

from blueque.model import queue_order, queue_settings, units
from blueque.model.start_time import require_within
from blueque.model.working_directory import CWD, KEEP_CWD
from blueque.settings import values
from blueque.settings.kinds import (
    CALLABLE,
    DURATION,
    KEEP,
    POLICY,
    PROGRAM,
    RESOURCES,
    Kind,
    limit,
    one_of,
    texts,
    whole,
    write_duration,
)
from blueque.settings.setting import Setting


def _short(number: float) -> float:
    return int(number) if number.is_integer() else number


MOST_REUSED = 10**9  # tasks of one process

HANDLER = (
    Setting(
        "handler",
        CALLABLE._replace(read=values.read_handler_name),
        "Run this Python callable for each task.",
        example="mypackage.tasks:work",
    ),
    Setting(
        "exec",
        PROGRAM,
        "Run this program for each task; on the command line, it comes last.",
        example=["./work.sh", "--fast"],
    ),
)
REUSE = (
    Setting(
        "reuse",
        whole(1, MOST_REUSED),
        "Run up to so many tasks in a process, one after the other. What one leaves in memory, the next one finds.",
        default=1,
        example=100,
    ),
    Setting(
        "reuse_for",
        DURATION,
        "Give a process no more tasks this long after its first one began. Without --reuse, the number of tasks has no limit.",
        example="1h",
    ),
)
CWD_KEYS = (
    Setting(
        "cwd",
        one_of(CWD),
        "Where a task works: in the directory of the listener, or in an empty one of its own, which is removed at its end.",
        default=CWD[0],
        example="task",
    ),
    Setting(
        "keep_cwd",
        one_of(KEEP_CWD),
        "When the directory of --cwd task stays, for as long as the other files of its attempt.",
        default=KEEP_CWD[0],
    ),
)
RETRY = Setting(
    "retry",
    POLICY,
    "Run a failed task again: so many times, or by a policy.",
    default=False,
    example={"max": 3, "backoff": "1m", "factor": 2, "on": ["OSError"]},
)
LIMITS = (
    Setting(
        "time_limit", limit("time_limit", "DURATION"), "End a task that runs longer.", example="1d"
    ),
    Setting(
        "stall_limit",
        limit("stall_limit", "DURATION"),
        "End a task that reports no progress for so long.",
        example="2h",
    ),
    Setting(
        "memory_limit",
        limit("memory_limit", "SIZE"),
        "End a task whose processes use more memory together, as 8GiB.",
        example="16GiB",
    ),
    Setting(
        "grace",
        limit("grace", "DURATION"),
        "How long after SIGTERM a task gets SIGKILL.",
        default=units.GRACE,
    ),
    Setting(
        "lead",
        limit("lead", "DURATION"),
        "How long before a limit a task gets SIGUSR1, which ends a program that does not handle it.",
        default=0,
        default_text="no SIGUSR1",
        example="5m",
    ),
)
# Of a task that says nothing itself, and where other processes may say it: its queue, its handler.
OF_TASKS = (RETRY, *LIMITS)
RETENTION = {
    status: Setting(
        status,
        KEEP,
        f'How long {status} tasks stay: an age, "never", or a table of age and newest.',
        default=keep,
        default_text="90d" if status == "failed" else "7d, and the newest 50,000",
    )
    for status, keep in units.RETENTION.items()
}
QUEUE = (
    *HANDLER,
    Setting(
        "weight",
        Kind(queue_order.require_weight, "N", write=_short),
        "Chance of this queue when listeners draw. A weight makes them draw.",
        default=1.0,
        example=100,
    ),
    *OF_TASKS,
    *(row._replace(key=f"retention.{status}") for status, row in RETENTION.items()),
    Setting(
        "resources",
        RESOURCES,
        "What a task needs, if it does not say so itself.",
        default={},
        example={"gpu": 1},
    ),
    Setting(
        "start_within",
        Kind(require_within, "DURATION", write=write_duration),
        "A new task that has not started by then expires.",
        example="2h",
    ),
    *REUSE,
    *CWD_KEYS,
    Setting(
        "pythonpath",
        texts("DIR", values.read_paths),
        "Directories in which Python looks for modules first, in a task and in the programs that it starts.",
        default=(),
        example=["/srv/render/lib"],
    ),
)
IN_REDIS = (
    *(row for row in QUEUE if row.key in queue_settings.NAMES),
    Setting(
        "max_running",
        Kind(functools.partial(queue_settings.require_bound, "max_running"), "N"),
        "How many of its tasks may run at a time, on all hosts together.",
        default_text="any number",
    ),
    Setting(
        "max_pending",
        Kind(functools.partial(queue_settings.require_bound, "max_pending"), "N"),
        "How many tasks may be in line.",
        default_text="any number",
    ),
    Setting(
        "discard",
        Kind(functools.partial(queue_settings.require_bound, "discard"), "oldest"),
        "When the queue is full, cancel the oldest tasks instead of refusing new ones.",
        default_text="refuse new ones",
    ),
)
