"""What `blueque` shows of tasks that wait for others, and what a person can do about them."""

from __future__ import annotations

import json
import re
import subprocess
import time

import pytest
from dependent import NODE, block, end, enqueue, finish, start
from running import BLUEQUE
from test_cli import columns_of
from transactions import protocol

from blueque.cli import graph_text
from blueque.model import keys
from blueque.producer import orders
from blueque.sentences.why_blocked import RIPE

pytestmark = pytest.mark.usefixtures("listener")

IDS = [f"{n:08x}-0000-4000-8000-000000000000" for n in range(500)]


@pytest.fixture
def on_terminal(environ):
    """Run the program on a terminal of 80 columns and return the lines that it shows."""
    import forked  # here: it imports all verbs

    return lambda *arguments: forked.on_terminal(arguments, environ)


def graph(run, task):
    result = run("graph", task)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.splitlines()


# status, top, queue ls


@pytest.mark.parametrize("verb", [("status",), ("queue", "ls")])
def test_a_column_for_blocked_tasks_is_there_where_there_are_any(run, redis, verb):
    enqueue(redis, "parent-1")
    without = run(*verb).stdout
    block(redis, "child-1", "parent-1", "audio")

    shown = run(*verb).stdout

    assert "BLOCKED" not in without
    titles = next(line for line in shown.splitlines() if line.startswith("QUEUE")).split()
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if line}
    assert titles[:2] == ["QUEUE", "BLOCKED"]
    assert (rows["video"][1], rows["audio"][1]) == ("0", "1")


def test_status_says_how_many_wait_in_vain_and_what_runs_the_failed_task_again(run, redis):
    end(redis, "bad-1", exit_code=3)
    for n in range(12):
        block(redis, f"child-{n}", "bad-1", "audio")
    protocol.settle(redis, "bad-1", time.time())

    result = run("status", "--check")

    assert result.returncode == 75
    lines = result.stdout.splitlines()
    place = lines.index("! video: 12 tasks wait for bad-1, which has failed")
    assert lines[place + 1] == "  blueque requeue bad-1"


def test_of_several_that_hold_others_status_gives_the_list(run, redis):
    end(redis, "bad-1", exit_code=3)
    enqueue(redis, "gone-1")
    protocol.cancel(redis, "video", "gone-1", "ada", None, time.time())
    block(redis, "child-1", "bad-1")
    block(redis, "child-2", "gone-1")
    for task in ("bad-1", "gone-1"):
        protocol.settle(redis, task, time.time())

    shown, found = run("status").stdout, json.loads(run("status", "--json").stdout)

    assert "! video: 2 tasks wait for 2 tasks that failed or were cancelled\n" in shown
    assert "\n  blueque ls --state held\n" in shown
    assert [one["held"] for one in found["queues"][0]["holders"]] == [1, 1]


# ls, cancel, export, completion


def test_ls_shows_blocked_tasks_when_they_are_asked_for(run, redis):
    enqueue(redis, "parent-1")
    enqueue(redis, "parent-2")
    block(redis, "child-1", {"parent-1": "ok", "parent-2": "any"}, priority=5)

    assert run("ls", "--ids").stdout.split() == ["parent-1", "parent-2"]
    assert run("ls", "--state", "deferred", "--ids").stdout == "child-1\n"
    (line,) = run("ls", "--state", "blocked").stdout.splitlines()[1:]
    assert line.split()[:4] == ["child-1", "-", "video", "blocked"]
    assert line.endswith("waits for 2, priority 5")


def test_ls_says_because_of_what_a_task_was_cancelled(run, redis):
    enqueue(redis, "parent-1")
    block(redis, "child-1", "parent-1", broken="cancel")
    protocol.cancel(redis, "video", "parent-1", "ada", None, time.time())
    protocol.settle(redis, "parent-1", time.time())

    lines = run("ls", "--state", "cancelled").stdout.splitlines()

    assert any(line.endswith("by blueque, because of parent-1") for line in lines)


def test_a_shell_completes_the_ids_of_blocked_tasks(environ, redis):
    enqueue(redis, "parent-1")
    block(redis, "child-1", "parent-1")

    found = subprocess.run(
        BLUEQUE,
        env=environ
        | {
            "_BLUEQUE_COMPLETE": "bash_complete",
            "COMP_WORDS": "blueque move chi --unblock",
            "COMP_CWORD": "2",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert "child-1" in found.stdout


# show


def test_show_lists_each_condition_and_counts_what_waits(run, redis):
    end(redis, "good-1")
    end(redis, "bad-1", exit_code=1)
    enqueue(redis, "next-1", "audio")
    wanted = {"good-1": "ok", "bad-1": "ok", "next-1": "any"}
    block(redis, "child-1", wanted, broken="hold")
    for n in range(7):
        block(redis, f"leaf-{n}", "child-1", now=100.0 + n)

    shown = run("show", "child-1").stdout
    item = json.loads(run("show", "child-1", "--json").stdout)["item"]

    assert "\nstate       blocked\n" in shown
    assert (
        "\nafter       1 of 3 conditions met\n"
        "            bad-1 in video: failed\n"
        "            next-1 in audio: pending, has to end\n"
        "            good-1 in video: complete\n"
    ) in shown
    assert "\nawaited by  7 tasks: leaf-0, leaf-1, leaf-2, leaf-3, leaf-4 and 2 more\n" in shown
    assert sorted((one["task"], one["condition"], one["status"]) for one in item["conditions"]) == [
        ("bad-1", "ok", "failed"),
        ("good-1", "+complete", "complete"),
        ("next-1", "any", "pending"),
    ]
    assert (item["dependents"], len(item["first_dependents"])) == (7, 5)


def test_show_says_what_became_of_a_condition_that_was_decided_before(run, redis):
    end(redis, "any-1", exit_code=1)
    end(redis, "bad-1", exit_code=1)
    block(redis, "child-1", {"any-1": "any", "bad-1": "ok"}, broken="cancel")
    protocol.requeue(redis, "video", "any-1", "mark", time.time())
    enqueue(redis, "other-1")
    block(redis, "child-2", {"bad-1": "ok", "other-1": "ok"})
    protocol.unblock(redis, "video", "child-2", time.time(), "ada", ["bad-1"])

    one, two = run("show", "child-1").stdout, run("show", "child-2").stdout

    assert "after       1 of 2 conditions met; cancelled if one can no longer be met\n" in one
    assert "any-1 in video: was failed, is pending\n" in one
    assert "bad-1 in video: failed, no longer needed\n" in two


# why


def test_why_says_for_which_tasks_it_waits_and_where_they_are(why, redis):
    end(redis, "good-1")
    enqueue(redis, "runs-1")
    start(redis, "runs-1", now=time.time() - 7260)
    enqueue(redis, "next-1", "audio")
    block(redis, "wait-1", "next-1")
    wanted = {"next-1": "ok", "wait-1": "any", "runs-1": "not_ok", "good-1": "ok"}
    block(redis, "child-1", wanted)

    codes, text = why("child-1")

    assert codes == ["blocked"]
    assert re.match(r"child-1 in video has been blocked for \d", text)
    assert re.search(
        rf"It waits for 3 of 4 tasks: runs-1 on {NODE}, running for 2 h 1 m, which would have to fail;"
        r" next-1 of queue audio, pending for [\d.]+ s; wait-1, blocked for [\d.]+ s\.\n",
        text,
    )
    assert text.endswith("blueque graph child-1\n")


def test_why_names_the_failed_task_and_the_command_that_runs_it_again(why, redis):
    for task in ("bad-1", "bad-2", "bad-3", "bad-4", "bad-5"):
        end(redis, task, exit_code=1)
    enqueue(redis, "next-1")
    block(
        redis,
        "child-1",
        dict.fromkeys(["bad-1", "bad-2", "bad-3", "bad-4", "bad-5", "next-1"], "ok"),
    )

    codes, text = why("child-1")

    assert codes == ["broken"] * 4 + ["blocked"]
    assert "1. bad-1, which it waits for, has failed: exit code 1.\n" in text
    assert "blueque requeue bad-1\n" in text
    assert "4. 2 more that it waits for failed or were cancelled.\n" in text
    assert "It waits for 1 of 6 tasks: next-1, pending for" in text


def test_why_names_the_failed_task_that_holds_up_what_it_waits_for(why, redis):
    end(redis, "bad-1", exit_code=1)
    block(redis, "mid-1", "bad-1")
    block(redis, "low-1", "mid-1")
    block(redis, "child-1", "low-1")

    codes, text = why("child-1")

    assert codes == ["broken", "blocked"]
    assert "1. bad-1, which low-1 waits for, has failed: exit code 1.\n" in text
    assert "blueque requeue bad-1\n" in text
    assert re.search(r"2\. It waits for low-1, blocked for [\d.]+ s\.\n", text)


@pytest.fixture
def night(redis):
    """A group of three tasks, of which one has failed; returns a function that ends it so."""
    protocol.open_group(redis, "night-1", 3600, time.time())
    for n in range(3):
        enqueue(redis, f"member-{n}", group="night-1")
    for n in range(2):
        finish(redis, f"member-{n}", **({"exit_code": 1} if n else {}))
    members = [f"member-{n}" for n in range(3)]

    def finish_all():
        finish(redis, "member-2")
        protocol.close_group(redis, "night-1", time.time())
        protocol.settle_members(redis, "night-1", members)
        assert protocol.finish_group(redis, "night-1", time.time()) == "ended"

    protocol.settle_members(redis, "night-1", members)
    return finish_all


def test_why_says_how_far_a_group_is(why, run, redis, night):
    block(redis, "child-1", {"group night-1": "ok"}, "audio")

    codes, text = why("child-1")

    assert codes == ["group", "no_listener"]
    assert (
        "It waits for group night-1: 2 of 3 tasks have ended, 1 of them without success. " in text
    )
    assert "  group night-1  open, 2 of 3 tasks have ended, 1 of them without success" in graph(
        run, "child-1"
    )
    assert "            group night-1: open\n" in run("show", "child-1").stdout


def test_why_says_that_a_group_is_open_and_how_to_close_it(why, redis, night):
    protocol.open_group(redis, "night 2", 3600, time.time())
    enqueue(redis, "alone-1", group="night 2")
    protocol.cancel(redis, "video", "alone-1", "ada", None, time.time())
    protocol.settle_members(redis, "night 2", ["alone-1"])
    block(redis, "child-1", {"group night 2": "ok"})
    block(redis, "child-2", {"group night-1": "ok"})
    protocol.close_group(redis, "night-1", time.time())

    (_, text), (_, closed) = why("child-1"), why("child-2")

    assert (
        "It waits for group night 2: 1 of 1 task has ended, but without success. The group is open"
        in text
    )
    assert "  blueque group close 'night 2'\n" in text
    assert "1 of them without success.\n" in closed and "group close" not in closed


def test_why_says_how_far_a_group_is_that_runs_again(why, redis):
    protocol.open_group(redis, "night-1", 3600, time.time())
    enqueue(redis, "alone-1", group="night-1")
    block(redis, "child-1", {"group night-1": "ok"}, broken="cancel")
    finish(redis, "alone-1", exit_code=1)
    protocol.settle_members(redis, "night-1", ["alone-1"])
    protocol.close_group(redis, "night-1", time.time())
    protocol.finish_group(redis, "night-1", time.time())
    protocol.settle_group(redis, "night-1", time.time())
    failed = why("child-1")[1]
    protocol.requeue(redis, "video", "alone-1", "mark", time.time())
    protocol.settle_members(redis, "night-1", ["alone-1"])

    again = why("child-1")[1]

    assert "has failed: 1 of 1 task has ended, but without success. It stays cancelled" in failed
    assert "Of that group, 0 of 1 task has ended. It stays cancelled until" in again
    assert again.endswith("blueque requeue child-1\n")


def test_why_says_that_a_group_has_not_ended_well(why, run, redis, night):
    block(redis, "child-1", {"group night-1": "ok"})
    block(redis, "child-2", {"group night-1": "ok"}, broken="cancel")
    block(redis, "leaf-1", "child-1")
    night()
    protocol.settle_group(redis, "night-1", time.time())

    told, ended, below = why("child-1"), why("child-2"), why("leaf-1")

    how = "has failed: 3 of 3 tasks have ended, 1 of them without success."
    assert told[0] == ["group"] and f"group night-1, which it waits for, {how}" in told[1]
    assert f"It was cancelled because group night-1, which it waited for, {how}" in ended[1]
    assert f"group night-1, which child-1 waits for, {how}" in below[1]
    assert run("move", "--unblock", "child-1", "--from", "night-1").stdout == "child-1  pending\n"


def test_why_says_that_a_group_is_gone(why, run, redis, night, cli):
    block(redis, "child-1", {"group night-1": "ok"})
    cli.delete(keys.group("night-1"))

    codes, text = why("child-1")

    assert codes == ["parent_gone"]
    assert text.endswith("blueque move child-1 --unblock --from 'group night-1'\n")
    assert "  group night-1  gone" in graph(run, "child-1")


def test_why_says_by_whom_the_other_task_was_cancelled(why, redis):
    enqueue(redis, "gone-1")
    block(redis, "child-1", "gone-1")
    protocol.cancel(redis, "video", "gone-1", "ada", "no", time.time())

    codes, text = why("child-1")

    assert codes == ["broken"]
    assert "gone-1, which it waits for, was cancelled by ada.\n" in text


def test_why_says_that_a_task_is_gone_and_how_to_go_on_without_it(why, run, redis, cli):
    enqueue(redis, "gone-1")
    block(redis, "child-1", "gone-1")
    cli.delete(keys.task("gone-1"))
    cli.lrem(keys.pending("video"), 0, "gone-1")

    codes, text = why("child-1")

    assert codes == ["parent_gone"]
    assert "gone-1, which it waits for, is gone: it is not known how that ended.\n" in text
    command = text.splitlines()[-1].split()
    assert command == ["blueque", "move", "child-1", "--unblock", "--from", "gone-1"]
    assert run(*command[1:]).stdout == "child-1  pending\n"


@pytest.mark.parametrize(
    ("ago", "code", "words"),
    [
        (RIPE / 2, "blocked", "puts it in line now."),
        (
            RIPE + 60,
            "ripe",
            "2 m ago, but it was not put in line: no scheduler runs.\n  blueque-sch",
        ),
    ],
)
def test_why_says_that_nothing_puts_it_in_line_although_it_waits_for_nothing(
    why, redis, cli, ago, code, words
):
    enqueue(redis, "next-1")
    block(redis, "child-1", "next-1", now=time.time() - 1000)
    then = time.time() - ago
    cli.hset(keys.task("next-1"), mapping={"status": "complete", "finished": then, "updated": then})

    codes, text = why("child-1")

    assert codes == [code]
    assert words in text


def test_why_says_that_it_is_not_needed(why, redis, cli):
    enqueue(redis, "next-1")
    block(redis, "child-1", {"next-1": "not_ok"})
    cli.hset(keys.task("next-1"), "status", "complete")

    codes, text = why("child-1")

    assert codes == ["unneeded"]
    assert "It runs only if next-1 fails, but that task is complete." in text


def test_why_of_what_was_cancelled_because_of_another_task_names_that_one(why, redis):
    end(redis, "bad-1", exit_code=1)
    block(redis, "child-1", "bad-1", broken="cancel")
    protocol.settle(redis, "bad-1", time.time())

    codes, text = why("child-1")
    protocol.requeue(redis, "video", "bad-1", "mark", time.time())
    _, again = why("child-1")

    assert codes == ["ended"]
    assert "It was cancelled because bad-1, which it waited for, has failed: exit code 1." in text
    assert text.endswith("blueque requeue bad-1 child-1\n")
    assert "That task is pending now." in again and again.endswith("blueque requeue child-1\n")


def test_a_blocked_task_of_a_queue_that_nobody_serves_is_said_to_be_that_too(why, redis):
    enqueue(redis, "next-1")
    block(redis, "child-1", "next-1", "audio")

    assert why("child-1")[0] == ["blocked", "no_listener"]


# graph


def test_graph_draws_what_it_waits_for_above_and_what_waits_for_it_below(run, redis):
    end(redis, "fetch-1", "fetch")
    end(redis, "bad-1", exit_code=1)
    block(redis, "clip-1", {"fetch-1": "ok", "bad-1": "ok"}, "cut")
    block(redis, "clip-2", {"fetch-1": "ok", "bad-1": "any"}, "cut")
    block(redis, "join-1", {"clip-1": "ok", "clip-2": "any"}, "join")
    block(redis, "mail-1", {"join-1": "not_ok"}, "mail")

    lines = [re.sub(r"[\d.]+ s", "N s", line) for line in graph(run, "join-1")]

    assert lines == [
        "It waits for 2 of 2 tasks:",
        "  clip-2  cut  pending for N s  (any)",
        "    fetch-1  fetch  complete for N s",
        "    bad-1  video  failed N s ago, exit code 1",
        "  clip-1  cut  blocked for N s",
        "    fetch-1  fetch  complete for N s  (see above)",
        "    bad-1  video  failed N s ago, exit code 1  (see above)",
        "join-1  join  blocked for N s",
        "1 task waits for it:",
        "  mail-1  mail  blocked for N s  (not_ok)",
    ]


def test_graph_of_a_task_alone_says_so(run, redis):
    enqueue(redis, "task-1")

    lines = graph(run, "task-1")

    assert (lines[0], lines[2]) == ("It waits for no other task.", "No task waits for it.")
    assert lines[1].startswith("task-1  video  pending for ")


def test_many_alike_become_one_line_with_those_that_failed_below(run, redis):
    for n in range(8):
        end(redis, f"done-{n}", "render")
    for n in range(4):
        end(redis, f"bad-{n}", "render", exit_code=1)
    parents = [f"{kind}-{n}" for kind, many in (("done", 8), ("bad", 4)) for n in range(many)]
    block(redis, "join-1", dict.fromkeys(parents, "ok"))
    for n in range(30):
        block(redis, f"mail-{n}", "join-1", "mail")

    lines = graph(run, "join-1")

    assert lines[:2] == ["It waits for 4 of 12 tasks:", "  x 12 render: 4 failed, 8 complete"]
    assert [line.split()[0] for line in lines[2:5]] == ["bad-0", "bad-1", "bad-2"]
    assert lines[5].startswith("join-1")
    assert lines[6:] == ["30 tasks wait for it:", "  x 30 mail: 30 blocked"]


def test_a_graph_has_200_lines_at_most_and_says_that_there_is_more(run, redis):
    enqueue(redis, "root-1")
    for n in range(90):
        block(redis, f"child-{n}", "root-1", f"queue-{n:02}")
        for leaf in range(3):
            block(redis, f"leaf-{n}-{leaf}", f"child-{n}", f"leaves-{leaf}")

    lines = graph(run, "root-1")

    assert len(lines) == graph_text.MOST_LINES
    assert lines[-1] == "  ... (--json shows more)"


def test_a_graph_that_was_not_read_to_its_end_says_where_it_goes_on(run, redis, monkeypatch):
    monkeypatch.setattr("blueque.queries.task_graph.DEPTH", 1)
    monkeypatch.setattr("blueque.queries.task_graph.MAX_DEPENDENTS", 2)
    enqueue(redis, "top-1")
    block(redis, "mid-1", "top-1")
    block(redis, "root-1", "mid-1")
    for n in range(3):
        block(redis, f"child-{n}", "root-1", now=100.0 + n)
    block(redis, "leaf-1", "child-0")

    lines, found = graph(run, "root-1"), json.loads(run("graph", "root-1", "--json").stdout)

    assert lines[2] == "    ... 1 more: blueque graph mid-1"
    assert lines[6] == "    ... more: blueque graph child-0" and lines[-1] == "  ... 1 more"
    assert found["has_more"] is True


def test_a_graph_with_a_circle_ends(run, redis, cli):
    enqueue(redis, "seed-1")
    block(redis, "one-1", "seed-1")
    block(redis, "two-1", "one-1")
    cli.hset(keys.conditions("one-1"), "two-1", "ok")
    cli.zadd(keys.dependents("two-1"), {"one-1": 1.0})
    cli.hset(keys.task("two-1"), "dependents", 1)

    lines = graph(run, "one-1")

    assert sum("(see above)" in line for line in lines) == 2 and len(lines) == 8


def test_a_graph_fits_80_columns_and_shows_short_ids_on_a_terminal_only(run, on_terminal, redis):
    enqueue(redis, IDS[0], "a-queue-with-a-very-long-name" * 3)
    block(redis, IDS[1], IDS[0])
    for n in range(2, 12):
        block(redis, IDS[n], IDS[n - 1], "another-queue-with-a-very-long-name" * 2)

    shown, whole = on_terminal("graph", IDS[6]), graph(run, IDS[6])

    assert max(map(columns_of, shown)) <= 80 and len(shown) == len(whole)
    assert IDS[6][:8] in "".join(shown) and IDS[6] not in "".join(shown)
    assert any(line.startswith(IDS[6]) for line in whole)


def test_a_graph_for_graphviz_quotes_every_name(run, redis):
    enqueue(redis, "next-1", 'it\'s "quoted"\\')
    block(redis, "child-1", {"next-1": "any"})

    lines = run("graph", "child-1", "--dot").stdout.splitlines()

    assert (lines[0], lines[-1]) == ("digraph blueque {", "}")
    assert '  "next-1" -> "child-1" [label="any"];' in lines
    assert any(
        r'[label="next-1\nit' in line and r'\"quoted\"\\\npending"' in line for line in lines
    )


# unblock


def test_unblock_from_one_task_leaves_the_others(run, redis, client):
    for task in ("next-1", "next-2"):
        enqueue(redis, task)
    block(redis, "child-1", {"next-1": "ok", "next-2": "ok"})

    first = run("move", "--unblock", "child-1", "--from", "next-2", "--json")

    assert json.loads(first.stdout)["items"] == [
        {"id": "child-1", "queue": "video", "status": "blocked", "refusal": None}
    ]
    assert run("move", "--unblock", "child-1", "--from", "next-1").stdout == "child-1  pending\n"


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["next-1"], "task next-1 does not wait for other tasks: it is pending\n"),
        (["child-1", "--from", "nothing"], "task child-1 does not wait for a task 'nothing'\n"),
        (["child-1", "--from", "next-"], "task child-1 does not wait for a task 'next-'\n"),
        (["child-1", "--from", "abcd"], "task child-1 waits for 2 tasks that begin with 'abcd'\n"),
    ],
)
def test_what_cannot_be_unblocked_is_said_with_code_5(run, redis, client, words, refusal):
    parents = ["next-1", *(f"abcd000{n}-0000-4000-8000-000000000000" for n in (1, 2))]
    for task in parents:
        enqueue(redis, task)
    block(redis, "child-1", dict.fromkeys(parents, "ok"))

    result = run("move", "--unblock", *words)

    assert (result.returncode, result.stdout, result.stderr) == (5, "", refusal)
    assert client.get_task("child-1").status == "blocked"


def test_unblock_asks_for_more_than_one(run, redis, client):
    enqueue(redis, "next-1")
    for n in (1, 2):
        block(redis, f"child-{n}", "next-1")

    assert run("move", "--unblock", "child-1", "child-2").returncode == 6
    assert client.get_task("child-1").status == "blocked"
    assert run("move", "--unblock", "child-1", "child-2", "--yes").returncode == 0


# delete, requeue


def test_what_force_does_not_delete_either_is_not_advised_to_be_forced(run, redis, monkeypatch):
    protocol.open_group(redis, "late", 3600, time.time())
    enqueue(redis, "late-1", group="late")
    finish(redis, "late-1")
    monkeypatch.setattr(orders, "settle_members", lambda *_: None)  # it runs again meanwhile

    refused = run("delete", "late-1", "--yes")

    assert refused.returncode == 5
    assert "its group has not noted its end yet" in refused.stderr
    assert "--force" not in refused.stderr


def test_a_task_for_which_others_wait_is_deleted_only_by_force(run, redis, client):
    end(redis, "bad-1", exit_code=1)
    block(redis, "child-1", "bad-1")
    protocol.settle(redis, "bad-1", time.time())

    dry, refused = run("delete", "bad-1", "--dry-run"), run("delete", "bad-1", "--yes")
    forced = run("delete", "bad-1", "--force", "--yes")

    for result in (dry, refused):
        assert result.returncode == 5
        assert "nevertheless: blueque delete --force bad-1" in result.stderr
    assert (forced.returncode, forced.stdout) == (0, "bad-1  deleted\n")
    assert client.get_task("bad-1").status is None


def test_requeue_says_that_a_task_still_waits(run, redis):
    enqueue(redis, "next-1")
    block(redis, "child-1", "next-1")
    protocol.cancel(redis, "video", "child-1", "ada", None, time.time())

    assert run("requeue", "child-1").stdout == "child-1  blocked\n"


# wait


def test_wait_says_once_for_whom_a_task_is_held_and_goes_on(begin, redis, monkeypatch):
    end(redis, "bad-1", exit_code=1)
    block(redis, "child-1", "bad-1")

    waiting = begin("wait", "child-1")
    line = waiting.stderr.readline()
    protocol.requeue(redis, "video", "bad-1", "mark", time.time())
    finish(redis, "bad-1")
    finish(redis, "child-1")

    assert line == (
        "child-1 is held by bad-1, which has failed: exit code 1. See: blueque why child-1\n"
    )
    assert waiting.wait(30) == 0
    assert re.fullmatch(r"child-1 complete after [\d.]+ s: 1\n", waiting.stderr.read())


def test_wait_names_three_tasks_that_are_held_and_counts_the_others(run, redis):
    end(redis, "bad-1", exit_code=1)
    for n in range(5):
        block(redis, f"child-{n}", "bad-1")

    lines = run("wait", *[f"child-{n}" for n in range(5)], "--timeout", "0.01").stderr.splitlines()

    assert [line.split()[0] for line in lines[:3]] == ["child-0", "child-1", "child-2"]
    assert lines[3] == "2 more of these tasks are held."


def test_wait_does_not_say_it_again(run, redis, monkeypatch):
    monkeypatch.setattr("blueque.queries.task_ends.NOTICE_EVERY", 0.001)
    end(redis, "bad-1", exit_code=1)
    block(redis, "child-1", "bad-1")

    result = run("wait", "child-1", "--timeout", "0.2")

    assert result.returncode == 124 and result.stderr.count("is held") == 1


def test_wait_says_it_of_a_task_that_is_held_later(environ, redis, client, monkeypatch):
    from blueque.queries import task_ends

    monkeypatch.setattr(task_ends, "NOTICE_EVERY", 0.01)
    enqueue(redis, "next-1")
    block(redis, "child-1", "next-1")
    told = []

    def notice(ids):
        told.append((ids, [*client.get_inspector().broken(ids)]))
        if len(told) == 1:
            protocol.cancel(redis, "video", "next-1", "ada", None, time.time())
        elif told[-1][1]:
            protocol.cancel(redis, "video", "child-1", "ada", None, time.time())

    watcher = task_ends.Watcher(client.connections, ["child-1"])
    (ended,) = task_ends.ends(watcher, 1.0, 5.0, notice)

    assert (told[0], told[-1]) == ((["child-1"], []), (["child-1"], ["child-1"]))
    assert ended.status == "cancelled"


def test_a_graph_names_the_tasks_that_have_a_title_or_a_key(run, client):
    queue = client.get_queue("video")
    cut, scene = queue.enqueue(1, title="cut the film"), queue.enqueue(2, key="scene-17")
    mix = queue.enqueue(3, after=[cut, scene], title="mix it")

    shown = "\n".join(graph(run, mix))

    assert f"{cut}  cut the film  video  pending" in shown
    assert f"{scene}  scene-17  video  pending" in shown
    assert f"{mix}  mix it  video  blocked" in shown


def test_a_long_title_hides_no_state_of_a_graph_on_a_terminal(on_terminal, client):
    task = client.get_queue("video").enqueue(1, title="a very long title " * 10)

    (line,) = (line for line in on_terminal("graph", task) if line.startswith(task[:8]))

    assert line.startswith(f"{task[:8]}  a very long title ") and columns_of(line) <= 80
    assert "…  video  pending for " in line
