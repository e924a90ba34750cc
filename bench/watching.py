"""Cases of the page: what it takes to make one, and what viewers cost while they look."""

from __future__ import annotations

import contextlib
import functools
import gzip
import http.client
import json
import random
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator

from bench import cpu, looking
from bench.rounds import percentile
from bench.setting import Bench, Outcome, Values, open_stage
from bench.stage import RunFailed, Stage
from bench.venvs import ROOT, clean_environment
from blueque.connection.address import Address
from blueque.connection.plain import SocketConnection
from blueque.connection.redis import Command
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.log_line import Line
from blueque.protocol import logs_and_checkpoints, membership
from blueque.protocol.membership import Heartbeat
from blueque.web.access import PARTS

TASKS, QUEUES, VIEWERS = 1_000_000, 1000, 50
HISTORIES, EVENTS = 20, 10_000  # queues whose events are drawn, and how many each has of a day
LINES = 1000  # of the log
LOOKS = 20
WATCHED = 60.0  # seconds that viewers look: a dozen looks or more
PATIENCE = 120.0  # seconds for an answer
DAY = 86400.0
PAGES = {
    "overview": "/",
    "task": "/tasks/running-0",
    "list": "/tasks?state=pending&limit=100",
    "log": "/tasks/running-0/log",
    "timeline": "/nodes?span=24h",
}


class Server:
    """The page as a program of its own. port: where it listens."""

    def __init__(self, stage: Stage) -> None:
        self.program = subprocess.Popen(
            [sys.executable, "-m", "bench.page", stage.url],
            cwd=ROOT, env=clean_environment(), stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self.program.stdout is not None
        self.port = int(self.program.stdout.readline() or 0)
        self._client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def get(self, path: str) -> tuple[float, str]:
        """Return after how many milliseconds the first byte came, and the whole answer."""
        try:
            took, answer = self._ask(path)
        except ConnectionError:  # it was idle for too long
            self._client.close()
            took, answer = self._ask(path)
        except TimeoutError as error:
            self._client.close()
            raise RunFailed(f"{path}: no answer in {PATIENCE:.0f} s") from error
        body = answer.read()
        if answer.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        if answer.status != 200:
            raise RunFailed(f"{path}: {answer.status}")
        return took, body.decode()

    def _ask(self, path: str) -> tuple[float, http.client.HTTPResponse]:
        began = time.perf_counter()
        self._client.request("GET", path)
        answer = self._client.getresponse()
        return 1000 * (time.perf_counter() - began), answer

    def forget(self) -> int:
        """Have it forget what it knows; return the round trips since the last time."""
        return int(self.get("/bench")[1])

    def close(self) -> None:
        self._client.close()
        self.program.terminate()
        self.program.communicate()


def pages(bench: Bench) -> Outcome:
    """Each page when nobody has looked for a while, when somebody has just looked, and what a bare
    read of the same takes.
    """
    outcome = Outcome()
    with open_stage() as stage, contextlib.closing(Server(stage)) as server:
        fill(stage, bench.scaled(QUEUES), bench.scaled(TASKS), bench.scaled(EVENTS))
        looks = bench.scaled(LOOKS, 3)
        bench.in_turn(
            outcome,
            {
                row: functools.partial(_page, stage, server, path, looks)
                for row, path in PAGES.items()
            },
        )
    return outcome


def viewers(bench: Bench) -> Outcome:
    """What viewers of the overview cost Redis and the server, while a task changes each second."""
    outcome = Outcome()
    with open_stage() as stage, contextlib.closing(Server(stage)) as server:
        fill(stage, bench.scaled(QUEUES), bench.scaled(TASKS // 10), 20)
        seconds = WATCHED * min(bench.scale, 1.0) + 1.0
        counts = {"none": 0, "one": 1, "many": VIEWERS, "left": 0}
        bench.in_turn(
            outcome,
            {
                row: functools.partial(_watch, stage, server, count, seconds)
                for row, count in counts.items()
            },
        )
    return outcome


def _page(stage: Stage, server: Server, path: str, looks: int) -> Values:
    cold, warm, trips = [], [], []
    used = [cpu.of_process(server.program.pid)]
    for _ in range(looks):
        server.forget()
        cold.append(server.get(path)[0])
        trips.append(float(server.forget()))
    used.append(cpu.of_process(server.program.pid))
    _, html = server.get(path)
    used.append(cpu.of_process(server.program.pid))
    for _ in range(looks):
        warm.append(server.get(path)[0])
    used.append(cpu.of_process(server.program.pid))
    commands = _commands_of(stage, server, path)
    raw = []
    for _ in range(looks):
        began = time.perf_counter()
        stage.redis.read(*commands)
        raw.append(1000 * (time.perf_counter() - began))
    files = re.findall(r'(?:href|src)="(/static/[^"]+)"', html)
    size = sum(len(gzip.compress(server.get(file)[1].encode(), 6)) for file in files)
    return {
        "cold": percentile(cold, 50),
        "cold95": percentile(cold, 95),
        "warm": percentile(warm, 50),
        "warm95": percentile(warm, 95),
        "raw": percentile(raw, 50),
        "cpu": 1000 * (used[1] - used[0]) / looks,
        "cpuwarm": 1000 * (used[3] - used[2]) / looks,
        "commands": float(len(commands)),
        "trips": max(trips),
        "bytes": len(gzip.compress(html.encode(), 6)) / 1000,
        "all": (len(gzip.compress(html.encode(), 6)) + size) / 1000,
        "requests": 1.0 + len(files),
    }


def _commands_of(stage: Stage, server: Server, path: str) -> list[Command]:
    """Return the commands that a cold page sends."""
    monitor = SocketConnection(Address(stage.url))
    monitor.exchange([("MONITOR",)])
    server.forget()
    server.get(path)
    stage.redis.read(("ECHO", "end"))
    commands: list[Command] = []
    while True:
        line = str(monitor.receive(1)[0]).partition("] ")[2]
        words = shlex.split(line)
        if words == ["ECHO", "end"]:
            monitor.close()
            return commands
        if words[0] not in ("AUTH", "SELECT", "HELLO", "CLIENT", "PING"):
            commands.append(words)


def _watch(stage: Stage, server: Server, count: int, seconds: float) -> Values:
    """Have so many viewers look for a while; return commands per second, and shares of a core."""
    own = 1  # of INFO, which counts commands
    before = stage.commands(), cpu.of_process(server.program.pid), stage.cpu_seconds()
    began, received = time.monotonic(), 0
    looking = [_Viewer(server.port) for _ in range(count)]
    while (took := time.monotonic() - began) < seconds:
        progress = ("progress", f"{int(took)}/1440 frames", "progress_at", time.time())
        stage.redis.read(("HSET", keys.task("running-0"), *progress))
        own += 1
        received += sum(viewer.ask() for viewer in looking)
        time.sleep(max(began + took + 1.0 - time.monotonic(), 0.0))
    commands = stage.commands() - before[0] - own
    values = {
        "commands": commands / took,
        "server": 100 * (cpu.of_process(server.program.pid) - before[1]) / took,
        "redis": 100 * (stage.cpu_seconds() - before[2]) / took,
        "received": received / took / 1000,
    }
    for viewer in looking:
        viewer.close()
    return values


class _Viewer:
    """An open overview, which asks for what has changed."""

    def __init__(self, port: int) -> None:
        self._client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self._headers = {PARTS: "", "Accept-Encoding": "gzip"}

    def ask(self) -> int:
        """Ask once, and return the number of bytes of the answer."""
        self._client.request("GET", "/", headers=self._headers)
        answer = self._client.getresponse()
        if answer.status not in (200, 304):
            raise RunFailed(f"the page answers {answer.status}")
        if tag := answer.getheader("ETag"):
            self._headers["If-None-Match"] = tag
        return len(answer.read())

    def close(self) -> None:
        self._client.close()


def fill(stage: Stage, queues: int, tasks: int, events: int) -> None:
    """Put tasks into each queue, most of them complete, one that runs, and a listener; into some
    queues the events of a day; and print a log.
    """
    now = time.time()
    names = [f"queue.{number:04}" for number in range(queues)]
    for number, queue in enumerate(names):
        node = f"host-{number % 100:02}_{number + 1}"
        looking.register(stage, queue, node, now)
        membership.beat(stage.redis, [Heartbeat(queue, node, "i", 10)], now)
        looking.send_all(stage, looking.tasks(queue, node, max(tasks // queues, 1), now, 0))
        attempt = AttemptRef(queue, f"running-{number}", "t", node)
        looking.send_all(stage, _running(attempt, now))
    for queue in names[:HISTORIES]:
        looking.send_all(stage, _events(queue, events, now))
    lines = [
        Line(n + 1, now, "stdout", f"frame {n} of 1440: ok {n * 7919:x}") for n in range(LINES)
    ]
    first = AttemptRef(names[0], "running-0", "t", "host-00_1")
    logs_and_checkpoints.log(stage.redis, first, 1, lines)


def _running(attempt: AttemptRef, now: float) -> Iterator[Command]:
    fields = {
        "status": "started", "queue": attempt.queue, "node": attempt.node, "pid": 77, "attempt": 1,
        "token": attempt.token, "created": now - 9000, "started": now - 7200, "updated": now - 7200,
        "parameters": '{"input": "a.mov"}', "progress": "41/100 epochs", "progress_at": now,
    }  # fmt: skip
    yield ("HSET", keys.task(attempt.task), *(word for pair in fields.items() for word in pair))
    yield ("SADD", keys.started(attempt.queue), keys.started_member(attempt.node, 77, attempt.task))
    yield ("LPUSH", keys.reserved(attempt.queue, attempt.node), attempt.task)


def _events(queue: str, count: int, now: float) -> Iterator[Command]:
    """Yield the commands that write the events of runs, spread over a day."""
    drawn, step = random.Random(queue), DAY / max(count // 2, 1)
    for number in range(count // 2):
        at = now - DAY + number * step
        told = {"attempt": 1, "by": f"host-{number % 100:02}_{number % 100 + 1}"}
        task = f"{queue}-{number}"
        took = drawn.uniform(0.1, 0.9) * step
        for event, when in (("started", at), ("complete", at + took)):
            text = json.dumps({"event": event, "at": when, **told})
            place = f"{int(when * 1000)}-{number}"
            yield ("XADD", keys.events(queue), place, "task", task, "told", text)
