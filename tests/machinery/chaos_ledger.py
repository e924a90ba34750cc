"""What the tasks wrote down, and what follows from it: who runs, who was started twice, who ran at
the same time.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOREVER = float("inf")
CRASHED = "node crashed"
BACK = 1.5  # seconds that may pass until others know that a node is back
BETWEEN = 0.5  # seconds between two disturbances that are one to a node
LAST_WORDS = 1.0  # seconds that a task may take from its last line to its exit record


def now() -> float:
    """Return the time by the clock of the ledger."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass
class Run:
    """One start of a task.

    pid, listener: as the task saw them. process: its pid here; None when it was gone before we
        looked.
    seen: when it was seen alive last, by the clock of the ledger; with `ended`, the time is exact.
    killed: between which times its process was killed.
    """

    task: str
    attempt: int
    pid: int
    listener: int
    node: str
    began: float
    ended: bool = False
    process: int | None = None
    seen: float = 0.0
    killed: tuple[float, float] | None = None


class Lines:
    """The whole lines that a file gets, each of them once."""

    def __init__(self, path: Path) -> None:
        self._path, self._place = path, 0

    def __iter__(self) -> Iterator[str]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._place)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._place += len(line)
                yield line.decode().rstrip("\n")


class Ledger:
    """All runs so far, and those that go on."""

    def __init__(self, path: Path) -> None:
        self._lines = Lines(path)
        self.runs: list[Run] = []
        self.running: list[Run] = []
        self._by_name: dict[tuple[str, int, int], Run] = {}
        self._by_task: dict[str, list[Run]] = defaultdict(list)

    def read(self) -> None:
        for line in self._lines:
            what, task, attempt, pid, listener, node, at = line.split(" ")
            name = (task, int(attempt), int(pid))
            if what == "start":
                run = Run(
                    task, int(attempt), int(pid), int(listener), node, float(at), seen=float(at)
                )
                self.runs.append(run)
                self.running.append(run)
                self._by_name[name] = run
                self._by_task[task].append(run)
            else:
                self._by_name[name].seen, self._by_name[name].ended = float(at), True

    def runs_of(self, task: str) -> list[Run]:
        return self._by_task[task]

    def look(self, is_alive: Callable[[Run], bool], at: float) -> None:
        """Note which runs go on."""
        going: list[Run] = []
        for run in self.running:
            if not run.ended and is_alive(run):
                run.seen = at
                going.append(run)
        self.running = going


@dataclass
class Away:
    """A time for which nobody could attend to the tasks of a node, and why. It is as long as it
    was, not as was meant.
    """

    node: str
    cause: str
    since: float
    until: float = FOREVER

    def covers(self, node: str, since: float, until: float) -> bool:
        """Tell whether the node was away, or was just coming back, after `since`, and from before
        `until`.
        """
        return self.node == node and self.until + BACK >= since and self.since <= until


@dataclass
class Promise:
    """What the producer knows of a task. parents: for whose ends it waits, whatever they are."""

    is_safe: bool = False
    how: str = "nap"
    lock: str | None = None
    is_accepted: bool = False
    consents: int = 0
    answer: str | None = None  # of a cancel; None when it was wanted again after that
    parents: list[str] = field(default_factory=list)


class Promises:
    """What the producer has been told."""

    def __init__(self, path: Path) -> None:
        self.path, self._lines = path, Lines(path)
        self.tasks: dict[str, Promise] = defaultdict(Promise)

    def read(self) -> dict[str, Promise]:
        for line in self._lines:
            said: dict[str, Any] = json.loads(line)
            promise = self.tasks[said["task"]]
            if said["what"] in ("accepted", "unknown"):
                for name in said.keys() - {"what", "task"}:
                    setattr(promise, name, said[name])
                promise.is_accepted = said["what"] == "accepted"
            elif said["what"] == "consent":
                promise.consents += 1
                promise.answer = None
            else:
                promise.answer = said["answer"]
        return self.tasks


def doubled(runs: Iterable[Run], tasks: dict[str, Promise]) -> list[str]:
    """Return what was started without consent: a task once too often, or one attempt twice."""
    wrong: list[str] = []
    starts: Counter[str] = Counter()
    attempts: Counter[tuple[str, int]] = Counter()
    for run in runs:
        starts[run.task] += 1
        attempts[run.task, run.attempt] += 1
    for task, count in starts.items():
        promise = tasks[task] if task in tasks else Promise()
        if not promise.is_safe and count > 1 + promise.consents:
            wrong.append(f"task {task} was started {count} times, with {promise.consents} consents")
    wrong += [
        f"task {task}: attempt {number} was started {n} times"
        for (task, number), n in attempts.items()
        if n > 1
    ]
    return wrong


def too_early(
    ledger: Ledger, tasks: dict[str, Promise], given_up: set[str]
) -> tuple[int, list[str]]:
    """Return how many runs had to wait for the end of another, and those that began before it.

    A parent that was given up or cancelled, or wanted again, may have let them go earlier.
    """
    waited, wrong = 0, []
    for task, promise in tasks.items():
        for parent in promise.parents:
            its = tasks[parent]
            runs = ledger.runs_of(parent)
            newest = max(runs, key=lambda run: run.attempt, default=None)
            if newest is None or not newest.ended or parent in given_up:
                continue
            if its.consents or its.answer is not None:
                continue
            for run in ledger.runs_of(task):
                waited += 1
                if run.began < newest.seen:
                    wrong.append(
                        f"task {task} began before the end of {parent}, for which it waits"
                    )
    return waited, wrong


def overlaps(
    runs: Iterable[Run], away: Iterable[Away], lost_after: float
) -> tuple[Counter[str], list[str]]:
    """Return how many runs went on when a newer one of the task began, by what allows that, and
    those without excuse.
    """
    by_task: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_task[run.task].append(run)
    spans = _long(away, lost_after)
    excused: Counter[str] = Counter()
    wrong: list[str] = []
    for task, its in by_task.items():
        its.sort(key=lambda run: run.attempt)
        for place, older in enumerate(its):
            for newer in its[place + 1 :]:
                if newer.began >= older.seen:
                    continue
                cause = _excuse(older, newer, spans, lost_after)
                if cause is not None:
                    excused[cause] += 1
                else:
                    wrong.append(
                        f"task {task}: attempt {older.attempt} ran on node {older.node} from {older.began:.3f} to "
                        f"{older.seen:.3f}, attempt {newer.attempt} on node {newer.node} from {newer.began:.3f}"
                    )
    return excused, wrong


def crowds(
    runs: Iterable[Run],
    tasks: dict[str, Promise],
    away: Iterable[Away],
    limits: dict[str, int],
    lost_after: float,
) -> tuple[int, list[str]]:
    """Return how many runs held a lock, and those that began when as many as may hold it ran,
    without excuse.

    limits: of the locks, by name.
    """
    by_lock: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        lock = tasks[run.task].lock if run.task in tasks else None
        if lock is not None:
            by_lock[lock].append(run)
    spans = _long(away, lost_after)
    wrong: list[str] = []
    for lock, its in by_lock.items():
        its.sort(key=lambda run: run.began)
        for place, newer in enumerate(its):
            others = [
                older
                for older in its[:place]
                if newer.began < older.seen and _excuse(older, newer, spans, lost_after) is None
            ]
            if len(others) >= limits[lock]:
                known = ", ".join(
                    f"{older.task} on node {older.node} to {older.seen:.3f}" for older in others
                )
                wrong.append(
                    f"lock {lock}: {newer.task} began at {newer.began:.3f}, and it was held by {known}"
                )
    return sum(map(len, by_lock.values())), wrong


def _long(away: Iterable[Away], lost_after: float) -> list[Away]:
    """Return the times after which a node is taken for lost."""
    return [span for span in joined(away) if span.until - span.since >= lost_after]


def _excuse(older: Run, newer: Run, spans: Iterable[Away], lost_after: float) -> str | None:
    """Return why an attempt may have been given up when the newer one began, although it ran on;
    None: no reason.
    """
    return next(
        (
            span.cause
            for span in spans
            if span.covers(older.node, older.began, newer.began - lost_after)
        ),
        None,
    )


def redone(
    runs: Iterable[Run],
    tasks: dict[str, Promise],
    away: Iterable[Away],
    given_up: set[str],
    lost_after: float,
) -> list[str]:
    """Return the runs that came to their end, and were done again or given up although their node
    could tell of it.

    given_up: the tasks that were declared lost.
    """
    by_task: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_task[run.task].append(run)
    known = list(away)
    spans = _long(known, lost_after)
    # What had ended while its listener could not tell, and then crashed: another machine is not
    # sure that it is dead.
    crashes = [span for span in joined(known, BACK) if CRASHED in span.cause]
    wrong: list[str] = []
    for task, its in by_task.items():
        newest = max(run.attempt for run in its)
        promise = tasks[task] if task in tasks else Promise()
        for run in its:
            has_failed = promise.how == "fail" and run.attempt < 2
            # Given up may have been an earlier attempt, killed before it had written a line.
            is_last_right = newest > 1 or task not in given_up
            is_right = is_last_right if run.attempt == newest else has_failed
            if not run.ended or is_right or promise.consents:
                continue
            if not _was_cut_short(run) and not any(
                span.covers(run.node, run.seen, run.seen + LAST_WORDS)
                for span in [*spans, *crashes]
            ):
                what = f"attempt {run.attempt} on node {run.node} came to its end at {run.seen:.3f}"
                wrong.append(f"task {task}: {what}, and was done again or given up")
    return wrong


def _was_cut_short(run: Run) -> bool:
    """Tell whether the process was killed about when it came to its end, so that it may not have
    told of it.
    """
    return (
        run.killed is not None
        and run.killed[0] - LAST_WORDS < run.seen < run.killed[1] + LAST_WORDS
    )


def joined(away: Iterable[Away], between: float = BETWEEN) -> list[Away]:
    """Return the times as one where they meet, or nearly so."""
    found: list[Away] = []
    for span in sorted(away, key=lambda span: (span.node, span.since)):
        last = found[-1] if found else None
        if last is not None and last.node == span.node and span.since <= last.until + between:
            cause = last.cause if span.cause in last.cause else f"{last.cause}, {span.cause}"
            found[-1] = Away(last.node, cause, last.since, max(last.until, span.until))
        else:
            found.append(span)
    return found
