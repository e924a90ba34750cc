"""The pages: one module for each, with a function that takes a visit and returns what to show.

`VIEWS` is the table of all paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from starlette.exceptions import HTTPException
from starlette.responses import Response

from blueque.web.views import (
    activity,
    doctor,
    failures,
    groups,
    help,
    nodes,
    overview,
    queues,
    schedule,
    settings,
    statistics,
    task,
    tasks,
)
from blueque.web.visit import Page, Visit

View = Callable[[Visit], Page | Response]

VIEWS: tuple[tuple[str, View], ...] = (
    (r"/", overview.overview),
    (r"/queues", queues.queues),
    (r"/queues/(?P<name>.+)", queues.queue),
    (r"/tasks", tasks.tasks),
    (r"/tasks\.csv", tasks.tasks_csv),
    (r"/find", tasks.find),
    (r"/nodes", nodes.nodes),
    (r"/nodes/(?P<name>.+)", nodes.node),
    (r"/failures", failures.failures),
    (r"/failures/(?P<name>.+)", failures.kind),
    (r"/schedule", schedule.schedule),
    (r"/schedule/(?P<name>.+)", schedule.recurring),
    (r"/groups", groups.all_groups),
    (r"/groups/(?P<name>.+)", groups.one_group),
    (r"/statistics", statistics.statistics),
    (r"/statistics\.html", statistics.statistics_file),
    (r"/doctor", doctor.doctor),
    (r"/activity", activity.activity),
    (r"/settings", settings.settings),
    (r"/help", help.help),
    (r"/tasks/(?P<id>[^/]+)", task.task),
    (r"/tasks/(?P<id>[^/]+)/log", task.log_page),
    (r"/tasks/(?P<id>[^/]+)/log\.txt", task.log_text),
)


def view_of(visit: Visit) -> tuple[View, Visit]:
    """Return the view of a visit, and the visit with the parts of its path. Raises HTTPException."""
    for pattern, view in VIEWS:
        found = re.fullmatch(pattern, visit.path)
        if found is not None:
            return view, replace(visit, params=found.groupdict())
    raise HTTPException(404, f"There is no page {visit.path} here.")
