"""blueque cancel, requeue and node drain: what they do, when they ask, and what they say of those
that cannot be.
"""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner
from faults import Fault
from running import Programs, until
from test_cli import NODE, enqueue, fail, ref, start
from transactions import protocol

from blueque.cli import actions, consent, selection
from blueque.cli.failure import Failure
from blueque.cli.main import blueque
from blueque.cli.options import Invocation
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End

pytestmark = pytest.mark.usefixtures("listener")

UUID = "7c1f0a92-6a0e-4c15-9d9b-4a51f1c3a2d0"


def cancel(redis, task, by="ada"):
    protocol.cancel(redis, "video", task, by, None, time.time())


def statuses(client, *tasks):
    return [client.get_task(task).status for task in tasks]


# cancel


def test_what_waits_is_cancelled_at_once_and_who_and_why_is_kept(run, redis, client):
    enqueue(redis, "pending-1")
    protocol.schedule(redis, "video", "scheduled-1", "1", 9e9, time.time())

    result = run("cancel", "pending-1", "scheduled-1", "--as", "ada", "--reason", "bad input")

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "pending-1  cancelled\nscheduled-1  cancelled\n"
    task = client.get_task("pending-1")
    assert (task.status, task.cancelled_by, task.cancel_reason) == ("cancelled", "ada", "bad input")


def test_no_ids_on_standard_input_are_nothing_to_do(run, state):
    before = state()

    result = run("cancel", "-")

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "no tasks\n")
    assert state() == before


@pytest.mark.parametrize("ambiguous", ["abcd", "abc"])
@pytest.mark.parametrize("verb", [["cancel"], ["requeue"]])
def test_a_beginning_that_does_not_say_which_stops_everything(run, redis, state, verb, ambiguous):
    for number in (1, 2):
        enqueue(redis, f"abcd000{number}-0000-4000-8000-000000000000")
    enqueue(redis, "other-1")
    before = state()

    result = run(*verb, "other-1", ambiguous)

    assert (result.returncode, result.stdout, state()) == (2, "", before)


@pytest.mark.parametrize(
    "line", [["cancel"], ["move", "--priority", "5"], ["move", "--to", "audio"]]
)
def test_an_id_that_is_gone_is_no_beginning_of_another(run, redis, state, line):
    enqueue(redis, "order-10")
    before = state()

    result = run(line[0], "order-1", *line[1:])

    assert (result.returncode, result.stdout, state()) == (3, "", before)
    assert "no task 'order-1'" in result.stderr


def test_of_several_the_one_that_is_not_there_does_not_hold_up_the_others(run, redis):
    enqueue(redis, "pending-1")

    result = run("cancel", "nothing-1", "pending-1")

    assert (result.returncode, result.stdout) == (3, "pending-1  cancelled\n")
    assert result.stderr == "no task 'nothing-1'\n"


def test_without_a_terminal_what_runs_is_not_cancelled_and_the_loss_is_said(run, redis, state):
    start(redis, "running-1")
    enqueue(redis, "pending-1")
    before = state()

    one, both = run("cancel", "running-1"), run("cancel", "pending-1", "running-1")

    assert (one.returncode, one.stdout, both.returncode, both.stdout) == (6, "", 6, "")
    assert state() == before
    assert "task running-1 is running, and 2 h 1 m of work would be lost\n" in one.stderr
    assert "1 of 2 tasks is running, and 2 h 1 m of work would be lost\n" in both.stderr
    assert "--yes" in one.stderr
    assert len(one.stderr.splitlines()) <= 3


def test_with_yes_what_runs_is_being_cancelled(run, redis, client, cli):
    start(redis, "running-1")

    result = run("cancel", "running-1", "--yes", "--as", "ada", "--reason", "bad input")

    assert (result.returncode, result.stdout) == (0, "running-1  cancelling\n")
    task = client.get_task("running-1")
    assert (task.status, task.cancelled_by, task.cancel_reason) == ("started", "ada", "bad input")
    assert task.cancel == pytest.approx(time.time(), abs=20)
    assert cli.exists(f"blueque_orders_video_{NODE}")


@pytest.mark.parametrize("typed", [b"y\n", b"Yes\n", b" YES \n"])
def test_on_a_terminal_a_yes_cancels_what_runs(answer, redis, client, typed):
    start(redis, UUID)
    protocol.progress(redis, ref(UUID), "63 % \x1b[2J", time.time())

    code, seen = answer(typed, "cancel", "7c1f")

    assert (code, client.get_task(UUID).cancel is not None) == (0, True)
    assert re.search(r"^7c1f0a92  video  gpu-1_4021  2 h 1 m  63 %$", seen, re.MULTILINE)
    assert (
        "Task 7c1f0a92 is running, and 2 h 1 m of work would be lost.\nCancel 1 task? [y/N] "
        in seen
    )
    assert seen.endswith("7c1f0a92  cancelling\n")


@pytest.mark.parametrize("typed", [b"\n", b"n\n", b"no\n", b"yn\n", b"maybe\n", b"\x04"])
def test_any_other_answer_is_a_no_and_nothing_is_done(answer, redis, state, typed):
    start(redis, "running-1")
    enqueue(redis, "pending-1")
    before = state()

    code, seen = answer(typed, "cancel", "running-1", "pending-1")

    assert (code, state()) == (6, before)
    assert "Cancel 2 tasks? [y/N]" in seen
    assert seen.endswith("blueque: nothing was done\n")


def test_ctrl_c_is_an_answer_too(answer, redis, state):
    start(redis, "running-1")
    before = state()

    # Its own session, with the terminal as the controlling one, or a Ctrl-C would be no signal.
    code, _ = answer(
        b"\x03", "cancel", "running-1", start_new_session=True, preexec_fn=lambda: _take_terminal()
    )

    assert (code, state()) == (130, before)


def _take_terminal():
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.parametrize("stream", ["stdin", "stderr"])
def test_a_question_that_cannot_be_seen_or_answered_is_not_asked(answer, redis, state, stream):
    start(redis, "running-1")
    before = state()

    code, seen = answer(b"y\n", "cancel", "running-1", **{stream: subprocess.DEVNULL})

    assert (code, state()) == (6, before)
    assert "[y/N]" not in seen


def test_the_answer_to_the_question_is_data_and_the_question_is_not(answer, redis, tmp_path):
    start(redis, "running-1")

    with (tmp_path / "out").open("wb") as out:
        code, _ = answer(b"y\n", "cancel", "running-1", stdout=out)

    assert (code, (tmp_path / "out").read_text()) == (0, "running-1  cancelling\n")


def test_nobody_is_asked_twice_about_a_task_that_is_being_cancelled(run, redis):
    start(redis, "running-1")
    cancel(redis, "running-1")

    result = run("cancel", "running-1")

    assert (result.returncode, result.stdout, result.stderr) == (0, "running-1  cancelling\n", "")


def test_what_cannot_be_cancelled_is_code_5_with_the_reason_and_the_others_are(
    run, redis, client, cli
):
    fail(redis, "failed-1")
    cli.hset("blueque_task_failed-1", "finished", "1795238548.5")
    enqueue(redis, "pending-1")
    cli.hset(
        "blueque_task_legacy-1",
        mapping={"status": "started", "queue": "video", "node": "old_1", "pid": "5"},
    )

    result = run("cancel", "failed-1", "pending-1", "legacy-1", "--yes")

    assert (result.returncode, result.stdout) == (5, "pending-1  cancelled\n")
    failed, legacy = result.stderr.splitlines()
    assert failed == "task failed-1 cannot be cancelled: it is failed already"
    assert "1.0.0" in legacy


def test_what_was_cancelled_before_is_cancelled(run, redis, state):
    enqueue(redis, "pending-1")
    cancel(redis, "pending-1")
    before = state()

    result = run("cancel", "pending-1", "--as", "bob")

    assert (result.returncode, result.stdout, state()) == (0, "pending-1  cancelled\n", before)


def test_a_hash_that_is_no_task_is_code_5(run, cli):
    cli.hset("blueque_task_stump-1", "updated", "1")

    result = run("cancel", "stump-1")

    assert (result.returncode, result.stdout) == (5, "")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("wait", [["--wait"], ["--wait", "20s"], ["--wait=20"]])
def test_wait_tells_that_the_task_was_cancelled(begin, redis, client, wait):
    start(redis, "running-1")
    program = begin("cancel", *wait, "running-1", "--yes")

    until(lambda: client.get_task("running-1").cancel)
    protocol.end(redis, ref("running-1"), End.confirm_cancel(), time.time())

    output, talk = program.communicate(timeout=30)
    assert (program.returncode, output, talk) == (0, "running-1  cancelled\n", "")


@pytest.mark.parametrize(("status", "word"), [("complete", "completed"), ("failed", "failed")])
def test_wait_tells_that_the_task_ended_by_itself_first(begin, redis, client, status, word):
    start(redis, "running-1")
    program = begin("cancel", "running-1", "--yes", "--wait")

    until(lambda: client.get_task("running-1").cancel)
    if status == "complete":
        protocol.end(redis, ref("running-1"), End.complete("out"), time.time())
    else:
        protocol.end(redis, ref("running-1"), End.fail("why"), time.time())

    output, talk = program.communicate(timeout=30)
    assert (program.returncode, output) == (5, f"running-1  {status}\n")
    assert talk == f"task running-1 had {word} before it could be cancelled\n"


def test_wait_ends_when_its_time_is_over(run, redis):
    start(redis, "running-1")
    enqueue(redis, "pending-1")

    result = run("cancel", "running-1", "pending-1", "--yes", "--wait", "100ms")

    assert result.returncode == 124
    assert result.stdout == "pending-1  cancelled\nrunning-1  cancelling\n"
    assert result.stderr == "1 task had not ended after 0.1 s; see: blueque show running-1\n"


@pytest.mark.parametrize("word", ["3600", "1d", "2000d"])
def test_what_is_written_as_a_duration_behind_wait_is_no_id(run, redis, client, word):
    enqueue(redis, f"{word}0c3e")
    enqueue(redis, "wanted-1")

    alone, other = run("cancel", "--wait", word), run("cancel", "wanted-1", "--wait", word)

    assert (alone.returncode, other.returncode, other.stdout) == (2, 0, "wanted-1  cancelled\n")
    assert client.get_task(f"{word}0c3e").status == "pending"


def test_what_may_be_both_a_duration_and_an_id_behind_wait_is_asked_for(run, redis, client):
    enqueue(redis, "12345678")
    enqueue(redis, "wanted-1")

    result = run("cancel", "wanted-1", "--wait", "12345678")

    assert (result.returncode, result.stdout) == (2, "")
    assert "put the task before --wait, or write --wait=12345678" in result.stderr
    assert {client.get_task(task).status for task in ("12345678", "wanted-1")} == {"pending"}
    assert run("cancel", "12345678", "--wait").stdout == "12345678  cancelled\n"


def test_wait_without_a_time_leaves_an_id_alone(run, redis):
    enqueue(redis, "abcd5678")

    assert run("cancel", "--wait", "abcd5678").stdout == "abcd5678  cancelled\n"


def test_ctrl_c_ends_the_wait_and_not_the_cancelling(begin, redis, client, cli):
    start(redis, "running-1")
    program = begin("cancel", "running-1", "--yes", "--wait")
    until(lambda: client.get_task("running-1").cancel)
    cli.config_resetstat()
    # it looks whether the task has ended: it waits
    until(lambda: "cmdstat_hmget" in cli.info("commandstats"))

    program.send_signal(signal.SIGINT)

    _, talk = program.communicate(timeout=30)
    assert (program.returncode, talk.startswith("No longer waiting")) == (130, True)
    assert client.get_task("running-1").cancel is not None


def test_when_redis_goes_away_in_between_it_says_how_far_it_got(run, redis, proxy):
    for n in range(3):
        enqueue(redis, f"task-{n}")
    proxy.arm(Fault.CUT_BEFORE, having=b"WATCH\r\n$19\r\nblueque_task_task-1\r\n")

    result = run("cancel", "task-0", "task-1", "task-2", BLUEQUE_REDIS_URL=proxy.url)

    assert (result.returncode, result.stdout, proxy.has_struck) == (69, "task-0  cancelled\n", True)
    assert result.stderr.startswith("1 of 3 done, then it stopped:\n")


def waiting(redis, number):
    for n in range(number):
        enqueue(redis, f"wait-{n:02}")


@pytest.mark.parametrize(
    ("number", "typed", "is_yes"),
    [(3, b"y\n", True), (3, b"n\n", False), (21, b"y\n", False), (21, b"21\n", True)],
)
def test_all_of_a_queue_are_cancelled_after_a_yes_or_their_number(
    answer, redis, client, number, typed, is_yes
):
    start(redis, "runs-1")
    waiting(redis, number)
    protocol.enqueue(redis, "audio", "other", "1", time.time())

    code, seen = answer(typed, "cancel", "-q", "video", "--state", "pending")

    assert max(map(len, seen.splitlines())) <= 80
    assert f"{number} tasks would be cancelled, none of which has started." in seen
    assert re.search(rf"video +pending +{number}\n", seen)
    assert code == (0 if is_yes else 6)
    assert set(statuses(client, *[f"wait-{n:02}" for n in range(number)])) == {
        "cancelled" if is_yes else "pending"
    }
    assert statuses(client, "runs-1", "other") == ["started", "pending"]


def test_without_a_terminal_all_of_a_queue_are_cancelled_with_yes_only(run, redis, client):
    start(redis, "runs-1")
    waiting(redis, 2)
    protocol.schedule(redis, "video", "later", "1", 9e9, time.time())

    refused = run("cancel", "--queue", "vid*")
    assert (refused.returncode, "1 of 4 tasks is running" in refused.stderr) == (6, True)
    dry = run("cancel", "--queue", "video", "--state", "pending", "--dry-run")
    assert dry.returncode == 0
    assert dry.stderr == "2 tasks would be cancelled, none of which has started.\n"
    assert len(dry.stdout.splitlines()) == 2
    assert statuses(client, "wait-00", "runs-1", "later") == ["pending", "started", "scheduled"]

    assert run("cancel", "--queue", "video", "--yes").returncode == 0

    assert statuses(client, "wait-00", "wait-01", "later") == ["cancelled"] * 3
    assert client.get_task("runs-1").cancel is not None
    assert run("cancel", "-q", "video", "--state", "pending").stderr == "no tasks\n"


def test_where_there_are_more_than_go_at_a_time_the_exit_code_says_so(
    redis, client, url, monkeypatch
):
    waiting(redis, 9)
    monkeypatch.setattr(selection, "MOST", 8)

    def cancel_all():
        arguments = ["cancel", "-q", "video", "--yes"]
        return CliRunner().invoke(
            blueque, arguments, obj=Invocation(url=url), standalone_mode=False
        )

    first = cancel_all()
    assert (first.return_value, "there are more" in first.stderr) == (75, True)
    assert len(first.stdout.splitlines()) == 8
    assert cancel_all().return_value == 0
    assert set(statuses(client, *[f"wait-{n:02}" for n in range(9)])) == {"cancelled"}


@pytest.mark.parametrize(
    "arguments",
    [("-q", "video", "--state", "pending", "--yes"), ("-q", "video"), ("wait-00", "wait-01")],
)
def test_what_starts_after_the_look_runs_on_unless_that_was_consented_to(
    redis, client, url, monkeypatch, arguments
):
    waiting(redis, 2)

    def ask(*_):  # the answer takes its time, and is a yes
        protocol.pop(redis, "video", NODE, "i1")
        protocol.reserve(redis, AttemptRef("video", "wait-00", "secret", NODE), "i1", time.time())
        protocol.start(redis, AttemptRef("video", "wait-00", "secret", NODE), 4711, time.time())

    monkeypatch.setattr(actions, "_ask", ask)
    result = CliRunner().invoke(
        blueque, ["cancel", *arguments], obj=Invocation(url=url), standalone_mode=False
    )

    assert (result.return_value, result.stdout) == (5, "wait-01  cancelled\n")
    assert "task wait-00 cannot be cancelled: it is started by now" in result.stderr
    assert client.get_task("wait-00").cancel is None


def test_failed_tasks_of_all_queues_that_a_pattern_matches_are_requeued_at_once(run, client, cli):
    for task, queue in (("a", "render.2k"), ("b", "render.4k"), ("c", "video")):
        cli.hset(
            f"blueque_task_{task}",
            mapping={"status": "failed", "queue": queue, "created": 1, "started": 2},
        )
        cli.lpush(keys.failed(queue), task)
        cli.zadd(keys.QUEUES, {queue: 0})

    assert "2 tasks would start a second time" in run("requeue", "--queue", "render.*").stderr
    result = run("requeue", "--queue", "render.*", "--yes")

    assert (result.returncode, result.stdout) == (0, "a  pending\nb  pending\n")
    assert client.get_task("c").status == "failed"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "name the tasks"),
        (("abcd", "-q", "video"), "name the tasks"),
        (("abcd", "--state", "pending"), "by ID, or select them by options, not both"),
        (("--state", "pending"), "--state needs more"),
        (("-q", "video", "--state", "failed"), "unknown state 'failed': the states are blocked"),
    ],
)
def test_either_ids_or_queues_are_given(run, words, reason):
    result = run("cancel", *words)

    assert (result.returncode, reason in result.stderr) == (2, True)


# requeue


@pytest.mark.parametrize(
    "end", [fail, lambda redis, task: (enqueue(redis, task), cancel(redis, task))]
)
def test_a_failed_or_cancelled_task_is_put_in_line_again_without_a_question(
    run, redis, client, end
):
    end(redis, "ended-1")

    result = run("requeue", "ended-1")

    assert (result.returncode, result.stdout, result.stderr) == (0, "ended-1  pending\n", "")
    task = client.get_task("ended-1")
    assert (task.status, task.error, task.requeued is not None) == ("pending", None, True)


def test_more_than_one_needs_a_yes(run, answer, redis, client, state):
    for n in range(3):
        fail(redis, f"failed-{n}")
    before = state()

    refused = run("requeue", "-", stdin="failed-0\nfailed-1\n")
    denied = answer(b"n\n", "requeue", "failed-0", "failed-1")
    assert (refused.returncode, refused.stdout, denied[0], state()) == (6, "", 6, before)
    assert "2 tasks would start a second time\n" in refused.stderr

    code, seen = answer(b"y\n", "requeue", "failed-0", "failed-1")
    assert code == 0
    assert statuses(client, "failed-0", "failed-1", "failed-2") == ["pending", "pending", "failed"]
    assert "2 tasks would start a second time.\nRequeue 2 tasks? [y/N] " in seen

    assert run("requeue", "failed-2", "failed-1", "--yes").returncode == 5
    assert client.get_task("failed-2").status == "pending"


def test_of_several_queues_the_oldest_failures_are_requeued_first(run, cli):
    for task, finished in (("a", 40), ("b", 20), ("c", 10), ("d", 30)):
        queue = "render.4k" if task in "ab" else "render.hd"
        fields = {
            "status": "failed",
            "queue": queue,
            "parameters": "",
            "created": 1,
            "finished": finished,
        }
        cli.hset(f"blueque_task_{task}", mapping=fields)
    for queue, tasks in (("render.4k", "ba"), ("render.hd", "cd")):
        cli.lpush(keys.failed(queue), *tasks)
        cli.zadd(keys.QUEUES, {queue: 0})

    result = run("requeue", "--queue", "render.*", "--dry-run")

    assert result.stdout.split()[::2] == ["c", "b", "d", "a"]


def test_a_dry_run_says_what_it_would_be_and_writes_nothing(run, redis, state):
    fail(redis, "failed-1")
    fail(redis, "failed-2")
    enqueue(redis, "pending-1")
    before = state()

    every = run("requeue", "--queue", "video", "--dry-run")
    one = run("requeue", "failed-1", "pending-1", "--dry-run")

    assert (every.returncode, every.stdout) == (0, "failed-1  failed\nfailed-2  failed\n")
    assert every.stderr == "2 tasks would start a second time.\n"
    assert (one.returncode, one.stderr.splitlines()[-1]) == (5, "1 task would start a second time.")
    assert "pending-1 cannot be put in line again: it is pending" in one.stderr
    assert state() == before


def test_nothing_that_failed_is_nothing_to_do_and_no_such_queue_is_code_3(run, redis):
    enqueue(redis, "pending-1")

    nothing, nowhere = run("requeue", "--queue", "video"), run("requeue", "--queue", "vidoe")

    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "", "no tasks\n")
    assert (nowhere.returncode, nowhere.stdout) == (3, "")
    assert "'vidoe'" in nowhere.stderr


def lose(redis, task):
    enqueue(redis, task)
    protocol.pop(redis, "video", NODE, "i1")
    protocol.reserve(redis, ref(task), "i1", time.time())
    protocol.start(redis, ref(task), 4711, time.time(), {"files": f"gpu-1:/spool/{task}/1"})
    protocol.end(redis, ref(task), End.fail("gone", {"error_type": "lost"}), time.time())


def test_of_a_lost_task_it_is_said_that_its_old_process_may_run_and_where_its_files_are(run, redis):
    lose(redis, "lost-1")

    result = run("requeue", "lost-1")

    assert (result.returncode, result.stdout) == (0, "lost-1  pending\n")
    assert f"lost with {NODE}" in result.stderr
    assert "gpu-1:/spool/lost-1/1" in result.stderr
    assert re.search(
        r"^last_files +gpu-1:/spool/lost-1/1\n.*no longer counts",
        run("show", "lost-1").stdout,
        re.MULTILINE,
    )


# node drain


def register(redis, node, queue="video", **facts):
    protocol.register(redis, queue, node, f"i-{node}", {"beat_every": 10, **facts}, time.time())


def orders(cli):
    return {
        key.rpartition("_listener_")[2]
        for key in cli.keys("blueque_listener_*")
        if cli.hget(key, "order") == "drain"
    }


def test_one_listener_is_told_without_a_question(run, redis, cli):
    register(redis, "gpu-1.cluster.example.com_22")
    start(redis, "running-1")

    result = run("host", "drain", "gpu-1_4021")

    assert (result.returncode, result.stderr, orders(cli)) == (0, "", {f"video_{NODE}"})
    assert re.search(
        rf"^{NODE} +video +draining +exits after running-1$", result.stdout, re.MULTILINE
    )


def test_all_listeners_of_a_host_are_told_after_a_yes(run, answer, redis, cli):
    register(redis, "gpu-1.cluster.example.com_22", "audio")
    register(redis, NODE, "audio")  # of two queues, and all the same one listener
    register(redis, "gpu-2.cluster.example.com_22")
    start(redis, "running-1")

    refused = run("host", "drain", "gpu-1.cluster.example.com")
    denied, _ = answer(b"\n", "host", "drain", "gpu-1")
    assert (refused.returncode, refused.stdout, denied, orders(cli)) == (6, "", 6, set())
    assert "2 listeners would exit, 1 of them after their task\n" in refused.stderr

    code, seen = answer(b"y\n", "host", "drain", "gpu-1")
    assert code == 0
    assert orders(cli) == {f"video_{NODE}", f"audio_{NODE}", "audio_gpu-1.cluster.example.com_22"}
    assert "Drain 2 listeners? [y/N] " in seen

    assert run("host", "drain", "gpu-1", "--yes").returncode == 0


def test_those_that_cannot_be_told_are_named_and_it_is_code_5(run, redis, cli):
    cli.sadd("blueque_listeners_video", "gpu-1.cluster.example.com_1")
    register(redis, "gpu-1.cluster.example.com_2", beat_every=0)
    register(redis, "gpu-1.cluster.example.com_3")
    protocol.fence(
        redis, "video", "gpu-1.cluster.example.com_3", "i-gpu-1.cluster.example.com_3", "0", 9.25
    )

    result = run("host", "drain", "gpu-1")

    assert (result.returncode, orders(cli)) == (5, {f"video_{NODE}"})
    assert len(result.stdout.splitlines()) == 2
    legacy, library, dead = result.stderr.splitlines()
    assert legacy.startswith("gpu-1.cluster.example.com_1 of video did not get the order:")
    assert ("1.0.0" in legacy, "library" in library, "dead" in dead) == (True, True, True)


def test_nobody_of_that_name_is_code_3_and_a_name_of_two_hosts_code_2(run, redis, cli):
    register(redis, "gpu-1.cluster.example.net_4021")

    nobody, two = run("host", "drain", "gpu-9"), run("host", "drain", "gpu-1")

    assert (nobody.returncode, two.returncode, orders(cli)) == (3, 2, set())
    assert "'gpu-9'" in nobody.stderr
    assert "gpu-1.cluster.example.com, gpu-1.cluster.example.net" in two.stderr


def test_a_silent_listener_is_told_and_that_it_is_silent(run, redis, cli):
    cli.zadd("blueque_nodes_video", {NODE: time.time() - 500})

    result = run("host", "drain", NODE)

    assert (result.returncode, orders(cli)) == (0, {f"video_{NODE}"})
    assert "it follows the order at its next beat" in result.stdout


def orders_of(cli):
    return {
        key.rpartition("_listener_")[2]: cli.hget(key, "order")
        for key in cli.keys("blueque_listener_*")
    }


@pytest.mark.parametrize(
    ("verb", "order", "state"), [("pause", "pause", "paused"), ("resume", "work", "up")]
)
def test_a_host_is_paused_and_resumed_without_a_question_and_again_at_no_cost(
    run, redis, cli, verb, order, state
):
    other = "gpu-1.cluster.example.com_22"
    register(redis, other, "audio")
    start(redis, "running-1")

    for _ in range(2):
        result = run("host", verb, "gpu-1")
        assert (result.returncode, result.stderr) == (0, "")
        assert orders_of(cli) == {f"video_{NODE}": order, f"audio_{other}": order}
        assert re.search(
            rf"^{NODE} +video +{state} +goes on with running-1$", result.stdout, re.MULTILINE
        )


@pytest.mark.parametrize(("verb", "state"), [("pause", "paused"), ("resume", "up")])
def test_node_pause_and_resume_as_json_tell_what_became_of_each(run, redis, cli, verb, state):
    cli.sadd("blueque_listeners_video", "gpu-1.cluster.example.com_1")
    register(redis, "gpu-1.cluster.example.com_2", "audio")
    protocol.order(redis, "audio", "gpu-1.cluster.example.com_2", "drain", "ada")

    result = run("host", verb, "gpu-1", "--json")

    told = json.loads(result.stdout)
    assert (result.returncode, told["kind"]) == (5, f"host_{verb}")
    assert {item["node"]: item["status"] for item in told["items"]} == {
        NODE: state,
        "gpu-1.cluster.example.com_2": "draining",
        "gpu-1.cluster.example.com_1": None,
    }


def test_a_listener_that_was_resumed_is_up_and_nobody_is_said_to_have_told_it(run, redis):
    protocol.order(redis, "video", NODE, "pause", "ada")
    assert "told by     ada: pause" in run("host", "show", "gpu-1").stdout
    protocol.order(redis, "video", NODE, "work", "ada")
    shown = run("host", "show", "gpu-1").stdout
    assert "told by" not in shown and "1 up" in shown


def test_a_real_listener_leaves_when_it_is_told_to_drain(run, url, tmp_path):
    with Programs(url, tmp_path) as programs:
        programs.write("def work(task): return 1")
        listener = programs.listener("work:work", slots=2)
        (node, *_) = [node.id for node in programs.client.get_listeners().find(_host(programs))]

        result = run("host", "drain", node.rpartition("_")[0], "--yes")

        assert (result.returncode, len(result.stdout.splitlines())) == (0, 3)
        assert listener.wait() == 0


def _host(programs):
    return programs.client.get_inspector().listeners("work")[0].rpartition("_")[0]


# consent


def test_who_gives_a_list_of_ids_is_asked_on_the_terminal_itself(monkeypatch, capsys):
    ours, theirs = pty.openpty()
    monkeypatch.setattr(consent, "TERMINAL", os.ttyname(theirs))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    os.write(ours, b"y\nn\n")

    consent.require_consent(False, "2 tasks would start", "Again?", has_ids=True)
    assert capsys.readouterr().err == "2 tasks would start.\nAgain? [y/N] "
    with pytest.raises(Failure, match="nothing was done"):
        consent.require_consent(False, "2 tasks would start", "Again?", has_ids=True)
    with pytest.raises(Failure) as refused:
        consent.require_consent(False, "2 tasks would start", "Again?")
    assert "no terminal to ask on" in refused.value.advice[0]
    os.close(theirs)
    os.close(ours)


@pytest.mark.parametrize("typed", [b"12000\n", b"12,000\n"])
def test_a_large_number_is_typed_as_it_is_asked_for_or_as_the_sentence_has_it(
    monkeypatch, capsys, typed
):
    ours, theirs = pty.openpty()
    monkeypatch.setattr(consent, "TERMINAL", os.ttyname(theirs))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    os.write(ours, typed)

    facts = "12,000 tasks would be deleted for good"
    consent.require_consent(False, facts, "Delete?", number=12_000, has_ids=True)
    assert capsys.readouterr().err.endswith("Delete? [Type 12000 to go on] ")
    os.close(theirs)
    os.close(ours)
