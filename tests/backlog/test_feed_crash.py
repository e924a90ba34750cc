"""A feeder that dies at any moment, for real and at each of its commands; and that a naive one
fails the same tests.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from explore import explore
from restoring import restoring
from running import until
from stepper import Actor, Bounds, Fault, Stepper, without_pauses
from transactions import protocol

from blueque import Taken
from blueque.backlog import chunks
from blueque.backlog import job as feeding
from blueque.backlog.files import Backlog
from blueque.backlog.job import Feeding, Job
from blueque.backlog.rows import Shape
from blueque.connection.address import Address
from blueque.connection.plain import SocketConnection
from blueque.connection.redis import Redis
from blueque.model import keys
from blueque.model.ids import random_ids
from blueque.protocol.bulk import Batch, NewTasks
from blueque.queries import feeds
from blueque.system import process

ROWS = 24_000

OURS = """
    import blueque
    blueque.feed({source!r}, "video", name="f", window={window}, url={url!r})
"""
# What everybody writes first: enqueue, then save the cursor. At first it takes its time in between,
# or it would have to be killed many times until one kill comes there.
NAIVE = """
    import itertools, json, redis, time, blueque
    queue, cursor = blueque.Client({url!r}).get_queue("video"), redis.Redis.from_url({url!r})
    done = int(cursor.get("cursor") or 0)
    rows = itertools.islice(map(json.loads, open({source!r})), done, None)
    while some := list(itertools.islice(rows, 1000)):
        queue.enqueue_many(some)
        done += len(some)
        if done < 5000:
            time.sleep(0.2)
        cursor.set("cursor", done)
"""


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "backlog.jsonl"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(ROWS)))
    return str(path)


def kill_in_flight(programs, cli, text, source, least, window=ROWS):
    """Start a feeder and kill it when so many tasks are in line; return how many there are then.

    window: so many it puts in line at most, so that it is in flight still when this test is slow.
    """
    others = cli.info("clients")["connected_clients"]
    program = programs.script(text.format(source=source, url=programs.url, window=window))
    until(
        lambda: cli.llen(keys.pending("video")) >= least or not program.is_running,
        what=f"{least} tasks",
    )
    program.send(signal.SIGKILL)
    assert program.wait() == -signal.SIGKILL, program.log
    # Redis executes what it had sent before it closes its connection.
    until(lambda: cli.info("clients")["connected_clients"] <= others, what="its last command")
    return cli.llen(keys.pending("video"))


def numbers(cli):
    ids = cli.lrange(keys.pending("video"), 0, -1)[::-1]
    with cli.pipeline(transaction=False) as pipeline:
        for task in ids:
            pipeline.hget(keys.task(task), "parameters")
        return [json.loads(text)["n"] for text in pipeline.execute()]


def test_killed_three_times_in_flight_each_row_has_become_a_task_once_and_in_order(
    programs, cli, source
):
    there = 0
    for _ in range(3):
        there = kill_in_flight(programs, cli, OURS, source, there + 3000, there + 7000)
        record = cli.hgetall(keys.feed("video", "f"))
        assert 0 < there < ROWS and record["state"] == "open" and "token" in record  # in flight
        assert int(record["rows"]) == there
    last = programs.script(OURS.format(source=source, url=programs.url, window=2 * ROWS))

    assert last.wait(60) == 0, last.log
    assert numbers(cli) == list(range(ROWS))


def test_a_naive_feeder_fails_the_same_test(programs, cli, source):
    there = 0
    for _ in range(5):  # the first of these, mostly
        there = kill_in_flight(programs, cli, NAIVE, source, there + 2000)
        if there > int(cli.get("cursor") or 0):
            break
    last = programs.script(NAIVE.format(source=source, url=programs.url))

    assert last.wait(60) == 0, last.log
    assert len(numbers(cli)) > ROWS
    assert sorted(set(numbers(cli))) == list(range(ROWS))


# At each command, and in every order of two feeders

FEW = 5
SECONDS = 60.0 if os.environ.get("BLUEQUE_SOAK") else 1.5


@pytest.fixture
def ground(url, tmp_path, monkeypatch) -> Iterator[Ground]:
    """Two feeders, of which the second takes the first for dead at once, rightly or not. Chunks are
    of two rows.
    """
    path = tmp_path / "few.jsonl"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(FEW)))
    monkeypatch.setattr(feeding, "CHUNK", 2)
    monkeypatch.setattr(feeding, "pause", lambda failures: 0.0)
    host = SimpleNamespace(
        node_id=lambda: "host_1",
        identity=lambda pid: {},
        pid_of=process.pid_of,
        is_gone=lambda pid, record: True,
    )
    for module in (feeding, feeds):
        monkeypatch.setattr(module, "process", host)
    # else a slow machine has it look at the lines again
    still = SimpleNamespace(time=lambda: 1.0, monotonic=lambda: 1.0)
    for module in (feeding, chunks):
        monkeypatch.setattr(module, "time", still)
    log = logging.getLogger("blueque")
    monkeypatch.setattr(log, "disabled", True)
    ground = Ground(url, str(path))
    with without_pauses():
        yield ground
    ground.redis.close()


class Ground:
    """Where two feeders run on one backlog, one command at a time."""

    def __init__(self, url, path):
        self.address, self.path = Address(url), path
        self.redis = Redis(lambda: SocketConnection(self.address), 5.0)

    def explore(self, program, bounds, seconds=float("inf"), actors=None):
        """actors: what makes them; default two that run the program, with all faults."""

        def two():
            return [Actor(name, program, sorted(Fault)) for name in ("first", "second")]

        def run(prefix):
            self.redis.read(("FLUSHALL",))
            stepper = Stepper(
                lambda: SocketConnection(self.address),
                (actors or two)(),
                Bounds(*bounds),
                lambda: None,
                prefix,
            )
            stepper.run()
            stepper.wrong = stepper.wrong or self.end(program, stepper)
            return stepper

        return explore(run, seconds=seconds, chance=random.Random())

    def end(self, program, stepper):
        """Judge what they say, have another feeder finish what they left, deliver what was late, and
        judge again.
        """
        (said,) = self.redis.read(("HMGET", keys.feed("video", "f"), "state", "rows"))
        if said[0] == "finished" and said[1] != str(FEW):
            return f"it is said to be finished with {said[1]} rows"
        program(self.redis)
        if stepper.deliver_late():
            program(self.redis)
        (ids,) = self.redis.read(("LRANGE", keys.pending("video"), 0, -1))
        texts = self.redis.read(*[("HGET", keys.task(task), "parameters") for task in ids[::-1]])
        found = [json.loads(text)["n"] for text in texts]
        (record,) = self.redis.read(
            ("HMGET", keys.feed("video", "f"), "state", "rows", "tasks", "token")
        )
        if program == self.ours and record != ["finished", str(FEW), str(FEW), None]:
            return f"the record says {record}"
        return None if found == list(range(FEW)) else f"in line are {found}"

    def ours(self, redis):
        job = Job("video", "f", Backlog(self.path), Shape(), {}, 100, False, threading.Event())
        try:
            assert Feeding(redis, job).run()
        except Taken:  # as it must be for one of them
            pass

    def failover(self, redis):
        """A replica that takes over and has not seen the last changes. The two writes say where
        the explorer may have it look and take over.
        """
        redis.read(("SET", "seen", 1))
        before = restoring(self.redis)
        redis.read(("SET", "took over", 1))
        self.redis.read(*before)

    def naive(self, redis):
        """Enqueue, then save the cursor; each of it as carefully as can be."""
        patient = Redis(redis.connect, 1e6)
        (done,) = patient.read(("GET", "cursor"))
        for first in range(int(done or 0), FEW, 2):
            some = range(first, min(first + 2, FEW))
            tasks = NewTasks(random_ids(len(some)), [(b'{"n":%d}' % n, True) for n in some])
            protocol.enqueue_many(patient, Batch("video", tasks, 1.0, {}))
            patient.read(("SET", "cursor", some[-1] + 1))


@pytest.mark.parametrize("bounds", [(0, 1), (1, 0)])
def test_at_each_command_a_feeder_may_die_or_lose_its_answer_or_be_replaced(ground, bounds):
    found = ground.explore(ground.ours, bounds)

    assert found.wrong is None, str(found)
    assert found.is_exhausted and found.schedules > 15


@pytest.mark.parametrize("bounds", [(1, 1), (0, 2), (2, 1)])
def test_two_such_things_may_happen_in_a_row(ground, bounds):
    """Another part of the space each time; bin/soak takes long enough to exhaust the first two."""
    found = ground.explore(ground.ours, bounds, seconds=SECONDS)

    assert found.wrong is None, str(found)


def test_redis_may_lose_its_last_changes_between_any_two_commands(ground):
    """Also those between the last rows and the end: a feed that lacks rows is not finished."""

    def actors():
        return [Actor("feeder", ground.ours, []), Actor("failover", ground.failover, [])]

    found = ground.explore(ground.ours, (3, 0), actors=actors)

    assert found.wrong is None, str(found)
    assert found.is_exhausted and found.schedules > 15


@pytest.mark.parametrize("bounds", [(0, 1), (1, 0)])
def test_a_naive_feeder_is_found_out_by_the_explorer(ground, bounds):
    assert "in line are" in (ground.explore(ground.naive, bounds).wrong or "")
