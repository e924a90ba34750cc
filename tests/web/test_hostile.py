"""What hostile viewers send, and what they must not see."""

from __future__ import annotations

import asyncio
import html
import logging
import re
import shlex
from urllib.parse import quote, urlencode

import httpx
import pytest
from asking import ask_app
from starlette.applications import Starlette
from starlette.routing import Mount

from blueque import Client
from blueque.faces.orders import ORDERS
from blueque.protocol import permissions
from blueque.web import create_app, reader
from blueque.web.access import COOKIE, PARTS, Viewer
from blueque.web.api import OBJECTS
from blueque.web.logins import Logins
from blueque.web.site import Site
from blueque.web.views import VIEWS
from blueque.web.views.task import _plain

OWN = {"sec-fetch-site": "same-origin"}
PROGRAM = Viewer("ci", "operator", is_program=True)
NINES = "9" * 5000  # Python reads no such number


@pytest.fixture
def app(client):
    return create_app(client, authorize=lambda scope: PROGRAM)


def paths_of(task):
    """Return a path for each page and each object, with a task and names that exist."""
    names = {"name": "video", "id": task}
    paths = [
        pattern.replace("\\", "")
        .replace("(?P<name>.+)", names["name"])
        .replace("(?P<id>[^/]+)", names["id"])
        for pattern, _ in VIEWS
    ]
    return [*paths, *(f"/api/v1/{kind}?id={task}&name=video&group=w" for kind in OBJECTS)]


@pytest.mark.parametrize(
    "path",
    [
        "//[",
        "/%00",
        f"/tasks?limit={NINES}&first={NINES}",
        f"/queues?first={NINES}",
        "/nodes?first=²",
        f"/api/v1/statistics?days={NINES}",
        "/api/v1/timeline?since=1e999",
        "/tasks?since=" + "9" * 400 + "d",
        "/tasks?queue=[&node=%ff&text=%f0%9f",
        "/statistics?span=%00",
        "/acts/" + "x" * 3000,
        "/tasks/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    ],
)
def test_no_address_is_a_mistake_of_the_server(client, queue, path):
    queue.enqueue({"scene": 1})
    app = create_app(client, authorize=lambda scope: PROGRAM)
    for headers in ({}, {PARTS: ""}):
        assert ask_app(app, path, headers=headers).status_code < 500


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "[::1"},
        {"host": "a]"},
        {"origin": "http://[", "sec-fetch-site": "none"},
        {"cookie": f"{COOKIE}=a.b; =;;"},
        {"cookie": "\xff" * 4000},
        {"authorization": "Bearer \xff"},
        {"x-forwarded-for": "," * 1000, "x-forwarded-proto": "gopher"},
    ],
)
def test_no_header_is_a_mistake_of_the_server(client, headers):
    site = Site(address="", hosts=frozenset({"localhost"}))
    app = create_app(client, authorize=Logins({"a token": "operator"}), site=site)
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    for method in ("GET", "POST"):
        assert ask_app(app, "/login", method, headers=encoded).status_code < 500


def test_files_of_the_server_are_not_served(app):
    from blueque.version import __version__

    for path in (
        "../access.py",
        "..%2faccess.py",
        "%2e%2e/access.py",
        "..\\access.py",
        "//etc/passwd",
    ):
        answer = ask_app(app, f"/static/{__version__}/{path}")
        assert answer.status_code == 404
        assert "is_own" not in answer.text and "root:" not in answer.text


def test_a_large_body_is_refused_before_it_is_read(app):
    sent = []

    async def body():
        for _ in range(1600):  # 100 MB
            sent.append(65536)
            yield b"x" * 65536

    async def post():
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as asking:
            return await asking.post("/acts/cancel?id=x", content=body(), headers=OWN)

    assert asyncio.run(post()).status_code == 413
    assert sum(sent) < 10 * 65536


def test_a_search_does_not_tell_what_is_hidden(app, queue):
    queue.enqueue({"token": "hunter2", "scene": "aurora"}, key="k")

    assert ask_app(app, "/api/v1/tasks?text=hunter&state=pending").json()["items"] == []
    assert len(ask_app(app, "/api/v1/tasks?text=aurora&state=pending").json()["items"]) == 1


def test_secrets_are_in_no_page_object_file_or_line_of_the_log(
    client, app, queue, start, end, caplog
):
    caplog.set_level(logging.DEBUG)
    task = start({"token": "hunter2"}, context={"password": "hunter2"})
    client.set_schedule("video", queue="video", parameters={"token": "hunter2"}, cron="0 3 * * *")
    with client.workflow("w") as workflow:
        workflow.add("video", {"token": "hunter2"})
    caplog.clear()
    paths = [*paths_of(task), f"/acts/cancel?id={task}", "/tasks.csv?state=started"]
    texts = [ask_app(app, path).text for path in paths]
    form = {"number": "1", "expected": "1", "running": "1", "reason": "x"}
    texts.append(ask_app(app, f"/acts/cancel?id={task}", "POST", data=form, headers=OWN).text)

    assert "hunter2" not in "".join(texts)
    assert "hunter2" not in caplog.text
    assert "web order" in caplog.text  # who, and what


def test_no_get_needs_more_than_the_rights_of_a_viewer(client, queue, start, rules_of):
    task = start()
    with client.workflow("w") as workflow:
        workflow.add("video", {"scene": 1})
    client.set_schedule("video", queue="video", parameters={}, cron="0 3 * * *")
    rights = permissions.rules(["viewer"], rules_of)
    client.connections.read(("ACL", "SETUSER", "looks", "on", ">secret", *rights))
    reading = Client(client.url.replace("redis://", "redis://looks:secret@"), patience=0.0)
    app = create_app(reading, authorize=lambda scope: PROGRAM)
    forms = ["/new", f"/new?from={task}"]
    forms += [f"/acts/{verb}?id={task}" for verb in ORDERS]
    try:
        answers = {path: ask_app(app, path).status_code for path in [*paths_of(task), *forms]}
        assert {path: code for path, code in answers.items() if code >= 500} == {}
        order = {"expected": "1", "running": "1"}
        refused = ask_app(app, f"/acts/cancel?id={task}", "POST", data=order, headers=OWN)
        assert "NOPERM" in refused.text  # the rights are enforced
        pause = ask_app(app, "/controls/queue/pause", "POST", data={"name": "video"}, headers=OWN)
        assert (pause.status_code, "Not allowed" in pause.text) == (403, True), pause.text
        assert "blueque acl check" in pause.text and "Retry-After" not in pause.headers
    finally:
        reading.close()
        client.connections.read(("ACL", "DELUSER", "looks"))


def test_a_name_is_decoded_once(app, client):
    client.get_queue("a%41b").enqueue({"scene": 1})
    assert ask_app(app, "/queues/a%2541b").status_code == 200
    assert ask_app(app, "/queues/a%41b").status_code == 404


@pytest.mark.parametrize("name", ["$(reboot) '; reboot", "-n"])
def test_a_name_is_one_word_and_no_option_in_a_command_that_is_copied(app, client, name):
    client.get_queue(name).enqueue({"scene": 1})
    client.set_schedule(name, queue=name, every="1h")
    client.group(name).open()
    quoted, asked = quote(name), urlencode({"queue": name, "name": name})

    for path, verb in {
        f"/queues/{quoted}": "queue show",
        f"/groups/{quoted}": "group show",
        f"/schedule/{quoted}": "schedule show",
        f"/controls/group/cancel?{asked}": "group cancel",
        f"/failures?{asked}": "failures",
        f"/failures/OSError?{asked}": "failures",
        f"/new?{asked}": "enqueue",
    }.items():
        page = ask_app(app, path).text
        command = html.unescape(re.findall('in a terminal: .*?data-copy="([^"]*)"', page)[0])
        dashes = "--" if name.startswith("-") else ""
        assert command.startswith(f"blueque {verb} {dashes}")
        words = shlex.split(command)
        place = words.index(name)
        assert words[place + 1 :] in ([], ["JSON"]), "behind -- an option is a name"
        assert (words[place - 1] == "--") == bool(dashes)


def test_many_different_questions_take_bounded_memory(client, queue, monkeypatch):
    monkeypatch.setattr(reader, "MOST_LOOKS", 5)
    queue.enqueue({"scene": 1})
    keeping = reader.Reader(client, Site(address=""))
    for number in range(20):
        keeping.shared(("failures", number), dict)
    assert [*keeping._looks] == [("failures", number) for number in range(15, 20)]


def test_mounted_in_another_application_everything_stays_below_its_path(client, start):
    task = start()
    page = create_app(client, authorize=Logins({"a token of operators": "operator"}))
    outer = Starlette(routes=[Mount("/ops/blueque", page)])  # no lifespan of ours is run
    token = {"authorization": "Bearer a token of operators"}

    text = ask_app(outer, f"/ops/blueque/tasks/{task}", headers=token).text
    links = [part.partition('"')[0] for part in text.split('href="')[1:]]
    assert links and all(link.startswith(("/ops/blueque/", "#")) for link in links)
    for link in links:
        if "/static/" in link:
            assert ask_app(outer, link).status_code == 200
    moved = ask_app(outer, "/ops/blueque/tasks")
    assert moved.headers["location"] == "/ops/blueque/login?next=%2Ftasks"
    form = {"token": "a token of operators", "next": "/tasks"}
    entered = ask_app(outer, "/ops/blueque/login", "POST", data=form, headers=OWN)
    assert entered.headers["location"] == "/ops/blueque/tasks"
    assert "Path=/ops/blueque;" in entered.headers["set-cookie"]
    assert ask_app(outer, "/ops/blueque/api/v1/status", headers=token).status_code == 200


def test_the_name_of_a_downloaded_file_is_harmless():
    assert _plain('a"b\r\nc') == "a_b__c"
