"""Ids and keys of tasks: blueque.model.ids, and what one call of enqueue or schedule makes of a
key.
"""

from __future__ import annotations

import threading
import uuid

import fakeredis
import pytest
import redis as redis_py
from faults import Fault
from transactions import protocol

from blueque import Client, InvalidInput
from blueque.connection.redis import Patience
from blueque.model import ids as task_id
from blueque.model import keys

FAR = 4e9


@pytest.fixture
def patient(proxy):
    """A queue behind the proxy, whose calls try again."""
    client = Client(proxy.url, patience=5)
    yield client.get_queue("video")
    client.close()


def end(client, task):
    """Cancel and delete a task."""
    queue = client.get_queue("video")
    queue.cancel(task)
    queue.delete_task(client.get_task(task))


def test_the_id_of_a_key_is_the_uuid_that_the_document_says():
    namespace = uuid.uuid5(uuid.NAMESPACE_DNS, "key.blueque")

    assert namespace == task_id.NAMESPACE
    assert task_id.id_of_key("vidéo", "a.mov:v2") == str(uuid.uuid5(namespace, "vidéo\0a.mov:v2"))


def test_random_ids_are_uuids_of_version_4_and_all_different():
    ids = [task.decode() for task in task_id.random_ids(1000)]

    assert {
        (uuid.UUID(task).version, uuid.UUID(task).variant, str(uuid.UUID(task)) == task)
        for task in ids
    } == {(4, uuid.RFC_4122, True)}
    assert len({*ids}) == 1000


def test_a_key_still_counts_for_a_while_when_its_task_was_deleted(client, queue, cli):
    task = queue.enqueue("in", key="a", keep="2h")
    end(client, task)

    assert 7100 < cli.ttl(keys.key_kept(task)) <= 7200
    assert queue.enqueue("in", key="a").is_new is False
    assert queue.schedule("in", FAR, key="a").is_new is False
    assert queue.enqueue_many(["in"], keys=["a"]).new == 0
    assert client.get_task(task).status is None

    cli.delete(keys.key_kept(task))  # its time is over
    assert queue.enqueue("in", key="a") == task
    assert client.get_task(task).status == "pending"


@pytest.mark.parametrize("keep", ["text", "-1", "", str(10**12)])
def test_a_keep_that_makes_no_sense_does_not_prevent_a_deletion(redis, cli, keep):
    protocol.enqueue(
        redis, "video", "t1", "in", 5.5, {"key": "a", "keep": keep, "enqueued_by": "m"}
    )
    protocol.cancel(redis, "video", "t1", "ann", None, 6.5)

    assert protocol.delete(redis, "video", "t1") is True
    assert cli.keys("blueque_key_*") == cli.keys("blueque_task_*") == []


@pytest.mark.parametrize(
    "options",
    [
        {"key": ""},
        {"key": "x" * 1001},
        {"key": 7.0},
        {"key": True},
        {"key": 10**1000},
        {"key": "\ud800"},
        {"key": "a", "keep": -1},
        {"key": "a", "keep": "soon"},
        {"key": "a", "keep": float("nan")},
        {"keep": "soon"},
    ],
)
def test_a_bad_key_is_refused_before_anything_is_written(queue, state, options):
    with pytest.raises(InvalidInput, match=r"key|keep|duration"):
        queue.enqueue("in", **options)
    assert state() == {}


@pytest.mark.parametrize("make", ["enqueue", "schedule"])
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("write", [1, 2, 3])
def test_whatever_happens_to_a_write_a_new_task_is_known_to_be_new(
    patient, proxy, cli, make, fault, write
):
    proxy.arm(fault, write)

    task = (
        patient.enqueue("in", key="a")
        if make == "enqueue"
        else patient.schedule("in", FAR, key="a")
    )
    proxy.release()

    assert proxy.has_struck
    assert task.is_new
    assert cli.llen(keys.pending("video")) + cli.zcard(keys.scheduled("video")) == 1


def test_a_new_task_is_known_to_be_new_even_if_it_was_run_and_deleted_before_the_second_look(
    client, patient, proxy, monkeypatch
):
    monkeypatch.setattr(
        Patience, "pause_or_raise", lambda *_: end(client, task_id.id_of_key("video", "a"))
    )
    proxy.arm(Fault.CUT_AFTER, 1, having=b"LPUSH")

    task = patient.enqueue("in", key="a")

    assert proxy.has_struck
    assert task.is_new and client.get_task(task).status is None


def test_a_task_that_somebody_else_makes_while_the_answer_is_lost_is_not_new(
    client, patient, proxy
):
    proxy.arm(Fault.CUT_BEFORE, 1, having=b"LPUSH")
    execute = proxy.strikes

    def strike_and_overtake(server, data):
        struck = execute(server, data)
        if struck:
            client.get_queue("video").enqueue("theirs", key="a")
        return struck

    proxy.strikes = strike_and_overtake
    task = patient.enqueue("ours", key="a")

    assert proxy.has_struck
    assert not task.is_new and client.get_task(task).parameters == "theirs"


def test_of_many_who_enqueue_one_key_at_once_one_has_made_it(url, cli):
    made, barrier = [], threading.Barrier(6)

    def produce():
        client = Client(url, patience=5)
        for number in range(20):
            barrier.wait(30)
            made.append(client.get_queue("video").enqueue("in", key=str(number)))
        client.close()

    threads = [threading.Thread(target=produce) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(made) == 120
    in_line = sorted(cli.lrange(keys.pending("video"), 0, -1))
    assert sorted(task for task in made if task.is_new) == sorted({*made}) == in_line


def test_keys_work_through_redis_py_and_in_memory(url):
    for ready in (redis_py.Redis.from_url(url), fakeredis.FakeRedis()):
        client = Client(redis=ready)
        queue = client.get_queue("video")
        task = queue.enqueue("in", key="a")
        assert (task.is_new, queue.enqueue("in", key="a").is_new) == (True, False)
        end(client, task)
        assert queue.enqueue("in", key="a").is_new is False
        client.close()
