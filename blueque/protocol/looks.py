"""What each transaction watches and reads, where another transaction may send it ahead."""

from __future__ import annotations

from blueque import keys
from blueque.connection import Look


def absence(task: str) -> Look:
    """For enqueue and schedule: is the id new?"""
    return Look((keys.task(task),), (("EXISTS", keys.task(task)),), task)


def registration(queue: str, node: str) -> Look:
    """For pop: are we still the listener that registered?"""
    key = keys.listener(queue, node)
    return Look((key,), (("HMGET", key, "instance", "state"),))


def ownership(task: str) -> Look:
    """For start and for every end of an attempt: is it still ours?"""
    key = keys.task(task)
    return Look((key,), (("HMGET", key, "status", "token", "node", "pid", "finished_by", "error_type", "cancel"),), task)
