"""Waiting for tasks to end: Client.wait, Client.as_ended, Task.wait, and what sees it,
blueque.queries.task_ends.
"""

from __future__ import annotations

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import fakeredis
import pytest
import redis as redis_py
from faults import Fault
from running import until

from blueque import (
    Client,
    InvalidInput,
    InvalidType,
    NoSuchTask,
    RedisAway,
    RedisRefused,
    Task,
    WaitTimedOut,
)
from blueque.connection import tracked
from blueque.queries import task_ends


@pytest.fixture
def aside():
    """Call something in another thread; its future is returned."""
    with ThreadPoolExecutor(4) as threads:
        yield threads.submit


def end(cli, *ids, status="complete", **fields):
    """End tasks as any program may, a listener of 1.0.0 as well: by their hash."""
    with cli.pipeline(transaction=False) as pipeline:
        for task_id in ids:
            pipeline.hset(f"blueque_task_{task_id}", mapping={"status": status, **fields})
        pipeline.execute()


def calls(cli, command):
    return cli.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]


def reads(cli, count, command="hget"):
    """Wait until Redis has been read so often since its statistics were reset."""
    until(lambda: calls(cli, command) >= count, what=f"{count} of {command}")


def test_several_tasks_come_in_the_order_in_which_they_were_named(client, queue, cli):
    one, two, three = (queue.enqueue(n) for n in range(3))
    end(cli, one, two, three)

    assert [task.id for task in client.wait([three, one, three, two])] == [three, one, three, two]
    assert client.wait([]) == []
    assert client.wait([one], at_least=0) == []


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda task: pickle.loads(pickle.dumps(task))]
)
def test_a_copy_of_a_task_is_without_its_client(client, queue, copied):
    task = copied(client.get_task(queue.enqueue("in")))

    assert task.parameters == "in"
    with pytest.raises(InvalidInput, match="has no client"):
        task.wait()
    with pytest.raises(InvalidInput):
        Task("made by hand", {}).wait()


def test_a_task_that_is_not_there_is_an_error(client, queue):
    with pytest.raises(NoSuchTask, match="task nobody does not exist") as raised:
        client.wait([queue.enqueue("in"), "nobody"], timeout=5)

    assert (raised.value.task_id, raised.value.status) == ("nobody", None)


def test_a_task_that_is_deleted_meanwhile_is_an_error(client, queue, cli, aside):
    task_id = queue.enqueue("in")
    cli.config_resetstat()
    waited = aside(client.wait, task_id, 5)
    reads(cli, 1)

    cli.delete(f"blueque_task_{task_id}")

    with pytest.raises(
        NoSuchTask, match="was deleted during the wait; its last status was pending"
    ):
        waited.result(5)


def test_a_task_that_a_listener_has_may_come_back_when_redis_has_lost_it(client, queue, cli, aside):
    task_id = queue.enqueue("in")
    cli.hset(f"blueque_task_{task_id}", "status", "started")
    cli.config_resetstat()
    waited = aside(client.wait, task_id, 10)
    reads(cli, 1)

    cli.flushall()
    reads(cli, 2)
    end(cli, task_id, result="out")

    assert waited.result(5).result == "out"


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_time_that_makes_no_sense_is_refused(client, timeout):
    with pytest.raises(InvalidInput, match="timeout"):
        client.wait("id", timeout)


def test_what_is_no_id_is_refused(client):
    with pytest.raises(InvalidType):
        client.wait([7])


def test_ten_thousand_at_once_take_few_round_trips(url, client, cli, proxy, aside):
    ids = [
        task_id for some in client.get_queue("many").enqueue_iter(range(10_000)) for task_id in some
    ]
    through = Client(proxy.url)
    cli.config_resetstat()
    waited = aside(through.wait, ids, 10)
    reads(cli, 10_000)
    assert proxy.writes < 30  # a thousand at a time, of which the proxy makes two

    end(cli, *ids)

    assert [task.id for task in waited.result(30)] == ids
    assert calls(cli, "hget") == 20_000
    assert proxy.writes < 30 + 100 + 300  # their hashes; and the more, the slower they end


def test_a_task_in_memory_is_waited_for(monkeypatch):
    monkeypatch.setattr(task_ends, "PACE", 0.01)
    client = Client(redis=fakeredis.FakeRedis(), patience=0)
    queue = client.get_queue("video")
    task_id = queue.enqueue("in")
    threading.Timer(0.05, queue.cancel, [task_id]).start()

    assert client.wait(task_id, timeout=5).status == "cancelled"


def test_it_goes_on_when_redis_has_been_away(own_server, aside, caplog):
    client = Client(own_server.url, patience=0)
    task_id = client.get_queue("video").enqueue("in")
    with redis_py.Redis.from_url(own_server.url) as cli:
        cli.config_resetstat()
        waited = aside(client.wait, task_id, 10)
        reads(cli, 1)

        own_server.kill()
        until(lambda: "waiting" in caplog.text, what="it says so")
        own_server.start()
        end(cli, task_id)

        assert waited.result(10).status == "complete"
    assert "Redis answers again" in caplog.text


def test_without_redis_it_ends_at_its_time(own_server, aside):
    client = Client(own_server.url, patience=0)
    task_id = client.get_queue("video").enqueue("in")
    with redis_py.Redis.from_url(own_server.url) as cli:
        cli.config_resetstat()
        waited = aside(client.wait, task_id, 1)
        reads(cli, 1)
        cli.hset(f"blueque_task_{task_id}", "progress", "1")
        reads(cli, 2)  # it has the answer to the first: a server that is killed may owe the last
    own_server.kill()

    with pytest.raises(WaitTimedOut, match="it is pending"):
        waited.result(5)


def test_a_redis_that_is_not_there_at_first_is_an_error(proxy):
    proxy.stop_listening()

    with pytest.raises(RedisAway):
        Client(proxy.url, patience=0).wait("id")


def test_a_key_that_is_no_task_is_an_error(client, cli):
    cli.set("blueque_task_odd", "text")

    with pytest.raises(RedisRefused):
        client.wait("odd")


def test_a_connection_that_is_cut_off_without_a_word_is_noticed(
    monkeypatch, queue, cli, proxy, aside
):
    monkeypatch.setattr(tracked, "PROOF", 0.05)
    task_id = queue.enqueue("in")
    client = Client(proxy.url, patience=0)
    cli.config_resetstat()
    proxy.arm(Fault.CUT_BEFORE, having=b"PING")
    waited = aside(client.wait, task_id, 10)
    reads(cli, 2)  # once more, over another connection

    end(cli, task_id)

    assert waited.result(5).status == "complete"


def test_what_is_put_in_line_again_before_it_was_read_is_waited_for_again(client, queue, cli):
    task_id = queue.enqueue("in")
    seen = task_ends.Watcher(client.connections, [task_id])
    assert list(seen.look()) == []

    assert list(seen._load([task_id])) == []
    end(cli, task_id)
    until(lambda: [task.id for task in seen.look()] == [task_id], what="its end")
    seen.close()
