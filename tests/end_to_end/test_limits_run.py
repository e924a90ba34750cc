"""Limits on real processes: what strikes when, what the task hears before, and what is recorded of
what it took.
"""

from __future__ import annotations

import os
import re
import signal
import time

import pytest
from handlers import (
    WORK,
    begin,
    children_of_task,
    ended,
    files,
    has_moved,
    is_sound,
    ledger,
    let_go,
    pid_of,
)
from running import Programs, is_there, state_of, until

from blueque import Retry
from blueque.system.embedded_redis import running_server

MEBI = 1 << 20


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """One listener without any limit of its own, in a place that all tests here share."""
    with (
        running_server() as server,
        Programs(server.url, tmp_path_factory.mktemp("limits")) as programs,
    ):
        programs.write(WORK)
        programs.listener("work:run", slots=6, grace="0.5s")
        yield programs


@pytest.fixture(scope="module")
def strict(programs):
    """A listener that has limits for tasks which have none."""
    retry = '{"max": 1, "backoff": 0, "on": ["time_limit"]}'
    return programs.listener(
        "work:run", "--time-limit", "0.4s", "--retry", retry, queue="strict", slots=2
    )


@pytest.fixture(scope="module")
def shell(programs):
    """A listener whose tasks are programs: the parameters are a script."""
    return programs.listener("--exec", "sh", queue="shell", slots=2)


def measured(error, form):
    """Return the number that the error names, which must be of this form."""
    found = re.fullmatch(form, error)
    assert found, error
    return float(found[1].replace(",", ""))


def has_children(task, count):
    """Wait until the task has so many processes besides its own, and return them."""
    until(lambda: len(children_of_task(task.id)) == count, what=f"{count} children")
    return children_of_task(task.id)


# Each limit


def test_a_task_that_takes_longer_than_its_time_limit_is_ended_and_the_error_names_limit_and_time(
    programs,
):
    task = begin(programs, time_limit=0.5)
    failed = ended(programs.client, task.id)
    assert (failed.status, failed.error_type, failed.signal) == ("failed", "time_limit", "SIGTERM")
    assert (
        0.5
        <= measured(failed.error, r"time_limit of 0\.5 s exceeded after (.+) s: killed by SIGTERM")
        < 2
    )
    assert 0.4 < failed.finished - failed.started < 5
    assert failed.interruptions is None and failed.attempt == 1 and not is_there(task.pid)


def test_a_task_without_progress_for_its_stall_limit_is_ended_and_the_error_names_limit_and_silence(
    programs,
):
    task = begin(programs, "tell_progress_and_wait 12", stall_limit=0.8)
    failed = ended(programs.client, task.id)
    assert (failed.status, failed.error_type) == ("failed", "stall_limit")
    assert (
        0.8
        <= measured(
            failed.error,
            r"stall_limit of 0\.8 s exceeded, no progress for (.+) s: killed by SIGTERM",
        )
        < 3
    )
    # not in the 1.2 s in which it told of progress
    assert 1.9 < failed.finished - failed.started < 6


def test_a_program_stays_alive_by_touching_its_progress_file_and_stalls_when_it_stops(
    programs, shell
):
    queue = programs.client.get_queue("shell")
    busy = (
        'for n in 1 2 3 4 5 6 7; do echo $n of 7 > "$BLUEQUE_TASK_DIR/progress"; sleep 0.2; done; '
    )
    lively = queue.enqueue(busy + "echo done", stall_limit=0.9)
    silent = queue.enqueue(busy + "sleep 1000", stall_limit=0.9)
    done, failed = ended(programs.client, lively), ended(programs.client, silent)
    assert (done.status, done.result) == ("complete", "done")
    assert (failed.status, failed.error_type) == ("failed", "stall_limit")
    assert failed.finished - failed.started > 1.4


def test_the_memory_limit_counts_the_whole_tree_and_the_error_names_limit_and_bytes(programs):
    task = begin(programs, "have_a_child_eat 150", memory_limit="100MiB")
    (child,) = has_children(task, 1)
    failed = ended(programs.client, task.id)
    assert (failed.status, failed.error_type) == ("failed", "memory_limit")
    used = measured(
        failed.error,
        "memory_limit of 104,857,600 bytes exceeded with (.+) bytes: killed by SIGTERM",
    )
    assert 150 * MEBI < used < 250 * MEBI
    assert failed.memory_peak > 150 * MEBI
    assert not is_there(task.pid) and not is_there(child)


def test_memory_that_processes_share_counts_once(programs):
    task = begin(programs, "share 60 3 1.5", memory_limit="120MiB")
    done = ended(programs.client, task.id)
    assert (done.status, done.result) == ("complete", "done")
    assert done.memory_peak > 240 * MEBI  # which is where it was looked at closely, and let pass


def test_who_ignores_sigterm_is_killed_with_its_children_after_the_grace_of_the_task(programs):
    task = begin(programs, "ignore", time_limit=0.3, grace=0.7)
    failed = ended(programs.client, task.id)
    assert (failed.error_type, failed.signal) == ("time_limit", "SIGKILL")
    assert (
        0.3
        <= measured(failed.error, r"time_limit of 0\.3 s exceeded after (.+) s: killed by SIGKILL")
        < 2
    )
    assert 0.95 < failed.finished - failed.started < 5


# The warning


@pytest.mark.parametrize(
    ("how", "limits"),
    [
        ("await_warning", {"time_limit": 60, "lead": 59.7}),
        ("await_warning", {"stall_limit": 3, "lead": 2.7}),
        ("eat_until_warned 185", {"memory_limit": "200MiB", "lead": 1}),
    ],
)
def test_a_task_is_warned_before_a_limit_strikes_and_may_end_by_itself(programs, how, limits):
    task = begin(programs, how, **limits)
    done = ended(programs.client, task.id)
    assert (done.status, done.result) == ("complete", "has heeded the warning")


def test_the_warning_reaches_a_program_and_not_its_wrapper(programs, shell):
    script = "trap 'echo warned; exit 0' USR1; echo > $BLUEQUE_TASK_DIR/ready; while :; do sleep 0.05; done"
    task_id = programs.client.get_queue("shell").enqueue(script, time_limit=60, lead=59)
    done = ended(programs.client, task_id, 5)
    assert (done.status, done.result) == ("complete", "warned")
    assert (files(programs, done) / "ready").exists()


def test_without_a_lead_there_is_no_warning_but_who_looks_may_finish_in_its_grace_when_the_limit_strikes(
    programs,
):
    task = begin(programs, "await_warning", time_limit=0.5)
    done = ended(programs.client, task.id)
    assert (done.status, done.result) == ("complete", "has heeded the warning")
    assert 0.5 <= done.finished - done.started < 5


# Retries, and the limits of the listener


def test_a_limit_is_a_failure_like_others_to_the_retry_policy(programs):
    again = begin(
        programs, "first_nap 1000", time_limit=0.3, retry=Retry(max=1, backoff=0, on=["time_limit"])
    )
    never = begin(
        programs, "first_nap 1000", time_limit=0.3, retry=Retry(max=1, backoff=0, on=["ValueError"])
    )
    done = ended(programs.client, again.id)
    assert (done.status, done.attempt, done.failures) == ("complete", 2, 1)
    assert done.last_error_type == "time_limit"
    assert done.last_error.startswith("time_limit of 0.3 s exceeded")
    failed = ended(programs.client, never.id)
    assert (failed.status, failed.attempt, failed.error_type) == ("failed", 1, "time_limit")
    assert len(ledger(programs, again.id)) == 2 and len(ledger(programs, never.id)) == 1


def test_limits_and_policy_of_the_listener_hold_for_tasks_that_have_none_and_those_of_a_task_go_before(
    programs, strict
):
    queue = programs.client.get_queue("strict")
    by_default = queue.enqueue("first_nap 1000")
    own = queue.enqueue("nap 1", time_limit=60)
    never = queue.enqueue("nap 1000", retry=False)
    done = ended(programs.client, by_default)
    assert (done.status, done.attempt, done.last_error_type) == ("complete", 2, "time_limit")
    assert ended(programs.client, own).status == "complete"
    assert ended(programs.client, own).attempt == 1
    failed = ended(programs.client, never)
    assert (failed.status, failed.attempt, failed.error_type) == ("failed", 1, "time_limit")


# After an adoption


def test_limits_hold_and_use_is_recorded_after_the_listener_was_killed(programs):
    listener = programs.listener("work:run", queue="adopted", slots=3)
    used = begin(programs, "use well", queue="adopted")
    leaving = begin(programs, "leave_children plain session", queue="adopted")
    children = has_children(leaving, 2)
    limited = begin(programs, queue="adopted", time_limit=5)
    for task in (limited, used, leaving):
        os.kill(pid_of(task.node), signal.SIGKILL)
    for task in (limited, used, leaving):
        has_moved(programs.client, task)
    assert all(is_there(pid) for pid in [limited.pid, used.pid, leaving.pid, *children])
    let_go(programs, used.id)
    let_go(programs, leaving.id)
    done = ended(programs.client, used.id)
    assert (done.status, done.attempt, done.pid) == ("complete", 1, used.pid)
    assert done.cpu_seconds >= 0.3 and done.memory_peak > 60 * MEBI
    done = ended(programs.client, leaving.id)
    assert (done.status, done.leaked) == ("complete", 2)
    assert not any(map(is_there, children))
    failed = ended(programs.client, limited.id)
    assert (failed.status, failed.error_type, failed.attempt) == ("failed", "time_limit", 1)
    assert (
        5
        <= measured(failed.error, r"time_limit of 5 s exceeded after (.+) s: killed by SIGTERM")
        < 20
    )
    assert 4.9 < failed.finished - failed.started < 20
    assert is_sound(programs.client)
    assert listener.stop() == 0


# What was used, and what was left behind


@pytest.mark.parametrize(
    ("how", "status", "error_type"),
    [("well", "complete", None), ("fail", "failed", "ValueError"), ("kill", "failed", "signal")],
)
def test_peak_memory_and_processor_time_of_the_whole_tree_are_recorded_however_it_ends(
    programs, how, status, error_type
):
    task = begin(programs, f"use {how}")
    let_go(programs, task.id)
    done = ended(programs.client, task.id)
    assert (done.status, done.error_type) == (status, error_type)
    assert 0.3 <= done.cpu_seconds < 5
    assert 60 * MEBI < done.memory_peak < 250 * MEBI


def test_children_that_a_task_leaves_are_ended_wherever_they_have_gone_and_counted(programs):
    task = begin(programs, "leave_children plain session twice deaf")
    children = has_children(task, 4)
    let_go(programs, task.id)
    done = ended(programs.client, task.id)
    assert (done.status, done.result, done.leaked) == ("complete", "done", 4)
    assert not any(map(is_there, children))
    assert done.updated - done.finished > 0.4  # the deaf one had the grace


def test_a_child_that_ends_by_itself_within_the_grace_is_not_waited_for_any_longer(programs):
    task = begin(programs, "leave_children short", grace=60)
    (child,) = has_children(task, 1)
    let_go(programs, task.id)
    done = ended(programs.client, task.id)
    assert (done.status, done.result) == ("complete", "done") and not is_there(child)


@pytest.mark.parametrize("word", ["stop", "cancel"])
def test_who_wants_an_end_does_not_wait_for_the_grace_of_children_that_a_task_has_left(
    programs, word
):
    listener = programs.listener("work:run", "--beat", "0.2s", queue="deaf", grace="60s")
    task = begin(programs, "leave_children deaf", queue="deaf")
    (child,) = has_children(task, 1)
    let_go(programs, task.id)
    until(
        lambda: not is_there(task.pid) or state_of(task.pid) == "Z",
        what="the end of the task process",
    )
    time.sleep(0.5)  # for their SIGTERM
    assert is_there(child) and programs.client.get_task(task.id).status == "started"
    if word == "cancel":
        assert programs.client.get_queue("deaf").cancel(task.id) == "cancelling"
    else:
        listener.send(signal.SIGTERM)
        listener.says("taking nothing new")
        listener.send_again(signal.SIGTERM)
    done = ended(programs.client, task.id, 5.0)
    assert (done.status, done.result, done.leaked) == ("complete", "done", 1) and not is_there(
        child
    )
    assert (listener.wait(5.0) if word == "stop" else listener.stop()) == {
        "stop": 128 + signal.SIGTERM,
        "cancel": 0,
    }[word]


def test_a_limit_ends_children_that_have_left_the_session_too(programs):
    task = begin(programs, "leave_children plain session twice deaf", time_limit=1)
    children = has_children(task, 4)
    failed = ended(programs.client, task.id)
    assert failed.error_type == "time_limit"
    assert not any(map(is_there, children))
    until(lambda: not is_there(task.pid), what="the end of the task process")
