"""A listener whose node stops its tasks at a known time takes none that may run longer."""

from __future__ import annotations

import logging
import time

import pytest
from reaching_in import name_listener
from transactions import protocol

from blueque.listener.time_left import TimeLeft
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.units import Timing
from blueque.protocol.ends import End

HOUR = 3600.0


@pytest.fixture
def make(client):
    """Make a listener that has so much time left."""

    def make(seconds=HOUR, default=None, node="here_1", queues=("video",)):
        listener = client.get_listener(*queues)
        for ours in listener:
            name_listener(ours, node)
            if seconds is not None:
                ours.time_left = TimeLeft(time.monotonic() + seconds, default)
            listener.register(Timing(), queue=ours.queue)
            ours.is_list_unsure = False
        return listener

    return make


def put(redis, task, now=1.0, queue="video", **options):
    protocol.enqueue(redis, queue, task, "in", now, options)


def line(cli, name="0"):
    return cli.lrange(keys.line("video", name), 0, -1)


@pytest.mark.parametrize(("limit", "is_taken"), [(HOUR - 5, True), (HOUR + 5, False), (None, True)])
def test_a_task_is_taken_if_it_ends_in_time_by_its_limit(make, redis, cli, limit, is_taken):
    put(redis, "a", **({} if limit is None else {"time_limit": limit}))
    listener = make()
    task = listener.take()
    assert (task is not None) is is_taken
    assert line(cli) == ([] if is_taken else ["a"])
    assert cli.hget(keys.task("a"), "status") == ("reserved" if is_taken else "pending")


def test_a_task_that_came_to_the_head_meanwhile_is_put_back_there(
    make, redis, other, cli, overtaken
):
    put(redis, "short", 1.0)
    put(redis, "long", 2.0, time_limit=2 * HOUR)
    put(redis, "last", 3.0)
    protocol.register(other, "video", "there_1", "i9", {}, 1.0)
    listener = make()
    overtaken(lambda: protocol.pop(other, "video", "there_1", "i9"))
    assert listener.take() is None
    assert line(cli) == ["last", "long"]
    assert cli.lrange(keys.reserved("video", "here_1"), 0, -1) == []
    assert cli.hget(keys.task("long"), "status") == "pending"


def test_a_task_in_its_own_list_that_it_had_popped_before_is_put_back(make, redis, cli):
    put(redis, "long", time_limit=2 * HOUR)
    listener = make()
    protocol.pop(redis, "video", "here_1", listener.of("video").instance)
    listener.of("video").is_list_unsure = True
    assert listener.take() is None
    assert line(cli) == ["long"]


def test_it_is_logged_once_which_task_is_left_to_others(make, redis, caplog):
    put(redis, "long", time_limit=2 * HOUR)
    listener = make()
    with caplog.at_level(logging.INFO, "blueque"):
        assert [listener.take() for _ in range(3)] == [None] * 3
    lines = [text for text in caplog.messages if "to others" in text]
    assert len(lines) == 1
    assert lines[0].startswith("leaving task=long to others: its time_limit of 2 h is longer than")


@pytest.mark.parametrize(
    ("hours", "limit", "is_warned"), [(2.0, None, True), (0.5, None, False), (2.0, 60, False)]
)
def test_the_usual_time_only_warns(make, redis, caplog, hours, limit, is_warned):
    now = time.time()
    protocol.register(redis, "video", "there_1", "i9", {}, now)
    for number in range(20):
        put(redis, f"old-{number}", now - 9 * HOUR)
        protocol.pop(redis, "video", "there_1", "i9")
        attempt = AttemptRef("video", f"old-{number}", "token", "there_1")
        protocol.reserve(redis, attempt, "i9", now - 8 * HOUR)
        protocol.start(redis, attempt, 1, now - 8 * HOUR)
        protocol.end(redis, attempt, End.complete("out"), now - (8 - hours) * HOUR)
    for name in ("a", "b"):
        put(redis, name, now, **({} if limit is None else {"time_limit": limit}))
    listener = make()
    assert listener.take().id == "a"
    assert listener.take().id == "b"
    warned = [text for text in caplog.messages if "may be stopped" in text]
    assert len(warned) == is_warned
    assert not warned or warned[0].startswith(
        "task=a may be stopped: 1 in 20 tasks of queue video runs for more"
    )
