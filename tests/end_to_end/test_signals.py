"""Orders: a listener is told to leave, or to stop its tasks; and the death of each party."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import signal
import threading
import time
from pathlib import Path

from running import (
    Programs,
    children_of,
    is_there,
    outcome,
    patched,
    slot_of_process,
    terminal,
    until,
)

from blueque.system.process import host_name

# Every task notes that it runs, and ends when told to. `runs` gets a line for each run of a task.
WORK = """
    import os, signal, sys, time
    from pathlib import Path


    def run(task):
        with open("runs", "a") as ledger:
            print(task.id, file=ledger)
        return globals()[task.parameters or "wait"](task)

    def quick(task):
        return "done"

    def wait(task):
        Path(f"began.{task.id}").touch()
        while not Path("go").exists() and not Path(f"go.{task.id}").exists():
            time.sleep(0.005)
        return "done"

    def ignore(task):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return wait(task)

    def finish(task):
        signal.signal(signal.SIGTERM, lambda *_: Path(f"go.{task.id}").touch())
        return wait(task)

    def complain(task):
        def complain(*_):
            raise RuntimeError("do not disturb")
        signal.signal(signal.SIGTERM, complain)
        return wait(task)
"""

# What a listener that has left leaves in Redis.
OF_LISTENERS = (
    "blueque_listeners_",
    "blueque_listener_",
    "blueque_nodes_",
    "blueque_reserved_",
    "blueque_started_",
)


def begin(programs, queue, how=""):
    """Put a task in line and return its id when it is certainly running."""
    task_id = queue.enqueue(how)
    until((programs.directory / f"began.{task_id}").exists, what="the task")
    assert programs.client.get_task(task_id).status == "started"
    return task_id


def let_go(programs):
    (programs.directory / "go").touch()


def runs(programs):
    return (programs.directory / "runs").read_text().split()


def of_listeners(state):
    return {key: value for key, value in state().items() if key.startswith(OF_LISTENERS)}


def blocked(cli):
    """Return how many listeners wait for a marker."""
    return cli.info("clients")["blocked_clients"]


def test_the_first_signal_lets_the_running_task_end_takes_nothing_new_and_leaves_with_0(
    programs, queue, state
):
    listener = programs.listener("work:run")
    running = begin(programs, queue)
    listener.send(signal.SIGTERM)
    listener.says("taking nothing new")
    waiting = queue.enqueue("quick")
    assert programs.client.get_task(running).status == "started" and listener.is_running
    let_go(programs)
    assert listener.wait() == 0
    assert programs.client.get_task(running).result == "done"
    assert programs.client.get_task(waiting).status == "pending"
    assert of_listeners(state) == {}
    assert state()["blueque_queues"] == {"work": 0}
    until(lambda: programs.left() == [], what="that nothing is left")


def test_the_second_signal_stops_the_task_and_leaves_with_the_code_of_that_signal(
    programs, queue, state
):
    listener = programs.listener("work:run")
    task_id = begin(programs, queue)
    listener.send(signal.SIGTERM)
    listener.says("taking nothing new")
    listener.send_again(signal.SIGTERM)
    assert listener.wait() == 128 + signal.SIGTERM
    task = programs.client.get_task(task_id)
    assert (task.status, task.error) == ("failed", "stopped by operator: killed by SIGTERM")
    assert (task.error_type, task.signal) == ("stopped", "SIGTERM")
    assert of_listeners(state) == {}
    until(lambda: programs.left() == [], what="that nothing is left")


def test_one_signal_that_comes_twice_to_the_process_and_to_its_group_counts_once(programs, queue):
    listener = programs.listener("work:run")
    task_id = begin(programs, queue)
    listener.send(signal.SIGTERM)
    listener.says("taking nothing new")
    listener.send(signal.SIGTERM)
    let_go(programs)
    assert listener.wait() == 0
    assert programs.client.get_task(task_id).result == "done" and "stopping" not in listener.log


def test_two_different_signals_are_two_however_fast_they_come(programs, queue):
    listener = programs.listener("work:run")
    task_id = begin(programs, queue)
    listener.send(signal.SIGTERM)
    listener.says("taking nothing new")
    listener.send(signal.SIGINT)
    assert listener.wait() == 128 + signal.SIGINT
    assert programs.client.get_task(task_id).error_type == "stopped"


def test_a_stopped_task_may_end_in_its_own_way_within_the_grace(programs, queue):
    ends = {
        "ignore": ("failed", "stopped by operator: killed by SIGKILL", None),
        "complain": ("failed", "stopped by operator: RuntimeError: do not disturb", None),
        "finish": ("complete", None, "done"),
    }
    listener = programs.listener("work:run", slots=3, grace="0.5s")
    tasks = {how: begin(programs, queue, how) for how in ends}
    listener.send(signal.SIGTERM)
    listener.says("taking nothing new")
    listener.send_again(signal.SIGTERM)
    listener.wait()
    ended = {how: programs.client.get_task(task_id) for how, task_id in tasks.items()}
    assert {how: (task.status, task.error, task.result) for how, task in ended.items()} == ends
    until(lambda: programs.left() == [], what="that nothing is left")


def test_a_stopped_program_gets_the_signal_itself_and_so_does_what_it_has_started(programs, queue):
    script = (
        "trap 'echo caught > caught; exit 5' TERM; touch began.$BLUEQUE_TASK_ID; sleep 1000 & wait"
    )
    listener = programs.listener("--exec", "sh", "-c", script)
    task_id = begin(programs, queue)
    listener.send(signal.SIGTERM)
    listener.says("taking nothing new")
    listener.send_again(signal.SIGTERM)
    assert listener.wait() == 143
    task = programs.client.get_task(task_id)
    assert (task.error, task.error_type) == ("stopped by operator: exit code 5", "stopped")
    assert task.exit_code == 5
    assert (programs.directory / "caught").exists()
    until(lambda: programs.left() == [], what="that nothing is left")


def test_one_ctrl_c_on_the_terminal_counts_once_and_the_task_runs_on_to_its_end(programs, queue):
    with terminal() as tty:
        listener = programs.listener("work:run", slots=2, **tty.options)
        task_id = begin(programs, queue)
        tty.press_ctrl_c()
        listener.says("taking nothing new")
        until(lambda: len(listener.slots()) == 1, what="the leaving of the idle listener")
        let_go(programs)
        assert listener.wait() == 0
        assert programs.client.get_task(task_id).result == "done"
        assert "stopping" not in listener.log


def test_what_the_terminal_sends_to_its_foreground_goes_to_the_master_alone(programs):
    with terminal() as tty:
        listener = programs.listener("work:run", "--warm", slots=2, **tty.options)
        slots = listener.slots()
        spares = until(
            lambda: {pid for slot in slots for pid in children_of(slot)}, what="the spare processes"
        )
        assert os.getpgid(listener.pid) == listener.pid
        assert [os.getpgid(pid) for pid in slots] == slots
        until(
            lambda: {os.getsid(pid) for pid in spares} == spares,
            what="a session for each spare process",
        )


def test_an_idle_listener_leaves_at_once_although_it_waits_in_redis(programs, cli):
    listener = programs.listener("work:run", slots=2)
    until(lambda: blocked(cli) == 2, what="an idle listener")
    asked = time.monotonic()
    listener.send(signal.SIGTERM)
    assert listener.wait() == 0
    assert time.monotonic() - asked < 2


def _has_begun_to_fork(listener):
    return listener.lines("20 slots") and children_of(listener.pid)


def test_a_signal_in_the_first_moments_of_many_slots_is_neither_lost_nor_counted_twice(programs):
    for _ in range(2):
        listener = programs.listener("work:run", slots=20, is_awaited=False)
        until(functools.partial(_has_begun_to_fork, listener), what="the first slot")
        listener.send(signal.SIGTERM)
        assert listener.wait(8) == 0
        assert "stopping" not in listener.log


def test_a_listener_is_told_to_leave_while_redis_is_away_before_it_has_registered(programs):
    programs.url = "redis://127.0.0.1:1/0"
    listener = programs.listener("work:run", is_awaited=False)
    listener.says("waiting")
    assert listener.stop() == 0


def test_an_idle_listener_that_cannot_take_leave_of_redis_leaves_all_the_same(own_server, tmp_path):
    with Programs(own_server.url, tmp_path) as programs:
        programs.write(WORK)
        listener = programs.listener("work:run")
        own_server.kill()
        listener.says("waiting")
        listener.send(signal.SIGTERM)
        assert listener.wait(3) == 0


def test_orders_are_obeyed_while_redis_stands_still(own_server, tmp_path):
    with Programs(own_server.url, tmp_path) as programs:
        programs.write(WORK)
        listener = programs.listener("work:run", environ={"BLUEQUE_BEAT": "0.2"})
        begin(programs, programs.client.get_queue("work"))
        os.kill(own_server.pid, signal.SIGSTOP)
        try:
            time.sleep(0.5)  # the length of two beats: one of them now waits for its answer
            listener.send(signal.SIGTERM)
            listener.send(signal.SIGINT)
            until(lambda: "stopping task" in listener.log, 2, "obedience")
        finally:
            os.kill(own_server.pid, signal.SIGCONT)


def test_a_wake_up_marker_that_goes_to_a_leaving_listener_wakes_another_one(programs, queue, cli):
    first = programs.listener("work:run")
    until(lambda: blocked(cli) == 1, what="the first in line for the marker")
    (slot,) = first.slots()
    programs.listener("work:run")
    until(lambda: blocked(cli) == 2, what="the second")
    os.kill(slot, signal.SIGSTOP)  # so that marker and order reach it in the same moment
    task_id = queue.enqueue("quick")
    assert programs.client.get_task(task_id).status == "pending" and blocked(cli) == 1
    first.send(signal.SIGTERM)
    first.says("taking nothing new")
    os.kill(slot, signal.SIGCONT)
    assert outcome(programs.client, task_id, 2).result == "done"
    assert first.wait() == 0


def test_a_task_enqueued_in_the_moment_in_which_listeners_leave_is_picked_up_by_another_at_once(
    programs, queue, cli
):
    listener = programs.listener("work:run", slots=4, environ=patched({"node.slots._YOUNG": 0.1}))
    for _ in range(6):
        until(lambda: len(listener.slots()) == 4 and blocked(cli) == 4, what="four idle listeners")
        leaving = random.sample(listener.slots(), 3)
        barrier = threading.Barrier(2)

        def leave(leaving=leaving, barrier=barrier):
            barrier.wait()
            for pid in leaving:
                os.kill(pid, signal.SIGTERM)

        thread = threading.Thread(target=leave)
        thread.start()
        barrier.wait()
        task_id = queue.enqueue("quick")
        thread.join()
        assert outcome(programs.client, task_id, 5).result == "done"
    assert len(runs(programs)) == len(set(runs(programs))) == 6


def test_listeners_whose_master_is_killed_report_their_task_and_leave(programs, queue, state):
    listener = programs.listener("work:run", slots=2)
    task_id = begin(programs, queue)
    busy = slot_of_process(programs.client.get_task(task_id).pid)
    slots = listener.slots()
    listener.send(signal.SIGKILL)
    assert listener.wait() == -signal.SIGKILL
    until(
        lambda: [pid for pid in slots if is_there(pid)] == [busy],
        what="the leaving of the idle listener",
    )
    let_go(programs)
    assert outcome(programs.client, task_id).result == "done"
    until(lambda: programs.left() == [], what="the leaving of the busy listener")
    assert of_listeners(state) == {}


def test_a_killed_listener_is_replaced_and_its_task_runs_on_to_its_end_once(programs, queue):
    listener = programs.listener("work:run")
    (slot,) = listener.slots()
    task_id = begin(programs, queue)
    before = programs.client.get_task(task_id)
    assert slot_of_process(before.pid) == slot
    os.kill(slot, signal.SIGKILL)
    (other,) = until(
        lambda: [pid for pid in listener.slots() if pid != slot], 2, "another listener"
    )
    until(
        lambda: programs.client.get_task(task_id).node == f"{host_name()}_{other}",
        2,
        "that listener has the task",
    )
    assert is_there(before.pid) and slot_of_process(before.pid) == listener.pid
    following = queue.enqueue("quick")
    let_go(programs)
    assert outcome(programs.client, following).node.endswith(f"_{other}")
    after = programs.client.get_task(task_id)
    assert (after.status, after.result, after.attempt) == ("complete", "done", 1)
    assert after.pid == before.pid
    until(
        lambda: before.pid not in children_of(listener.pid), what="the reaping of the task process"
    )
    record = json.loads((programs.directory / "spool" / f"{task_id}@1" / "exit").read_text())
    assert (record["status"], record["result"]) == ("complete", "done")
    assert runs(programs) == [task_id, following]


def test_a_killed_listener_leaves_no_spare_process_behind(programs):
    listener = programs.listener("work:run", "--warm")
    (slot,) = listener.slots()
    spares = until(lambda: children_of(slot), what="a spare process")
    os.kill(slot, signal.SIGKILL)
    until(lambda: not any(is_there(pid) for pid in spares), what="the leaving of the spare")


def test_a_listener_that_dies_at_birth_is_not_forked_again_and_again(programs):
    listener = programs.listener("work:run", environ=patched({"node.slots._YOUNG": 0.3}))
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        until(lambda: children_of(listener.pid) or time.monotonic() > end, what="a listener")
        for pid in filter(is_there, children_of(listener.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    # the first at once, then one after each pause
    assert 3 <= len(listener.lines("; starting another")) <= 5
    listener.ready()
    assert listener.stop() == 0


def test_leaving_in_the_midst_of_work_leaves_no_task_in_the_list_of_a_listener_that_is_gone(
    programs, queue, state, cli
):
    ids = [queue.enqueue("quick") for _ in range(60)]
    done = programs.client.get_inspector()
    for _ in range(4):
        before = cli.llen("blueque_complete_tasks_work")
        listener = programs.listener("work:run", slots=2)
        until(
            lambda before=before: cli.llen("blueque_complete_tasks_work") > before + 2,
            what="some work",
        )
        assert listener.stop() == 0
        assert of_listeners(state) == {}
    programs.listener("work:run", slots=2)
    until(lambda: done.pending("work") == 0, what="the end of the line")
    assert [outcome(programs.client, task_id).status for task_id in ids] == ["complete"] * 60
    assert sorted(runs(programs)) == sorted(ids)


def test_a_listener_that_is_told_twice_to_leave_by_others_than_its_master_does_not_stop_its_task(
    programs, queue
):
    listener = programs.listener("work:run")
    task_id = begin(programs, queue)
    (slot,) = listener.slots()
    os.kill(slot, signal.SIGTERM)
    listener.send(signal.SIGTERM)
    listener.says("taking nothing new")
    os.kill(slot, signal.SIGTERM)
    let_go(programs)
    assert outcome(programs.client, task_id).result == "done"
    assert listener.wait() == 0


def test_many_listeners_without_hope_end_the_master_with_their_code(programs):
    wrong = programs.url.replace("redis://", "redis://:wrong@")
    work = ("work", "--handler", "work:run", "--slots", "20", "--redis-url", wrong)
    code, log = programs.run_to_end(*work)
    assert code == 77 and "Traceback" not in log


def test_a_spare_process_that_was_stopped_does_not_keep_its_listener_from_leaving(programs):
    listener = programs.listener("work:run", "--warm")
    (slot,) = listener.slots()
    (spare,) = until(lambda: children_of(slot), what="a spare process")
    os.kill(spare, signal.SIGSTOP)
    assert listener.stop() == 0
    until(lambda: programs.left() == [], what="that nothing is left")


def test_the_password_of_redis_is_not_among_the_arguments_that_everybody_can_see(programs):
    listener = programs.listener("work:run")
    for pid, shown in [
        (listener.pid, b"work:run"),
        (listener.slots()[0], b"blueque: slot of work"),
    ]:
        arguments = (Path("/proc") / str(pid) / "cmdline").read_bytes()
        assert shown in arguments
        assert programs.url.encode() not in arguments
