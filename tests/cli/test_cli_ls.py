"""`blueque ls`: which tasks, which columns, in which order, and what is said of those that are not
shown.
"""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner
from transactions import protocol

from blueque import Client
from blueque.cli.main import blueque
from blueque.cli.options import Invocation
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End
from blueque.queries.inspector import Inspector

NODES = ("gpu-1.example.com_4021", "gpu-2.example.com_77")


@pytest.fixture
def ls(url):
    """Run it and return exit code, lines of output and of remarks."""

    def ls(*arguments, stdin=None, verb="ls"):
        result = CliRunner().invoke(
            blueque, [verb, *arguments], obj=Invocation(url=url), input=stdin
        )
        return result.exit_code, result.stdout.splitlines(), result.stderr.splitlines()

    return ls


@pytest.fixture
def ids(ls):
    return lambda *arguments: ls("--ids", *arguments)[1]


@pytest.fixture
def tasks(redis):
    """A failed task on each node, ten and two hours ago; one that runs; three that wait."""
    now = Inspector(redis).now()
    for node in NODES:
        protocol.register(redis, "video", node, "i", {"beat_every": 10}, now)
    for node, name, age in ((NODES[0], "bad-old", 36000), (NODES[1], "bad-new", 7200)):
        start(redis, node, name, now - age - len(name) * 10)
        protocol.end(
            redis,
            AttemptRef("video", name, "token", node),
            End.fail("x", {"error_type": "ValueError", "exit_code": 3}),
            now - age,
        )
    start(redis, NODES[0], "runs", now - 3600)
    protocol.progress(
        redis, AttemptRef("video", "runs", "token", NODES[0]), "50 % encoding", now - 1
    )
    for n in range(3):
        protocol.enqueue(redis, "video", f"waits-{n}", "1", now - n)
    return now


@pytest.mark.usefixtures("tasks")
def test_the_note_of_what_runs_says_how_far_it_is_unless_a_column_does(ls, redis):
    assert ls("--state", "started")[1][1].endswith("  50 % encoding")
    protocol.progress(
        redis, AttemptRef("video", "runs", "token", NODES[0]), "450/1500 frames", time.time()
    )
    assert ls("--state", "started")[1][1].endswith("  450/1500 frames, 30 %")
    assert ls("--state", "started", "--columns", "progress,note")[1][1] == "30 %  450/1500 frames"


def start(redis, node, task, at):
    protocol.enqueue(redis, "video", task, "1", at)
    protocol.pop(redis, "video", node, "i")
    protocol.reserve(redis, AttemptRef("video", task, "token", node), "i", at)
    protocol.start(redis, AttemptRef("video", task, "token", node), 77, at)


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], ["runs", "waits-0", "waits-1", "waits-2"]),
        (["--state", "finished"], ["bad-new", "bad-old"]),
        (["--state", "finished", "--since", "3h"], ["bad-new"]),
        (["--state", "failed", "--since", "2000-01-01T00:00:00Z"], ["bad-new", "bad-old"]),
        (["--node", "gpu-1"], ["runs"]),
        (["--node", "gpu-1", "--state", "finished"], ["bad-old"]),
        (["--node", "gpu-2.example.com_77", "--state", "finished"], ["bad-new"]),
        (["--node", "gpu-2_77", "--state", "finished"], ["bad-new"]),
        (["--node", "gpu", "--state", "finished"], []),
        (["--sort", "id"], ["runs", "waits-0", "waits-1", "waits-2"]),
        (["--sort", "-created", "--limit", "2"], ["waits-0", "waits-1"]),
        (["--state", "finished", "--sort", "finished"], ["bad-old", "bad-new"]),
        (["--sort", "left", "--limit", "1"], ["runs"]),
        (["--sort", "-left", "--limit", "1"], ["runs"]),
    ],
)
def test_the_tasks_that_are_asked_for_are_listed_in_the_order_that_is_asked_for(
    ids, arguments, found
):
    assert ids(*arguments) == found


@pytest.mark.usefixtures("tasks")
def test_the_columns_that_are_asked_for_are_shown(ls):
    _, lines, _ = ls("--state", "started", "--columns", "id,node,ran,progress,left,error")

    assert lines[0].split() == ["ID", "NODE", "RAN", "PROGRESS", "LEFT", "ERROR"]
    assert lines[1].split() == ["runs", NODES[0], "1", "h", "50", "%", "encoding", "~1", "h", "-"]
    assert ls("--state", "failed", "--columns", "ERROR")[1] == [
        "ERROR",
        "ValueError, exit 3",
        "ValueError, exit 3",
    ]


def test_columns_show_errors_results_keys_and_groups(ls, redis):
    protocol.register(redis, "video", NODES[0], "i", {"beat_every": 10}, 1000.0)
    start(redis, NODES[0], "good", 1000.0)
    text = '{"frames": 12}'
    ref = AttemptRef("video", "good", "token", NODES[0])
    protocol.end(redis, ref, End.complete(text, {"result_encoding": "json"}), 1001.0)
    start(redis, NODES[0], "bad", 1000.0)
    protocol.end(redis, ref._replace(task="bad"), End.fail("disk full:\nno room"), 1001.0)
    more = ("key", "k", "group", "night", "parameters", '{"n":1,"token":"x"}')
    redis.read(("HSET", "blueque_task_bad", *more))

    names = "id,error_text,result,key,group,parameters"
    lines = ls("--state", "finished", "--columns", names)[1]

    assert lines[0].split() == ["ID", "ERROR", "TEXT", "RESULT", "KEY", "GROUP", "PARAMETERS"]
    assert lines[1].split() == [
        *("bad", "disk", "full:", "no", "room", "-", "k", "night"),
        *('{"n":', "1,", '"token":', '"[hidden]"}'),
    ]
    assert lines[2].split() == ["good", "-", '{"frames":', "12}", "-", "-", "1"]


def test_a_list_says_what_each_task_is_without_secrets(ls, client):
    queue = client.get_queue("video")
    queue.enqueue({"scene": "intro", "api_token": "s3cret"})
    queue.enqueue({"scene": "outro"}, key="scene-17")
    queue.enqueue("x" * 20_000)

    assert ls("--columns", "what")[1] == [
        "WHAT",
        "intro, api_token=[hidden]",
        "scene-17",
        "(19.5 KiB)",
    ]
    items = json.loads("\n".join(ls("--json")[1]))["items"]
    assert [(item["what"], item.get("key")) for item in items] == [
        ("intro, api_token=[hidden]", None),
        ("scene-17", "scene-17"),
        ("(19.5 KiB)", None),
    ]
    assert ls("--columns", "what", "--state", "failed")[1] == []


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--columns", "id,foo"], "unknown column 'foo'; the columns are id, what, queue"),
        (["--sort", "foo"], "unknown column; the columns are id"),
        (["--since", "long ago"], "or an age such as 24h"),
        (["--state", "startd"], "did you mean started?"),
        (["--state", "runing"], "did you mean running?"),
        (["--limit", "0"], "0"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_does(ls, arguments, words):
    code, lines, remarks = ls(*arguments)

    assert (code, lines) == (2, [])
    assert words in " ".join(remarks)


@pytest.mark.usefixtures("tasks")
def test_how_many_more_there_are_is_said_beside_the_data(ls):
    assert ls("--ids", "--limit", "1")[1:] == (["runs"], ["(3 more: --limit 4)"])
    assert ls("--ids", "--limit", "4")[2] == []
    assert ls("--ids", "--sort", "id", "--limit", "3")[2] == ["(1 more: --limit 4)"]


def test_large_numbers_have_commas_but_not_in_what_is_copied(ls, url):
    queue = Client(url).get_queue("video")
    queue.enqueue_many(range(1199))
    last = queue.enqueue(1199)

    assert ls("--ids", "--limit", "1")[2] == ["(1,199 more: --limit 1200)"]
    assert "It is number 1,200 of 1,200 with its priority" in "\n".join(ls(last, verb="why")[1])


def test_a_key_that_is_no_text_is_refused_in_a_sentence(run, queue):
    queue.enqueue("first")
    refused = run("ls", "--key", "\udcff")

    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.endswith("a key: '\\udcff' at position 0 is not a character\n")
