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
        "Run up to N tasks in one process, one after the other. They share its memory.",
        default=1,
        example=100,
    ),
    Setting(
        "reuse_for",
        DURATION,
        "Give a process no new task when this time has passed since its first one. Without --reuse, it runs any number.",
        example="1h",
    ),
)
CWD_KEYS = (
    Setting(
        "cwd",
        one_of(CWD),
        "Working directory of a task: that of the listener, or an empty one, which is removed when the task ends.",
        default=CWD[0],
        example="task",
    ),
    Setting(
        "keep_cwd",
        one_of(KEEP_CWD),
        "When to keep the directory of --cwd task; it stays as long as the other files of the attempt.",
        default=KEEP_CWD[0],
    ),
)
RETRY = Setting(
    "retry",
    POLICY,
    "Run a failed task again: N times, or by a policy.",
    default=False,
    example={"max": 3, "backoff": "1m", "factor": 2, "on": ["OSError"]},
)
LIMITS = (
    Setting(
        "time_limit", limit("time_limit", "DURATION"), "Stop a task that runs longer.", example="1d"
    ),
    Setting(
        "stall_limit",
        limit("stall_limit", "DURATION"),
        "Stop a task that reports no progress for this long.",
        example="2h",
    ),
    Setting(
        "memory_limit",
        limit("memory_limit", "SIZE"),
        "Stop a task whose processes together use more memory, such as 8GiB.",
        example="16GiB",
    ),
    Setting(
        "grace",
        limit("grace", "DURATION"),
        "Time from SIGTERM to SIGKILL when a task is stopped.",
        default=units.GRACE,
    ),
    Setting(
        "lead",
        limit("lead", "DURATION"),
        "Send SIGUSR1 this long before a limit. It ends a program that does not handle it.",
        default=0,
        default_text="no SIGUSR1",
        example="5m",
    ),
)
# Defaults of a task; its queue and its handler can set them too.
OF_TASKS = (RETRY, *LIMITS)
RETENTION = {
    status: Setting(
        status,
        KEEP,
        f'How long to keep {status} tasks: an age, "never", or a table of age and newest.',
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
        "Chance of this queue with --select lottery, which is the default if a queue has a weight.",
        default=1.0,
        example=100,
    ),
    *OF_TASKS,
    *(row._replace(key=f"retention.{status}") for status, row in RETENTION.items()),
    Setting(
        "resources",
        RESOURCES,
        "Resources that a task needs, unless it names its own.",
        default={},
        example={"gpu": 1},
    ),
    Setting(
        "start_within",
        Kind(require_within, "DURATION", write=write_duration),
        "A new task expires if it has not started this long after it is due.",
        example="2h",
    ),
    *REUSE,
    *CWD_KEYS,
    Setting(
        "pythonpath",
        texts("DIR", values.read_paths),
        "Directories where Python looks for modules first, in tasks and in programs that they start.",
        default=(),
        example=["/srv/render/lib"],
    ),
)
IN_REDIS = (
    *(row for row in QUEUE if row.key in queue_settings.NAMES),
    Setting(
        "max_running",
        Kind(functools.partial(queue_settings.require_bound, "max_running"), "N"),
        "Maximum number of its tasks that run at a time, on all hosts together.",
        default_text="any number",
    ),
    Setting(
        "max_pending",
        Kind(functools.partial(queue_settings.require_bound, "max_pending"), "N"),
        "Maximum number of tasks in line.",
        default_text="any number",
    ),
    Setting(
        "discard",
        Kind(functools.partial(queue_settings.require_bound, "discard"), "oldest"),
        "When the queue is full, cancel the oldest tasks instead of refusing new ones.",
        default_text="refuse new ones",
    ),
)
