"""The progress of the jobs of a Spark session, counted in Spark's own tasks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

log = logging.getLogger("blueque")

EVERY = 1.0  # seconds between two looks
_ENDED = ("SUCCEEDED", "FAILED")


class Far(NamedTuple):
    """How many tasks of Spark are done. total grows with each job, because the number of jobs is unknown."""

    done: int
    total: int


class Progress:
    """Counts the Spark tasks of all jobs of a session, in any thread.

    tracker: `SparkContext.statusTracker()`. It forgets old jobs and stages, so their counts are
        kept here.
    """

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker
        self._ended: set[int] = set()  # jobs
        # of all jobs: how many tasks are done, and how many there are
        self._stages: dict[int, tuple[int, int]] = {}

    def look(self) -> Far:
        """Return how far the jobs are. Raises what py4j raises when Java is gone."""
        for job in {
            *self._tracker.getActiveJobsIds(),
            *self._tracker.getJobIdsForGroup(),
        } - self._ended:
            self._look_at(job)
        return Far(
            sum(done for done, _ in self._stages.values()),
            sum(total for _, total in self._stages.values()),
        )

    def _look_at(self, job: int) -> None:
        info = self._tracker.getJobInfo(job)
        if info is None:
            return
        stages = list(info.stageIds)
        for number in stages:
            done, total = self._stages.get(number, (0, 0))
            stage = self._tracker.getStageInfo(number) if done < total or total == 0 else None
            if stage is not None:
                self._stages[number] = (stage.numCompletedTasks, stage.numTasks)
        if info.status in _ENDED:
            self._ended.add(job)
            # the tasks that it has left out existed before, or were not needed
            for number in stages:
                done, _ = self._stages.pop(number, (0, 0))
                self._stages[number] = (done, done)


class Reporter:
    """Reports the progress from another thread while it is started.

    tell: called when the progress has changed. A failed look is repeated, because Java may be ending.
    """

    def __init__(self, progress: Progress, tell: Callable[[Far], object]) -> None:
        self._progress, self._tell = progress, tell
        self._told: Far | None = None
        self._has_last_word = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="blueque-progress", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, has_last_word: bool) -> None:
        """Stop reporting, with a last report if wanted."""
        self._has_last_word = has_last_word
        self._stopping.set()
        self._thread.join(2 * EVERY)

    def _run(self) -> None:
        while not self._stopping.wait(EVERY):
            self._report()
        if self._has_last_word:
            self._report()

    def _report(self) -> None:
        try:
            far = self._progress.look()
        except Exception as error:  # py4j raises all kinds
            log.debug("no progress of Spark: %s", error)
            return
        if far != self._told and far.total:  # a stall limit counts changes, not reports
            self._told = far
            self._tell(far)
