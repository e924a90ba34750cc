"""The looks that several transactions share."""

from __future__ import annotations

from collections.abc import Sequence

from blueque.connection.redis import AnyLook, Command, Look
from blueque.model import keys
from blueque.protocol.fields import TaskFields
from blueque.protocol.packing import pack_with


def absence(task: str, is_drawn: bool = False) -> Look[*tuple[int, ...]]:
    """For enqueue and schedule: is the id new?

    is_drawn: it was drawn at random for this call. Then no task has it, and the watch alone refuses
        a late write: only a further try of the call has to ask.
    """
    key = keys.task(task)
    return Look((key,), () if is_drawn else (("EXISTS", key),), task)


def absence_of_all(tasks: Sequence[bytes]) -> Look[int, int]:
    """For many tasks with keys: how many of them exist, and how many keys of deleted ones are still
    in use? In most batches none or all do, and nothing more has to be asked.
    """
    return Look(
        [keys.task(task.decode()) for task in tasks],
        (exist_all(tasks), pack_with(("EXISTS",), tasks, keys.key_kept("").encode())),
        tasks[0].decode(),
    )


def exist_all(tasks: Sequence[bytes]) -> bytes:
    """Return the EXISTS of many tasks, with ids of one length."""
    return pack_with(("EXISTS",), tasks, keys.task("").encode())


def absence_of_keys(tasks: Sequence[str]) -> AnyLook:
    """For tasks with keys: is each id new? If not, which call created the task? Is the key of a
    deleted task still in use?
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


def fields_of(task: str) -> Look[list[str | None]]:
    """For a transaction about one task: how does it stand? See TaskFields."""
    return Look((keys.task(task),), (read_task(task),), task)


def read_task(task: str) -> Command:
    """Return the read of the fields that TaskFields has."""
    return ("HMGET", keys.task(task), *TaskFields._fields)
