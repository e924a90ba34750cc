"""`blueque queue set`, `queue show`, and `config -q`: what holds for the tasks of a queue."""

from __future__ import annotations

import json

from blueque import Retry
from blueque.model import keys


def test_settings_are_set_and_shown_and_removed(run, redis, client):
    done = run(
        *("queue", "set", "later", "time_limit=2h", "memory_limit=8GiB", "weight=2.5"),
        *("retry={max = 2, backoff = '1m'}", "retention.failed=never", "--as", "ada"),
    )

    assert done.returncode == 0 and done.stdout.startswith(
        "later  set: time_limit=2h, memory_limit"
    )
    assert done.stderr == "queue later has no task and no listener yet\n"
    assert client.get_queue("later").get_settings().keys() == {
        *("weight", "retry", "time_limit", "memory_limit", "retention.failed")
    }
    (item,) = json.loads(run("queue", "show", "later", "--json").stdout)["items"]
    assert item["settings"] == {
        "weight": 2.5,
        "retry": {"max": 2, "backoff": 60},
        "time_limit": "2h",
        "memory_limit": "8GiB",
        "retention.failed": "never",
    }
    rows = [
        line.split(maxsplit=2)[1:] for line in run("queue", "show", "later").stdout.splitlines()
    ]
    assert rows == [
        ["NAME", "VALUE"],
        ["paused", "no"],
        ["running", "0"],
        ["pending", "0"],
        ["weight", "2.5"],
        ["retry", '{"max": 2, "backoff": 60.0}'],
        ["time_limit", "2h"],
        ["memory_limit", "8GiB"],
        ["retention.failed", "never"],
    ]
    again = run("queue", "set", "later", "time_limit=7200", "lead=")
    assert again.stdout == "later  unchanged: time_limit=7200, lead=\n"
    removed = run("queue", "set", "later", "weight=", "retry=", "time_limit=false")
    assert removed.stdout == "later  set: weight=, retry=, time_limit=false\n"
    assert client.get_queue("later").get_settings().keys() == {
        *("time_limit", "memory_limit", "retention.failed")
    }
    told = redis.read(("XREVRANGE", keys.events("later"), "+", "-", "COUNT", 1))
    assert '"unset":"weight retry"' in str(told)


def test_a_wrong_setting_changes_nothing(run, redis):
    for words, says in (
        (["time_limit=soon"], "time_limit: "),
        (["time_limt=2h"], "did you mean time_limit?"),
        (["lead=5", "lead=6"], "lead is named twice"),
        (["lead"], "write NAME=VALUE"),
        (["lead=5", "lead="], "lead is named twice"),
        (["leed="], "did you mean lead?"),
        ([], "NAME=[VALUE]... is missing"),
    ):
        done = run("queue", "set", "video", *words)
        assert done.returncode == 2 and says in done.stderr, words
    assert redis.read(("EXISTS", keys.settings("video"))) == [0]


def test_config_says_which_value_comes_from_redis(run, client, tmp_path):
    client.get_queue("video").set_settings(
        {"retry": Retry(max=2), "lead": 5, "weight": 3, "retention.failed": "9d", "grace": 4}
    )
    (tmp_path / "blueque.toml").write_text(
        '[listener]\nlead = 7\ngrace = 1\n[queues.video]\ngrace = "2s"\nretention = {failed = "1d"}\n'
        '[retention]\ncomplete = "3d"\n'
    )

    found = run("config", "-q", "video", "--config", str(tmp_path / "blueque.toml"), "--json")

    says = {
        item["name"]: (item["value"], item["origin"]) for item in json.loads(found.stdout)["items"]
    }
    assert says["retry"] == ({"max": 2}, "redis")
    assert says["lead"] == ("5s", "redis")
    assert says["grace"] == ("2s", "file")
    assert says["weight"] == (3, "redis")
    assert says["retention.failed"] == ("1d", "file")
    assert says["retention.complete"] == ("3d", "file")
    assert "Redis" in run("config", "-q", "video").stdout


def test_config_of_a_queue_does_without_redis(run):
    found = run("config", "-q", "video", "--redis-url", "redis://localhost:1/0")

    assert found.returncode == 0 and "time_limit" in found.stdout
    assert "the settings of video in Redis are left out" in found.stderr


def test_a_full_queue_says_what_to_do(run, client):
    client.get_queue("a b").set_settings({"max_pending": 1})
    assert run("enqueue", "a b", "1").returncode == 0

    refused = run("enqueue", "a b", "2")
    several = run("enqueue", "a b", "--lines", stdin="1\n2\n")

    sentence = "queue 'a b' has 1 pending task, and its max_pending is 1:"
    command = "blueque queue set 'a b' max-pending=N"
    assert (refused.returncode, refused.stdout) == (75, "")
    assert refused.stderr.splitlines() == [
        f"blueque: {sentence} the new task does not fit",
        f"Try again later, or allow more: {command}",
    ]
    assert several.returncode == 75
    assert several.stderr.splitlines()[-2:] == [
        f"blueque: {sentence} 2 new tasks do not fit",
        f"Send fewer at once, or allow more: {command}",
    ]


def test_a_task_that_was_discarded_says_so(run, client):
    queue = client.get_queue("video")
    queue.set_settings({"max_pending": 1, "discard": "oldest"})
    old, _ = queue.enqueue("a"), queue.enqueue("b")

    why = run("why", old).stdout.splitlines()

    assert why[1] == "  It was discarded: its queue was full of newer tasks."
    listed = run("ls", "--state", "cancelled", "--columns", "id,note").stdout.splitlines()
    assert listed[1].split() == [old, "discarded"]


def test_setting_a_limit_of_none_says_in_words_that_the_queue_stands_still(run):
    done = run("queue", "set", "later", "max-running=0")

    assert done.stdout == "later  set: max-running=0\n"
    assert "Listeners take nothing from later until: blueque queue set later max-running=" in (
        done.stderr
    )
