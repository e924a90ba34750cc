"""The index of tags: which tags there are, and the tasks that have them."""

from __future__ import annotations

import pytest

from blueque import InvalidType
from blueque.model import keys
from blueque.queries import tags as module
from blueque.queries.tags import TagSeen


def test_tasks_are_found_by_all_of_their_tags(client):
    video, audio = client.get_queue("video"), client.get_queue("audio")
    first = video.enqueue(1, tags=["customer:17", "urgent"])
    second = audio.enqueue(2, tags=["customer:17"])
    video.enqueue(3, tags=["customer:170"])
    video.enqueue(4, tags=["customer:1"])
    find = client.get_inspector().tagged

    assert (sorted(find(["customer:17"])[0]), find(["customer:17"])[1]) == (
        sorted([first, second]),
        False,
    )
    assert find(["customer:17", "urgent"]) == ([first], False)
    assert find(["customer"]) == find(["urgent", "x"]) == ([], False)


def test_of_many_tasks_with_a_tag_some_are_found(client, queue, monkeypatch):
    monkeypatch.setattr(module, "MOST", 3)
    queue.enqueue_many(range(5), tags=["a"])

    found, has_more = client.get_inspector().tagged(["a"])
    assert (len(found), has_more) == (3, True)


def test_tags_are_counted_with_the_states_of_their_tasks(client, queue):
    first = queue.enqueue(1, tags=["a", "b!"])
    queue.enqueue_many(range(3), tags=["a"])
    queue.cancel(first)

    assert client.get_inspector().tags() == (
        [TagSeen("a", 4, {"pending": 3, "cancelled": 1}), TagSeen("b!", 1, {"cancelled": 1})],
        False,
    )


def test_tags_are_found_by_their_beginning(client, queue):
    for tag in ("a", "customer:1", "customer:17", "customer!", "d"):
        queue.enqueue(1, tags=[tag])

    found, has_more = client.get_inspector().tags("customer:")
    assert ([each.tag for each in found], has_more) == (["customer:1", "customer:17"], False)


@pytest.mark.parametrize("page", [1, 2, 3, 1000])
def test_each_tag_is_found_however_many_tasks_it_has(client, queue, monkeypatch, page):
    monkeypatch.setattr(module, "_PAGE", page)
    for tag, number in (("a", 3), ("a!", 1), ("ab", 2), ("b", 5)):
        queue.enqueue_many(range(number), tags=[tag])

    found, has_more = client.get_inspector().tags()
    counts = [("a", 3), ("a!", 1), ("ab", 2), ("b", 5)]
    assert ([each[:2] for each in found], has_more) == (counts, False)
    assert client.get_inspector().tags("", 3)[1]


def test_states_are_read_of_so_many_tasks_only(client, queue, monkeypatch):
    monkeypatch.setattr(module, "MOST", 4)
    queue.enqueue_many(range(3), tags=["a"])
    queue.enqueue_many(range(3), tags=["b"])

    found, _ = client.get_inspector().tags()
    assert [each.states for each in found] == [{"pending": 3}, None]


def test_a_task_without_the_tag_is_in_no_state_of_it(client, queue, cli):
    task = queue.enqueue(1, tags=["a"])
    queue.enqueue(2, tags=["a", "b"])
    cli.hset(keys.task(task), "tags", "ab")

    assert client.get_inspector().tags("a")[0] == [TagSeen("a", 2, {"pending": 1})]


def test_without_a_tag_no_task_is_found_and_a_text_is_no_list(client, queue):
    queue.enqueue(1, tags=["x"])
    tagged = client.get_inspector().tagged

    assert tagged([]) == ([], False)
    with pytest.raises(InvalidType, match="tags: they are a list"):
        tagged("x")
