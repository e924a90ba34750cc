"""The benchmark: what it makes of numbers, and one tiny run of a case with Blueque alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import redis as redis_py

from bench import cases, looking, producing, raw, report, rounds, systems, telling, working
from bench.case import Case, Target
from bench.load import Quiet, busy_share
from bench.setting import Bench, Outcome, open_stage, reason
from bench.stage import RunFailed, last_line
from blueque import Client

State = Callable[[], dict[str, Any]]

CASE = Case(
    "drain", "Drain", "About it.", lambda bench: Outcome(), [("rate", "tasks/s")], "rate",
    [
        Target("drain", "1.1 x blueque 1.0.0", 1.1, True, ("blueque", "rate"), ("blueque_1_0_0", "rate")),
        Target("drain", "300 tasks/s", 300, False, ("blueque", "rate")),
        Target("drain", "2.5 x RQ", 2.5, True, ("blueque", "rate"), ("rq", "rate")),
    ],
)
NUMBERS = {
    "rounds": 3, "scale": 1.0, "load": [0.0, 0.02, 0.04], "failed": {"rq": "not installed: no index"}, "samples": {},
    "rows": {"blueque": {"rate": [240.0, 250.0, 320.0]}, "blueque_1_0_0": {"rate": [200.0, 250.0, 200.0]}},
}


def test_each_system_is_the_first_in_one_round() -> None:
    orders = [rounds.rotated("abc", number) for number in range(4)]

    assert orders == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(1, 101)]

    assert [rounds.percentile(values, percent) for percent in (50, 95, 99, 100)] == [50, 95, 99, 100]
    assert rounds.percentile([7.0], 99) == 7.0


def test_a_ratio_is_taken_within_each_round() -> None:
    assert rounds.ratios([10.0, 30.0, 5.0], [5.0, 10.0]) == [2.0, 3.0]


def test_a_number_is_shown_with_the_digits_that_count() -> None:
    shown = [rounds.shown(value) for value in (0, 0.0123, 0.944, 9.996, 12.34, 99.96, 184.4, 12_345, 184_321, 1_234_567)]

    assert shown == ["0", "0.012", "0.94", "10.0", "12.3", "100", "184", "12,300", "184,300", "1,235,000"]


def test_a_spread_names_the_median_and_both_ends() -> None:
    assert rounds.spread([3.0, 1.0, 2.0]) == "2.00 (1.00 – 3.00)"
    assert rounds.spread([3.0]) == "3.00"


def test_a_target_is_judged_by_the_median_of_its_ratios() -> None:
    at_least, at_most, without_numbers = CASE.targets

    assert report.judge(at_least, NUMBERS) == ([1.2, 1.0, 1.6], "met")
    assert report.judge(at_least._replace(bound=1.3), NUMBERS) == ([1.2, 1.0, 1.6], "**not met**")
    assert report.judge(at_least._replace(bound=None), NUMBERS) == ([1.2, 1.0, 1.6], "")
    assert report.judge(at_most, NUMBERS) == ([240.0, 250.0, 320.0], "met")
    assert report.judge(without_numbers, NUMBERS) is None


def test_the_page_says_what_was_met_and_what_is_missing() -> None:
    page = report.page({"cores": "2"}, {"RQ": "3.0.0"}, [CASE], {"drain": NUMBERS}, "## A note\n\nBecause.\n")

    assert "| drain | at least 1.1 x blueque 1.0.0 | 1.20 (1.00 – 1.60) x | met |" in page
    assert "| drain | at least 2.5 x RQ | – | not measured |" in page
    assert "| Blueque, a process per task, exit record synced to the disk | 250 (240 – 320) |  |" in page
    assert "| Blueque 1.0.0, a process per task | 200 (200 – 250) | 1.20 (1.00 – 1.60) |" in page
    assert "- RQ is missing: not installed: no index" in page
    assert "*3 rounds; others used 2 % of the machine before a run, at most 4 %.*" in page
    assert "## A note\n\nBecause." in page


def test_a_case_that_was_not_measured_is_not_on_the_page() -> None:
    page = report.page({}, {}, [CASE._replace(name="other", title="The other"), CASE], {"drain": NUMBERS}, "")

    assert "The other" not in page


def test_the_plots_get_names_and_numbers_alone() -> None:
    (drawing,) = report.drawings([CASE], {"drain": NUMBERS})

    assert drawing["series"] == [["Blueque", [240.0, 250.0, 320.0]], ["Blueque 1.0.0", [200.0, 250.0, 200.0]]]
    assert json.loads(json.dumps(drawing)) == drawing


def test_each_target_is_about_a_row_and_a_metric_of_its_case() -> None:
    keys = {system.key for system in systems.SYSTEMS}
    for case in cases.CASES:
        metrics = {metric for metric, _ in case.columns}
        for target in case.targets:
            for row, metric in filter(None, [target.ours, target.theirs]):
                assert row in keys | set(case.rows)
                assert metric in metrics


def test_a_busy_machine_is_waited_for_no_longer_than_agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.load.busy_share", lambda: 0.9)
    monkeypatch.setattr("bench.load.CHECK_AGAIN", 0.01)
    quiet = Quiet(patience=0.5)

    quiet.wait()

    assert quiet.seen == [0.9]
    assert quiet.patience <= 0


def test_the_load_is_a_share_of_the_machine() -> None:
    assert 0.0 <= busy_share(0.02) <= 1.0


def test_one_that_fails_says_why_and_does_not_stop_the_others() -> None:
    with open_stage() as stage:
        bench = Bench(stage, [], rounds=2, scale=1.0, quiet=Quiet(0.0))
        outcome = bench.outcome()

        def fail() -> dict[str, float]:
            raise RunFailed("it has no wings")

        bench.in_turn(outcome, {"pig": fail, "bird": lambda: {"rate": 1.0}})

    assert outcome.failed == {"pig": "it has no wings"}
    assert outcome.rows == {"bird": {"rate": [1.0, 1.0]}}


def test_a_complaint_is_the_last_line_that_says_something() -> None:
    assert last_line(b"Traceback:\n  ValueError: no\n\n") == "ValueError: no"


def test_a_reason_names_no_directory_of_this_machine() -> None:
    error = FileNotFoundError(2, "No such file or directory", "/opt/somewhere/bin/rq")

    assert reason(error) == "[Errno 2] No such file or directory: 'rq'"
    assert reason(RunFailed("")) == "RunFailed"


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


def test_a_tiny_run_of_blueque_alone_brings_numbers() -> None:
    with open_stage() as stage:
        bench = Bench(stage, systems.SYSTEMS[:1], rounds=1, scale=0.01, quiet=Quiet(0.0))
        enqueued, drained, picked = producing.enqueue(bench), working.drain(bench), working.pickup(bench)

    assert enqueued.failed == drained.failed == picked.failed == {}
    assert enqueued.rows["blueque"]["rate"][0] > 0 and enqueued.rows["raw"]["rate"][0] > 0
    assert drained.rows["blueque"]["rate"][0] > 0 and drained.rows["forks"]["rate"][0] > 0
    assert len(picked.samples["blueque"]) == 3


def test_looks_and_help_are_measured_from_the_start_of_a_program_to_its_end() -> None:
    with open_stage() as stage:
        bench = Bench(stage, [], rounds=1, scale=0.0001, quiet=Quiet(0.0))
        looks, helps = looking.overview(bench), looking.help_of_verbs(bench, ["status", "config"])

    assert looks.failed == helps.failed == {}
    assert all(its["whole"][0] > its["p50"][0] > 0 for its in looks.rows.values()) and len(looks.rows) == 2
    assert helps.rows["verb"]["p50"][0] > helps.rows["pass"]["p50"][0] > 0
    assert helps.facts["slowest"] in ("status", "config")


def test_what_tasks_tell_is_measured_beside_what_it_takes_without() -> None:
    with open_stage() as stage:
        bench = Bench(stage, [], rounds=1, scale=0.0001, quiet=Quiet(0.0))
        printed, told = telling.printing(bench), telling.reporting(bench)

    assert printed.failed == told.failed == {}
    assert [its["rate"][0] > 0 for its in printed.rows.values()] == 4 * [True]
    beats, progress, both = (told.rows[row]["commands"][0] for row in ("beats", "progress", "both"))
    assert beats < progress < both


def shape(found: dict[str, Any]) -> list[Any]:
    """Return keys and fields without ids and times."""
    known = []
    for key, value in found.items():
        if key.startswith("blueque_task_"):
            known.append(("task", sorted(value), value["status"], value["queue"], value["parameters"]))
        else:
            known.append((key, type(value).__name__, len(value)))
    return sorted(known, key=str)
