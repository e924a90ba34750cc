"""What every driver does on the producing side, in the interpreter of its peer. The answer is a
line of JSON.

    python drive_PEER.py one COUNT | bulk COUNT | many THREADS COUNT | pickup COUNT SECONDS
    python drive_PEER.py serve one|bulk|pickup

`serve` does the same for each number on its standard input, which it answers with a line; nothing
is left uncounted. A driver has `make()`, which returns a producer with a connection of its own: a
callable that enqueues a text; and, if its peer can do better than a loop, `bulk(count)`. The
address of Redis is in BENCH_URL. Coroutines may take their places.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import random
import sys
import threading
import time
from typing import Any

URL = os.environ.get("BENCH_URL", "")
QUEUE = "bench"
TEXT = "x" * 100
BIG_TEXT = "x" * 1024
WARM_UP = 100  # calls before the clock starts
CALM = 0.05, 0.12  # seconds between two tasks of a pick-up, so that all idle again
FIRST = 2  # tasks of a pick-up that are not counted: the worker starts

Answer = dict[str, Any]


class Clock:
    """Reads the seconds that have passed, and the seconds of processor time of this process."""

    def __init__(self) -> None:
        self._began, self._used = time.perf_counter(), time.process_time()

    def read(self) -> Answer:
        return {
            "seconds": time.perf_counter() - self._began,
            "cpu": time.process_time() - self._used,
        }


def main(name: str) -> None:
    """Do what the arguments say with the driver of this name, imported as its workers import it."""
    peer = importlib.import_module(name)
    command, *numbers = sys.argv[1:]
    if command == "serve":
        serve(peer, *numbers)
        return
    is_async = inspect.iscoroutinefunction(peer.make)
    commands = {
        "one": one_async if is_async else one,
        "bulk": bulk,
        "many": many_async if is_async else many,
        "pickup": pickup,
    }
    print(json.dumps(commands[command](peer, *(float(number) for number in numbers))), flush=True)


def one(peer: Any, count: float) -> Answer:
    """Enqueue one after the other."""
    enqueue = peer.make()
    for _ in range(WARM_UP):
        enqueue(TEXT)
    return {**timed(enqueue, int(count)), "tasks": int(count) + WARM_UP}


def timed(enqueue: Any, count: int) -> Answer:
    clock = Clock()
    for _ in range(count):
        enqueue(TEXT)
    return {**clock.read(), "tasks": count}


def one_async(peer: Any, count: float) -> Answer:
    async def run() -> Answer:
        enqueue = await peer.make()
        for _ in range(WARM_UP):
            await enqueue(TEXT)
        clock = Clock()
        for _ in range(int(count)):
            await enqueue(TEXT)
        return {**clock.read(), "tasks": int(count) + WARM_UP}

    return asyncio.run(run())


def bulk(peer: Any, count: float) -> Answer:
    """Enqueue so many as fast as the peer can."""
    if hasattr(peer, "bulk"):
        answer: Answer = peer.bulk(int(count))
        return answer
    return one(peer, count)


def many(peer: Any, threads: float, count: float) -> Answer:
    """Enqueue so many from each of so many threads, once somebody says so on our standard input."""
    latencies: list[float] = []
    gate = threading.Barrier(int(threads) + 1)

    def produce() -> None:
        enqueue = peer.make()
        enqueue(BIG_TEXT)
        own = []
        gate.wait()
        for _ in range(int(count)):
            called = time.perf_counter()
            enqueue(BIG_TEXT)
            own.append(time.perf_counter() - called)
        latencies.extend(own)

    producers = [threading.Thread(target=produce, daemon=True) for _ in range(int(threads))]
    for producer in producers:
        producer.start()
    _wait_for_go()
    gate.wait()
    began = time.time()
    for producer in producers:
        producer.join()
    return {"began": began, "ended": time.time(), "latencies": latencies}


def many_async(peer: Any, threads: float, count: float) -> Answer:
    latencies: list[float] = []

    async def produce(enqueue: Any) -> None:
        for _ in range(int(count)):
            called = time.perf_counter()
            await enqueue(BIG_TEXT)
            latencies.append(time.perf_counter() - called)

    async def run() -> Answer:
        producers = [await peer.make() for _ in range(int(threads))]
        for enqueue in producers:
            await enqueue(BIG_TEXT)
        _wait_for_go()
        began = time.time()
        await asyncio.gather(*(produce(enqueue) for enqueue in producers))
        return {"began": began, "ended": time.time(), "latencies": latencies}

    return asyncio.run(run())


def pickup(peer: Any, count: float, seconds: float) -> Answer:
    """Enqueue one task at a time for an idle worker; return the delays from the call to the
    handler's first line.
    """
    delays: list[float] = []
    ledger = Ledger()
    loop = asyncio.new_event_loop()
    enqueue = (
        loop.run_until_complete(peer.make())
        if inspect.iscoroutinefunction(peer.make)
        else peer.make()
    )
    deadline = float("inf")
    while len(delays) < FIRST + count and time.monotonic() < deadline:
        if len(delays) == FIRST:
            deadline = time.monotonic() + seconds
        time.sleep(random.uniform(*getattr(peer, "CALM", CALM)))
        delays.append(delay(enqueue, loop, ledger))
    return {"delays": delays[FIRST:]}


def delay(enqueue: Any, loop: asyncio.AbstractEventLoop, ledger: Ledger) -> float:
    """Enqueue a task, wait until it has run, and return the seconds from the call to the handler's
    first line.
    """
    before = ledger.count()
    called = time.time()
    outcome = enqueue(TEXT)
    if inspect.isawaitable(outcome):
        loop.run_until_complete(outcome)
    while ledger.count() == before:
        if time.time() - called > 30:
            raise SystemExit("a task was not picked up within 30 s")
        time.sleep(0.001)
    return ledger.last() - called


def serve(peer: Any, command: str) -> None:
    """Do a block for each number that is asked for, and answer each with a line."""
    enqueue, ledger, loop = peer.make(), Ledger(), asyncio.new_event_loop()

    def pick_up(count: int) -> Answer:
        delays = []
        for _ in range(count):
            time.sleep(random.uniform(*CALM))
            delays.append(delay(enqueue, loop, ledger))
        return {"delays": delays, "tasks": count}

    blocks = {"one": lambda count: timed(enqueue, count), "bulk": peer.bulk, "pickup": pick_up}
    for line in sys.stdin:
        print(json.dumps(blocks[command](int(line))), flush=True)


class Ledger:
    """The file in which each task that has run leaves a line of 18 bytes."""

    def __init__(self) -> None:
        self._file = os.open(os.environ["BENCH_LEDGER"], os.O_RDONLY | os.O_CREAT, 0o600)

    def count(self) -> int:
        return os.fstat(self._file).st_size // 18

    def last(self) -> float:
        return float(os.pread(self._file, 18, (self.count() - 1) * 18))


def _wait_for_go() -> None:
    print("ready", flush=True)
    sys.stdin.readline()
