"""`blueque host ls`, `node show` and `schedule ls`."""

from __future__ import annotations

import json
import os
import re
import time

import pytest
from click.testing import CliRunner
from transactions import protocol

from blueque.cli.main import blueque
from blueque.cli.options import Invocation
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.queries.inspector import Inspector
from blueque.system import process

BUSY, IDLE, SILENT = "gpu-1.example.com_4021", "gpu-1.example.com_4022", "gpu-2.example.com_7"


@pytest.fixture
def run(url):
    def run(*arguments):
        result = CliRunner().invoke(blueque, [*arguments, "--utc"], obj=Invocation(url=url))
        return (
            result.exit_code,
            [line.split() for line in result.stdout.splitlines()],
            result.stderr,
        )

    return run


@pytest.fixture
def now(redis):
    """Two listeners of two queues on one host, one of them busy, and a silent one on another."""
    now = Inspector(redis).now()
    for queue in ("audio", "video"):
        for node in (BUSY, IDLE):
            facts = {"beat_every": 10, "version": "2.0.0", "resources": "gpu=2", "spool": "/spool"}
            protocol.register(redis, queue, node, "i", facts, now - 5)
    protocol.register(
        redis, "video", SILENT, "i", {"beat_every": 10, "lease": 60, "version": "2.1.0"}, now - 600
    )
    protocol.enqueue(redis, "video", "t1", "1", now)
    protocol.pop(redis, "video", BUSY, "i")
    protocol.reserve(redis, AttemptRef("video", "t1", "token", BUSY), "i", now)
    protocol.start(redis, AttemptRef("video", "t1", "token", BUSY), 77, now - 3600)
    redis.read(("HSET", keys.task("t1"), "needs", "gpu=1"))
    return now


@pytest.mark.usefixtures("now")
def test_a_host_is_one_line_with_its_slots_queues_version_and_state(run):
    _, (titles, first, second), _ = run("host", "ls")

    assert titles == ["HOST", "SLOTS", "RUNNING", "QUEUES", "VERSION", "SEEN", "STATE"]
    assert first[:6] == ["gpu-1.example.com", "2", "1", "audio,", "video", "2.0.0"]
    assert first[-1] == "up"
    assert (second[:5], second[-1]) == (["gpu-2.example.com", "1", "0", "video", "2.1.0"], "silent")


@pytest.mark.usefixtures("now")
@pytest.mark.parametrize(
    ("arguments", "hosts"),
    [
        ([], ["gpu-1.example.com", "gpu-2.example.com"]),
        (["-q", "au*"], ["gpu-1.example.com"]),
        (["-q", "x"], []),
    ],
)
def test_hosts_are_listed_by_queue(run, arguments, hosts):
    _, lines, _ = run("host", "ls", *arguments)

    assert [line[0] for line in lines[1:]] == hosts


@pytest.mark.usefixtures("now")
def test_the_listeners_of_several_hosts_are_shown_by_a_pattern(run):
    _, lines, _ = run("host", "show", "gpu-*")

    assert {BUSY, IDLE, SILENT} <= {line[0] for line in lines if line}


@pytest.mark.usefixtures("now")
def test_a_host_is_shown_with_what_it_has_and_the_tasks_that_run_there(run):
    _, lines, _ = run("host", "show", "gpu-1")

    assert ["slots", "2", "up;", "1", "busy"] in lines
    assert ["resources", "gpu", "1", "of", "2", "in", "use", "(1", "by", "t1)"] in lines
    assert ["spool", "/spool"] in lines
    assert [line[0] for line in lines if line[:1] in ([BUSY], [IDLE])] == [BUSY, IDLE]
    assert next(line for line in lines if line[:1] == ["t1"])[:6] == [
        "t1",
        "1",
        "video",
        "started",
        "1",
        "h",
    ]


def test_a_host_that_stops_its_tasks_at_a_known_time_is_shown_with_it(run, redis, now):
    for node, ends_at in ((BUSY, now + 7200), (SILENT, "no time")):
        facts = {"beat_every": 10, "ends_at": ends_at}
        protocol.register(redis, "pictures", node, "i", facts, now)
    assert [line[:4] for line in run("host", "show", "gpu-1")[1] if line[:1] == ["stops"]] == [
        ["stops", "tasks", "in", "1"]
    ]
    assert not [line for line in run("host", "show", "gpu-2")[1] if line[:1] == ["stops"]]


@pytest.mark.usefixtures("now")
def test_a_node_that_is_not_there_is_code_3(run):
    code, lines, remarks = run("host", "show", "gpu-9")

    assert (code, lines) == (3, []) and "no listener and no host 'gpu-9'" in remarks


def test_nodes_in_json_have_their_beats_in_seconds(url, now):
    result = CliRunner().invoke(blueque, ["host", "ls", "--json"], obj=Invocation(url=url))

    item = json.loads(result.stdout)["items"][0]
    assert (item["node"], item["host"], item["queue"]) == (BUSY, "gpu-1.example.com", "audio")
    assert item["version"] == "2.0.0"
    assert item["beat_seconds"] == pytest.approx(now - 5, abs=1)


@pytest.mark.usefixtures("now")
def test_a_host_in_json_says_which_tasks_have_its_resources(url):
    line = ["host", "show", "gpu-1", "--json"]
    shown = json.loads(CliRunner().invoke(blueque, line, obj=Invocation(url=url)).stdout)

    users = [{"task": "t1", "amount": 1}]
    assert shown["resources"] == [{"name": "gpu", "total": 2, "used": 1, "users": users}]


def test_without_listeners_and_tasks_nothing_is_on_standard_output(run):
    assert run("host", "ls") == (0, [], "no listeners\n")
    assert run("schedule", "ls") == (0, [], "no recurring tasks\n")


def test_status_knows_at_once_that_the_process_of_a_listener_is_gone_from_this_host(run, redis):
    pid = process.fork(lambda: 0)
    process.wait_for(pid)
    node = f"{process.host_name()}_{pid}"
    facts = {"beat_every": 10, "lease": 60, "spool": "/spool", **process.identity(os.getpid())}
    protocol.register(redis, "video", node, "i9", facts | {"pid_start": 1}, time.time())
    protocol.enqueue(redis, "video", "t1", "1", time.time())
    protocol.pop(redis, "video", node, "i9")

    told = [" ".join(words) for words in run("status")[1]]

    assert any("is dead, with 1 task; start one on " in line for line in told)
    assert any(re.fullmatch(r"video 0 .* 0", line) for line in told), told  # LISTENERS
    assert "blueque-listener --spool /spool video --module MODULE" in told
