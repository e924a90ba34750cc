"""`blueque wait -q`: wait until nothing is left to do in some queues."""

from __future__ import annotations

import json

import pytest
from dependent import block, end, enqueue, finish

pytestmark = pytest.mark.usefixtures("listener")


def test_it_waits_until_the_last_task_has_ended_however_that_ends(begin, redis):
    enqueue(redis, "next-1")
    waiting = begin("wait", "-q", "vid*")
    finish(redis, "next-1")
    assert waiting.wait(30) == 0
    assert waiting.stderr.read() == "nothing is left to do in queue video\n"


def test_it_says_what_is_left_when_the_timeout_is_over(run, client, redis):
    enqueue(redis, "next-1")
    client.get_queue("audio").enqueue(1)
    one = run("wait", "-q", "video", "--timeout", "0.01")
    assert (one.returncode, one.stdout) == (124, "")
    assert one.stderr == "queue 'video' has tasks left after 0.01 s: 1 pending\n"
    both = run("wait", "-q", "video", "-q", "aud*", "--timeout", "0.01", "--json")
    assert both.stderr == "2 queues have tasks left after 0.01 s\n"
    shown = json.loads(both.stdout)
    assert (both.returncode, shown["kind"], shown["timed_out"]) == (124, "wait", True)
    assert shown["queues"] == [
        {"queue": queue, "pending": 1, "due": 0, "running": 0, "blocked": 0}
        for queue in ("audio", "video")
    ]


def test_it_says_once_which_task_holds_up_the_last_ones(run, redis, monkeypatch):
    monkeypatch.setattr("blueque.queries.task_ends.NOTICE_EVERY", 0.001)
    end(redis, "bad-1", exit_code=1)
    block(redis, "child-1", "bad-1")
    result = run("wait", "-q", "video", "--timeout", "0.3")
    assert result.returncode == 124
    assert result.stderr.splitlines() == [
        "child-1 is held by bad-1, which has failed: exit code 1. See: blueque why child-1",
        "queue 'video' has tasks left after 0.3 s: 1 blocked",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        ([], 2, "name the tasks: ID..., or --queue QUEUE"),
        (["abcd", "-q", "video"], 2, "by ID, or select them by options, not both"),
        (["-q", "video", "--any"], 2, "--any and --results are for tasks"),
        (["-q", "nothing*"], 3, "no queue 'nothing*'"),
    ],
)
def test_what_makes_no_sense_is_refused(run, arguments, code, error):
    result = run("wait", *arguments)
    assert result.returncode == code and error in result.stderr
