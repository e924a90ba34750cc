"""Waiting until nothing is left to do: Queue.join, blueque.queries.queue_ends."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import fakeredis
import pytest
from faults import Fault

from blueque import Client, InvalidInput, WaitTimedOut
from blueque.model import keys
from blueque.queries.queue_ends import Left, QueueWatcher, join
from blueque.queries.task_ends import ends


@pytest.fixture
def aside():
    """Call something in another thread; its future is returned."""
    with ThreadPoolExecutor(4) as threads:
        yield threads.submit


@pytest.fixture
def watcher(client):
    """Return what watches queues."""
    made = []

    def make(*queues):
        made.append(QueueWatcher(client.connections, queues))
        return made[-1]

    yield make
    for each in made:
        each.close()


def left(watcher):
    list(watcher.look())
    return watcher.left


def take(client, queue="video"):
    task = client.get_listener(queue).listen(timeout=5)
    processor = client.get_processor(task)
    processor.start(1)
    return processor


def test_what_is_left_is_counted_by_what_keeps_it(client, watcher):
    queue = client.get_queue("video")
    seen = watcher("video", "audio")
    assert left(seen) == {"video": Left(), "audio": Left()} and not seen.statuses
    first = queue.enqueue(1)
    queue.enqueue(2, priority=5)
    queue.enqueue(3, resources={"gpu": 1})
    queue.enqueue(4, after=first)
    queue.schedule(5, time.time() + 1000)
    client.connections.read(("ZADD", keys.scheduled("audio"), 5, "due"))  # no scheduler is there
    assert left(seen) == {"video": Left(3, 0, 0, 1), "audio": Left(due=1)}
    assert seen.statuses == {"video": "3 pending, 1 blocked", "audio": "1 due"}
    listener = client.get_listener("video")
    listener.listen()
    assert left(seen)["video"] == Left(2, 0, 1, 1)


def test_a_timeout_says_what_is_left(client, watcher):
    client.get_queue("video").enqueue(1)
    with pytest.raises(
        WaitTimedOut, match=r"queue 'video' has tasks left after 0 s: 1 pending"
    ) as error:
        client.get_queue("video").join(timeout=0)
    assert (error.value.timeout, error.value.statuses) == (0, {"video": "1 pending"})
    client.get_queue("audio").enqueue(1)
    with pytest.raises(WaitTimedOut, match=r"^2 queues have tasks left after 0\.01 s$"):
        join(watcher("video", "audio"), 1.0, 0.01)
    with pytest.raises(InvalidInput):
        client.get_queue("video").join(timeout=-1)


def test_queues_with_nothing_but_blocked_tasks_are_noticed(client, watcher):
    queue = client.get_queue("video")
    queue.enqueue(1, after=queue.enqueue(0))
    told = []

    def notice(queues):
        told.append(queues)

    with pytest.raises(WaitTimedOut):
        list(ends(watcher("video"), 1.0, 0.01, notice))
    assert told == []
    take(client).fail("no")
    with pytest.raises(WaitTimedOut):
        list(ends(watcher("video"), 1.0, 0.01, notice))
    assert told == [["video"]]


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER])
def test_a_join_goes_on_when_the_connection_breaks(client, queue, proxy, aside, fault):
    queue.enqueue(1)
    proxy.arm(fault, 2, having=b"EXEC")
    away = Client(proxy.url, patience=5)
    joined = aside(away.get_queue(queue.name).join, 10)
    take(client, queue.name).complete("out")
    assert joined.result(10) is None


def test_a_join_works_in_memory():
    client = Client(redis=fakeredis.FakeRedis(), patience=0)
    queue = client.get_queue("video")
    queue.enqueue(1)
    with pytest.raises(WaitTimedOut):
        queue.join(0)
    take(client).complete("out")
    queue.join(5)
