"""blueque delete, prune, queue ls and queue purge: what they delete, when they ask, and what they
leave alone.
"""

from __future__ import annotations

import json
import re
import time

import pytest
from test_cli import NODE, enqueue, fail
from transactions import protocol

from blueque.model import keys
from blueque.model.encoding import day_of
from blueque.model.queue_settings import pausing
from blueque.protocol import queues
from blueque.protocol.archiving import BatchRef


@pytest.fixture(autouse=True)
def listener(redis):
    """A registered listener of the queue video."""
    protocol.register(redis, "video", NODE, "i1", {"beat_every": 10}, time.time())


def cancel(redis, *tasks):
    for task in tasks:
        enqueue(redis, task)
        protocol.cancel(redis, "video", task, "ada", None, time.time())


def age(cli, task, seconds):
    """Let a task have ended so long ago."""
    cli.hset(keys.task(task), mapping=dict.fromkeys(("finished", "updated"), time.time() - seconds))


def left(cli, kind="cancelled"):
    return cli.lrange(f"blueque_{kind}_tasks_video", 0, -1)[::-1]


# delete


def test_finished_tasks_are_deleted_and_what_has_not_ended_is_refused(run, redis, cli):
    fail(redis, "failed-1")
    enqueue(redis, "pending-1")

    result = run("delete", "failed-1", "pending-1", "--yes")

    assert (result.returncode, result.stdout) == (5, "failed-1  deleted\n")
    assert "pending-1 cannot be deleted: it is pending" in result.stderr
    assert (cli.exists(keys.task("failed-1")), cli.exists(keys.task("pending-1"))) == (0, 1)


def test_nothing_is_deleted_without_a_yes_or_when_it_is_only_asked_what_would_be(
    run, redis, cli, answer
):
    cancel(redis, "a", "b")

    refused = run("delete", "a", "b")
    foreseen = run("delete", "-", "--dry-run", "--json", stdin="a\nb\n")
    code, seen = answer(b"n\n", "delete", "a", "b")

    assert (refused.returncode, foreseen.returncode, code) == (6, 0, 6)
    assert (
        "2 tasks would be deleted for good" in refused.stderr
        and "2 tasks would be deleted for good" in seen.lower()
    )
    assert [item["status"] for item in json.loads(foreseen.stdout)["items"]] == [
        "cancelled",
        "cancelled",
    ]
    assert left(cli) == ["a", "b"]
    assert answer(b"y\n", "delete", "a", "b")[0] == 0
    assert left(cli) == []


# prune


def test_what_is_old_and_not_among_the_newest_is_pruned(run, redis, cli):
    cancel(redis, *"abcde")
    for task in "abc":
        age(cli, task, 100)
    fail(redis, "old")
    age(cli, "old", 100)

    only_old, newest = ["prune", "--older-than", "50s"], ["--keep", "3", "--state", "cancelled"]
    foreseen = run(*only_old, "--dry-run", "--json")
    items = json.loads(foreseen.stdout)["items"]
    assert [(item["status"], item["tasks"]) for item in items] == [("cancelled", 3), ("failed", 1)]
    assert run(*only_old, *newest).returncode == 6
    assert left(cli) == [*"abcde"]

    result = run(*only_old, *newest, "--yes")

    assert (result.returncode, result.stderr) == (0, "2 tasks deleted.\n")
    assert (left(cli), left(cli, "failed")) == ([*"cde"], ["old"])
    run("prune", "-q", "vid*", "--keep", "0", "--yes")
    assert (left(cli), left(cli, "failed")) == ([], [])


def test_without_a_word_prune_goes_by_the_file(run, redis, cli, tmp_path):
    cancel(redis, *"abcd")
    for task in "ab":
        age(cli, task, 25 * 3600)
    file = tmp_path / "blueque.toml"
    file.write_text("[queues.video]\nretention.cancelled = { newest = 1 }\n")

    assert run("prune", "--yes").stderr == "0 tasks deleted.\n"
    assert run("prune", "--yes", "--config", str(file)).stderr == "2 tasks deleted.\n"
    assert left(cli) == ["c", "d"], "of the last day more than so many"
    assert run("prune", "--yes", "--keep", "1").stderr == "1 task deleted.\n", (
        "a person says what is to go now"
    )


def test_a_queue_that_is_being_archived_is_left_alone_and_said_to_be(run, redis, cli):
    cancel(redis, "a")
    protocol.claim_batch(redis, BatchRef("video", "b1", "w"), {}, {}, 1.0)

    result = run("prune", "--keep", "0", "--yes")

    assert left(cli) == ["a"]
    assert result.stderr.startswith(
        "queue video is skipped: blueque archive works on a batch of it\n"
    )


# queue


def test_a_purge_deletes_what_waits_and_nothing_else(run, redis, cli, client):
    for number in range(120):
        enqueue(redis, f"task-{number}")
    client.get_queue("video").enqueue("urgent", priority=5, key="a key", keep="1h")
    client.get_queue("video").schedule("later", time.time() + 1000)
    enqueue(redis, "other", "audio")
    cancel(redis, "gone")

    foreseen = run("queue", "purge", "video", "--dry-run")
    assert foreseen.stdout == "video  122 tasks would be deleted: 121 pending, 1 scheduled\n"
    assert run("queue", "purge", "video").returncode == 6

    result = run("queue", "purge", "video", "--yes")

    assert (result.returncode, result.stdout, result.stderr) == (
        0,
        "video  122 tasks deleted\n",
        "",
    )
    assert [task.id for task in client.get_inspector().tasks(["gone", "other"]) if task.status] == [
        "gone",
        "other",
    ]
    assert (cli.zcard("blueque_tasks_video"), cli.keys("blueque_frozen_*")) == (1, [])
    assert client.get_queue("video").enqueue("urgent", key="a key").is_new is False


def test_a_purge_of_many_wants_their_number_typed(redis, cli, answer):
    cancel(redis, *[f"task-{number}" for number in range(21)])

    code, seen = answer(b"y\n", "queue", "purge", "video", "--state", "cancelled")
    assert code == 6 and "21 tasks of queue video would be deleted for good: 21 cancelled" in seen
    assert len(left(cli)) == 21
    assert answer(b"21\n", "queue", "purge", "video", "--state", "cancelled")[0] == 0
    assert left(cli) == []


def test_a_purge_of_several_queues_lists_them_and_asks(run, redis, cli, answer):
    for queue, tasks in {"render.2k": "ab", "render.4k": "c", "video": "d"}.items():
        for task in tasks:
            enqueue(redis, task, queue)

    foreseen = run("queue", "purge", "render.*", "--dry-run")
    assert (
        foreseen.stdout
        == "render.2k  2 tasks would be deleted\nrender.4k  1 task would be deleted\n"
    )
    code, seen = answer(b"n\n", "queue", "purge", "render.*")
    assert (
        code == 6
        and "3 tasks of 2 queues would be deleted for good: 3 pending, 0 scheduled" in seen
    )
    assert re.search(r"render\.2k +2\r?\nrender\.4k +1\r?\n", seen)

    result = run("queue", "purge", "render.*", "--yes", "--json")

    purged = json.loads(result.stdout)
    assert (purged["queue"], purged["queues"], purged["deleted"]) == (
        "render.*",
        ["render.2k", "render.4k"],
        3,
    )
    assert [
        queue for queue in ("render.2k", "render.4k", "video") if cli.exists(keys.pending(queue))
    ] == ["video"]


def test_queues_that_a_pattern_matches_are_forgotten_after_a_yes_but_for_those_in_use(
    run, redis, cli, answer
):
    for queue in ("render.2k", "render.4k"):
        protocol.set_settings(redis, queue, pausing("ada", None, time.time()), time.time(), "ada")
    enqueue(redis, "a", "render.8k")

    code, seen = answer(b"n\n", "queue", "forget", "render.*")
    assert code == 6 and "  render.2k" in seen and cli.zcard(keys.QUEUES) == 4
    assert run("queue", "forget", "render.*").returncode == 6
    result = run("queue", "forget", "render.*", "--yes")

    assert (result.returncode, result.stdout) == (5, "render.2k  forgotten\nrender.4k  forgotten\n")
    assert "queue render.8k has 1 pending task" in result.stderr
    assert result.stderr.endswith("Delete its tasks: blueque queue purge, blueque prune.\n")
    assert cli.zrange(keys.QUEUES, 0, -1) == ["render.8k", "video"]


def test_queue_lists_queues_and_has_the_verbs_that_stand_alone_too(run, redis):
    enqueue(redis, "a")

    assert run("queue", "pause", "video", "--by", "ada").stdout == "video  paused\n"
    assert run("queue", "limit", "video", "3").returncode == 0
    (item,) = json.loads(run("queue", "ls", "--json").stdout)["items"]
    assert (item["queue"], item["pending"], item["paused"], item["max_concurrency"]) == (
        "video",
        1,
        True,
        3,
    )
    assert run("queue", "ls").stdout.splitlines()[1].split()[1:] == [
        "0",
        "1",
        "0",
        "0",
        "1",
        "3",
        "paused",
        "by",
        "ada",
    ]
    assert run("queue", "resume", "video").stdout == "video  resumed\n"
    assert run("queue", "purge", "nowhere").returncode == 3


# queue forget


def everything(redis, cli):
    """Have a queue be used and emptied, as far as that can be done, and return what another one
    has.
    """
    enqueue(redis, "other", "audio")
    before = set(cli.keys())
    cancel(redis, "a")
    protocol.enqueue(
        redis, "video", "b", "in", time.time(), {"priority": 5, "needs": "lock:licence=2"}
    )
    protocol.cancel(redis, "video", "b", "ada", None, time.time())
    protocol.set_settings(redis, "video", pausing("ada", "why", time.time()), time.time(), "ada")
    protocol.set_settings(redis, "video", {"max_concurrency": "3"}, 1.0)
    return before - {key for key in before if "video" in key}


def test_an_empty_queue_is_forgotten_with_all_that_was_its_own(run, redis, client, cli):
    others = everything(redis, cli)
    for task in "ab":
        client.get_queue("video").delete_task(client.get_task(task))
    protocol.deregister(redis, "video", NODE, "i1")
    assert cli.smembers(keys.waiting("licence")) and cli.exists(
        keys.stats("video", day_of(time.time()))
    )

    result = run("queue", "forget", "video")

    assert (result.returncode, result.stdout, result.stderr) == (0, "video  forgotten\n", "")
    assert (set(cli.keys()), cli.zrange(keys.QUEUES, 0, -1)) == (others, ["audio"])
    protocol.observe(redis, ["video"])  # a judge that has not noticed yet brings nothing back
    protocol.observe(redis, ["video", "audio"])
    assert (set(cli.keys()), run("queue", "forget", "video").returncode) == (others, 3)


def test_a_queue_that_has_anything_stays_as_it_is_and_says_what_that_is(
    run, redis, client, cli, state
):
    def refusal():
        before, result = state(), run("queue", "forget", "video", "--json")
        assert (result.returncode, state()) == (5, before)
        return json.loads(result.stdout)["there"], result.stderr.splitlines()[0].removeprefix(
            "blueque: queue video has "
        )

    assert refusal() == ({"listeners": 1, "nodes": 1}, "1 listener")
    enqueue(redis, "a")
    protocol.deregister(redis, "video", NODE, "i1")
    assert refusal() == ({"tasks": 1, "pending": 1}, "1 pending task")
    protocol.cancel(redis, "video", "a", "ada", None, time.time())
    assert refusal() == ({"tasks": 1, "cancelled": 1}, "1 cancelled task")
    client.get_queue("video").delete_task(client.get_task("a"))


@pytest.mark.parametrize(
    "command",
    [
        ("lpush", "blueque_pending_tasks_video", "t"),
        ("sadd", "blueque_started_tasks_video", "node 7 t"),
        ("zadd", "blueque_scheduled_tasks_video", {"t": 5}),
        ("sadd", "blueque_listeners_video", "node_7"),
    ],
)
def test_what_1_0_0_has_in_a_queue_keeps_it(redis, client, cli, state, command):
    protocol.deregister(redis, "video", NODE, "i1")
    name, *words = command
    getattr(cli, name)(*words)
    before = state()

    assert list(client.forget_queue("video").values()) == [1]
    assert state() == before


def test_who_enqueues_while_a_queue_is_being_forgotten_has_the_task_in_it(
    redis, client, cli, monkeypatch
):
    protocol.deregister(redis, "video", NODE, "i1")
    look = queues._removal

    def removal(*arguments):
        if not cli.exists(keys.task("late")):
            cli.hset(keys.task("late"), mapping={"status": "pending", "queue": "video"})
            cli.lpush(keys.pending("video"), "late")
        return look(*arguments)

    monkeypatch.setattr(queues, "_removal", removal)

    assert client.forget_queue("video") == {"pending": 1}
    assert cli.zscore(keys.QUEUES, "video") is not None
