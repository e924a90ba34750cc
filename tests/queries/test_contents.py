"""What lists read of the contents of tasks: what is small, and the sizes of the rest."""

from __future__ import annotations

from transactions import protocol

from blueque import Client
from blueque.queries import tasks as contents
from blueque.queries.inspector import Inspector

JSON = {"parameters_encoding": "json"}


def put(redis, *named):
    for task, text, fields in named:
        protocol.enqueue(redis, "video", task, text, 1000.0, fields)
    return Inspector(redis).tasks([task for task, *_ in named])


def test_parameters_are_read_of_tasks_without_a_name_and_replaced_by_their_size_if_large(redis):
    large = "x" * (contents.MOST_EACH + 1)
    tasks = put(redis, ("a", '{"n":1}', JSON), ("b", "2", JSON | {"key": "k"}), ("c", large, {}))

    found = Inspector(redis).with_contents(tasks)

    assert [task.id for task in found] == ["a", "b", "c"]
    assert [task.parameters for task in found] == [{"n": 1}, None, "(16.0 KiB)"]
    assert found[1].fields == tasks[1].fields


def test_without_the_right_to_ask_for_sizes_lists_do_without_parameters(redis, url):
    tasks = put(redis, ("a", "1", JSON))
    rules = ("reset", "on", ">secret", "~blueque_*", "+@all", "-hstrlen")
    redis.read(("ACL", "SETUSER", "viewer", *rules))
    try:
        viewer = Client(url.replace("//", "//viewer:secret@")).get_inspector()
        assert viewer.with_contents(tasks)[0].fields == tasks[0].fields
    finally:
        redis.read(("ACL", "DELUSER", "viewer"))
