"""Writes that are killed at random while tasks of theirs run and are deleted: each row is a task once.

`python -m spark.random_kills` in tests/ is a round for each way of writing and each kind of session.
`python -m spark.random_kills MASTER URL WAY` is the driver of one.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from contextlib import suppress
from typing import IO, Any

import psutil
import pyspark
import redis as redis_py
from running import until

import blueque.spark as bs
from blueque import Client
from blueque.model import keys
from blueque.model.units import Timing
from blueque.system.embedded_redis import running_server
from spark import killed as killing
from spark import mishaps
from spark.clusters import CONNECT, HAS_CONNECT, session
from spark.exact import leftovers

ROWS = 20_000  # in eight partitions
KILLS = 4
WAYS: dict[str, dict[str, Any]] = {
    "keyed": {"key": "id", "run": "r"},
    "keys": {"key": "id", "keep": "1d"},
    "staged": {"run": "r"},
}
# An executor has 1024 MiB: with less for a worker there, no driver starts.
MASTERS = ("local[2]", "local-cluster[2,1,1024]", *[CONNECT] * HAS_CONNECT)
PATIENCE = 600.0  # seconds


class Consumer(threading.Thread):
    """Takes tasks, runs them and deletes them, until it is stopped. seen: the parameters of each."""

    def __init__(self, url: str, queue: str) -> None:
        super().__init__(daemon=True)
        self.seen: Counter[str] = Counter()
        self._client, self._queue = Client(url), queue
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        self._client.close()

    def run(self) -> None:
        listener, queue = (
            self._client.get_listener(self._queue),
            self._client.get_queue(self._queue),
        )
        listener.register(Timing())
        while not self._stopping.is_set():
            task = listener.take()
            if task is None:
                self._stopping.wait(0.01)
                continue
            self.seen[str(task.parameters)] += 1
            processor = self._client.get_processor(task)
            processor.start(77)
            processor.complete("done")
            queue.delete_task(self._client.get_task(task.id))
        listener.leave()


def play(url: str, master: str, way: str) -> None:
    """Kill a driver, its Java or a worker of it some times, then let one come to its end."""
    cli = redis_py.Redis.from_url(url, decode_responses=True)
    consumer = Consumer(url, way)
    consumer.start()

    def progress() -> int:
        staged = sum(map(cli.zcard, cli.keys("blueque_staging_*")))
        return consumer.seen.total() + cli.llen(keys.pending(way)) + 1000 * staged

    killed = []
    for _ in range(KILLS):
        driver = start(master, url, way)
        share = progress() + random.randrange(ROWS // 3)
        until(lambda: progress() > share or driver.poll() is not None, PATIENCE)  # noqa: B023
        killed.append(kill_some(driver, master))
        driver.wait(PATIENCE)
    with tempfile.TemporaryFile() as log:
        code = start(master, url, way, log).wait(PATIENCE)
        log.seek(0)
        assert code == 0, log.read()[-3000:].decode()
    assert any(kind != "nothing" for kind in killed), "no driver was there to be killed"
    consumer.stop()
    tasks = cli.lrange(keys.pending(way), 0, -1)
    total = consumer.seen + Counter(cli.hget(keys.task(task), "parameters") for task in tasks)
    assert len(total) == total.total() == ROWS, (len(total), total.total())
    assert leftovers(cli) == []
    print(f"pyspark {pyspark.__version__}, {master}, {way}: {', '.join(killed)} killed, ", end="")
    print(f"{consumer.seen.total()} deleted meanwhile: exact", flush=True)
    cli.flushall()


def start(
    master: str, url: str, way: str, log: IO[bytes] | int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "spark.random_kills", master, url, way]
    return subprocess.Popen(command, stdout=log, stderr=log)


def kill_some(driver: subprocess.Popen[bytes], master: str) -> str:
    """Kill one kind of process of a driver without a word, and say which."""
    if driver.poll() is not None:
        return "nothing"
    kind = random.choice(["driver", "java", "workers"])
    _, *others = mishaps.processes_of(driver.pid)
    if kind == "driver":
        killing.kill(driver.pid)
    for process in others if kind != "driver" else []:
        with suppress(psutil.Error):
            is_java = process.name() == "java" and process.ppid() == driver.pid
            # An executor is a Java below that of the driver.
            if is_java == (kind == "java"):
                process.kill()
    if kind == "java" and master == CONNECT:
        killing.kill(driver.pid)  # it would call the dead server for ten minutes
    return kind


def main() -> None:
    random.seed(seed := random.randrange(10**6))
    print(f"seed {seed}", flush=True)
    with running_server() as server:
        for master in MASTERS:
            for way in WAYS:
                play(server.url, master, way)


def drive(master: str, url: str, way: str) -> None:
    frame = session(master).range(0, ROWS, 1, 8)
    bs.enqueue(frame, way, url=url, params=["id"], **WAYS[way])


if __name__ == "__main__":
    drive(*sys.argv[1:]) if sys.argv[1:] else main()
