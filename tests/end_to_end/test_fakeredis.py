"""Blueque in memory, for the unit tests of those who use it: `Client(redis=fakeredis.FakeRedis())`.
No server needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import fakeredis
import pytest
from oracle import EVENTS

from blueque import Client


@pytest.fixture
def fake():
    return fakeredis.FakeRedis(decode_responses=True)


@pytest.fixture
def client(fake):
    client = Client(redis=fake, patience=0)
    yield client
    client.close()


def test_a_task_goes_its_whole_way_in_memory_and_leaves_nothing(client, fake):
    queue, listener = client.get_queue("video"), client.get_listener("video")
    task_id = queue.enqueue({"ä": [1, None]})
    processor = client.get_processor(listener.listen())

    assert processor.start(77) == {"ä": [1, None]}
    assert client.get_task(task_id).status == "started"
    processor.complete({"size": 123})
    task = client.get_task(task_id)
    assert (task.status, task.result, task.attempt, task.pid) == ("complete", {"size": 123}, 1, 77)

    queue.delete_task(task)
    assert listener.leave() is True
    everything = fake.keys()
    left = {key for key in everything if not key.startswith(EVENTS)}
    assert left <= {"blueque_queues", "blueque_wake_video"}
    assert not [key for key in everything if task_id in key]


def test_a_scheduled_task_is_promoted_in_memory(client, fake):
    queue = client.get_queue("video")
    later, late, early = (
        queue.schedule(name, time.time() + 1000) for name in ("later", "late", "early")
    )
    fake.zadd("blueque_scheduled_tasks_video", {late: 2.5, early: 1.5})

    assert queue.enqueue_due_tasks() == [early, late]
    assert client.get_listener("video").listen().id == early
    assert client.get_task(later).status == "scheduled"


def test_keys_of_a_group_are_made_once_in_memory(client):
    queue = client.get_queue("video")
    with client.group("r") as group:
        first = queue.enqueue_many([1, 2], keys=["a", "b"], group=group)
        second = queue.enqueue_many([2, 3], keys=["b", "c"], group=group)
    assert (first.new, second.new) == (2, 1)

    assert queue.enqueue_many([{"k": "a"}], keys="k", group="r").new == 0
    assert [client.get_listener("video").listen().parameters for _ in range(3)] == [1, 2, 3]
    assert group.progress().state == "closed"


def test_a_change_between_look_and_exec_is_noticed_in_memory(client, fake):
    queue = client.get_queue("video")
    queue.enqueue("in")
    spare = client.connections.look_ahead.task
    fake.hset(f"blueque_task_{spare}", "status", "theirs")

    queue.enqueue("in")

    assert fake.hgetall(f"blueque_task_{spare}") == {"status": "theirs"}


def test_the_inspector_looks_into_memory(client):
    queue, listener = client.get_queue("video"), client.get_listener("video")
    ids = [queue.enqueue("in"), queue.enqueue("in")]
    listener.listen()
    inspector = client.get_inspector()

    assert inspector.queues() == ["video"]
    assert inspector.pending("video") == 1
    assert inspector.listeners("video") == [listener.node]
    assert inspector.registration("video", listener.node)["state"] == "alive"
    assert inspector.reserved("video", listener.node) == [ids[0]]
    assert inspector.task(ids[1]).status == "pending"


def test_two_clients_share_a_fake_server():
    shared = fakeredis.FakeServer()
    producer = Client(redis=fakeredis.FakeRedis(server=shared), patience=0)
    consumer = Client(redis=fakeredis.FakeRedis(server=shared), patience=0)
    stranger = Client(redis=fakeredis.FakeRedis(server=fakeredis.FakeServer()), patience=0)

    task_id = producer.get_queue("video").enqueue("in")

    assert consumer.get_listener("video").listen().id == task_id
    assert producer.get_task(task_id).status == "reserved"
    assert stranger.get_task(task_id).status is None


def test_a_listener_waits_in_memory_for_a_task_of_another_thread():
    shared = fakeredis.FakeServer()
    producer = Client(redis=fakeredis.FakeRedis(server=shared), patience=0)
    consumer = Client(redis=fakeredis.FakeRedis(server=shared), patience=0)
    found = []
    thread = threading.Thread(
        target=lambda: found.append(consumer.get_listener("video").listen()), daemon=True
    )
    thread.start()
    while thread.is_alive() and not producer.get_inspector().listeners("video"):
        time.sleep(0.001)

    task_id = producer.get_queue("video").enqueue("in")

    thread.join(5)
    assert [task.id for task in found] == [task_id]


def test_memory_needs_no_server_and_no_network():
    program = """
import fakeredis, socket
from blueque import Client

def refuse(*_):
    raise AssertionError("somebody connects")

socket.socket.connect = socket.create_connection = refuse
client = Client(redis=fakeredis.FakeRedis())
task_id = client.get_queue("video").enqueue([1])
task = client.get_listener("video").listen()
assert task.id == task_id
print(client.get_processor(task).start(1))
"""
    environment = {
        "PATH": "",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "BLUEQUE_REDIS_URL": "redis://127.0.0.1:1",
    }

    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )

    assert (done.stdout, done.stderr, done.returncode) == ("[1]\n", "", 0)
