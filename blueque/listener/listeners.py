"""Listeners: finds the listeners of all queues on any host, and sends them orders."""

from __future__ import annotations

import logging
import time
from typing import Literal, NamedTuple

from blueque.connection.redis import Redis
from blueque.protocol import operator
from blueque.queries.inspector import Inspector
from blueque.queries.listeners import Node, find_named
from blueque.system import process

log = logging.getLogger("blueque")


class Told(NamedTuple):
    """The listeners that were given an order, and those that could not be.

    The latter are dead, or do not look for orders.
    """

    told: list[Node]
    not_told: list[Node]


class Listeners:
    """The listeners of all queues of one Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def find(self, name: str) -> list[Node]:
        """Return the listener with this node id, or those of this host; see `nodes.find_named`."""
        return find_named(Inspector(self._redis).nodes(), name)

    def drain(self, name: str, by: str | None = None) -> Told:
        """Tell a listener, or all of a host, to take no more tasks and exit after the present one.

        name: a node id or a host, as for `find`.
        by: who wants it. Default: this user and host.
        Source: docs/protocol/operator.md, "order".
        """
        return self._order(name, "drain", by)

    def pause(self, name: str, by: str | None = None) -> Told:
        """Tell a listener, or all of a host, to take no tasks until `resume`; running tasks continue.

        The listeners of one blueque-listener pause together.
        name, by: as for `drain`.
        Source: docs/protocol/operator.md, "order".
        """
        return self._order(name, "pause", by)

    def resume(self, name: str, by: str | None = None) -> Told:
        """Tell a listener, or all of a host, to take tasks again after `pause` or SIGUSR2.

        name, by: as for `drain`.
        Source: docs/protocol/operator.md, "order".
        """
        return self._order(name, "work", by)

    def _order(self, name: str, what: Literal["drain", "pause", "work"], by: str | None) -> Told:
        who = process.who_of(by)
        done = Told([], [])
        for node in self.find(name):
            # A listener that does not beat does not look for orders.
            is_told = node.state != "unattended" and operator.order(
                self._redis, node.queue, node.id, what, who, time.time()
            )
            (done.told if is_told else done.not_told).append(node)
            if is_told:
                log.info("order node=%s queue=%s what=%s by=%s", node.id, node.queue, what, who)
        return done
