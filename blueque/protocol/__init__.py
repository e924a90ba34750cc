"""Every change to Redis: one function for each section of docs/protocol.md, under the same name.

submit.py has what producers and schedulers do, membership.py the life of a listener, run.py the life of an attempt;
transaction.py is the executor they all go through.
"""

from blueque.protocol.membership import beat, claim, deregister, register
from blueque.protocol.run import complete, fail, pop, reserve, start, wait, wake
from blueque.protocol.submit import delete, enqueue, enqueue_due, schedule

__all__ = [
    "beat",
    "claim",
    "complete",
    "delete",
    "deregister",
    "enqueue",
    "enqueue_due",
    "fail",
    "pop",
    "register",
    "reserve",
    "schedule",
    "start",
    "wait",
    "wake",
]
