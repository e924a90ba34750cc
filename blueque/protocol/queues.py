"""Whole queues: set_settings, forget_queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from blueque.connection.redis import AnyLook, Command, Look, Redis
from blueque.model import keys
from blueque.model.encoding import day_of
from blueque.model.lines import needs_of
from blueque.protocol.events import Event, record_in_queue
from blueque.protocol.fields import flat
from blueque.protocol.transaction import Answer, Change, Verdict, transact

DAY = 86400.0


def set_settings(
    redis: Redis, queue: str, wanted: Mapping[str, str | None], now: float, by: str = ""
) -> bool:
    """Set or remove settings of a queue. False: nothing changes.

    wanted: the text of each setting; None: remove it. A pause has `paused`, `paused_by` and perhaps
        `paused_reason`; an existing one keeps its time and gets another reason.
    """
    settings, names = keys.settings(queue), [*wanted]

    def decide(reply: list[str | None]) -> Verdict[bool]:
        present = dict(zip(names, reply, strict=True))
        is_so = "paused" in wanted and (wanted["paused"] is None) is (present["paused"] is None)
        if is_so and wanted.get("paused_reason") in (None, present.get("paused_reason")):
            return Answer(False)
        written = {
            name: text
            for name, text in wanted.items()
            if text is not None
            and text != present[name]
            and not (name == "paused" and present[name])
        }
        removed = [
            name for name, text in wanted.items() if text is None and present[name] is not None
        ]
        if not (written or removed):
            return Answer(False)
        commands: list[Command] = []
        if removed:
            commands += [("HDEL", settings, *removed)]
        if written:
            commands += [("HSET", settings, *flat(written)), ("ZINCRBY", keys.QUEUES, 0, queue)]
        if "paused" in removed or "max_running" in wanted:
            commands += [("ZADD", keys.wake(queue), 0, 0)]
        event = record_in_queue(queue, _event_of(written, removed, by, now))
        return Change([*commands, event], True)

    look: Look[list[str | None]] = Look([settings], [("HMGET", settings, *names)])
    return transact(redis, "set_settings", look, decide)


def _event_of(written: Mapping[str, str], removed: Sequence[str], by: str, now: float) -> Event:
    if "paused_by" in written or "paused_reason" in written:
        return Event("paused", by, now, {"reason": written.get("paused_reason")})
    if "paused" in removed:
        return Event("resumed", by, now)
    return Event("set", by, now, {**written, "unset": " ".join(removed) or None})


def forget_queue(redis: Redis, queue: str, now: float) -> dict[str, int]:
    """Remove everything about a queue that has no tasks, listeners, feeds, schedules or open batch.

    Return how many of each it has, by kind. If it has any, nothing is removed.
    """
    (feeds,) = redis.read(("ZRANGE", keys.feeds(queue), 0, -1))
    schedules = _schedules_of(redis, queue)
    # The records of feeds expire; their names stay in the index.
    parts = [keys.feed(queue, feed) for feed in feeds]

    def decide(*replies: Any) -> Verdict[dict[str, int]]:
        *counts, feeds_now, lines = replies[: len(reads)]
        exist = replies[len(reads) :]
        numbers = dict(zip(kinds, counts, strict=True))
        numbers["feeds"] = sum(exist) + len({*feeds_now} - {*feeds})
        numbers["schedules"] = schedules
        in_use = {kind: number for kind, number in numbers.items() if number}
        return Answer(in_use) if in_use else Change(_removal(redis, queue, lines, now), {})

    kinds = {
        "tasks": ("ZCARD", keys.tasks(queue)),
        "pending": ("LLEN", keys.pending(queue)),
        "blocked": ("ZCARD", keys.blocked(queue)),
        "scheduled": ("ZCARD", keys.scheduled(queue)),
        "started": ("SCARD", keys.started(queue)),
        "complete": ("LLEN", keys.complete(queue)),
        "failed": ("LLEN", keys.failed(queue)),
        "cancelled": ("LLEN", keys.cancelled(queue)),
        "listeners": ("SCARD", keys.listeners(queue)),
        "nodes": ("ZCARD", keys.nodes(queue)),
        "batches": ("EXISTS", keys.archive(queue)),
    }
    names = [keys.feeds(queue), keys.lines(queue)]
    reads: list[Command] = [*kinds.values(), *[("ZRANGE", key, 0, -1) for key in names]]
    watch = [*[key for _, key in kinds.values()], *names, *parts]
    look: AnyLook = Look(watch, [*reads, *[("EXISTS", key) for key in parts]])
    return transact(redis, "forget_queue", look, decide)


def _schedules_of(redis: Redis, queue: str) -> int:
    """Return how many schedules make tasks of a queue.

    One that is made meanwhile, or makes a task, enters the queue in `blueque_queues` again.
    """
    (names,) = redis.read(("ZRANGE", keys.SCHEDULES, 0, -1))
    asked: list[Command] = [("HGET", keys.schedule(name), "queue") for name in names]
    return redis.answers(*asked).count(queue)


def _removal(redis: Redis, queue: str, lines: list[str], now: float) -> list[Command]:
    waiting: list[Command] = [
        ("SREM", keys.waiting(needs.lock), f"{line}_{queue}")
        for line, needs in zip(lines, map(needs_of, lines), strict=True)
        if needs is not None and needs.lock is not None
    ]
    # The clock of another program may be ahead.
    days = [day_of(now - DAY * age) for age in range(-1, redis.settings.days_kept + 1)]
    of_queue = (
        keys.lines,
        keys.settings,
        keys.counted,
        keys.wake,
        keys.events,
        keys.totals,
        keys.feeds,
    )
    return [
        *waiting,
        ("ZREM", keys.QUEUES, queue),
        ("UNLINK", *[key(queue) for key in of_queue]),
        ("UNLINK", *[keys.stats(queue, day) for day in days]),
    ]
