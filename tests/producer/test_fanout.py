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
    with pytest.raises(TypeError, match=r"Fanout\.enqueue\(\) .* 'id'"):
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
