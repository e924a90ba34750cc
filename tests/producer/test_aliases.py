"""Second names of queues: whatever names a queue by one, Redis has the first name only."""

from __future__ import annotations

import pytest

from blueque import Client, New
from blueque.audit.doctor import Doctor
from blueque.model import keys
from blueque.settings.file import parse

FILE = """
    [aliases]
    old = "video"

    [queues.video]
    retry = 2
"""


@pytest.fixture
def named(url):
    client = Client(url, config=parse(FILE))
    yield client
    client.close()


def queues(cli):
    return cli.zrange(keys.QUEUES, 0, -1)


def test_a_producer_enqueues_into_the_queue_with_its_settings(named, cli):
    task = named.get_task(named.get_queue("old").enqueue("in"))

    assert task.queue == "video"
    assert '"max":2' in task.fields["retry"]
    assert queues(cli) == ["video"]


def test_a_listener_takes_from_the_queue(named, client, cli):
    task_id = client.get_queue("video").enqueue("in")

    task = named.get_listener("old").listen(timeout=10)

    assert task.id == task_id
    assert queues(cli) == ["video"]


def test_whatever_takes_the_name_of_a_queue_takes_an_alias(named, client, cli):
    other = named.get_queue("other")
    moved = other.enqueue("in")
    other.move(moved, "old")
    expiring = other.enqueue("in", start_within=60, expired_to="old")
    workflow = named.workflow("w")
    made = workflow.add("old", "in")
    workflow.commit()
    named.set_schedule("nightly", queue="old", every="1h")

    assert [client.get_task(task).queue for task in (moved, made)] == ["video", "video"]
    assert client.get_task(expiring).fields["expired_to"] == "video"
    assert client.get_schedule("nightly").record["queue"] == "video"
    assert named.get_statistics("old").queue == "video"
    assert named.with_patience(1).get_queue("old").name == "video"
    assert sorted(queues(cli)) == ["other", "video"]


def test_events_of_an_alias_are_those_of_the_queue(named):
    places = named.get_event_places("old")
    queue = named.get_queue("old")
    queue.cancel(queue.enqueue("in"))

    event = next(named.events("old", after=places))

    assert (event.queue, event.event) == ("video", "cancelled")


def test_a_client_without_the_file_knows_no_alias_and_the_doctor_says_so(named, client, cli):
    client.get_queue("old").enqueue("in")

    (check,) = [one for one in Doctor(named.connections).check() if one.name == "aliases"]

    assert check.level == "warn"
    assert "old is an alias of queue video in blueque.toml, and Redis has a queue" in check.sentence
    assert not [one for one in Doctor(client.connections).check() if one.name == "aliases"]


def test_a_task_that_another_makes_takes_first_names():
    assert New("old", "in", key=1).queue == "old"
