"""Progress: how far the jobs of a Spark session are, counted in Spark's own tasks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

log = logging.getLogger("blueque")

EVERY = 1.0  # seconds between two looks
_ENDED = ("SUCCEEDED", "FAILED")


class Far(NamedTuple):
    """How many of Spark's tasks are done. total grows with each job: nobody knows how many will
    come.
    """

    done: int
    total: int


class Progress:
    """Looks at the jobs of a session, of whatever thread they are.

    tracker: `SparkContext.statusTracker()`. It forgets old jobs and stages, so that what they came
        to is kept here.
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
            # what it has left out was there from before, or not needed after all
            for number in stages:
                done, _ = self._stages.pop(number, (0, 0))
                self._stages[number] = (done, done)


class Reporter:
    """Tells of the progress from a thread of its own, as long as it is started and not stopped.

    tell: called with what has changed since the last time. A look that fails is made again: Java
        may be at its end.
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
        """Tell no more, but for a last look, if wanted."""
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
        if far != self._told and far.total:  # a stall limit goes by what is told, not by how often
            self._told = far
            self._tell(far)
