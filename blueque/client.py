"""Client: connects to one Redis and creates the objects that users work with."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from blueque.connection.address import Address, hide_password
from blueque.connection.addresses import address_of
from blueque.connection.opening import connect
from blueque.connection.redis import Connection, Redis
from blueque.connection.redis_py import ClientConnection, require_options
from blueque.errors import InvalidInput, InvalidType
from blueque.model import units
from blueque.model.client_settings import MAX_REPLICAS
from blueque.model.encoding import (
    require_feed_name,
    require_queue_name,
    require_timeout,
    require_whole,
)
from blueque.model.group import InGroup
from blueque.model.queue_order import Select
from blueque.model.queue_settings import read_settings
from blueque.model.task import Task
from blueque.queries.tasks import load
from blueque.settings.contents import Config

# The classes of these objects are imported when they are used: a verb of the command line needs few
# of them, and each fork of a listener copies what the listener has imported.
if TYPE_CHECKING:
    import pyarrow
    import redis as redis_py

    from blueque.connection.waits import Waits
    from blueque.listener.listener import Listener
    from blueque.listener.listeners import Listeners
    from blueque.listener.processor import Processor
    from blueque.model.retry import Retry
    from blueque.model.snapshot import Slice, Snapshot
    from blueque.model.task_id import TaskId
    from blueque.producer.fanout import Fanout
    from blueque.producer.groups import TaskGroup
    from blueque.producer.queue import Queue
    from blueque.producer.schedules import Schedule, ScheduleOptions
    from blueque.producer.workflow import Workflow
    from blueque.queries.history import Event, History
    from blueque.queries.inspector import Inspector
    from blueque.queries.statistics import Statistics
    from blueque.queries.task_log import LogLine, Place
    from blueque.queries.timeline import Timeline

R = TypeVar("R")


class Client:
    """A connection to one Redis. Creating a client neither connects nor checks anything.

    url: redis://, rediss://, unix:// or redis+sentinel://. If left out: inside a task, the Redis of
        its listener (see `task_redis` in docs/configuration.md); else BLUEQUE_REDIS_URL, REDIS_URL,
        the address in `config`, or redis://localhost:6379/0.
    redis: a redis-py client to use instead. Blueque takes its settings, not its connections.
    patience: how many seconds a call retries while Redis does not answer.
    max_bytes: the size limit of parameters and results. Default: BLUEQUE_MAX_BYTES, else that of
        `config`, else 1 MiB.
    replicas: how many replicas must confirm a change before a call returns; if fewer do, the call
        raises NotReplicated. Default: BLUEQUE_REPLICAS, else that of `config`, else 0.
    config: a path to a blueque.toml, or `blueque.settings.load()` for the file that is found. It
        also sets how payloads are stored, and retry, limits and resources by queue.
    options: further arguments for redis-py's `from_url`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        redis: redis_py.Redis | None = None,
        patience: float = 5.0,
        max_bytes: int | None = None,
        replicas: int | None = None,
        config: Config | str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        if redis is not None and (url is not None or options):
            raise InvalidInput("give an address or a ready client, not both")
        if url is not None and not isinstance(url, str):
            raise InvalidInput(
                f"an address is text, not {url!r}; a ready client is Client(redis=...)"
            )
        if config is None:
            config = Config()
        elif not isinstance(config, Config):
            from blueque.settings.file import load as load_config

            config = load_config(config)
        configured = (config.redis_url, config.path or "") if config.redis_url else None
        self._config = config
        self._url = url if url is not None else units.redis_url(otherwise=configured)[0]
        self._address = address_of(self._url) if redis is None else None
        if self._address is not None and not self._address.is_plain:
            require_options(self._url, options)
        self._client = redis
        self._options = options
        self.max_bytes = (
            units.max_bytes(otherwise=config.max_bytes) if max_bytes is None else max_bytes
        )
        settings = config.of_clients()
        if replicas is not None:
            number = require_whole(replicas, "replicas", 0, MAX_REPLICAS)
            settings = settings._replace(replicas=number)
        self._redis = Redis(self._connect, patience, settings)

    def __repr__(self) -> str:
        return f"<Client of {hide_password(self._url)}>" if self._client is None else "<Client>"

    @property
    def url(self) -> str | None:
        """The address with its password. None for a client with a redis-py client or options."""
        return self._url if self._client is None and not self._options else None

    @property
    def patience(self) -> float:
        """How many seconds a call retries while Redis does not answer."""
        return self._redis.patience

    @property
    def connections(self) -> Redis:
        """The connections of this client, for Blueque's own modules."""
        return self._redis

    def get_queue(self, name: str, retry: Retry | int | None = None) -> Queue:
        """Return the queue with this name. It need not have tasks.

        retry: the policy of tasks that are enqueued through this object without one of their own.
        """
        from blueque.producer.queue import Queue

        name = self._queue_name(name)
        return Queue(self._redis, name, self.max_bytes, retry, self._config.queue(name))

    def get_fanout(self, name: str, to: Iterable[str] | None = None) -> Fanout:
        """Return a fan-out, which puts each task into several queues.

        to: the names of the queues; None: those of `[fanouts]` in blueque.toml.
        Raises InvalidInput if that table does not have `name`.
        """
        from blueque.producer.fanout import Fanout

        queues = self._config.fanouts.get(name) if to is None else to
        if queues is None:
            raise InvalidInput(
                f"there is no fan-out {name!r} in blueque.toml: give its queues with to=[...]"
            )
        if isinstance(queues, str):
            raise InvalidType("to is a list of queue names, not a str")
        return Fanout(self._redis, name, [self.get_queue(queue) for queue in queues])

    def group(self, name: str) -> TaskGroup:
        """Return the task group with this name. It need not exist: `open` creates it."""
        from blueque.producer.groups import TaskGroup

        return TaskGroup(self._redis, name)

    def workflow(
        self, name: str, broken: Literal["hold", "cancel"] = "hold", keep: float | str = "1d"
    ) -> Workflow:
        """Return a new workflow: tasks that depend on each other, created all together or not at all.

        name: an existing workflow with this name is not changed.
        broken: as for `Queue.enqueue`, for tasks that do not set it.
        keep: how long its record stays after its end; seconds, or text such as "1d".
        """
        from blueque.producer.workflow import Workflow

        return Workflow(self._redis, name, broken, keep)

    def set_schedule(
        self,
        name: str,
        *,
        queue: str,
        parameters: Any = None,
        only_new: bool = False,
        by: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Create or change a recurring task and return it. An identical definition changes nothing.

        queue, parameters: of each task that the schedule makes, as for `Queue.enqueue`.
        only_new: raise WrongSchedule instead of changing an existing schedule.
        by: who makes the change, for the history. Default: this user and host.
        cron: five fields, such as "30 2 * * 1-5".
        every: instead of `cron`, the time between tasks, 10 s to 366 days; seconds, or text such as "6h".
        timezone: of `cron`, such as "Europe/Berlin". Default: UTC.
        start, until: the first and the last time; Unix seconds, a datetime or ISO text, with a time zone.
        overlap: what to do if the previous task has not ended. "skip": make no task. "queue": let
            one wait for its end. "allow": run both.
        catch_up: which missed tasks to make after an outage: the "last", "all" or "none". "all"
            requires overlap="allow".
        window: how far back to catch up, at least a minute. Default: a day.
        jitter: delay each task by up to this long, to spread the load; at most a day, and at most
            the time between two tasks. A planned time always has the same delay.
        keep: how long a deleted task still counts as made, for `Schedule.backfill`.
        options: of each task, as for `Queue.enqueue`: priority, resources, lock, retry, time_limit,
            stall_limit, memory_limit, grace, lead, title, tags, context.
        A change applies to times that are not planned yet.
        Raises InvalidInput, whose message begins with the wrong option; WrongSchedule if the
            schedule comes from blueque.toml.
        Source: docs/protocol/schedules.md, "set_schedule".
        """
        from blueque.model.encoding import require_schedule_name
        from blueque.producer.schedules import Schedule, define
        from blueque.protocol.schedules import Define, set_schedule
        from blueque.system.process import who_of

        definition = define(
            self.get_queue(queue), require_schedule_name(name), parameters, **options
        )
        set_schedule(self._redis, name, Define(definition, "hand", only_new), who_of(by))
        return Schedule(self._redis, name)

    def get_schedule(self, name: str) -> Schedule:
        """Return the recurring task with this name. Raises NoSuchSchedule."""
        from blueque.producer.schedules import Schedule

        return Schedule(self._redis, name)

    def get_schedules(self) -> list[str]:
        """Return the names of all recurring tasks, in the order of their next times."""
        from blueque.queries import schedules
        from blueque.queries.steps import read

        return read(self._redis, schedules.names())

    @overload
    def get_task(self, task_id: TaskId[R]) -> Task[R]: ...

    @overload
    def get_task(self, task_id: str) -> Task: ...

    def get_task(self, task_id: str) -> Task:
        """Return a snapshot of the task.

        As in 1.0.0, an unknown id is not an error: all attributes but `id` are None. `status is None`
        means that the task does not exist or was deleted.
        """
        if not isinstance(task_id, str):
            raise InvalidType(f"a task id is a str, not {type(task_id).__name__}")
        return load(self._redis, task_id, self.wait)

    @overload
    def wait(  # type: ignore[overload-overlap]  # a TaskId is a str, which is an iterable of str
        self, ids: TaskId[R], timeout: float | None = None
    ) -> Task[R]: ...

    @overload
    def wait(  # type: ignore[overload-overlap]
        self, ids: str, timeout: float | None = None
    ) -> Task: ...

    @overload
    def wait(
        self, ids: Iterable[TaskId[R]], timeout: float | None = None, at_least: int | None = None
    ) -> list[Task[R]]: ...

    @overload
    def wait(
        self, ids: Iterable[str], timeout: float | None = None, at_least: int | None = None
    ) -> list[Task]: ...

    def wait(
        self, ids: str | Iterable[str], timeout: float | None = None, at_least: int | None = None
    ) -> Task | list[Task]:
        """Block until one or all tasks are complete, failed or cancelled, and return them.

        timeout: in seconds; None: no limit.
        at_least: return as soon as this many have ended, and only those, in the order of `ids`.
        Redis announces the changes. Where it cannot (TLS, a redis-py client, an ACL without
        +client|tracking), the tasks are read once a second. An outage of Redis does not end the wait.
        Raises NoSuchTask when a task does not exist or is deleted during the wait; WaitTimedOut;
            RedisAway when Redis does not answer at the start.
        """
        if isinstance(ids, str):
            return next(self.as_ended([ids], timeout))
        wanted = ids_of(ids)
        ended: dict[str, Task] = {}
        enough = len(set(wanted)) if at_least is None else at_least
        for task in self.as_ended(wanted, timeout) if enough > 0 else ():
            ended[task.id] = task
            if len(ended) == enough:
                break
        return [ended[task_id] for task_id in wanted if task_id in ended]

    @overload
    def as_ended(
        self, ids: Iterable[TaskId[R]], timeout: float | None = None
    ) -> Iterator[Task[R]]: ...

    @overload
    def as_ended(self, ids: Iterable[str], timeout: float | None = None) -> Iterator[Task]: ...

    def as_ended(self, ids: Iterable[str], timeout: float | None = None) -> Iterator[Task]:
        """Yield each task when it ends. Arguments and errors are those of `wait`."""
        timeout = require_timeout(timeout)
        wanted = ids_of(ids)
        from blueque.queries.task_ends import Watcher, ends

        return ends(Watcher(self._redis, wanted, self.wait), self.patience, timeout)

    def get_listener(self, queue_name: str, *more: str, select: Select | None = None) -> Listener:
        """Return a listener of one or more queues. It registers when it first listens.

        A repeated queue counts once.
        select: which queue to try first: `blueque.RoundRobin()`, `blueque.ReducedLottery({"a":
            3})`, or a callable, see queue_order.py. None: the order given here. The order and
            weights in blueque.toml apply to the program blueque-listener only.
        """
        from blueque.listener.listener import Listener

        names = [self._queue_name(name) for name in (queue_name, *more)]
        return Listener(self._redis, names, select)

    def get_feeds(self, *queue_names: str) -> list[dict[str, str]]:
        """Return the records of all feeds of these queues; for each queue, open feeds come last.

        Source: docs/protocol/feeds.md, "Feeds".
        """
        from blueque.queries import feeds

        return feeds.load_all(self._redis, [self._queue_name(name) for name in queue_names])

    def forget_feed(self, queue_name: str, name: str) -> bool:
        """Remove the record of a feed, so that feeding starts over. Return False if there is none.

        Source: docs/protocol/feeds.md, "forget_feed".
        """
        from blueque.protocol.feeding import forget_feed

        return forget_feed(self._redis, self._queue_name(queue_name), require_feed_name(name))

    def forget_queue(self, name: str) -> dict[str, int]:
        """Remove an unused queue with its settings and statistics.

        Return what still uses it, as counts by kind: tasks, listeners, feeds, schedules or archive
        batches. If the result is not empty, nothing was removed.
        Source: docs/protocol/operator.md, "forget_queue".
        """
        from blueque.protocol.queues import forget_queue

        return forget_queue(self._redis, self._queue_name(name), time.time())

    def get_log(self, task_id: str) -> tuple[list[LogLine], Place]:
        """Return the log lines of a task in Redis, in order, and the place after them.

        Redis keeps the first 64 KB of the last attempt, and the last 1,000 lines. Gaps in the line
        numbers show where lines are missing.
        """
        from blueque.queries import task_log

        return task_log.load(self._redis, task_id)

    def get_history(self, task_id: str) -> History | None:
        """Return the events of a task, oldest first, or None if there is no such task.

        Redis keeps the first 20 and the last 80. Listeners of 1.0.0 record none.
        Source: docs/protocol.md, "Events".
        """
        from blueque.queries import history

        return history.load(self._redis, task_id)

    def get_event_places(self, *queue_names: str) -> dict[str, str]:
        """Return the current ends of the event streams of these queues, for `after` of `events`."""
        from blueque.queries import history

        return history.last_places(self._redis, [self._queue_name(name) for name in queue_names])

    def events(
        self, *queue_names: str, after: Mapping[str, str] | None = None
    ) -> Generator[Event, None, None]:
        """Yield the events of these queues as they happen, without end.

        after: where to begin, by queue: the result of `get_event_places`, or the `place` of the
            last event that you handled. A queue keeps about 10,000 events. Tasks that are enqueued
            or due make none.
        Raises RedisAway when Redis does not answer within `patience`; continue with `after` then.
        """
        from blueque.queries import history

        redis = self._redis.another()
        try:
            names = [self._queue_name(name) for name in queue_names]
            begun = {name: place for name, place in (after or {}).items() if name in names}
            others = [name for name in names if name not in begun]
            places = begun | (history.last_places(redis, others) if others else {})
            while places:
                for event in history.follow(redis, places):
                    places[event.queue or ""] = event.place or ""
                    yield event
        finally:
            redis.close()

    def get_timeline(self, queue_names: Sequence[str], seconds: float) -> Timeline:
        """Return the attempts of the last `seconds` in these queues, at most 1,000 of them running.

        A queue keeps about 10,000 events, three or four for each attempt.
        Source: docs/protocol.md, "Events".
        """
        from blueque.queries import timeline

        return timeline.load(self._redis, [self._queue_name(name) for name in queue_names], seconds)

    def get_statistics(self, queue_name: str, days: int = 7) -> Statistics:
        """Return how many tasks of a queue waited, ran and failed by day, and for how long.

        days: UTC days by the clock of Redis, with today: 1 to 3,660. Older ones may be deleted.
        Counts, means and deviations are exact. Quantiles are accurate to the width of a bucket, see
        `blueque.queries.statistics`.
        Source: docs/protocol.md, "Events".
        """
        return self.get_inspector().statistics([self._queue_name(queue_name)], days)[0]

    def get_listeners(self) -> Listeners:
        """Return an object that finds listeners on any host and sends them orders."""
        from blueque.listener.listeners import Listeners

        return Listeners(self._redis)

    def get_processor(self, task: Task) -> Processor:
        """Return an object that records the start and the end of a reserved task."""
        from blueque.listener.processor import Processor

        return Processor(self._redis, task, self.max_bytes)

    def get_inspector(self) -> Inspector:
        """Return an object that reads Redis and changes nothing."""
        from blueque.queries.inspector import Inspector

        return Inspector(self._redis)

    def retention_rules(self, queue_names: Iterable[str]) -> dict[str, dict[str, units.Keep]]:
        """Return how long finished tasks of these queues are kept, by queue and status.

        The table of the queue in blueque.toml comes first, then its settings in Redis,
        `[retention]`, and the defaults.
        """
        settings = self.get_inspector().settings(queue_names)
        return {
            name: self._config.retention_of(name, read_settings(fields).retention)
            for name, fields in settings.items()
        }

    def freeze(
        self, queues: str | Iterable[str], statuses: str | Iterable[str], keep: float = 3600
    ) -> Snapshot:
        """Take a snapshot of the tasks of one or more queues with these statuses.

        keep: how many seconds Redis holds it, at most 30 days. Any process may `read` its slices.
        Source: docs/protocol/archive.md, "freeze".
        """
        from blueque.model.snapshot import Snapshot, require_keep, require_queues, require_statuses
        from blueque.protocol.snapshots import freeze

        names = require_queues(queues)
        wanted = require_statuses(statuses)
        seconds = require_keep(keep)
        name, now = os.urandom(8).hex(), time.time()
        parts = freeze(self._redis, name, names, wanted, seconds, now)
        parts.sort(key=lambda part: (names.index(part.queue), wanted.index(part.listed_as)))
        return Snapshot(name, now, seconds, tuple(parts))

    def tasks_of(self, snapshot: Snapshot) -> Iterator[Task]:
        """Yield the tasks of a snapshot as they are now, oldest first in each part.

        Leaves out deleted tasks. Uses a few MiB at a time.
        Raises SnapshotGone.
        """
        from blueque.tables import snapshot_reader

        return snapshot_reader.tasks(self._redis, snapshot)

    def purge(
        self, snapshot: Snapshot, *, force: bool = False, by: str | None = None
    ) -> Iterator[int]:
        """Delete the tasks of a snapshot that still have its status; yield how many so far.

        Skips reserved and started tasks, and those that other tasks wait for.
        force: also delete pending, scheduled and blocked tasks that others wait for.
        by: who deletes them, for the events of their queues. Default: this user and host.
        Raises SnapshotGone.
        Source: docs/protocol/operator.md, "purge"; docs/protocol/archive.md, "prune".
        """
        from blueque.recovery.purge import purge

        return purge(self._redis, snapshot, force, by)

    def thaw(self, snapshot: Snapshot) -> bool:
        """Remove a snapshot before it expires. Return False if it was gone already."""
        from blueque.protocol.snapshots import thaw

        return thaw(self._redis, snapshot.name, [part.key for part in snapshot.parts if part.key])

    def read(
        self,
        piece: Slice,
        fields: Sequence[str] | None = None,
        missing: Literal["drop", "null"] = "drop",
    ) -> Iterator[pyarrow.RecordBatch]:
        """Yield the tasks of a slice of a snapshot as record batches, oldest first.

        fields: names in `blueque.model.columns.COLUMNS`; None: all but `other`. Fewer are faster.
        missing: a deleted or malformed task gives no row ("drop"), or a row with only its id ("null").
        Raises SnapshotGone; NotInstalled without pyarrow; InvalidInput.
        """
        from blueque.tables.hash_reader import read

        return read(self._redis, piece, fields, missing)

    def wait_by(self, waits: Waits, sleep: Callable[[float], object]) -> None:
        """Let an event loop do the waiting of all connections.

        Raises InvalidInput for an address with options of redis-py.
        """
        if self._address is None or not self._address.is_plain or self._options:
            raise InvalidInput(
                f"{hide_password(self._url)!r} has options of redis-py, which an AsyncClient does not have"
            )
        self._address.wait_by(waits)
        self._redis.sleep = sleep

    def with_patience(self, seconds: float) -> Client:
        """Return a client of the same Redis with another patience."""
        other = copy.copy(self)
        other._redis = self._redis.another()
        other._redis.patience = seconds
        return other

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection of this thread; the next call opens another."""
        self._redis.close()

    def _queue_name(self, name: str) -> str:
        """Return the name of a queue for its name or an alias in blueque.toml."""
        return self._redis.settings.queue_name(require_queue_name(name))

    def _connect(self) -> Connection:
        if self._address is not None and self._address.is_plain and not self._options:
            if isinstance(self._address, Address):
                return connect(self._address)
            return self._address.connect()
        if self._client is None:
            import redis  # here, not above: most users never need its 125 ms

            try:
                self._client = redis.Redis.from_url(self._url, **self._options)
            except (TypeError, ValueError) as error:
                raise InvalidInput(
                    f"{hide_password(self._url)!r} is not an address for redis-py: {error}"
                ) from None
        return ClientConnection(self._client)


def ids_of(given: Iterable[str]) -> list[str]:
    """Return the ids of tasks to wait for. Raises InvalidType, also for a group."""
    if isinstance(given, InGroup):
        raise InvalidType(
            f"wait takes ids of tasks, not a {type(given).__name__}: for its tasks together, wait for a task "
            "that waits for them, client.wait(queue.enqueue(..., after=group))"
        )
    ids = list(given)
    for task_id in ids:
        if not isinstance(task_id, str):
            raise InvalidType(f"a task id is a str, not {type(task_id).__name__}")
    return ids
