"""Numbers of queues: what `Client.get_statistics`, `blueque stats` and `blueque failures` tell."""

from __future__ import annotations

import collections
import json
import math
import re
import time

import pytest
from click.testing import CliRunner
from hypothesis import given, strategies
from transactions import protocol

from blueque import InvalidInput, InvalidType
from blueque.cli.main import blueque
from blueque.cli.options import Invocation
from blueque.cli.verbs.stats import drawn
from blueque.errors import ConfigRefused
from blueque.model import histogram, keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.encoding import day_of
from blueque.protocol.ends import End
from blueque.queries import statistics
from blueque.settings.contents import Config
from blueque.settings.file import parse

Q, NODE = "video", "host_1"
DAY = 86400.0
# of today: the numbers of a day long past are gone at once
NOON = time.time() // DAY * DAY + DAY / 2


@pytest.fixture
def ended(redis):
    """Have a task wait and run for so many seconds, and end at noon of a day so many days ago;
    return its id.
    """
    protocol.register(redis, Q, NODE, "i1", {}, now=0.5)
    count = iter(range(1000))

    def ended(wait, ran, ago=0, error_type=None, queue=Q, is_last=True):
        task, end = f"{queue}-{next(count)}", NOON - ago * DAY
        protocol.register(redis, queue, NODE, "i1", {}, now=0.5)
        protocol.enqueue(redis, queue, task, "in", end - ran - wait)
        protocol.pop(redis, queue, NODE, "i1")
        protocol.reserve(redis, AttemptRef(queue, task, "token", NODE), "i1", end - ran)
        protocol.start(redis, AttemptRef(queue, task, "token", NODE), 77, end - ran)
        if error_type is None:
            protocol.end(redis, AttemptRef(queue, task, "token", NODE), End.complete("out"), end)
        elif is_last:
            protocol.end(
                redis,
                AttemptRef(queue, task, "token", NODE),
                End.fail(f"{error_type}: no", {"error_type": error_type}),
                end,
            )
        else:
            protocol.end(
                redis,
                AttemptRef(queue, task, "token", NODE),
                End.retry(None, {"last_error_type": error_type}),
                end,
            )
        return task

    return ended


@pytest.fixture
def run(url):
    def run(*arguments):
        result = CliRunner().invoke(blueque, [*arguments, "--utc"], obj=Invocation(url=url))
        return result.exit_code, result.stdout, result.stderr

    return run


def test_counts_means_and_deviations_are_those_of_the_tasks_by_day_and_in_all(redis, cli, ended):
    for wait, ran, ago in [(2.0, 30.0, 0), (4.0, 90.0, 0), (6.0, 7200.0, 2)]:
        ended(wait, ran, ago)
    ended(1.0, 10.0, 1, "ValueError")

    (found,) = statistics.load(redis, [Q], 3, NOON)

    total = found.total
    assert [*found.days] == [day_of(NOON - ago * DAY) for ago in (2, 1, 0)]
    assert [its.complete for its in found.days.values()] == [1, 0, 2]
    assert (total.complete, total.failed, total.failed_share) == (3, 1, 0.25)
    assert (total.waiting.counted, total.waiting.mean) == (4, 13.0 / 4)
    assert total.waiting.deviation == pytest.approx(
        math.sqrt((4 + 16 + 36 + 1) / 4 - (13 / 4) ** 2)
    )
    assert (total.running.counted, total.running.mean) == (3, 7320.0 / 3)
    assert total.errors == {"ValueError": 1}
    assert cli.hget(keys.totals(Q), "error:ValueError") is None


def test_a_quantile_is_right_to_the_width_of_its_bucket(redis, ended):
    times = [3.0 + 37.0 * n * n for n in range(12)]
    for ran in times:
        ended(0.0, ran)

    (found,) = statistics.load(redis, [Q], 1, NOON)

    for share in (0.5, 0.9, 0.95):
        bucket = histogram.bucket(times[math.ceil(share * len(times)) - 1])
        assert (
            histogram.start(bucket) <= found.total.running.quantile(share) <= histogram.end(bucket)
        )
    assert times[-1] <= found.total.running.longest <= histogram.end(histogram.bucket(times[-1]))


def test_days_are_those_of_the_clock_of_redis_and_a_wrong_number_is_refused(client):
    assert [*client.get_statistics(Q, days=1).days] == [day_of(client.get_inspector().now())]
    with pytest.raises(InvalidInput, match="days is 0"):
        client.get_statistics(Q, days=0)
    with pytest.raises(InvalidType):
        client.get_statistics(Q, days=1.5)


def test_what_another_program_has_put_among_the_numbers_is_left_out():
    found = statistics.read_numbers(
        {"complete": "x", "complete_s1": "1", "complete_seconds": "nan", "complete_m99": "2"}
    )

    assert (found.complete, found.running.counted, found.seconds) == (0, 1, {})


@pytest.mark.parametrize("text", ["0", "12h", "36h", "4000d", "long"])
def test_what_is_no_number_of_days_is_refused(monkeypatch, text):
    monkeypatch.setenv("BLUEQUE_STATISTICS_KEEP", text)
    with pytest.raises(InvalidInput, match=r"^BLUEQUE_STATISTICS_KEEP: "):
        Config().of_clients()
    with pytest.raises(ConfigRefused, match=r"^blueque\.toml: statistics\.keep: "):
        parse(f'[statistics]\nkeep = "{text}"')


def test_stats_of_one_queue_are_shown_with_a_histogram_in_words(run, ended):
    for ran in (3.0, 3.5, 1000.0):
        ended(5.25, ran)
    ended(5.0, 1.0, 0, "OSError")

    code, out, err = run("stats", Q)

    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert (code, lines[0]) == (0, "done 3 failed 1 (25.0 %) retried 0 lost 0 cancelled 0")
    assert lines[1] == "COUNT MEAN +- p50 p90 p95 MAX"
    assert lines[2].startswith("waited 4 5.2 s 0.1 s")
    assert lines[3].startswith("ran 3 5 m 35 s 7 m 49 s 3.8 s")
    assert lines[3].endswith("< 17 m")
    assert lines[5:] == [
        "ran 2 s - 4 s 2",
        "4 s - 8 s 0",
        "8 s - 15 s 0",
        "15 s - 30 s 0",
        "30 s - 1 m 0",
        "1 m - 2 m 0",
        "2 m - 4 m 0",
        "4 m - 8 m 0",
        "8 m - 15 m 0",
        "15 m - 30 m 1",
    ]
    assert err.startswith("since ") and err.endswith(" 00:00 UTC, 7 days\n")


def test_what_took_less_than_a_second_is_not_said_to_take_longer_than_its_mean(run, ended):
    for _ in range(3):
        ended(0.0, 0.0)

    one, several = run("stats", "-q", Q)[1], run("stats")[1]
    found = json.loads(run("stats", "--json", Q)[1])["items"][0]["running"]

    assert " ".join(one.splitlines()[3].split()) == "ran 3 0.0 s 0.0 s < 1 s < 1 s < 1 s < 1 s"
    assert several.count("< 1 s") >= 3
    assert (found["mean_seconds"], found["p50_seconds"]) == (0.0, 0.0)
    assert found["longest_seconds"] == 0.0


def test_quantiles_and_the_longest_are_within_what_mean_and_deviation_allow(run, ended):
    ended(0.0, 0.007)

    (one,) = json.loads(run("stats", "--json", Q)[1])["items"]
    for ran in (0.006, 0.007, 0.008, 0.009):
        ended(0.0, ran)
    (several,) = json.loads(run("stats", "--json", Q)[1])["items"]

    names = ("p50_seconds", "p90_seconds", "p95_seconds", "longest_seconds")
    assert [one["running"][name] for name in names] == pytest.approx([0.007] * 4, abs=1e-4)
    quantiles = [several["running"][name] for name in names]
    assert quantiles == sorted(quantiles)
    assert 0.006 <= quantiles[0] <= 0.009 <= quantiles[-1] < 0.012


@given(
    strategies.lists(strategies.floats(0, 4000), min_size=1, max_size=30), strategies.floats(0, 1)
)
def test_what_a_share_did_not_exceed_is_in_its_bucket_whatever_was_counted(times, share):
    times.sort()
    counts = collections.Counter(map(histogram.bucket, times))
    mean = math.fsum(times) / len(times)
    deviation = math.sqrt(
        max(math.fsum(time * time for time in times) / len(times) - mean * mean, 0.0)
    )
    found = statistics.Durations(len(times), mean, deviation, counts)

    true = times[max(math.ceil(share * len(times)) - 1, 0)]
    assert (
        histogram.start(histogram.bucket(true))
        <= found.quantile(share)
        <= histogram.end(histogram.bucket(true))
    )
    assert found.quantile(share) <= found.longest + 1e-6
    assert found.longest >= times[-1] - 1e-3 * (1 + times[-1])


def test_a_histogram_has_bars_on_a_terminal_only(monkeypatch):
    buckets = {histogram.bucket(3): 20, histogram.bucket(5): 1}

    assert not any("#" in line for line in drawn("ran", buckets))
    monkeypatch.setattr("blueque.cli.printing.is_terminal", lambda: True)
    assert [line.count("#") for line in drawn("ran", buckets)] == [40, 2]
    assert all(
        len(line) < 80 for line in drawn("ran", dict.fromkeys(range(len(histogram.NAMES)), 10**9))
    )


def test_stats_of_several_queues_are_a_table_and_as_json_have_every_day(run, ended):
    ended(5.0, 3.0)
    ended(5.0, 3.0, queue="audio")

    code, out, _ = run("stats")

    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["QUEUE", "audio", "video"]
    found = json.loads(run("stats", "vid*", "--since", "2d", "--json")[1])
    assert (found["kind"], found["days"]) == ("statistics", 2)
    (item,) = found["items"]
    assert (item["queue"], item["complete"], len(item["by_day"])) == (Q, 1, 2)
    assert item["running"]["mean_seconds"] == 3.0
    assert item["running"]["histogram"] == [{"from_seconds": 3.0, "count": 1}]
    assert run("stats", "nobody")[0] == 3
    assert run("stats", "--since", "12h")[0] == 2


def test_queues_of_failures_are_named_either_way(run, ended):
    ended(0.0, 1.0, 0, "OSError")
    ended(0.0, 1.0, 0, "ValueError", queue="audio")

    kinds = [
        [item["error_type"] for item in json.loads(run("failures", "--json", *queues)[1])["items"]]
        for queues in (["audio"], ["-q", "aud*"], [Q, "--queue", "audio"])
    ]

    assert [sorted(one) for one in kinds] == [
        ["ValueError"],
        ["ValueError"],
        ["OSError", "ValueError"],
    ]


def test_it_is_said_of_how_many_kinds_of_failures_no_commands_are_shown(run, ended, monkeypatch):
    monkeypatch.setattr("blueque.cli.printing.is_terminal", lambda: True)
    for kind in range(6):
        ended(0.0, 1.0, 0, f"mine.Error{kind}")

    said = run("failures")[2].splitlines()

    assert sum("requeue -q" in line for line in said) == 5
    assert said[-1] == "(and likewise for 1 more kind)"


def test_of_many_failures_the_newest_are_looked_at_and_that_is_said(run, ended, monkeypatch):
    monkeypatch.setattr("blueque.queries.failures.MAX_FAILED", 2)
    monkeypatch.setattr("blueque.queries.failures.LEAST_FAILED", 2)
    for _ in range(3):
        ended(0.0, 1.0, 0, "OSError")

    _, out, err = run("failures")

    assert out.splitlines()[1].split()[2:4] == ["3", "2"]
    assert err == f"Only the newest 2 failed tasks were read: {Q}\n"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("exit code 3:\nstarting\nno space left\n", "exit code 3: no space left"),
        ("exit code 3:\n" + "starting\n" * 50 + "no space left", "exit code 3: no space left"),
        ("exit code 3:\n", "exit code 3"),
        ("exit code 3", "exit code 3"),
    ],
)
def test_of_a_program_that_failed_the_last_line_is_shown(run, cli, ended, error, shown):
    cli.hset(keys.task(ended(0.0, 1.0, 0, "exit")), "error", error)

    assert run("failures")[1].splitlines()[1].endswith(f"  {shown}")


def test_of_a_task_that_does_not_tell_how_far_it_is_it_is_shown_how_long_others_ran(
    run, redis, cli, ended
):
    for minutes in (3, 3, 3, 4, 5, 5, 5):
        ended(0.0, minutes * 60.0 + 30.0)
    protocol.enqueue(redis, Q, "t1", "in", time.time())
    protocol.pop(redis, Q, NODE, "i1")
    protocol.reserve(redis, AttemptRef(Q, "t1", "token", NODE), "i1", time.time())
    protocol.start(redis, AttemptRef(Q, "t1", "token", NODE), 77, time.time())
    cli.zadd(f"blueque_nodes_{Q}", {NODE: time.time()})

    assert re.search(r"t1 .* usual 3 m 40 s - 5 m 20 s ", run("status")[1])
    assert "3 m 40 s - 5 m 20 s: the range of half of" in run("show", "t1")[1]
    assert "Usual 3 m 40 s - 5 m 20 s: the range of half of" in run("why", "t1")[1]
    low, high = json.loads(run("show", "t1", "--json")[1])["item"]["usual_seconds"]
    assert 180 <= low <= 240 and 300 <= high <= 360
    cli.hset(keys.task("t1"), mapping={"progress": "50 %", "progress_at": time.time()})
    assert "usual" not in (run("status")[1] + run("show", "t1")[1] + run("why", "t1")[1]).lower()
