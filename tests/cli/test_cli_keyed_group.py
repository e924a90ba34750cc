"""blueque enqueue --lines --key-field --group: each key makes one task in a group."""

from __future__ import annotations

import json
import time

import pytest

from blueque.cli import selection
from blueque.model import keys
from blueque.queries import search
from blueque.recovery.settling import settle_groups_step

Q = "video"
KEYED = ["enqueue", Q, "--lines", "--key-field", "id", "--group", "g"]


def test_lines_with_keys_are_enqueued_once_in_a_group(run, client, cli):
    lines = "".join(f'{{"id": "k{number}"}}\n' for number in range(5))

    first = run(*KEYED, stdin=lines)
    assert (first.returncode, len(first.stdout.split())) == (0, 5)
    cli.delete(*cli.keys(keys.task("*")), keys.pending(Q))  # done, and archived
    again = run(*KEYED, stdin=lines)
    assert (again.returncode, cli.llen(keys.pending(Q))) == (0, 0)
    seen = client.group("g").progress()
    assert (seen.state in ("closed", "ended"), seen.members) == (True, 5)


def test_a_closed_group_takes_no_new_line_and_no_id_is_printed(run, client, state):
    assert run(*KEYED, stdin='{"id": "a"}\n').returncode == 0
    before = state()

    refused = run(*KEYED, stdin='{"id": "b"}\n')

    assert (refused.returncode, refused.stdout) == (2, "")
    assert "group 'g': it is closed; no other task joins it" in refused.stderr
    assert state() == before


def test_a_group_that_broke_off_is_closed_by_the_same_lines(run, client, cli):
    broken = '{"id": "a"}\n{"id": "b"}\nno json\n'
    stopped = run(*KEYED, stdin=broken)
    assert stopped.returncode == 2
    assert client.group("g").progress().state == "open"
    whole = broken.replace("no json", '{"id": "c"}')

    assert run(*KEYED, stdin=whole).returncode == 0
    assert cli.llen(keys.pending(Q)) == client.group("g").progress().members == 3
    assert client.group("g").progress().state == "closed"


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


def test_an_open_group_with_too_many_tasks_is_not_waited_for(run, client, queue, monkeypatch):
    client.group("n1").open()
    queue.enqueue_many(range(4), group="n1")
    monkeypatch.setattr(selection, "MOST", 2)

    waited = run("wait", "--group", "n1", "--timeout", "0")

    assert waited.returncode == 2
    assert "Close it when it has all: blueque group close n1" in waited.stderr


@pytest.mark.parametrize("words", [["runs"], ["workflow", "ls"]])
def test_words_of_before_name_the_command_for_groups(run, words):
    refused = run(*words)

    assert (refused.returncode, "Use: blueque group" in refused.stderr) == (2, True)
