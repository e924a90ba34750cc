"""Listener: what it says of itself, and what it does with attempts that others have begun. See also
test_objects.
"""

from __future__ import annotations

import os
import time
from decimal import Decimal
from fractions import Fraction

import numpy
import pytest
from transactions import protocol

from blueque import InvalidInput, NotOwner, NotRegistered, Retry, WaitTimedOut
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.units import Timing
from blueque.protocol.recover import Loss
from blueque.system import process
from blueque.system.process import host_name, node_id

OTHER = "far_7"
ELSEWHERE = {"pid_start": 5, "boot": "another-boot", "ns": "4026531836"}


@pytest.fixture
def listener(client):
    """One that is registered, as the listener program registers."""
    listener = client.get_listener("video")
    listener.register(Timing())
    return listener


@pytest.fixture
def dead(client, queue, redis, cli):
    """Let a listener die with one started task, and return the task."""

    def dead(pid=77, **options):
        protocol.register(redis, "video", OTHER, "i1", {"beat_every": 10, **ELSEWHERE}, time.time())
        task_id = queue.enqueue("in", **options)
        protocol.pop(redis, "video", OTHER, "i1")
        protocol.reserve(redis, AttemptRef("video", task_id, "token", OTHER), "i1", time.time())
        protocol.start(
            redis,
            AttemptRef("video", task_id, "token", OTHER),
            pid,
            time.time(),
            process.identity(os.getpid()),
        )
        assert protocol.fence(redis, "video", OTHER, "i1", "0", 9.25)
        return client.get_task(task_id)

    return dead


def registration(cli, node=None):
    return cli.hgetall(f"blueque_listener_video_{node or node_id()}")


def held(cli, node=None):
    return cli.lrange(f"blueque_reserved_tasks_video_{node or node_id()}", 0, -1)


# What it says of itself


def test_a_listener_that_was_declared_dead_learns_it_from_its_next_beat(listener, redis, cli):
    assert protocol.fence(redis, "video", listener.node, listener.of("video").instance, "0", 9.25)
    with pytest.raises(NotRegistered):
        listener.beat()
    listener.register(Timing())
    assert listener.beat().order is None and registration(cli)["state"] == "alive"


def test_a_name_that_another_may_have_is_not_taken_and_the_own_one_is_kept_from_then_on(
    client, redis, cli
):
    protocol.register(redis, "video", node_id(), "i1", {"beat_every": 10, **ELSEWHERE}, time.time())
    listener = client.get_listener("video")
    listener.register(Timing())
    name = listener.node
    assert name != node_id() and name.startswith(f"{host_name()}-")
    assert name.endswith(f"_{os.getpid()}")
    assert registration(cli)["instance"] == "i1"
    assert registration(cli, name)["instance"] == listener.of("video").instance
    protocol.fence(redis, "video", name, listener.of("video").instance, "0", 9.25)
    listener.register(Timing())
    assert listener.node == name and cli.zscore("blueque_queues", "video") == 2


# What a former life of it has left


def test_a_task_whose_reservation_redis_has_lost_is_put_back_for_another(
    queue, listener, redis, cli, caplog
):
    ours, task = listener.of("video"), queue.enqueue("in")
    protocol.pop(redis, "video", ours.node, ours.instance)
    cli.delete(keys.wake("video"))

    ours.put_back_lost(task)

    assert cli.lrange(keys.pending("video"), 0, -1) == [task]
    assert (held(cli), cli.exists(keys.wake("video"))) == ([], 1)
    assert f"put back task={task}" in caplog.text


def test_a_task_that_is_reserved_still_is_not_put_back(queue, listener, cli, caplog):
    task = queue.enqueue("in")
    listener.take()
    cli.delete(keys.wake("video"))

    listener.of("video").put_back_lost(task)

    assert (held(cli), cli.exists(keys.wake("video"))) == ([task], 0)
    assert "put back" not in caplog.text


def test_a_call_that_cannot_be_passed_on_stays_with_the_listener(listener, cli):
    ours = listener.of("video")
    ours.has_marker = True
    cli.set(keys.wake("video"), "spoiled")
    ours.pass_marker_on(True)
    assert ours.has_marker

    cli.delete(keys.wake("video"))
    ours.pass_marker_on(True)

    assert (ours.has_marker, cli.exists(keys.wake("video"))) == (False, 1)


# What the dead have left


def test_an_adopted_task_is_the_same_attempt_under_another_node(client, dead, listener, cli):
    task = dead()
    adopted = listener.of("video").adopt(task)
    assert adopted.fields == client.get_task(task.id).fields
    changed = {name for name in adopted.fields if adopted.fields[name] != task.fields.get(name)}
    assert changed == {"node", "updated", "events"} and adopted.node == listener.node
    assert held(cli) == [task.id] and held(cli, OTHER) == []
    assert cli.smembers("blueque_started_tasks_video") == {f"{listener.node} 77 {task.id}"}
    with pytest.raises(NotOwner):
        client.get_processor(task).complete("of the dead one")
    client.get_processor(adopted).complete("done")
    assert client.get_task(task.id).result == "done"


def test_of_two_that_adopt_a_task_the_first_has_it_and_the_other_is_told(
    client, url, dead, listener, redis, cli
):
    task = dead()
    protocol.register(redis, "video", "host_8", "i8", {"beat_every": 10}, time.time())
    protocol.adopt(redis, AttemptRef("video", task.id, "token", OTHER), "host_8", "i8", time.time())
    assert listener.of("video").adopt(task) is None
    assert held(cli) == [] and held(cli, "host_8") == [task.id]


def lose(redis, task):
    return protocol.lose(
        redis,
        AttemptRef("video", task.id, task.token, OTHER),
        "i1",
        Loss("lost: why"),
        None,
        time.time(),
    )


@pytest.mark.parametrize(("retry", "kind"), [(None, "lost"), (Retry(interruptions=0), "poison")])
def test_a_task_that_was_declared_lost_is_started_again_when_its_process_turns_up(
    client, dead, listener, redis, cli, retry, kind
):
    task = dead(retry=retry)
    assert lose(redis, task) == "failed" and client.get_task(task.id).error_type == kind
    restored = listener.of("video").restore(task, os.getpid(), 5.5)
    assert restored.fields == client.get_task(task.id).fields
    assert (restored.status, restored.node, restored.pid) == ("started", listener.node, os.getpid())
    assert (restored.started, restored.attempt, restored.token) == (5.5, 1, "token")
    assert (restored.error, restored.error_type, restored.lost_node) == (None, None, None)
    assert {name: restored.fields[name] for name in ("pid_start", "boot", "ns")} == {
        name: str(value) for name, value in process.identity(os.getpid()).items()
    }
    assert held(cli) == [task.id] and cli.lrange("blueque_failed_tasks_video", 0, -1) == []
    assert cli.smembers("blueque_started_tasks_video") == {
        f"{listener.node} {os.getpid()} {task.id}"
    }


def test_a_task_that_somebody_had_run_again_meanwhile_is_not_restored(
    client, queue, dead, listener, redis, state
):
    task = dead()
    lose(redis, task)
    queue.requeue(task.id)
    before = state()
    assert listener.of("video").restore(task, os.getpid(), 5.5) is None
    assert state() == before
    again = listener.take()
    processor = client.get_processor(again)
    processor.start(77)
    processor.lose("lost: why", listener.of("video").instance)
    assert client.get_task(task.id).error_type == "lost"
    before = state()
    assert listener.of("video").restore(task, os.getpid(), 5.5) is None
    assert state() == before


# Orders


def answered(connection):
    return connection.wait(10)


def test_an_order_wakes_a_busy_listener_and_work_does_not(queue, listener, redis, cli):
    queue.enqueue("in")
    listener.watch_orders(0.05, answered)
    assert not listener.has_order and cli.exists("blueque_wake_video")
    assert protocol.order(redis, "video", listener.node, "drain", "ann")
    listener.watch_orders(10, answered)
    assert listener.has_order and not cli.exists(f"blueque_orders_video_{listener.node}")


def test_what_1_0_0_has_left_of_an_end_is_not_there_after_a_reassertion(
    client, queue, cli, listener
):
    task_id = queue.enqueue("in")
    key, held_key = f"blueque_task_{task_id}", f"blueque_reserved_tasks_video_{listener.node}"
    cli.hset(key, "error", "old")
    before = cli.hgetall(key)
    processor = client.get_processor(listener.take())
    processor.start(77)
    cli.delete(key, held_key, "blueque_started_tasks_video")  # a failover, to an earlier state
    cli.hset(key, mapping=before)
    cli.lpush("blueque_pending_tasks_video", task_id)

    client.get_processor(listener.of("video").reassert(processor.task, 77)).complete("out")

    assert "error" not in cli.hgetall(key)


# listen with a timeout


def get(client, kind):
    return client.get_listener("video") if kind == "one" else client.get_listener("video", "audio")


@pytest.mark.parametrize("kind", ["one", "several"])
def test_listen_returns_none_when_no_task_has_come_in_time(client, kind):
    listener = get(client, kind)
    assert listener.listen(timeout=0) is None
    assert listener.listen(timeout=0.02) is None
    called = []
    assert listener.listen(called.append, timeout=0.02) is None and called == []
    task_id = client.get_queue("video").enqueue(1)
    task = listener.listen(called.append, timeout=0)
    assert task.id == task_id and called == [task]


@pytest.mark.parametrize(
    "timeout",
    [-1, float("nan"), "2", 1j, Decimal("0.1"), Decimal("NaN"), numpy.array([1, 2])],
    ids=str,
)
def test_a_timeout_that_makes_no_sense_is_refused(client, timeout):
    with pytest.raises(InvalidInput, match="it has to be a number of seconds, 0 or more"):
        client.get_listener("video").listen(timeout=timeout)


@pytest.mark.parametrize("timeout", [Fraction(1, 10), numpy.float32(0), numpy.int64(0)], ids=repr)
def test_a_timeout_may_be_a_real_number_of_another_type(client, queue, timeout):
    task_id = queue.enqueue(1)

    with pytest.raises(WaitTimedOut, match="not ended within 0"):
        client.wait(task_id, timeout=timeout)


def test_a_listener_of_a_program_reads_no_settings_with_its_beat(client, cli):
    listener = client.get_listener("video")
    listener.register(Timing())
    cli.config_resetstat()

    listener.beat()

    assert "cmdstat_hgetall" not in cli.info("commandstats")
