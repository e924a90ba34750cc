"""Blueque: a queue for tasks that run from minutes to days, on plain Redis.

Which room answers which question; each imports only from those above it:

    model/ text/ system/                what a task is; how things are written; the operating system
    connection/ settings/ spool/        the way to Redis; blueque.toml; the files of one attempt
    protocol/ queries/ tables/          every change in Redis; every read; tasks as Arrow tables
    producer/ backlog/ listener/        Queue; feeding files; Listener and Processor
    recovery/ audit/ metrics/           dead listeners; doctor; Prometheus
    client.py                           Client, which builds Queue, Listener, Processor (here) and
    Task (in model/)
    task_process/ node/ scheduler/      what runs a task; the daemon on a node; tasks that are due
    report/ archives/ spark/ cli/ demo/ pipelines and commands
    testing/                            for tests of your own code
"""

import importlib as _importlib
import typing as _typing

from blueque.version import __version__ as __version__

if _typing.TYPE_CHECKING:  # for type checkers and editors
    from blueque.archives import archive as archive
    from blueque.async_client import AsyncClient as AsyncClient
    from blueque.async_queue import AsyncQueue as AsyncQueue
    from blueque.client import Client as Client
    from blueque.errors import *  # noqa: F403
    from blueque.feeder import feed as feed
    from blueque.listener.listener import Listener as Listener
    from blueque.listener.processor import Processor as Processor
    from blueque.model.conditions import After as After
    from blueque.model.conditions import after as after
    from blueque.model.group import Group as Group
    from blueque.model.new import New as New
    from blueque.model.new import Then as Then
    from blueque.model.outcomes import Fail as Fail
    from blueque.model.outcomes import HandBack as HandBack
    from blueque.model.outcomes import RetryLater as RetryLater
    from blueque.model.queue_order import Ordered as Ordered
    from blueque.model.queue_order import ReducedLottery as ReducedLottery
    from blueque.model.queue_order import RoundRobin as RoundRobin
    from blueque.model.retry import Retry as Retry
    from blueque.model.task import Status as Status
    from blueque.model.task import Task as Task
    from blueque.model.task_id import TaskId as TaskId
    from blueque.node.forking_runner import ForkingRunner as ForkingRunner
    from blueque.producer.bulk import Count as Count
    from blueque.producer.queue import Queue as Queue
    from blueque.queries.inspector import Inspector as Inspector
    from blueque.settings.contents import Config as Config
    from blueque.task_process.handlers import Handler as Handler
    from blueque.task_process.registered import QueueHandler as QueueHandler
    from blueque.task_process.registered import handler as handler
    from blueque.task_process.running_task import RunningTask as RunningTask
    from blueque.task_process.running_task import current_task as current_task

# The names of each module. It is imported when one of them is asked for: the help of a command comes
# in half the time, and no fork of a listener copies what it does not use.
_NAMES = {
    "archives": "archive",
    "async_client": "AsyncClient",
    "async_queue": "AsyncQueue",
    "client": "Client",
    "settings.contents": "Config",
    "errors": """
        ArchiveRefused BacklogRefused BatchFailed BluequeError ConfigRefused Contended
        CycleFound EventsGone HasDependents IdTaken InvalidInput InvalidType JobFailed
        NoSuchGroup NoSuchSchedule NoSuchTask NotFree NotInstalled NotOwner NotRegistered
        NotReplicated OutcomeUnknown PayloadRefused QueueFull RedisAway RedisRefused
        SnapshotGone SparkEnded SpoolRefused SubmitFailed Taken TooLarge WaitTimedOut
        WrongGroup WrongQueue WrongSchedule WrongState
    """,
    "feeder": "feed",
    "listener.listener": "Listener",
    "listener.processor": "Processor",
    "model.conditions": "After after",
    "model.group": "Group",
    "model.new": "New Then",
    "model.outcomes": "Fail HandBack RetryLater",
    "model.retry": "Retry",
    "model.queue_order": "Ordered ReducedLottery RoundRobin",
    "model.task": "Status Task",
    "model.task_id": "TaskId",
    "node.forking_runner": "ForkingRunner",
    "producer.bulk": "Count",
    "producer.queue": "Queue",
    "queries.inspector": "Inspector",
    "task_process.handlers": "Handler",
    "task_process.registered": "QueueHandler handler",
    "task_process.running_task": "RunningTask current_task",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(["__version__", *_MODULES])


if not _typing.TYPE_CHECKING:  # a type checker would take any name for known

    def __getattr__(name: str) -> _typing.Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = _importlib.import_module(f"{__name__}.{_MODULES[name]}")
        found = globals()[name] = getattr(module, name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
