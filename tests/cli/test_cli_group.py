"""`blueque group`: what it shows and changes."""

from __future__ import annotations

import json
import time

import pytest
from dependent import enqueue, finish
from grouped import settle
from transactions import protocol

from blueque.audit import doctor
from blueque.errors import WrongGroup
from blueque.model import keys
from blueque.model.new_task import NewTask
from blueque.protocol.graphs import Graph


@pytest.fixture
def night(client, queue):
    """A group with an open and a cancelled member, for which a task waits."""
    group = client.group("night").open()
    queue.enqueue("a", group=group)
    bad = queue.enqueue("b", group=group)
    queue.enqueue("c", after=group)
    queue.cancel(bad)
    settle(client)
    return bad


def test_the_list_and_one_group_say_how_far_it_is(run, night, client):
    client.group("day").open()

    listed = run("group", "ls").stdout.splitlines()
    shown = run("group", "show", "night").stdout.splitlines()

    header = "GROUP KIND STATE AGE TASKS COMPLETE BAD OPEN WAITING"
    assert listed[0].split() == shown[0].split() == header.split()
    assert [line.split()[0] for line in listed[1:]] == ["day", "night"], "the newest first"
    assert shown[1].split()[:3] == ["night", "group", "open"]
    assert shown[1].split()[-5:] == ["2", "0", "1", "1", "1"]
    assert shown[-2].split() == ["ID", "WHAT", "QUEUE", "STATE", "FOR", "ERROR"]
    assert shown[-1].split()[:4] == [night, "b", "video", "cancelled"]


def test_the_kind_of_a_group_says_what_has_made_it(run, client, queue):
    client.group("plain").open()
    queue.enqueue_many(["a"], keys=["a"], group="keyed")
    with client.workflow("flow") as flow:
        flow.add("video", "a")

    listed = run("group", "ls").stdout
    items = json.loads(run("group", "ls", "--json").stdout)["items"]

    words = [" ".join(line.split()) for line in listed.splitlines()[1:]]
    for row in ("plain group open", "keyed group closed", "flow workflow closed"):
        assert any(line.startswith(row) for line in words)
    kinds = {item["group"]: item["kind"] for item in items}
    assert kinds == {"plain": "group", "keyed": "group", "flow": "workflow"}


def test_of_many_bad_tasks_five_are_named_and_how_to_list_the_others(run, client, queue, cli):
    group = client.group("a night").open()
    for task in queue.enqueue_iter(range(7), group=group, batch=1):
        queue.cancel(task[0])
    settle(client)
    cli.delete(*[keys.task(task) for task in cli.smembers(keys.bad_members("a night"))])

    shown = run("group", "show", "a night").stdout.splitlines()

    assert [line.split()[3] for line in shown[-6:-1]] == ["gone"] * 5
    assert shown[-1] == "(2 more BAD tasks: blueque group show --json 'a night')"
    assert len(json.loads(run("group", "show", "a night", "--json").stdout)["bad"]) == 7


def test_the_states_have_the_same_words_everywhere(run, night, redis, client, cli):
    unfinished(redis, 7200.0, "flow")

    def states(name):
        listed = [line.split() for line in run("group", "ls").stdout.splitlines()]
        (state,) = [line[2] for line in listed if line[0] == name]
        assert f"group {name}  {state}, " in run("graph", name).stdout
        return state

    assert (states("night"), states("flow")) == ("open", "making")
    assert "flow is being made: its last tasks were added 2 h ago" in run("group", "ls").stderr
    refused = run("enqueue", "video", "1", "--group", "flow").stderr
    assert "group 'flow': it is making" in refused
    refused = run("enqueue", "video", "1", "--after", "group flow").stderr
    assert "workflow 'flow' is making" in refused
    client.group("night").close()
    assert states("night") == "closed"
    (waiting,) = cli.zrange(keys.awaiting("night"), 0, -1)
    assert "group night: closed\n" in run("show", waiting).stdout
    assert (
        "group 'night': it is closed; no" in run("enqueue", "video", "1", "--group", "night").stderr
    )
    client.group("night").cancel()
    assert states("night") == "cancelling"
    settle(client)
    assert states("night") == "cancelled"
    client.group("flow").cancel()
    assert states("flow") == "cancelling"


def test_a_group_in_the_place_of_a_task_is_named_as_such(run, client):
    client.group("g1").open()

    for words in (("wait", "g1"), ("wait", "group g1"), ("show", "g1"), ("why", "group g1")):
        result = run(*words)
        assert result.returncode == 3
        assert result.stderr.splitlines()[:2] == [
            "blueque: 'g1' is a group, not a task",
            "See it: blueque group show g1",
        ]
    assert "To wait for it: blueque enqueue QUEUE --after 'group g1'" in run("wait", "g1").stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("graph", "nosuch"), "no task and no group 'nosuch'"),
        (("graph", "group nosuch"), "no group 'nosuch'"),
        (("wait", "group nosuch"), "no group 'nosuch'"),
        (("wait", "nosuch"), "no task 'nosuch'"),
    ],
)
def test_what_is_not_there_is_named_as_what_it_may_be(run, words, sentence):
    result = run(*words)

    assert (result.returncode, result.stderr.splitlines()[0]) == (3, f"blueque: {sentence}")


def test_a_closed_group_is_opened_again(run, night, client):
    assert run("group", "close", "night", "--reopen").stdout == "night  was open\n"
    run("group", "close", "night")

    assert run("group", "close", "night", "--reopen").stdout == "night  open again\n"
    assert client.group("night").progress().state == "open"

    client.group("night").cancel()
    refused = run("group", "close", "night", "--reopen")
    assert (refused.returncode, "blueque group cancel" in refused.stderr) == (5, False)


def test_a_group_is_closed_cancelled_and_forgotten(run, night, client, cli):
    assert run("group", "close", "night").stdout == "night  closed\n"
    refused = run("group", "cancel", "night")
    assert refused.returncode == 6
    assert "1 task of group night would be cancelled" in refused.stderr

    cancelled = run("group", "cancel", "night", "--reason", "late", "--yes")
    assert cancelled.stdout == "night  to be cancelled\n"
    assert run("group", "ls").stdout.splitlines()[1].split()[2] == "cancelling"
    for words in (["forget", "night"], ["requeue", "night", "--yes"]):
        refused = run("group", *words)
        assert (refused.returncode, refused.stdout) == (5, "")
        assert "it is being cancelled; wait until its tasks have ended" in refused.stderr
    settle(client)
    again = run("group", "cancel", "night")
    assert (again.returncode, again.stdout) == (5, "")
    assert "group 'night' has ended already" in again.stderr
    assert cli.llen(keys.cancelled("video")) == 2
    cancel, again, waiting = run("group", "show", "night").stderr.splitlines()
    assert cancel.startswith("It was cancelled ") and cancel.endswith(": late.")
    assert again == "To run the BAD tasks again: blueque group requeue night"
    assert waiting == "The task that waits for it: blueque graph night"

    refused = run("group", "forget", "night")
    assert (refused.returncode, "tasks wait for it" in refused.stderr) == (5, True)
    assert "See it: blueque graph night" in refused.stderr.splitlines()
    waiting = cli.zrange(keys.awaiting("night"), 0, -1)
    assert waiting and all(task in run("graph", "night").stdout for task in waiting)
    for task in waiting:
        client.get_queue("video").cancel(task)
    cli.delete(keys.awaiting("night"))
    assert run("group", "forget", "night").stdout == "night  forgotten\n"


def test_the_bad_tasks_of_a_group_run_again(run, night, client):
    refused = run("group", "requeue", "night")
    assert (refused.returncode, "1 task would be in line again" in refused.stderr) == (6, True)

    result = run("group", "requeue", "night", "--yes", "--json")

    assert json.loads(result.stdout)["requeued"] == [night]
    assert client.get_task(night).status == "pending"


def test_a_requeue_of_a_group_says_which_tasks_are_blocked_again_and_which_were_lost(
    run, client, queue, redis
):
    group = client.group("night").open()
    enqueue(redis, "first-1", group="night")
    second = queue.enqueue("b", group=group, after="first-1", broken="cancel")
    finish(redis, "first-1", error_type="lost")
    settle(client)
    assert client.get_task(second).status == "cancelled"

    asked = run("group", "requeue", "night")
    done = run("group", "requeue", "night", "--yes")

    assert "1 of them were lost, so old processes may still run" in asked.stderr
    assert done.stdout == "night  1 task in line again, 1 blocked again\n"
    assert f"{second} waits for first-1." in done.stderr
    assert f"If that fails, {second} stays blocked" in done.stderr


def test_a_cancellation_of_a_group_without_open_tasks_says_what_it_does(run, client, queue):
    group = client.group("night").open()

    asked = run("group", "cancel", "night")
    assert asked.returncode == 6
    assert "no more tasks could join group night; no task of it would be" in asked.stderr
    group.close()
    refused = run("group", "cancel", "night")
    assert (refused.returncode, "has ended already" in refused.stderr) == (5, True)


@pytest.mark.parametrize("verb", ["show", "close", "cancel", "requeue", "forget"])
def test_a_group_that_does_not_exist_is_missing(run, verb):
    result = run("group", verb, "nigth")

    assert result.returncode == 3
    assert "no group 'nigth'" in result.stderr


GATE = "group gate night"


def unfinished(redis, ago=0.0, group="night"):
    """Make two of three tasks of a workflow, so many seconds ago."""
    tasks = [
        NewTask("a-1", "video", "p", {"group": group}, {f"group gate {group}": "ok"}),
        NewTask("b-1", "audio", "p", {"group": group}, {"a-1": "ok"}),
        NewTask("c-1", "audio", "p", {"group": group}, {"b-1": "ok"}),
    ]
    graph = Graph(group, 60, "mark", tasks)
    now = time.time() - ago
    protocol.open_graph(redis, graph, now)
    protocol.extend_graph(redis, graph, 0, tasks[:2], now)
    return graph


def test_a_workflow_whose_tasks_are_not_all_there_is_shown_as_such(run, redis, client):
    unfinished(redis)

    (line,) = run("group", "ls").stdout.splitlines()[1:]
    item = json.loads(run("group", "show", "night", "--json").stdout)["item"]
    closed = run("group", "close", "night")

    assert line.split()[:3] == ["night", "workflow", "making"] and line.split()[-5:] == list(
        "20020"
    )
    assert item["state"] == "making" and "updated_seconds" in item and "gate" not in item
    assert closed.returncode == 5
    assert "not all of its tasks are there" in closed.stderr
    assert run("group", "forget", "night").returncode == 5
    refused = run("group", "show", "gate night")
    assert refused.returncode == 2 and "begins with" in refused.stderr


@pytest.mark.parametrize("task", ["a-1", "b-1"])
def test_why_says_that_the_workflow_is_not_complete(run, redis, client, task):
    unfinished(redis)

    reason = json.loads(run("why", task, "--json").stdout)["reasons"][0]

    assert reason["code"] == "unfinished"
    assert reason["sentence"].startswith("Its workflow night is being made: none")
    assert reason["command"] == "blueque group show night"
    for verb in (("show", task), ("graph", task), ("why", task)):
        assert "gate" not in run(*verb).stdout


def test_why_says_that_the_record_of_a_workflow_is_gone(run, redis, cli):
    unfinished(redis)
    cli.delete(keys.group("night"))

    shown = run("why", "a-1").stdout

    assert "The record of its workflow night is gone" in shown
    assert "blueque cancel a-1" in shown


def test_why_says_that_a_cancelled_workflow_was_not_complete(run, redis, client):
    unfinished(redis)
    client.group("night").cancel()

    assert "or cancels it if the workflow was cancelled" in run("why", "a-1").stdout


def test_no_requeue_is_advised_of_tasks_that_are_gone(run, client, queue, cli):
    with client.group("a night") as group:
        task = queue.enqueue("a", group=group)
    queue.enqueue("b", after=group)
    queue.cancel(task)
    settle(client)
    cli.delete(keys.task(task))

    assert "again" not in run("group", "show", "a night").stderr
    said = run("group", "requeue", "a night").stderr
    assert said.endswith("start only with blueque move --unblock. See: blueque graph 'a night'\n")


def test_only_the_tasks_are_requeued_that_the_question_was_about(run, client, queue, monkeypatch):
    group = client.group("night").open()
    first, second = (queue.enqueue(number, group=group) for number in range(2))
    queue.cancel(first)

    def answer(*words, **others):
        queue.cancel(second)  # meanwhile

    monkeypatch.setattr("blueque.cli.verbs.group.require_consent", answer)
    assert json.loads(run("group", "requeue", "night", "--json").stdout)["requeued"] == [first]
    assert client.get_task(second).status == "cancelled"
    assert group.requeue() == [second]


def test_a_requeue_that_asked_nothing_requeues_nothing(run, client, queue, monkeypatch):
    group = client.group("night").open()
    task = queue.enqueue("a", group=group)
    monkeypatch.setattr("blueque.cli.verbs.group.say_what_is_gone", lambda *_: queue.cancel(task))

    assert run("group", "requeue", "night").stdout == "night  0 tasks in line again\n"
    assert client.get_task(task).status == "cancelled"


def test_the_advice_of_a_refusal_has_the_name_in_quotes(run, client, redis):
    unfinished(redis, group="a night")
    done = client.group("two nights").open()
    done.close()

    advice = {
        ("close", "a night"): "Or: blueque group cancel 'a night'",
        ("forget", "a night"): "See it: blueque group show 'a night'",
        ("requeue", "a night"): "See it: blueque group show 'a night'",
        ("cancel", "two nights"): "See it: blueque group show 'two nights'",
    }
    for words, line in advice.items():
        assert line in run("group", *words).stderr.splitlines()
    client.group("a night").cancel()
    flow = client.workflow("a night")
    flow.add("video", "p")
    with pytest.raises(WrongGroup, match=r"commit it again: blueque group forget 'a night'$"):
        flow.commit()


def test_the_doctor_cancels_a_workflow_that_its_producer_has_left_for_a_day(
    run, redis, client, cli
):
    unfinished(redis, 25 * 3600)

    shown = run("doctor", "--settle", "0")
    assert "workflow night is not complete, because a producer stopped" in shown.stdout
    assert "or --fix cancels it" in shown.stdout
    fixed = json.loads(run("doctor", "--fix", "--settle", "0", "--json").stdout)["fixed"]
    settle(client)
    settle(client)

    assert [(each["code"], each["fix"]) for each in fixed] == [("half_made", "give_up")]
    assert {client.get_task(task).status for task in ("a-1", "b-1")} == {"cancelled"}
    assert "has not made all" in client.get_task("b-1").fields["cancel_reason"]
    assert not cli.exists(keys.group("gate night"))
    asked = run("group", "forget", "night")
    assert (asked.returncode, client.get_task("a-1").status) == (6, "cancelled")
    assert "2 tasks of workflow night would be deleted for good; none has run" in asked.stderr
    assert run("group", "forget", "night", "--yes").returncode == 0
    assert cli.keys("*night*") == cli.keys("blueque_*_[ab]-1") == []


def test_the_doctor_removes_what_was_cancelled_unfinished_when_it_was_kept_long_enough(
    run, redis, client, cli
):
    def fixed():
        return json.loads(run("doctor", "--fix", "--settle", "0", "--json").stdout)["fixed"]

    unfinished(redis)
    client.group("night").cancel()
    settle(client)
    settle(client)
    assert fixed() == []  # it is kept for a minute, and at least a day
    cli.hset(keys.group("night"), "ended", time.time() - 25 * 3600)
    waiting = client.get_queue("other").enqueue("p", after=client.group("night"))
    assert fixed() == []
    client.get_queue("other").unblock(waiting)

    seen = run("doctor", "--settle", "0").stdout
    assert "workflow night was cancelled before all of its tasks were there: --fix" in seen
    assert "It is removed, with 2 tasks." in fixed()[0]["sentence"]
    assert cli.keys("*night*") == cli.keys("blueque_*_[ab]-1") == []


def test_an_unfinished_workflow_is_not_put_in_line_again(run, redis, client):
    unfinished(redis)
    client.group("night").cancel()
    settle(client)
    settle(client)

    whole = run("group", "requeue", "night", "--yes")
    one = run("requeue", "a-1", "--yes")
    dry = run("requeue", "a-1", "b-1", "--dry-run")
    both = run("requeue", "a-1", "b-1")

    assert [each.returncode for each in (whole, one, dry, both)] == [5, 5, 5, 5]
    assert dry.stderr.splitlines()[-1] == "Nothing would be done."
    for refused in (whole, one, dry, both):
        assert "not all of its tasks are there, so none of them runs" in refused.stderr
    assert {client.get_task(task).status for task in ("a-1", "b-1")} == {"cancelled"}


def test_a_dry_run_foresees_that_a_lost_gate_is_not_dropped(run, redis, client, cli):
    unfinished(redis)
    for task, queue in (("a-1", "video"), ("b-1", "audio")):
        client.get_queue(queue).cancel(task)
    cli.delete(keys.group("night"), keys.group("gate night"))
    cli.hset(keys.conditions("a-1"), GATE, "-gone")

    dry = run("requeue", "a-1", "b-1", "--dry-run", "--json")

    first, second = json.loads(dry.stdout)["items"]
    assert dry.returncode == 5
    assert "its record is gone" in first["refusal"] and second["refusal"] is None
    assert run("requeue", "a-1").stderr.strip() == first["refusal"]


@pytest.mark.parametrize("words", [["a-1"], ["b-1", "--from", "a-1"], ["a-1", "b-1", "--yes"]])
def test_a_task_of_an_unfinished_workflow_is_not_unblocked(run, redis, client, words):
    unfinished(redis)

    refused = run("move", "--unblock", *words)

    assert refused.returncode == 5 and refused.stdout == ""
    why = "group 'night': not all of its tasks are there, so none of them runs; commit it again, or cancel it"
    assert set(refused.stderr.splitlines()) == {why}
    assert {client.get_task(task).status for task in ("a-1", "b-1")} == {"blocked"}


def test_the_doctor_leaves_a_workflow_alone_that_goes_on(run, redis, client, cli, monkeypatch):
    unfinished(redis)
    assert json.loads(run("doctor", "--fix", "--json").stdout)["fixed"] == []  # it is young
    unfinished(redis, 25 * 3600)
    real = doctor.cancel_group

    def goes_on_first(*arguments, **options):
        cli.hset(keys.group("night"), "updated", time.time())
        return real(*arguments, **options)

    monkeypatch.setattr(doctor, "cancel_group", goes_on_first)
    assert json.loads(run("doctor", "--fix", "--json").stdout)["fixed"] == []
    assert client.group("night").progress().state == "making"


def test_status_names_the_groups_whose_producers_may_have_died(run, redis, client, queue, cli):
    day = time.time() - 90000.0
    for name in ("a night", "busy", "given up", "closed"):
        protocol.open_group(redis, name, 60, day)
    queue.enqueue("a", group="busy")
    protocol.open_group(redis, "stopped", 60, day)
    protocol.enqueue_after(redis, [NewTask("a", "video", "in", {"group": "stopped"}, {})], day)
    client.group("closed").close()
    client.group("given up").cancel()
    client.group("new").open()
    unfinished(redis, group="flow")
    assert "group flow" not in run("status").stdout
    cli.hset(keys.group("flow"), "updated", time.time() - 7200.0)

    concerns = json.loads(run("status", "--json").stdout)["attention"]
    text = run("status").stdout

    found = {each["about"]: each["command"] for each in concerns if each["code"] == "unclosed"}
    assert found == {
        "group a night": "blueque group close 'a night'",
        "group flow": "blueque group show flow",
        "group stopped": "blueque group close stopped",
    }
    assert "! group a night: it is open, and no task has joined it for 1 d 1 h" in text
    assert "! group flow: it is being made, and no task was added for 2 h" in text
    assert run("status", "--check").returncode == 75


def test_of_many_groups_that_nobody_closed_three_are_named(run, redis):
    for number in range(5):
        protocol.open_group(redis, f"night-{number}", 60, time.time() - 90000.0)

    text = run("status").stdout

    assert text.count("no program has closed it") == 3
    assert "! groups: 2 more have been open or incomplete for long\n  blueque group ls" in text


@pytest.fixture
def large(client):
    """A workflow whose tasks are all there: so many that not all are looked at."""
    flow = client.workflow("fan-of-many")
    roots = [flow.add(f"q{number // 4}", number) for number in range(250)]
    flow.commit()
    return roots


def test_a_graph_does_not_count_what_tasks_have_waited_for_as_parts_of_a_workflow(run, large):
    shown = run("graph", "fan-of-many")
    lines = run("graph", "fan-of-many", "--dot").stdout.splitlines()
    read = json.loads(run("graph", "fan-of-many", "--json").stdout)

    assert large[150] in shown.stdout and "1 more" not in shown.stdout
    assert (read["has_more"], len(read["items"])) == (False, 251)
    assert any(r'[label="group fan-of-many\nopen", fillcolor' in line for line in lines)


def test_the_history_of_a_task_names_its_workflow(run, large):
    shown = run("history", large[0]).stdout

    assert "unblocked" in shown and "workflow fan-of-many, all tasks made" in shown
    assert "gate" not in shown


def test_a_task_of_a_workflow_that_was_given_up_says_why_it_was_cancelled(run, redis, client):
    tasks = [NewTask("a-1", "video", "p", {"group": "night", "broken": "cancel"}, {GATE: "ok"})]
    graph = Graph("night", 60, "mark", [*tasks, tasks[0]])
    protocol.open_graph(redis, graph, time.time())
    protocol.extend_graph(redis, graph, 0, tasks, time.time())
    client.group("night").cancel()

    protocol.recheck(redis, "video", "a-1", time.time())

    reason = "not all tasks of workflow night were made"
    assert client.get_task("a-1").cancel_reason == reason
    for words in (
        ["history", "a-1"],
        ["show", "a-1"],
        ["why", "a-1"],
        ["ls", "video"],
        ["wait", "a-1"],
    ):
        shown = run(*words)
        assert "gate" not in shown.stdout + shown.stderr


def test_a_task_that_waited_and_was_cancelled_does_not_count_as_waiting(run, night, client, cli):
    (waiting,) = cli.zrange(keys.awaiting("night"), 0, -1)
    client.get_queue("video").cancel(waiting)

    shown = run("group", "show", "night").stdout.splitlines()[1]
    client.group("night").cancel()
    settle(client)
    refused = run("group", "forget", "night")

    assert shown.split()[-5:] == ["2", "0", "1", "1", "0"]
    assert "No task waits for it any more; these would if" in run("graph", "night").stdout
    assert refused.returncode == 5
    assert (
        "They were cancelled and would wait again if requeued. Delete them first" in refused.stderr
    )


def test_a_group_whose_results_were_not_collected_is_forgotten_after_a_question(run, client, queue):
    with client.group("kept").open(keep="9d", hold="2d") as group:
        queue.cancel(queue.enqueue("a", group=group))
    settle(client)

    shown, asked = run("group", "show", "kept"), run("group", "forget", "kept")

    assert "Its tasks are kept until its results are collected, at most until " in shown.stderr
    assert asked.returncode == 6
    assert "the results of 1 task of group kept were not collected" in asked.stderr
    group.collected()
    assert run("group", "forget", "kept").stdout == "kept  forgotten\n"


def test_a_group_says_whether_more_tasks_may_join(run, client):
    night = client.group("night").open()
    night.close()

    assert "more tasks can join" not in run("group", "show", "night").stderr
    night.reopen()
    assert "It is open: more tasks can join" in run("group", "show", "night").stderr


@pytest.mark.parametrize("verb", ["cancel", "requeue"])
def test_a_group_in_the_place_of_a_task_names_the_command_for_groups(run, client, verb):
    client.group("g1").open()

    assert f"For its tasks: blueque group {verb} g1" in run(verb, "g1").stderr
