"""What chaos and failovers have in common: a log, the promises that were broken, and a table."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import random
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from chaos_ledger import now

from blueque.audit.audit import audit
from blueque.connection.redis import Redis
from blueque.model import keys

ENDED = {"complete", "failed", "cancelled"}
AT_ONCE = 500  # tasks that one look is about


class Proof:
    """One run."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._began, self._log_path = now(), directory / "log"
        self.wrong: list[str] = []
        self.table: dict[str, object] = {"seed": seed}
        self.result: dict[str, object] = {}  # what docs/benchmarks.md is made of
        self.log(f"this is {self._began:.3f} by the clock of the ledger")

    def log(self, text: str) -> None:
        with self._log_path.open("a") as file:
            file.write(f"{now() - self._began:8.3f} {text}\n")

    def look(self) -> None:
        """Note what goes on: called again and again."""

    def until(self, is_so: Callable[[], object], seconds: float, what: str) -> None:
        """Wait, and look on meanwhile. It is a broken promise when it takes too long."""
        deadline = now() + seconds
        while not is_so():
            self.look()
            if now() >= deadline:
                self.wrong.append(f"not within {seconds:g} s: {what}")
                return
            time.sleep(0.1)

    def audit(self, redis: Redis) -> None:
        """Wait until the doctor has nothing to say."""
        self.until(lambda: not audit(redis, 0.3), 15.0, "an audit without findings")
        self.wrong += [finding.sentence for finding in audit(redis, 0.5)]

    def report(self) -> str:
        """Return the table, and if something is wrong that and the log."""
        lines = [f"{name:45} {value}" for name, value in self.table.items()]
        if self.wrong:
            lines += [
                *[f"WRONG: {sentence}" for sentence in self.wrong],
                self._log_path.read_text(),
            ]
        return "\n".join(lines)


def unended(redis: Redis, tasks: Iterable[str]) -> list[str]:
    """Return which of the tasks have not ended."""
    left, found = list(tasks), []
    while left:
        some, left = left[:AT_ONCE], left[AT_ONCE:]
        statuses = redis.read(*[("HGET", keys.task(task), "status") for task in some])
        found += [task for task, status in zip(some, statuses, strict=True) if status not in ENDED]
    return found


def main(prove: Callable[[argparse.Namespace], Proof], kinds: Iterable[str], text: str) -> int:
    """Have one run, print its report, and return how the program is to exit."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("kind", choices=[*kinds])
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument(
        "--tasks",
        type=int,
        default=0,
        help="go on until so many have begun, for twice as long at most",
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument(
        "--directory", type=Path, help="where everything is written; stays, and must be empty"
    )
    parser.add_argument(
        "--result", type=Path, help="a file for what bin/bench --write-only writes of a run"
    )
    given = parser.parse_args()
    logging.getLogger("blueque").disabled = True
    with contextlib.ExitStack() as stack:
        if given.directory is None:
            made = tempfile.TemporaryDirectory(prefix="blueque-proof-")
            given.directory = Path(stack.enter_context(made))
        given.directory.mkdir(exist_ok=True)
        run = prove(given)
        print(run.report(), flush=True)
        if given.result is not None:
            given.result.write_text(json.dumps(run.result | {"wrong": run.wrong}, indent=1) + "\n")
    return bool(run.wrong)
