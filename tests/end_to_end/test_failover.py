"""A primary becomes a replica, and its address leads to the new primary: connections from before
must not stay with it.
"""

from __future__ import annotations

import contextlib
import threading
from contextlib import closing

import pytest
import redis as redis_py
from faults import FaultProxy
from running import until
from sentinels import replicated

from blueque import Client, RedisAway, RedisRefused
from blueque.protocol import reserving
from blueque.system.embedded_redis import Server

KINDS = [
    pytest.param(lambda proxy, **more: Client(proxy.url, **more), id="socket"),
    pytest.param(
        lambda proxy, **more: Client(redis=redis_py.Redis.from_url(proxy.url), **more),
        id="redis-py",
    ),
]


class Pair:
    """A primary and a replica behind one address."""

    def __init__(self, old: Server, new: Server) -> None:
        self.old, self.new = redis_py.Redis(port=old.port), redis_py.Redis(port=new.port)
        self._new_server = new
        self.proxy = FaultProxy(old.url)
        until(lambda: self.old.info("replication")["slave0"]["state"] == "online")

    def fail_over(self, is_led: bool = True) -> None:
        """Swap their roles as an operator does; is_led: the address leads to the new primary from
        now on.
        """
        self.old.wait(1, 20_000)  # then it need not wait for what the replica says each second
        self.old.execute_command(
            "FAILOVER", "TO", "127.0.0.1", self._new_server.port, "FORCE", "TIMEOUT", 10
        )
        until(lambda: self.new.info("replication")["role"] == "master")
        until(lambda: self.old.info("replication")["role"] == "slave")
        if is_led:
            self.lead_on()

    def lead_on(self) -> None:
        self.proxy.lead_to(self._new_server.url)

    def close(self) -> None:
        self.proxy.close()
        self.old.close()
        self.new.close()


@pytest.fixture
def pair():
    with replicated(1) as servers, closing(Pair(*servers)) as pair:
        yield pair


@pytest.fixture(params=KINDS)
def kind(request):
    """Make a client of either kind, which is closed at the end."""
    made = []

    def make(proxy, **more):
        made.append(request.param(proxy, **more))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.mark.parametrize("patience", [0, 5])
def test_a_change_goes_to_the_new_primary_once(pair, kind, patience):
    client = kind(pair.proxy, patience=patience)
    queue = client.get_queue("video")
    first = queue.enqueue("before")
    pair.fail_over()

    second = queue.enqueue("after")

    assert pair.new.lrange("blueque_pending_tasks_video", 0, -1) == [
        second.encode(),
        first.encode(),
    ]
    assert client.get_task(second).parameters == "after"


def test_a_change_whose_look_the_old_primary_answered_goes_to_the_new_one_once(
    pair, kind, overtaken
):
    client = kind(pair.proxy, patience=0)
    queue = client.get_queue("video")
    task_id = queue.enqueue("before")
    overtaken(pair.fail_over)

    queue.cancel(task_id)

    assert pair.new.llen("blueque_pending_tasks_video") == 0
    assert pair.new.lrange("blueque_cancelled_tasks_video", 0, -1) == [task_id.encode()]


def test_many_tasks_are_enqueued_once(pair, kind):
    client = kind(pair.proxy, patience=0)
    queue = client.get_queue("video")
    queue.enqueue("before")
    pair.fail_over()

    queue.enqueue_many([f"{number}" for number in range(2500)])

    assert pair.new.llen("blueque_pending_tasks_video") == 2501


def test_a_group_gets_the_tasks_that_a_replica_that_was_behind_did_not_have(pair):
    client = Client(pair.proxy.url, patience=20)

    def fall_behind():
        pair.old.wait(1, 20_000)
        pair.new.replicaof("NO", "ONE")

    def die():
        pair.lead_on()
        pair.old.client_kill_filter(_type="normal", skipme=True)

    faults = {3000: fall_behind, 6000: die}

    class Rows:
        def __iter__(self):
            for number in range(9000):
                faults.pop(number, int)()
                yield {"frame": number}

    made = client.get_queue("video").enqueue_many(Rows(), keys="frame", group="g")

    assert made == 9000
    assert pair.old.llen("blueque_pending_tasks_video") < 9000
    assert pair.new.llen("blueque_pending_tasks_video") == 9000
    assert pair.new.zcard("blueque_joined_g") == 9000
    assert pair.new.hget("blueque_group_g", "state") == b"closed"
    client.close()


def test_a_write_without_a_transaction_goes_to_the_new_primary(pair, kind):
    client = kind(pair.proxy, patience=0)
    client.get_task("t1")
    pair.fail_over()

    reserving.wake(client.connections, "video")

    assert pair.new.zrange("blueque_wake_video", 0, -1) == [b"0"]


def test_a_replica_that_stays_one_is_as_good_as_away(pair, kind):
    client = kind(pair.proxy, patience=0)
    queue = client.get_queue("video")
    queue.enqueue("before")
    pair.fail_over(is_led=False)
    pair.old.config_resetstat()

    with pytest.raises(RedisAway, match=r"Redis is not ready: .*READONLY"):
        queue.enqueue("after")

    assert pair.old.info("errorstats")["errorstat_READONLY"]["count"] >= 2
    pair.lead_on()
    queue.enqueue("after that")
    assert pair.new.llen("blueque_pending_tasks_video") == 2


def test_a_transaction_that_was_queued_before_the_failover_is_refused_as_a_whole(pair, kind):
    connection = kind(pair.proxy, patience=0)._redis.connection()
    connection.exchange([("MULTI",), ("SET", "a", 1)])
    pair.fail_over()

    with pytest.raises(RedisRefused) as refusal:
        connection.exchange([("EXEC",)])

    assert refusal.value.answer.startswith("EXECABORT ")
    assert refusal.value.code == "READONLY"
    assert connection.is_closed
    assert not pair.new.exists("a")


@pytest.mark.parametrize("queues", [["video"], ["audio", "video"]])
def test_a_blocked_listener_takes_from_the_new_primary(pair, kind, queues):
    listener = kind(pair.proxy, patience=5).get_listener(*queues)
    thread, taken = listening(listener, pair)
    pair.fail_over()
    task_id = Client(pair.proxy.url).get_queue("video").enqueue("after")
    thread.join(20)

    assert [task.id for task in taken] == [task_id]


@pytest.mark.parametrize("queues", [["video"], ["audio", "video"]])
def test_a_listener_that_an_operator_unblocks_waits_on_a_new_connection(pair, kind, queues):
    listener = kind(pair.proxy, patience=0).get_listener(*queues)
    thread, taken = listening(listener, pair)
    (blocked,) = [client for client in pair.old.client_list() if "b" in client["flags"]]
    pair.old.client_unblock(blocked["id"], error=True)
    task_id = Client(pair.proxy.url).get_queue("video").enqueue("after")
    thread.join(20)

    assert [task.id for task in taken] == [task_id]
    assert blocked["id"] not in [client["id"] for client in pair.old.client_list()]


def test_a_replica_without_its_primary_is_left_for_a_new_connection(pair, kind):
    client = kind(pair.proxy, patience=0)
    task_id = client.get_queue("video").enqueue("before")
    pair.fail_over()
    pair.old.config_set("replica-serve-stale-data", "no")
    pair.old.replicaof("127.0.0.1", 1)
    with pytest.raises(redis_py.ResponseError, match=r"MASTERDOWN|MASTER is down"):
        pair.old.get("a")

    assert client.get_task(task_id).parameters == "before"


def listening(listener, pair):
    """Have the listener wait for a task, and return its thread and what comes of it once it is
    blocked.
    """
    taken = []

    def listen():
        while not taken:
            with contextlib.suppress(RedisRefused):  # the new primary has no address yet
                taken.append(listener.listen())
        listener._redis.close()  # this thread's

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    until(lambda: pair.old.info("clients")["blocked_clients"] == 1)
    return thread, taken
