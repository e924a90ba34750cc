"""What an open page gets when it asks for its parts."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import httpx
import pytest
from asking import NODE, ask_app
from running import until
from transactions import protocol

from blueque import Client
from blueque.errors import RedisAway
from blueque.model.attempt_ref import AttemptRef
from blueque.model.log_line import Line
from blueque.web import access, create_app, parts, reader
from blueque.web.access import PARTS, Viewer
from blueque.web.site import Site


@pytest.fixture
def ask_parts(ask):
    """Ask for the parts of a page. tag: of the last answer. entry: up to which the page shows a log."""

    def ask_parts(path, tag=None, entry="", **headers):
        headers |= {PARTS: entry} | ({"if-none-match": tag} if tag else {})
        return ask(path, headers=headers)

    return ask_parts


@pytest.fixture
def nothing_is_used_again(app, monkeypatch):
    reader = app.state.shared.reader
    monkeypatch.setattr(reader, "shared", lambda name, look, fresh=1.0: look())


def number_of_commands(client):
    (text,) = client.connections.read(("INFO", "commandstats"))
    calls = {line.partition(":")[0]: line for line in text.splitlines() if ":calls=" in line}
    calls.pop("cmdstat_info", None)
    return sum(int(line.split("calls=")[1].partition(",")[0]) for line in calls.values())


def write(client, task, *texts, first=1, attempt=1):
    lines = [Line(first + n, time.time(), "stdout", text) for n, text in enumerate(texts)]
    protocol.log(client.connections, AttemptRef("video", task, "token", NODE), attempt, lines)


def test_the_page_of_a_log_shows_the_attempt_that_is_asked_for(ask, client, start):
    task = start()
    write(client, task, "one")
    write(client, task, "two", attempt=2)

    shown = [ask(f"/tasks/{task}/log?attempt={number}").text for number in (1, 2)]

    assert [("<span>one<" in page, "<span>two<" in page) for page in shown] == [
        (True, False),
        (False, True),
    ]


def test_fifty_who_look_at_a_page_cost_redis_what_one_costs(client, start):
    """Viewers with any names, at the same time and soon after each other."""
    path = f"/tasks/{start()}"

    def commands_of(*numbers):
        site, names = Site(address=""), iter(range(99))
        app = create_app(client, authorize=lambda scope: Viewer(f"v{next(names)}"), site=site)

        async def ask():
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as asking:
                for number in numbers:
                    asked = [asking.get(path, headers={PARTS: "0-0"}) for _ in range(number)]
                    answers = await asyncio.gather(*asked)
                    assert {answer.status_code for answer in answers} == {200}

        before = number_of_commands(client)
        asyncio.run(ask())
        return number_of_commands(client) - before

    assert commands_of(25, 25) == commands_of(1) > 0


def test_a_page_that_says_what_it_said_costs_a_status_and_no_body(ask_parts, start):
    path = f"/tasks/{start()}"
    first = ask_parts(path)

    again = ask_parts(path, first.headers["etag"])

    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert first.json()["parts"].keys() >= {"how", "facts", "history"}


def test_who_may_only_look_gets_no_buttons_and_each_the_times_of_the_own_zone(client, start):
    path = f"/tasks/{start()}"
    app = create_app(client, authorize=lambda scope: Viewer("ada", access.header(scope, "x-role")))

    def parts_for(role, zone="UTC"):
        headers = {PARTS: "", "x-role": role, "cookie": f"blueque-zone={zone}"}
        return ask_app(app, path, headers=headers).json()["parts"]

    mine, others = parts_for("operator"), parts_for("viewer")
    there = parts_for("viewer", "Asia/Kolkata")

    assert "/acts/cancel" in mine["acts"] and "/acts/" not in others["acts"]
    assert others["head"] != there["head"]


def test_a_mistake_is_told_with_the_number_under_which_the_log_has_it(
    ask_parts, monkeypatch, caplog
):
    monkeypatch.setattr(reader.Reader, "queues", lambda self: 1 / 0)

    answer = ask_parts("/statistics")

    number = answer.json()["text"].rstrip(".").rpartition(" ")[2]
    assert (answer.status_code, f"request={number}" in caplog.text) == (500, True)


def test_durations_that_have_grown_are_sent_after_a_while(
    ask_parts, start, monkeypatch, nothing_is_used_again
):
    path = f"/tasks/{start()}"
    monkeypatch.setattr(parts, "REFRESH", 1e-6)

    assert ask_parts(path, ask_parts(path).headers["etag"]).status_code == 200


def test_a_change_is_in_the_next_answer(ask_parts, client, start, nothing_is_used_again):
    task = start()
    tag = ask_parts(f"/tasks/{task}").headers["etag"]
    attempt = AttemptRef("video", task, "token", NODE)
    protocol.progress(client.connections, attempt, "41/100 of it", time.time())

    answer = ask_parts(f"/tasks/{task}", tag)

    assert answer.status_code == 200
    assert "of it" in answer.json()["parts"]["how"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("loss fell by 4% so far", 5), ("loss fell by 3% so far", 30)]
)
def test_a_report_is_in_the_next_answer_though_only_its_age_or_a_share_is_new(
    ask_parts, client, start, nothing_is_used_again, text, seconds
):
    """Else a task that reports each second would seem to have said nothing for a minute."""
    task, now = start(), time.time()
    attempt = AttemptRef("video", task, "token", NODE)
    protocol.progress(client.connections, attempt, "loss fell by 3% so far", now - 35)
    first = ask_parts(f"/tasks/{task}")
    protocol.progress(client.connections, attempt, text, now - 35 + seconds)

    answer = ask_parts(f"/tasks/{task}", first.headers["etag"])

    assert answer.status_code == 200
    assert answer.json()["parts"]["how"] != first.json()["parts"]["how"]


@pytest.mark.parametrize("page", ["/tasks/{}", "/tasks/{}/log"])
def test_no_line_of_a_log_is_lost_or_sent_twice(
    ask_parts, client, start, page, nothing_is_used_again
):
    task = start()
    write(client, task, "one")
    entry, tag, found = client.get_log(task)[1].entry, None, []

    for texts in (("two <b>",), (), ("three", "four"), ("five",)):
        write(client, task, *texts, first=2 + len(found))
        answer = ask_parts(page.format(task), tag, entry)
        if texts:
            tag, entry = answer.headers["etag"], answer.json()["entry"]
            lines = answer.json()["html"].split("<li ")[1:]
            found += [line.rpartition("<span>")[2].partition("</span>")[0] for line in lines]

    assert found == ["two &lt;b&gt;", "three", "four", "five"]
    assert ask_parts(page.format(task), tag, entry).status_code == 304


@pytest.mark.parametrize("entry", ["no place", "-", "9" * 5000, "+ COUNT 1"])
def test_a_place_that_is_none_is_not_asked_for(ask_parts, start, entry):
    answer = ask_parts(f"/tasks/{start()}", entry=entry)

    assert (answer.status_code, answer.json()["entry"]) == (200, "")


def test_a_page_is_told_that_redis_is_away_and_goes_on_when_it_is_back(own_server):
    client = Client(own_server.url, patience=0.0)
    app = create_app(client)

    def ask():
        return ask_app(app, "/", headers={PARTS: ""})

    own_server.stop()
    away = ask()
    own_server.start()
    back = ask()

    assert (away.status_code, back.status_code) == (503, 200)
    assert away.json()["text"].startswith("Redis does not answer. No Redis at ")
    client.close()


def test_a_page_is_told_that_redis_is_slow_and_takes_one_thread_however_often_it_asks(
    own_server, monkeypatch
):
    monkeypatch.setattr(parts, "SLOW", 0.05)
    client = Client(own_server.url, patience=0.0)
    app = create_app(client)
    shared = app.state.shared

    async def look():
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as asking:
            ask = lambda: asking.get("/", headers={PARTS: ""})  # noqa: E731
            await ask()
            shared.reader.forget()
            os.kill(own_server.pid, signal.SIGSTOP)
            slow = [await ask() for _ in range(3)]
            used = shared.threads.borrowed_tokens
            os.kill(own_server.pid, signal.SIGCONT)
            while (answer := await ask()).status_code != 200:
                pass
            return slow, used, answer

    slow, used, _ = asyncio.run(look())
    assert {answer.status_code for answer in slow} == {503}
    assert "Redis has not answered" in slow[0].json()["text"]
    assert used == 1
    client.close()


@pytest.mark.parametrize(
    ("path", "told"), [("/nothing", "There is no page"), ("/tasks/none", "There is no task none.")]
)
def test_a_page_that_is_not_there_is_told(ask_parts, path, told):
    answer = ask_parts(path)

    assert answer.status_code == 404
    assert told in answer.json()["text"]


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
            looking.shared("overview", look)

    looking = reader.Reader(client, Site(address=""), clock)
    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert looks == [1]


def test_a_look_that_took_long_is_used_for_ten_times_as_long(client):
    now, looks = [0.0], []
    looking = reader.Reader(client, Site(address=""), clock=lambda: now[0])

    def look():
        looks.append(now[0])
        now[0] += 0.5

    for moment in (20.0, 21.0, 25.0, 25.6):
        now[0] = moment
        looking.shared("list", look)

    assert looks == [20.0, 25.6]
