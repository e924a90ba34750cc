"""blueque delete, queue ls and queue forget: what they delete, when they ask, and what they
leave alone.
"""

from __future__ import annotations

import json
import re
import time

import pytest
from test_cli import NODE, enqueue
from transactions import protocol

from blueque.model import keys
from blueque.model.encoding import day_of
from blueque.model.queue_settings import pausing
from blueque.protocol import queues
from blueque.protocol.archiving import BatchRef

pytestmark = pytest.mark.usefixtures("listener")


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


def test_nothing_is_deleted_without_a_yes_or_when_it_is_only_asked_what_would_be(
    run, redis, cli, answer
):
    cancel(redis, "a", "b")

    refused = run("delete", "a", "b")
    foreseen = run("delete", "-", "--dry-run", "--json", stdin="a\nb\n")
    code, seen = answer(b"n\n", "delete", "a", "b")

    assert (refused.returncode, foreseen.returncode, code) == (6, 0, 6)
    assert "2 tasks would be deleted for good" in refused.stderr
    assert "2 tasks would be deleted for good" in seen.lower()
    assert [item["status"] for item in json.loads(foreseen.stdout)["items"]] == [
        "cancelled",
        "cancelled",
    ]
    assert left(cli) == ["a", "b"]
    assert answer(b"y\n", "delete", "a", "b")[0] == 0
    assert left(cli) == []


# --kept-too-long


def test_what_was_kept_too_long_goes_by_the_file(run, redis, cli, tmp_path):
    cancel(redis, *"abcd")
    for task in "ab":
        age(cli, task, 25 * 3600)
    file = tmp_path / "blueque.toml"
    file.write_text("[queues.video]\nretention.cancelled = { newest = 1 }\n")

    delete = ("delete", "--kept-too-long")
    assert run(*delete, "--yes").stderr == "0 tasks deleted.\n"
    file_of = ("--config", str(file))
    foreseen = json.loads(run(*delete, "--dry-run", "--json", *file_of).stdout)
    assert foreseen["items"] == [{"queue": "video", "status": "cancelled", "tasks": 2}]
    assert run(*delete, *file_of).returncode == 6
    assert run(*delete, "--yes", *file_of).stderr == "2 tasks deleted.\n"
    assert left(cli) == ["c", "d"], "of the last day more than so many"


def test_a_queue_that_is_being_archived_is_left_alone_and_said_to_be(run, redis, cli):
    cancel(redis, "a")
    protocol.claim_batch(redis, BatchRef("video", "b1", "w"), {}, {}, 1.0)

    result = run("delete", "--kept-too-long", "--yes")

    assert left(cli) == ["a"]
    assert result.stderr.startswith("queue video is skipped: blueque archive is working on it\n")


# queue


def test_a_purge_deletes_what_waits_and_nothing_else(run, redis, cli, client):
    for number in range(120):
        enqueue(redis, f"task-{number}")
    client.get_queue("video").enqueue("urgent", priority=5, key="a key", keep="1h")
    client.get_queue("video").schedule("later", time.time() + 1000)
    enqueue(redis, "other", "audio")
    cancel(redis, "gone")

    foreseen = run("delete", "-q", "video", "--state", "pending,scheduled,blocked", "--dry-run")
    assert [line.split() for line in foreseen.stdout.splitlines()[1:]] == [
        ["video", "pending", "121"],
        ["video", "scheduled", "1"],
    ]
    assert foreseen.stderr == "122 tasks would be deleted.\n"
    assert run("delete", "-q", "video", "--state", "pending,scheduled,blocked").returncode == 6

    result = run("delete", "-q", "video", "--state", "pending,scheduled,blocked", "--yes")

    assert (result.returncode, result.stderr) == (0, "122 tasks deleted.\n")
    assert [task.id for task in client.get_inspector().tasks(["gone", "other"]) if task.status] == [
        "gone",
        "other",
    ]
    assert (cli.zcard("blueque_tasks_video"), cli.keys("blueque_frozen_*")) == (1, [])
    assert client.get_queue("video").enqueue("urgent", key="a key").is_new is False


def test_a_purge_of_several_queues_lists_them_and_asks(run, redis, cli, answer):
    for queue, tasks in {"render.2k": "ab", "render.4k": "c", "video": "d"}.items():
        for task in tasks:
            enqueue(redis, task, queue)

    code, seen = answer(b"n\n", "delete", "-q", "render.*", "--state", "pending,scheduled,blocked")
    assert code == 6 and "3 tasks would be deleted for good" in seen
    assert re.search(r"render\.2k +pending +2\r?\nrender\.4k +pending +1\r?\n", seen)

    result = run(
        "delete", "-q", "render.*", "--state", "pending,scheduled,blocked", "--yes", "--json"
    )

    purged = json.loads(result.stdout)
    assert (purged["kind"], purged["tasks"], purged["dry_run"]) == ("delete_many", 3, False)
    assert [item["queue"] for item in purged["items"]] == ["render.2k", "render.4k"]
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
    assert result.stderr.endswith("tasks: blueque delete -q render.8k --state pending\n")
    assert cli.zrange(keys.QUEUES, 0, -1) == ["render.8k", "video"]


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
    protocol.set_settings(redis, "video", {"max_running": "3"}, 1.0)
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
        return json.loads(result.stdout)["items"][0]["there"], result.stderr.splitlines()[
            0
        ].removeprefix("blueque: queue video has ")

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


def test_delete_of_a_waiting_task_names_the_next_step(run, redis):
    enqueue(redis, "waits-1")

    refused = run("delete", "waits-1", "--yes")

    assert refused.returncode == 5 and "To cancel it: blueque cancel waits-1." in refused.stderr
    assert "blueque delete -q video --state pending" in refused.stderr
