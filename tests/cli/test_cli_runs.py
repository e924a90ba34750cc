"""blueque runs, blueque gc and blueque enqueue --run."""

from __future__ import annotations

import json
import time

import pytest

from blueque.cli import selection
from blueque.model import keys
from blueque.queries import search
from blueque.recovery.settling import settle_groups_step

Q = "video"


# runs


def test_runs_are_listed_with_what_is_known_of_them(run, queue, client, cli):
    queue.open_run("2026-11-21", shards=4).put(["a", "b"], [b"1", b"2"])
    done = queue.open_run("done")
    done.put(["a", "b"], [b"1", b"2"])
    done.close(3)
    client.get_queue("audio").open_run("other")

    everything, some, as_json = run("runs"), run("runs", "audio"), run("runs", "--json", Q)
    lines = [line.split() for line in everything.stdout.splitlines()]
    assert [line[0] for line in lines] == ["NAME", "other", "2026-11-21", "done"]
    assert [line[1:3] + line[5:6] for line in lines[2:]] == [
        ["video", "open", "2"],
        ["video", "committed", "2"],
    ]
    assert len(some.stdout.splitlines()) == 2
    first, _ = json.loads(as_json.stdout)["items"]
    assert (first["run"], first["tasks"]) == ("2026-11-21", 2)  # only its ledgers know


def test_no_runs_and_no_such_queue_are_told_apart(run, queue):
    assert "no runs" in run("runs").stderr
    assert run("runs", "nowhere").returncode == 3


def test_a_run_is_dropped_with_a_yes_only(run, answer, queue, cli):
    queue.open_run("s")

    refused = run("runs", Q, "--forget", "s")
    assert (refused.returncode, cli.exists(keys.run(Q, "s"))) == (6, 1)
    code, seen = answer(b"n\n", "runs", Q, "--forget", "s")
    assert (code, cli.exists(keys.run(Q, "s"))) == (6, 1)
    assert "Run s is open and would be forgotten." in seen
    assert answer(b"y\n", "runs", Q, "--forget", "s")[0] == 0
    assert cli.keys(keys.run(Q, "*")) == []
    assert run("runs", Q, "--forget", "s", "--yes").returncode == 3


def test_drop_wants_one_queue(run, queue):
    assert run("runs", "--forget", "s").returncode == 2


# gc


def test_gc_ends_what_nobody_else_has(run, queue, cli):
    queue.open_run("s").put(["a"], [b"1"])

    assert run("gc", "--older-than", "0").returncode == 6
    done = run("gc", "--older-than", "0", "--yes")
    assert (done.returncode, done.stdout.startswith("s  video  open, for ")) == (0, True)
    assert (cli.keys(keys.run(Q, "*")), cli.llen(keys.pending(Q))) == ([], 1)
    assert "nothing to clean up" in run("gc", "--older-than", "0").stderr


def test_gc_as_json_tells_what_was_done(run, queue, client):
    queue.open_run("r")
    dry = json.loads(run("gc", "--older-than", "0", "--dry-run", "--json").stdout)
    assert [(item["run"], item["way"], "done" in item) for item in dry["items"]] == [
        ("r", "drop", False)
    ]
    done = json.loads(run("gc", "--older-than", "0", "--yes", "--json").stdout)
    assert [(item["run"], item["done"]) for item in done["items"]] == [("r", True)]
    assert client.get_runs(Q) == []


@pytest.mark.parametrize("is_held_back", [True, False])
def test_gc_says_why_a_run_of_an_earlier_version_stays(run, queue, cli, is_held_back):
    queue.open_run("r")
    cli.hset(keys.run(Q, "r"), "kind", "staged")
    if is_held_back:
        cli.zadd(keys.staging(Q, "r"), {"c": 1})

    done = run("gc", "--older-than", "0", "--yes")
    assert done.returncode == (75 if is_held_back else 0)
    assert done.stdout.endswith("  not done\n") is is_held_back
    assert "a program works on it" not in done.stdout
    assert ("with the version of Blueque that has made it" in done.stderr) is is_held_back


# enqueue --run


def test_lines_in_a_run_are_enqueued_once(run, client, cli):
    lines = "".join(f'{{"id": "k{number}"}}\n' for number in range(5))

    first = run("enqueue", Q, "--lines", "--key-field", "id", "--run", "r", stdin=lines)
    assert (first.returncode, len(first.stdout.split())) == (0, 5)
    cli.delete(*cli.keys(keys.task("*")), keys.pending(Q))  # done, and archived
    again = run("enqueue", Q, "--lines", "--key-field", "id", "--run", "r", stdin=lines)
    assert (again.returncode, cli.llen(keys.pending(Q))) == (0, 0)
    assert client.get_run(Q, "r").items() >= {"state": "committed", "rows": 5, "tasks": 5}.items()


def test_a_run_that_broke_off_is_ended_by_the_same_lines(run, client, cli):
    broken = '{"id": "a"}\n{"id": "b"}\nno json\n'
    assert (
        run("enqueue", Q, "--lines", "--key-field", "id", "--run", "r", stdin=broken).returncode
        != 0
    )
    whole = broken.replace("no json", '{"id": "c"}')

    assert (
        run("enqueue", Q, "--lines", "--key-field", "id", "--run", "r", stdin=whole).returncode == 0
    )
    assert cli.llen(keys.pending(Q)) == client.get_run(Q, "r")["tasks"] == 3


@pytest.mark.parametrize(
    "words", [["1", "--run", "r"], ["--lines", "--run", "r"], ["1", "--key", "a", "--run", "r"]]
)
def test_a_run_is_for_many_tasks_with_keys(run, words, state):
    assert run("enqueue", Q, *words).returncode == 2
    assert state() == {}


def test_the_tasks_of_a_run_are_found_by_its_group_and_counted(run, client, queue, monkeypatch):
    names = [f"k{number}" for number in range(4)]
    queue.enqueue_many(names, keys=names, run="n1", group="n1")
    queue.enqueue_many(range(50))
    cancelled = queue.cancel(client.get_inspector().run_members([(Q, "n1")])[0])
    settle_groups_step(client.connections, time.time())
    monkeypatch.setattr(search, "MOST_SEARCHED", 4)  # the others are before them in the line

    header, line = (text.split() for text in run("runs", Q).stdout.splitlines())
    listed = json.loads(run("ls", "--run", "n1", "--json").stdout)["items"]
    monkeypatch.setattr(selection, "MOST", 2)
    waited = run("wait", "-q", Q, "--run", "n1", "--timeout", "0")

    shown = dict(zip(header, line[:3] + [" ".join(line[3:5])] + line[5:], strict=True))
    assert cancelled == "cancelled"
    wanted = {"TASKS": "4", "DONE": "0", "FAIL": "1", "WAIT": "3"}
    assert shown.items() >= wanted.items()
    assert sorted(item["key"] for item in listed) == names
    assert (waited.returncode, "3 tasks left" in waited.stderr) == (124, True)
