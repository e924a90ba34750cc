"""blueque.testing.drain and assert_enqueued: a real Redis, and one in memory."""

from __future__ import annotations

import time

import fakeredis
import pytest

import blueque
from blueque import Client, Group, HandBack, New, Retry, RetryLater, Then
from blueque.task_process import registered
from blueque.testing import assert_enqueued, drain


@pytest.fixture(params=["real", "in memory"])
def client(request, url):
    client = (
        Client(url) if request.param == "real" else Client(redis=fakeredis.FakeRedis(), patience=0)
    )
    yield client
    client.close()


def double(task):
    return 2 * task.parameters


def test_what_is_pending_or_due_is_run_in_order_and_written_as_a_listener_does(client):
    queue = client.get_queue("video")
    ids = [queue.enqueue(1), queue.schedule(2, time.time() - 1), queue.enqueue(3, priority=5)]
    later = queue.schedule(4, time.time() + 1000)
    ended = drain(client, {"video": double})
    assert [each.result for each in ended] == [6, 2, 4]
    tasks = [client.get_task(task) for task in ids]
    assert [(task.status, task.result, task.attempt) for task in tasks] == [
        ("complete", 2, 1),
        ("complete", 4, 1),
        ("complete", 6, 1),
    ]
    assert client.get_task(later).status == "scheduled"
    assert client.get_inspector().listeners("video") == []
    assert drain(client, {"video": double}) == []


def test_a_task_fails_and_is_retried_by_its_policy(client):
    queue = client.get_queue("video")
    once = queue.enqueue("once")
    at_once = queue.enqueue("at once", retry=Retry(max=1, backoff=0, jitter=0))
    later = queue.enqueue("later")

    def handler(task):
        if task.parameters == "later":
            raise RetryLater(1000)
        if task.attempt == 1:
            task.checkpoint(7)
            (task.checkpoint_dir / "part").write_text("x")
            raise ValueError("no")
        return [task.checkpointed, (task.checkpoint_dir / "part").read_text()]

    ended = drain(client, {"video": handler})
    found = [(each.id, each.outcome) for each in ended]
    assert sorted(found) == sorted(
        [(once, "failed"), (at_once, "retried"), (at_once, "complete"), (later, "retried")]
    )
    assert client.get_task(at_once).result == [7, "x"]
    assert client.get_task(once).error == "ValueError: no"
    assert client.get_task(later).status == "scheduled"
    assert 900 < next(each.retry_in for each in ended if each.id == later) <= 1000
    with pytest.raises(ValueError, match="no"):
        _ = next(each.result for each in ended if each.id == once)


def test_tasks_of_several_queues_run_when_those_for_which_they_wait_have_ended(client):
    first = client.get_queue("a").enqueue(20)
    client.get_queue("b").enqueue("sum", after=[first], results=True)
    ended = drain(client, {"b": lambda task: sum(task.inputs.values()), "a": double})
    assert [(each.queue, each.result) for each in ended] == [("a", 40), ("b", 40)]


def test_the_tasks_that_a_handler_makes_are_run_too(client):
    client.get_queue("a").enqueue(1)

    def handler(task):
        if "spawned_by" in task.fields:
            return "made"
        task.spawn("a", 2, key="two")
        return Then("maker", [New("a", 3, key="three")])

    assert [each.result for each in drain(client, {"a": handler})] == ["maker", "made", "made"]
    assert_enqueued(client, "a", times=3)


def test_a_group_ends_with_its_members(client):
    group = client.group("album")
    group.open()
    client.get_queue("a").enqueue(1, group="album")
    client.get_queue("a").enqueue(3, after=Group("album"))
    group.close()
    assert [each.result for each in drain(client, {"a": double})] == [2, 6]


def test_no_more_attempts_are_run_than_wanted(client):
    client.get_queue("a").enqueue_many([1, 2, 3])
    assert [each.result for each in drain(client, {"a": double}, most=2)] == [2, 4]
    assert client.get_inspector().pending("a") == 1


def test_a_hand_back_that_nobody_asked_for_does_not_run_for_ever(client):
    client.get_queue("a").enqueue(1)

    def handler(task):
        raise HandBack

    assert [each.outcome for each in drain(client, {"a": handler})] == ["failed"]


def test_a_task_is_given_the_resources_that_it_needs(client):
    client.get_queue("a").enqueue(1, resources={"gpu": 2, "memory": "8GiB"})
    client.get_queue("a").enqueue(2)
    ended = drain(client, {"a": lambda task: task.resources})
    assert [each.result for each in ended] == [{"gpu": [0, 1], "memory": 8 * 2**30}, {}]


def test_a_limit_of_the_task_ends_it(client):
    client.get_queue("a").enqueue(1, time_limit=0.05)

    def handler(task):
        while True:
            pass

    (ended,) = drain(client, {"a": handler})
    assert ended.error_type == "time_limit"
    assert client.get_task(ended.id).error_type == "time_limit"


def test_what_is_expected_is_found_by_parameters_and_attributes(client):
    queue = client.get_queue("video")
    queue.enqueue({"n": (1, 2)}, key="k", priority=3)
    queue.schedule("later", time.time() + 1000)
    (task,) = assert_enqueued(client, "video", {"n": [1, 2]}, key="k", priority=3)
    assert task.parameters == {"n": [1, 2]}
    assert [each.status for each in assert_enqueued(client, "video", times=2)] == [
        "pending",
        "scheduled",
    ]
    assert assert_enqueued(client, "video", "another", times=0) == []
    assert assert_enqueued(client, "nothing", times=0) == []


def test_what_is_missing_is_told_with_what_is_there(client):
    client.get_queue("video").enqueue({"n": 1})
    with pytest.raises(AssertionError) as failed:
        assert_enqueued(client, "video", {"n": 2}, priority=3)
    text = str(failed.value)
    assert "queue 'video': 0 tasks with parameters {'n': 2} and priority 3, not at least 1" in text
    assert "it has 1 task:" in text and "pending, parameters {'n': 1}, priority None" in text
    with pytest.raises(AssertionError, match=r"it has 0 tasks$"):
        assert_enqueued(client, "nothing")
    with pytest.raises(AssertionError, match="1 task, not 2"):
        assert_enqueued(client, "video", times=2)
    with pytest.raises(AttributeError):
        assert_enqueued(client, "video", colour="red")


@pytest.fixture
def films():
    """Two handlers that have registered themselves: the first makes a task for the other."""
    before = [*registered.registered]

    @blueque.handler("posters")
    async def draw(task, film):
        return f"a poster of {film}"

    @blueque.handler("films", retry=Retry(max=1, backoff=0, jitter=0))
    def encode(task, film):
        if task.attempt == 1:
            raise ValueError("no")
        draw.enqueue(film)
        return task.client.get_task(task.id).status

    yield [encode, draw]
    registered.registered[:] = before


def test_handlers_that_have_registered_themselves_know_their_queues_policies_and_redis(
    client, films, monkeypatch
):
    monkeypatch.setenv("BLUEQUE_REDIS_URL", "redis://127.0.0.1:1")  # not that of the test
    films[0].enqueue("Metropolis", client=client)
    ended = drain(client, films)
    assert [each.outcome for each in ended] == ["retried", "complete", "complete"]
    assert [each.result for each in ended[1:]] == ["started", "a poster of Metropolis"]
    assert registered.simulated is None


def test_a_handler_of_another_queue_runs_without_its_policy(client, films):
    client.get_queue("others").enqueue("Metropolis")

    assert [each.outcome for each in drain(client, {"others": films[0]})] == ["failed"]
