"""A run as a whole: how far it is, the wait for its end, its failed tasks; against a real Redis."""

from __future__ import annotations

import threading
import time

import pytest

from blueque import Client, InvalidInput, RunDropped, WaitTimedOut
from blueque.connection.plain import SocketConnection
from blueque.model.units import Timing
from blueque.recovery.settling import settle_groups_step

Q = "video"
KEYS = [f"key {number}" for number in range(6)]


@pytest.fixture
def listener(client):
    found = client.get_listener(Q)
    found.register(Timing())
    yield found
    found.leave()


@pytest.fixture
def run(client, queue):
    """A run of six tasks that are next in line, and another task."""
    queue.enqueue_many(KEYS, keys=KEYS, run="n1", group="n1")
    queue.enqueue("other")
    return client.run(Q, "n1")


def end(client, listener, *, how_many, fails=False):
    """Run the next tasks in line to their ends, as the groups learn of them."""
    for _ in range(how_many):
        processor = client.get_processor(listener.take())
        processor.start(77)
        if fails:
            processor.fail("broken")
        else:
            processor.complete("done")
    while settle_groups_step(client.connections, time.time()):
        pass


def counts(seen):
    return seen.complete, seen.failed, seen.running, seen.waiting


def test_the_progress_of_a_run_says_what_has_ended_how_what_runs_and_what_waits(
    client, queue, listener, run
):
    end(client, listener, how_many=2)
    end(client, listener, how_many=1, fails=True)
    client.get_processor(listener.take()).start(77)

    seen = run.progress()

    assert (seen.state, seen.rows, seen.tasks) == ("committed", 6, 6)
    assert counts(seen) == (2, 1, 1, 2) and not seen.has_ended


@pytest.mark.parametrize("is_tracking", [True, False])
def test_the_wait_for_a_run_ends_with_its_last_task(
    client, url, listener, run, is_tracking, monkeypatch
):
    if not is_tracking:  # as with TLS
        monkeypatch.setattr(SocketConnection, "track", lambda connection: False)
    end(client, listener, how_many=5)
    found, theirs = [], Client(url)
    waiting = threading.Thread(target=lambda: found.append(theirs.run(Q, "n1").wait(60)))

    waiting.start()
    with pytest.raises(
        WaitTimedOut, match=r"^run 'n1' of queue 'video' .* committed, 1 tasks left"
    ):
        run.wait(timeout=0)
    end(client, listener, how_many=1)
    waiting.join(60)

    assert [counts(seen) for seen in found] == [(6, 0, 0, 0)] and found[0].has_ended
    theirs.close()


def test_a_run_that_is_not_committed_has_not_ended(client, queue, listener):
    opened = queue.open_run("n2", group="n2")
    opened.put(KEYS, [b"1"] * 6)
    end(client, listener, how_many=6)

    with pytest.raises(WaitTimedOut, match="open, 0 tasks left"):
        client.run(Q, "n2").wait(timeout=0)
    opened.close(6)

    assert counts(client.run(Q, "n2").wait(60)) == (6, 0, 0, 0)


def test_the_wait_after_a_requeue_is_for_the_tasks_that_run_again(client, listener, run):
    end(client, listener, how_many=4)
    end(client, listener, how_many=2, fails=True)
    assert counts(run.wait(60)) == (4, 2, 0, 0)

    failed = run.requeue_failed(by="ada")

    assert len(failed) == 2 and counts(run.progress()) == (4, 0, 0, 2)
    with pytest.raises(WaitTimedOut):
        run.wait(timeout=0)
    assert run.requeue_failed() == []


def test_the_wait_sees_a_task_that_another_way_has_requeued_before_its_group_does(
    client, queue, listener, run
):
    end(client, listener, how_many=5)
    end(client, listener, how_many=1, fails=True)
    (failed,) = client.get_inspector().listing([Q], ["failed"], 9).tasks

    queue.requeue(failed.id)  # the group still counts it as ended

    assert client.group("n1").progress().state == "ended"
    with pytest.raises(WaitTimedOut):
        run.wait(timeout=0)


def test_a_run_whose_tasks_nothing_lists_says_what_is_missing(client, queue):
    queue.enqueue_many(KEYS, keys=KEYS, run="bare")
    client.group("shared").open()
    queue.enqueue_many(KEYS, keys=KEYS, run="one", group="shared")

    seen = client.run(Q, "bare").progress()

    assert (seen.tasks, counts(seen)) == (6, (None, None, None, None))
    with pytest.raises(InvalidInput, match="give it one: group="):
        client.run(Q, "bare").wait(timeout=0)
    assert counts(client.run(Q, "one").progress()) == (None, None, None, None)
    with pytest.raises(InvalidInput, match="others may join its group 'shared'"):
        client.run(Q, "one").requeue_failed()
    with pytest.raises(RunDropped):
        client.run(Q, "never").progress()


def test_the_tasks_of_a_run_are_listed_with_their_results_however_many(
    client, queue, listener, run, monkeypatch
):
    monkeypatch.setattr("blueque.producer.groups.WHOLE_AT_ONCE", 4)
    end(client, listener, how_many=2)
    first, *_, last = run.tasks()
    queue.cancel(last.id)
    queue.delete_task(client.get_task(last.id))

    assert (first.key, first.parameters, first.result) == (KEYS[0], KEYS[0], "done")
    assert [task.key for task in run.tasks()] == KEYS[:-1]
    assert [task.id for task in client.group("n1").tasks()] == [task.id for task in run.tasks()]


def test_the_tasks_of_a_run_without_a_group_cannot_be_listed(client, queue):
    queue.enqueue_many(KEYS, keys=KEYS, run="n2")

    with pytest.raises(InvalidInput, match="give it one: group="):
        client.run(Q, "n2").tasks()
