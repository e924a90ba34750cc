"""What each transaction watches and reads, where another transaction may send it ahead."""

from __future__ import annotations

from collections.abc import Sequence

from blueque.connection.redis import Look
from blueque.model import keys
from blueque.protocol.events import FIELDS

OWNERSHIP = (
    "status",
    "token",
    "node",
    "pid",
    "finished_by",
    "error_type",
    "cancel",
    "lock",
    "counted",
    "priority",
    "needs",
    *FIELDS,
)


def absence(task: str) -> Look:
    """For enqueue and schedule: is the id new?"""
    return Look((keys.task(task),), (("EXISTS", keys.task(task)),), task)


def absence_of_keys(tasks: Sequence[str]) -> Look:
    """For tasks with keys: is each new, if not, whose call made it, and does the key of a deleted
    one still count?
    """
    hashes = [keys.task(task) for task in tasks]
    return Look(
        hashes,
        [
            *[("EXISTS", key) for key in hashes],
            *[("HGET", key, "enqueued_by") for key in hashes],
            ("MGET", *[keys.key_kept(task) for task in tasks]),
        ],
        tasks[0],
    )


def turn(queue: str, node: str) -> Look:
    """For pop: are we still the listener that registered, may it take anything, and is there more
    than one line?
    """
    key, settings, lines = keys.listener(queue, node), keys.settings(queue), keys.lines(queue)
    return Look(
        # The lines as well: a line that has come since we looked may have the turn.
        (key, settings, lines),
        (
            ("HMGET", key, "instance", "state"),
            ("HMGET", settings, "paused", "max_concurrency"),
            ("ZCARD", lines),
        ),
    )


def ownership(task: str) -> Look:
    """For start and for every end of an attempt: is it still ours?"""
    key = keys.task(task)
    return Look((key,), (("HMGET", key, *OWNERSHIP),), task)
