"""The timeline: what ran when, from the events of queues, as data and as a picture in the terminal."""

from __future__ import annotations

import json
import os
import time
from collections import Counter

import forked
import pytest
from transactions import protocol

from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End
from blueque.queries.history import Event, parse
from blueque.queries.timeline import Run, load, over

Q = "render"
HOUR = 3600.0


def event(what, at, task="t1", attempt=1, by="gpu-1_7", **facts):
    return Event(task, what, at, attempt, by, facts, Q, "1-1")


@pytest.mark.parametrize("separators", [(",", ":"), None], ids=["ours", "of another program"])
def test_events_can_be_left_out_by_name_however_they_are_written(separators):
    told = [{"event": what, "at": 1.0} for what in ("reserved", "started")]
    entries = [
        ("1-1", ["task", "t1", "told", json.dumps(one, separators=separators)]) for one in told
    ]

    assert [its.event for its in parse(Q, entries)] == ["reserved", "started"]
    assert [its.event for its in parse(Q, entries, without="reserved")] == ["started"]


def test_one_that_began_before_what_is_known_began_when_its_end_says():
    assert over([event("complete", 500.0, took=450.0)], 100.0)[0].began == 50.0
    assert over([event("lost", 500.0)], 100.0)[0].began == 100.0
    assert over([event("failed", 500.0, error_type="lost", began="50.5")], 100.0)[0].began == 50.5


def test_an_adopted_run_is_that_of_who_saw_its_end():
    events = [
        event("started", 10.0),
        event("adopted", 20.0, by="gpu-1_8"),
        event("complete", 30.0, by="gpu-1_8"),
    ]

    assert over(events, 0.0) == [Run("t1", 1, Q, "gpu-1_8", 10.0, 30.0, "complete")]


@pytest.mark.parametrize("what", ["failed", "cancelled", "recovered"])
def test_what_never_started_is_no_run(what):
    assert over([event("reserved", 9.0), event(what, 10.0)], 0.0) == []


@pytest.fixture
def worked(redis, cli):
    """One task that is complete and one that runs, now."""
    now = float(cli.time()[0])
    protocol.register(redis, Q, "gpu-1_7", "i1", {}, now)
    for task in ("done", "runs"):
        protocol.enqueue(redis, Q, task, "in", now - 900)
        protocol.pop(redis, Q, "gpu-1_7", "i1")
        protocol.reserve(redis, AttemptRef(Q, task, task, "gpu-1_7"), "i1", now - 600)
        protocol.start(redis, AttemptRef(Q, task, task, "gpu-1_7"), 7, now - 600)
    protocol.end(redis, AttemptRef(Q, "done", "done", "gpu-1_7"), End.complete("r"), now - 300)
    return now


def test_blueque_timeline_has_a_row_with_a_bar_for_each_attempt(run, worked):
    shown = run("timeline", "--since", "15m", "--utc")
    found = json.loads(run("timeline", "--json").stdout)

    title, done, runs = (line.split() for line in shown.stdout.splitlines())
    assert (shown.returncode, shown.stderr) == (0, "")
    assert title[:7] == ["HOST", "QUEUE", "TASK", "WHAT", "BEGAN", "RAN", "OUTCOME"]
    assert title[4] == "BEGAN" and title[-1] == "now" and title[-2] == done[4] == runs[4]
    assert done[:4] == ["gpu-1", Q, "done", "in"] and done[5:8] == ["5", "m", "complete"]
    assert runs[5:7] == ["10", "m"] and runs[-2:] == ["runs", "=" * 40]
    assert len(done[8]) in (19, 20)
    assert found["kind"] == "timeline"
    assert [item["outcome"] for item in found["items"]] == ["complete", None]
    assert found["items"][0]["began_seconds"] == worked - 600


def test_blueque_timeline_shows_the_last_attempts_in_the_order_of_host_or_queue(run, redis, cli):
    now = float(cli.time()[0])
    for n, (queue, host) in enumerate([("a", "gpu-2"), ("b", "gpu-1"), ("a", "gpu-1")]):
        began = {"event": "started", "at": now - 90 + n, "attempt": 1, "by": f"{host}_7"}
        fields = ("task", f"t{n}", "told", json.dumps(began))
        ended = ("task", f"t{n}", "told", json.dumps({**began, "event": "failed", "at": now - 9}))
        redis.read(
            ("ZADD", keys.QUEUES, 0, queue),
            ("XADD", keys.events(queue), f"{int(now * 1000)}-{2 * n}", *fields),
            ("XADD", keys.events(queue), f"{int(now * 1000)}-{2 * n + 1}", *ended),
        )

    by_host, by_queue, last = (
        run("timeline", *words)
        for words in ((), ("--by", "queue"), ("--limit", "1", "--since", "1h"))
    )

    def tasks(shown):
        return [line.split()[2] for line in shown.stdout.splitlines()[1:]]

    assert (tasks(by_host), tasks(by_queue)) == (["t1", "t2", "t0"], ["t0", "t2", "t1"])
    assert tasks(last) == ["t2"] and "(2 earlier: --limit N" in last.stderr


@pytest.mark.parametrize("began", [900, 3 * 86400])
def test_blueque_timeline_fits_a_terminal_of_80_columns(redis, url, cli, began):
    now = float(cli.time()[0])
    for n, host in enumerate(("gpu-1", "gpu-1.farm.example.com")):
        queue, task = "video.encode.long.name", f"0123456{n}-4000-8000"
        protocol.enqueue(redis, queue, task, "a long name of a task", now)
        facts = {"attempt": 1, "by": f"{host}_7"}
        for m, (what, at) in enumerate((("started", now - began), ("cancelled", now - 9))):
            told = json.dumps({"event": what, "at": at, **facts})
            entry = f"{int(now * 1000)}-{2 * n + m}"
            redis.read(("XADD", keys.events(queue), entry, "task", task, "told", told))

    environ = os.environ | {"BLUEQUE_REDIS_URL": url, "TZ": "UTC", "COLUMNS": "80"}
    lines = forked.on_terminal(["timeline", "--since", "9d"], environ)

    assert len(lines) == 3 and max(map(len, lines)) <= 80, lines
    assert lines[0].endswith("now")


def test_blueque_timeline_of_nothing_says_so(run):
    done = run("timeline")

    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing ran in the last 12 h" in done.stderr
    assert run("timeline", "--since", "0").returncode == 2


@pytest.mark.parametrize(
    ("most", "runs", "cut"),
    [
        (30, {"busy": 13, "quiet": 4, "other": 13}, ["busy", "other"]),
        (80, {"busy": 30, "quiet": 4, "other": 30}, []),
    ],
)
def test_what_quiet_queues_leave_of_the_events_the_others_get(redis, most, runs, cut):
    now = time.time()
    for queue, count in {"busy": 30, "quiet": 4, "other": 30}.items():
        for number in range(count):
            at = now - 600 + number
            told = {"event": "complete", "at": at, "attempt": 1, "by": "gpu-1_7", "took": 2}
            place = f"{int(at * 1000)}-0"
            fields = ("task", f"{queue}-{number}", "told", json.dumps(told))
            redis.read(("XADD", keys.events(queue), place, *fields))

    found = load(redis, ["busy", "quiet", "other"], HOUR, most)

    assert Counter(run.queue for run in found.runs) == runs
    assert found.cut == cut
    assert all(f"busy-{number}" in {run.task for run in found.runs} for number in range(17, 30))
