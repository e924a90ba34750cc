"""Searches beside other pages."""

from __future__ import annotations

import asyncio
import threading

import httpx
import pytest

from blueque.web import create_app
from blueque.web.access import COOKIE, Viewer
from blueque.web.searches import PATIENCE, PAUSE, SEARCHES_AT_ONCE
from blueque.web.site import Site

WORD = "/tasks?state=pending&text=aurora"


class Held:
    """Stands for many tasks: hides nothing, and takes as long as a test wants. It is called for tasks
    with a title only when words are looked for.
    """

    def __init__(self) -> None:
        self.began, self.may_end = threading.Semaphore(0), threading.Event()
        self.gave_up = False

    def __call__(self, value):
        self.began.release()
        self.gave_up = not self.may_end.wait(20)
        return value


@pytest.fixture
def held(queue):
    queue.enqueue({"scene": "aurora"}, title="scene 17")
    held = Held()
    yield held
    held.may_end.set()


@pytest.fixture
def asked(client, held):
    """Return a function that runs another one with a client of HTTP, beside so many searches of ada."""

    def authorize(scope):
        return Viewer(dict(scope["headers"]).get(b"x-name", b"ada").decode(), "operator")

    app = create_app(client, authorize=authorize, site=Site("", hide=held))

    async def run(paths, then):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            searches = [asyncio.ensure_future(http.get(path)) for path in paths]
            try:
                assert await asyncio.to_thread(held.began.acquire, timeout=30)
                answers = await then(http)
                assert not held.gave_up  # the search still went on
                return answers
            finally:
                held.may_end.set()
                await asyncio.gather(*searches)

    return lambda paths, then: asyncio.run(run(paths, then))


def test_pages_and_readyz_answer_while_words_are_looked_for(asked):
    async def then(http):
        return [(await http.get(path)).status_code for path in ("/", "/readyz", "/tasks")]

    assert asked([f"{WORD}&limit={number}" for number in range(1, 7)], then) == [200, 200, 200]


def test_another_search_of_a_login_is_told_that_the_page_is_busy(asked):
    async def then(http):
        return [
            await http.get(f"{WORD}&limit=9"),
            await http.get("/api/v1/tasks", params={"text": "x"}),
            await http.get("/tasks.csv"),
        ]

    answers = asked([WORD], then)

    assert [answer.status_code for answer in answers] == 3 * [503]
    for answer in answers:
        assert "Another search is running. Try again in a moment." in answer.text
        assert "Redis" not in answer.text.partition("<footer>")[0]
        assert answer.headers["retry-after"] == "5"
    assert 'http-equiv="refresh"' in answers[0].text


def test_an_order_for_a_list_waits_for_its_turn_and_one_for_a_workflow_for_nothing(
    asked, held, client
):
    with client.workflow("night") as flow:
        flow.add("video", {})

    async def then(http):
        listed = asyncio.ensure_future(http.get("/acts/cancel?state=pending"))
        whole = await http.get("/controls/group/cancel?name=night")
        await asyncio.sleep(PATIENCE + PAUSE)
        waits = not listed.done()
        held.may_end.set()
        return waits, whole.status_code, (await listed).status_code

    assert asked([WORD], then) == (True, 200, 200)


def test_holders_of_one_token_search_at_the_same_time(asked, held):
    """Each has a cookie of its own."""

    async def then(http):
        other = asyncio.ensure_future(
            http.get(WORD + "&limit=9", headers={"cookie": f"{COOKIE}=b"})
        )
        assert await asyncio.to_thread(held.began.acquire, timeout=30)
        held.may_end.set()
        return (await other).status_code

    assert asked([WORD], then) == 200


def test_a_search_waits_for_no_search_of_another_login(asked, held):
    async def then(http):
        other = asyncio.ensure_future(http.get(WORD + "&limit=9", headers={"x-name": "bob"}))
        assert await asyncio.to_thread(held.began.acquire, timeout=30)
        third = await http.get(WORD + "&limit=8", headers={"x-name": "cy"})
        assert not held.gave_up
        held.may_end.set()
        return (await other).status_code, third.status_code

    assert SEARCHES_AT_ONCE == 2
    assert asked([WORD], then) == (200, 503)


def test_words_are_not_looked_for_again_by_themselves(ask, queue):
    queue.enqueue({"scene": "aurora"})

    assert "data-live" not in ask(WORD).text and "search again" in ask(WORD).text
    assert "data-live" in ask("/tasks?state=pending").text
