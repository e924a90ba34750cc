"""The content of a report: small for any number of tasks. Times are in Unix seconds, durations in
seconds, days counted from 1970-01-01.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Spread(NamedTuple):
    """The distribution of a duration."""

    n: int  # how many tasks have it
    mean: float
    maximum: float
    p50: float
    p90: float
    p99: float


class Group(NamedTuple):
    """Tasks with something in common: a queue, a day, both, or nothing.

    day: of the end, since 1970-01-01, in UTC. retried: in a report, tasks that started more than
        once. wait, run: None if no task has it.
    """

    queue: str | None
    day: int | None
    n: int
    complete: int
    failed: int
    cancelled: int
    retried: int
    wait: Spread | None
    run: Spread | None

    @property
    def others(self) -> int:
        """How many tasks have not finished."""
        return self.n - self.complete - self.failed - self.cancelled

    @property
    def work(self) -> float:
        """The total run time of its tasks."""
        return self.run.n * self.run.mean if self.run else 0.0


class Failure(NamedTuple):
    """One type of error. task_id, error, last: the newest of these failures."""

    error_type: str
    n: int
    queues: int
    queue: str | None
    task_id: str | None
    error: str | None
    last: float | None


class Bar(NamedTuple):
    """One run of a task on a node."""

    start: float
    end: float
    status: str
    task_id: str = ""
    queue: str = ""
    node: str = ""


class Host(NamedTuple):
    """What ran on one machine. nodes: how many listeners; work: seconds."""

    name: str
    nodes: int
    n: int
    work: float


@dataclass(frozen=True)
class Timeline:
    """Which tasks ran when on which host, between two times.

    `bars` has every run. If there are too many, `profiles` has instead how many ran at the same
    time, by host, status and step of time.
    more: how many hosts are left out, those with the least work.
    """

    since: float
    until: float
    hosts: Sequence[Host]
    bars: Mapping[str, Sequence[Bar]] = field(default_factory=dict)
    profiles: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    step: float = 0.0
    more: int = 0


@dataclass(frozen=True)
class Summary:
    """The content of a report.

    days, queues: a group for each; only the `queues` with the most tasks, of `all_queues`. by_day:
        of some queues, a group for each day.
    run_times: of some queues, how many by number of bucket. strays: tasks of days far from all
        others. failures: the most frequent, of `all_types`.
    is_counted: made from the counts of queues, which have only the times of completed attempts.
    """

    title: str
    source: str
    made: float
    total: Group
    days: Sequence[Group] = ()
    strays: int = 0
    queues: Sequence[Group] = ()
    all_queues: int = 0
    by_day: Mapping[str, Sequence[Group]] = field(default_factory=dict)
    run_times: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    failures: Sequence[Failure] = ()
    all_types: int = 0
    timeline: Timeline | None = None
    is_counted: bool = False
