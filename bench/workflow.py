"""Workflows: how long `commit` takes, the longest EXEC, and the memory of a task.

`python -m bench.workflow [TASKS]`: a fan-out of so many tasks, 100,000 if left out, and a
chain of a tenth of them, each in a Redis of its own. bin/bench does not run it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import redis

from blueque import Client
from blueque.producer.workflow import Workflow
from blueque.recovery.group_settling import settle_groups_step
from blueque.system.embedded_redis import running_server


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    measure(f"fan-out of {size:,}, then a join", _fan_out, size)
    measure(f"no edges, {size:,}", _flat, size)
    measure(f"chain of {size // 10:,}", _chain, size // 10)


def measure(name: str, fill: Callable[[Workflow, int], None], size: int) -> None:
    """Commit a workflow and have its gate let all go; print what that took."""
    with running_server() as server, redis.Redis.from_url(server.url) as seen:
        client = Client(server.url)
        flow = client.workflow("w")
        fill(flow, size)
        seen.config_set("latency-monitor-threshold", 1)  # ms; SLOWLOG does not hold EXEC
        before, began = _memory(seen), time.perf_counter()
        flow.commit()
        took = time.perf_counter() - began
        longest = {event: most for event, _, _, most in seen.latency_latest()}.get(b"command", 1)
        bytes_each = (_memory(seen) - before) / size
        if fill is _fan_out:
            client.get_queue("w").enqueue("join", after=flow)
        began = time.perf_counter()
        while settle_groups_step(client.connections, time.time()):
            pass
        let_go = time.perf_counter() - began
        print(
            f"{name}: commit {took:.1f} s, {size / took:,.0f} tasks/s; longest EXEC "
            f"{longest} ms; {bytes_each:,.0f} bytes a task; all let go in {let_go:.1f} s"
        )
        client.close()


def _memory(seen: redis.Redis) -> int:
    used: int = seen.info("memory")["used_memory_dataset"]
    return used


def _fan_out(flow: Workflow, size: int) -> None:
    root = flow.add("w", "root")
    for number in range(1, size):
        flow.add("w", number, after=root)


def _flat(flow: Workflow, size: int) -> None:
    for number in range(size):
        flow.add("w", number)


def _chain(flow: Workflow, size: int) -> None:
    before: list[str] = []
    for number in range(size):
        before = [flow.add("w", number, after=before)]


if __name__ == "__main__":
    main()
