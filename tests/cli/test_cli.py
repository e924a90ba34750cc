"""The program `blueque`, run as a person or a script runs it: arguments in, text and exit code out."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import unicodedata
from datetime import UTC, datetime
from pathlib import Path

import forked
import pytest
import redis as redis_py
from faults import Fault, FaultProxy
from transactions import protocol

from blueque import Retry, __version__, errors
from blueque.cli import exits
from blueque.cli.exits import explain
from blueque.cli.failure import BUG
from blueque.cli.main import VERBS
from blueque.cli.options import Invocation
from blueque.cli.printing import clean, pieces, span, stamp, width
from blueque.cli.verbs import status as status_verb
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.queue_settings import pausing
from blueque.protocol.ends import End

PROGRAM = [sys.executable, "-m", "blueque.cli.main"]
NODE = "gpu-1.cluster.example.com_4021"
SUBVERBS = (
    "queue ls",
    "queue pause",
    "queue resume",
    "queue set",
    "queue show",
    "queue forget",
    "task show",
    "host drain",
    "host ls",
    "host show",
    "schedule ls",
)
HOSTILE_NAMES = [
    "two words",
    'it\'s "quoted"',
    "{braces}",
    "line\nbreak",
    "färbe.漢字",
    "\x1b[31mred\x1b[0m",
    "-dash",
    "a\u202eb",
]


@pytest.fixture
def environ(url):
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("BLUEQUE_", "REDIS_", "COLUMNS"))
    }
    return kept | {
        "BLUEQUE_REDIS_URL": url,
        "TZ": "UTC",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONUNBUFFERED": "",
    }


@pytest.fixture
def on_terminal(environ):
    """Run the program on a terminal of so many columns and return the lines that it shows."""

    def on_terminal(*arguments, columns=80, **more):
        return forked.on_terminal(arguments, environ | {"COLUMNS": str(columns)} | more)

    return on_terminal


def enqueue(redis, task, queue="video", parameters="{}", encoding="json"):
    options = {} if encoding is None else {"parameters_encoding": encoding}
    protocol.enqueue(redis, queue, task, parameters, time.time(), options)


def ref(task, node=NODE):
    return AttemptRef("video", task, f"secret-{task}", node)


def start(redis, task, node=NODE, instance="i1"):
    enqueue(redis, task)
    protocol.pop(redis, "video", node, instance)
    protocol.reserve(
        redis, AttemptRef("video", task, f"secret-{task}", node), instance, time.time()
    )
    protocol.start(
        redis, AttemptRef("video", task, f"secret-{task}", node), 4711, time.time() - 7260
    )


def fail(redis, task, error="boom", **facts):
    start(redis, task)
    protocol.end(redis, ref(task), End.fail(error, facts), time.time())


def unused_url():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"redis://127.0.0.1:{probe.getsockname()[1]}/0"


def columns_of(line):
    text = re.sub(r"\x1b\[[0-9;]*m", "", line)
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


@pytest.mark.parametrize("text", ["hello", '{"a": 1}', "", "  two\nlines\n", "\x1b[31m", "--"])
def test_text_is_sent_untouched(run, client, text):
    result = run("enqueue", "--text", "video", "--", text)

    assert client.get_task(result.stdout.strip()).fields["parameters"] == text


def test_text_from_standard_input_is_sent_untouched(run, client):
    result = run("enqueue", "video", "--text", "-", stdin="@home\n")

    assert client.get_task(result.stdout.strip()).parameters == "@home\n"


def test_parameters_come_from_a_file(run, client, tmp_path):
    (tmp_path / "task.json").write_text('{"a":\n1}\n')

    result = run("enqueue", "video", f"@{tmp_path}/task.json")

    assert client.get_task(result.stdout.strip()).parameters == {"a": 1}


@pytest.mark.parametrize("verb", ["enqueue", "run"])
def test_an_input_that_was_forgotten_is_refused(run, state, verb):
    result = run(verb, "video", stdin="1")

    assert (result.returncode, result.stdout, state()) == (2, "", {})
    assert "the input is missing: JSON, @FILE, or - for standard input; null for none" in (
        result.stderr
    )


@pytest.mark.parametrize(
    "given",
    ["hello", "{'a': 1}", "", "NaN", "[Infinity]", "{", "[" * 100_000, "1e999", '"\\ud800"'],
)
def test_what_is_not_json_is_refused_and_nothing_is_written(run, state, given):
    result = run("enqueue", "video", given)

    assert (result.returncode, result.stdout, state()) == (2, "", {})
    assert len(result.stderr.splitlines()) <= 3
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["video", "@/no/such/file"],
        ["video", "@"],
        ["", "1"],
        ["q" * 201, "1"],
        ["video", "--text"],
        ["video", "--lines", "[1]"],
    ],
)
def test_what_cannot_be_enqueued_is_refused_with_code_2(run, state, arguments):
    result = run("enqueue", *arguments)

    assert (result.returncode, result.stdout, state()) == (2, "", {})
    assert "Traceback" not in result.stderr


def test_parameters_above_the_limit_are_refused_with_the_size(run, state):
    result = run("enqueue", "video", '"0123456789"', BLUEQUE_MAX_BYTES="9")

    assert (result.returncode, state()) == (2, {})
    assert "10 bytes" in result.stderr


def test_a_task_is_scheduled_from_now_on(run, client):
    task = client.get_task(run("enqueue", "video", "1", "--in", "1h30m").stdout.strip())

    assert task.eta == pytest.approx(time.time() + 5400, abs=30)


def test_a_time_that_is_past_enqueues_at_once_and_is_remarked_on(run, client):
    result, meant_as_delay = (run("enqueue", "video", "1", "--at", at) for at in ("1e9", "5"))

    assert client.get_task(result.stdout.strip()).status == "pending"
    assert "past" in result.stderr
    assert (meant_as_delay.returncode, meant_as_delay.stdout) == (2, "")
    assert "give a delay with --in DURATION" in meant_as_delay.stderr


@pytest.mark.parametrize(
    "when",
    [
        ["--at", "2100-13-01T00:00:00"],
        ["--at", "some day"],
        ["--at", "25:00"],
        ["--at", "nan"],
        ["--at", "inf"],
        ["--at", "4102444800000"],
        ["--in", "soon"],
        ["--in", "-5"],
        ["--in", "99999999w"],
        ["--in", "1h", "--at", "5"],
    ],
)
def test_a_time_that_means_nothing_is_refused(run, state, when):
    result = run("enqueue", "video", "1", *when)

    assert (result.returncode, state()) == (2, {})
    assert len(result.stderr.splitlines()) <= 3


@pytest.mark.parametrize(
    ("zone", "text", "instant"),
    [
        ("Europe/Berlin", "2100-06-01 16:20:00", "2100-06-01T16:20:00+02:00"),
        ("UTC", "2100-06-01", "2100-06-01T00:00:00Z"),
        ("Europe/Berlin", "2100-06-01 16:20:00 CEST", "2100-06-01T16:20:00+02:00"),
        ("Europe/Berlin", "2100-06-01 16:20:00 UTC", "2100-06-01T16:20:00Z"),
        ("Etc/GMT-3", "2100-06-01 16:20:00 +03", "2100-06-01T16:20:00+03:00"),
    ],
)
def test_a_time_is_taken_as_show_prints_it_and_without_a_zone_as_local(
    run, cli, zone, text, instant
):
    task = run("enqueue", "video", "1", "--at", text, TZ=zone).stdout.strip()

    assert (
        cli.zscore("blueque_scheduled_tasks_video", task)
        == datetime.fromisoformat(instant).timestamp()
    )
    eta = next(
        line for line in run("show", task, TZ=zone).stdout.splitlines() if line.startswith("eta")
    )
    again = run(
        "enqueue", "video", "1", "--at", eta[12:].partition("  (")[0], TZ=zone
    ).stdout.strip()
    assert cli.zscore("blueque_scheduled_tasks_video", again) == cli.zscore(
        "blueque_scheduled_tasks_video", task
    )


@pytest.mark.parametrize("when", [[], ["--in", "1h"]])
@pytest.mark.parametrize("retry", ["5", '{"max": 5}'])
def test_a_task_gets_what_the_options_say(run, client, when, retry):
    options = ["--time-limit", "2h", "--memory-limit", "8GiB"]

    task = client.get_task(
        run("enqueue", "video", "1", *when, "--retry", retry, *options).stdout.strip()
    )

    assert (task.retry, task.time_limit, task.memory_limit) == (Retry(5), 7200.0, 2**33)


@pytest.mark.parametrize("word", ["0", "false"])
def test_no_retries_can_be_asked_for(run, cli, word):
    task = run("enqueue", "video", "1", "--retry", word).stdout.strip()

    assert cli.hget(f"blueque_task_{task}", "retry") == "null"


def test_each_line_becomes_a_task_and_blank_lines_none(run, client):
    result = run("enqueue", "video", "--lines", stdin='1\n\n{"a": 2}\r\n  \n"three"')

    tasks = [client.get_task(task_id) for task_id in result.stdout.split()]
    assert [task.parameters for task in tasks] == [1, {"a": 2}, "three"]


def test_each_line_becomes_a_string_with_text(run, client, tmp_path):
    (tmp_path / "names").write_text("a b\n\n{c\u2028d}\n")

    result = run("enqueue", "video", "--lines", "--text", f"@{tmp_path}/names")

    assert [client.get_task(task_id).parameters for task_id in result.stdout.split()] == [
        "a b",
        "",
        "{c\u2028d}",
    ]


@pytest.mark.parametrize("bad", [b"bad", b'"\xff"', b'"' + b"x" * 40 + b'"', b'"\\ud800"'])
def test_a_bad_line_of_a_file_stops_everything_and_is_named(run, state, tmp_path, bad):
    (tmp_path / "tasks").write_bytes(b"1\n\n" + bad + b"\n4\n")

    result = run("enqueue", "video", "--lines", f"@{tmp_path}/tasks", BLUEQUE_MAX_BYTES="39")

    assert (result.returncode, result.stdout, state()) == (2, "", {})
    assert "line 3" in result.stderr
    assert "Nothing was enqueued" in result.stderr


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_queue_may_have_any_name_and_is_shown_in_one_line(run, on_terminal, name):
    task_id = run("enqueue", "--", name, "1").stdout.strip()

    assert [item["queue"] for item in json.loads(run("ls", "--json").stdout)["items"]] == [name]
    assert [
        item["id"] for item in json.loads(run("ls", "--json", f"--queue={name}").stdout)["items"]
    ] == [task_id]
    for shown in (run("status").stdout, run("ls").stdout, "\n".join(on_terminal("ls"))):
        (line,) = [
            line for line in shown.splitlines() if clean(name) in line and not line.startswith("!")
        ]
        assert line.isprintable()


def test_status_of_an_empty_redis_says_what_to_do(run):
    result = run("status")

    assert result.returncode == 0
    assert "blueque enqueue" in result.stdout


def test_status_shows_the_address_without_its_password_and_where_it_came_from(run, url, cli):
    cli.acl_setuser(
        "reader",
        enabled=True,
        passwords=["+secret"],
        keys=["*"],
        commands=["+@read", "+@connection", "+time"],
    )
    try:
        result = run("status", BLUEQUE_REDIS_URL=url.replace("redis://", "redis://reader:secret@"))
    finally:
        cli.acl_deluser("reader")

    assert result.returncode == 0
    assert "redis://reader:***@" in result.stdout
    assert "(BLUEQUE_REDIS_URL)" in result.stdout
    assert "secret" not in result.stdout + result.stderr


def test_status_shows_queues_running_tasks_and_hosts(run, redis, listener):
    start(redis, "t-running")
    enqueue(redis, "t-next")

    lines = run("status").stdout.splitlines()

    assert any(re.match(r"video +0 +1 +0 +1 +0 +0 +0 +[\d.]+ s +1$", line) for line in lines)
    assert any(
        re.match(rf"t-running +\S+ +video +{NODE} +2 h 1 m +- +- +-$", line) for line in lines
    )
    assert any(
        re.match(r"gpu-1\.cluster\.example\.com +1 +1 +[\d.]+ s +up$", line) for line in lines
    )
    assert not any(line.startswith("! video") for line in lines)


def test_status_points_at_a_queue_whose_listeners_are_silent(run, redis):
    protocol.register(redis, "video", NODE, "i1", {"beat_every": 10}, time.time() - 500)
    enqueue(redis, "t1")

    assert re.search(
        r"^! video: 1 pending, .* 1 listener silent$", run("status").stdout, re.MULTILINE
    )


def test_status_points_at_listeners_that_were_found_dead(run, redis, cli):
    for n in range(2):
        protocol.register(redis, "video", f"gpu-{n}_1", f"i{n}", {"beat_every": 10}, time.time())
        protocol.fence(redis, "video", f"gpu-{n}_1", f"i{n}", "0", 9.25)

    lines = run("status").stdout.splitlines()

    assert "! video: 2 listeners of gpu-0 and gpu-1 are dead" in lines
    assert any(re.match(r"gpu-0 +1 +0 +[\d.]+ s +dead$", line) for line in lines)


def test_status_points_at_a_queue_whose_listeners_take_nothing_new(run, redis, listener):
    enqueue(redis, "t1")
    protocol.order(redis, "video", NODE, "drain", "ada")

    shown = run("status").stdout

    assert re.search(r"^! video: 1 pending, .* 1 listener draining$", shown, re.MULTILINE)
    assert re.search(r"^gpu-1\.cluster\.example\.com +1 +0 .* draining$", shown, re.MULTILINE)


@pytest.mark.usefixtures("listener")
def test_status_points_at_tasks_that_were_lost_with_the_command_that_runs_them_again(run, redis):
    for n in range(3):
        fail(redis, f"lost-{n}", error_type="lost")
    fail(redis, "poison-1", error_type="poison")

    shown = run("status").stdout

    assert (
        "! video: 3 tasks lost in the last day\n  blueque requeue -q video --error-type lost\n"
        in shown
    )
    assert re.search(r"^! video: 1 task poison .*\n  blueque show poison-1$", shown, re.MULTILINE)


def test_a_listener_of_several_queues_counts_once_on_its_host(run, redis):
    for queue in ("audio", "video"):
        for number in (1, 2):
            protocol.register(redis, queue, f"host_{number}", "i1", {"beat_every": 10}, time.time())
    enqueue(redis, "t1", "audio")
    protocol.pop(redis, "audio", "host_1", "i1")

    lines = [line.split() for line in run("status").stdout.splitlines()]

    assert [line[:3] for line in lines if line[:1] == ["host"]] == [["host", "2", "1"]]


HEAVY = f"gpu=2,memory={8 << 30}"


@pytest.mark.usefixtures("listener")
def test_status_shows_pauses_and_limits_and_points_at_what_may_have_been_forgotten(
    run, redis, listener
):
    enqueue(redis, "t-pending")
    protocol.enqueue(redis, "video", "t-heavy", "1", time.time(), {"needs": HEAVY})
    protocol.set_settings(redis, "video", {"max_running": "0"}, 1.0)
    protocol.set_settings(
        redis, "video", pausing("ada", "deploy", time.time() - 7230), time.time() - 7230, "ada"
    )

    lines, as_json = run("status").stdout.splitlines(), json.loads(run("status", "--json").stdout)

    assert "! video: paused for 2 h by ada: deploy, and 2 pending" in lines
    assert "  blueque queue resume video" in lines
    assert "! video: 2 pending, and the limit of the queue is 0" in lines
    assert "! video: 1 pending task needs gpu=2, memory=8GiB, which no listener has" in lines
    assert "  blueque why t-heavy" in lines
    assert [line.split() for line in lines if "MAY RUN" in line] == [
        ["QUEUE", "MAY", "RUN", "RUN", "PAUSED"]
    ]
    assert ["video", "0", "0", "for", "2", "h", "by", "ada:", "deploy"] in [
        line.split() for line in lines
    ]
    (queue,) = as_json["queues"]
    assert (queue["pending"], queue["paused"], queue["paused_by"]) == (2, True, "ada")
    assert queue["max_running"] == 0
    assert queue["misfits"] == [
        {"line": f"0,{HEAVY}", "tasks": 1, "needs": HEAVY, "first": "t-heavy"}
    ]


def test_a_short_pause_is_shown_and_not_pointed_at(run, redis, listener):
    enqueue(redis, "t-pending")
    protocol.set_settings(
        redis, "video", pausing("ada", None, time.time() - 60), time.time() - 60, "ada"
    )

    text = run("status").stdout

    assert "! video" not in text
    assert re.search(r"^video +- +0 +for 1 m by ada$", text, re.MULTILINE)


def test_the_command_that_status_prints_can_be_typed_whatever_the_name_of_the_queue(run, redis):
    for task in ("lost-1", "lost-2"):
        enqueue(redis, task, "two words")
        protocol.register(redis, "two words", NODE, "i1", {}, time.time())
        protocol.pop(redis, "two words", NODE, "i1")
        protocol.reserve(redis, AttemptRef("two words", task, "token", NODE), "i1", time.time())
        protocol.end(
            redis,
            AttemptRef("two words", task, "token", NODE),
            End.fail("x", {"error_type": "lost"}),
            time.time(),
        )

    assert "\n  blueque requeue -q 'two words' --error-type lost\n" in run("status").stdout


def test_status_points_at_scheduled_tasks_that_nobody_puts_in_line(run, redis):
    protocol.schedule(redis, "video", "t1", "1", time.time() - 300, time.time() - 400)
    protocol.schedule(redis, "video", "t2", "1", time.time() - 90, time.time() - 400)

    shown = run("status").stdout

    late = r"^! video: 2 tasks are overdue by up to 5 m.*: no listener serves the queue, and no scheduler has put them in line\n"
    assert re.search(late + "  blueque-scheduler$", shown, re.MULTILINE)


def test_status_points_at_a_scheduled_task_that_nobody_can_put_in_line_after_ten_seconds(
    run, redis
):
    protocol.schedule(redis, "video", "t1", "1", time.time() - 15, time.time() - 400)
    protocol.schedule(redis, "audio", "t2", "1", time.time() - 15, time.time() - 400)
    protocol.register(redis, "audio", NODE, "i1", {"beat_every": 10}, time.time())

    shown = run("status").stdout

    assert "! video: 1 task is overdue by " in shown and "! audio" not in shown


def test_status_shows_the_busiest_of_very_many_queues_and_counts_the_others(run, redis, cli):
    cli.zadd(keys.QUEUES, {f"q{n:04}": 0 for n in range(1001)})
    enqueue(redis, "t1", "q1000")

    shown, whole = run("status").stdout, run("status", "--all").stdout

    assert "\nq1000 " in shown and "\nq0000 " in shown and "\nq0999 " not in shown
    assert "\n(1 more: blueque status --all)\n" in shown
    assert "\nq0999 " in whole and " more:" not in whole


def test_status_counts_the_concerns_that_are_too_many(run, redis, monkeypatch):
    monkeypatch.setattr(status_verb, "MAX_PIPED", 2)
    for n in range(5):
        enqueue(redis, f"t{n}", f"q{n}")

    shown, whole = run("status").stdout, run("status", "--all").stdout

    concerns = whole.count("\n! ")
    assert shown.count("\n! ") == 2 and concerns >= 5
    assert f"\n({concerns - 2} more: blueque status --all)\n\n" in shown


def test_blueque_alone_is_status(run, redis):
    enqueue(redis, "t1", "some.queue")

    assert "some.queue" in run().stdout


@pytest.mark.usefixtures("listener")
def test_ls_shows_the_states_that_are_asked_for(run, redis):
    fail(redis, "failed-1", error_type="ValueError", exit_code=1)
    protocol.schedule(redis, "video", "scheduled-1", "1", time.time() + 7290, time.time())
    enqueue(redis, "pending-1")

    lines = run("ls", "--state", "failed", "--state", "scheduled").stdout.splitlines()[1:]

    assert [line.split()[0] for line in lines] == ["scheduled-1", "failed-1"]
    assert "due in 2 h 1 m" in lines[0]
    assert "ValueError, exit 1, ran 2 h 1 m" in lines[1]


@pytest.mark.usefixtures("listener")
@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({"status": "failed", "error_type": "lost"}, "lost"),
        ({"status": "failed", "error_type": "poison", "attempt": "4"}, "poison, attempt 4"),
        ({"status": "cancelled", "cancelled_by": "ada@ws-1"}, "by ada@ws-1"),
        ({"status": "started", "cancel": "1", "cancelled_by": "ada"}, "cancelling, asked by ada"),
        (
            {"status": "scheduled", "eta": "IN_AN_HOUR", "last_error_type": "OSError"},
            "retry due in 1 h, after OSError",
        ),
        ({"status": "scheduled", "eta": "IN_AN_HOUR"}, "due in 1 h"),
        (
            {"status": "pending", "last_error_type": "lost", "attempt": "1"},
            "to run again, after lost",
        ),
        (
            {
                "status": "complete",
                "last_error_type": "lost",
                "cancelled_by": "ada",
                "attempt": "2",
            },
            "attempt 2",
        ),
    ],
)
def test_ls_notes_what_is_remarkable(run, redis, cli, fields, note):
    start(redis, "abcd-1")
    cli.hdel("blueque_task_abcd-1", "started", "attempt")
    in_an_hour = str(time.time() + 3630)
    cli.hset(
        "blueque_task_abcd-1",
        mapping={name: text.replace("IN_AN_HOUR", in_an_hour) for name, text in fields.items()},
    )
    cli.zadd("blueque_scheduled_tasks_video", {"abcd-1": 9e9})
    for status in ("failed", "cancelled", "complete"):
        cli.lpush(f"blueque_{status}_tasks_video", "abcd-1")
    if fields["status"] == "pending":
        cli.delete("blueque_started_tasks_video")

    (line,) = run("ls", "--state", fields["status"]).stdout.splitlines()[1:]

    assert re.search(rf" (?:{NODE}|being taken +-) +{note}$", line)


def test_ls_shows_what_has_its_turn_first_with_its_priority_and_needs(run, redis):
    enqueue(redis, "t-plain")
    protocol.enqueue(
        redis, "video", "t-urgent", "1", time.time(), {"priority": 5, "needs": "gpu=1"}
    )

    first, second = run("ls").stdout.splitlines()[1:]

    assert first.startswith("t-urgent") and first.endswith("priority 5, needs gpu=1")
    assert second.startswith("t-plain")


def test_ls_as_json_says_whether_there_is_more(run, redis):
    enqueue(redis, "t0")
    enqueue(redis, "t1")

    listing = json.loads(run("ls", "--json", "--limit", "1").stdout)

    assert (listing["blueque"], listing["kind"], listing["has_more"]) == (2, "tasks", True)
    assert [(item["id"], item["status"], item["queue"]) for item in listing["items"]] == [
        ("t0", "pending", "video")
    ]


@pytest.mark.usefixtures("listener")
def test_show_tells_everything_but_the_token(run, redis):
    fail(
        redis,
        "t-failed",
        error="one\ntwo",
        error_type="ValueError",
        exit_code=1,
        traceback="Traceback:\n  File x",
    )

    text, as_json = run("show", "t-failed").stdout, run("show", "t-failed", "--json").stdout

    assert re.search(r"^error +one\n +two$", text, re.MULTILINE)
    assert "failed, attempt 1" in text
    assert f"where       {NODE}, pid 4711\n" in text
    assert json.loads(as_json)["item"]["traceback"] == "Traceback:\n  File x"
    assert "secret" not in text + as_json


def test_show_tells_fields_of_other_programs(run, redis, cli):
    enqueue(redis, "abcd-1")
    cli.hset("blueque_task_abcd-1", "a_very_long_field", "its value")

    assert "a_very_long_field\n            its value\n" in run("show", "abcd-1").stdout
    assert json.loads(run("show", "abcd-1", "--json").stdout)["item"]["other"] == {
        "a_very_long_field": "its value"
    }


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            {"retry": '{"max":5}', "failures": "2", "interruptions": "1"},
            "retry +2 of 5 failures, 1 of 3 interruptions so far\n +waits 10 s, each time 2 times as long",
        ),
        (
            {"retry": '{"max":5,"factor":1,"on":["OSError"],"exit_codes":[75]}'},
            "retry .*\n +waits 10 s; only after OSError, exit code 75",
        ),
        (
            {"retry": '{"on":["OSError"],"not_on":["EOFError","memory"]}'},
            "retry .*\n.*; only after OSError; never after EOFError, memory",
        ),
        ({"retry": '{"max":5,"backoff":0}'}, "retry .*\n +without a pause"),
        ({"retry": "null"}, "retry +never, even if its handler, queue or listener has a policy"),
        ({"retry": '{"tries":5}'}, r'retry +{"tries":5}  \(malformed: never\)'),
        (
            {"failures": "1"},
            "retry +1 failure, 0 interruptions so far; the retry policy of its handler, queue or listener applies",
        ),
        (
            {"status": "failed", "failures": "2"},
            "retry +3 attempts failed, and 2 of them were retried, by the retry policy of its handler, queue or listener.*",
        ),
        (
            {"last_error": "one\ntwo", "last_error_type": "a.b.CustomError"},
            r"last_error +a\.b\.CustomError: one\n +two",
        ),
        (
            {"last_error": "CustomError: one", "last_error_type": "a.b.CustomError"},
            "last_error +CustomError: one",
        ),
        (
            {
                "time_limit": "7200",
                "stall_limit": "90",
                "memory_limit": "8589934592",
                "grace": "0",
                "lead": "0.5",
            },
            r"limits +time 2 h, stall 1 m 30 s, memory 8\.0 GiB, grace 0\.0 s, lead 0\.5 s",
        ),
        (
            {"memory_peak": "12345678901", "cpu_seconds": "3600.5", "leaked": "2"},
            r"used +memory 11\.5 GiB at most, CPU 1 h, left-over processes that were ended: 2",
        ),
        ({"priority": "-5"}, "priority +-5"),
        (
            {"needs": "gpu=1,memory=8589934592,lock:a%20b=3"},
            r"needs +gpu 1, memory 8\.0 GiB, lock a b, which 3 tasks may hold",
        ),
        ({"needs": "gpus"}, r"needs +gpus  \(malformed: no listener takes it\)"),
        (
            {"status": "started", "lock": "a b", "devices": "gpu=0"},
            "devices +gpu=0\nlock +holds a b",
        ),
        ({"progress": "50 %", "progress_at": "HOUR_AGO"}, r"progress +50 %  \(1 h ago\)"),
        (
            {
                "status": "started",
                "cancel": "HOUR_AGO",
                "cancelled_by": "ada",
                "cancel_reason": "bad input",
            },
            "cancel +asked for 1 h ago, by ada: bad input",
        ),
        ({"status": "started", "cancel": "HOUR_AGO"}, "state +started, cancelling"),
        (
            {"status": "complete", "cancel": "HOUR_AGO", "cancelled_by": "ada"},
            r"cancel +asked for 1 h ago, by ada \(it ended by itself first\)",
        ),
        ({"status": "cancelled", "cancelled_by": "ada"}, "cancel +by ada"),
        (
            {"lost_node": "gpu-1_4021", "last_seen": "HOUR_AGO"},
            r"lost +with gpu-1_4021\n +last seen .*  \(1 h ago\)",
        ),
        ({"files": "gpu-1:/spool/abcd-1/2"}, "files +gpu-1:/spool/abcd-1/2"),
        (
            {"requeued": "aabb", "last_files": "gpu-1:/spool/abcd-1/1"},
            "requeued +A person put it in line again.\n"
            "last_files +gpu-1:/spool/abcd-1/1\n +If the earlier attempt still runs, its result no longer counts and stays there.",
        ),
    ],
)
def test_show_tells_what_few_tasks_have(run, redis, cli, fields, line):
    enqueue(redis, "abcd-1")
    hour_ago = str(time.time() - 3601)
    cli.hset(
        "blueque_task_abcd-1",
        mapping={name: text.replace("HOUR_AGO", hour_ago) for name, text in fields.items()},
    )

    assert re.search(rf"^{line}$", run("show", "abcd-1", "--utc").stdout, re.MULTILINE)


def test_show_tells_nothing_of_what_a_task_does_not_have(run, redis):
    enqueue(redis, "abcd-1")

    assert [line.split()[0] for line in run("show", "abcd-1").stdout.splitlines()] == [
        "task",
        "queue",
        "state",
        "created",
        "updated",
        "parameters",
    ]


def test_show_in_json_gives_numbers_as_numbers_and_a_policy_as_it_is(run, redis, cli):
    enqueue(redis, "abcd-1")
    cli.hset(
        "blueque_task_abcd-1",
        mapping={
            "retry": '{"max":5}',
            "time_limit": "7200",
            "failures": "2",
            "last_error": "one\ntwo",
            "memory_peak": "12345",
            "progress_at": "1795238548.5",
            "cancelled_by": "ada",
            "files": "gpu-1:/spool",
            "last_files": "gpu-2:/spool",
        },
    )

    item = json.loads(run("show", "abcd-1", "--json").stdout)["item"]

    assert (item["retry"], item["failures"], item["time_limit"]) == ({"max": 5}, 2, 7200.0)
    assert item["memory_peak"] == 12345
    assert item["progress_at"] == "2026-11-21T05:22:28.500000Z"
    assert item["progress_at_seconds"] == 1795238548.5
    assert (item["cancelled_by"], item["files"]) == ("ada", "gpu-1:/spool")
    assert item["last_files"] == "gpu-2:/spool"
    assert "lead" not in item


def test_what_other_programs_have_put_into_a_task_does_not_break_show(run, redis, cli):
    enqueue(redis, "abcd-1", parameters='{"a":NaN}')
    junk = {
        "created": "nan",
        "updated": "1e300",
        "eta": "inf",
        "started": "-1e15",
        "attempt": "many",
        "pid": "\x1b[2J",
        "retry": "\x1b[2J",
        "time_limit": "nan",
        "memory_limit": "much",
        "cancel": "inf",
        "last_seen": "never",
    }
    cli.hset("blueque_task_abcd-1", mapping=junk)

    text, as_json = run("show", "abcd-1"), run("show", "abcd-1", "--json")

    assert (text.returncode, as_json.returncode) == (0, 0)
    assert json.loads(as_json.stdout)["item"]["parameters"] == '{"a":NaN}'
    assert "\x1b" not in text.stdout


def test_times_are_shown_in_the_local_zone_and_in_utc_when_asked(run, redis):
    enqueue(redis, "abcd-1")
    utc = datetime.now(UTC).hour

    local_text = run("show", "abcd-1", TZ="XYZ-3").stdout
    utc_text = run("show", "abcd-1", "--utc", TZ="XYZ-3").stdout

    assert re.search(rf"^created .* {(utc + 3) % 24:02}:..:.. XYZ", local_text, re.MULTILINE)
    assert re.search(rf"^created .* {utc:02}:..:.. UTC", utc_text, re.MULTILINE)


@pytest.mark.parametrize(
    "text",
    ["\x1b]0;title\x07", "\x1b[2J\x1b[31mred", "a\rb\x08c", "\x9b31m", "a\u202egnp.exe", "\0"],
)
def test_parameters_cannot_command_the_terminal(run, on_terminal, redis, text):
    enqueue(redis, "abcd-1", parameters=text, encoding=None)

    for shown in (
        run("show", "abcd-1").stdout,
        "\n".join(on_terminal("show", "abcd-1", NO_COLOR="1")),
    ):
        assert all(line.isprintable() for line in shown.split("\n"))
        assert clean(text) in shown
    as_json = run("show", "abcd-1", "--json").stdout
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", as_json)
    assert json.loads(as_json)["item"]["parameters"] == text


def test_bytes_that_are_not_utf_8_are_shown_and_do_no_harm(run, cli, url):
    with redis_py.Redis.from_url(url) as raw:
        raw.zadd("blueque_queues", {b"caf\xe9": 0})
        raw.hset(
            "blueque_task_abcd-1",
            mapping={"status": "pending", "queue": b"caf\xe9", "parameters": b"\xff"},
        )
        raw.lpush(b"blueque_pending_tasks_caf\xe9", "abcd-1")

    assert "caf\\udce9" in run("ls").stdout
    assert "\\udcff" in run("show", "abcd-1").stdout
    assert json.loads(run("show", "abcd-1", "--json").stdout)["item"]["queue"] == "caf\udce9"
    assert run("status").returncode == 0


def test_a_character_that_the_encoding_of_the_output_lacks_is_shown_by_its_number(environ, redis):
    enqueue(redis, "t1", "漢字")

    shown = forked.run(["ls"], environ | {"PYTHONIOENCODING": "latin-1"})

    assert "\\u6f22\\u5b57" in shown.stdout


@pytest.mark.parametrize(("queues", "columns"), [(0, 80), (40, 80), (3, 100)])
def test_everything_fits_the_terminal(on_terminal, redis, listener, queues, columns):
    for n in range(queues):
        enqueue(
            redis,
            f"{n:08}-0000-4000-8000-000000000000",
            f"q{n}" if n != 1 else "a long name, 漢字 " * 9,
        )
    if queues:
        fail(
            redis,
            "failed-with-a-long-id-of-its-own",
            "x" * 500,
            error_type="A.Very.Long.Exception.Name" * 3,
        )
        fail(
            redis,
            "lost-with-a-long-id-of-its-own",
            "x" * 500,
            error_type="lost",
            leaked=3,
            memory_peak=10**11,
        )
        fail(redis, "poison-with-a-long-id-of-its-own", "x" * 500, error_type="poison")
        protocol.schedule(redis, "q1", "scheduled-with-a-long-id-of-its-own", "{}", 1.0, 1.0)
        start(redis, "started-with-a-long-id-of-its-own")
        protocol.cancel(
            redis, "video", "started-with-a-long-id-of-its-own", "ada" * 30, "why" * 30, time.time()
        )

    looks = [["status"], ["ls"], ["ls", "--state", "failed"], ["--help"]]
    if queues != 40:  # a help is the same whatever there is in Redis
        looks += [[*verb.split(), "--help"] for verb in (*VERBS, *SUBVERBS)]
    shows = [["show", "failed-with"], ["show", "lost-with"], ["show", "started-with"]]
    for arguments in looks + shows * bool(queues):
        lines = on_terminal(*arguments, columns=columns)
        assert lines
        # Only a command may be longer: it is to be copied.
        assert (
            max(columns_of(line) for line in lines if not line.startswith("  blueque")) <= columns
        ), arguments


def test_a_long_name_is_cut_on_a_terminal_and_whole_in_a_pipe(run, on_terminal, redis):
    name = "q" * 150
    enqueue(redis, "0123456789-a-task", name)

    status = run("status", COLUMNS="80").stdout
    assert f"\n! {name}: 1 pending" in status
    assert f"\n{name} " in status
    assert name in run("ls", COLUMNS="80").stdout
    assert not any(name in line for line in on_terminal("ls"))
    assert any("qqq…" in line for line in on_terminal("ls"))


@pytest.mark.usefixtures("listener")
def test_commands_ids_and_paths_are_not_broken_on_a_terminal(on_terminal, redis, cli):
    task = "ff094fea-1c2d-4e3f-8a9b-0f528e2f694a"
    path = "gpu-1.example.com:/var/lib/blueque/" + "spool/" * 9
    fail(redis, task, f"no such file: {path} as task {task} says, and {'that is it ' * 9}")
    quoted = f'"/opt/{"lib/" * 18}tasks.py",'
    cli.hset(
        f"blueque_task_{task}",
        mapping={"last_files": f"{path}{task}/1", "traceback": f"  File {quoted} line 77"},
    )

    lines = [line.strip() for line in on_terminal("show", task)]

    assert any(line.endswith("To run it again: blueque requeue ff094fea") for line in lines)
    assert all(
        any(word in line.split() for line in lines)
        for word in (path, f"{path}{task}/1", task, quoted)
    )
    assert "that is it that is it" in " ".join(lines)
    assert lines[lines.index("last_files") + 1] == f"{path}{task}/1"  # not cut, from the margin on
    assert not any("blueque requeue" in line and task in line for line in on_terminal("status"))


def in_words(text):
    """Return the text in one line, without how long something has lasted."""
    return re.sub(r"\d+\.\d s", "some time", " ".join(text.split()))


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_sentences_are_broken_between_words_on_a_terminal_and_are_one_line_in_a_pipe(
    run, on_terminal, redis, columns
):
    task = "ff094fea-1c2d-4e3f-8a9b-0f528e2f694a"
    enqueue(redis, task)
    protocol.set_settings(
        redis,
        "video",
        pausing(
            "ada@example.com", "the disks of the store are being replaced by larger", time.time()
        ),
        time.time(),
        "ada@example.com",
    )

    whole, shown = run("why", task).stdout, on_terminal("why", task, columns=columns, NO_COLOR="1")
    sentences = [line for line in shown if not line.lstrip().startswith("blueque")]
    assert max(map(len, sentences)) <= columns and max(map(len, whole.splitlines())) > 80
    assert in_words(" ".join(shown)) == in_words(whole).replace(task, task[:8])
    assert not any(line.endswith(" ") for line in shown)

    each_hour = ("schedule", "add", "hourly", "1", "-q", "nobody.is.there", "--every", "1h")
    for command in (("enqueue", "nobody.is.there", "1"), each_hour):
        remarks = on_terminal(*command, columns=columns)[1:]
        assert any(
            line.endswith("blueque-listener nobody.is.there --module MODULE") for line in remarks
        )
    assert run("enqueue", "nobody.is.there", "1").stderr.count("\n") <= 1
    error = on_terminal("why", "no-such-task", columns=columns)
    assert max(map(len, error)) <= columns and " ".join(error).endswith("give the whole id.")
    whole_id = run("why", task.replace("f", "e")).stderr
    assert "or be in another Redis" in whole_id and "give the whole id" not in whole_id
    assert run("why", "A" + task[1:].upper()).stderr.endswith(f"show a{task[1:]}\n")


def test_a_uuid_is_short_on_a_terminal_and_whole_in_a_pipe(run, on_terminal):
    task_id = run("enqueue", "video", "1").stdout.strip()

    assert on_terminal("ls")[1].split()[0] == task_id[:8]
    assert run("ls").stdout.splitlines()[1].split()[0] == task_id
    assert on_terminal("ls", "--ids") == [task_id]


@pytest.mark.usefixtures("listener")
def test_colour_is_for_terminals_only_and_not_with_no_color(run, on_terminal, redis):
    start(redis, "t1")

    assert "\x1b[" in "\n".join(on_terminal("ls", TERM="xterm"))
    assert "\x1b" not in "\n".join(on_terminal("ls", TERM="xterm", NO_COLOR="1"))
    assert "\x1b" not in run("ls", TERM="xterm").stdout


def test_a_long_value_is_cut_on_a_terminal_and_whole_in_a_pipe(run, on_terminal, redis):
    enqueue(redis, "abcd-1", parameters="x" * 5000, encoding=None)

    assert len(on_terminal("show", "abcd-1")) < 24
    assert "x" * 5000 in run("show", "abcd-1").stdout


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("verb", ["ls --limit 3000", "status", "show abcd-1"])
def test_a_reader_that_leaves_early_is_no_error(environ, redis, verb, unbuffered):
    enqueue(redis, "abcd-1", parameters="x" * 500_000, encoding=None)
    for n in range(600):
        enqueue(redis, f"t{n}", f"{n:0200}")
    command = f'"{sys.executable}" -m blueque.cli.main {verb} | head -c 1 >/dev/null; echo "${{PIPESTATUS[0]}}"'
    environment = environ | {"PYTHONUNBUFFERED": unbuffered}

    result = subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=60
    )

    assert (result.stdout, result.stderr) == ("141\n", "")


def test_enqueue_stops_when_nobody_reads_the_ids_and_says_how_far_it_got(environ, client):
    command = f'yes 1 | "{sys.executable}" -m blueque.cli.main enqueue video --lines | head -n 1 >/dev/null'

    result = subprocess.run(
        ["bash", "-c", command], env=environ, capture_output=True, text=True, timeout=60
    )

    (count,) = re.findall(r"(\d+) enqueued, then it stopped: the output was closed", result.stderr)
    assert client.get_inspector().pending("video") == int(count)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_is_no_bug(environ, redis, closed):
    command = f'"{sys.executable}" -m blueque.cli.main enqueue video --lines {closed}'

    result = subprocess.run(
        ["bash", "-c", command],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
    )

    assert (result.returncode, result.stderr) == (0, b"")


def test_a_full_disk_is_told_in_one_line(environ, redis):
    enqueue(redis, "t1")

    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [*PROGRAM, "ls"],
            env=environ,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
        )

    assert result.returncode == 1
    assert result.stderr == "blueque: cannot write the output: No space left on device\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["ls"],
        ["show", "abcd-1"],
        ["enqueue", "video", "1"],
        ["cancel", "abcd"],
        ["schedule", "ls"],
        ["requeue", "abcd"],
        ["requeue", "--queue", "video"],
        ["host", "drain", "gpu-1"],
        ["export"],
        ["delete", "--kept-too-long"],
        ["delete", "-q", "video", "--state", "pending,scheduled,blocked"],
    ],
)
def test_no_redis_is_code_69_at_once_and_three_lines_at_most(run, arguments):
    before = time.monotonic()

    result = run(*arguments, BLUEQUE_REDIS_URL=unused_url())

    assert (result.returncode, result.stdout) == (69, "")
    assert 1 <= len(result.stderr.splitlines()) <= 3
    assert "BLUEQUE_REDIS_URL" in result.stderr
    assert time.monotonic() - before < 4


def test_when_an_answer_is_lost_the_task_that_is_there_all_the_same_is_named(run, url, client):
    proxy = FaultProxy(url)
    named, enqueued = [], []
    for write in range(1, 10):
        proxy.arm(Fault.CUT_AFTER, write)
        result = run("enqueue", "video", "1", BLUEQUE_REDIS_URL=proxy.url)
        enqueued += result.stdout.split()
        if not proxy.has_struck:
            break
        assert (result.returncode, result.stdout) == (69, "")
        named += re.findall(r"blueque show ([0-9a-f-]{36})", result.stderr)
    proxy.close()

    assert (len(named), len(enqueued)) == (1, 1)
    assert [client.get_task(task_id).status for task_id in named + enqueued] == [
        "pending",
        "pending",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["ls", "--frobnicate"],
        ["show"],
        ["enqueue"],
        ["ls", "--state", "lost"],
        ["ls", "--limit", "0"],
        ["ls", "--limit", "x"],
        ["--redis-url", "http://x", "status"],
        ["status", "--redis-url", "redis://h:port"],
        ["cancel"],
        ["cancel", "abcd", "--wait=soon"],
        ["requeue"],
        ["requeue", "abcd", "--queue", "video"],
        ["requeue", "--queue", ""],
        ["host", "drain"],
        ["host", "frobnicate"],
    ],
)
def test_wrong_usage_is_code_2_and_two_lines(run, arguments):
    result = run(*arguments)

    assert (result.returncode, result.stdout) == (2, "")
    assert 1 <= len(result.stderr.splitlines()) <= 2


@pytest.mark.parametrize("name", ["BLUEQUE_REDIS_URL", "REDIS_URL"])
def test_a_wrong_address_in_the_environment_is_code_78_and_names_the_variable(run, name):
    result = run("status", **({"BLUEQUE_REDIS_URL": ""} | {name: "http://localhost"}))

    assert result.returncode == 78
    assert f"blueque: {name}:" in result.stderr


def test_a_database_that_is_not_there_is_code_78(run, url):
    assert run("status", "--redis-url", url.removesuffix("/0") + "/99").returncode == 78


def test_a_key_of_another_type_is_named_by_looks_and_ends_a_change_with_code_78(run, cli):
    cli.set("blueque_queues", "not ours")

    looked, changed = run("status"), run("enqueue", "video", "1")

    assert (looked.returncode, looked.stderr.splitlines()[-1]) == (0, looked.stderr.splitlines()[0])
    assert "blueque_queues is a string" in looked.stderr
    assert changed.returncode == 78 and "blueque_queues" in changed.stderr


def test_a_user_who_may_only_read_gets_code_77_and_nothing_is_written(run, url, cli, state):
    reads = ["+@read", "+@connection", "+@transaction"]
    cli.acl_setuser("reader", enabled=True, passwords=["+pw"], keys=["*"], commands=reads)
    try:
        result = run(
            "enqueue", "video", "1", BLUEQUE_REDIS_URL=url.replace("redis://", "redis://reader:pw@")
        )
    finally:
        cli.acl_deluser("reader")

    assert (result.returncode, state()) == (77, {})
    assert len(result.stderr.splitlines()) <= 3


def test_a_wrong_password_is_code_77_and_is_not_shown(run, url):
    result = run(
        "status", BLUEQUE_REDIS_URL=url.replace("redis://", "redis://nobody:wrong-secret@")
    )

    assert result.returncode == 77
    assert "wrong-secret" not in result.stdout + result.stderr


def test_the_address_is_taken_before_or_after_the_verb_and_before_the_environment(run, url):
    for arguments in (["--redis-url", url, "status"], ["status", "--redis-url", url]):
        result = run(*arguments, BLUEQUE_REDIS_URL=unused_url())
        assert result.returncode == 0
        assert "(--redis-url)" in result.stdout


OURS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)
]


@pytest.mark.parametrize("kind", OURS)
def test_every_error_of_ours_has_an_exit_code_of_its_own(kind):
    error = kind.__new__(kind)
    error.task_id, error.code, error.command, error.answer, error.what = None, "NOPERM", "", "", ""
    error.refusal, error.sentinel = None, ""
    if isinstance(error, errors.QueueFull):
        error.queue, error.tasks, error.max_pending = "video", 1, 1

    failure = explain(error, "default")

    assert (failure.exit_code != BUG) == (kind is not errors.BluequeError)


def test_who_may_not_wait_for_replicas_lacks_a_right_and_is_not_told_to_try_again():
    refusal = errors.RedisRefused("NOPERM this user has no permissions to run the 'wait' command")
    failure = explain(errors.NotReplicated("create", "t1", 0, 1, 5.0, refusal), "")

    assert (failure.exit_code, "blueque acl check" in failure.advice[0]) == (77, True)


def test_of_a_batch_that_no_replica_has_confirmed_it_is_not_said_that_it_may_not_be_there():
    cause = errors.NotReplicated("create", None, 0, 1, 5.0)
    error = errors.BatchFailed(0, 0, ["t1"], True, cause)
    error.__cause__ = cause
    failure = explain(error, "")

    assert (
        "from position 0 on, may be taken back: create: the change is in Redis" in failure.message
    )
    assert failure.advice == ("A failover may take it back. See: blueque doctor",)


@pytest.mark.parametrize(
    ("what", "helps"), [("row 3: the parameters", True), ("the result", True), ("context", False)]
)
def test_a_higher_limit_is_advised_only_where_one_can_be_set(what, helps):
    (advice,) = explain(errors.TooLarge(what, 2, 1), "").advice or ("",)

    assert ("max_bytes" in advice) is helps


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "",
            "This is the default address. To start Redis and everything else here: blueque dev. Is",
        ),
        ("redis://db1", "The address is from REDIS_URL. Is"),
    ],
    ids=["default", "variable"],
)
def test_what_does_not_answer_is_said_with_where_its_address_came_from(
    monkeypatch, tmp_path, url, said
):
    (tmp_path / "blueque.toml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BLUEQUE_REDIS_URL", raising=False)
    monkeypatch.setenv("REDIS_URL", url)
    away = errors.RedisAway.__new__(errors.RedisAway)

    (advice,) = explain(away, exits._origin(Invocation(), away)).advice

    assert advice.startswith(said)


@pytest.mark.parametrize("is_debug", [False, True])
def test_a_traceback_is_shown_with_debug_only(run, is_debug):
    result = run(*["--debug"] * is_debug, "status", BLUEQUE_REDIS_URL=unused_url())

    assert ("Traceback" in result.stderr) == is_debug
    assert result.returncode == 69


@pytest.mark.parametrize("is_debug", [False, True])
def test_a_bug_is_code_1_with_one_sentence_and_a_traceback_with_debug_only(is_debug):
    code = """if True:
        import click
        from blueque.cli.exits import run
        from blueque.cli.options import debug_option
        @click.command()
        @debug_option
        def command(): raise OverflowError("\\x1b[31m")
        run(command, "program")
    """

    result = subprocess.run(
        [sys.executable, "-c", code, *["--debug"] * is_debug],
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert result.returncode == 1
    assert "program: unexpected OverflowError: \\x1b" in result.stderr
    assert ("Traceback" in result.stderr) == is_debug
    assert is_debug or "\x1b" not in result.stderr


def test_ctrl_c_is_code_130_without_a_word(environ):
    program = subprocess.Popen(
        [*PROGRAM, "enqueue", "video", "--lines"],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None and program.stdout is not None
    program.stdin.write("1\n")
    program.stdin.flush()
    assert len(program.stdout.readline()) == 37  # now it waits for the second line

    program.send_signal(signal.SIGINT)

    code = program.wait(30)  # with its input still open, or it would just come to the end
    _, told = program.communicate()
    assert (code, told) == (130, "1 enqueued, then it stopped:\n")


def test_version_tells_the_version(run):
    assert run("--version").stdout == f"blueque {__version__}\n"


def test_help_has_a_line_of_80_columns_for_every_verb(run):
    lines = run("--help").stdout.splitlines()

    assert max(map(len, lines)) <= 80
    at = lines.index("Each day:")
    verbs = [line.split() for line in lines[at:] if line.startswith("  ")]
    assert sorted(verb for verb, *_ in verbs) == sorted(VERBS)
    assert all(len(words) > 3 and words[-1].endswith(".") for words in verbs)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("ls --limit x", "ls: --limit: 'x' is not a whole number from 1 to 10000"),
        ("ls --limit 0", "ls: --limit: 0 is not a whole number from 1 to 10000"),
        ("ls --lmit 1", "ls: unknown option --lmit; did you mean --limit"),
        ("config --port 1", "config: unknown option --port\n"),  # not: did you mean --color
        ("ls --since soon", "ls: --since: 'soon' is not a time: write 2030-01-31"),
        ("metrics --listen", "--listen requires an argument"),
        ("show", "show: ID is missing"),
        ("enqeue", "enqueue"),
        (
            "enqueue video {a: 1}",
            "enqueue: too many arguments: 1}. It takes QUEUE [JSON | @FILE | -]. Put JSON, and words with spaces, in",
        ),
        ("dev tasks.py", "dev: MODULE: 'tasks.py' is not the name of a module: write tasks"),
    ],
)
def test_a_wrong_option_is_named_with_what_it_takes(run, words, sentence):
    result = run(*words.split())

    assert (result.returncode, result.stdout) == (2, "")
    assert sentence in result.stderr and result.stderr.startswith("blueque")


def test_neither_help_nor_completion_nor_an_unknown_option_loads_what_works():
    """In one new interpreter, from the least to the most, so that what is loaded too early has the
    name of its verb.
    """
    code = """if True:
        import contextlib, io, os, sys
        from blueque.cli import main, listener, scheduler
        from click.shell_completion import shell_complete
        from blueque.cli.failure import Failure

        dear = {
            "redis", "psutil", "asyncio", "ssl", "importlib.metadata", "multiprocessing", "pyarrow", "blueque.protocol",
            "blueque.client", "blueque.connection.redis_py", "blueque.connection.plain",
            "blueque.producer.queue", "blueque.listener.listener",
            "blueque.node.master", "blueque.recovery.judge", "blueque.queries.inspector", "blueque.queries.overview",
        }

        def look(command, *words):
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(main.click.UsageError, Failure):
                command.main(words, "blueque", standalone_mode=False)
            loaded = dear & set(sys.modules)
            dear.difference_update(loaded)
            for name in loaded:
                print("blueque", *words, "loads", name)
            return out.getvalue()

        def looks(command, *words):
            assert look(command, *words, "--help") and not look(command, *words, "--no-such-option"), words

        for command in (main.blueque, listener.command, scheduler.command):
            looks(command)
        for words in sys.argv[1:]:
            looks(main.blueque, *words.split())
        os.environ |= {"COMP_WORDS": "blueque ", "COMP_CWORD": "1"}
        shell_complete(main.blueque, {"obj": main.Invocation()}, "blueque", main.COMPLETE, "bash_complete")
        look(main.blueque, "help")
    """

    result = subprocess.run(
        [sys.executable, "-c", code, *VERBS, *SUBVERBS], capture_output=True, text=True, timeout=60
    )

    assert result.stderr == ""
    assert [line for line in result.stdout.splitlines() if " loads " in line] == []
    assert "plain,status" in result.stdout


def test_the_command_line_itself_loads_neither_client_nor_connection_for_its_help():
    """Whatever `import blueque` may load: an empty package stands in for it here."""
    code = """if True:
        import sys, types, importlib.util
        package = types.ModuleType("blueque")
        package.__path__ = list(importlib.util.find_spec("blueque").submodule_search_locations)
        sys.modules["blueque"] = package
        import blueque.cli.main
        sys.argv[1:] = ["--help"]
        try:
            blueque.cli.main.main()
        except SystemExit:
            print("loaded:", *sorted(name for name in sys.modules if name.startswith(("blueque.", "hiredis", "redis"))))
    """

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30
    )

    assert set(result.stdout.splitlines()[-1].split()[1:]) == {
        "blueque.cli",
        "blueque.cli.exits",
        "blueque.cli.failure",
        "blueque.cli.main",
        "blueque.cli.options",
        "blueque.cli.printing",
        "blueque.errors",
        "blueque.model",
        "blueque.model.units",
        "blueque.model.wrong_types",
        "blueque.system",
        "blueque.system.hosts",
        "blueque.system.signals",
        "blueque.text",
        "blueque.text.format",
        "blueque.text.terminal",
        "blueque.version",
    }


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0 s"),
        (0.84, "0.8 s"),
        (9.94, "9.9 s"),
        (9.96, "9 s"),
        (41.9, "41 s"),
        (60, "1 m"),
        (252, "4 m 12 s"),
        (11520, "3 h 12 m"),
        (3600, "1 h"),
        (187_200, "2 d 4 h"),
        (86400 * 400, "400 d"),
        (-3, "0.0 s"),
        (None, "-"),
        (float("nan"), "-"),
        (float("inf"), "-"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds, words):
    assert span(seconds) == words


def test_a_time_out_of_the_calendar_is_a_dash():
    assert (stamp(1e300, True), stamp(float("nan"), True), stamp(None, True)) == ("-", "-", "-")
    assert stamp(1795238548.7, True) == "2026-11-21 05:22:28 UTC"


def test_wide_characters_count_twice_and_combining_ones_not_at_all():
    assert (width("abc"), width("漢字"), width("e\u0301")) == (3, 4, 1)
    assert pieces("漢字ab", 3) == ["漢", "字a", "b"]


def test_tables_fit_into_eighty_columns_and_cut_hosts_before_names(on_terminal, redis, client):
    queue = client.get_queue("render.4k.final")
    queue.enqueue_many(range(120), keys=[str(n) for n in range(120)], group="sweep-of-november")
    node = "gpu-node-1.example.com_4021"
    protocol.register(redis, queue.name, node, "i1", {"beat_every": 10}, time.time())
    task = queue.enqueue(1, title="sunset over the attic", priority=9)
    protocol.pop(redis, queue.name, node, "i1", "9")
    attempt = AttemptRef(queue.name, task, "token", node)
    protocol.reserve(redis, attempt, "i1", time.time() - 9000)
    protocol.start(redis, attempt, 77, time.time() - 8000)
    protocol.progress(redis, attempt, "450.123456/1500 frames", time.time() - 100)

    lines = {
        words: on_terminal(*words.split(), NO_COLOR="1")
        for words in (
            "status",
            "group ls",
            "schedule ls",
            f"node show {node}",
            "ls --state started",
        )
    }

    for words, shown in lines.items():
        assert max(map(len, shown)) <= 80, words
    assert any("sweep-of-no" in line for line in lines["group ls"])
    (row,) = [line for line in lines["status"] if line.startswith(task[:8])]
    assert "sunset o" in row
    assert not any("450.123456" in line for shown in lines.values() for line in shown)


def test_no_help_shows_the_name_that_click_gives_to_a_type():
    pages = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()

    assert not re.findall(r"--?[a-z-]+ (?:INTEGER|FLOAT|TEXT RANGE|CHOICE)\b.*", pages)


def test_json_is_asked_for_before_or_after_any_verb_that_prints_it(run):
    before, after = run("--json", "queue", "ls"), run("queue", "--json")

    assert json.loads(before.stdout)["kind"] == json.loads(after.stdout)["kind"] == "queues"
    assert json.loads(run("--json").stdout)["kind"] == "status"


@pytest.mark.parametrize("words", [["--json", "enqueue", "video", "1"], ["export", "--json"]])
def test_a_verb_without_json_refuses_it(run, cli, words):
    refused = run(*words)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert "it takes no --json: leave it out" in refused.stderr
    assert not cli.exists("blueque_queues")
