"""`blueque show` of a task that runs: where, since when, how far, and who was last heard of."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner
from transactions import protocol

from blueque.cli.main import blueque
from blueque.cli.options import Invocation
from blueque.errors import TooLarge
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End
from blueque.queries.inspector import Inspector

NODE = "gpu-1.example.com_4021"
ATTEMPT = AttemptRef("video", "abcd-1", "token", NODE)


@pytest.fixture
def shown(url):
    def shown(*arguments):
        return CliRunner().invoke(blueque, ["show", *arguments], obj=Invocation(url=url)).stdout

    return shown


@pytest.fixture
def now(redis, cli):
    """The time at which a task has run for an hour, is half done, told so a minute ago, and printed
    two minutes ago.
    """
    now = Inspector(redis).now()
    protocol.register(redis, "video", NODE, "i", {"beat_every": 10}, now - 30)
    protocol.enqueue(redis, "video", "abcd-1", "1", now - 3720)
    protocol.pop(redis, "video", NODE, "i")
    protocol.reserve(redis, ATTEMPT, "i", now - 3600)
    protocol.start(redis, ATTEMPT, 77, now - 3600)
    protocol.progress(redis, ATTEMPT, "50 % \x1b[2Jenco\x07ding", now - 60)
    cli.xadd(
        "blueque_log_abcd-1", {"attempt": 1, "text": "frame"}, id=f"{int((now - 120) * 1000)}-0"
    )
    return now


@pytest.mark.usefixtures("now")
@pytest.mark.parametrize(
    "line",
    [
        rf"where       {re.escape(NODE)}, pid 77",
        r"started     .*  \(1 h ago, waited 2 m\)",
        r"progress    50 % encoding  \(1 m(?: \d+ s)? ago\)  ~58 m left",
        r"signs       listener [34]\d s ago, progress 1 m(?: \d+ s)? ago, output 2 m(?: \d+ s)? ago",
    ],
)
def test_show_tells_where_a_task_runs_how_far_it_is_and_who_was_last_heard_of(shown, line):
    found = shown("abcd-1")

    assert re.search(f"^{line}$", found, re.MULTILINE), found


def test_the_same_in_json_is_in_numbers(shown, now):
    item = json.loads(shown("abcd-1", "--json"))["item"]

    assert item["left_seconds"] == pytest.approx(3480, abs=70)
    assert (item["beat_seconds"], item["printed_seconds"]) == pytest.approx(
        (now - 30, now - 120), abs=0.01
    )
    assert (item["node"], item["pid"]) == (NODE, 77)


def test_where_the_next_attempt_would_go_on_is_shown(shown, redis, now):
    assert json.loads(shown("abcd-1", "--json"))["item"]["checkpoint"] is None
    protocol.checkpoint(
        redis,
        ATTEMPT,
        1,
        str(now - 3720),
        {"value": '{"frame":223}', "directory": "gpu-1:/s/1"},
        now - 60,
    )

    assert re.search(
        r'^checkpoint  {"frame": 223}, 1 m(?: \d+ s)? ago\n +its directory is at gpu-1:/s/1$',
        shown("abcd-1"),
        re.MULTILINE,
    )
    item = json.loads(shown("abcd-1", "--json"))["item"]["checkpoint"]
    assert (item["value"], item["directory"], item["attempt"]) == ({"frame": 223}, "gpu-1:/s/1", 1)
    assert item["at_seconds"] == pytest.approx(now - 60)


def test_a_checkpoint_of_another_task_of_that_id_is_not_shown(shown, redis, now):
    protocol.checkpoint(redis, ATTEMPT, 1, "5.5", {"value": "223"}, now)

    assert "checkpoint" not in shown("abcd-1")
    assert json.loads(shown("abcd-1", "--json"))["item"]["checkpoint"] is None


def test_after_a_hand_back_nothing_is_said_of_late_results(shown, redis, now):
    protocol.checkpoint(redis, ATTEMPT, 1, None, {"directory": "gpu-1:/s/1"}, now)
    protocol.end(redis, ATTEMPT, End.release({"last_files": "gpu-1:/spool/1"}), now)

    found = shown("abcd-1")
    assert "no longer counts" not in found
    assert "The output of the previous attempt." in found
    assert re.search(r"^checkpoint  its directory is at gpu-1:/s/1$", found, re.MULTILINE)


@pytest.mark.usefixtures("now")
def test_of_a_task_that_has_ended_nobody_is_heard_of(shown, redis):
    protocol.end(
        redis, ATTEMPT, End.complete("1", {"result_encoding": "json"}), Inspector(redis).now()
    )

    found = shown("abcd-1")

    assert "signs" not in found and " left" not in found


@pytest.mark.usefixtures("now")
@pytest.mark.parametrize("is_least", [False, True])
def test_a_result_that_was_too_large_is_not_only_run_again(shown, cli, is_least):
    too_large = str(TooLarge("the result", 5_000_000, 1_048_576, is_least))
    fields = {"status": "failed", "error_type": "result", "error": too_large}
    cli.hset("blueque_task_abcd-1", mapping=fields)
    assert re.search(r"next +Return the path of a file instead, or raise", shown("abcd-1"))

    cli.hset("blueque_task_abcd-1", "error", "the result: object is not JSON serializable")
    assert re.search(r"next +To run it again: blueque requeue abcd-1", shown("abcd-1"))


@pytest.mark.usefixtures("now")
def test_a_second_attempt_is_not_said_to_have_waited_since_the_task_was_made(shown, cli):
    cli.hset("blueque_task_abcd-1", "attempt", 2)

    assert "waited" not in shown("abcd-1")


def test_show_names_the_schedule_of_a_task_and_its_planned_time(shown, now, cli):
    planned = {"schedule": "night \x1b[2Jly", "planned": 1795354755, "timezone": "Europe/Berlin"}
    cli.hset("blueque_task_abcd-1", mapping=planned)

    text, item = shown("abcd-1", "--utc"), json.loads(shown("abcd-1", "--json"))["item"]

    assert "schedule    night \\x1b[2Jly\n" in text
    assert "planned     2026-11-22 13:39:15 UTC  (" in text and ", 14:39 in Europe/Berlin)" in text
    assert item["schedule"] == planned["schedule"]
    assert item["planned"] == "2026-11-22T13:39:15.000000Z"
    assert "other" not in item


@pytest.mark.parametrize("planned", ["soon", "1e300", "-1e300"])
@pytest.mark.usefixtures("now")
def test_a_planned_time_that_makes_no_sense_ends_no_show(shown, cli, planned):
    cli.hset("blueque_task_abcd-1", mapping={"planned": planned, "timezone": "Mars/Olympus"})

    assert "started, attempt 1" in shown("abcd-1")
    assert json.loads(shown("abcd-1", "--json"))["item"]["status"] == "started"
