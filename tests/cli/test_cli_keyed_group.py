"""blueque enqueue --lines --key-field --group: each key makes one task in a group."""

from __future__ import annotations

import json
import time

import pytest

from blueque.cli import selection
from blueque.model import keys
from blueque.queries import search
from blueque.recovery.group_settling import settle_groups_step

Q = "video"
KEYED = ["enqueue", Q, "--lines", "--key-field", "id", "--group", "g"]


def test_a_closed_group_takes_no_new_line_and_no_id_is_printed(run, client, state):
    assert run(*KEYED, stdin='{"id": "a"}\n').returncode == 0
    before = state()

    refused = run(*KEYED, stdin='{"id": "b"}\n')

    assert (refused.returncode, refused.stdout) == (5, "")
    assert (
        "group 'g': it is closed; no other task joins it. Take another name, or" in refused.stderr
    )
    assert "open it again: client.group('g').reopen()" in refused.stderr
    assert state() == before
    client.group("g").reopen()
    assert run(*KEYED, stdin='{"id": "b"}\n').returncode == 0
    assert client.group("g").progress().state == "closed"


def test_a_group_that_broke_off_is_closed_by_the_same_lines(run, client, cli):
    broken = '{"id": "a"}\n{"id": "b"}\nno json\n'
    stopped = run(*KEYED, stdin=broken)
    assert stopped.returncode == 2
    way_on = "Group g stays open: correct the line and run the same command again, or: blueque group close g"
    assert way_on in stopped.stderr.splitlines()
    assert client.group("g").progress().state == "open"
    whole = broken.replace("no json", '{"id": "c"}')

    assert run(*KEYED, stdin=whole).returncode == 0
    assert cli.llen(keys.pending(Q)) == client.group("g").progress().members == 3
    assert client.group("g").progress().state == "closed"


def test_a_bad_first_line_opens_no_group(run, state):
    refused = run(*KEYED, stdin="no json\n")

    assert (refused.returncode, "stays open" in refused.stderr, state()) == (2, False, {})


@pytest.mark.parametrize("key", [[], ["--key-field", "id"]])
@pytest.mark.parametrize("rows", ["", "\n\n"])
def test_an_input_without_rows_opens_no_group(run, state, key, rows):
    refused = run("enqueue", Q, "--lines", *key, "--group", "g", stdin=rows)

    said = "the input has no rows, so nothing was enqueued and group g was not opened"
    assert (refused.returncode, said in refused.stderr, refused.stdout) == (2, True, "")
    assert state() == {}


def test_the_tasks_of_a_group_are_found_wherever_they_are(run, client, queue, monkeypatch):
    names = [f"k{number}" for number in range(4)]
    queue.enqueue_many(names, keys=names, group="n1")
    queue.enqueue_many(range(50))
    cancelled = queue.cancel(client.get_inspector().group_members(["n1"])[0][0])
    settle_groups_step(client.connections, time.time())
    monkeypatch.setattr(search, "MOST_SEARCHED", 4)  # the others are before them in the line

    listed = json.loads(run("ls", "--group", "n1", "--json").stdout)["items"]
    monkeypatch.setattr(selection, "MOST", 2)
    waited = run("wait", "--group", "n1", "--timeout", "0")

    assert cancelled == "cancelled"
    assert sorted(item["key"] for item in listed) == names
    assert (waited.returncode, "3 tasks left" in waited.stderr) == (124, True)


def test_wait_says_that_an_open_group_may_get_more_tasks(run, client, queue):
    client.group("n1").open()
    queue.cancel(queue.enqueue(1, group="n1"))

    opened = run("wait", "--group", "n1")
    client.group("n1").close()

    assert "group n1 is open: tasks that join it later are not waited for" in opened.stderr
    assert "is open" not in run("wait", "--group", "n1").stderr


def test_export_of_a_mistyped_group_is_no_empty_file(run, queue):
    queue.enqueue_many(["a"], keys=["a"], group="night")
    refused = run("export", "--state", "all", "--group", "nigth")

    assert (refused.returncode, refused.stdout) == (3, "")
    assert "no group 'nigth'. Did you mean night?" in refused.stderr


def test_an_open_group_with_too_many_tasks_is_not_waited_for(run, client, queue, monkeypatch):
    client.group("n1").open()
    queue.enqueue_many(range(4), group="n1")
    monkeypatch.setattr(selection, "MOST", 2)

    waited = run("wait", "--group", "n1", "--timeout", "0")

    assert waited.returncode == 2
    assert "Close it when it has all: blueque group close n1" in waited.stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("runs", "Use: blueque group ls"),
        ("batches", "Use: blueque group ls"),
        ("workflow ls", "Use: blueque group ls"),
        ("ls --run night", "did you mean --group?"),
        ("enqueue video 1 --batch night", "did you mean --group?"),
    ],
)
def test_words_of_before_name_the_command_for_groups(run, words, hint):
    refused = run(*words.split())

    assert (refused.returncode, hint in refused.stderr) == (2, True)


@pytest.mark.parametrize("words", ["archive video --batch 1", "status --run"])
def test_an_option_for_groups_is_not_named_where_there_is_none(run, words):
    assert "--group" not in run(*words.split()).stderr


def gone_members(client, queue, cli):
    """Make a closed group of one complete and four gone tasks; two of these were cancelled."""
    names = [f"k{number}" for number in range(5)]
    queue.enqueue_many(names, keys=names, group="n1")
    ids = client.get_inspector().group_members(["n1"])[0]
    for task in ids[:3]:
        queue.cancel(task)
    settle_groups_step(client.connections, time.time())
    cli.delete(*[keys.task(task) for task in ids[1:]])
    return ids


def test_the_graph_of_a_group_that_has_ended_says_that_nothing_waits_any_more(run, client, queue):
    group = client.group("n1").open()
    task = queue.enqueue("a", group=group)
    before = run("graph", "n1").stdout
    group.close()
    queue.cancel(task)
    settle_groups_step(client.connections, time.time())

    assert before.endswith("No task waits for it.\n")
    for name in ("n1", task):
        assert run("graph", name).stdout.endswith("No task waits for it any more: it has ended.\n")


def test_a_wait_for_a_group_counts_what_was_archived_or_deleted(run, client, queue, cli):
    ids = gone_members(client, queue, cli)

    some = run("wait", "--group", "n1")
    cli.delete(keys.task(ids[0]))
    none = run("wait", "--group", "n1")

    assert "4 tasks of group n1 are archived or deleted, 2 of them not complete" in some.stderr
    assert "5 tasks of group n1 are archived or deleted, 3 of them not complete" in none.stderr
    assert (some.returncode, none.returncode, "no tasks" in none.stderr) == (4, 4, False)


@pytest.mark.parametrize("words", [["requeue", "--group"], ["group", "requeue"]])
def test_a_requeue_of_a_group_counts_what_cannot_run_again(run, client, queue, cli, words):
    cancelled = gone_members(client, queue, cli)[0]
    states = ["--state", "cancelled"] if words[0] == "requeue" else []

    result = run(*words, "n1", *states, "--yes")

    sentence = "2 failed or cancelled tasks of group n1 are archived or deleted: they cannot run"
    assert (result.returncode, sentence in result.stderr) == (0, True)
    assert client.get_task(cancelled).status == "pending"


@pytest.mark.parametrize(
    "words",
    [
        ["ls", "--group"],
        ["wait", "--group"],
        ["requeue", "--yes", "--group"],
        ["cancel", "--yes", "--group"],
        ["delete", "--yes", "--group"],
        *(["group", verb] for verb in ("show", "close", "cancel", "requeue", "forget")),
    ],
)
def test_a_mistyped_group_is_answered_with_a_near_name(run, client, queue, words):
    queue.enqueue_many(["k1"], keys=["k1"], group="night-2026")

    refused = run(*words, "nigth-2026")

    assert refused.returncode == 3
    assert refused.stderr.splitlines() == [
        "blueque: no group 'nigth-2026'. Did you mean night-2026?",
        "See them: blueque group ls",
    ]
