"""What the actors of one run share: the queue, what they know of each other and note down; and the
beginnings of runs.
"""

from __future__ import annotations

import json
import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

from oracle import Ledger
from reaching_in import name_listener
from transactions import protocol

from blueque.connection.redis import Redis
from blueque.errors import RedisAway
from blueque.listener.listener import Listener
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.group import group_of
from blueque.model.new_task import NewTask
from blueque.model.task import Task
from blueque.model.units import Timing
from blueque.producer import firing, workflow_writer
from blueque.producer.queue import Queue
from blueque.protocol import settling
from blueque.recovery import judge as recovery_module
from blueque.system import process

QUEUE = "q"
ANOTHER = "r"  # a queue that has no listeners
LAST = "last_1"  # the node of whoever comes when all is over
MAX_BYTES = 1000

ENDED = ("complete", "failed", "cancelled")
_WANTED = {"ok": {"complete"}, "any": {*ENDED}, "not_ok": {"failed", "cancelled"}}
T = TypeVar("T")


@dataclass
class World:
    """One run: what its actors know of each other, and what they note down.

    given: what the scenario's setup has left, such as the instance of each listener.
    """

    redis: Redis  # not stepped, for setup and afterwards
    given: dict[str, Any]
    ledger: Ledger = field(default_factory=Ledger)
    dead: set[str] = field(default_factory=set)  # nodes whose process is gone, or seems so to 1.0.0
    alive: Sequence[str] = ()  # the actors that have come to their end

    def note_wait(self, task: str, kinds: dict[str, str]) -> None:
        self.given["kinds"] = {**self.given.get("kinds", {}), task: kinds}

    def check_wait(self, task: str) -> None:
        """Note a task that begins now, and should still wait for another."""
        for parent, kind in self.given.get("kinds", {}).get(task, {}).items():
            group = group_of(parent)
            is_over = (
                self._has_ended(parent, _WANTED[kind])
                if group is None
                else self._has_group_ended(group, kind)
            )
            if not is_over:
                self.ledger.early.append(task)

    def _has_group_ended(self, group: str, kind: str) -> bool:
        members, state = self.redis.read(
            ("ZRANGE", keys.members(group), 0, -1), ("HGET", keys.group(group), "state")
        )
        each = _WANTED["ok" if kind == "ok" else "any"]
        is_as_wanted = kind != "not_ok" or any(
            self._has_ended(task, _WANTED["not_ok"]) for task in members
        )
        return (
            state != "open" and is_as_wanted and all(self._has_ended(one, each) for one in members)
        )

    def _has_ended(self, task: str, wanted: set[str]) -> bool:
        """Tell whether a task has ever ended in one of these ways, or is gone."""
        status, texts = self.redis.read(
            ("HGET", keys.task(task), "status"), ("LRANGE", keys.history(task), 0, -1)
        )
        ended = {json.loads(text)["event"] for text in texts} & {*ENDED} | {status}
        return status is None or bool(ended & wanted)

    def queue(self, redis: Redis | None = None) -> Queue:
        """Return the queue, which a producer takes to have no bound: that read leads to no change."""
        redis = redis or self.redis
        redis.unbounded_until[QUEUE] = math.inf
        return Queue(redis, QUEUE, MAX_BYTES)

    def listener(self, redis: Redis, node: str, is_sure: bool = True) -> Listener:
        """Return the listener that the setup has registered.

        is_sure: it has looked through its own list already.
        """
        listener = Listener(redis, [QUEUE])
        ours = listener.of(QUEUE)
        name_listener(ours, node)
        ours.instance, ours.is_list_unsure = self.given.get(node), not is_sure
        return listener


# gone: instances that are dead for certain; now: the time; ahead: by how many seconds the clock of
# its host is; chance: draws its ids
to_this_actor = threading.local()


@contextmanager
def process_table() -> Iterator[None]:
    """Have every actor be a process of its own, with its own clock, although they are all threads
    of this one.

    Each draws the same ids in every run: only so do two runs that come to the same look alike at
        their ends.
    """
    clock = SimpleNamespace(
        time=time.time,
        strftime=time.strftime,
        gmtime=time.gmtime,
        monotonic=lambda: getattr(to_this_actor, "now", 0.0),
    )
    wall = SimpleNamespace(
        time=lambda: time.time() + getattr(to_this_actor, "ahead", 0.0), monotonic=time.monotonic
    )
    urandom = os.urandom

    def drawn(count: int) -> bytes:
        chance = getattr(to_this_actor, "chance", None)
        return urandom(count) if chance is None else chance.randbytes(count)

    with (
        mock.patch.object(os, "urandom", drawn),
        mock.patch.object(
            process,
            "shares_pids",
            lambda known: known.get("instance") in getattr(to_this_actor, "gone", ()),
        ),
        mock.patch.object(recovery_module, "time", clock),
        mock.patch.object(firing, "time", wall),
        # Three dependents are more than one transaction tells; else it would take a hundred.
        mock.patch.object(settling, "DEPENDENTS_AT_ONCE", 2),
        # And two tasks are more than one transaction makes of a workflow.
        mock.patch.object(workflow_writer, "MOST_TASKS", 2),
    ):
        yield


def draw_as(name: str) -> None:
    """Have this thread draw the ids of the actor with this name from here on."""
    to_this_actor.chance = random.Random(name)


def insist(action: Callable[[], T]) -> T:
    """Call until Redis does it, as a listener does."""
    while True:
        try:
            return action()
        except RedisAway:
            continue


# Beginnings


def put_in_line(world: World, *tasks: str, parameters: str = "ok", **fields: Any) -> None:
    """Enqueue some tasks in the setup; the first is the first to be taken."""
    for task in tasks:
        protocol.enqueue(world.redis, QUEUE, task, parameters, time.time(), fields)


def make_wait(
    world: World,
    redis: Redis,
    task: str,
    kinds: dict[str, str],
    parameters: str = "ok",
    **options: Any,
) -> None:
    """Make a task that waits for others. kinds: of its conditions, by task."""
    world.note_wait(task, kinds)
    new = NewTask(task, QUEUE, parameters, options, kinds)
    protocol.enqueue_after(redis, [new], time.time())


def take_one(world: World, node: str) -> Task:
    """Have a listener reserve a task in the setup."""
    task = world.listener(world.redis, node).take()
    assert task is not None
    return task


def start_one(world: World, node: str) -> Task:
    """Have a listener start a task in the setup, whose code runs to its end before anybody else
    moves.
    """
    task = take_one(world, node)
    protocol.start(world.redis, AttemptRef(QUEUE, task.id, task.token, node), 11, time.time())
    world.given["task"] = task
    return task


def join(world: World, *nodes: str) -> None:
    """Register listeners in the setup, and remember their instances."""
    for node in nodes:
        listener = world.listener(world.redis, node)
        listener.register(Timing())
        world.given[node] = listener.of(QUEUE).instance
