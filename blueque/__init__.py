"""Blueque: a queue for tasks that run from minutes to days, on plain Redis.

Which room answers which question; each imports only from those above it:

    model/ text/ system/                what a task is; how things are written; the operating system
    connection/ config/ spool/          the way to Redis; blueque.toml; the files of one attempt
    protocol/ queries/ tables/          every change in Redis; every read; tasks as Arrow tables
    producer/ backlog/ listener/        Queue; feeding files; Listener and Processor
    recovery/ audit/ metrics/           dead listeners; doctor; Prometheus
    client.py                           Client, which builds Queue, Listener, Processor (here) and
    Task (in model/)
    task_process/ node/ scheduler.py    what runs a task; the daemon on a node; tasks that are due
    report/ archives/ spark/ cli/ demo/ pipelines and commands
    testing/                            for tests of your own code
"""

import importlib as _importlib
import typing as _typing

from blueque.version import __version__

if _typing.TYPE_CHECKING:
    from blueque.archives import archive
    from blueque.client import Client
    from blueque.config.contents import Config
    from blueque.errors import (
        ArchiveRefused,
        BacklogRefused,
        BatchFailed,
        BatchTaken,
        BluequeError,
        ConfigRefused,
        Contended,
        CycleFound,
        DirectoryTaken,
        EventsGone,
        FeedTaken,
        GroupCancelled,
        GroupClosed,
        HasDependents,
        IdTaken,
        InvalidInput,
        InvalidType,
        JobFailed,
        NodeTaken,
        NoJava,
        NoServer,
        NoSuchGroup,
        NoSuchSchedule,
        NoSuchTask,
        NotBlocked,
        NotCancellable,
        NotFailed,
        NotFinished,
        NotFree,
        NotInstalled,
        NotInterruptible,
        NotOwner,
        NotRegistered,
        NotSettled,
        NotWaiting,
        OldBatch,
        OutcomeUnknown,
        QueueFull,
        RedisAway,
        RedisRefused,
        RunDropped,
        SnapshotGone,
        SparkEnded,
        SpoolRefused,
        SubmitFailed,
        TooLarge,
        TooManyConditions,
        WaitTimedOut,
        WrongGroup,
        WrongQueue,
        WrongRun,
        WrongSchedule,
    )
    from blueque.feeder import feed
    from blueque.listener.group import ListenerGroup
    from blueque.listener.listener import Listener
    from blueque.listener.processor import Processor
    from blueque.model.conditions import After, after
    from blueque.model.group import Group
    from blueque.model.ids import TaskId
    from blueque.model.new import New, Then
    from blueque.model.outcomes import Fail, HandBack, RetryLater
    from blueque.model.retry import Retry
    from blueque.model.selection import Ordered, ReducedLottery, RoundRobin
    from blueque.model.task import Task
    from blueque.node.forking_runner import ForkingRunner
    from blueque.producer.bulk import Count
    from blueque.producer.queue import Queue
    from blueque.queries.inspector import Inspector
    from blueque.task_process.handlers import Handler
    from blueque.task_process.registered import QueueHandler, handler
    from blueque.task_process.running_task import RunningTask, current_task

__all__ = [
    "After",
    "ArchiveRefused",
    "BacklogRefused",
    "BatchFailed",
    "BatchTaken",
    "BluequeError",
    "Client",
    "Config",
    "ConfigRefused",
    "Contended",
    "Count",
    "CycleFound",
    "DirectoryTaken",
    "EventsGone",
    "Fail",
    "FeedTaken",
    "ForkingRunner",
    "Group",
    "GroupCancelled",
    "GroupClosed",
    "HandBack",
    "Handler",
    "HasDependents",
    "IdTaken",
    "Inspector",
    "InvalidInput",
    "InvalidType",
    "JobFailed",
    "Listener",
    "ListenerGroup",
    "New",
    "NoJava",
    "NoServer",
    "NoSuchGroup",
    "NoSuchSchedule",
    "NoSuchTask",
    "NodeTaken",
    "NotBlocked",
    "NotCancellable",
    "NotFailed",
    "NotFinished",
    "NotFree",
    "NotInstalled",
    "NotInterruptible",
    "NotOwner",
    "NotRegistered",
    "NotSettled",
    "NotWaiting",
    "OldBatch",
    "Ordered",
    "OutcomeUnknown",
    "Processor",
    "Queue",
    "QueueFull",
    "QueueHandler",
    "RedisAway",
    "RedisRefused",
    "ReducedLottery",
    "Retry",
    "RetryLater",
    "RoundRobin",
    "RunDropped",
    "RunningTask",
    "SnapshotGone",
    "SparkEnded",
    "SpoolRefused",
    "SubmitFailed",
    "Task",
    "TaskId",
    "Then",
    "TooLarge",
    "TooManyConditions",
    "WaitTimedOut",
    "WrongGroup",
    "WrongQueue",
    "WrongRun",
    "WrongSchedule",
    "__version__",
    "after",
    "archive",
    "current_task",
    "feed",
    "handler",
]

# Each is imported when it is asked for: the help of a command comes in half the time, and no fork
# of a listener copies what it does not use. What is not in this table is in blueque.errors.
_LAZY = {
    **dict.fromkeys((name for name in __all__ if name != "__version__"), "blueque.errors"),
    "After": "blueque.model.conditions",
    "Client": "blueque.client",
    "Config": "blueque.config.contents",
    "Count": "blueque.producer.bulk",
    "Fail": "blueque.model.outcomes",
    "ForkingRunner": "blueque.node.forking_runner",
    "Group": "blueque.model.group",
    "HandBack": "blueque.model.outcomes",
    "Handler": "blueque.task_process.handlers",
    "Inspector": "blueque.queries.inspector",
    "Listener": "blueque.listener.listener",
    "ListenerGroup": "blueque.listener.group",
    "New": "blueque.model.new",
    "Ordered": "blueque.model.selection",
    "Processor": "blueque.listener.processor",
    "Queue": "blueque.producer.queue",
    "QueueHandler": "blueque.task_process.registered",
    "ReducedLottery": "blueque.model.selection",
    "Retry": "blueque.model.retry",
    "RetryLater": "blueque.model.outcomes",
    "RoundRobin": "blueque.model.selection",
    "RunningTask": "blueque.task_process.running_task",
    "Task": "blueque.model.task",
    "TaskId": "blueque.model.ids",
    "Then": "blueque.model.new",
    "after": "blueque.model.conditions",
    "archive": "blueque.archives",
    "current_task": "blueque.task_process.running_task",
    "feed": "blueque.feeder",
    "handler": "blueque.task_process.registered",
}


if not _typing.TYPE_CHECKING:  # a type checker would take any name for known

    def __getattr__(name: str) -> _typing.Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(_importlib.import_module(_LAZY[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
