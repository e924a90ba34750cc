"""A listener that leaves by itself: when nothing is left to take, or after a time. And the check of
a container.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from running import clean_environment, outcome, until

WORK = """
    import time
    from pathlib import Path

    from blueque import Client

    def quick(task):
        return "done"

    def run(task):
        Path("began").touch()
        while not Path("go").exists():
            time.sleep(0.005)
        return "done"
"""


def start(programs, handler, *options, slots=1, on_term="drain", **more):
    return programs.listener(
        handler, *options, slots=slots, on_term=on_term, is_awaited=False, **more
    )


def test_until_empty_runs_what_waits_and_what_is_due_and_leaves_what_is_scheduled_for_later(
    programs, queue, state
):
    ids = [queue.enqueue("") for _ in range(3)] + [queue.schedule("", time.time() - 5)]
    later = queue.schedule("", time.time() + 3600)
    listener = start(programs, "work:quick", "--until-empty", slots=2)
    assert listener.wait() == 0
    assert [programs.client.get_task(task_id).status for task_id in ids] == ["complete"] * 4
    assert programs.client.get_task(later).status == "scheduled"
    assert "starting another" not in listener.log and "has been drained" not in listener.log
    assert not any(key.startswith("blueque_listener_") for key in state())
    until(lambda: programs.left() == [], what="that nothing is left")


def test_until_empty_waits_for_its_own_task_and_for_what_that_one_leaves_to_do(programs, queue):
    first = queue.enqueue("")
    listener = start(programs, "work:run", "--until-empty")
    until((programs.directory / "began").exists, what="the task")
    second = queue.enqueue("")
    (programs.directory / "go").touch()
    assert listener.wait() == 0
    assert [programs.client.get_task(task_id).result for task_id in (first, second)] == [
        "done",
        "done",
    ]


def test_until_empty_stays_for_a_task_that_has_become_due_and_that_nobody_has_put_in_line(
    programs, queue
):
    queue.enqueue("")
    listener = start(programs, "work:run", "--until-empty", environ={"BLUEQUE_BEAT": "2s"})
    until((programs.directory / "began").exists, what="the task")
    due = queue.schedule("", eta := time.time() + 0.1)
    until(lambda: time.time() > eta, what="the time at which it is due")
    (programs.directory / "go").touch()
    assert listener.wait() == 0
    assert programs.client.get_task(due).result == "done"


def test_until_empty_stays_while_a_task_is_pending_that_may_not_run_now(programs, queue):
    task_id = queue.enqueue("")
    queue.pause("ann")
    listener = start(programs, "work:quick", "--until-empty")
    until(lambda: programs.client.get_inspector().listeners("work"), what="the listener")
    queue.resume()
    assert listener.wait() == 0
    assert programs.client.get_task(task_id).result == "done"


def test_until_empty_leaves_when_it_is_to_take_nothing_though_tasks_wait(programs, queue):
    running = queue.enqueue("")
    listener = start(programs, "work:run", "--until-empty")
    until((programs.directory / "began").exists, what="the task")
    waiting = queue.enqueue("")
    listener.send(signal.SIGUSR2)
    listener.says("SIGUSR2: taking nothing new")
    (programs.directory / "go").touch()
    assert listener.wait() == 0
    assert programs.client.get_task(running).result == "done"
    assert programs.client.get_task(waiting).status == "pending"


def test_after_its_time_it_takes_nothing_new_and_leaves_when_its_task_has_ended(programs, queue):
    running = queue.enqueue("")
    listener = start(programs, "work:run", "--max-runtime", "0.5s")
    listener.says("--max-runtime is over")
    waiting = queue.enqueue("")
    (programs.directory / "go").touch()
    assert listener.wait() == 0
    assert {programs.client.get_task(running).status, programs.client.get_task(waiting).status} <= {
        "complete",
        "pending",
    }
    assert programs.client.get_task(waiting).status == "pending"


def test_the_first_signal_after_its_time_ends_no_task(programs, queue):
    running = queue.enqueue("")
    listener = start(programs, "work:run", "--max-runtime", "0.5s")
    listener.says("--max-runtime is over")
    until((programs.directory / "began").exists, what="the task")
    listener.send(signal.SIGTERM)
    listener.says("SIGTERM: leaving already")
    (programs.directory / "go").touch()
    assert listener.wait() == 0
    assert programs.client.get_task(running).result == "done"


def test_after_its_time_the_master_that_leaves_running_tasks_behind_goes_at_once(programs, queue):
    running = queue.enqueue("")
    listener = start(programs, "work:run", "--max-runtime", "1s", on_term="leave")
    until((programs.directory / "began").exists, what="the task")
    assert listener.wait() == 0
    assert programs.client.get_task(running).status == "started"
    (programs.directory / "go").touch()
    assert outcome(programs.client, running).result == "done"


def test_a_task_that_its_time_stops_says_so(programs, queue):
    running = queue.enqueue("")
    listener = start(programs, "work:run", "--max-runtime", "1.5s", on_term="stop")
    until((programs.directory / "began").exists, what="the task")
    assert listener.wait() == 0
    stopped = outcome(programs.client, running)
    assert (stopped.status, stopped.error_type) == ("failed", "stopped")
    assert (
        stopped.error
        == "stopped: the listener's --max-runtime of 1.5 s has passed: killed by SIGTERM"
    )


def check(programs, **environ):
    known = {
        "BLUEQUE_SPOOL": str(programs.directory / "spool"),
        "PYTHONPATH": os.pathsep.join(sys.path),
        **environ,
    }
    result = subprocess.run(
        [sys.executable, "-P", "-m", "blueque.node.registry"],
        env=clean_environment() | known,
        capture_output=True,
        text=True,
    )
    assert result.stderr == ""
    return result.returncode, result.stdout.strip()


def test_the_check_of_a_container_sees_who_lives_and_whose_beat_redis_takes(programs, queue):
    assert check(programs) == (1, "0 listeners")
    listener = programs.listener("work:quick", environ={"BLUEQUE_BEAT": "0.1s"}, slots=2)
    assert check(programs) == (0, "2 listeners")
    roster = programs.directory / "spool" / "listeners"
    before = max(path.stat().st_mtime for path in roster.iterdir())
    until(
        lambda: min(path.stat().st_mtime for path in roster.iterdir()) > before,
        what="another beat of each",
    )
    first = next(iter(listener.slots()))
    os.kill(first, signal.SIGSTOP)
    os.utime(roster / str(first), (0, 0))
    try:
        assert check(programs) == (1, "2 listeners, 1 without a beat for 60 s")
    finally:
        os.kill(first, signal.SIGCONT)
    assert listener.stop() == 0
    assert check(programs) == (1, "0 listeners")
