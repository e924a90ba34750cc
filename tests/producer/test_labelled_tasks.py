"""Titles, tags and contexts of tasks, and who has enqueued them: whichever way a task is made, and what becomes of
it.
"""

from __future__ import annotations

import os
import time

import pytest

import blueque
from blueque import BluequeError, Client, InvalidInput, New
from blueque.model import keys
from blueque.producer.firing import Firing
from blueque.system import process

TITLE = "Encode a.mov for Ada"
FAR = 4e9


def feed(client, tmp_path, **options):
    backlog = tmp_path / "rows.jsonl"
    backlog.write_text('{"n": 1}\n')
    blueque.feed(str(backlog), "video", name="night", client=client, **options)


def commit(client, **options):
    flow = client.workflow("night")
    flow.add("video", "in", **options)
    flow.commit()


# name: how a task of the queue video is made with some options
WAYS = {
    "enqueue": lambda queue, **options: queue.enqueue("in", **options),
    "keyed": lambda queue, **options: queue.enqueue("in", key="k", **options),
    "schedule": lambda queue, **options: queue.schedule("in", FAR, **options),
    "after": lambda queue, **options: queue.enqueue("in", after=queue.enqueue(0), **options),
    "many": lambda queue, **options: queue.enqueue_many(["in"], **options),
    "keys": lambda queue, **options: queue.enqueue_many(["in"], keys=["k"], **options),
    "later": lambda queue, **options: queue.schedule_many(["in"], FAR, **options),
    "group": lambda queue, **options: queue.enqueue_many(["in"], keys=["k"], group="g", **options),
}


@pytest.fixture
def made(client, cli, tmp_path, url):
    """Make a task in a way, and return it."""

    def made(way, client=client, **options):
        more = {"workflow": commit}
        if way in WAYS:
            WAYS[way](client.get_queue("video"), **options)
        elif way == "feed":
            feed(client, tmp_path, **options)
        else:
            more[way](client, **options)
        return client.get_task(cli.zrange(keys.tasks("video"), -1, -1)[0])

    made.url = url
    return made


EVERY = [*WAYS, "workflow", "feed"]


@pytest.mark.parametrize("way", EVERY)
def test_a_task_has_the_title_that_it_was_given(made, way):
    assert made(way, title=TITLE).title == TITLE


@pytest.mark.parametrize("way", EVERY)
def test_a_task_says_which_process_has_enqueued_it(made, way):
    assert made(way).producer == f"{process.user_at_host()}[{os.getpid()}]"


@pytest.mark.parametrize("way", EVERY)
def test_a_bad_title_is_refused_before_anything_is_written(made, cli, way):
    with pytest.raises(InvalidInput, match="title: "):
        made(way, title="two\nlines")

    written = [key for key in cli.keys("blueque_task_*") if cli.hget(key, "title") is not None]
    assert written == []


TAGS = ["customer:17", "ü"]


@pytest.mark.parametrize("way", EVERY)
def test_a_task_is_in_the_index_of_its_tags_as_long_as_it_is_there(made, client, cli, way):
    task = made(way, tags=TAGS)
    assert (task.tags, entries(cli)) == (TAGS, [f"customer:17 {task.id}", f"ü {task.id}"])

    client.get_queue("video").cancel(task.id)
    client.get_queue("video").delete_task(client.get_task(task.id), force=True)
    assert not cli.exists(keys.TAGS)


def entries(cli):
    return cli.zrange(keys.TAGS, 0, -1)


def test_a_task_without_tags_costs_no_index(queue, cli):
    queue.enqueue_many(range(3), tags=[])

    assert not cli.exists(keys.TAGS)
    assert cli.hget(keys.task(queue.enqueue("in")), "tags") is None


def test_a_repeated_key_does_not_change_the_tags_of_its_task(queue, cli):
    task = queue.enqueue("in", key="k", tags=["a"])
    queue.enqueue("in", key="k", tags=["b"])

    assert entries(cli) == [f"a {task}"]


def test_a_purge_leaves_no_tags(client, queue, cli):
    queue.enqueue_many(range(3), tags=TAGS)
    queue.schedule_many(range(2), FAR, tags=TAGS)
    snapshot = client.freeze("video", ["pending", "scheduled"])

    assert list(client.purge(snapshot))[-1] == 5
    assert not cli.exists(keys.TAGS)


def test_the_tasks_of_a_schedule_have_its_tags(client, cli):
    schedule = client.set_schedule("hourly", queue="video", every="1h", tags=TAGS)
    schedule.trigger()

    (task,) = cli.zrange(keys.tasks("video"), 0, -1)
    assert client.get_task(task).tags == TAGS
    assert entries(cli) == [f"customer:17 {task}", f"ü {task}"]


def test_a_moved_task_keeps_its_tags(client, queue, cli):
    task = queue.enqueue("in", tags=TAGS)
    queue.move(task, "audio")

    assert client.get_inspector().tagged(["ü"]) == ([task], False)
    assert (client.get_task(task).tags, len(entries(cli))) == (TAGS, 2)


@pytest.mark.parametrize("way", EVERY)
def test_a_task_has_the_context_that_it_was_given(made, way):
    assert made(way, context={"trace": "4bf9"}).context == {"trace": "4bf9"}


@pytest.mark.parametrize("way", EVERY)
def test_the_context_counts_to_the_size_of_the_parameters(made, monkeypatch, cli, way):
    monkeypatch.setenv("BLUEQUE_MAX_BYTES", "20")
    with pytest.raises(BluequeError, match="bytes"):
        made(way, client=Client(made.url, max_bytes=20), context={"trace": "x" * 8})

    assert not [key for key in cli.keys("blueque_task_*") if cli.hexists(key, "context")]


def test_a_forked_process_names_itself(client, queue, url):
    first = client.get_task(queue.enqueue("in")).producer

    def body():
        Client(url).get_queue(queue.name).enqueue("in", key="f")
        return 0

    pid = process.fork(body)
    process.wait_for(pid)

    second = client.get_task(queue.enqueue("in", key="f")).producer
    assert second == first.replace(f"[{os.getpid()}]", f"[{pid}]")


def test_the_name_of_a_producer_takes_64_bytes_at_most(monkeypatch):
    process._producer.cache_clear()
    monkeypatch.setattr(process, "user_at_host", lambda: "anna@" + "ä" * 200)

    name = process.producer()

    process._producer.cache_clear()
    assert 62 < len(name.encode()) <= 64
    assert name.startswith("anna@ää") and name.endswith(f"ä[{os.getpid()}]")


def test_a_task_that_another_has_made_has_a_title_and_no_producer():
    record = New("parts", "in", key="a", title=TITLE).record("t1")

    assert record.options == {"title": TITLE, "spawned_by": "t1"}


def test_the_tasks_of_a_schedule_have_its_title_and_no_producer(client, cli):
    schedule = client.set_schedule("hourly", queue="video", every="1h", title=TITLE)
    schedule.trigger()
    again = client.set_schedule("hourly", queue="video", every="1h", title=TITLE)

    task = client.get_task(cli.zrange(keys.tasks("video"), 0, -1)[0])
    assert (task.title, task.producer, task.schedule) == (TITLE, None, "hourly")
    assert again.record["version"] == 1  # the same definition, in whichever process
    assert Firing(client.connections).step() != 0.0


def test_a_task_keeps_its_title_and_producer_when_it_is_moved_and_requeued(client, queue):
    task = queue.enqueue("in", title=TITLE)
    before = client.get_task(task)
    queue.cancel(task)
    queue.requeue(task)
    queue.move(task, "audio")

    moved = client.get_task(task)
    assert (moved.queue, moved.title, moved.producer) == ("audio", TITLE, before.producer)


def test_a_list_has_titles_and_producers(client, queue):
    queue.enqueue("in", title=TITLE)
    before = time.time()

    (task,) = client.get_inspector().listing([queue.name], ["pending"], 10).tasks

    assert task.title == TITLE and task.producer and task.created <= before
