"""What the actors of 1.0.0 do in the explorer's runs."""

from __future__ import annotations

import time

from actors import every_node
from legacy_logic import LegacyQueue, claim_orphan, end_task, run_task
from world import LAST, QUEUE, World

from blueque.connection.redis import Redis
from blueque.errors import RedisAway
from blueque.model import keys


def work(world: World, redis: Redis, node: str, *, is_stubborn: bool = False) -> None:
    """Be a listener of 1.0.0 until nothing is in line.

    is_stubborn: the program around it calls it again when it has raised.
    """
    queue = LegacyQueue(redis, QUEUE)
    while True:
        try:
            task_id = queue.dequeue(node, time.time())
        except RedisAway:
            if not is_stubborn:
                return
            continue
        if task_id is None:
            return
        _run(world, queue, task_id)


def _run(world: World, queue: LegacyQueue, task_id: str) -> None:
    def call() -> str:
        world.ledger.begin(task_id, None, "", {})
        return "by 1.0.0"

    try:
        task = queue.task(task_id)
        run_task(queue, task, task_id, 77, call, time.time())
    except RedisAway:  # its child has died; its parent does not look why
        pass


def promote(world: World, redis: Redis) -> None:
    """Be a scheduler of 1.0.0, once."""
    try:
        LegacyQueue(redis, QUEUE).enqueue_due_tasks(time.time())
    except RedisAway:
        pass


def end(world: World, redis: Redis, node: str, task_id: str) -> None:
    """Be the child of a listener of 1.0.0 whose task is about to end."""
    world.ledger.begin(task_id, None, "", {})
    try:
        end_task(
            LegacyQueue(redis, QUEUE), {"node": node}, task_id, 77, lambda: "by 1.0.0", time.time()
        )
    except RedisAway:
        pass


def run_claimed(world: World, redis: Redis, node: str, task_id: str) -> None:
    """Be a listener of 1.0.0 that has just struck off a dead one, and has seen its newest entry."""
    queue = LegacyQueue(redis, QUEUE)
    queue.claim(task_id, node)
    if queue.task(task_id).get("status") == "reserved":
        _run(world, queue, task_id)


def claim_orphans(world: World, redis: Redis, node: str) -> None:
    """Be a listener of 1.0.0 that starts: claim orphans, run those that are reserved."""
    queue = LegacyQueue(redis, QUEUE)
    while True:
        try:
            task_id = claim_orphan(queue, node, lambda other: other not in world.dead)
        except RedisAway:
            return
        if task_id is None:
            return
        if queue.task(task_id).get("status") == "reserved":
            _run(world, queue, task_id)


def drain(world: World) -> None:
    """Be the next listener of 1.0.0 on that host."""
    redis = world.redis
    world.dead |= every_node(redis)
    LegacyQueue(redis, QUEUE).add_listener(LAST)
    claim_orphans(world, redis, LAST)
    work(world, redis, LAST)
    LegacyQueue(redis, QUEUE).remove_listener(LAST)


def delete_failed(world: World, redis: Redis, task_id: str) -> None:
    """Be a person who deletes a failed task with 1.0.0, and then mends what that leaves."""
    redis.read(
        ("LREM", keys.failed(QUEUE), 0, task_id),
        ("DEL", keys.task(task_id), keys.history(task_id), keys.recent(task_id)),
        ("ZREM", keys.tasks(QUEUE), task_id),
    )
