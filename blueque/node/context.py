"""NodeContext: what the parts of one slot share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from blueque.client import Client
from blueque.listener.group import ListenerGroup
from blueque.listener.resources import Pool
from blueque.node.control import Orders, Pause
from blueque.node.options import Defaults
from blueque.spool.spool import Spool
from blueque.system.outage import Outage

NEW, READY, BUSY = range(3)  # what a slot is: not registered yet, without a task, with one


class Master(NamedTuple):
    """What a slot knows of the master that forked it.

    lifeline: a pipe that hangs up when the master dies; a slot without a master leaves after its
        task.
    requests: a pipe to the master; a number in it says how many attempts there are that we cannot
        adopt ourselves.
    adopts_only: reserve no task; adopt one attempt, if there is one, and leave when it has ended.
    pause: while there is one, reserve nothing.
    max_runtime: after how many seconds the master leaves.
    show: takes NEW, READY or BUSY, for the master to see.
    """

    pid: int
    lifeline: int
    requests: int
    adopts_only: bool = False
    pause: Pause | None = None
    max_runtime: float | None = None
    show: Callable[[int], object] | None = None


class NodeContext(NamedTuple):
    """One slot: its connection, its listeners, its limits, its files, and what it has been told.

    client: without patience. Retries are the slot's own, for it must hear signals meanwhile.
    pool: what the node has for tasks that need resources.
    master: None in a program of the user's own, whose other children are not ours.
    outage: of Redis, as the log tells it.
    """

    client: Client
    listeners: ListenerGroup
    defaults: Defaults
    spool: Spool
    pool: Pool | None
    master: Master | None
    orders: Orders
    outage: Outage

    @classmethod
    def of(
        cls,
        client: Client,
        listeners: ListenerGroup,
        spool: Spool,
        defaults: Defaults,
        pool: Pool | None = None,
        master: Master | None = None,
    ) -> NodeContext:
        """Make the context of a slot. client: without patience, as that of `listeners`."""
        for listener in listeners:
            listener.pool, listener.newest_attempts = pool, spool.newest
        orders = (
            Orders(None)
            if master is None
            else Orders(master.lifeline, master.pause, master.max_runtime)
        )
        outage = Outage("Redis answers again")
        return cls(client, listeners, defaults, spool, pool, master, orders, outage)
