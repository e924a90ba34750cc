"""Blueque: a queue for tasks that run from minutes to days, on plain Redis.

To read the code, start with docs/protocol.md and keys.py; then protocol/ (every change to Redis), queue.py, listener.py
and processor.py (what users hold), recovery.py (who is dead, and what then), slot.py (one listener at work),
task_process.py (what runs a task), master.py and scheduler.py (the daemons), cli/ (the commands).
"""

import importlib as _importlib
import typing as _typing

from blueque.client import Client
from blueque.config import Config
from blueque.errors import (
    ArchiveRefused,
    BacklogRefused,
    BatchFailed,
    BatchTaken,
    BluequeError,
    ConfigRefused,
    Contended,
    FeedTaken,
    InvalidInput,
    InvalidType,
    JobFailed,
    NodeTaken,
    NoJava,
    NoServer,
    NotCancellable,
    NotFailed,
    NotFinished,
    NotFree,
    NotInstalled,
    NotOwner,
    NotRegistered,
    NotWaiting,
    OldBatch,
    OutcomeUnknown,
    RedisAway,
    RedisRefused,
    RunDropped,
    SnapshotGone,
    SparkEnded,
    SpoolRefused,
    SubmitFailed,
    TooLarge,
    WrongQueue,
    WrongRun,
)
from blueque.forking_runner import ForkingRunner
from blueque.inspector import Inspector
from blueque.listener import Listener
from blueque.listener_group import ListenerGroup
from blueque.processor import Processor
from blueque.queue import Queue
from blueque.retry import Retry
from blueque.selection import Ordered, ReducedLottery, RoundRobin
from blueque.task import Task
from blueque.task_id import TaskId
from blueque.task_process import current_task
from blueque.verdicts import Fail, RetryLater
from blueque.version import __version__

if _typing.TYPE_CHECKING:
    from blueque.archives import archive
    from blueque.feeder import feed

# What most programs never use is imported when it is asked for: each fork of a listener copies what it has imported.
_LAZY = {"archive": "blueque.archives", "feed": "blueque.feeder"}


def __getattr__(name: str) -> _typing.Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_importlib.import_module(_LAZY[name]), name)


__all__ = [
    "ArchiveRefused",
    "BacklogRefused",
    "BatchFailed",
    "BatchTaken",
    "BluequeError",
    "Client",
    "Config",
    "ConfigRefused",
    "Contended",
    "Fail",
    "FeedTaken",
    "ForkingRunner",
    "Inspector",
    "InvalidInput",
    "InvalidType",
    "JobFailed",
    "Listener",
    "ListenerGroup",
    "NoJava",
    "NoServer",
    "NodeTaken",
    "NotCancellable",
    "NotFailed",
    "NotFinished",
    "NotFree",
    "NotInstalled",
    "NotOwner",
    "NotRegistered",
    "NotWaiting",
    "OldBatch",
    "Ordered",
    "OutcomeUnknown",
    "Processor",
    "Queue",
    "RedisAway",
    "RedisRefused",
    "ReducedLottery",
    "Retry",
    "RetryLater",
    "RoundRobin",
    "RunDropped",
    "SnapshotGone",
    "SparkEnded",
    "SpoolRefused",
    "SubmitFailed",
    "Task",
    "TaskId",
    "TooLarge",
    "WrongQueue",
    "WrongRun",
    "__version__",
    "archive",
    "current_task",
    "feed",
]
