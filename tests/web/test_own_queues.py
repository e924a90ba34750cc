"""A page for some queues: nothing else is on any of its pages, files and objects."""

from __future__ import annotations

import time

import pytest
from asking import NODE, ask_app
from transactions import protocol

from blueque.audit.server_check import Check
from blueque.faces.orders import ORDERS
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.log_line import Line
from blueque.protocol.feeding import FeedRef
from blueque.web import create_app, own_queues
from blueque.web.access import PARTS, Viewer
from blueque.web.api import OBJECTS
from blueque.web.controls import CONTROLS
from blueque.web.site import Site
from blueque.web.views import VIEWS

SITE = Site(address="", queues=("vid*",))
OWN = {"sec-fetch-site": "same-origin"}
PROGRAM = Viewer("ci", "operator", is_program=True)
# Samples of the paths: with what is on the page, and with what is not.
PATHS = {
    r"/queues/(?P<name>.+)": ("/queues/video", "/queues/hidden-queue"),
    r"/nodes/(?P<name>.+)": ("/nodes/host_1", "/nodes/{node}"),
    r"/schedule/(?P<name>.+)": ("/schedule/nightly", "/schedule/hidden-schedule"),
    r"/groups/(?P<name>.+)": ("/groups/both", "/groups/hidden-workflow"),
    r"/tasks/(?P<id>[^/]+)": ("/tasks/{running}", "/tasks/{hidden}"),
    r"/tasks/(?P<id>[^/]+)/log": ("/tasks/{running}/log", "/tasks/{hidden}/log"),
    r"/tasks/(?P<id>[^/]+)/log\.txt": ("/tasks/{running}/log.txt", "/tasks/{hidden}/log.txt"),
    r"/tasks\.csv": ("/tasks.csv?state=pending&state=started&state=blocked", None),
    r"/find": ("/find?q={hidden}", None),
}
QUERIES = {
    "task": ("id={blocked}", "id={hidden}"),
    "why": ("id={locked}", "id={hidden}"),
    "history": ("id={running}", "id={hidden}"),
    "graph": ("id={blocked}", "group=hidden-workflow"),
    "host_show": ("name=host_1", "name={node}"),
    "group": ("name=both", "name=hidden-workflow"),
    "schedule_history": ("name=nightly", "name=hidden-schedule"),
    "tasks": ("state=pending&state=started&state=blocked", None),
    "tags": (None, ""),
    "log": ("id={running}", "id={hidden}"),
    "recurring": ("name=nightly", "name=hidden-schedule"),
    "queue_show": ("queue=video", "queue=hidden-queue"),
    "doctor": (None, ""),
}


@pytest.fixture
def ids(client, queue, start):
    """Tasks of the page, and others that they know of."""
    redis, now, other = client.connections, time.time(), client.get_queue("hidden-queue")
    hidden = str(other.enqueue({"scene": 1}, title="hidden", tags=["hidden-tag"], lock="disk"))
    taken = client.get_listener(other.name).listen(timeout=10)
    client.get_processor(taken).start(77)
    found = client.get_task(hidden)
    attempt = AttemptRef(other.name, hidden, found.token, found.node)
    protocol.log(redis, attempt, 1, [Line(1, now, "stdout", "hidden words")])
    ids = {"hidden": hidden, "running": start(), "node": found.node}
    ids["locked"] = str(queue.enqueue({"scene": 2}, lock="disk"))
    ids["blocked"] = str(queue.enqueue({"scene": 3}, after=hidden))
    ids["after"] = str(other.enqueue({"scene": 4}, after=ids["locked"]))
    client.connections.read(("HSET", keys.task(ids["running"]), "spawned_by", hidden))
    other.schedule({"scene": 9}, now - 600)
    other.enqueue_many([{"scene": 5}], keys=["k"], group="hidden-group")
    protocol.begin_feed(redis, FeedRef(other.name, "hidden-feed", "token"), "i", "s", {}, None, now)
    for name, queue_name in (("nightly", "video"), ("hidden-schedule", other.name)):
        client.set_schedule(name, queue=queue_name, parameters={}, cron="0 3 * * *")
    client.get_schedule("hidden-schedule").pause("ada")
    with client.workflow("hidden-workflow") as workflow:
        workflow.add(other.name, {"scene": 6})
    with client.workflow("both") as workflow:
        first = workflow.add(other.name, {"scene": 7})
        ids["in both"] = workflow.add("video", {"scene": 8}, after=first)
        ids["first"] = first
    ids["cause"] = str(other.enqueue({"scene": 10}))
    ids["broken"] = str(queue.enqueue({"scene": 11}, after=ids["cause"], broken="cancel"))
    other.cancel(ids["cause"])
    protocol.settle(redis, ids["cause"], now)
    return ids


@pytest.fixture
def told(ids):
    """Fail if a text tells of what is not on the page."""
    words = {
        "hidden-",
        ids["node"],
        *(ids[name][:8] for name in ("hidden", "after", "first", "cause")),
    }

    def told(text, path):
        found = [word for word in words if word in text.replace(path, "")]
        assert found == [], (path, found)

    return told


def test_no_page_tells_of_another_queue_and_what_is_not_there_is_404(client, ids, told):
    app = create_app(client, authorize=lambda scope: PROGRAM, site=SITE)
    for name in ("blocked", "locked", "in both"):
        told(ask_app(app, f"/tasks/{ids[name]}").text, ids[name])
    for pattern, _ in VIEWS:
        mine, others = PATHS.get(pattern, (pattern.replace("\\", ""), None))
        path = mine.format(**ids)
        answer = ask_app(app, path)
        assert answer.status_code in (200, 303), (path, answer.text)
        told(answer.text, path)
        if others:
            path = others.format(**ids)
            missing = ask_app(app, path)
            assert missing.status_code == 404, path
            told(missing.text, path.split("/")[2])


def test_the_kind_of_a_group_names_no_other_queue(client, queue, ids, told):
    for name, maker in (("shared", client.get_queue("hidden-queue")), ("own", queue)):
        maker.enqueue_many([{"scene": 6}], keys=["s"], group=name)
        client.group(name).reopen()
        queue.enqueue({"scene": 10}, group=name)

    app = create_app(client, authorize=lambda scope: PROGRAM, site=SITE)
    for path in ("/groups", "/groups/shared", "/api/v1/group?name=shared"):
        told(ask_app(app, path).text, path)
    assert '"kind": "workflow"' in ask_app(app, "/api/v1/group?name=both").text


def test_no_object_tells_of_another_queue(client, ids, told):
    app = create_app(client, authorize=lambda scope: PROGRAM, site=SITE)
    for kind in OBJECTS:
        mine, others = QUERIES.get(kind, ("", None))
        if mine is not None:
            path = f"/api/v1/{kind}?{mine.format(**ids)}"
            answer = ask_app(app, path)
            assert answer.status_code == 200, (path, answer.text)
            told(answer.text, path)
        if others is not None:
            assert ask_app(app, f"/api/v1/{kind}?{others.format(**ids)}").status_code == 404, kind


@pytest.mark.parametrize("kind", ["task", "history", "graph", "why"])
def test_no_object_names_the_cause_of_a_cancellation_in_another_queue(client, ids, told, kind):
    app = create_app(client, authorize=lambda scope: PROGRAM, site=SITE)
    answer = ask_app(app, f"/api/v1/{kind}?id={ids['broken']}")

    assert (answer.status_code, '"cancelled"' in answer.text) == (200, True)
    told(answer.text, ids["broken"])


def test_no_list_names_the_cause_of_a_cancellation_in_another_queue(client, ids, told):
    app = create_app(client, authorize=lambda scope: PROGRAM, site=SITE)
    for path in ("/api/v1/tasks?state=cancelled", "/tasks.csv?state=cancelled", "/activity"):
        text = ask_app(app, path).text
        assert ids["broken"][:8] in text
        told(text, path)


def test_orders_for_others_change_nothing_and_say_what_is_said_of_nothing(client, ids, everything):
    app = create_app(client, authorize=lambda scope: PROGRAM, site=SITE)
    before = everything()
    form = {"value": "1", "running": "1"}
    for verb in ORDERS:
        for name in ("hidden", "after"):
            answers = [
                ask_app(app, f"/acts/{verb}?id={task}", "POST", data=form, headers=OWN | accept)
                for task in (ids[name], "nothing")
                for accept in ({"accept": "application/json"}, {})
            ]
            texts = {answer.text.replace(ids[name], "nothing") for answer in answers[::2]}
            assert len(texts) == 1, verb
        assert ids["hidden"][:8] not in ask_app(app, f"/acts/{verb}").text
    names = {"queue": "hidden-queue", "node": ids["node"], "task": ids["hidden"]}
    names |= {"schedule": "hidden-schedule", "group": "hidden-workflow"}
    for kind, verb in CONTROLS:
        path = f"/controls/{kind}/{verb}"
        forms = [{"name": names[kind]}, {"name": "nothing"}]
        first, second = (ask_app(app, path, "POST", data=form, headers=OWN) for form in forms)
        assert (first.status_code, second.status_code) == (404, 404), path
    assert everything() == before


def test_an_open_page_gets_no_log_of_another_queue(client, ids):
    app = create_app(client, authorize=lambda scope: PROGRAM, site=SITE)
    for path in (f"/tasks/{ids['hidden']}", f"/tasks/{ids['hidden']}/log"):
        answer = ask_app(app, path, headers={PARTS: "0-1"})
        assert (answer.status_code, "hidden words" in answer.text) == (404, False)


def test_an_overview_has_no_recurring_task_and_no_clock_of_others(client, ids):
    found = client.get_inspector().overview()._replace(ahead={ids["node"]: 90.0, NODE: 80.0})
    assert {one.name for one in found.schedules} == {"nightly", "hidden-schedule"}

    narrowed = own_queues.narrowed(found, client, SITE)

    assert [one.name for one in narrowed.schedules] == ["nightly"]
    assert narrowed.ahead == {NODE: 80.0}


def test_of_the_checks_of_the_doctor_those_of_the_server_stay(client):
    checks = [Check("memory", "ok", "x"), Check("due", "warn", "of hidden-queue")]

    assert [check.name for check in own_queues.checks(checks, SITE)] == ["memory"]
    assert own_queues.checks(checks, Site(address="")) == checks


def test_a_page_for_all_queues_leaves_out_nothing(client, ids):
    app = create_app(client, authorize=lambda scope: PROGRAM)
    assert ids["hidden"][:8] in ask_app(app, f"/tasks/{ids['blocked']}").text
    assert ids["hidden"][:8] in ask_app(app, f"/tasks/{ids['locked']}").text
    assert "hidden-workflow" in ask_app(app, "/groups").text
    assert NODE in ask_app(app, "/api/v1/hosts").text
