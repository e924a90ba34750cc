"""Orders from the page: the question before, who may give them, and what became of them."""

from __future__ import annotations

import html
import re
import threading
import time

import pytest
from asking import ask_app
from transactions import protocol

from blueque.audit.audit import Report
from blueque.faces.orders import ORDERS
from blueque.model import keys
from blueque.model.states import FINISHED
from blueque.model.task import Task
from blueque.sentences.concern import Concern
from blueque.sentences.consent import of_requeue
from blueque.web import create_app
from blueque.web.access import Viewer
from blueque.web.shared import Shared
from blueque.web.site import Site
from blueque.web.views import overview
from blueque.web.visit import Visit

OWN = {"sec-fetch-site": "same-origin"}
SOME = Site(address="", queues=("video",))


def form_of(page):
    """Return the hidden fields of the question, as a browser would send them."""
    hidden = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text)
    return dict(hidden)


@pytest.fixture
def order(ask):
    """Ask the question of an order, say yes, and return the page of the outcome."""

    def order(path, **fields):
        return ask(path, "POST", data=form_of(ask(path)) | fields, headers=OWN)

    return order


def test_a_running_task_is_cancelled_after_the_words_of_the_command(ask, order, client, start):
    task = start()
    question = ask(f"/acts/cancel?id={task}").text
    assert "1 task would" not in question and "is running, and" in question

    outcome = order(f"/acts/cancel?id={task}", reason="wrong input")

    assert "1 done" in outcome.text
    found = client.get_task(task)
    assert (found.cancelled_by, found.cancel_reason) == ("ada@web", "wrong input")


def test_nothing_is_done_if_there_are_more_tasks_than_were_shown(ask, queue, everything):
    first = [queue.enqueue({"scene": number}) for number in range(3)]
    path = "/acts/cancel?queue=video&state=pending"
    form = form_of(ask(path))
    first.append(queue.enqueue({"scene": 4}))
    before = everything()

    answer = ask(path, "POST", data=form, headers=OWN)

    assert "1 more by now" in answer.text
    assert everything() == before


def test_the_way_back_from_a_question_leads_to_no_other_server(ask, queue):
    task = queue.enqueue({"scene": 1})
    for elsewhere in ("//evil.example/x", "/\\evil.example", "javascript:alert(1)"):
        page = ask(f"/acts/cancel?id={task}", params={"id": str(task), "back": elsewhere}).text
        assert f'href="{elsewhere}"' not in page


def test_a_form_that_is_sent_twice_is_done_once(ask, client, queue, start, end):
    task = start()
    end(task, "ValueError: x")
    path = f"/acts/requeue?id={task}"
    form = form_of(ask(path))

    first, second = (ask(path, "POST", data=form, headers=OWN) for _ in range(2))

    assert "Requeue: 1 done</h1>" in first.text
    assert "Nothing to requeue</h1>" in second.text
    events = [event.event for event in client.get_history(task).events]
    assert events.count("requeued") == 1


def test_a_task_that_started_after_the_question_runs_on(ask, client, queue):
    path = "/acts/cancel?queue=video"
    task = queue.enqueue({"scene": 1})
    form = form_of(ask(path))
    client.get_processor(client.get_listener("video").listen(timeout=10)).start(77)

    outcome = ask(path, "POST", data=form, headers=OWN)

    assert "it has started meanwhile" in outcome.text
    assert client.get_task(task).cancel is None


def test_a_question_that_named_fewer_running_tasks_is_asked_again(ask, client, queue, start):
    first, path = start(), "/acts/cancel?queue=video"
    queue.enqueue({"scene": 2})
    form = form_of(ask(path))
    client.get_processor(client.get_listener("video").listen(timeout=10)).start(77)

    answer = ask(path, "POST", data=form, headers=OWN)

    assert "1 more running by now" in answer.text and "2 of 2 tasks are running" in answer.text
    assert client.get_task(first).cancel is None
    assert "2 done" in ask(path, "POST", data=form_of(answer), headers=OWN).text


@pytest.mark.parametrize("more", ["&node=gpu-1", "&state=failed"])
def test_no_command_is_named_that_would_select_other_tasks(ask, queue, more):
    """None has --node, and without a state of its own it takes all that it can."""
    queue.enqueue({"scene": 1})

    assert "blueque cancel" in ask("/acts/cancel?queue=video").text
    assert "blueque cancel" not in ask(f"/acts/cancel?queue=video{more}").text


def test_the_command_for_tasks_of_all_queues_says_so(ask, queue):
    """A verb that is given states alone asks for more."""
    queue.enqueue({"scene": 1})
    page = ask("/acts/cancel?state=pending").text

    command = html.unescape(re.search('data-copy="(blueque cancel[^"]*)"', page)[1])
    assert command == "blueque cancel -q '*' --state pending"


def test_a_page_for_some_queues_names_no_command_for_all(client, queue):
    queue.enqueue({"scene": 1})
    app = create_app(client, authorize=lambda scope: Viewer("ada", "operator"), site=SOME)

    assert "blueque cancel" not in ask_app(app, "/acts/cancel?state=pending").text
    assert "blueque cancel -q video" in ask_app(app, "/acts/cancel?queue=video").text


def test_the_command_has_the_times_of_the_zone_of_the_viewer(ask, queue):
    queue.enqueue({"scene": 1})
    path = "/acts/cancel?queue=video&since=2020-01-01+08:00"

    def command(**headers):
        return re.search('data-copy="(blueque cancel[^"]*)"', ask(path, headers=headers).text)[1]

    assert command() == "blueque cancel -q video --since 2020-01-01T08:00:00Z"
    assert command(cookie="blueque-zone=Asia/Kolkata").endswith("--since 2020-01-01T02:30:00Z")


def test_an_order_for_the_ticked_tasks_is_for_none_if_none_is_ticked(ask, queue, everything):
    """It is a form, and each ticked box of the list adds an id to it."""
    queue.enqueue_many([{"scene": 1}, {"scene": 2}])
    page = ask("/tasks?state=pending").text
    form = re.search('<form id="ticked" action="([^"]*)">(.*?)</form>', page)
    fields = dict(re.findall('name="(\\w+)" value="([^"]*)"', form[2]))

    question = ask(form[1], params=fields)

    assert "<title>Nothing to cancel - blueque</title>" in question.text
    assert "form is not complete" not in question.text


def test_all_tasks_of_a_queue_are_one_link_away(ask, queue, start):
    start()
    queue.enqueue_many([{"scene": 2}, {"scene": 3}])
    pages = {"/queues/video": "cancel", "/tasks?queue=video": "cancel"}

    asked = {}
    for path, verb in pages.items():
        link = re.search(rf'href="(/acts/{verb}\?[^"]*)"', ask(path).text)
        assert link is not None, path
        asked[path] = re.search("<h1>(.*?)</h1>", ask(html.unescape(link[1])).text)[1]

    assert asked == {"/queues/video": "Cancel 3 tasks?", "/tasks?queue=video": "Cancel 3 tasks?"}
    assert "all that match" not in ask("/tasks").text  # that would be the tasks of all queues


@pytest.mark.parametrize(
    ("verb", "fields"),
    [("first", {}), ("priority", {"value": "7"}), ("move", {"value": "other"}), ("cancel", {})],
)
def test_a_waiting_task_can_be_ordered(order, client, queue, verb, fields):
    task = str(queue.enqueue({"scene": 1}))

    assert "1 done" in order(f"/acts/{verb}?id={task}", **fields).text

    found = client.get_task(task)
    seen = {"priority": found.priority, "move": found.queue, "cancel": found.status}
    assert seen.get(verb) == {"priority": 7, "move": "other", "cancel": "cancelled"}.get(verb)


def test_finished_tasks_are_deleted(order, client, start, end):
    task = start()
    end(task)

    assert "1 done" in order(f"/acts/delete?id={task}").text
    assert client.get_task(task).status is None


def test_who_may_only_look_and_a_read_only_page_change_nothing(client, queue, everything):
    task = str(queue.enqueue({"scene": 1}))
    before = everything()
    viewer = create_app(client, authorize=lambda scope: Viewer("eve", "viewer"))
    site = Site(address="", is_read_only=True)
    frozen = create_app(client, authorize=lambda scope: Viewer("ada", "operator"), site=site)

    form = {"expected": "1", "name": "video"}
    for app in (viewer, frozen):
        assert "/acts/" not in ask_app(app, f"/tasks/{task}").text
        for path in [f"/acts/{verb}?id={task}" for verb in ORDERS] + [
            "/controls/queue/pause",
            "/doctor",
        ]:
            refused = ask_app(app, path, "POST", data=form, headers=OWN).status_code
            assert refused == (405 if app is frozen else 403)
    assert ask_app(frozen, f"/acts/cancel?id={task}").status_code == 404
    assert everything() == before


@pytest.mark.parametrize(
    "headers", [{}, {"origin": "http://evil"}, {"sec-fetch-site": "cross-site"}]
)
def test_an_order_of_another_site_is_refused(ask, queue, everything, headers):
    task = str(queue.enqueue({"scene": 1}))
    before = everything()

    form = {"expected": "1", "name": "video"}
    for path in (f"/acts/cancel?id={task}", "/controls/queue/pause"):
        assert ask(path, "POST", data=form, headers=headers).status_code == 403
    assert everything() == before


def test_a_queue_is_paused_limited_and_resumed(ask, client, queue):
    queue.enqueue({"scene": 1})
    form = {"name": "video", "reason": "new disks"}
    assert ask("/controls/queue/pause", "POST", data=form, headers=OWN).status_code == 303
    pause = client.get_inspector().queue_seen("video").settings.pause
    assert (pause.by, pause.reason) == ("ada@web", "new disks")
    assert "new disks" in ask("/queues/video").text

    ask("/controls/queue/limit", "POST", data={"name": "video", "most": "3"}, headers=OWN)
    ask("/controls/queue/resume", "POST", data={"name": "video"}, headers=OWN)
    assert client.get_inspector().queue_seen("video").settings.pause is None
    assert client.get_inspector().queue_seen("video").room.limit == 3
    assert "0 running, at most 3 " in ask("/queues/video").text


def test_a_host_can_be_paused_or_resumed_not_both(ask, start):
    start()

    def offered():
        return re.findall("/controls/node/([a-z]*)", ask("/nodes/host_1").text)

    assert offered() == ["pause", "drain"]
    ask("/controls/node/pause", "POST", data={"name": "host_1"}, headers=OWN)
    assert offered() == ["resume", "drain"]


def test_no_more_listeners_are_drained_than_were_counted(ask, client, start):
    start()
    form = {"name": "host", "expected": "1"}
    assert '<input type="hidden" name="expected" value="1">' in ask("/nodes/host").text
    protocol.register(client.connections, "video", "host_9", "i9", {"beat_every": 10}, time.time())

    refused = ask("/controls/node/drain", "POST", data=form, headers=OWN)

    assert refused.status_code == 409 and "2 listeners would exit by now" in refused.text
    assert {node.order for node in client.get_inspector().nodes()} == {None}
    assert ask(
        "/controls/node/drain", "POST", data=form | {"expected": "2"}, headers=OWN
    ).is_redirect
    assert {node.order for node in client.get_inspector().nodes()} == {"drain"}


def test_a_recurring_task_is_triggered_and_paused(ask, client):
    client.set_schedule("nightly", queue="video", parameters={}, cron="0 3 * * *")
    for verb in ("trigger", "pause"):
        answer = ask(f"/controls/schedule/{verb}", "POST", data={"name": "nightly"}, headers=OWN)
        assert answer.status_code == 303
    assert client.get_inspector().pending("video") == 1
    assert client.get_schedule("nightly").is_paused


@pytest.mark.parametrize(("verb", "opposite"), [("pause", "resume"), ("resume", "pause")])
@pytest.mark.parametrize(("kind", "name"), [("queue", "video"), ("schedule", "nightly")])
def test_what_was_paused_or_resumed_can_be_undone(ask, client, queue, kind, name, verb, opposite):
    queue.enqueue({"scene": 1})
    client.set_schedule("nightly", queue="video", parameters={}, cron="0 3 * * *")
    thing = queue if kind == "queue" else client.get_schedule(name)
    if verb == "resume":
        thing.pause()

    moved = ask(f"/controls/{kind}/{verb}", "POST", data={"name": name}, headers=OWN)

    undo = f'<form class="undo" method="post" action="/controls/{kind}/{opposite}">'
    assert undo in ask(moved.headers["location"]).text
    ask(f"/controls/{kind}/{opposite}", "POST", data={"name": name}, headers=OWN)
    assert undo not in ask(moved.headers["location"]).text


def test_the_limit_before_comes_back(ask, client, queue):
    queue.enqueue({"scene": 1})
    queue.set_settings({"max_running": 2})
    path, form = "/controls/queue/limit", {"name": "video", "most": "5"}

    page = ask(ask(path, "POST", data=form, headers=OWN).headers["location"]).text

    undo = page.partition('<form class="undo"')[2]
    back = dict(re.findall(r'name="(\w+)" value="([^"]*)"', undo.partition("</form>")[0]))
    ask(path, "POST", data=back, headers=OWN)
    assert client.get_inspector().queue_seen("video").room.limit == 2


def test_a_concern_has_the_button_that_mends_it(ask, client, queue):
    queue.set_settings({"max_running": 0})
    queue.enqueue({"scene": 1})

    form = re.search(r'<form method="post" action="(/controls/[^"]*)">(.*?)</form>', ask("/").text)
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form[2]))
    moved = ask(form[1], "POST", data=fields, headers=OWN)

    assert client.get_inspector().queue_seen("video").room.limit is None
    assert "Undo" in ask(moved.headers["location"]).text


@pytest.mark.parametrize(
    ("code", "command", "of_operators", "of_viewers"),
    [
        ("paused", "blueque queue resume -- -q", "Resume", None),
        ("lost", "blueque requeue -q video --error-type lost", "Requeue…", None),
        ("poison", "blueque show old", "Requeue…", "Show"),
        ("held", "blueque requeue old", "Requeue…", None),
        ("schedule_overdue", "blueque schedule show nightly", "Show", "Show"),
        ("feed_stopped", "blueque group show f -q video", "Feeds", "Feeds"),
        ("dead", "blueque-listener video, on gpu-3 with its spool", "Hosts", "Hosts"),
        ("silent", "blueque doctor", "Doctor", "Doctor"),
        ("unclosed", "blueque group close w", None, None),
        ("no_progress", "blueque stack old", "Stack", "Show"),
    ],
)
def test_a_concern_is_mended_by_operators_and_shown_to_others(
    client, code, command, of_operators, of_viewers
):
    shared = Shared(client, Site(address=""))
    concern = Concern("video", code, "it is so", command)

    def word(role):
        visit = Visit(shared.site, shared.reader, "/", Viewer("ada", role), 0.0)
        act = overview.row(concern, visit).act
        return act and act.word

    assert (word("operator"), word("viewer")) == (of_operators, of_viewers)


def test_a_running_task_is_asked_for_its_stack_and_no_other(ask, client, queue, start):
    running, waiting = start(), str(queue.enqueue({"scene": 1}))
    path = "/controls/task/stack"

    moved = ask(path, "POST", data={"name": running}, headers=OWN)
    refused = ask(path, "POST", data={"name": waiting}, headers=OWN)

    assert "Its listener was asked for it" in ask(moved.headers["location"]).text
    assert client.get_task(running).fields["stack"]
    assert (refused.status_code, "does not run: it is pending" in refused.text) == (400, True)
    assert ask(path, "POST", data={"name": "none"}, headers=OWN).status_code == 404


def test_every_key_is_looked_at_once_at_a_time_and_all_see_what_is_wrong(
    ask, app, client, queue, everything
):
    task = str(queue.enqueue({"scene": 1}))
    client.connections.read(("LPUSH", keys.complete("video"), task))
    before, scan = everything(), app.state.shared.reader.scan
    held = threading.Event()
    scan.start(lambda: held.wait(10) and Report([], 7, 11))

    assert "Checking every key" in ask("/doctor").text
    assert not scan.start(lambda: Report([], 0, 0))
    held.set()
    assert scan.is_idle.wait(10)
    assert "7 queues, 11 tasks. Every task is in exactly one place." in ask("/doctor").text
    ask("/doctor", "POST", headers=OWN)
    assert scan.is_idle.wait(30)
    assert "blueque doctor --fix" in ask("/doctor").text and task[:8] in ask("/doctor").text
    assert everything() == before


def test_every_state_in_which_a_task_can_be_has_its_orders():
    ordered = {state for act in ORDERS.values() for state in act.states}
    assert ordered == {"pending", "scheduled", "blocked", "reserved", "started", *FINISHED}


@pytest.fixture
def flow(client):
    """A workflow of three tasks, two of which wait for the first."""
    with client.workflow("night/1") as flow:
        first = flow.add("video", {"scene": 1}, title="scan")
        for number in (2, 3):
            flow.add("ocr", {"scene": number}, after=first)
    return "/controls/group/", {"name": "night/1"}


@pytest.mark.parametrize("path", ["/acts/cancel?queue=video", "/controls/queue/pause"])
def test_a_reason_that_fits_no_form_is_refused(ask, queue, everything, path):
    queue.enqueue({"scene": 1})
    form = {"name": "video", "expected": "1", "reason": "x" * 201}
    before = everything()

    answer = ask(path, "POST", data=form, headers=OWN)

    assert (answer.status_code, everything()) == (400, before)
    assert "A reason has at most 200 characters." in answer.text


def test_in_a_list_of_several_states_those_are_ordered_that_can_be(ask, client, flow):
    page = ask("/tasks?group=night/1").text
    assert "Cancel the 3 that can be…" in page and "Requeue" not in page and "Move" not in page
    link = re.search('href="(/acts/cancel[^"]*)">Cancel the 3', page)

    [first] = client.get_inspector().tasks(client.get_inspector().group_members(["night/1"])[0][:1])
    client.get_queue("video").cancel(first.id)

    assert "Cancel 2 tasks?" in ask(html.unescape(link[1])).text
    page = ask("/tasks?group=night/1&limit=50").text
    assert "Requeue the 1 that can be…" in page and "Delete the 1 that can be…" in page


def test_a_workflow_is_cancelled_from_its_page_after_one_question(ask, client, flow):
    path, name = flow
    assert f"{path}cancel?name=night%2F1" in ask("/groups/night/1").text
    question = ask(f"{path}cancel", params=name)
    assert "3 tasks would be cancelled, none of which has started." in html.unescape(question.text)
    assert "SIGTERM" not in question.text
    assert "cancel" not in client.group("night/1").progress().record

    moved = ask(f"{path}cancel", "POST", data=form_of(question) | {"reason": "late"}, headers=OWN)

    record = client.group("night/1").progress().record
    assert (record["cancelled_by"], record["cancel_reason"]) == ("ada@web", "late")
    page = ask(moved.headers["location"]).text
    assert "cancel its tasks step by step" in page and "Cancel…" not in page
    assert ask(f"{path}cancel", params=name).status_code == 409


def test_the_command_under_a_question_names_only_states_that_it_takes(ask, client, flow):
    page = ask("/acts/cancel?group=night/1&state=failed&state=pending&state=blocked").text

    assert 'data-copy="blueque cancel --state pending,blocked --group night/1"' in page


def test_only_tasks_that_have_started_would_start_a_second_time(ask):
    new, old = Task("a", {"status": "cancelled"}), Task("b", {"attempt": "1", "started": "9.5"})

    assert of_requeue([new, new]) == "2 tasks would be in line again, none of which has started"
    assert of_requeue([new, old]) == "2 tasks would start, 1 of them a second time"
    assert of_requeue([old]) == "1 task would start a second time"


def test_a_limit_of_too_many_digits_is_refused(ask, queue):
    form = {"name": "video", "most": "9" * 5000}
    assert ask("/controls/queue/limit", "POST", data=form, headers=OWN).status_code == 400


def test_a_workflow_with_more_tasks_than_were_shown_is_not_cancelled(ask, client, queue):
    client.group("open").open()
    queue.enqueue({"scene": 1}, group="open")
    form = form_of(ask("/controls/group/cancel?name=open"))
    queue.enqueue({"scene": 2}, group="open")

    answer = ask("/controls/group/cancel", "POST", data=form, headers=OWN)
    assert "There are more tasks by now" in answer.text
    long = ask("/controls/group/cancel", "POST", data=form | {"expected": "9" * 5000}, headers=OWN)
    assert "There are more tasks by now" in long.text

    assert "cancel" not in client.group("open").progress().record
    ask("/controls/group/cancel", "POST", data=form_of(answer), headers=OWN)
    assert "cancel" in client.group("open").progress().record


def test_failed_tasks_of_a_workflow_run_again_and_an_open_one_is_closed(
    ask, client, queue, start, end
):
    client.group("sweep").open()
    task = start(group="sweep")
    end(task, "ValueError: x")
    protocol.settle_members(client.connections, "sweep", [task])
    for verb in ("close", "requeue"):
        question = ask(f"/controls/group/{verb}?name=sweep")
        moved = ask(f"/controls/group/{verb}", "POST", data=form_of(question), headers=OWN)
        assert moved.status_code == 303, (verb, moved.text)

    assert client.get_task(task).status == "pending"
    assert client.group("sweep").progress().state == "ended"


def test_the_question_before_a_requeue_counts_the_tasks_that_are_there(ask, client, queue, cli):
    client.group("sweep").open()
    tasks = [queue.enqueue(number, group="sweep") for number in range(2)]
    for task in tasks:
        queue.cancel(task)
    protocol.settle_members(client.connections, "sweep", tasks)
    cli.delete(f"blueque_task_{tasks[0]}")

    page = ask("/controls/group/requeue?name=sweep").text

    assert "1 task would be in line again, none of which has started. 1 failed or cancelled" in page
    assert "of group sweep is archived or deleted: it cannot run again." in page
    assert "Requeue 2 tasks" not in page


def test_a_program_cancels_a_workflow_and_gets_its_object(ask, client, flow):
    path, name = flow
    headers = OWN | {"accept": "application/json"}
    answer = ask(f"{path}cancel", "POST", data=name, headers=headers).json()
    assert (answer["kind"], answer["item"]["cancelled_by"]) == ("group", "ada@web")
    again = ask(f"{path}close", "POST", data={"name": "none"}, headers=headers)
    assert again.status_code == 404


def test_a_page_for_some_queues_orders_nothing_for_whole_workflows(client, flow, everything):
    path, name = flow
    site = Site("", queues=("video",))
    app = create_app(client, authorize=lambda scope: Viewer("ada", "operator"), site=site)
    assert ">Tasks</a>" in ask_app(app, "/groups/night/1").text
    assert path not in ask_app(app, "/groups/night/1").text
    before = everything()
    for verb in ("cancel", "requeue", "close"):
        form = name | {"expected": "9"}
        answers = [
            ask_app(app, f"{path}{verb}", params=name),
            ask_app(app, f"{path}{verb}", "POST", data=form, headers=OWN),
            ask_app(
                app,
                f"{path}{verb}",
                "POST",
                data=form,
                headers=OWN | {"accept": "application/json"},
            ),
        ]
        assert {answer.status_code for answer in answers} <= {404, 409}
        assert "This page shows only some queues, so it cannot change groups." in answers[0].text
    assert everything() == before
