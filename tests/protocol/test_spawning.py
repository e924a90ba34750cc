"""blueque.protocol.spawning against a real Redis."""

from __future__ import annotations

import pytest
from faults import Fault
from transactions import protocol

from blueque import Client
from blueque.errors import InvalidInput, WrongGroup
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.new import spawned_id
from blueque.model.new_task import NewTask
from blueque.protocol.ends import End

NODE, OTHER = "host_1", "host_2"
Q = "film"
ATTEMPT = AttemptRef(Q, "t1", "token", NODE)
A, B, C = (spawned_id("t1", key) for key in "abc")


@pytest.fixture(autouse=True)
def running(redis):
    """The task t1, which a listener runs."""
    run(redis, "t1")


def run(redis, task, node=NODE, token="token"):
    protocol.register(redis, Q, node, "i1", {}, now=1.5)
    protocol.enqueue(redis, Q, task, "in", now=5.5)
    return start(redis, task, node, token)


def start(redis, task, node=NODE, token="token"):
    attempt = AttemptRef(Q, task, token, node)
    assert protocol.pop(redis, Q, node, "i1").task == task
    protocol.reserve(redis, attempt, "i1", 6.5)
    protocol.start(redis, attempt, 77, 7.5)
    return attempt


def new(key, queue="parts", after=(), eta=None, **options):
    conditions = after if isinstance(after, dict) else dict.fromkeys(after, "ok")
    fields = {**options, "spawned_by": "t1"}
    return NewTask(spawned_id("t1", key), queue, f"do {key}", fields, conditions, eta)


def spawn(redis, *tasks, attempt=ATTEMPT):
    return protocol.spawn(redis, attempt, tasks, 9.5)


def complete_then(redis, *tasks, attempt=ATTEMPT, now=9.5, **more):
    return protocol.end(redis, attempt, End.complete("out", then=tasks, **more), now).is_awaited


def status_of(cli, task):
    return cli.hget(f"blueque_task_{task}", "status")


def in_line(cli, queue="parts"):
    return cli.lrange(f"blueque_pending_tasks_{queue}", 0, -1)


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER])
def test_a_lost_answer_makes_nothing_twice(proxy, cli, fault):
    client = Client(proxy.url, patience=2.0)
    proxy.arm(fault, having=b"EXEC\r\n")

    spawn(client.connections, new("a"), new("b"))

    assert proxy.has_struck and in_line(cli) == [B, A]
    client.close()


@pytest.mark.parametrize("at_the_end", [False, True])
def test_no_new_task_waits_for_itself_or_for_one_that_comes_after_it(redis, state, at_the_end):
    before, call = state(), complete_then if at_the_end else spawn

    for tasks in ([new("a", after=[A])], [new("a", after=[B]), new("b", after=[A])]):
        with pytest.raises(InvalidInput, match="only wait for one that comes before it"):
            call(redis, *tasks)
    assert state() == before


def join(redis, cli, group="night"):
    """Have t1 be a member of a group that is closed."""
    protocol.open_group(redis, group, 60, 8.5)
    redis.read(("HSET", keys.task("t1"), "group", group))
    redis.read(("SADD", keys.open_members(group), "t1"), ("ZADD", keys.members(group), 1, "t1"))
    protocol.close_group(redis, group, 8.6)


def test_no_circle_comes_to_be_through_the_group_of_a_running_member(redis, cli, state):
    join(redis, cli)
    spawn(redis, new("c", after=["group night"]))
    before = state()

    with pytest.raises(WrongGroup, match="tasks wait for it already"):
        spawn(redis, new("a", group="night", after=[C]))
    with pytest.raises(WrongGroup, match="cannot wait for it"):
        spawn(redis, new("a", group="night", after=["group night"]))
    assert state() == before
    assert spawn(redis, new("a", group="night")) == [True]


def test_a_group_that_is_cancelled_meanwhile_takes_no_task(redis, other, cli, overtaken):
    join(redis, cli)
    overtaken(lambda: protocol.cancel_group(other, "night", "ann", None, 8.7))

    with pytest.raises(WrongGroup):
        spawn(redis, new("a", group="night"))
    assert not cli.exists(f"blueque_task_{A}")


# With the end of the task


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER])
def test_a_lost_answer_to_the_end_makes_nothing_twice(proxy, cli, fault):
    client = Client(proxy.url, patience=2.0)
    proxy.arm(fault, having=b"EXEC\r\n")

    complete_then(client.connections, new("a"), new("b"))

    assert proxy.has_struck and in_line(cli) == [B, A] and status_of(cli, "t1") == "complete"
    client.close()
