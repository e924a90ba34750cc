"""`blueque tags`, --title, --tag and --context: the program itself, on a real Redis."""

from __future__ import annotations

import json
import time

import pytest
from transactions import protocol

from blueque.model import keys
from blueque.queries import tags


def test_a_task_is_enqueued_with_its_labels(run, client):
    task = run(
        "enqueue", "video", "1", "--title", "Encode it", "--tag", "a:1", "--tag", "b"
    ).stdout.strip()

    assert (client.get_task(task).title, client.get_task(task).tags) == ("Encode it", ["a:1", "b"])
    shown = run("show", task).stdout
    assert "title       Encode it" in shown and "tags        a:1, b" in shown
    assert "producer    " in shown
    item = json.loads(run("show", task, "--json").stdout)["item"]
    assert (item["title"], item["tags"]) == ("Encode it", ["a:1", "b"])
    assert item["producer"] == client.get_task(task).producer


def test_a_context_is_shown_without_its_secrets(run, client):
    task = client.get_queue("video").enqueue(1, context={"trace": "4bf9", "token": "x"})

    assert 'context     {"trace": "4bf9", "token": "[hidden]"}' in run("show", task).stdout
    item = json.loads(run("show", task, "--json").stdout)["item"]
    assert item["context"] == {"trace": "4bf9", "token": "[hidden]"}
    revealed = json.loads(run("show", task, "--json", "--reveal").stdout)["item"]
    assert revealed["context"]["token"] == "x"


def test_each_line_has_the_labels(run, client):
    ids = run("enqueue", "video", "--lines", "--title", "T", "--tag", "a", stdin="1\n2\n").stdout

    tasks = [client.get_task(task) for task in ids.split()]
    assert [(task.title, task.tags) for task in tasks] == [("T", ["a"])] * 2


def test_tags_are_listed_with_their_numbers(run, queue):
    queue.enqueue_many(range(3), tags=["customer:17"])
    queue.cancel(queue.enqueue(1, tags=["customer:17", "urgent"]))

    lines = run("tags").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["TAG", "TASKS", "STATES"],
        ["customer:17", "4", "3", "pending,", "1", "cancelled"],
        ["urgent", "1", "1", "cancelled"],
    ]
    assert run("tags", "u").stdout.splitlines()[1].split() == lines[2].split()
    assert json.loads(run("tags", "u", "--json").stdout)["items"] == [
        {"tag": "urgent", "tasks": 1, "states": {"cancelled": 1}}
    ]
    assert run("tags", "x").stderr == "no tags\n"
    assert "Only the first 1: --limit N shows more." in run("tags", "--limit", "1").stderr


def test_tasks_are_listed_by_all_of_their_tags(run, client, cli):
    video, audio = client.get_queue("video"), client.get_queue("audio")
    first = video.enqueue(1, tags=["a", "b"])
    second = audio.enqueue(2, tags=["a"])
    third = video.enqueue(3, tags=["a"])
    audio.cancel(second)
    cli.zadd(keys.TAGS, {f"b {third}": 0, "b gone": 0})  # what the hashes do not say

    def ids(*options):
        return run("ls", "--ids", *options).stdout.split()

    assert ids("--tag", "a") == [first, third, second]
    assert ids("--tag", "a", "--tag", "b") == ids("--tag", "b") == [first]
    assert ids("--tag", "a", "--state", "cancelled") == ids("--tag", "a", "-q", "audio") == [second]
    assert ids("--tag", "a", "--sort", "created") == [first, second, third]
    assert ids("--tag", "a", "--text", "3") == [third]
    assert run("ls", "--tag", "c").stderr == "no tasks\n"
    assert "(2 more: --limit 3)" in run("ls", "--tag", "a", "--limit", "1").stderr


def test_of_many_tasks_with_a_tag_it_says_that_some_were_searched(run, queue, monkeypatch):
    monkeypatch.setattr(tags, "MOST", 3)
    queue.enqueue_many(range(5), tags=["a"])

    result = run("ls", "--tag", "a", "--ids")
    assert len(result.stdout.split()) == 3
    assert "were searched" in result.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["enqueue", "video", "1", "--tag", "a b"], "--tag: 'a b' has a space"),
        (
            ["enqueue", "video", "1", "--title", ""],
            "blueque enqueue: --title: it takes 1 to 200 bytes",
        ),
        (["ls", "--tag", ""], "--tag: a tag takes 1 to 200 bytes, not 0"),
        (["cancel", "7c1f", "--tag", "a"], "not both"),
    ],
)
def test_wrong_labels_are_refused(run, line, words):
    result = run(*line)

    assert result.returncode == 2
    assert words in result.stderr


def test_stats_counts_the_tasks_with_a_tag_that_have_ended(run, redis, client):
    now = time.time()
    for number, (status, tag) in enumerate(
        [("complete", "a:1"), ("failed", "a:1"), ("cancelled", "a:1"), ("complete", "b")]
    ):
        task, facts = f"t-{number}", {"started": now - 10, "finished": now - 10 + number}
        protocol.enqueue(redis, "video", task, "1", now - 30, {"tags": tag})
        end_as(redis, task, status, facts)
    protocol.enqueue(redis, "video", "t-9", "1", now, {"tags": "a:1"})

    (item,) = json.loads(run("stats", "--tag", "a:1", "--json").stdout)["items"]

    counts = [item[name] for name in ("complete", "failed", "cancelled", "retried")]
    assert (item["queue"], counts, item["errors"]) == ("video", [1, 1, 1, 0], {"error": 1})
    assert item["waiting"]["count"] == 3 and item["waiting"]["mean_seconds"] == pytest.approx(20)
    assert item["running"]["longest_seconds"] == 0
    assert "done 1   failed 1 (50.0 %)" in run("stats", "--tag", "a:1").stdout
    assert run("stats", "--tag", "c").stderr == "no such tasks\n"


def end_as(redis, task, status, facts):
    """Have another program end a task."""
    redis.read(
        (
            "HSET",
            keys.task(task),
            "status",
            status,
            *(item for pair in facts.items() for item in pair),
        ),
        ("LREM", keys.pending("video"), 0, task),
        ("LPUSH", getattr(keys, status)("video"), task),
    )
