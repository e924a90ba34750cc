"""Launcher: has a process ready for an attempt, and lets it begin once its start is recorded."""

from __future__ import annotations

import logging
import os
import time

from blueque.client import Client
from blueque.errors import RedisRefused
from blueque.listener.group import ListenerGroup
from blueque.listener.resources import Claim, Pool, environment
from blueque.model.limits import of
from blueque.model.task import Task
from blueque.node import checkpoint_sync
from blueque.node.control import Order, OrderCame, Orders
from blueque.node.options import Defaults
from blueque.node.prefork import Spare, Spares
from blueque.node.waiting import Waiting
from blueque.spool.attempt import Attempt
from blueque.spool.spool import Spool
from blueque.system import hosts
from blueque.system.outage import Trouble
from blueque.task_process.handshake import Word, announce, open_gate

log = logging.getLogger("blueque")

LOOK_FOR_ROOM = 2.0  # seconds between two looks at a full disk or process table


class Launcher:
    """What a slot needs between the task that it has reserved and the process that runs it.

    spool_trouble: says once that there is no room, and once that there is.
    """

    def __init__(
        self,
        client: Client,
        listeners: ListenerGroup,
        spool: Spool,
        spares: Spares,
        pool: Pool | None,
        defaults: Defaults,
        orders: Orders,
        waiting: Waiting,
        spool_trouble: Trouble,
    ) -> None:
        self._client = client
        self._listeners = listeners
        self._spool = spool
        self._spares = spares
        self._pool = pool
        self._defaults = defaults
        self._orders = orders
        self._waiting = waiting
        self._spool_trouble = spool_trouble
        self._claim: Claim | None = None  # of our task

    def prepare(self, task: Task) -> tuple[Attempt, Spare]:
        """Make the spool directory and have a process wait; try again while the disk or the process
        table is full.
        """
        listener = self._listeners.of(task.queue)
        self._claim, listener.claim = listener.claim, None
        attempt: Attempt | None = None
        spare: Spare | None = None
        kept = self._checkpoint_of(task)
        while True:
            try:
                spare = spare or self._spares.take()
                attempt = attempt or self._spool.create(
                    task.id, task.attempt or 1, task.fields, spare.pid
                )
                if kept is not None:
                    checkpoint_sync.carry(self._spool, task, attempt, kept, self._client.max_bytes)
                attempt.open(self._spool.open_path, spare.pid, int(spare.identity["pid_start"]))
            except OSError as error:
                self._spool_trouble.tell(f"cannot run a task: {error}", f"holding task {task.id}")
                if self._orders.now is not Order.WORK:
                    raise OrderCame from error
                self._waiting.wait(LOOK_FOR_ROOM)
                if attempt is not None and not os.path.exists(attempt.path):
                    attempt = None  # the spool has been removed under our hands
                self._spool.want_of_room()  # makes it again
            else:
                self._spool_trouble.tell(None)
                self._announce(
                    spare, attempt, of(task.fields, self._defaults.of(task.queue).limits).time
                )
                return attempt, spare

    def start(self, task: Task, spare: Spare, attempt: Attempt) -> Task:
        """Record the start, open the gate, return the started task.

        Raises NotOwner, OrderCame: the gate stays closed. With OrderCame the start may have been
            recorded.
        """
        facts = {**spare.identity, "files": f"{hosts.host_name()}:{attempt.path}"}
        if self._claim is not None and self._claim.numbers:
            facts["devices"] = self._claim.devices()
        processor = self._client.get_processor(task)
        try:
            self._waiting.retry_until_order(lambda: processor.start(spare.pid, facts))
            open_gate(spare.gate)
        except BrokenPipeError:  # killed at its gate: its end says how
            pass
        finally:
            os.close(spare.gate)
        news = {"status": "started", "pid": spare.pid, "started": time.time(), **facts}
        return Task(task.id, {**task.fields, **{name: str(value) for name, value in news.items()}})

    def let_go(self) -> bool:
        """Let go of what was set aside for the task; False: there was nothing."""
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.close()
        return claim is not None

    def _announce(self, spare: Spare, attempt: Attempt, time_limit: float | None) -> None:
        """Have the process get ready for the attempt, and hold what was set aside for it, while we
        record the start.
        """
        granted = self._claim.granted() if self._claim is not None else {}
        environ = environment(self._pool.totals, granted) if self._pool is not None else {}
        held = self._claim.filenos() if self._claim is not None else []
        try:
            announce(spare.gate, Word(attempt.path, granted, environ, time_limit), held)
        except BrokenPipeError:  # killed at its gate, which we shall see when we open it
            pass

    def _checkpoint_of(self, task: Task) -> dict[str, str] | None:
        """Return what Redis has of where the attempt is to go on; None: it is the first. Raises
        OrderCame.
        """
        if (task.attempt or 1) == 1:
            return None

        def look() -> dict[str, str]:
            try:
                return self._client.get_inspector().checkpoint(task.id)
            except RedisRefused as error:
                if error.code != "WRONGTYPE":
                    raise
                # another program has written there
                log.error("checkpoint task=%s: %s", task.id, error)
                return {}

        return self._waiting.retry_until_order(look)
