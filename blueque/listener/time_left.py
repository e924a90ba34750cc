"""TimeLeft: until when tasks may run on a node that ends them at a known time, with `--max-runtime`
and `--on-term stop`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from blueque.listener.peer_wakeup import MOST_NOTES
from blueque.model import limits
from blueque.queries import statistics
from blueque.queries.steps import read
from blueque.text.format import span

if TYPE_CHECKING:
    from blueque.connection.redis import Redis
    from blueque.model.task import Task

log = logging.getLogger("blueque")


class TimeLeft:
    """The end of all tasks of a node, as the listener of one queue sees it.

    ends: on the monotonic clock. time_limit: of tasks that have none of their own; None: no limit.
    """

    def __init__(self, ends: float, time_limit: float | None = None) -> None:
        self._ends, self._default = ends, limits.Limits(time=time_limit)
        self._left_out: set[str] = set()  # tasks whose log line was written
        self._has_warned = False

    @property
    def seconds(self) -> float:
        return max(self._ends - time.monotonic(), 0.0)

    def set_limit(self, time_limit: float | None) -> None:
        """Use another time limit for tasks that have none of their own."""
        self._default = limits.Limits(time=time_limit)

    def facts(self) -> dict[str, float]:
        """Return its fields of a registration."""
        default = self._default.time
        ends_at = {"ends_at": round(time.time() + self.seconds, 3)}
        return ends_at if default is None else {**ends_at, "time_limit": default}

    def is_enough(self, task_id: str, fields: Mapping[str, str]) -> bool:
        """Return whether the limit of the task ends it in time. Log once if not.

        fields: of the task; only its limit is read.
        """
        limit, left = limits.of(fields, self._default).time, self.seconds
        if limit is None or limit <= left:
            return True
        if task_id not in self._left_out:
            if len(self._left_out) >= MOST_NOTES:
                self._left_out.clear()
            self._left_out.add(task_id)
            log.info(
                "leaving task=%s to others: its time_limit of %s is longer than the %s until "
                "--max-runtime, which stops the running tasks",
                task_id,
                span(limit),
                span(left),
            )
        return False

    def warn(self, redis: Redis, task: Task) -> None:
        """Log once if tasks usually run longer than the time left. Raises what Redis raises."""
        if self._has_warned or limits.of(task.fields, self._default).time is not None:
            return
        ran = read(redis, statistics.ran(task.queue or "", time.time()))
        usual, left = statistics.tail(ran), self.seconds
        if usual is not None and usual > left:
            self._has_warned = True
            log.warning(
                "task=%s may be stopped: 1 in 20 tasks of queue %s runs for more than %s, and "
                "--max-runtime stops the running tasks in %s",
                task.id,
                task.queue,
                span(usual),
                span(left),
            )
