"""Real chaos: real processes, a real Redis and a network between them, which die, freeze and come
back while tasks run.

`PYTHONPATH=tests:tests/legacy python tests/machinery/chaos.py plain|tls-sentinel [--seconds 180]
[--tasks N] [--seed N] [--directory DIR] [--result FILE]` prints a table, and exits 1 when a promise
was broken. What the faults are is in chaos_faults.py, whom they strike in chaos_stage.py, and what
stays beside them in chaos_steady.py. Times in the log count from the beginning.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from chaos_faults import Faults
from chaos_ledger import (
    Ledger,
    Promise,
    Promises,
    Run,
    crowds,
    doubled,
    now,
    overlaps,
    redone,
    too_early,
)
from chaos_node import QUEUE, Node
from chaos_producer import LOCKS
from chaos_samples import Usage
from chaos_services import SERVICES
from chaos_stage import LOST_AFTER, TIMES, Stage, open_stage
from chaos_stalls import stalls_noted
from proof import ENDED, Proof, main, unended
from running import is_there
from schedule_judge import wrong_history

from blueque import Task
from blueque.model import keys
from blueque.queries import schedules

DRAIN = 45.0  # seconds by which everything has ended when the faults have stopped
LEAVE = 30.0
PATIENCE = 40.0  # seconds more than twice as long as asked for, if need be
LOOK, SAMPLE = 0.02, 0.5  # seconds between two looks at who runs, between two samples
SAMPLES = 2000  # in a long run; then they are further apart
TOLERANCE = 0.3  # seconds by which a judge's clock may be ahead of our first look
# Why a task without a policy may fail here.
REASONS = {"signal", "lost", "ValueError"}


class Chaos(Proof):
    """One run."""

    def __init__(self, stage: Stage, seed: int) -> None:
        super().__init__(stage.directory, seed)
        self.stage = stage
        self._ledger, self._promises = Ledger(stage.ledger), Promises(stage.accepted)
        self._usage = Usage()
        self.injector = Faults(stage, self._ledger, seed, self.log)
        self._sample_at, self._sample_every = 0.0, SAMPLE

    def run(self, seconds: float, tasks: int) -> None:
        """Have it all happen, and judge."""
        self._sample_every = max(SAMPLE, seconds / SAMPLES)
        with stalls_noted(self.injector.note_stall):
            self._strike(seconds, tasks)
            self._calm_down()
        self._judge()

    def _strike(self, seconds: float, tasks: int) -> None:
        """Have the faults."""
        self.stage.open()
        self.until(lambda: bool(self._ledger.running), 20.0, "the first task")
        began = now()
        # A busy machine may need longer until each fault has struck and so many tasks have begun.
        while now() < began + seconds or (
            (self.injector.never or len(self._ledger.runs) < tasks)
            and now() < began + 2 * seconds + PATIENCE
        ):
            self.injector.step()
            self.look()
            self._supervise()
            time.sleep(LOOK)
        self.injector.finish()
        self.log("the faults have stopped")

    # While it goes on

    def look(self) -> None:
        """Note who runs, and now and then what they use."""
        self._ledger.read()
        for run in self._ledger.running:
            if run.process is None:
                run.process = self.stage.node(run.node).find(run.pid)
        self._ledger.look(lambda run: is_there(run.process or 0), now())
        if now() >= self._sample_at:
            self._sample_at = now() + self._sample_every
            self._sample()

    def _sample(self) -> None:
        stage = self.stage
        if stage.is_redis_well:
            (names,) = stage.control.connections.read(("KEYS", "*"))
            count = sum(not name.startswith(keys.belongings("")) for name in names)
            self._usage.take("no task", "keys", len(self._ledger.runs), count)
        stage.steady.sample(stage.is_redis_well)

    def _supervise(self) -> None:
        """See that nobody ends whom we have not ended."""
        for node in self.stage.nodes:
            if not node.is_busy and node.listener is not None and not node.listener.is_running:
                self.wrong.append(
                    f"the master of node {node.name} has ended by itself: {node.listener.log[-2000:]}"
                )
                node.start()
        for name, program in (
            ("scheduler", self.stage.scheduler),
            ("producer", self.stage.producer),
        ):
            if program is not None and not program.is_running:
                self.wrong.append(f"the {name} has ended by itself: {program.log[-2000:]}")
                setattr(self.stage, name, None)
        self.wrong += self.stage.steady.ended()

    # When the faults have stopped

    def _calm_down(self) -> None:
        stage = self.stage
        if stage.producer is not None:
            stage.producer.send(signal.SIGTERM)
            producer = stage.producer
            self.until(lambda: not producer.is_running, 15.0, "the end of the producer")
        began = now()
        self.until(lambda: not self._behind(), DRAIN, "each planned time")
        self._judge_schedules()
        self.until(lambda: not self._unended(), DRAIN, "the end of every task")
        self.table["seconds to drain"] = round(now() - began, 1)
        self.audit(stage.control.connections)
        self.wrong += stage.steady.finish(self.until)
        # New listeners look through their spools at once: nothing may be open there that has ended.
        for node in stage.nodes:
            self._replace(node)
        self.until(
            lambda: not any(map(_open_attempts, stage.nodes)), 15.0, "a spool without open attempts"
        )
        self._leave()

    def _behind(self) -> list[str]:
        """Return the schedules of which a planned time has passed, and nothing has come."""
        (clock,) = self.stage.control.connections.read(("TIME",))
        records = schedules.records(self.stage.control.connections, [*self.stage.rules])
        return [
            record["name"]
            for record in records
            if isinstance(record, dict) and int(record.get("planned", clock[0])) < int(clock[0])
        ]

    def _judge_schedules(self) -> None:
        """Stop the schedules. Their tasks are promised from now on."""
        control = self.stage.control
        for name, (rule, begin) in self.stage.rules.items():
            control.get_schedule(name).pause("chaos")
            record = schedules.records(control.connections, [name])[0]
            assert isinstance(record, dict)
            history = schedules.occurrences(control.connections, name, TIMES)[::-1]
            wrong = wrong_history(rule, begin, record, history, name)
            if wrong is not None:
                self.wrong.append(f"schedule {name}: {wrong}")
            self.table[f"schedule {name}"] = ", ".join(
                f"{count} {what}" for what, count in Counter(one.what for one in history).items()
            )
            for one in history:
                if one.task is not None and one.what == "made":
                    self._promises.tasks[one.task] = Promise(is_safe=True, is_accepted=True)

    def _unended(self) -> list[str]:
        control = self.stage.control
        known = [task for task, promise in self._promises.read().items() if promise.is_accepted]
        counts = control.connections.read(
            ("LLEN", keys.complete(QUEUE)),
            ("LLEN", keys.failed(QUEUE)),
            ("LLEN", keys.cancelled(QUEUE)),
        )
        if sum(counts) < len(known):
            return known  # cheaper than a look at each
        return unended(control.connections, known)

    def _replace(self, node: Node) -> None:
        old = node.listener
        if old is None or node.master is None:
            return
        os.kill(node.master, signal.SIGTERM)
        self.until(
            lambda: not old.is_running, LEAVE, f"the leaving of the master of node {node.name}"
        )
        node.start()

    def _leave(self) -> None:
        """Tell everybody to leave, and see that they do."""
        stage = self.stage
        for node in stage.nodes:
            self.until(lambda node=node: node.master is not None, 10.0, "a master")  # type: ignore[misc]
            if node.master is not None:
                os.kill(node.master, signal.SIGTERM)
        if stage.scheduler is not None:
            stage.scheduler.send(signal.SIGTERM)
        self.until(
            lambda: not any(node.processes() for node in stage.nodes),
            LEAVE,
            "the leaving of the nodes",
        )
        for node in stage.nodes:
            node.end()
        self.until(lambda: not stage.left(), LEAVE, "the end of all processes")
        self.table["processes left"] = len(stage.left())
        (held,) = stage.control.connections.read(("EXISTS", keys.listeners(QUEUE)))
        if held:
            self.wrong.append("listeners that have left are still among the listeners")

    # The judgement

    def _judge(self) -> None:
        self._ledger.read()
        tasks = {task: promise for task, promise in self._promises.read().items() if task}
        ends = {task: self.stage.control.get_task(task) for task in tasks}
        lost = [
            task
            for task, promise in tasks.items()
            if promise.is_accepted and ends[task].status not in ENDED
        ]
        self.wrong += [f"task {task} is lost: {ends[task].status}" for task in lost]
        again = doubled(self._ledger.runs, tasks)
        excused, without = overlaps(self._ledger.runs, self.injector.away, LOST_AFTER - TOLERANCE)
        locked, crowded = crowds(
            self._ledger.runs, tasks, self.injector.away, LOCKS, LOST_AFTER - TOLERANCE
        )
        injector = self.injector
        given_up = _given_up(self.stage)
        waited, early = too_early(self._ledger, tasks, given_up)
        wasted = redone(self._ledger.runs, tasks, injector.away, given_up, LOST_AFTER - TOLERANCE)
        self.wrong += (
            again + without + early + crowded + wasted + injector.unadopted + injector.never_adopted
        )
        for task, promise in tasks.items():
            self.wrong += _judge_end(promise, ends[task], self._ledger.runs_of(task))
        (known,) = self.stage.control.connections.read(("ZRANGE", keys.tasks(QUEUE), 0, -1))
        self.wrong += [f"task {task} is nobody's" for task in known if task not in tasks]
        self.wrong += self._usage.wrong()
        self.wrong += [f"never struck in the midst of work: {name}" for name in self.injector.never]
        steady = self.stage.steady
        self._count(tasks, ends)
        self.table |= {
            "declared lost": len(given_up),
            "done, and done again or given up": len(wasted),
        }
        self.result |= {
            "lost": len(lost) + len(steady.lost),
            "doubled": len(again) + len(steady.doubled),
        }
        self.table |= {
            "lost": len(lost),
            "doubled": len(again),
            "overlapping, excused": sum(excused.values()),
        }
        self.table |= {f"  {cause}": count for cause, count in sorted(excused.items())}
        self.table |= {"overlapping, without excuse": len(without)}
        self.table |= {"starts after the end of another task": waited}
        self.table |= {"starts with a lock": locked, "locks held by too many": len(crowded)}

    def _count(self, tasks: dict[str, Promise], ends: dict[str, Task]) -> None:
        endings = Counter(
            f"{end.status or 'never came to be'} {end.error_type or ''}".strip()
            for end in ends.values()
        )
        runs = self._ledger.runs
        self.table |= {
            "accepted": sum(promise.is_accepted for promise in tasks.values()),
            "answer unknown": sum(not promise.is_accepted for promise in tasks.values()),
            "retry-safe": sum(promise.is_safe for promise in tasks.values()),
            **{f"ended {ending}": count for ending, count in sorted(endings.items())},
            "starts": len(runs),
            "ends": sum(run.ended for run in runs),
            "tasks started again": sum(
                count > 1 for count in Counter(run.task for run in runs).values()
            ),
            "consents": sum(promise.consents for promise in tasks.values()),
            "task processes killed": sum(run.killed is not None for run in runs),
            "adopted": f"{len(self.injector.adopted)}, the slowest after {max(self.injector.adopted, default=0.0):.1f} s",
            "faults in the midst of work": sum(self.injector.hits.values()),
            **{f"  {name}": self.injector.hits[name] for name in self.injector.faults},
        }
        steady = self.stage.steady
        (info,) = self.stage.control.connections.read(("INFO", "server"))
        self.result = {
            "minutes": round((now() - self._began) / 60, 1),
            "redis": re.findall(r"^redis_version:(\S+)", info, re.MULTILINE)[0],
            "faults": self.injector.hits,
            "tasks": len(tasks) + steady.tasks,
            "starts": len(runs) + len(steady.ledger.runs),
            "rows": steady.usage.rows(),
        }
        self.table |= {
            "steady tasks": steady.tasks,
            "  lost": len(steady.lost),
            "  doubled": len(steady.doubled),
        }
        for whose, what, *ends, slope in [*steady.usage.rows(), *self._usage.rows()]:
            grown = ", ".join(f"{value:,.0f}" for value in ends)
            self.table[f"{what} of {whose}"] = f"{grown}; by 1,000 tasks {slope:+,.1f}"


def _given_up(stage: Stage) -> set[str]:
    """Return the tasks that the log of any program says were declared lost, for good or to be run
    again.
    """
    logs = [path.read_text(errors="replace") for path in stage.directory.glob("*/program*.log")]
    return {
        task
        for text in logs
        for task in re.findall(r" lose task=(\S+) .*status=(?:failed|pending)", text)
    }


def _open_attempts(node: Node) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return os.listdir(node.programs.directory / "spool" / "open")
    return []


def _judge_end(promise: Promise, end: Task, runs: list[Run]) -> list[str]:
    """Return what is wrong with how a task has ended."""
    if end.status == "failed":
        if (
            promise.is_safe
            or end.error_type not in REASONS
            or (end.error_type == "ValueError" and promise.how != "fail")
        ):
            return [f"task {end.id} failed: {end.error_type}: {end.error}"]
    elif end.status == "complete":
        newest = max((run.attempt for run in runs), default=None)
        if end.result != f"{end.id} {newest}" or end.attempt != newest:
            return [
                f"task {end.id}, attempt {end.attempt}, has result {end.result!r}; the newest that ran is {newest}"
            ]
        if not any(run.ended for run in runs if run.attempt == newest):
            return [f"task {end.id} is complete, and its newest attempt has not come to its end"]
    if promise.answer == "cancelled" and end.status != "cancelled":
        return [f"task {end.id} was cancelled, and is {end.status}"]
    return []


def chaos(
    seconds: float, seed: int, directory: Path, tasks: int = 0, service: str = "plain"
) -> Chaos:
    """Have chaos for so long, and until so many tasks have begun, and return what came of it."""
    with open_stage(directory, seed, service, seconds) as stage:
        run = Chaos(stage, seed)
        run.run(seconds, tasks)
    return run


def prove(given: argparse.Namespace) -> Chaos:
    return chaos(given.seconds, given.seed, given.directory, given.tasks, given.kind)


if __name__ == "__main__":
    sys.exit(main(prove, SERVICES, __doc__ or ""))
