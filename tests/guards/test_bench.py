"""The benchmark: what it makes of numbers, and one tiny run of a case with Blueque alone."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from bench import (
    against,
    cases,
    comparing,
    cpu,
    dashboards,
    full,
    looking,
    producing,
    raw,
    report,
    rounds,
    selecting,
    sides,
    soaks,
    systems,
    telling,
    watching,
    working,
)
from bench.case import Case, Target
from bench.load import Quiet
from bench.setting import Bench, Outcome, open_stage
from bench.stage import RunFailed
from blueque import Client

State = Callable[[], dict[str, Any]]

CASE = Case(
    "drain",
    "Drain",
    "About it.",
    lambda bench: Outcome(),
    [("rate", "tasks/s")],
    "rate",
    [
        Target(
            "drain",
            "1.1 x blueque 1.0.0",
            1.1,
            True,
            ("blueque", "rate"),
            ("blueque_1_0_0", "rate"),
        ),
        Target("drain", "300 tasks/s", 300, False, ("blueque", "rate"), why="200 was hoped for"),
        Target("drain", "2.5 x RQ", 2.5, True, ("blueque", "rate"), ("rq", "rate")),
    ],
)
NUMBERS = {
    "rounds": 3,
    "scale": 1.0,
    "load": [0.0, 0.02, 0.04],
    "failed": {"rq": "not installed: no index"},
    "samples": {},
    "again": {"blueque": {"rate": [250.0, 250.0, 336.0]}},
    "rows": {
        "blueque": {"rate": [240.0, 250.0, 320.0]},
        "blueque_1_0_0": {"rate": [200.0, 250.0, 200.0]},
    },
}


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(1, 101)]

    assert [rounds.percentile(values, percent) for percent in (50, 95, 99, 100)] == [
        50,
        95,
        99,
        100,
    ]
    assert rounds.percentile([7.0], 99) == 7.0


def test_a_ratio_is_taken_within_each_round() -> None:
    assert rounds.ratios([10.0, 30.0, 5.0], [5.0, 10.0]) == [2.0, 3.0]


def test_a_target_is_judged_by_the_median_of_its_ratios() -> None:
    at_least, at_most, without_numbers = CASE.targets

    assert report.judge(at_least, NUMBERS) == ([1.2, 1.0, 1.6], "met")
    assert report.judge(at_least._replace(bound=1.3), NUMBERS) == ([1.2, 1.0, 1.6], "not met")
    assert report.judge(at_most, NUMBERS) == ([240.0, 250.0, 320.0], "met")
    assert report.judge(without_numbers, NUMBERS) is None


def test_the_page_says_what_was_met_and_what_is_missing() -> None:
    case = CASE._replace(question="How many?\nSo many.")

    page = report.page({"cores": "2"}, {"RQ": "3.0.0"}, [case], {"drain": NUMBERS})

    promised = "| drain | ≥ 1.1 x blueque 1.0.0 | 1.20 (1.00–1.60) x |\n"
    assert "2 of 3 promises are met." in page and promised not in page
    assert "**Not measured:**\n\n| case | promised |" in page and "| drain | ≥ 2.5 x RQ |\n" in page
    main = report.promises([CASE._replace(name="idle")], {"idle": NUMBERS})
    assert main[-2] == "**Met, among others:**" and promised in main[-1]
    listed = report.promises_csv([case], {"drain": NUMBERS})
    assert "drain,≥ 1.1 x blueque 1.0.0,1.2,1,1.6,x,met\n" in listed
    assert "drain,≥ 2.5 x RQ,,,,x,not measured\n" in listed
    compared = report.targets([case], {"drain": NUMBERS})
    assert f"{promised.strip()} 1.04 (1.00–1.05) x | met |" in compared
    assert (
        "| Blueque, a process per task, exit record synced to the disk | 250 (240–320) |  |" in page
    )
    assert "| Blueque 1.0.0, a process per task | 200 (200–250) | 1.20 (1.00–1.60) |" in page
    assert "- RQ is missing: not installed: no index" in page
    assert "*3 rounds; others used 2 % of the machine before a run, at most 4 %.*" in page


def test_the_page_has_what_long_runs_have_found() -> None:
    run = {
        "minutes": 120.3,
        "redis": "7.0.15",
        "faults": {"kill_redis": 1000, "cut_network": 34},
        "tasks": 90000,
        "starts": 91000,
        "lost": 0,
        "doubled": 1,
        "rows": [["page", "memory", 1 << 25, 1 << 25, 1 << 26, 2048.0]],
        "wrong": ["task x was started 2 times"],
    }

    page = report.page({}, {}, [], {}, soaks.part({"tls-sentinel": run}))

    assert "| faults | 1,034 |" in page
    assert "| page: memory, MiB | 32.0, 32.0, 64.0 |" in page
    assert "- task x was started 2 times" in page
    told = soaks.part({"tls-sentinel": {**run, "remark": "It was loaded."}})
    assert "(`soak-tls-sentinel.json` has the lines):\n\nIt was loaded." in told
    assert "one server" not in page
    assert "hours of faults" not in report.page({}, {}, [], {}, soaks.part({}))


def test_what_is_promised_runs_twice_in_each_round_and_is_kept_apart() -> None:
    with open_stage() as stage:
        bench = Bench(stage, [], rounds=2, scale=1.0, quiet=Quiet(0.0))
        bench.twice, outcome, ran = frozenset(["pig"]), Outcome(), []

        def run(row: str) -> dict[str, float]:
            ran.append(row)
            outcome.samples.setdefault(row, []).append(len(ran))
            return {"rate": float(len(ran))}

        bench.in_turn(outcome, {"pig": lambda: run("pig"), "bird": lambda: run("bird")})

    assert ran == ["pig", "bird", "pig", "bird", "pig", "pig"]
    assert outcome.rows == {"pig": {"rate": [1.0, 6.0]}, "bird": {"rate": [2.0, 4.0]}}
    assert outcome.again == {"pig": {"rate": [3.0, 5.0]}}
    assert outcome.samples == {"pig": [1, 6], "bird": [2, 4]}


def test_each_target_is_about_a_row_and_a_metric_of_its_case() -> None:
    keys = {system.key for system in systems.SYSTEMS}
    for case in cases.CASES:
        metrics = {metric for metric, _ in case.columns}
        for target in case.targets:
            for row, metric in filter(None, [target.ours, target.theirs]):
                assert row in keys | set(case.rows)
                assert metric in metrics


def test_a_busy_machine_is_waited_for_no_longer_than_agreed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bench.load.busy_share", lambda: 0.9)
    monkeypatch.setattr("bench.load.CHECK_AGAIN", 0.01)
    quiet = Quiet(patience=0.5)

    quiet.wait()

    assert quiet.seen == [0.9]
    assert quiet.patience <= 0


def test_one_that_fails_says_why_and_does_not_stop_the_others() -> None:
    with open_stage() as stage:
        bench = Bench(stage, [], rounds=2, scale=1.0, quiet=Quiet(0.0))
        outcome = bench.outcome()

        def fail() -> dict[str, float]:
            raise RunFailed("it has no wings")

        bench.in_turn(outcome, {"pig": fail, "bird": lambda: {"rate": 1.0}})

    assert outcome.failed == {"pig": "it has no wings"}
    assert outcome.rows == {"bird": {"rate": [1.0, 1.0]}}


@pytest.mark.parametrize("size", [1, 2])
def test_the_raw_limit_leaves_in_redis_what_enqueue_leaves(
    client: Client, url: str, cli: redis_py.Redis, state: State, size: int
) -> None:
    raw.send(url, raw.ours("bench", 2, size, "x"), 2)
    by_hand = state()
    cli.flushall()
    for _ in range(2):
        client.get_queue("bench").enqueue("x")

    assert shape(by_hand) == shape(state())


@pytest.mark.parametrize(("fields", "group"), [("IN_GROUP", "bench"), ("WITHOUT_GROUP", None)])
def test_the_raw_limit_of_keyed_tasks_writes_the_fields_of_ours(
    client: Client, url: str, cli: redis_py.Redis, fields: str, group: str | None
) -> None:
    def task() -> dict[str, str]:
        (name,) = cli.keys("blueque_task_*")
        found: dict[str, str] = cli.hgetall(name)
        return found | {mark: "" for mark in ("created", "updated", "enqueued_by") if mark in found}

    raw.send(url, producing.records(1, getattr(producing, fields)), 2)
    by_hand = task()
    cli.flushall()
    client.get_queue("bench").enqueue_many([producing.ROW], keys="scene", group=group)

    assert task() == by_hand


def test_a_tiny_run_of_blueque_alone_brings_numbers() -> None:
    with open_stage() as stage:
        bench = Bench(stage, systems.SYSTEMS[:1], rounds=1, scale=0.01, quiet=Quiet(0.0))
        enqueued, keyed = producing.enqueue(bench), producing.keyed(bench)
        drained = working.drain(bench)
        picked = working.pickup(bench)

    assert enqueued.failed == drained.failed == picked.failed == {}
    assert enqueued.rows["blueque"]["rate"][0] > 0 and enqueued.rows["raw"]["rate"][0] > 0
    assert keyed.failed == {} and all(its["rate"][0] > 0 for its in keyed.rows.values())
    assert keyed.rows.keys() == {"group", "keys", "raw_group", "raw_keys", "raw"}
    assert drained.rows["blueque"]["rate"][0] > 0 and drained.rows["forks"]["rate"][0] > 0
    assert len(picked.samples["blueque"]) == 3


def test_looks_and_help_are_measured_from_the_start_of_a_program_to_its_end() -> None:
    with open_stage() as stage:
        bench = Bench(stage, [], rounds=1, scale=0.0001, quiet=Quiet(0.0))
        looks, helps = looking.overview(bench), looking.help_of_verbs(bench, ["status", "config"])
        queues = looking.many_queues(bench)

    assert looks.failed == helps.failed == queues.failed == {}
    rows = [*looks.rows.values(), *queues.rows.values()]
    assert len(rows) == 4 and all(its["whole"][0] > its["p50"][0] > 0 for its in rows)
    assert helps.rows["verb"]["p50"][0] > helps.rows["pass"]["p50"][0] > 0
    assert {"import", "producer", "help"} < helps.rows.keys()
    assert helps.facts["slowest"] in ("status", "config")


def test_pages_and_their_viewers_are_measured() -> None:
    with open_stage() as stage:
        bench = Bench(stage, [], rounds=1, scale=0.005, quiet=Quiet(0.0))
        made, seen = watching.pages(bench), watching.viewers(bench)

    assert made.failed == seen.failed == {}
    assert made.rows.keys() == watching.PAGES.keys()
    for its in made.rows.values():
        assert its["all"][0] < 100 and its["requests"][0] < 10 and its["cold"][0] > 0
    commands = {row: its["commands"][0] for row, its in seen.rows.items()}
    assert commands["none"] == commands["left"] == 0 < commands["one"]
    assert seen.rows["many"]["received"][0] > 10 * seen.rows["one"]["received"][0]


def test_a_page_is_measured_as_other_dashboards_are(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {"blueque": dashboards.DASHBOARDS["blueque"]}
    monkeypatch.setattr(dashboards, "DASHBOARDS", ours)
    with open_stage() as stage:
        measured = dashboards.dashboards(Bench(stage, [], 1, 0.005, Quiet(0.0)))

    assert measured.failed == {}
    its = measured.rows["blueque"]
    assert its["overview"][0] > 0 and its["listed_cpu"][0] > 0
    assert 0 < its["many"][0] < 10 * its["one"][0]  # and not fifty times


def test_a_full_redis_is_measured_beside_one_that_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full, "WARM_UP", 4)
    monkeypatch.setattr(full, "SOON", 0.5)
    with open_stage() as stage:
        bench = Bench(stage, [], rounds=1, scale=0.01, quiet=Quiet(0.0))
        drained, scheduled = full.drain(bench), full.scheduler(bench)

    assert drained.failed == scheduled.failed == {}
    assert all(row["all"][0] > row["redis"][0] > 0 for row in drained.rows.values())
    assert all(row["cost"][0] > 0 and row["p99"][0] > 0 for row in scheduled.rows.values())
    assert [*drained.rows, *scheduled.rows] == ["empty", "full", "few", "many"]


def test_what_tasks_tell_is_measured_beside_what_it_takes_without() -> None:
    with open_stage() as stage:
        bench = Bench(stage, [], rounds=1, scale=0.0001, quiet=Quiet(0.0))
        printed, told = telling.printing(bench), telling.reporting(bench)

    assert printed.failed == told.failed == {}
    assert [its["rate"][0] > 0 for its in printed.rows.values()] == 4 * [True]
    beats, progress, both = (told.rows[row]["commands"][0] for row in ("beats", "progress", "both"))
    assert beats < progress < both


def test_a_task_of_one_queue_among_several_is_measured_beside_one_of_a_single_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(selecting, "COUNTS", (1, 3))
    monkeypatch.setattr(selecting, "NAMES", ("ordered",))
    with open_stage() as stage:
        bench = Bench(stage, [], rounds=1, scale=0.01, quiet=Quiet(0.0))
        measured = selecting.many_queues(bench)

    assert measured.failed == {}
    assert measured.rows.keys() == {"1 ordered", "3 ordered"}
    for its in measured.rows.values():
        assert its["listener"][0] > 0 and its["redis"][0] > 0 and its["commands"][0] > 20


@pytest.mark.parametrize(("count", "left_out"), [(6, 0), (8, 0), (9, 1), (12, 2), (15, 3), (20, 5)])
def test_an_interval_leaves_out_as_many_values_on_each_side_as_the_sign_test_allows(
    count: int, left_out: int
) -> None:
    values = [float(value) for value in range(count, 0, -1)]

    assert rounds.interval(values) == (1.0 + left_out, count - left_out)


def compared(*ratios: float) -> Outcome:
    """An outcome in which the base costs 200 us in each round, of which the listener has half."""
    rows = {"this": [200 * ratio for ratio in ratios], "base": [200.0] * len(ratios)}
    return Outcome(
        {
            side: {
                "listener": [value / 2 for value in values],
                "all": values,
                "p50": [3.0] * len(values),
            }
            for side, values in rows.items()
        }
    )


@pytest.mark.parametrize(
    ("ratios", "code", "words"),
    [
        (
            [1.031, 1.04, 1.05, 1.06, 1.07, 1.08],
            1,
            "SLOWER: a task costs 1.031 times the CPU or more; 1.03 is allowed.",
        ),
        (
            [1.03, 1.04, 1.05, 1.06, 1.07, 1.08],
            0,
            "Not slower: the interval begins at 1.030; up to 1.03 is allowed.",
        ),
        (
            [0.90, 0.91, 0.92, 0.93, 0.94, 0.95],
            0,
            "Faster: a task costs at most 0.950 times the CPU.",
        ),
        (
            [0.50, 1.00, 1.00, 1.00, 1.00, 1.50],
            0,
            "But the interval is wide: more rounds would tell more.",
        ),
        (
            [2.00, 2.00, 2.00, 2.00, 2.00],
            2,
            "No verdict: a 95 % interval needs six rounds or more.",
        ),
    ],
)
def test_a_commit_is_slower_when_the_whole_interval_is_above_what_is_allowed(
    ratios: list[float], code: int, words: str
) -> None:
    outcome = compared(*ratios)

    assert against.code_of(outcome) == code
    assert words in "\n".join(against.lines_of(comparing.COMPARISONS[3], outcome, "8d233c8"))


def test_two_commits_are_measured_in_one_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"PAIRS": 1, "WARM_UP": 4, "SLOTS": (1, 2)}.items():
        monkeypatch.setattr(comparing, name, value)
    cases = [
        case._replace(metrics={"2": "two"}) if case.name == "memory" else case
        for case in comparing.COMPARISONS
    ]
    monkeypatch.setattr(against, "COMPARISONS", cases)

    code = against.compare(
        "HEAD", ["enqueue", "pickup", "idle", "memory"], rounds=1, scale=0.01, patience=0.0
    )

    out = capsys.readouterr().out
    assert code == 2 and out.count("No verdict") == 4
    assert all(f"\n    {process} " in out for process in against.PROCESSES)


def test_driver_and_listener_of_a_side_run_its_own_package(tmp_path: Path) -> None:
    base = sides.of_commit("HEAD", tmp_path)
    (tmp_path / "blueque" / "__init__.py").write_text("raise SystemExit('this is the base')")

    with open_stage() as stage:
        commands = [[base.python, base.driver, "serve", "one"], *base.workers(stage.place, 1)]
        ended = [
            subprocess.run(command, env=stage.environment(base), capture_output=True, timeout=60)
            for command in commands
        ]
    outcome = comparing.measured(
        comparing.COMPARISONS[0], comparing.Plan([base], 1, 0.01, Quiet(0.0))
    )

    assert str(tmp_path / "blueque-listener") in commands[1]
    assert [program.stderr for program in ended] == [b"this is the base\n"] * 2
    assert outcome.failed == {"enqueue": "this is the base"}


def test_a_commit_that_is_not_there_cannot_be_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert against.compare("no-such-commit", ["drain"], rounds=1, scale=1.0, patience=0.0) == 2
    assert "no-such-commit" in capsys.readouterr().err


def test_the_processor_time_of_a_process_is_read_from_outside() -> None:
    before, found, after = time.process_time(), cpu.of_process(os.getpid()), time.process_time()

    assert before <= found <= after
    assert cpu.of_process(2**22 + 1) == 0.0  # above the largest pid


def shape(found: dict[str, Any]) -> list[Any]:
    """Return keys and fields without ids and times."""
    known = []
    for key, value in found.items():
        if key.startswith("blueque_task_"):
            known.append(
                ("task", sorted(value), value["status"], value["queue"], value["parameters"])
            )
        else:
            known.append((key, type(value).__name__, len(value)))
    return sorted(known, key=str)
