"""NodeContext: what the parts of one slot share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from blueque.client import Client
from blueque.listener.listener import Listener
from blueque.listener.resources import Pool
from blueque.listener.time_left import TimeLeft
from blueque.node.control import Orders, Pause
from blueque.settings.in_effect import InEffect
from blueque.spool.spool import Spool
from blueque.system.outage import Outage

NEW, READY, BUSY = range(3)  # what a slot is: not registered yet, without a task, with one


class Master(NamedTuple):
    """What a slot knows of the master that forked it.

    lifeline: a pipe that closes when the master dies or becomes another program; the slot then
        exits after its task.
    requests: a pipe to the master. The slot writes how many attempts other listeners must adopt.
    pause: while it is set, reserve nothing.
    adopts_only: reserve no task; adopt one attempt, if there is one, and exit when it has ended.
    max_runtime: the master exits after this many seconds.
    ends: when it stops the running tasks for that, on the monotonic clock; None: it does not.
    show: tells the master that the slot is NEW, READY or BUSY.
    """

    pid: int
    lifeline: int
    requests: int
    pause: Pause
    adopts_only: bool = False
    max_runtime: float | None = None
    ends: float | None = None
    show: Callable[[int], object] = lambda _: None


class NodeContext(NamedTuple):
    """One slot: its connection, listener, limits, files, and orders.

    client: without patience. The slot repeats calls itself, so that it obeys signals meanwhile.
    pool: the resources of the node.
    outage: logs that Redis is away, and that it is back.
    """

    client: Client
    listener: Listener
    defaults: InEffect
    spool: Spool
    pool: Pool | None
    master: Master
    orders: Orders
    outage: Outage

    @classmethod
    def of(
        cls,
        client: Client,
        listener: Listener,
        spool: Spool,
        defaults: InEffect,
        pool: Pool | None,
        master: Master,
    ) -> NodeContext:
        """Create the context of a slot. client: without patience, as that of `listener`."""
        reserver = listener.reserver
        reserver.pool, reserver.newest_attempts = pool, spool.newest
        listener.obeys_settings = True
        if master.ends is not None:
            for ours in listener:
                ours.time_left = TimeLeft(master.ends, defaults.of(ours.queue).limits.time)
        orders = Orders(master.pid, master.lifeline, master.pause, master.max_runtime)
        outage = Outage("Redis answers again")
        return cls(client, listener, defaults, spool, pool, master, orders, outage)
