"""bs.report: what it tells is what the rows say. How that is drawn is tested without Spark."""

from __future__ import annotations

import random
import re
import sys
from collections import Counter

import pytest

import blueque
import blueque.spark as bs
from blueque import ArchiveRefused, InvalidInput
from blueque.report import lanes
from blueque.report.summary import Bar
from blueque.spark import summaries
from spark.frames import FIELDS, frame
from spark.seeds import seed

DAY = 86400
MIDNIGHT = 1795132800.0  # 20 November 2026, in UTC
EVIL = "<script>alert('x')</script>\"&\x00 q`uo'te ünï"


def made_up(count=400, seed=3):
    """Return tasks of a farm, some of them hostile, of 1.0.0, or of a clock that was wrong by
    years.
    """
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        finished = MIDNIGHT + chance.uniform(-2 * DAY, DAY)
        status = chance.choices(["complete", "failed", "cancelled"], [80, 15, 5])[0]
        row = {
            "task_id": f"task-{number}",
            "queue": chance.choice(["a", "b", EVIL, None]),
            "status": status,
            "created": finished - 900,
            "updated": finished,
        }
        if number % 10:
            row |= {
                "started": finished - chance.uniform(1, 800),
                "finished": finished,
                "attempts": 1 + number % 2,
                "node": f"host-{number % 3}.farm_{number % 7}",
            }
        if status == "failed":
            row |= {"error": EVIL * 30, "error_type": chance.choice(["ValueError", EVIL, None])}
        rows.append(row)
    rows.append(
        {
            "task_id": "of 1970",
            "queue": "a",
            "status": "complete",
            "started": 0.0,
            "finished": 5.0,
            "node": "old_1",
        }
    )
    rows.append(
        {"task_id": "of 9999", "queue": "a", "status": "complete", "finished": 253402300799.0}
    )
    rows.append({"task_id": "of no day", "queue": "b", "status": "pending"})
    return rows


ROWS = made_up()
IN_DAYS = [row for row in ROWS if not row["task_id"].startswith("of")]
DRAWN = [row for row in ROWS if "node" in row and row["task_id"] != "of 1970"]


def host(row):
    return row["node"].rpartition("_")[0]


@pytest.fixture(scope="module")
def table(spark):
    """The rows, read once."""
    found = frame(spark, ROWS, FIELDS).persist()
    yield found
    found.unpersist()


@pytest.fixture(scope="module")
def told(table):
    return summaries.summarise(table, "title", "source", 7.0)


def test_the_headline_counts_every_task_and_measures_those_with_times(told):
    statuses = Counter(row["status"] for row in ROWS)
    ran = [row["finished"] - row["started"] for row in ROWS if "started" in row]

    assert (told.title, told.source, told.made) == ("title", "source", 7.0)
    assert (told.total.n, told.total.others) == (403, 1)
    assert told.total[3:6] == tuple(
        statuses[status] for status in ("complete", "failed", "cancelled")
    )
    assert told.total.retried == sum(row.get("attempts", 0) > 1 for row in ROWS)
    assert told.total.run.n == len(ran)
    assert told.total.work == pytest.approx(sum(ran))


def test_days_far_from_all_others_are_not_drawn_but_counted(told):
    days = Counter(int(row["updated"] // DAY) for row in IN_DAYS)

    assert [(group.day, group.n) for group in told.days] == sorted(days.items())
    assert told.strays == 3


def test_each_queue_has_its_days_and_its_run_times(told):
    assert {group.queue: group.n for group in told.queues} == Counter(row["queue"] for row in ROWS)
    assert told.all_queues == 4
    assert {*told.by_day} == {*told.run_times} == {"a", "b", EVIL}
    for queue in told.by_day:
        theirs = [row for row in IN_DAYS if row["queue"] == queue]
        assert {group.day: group.n for group in told.by_day[queue]} == Counter(
            int(row["updated"] // DAY) for row in theirs
        )
        assert sum(told.run_times[queue].values()) == sum(
            row["queue"] == queue and "started" in row for row in ROWS
        )


def test_each_type_of_failure_has_its_newest_message(told):
    failed = [row for row in ROWS if row["status"] == "failed"]
    types = Counter(row["error_type"] or "script" for row in failed)

    assert {failure.error_type: failure.n for failure in told.failures} == types
    assert told.all_types == len(types)
    for failure in told.failures:
        theirs = [row for row in failed if (row["error_type"] or "script") == failure.error_type]
        newest = max(theirs, key=lambda row: row["updated"])
        queues = Counter(row["queue"] for row in theirs if row["queue"])
        assert (failure.task_id, failure.error) == (newest["task_id"], newest["error"][:300])
        assert failure.queues == len(queues)
        assert failure.last == pytest.approx(newest["updated"])
        assert queues[failure.queue] == max(queues.values())


def test_each_run_of_those_days_is_a_bar_of_its_host(told):
    drawn = told.timeline
    bars = {(bar.task_id, bar.status, bar.node) for bars in drawn.bars.values() for bar in bars}

    assert [(it.name, it.nodes, it.n) for it in drawn.hosts] == [
        (f"host-{n}.farm", 7, sum(host(row) == f"host-{n}.farm" for row in DRAWN)) for n in range(3)
    ]
    assert drawn.more == 0
    assert drawn.since == pytest.approx(min(row["started"] for row in DRAWN))
    assert drawn.until == pytest.approx(max(row["finished"] for row in DRAWN))
    assert bars == {(row["task_id"], row["status"], row["node"]) for row in DRAWN}


def test_what_ran_at_the_same_time_is_added_up_in_spark_as_it_is_in_python(table, monkeypatch):
    monkeypatch.setattr(summaries, "BARS", 0)
    monkeypatch.setattr(summaries, "HOSTS", 2)
    rows = summaries._rows(table)
    days = summaries._main_days(summaries._groups(rows.where("day > 0 and day < 30000"), ("day",)))

    told = summaries._timeline(rows, days)

    work = Counter()
    for row in DRAWN:
        work[host(row)] += row["finished"] - row["started"]
    most = sorted(name for name, _ in work.most_common(2))
    assert [it.name for it in told.hosts] == sorted(told.profiles) == most
    assert told.more == 1
    assert not told.bars
    for name in most:
        bars = [
            Bar(row["started"], row["finished"], row["status"])
            for row in DRAWN
            if host(row) == name
        ]
        steps = len(told.profiles[name]["complete"])
        expected = lanes.profile(bars, told.since, told.step, steps)
        assert told.profiles[name] == {
            status: pytest.approx(values, abs=1e-5) for status, values in expected.items()
        }


def test_a_report_of_an_archive_is_one_file_written_as_a_whole(spark, client, url, tmp_path):
    seed(url, "render", 20, spread=DAY)
    seed(url, "render", 3, "failed", first=20)
    blueque.archive("render", tmp_path / "archive", client=client)
    path = tmp_path / "report.html"
    path.write_text("an older one")

    written = bs.report(spark, tmp_path / "archive", path, title=f"Farm {EVIL}")

    assert written == path
    assert sorted(tmp_path.iterdir()) == [tmp_path / "archive", path]
    text = path.read_text(encoding="utf-8")
    said = " ".join(re.sub("<[^>]*>", " ", text).split())
    assert f"archive {tmp_path}/archive · 2026-11-19 to 2026-11-20" in said
    assert "Tasks 23 in 1 queue Failed 3 13 %" in said
    assert (
        "Farm &lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&#34;&amp;\\x00 q`uo&#39;te ünï"
        in text
    )
    assert "<script" not in text


def test_without_jinja2_a_report_says_what_to_install_and_the_rest_works(monkeypatch):
    for module in ("blueque.report.page", "blueque.spark.reporting"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.delitem(vars(bs), "report", raising=False)
    monkeypatch.setitem(sys.modules, "jinja2", None)

    with pytest.raises(blueque.NotInstalled, match=r"report needs jinja2.*'\.\[spark\]'"):
        getattr(bs, "report")  # noqa: B009
    assert callable(bs.stats)


def test_what_cannot_become_a_report_is_refused_before_anything_is_computed(spark, tmp_path):
    with pytest.raises(InvalidInput, match=r"no directory '.*absent' for 'report.html'"):
        bs.report(spark, frame(spark, [], FIELDS), tmp_path / "absent" / "report.html")
    with pytest.raises(InvalidInput, match="no column 'attempts', 'node'"):
        bs.report(spark, frame(spark, [], ("task_id", "queue", "status")), tmp_path / "report.html")
    with pytest.raises(ArchiveRefused):
        bs.report(spark, tmp_path / "missing", tmp_path / "report.html")
    assert [*tmp_path.iterdir()] == []
