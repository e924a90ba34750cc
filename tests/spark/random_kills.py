"""Writes that are killed at random while tasks of theirs run and are deleted: each row is a task once.

`python -m spark.random_kills` in tests/ is a round for each kind of session, in which all ways of writing
run at once. `python -m spark.random_kills MASTER URL` is the driver of one.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import IO, Any

import psutil
import pyspark
from running import until

import blueque.spark as bs
from blueque import Client
from blueque.model import keys
from blueque.model.units import Timing
from blueque.system.embedded_redis import running_server
from spark import killed as killing
from spark import mishaps
from spark.clusters import CONNECT, session
from spark.exact import leftovers, tally

ROWS = 20_000  # in eight partitions
KILLS = 3
WAYS: dict[str, dict[str, Any]] = {
    "keyed": {"key": "id", "group": "g"},
    "keys": {"key": "id", "keep": "1d"},
}
# An executor has 1024 MiB: with less for a worker there, no driver starts.
MASTERS = ("local[6]", "local-cluster[2,3,1024]", CONNECT)
PATIENCE = 600.0  # seconds


class Consumer(threading.Thread):
    """Takes tasks, runs them and deletes them, until it is stopped. seen: the parameters of each."""

    def __init__(self, url: str, queue: str) -> None:
        super().__init__(daemon=True)
        self.seen: Counter[str] = Counter()
        self._client, self._queue = Client(url, patience=mishaps.PATIENCE), queue
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


def play(url: str, master: str) -> None:
    """Kill a driver, its Java or a worker of it some times, then let one come to its end."""
    cli = mishaps.patient(url)
    consumers = {way: Consumer(url, way) for way in WAYS}
    for consumer in consumers.values():
        consumer.start()

    def progress() -> int:
        ran = sum(consumer.seen.total() for consumer in consumers.values())
        return ran + sum(cli.llen(keys.pending(way)) for way in WAYS)

    killed = []
    for _ in range(KILLS):
        driver = start(master, url)
        share = progress() + random.randrange(ROWS)
        until(lambda: progress() > share or driver.poll() is not None, PATIENCE)  # noqa: B023
        killed.append(kill_some(driver, master))
        driver.wait(PATIENCE)
    with tempfile.TemporaryFile() as log:
        code = start(master, url, log).wait(PATIENCE)
        log.seek(0)
        assert code == 0, log.read()[-3000:].decode()
    print(f"pyspark {pyspark.__version__}, {master}: {', '.join(killed)} killed", flush=True)
    assert any(kind != "nothing" for kind in killed), "no driver was there to be killed"
    for way, consumer in consumers.items():
        consumer.stop()
        tasks = cli.lrange(keys.pending(way), 0, -1)
        total = consumer.seen + Counter(cli.hget(keys.task(task), "parameters") for task in tasks)
        seen = consumer.seen.total()
        print(f"  {way}: {seen} deleted meanwhile; {tally(total, ROWS)}", flush=True)
        assert len(total) == total.total() == ROWS
    assert leftovers(cli) == []
    cli.flushall()


def start(
    master: str, url: str, log: IO[bytes] | int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "spark.random_kills", master, url]
    return subprocess.Popen(command, stdout=log, stderr=log)


def kill_some(driver: subprocess.Popen[bytes], master: str) -> str:
    """Kill one kind of process of a driver without a word, and say which."""
    if driver.poll() is not None:
        return "nothing"
    kind = random.choice(["driver", "java", "workers"])
    _, *others = mishaps.processes_of(driver.pid)
    if kind == "driver":
        killing.kill(driver.pid)
    else:
        # Workers, and executors, which are Java too, are below the Java of the driver.
        for process in [one for one in others if is_below_java(one) == (kind == "workers")]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
    if kind == "java" and master == CONNECT:
        killing.kill(driver.pid)  # it would call the dead server for ten minutes
    return kind


def is_below_java(process: psutil.Process) -> bool:
    try:
        return any(parent.name() == "java" for parent in process.parents())
    except psutil.NoSuchProcess:
        return False


def main() -> None:
    random.seed(seed := random.randrange(10**6))
    print(f"seed {seed}", flush=True)
    with running_server() as server:
        for master in MASTERS:
            play(server.url, master)


def drive(master: str, url: str) -> None:
    frame = session(master).range(0, ROWS, 1, 8)
    with ThreadPoolExecutor() as pool:
        done = [
            pool.submit(bs.enqueue, frame, way, url=url, params=["id"], **options)
            for way, options in WAYS.items()
        ]
        for one in done:
            one.result()


if __name__ == "__main__":
    drive(*sys.argv[1:]) if sys.argv[1:] else main()
