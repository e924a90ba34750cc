"""Tests of your own code: handlers and producers without a listener.

`run_task` runs one handler without Redis, see run_task.py. `drain` runs what is pending in a Redis,
see drain.py. `assert_enqueued` checks which tasks exist. fixtures.py has fixtures for pytest: a
Redis server of their own, or one in memory.

May import everything but the commands. Begin with run_task.py.
"""

from blueque.testing.assertions import assert_enqueued
from blueque.testing.drain import drain
from blueque.testing.ended import Ended, Progress, Spawned
from blueque.testing.run_task import run_task

__all__ = ["Ended", "Progress", "Spawned", "assert_enqueued", "drain", "run_task"]
