"""A page that has viewers is woken by events, and not by the clock alone."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing

import pytest
from running import until
from test_live import visit_of, wait_for

from blueque.errors import RedisAway
from blueque.queries.history import Heard
from blueque.web.live import Live
from blueque.web.reader import Reader
from blueque.web.shared import Shared
from blueque.web.site import Site
from blueque.web.wake import scope_of

NEVER = 3600.0  # seconds between two looks by the clock


def is_heard(client):
    """Tell whether somebody waits for events."""
    (text,) = client.connections.read(("CLIENT", "LIST"))
    return any("cmd=xread" in line for line in text.splitlines())


def watch(client, path, change, has, pace=NEVER):
    """Return the parts of a page that come after a change."""

    async def look():
        shared = Shared(client, Site(address=""))
        live = Live(shared, pace)
        async with aclosing(live.messages(visit_of(shared, path))) as stream:
            await wait_for(stream, "parts")
            await asyncio.to_thread(until, lambda: is_heard(client))
            await asyncio.to_thread(change)
            return await wait_for(stream, "parts", has)

    return asyncio.run(look())


@pytest.mark.parametrize("path", ["/", "/queues/video", "/tasks", "/tasks/{task}"])
def test_an_event_wakes_its_page_and_what_it_changed_is_read_anew(client, start, end, path):
    task = start()

    seen = watch(client, path.format(task=task), lambda: end(task, "OSError: disk full"), "")

    assert seen["set"]


@pytest.mark.parametrize(
    ("path", "is_woken"),
    [("/", True), ("/queues/video", True), ("/tasks/{mine}", False), ("/settings", False)],
)
def test_events_of_another_task_wake_only_pages_that_show_it(client, start, path, is_woken):
    mine, other = start(), start({"scene": 18})
    shared = Shared(client, Site(address=""))

    scope = scope_of(visit_of(shared, path.format(mine=mine)))

    assert scope.has(Heard("video", frozenset({other}), "1-1")) == is_woken
    assert not scope.has(Heard("audio", frozenset({mine}), "1-1"))
    assert scope.has(Heard("video", frozenset({mine, other}), "1-1")) == (path != "/settings")


def test_a_look_is_not_used_after_an_event_but_one_that_took_long_is(client):
    now, looks = [0.0], []
    reader = Reader(client, Site(address=""), clock=lambda: now[0])

    def look(took):
        looks.append(now[0])
        now[0] += took

    def times(*at, took):
        looks.clear()
        for moment in at:
            now[0] = moment
            reader.stir()
            reader.shared(took, lambda: look(took))
        return looks

    assert times(10.0, 10.1, 10.2, took=0.001) == [10.0, 10.1, 10.2]
    assert times(20.0, 21.0, 25.0, 25.9, took=0.5) == [20.0, 25.9]  # ten times as long


def test_nobody_listens_for_events_when_the_last_viewer_has_left(client, start):
    async def look():
        shared = Shared(client, Site(address=""))
        live = Live(shared, NEVER)
        async with aclosing(live.messages(visit_of(shared, "/"))) as stream:
            await wait_for(stream, "parts")
            await asyncio.to_thread(until, lambda: is_heard(client))
        await asyncio.to_thread(until, lambda: not is_heard(client))

    start()
    asyncio.run(look())


def test_who_waits_for_a_look_that_fails_does_not_wait_once_more(client):
    asked, looks = [], []

    def clock():
        asked.append(1)
        return float(len(asked))

    def look():
        looks.append(1)
        until(lambda: len(asked) == 3)  # the first has asked twice, and now the second waits
        raise RedisAway("timed out")

    def ask():
        with pytest.raises(RedisAway, match="timed out"):
            reader.shared("overview", look)

    reader = Reader(client, Site(address=""), clock)
    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert looks == [1]
