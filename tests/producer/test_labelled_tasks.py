"""Titles, tags and contexts of tasks, and who has enqueued them: whichever way a task is made, and what becomes of
it.
"""

from __future__ import annotations

import pytest

import blueque
from blueque import BluequeError, Client, InvalidInput
from blueque.model import keys

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


@pytest.mark.parametrize("way", EVERY)
def test_a_task_has_the_context_that_it_was_given(made, way):
    assert made(way, context={"trace": "4bf9"}).context == {"trace": "4bf9"}


@pytest.mark.parametrize("way", EVERY)
def test_the_context_counts_to_the_size_of_the_parameters(made, monkeypatch, cli, way):
    monkeypatch.setenv("BLUEQUE_MAX_BYTES", "20")
    with pytest.raises(BluequeError, match="bytes"):
        made(way, client=Client(made.url, max_bytes=20), context={"trace": "x" * 8})

    assert not [key for key in cli.keys("blueque_task_*") if cli.hexists(key, "context")]
