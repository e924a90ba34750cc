"""The settings of a recurring task."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from blueque.model import limits
from blueque.model.encoding import require_queue_name
from blueque.model.ids import require_keep
from blueque.model.labels import require_tags, require_title
from blueque.model.lines import require_priority, require_resources
from blueque.settings import values
from blueque.settings.kinds import Kind
from blueque.settings.setting import Setting

RULE = ("cron", "every", "timezone", "start", "until")
AS_ENQUEUE = "As for blueque enqueue, for each task."
_OF_TASKS: Mapping[str, tuple[Callable[[Any], Any], Any]] = MappingProxyType(
    {
        "priority": (require_priority, 5),
        "resources": (require_resources, {"gpu": 1}),
        "lock": (values.read_lock, "disk"),
        "retry": (values.read_retry, 3),
        **{
            name: (
                functools.partial(values.read_limit, name),
                "8GiB" if name == "memory_limit" else "2h",
            )
            for name in limits.NAMES
        },
        "title": (lambda value: values.named("title", lambda: require_title(value)), "Nightly"),
        "tags": (lambda value: values.named("tags", lambda: require_tags(value)), ["customer:17"]),
        "context": (values.read_context, {"team": "reports"}),
    }
)
_AS_IT_IS = Kind(values.as_it_is)  # `read_rule` and `read_policies` check them
SCHEDULE = (
    Setting(
        "queue", Kind(require_queue_name), "Queue of the tasks. It must be set.", example="reports"
    ),
    Setting(
        "cron",
        _AS_IT_IS,
        "Minute, hour, day of the month, month and day of the week. Set this or every.",
        example="30 2 * * 1-5",
    ),
    Setting("every", _AS_IT_IS, "Interval between tasks, from 10 s to 366 days.", example="6h"),
    Setting(
        "timezone", _AS_IT_IS, "Time zone of cron.", default_text="UTC", example="Europe/Berlin"
    ),
    Setting(
        "start",
        _AS_IT_IS,
        "No task before this time: a time with its zone, or Unix seconds.",
        example="2030-01-31T08:00:00+01:00",
    ),
    Setting("until", _AS_IT_IS, "No task after this time.", example="2031-01-31T08:00:00+01:00"),
    Setting(
        "parameters",
        Kind(values.read_parameters),
        "Parameters of each task: text stays text, anything else is JSON.",
        default_text="null",
        example={"kind": "daily"},
    ),
    Setting(
        "overlap",
        _AS_IT_IS,
        'If the previous task has not ended: "skip" this one, "queue" it, or "allow" both.',
        default_text="skip",
        example="skip",
    ),
    Setting(
        "catch_up",
        _AS_IT_IS,
        'Missed planned times that still make a task: the "last", "all", which needs overlap = "allow", or "none".',
        default_text="last",
        example="last",
    ),
    Setting("window", _AS_IT_IS, "How far back to catch up.", default_text="1d", example="1d"),
    Setting(
        "jitter",
        _AS_IT_IS,
        "Delay each task by a part of this, always the same for the same time. At most a day, and at most the interval.",
        default_text="0",
        example="10m",
    ),
    Setting(
        "keep",
        Kind(lambda value: values.named("keep", lambda: require_keep(value))),
        "How long a planned time gets no second task after its task was deleted.",
        default_text="1d",
        example="1d",
    ),
    *(
        Setting(key, Kind(read), AS_ENQUEUE, example=example)
        for key, (read, example) in _OF_TASKS.items()
    ),
)
