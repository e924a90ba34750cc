"""Tasks that wait for others in vain, and tasks that were cancelled for others: what is said of
them, and what helps.
"""

from __future__ import annotations

import json
import time

import pytest
from dependent import NODE, block, end, enqueue, finish, start
from transactions import protocol

from blueque.model import keys

pytestmark = pytest.mark.usefixtures("listener")


@pytest.fixture
def cascade(redis):
    """bad-1 has failed. mid-1 and low-1 were cancelled for it in turn, and held-1 waits for low-1."""
    end(redis, "bad-1", exit_code=3)
    block(redis, "mid-1", "bad-1", broken="cancel")
    block(redis, "low-1", "mid-1", broken="cancel")
    protocol.settle(redis, "bad-1", time.time())
    protocol.settle(redis, "mid-1", time.time())


def attention(run):
    found = json.loads(run("status", "--json").stdout)
    return [each for each in found["attention"] if each["code"] == "held"]


def item(run, task):
    return json.loads(run("show", task, "--json").stdout)["item"]


def test_what_was_cancelled_as_wanted_needs_no_attention(run, redis, cascade):
    enqueue(redis, "next-1")
    block(redis, "other-1", "next-1")  # only then cancelled tasks are looked at

    assert attention(run) == []


def test_only_those_that_wait_on_are_counted(run, redis, cascade):
    block(redis, "held-1", "bad-1")
    protocol.settle(redis, "bad-1", time.time())

    (found,) = attention(run)

    assert found["sentence"] == "1 task waits for bad-1, which has failed"
    assert found["command"] == "blueque requeue bad-1"


def test_more_than_are_read_count_as_waiting(run, redis, monkeypatch):
    monkeypatch.setattr("blueque.queries.holders.MAX_HELD", 1)
    monkeypatch.setattr("blueque.queries.holders.LEAST_HELD", 3)
    end(redis, "bad-1", exit_code=3)
    for n in range(7):
        block(redis, f"child-{n}", "bad-1")
    protocol.settle(redis, "bad-1", time.time())

    assert [each["sentence"] for each in attention(run)] == [
        "7 tasks wait for bad-1, which has failed"
    ]


def test_status_points_at_a_group_for_which_tasks_wait_in_vain(run, redis):
    protocol.open_group(redis, "night-1", 60, time.time())
    enqueue(redis, "bad-1", group="night-1")
    block(redis, "held-1", {"group night-1": "ok"})
    block(redis, "child-1", {"group night-1": "ok"}, broken="cancel")
    protocol.close_group(redis, "night-1", time.time())
    protocol.cancel(redis, "video", "bad-1", "ada", None, time.time())
    protocol.settle_members(redis, "night-1", ["bad-1"])
    assert attention(run) == []  # it has not ended yet, so this is not decided
    protocol.finish_group(redis, "night-1", time.time())
    protocol.settle_group(redis, "night-1", time.time())

    (found,) = attention(run)

    assert found["about"] == "group night-1"
    assert found["sentence"] == "1 task waits for it, but not all of its tasks are complete"
    assert found["command"] == "blueque group requeue night-1"


def test_the_advice_names_all_tasks_down_from_that_with_which_the_cancellation_began(run, cascade):
    assert run("why", "mid-1").stdout.endswith("blueque requeue bad-1 mid-1\n")
    assert run("show", "mid-1").stdout.endswith("To run both again: blueque requeue bad-1 mid-1\n")
    assert run("why", "low-1").stdout.endswith("blueque requeue bad-1 mid-1 low-1\n")
    assert run("show", "low-1").stdout.endswith("How to run it again: blueque why low-1\n")


def test_what_the_advice_says_brings_back_the_whole_chain(run, redis, cascade):
    command = run("why", "low-1").stdout.splitlines()[-1].split()
    run(*command[1:], "--yes")
    finish(redis, "bad-1")
    for task in ("mid-1", "low-1"):
        protocol.recheck(redis, "video", task, time.time())

    assert [item(run, task)["status"] for task in ("mid-1", "low-1")] == ["pending", "blocked"]


def test_why_says_because_of_what_the_other_task_was_cancelled(run, redis, cascade):
    block(redis, "held-1", "low-1")

    text = run("why", "held-1").stdout

    because = "was cancelled because bad-1 has failed: exit code 3.\n  blueque requeue bad-1 mid-1 low-1\n"
    assert f"  low-1, which it waits for, {because}" in text


def test_the_advice_leaves_out_a_parent_that_is_in_line_again(run, redis, cascade):
    protocol.requeue(redis, "video", "bad-1", "mark", time.time())

    shown = run("show", "mid-1").stdout
    assert shown.endswith("If you run it again, it waits for that task: blueque requeue mid-1\n")
    assert "bad-1. That task is pending now." in run("why", "low-1").stdout
    assert run("why", "low-1").stdout.endswith("blueque requeue mid-1 low-1\n")


def test_ls_lists_the_tasks_that_wait_in_vain_and_names_what_holds_them(run, redis, cascade):
    enqueue(redis, "next-1")
    block(redis, "other-1", "next-1")
    block(redis, "held-1", "low-1", "audio")
    block(redis, "below-1", "held-1", "audio")

    listed = run("ls", "--state", "held").stdout.splitlines()[1:]
    found = json.loads(run("ls", "--state", "held", "--json").stdout)["items"]

    assert [line.split()[0] for line in listed] == ["held-1", "below-1"]
    assert all("held by low-1, waits for 1" in line for line in listed)
    assert [(each["id"], each["held_by"]) for each in found] == [
        ("held-1", ["low-1"]),
        ("below-1", ["low-1"]),
    ]


def test_a_task_that_is_about_to_be_cancelled_is_not_held(run, redis):
    end(redis, "bad-1", exit_code=3)
    block(redis, "mid-1", "bad-1", broken="cancel")
    block(redis, "low-1", "mid-1", broken="cancel")
    block(redis, "held-1", "mid-1")

    waited = run("wait", "mid-1", "low-1", "held-1", "--timeout", "0.01").stderr.splitlines()

    assert run("ls", "--state", "held", "--ids").stdout == "held-1\n"
    assert [line for line in waited if "held" in line.split(" ", 1)[1]] == [
        "held-1 is held by bad-1, which has failed: exit code 3. See: blueque why held-1"
    ]


def test_ls_says_how_many_wait_for_others_or_for_their_time(run, redis):
    enqueue(redis, "next-1")
    block(redis, "child-1", "next-1")
    protocol.schedule(redis, "audio", "later-1", "{}", time.time() + 900, time.time())

    usual, of_one, named = run("ls"), run("ls", "-q", "video"), run("ls", "--state", "pending")

    assert usual.stderr == "(1 blocked and 1 scheduled: blueque ls --state blocked,scheduled)\n"
    assert of_one.stderr == "(1 blocked: blueque ls --state blocked)\n"
    assert named.stderr == ""


def test_wait_names_the_task_for_which_another_was_cancelled(run, redis, cascade):
    result = run("wait", "mid-1")

    assert result.returncode == 4
    assert result.stderr.splitlines() == [
        "mid-1 cancelled because of bad-1",
        "  See: blueque why mid-1",
    ]


def test_why_does_not_say_that_a_task_runs_whose_listener_is_gone(run, redis, cli):
    enqueue(redis, "parent-1")
    block(redis, "child-1", "parent-1", "audio")
    start(redis, "parent-1")
    assert "running for" in run("why", "child-1").stdout
    cli.zadd(keys.nodes("video"), {NODE: 1.0})

    text = run("why", "child-1").stdout

    assert f"started on {NODE}, but that listener is silent.\n" in text
    assert "running for" not in text and " blueque why parent-1\n" in text


def test_show_names_the_task_that_made_a_task(run, redis, cli):
    enqueue(redis, "child-1")
    cli.hset(keys.task("child-1"), "spawned_by", "film-1")

    assert "made by     film-1\n" in run("show", "child-1").stdout
    assert item(run, "child-1")["spawned_by"] == "film-1"


# requeue, unblock, purge


def test_requeue_says_that_a_child_waits_again_and_is_not_cancelled_any_more(run, redis, cascade):
    result = run("requeue", "mid-1")

    assert (result.returncode, result.stdout) == (0, "mid-1  blocked\n")
    assert result.stderr.splitlines() == [
        "mid-1 waits for bad-1. See: blueque why mid-1",
        "If that fails, mid-1 stays blocked: it is not cancelled again.",
    ]


def test_requeue_says_for_what_a_task_does_not_wait_any_more(run, redis, cli):
    end(redis, "good-1")
    enqueue(redis, "gone-1")
    block(redis, "rescue-1", {"good-1": "not_ok"})
    block(redis, "orphan-1", "gone-1", broken="cancel")
    protocol.settle(redis, "good-1", time.time())
    cli.delete(keys.task("gone-1"))
    protocol.recheck(redis, "video", "orphan-1", time.time())

    rescue, orphan = run("requeue", "rescue-1"), run("requeue", "orphan-1")

    assert (rescue.stdout, orphan.stdout) == ("rescue-1  pending\n", "orphan-1  pending\n")
    assert rescue.stderr == "rescue-1 no longer waits for good-1, which is complete.\n"
    assert orphan.stderr == "orphan-1 no longer waits for gone-1, which is gone.\n"


def test_unblock_from_one_task_is_in_the_history_and_shown_at_once(run, redis, client):
    for task in ("next-1", "next-2"):
        enqueue(redis, task)
    block(redis, "child-1", {"next-1": "ok", "next-2": "ok"})

    run("move", "--unblock", "child-1", "--from", "next-2")

    (event,) = [one for one in client.get_history("child-1").events if one.event == "dropped"]
    assert event.facts["from"] == "next-2"
    assert "dropped" in run("history", "child-1").stdout
    assert "next-2 in video: pending, no longer needed" in run("show", "child-1").stdout
    assert "awaited by" not in run("show", "next-2").stdout
    assert "No task waits for it." in run("graph", "next-2").stdout
    assert run("graph", "child-1").stdout.startswith("It waits for 1 of 2 tasks:\n")


def test_unblock_from_a_task_for_which_it_does_not_wait_any_more_is_refused(run, redis):
    for task in ("next-1", "next-2"):
        enqueue(redis, task)
    block(redis, "child-1", {"next-1": "ok", "next-2": "ok"})
    run("move", "--unblock", "child-1", "--from", "next-2")

    again = run("move", "--unblock", "child-1", "--from", "next-2")

    assert (again.returncode, again.stdout) == (5, "")
    assert again.stderr == "task child-1 does not wait for next-2 any more\n"


def test_a_dry_run_of_a_purge_counts_what_would_go_and_what_would_stay(run, redis):
    for task in ("next-1", "next-2"):
        enqueue(redis, task)
    block(redis, "child-1", "next-1")

    foreseen = run("delete", "-q", "video", "--state", "pending,scheduled,blocked", "--dry-run")
    forced = run(
        "delete",
        "-q",
        "video",
        "--state",
        "pending,scheduled,blocked",
        "--dry-run",
        "--force",
        "--json",
    )
    purged = run("delete", "-q", "video", "--state", "pending,scheduled,blocked", "--yes")

    rows = [["video", "blocked", "1"], ["video", "pending", "1"]]
    assert [line.split() for line in foreseen.stdout.splitlines()[1:]] == rows
    assert foreseen.stderr.startswith("1 more task stays: others wait for it. To delete")
    assert json.loads(forced.stdout)["tasks"] == 3
    assert purged.returncode == 75 and purged.stderr.endswith("2 tasks deleted.\n")


# enqueue --group, graph GROUP


def test_a_task_joins_a_group_that_is_opened_for_it_and_another_waits_for_the_group(run, client):
    first, second = (run("enqueue", "video", "1", "--group", "night-1").stdout for _ in range(2))
    lines = run("enqueue", "video", "--lines", "--group", "night-1", stdin="1\n2\n").stdout
    last = run("enqueue", "audio", "1", "--after", "group night-1").stdout.strip()

    progress = client.group("night-1").progress()
    assert (progress.state, progress.members, progress.waiting) == ("open", 4, 1)
    assert {first.strip(), second.strip(), *lines.split()} == {*members(client, "night-1")}
    assert client.get_task(last).status == "blocked"
    assert run("group", "close", "night-1").returncode == 0
    refused = run("enqueue", "video", "1", "--group", "night-1")
    assert (refused.returncode, "night-1" in refused.stderr) == (5, True)


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (["{"], ""),
        (["1", "--priority", "101"], ""),
        (["1", "--key-field", "k"], ""),
        (["--lines"], "{\n1\n"),
        (["--lines", "--key-field", "k"], '{"j": 1}\n'),
        (["--lines", "--key", "k"], "1\n"),
        (["--lines", "--priority", "101"], "1\n"),
        (["1", "--after", "group night-0"], ""),
        (["1", "--after", "group night-1"], ""),
        (["--lines", "--after", "group night-0"], "1\n"),
        (["--lines", "--after", "group night-1"], "1\n"),
    ],
)
def test_what_is_refused_leaves_no_group_open(run, words, stdin, cli):
    result = run("enqueue", "video", *words, "--group", "night-1", stdin=stdin)

    assert (result.returncode != 0, cli.exists(keys.group("night-1"))) == (True, 0)


def test_the_good_lines_before_a_bad_one_are_in_the_group(run, client):
    result = run("enqueue", "video", "--lines", "--group", "night-1", stdin="1\n{\n")

    assert result.returncode == 2
    assert members(client, "night-1") == result.stdout.split() != []


def test_a_task_that_is_due_later_opens_its_group(run, client):
    words = ["--in", "1h", "--group", "night-1"]
    first = run("enqueue", "video", "1", *words).stdout
    others = run("enqueue", "video", "--lines", *words, stdin="1\n2\n").stdout

    assert members(client, "night-1") == [first.strip(), *others.split()]


def members(client, group):
    from blueque.queries import groups

    return groups.members(client.connections, group)


@pytest.mark.parametrize("name", ["night-1", "group night-1"])
def test_graph_draws_a_group_with_its_tasks_and_what_waits_for_it(run, redis, name):
    protocol.open_group(redis, "night-1", 60, time.time())
    for n in range(8):
        enqueue(redis, f"member-{n}", group="night-1")
    block(redis, "child-1", {"group night-1": "ok"}, "audio")
    protocol.cancel(redis, "video", "member-7", "ada", None, time.time())
    protocol.settle_members(redis, "night-1", ["member-7"])

    lines = run("graph", name).stdout.splitlines()
    found = json.loads(run("graph", name, "--json").stdout)

    assert lines[0] == "Its tasks:"
    assert lines[1] == "  x 8 video: 1 cancelled, 7 pending"
    assert lines[2].startswith("    member-7  video  cancelled ")
    assert lines[3] == "group night-1  open, 1 of 8 tasks have ended, 1 of them without success"
    assert lines[4] == "1 task waits for it:"
    assert lines[5].startswith("  child-1  audio  blocked")
    assert (found["task"], found["has_more"]) == ("group night-1", False)
    assert {"parent": "group night-1", "child": "child-1", "condition": "ok"} in found["edges"]
    assert {"parent": "member-0", "child": "group night-1", "condition": "ok"} in found["edges"]


def test_graph_of_a_large_group_says_how_many_tasks_are_left_out(run, redis, monkeypatch):
    monkeypatch.setattr("blueque.queries.task_graph.MAX_TASKS", 4)
    protocol.open_group(redis, "night-1", 60, time.time())
    for n in range(8):
        enqueue(redis, f"member-{n}", group="night-1")

    lines = run("graph", "night-1").stdout.splitlines()
    found = json.loads(run("graph", "night-1", "--json").stdout)

    assert lines[4] == "  ... 5 more" and lines[-1] == "No task waits for it."
    assert found["has_more"]


def test_graph_of_no_task_and_no_group_says_so(run):
    assert run("graph", "nothing").returncode == 3
    assert run("graph", "group nothing").returncode == 3


# status, graph


def test_a_task_counts_as_held_before_it_is_told(run, redis):
    end(redis, "bad-1", exit_code=3)
    block(redis, "held-1", "bad-1")
    block(redis, "rescue-1", {"bad-1": "not_ok"})
    block(redis, "ending-1", "bad-1", broken="cancel")

    assert [each["sentence"] for each in attention(run)] == [
        "1 task waits for bad-1, which has failed"
    ]


def test_graph_of_a_cancelled_task_says_that_it_waited(run, cascade):
    assert run("graph", "mid-1").stdout.startswith("It waited for 1 task:\n")


def test_the_status_says_which_tasks_wait_for_what_is_gone(run, redis, cli):
    enqueue(redis, "lost-1")
    protocol.open_group(redis, "night-1", 60, time.time())
    block(redis, "child-1", "lost-1")
    block(redis, "child-2", {"group night-1": "ok"})
    block(redis, "child-3", {"group night-1": "any"})
    cli.delete(keys.task("lost-1"))
    cli.delete(keys.group("night-1"))
    for task in ("child-1", "child-2", "child-3"):
        protocol.recheck(redis, "video", task, time.time())

    shown = run("status")
    concerns = json.loads(run("status", "--json").stdout)["attention"]

    assert "2 tasks wait for tasks that are gone" in shown.stdout
    assert [each["code"] for each in concerns].count("held") == 1
