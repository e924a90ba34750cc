"""A queue that nobody uses any more: forget_queue."""

from __future__ import annotations

from typing import Any

from blueque.connection.redis import Command, Look, Redis
from blueque.model import keys
from blueque.model.encoding import day_of
from blueque.model.lines import needs_of
from blueque.protocol.transaction import Answer, Change, transact

DAY = 86400.0


def forget_queue(redis: Redis, queue: str, now: float) -> dict[str, int]:
    """Remove all that there is of a queue without tasks, listeners, runs and feeds.

    Returns how many of each there are; if there are any, it stays as it is.
    """
    runs, feeds = redis.read(
        ("ZRANGE", keys.runs(queue), 0, -1), ("ZRANGE", keys.feeds(queue), 0, -1)
    )
    # Their records expire, their names stay until somebody takes them off.
    parts = [key for run in runs for key in (keys.run(queue, run), keys.staging(queue, run))]
    parts += [keys.feed(queue, feed) for feed in feeds]

    def decide(*replies: Any) -> Answer | Change:
        *counts, runs_now, feeds_now, lines = replies[: len(reads)]
        exist = replies[len(reads) :]
        there = dict(zip(kinds, counts, strict=True))
        of_runs = [any(exist[place : place + 2]) for place in range(0, 2 * len(runs), 2)]
        there["runs"] = sum(of_runs) + len({*runs_now} - {*runs})
        there["feeds"] = sum(exist[2 * len(runs) :]) + len({*feeds_now} - {*feeds})
        found = {kind: number for kind, number in there.items() if number}
        return Answer(found) if found else Change(_removal(redis, queue, lines, now), {})

    kinds = {
        "tasks": ("ZCARD", keys.tasks(queue)),
        "pending": ("LLEN", keys.pending(queue)),
        "scheduled": ("ZCARD", keys.scheduled(queue)),
        "started": ("SCARD", keys.started(queue)),
        "complete": ("LLEN", keys.complete(queue)),
        "failed": ("LLEN", keys.failed(queue)),
        "cancelled": ("LLEN", keys.cancelled(queue)),
        "listeners": ("SCARD", keys.listeners(queue)),
        "nodes": ("ZCARD", keys.nodes(queue)),
        "batches": ("EXISTS", keys.archive(queue)),
    }
    names = [keys.runs(queue), keys.feeds(queue), keys.lines(queue)]
    reads: list[Command] = [*kinds.values(), *[("ZRANGE", key, 0, -1) for key in names]]
    watch = [*[key for _, key in kinds.values()], *names, *parts]
    look = Look(watch, [*reads, *[("EXISTS", key) for key in parts]])
    return dict(transact(redis, "forget_queue", look, decide))


def _removal(redis: Redis, queue: str, lines: list[str], now: float) -> list[Command]:
    needs = {line: needs_of(line) for line in lines}
    waiting: list[Command] = [
        ("SREM", keys.waiting(its.lock), f"{line}_{queue}")
        for line, its in needs.items()
        if its and its.lock is not None
    ]
    # Somebody's clock may be ahead.
    days = [day_of(now - DAY * age) for age in range(-1, redis.days_kept + 1)]
    its_own = (
        keys.lines,
        keys.settings,
        keys.counted,
        keys.wake,
        keys.events,
        keys.totals,
        keys.runs,
        keys.feeds,
    )
    return [
        *waiting,
        ("ZREM", keys.QUEUES, queue),
        ("UNLINK", *[key(queue) for key in its_own]),
        ("UNLINK", *[keys.stats(queue, day) for day in days]),
    ]
