"""Client: knows where Redis is, and hands out the objects that work with it."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from blueque.config.toml_file import Config
from blueque.config.toml_file import load as load_config
from blueque.connection.address import Address, hide_password
from blueque.connection.plain import SocketConnection
from blueque.connection.redis import Connection, Redis
from blueque.connection.redis_py import ClientConnection
from blueque.errors import InvalidInput, InvalidType
from blueque.model import units
from blueque.model.encoding import require_feed_name, require_queue_name, require_run_name
from blueque.model.selection import Select, require_select
from blueque.model.task import Task
from blueque.queries import runs
from blueque.queries.inspector import Inspector
from blueque.queries.tasks import load

# What a client hands out is imported when it is asked for: one verb of the command line needs
# little of it, and what a listener imports, each of its forks copies.
if TYPE_CHECKING:
    import pyarrow
    import redis as redis_py

    from blueque.audit.doctor import Doctor
    from blueque.backlog.job import Feeding, Job
    from blueque.backlog.progress import Tell
    from blueque.listener.group import ListenerGroup
    from blueque.listener.listener import Listener
    from blueque.listener.orders import Listeners
    from blueque.listener.processor import Processor
    from blueque.metrics.prometheus_text import Family
    from blueque.model.retry import Retry
    from blueque.model.snapshot import Slice, Snapshot
    from blueque.model.wrong_types import WrongTypes
    from blueque.producer.abandoned_runs import Leftovers
    from blueque.producer.queue import Queue
    from blueque.queries.history import Event, History
    from blueque.queries.queue_changes import Lookout
    from blueque.queries.statistics import Statistics
    from blueque.queries.task_log import LogLine, News, Place
    from blueque.queries.timeline import Timeline
    from blueque.recovery.judge import Recovery
    from blueque.recovery.judges import Recoveries
    from blueque.recovery.retention import Retention


class Client:
    """The way into one Redis. Making one neither connects nor checks anything.

    url: redis://, rediss:// or unix://. When left out: in a task, the Redis of its listener (see
        `task_redis` in docs/configuration.md); else BLUEQUE_REDIS_URL, else REDIS_URL, else
        redis://localhost:6379/0.
    redis: a ready redis-py client instead. Its settings are used, not its connections.
    patience: how long, in seconds, a call tries again when Redis does not answer.
    max_bytes: how much parameters or a result may take; BLUEQUE_MAX_BYTES, else 1 MiB.
    config: a blueque.toml, or `blueque.config.load()` for the one that is found: its address and
        its limit go before the defaults, and tasks get what it says of their queue: retry, limits,
        resources.
    options: whatever else redis-py's `from_url` takes.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        redis: redis_py.Redis | None = None,
        patience: float = 5.0,
        max_bytes: int | None = None,
        config: Config | str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        if redis is not None and (url is not None or options):
            raise InvalidInput("give an address or a ready client, not both")
        known = (
            config
            if isinstance(config, Config)
            else Config()
            if config is None
            else load_config(config)
        )
        said = (known.redis_url, known.path or "") if known.redis_url else None
        self._config = known
        self._url = url if url is not None else units.redis_url(otherwise=said)[0]
        self._address = Address(self._url) if redis is None else None
        self._client = redis
        self._options = options
        self.max_bytes = (
            units.max_bytes(otherwise=known.max_bytes) if max_bytes is None else max_bytes
        )
        self._redis = Redis(self._connect, patience)
        self._redis.days_kept = units.statistics_keep(otherwise=known.statistics_keep)

    @property
    def url(self) -> str | None:
        """The address, its password included; None: it was made of a ready client, or with options
        beside the address.
        """
        return self._url if self._client is None and not self._options else None

    @property
    def patience(self) -> float:
        """How long, in seconds, a call tries again when Redis does not answer."""
        return self._redis.patience

    def get_queue(self, name: str, retry: Retry | int | None = None) -> Queue:
        """Return the queue of that name, be there tasks in it or not.

        retry: the policy of tasks that are enqueued through this object without one of their own;
            False: none.
        """
        from blueque.producer.queue import Queue

        return Queue(
            self._redis, require_queue_name(name), self.max_bytes, retry, self._config.queue(name)
        )

    def get_task(self, task_id: str) -> Task:
        """Return a snapshot of the task. An unknown id gives one whose attributes are all None."""
        if not isinstance(task_id, str):
            raise InvalidType(f"a task id is a str, not {type(task_id).__name__}")
        return load(self._redis, task_id, self.wait)

    @overload
    def wait(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
        self, ids: str, timeout: float | None = None
    ) -> Task: ...

    @overload
    def wait(
        self, ids: Iterable[str], timeout: float | None = None, at_least: int | None = None
    ) -> list[Task]: ...

    def wait(
        self, ids: str | Iterable[str], timeout: float | None = None, at_least: int | None = None
    ) -> Task | list[Task]:
        """Block until a task, or each of several, is complete, failed or cancelled, and return what
        they are then.

        timeout: in seconds; None: no limit. at_least: so many of them are enough; those that have
        ended are returned, in the order of `ids`.
        It asks nobody all the time: Redis says what has changed. Where it cannot (TLS, a ready
        redis-py client, an ACL without +client|tracking), it looks each second. When Redis goes
        away meanwhile, it waits for that, too.
        Raises NoSuchTask when one is not there, or is deleted meanwhile; WaitTimedOut.
        """
        if isinstance(ids, str):
            return next(self.as_ended([ids], timeout))
        wanted = list(ids)
        ended: dict[str, Task] = {}
        enough = len(set(wanted)) if at_least is None else at_least
        for task in self.as_ended(wanted, timeout) if enough > 0 else ():
            ended[task.id] = task
            if len(ended) == enough:
                break
        return [ended[task_id] for task_id in wanted if task_id in ended]

    def as_ended(self, ids: Iterable[str], timeout: float | None = None) -> Iterator[Task]:
        """Yield each of the tasks as it ends; as `wait`, but with something to do meanwhile."""
        if timeout is not None and not timeout >= 0:  # nor what is no number
            raise InvalidInput(f"timeout is {timeout!r}; it has to be 0 or more seconds")
        wanted = list(ids)
        for task_id in wanted:
            if not isinstance(task_id, str):
                raise InvalidType(f"a task id is a str, not {type(task_id).__name__}")
        from blueque.queries.task_ends import Watcher, ends

        return ends(Watcher(self._connect, wanted, self.wait), self.patience, timeout)

    @overload
    def get_listener(self, queue_name: str) -> Listener: ...

    @overload
    def get_listener(
        self, queue_name: str, second: str, /, *more: str, select: Select | None = None
    ) -> ListenerGroup: ...

    def get_listener(
        self, queue_name: str, *more: str, select: Select | None = None
    ) -> Listener | ListenerGroup:
        """Return a listener of the queue, or of several. It registers when it listens for the first
        time.

        A queue that is named twice counts once.
        select: from which of several queues it takes: `blueque.RoundRobin()`,
        `blueque.ReducedLottery({"a": 3})`, or a callable of your own, see selection.py; else from
        the first that has work. What a blueque.toml says of it, and of weights, is for the program
        blueque-listener only.
        """
        if not more:
            require_select(select)
            from blueque.listener.listener import Listener

            return Listener(self._redis, require_queue_name(queue_name))
        return self.get_listener_group([queue_name, *more], select)

    def get_listener_group(
        self, queue_names: Sequence[str], select: Select | None = None
    ) -> ListenerGroup:
        """Return a listener of any number of queues."""
        from blueque.listener.group import ListenerGroup

        return ListenerGroup(
            self._redis, [require_queue_name(name) for name in queue_names], select
        )

    def get_run(self, queue_name: str, name: str) -> dict[str, Any] | None:
        """Return what is known of a run of a queue, by the names in docs/protocol/bulk.md, "Runs";
        None: nothing is.

        staged, unpublished: how many chunks are undecided, and decided but not yet in line.
        """
        return runs.load(self._redis, require_queue_name(queue_name), require_run_name(name))

    def get_runs(self, queue_name: str) -> list[dict[str, Any]]:
        """Return the same of all runs of a queue, the oldest first."""
        return runs.load_all(self._redis, require_queue_name(queue_name))

    def get_leftovers(self) -> Leftovers:
        """Return what finds runs that nobody has ended, and ends them."""
        from blueque.producer.abandoned_runs import Leftovers

        return Leftovers(self._redis)

    def get_feeding(self, job: Job, tell: Tell | None = None) -> Feeding:
        """Return what feeds a backlog; for a client without patience. `blueque.feed` is easier."""
        from blueque.backlog.job import Feeding

        return Feeding(self._redis, job, units.timing(), tell)

    def get_feeds(self, queue_name: str) -> list[dict[str, str]]:
        """Return the records of all feeds of a queue, as in docs/protocol/feeds.md, "Feeds", those
        that are open last.
        """
        from blueque.queries import feeds

        return feeds.load_all(self._redis, require_queue_name(queue_name))

    def forget_feed(self, queue_name: str, name: str) -> bool:
        """Remove the record of a feed, so that it begins anew; False: there is none.

        Source: docs/protocol/feeds.md, "forget_feed".
        """
        from blueque import protocol

        return protocol.forget_feed(
            self._redis, require_queue_name(queue_name), require_feed_name(name)
        )

    def forget_queue(self, name: str) -> dict[str, int]:
        """Remove all that there is of a queue that has no task, listener, run, feed or batch;
        settings and numbers, too.

        Returns how many of each it has, by kind; none at all: it is gone.
        Source: docs/protocol/operator.md, "forget_queue".
        """
        from blueque import protocol

        return protocol.forget_queue(self._redis, require_queue_name(name), time.time())

    def get_log(self, task_id: str) -> tuple[list[LogLine], Place]:
        """Return the lines that Redis has of what a task has printed, in order, and the place
        behind them.

        Redis has the first 64 KB of its last attempt, and the last 1,000 lines: numbers tell where
        some are missing.
        """
        from blueque.queries import task_log

        return task_log.load(self._redis, task_id)

    def follow_logs(self, places: Sequence[Place]) -> News:
        """Return what has come behind these places, and how each task stands."""
        from blueque.queries import task_log

        return task_log.follow(self._redis, places)

    def get_history(self, task_id: str) -> History | None:
        """Return what has happened to a task, the oldest event first; None: there is no such task.

        Its first 20 events and its last 80 are kept. Listeners of 1.0.0 record none.
        Source: docs/protocol.md, "Events".
        """
        from blueque.queries import history

        return history.load(self._redis, task_id)

    def get_event_places(self, *queue_names: str) -> dict[str, str]:
        """Return where the events of these queues end now, to go on behind: see `events`."""
        from blueque.queries import history

        return history.last_places(self._redis, [require_queue_name(name) for name in queue_names])

    def events(self, *queue_names: str, after: Mapping[str, str] | None = None) -> Iterator[Event]:
        """Yield what happens in these queues from now on, as it happens; it never ends by itself.

        after: where to begin instead, by the name of the queue: what `get_event_places` has
        returned, or the `place` of the last event that was seen. A queue keeps about 10,000 events;
        what is older is gone. That a task is enqueued, or due, is none. Raises RedisAway when Redis
        does not answer for longer than `patience`; to miss nothing, go on with `after`.
        """
        from blueque.queries import history

        redis = self._redis.another()
        try:
            known = {name: place for name, place in (after or {}).items() if name in queue_names}
            others = [require_queue_name(name) for name in queue_names if name not in known]
            places = known | (history.last_places(redis, others) if others else {})
            while places:
                for event in history.follow(redis, places):
                    places[event.queue or ""] = event.place or ""
                    yield event
        finally:
            redis.close()

    def get_timeline(self, queue_names: Sequence[str], seconds: float) -> Timeline:
        """Return what ran in these queues in the last so many seconds, and what runs now, a
        thousand tasks at most.

        A queue keeps about 10,000 events, three or four for each run. Source: docs/protocol.md,
        "Events".
        """
        from blueque.queries import timeline

        return timeline.load(
            self._redis, [require_queue_name(name) for name in queue_names], seconds
        )

    def get_statistics(self, queue_name: str, days: int = 7) -> Statistics:
        """Return how many tasks of a queue waited, ran and failed within so many days, today
        included, and for how long.

        days: in UTC, by the clock of Redis, 1 to 3,660; of those longer ago than they are kept,
        nothing is known. Counts, means and deviations are exact, quantiles right to the width of a
        bucket: see `blueque.queries.statistics`.
        Source: docs/protocol.md, "Events".
        """
        return self.get_inspector().statistics([require_queue_name(queue_name)], days)[0]

    def get_metrics(self, max_queues: int = 500) -> list[Family]:
        """Return what Prometheus is told of all queues, see docs/monitoring.md, "Metrics".

        max_queues: of more the numbers are told together.
        """
        from blueque.metrics import collect

        return collect.collect(self._redis, max_queues)

    def get_listeners(self) -> Listeners:
        """Return what finds the listeners of all queues, wherever they are, and gives them orders."""
        from blueque.listener.orders import Listeners

        return Listeners(self._redis)

    def get_processor(self, task: Task) -> Processor:
        """Return what records the start and the end of a reserved task."""
        from blueque.listener.processor import Processor

        return Processor(self._redis, task, self.max_bytes)

    def get_inspector(self) -> Inspector:
        """Return what looks at Redis and changes nothing."""
        return Inspector(self._redis)

    def get_recoveries(self, queue_names: Sequence[str]) -> Recoveries:
        """Return the same for several queues."""
        from blueque.recovery.judges import Recoveries

        return Recoveries(self._redis, [require_queue_name(name) for name in queue_names])

    def get_retention(self, rules: Mapping[str, Mapping[str, units.Keep]]) -> Retention:
        """Return what deletes finished tasks that have stayed long enough, by rules for each queue
        and each status.
        """
        from blueque.recovery.retention import Retention

        return Retention(self._redis, rules)

    def retention_rules(self, queue_names: Iterable[str]) -> dict[str, dict[str, units.Keep]]:
        """Return such rules for these queues: what our blueque.toml says, and the defaults."""
        return {name: self._config.retention_of(name) for name in queue_names}

    def get_recovery(self, queue_name: str) -> Recovery:
        """Return a judge of the queue's listeners, who sees to what the dead have left; for a
        client without patience.
        """
        from blueque.recovery.judge import Recovery

        return Recovery(self._redis, require_queue_name(queue_name))

    def get_doctor(self) -> Doctor:
        """Return what checks everything in Redis, and repairs."""
        from blueque.audit.doctor import Doctor

        return Doctor(self._redis)

    def freeze(
        self, queues: str | Iterable[str], statuses: str | Iterable[str], keep: float = 3600
    ) -> Snapshot:
        """Take a snapshot: which tasks of one queue, or of several, have these statuses, all at
        this instant.

        keep: how many seconds Redis holds it. Read it with `read`, one slice after the other or
            anywhere at once.
        Source: docs/protocol/archive.md, "freeze".
        """
        from blueque import protocol
        from blueque.model.snapshot import Snapshot, require_keep, require_queues, require_statuses

        names = require_queues(queues)
        wanted = require_statuses(statuses)
        seconds = require_keep(keep)
        name, now = os.urandom(8).hex(), time.time()
        parts = protocol.freeze(self._redis, name, names, wanted, seconds, now)
        parts.sort(key=lambda part: (names.index(part.queue), wanted.index(part.listed_as)))
        return Snapshot(name, now, seconds, tuple(parts))

    def tasks_of(self, snapshot: Snapshot) -> Iterator[Task]:
        """Yield the tasks of a snapshot that are still there, as they are when they are read,
        oldest first in each part.

        Never more of them are held than a few MiB. Raises SnapshotGone.
        """
        from blueque.tables import snapshot_reader

        return snapshot_reader.tasks(self._redis, snapshot)

    def purge(self, snapshot: Snapshot) -> Iterator[int]:
        """Delete those tasks of a snapshot that still are in a state by which they were found,
        other than reserved and started; yield how many are gone so far. Raises SnapshotGone.
        Source: docs/protocol/operator.md, "purge"; docs/protocol/archive.md, "prune".
        """
        from blueque.recovery.purge import purge

        return purge(self._redis, snapshot)

    def thaw(self, snapshot: Snapshot) -> bool:
        """Remove a snapshot before its time; False: it was gone already."""
        from blueque import protocol

        return protocol.thaw(
            self._redis, snapshot.name, [part.key for part in snapshot.parts if part.key]
        )

    def read(
        self,
        piece: Slice,
        fields: Sequence[str] | None = None,
        missing: Literal["drop", "null"] = "drop",
    ) -> Iterator[pyarrow.RecordBatch]:
        """Yield the tasks of a slice of a snapshot as record batches; see
        `blueque.tables.reader.read`.
        """
        from blueque.tables.reader import read

        return read(self._redis, piece, fields, missing)

    def with_patience(self, seconds: float) -> Client:
        """Return a client of the same Redis that tries for so long when it does not answer."""
        other = copy.copy(self)
        other._redis = Redis(other._connect, seconds)
        other._redis.days_kept = self._redis.days_kept
        other._redis.wrong_types = self._redis.wrong_types
        return other

    def read_wrong_types_as_empty(self, found: WrongTypes) -> None:
        """Have looks take a key of a wrong type for empty, and note it in `found`; changes refuse
        it as before.
        """
        self._redis.wrong_types = found

    def require_rights_of_listener(self, queues: Iterable[str]) -> None:
        """Raise RedisRefused, which names them, if this user lacks rights that a listener of these
        queues needs.
        """
        from blueque.protocol import permissions

        permissions.require_rights(self._redis, permissions.LISTENER, queues)

    def require_rights_of_scheduler(self) -> None:
        """Raise RedisRefused, which names them, if this user lacks rights that a scheduler needs."""
        from blueque.protocol import permissions

        permissions.require_rights(self._redis, permissions.SCHEDULER, ["q"])

    def wait_with(self, has_answer: Callable[[Connection], bool]) -> None:
        """Have a function wait for each answer of Redis in place of a blocking read; it may give up
        by returning False.
        """
        self._redis.has_answer = has_answer

    def get_lookout(self) -> Lookout:
        """Return what sees changes of all queues at once; it has a connection of its own."""
        from blueque.queries.queue_changes import Lookout

        return Lookout(self._connect)

    def close(self) -> None:
        """Close this thread's connection; the next call opens another."""
        self._redis.close()

    def _connect(self) -> Connection:
        if self._address is not None and self._address.is_plain and not self._options:
            return SocketConnection(self._address)
        if self._client is None:
            import redis  # here, not above: most users never need its 125 ms

            try:
                self._client = redis.Redis.from_url(self._url, **self._options)
            except (TypeError, ValueError) as error:
                raise InvalidInput(
                    f"{hide_password(self._url)!r} is not an address for redis-py: {error}"
                ) from None
        return ClientConnection(self._client)
