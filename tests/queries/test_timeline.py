"""The timeline: what ran when, from the events of queues, as data and as a picture in the terminal."""

from __future__ import annotations

import csv
import io
import json
import operator
import time
from collections import Counter

import pytest
from transactions import protocol

from blueque.cli.verbs.timeline import _BY, MARKS, _narrowed, draw
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End
from blueque.queries.history import Event, parse
from blueque.queries.timeline import Run, Timeline, load, over

Q = "render"
HOUR = 3600.0


def event(what, at, task="t1", attempt=1, by="gpu-1_7", **facts):
    return Event(task, what, at, attempt, by, facts, Q, "1-1")


def test_a_run_is_from_its_start_to_its_end():
    events = [event("reserved", 9.0), event("started", 10.0), event("complete", 30.0, took=20.0)]

    assert over(events, 0.0) == [Run("t1", 1, Q, "gpu-1_7", 10.0, 30.0, "complete")]


@pytest.mark.parametrize("separators", [(",", ":"), None], ids=["ours", "of another program"])
def test_events_can_be_left_out_by_name_however_they_are_written(separators):
    told = [{"event": what, "at": 1.0} for what in ("reserved", "started")]
    entries = [
        ("1-1", ["task", "t1", "told", json.dumps(one, separators=separators)]) for one in told
    ]

    assert [its.event for its in parse(Q, entries)] == ["reserved", "started"]
    assert [its.event for its in parse(Q, entries, without="reserved")] == ["started"]


def test_each_attempt_is_a_run_of_its_own():
    events = [
        event("started", 10.0),
        event("retried", 20.0, took=10.0),
        event("started", 30.0, attempt=2, by="gpu-2_9"),
        event("failed", 50.0, attempt=2, by="gpu-2_9", took=20.0),
    ]

    assert [
        (one.attempt, one.node, one.began, one.ended, one.outcome) for one in over(events, 0.0)
    ] == [(1, "gpu-1_7", 10.0, 20.0, "failed"), (2, "gpu-2_9", 30.0, 50.0, "failed")]


def test_one_that_puts_itself_off_has_not_failed():
    events = [
        event("started", 10.0),
        event("postponed", 20.0, took=10.0, reason="not yet", eta=50.0),
    ]

    assert [one.outcome for one in over(events, 0.0)] == ["released"]


def test_one_that_began_before_what_is_known_began_when_its_end_says():
    assert over([event("complete", 500.0, took=450.0)], 100.0)[0].began == 50.0
    assert over([event("lost", 500.0)], 100.0)[0].began == 100.0
    assert over([event("failed", 500.0, error_type="lost", began="50.5")], 100.0)[0].began == 50.5


@pytest.mark.parametrize("what", ["lost", "failed"])
def test_one_that_was_lost_is_said_to_be_lost_whether_it_runs_again_or_not(what):
    events = [event("started", 10.0), event(what, 30.0, error_type="lost", began="10.0")]

    assert [run_.outcome for run_ in over(events, 0.0)] == ["lost"]


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


def test_the_picture_says_when_where_and_how_it_ended():
    runs = [
        Run("aaaaaaaa-1", 1, Q, "gpu-1_7", 0.0, 4 * HOUR, "complete"),
        Run("bbbbbbbb-1", 1, Q, "gpu-1_8", HOUR, 3 * HOUR, "failed"),
        Run("cccccccc-1", 1, Q, "gpu-1_7", 5 * HOUR, None, None),
        Run("d", 1, Q, "gpu-2_7", 6 * HOUR, 7 * HOUR, "lost"),
        *[
            Run(f"e{n}", 1, "ingest", "io_1", 10 * HOUR + n, 10 * HOUR + n + 1, "complete")
            for n in range(3)
        ],
    ]

    lines = list(draw(Timeline(0.0, 12 * HOUR, runs, []), _BY["node"], 78, is_utc=True))

    assert lines == [
        "          00:00       02:07       04:14       06:21       08:28            now",
        "gpu-1 1   ==aaaaaaaa=============     >>cccccccc>>>>>>>>>>>>>>>>>>>>>>>>>>>>>>",
        "      2        ==bbbbbbbb==x",
        "gpu-2 1                                     ==d==?",
        "io    1                                                           :",
        "= complete  > runs  x failed  ? lost  : several short ones  7 attempts",
    ]
    assert max(map(len, lines)) <= 78


BEGAN = operator.attrgetter("began")


def short(task, node, began, took, outcome="complete"):
    return Run(task, 1, Q, node, began, began + took, outcome)


def test_many_short_runs_of_several_slots_are_one_row_with_their_number():
    runs = sorted(
        (
            short(f"{slot}-{n}", f"io-1_{slot}", 100.0 + n * 0.7 + slot * 0.1, 0.69)
            for slot in range(4)
            for n in range(750)
        ),
        key=BEGAN,
    )
    runs += [Run("c" * 8, 1, Q, "gpu-1_1", 0.0, None, None)]

    lines = list(
        draw(Timeline(0.0, 1000.0, sorted(runs, key=BEGAN), []), _BY["node"], 80, is_utc=True)
    )

    assert [line.split()[:2] for line in lines[1:-1]] == [["gpu-1", "1"], ["io-1", "1-4"]]
    assert lines[2].split(maxsplit=2)[2] == 37 * ":" + " 3000 tasks"


def test_where_there_is_no_room_behind_short_runs_their_number_is_among_them():
    runs = [short(f"t{n}", "io-1_1", float(n), 0.9) for n in range(1000)]

    row = list(draw(Timeline(0.0, 1000.0, runs, []), _BY["node"], 60, is_utc=True))[1]

    assert row.startswith("io-1 1 ::::") and row.endswith("::::")
    assert " 1000 tasks " in row and len(row) == 60


@pytest.mark.parametrize(
    ("outcome", "mark"), [("failed", "x"), ("lost", "?"), ("complete", ":"), ("cancelled", ":")]
)
def test_what_ended_badly_among_many_short_runs_is_seen_and_no_number_hides_it(outcome, mark):
    runs = [
        short(str(n), "io_1", float(n), 0.9, outcome if n == 500 else "complete")
        for n in range(1000)
    ]

    line = list(draw(Timeline(0.0, 1000.0, runs, []), _BY["node"], 80, is_utc=True))[1]

    row = line.split(maxsplit=2)[2]
    assert row.count(mark) == 1 or mark == ":"
    told = f" 1000 tasks, 1 {outcome} " if mark != ":" else " 1000 tasks "
    assert told in row and set(row.replace(told, "")) == {":", mark}


def test_where_many_ended_badly_the_number_is_told_all_the_same():
    runs = [short(str(n), "io_1", float(n), 0.9, "failed") for n in range(1000)]

    assert (
        " 1000 tasks, 1000 failed "
        in list(draw(Timeline(0.0, 1000.0, runs, []), _BY["node"], 80, is_utc=True))[1]
    )


def test_short_runs_between_long_ones_stay_in_the_row_of_their_slot_and_bad_ends_stay_visible():
    runs = [
        short("a" * 8, "io-1_1", 0.0, 400.0, "failed"),
        *[short(f"t{n}", "io-1_1", 400.0 + n, 0.9) for n in range(100)],
        short("b" * 8, "io-1_1", 700.0, 299.0),
    ]

    row = list(draw(Timeline(0.0, 1000.0, runs, []), _BY["node"], 87, is_utc=True))[1]

    assert (
        row
        == "io-1 1 ==aaaaaaaa======================x::::::: 100 tasks      ==bbbbbbbb=============="
    )


def test_short_runs_that_can_be_told_apart_are_drawn_each_for_itself():
    runs = [
        short(f"t{n}", "io-1_1", 100.0 * n, 10.0, "failed" if n == 5 else "complete")
        for n in range(9)
    ]

    row = list(draw(Timeline(0.0, 1000.0, runs, []), _BY["node"], 47, is_utc=True))[1]

    assert row.split()[2:] == ["="] * 5 + ["x"] + ["="] * 3


@pytest.mark.parametrize("before", ["complete", "cancelled", "released"])
def test_a_short_run_that_ended_badly_is_seen_where_another_bar_ends(before):
    runs = [
        Run("long", 1, Q, "gpu-1_7", 20.0, 31.6, before),
        Run("bad", 1, Q, "gpu-1_7", 31.7, 31.8, "failed"),
    ]

    _, row, _ = draw(Timeline(0.0, 100.0, runs, []), _BY["node"], 104, True)

    assert row.split("  ")[-1].endswith("x") and row.count("x") == 1


def test_by_queue_each_queue_has_its_rows():
    runs = [
        Run("a", 1, "render", "gpu-1_7", 0.0, 10.0, "complete"),
        Run("b", 1, "ingest", "gpu-1_7", 0.0, 10.0, "failed"),
    ]

    lines = list(draw(Timeline(0.0, 100.0, runs, []), _BY["queue"], 60, is_utc=True))

    assert [line.split()[0] for line in lines[1:3]] == ["ingest", "render"]


def test_what_does_not_fit_is_counted():
    runs = [Run(f"t{n}", 1, Q, f"gpu-1_{n}", 0.0, 90.0, "complete") for n in range(12)]

    lines = list(draw(Timeline(0.0, 100.0, runs, []), _BY["node"], 60, is_utc=True))

    assert "(4 attempts more at the same time)" in lines[-2]
    assert len(lines) == 1 + 8 + 1 + 1


@pytest.mark.parametrize("wide", [40, 80, 200])
def test_names_and_picture_stay_within_the_terminal(wide):
    runs = [
        Run(
            "ä" * 9,
            1,
            Q,
            "a-very-long-name-of-a-node.of.some.cluster.example.com_7",
            0.0,
            90.0,
            outcome,
        )
        for outcome in MARKS
    ]

    drawn = list(draw(Timeline(0.0, 100.0, runs, []), _BY["node"], wide, is_utc=True))

    assert max(map(len, drawn)) <= wide
    legend = "  ".join(drawn)
    assert all(f"{mark} " in legend for mark in MARKS.values())
    assert legend.endswith(": several short ones  7 attempts")


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


def test_blueque_timeline_draws_and_lists(run, worked):
    drawn = run("timeline", "--since", "15m")
    table = list(csv.DictReader(io.StringIO(run("timeline", "--csv").stdout)))
    found = json.loads(run("timeline", "--json").stdout)

    assert (drawn.returncode, drawn.stderr) == (0, "")
    assert "==done in=" in drawn.stdout
    assert ">>runs in>" in drawn.stdout
    assert [(row["task"], row["ended"] != "", row["outcome"]) for row in table] == [
        ("done", True, "complete"),
        ("runs", False, ""),
    ]
    assert (found["kind"], [item["outcome"] for item in found["items"]]) == (
        "timeline",
        ["complete", None],
    )
    assert found["items"][0]["began_seconds"] == worked - 600


def test_what_is_drawn_begins_with_the_first_run_that_is_known_and_is_a_minute_at_least():
    def since(began, last=43200.0, until=100_000.0):
        runs = [Run("t", 1, Q, "gpu-1_7", began, None, None)]
        return _narrowed(Timeline(until - last, until, runs, []))[0]

    assert since(90_000.0) == 90_000.0
    assert since(99_990.0) == 99_940.0
    assert since(50_000.0) == 56_800.0
    assert since(99_990.0, last=30.0) == 99_970.0


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
