"""What each verb that only looks costs Redis, as MONITOR sees it: so many commands, so many round
trips, and no sweep.
"""

from __future__ import annotations

import time

import pytest
from click.testing import CliRunner
from dependent import block
from faults import FaultProxy
from test_document import Monitor
from transactions import protocol

from blueque.cli.main import VERBS, blueque
from blueque.cli.options import Invocation
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.schedule import Occurrence
from blueque.protocol.ends import End

NODE = "gpu-1.example.com_4021"
MANY = 250
QUEUES = ("audio", "video")
RUNNING = "a0d10000-0000-4000-8000-000000000000"  # a task of audio
# Commands and round trips with two queues, one listener and two running tasks each, and MANY of
# every other status.
BUDGETS = {
    "status": (345, 8),
    "ls": (250, 7),  # the last counts what is not in the list; two read parameters
    "ls --state held": (3100, 62),  # compares each blocked task with those for which it waits
    "ls --state pending": (370, 10),  # and why each of them waits
    "ls --state failed --queue audio": (165, 5),
    "ls --state complete --queue audio": (165, 5),
    "ls --state scheduled --queue audio": (165, 5),
    "ls --state blocked --queue audio": (165, 5),
    f"show {RUNNING}": (15, 3),
    "show a0d1": (45, 6),
    "show audio-after-0": (20, 5),
    f"why {RUNNING}": (42, 6),
    "why audio-after-0": (42, 6),
    "graph audio-after-0": (30, 6),
    "why audio-pend-7": (42, 6),
    f"logs {RUNNING}": (6, 3),
    "tags": (6, 5),
    f"history {RUNNING}": (6, 3),
    "timeline": (190, 12),
    "host ls": (14, 4),
    "host show gpu-1": (26, 7),
    "queue ls": (340, 6),
    "stats --since 90d": (182, 3),
    "stats audio": (9, 3),
    "failures": (530, 7),
    "metrics --once": (350, 9),
    "schedule ls --limit 20": (120, 8),
    "schedule show hourly": (12, 5),
    "schedule history hourly": (10, 4),
    "group ls": (10, 5),
    "group show night": (10, 5),
}
# What change something, run on, need files, or have nothing to say here; doctor alone may sweep.
WITHOUT = {
    "acl",
    "dev",
    "web",
    "enqueue",
    "feed",
    "cancel",
    "interrupt",
    "requeue",
    "move",
    "task",
    "archive",
    "progress",
    "note",
    "doctor",
    "delete",
    "run",
    "wait",
    "config",
    "stack",
    "completion",
    "help",
    "init",
    "export",
}
RANGES = {"LRANGE", "ZRANGE", "ZREVRANGE"}
# As many as people have named; what is trimmed whenever it is added to.
BOUNDED = (
    keys.QUEUES,
    keys.GROUPS,
    keys.SCHEDULES,
    "blueque_runs_",
    "blueque_feeds_",
    "blueque_history_",
    "blueque_recent_",
)
WHOLE = {"KEYS", "SCAN", "SSCAN", "HSCAN", "ZSCAN", "SORT"}


@pytest.fixture
def looks(server, redis):
    """Run the program and return what it has sent: its commands, and the number of its writes."""
    proxy, monitor = FaultProxy(server.url), Monitor(server)

    def looks(line):
        monitor.commands_until_now(redis)
        before = proxy.writes
        result = CliRunner().invoke(
            blueque, line.split(), obj=Invocation(url=proxy.url), catch_exceptions=False
        )
        assert result.exit_code == 0, result.output
        return monitor.commands_until_now(redis), proxy.writes - before

    yield looks
    monitor.close()
    proxy.close()


@pytest.fixture
def filled(redis, client):
    """Two queues with a little that runs and much of everything else."""
    now = time.time()
    client.set_schedule("hourly", queue="audio", every="1h")
    missed = Occurrence("missed", 1, 2.0, why="window")
    redis.read(("LPUSH", keys.occurrences("hourly"), missed.text()))
    protocol.open_group(redis, "night", 60, now)
    for queue in QUEUES:
        protocol.register(redis, queue, NODE, "i", {"beat_every": 10, "version": "2.0.0"}, now)
        for n in range(2):
            is_first = (n, queue) == (0, "audio")
            take(redis, queue, RUNNING if is_first else f"run-{n}-{queue}", now)
        for n in range(MANY):
            take(redis, queue, f"{queue}-good-{n}", now)
            protocol.end(
                redis,
                AttemptRef(queue, f"{queue}-good-{n}", "token", NODE),
                End.complete("1", {"result_encoding": "json"}),
                now,
            )
            take(redis, queue, f"{queue}-bad-{n}", now)
            protocol.end(
                redis, AttemptRef(queue, f"{queue}-bad-{n}", "token", NODE), End.fail("x"), now
            )
            protocol.schedule(
                redis,
                queue,
                f"{queue}-later-{n}",
                "1",
                now + 3600 + n,
                now,
                {"parameters_encoding": "json"},
            )
        for n in range(MANY):
            protocol.enqueue(
                redis, queue, f"{queue}-pend-{n}", "1", now, {"parameters_encoding": "json"}
            )
            wanted = {f"{queue}-pend-{n}": "ok", f"{queue}-bad-{n}": "any"}
            block(redis, f"{queue}-after-{n}", wanted, queue, now)


def take(redis, queue, task, now):
    protocol.enqueue(redis, queue, task, "1", now, {"parameters_encoding": "json"})
    protocol.pop(redis, queue, NODE, "i")
    protocol.reserve(redis, AttemptRef(queue, task, "token", NODE), "i", now)
    protocol.start(redis, AttemptRef(queue, task, "token", NODE), 77, now)


@pytest.mark.usefixtures("filled")
def test_each_verb_that_looks_stays_within_its_budget_and_reads_nothing_without_a_bound(looks):
    for line, budget in BUDGETS.items():
        commands, writes = looks(line)

        assert len(commands) <= budget[0] and writes <= budget[1], (
            f"{line}: {len(commands)} commands in {writes}"
        )
        words = {command[0].upper() for command in commands}
        assert not words & WHOLE, line
        whole = [
            command
            for command in commands
            if command[0].upper() in RANGES and command[2:4] == ["0", "-1"]
        ]
        assert [command for command in whole if not command[1].startswith(BOUNDED)] == [], line


def test_every_verb_has_a_budget_or_a_reason_to_have_none():
    assert {line.split()[0] for line in BUDGETS} | WITHOUT == set(VERBS)
