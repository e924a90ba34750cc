"""A task that is started, and whose process is gone from this host: no command says that it runs."""

from __future__ import annotations

import json
import os
import time

import in_process
import pytest
from transactions import protocol

from blueque.audit.doctor import Doctor
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End
from blueque.system import process

DOCTOR = ("doctor", "--settle", "0.01")


@pytest.fixture
def run(url):
    kept = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("BLUEQUE_", "REDIS_", "COLUMNS"))
    }
    environ = kept | {"BLUEQUE_REDIS_URL": url, "TZ": "UTC", "PYTHONIOENCODING": "utf-8"}
    return lambda *arguments: in_process.run([*arguments], environ)


@pytest.fixture
def gone():
    """Return the pid of a process that has ended, and what told it from others."""
    pid = process.fork(lambda: 0)
    known = process.identity(pid)
    process.wait_for(pid)
    return pid, known


def begin(redis, pid, known, is_alive=True):
    """Let a listener, this process or one that has ended, have a task that this process runs."""
    node, now = f"{process.host_name()}_{os.getpid() if is_alive else pid}", time.time()
    its = process.identity(os.getpid()) if is_alive else known
    protocol.register(redis, "video", node, "i1", {"beat_every": 10, "lease": 60, **its}, now)
    protocol.enqueue(redis, "video", "t1", "1", now, {"parameters_encoding": "json"})
    protocol.pop(redis, "video", node, "i1")
    protocol.reserve(redis, AttemptRef("video", "t1", "token", node), "i1", now)
    protocol.start(redis, AttemptRef("video", "t1", "token", node), pid, now, known)
    return node


def reasons(result):
    return [(reason["code"], reason["sentence"]) for reason in json.loads(result.stdout)["reasons"]]


def checks(result):
    found = json.loads(result.stdout)["checks"]
    return [(check["level"], check["sentence"]) for check in found if check["name"] == "process"]


def test_of_a_living_listener_it_reports_the_end_at_its_next_beat(run, redis, gone):
    node = begin(redis, *gone)

    ((code, sentence),) = reasons(run("why", "t1", "--json"))
    doctor = run(*DOCTOR, "--json")

    assert code == "process_gone"
    assert sentence == (
        f"It no longer runs: process {gone[0]} is gone from this host. Its end is not recorded yet: its listener "
        f"{node} records it at its next beat. If it does not, restart that listener."
    )
    assert "its process is gone, listener " in run("show", "t1").stdout
    assert checks(doctor) == [
        (
            "warn",
            (
                f"task t1 of queue video is started, and its process {gone[0]} is gone from this host; its listener {node} reports "
                "its end at its next beat. If it stays so, restart that listener."
            ),
        )
    ]
    assert doctor.returncode == 75


def test_of_a_listener_that_is_gone_too_another_one_reports_it(run, redis, gone):
    begin(redis, *gone, is_alive=False)

    ((code, sentence),) = reasons(run("why", "t1", "--json"))

    assert code == "process_gone"
    assert (
        "Its end is not recorded yet: start a listener of video here, with its spool, to record it."
        in sentence
    )
    ((_, advice),) = checks(run(*DOCTOR, "--json"))
    assert (
        "a listener of the queue here with its spool reports its end: blueque-listener video --module"
        in advice
    )


@pytest.mark.parametrize(
    "known",
    [{}, {"boot": "another", "ns": "4026531836", "pid_start": 7}],
    ids=["not known", "of another machine"],
)
def test_of_a_process_that_cannot_be_seen_from_here_nothing_is_said(run, redis, gone, known):
    begin(redis, gone[0], known)

    assert [code for code, _ in reasons(run("why", "t1", "--json"))] == ["running"]
    assert checks(run(*DOCTOR, "--json")) == []
    assert "its process is gone" not in run("show", "t1").stdout


def test_of_a_process_that_lives_and_of_one_whose_pid_another_has_by_now(run, redis):
    begin(redis, os.getpid(), process.identity(os.getpid()))
    assert checks(run(*DOCTOR, "--json")) == []

    redis.read(("HSET", keys.task("t1"), "pid_start", "1"))

    assert [level for level, _ in checks(run(*DOCTOR, "--json"))] == ["warn"]


def test_a_task_that_ends_while_the_doctor_looks_is_not_named(client, redis, gone, monkeypatch):
    node = begin(redis, *gone)
    doctor = Doctor(client.connections)

    def end(seconds):
        protocol.end(
            redis,
            AttemptRef("video", "t1", "token", node),
            End.complete("1", {"result_encoding": "json"}),
            time.time(),
        )

    monkeypatch.setattr(time, "sleep", end)

    assert [check for check in doctor.check(0.5) if check.name == "process"] == []
