"""A Redis with a little of everything, for pages to be looked at: queues, hosts, failures, a paused
queue, a recurring task, a workflow, and a task that runs and prints.
"""

from __future__ import annotations

import time

from transactions import protocol

from blueque import Client
from blueque.model.attempt_ref import AttemptRef
from blueque.model.log_line import Line
from blueque.protocol.ends import End
from blueque.protocol.membership import Heartbeat

HOSTS = {"gpu-1": 2, "gpu-2": 1, "cpu-1": 2}


def fill(client: Client, now: float) -> dict[str, str]:
    """Fill an empty Redis and return the ids of some tasks by what they are."""
    redis = client.connections
    nodes = [f"{host}_{number}" for host, count in HOSTS.items() for number in range(count)]
    for node in nodes:
        for queue in ("render.4k", "ocr.batch"):
            # It beats only once, and the tests of a browser take longer than the usual lease.
            facts = {"beat_every": 10, "lease": 3600, "version": "2.0"}
            protocol.register(redis, queue, node, "i1", facts, now)
            protocol.beat(redis, [Heartbeat(queue, node, "i1", 10)], now)
    for number in range(40):
        _run(
            client,
            nodes[number % 3],
            f"reel-{number}",
            now - 40000 + number * 950,
            600,
            number % 9 == 4,
        )
    running = _begin(client, nodes[0], "aurora", now - 11000)
    protocol.progress(redis, running, "907/1440 frames", now - 1)
    lines = [f"frame {n}/1440  \x1b[32mok\x1b[0m <script>alert({n})</script>" for n in range(30)]
    protocol.log(
        redis, running, 1, [Line(n + 1, now - 2, "stdout", text) for n, text in enumerate(lines)]
    )
    silent = _begin(client, nodes[3], "kelp", now - 4000)
    pending = [
        str(client.get_queue("render.4k").enqueue({"scene": n}, title=f"scene {n}", tags=["night"]))
        for n in range(6)
    ]
    client.get_queue("train.gpu").enqueue({"model": "x"}, resources={"gpu": 4})
    client.get_queue("backup").schedule({"disk": 1}, now + 3600)
    preview = client.get_queue("preview")
    preview.enqueue({"scene": 1})
    preview.pause("ada", "new codec")
    client.set_schedule("nightly", queue="backup", parameters={}, cron="0 3 * * *")
    with client.workflow("night") as workflow:
        first = workflow.add("ocr.batch", {"page": 1}, title="scan")
        both = [workflow.add("ocr.batch", {"page": n}, after=first) for n in (2, 3)]
        workflow.add("render.4k", {"all": True}, after=both, title="bind")
    client.get_queue("ocr.batch").enqueue_many([{"p": 1}], keys=["p1"], group="2026-11-22")
    return {
        "running": running.task,
        "silent": silent.task,
        "pending": pending[0],
        "failed": "reel-4",
    }


def _begin(client: Client, node: str, task: str, at: float) -> AttemptRef:
    redis, attempt = client.connections, AttemptRef("render.4k", task, f"token-{task}", node)
    parameters = f'{{"src": "{task}.mov", "frames": 1440}}'
    protocol.enqueue(
        redis, attempt.queue, task, parameters, at - 9, {"parameters_encoding": "json"}
    )
    protocol.pop(redis, attempt.queue, node, "i1")
    protocol.reserve(redis, attempt, "i1", at)
    protocol.start(redis, attempt, 77, at)
    return attempt


def _run(client: Client, node: str, task: str, at: float, seconds: float, fails: bool) -> None:
    attempt = _begin(client, node, task, at)
    if fails:
        error = "OSError: [Errno 28] No space left on device"
        protocol.end(
            client.connections, attempt, End.fail(error, {"error_type": "OSError"}), at + seconds
        )
    else:
        protocol.end(client.connections, attempt, End.complete('{"frames": 1440}'), at + seconds)


def seeded(url: str) -> dict[str, str]:
    """Fill the Redis at this address."""
    client = Client(url)
    try:
        return fill(client, time.time())
    finally:
        client.close()
