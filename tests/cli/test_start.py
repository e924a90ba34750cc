"""Why pending tasks wait, in a word, and when they may start: in the list, and in `why`."""

from __future__ import annotations

import json
import time

import pytest
from transactions import protocol

from blueque.model.attempt_ref import AttemptRef
from blueque.model.queue_settings import pausing
from blueque.protocol.ends import End

NODES = ("gpu-1_1", "gpu-2_2")


@pytest.fixture
def busy(redis, client):
    """Two listeners of video: one has a task that is half done after 10 minutes, the other one that
    is at 1/4 after 10 minutes.
    """
    now = time.time()
    for node, task, progress in zip(NODES, ("half", "quarter"), ("50 %", "25 %"), strict=True):
        facts = {"beat_every": 10, "resources": "gpu=1"}
        protocol.register(redis, "video", node, "i", facts, now)
        protocol.enqueue(redis, "video", task, "1", now - 600)
        protocol.pop(redis, "video", node, "i")
        ref = AttemptRef("video", task, "t", node)
        protocol.reserve(redis, ref, "i", now - 600)
        protocol.start(redis, ref, 77, now - 600)
        protocol.progress(redis, ref, progress, now)
    return client.get_queue("video")


def listed(run, *options):
    return json.loads(run("ls", "--state", "pending", "--json", *options).stdout)


def starts(found):
    """Return reason and minutes until the start of each task."""
    now = found["now_seconds"]
    return [
        (
            item["reason"],
            item["expected_start_seconds"] and round((item["expected_start_seconds"] - now) / 60),
        )
        for item in found["items"]
    ]


@pytest.mark.usefixtures("redis")
def test_the_next_tasks_start_when_those_that_run_have_ended(run, busy):
    for _ in range(3):
        busy.enqueue(1)

    # Nobody knows how long tasks of this queue usually run.
    assert starts(listed(run)) == [("busy", 10), ("busy", 30), ("busy", None)]


def test_tasks_before_a_task_run_as_long_as_usual(run, busy, redis):
    now = time.time()
    protocol.register(redis, "video", "gpu-3_3", "i", {"beat_every": 10}, now)
    for n in range(8):
        ref = AttemptRef("video", f"done-{n}", "t", "gpu-3_3")
        protocol.enqueue(redis, "video", ref.task, "1", now - 300)
        protocol.pop(redis, "video", "gpu-3_3", "i")
        protocol.reserve(redis, ref, "i", now - 300)
        protocol.start(redis, ref, 77, now - 300)
        protocol.end(redis, ref, End.complete("1", {"result_encoding": "json"}), now)
    protocol.deregister(redis, "video", "gpu-3_3", "i")
    for _ in range(4):
        busy.enqueue(1)

    reasons, minutes = zip(*starts(listed(run)), strict=True)
    assert (reasons, minutes[0]) == (("busy",) * 4, 10)
    assert 14 <= minutes[1] <= 16 and 19 <= minutes[2] <= 21 and 24 <= minutes[3] <= 26


def test_what_needs_a_person_has_a_reason_and_no_start(run, busy, client, redis):
    busy.enqueue(1, resources={"gpu": 2})
    client.get_queue("nobody").enqueue(1)
    client.get_queue("held").enqueue(1)
    protocol.set_settings(redis, "held", pausing("ada", None, time.time()), time.time(), "ada")

    assert starts(listed(run)) == [("never_fits", None), ("no_listener", None), ("paused", None)]


def test_the_list_shows_reason_and_start_of_pending_tasks_alone(run, busy):
    busy.enqueue({"scene": "intro"})

    titles, line = run("ls", "--state", "pending").stdout.splitlines()
    assert titles.split() == ["ID", "WHAT", "QUEUE", "FOR", "REASON", "START", "NOTE"]
    assert " ".join(line.split()).endswith("listeners busy ~10 m")
    assert "REASON" not in run("ls").stdout
    chosen = run("ls", "--columns", "id,state,reason,start").stdout.splitlines()
    assert [row.split()[1:] for row in chosen[1:]] == [
        ["started", "-", "-"],
        ["started", "-", "-"],
        ["pending", "listeners", "busy", "~10", "m"],
    ]


def test_why_says_when_a_task_may_start_and_when_the_first_of_its_holders_ends(run, busy):
    task = busy.enqueue({"scene": "intro"})

    text = run("why", task).stdout
    found = json.loads(run("why", task, "--json").stdout)

    assert f"{task} (intro) in video has been pending" in text
    assert " s. It may start in ~10 m." in text
    assert "it can start when one of these ends, the first in ~10 m." in text
    (reason,) = found["reasons"]
    assert (reason["code"], round(reason["free_in_seconds"] / 60)) == ("busy", 10)
    assert round((found["item"]["expected_start_seconds"] - found["now_seconds"]) / 60) == 10
