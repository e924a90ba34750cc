"""What the page reads from Redis: each read is made once for all viewers that ask at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from blueque.client import Client
from blueque.errors import NoSuchTask, RedisAway
from blueque.faces.overview import with_names
from blueque.model.task import Task
from blueque.queries import timeline
from blueque.queries.inspector import Inspector
from blueque.queries.listeners import Node
from blueque.queries.overview import Overview
from blueque.queries.queue_looks import complete_only
from blueque.queries.queues import counts
from blueque.queries.statistics import Statistics
from blueque.queries.steps import of_each, read
from blueque.queries.timeline import Timeline
from blueque.web import own_queues
from blueque.web.scan import Scan
from blueque.web.site import Site

T = TypeVar("T")

FRESH = 1.0  # seconds for which a look is used again
SHARE = 10  # and so many times as long as it took
MOST_LOOKS = 100  # that are kept, whatever viewers ask for
FORGOTTEN = 600.0  # seconds after which an unused look is dropped
MOST_NAMED = 100  # running tasks whose contents are read
MOST_QUEUES = 40  # whose events are read for one timeline
MOST_EVENTS = 40_000  # of them, the newest
MOST_STATISTICS = 250  # queues whose numbers are added up


@dataclass
class _Kept:
    """A read, until when it is used, and when it was last requested.

    failed: when Redis did not answer it, and with which error.
    """

    value: Any = None
    until: float = 0.0
    failed: tuple[float, str] = (float("-inf"), "")
    asked: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Reader:
    """Reads one Redis for all pages, in any thread, and changes nothing.

    All methods raise RedisAway or RedisRefused.
    """

    def __init__(self, client: Client, site: Site, clock: Callable[[], float] = time.monotonic):
        self.client = client
        self.site = site
        self.scan = Scan()
        self._clock = clock
        self._looks: dict[object, _Kept] = {}
        self._guard = threading.Lock()

    @property
    def inspector(self) -> Inspector:
        return self.client.get_inspector()

    def shared(self, name: object, look: Callable[[], T], fresh: float = FRESH) -> T:
        """Return the result of a read; one that is younger than `fresh` seconds is used again.

        The result of a slow read is used for longer, so that Redis is busy with it for at most a
        tenth of the time.
        """
        with self._guard:
            now = self._clock()
            for old in [key for key, one in self._looks.items() if now - one.asked > FORGOTTEN]:
                del self._looks[old]
            kept = self._looks.pop(name, None) or _Kept()
            kept.asked = now
            self._looks[name] = kept  # as the newest
            while len(self._looks) > MOST_LOOKS:
                del self._looks[next(iter(self._looks))]
        with kept.lock:
            if kept.failed[0] > now:  # while we waited for it
                raise RedisAway(kept.failed[1])
            began = self._clock()
            if began >= kept.until:
                kept.value = self._looked(kept, look)
                ended = self._clock()
                kept.until = ended + max(SHARE * (ended - began), fresh)
            value: T = kept.value
            return value

    def _looked(self, kept: _Kept, look: Callable[[], T]) -> T:
        try:
            return look()
        except RedisAway as error:
            kept.failed = self._clock(), str(error)
            raise

    def forget(self) -> None:
        """Read again at the next call, because something was changed here."""
        with self._guard:
            self._looks.clear()

    def overview(self, queue: str | None = None) -> Overview:
        """Return queues, running tasks, listeners and feeds, with the contents of the first tasks.

        queue: the only one to read.
        """

        def look() -> Overview:
            return with_names(self.inspector, self.overview_now(queue), MOST_NAMED)

        return self.shared(("overview", queue), look)

    def overview_now(self, queue: str | None = None) -> Overview:
        """Return what `overview` does, read now, without the contents of tasks."""
        only = None if queue is None else [queue]
        return own_queues.narrowed(self.inspector.overview(only), self.client, self.site)

    def queues(self) -> list[str]:
        """Return the names of the queues of this page, sorted."""
        return self.shared("queues", lambda: [*filter(self.site.has, self.inspector.queues())])

    def busy_queues(self) -> list[str]:
        """Return the names of the queues of this page; those with complete tasks only come last."""

        def look() -> list[str]:
            readers = {queue: complete_only(queue) for queue in self.queues()}
            found = read(self.client.connections, of_each(readers))
            return sorted(found, key=lambda queue: found[queue] is not None)

        return self.shared("busy", look)

    def nodes(self) -> list[Node]:
        """Return the listeners of the queues of this page, by queue and name."""

        def look() -> list[Node]:
            return [node for node in self.inspector.nodes() if self.site.has(node.queue)]

        return self.shared("nodes", look)

    def counts(self, queues: Sequence[str]) -> Mapping[str, int]:
        """Return how many tasks these queues have in each status."""
        names = tuple(queues)
        return self.shared(("counts", names), lambda: counts(self.client.connections, names))

    def task(self, task_id: str) -> Task:
        """Return a task. Raises NoSuchTask."""
        task = self.inspector.task(task_id)
        if task.status is None or not self.site.has(task.queue):
            raise NoSuchTask(task_id)
        return task

    def statistics(self, queues: Sequence[str], days: int) -> dict[str, Statistics]:
        """Return the numbers of these queues by name, at most ten seconds old."""
        names = tuple(queues)

        def look() -> dict[str, Statistics]:
            found = self.inspector.statistics(names, days)
            return dict(zip(names, found, strict=True))

        return self.shared(("statistics", names, days), look, fresh=10.0) if names else {}

    def timeline(self, queues: Sequence[str], seconds: float, most: int = MOST_EVENTS) -> Timeline:
        """Return what ran in these queues, at most ten seconds old. most: events that are read."""
        names = tuple(queues[:MOST_QUEUES])

        def look() -> Timeline:
            return timeline.load(self.client.connections, names, seconds, most)

        return self.shared(("timeline", names, seconds, most), look, fresh=10.0)
