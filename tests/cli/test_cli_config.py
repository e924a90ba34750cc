"""`blueque config`, `completion` and `help`: what is in effect, what a shell completes, and what
words mean.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import in_process
import pytest
from click.shell_completion import shell_complete
from click.testing import CliRunner
from transactions import protocol

from blueque.cli import failure
from blueque.cli.main import blueque
from blueque.cli.options import COMPLETE, Invocation
from blueque.cli.verbs import help
from blueque.cli.verbs.completion import SHELLS
from blueque.queries.listing import STATUSES
from blueque.settings import file
from blueque.settings.table import NAMED, TABLES

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"
TEXT = """redis_url = "redis://ada:geheim@db1:6379/0"
[listener]
slots = 4
retry = { max = 2, backoff = 5 }
[retention]
failed = "never"
[queues."render.4k"]
weight = 5
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty directory, and an environment that says nothing."""
    for name in [name for name in os.environ if name.startswith(("BLUEQUE_", "REDIS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(here):
    def run(*arguments):
        return CliRunner().invoke(blueque, arguments, obj=Invocation())

    return run


def items(result):
    return {item["name"]: item for item in json.loads(result.stdout)["items"]}


def test_each_value_comes_with_the_place_that_says_it(run, here, monkeypatch):
    (here / "blueque.toml").write_text(TEXT)
    monkeypatch.setenv("BLUEQUE_BEAT", "5s")

    found = items(run("config", "--json"))

    places = {name: (item["value"], item["origin"], item["place"]) for name, item in found.items()}
    assert places["redis_url"] == ("redis://ada:***@db1:6379/0", "file", "blueque.toml")
    assert places["listener.slots"] == (4, "file", "blueque.toml [listener]")
    assert places["listener.retry"] == (
        {"max": 2, "backoff": 5.0},
        "file",
        "blueque.toml [listener]",
    )
    assert places["listener.beat"] == ("5s", "environment", "BLUEQUE_BEAT")
    assert places["listener.lease"] == ("1m", "default", None)
    assert places["listener.select"] == ("lottery", "default", None)
    assert places["retention.failed"] == ("never", "file", "blueque.toml [retention]")
    assert places["retention.complete"][1] == "default"
    assert places['queues."render.4k".weight'] == (5, "file", "blueque.toml")


def test_sizes_are_shown_as_people_write_them_whoever_says_them(run, here):
    (here / "blueque.toml").write_text("[listener]\nmemory_limit = 8589934592\n")

    shown = [line.split()[:2] for line in run("config").stdout.splitlines()]

    for one in (
        ["max_bytes", "1MiB"],
        ["listener.log_limit", "1GiB"],
        ["listener.memory_limit", "8GiB"],
    ):
        assert one in shown
    assert items(run("config", "--json"))["max_bytes"]["value"] == "1MiB"


def test_values_that_depend_on_others_are_those_that_a_listener_uses(run, here, monkeypatch):
    monkeypatch.setenv("BLUEQUE_RESOURCES", "gpu=2")
    monkeypatch.setenv("BLUEQUE_LOST_AFTER", "40s")
    found = items(run("config", "--json"))
    assert found["listener.warm"]["value"] is False
    assert found["listener.lease"]["value"] == "40s"

    monkeypatch.setenv("BLUEQUE_LEASE", "5s")
    result = run("config")
    assert (result.exit_code, result.stdout) == (78, "")
    assert "lease is 5 s: at least three beats of 10 s are needed" in result.stderr


def test_nothing_is_shown_of_the_file_that_a_variable_overrules(run, here, monkeypatch):
    (here / "blueque.toml").write_text(
        '[listener]\nhandler = "tasks:work"\n[queues.a]\nexec = "true"\nweight = 2\n'
        '[queues."b.run"]\nhandler = "b:c"'
    )
    monkeypatch.setenv("BLUEQUE_EXEC", "./work.sh")

    found = items(run("config", "--json"))

    assert found["listener.exec"]["value"] == ["./work.sh"]
    assert found["listener.handler"]["value"] is None
    assert [name for name in found if name.startswith("queues.")] == ["queues.a.weight"]


def test_a_password_is_shown_nowhere_whoever_says_it(run, here, monkeypatch):
    (here / "blueque.toml").write_text(TEXT)
    shown = run("config").stdout + run("config", "--json").stdout
    monkeypatch.setenv("BLUEQUE_REDIS_URL", "redis://:geheim@db2/0")
    shown += run("config").stdout
    shown += run("config", "--redis-url", "redis://:geheim@db3/0").stdout

    assert "geheim" not in shown
    assert all(
        words in shown
        for words in (" blueque.toml\n", "environment BLUEQUE_REDIS_URL", "--redis-url")
    )


def test_each_setting_is_among_the_values_and_in_the_example(run, here):
    shown = items(run("config", "--json"))
    names = {
        f"{table}.{row.key}" for table in TABLES if table not in NAMED for row in TABLES[table]
    }
    (here / "blueque.toml").write_text(uncommented(run("config", "--example").stdout))

    written = items(run("config", "--json"))

    assert {*shown} == {name.removeprefix(".") for name in names}
    assert {*written} >= {*shown} - {"listener.exec"}
    of_file = {name for name, one in written.items() if one["origin"] == "file"}
    assert {*shown} - of_file == {"listener.exec"}
    of_queue = {row.key.partition(".")[0] for row in TABLES["queues"]} - {"exec"}
    assert {name.rpartition(".")[2] for name in of_file if name.startswith("queues.")} == of_queue
    of_schedule = {row.key for row in TABLES["schedules"]} - {"every"}
    assert {
        name.rpartition(".")[2] for name in of_file if name.startswith("schedules.")
    } == of_schedule


def test_the_example_says_nothing_as_it_is(run, here):
    assert file.parse(run("config", "--example").stdout) == file.parse("")


def test_the_tables_of_schedules_are_shown_without_secrets_and_with_dates_as_text(run, here):
    table = """queue = "reports"
cron = "30 2 * * *"
start = 2030-01-31T08:00:00+01:00
parameters = { kind = "daily", token = "geheim" }
context = { trace = 5, token = "geheim" }
"""
    (here / "blueque.toml").write_text(f'[schedules."a.b"]\n{table}')

    found = items(run("config", "--json"))

    assert found['schedules."a.b".cron']["value"] == "30 2 * * *"
    assert found['schedules."a.b".start']["value"] == "2030-01-31T08:00:00+01:00"
    assert found['schedules."a.b".parameters']["value"] == {"kind": "daily", "token": "[hidden]"}
    assert found['schedules."a.b".context']["value"] == {"trace": 5, "token": "[hidden]"}


def uncommented(text):
    return re.sub("^#(?! )", "", text, flags=re.M)


def test_without_a_file_it_is_said_where_one_may_lie(run, here):
    without = run("config")
    (here / "blueque.toml").touch()

    assert "or write one: blueque config --example > blueque.toml" in without.stderr
    assert run("config").stderr == ""
    assert json.loads(run("config", "--json").stdout)["file"] == "blueque.toml"


def test_a_mistake_in_the_file_is_code_78(here):
    (here / "blueque.toml").write_text("[listener]\nslotz = 4\n")

    result = in_process.run(["config"], {**os.environ})

    assert (result.returncode, result.stdout) == (failure.CONFIGURATION, "")
    assert "blueque.toml: listener.slotz: unknown key" in result.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_each_shell_asks_this_program(run, shell):
    script = run("completion", shell).stdout

    assert f"_BLUEQUE_COMPLETE={shell}_complete" in script
    asked = subprocess.run(
        [sys.executable, "-m", "blueque.cli.main"],
        env=os.environ | {COMPLETE: f"{shell}_source", "PYTHONPATH": str(DOCS.parent.parent)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (asked.stdout.strip(), asked.stderr, asked.returncode) == (script.strip(), "", 0)


def test_the_script_of_bash_is_one_that_bash_understands(run):
    assert (
        subprocess.run(
            ["bash", "-n"], input=run("completion", "bash").stdout, text=True, timeout=10
        ).returncode
        == 0
    )


@pytest.fixture
def completed(here, url, monkeypatch, capsys):
    """Return what is completed of a line, whose last word has been begun."""

    def completed(line, address=url):
        words = line.split(" ")
        monkeypatch.setenv("BLUEQUE_REDIS_URL", address)
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        shell_complete(blueque, {"obj": Invocation()}, "blueque", COMPLETE, "bash_complete")
        return [text.partition(",")[2] for text in capsys.readouterr().out.split()]

    return completed


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("blueque requ", ["requeue"]),
        ("blueque host sh", ["show"]),
        ("blueque ls --state c", ["cancelled", "complete"]),
        ("blueque ls -q vi", ["video.4k", "video.hd"]),
        ("blueque ls -q x", []),
        ("blueque queue pause video.h", ["video.hd"]),
        ("blueque enqueue video.h", ["video.hd"]),
        ("blueque requeue -q a", ["audio"]),
        ("blueque show abcd", ["abcd-1"]),
        ("blueque schedule show ni", ["nightly"]),
        ("blueque schedule rm x", []),
        ("blueque logs ", ["abcd-1"]),
        ("blueque host drain gpu-1_", ["gpu-1_7"]),
        ("blueque ls --node g", ["gpu-1", "gpu-1_7"]),
    ],
)
def test_what_is_in_redis_is_completed(completed, redis, client, line, words):
    client.set_schedule("nightly", queue="audio", every="1d")
    for queue in ("audio", "video.4k", "video.hd"):
        protocol.register(redis, queue, "gpu-1_7", "i", {"beat_every": 10}, time.time())
    protocol.enqueue(redis, "audio", "abcd-1", "1", time.time())

    assert sorted(completed(line)) == words


def test_a_redis_that_does_not_answer_completes_nothing_and_takes_no_more_than_300_ms(
    completed, capsys
):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        words = completed("blueque ls -q v", f"redis://127.0.0.1:{silent.getsockname()[1]}/0")

    assert (words, capsys.readouterr()) == ([], ("", ""))
    assert time.monotonic() - began < 5  # and not for ever


def test_the_program_itself_answers_a_shell(here, url, redis):
    protocol.enqueue(redis, "audio", "t1", "1", 1.0)
    asked = {
        "COMP_WORDS": "blueque ls -q a",
        "COMP_CWORD": "3",
        "_BLUEQUE_COMPLETE": "bash_complete",
    }

    environment = (
        os.environ | asked | {"BLUEQUE_REDIS_URL": url, "PYTHONPATH": str(DOCS.parent.parent)}
    )
    result = subprocess.run(
        [sys.executable, "-m", "blueque.cli.main"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert (result.stdout, result.stderr, result.returncode) == ("plain,audio\n", "", 0)


def test_help_explains_every_exit_code_state_and_verb(run):
    codes = {
        value for name, value in vars(failure).items() if name.isupper() and isinstance(value, int)
    }

    assert codes - set(help.EXIT_CODES) == set()
    assert set(help.STATES) == set(STATUSES)
    assert "124  the timeout came first" in run("help", "exit-codes").stdout
    assert run("help", "states").stdout.startswith("blocked    ")
    assert run("help", "host", "drain").stdout == run("host", "drain", "--help").stdout
    assert run("help").stdout == run("--help").stdout
    assert run("help", "foo").exit_code == failure.USAGE


# One queue

FILMS = """
import blueque

@blueque.handler("films", retry=3, time_limit="2h")
def film(task):
    pass

@blueque.handler("others", retry=3)
def other(task):
    pass
"""


def test_of_one_queue_each_value_comes_with_the_place_that_says_it(run, here, monkeypatch):
    (here / "films.py").write_text(FILMS)
    (here / "blueque.toml").write_text(
        "[listener]\nmodules = ['films']\ntime_limit = '1h'\nlead = '5s'\nretry = 9\n"
        "cwd = 'task'\n[queues.films]\npythonpath = ['lib']\ngrace = '5s'\n"
        "retention = { complete = '1d' }\n[retention]\nfailed = 'never'"
    )
    monkeypatch.setenv("BLUEQUE_STALL_LIMIT", "9m")

    found = items(run("config", "-q", "films", "--json"))

    said = {name: (item["value"], item["origin"], item["place"]) for name, item in found.items()}
    assert said["handler"] == ("films:film", "file", "blueque.toml [listener]")
    assert said["retry"] == ({"max": 3}, "handler", "films:film")
    assert said["time_limit"] == ("2h", "handler", "films:film")
    assert said["stall_limit"] == ("9m", "environment", "BLUEQUE_STALL_LIMIT")
    assert said["grace"] == ("5s", "file", "blueque.toml [queues.films]")
    assert said["lead"] == ("5s", "file", "blueque.toml [listener]")
    assert said["memory_limit"] == (None, "default", None)
    assert said["pythonpath"] == (["lib"], "file", "blueque.toml [queues.films]")
    assert said["cwd"] == ("task", "file", "blueque.toml [listener]")
    assert said["retention.complete"] == ("1d", "file", "blueque.toml [queues.films]")
    assert said["retention.failed"] == ("never", "file", "blueque.toml [retention]")
    assert said["retention.cancelled"][1] == "default"
    assert "handler films:film" in run("config", "-q", "films").stdout


@pytest.mark.parametrize(
    ("file", "environ", "run_by", "retry"),
    [
        ("[queues.films]\nexec = 'work'", {}, ("exec", ["work"], "file"), "default"),
        ("[listener]\nhandler = 'a:b'", {}, ("handler", "a:b", "file"), "default"),
        (
            "[queues.films]\nhandler = 'a:b'",
            {"BLUEQUE_MODULES": "films"},
            ("handler", "films:film", "environment"),
            "handler",
        ),
        (
            "[listener]\nmodules = ['films']\n[queues.films]\nhandler = 'films:film'",
            {},
            ("handler", "films:film", "file"),
            "handler",
        ),
        (
            "[listener]\nmodules = ['films']",
            {"BLUEQUE_HANDLER": "a:b"},
            ("handler", "a:b", "environment"),
            "default",
        ),
        (
            "",
            {"BLUEQUE_HANDLER": "films:film"},
            ("handler", "films:film", "environment"),
            "handler",
        ),
        ("[listener]\nhandler = 'films:other'", {}, ("handler", "films:other", "file"), "default"),
        ("", {}, ("handler", None, "default"), "default"),
    ],
)
def test_of_one_queue_it_is_told_what_runs_its_tasks(
    run, here, monkeypatch, file, environ, run_by, retry
):
    (here / "films.py").write_text(FILMS)
    (here / "blueque.toml").write_text(file)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    first, *others = json.loads(run("config", "-q", "films", "--json").stdout)["items"]

    assert (first["name"], first["value"], first["origin"]) == run_by
    (origin,) = [one["origin"] for one in others if one["name"] == "retry"]
    assert origin == retry


def test_a_module_that_cannot_be_imported_ends_the_look_at_a_queue(run, here):
    (here / "blueque.toml").write_text("[listener]\nmodules = ['no_such_module']")

    result = run("config", "-q", "films")

    assert result.exit_code == failure.CONFIGURATION
    assert "cannot import the module no_such_module: ModuleNotFoundError" in result.stderr
