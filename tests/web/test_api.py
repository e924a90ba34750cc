"""The objects of --json over HTTP, and orders of programs."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from asking import NODE, ask_app
from click.testing import CliRunner
from transactions import protocol

from blueque.cli.main import blueque
from blueque.cli.options import Invocation
from blueque.faces.orders import ORDERS
from blueque.model.attempt_ref import AttemptRef
from blueque.model.log_line import Line
from blueque.protocol.ends import End
from blueque.queries.inspector import Inspector
from blueque.web import controls, create_app, objects
from blueque.web.access import Viewer
from blueque.web.site import Site

PROGRAM = Viewer("ci", "operator", is_program=True)
JSON = {"accept": "application/json"}
MOVING = ("now", "seconds", "since", "until", "beat", "oldest", "expected_start", "checks")
# Of each kind: its query, and the command that prints the same.
SAME = {
    "status": ("", "status"),
    "tasks": ("state=pending&state=failed", "ls --state pending,failed"),
    "task": ("id={failed}", "show {failed}"),
    "why": ("id={pending}", "why {pending}"),
    "graph": ("group=w", "graph w"),
    "history": ("id={failed}", "history {failed}"),
    "queues": ("", "queue ls"),
    "hosts": ("", "host ls"),
    "host_show": ("name=host_1", "host show host_1"),
    "timeline": ("", "timeline"),
    "statistics": ("", "stats"),
    "failures": ("", "failures"),
    "schedules": ("", "schedule ls"),
    "schedule_history": ("name=nightly", "schedule history nightly"),
    "groups": ("", "group ls"),
    "group": ("name=w", "group show w"),
    "tags": ("", "tags"),
    "recurring": ("name=nightly", "schedule show nightly --utc"),
    "queue_show": ("queue=video", "queue show video"),
    "doctor": ("", "doctor --settle 0s"),
}


@pytest.fixture
def tasks(client, queue, start, end):
    failed = start({"token": "hunter2"})
    end(failed, "ValueError: \u202eodd")
    pending = str(queue.enqueue({"password": "hunter2"}, title="scene 1", tags=["night"]))
    client.set_schedule("nightly", queue="video", parameters={"token": "hunter2"}, cron="0 3 * * *")
    with client.workflow("w") as workflow:
        workflow.add("video", {"scene": 3}, after=workflow.add("video", {"scene": 2}))
    queue.enqueue_many([{"scene": 4}], keys=["k"], group="2026-11-22")
    return {"failed": failed, "pending": pending}


@pytest.fixture
def site(client):
    return Site(address=client.url, origin="--redis-url")


def without_times(value):
    """Return a value without what differs from one moment to the next."""
    if isinstance(value, dict):
        return {
            key: without_times(one)
            for key, one in value.items()
            if not any(word in key for word in MOVING)
        }
    return [without_times(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", SAME)
def test_each_kind_is_the_object_of_its_command(client, site, tasks, kind, monkeypatch):
    query, line = (words.format(**tasks) for words in SAME[kind])
    if kind == "status":  # at one instant
        seen = client.get_inspector().overview()
        monkeypatch.setattr(Inspector, "overview", lambda self, only=None: seen)

    app = create_app(client, site=site, authorize=lambda scope: PROGRAM)
    if kind == "doctor":
        monkeypatch.setattr(controls, "SETTLE", 0.0)
        assert ask_app(app, "/api/v1/doctor").status_code == 404
        ask_app(app, "/doctor", "POST", headers=JSON)
    answer = ask_app(app, f"/api/v1/{kind}?{query}")
    words = [*line.split(), "--json", "--redis-url", client.url]
    printed = CliRunner().invoke(blueque, words, obj=Invocation()).stdout

    assert answer.status_code == 200, answer.text
    assert "hunter2" not in answer.text
    assert "\u202e" not in answer.text
    mine, theirs = answer.json(), json.loads(printed)
    if kind == "status":
        assert mine == theirs
    assert mine["kind"] == kind
    assert without_times(mine) == without_times(theirs)


def test_the_guide_names_all_kinds_and_orders():
    text = (Path(__file__).parents[2] / "docs/guide/web.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|(.*)\|$", text.partition("\n## For programs\n")[2], re.M)
    first = {name: more for names, more in rows for name in re.findall("`(.+?)`", names)}
    orders = {name: re.findall(r"`(\w+)`", more) for name, more in first.items() if name[0] == "/"}

    assert first.keys() - orders.keys() == objects.OBJECTS.keys()
    assert {*orders.pop("/acts/VERB")} == ORDERS.keys()
    given = {(name.split("/")[2], verb) for name, verbs in orders.items() for verb in verbs}
    assert given == controls.CONTROLS.keys() - {("task", "stack")}


def test_secrets_of_a_result_are_hidden_as_on_the_page(client, start):
    task = start()
    attempt = AttemptRef("video", task, "token", NODE)
    more = {"result_encoding": "json"}
    protocol.end(
        client.connections, attempt, End.complete('{"token": "hunter2", "n": 1}', more), time.time()
    )

    item = ask_app(create_app(client), f"/api/v1/task?id={task}").json()["item"]
    assert item["result"] == {"token": "[hidden]", "n": 1}


def test_what_is_wrong_is_told_as_json(client, tasks):
    app = create_app(client)
    wrong = {
        "nothing": 404,
        "task?id=none": 404,
        "task": 400,
        "group?name=none": 404,
        "schedule_history?name=none": 404,
        "tasks?since=yesteryear": 400,
        "timeline?since=x": 400,
    }
    for path, status in wrong.items():
        answer = ask_app(app, f"/api/v1/{path}")
        assert (answer.status_code, answer.json()["kind"]) == (status, "error"), path


def test_without_a_login_a_program_is_told_so(client):
    app = create_app(client, authorize=lambda scope: None)
    answer = ask_app(app, "/api/v1/status")
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_the_lines_of_a_log_are_an_object_each(client, start):
    task = start()
    attempt = AttemptRef("video", task, "token", NODE)
    lines = [Line(n, time.time(), ("stdout", "stderr")[n % 2], f"line {n}") for n in (1, 2, 3)]
    protocol.log(client.connections, attempt, 1, lines)

    path = f"/api/v1/log?id={task}"
    answer = ask_app(create_app(client), path)
    printed = CliRunner().invoke(
        blueque, ["logs", task, "--json", "--redis-url", client.url], obj=Invocation()
    )
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.text == printed.stdout
    some = ask_app(create_app(client), f"{path}&stream=stderr&lines=1").text
    assert [json.loads(line)["text"] for line in some.splitlines()] == ["line 3"]


def test_orders_for_queues_hosts_and_recurring_tasks_answer_as_their_commands(client, tasks):
    app = create_app(client, authorize=lambda scope: PROGRAM)

    def order(path, **form):
        answer = ask_app(app, path, "POST", data=form, headers=JSON)
        return answer.status_code, answer.json()

    _, paused = order("/controls/queue/pause", name="video", reason="late")
    assert (paused["kind"], paused["items"][0]["paused_reason"]) == ("queue_pause", "late")
    _, limited = order("/controls/queue/limit", name="video", most="3")
    assert (limited["kind"], limited["items"][0]["max_running"]) == ("queue_set", 3)
    _, drained = order("/controls/node/drain", name="host")
    assert (drained["kind"], drained["items"][0]["status"]) == ("host_drain", "draining")
    _, held = order("/controls/schedule/pause", name="nightly")
    assert (held["kind"], held["item"]["name"]) == ("recurring", "nightly")
    _, made = order("/controls/schedule/trigger", name="nightly")
    assert client.get_task(made["tasks"][0]).schedule == made["name"] == "nightly"
    assert order("/controls/task/stack", name=tasks["pending"])[0] == 406
    code, refused = order("/controls/queue/limit", name="video", most="x")
    assert (code, refused["kind"]) == (400, "error")


def test_a_program_orders_without_a_question(client, queue, tasks):
    app = create_app(client, authorize=lambda scope: PROGRAM)

    def order(path, **form):
        return ask_app(app, f"/acts/{path}", "POST", data=form, headers=JSON)

    answer = order(f"cancel?id={tasks['pending']}&id=none", reason="wrong input")
    again = order(f"cancel?id={tasks['pending']}&id=none", reason="wrong input")
    moved = order(f"priority?id={queue.enqueue({'scene': 9})}", value="7").json()

    item = {"id": tasks["pending"], "queue": "video", "status": "cancelled", "refusal": None}
    assert (answer.json()["kind"], answer.json()["items"][0]) == ("cancel", item)
    assert answer.json()["items"][1]["refusal"] == "its state does not allow that"
    assert [item["status"] for item in again.json()["items"]] == [None, None]
    assert client.get_task(tasks["pending"]).cancelled_by == "ci@web"
    assert (moved["kind"], moved["items"][0]["status"]) == ("move", "pending")


def test_a_program_says_how_many_tasks_it_expects(client, queue, everything):
    for number in range(3):
        queue.enqueue({"scene": number})
    before, app = everything(), create_app(client, authorize=lambda scope: PROGRAM)
    path = "/acts/cancel?queue=video&state=pending"
    for expected in ({}, {"expected": "2"}):
        answer = ask_app(app, path, "POST", data=expected, headers=JSON)
        assert (answer.status_code, answer.json()["kind"]) == (409, "error")
    assert everything() == before

    answer = ask_app(app, path, "POST", data={"expected": "3"}, headers=JSON)
    assert [item["status"] for item in answer.json()["items"]] == ["cancelled"] * 3
