"""The setting of the cases: the stage, the systems, how many rounds and how large."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.load import Quiet
from bench.rounds import rotated
from bench.stage import RunFailed, Stage
from bench.systems import System
from bench.venvs import InstallFailed
from blueque.errors import BluequeError
from blueque.system.embedded_redis import running_server

Values = dict[str, float]  # of one run, by metric

# What may go wrong with others' programs, and shall not keep us from running the rest.
FAILURES = (
    RunFailed,
    InstallFailed,
    BluequeError,
    psutil.Error,
    subprocess.SubprocessError,
    OSError,
    ValueError,
    LookupError,
)


@dataclass
class Outcome:
    """What a case has brought: for each row and metric a value per round; which rows failed, and
    why.

    again: what the second run of a row in each round has brought, to be compared with the first.
    """

    rows: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    again: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)

    def add(self, row: str, values: Values) -> None:
        for metric, value in values.items():
            self.rows.setdefault(row, {}).setdefault(metric, []).append(value)


class Bench:
    """twice: the rows that run twice in each round."""

    def __init__(
        self, stage: Stage, systems: list[System], rounds: int, scale: float, quiet: Quiet
    ) -> None:
        self.stage = stage
        self.systems = systems
        self.rounds = rounds
        self.scale = scale
        self.quiet = quiet
        self.not_installed: dict[str, str] = {}
        self.twice: frozenset[str] = frozenset()

    def scaled(self, count: int, least: int = 20) -> int:
        return max(int(count * self.scale), least)

    def outcome(self) -> Outcome:
        return Outcome(failed={**self.not_installed})

    def outcome_of_ours(self) -> Outcome:
        """Return one for a case in which no peer takes part."""
        return Outcome()

    def in_turn(self, outcome: Outcome, runs: Mapping[str, Callable[[], Values]]) -> None:
        """Have each run once in each round, in rotating order, and some twice; one that fails is
        not tried again, and says why.
        """
        turns = [
            *((row, False) for row in runs),
            *((row, True) for row in runs if row in self.twice),
        ]
        for number in range(self.rounds):
            for row, is_again in rotated(turns, number):
                if row in outcome.failed:
                    continue
                self.quiet.wait()
                if is_again:
                    self._again(outcome, row, runs[row])
                else:
                    self.one(outcome, row, runs[row])

    def _again(self, outcome: Outcome, row: str, run: Callable[[], Values]) -> None:
        """Run it, and keep what it brings apart."""
        kept = [*outcome.samples.get(row, [])]
        try:
            for metric, value in run().items():
                outcome.again.setdefault(row, {}).setdefault(metric, []).append(value)
        except FAILURES as error:
            outcome.again.pop(row, None)
            print(f"    {row}, again: {reason(error)}", file=sys.stderr, flush=True)
        if row in outcome.samples:
            outcome.samples[row][:] = kept

    def one(self, outcome: Outcome, row: str, run: Callable[[], Values]) -> None:
        try:
            outcome.add(row, run())
        except FAILURES as error:
            outcome.failed[row] = reason(error)
            outcome.rows.pop(row, None)
            outcome.samples.pop(row, None)
            print(f"    {row}: {outcome.failed[row]}", file=sys.stderr, flush=True)


def reason(error: BaseException) -> str:
    """Return what it says, for the page: in a line, and without the directories of this machine."""
    said = " ".join(str(error).split()) or type(error).__name__
    return re.sub(r"(?:/[^\s/'\"]+)+/", "", said)


@contextlib.contextmanager
def work_directory(parent: str | None = None) -> Iterator[None]:
    """Have all temporary files made in a new directory, which is removed at the end.

    Nothing is removed before that. To create a file, ext4 without a journal searches for an inode
    that was not freed in the last minutes, so what one run removes would slow the next.
    """
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(
        prefix="blueque-bench-", dir=parent, ignore_cleanup_errors=True
    ) as directory:
        tempfile.tempdir = directory
        try:
            yield
        finally:
            tempfile.tempdir = before


@contextlib.contextmanager
def open_stage(*options: str) -> Iterator[Stage]:
    """A stage with a Redis, which is gone at the end, and a new directory."""
    with running_server(*options) as server:
        stage = Stage(server, Path(tempfile.mkdtemp(prefix="stage-")))
        stage.clear()
        yield stage
