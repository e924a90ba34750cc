"""The stream of changes of a page."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from contextlib import aclosing

import pytest
from asking import NODE, ask_app
from transactions import protocol

from blueque import Client
from blueque.model.attempt_ref import AttemptRef
from blueque.model.log_line import Line
from blueque.web import access, create_app, live
from blueque.web.access import Viewer
from blueque.web.live import Live
from blueque.web.shared import Shared
from blueque.web.site import Site
from blueque.web.visit import Visit

PACE = 0.01


def live_of(client):
    shared = Shared(client, Site(address=""))
    return shared, Live(shared, PACE)


def visit_of(shared, path, name="ada"):
    return Visit(shared.site, shared.reader, path, Viewer(name), time.time(), is_live=True)


async def wait_for(stream, kind, has=""):
    """Return the data of the next message of this kind that has a text."""
    async with asyncio.timeout(15):
        async for message in stream:
            lines = dict(
                line.split(": ", 1) for line in message.strip().splitlines() if ": " in line
            )
            if lines.get("event") == kind and has in lines["data"]:
                return json.loads(lines["data"])
    raise AssertionError(f"no {kind} with {has!r}")


def write(client, task, *texts, first=1):
    lines = [Line(first + n, time.time(), "stdout", text) for n, text in enumerate(texts)]
    protocol.log(client.connections, AttemptRef("video", task, "token", NODE), 1, lines)


def test_two_viewers_of_a_page_share_one_look_and_both_see_a_change(client, queue):
    async def look():
        shared, live = live_of(client)
        streams = [live.messages(visit_of(shared, "/")) for _ in range(2)]
        async with aclosing(streams[0]), aclosing(streams[1]):
            for stream in streams:
                await wait_for(stream, "parts")
            assert live.pages == 1
            await asyncio.to_thread(queue.enqueue, {"scene": 1})
            seen = [await wait_for(stream, "parts", "video") for stream in streams]
        assert live.pages == 0  # nobody looks, so nothing is read
        return seen

    assert all("1" in seen["set"].get("figures", "1") for seen in asyncio.run(look()))


def test_only_the_parts_that_say_something_else_are_sent(client, queue, start):
    task = start()

    async def look():
        shared, live = live_of(client)
        async with aclosing(live.messages(visit_of(shared, f"/tasks/{task}"))) as stream:
            await wait_for(stream, "parts")
            attempt = AttemptRef("video", task, "token", NODE)
            await asyncio.to_thread(
                protocol.progress, client.connections, attempt, "41 % of it", time.time()
            )
            return await wait_for(stream, "parts", "41 % of it")

    changed = asyncio.run(look())["set"]
    assert "how" in changed
    assert "facts" not in changed


def test_a_log_goes_on_where_the_page_ends_for_each_viewer(client, start):
    task = start()
    write(client, task, "one")
    entry = client.get_log(task)[1].entry

    async def look():
        shared, live = live_of(client)
        path = f"/tasks/{task}"
        async with aclosing(live.messages(visit_of(shared, path), entry)) as first:
            await wait_for(first, "parts")
            await asyncio.to_thread(write, client, task, "two <b>", first=2)
            assert "two &lt;b&gt;" in (await wait_for(first, "lines"))["html"]
            # The page of the second viewer was made before the line came.
            async with aclosing(live.messages(visit_of(shared, path), entry)) as second:
                assert "two &lt;b&gt;" in (await wait_for(second, "lines"))["html"]

    asyncio.run(look())


def test_a_viewer_is_told_that_redis_is_away_and_when_it_is_back(own_server):
    client = Client(own_server.url, patience=0.0)

    async def look():
        shared, live = live_of(client)
        async with aclosing(live.messages(visit_of(shared, "/"))) as stream:
            await wait_for(stream, "parts")
            await asyncio.to_thread(own_server.stop)
            assert "Redis does not answer" in (await wait_for(stream, "trouble"))["text"]
            await asyncio.to_thread(own_server.start)
            await wait_for(stream, "parts")

    asyncio.run(look())
    client.close()


def test_a_viewer_is_told_that_redis_is_slow_and_since_when(own_server, monkeypatch):
    monkeypatch.setattr("blueque.web.live.SLOW", 0.05)
    client = Client(own_server.url, patience=0.0)

    async def look():
        shared, live = live_of(client)
        async with aclosing(live.messages(visit_of(shared, "/"))) as stream:
            seen = await wait_for(stream, "parts")
            os.kill(own_server.pid, signal.SIGSTOP)
            told = await wait_for(stream, "trouble")
            os.kill(own_server.pid, signal.SIGCONT)
            await wait_for(stream, "parts")
            return seen["now"], told

    looked, told = asyncio.run(look())
    assert "Redis has not answered" in told["text"]
    assert looked <= told["since"] <= time.time()
    client.close()


def test_one_login_does_not_take_the_streams_of_others(client, monkeypatch):
    monkeypatch.setattr(live, "MOST_OF_LOGIN", 1)
    app = create_app(client, authorize=lambda scope: Viewer(access.header(scope, "x-name")))

    def status(name):
        return ask_app(app, "/live", "HEAD", headers={"x-name": name}).status_code

    async def both():
        async with aclosing(app.state.live.messages(visit_of(app.state.shared, "/"))) as stream:
            await wait_for(stream, "parts")
            return [await asyncio.to_thread(status, name) for name in ("ada", "bob")]

    assert asyncio.run(both()) == [429, 200]


def test_the_end_of_the_server_ends_the_streams(client):
    async def look():
        shared, live = live_of(client)
        async with aclosing(live.messages(visit_of(shared, "/"))) as stream:
            await wait_for(stream, "parts")
            live.end()
            async with asyncio.timeout(15):
                return [message async for message in stream]

    assert len(asyncio.run(look())) <= 1


@pytest.mark.parametrize(
    ("path", "told"), [("/nothing", "There is no page"), ("/tasks/none", "does not exist")]
)
def test_a_page_that_is_not_there_is_told(client, path, told):
    async def look():
        shared, live = live_of(client)
        async with aclosing(live.messages(visit_of(shared, path))) as stream:
            return await wait_for(stream, "trouble")

    assert told in asyncio.run(look())["text"]
