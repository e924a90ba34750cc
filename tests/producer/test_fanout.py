"""A fan-out: a task for each of several queues, all or none."""

from __future__ import annotations

import pytest
from faults import Fault

from blueque import Client, InvalidInput, InvalidType, NoSuchTask
from blueque.model import keys
from blueque.model.options import FanoutOptions
from blueque.settings.file import parse


@pytest.fixture
def fanout(client):
    return client.get_fanout("formats", to=["av1", "h264"])


def test_each_queue_gets_a_task_of_its_own(client, fanout):
    made = fanout.enqueue({"video": 17}, title="17", priority=3)

    assert [*made] == ["av1", "h264"] == [*fanout.queues]
    assert all(task.is_new for task in made.values())
    for queue, task_id in made.items():
        task = client.get_task(task_id)
        assert (task.queue, task.status, task.parameters) == (queue, "pending", {"video": 17})
        assert (task.title, task.priority) == ("17", 3)


def test_a_key_counts_in_each_queue_by_itself(client, fanout):
    there = client.get_queue("h264").enqueue("before", key="17")

    made = fanout.enqueue("in", key="17")

    assert (made["av1"].is_new, made["h264"].is_new) == (True, False)
    assert made["h264"] == there
    assert client.get_task(there).parameters == "before"
    again = fanout.enqueue("in", key="17")
    assert again == made
    assert [task.is_new for task in again.values()] == [False, False]


def test_they_may_wait_be_due_later_and_join_a_group(client, fanout):
    first = client.get_queue("audio").enqueue("first")
    client.group("g").open()

    made = fanout.enqueue("in", after=first, eta=4e9, group="g", start_within=60, tags=["x"])

    for task_id in made.values():
        task = client.get_task(task_id)
        assert (task.status, task.fields["group"], [*task.tags]) == ("blocked", "g", ["x"])
        assert float(task.fields["start_before"]) == 4e9 + 60
    assert client.group("g").progress().open == 2


def test_none_is_made_if_one_cannot_be(client, fanout, cli):
    with pytest.raises(NoSuchTask):
        fanout.enqueue("in", after="gone")
    with pytest.raises(InvalidInput):
        fanout.enqueue("in", priority=10**9)

    assert cli.keys("blueque_task_*") == []


@pytest.mark.parametrize("is_keyed", [False, True])
def test_a_call_whose_answer_was_lost_knows_that_it_has_made_the_tasks(proxy, cli, is_keyed):
    through = Client(proxy.url, patience=2.0)
    proxy.arm(Fault.CUT_AFTER, having=b"HSET")

    fanout = through.get_fanout("formats", to=["av1", "h264"])
    made = fanout.enqueue("in", **({"key": 1} if is_keyed else {}))

    assert proxy.has_struck
    assert [task.is_new for task in made.values()] == [True, True]
    assert [cli.lrange(keys.pending(queue), 0, -1) for queue in made] == [
        [task] for task in made.values()
    ]
    through.close()


@pytest.mark.parametrize(
    ("queues", "why"),
    [
        ([], "it needs a queue"),
        (["a", "b", "a"], "queue 'a' is there twice"),
        ([f"q{number}" for number in range(101)], "at most 100 queues, not 101"),
        (["a", ""], "empty"),
    ],
)
def test_queues_that_make_no_sense_are_refused(client, queues, why):
    with pytest.raises(InvalidInput, match=why):
        client.get_fanout("formats", to=queues)


def test_a_wrong_type_or_option_is_named(client, fanout):
    with pytest.raises(InvalidType, match="to is a list of queue names, not a str"):
        client.get_fanout("formats", to="av1")
    with pytest.raises(TypeError, match="id"):
        fanout.enqueue("in", id="own")
    assert "id" not in FanoutOptions.__annotations__


FILE = """
    [queues.h264]
    retry = 3

    [aliases]
    old = "h264"

    [fanouts]
    formats = ["av1", "old"]
"""


def test_the_queues_of_the_file_have_the_settings_of_the_file(url):
    client = Client(url, config=parse(FILE))

    made = client.get_fanout("formats").enqueue("in")

    assert [*made] == ["av1", "h264"]
    policies = [client.get_task(task).fields.get("retry") for task in made.values()]
    assert policies[0] is None and '"max":3' in policies[1]
    with pytest.raises(InvalidInput, match=r"there is no fan-out 'other' in blueque\.toml"):
        client.get_fanout("other")


def test_other_programs_see_them_as_any_task(client, fanout, cli):
    made = fanout.enqueue("in")

    assert cli.lrange(keys.pending("av1"), 0, -1) == [made["av1"]]
    assert cli.zscore(keys.tasks("h264"), made["h264"]) is not None
