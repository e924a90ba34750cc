"""Dependents: tells those who wait for tasks that have ended, whatever is in the way of some."""

from __future__ import annotations

import time

import pytest
from dependent import NODE, start
from transactions import protocol

from blueque.errors import RedisRefused
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End
from blueque.recovery import dependents
from blueque.recovery.dependents import ENDS_AT_ONCE, Dependents
from blueque.scheduler import Scheduler


@pytest.fixture
def impatient(monkeypatch):
    """Ends are found at once, not only after some seconds."""
    monkeypatch.setattr(dependents, "GRACE", 0.0)
    monkeypatch.setattr("blueque.scheduler.unsettled_ends.GRACE", 0.0)


@pytest.fixture
def scheduler(client):
    scheduler = Scheduler(client)
    yield scheduler
    scheduler.close()


def statuses(client, tasks):
    return {client.get_task(task).status for task in tasks}


def fail(redis, task, queue):
    """Have the task fail, and tell none of those that wait for it, as a listener that dies then."""
    start(redis, task, queue.name)
    attempt = AttemptRef(queue.name, task, f"secret-{task}", NODE)
    protocol.end(redis, attempt, End.fail("why"), time.time())


def spoil(cli, task):
    """Give a key of the task a wrong type."""
    cli.delete(keys.conditions(task))
    cli.set(keys.conditions(task), "spoiled")


def test_an_end_that_redis_has_no_memory_to_settle_is_settled_as_soon_as_it_has(
    client, queue, redis, cli
):
    parent = queue.enqueue("parent")
    child = queue.enqueue("child", after=[parent], broken="cancel")
    fail(redis, parent, queue)
    found = Dependents(redis)
    found.note([parent])
    cli.config_set("maxmemory", 1)
    try:
        with pytest.raises(RedisRefused, match="OOM"):
            found.step()
    finally:
        cli.config_set("maxmemory", 0)

    assert found.has_work
    while found.step():
        pass
    assert statuses(client, [child]) == {"cancelled"}


def test_a_child_with_a_key_of_a_wrong_type_costs_only_its_own_parent(
    client, queue, redis, impatient, scheduler, cli
):
    bad = [queue.enqueue(number) for number in range(ENDS_AT_ONCE + 5)]
    spoiled = [queue.enqueue("spoiled", after=[parent], broken="cancel") for parent in bad]
    good = queue.enqueue("good")
    child = queue.enqueue("child", after=[good], broken="cancel")
    for task in spoiled:
        spoil(cli, task)
    for parent in [*bad, good]:
        fail(redis, parent, queue)
    assert statuses(client, [child]) == {"blocked"}
    until_settled = time.monotonic() + 20
    while client.get_task(child).status == "blocked":
        scheduler.step()
        assert time.monotonic() < until_settled
    assert statuses(client, spoiled) == {"blocked"}


def test_a_child_with_a_key_of_a_wrong_type_keeps_none_of_the_others_waiting(
    client, queue, redis, cli
):
    parent = queue.enqueue("parent")
    children = [queue.enqueue("child", after=[parent], broken="cancel") for _ in range(150)]
    spoil(cli, children[0])
    fail(redis, parent, queue)
    found = Dependents(redis)
    found.note([parent])
    while found.step():
        pass
    assert statuses(client, children[1:]) == {"cancelled"}
    assert statuses(client, children[:1]) == {"blocked"}


def test_a_task_that_was_left_alone_is_tried_again_after_a_while(
    client, queue, redis, cli, impatient, monkeypatch
):
    parent = queue.enqueue("parent")
    child = queue.enqueue("child", after=[parent], broken="cancel")
    cli.rename(keys.conditions(child), "kept")
    cli.set(keys.conditions(child), "spoiled")
    queue.cancel(parent)
    found = Dependents(redis)
    found.look()
    found.step()
    cli.rename("kept", keys.conditions(child))
    found.look()
    assert not found.has_work
    found._refused.forget()  # as a minute later
    found.look()
    found.step()
    assert client.get_task(child).status == "cancelled"


def test_a_blocked_task_with_a_key_of_a_wrong_type_does_not_keep_others_from_being_compared(
    client, queue, cli, scheduler
):
    parent = queue.enqueue("parent")
    spoiled, child = (queue.enqueue("child", after=[parent]) for _ in range(2))
    spoil(cli, spoiled)
    # As 1.0.0 does, which tells no one.
    cli.hset(keys.task(parent), mapping={"status": "complete"})
    cli.zadd(keys.blocked(queue.name), {spoiled: 1.0, child: 2.0})
    assert scheduler.step() > 0.0
    assert client.get_task(child).status == "pending"
    assert client.get_task(spoiled).status == "blocked"


def test_an_end_is_left_to_its_own_listener_for_some_seconds(queue, redis, cli):
    parent, found = queue.enqueue("parent"), Dependents(redis)
    queue.enqueue("child", after=[parent])
    fail(redis, parent, queue)

    assert not found.look() and not found.has_work
    cli.zincrby(keys.UNSETTLED_TASKS, -2 * dependents.GRACE, parent)
    assert not found.look() and found.has_work
