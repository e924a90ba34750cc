"""The index of tags: which tags there are, and the tasks that have them."""

from __future__ import annotations

import pytest

from blueque import InvalidType
from blueque.queries import tags as module


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


def test_without_a_tag_no_task_is_found_and_a_text_is_no_list(client, queue):
    queue.enqueue(1, tags=["x"])
    tagged = client.get_inspector().tagged

    assert tagged([]) == ([], False)
    with pytest.raises(InvalidType, match="tags: write a list"):
        tagged("x")
