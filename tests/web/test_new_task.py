"""The form that makes a task: a new one, or a copy."""

from __future__ import annotations

import re
import time
from html import unescape

import pytest
from asking import ask_app
from payload_keys import octets_of

from blueque.model.payload_keys import PayloadKey
from blueque.model.payloads import Sealer
from blueque.protocol.create import OneTask, create
from blueque.web import create_app
from blueque.web.access import Viewer
from blueque.web.site import Site

OWN = {"sec-fetch-site": "same-origin"}


def fields_of(page):
    """Return what a browser would send of the form of a new task."""
    found = dict(re.findall(r'<input[^>]* name="([\w_]+)"[^>]* value="([^"]*)"', page))
    text = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL)
    return {name: unescape(value) for name, value in found.items()} | {
        "parameters": unescape(text[1])
    }


@pytest.fixture
def send(ask):
    return lambda path, form: ask(path, "POST", data=form, headers=OWN)


def test_a_new_task_has_what_the_form_says_and_a_form_sent_twice_makes_one(ask, send, client):
    form = fields_of(ask("/new?queue=video").text) | {
        "parameters": '{"scene": 17}', "title": "ferns", "tags": "night customer:17",
        "priority": "7", "resources": "gpu=1 memory=8GiB", "lock": "licence=3", "retry": "2",
        "time_limit": "2h", "delay": "30m",
    }  # fmt: skip

    answers = [send("/new", form) for _ in range(2)]

    task = client.get_task(answers[0].headers["location"].removeprefix("/tasks/"))
    assert answers[1].headers["location"] == answers[0].headers["location"]
    found = client.get_inspector().listing(["video"], ["scheduled"], 5).tasks
    assert [each.id for each in found] == [task.id]
    assert (task.parameters, task.title) == ({"scene": 17}, "ferns")
    assert task.tags == ["night", "customer:17"]
    assert (task.priority, task.retry.max, task.time_limit) == (7, 2, 7200.0)
    assert task.eta == pytest.approx(time.time() + 1800, abs=60)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"parameters": "{scene"}, "not valid JSON"),
        ({"parameters": '{"token": "[hidden]"}'}, "some values are hidden"),
        ({"parameters": '"[encrypted: k9.1]"'}, "enter them in place of [encrypted]"),
        ({"priority": "high"}, "priority: a number is needed"),
        ({"resources": "gpu"}, "write NAME=AMOUNT"),
        ({"retry": "often"}, "retry"),
        ({"delay": "2h", "at": "2030-01-31T08:00"}, "not both"),
        ({"at": "soon"}, "is not a time"),
        ({"queue": " "}, "name of a queue is missing"),
    ],
)
def test_a_mistake_is_said_and_what_was_typed_stays(ask, send, everything, fields, sentence):
    form = fields_of(ask("/new").text) | {"queue": "video", "title": "ferns"} | fields
    before = everything()

    answer = send("/new", form)

    assert answer.status_code == 400
    assert sentence in unescape(answer.text)
    assert fields_of(answer.text).items() >= {"title": "ferns", **fields}.items()
    assert everything() == before


def test_the_task_that_a_key_belongs_to_is_named(ask, send, queue):
    first = queue.enqueue({"scene": 1}, key="k")
    form = fields_of(ask("/new?queue=video").text) | {"key": "k", "parameters": '{"scene": 1}'}

    answer = send("/new", form)

    assert "Not new: the task with this key is pending" in answer.text
    assert f"/tasks/{first}" in answer.text


def test_a_copy_has_all_that_can_be_seen_of_the_task(ask, send, client, queue):
    first = queue.enqueue(
        {"scene": "Aÿ\x85\u202e", "token": "hunter2"}, title="ferns", priority=3, lock=("l", 2),
        resources={"gpu": 1}, retry=False, time_limit="2h", memory_limit="1GiB", tags=["night"],
    )  # fmt: skip
    page = ask(f"/new?from={first}").text
    assert "hunter2" not in page
    form = fields_of(page)
    form["parameters"] = form["parameters"].replace("[hidden]", "hunter3")

    answer = send("/new", form)

    copy = client.get_task(answer.headers["location"].removeprefix("/tasks/"))
    task = client.get_task(first)
    assert copy.parameters == {"scene": "Aÿ\x85\u202e", "token": "hunter3"}
    same = ("title", "priority", "needs", "retry", "time_limit", "memory_limit", "tags")
    assert [copy.fields.get(name) for name in same] == [task.fields.get(name) for name in same]


def test_who_may_only_look_gets_no_form_and_other_queues_get_no_task(client, queue, everything):
    before = everything()
    viewer = create_app(client, authorize=lambda scope: Viewer("eve", "viewer"))
    site = Site(address="", queues=("other.*",))
    narrow = create_app(client, authorize=lambda scope: Viewer("ada", "operator"), site=site)

    assert ask_app(viewer, "/new").status_code == 403
    sent = ask_app(viewer, "/new", "POST", data={"queue": "video"}, headers=OWN)
    assert sent.status_code == 403
    form = {"queue": "video", "number": "1", "parameters": "1"}
    assert "does not belong" in ask_app(narrow, "/new", "POST", data=form, headers=OWN).text
    assert everything() == before


def test_the_page_shows_no_encrypted_text(ask, client):
    key = PayloadKey.of("k9", octets_of("k9"))  # no process has it in a file
    new = client.get_queue("video").new_task({"a": 1}, context={"b": 2})
    sealed = Sealer(None, key).new_task(new)
    create(client.connections, OneTask(sealed, time.time()))
    word, text = f"[encrypted: {key.name}]", sealed.parameters
    for path in (f"/tasks/{new.task}", "/tasks?q=video", "/queues/video", f"/new?from={new.task}"):
        page = unescape(ask(path).text)
        assert text not in page, path
        assert word in page, path
    assert word in ask(f"/api/v1/task?id={new.task}").text
