"""blueque export: which tasks it writes, in what form, and what it leaves behind when it does not
come to its end.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import time

import pytest
from test_cli import NODE, PROGRAM, enqueue, fail, start
from transactions import protocol

from blueque.cli.verbs.export import CSV_COLUMNS
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End

pytestmark = pytest.mark.usefixtures("listener")


@pytest.fixture
def tasks(redis, cli):
    """Tasks in several states: an old failed one, a complete one, one that waits."""
    fail(redis, "old", "why, oh\nwhy")
    cli.hset(
        keys.task("old"), mapping={"finished": time.time() - 1000, "updated": time.time() - 1000}
    )
    start(redis, "done")
    protocol.end(
        redis,
        AttemptRef("video", "done", "secret-done", NODE),
        End.complete('{"size": "\u00fc"}', {"result_encoding": "json"}),
        time.time(),
    )
    enqueue(redis, "waiting")
    enqueue(redis, "other", "audio")


def ids(result):
    assert (result.returncode, result.stderr) == (0, "")
    return [json.loads(line)["id"] for line in result.stdout.splitlines()]


def test_a_line_is_the_item_that_show_has_but_for_signs_of_what_runs(run, tasks):
    lines = [json.loads(line) for line in run("export").stdout.splitlines()]
    shown = json.loads(run("show", "done", "--json").stdout)["item"]

    assert [line["id"] for line in lines] == ["done", "old"]
    del lines[0]["for_seconds"]
    assert {"id", "parameters", "finished_seconds"} < lines[0].keys() and lines[
        0
    ].items() <= shown.items()
    assert (lines[0]["result"], lines[1]["error"]) == ({"size": "\u00fc"}, "why, oh\nwhy")
    assert "secret" not in json.dumps(lines)


def test_csv_has_titles_and_every_value_in_one_cell(run, tasks):
    titles, done, old = csv.reader(io.StringIO(run("export", "--format", "csv").stdout))

    assert tuple(titles) == CSV_COLUMNS
    assert dict(zip(titles, old, strict=True))["error"] == "why, oh\nwhy"
    assert json.loads(done[-1]) == {"size": "\u00fc"}


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(1)", "\tx", "  =1", "'quoted"])
def test_no_cell_of_csv_is_a_formula_to_a_spreadsheet(run, tasks, cli, text):
    cli.hset(keys.task("done"), mapping={"title": text, "result": text, "result_encoding": ""})

    titles, done, *_ = csv.reader(io.StringIO(run("export", "--format", "csv").stdout))

    cells = dict(zip(titles, done, strict=True))
    assert {cells["title"], cells["result"]} == {text if text[0] == "'" else f"'{text}"}


def test_csv_does_not_command_a_terminal(run, answer, tasks, cli):
    cli.hset(keys.task("done"), mapping={"result": "\x1b]0;owned\x07", "result_encoding": ""})

    code, seen = answer(b"", "export", "--format", "csv", "--state", "complete")

    assert code == 0 and "\\x1b]0;owned\\x07" in seen and "\x1b" not in seen
    assert "\x1b]0;owned\x07" in run("export", "--format", "csv").stdout, (
        "a program gets what there is"
    )


def test_whoever_reads_no_further_ends_it_quietly_and_nothing_stays_in_redis(environ, client, cli):
    client.get_queue("video").enqueue_many(["x" * 100] * 3000)

    program = subprocess.Popen(
        [*PROGRAM, "export", "--state", "pending"],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert json.loads(program.stdout.readline())["status"] == "pending"
    program.stdout.close()

    assert (program.wait(30), program.stderr.read()) == (141, b"")
    program.stderr.close()
    assert cli.keys("blueque_frozen_*") == []


def test_all_of_many_tasks_are_written_once_in_the_order_in_which_they_came(run, client):
    client.get_queue("video").enqueue_many(range(2500))

    lines = run("export", "--state", "pending").stdout.splitlines()

    assert [json.loads(line)["parameters"] for line in lines] == [*range(2500)]
