"""What the page says of hosts that are not heard, and of those that are gone, beside the commands."""

from __future__ import annotations

import html
import json
import re
import time

import pytest
from transactions import protocol

from blueque.model.attempt_ref import AttemptRef
from blueque.model.lines import write_needs
from blueque.protocol.ends import End
from blueque.protocol.membership import Heartbeat
from blueque.protocol.recover import Loss

FACTS = {"beat_every": 10, "lost_after": 600, "version": "2.0"}
HAS = FACTS | {"resources": "gpu=4,memory=137438953472"}


@pytest.fixture
def begin(client, queue):
    """Have a listener start a task an hour ago, and beat for the last time so many seconds ago."""

    def begin(task, node, silent_for=0.0, **options):
        redis, now = client.connections, time.time()
        line = f"0,{write_needs(options['resources'])}" if options else "0"
        for name in ("video", "audio"):
            protocol.register(redis, name, node, node, HAS, now)
            protocol.beat(redis, [Heartbeat(name, node, node, 1)], now - silent_for)
        attempt = AttemptRef(
            "video", str(queue.enqueue({"n": 1}, title=task, **options)), task, node
        )
        protocol.pop(redis, "video", node, node, line)
        protocol.reserve(redis, attempt, node, now - 3600)
        protocol.start(redis, attempt, 77, now - 3600, {"devices": "gpu=2"})
        protocol.progress(redis, attempt, "30/100 frames", now - silent_for)
        return attempt

    return begin


@pytest.fixture
def lose(client):
    """Take a listener for dead, and give up its task."""

    def lose(attempt):
        redis, now, node = client.connections, time.time(), attempt.node
        for name in ("video", "audio"):
            assert protocol.fence(redis, name, node, node, "1", now)
        loss = Loss("lost: its host is gone", {"error_type": "lost"})
        assert protocol.lose(redis, attempt, node, loss, None, now) == "failed"
        for name in ("video", "audio"):
            assert protocol.deregister(redis, name, node, node, is_dead=True)

    return lose


def words_of(text):
    """Return a page as a person reads it."""
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", text)).split())


def test_a_task_on_a_host_that_is_not_heard_is_told_alike_by_page_commands_and_json(
    ask, run, begin
):
    heard, silent = begin("heard", "gpu-1_7"), begin("silent", "gpu-3_7", 400.0)

    told = words_of(ask(f"/tasks/{silent.task}").text)
    why = " ".join(run("why", silent.task).stdout.split())
    found = json.loads(run("show", silent.task, "--json").stdout)["item"]

    for text in (told, why):
        assert "Its listener gpu-3_7 is silent, last seen 6 m 4" in text
        assert re.search(r"the task counts as lost in 3 m [12]\d s, if another host or a", text)
    assert "No sign of life" in told and "silent listener seen" in told
    assert not re.search("left, until|progressing|talking|alive", told)
    assert found["left_seconds"] is None
    assert " left" not in run("show", silent.task).stdout
    told = words_of(ask(f"/tasks/{heard.task}").text)
    assert "About 2 h 20 m left" in told and "progressing" in told and "alive" in told
    assert (
        8000 < json.loads(run("show", heard.task, "--json").stdout)["item"]["left_seconds"] < 8800
    )


def test_a_host_that_is_gone_keeps_its_lane_its_lost_runs_and_its_page(ask, begin, lose, client):
    begin("heard", "gpu-1_7")
    lose(begin("gone", "gpu-3_7"))

    lanes = ask("/nodes").text
    page = ask("/nodes/gpu-3").text

    assert re.findall(r'<a href="/nodes/([^"]+)"><b>', lanes) == ["gpu-3", "gpu-1"]
    assert "no listener" in words_of(lanes) and 'class="r lost"' in lanes
    assert "This host has no known listener" in page and 'class="r lost"' in page
    assert "Drain" not in page and "gone video" in words_of(page)
    assert 'class="r lost"' in ask("/").text
    assert ask("/nodes/gpu-9").status_code == 404


def test_a_run_that_is_not_heard_ends_at_the_last_beat_of_its_listener(ask, run, begin):
    begin("silent", "gpu-3_7", 1800.0)

    page = ask("/nodes/gpu-3").text
    drawn = run("timeline").stdout

    assert 'class="r not-heard"' in page and 'class="r running"' not in page.partition("legend")[0]
    assert "not heard" in words_of(page.partition("What ran")[2])
    assert "1 listener, 1 with a task" in words_of(ask("/nodes").text)
    assert "not heard" in drawn


def test_json_history_and_what_is_left_tell_alike_that_a_run_is_not_heard(ask, run, begin):
    heard, silent = begin("heard", "gpu-1_7"), begin("silent", "gpu-3_7", 1800.0)

    page = ask(f"/tasks/{silent.task}").text.partition('class="lifeline"')[2].partition("</svg>")[0]
    for found in (json.loads(run("timeline", "--json").stdout), ask("/api/v1/timeline").json()):
        told = {item["task"]: item for item in found["items"]}
        assert told[silent.task]["outcome"] == "not heard"
        assert 1795 < found["until_seconds"] - told[silent.task]["ended_seconds"] < 1900
        assert told[heard.task]["outcome"] is told[heard.task]["ended_seconds"] is None
    listed = run("ls", "--columns", "what,left", "--sort", "left").stdout.splitlines()
    assert [line.split()[0] for line in listed[1:]] == ["heard", "silent"]
    assert "~2 h" in listed[1] and listed[2].split() == ["silent", "-"]
    assert "~2 h" in run("host", "show", "gpu-1").stdout
    assert "~" not in run("host", "show", "gpu-3").stdout
    assert 'class="r not-heard"' in page and re.search(
        "on gpu-3_7: not heard, (30 m|29 m 59 s)", page
    )


def test_the_page_of_a_host_has_a_row_for_each_slot_and_its_resources_once(ask, begin, client):
    before = begin("before", "gpu-1_6", resources={"gpu": 1})
    protocol.end(client.connections, before, End.complete("1"), time.time())
    for name in ("video", "audio"):
        protocol.deregister(client.connections, name, "gpu-1_6", "gpu-1_6")
    begin("cut", "gpu-1_7", resources={"gpu": 1, "memory": 16 << 30})

    told = words_of(ask("/nodes/gpu-1").text.partition("<h2>Resources")[2])

    resources, _, rest = told.partition("Listeners 1")
    assert "gpu 1 of 4 cut 1, gpu=2" in resources
    assert "memory 16GiB of 128GiB cut 16GiB" in resources
    assert rest.count("gpu-1_7") == 1 and "cut" in rest and "audio video" in rest
    assert "before video" in rest.partition("What ran")[2]  # by a listener that has left


def test_a_host_that_is_not_heard_is_promised_nothing(ask, begin):
    begin("heard", "gpu-1_7")
    silent = begin("silent", "gpu-3_7", 1800.0)

    first = words_of(ask("/").text)

    assert "of 2 listeners, 1 not heard" in first and "30 % not heard" in first
    assert "Drain 1 listener" in ask("/nodes/gpu-1").text
    assert "Drain" not in ask("/nodes/gpu-3").text
    assert "Stack</button>" not in ask(f"/tasks/{silent.task}").text


def test_the_page_of_a_queue_names_its_listeners_in_trouble_first(ask, begin):
    begin("heard", "gpu-1_7")
    begin("silent", "gpu-3_7", 400.0)

    rail = words_of(ask("/queues/video").text.partition("<h2>Listeners")[2])

    assert rail.startswith("silent gpu-3_7 up gpu-1_7")


def test_the_age_of_the_oldest_task_is_red_only_if_its_wait_is_the_trouble(
    ask, begin, queue, client
):
    begin("silent", "gpu-3_7", 400.0)
    begin("heard", "gpu-1_7")
    queue.enqueue({"n": 2})
    client.get_queue("unserved").enqueue({"n": 3})

    for path in ("/", "/queues"):
        table = ask(path).text.partition('id="queues"')[2]
        rows = dict(re.findall(r'href="/queues/(\w+)">(.*?)</tr>', table, re.DOTALL))
        assert [" bad" in rows[name] for name in ("video", "unserved")] == [False, True]


def test_the_list_of_waiting_tasks_says_why_and_how_long_as_the_commands_do(
    ask, run, begin, client
):
    attempt = begin("runs", "gpu-1_7")
    protocol.progress(client.connections, attempt, "60/100 frames", time.time())
    tasks = [str(client.get_queue("video").enqueue({"n": n}, title=f"next {n}")) for n in (1, 2)]
    other = str(client.get_queue("unserved").enqueue({"n": 3}, title="nobody"))

    page = ask("/tasks?state=pending").text
    rows = {
        name: words_of(row) for name, row in re.findall(r'id="t-([^"]+)">(.*?)</tr>', page, re.S)
    }
    listed = {
        cells["id"]: cells
        for cells in json.loads(run("ls", "--state", "pending", "--json").stdout)["items"]
    }

    assert rows.keys() == listed.keys() == {*tasks, other}
    assert rows[tasks[0]].endswith("listeners busy ~40 m")
    assert rows[other].endswith("no listener –")
    assert [listed[task]["expected_start"] is None for task in (tasks[0], other)] == [False, True]
    assert "It may start in ~40 m." in words_of(ask(f"/tasks/{tasks[0]}").text)
    assert "It may start in ~40 m." in " ".join(run("why", tasks[0]).stdout.split())
    assert "Reason" not in ask("/tasks?state=pending,blocked").text
