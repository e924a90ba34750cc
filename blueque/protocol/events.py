"""What a transition leaves behind besides the new state: an event in the history of its task and of
its queue, and numbers.

The commands stand in the MULTI of the transition. So each event is there once, however often a call
is tried again, and the numbers are those of what has happened, whoever counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from blueque.connection.redis import Command, Redis
from blueque.model import histogram, keys
from blueque.model.encoding import count_of, day_of
from blueque.model.states import LOST

FIRST, RECENT = 20, 80  # how many events of a task are kept, of its first and of its last
IN_STREAM = 10_000  # of a queue, about
ALWAYS = 1e11  # no time in seconds is beyond it
WORDS = 500  # characters of an error that an event repeats
_TYPE = re.compile(r"[A-Za-z_][\w.-]{0,99}")
# The fields of a task hash that an event needs, in this order: see Past.
FIELDS = ("attempt", "events", "started")

Past = Sequence[str | None]  # the values of FIELDS
Told = Mapping[str, str | int | float | None]  # by their names; None: not known


def event(
    redis: Redis,
    queue: str,
    task: str,
    what: str,
    by: str,
    past: Past,
    now: float,
    facts: Told | None = None,
) -> list[Command]:
    """Return the commands that record an event.

    what: what has happened, as in docs/protocol.md, "Events". by: the node, or the person. past:
        the FIELDS of the task.
    facts: what else is to be known of it; `took`: how many seconds the wait or the run took that
        has ended with it.
    """
    return [
        *tell(queue, task, what, by, past, now, facts),
        *count(redis, queue, what, now, 1, facts),
    ]


def tell(
    queue: str, task: str, what: str, by: str, past: Past, now: float, facts: Told | None = None
) -> list[Command]:
    """Return the commands that record an event, without those that count it."""
    text = _text(what, by, past, now, facts)
    kept = _kept(task, past)
    return [
        ("HSET", keys.task(task), "events", after(past)["events"]),
        ("RPUSH", kept, text),
        *([("LTRIM", kept, -RECENT, -1)] if kept == keys.recent(task) else []),
        ("XADD", keys.events(queue), "MAXLEN", "~", IN_STREAM, "*", "task", task, "told", text),
    ]


def tell_task(
    task: str, what: str, by: str, past: Past, now: float, facts: Told | None = None
) -> list[Command]:
    """Return the commands that record an event of a task in its own history only.

    The transition writes `after` itself. For what happens to very many tasks at once: their queue
    would forget all else.
    """
    kept = _kept(task, past)
    return [
        ("RPUSH", kept, _text(what, by, past, now, facts)),
        *([("LTRIM", kept, -RECENT, -1)] if kept == keys.recent(task) else []),
    ]


def _text(what: str, by: str, past: Past, now: float, facts: Told | None) -> str:
    attempt, _, _ = past
    its: Told = {
        "event": what,
        "at": now,
        "attempt": count_of(attempt),
        "by": by or None,
        **(facts or {}),
    }
    told = {
        name: value[:WORDS] if isinstance(value, str) else value
        for name, value in its.items()
        if value is not None
    }
    return json.dumps(told, separators=(",", ":"))


def _kept(task: str, past: Past) -> str:
    return keys.history(task) if count_of(past[1]) < FIRST else keys.recent(task)


def count(
    redis: Redis, queue: str, what: str, now: float, times: int = 1, facts: Told | None = None
) -> list[Command]:
    """Return the commands that add to the numbers of a queue, of the day and in all. See `event`."""
    day, totals = keys.stats(queue, day_of(now)), keys.totals(queue)
    took, error_type = (facts or {}).get("took"), (facts or {}).get("error_type")
    commands: list[Command] = [("HINCRBY", key, what, times) for key in (day, totals)]
    if isinstance(took, float):
        bucket = f"{what}_{histogram.NAMES[histogram.bucket(took)]}"
        commands += [("HINCRBY", key, bucket, 1) for key in (day, totals)]
        commands += [("HINCRBYFLOAT", key, f"{what}_seconds", took) for key in (day, totals)]
        commands += [("HINCRBYFLOAT", day, f"{what}_squares", took * took)]
    if error_type is not None:
        # Any text may be given for a type, and each would be a field of its own.
        kind = error_type if _TYPE.fullmatch(str(error_type)) else "other"
        commands += [("HINCRBY", day, f"error:{kind}", 1)]
    if error_type in LOST:  # of others there may be any number
        commands += [("HINCRBY", totals, f"error:{error_type}", 1)]
    return [*commands, ("EXPIREAT", day, int(now // 86400 + 1 + redis.days_kept) * 86400)]


def past_of(fields: Mapping[str, str]) -> Past:
    return [fields.get(name) for name in FIELDS]


def after(past: Past) -> dict[str, str]:
    """Return what an event changes in the fields of its task."""
    return {"events": str(count_of(past[1]) + 1)}


def ran(past: Past, finished: float) -> float | None:
    """Return how long the attempt ran, at least 0, for clocks differ; None: it did not, or nobody
    knows since when.
    """
    started = _time(past[2])
    return max(finished - started, 0.0) if started else None


def waited(created: str | None, eta: str | None, queued: str | None, now: float) -> float:
    """Return how long a task has waited that is reserved now: since it was made, or was due, or was
    last put in line.
    """
    return max(now - max(_time(text) for text in (created or str(now), eta, queued)), 0.0)


def _time(text: str | None) -> float:
    """Return a time of the hash; another program's text, which may be no time at all, is 0."""
    try:
        seconds = float(text or 0)
    except ValueError:
        return 0.0
    return seconds if abs(seconds) < ALWAYS else 0.0
