"""blueque interrupt: what it does, when it asks, and what it says of tasks that do not run."""

from __future__ import annotations

import json
import time

import pytest
from running import until
from test_cli import NODE, enqueue, start
from transactions import protocol

from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End

pytestmark = pytest.mark.usefixtures("listener")

POLICY = '{"max":1}'


def give_policy(redis, task):
    redis.read(("HSET", keys.task(task), "retry", POLICY))


def release(redis, task):
    token = redis.read(("HGET", keys.task(task), "token"))[0]
    attempt = AttemptRef("video", task, token, NODE)
    assert (
        protocol.end(redis, attempt, End.release(None, "interrupted"), time.time()).status
        == "pending"
    )


def test_a_task_with_a_policy_is_interrupted_without_a_question(run, redis, client, cli):
    start(redis, "running-1")
    give_policy(redis, "running-1")

    result = run("interrupt", "running-1", "--as", "ada", "--reason", "reboot")

    assert (result.returncode, result.stdout, result.stderr) == (0, "running-1  interrupting\n", "")
    task = client.get_task("running-1")
    assert (task.is_interrupted, task.interrupted_by) == (True, "ada")
    assert task.interrupt_reason == "reboot"
    assert cli.exists(f"blueque_orders_video_{NODE}")


def test_without_a_policy_and_a_terminal_it_needs_yes(run, redis, client, state):
    start(redis, "running-1")
    start(redis, "running-2")
    give_policy(redis, "running-2")
    before = state()

    one, both = run("interrupt", "running-1"), run("interrupt", "running-1", "running-2")

    assert (one.returncode, both.returncode, state()) == (6, 6, before)
    assert "task running-1 has no retry policy, and would start a second time\n" in one.stderr
    assert "1 of 2 tasks has no retry policy, and would start a second time\n" in both.stderr
    assert run("interrupt", "running-1", "running-2", "--yes").returncode == 0
    assert client.get_task("running-1").is_interrupted
    assert client.get_task("running-2").is_interrupted


def test_what_does_not_run_is_code_5_and_the_others_are_interrupted(run, redis, client, cli):
    start(redis, "running-1")
    enqueue(redis, "pending-1")
    cli.hset(
        "blueque_task_legacy-1",
        mapping={"status": "started", "queue": "video", "node": "old_1", "pid": "5"},
    )

    result = run("interrupt", "pending-1", "running-1", "legacy-1", "--yes")

    assert (result.returncode, result.stdout) == (5, "running-1  interrupting\n")
    assert result.stderr.splitlines() == [
        "task pending-1 cannot be interrupted: it is pending, so it does not run",
        "task legacy-1 cannot be interrupted: old_1 has it, a listener of 1.0.0, which takes "
        "no orders",
    ]


def test_wait_says_that_it_is_in_line_again_or_has_ended_first(run, redis, cli):
    for name in ("running-1", "running-2"):
        start(redis, name)
        give_policy(redis, name)
    run("interrupt", "running-1", "running-2")
    release(redis, "running-1")
    token = redis.read(("HGET", keys.task("running-2"), "token"))[0]
    late = run("interrupt", "running-2", "--wait", "0s")
    protocol.end(
        redis, AttemptRef("video", "running-2", token, NODE), End.complete("1"), time.time()
    )

    assert (late.returncode, late.stdout) == (124, "running-2  interrupting\n")
    assert "1 task had not ended after 0.0 s; see: blueque show running-2\n" in late.stderr
    result = run("why", "running-1")
    assert (
        "It was interrupted " in result.stdout
        and "It runs again; this does not count as a failure." in result.stdout
    )


def test_wait_returns_when_the_listener_has_handed_it_back(begin, redis, client):
    start(redis, "running-1")
    give_policy(redis, "running-1")
    program = begin("interrupt", "running-1", "--wait", "--as", "ada")
    until(lambda: client.get_task("running-1").is_interrupted, what="the order")

    release(redis, "running-1")

    assert program.wait(20) == 0
    assert program.stdout.read() == "running-1  interrupted\n"


def test_show_and_why_say_who_has_interrupted_it_and_why(run, redis):
    start(redis, "running-1")
    run("interrupt", "running-1", "--yes", "--as", "ada", "--reason", "reboot")

    shown, why = run("show", "running-1"), run("why", "running-1")
    item = json.loads(run("show", "running-1", "--json").stdout)["item"]

    assert "started, attempt 1, interrupting" in shown.stdout
    assert "ago, by ada: reboot" in shown.stdout
    assert "It is being interrupted: asked for " in why.stdout and " by ada: reboot." in why.stdout
    assert (item["interrupted_by"], item["interrupt_reason"]) == ("ada", "reboot")
    assert item["interrupted_at"] is not None
