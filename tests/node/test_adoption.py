"""Adoption: a task outlives its listener, and another listener of its node sees it to its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import handlers
import pytest
from faults import Fault
from handlers import (
    ELSEWHERE,
    beat_of,
    begin,
    ended,
    files,
    has_begun,
    has_moved,
    is_sound,
    ledger,
    let_go,
    owner,
    pid_of,
    running,
)
from running import children_of, is_keeper, is_there, patched, state_of, until
from transactions import protocol

from blueque import Retry, Task
from blueque.model.limits import Limits
from blueque.model.units import BEAT
from blueque.node import adoption
from blueque.node.attempt_watch import AttemptWatch
from blueque.spool.attempt import Attempt
from blueque.spool.spool import Spool
from blueque.system import process

WORK = handlers.WORK

QUICK = ("--beat", "0.2s", "--lease", "0.6s", "--lost-after", "30s")
# A master would let a second pass before it replaces a listener that has not lived for as long.
ENVIRON = patched({"node.slots._YOUNG": 0.1})


def kill(*pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def kill_all_but_the_tasks(listener):
    """Kill a whole blueque-listener, its master first, so that nobody is forked anew."""
    slots = listener.slots()
    keepers = [child for slot in slots for child in filter(is_keeper, process.children(slot))]
    listener.send(signal.SIGKILL)
    listener.wait()
    for pid in [*keepers, *slots]:
        with contextlib.suppress(ProcessLookupError):  # without master and Redis a slot may leave
            os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(is_there, [*slots, *keepers])), what="the end of the listeners")


def watches(slot, pid):
    """Tell whether a listener has a descriptor of the process; it opens one after it owns the task."""
    for path in Path(f"/proc/{slot}/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if f"Pid:\t{pid}\n" in path.read_text():
                return True
    return False


def test_a_task_whose_listener_is_killed_has_another_at_once_and_ends_as_if_nothing_had_happened(
    programs,
):
    listener = programs.listener("work:run")
    task = begin(programs)
    kill(pid_of(task.node))
    node = has_moved(programs.client, task, BEAT)  # nobody has waited for a beat
    assert pid_of(node) in listener.slots()
    let_go(programs)
    done = ended(programs.client, task.id)
    assert (done.status, done.result, done.pid, done.attempt) == ("complete", "done", task.pid, 1)
    assert done.node == node
    assert (done.token, done.interruptions, done.failures) == (task.token, None, None)
    assert len(ledger(programs)) == 1
    assert not (programs.directory / "spool" / task.id).exists()
    until((files(programs, task) / "reported").exists, what="the mark in the spool")
    assert is_sound(programs.client)


@pytest.mark.parametrize(
    ("how", "listeners", "error", "error_type", "signal_name", "exit_code"),
    [
        ("wait", 1, "killed by SIGKILL", "signal", "SIGKILL", None),
        (
            "drop_out 7",
            2,
            "the process left with exit code 7 and without a result",
            "exit",
            None,
            7,
        ),
    ],
)
def test_how_a_task_process_ended_after_its_listeners_were_killed_is_known_from_the_master_that_reaped_it(
    programs, how, listeners, error, error_type, signal_name, exit_code
):
    programs.listener("work:run")
    task = begin(programs, how)
    for _ in range(listeners):
        before = programs.client.get_task(task.id)
        kill(pid_of(before.node))
        has_moved(programs.client, before)
    if signal_name:
        kill(task.pid)
    else:
        let_go(programs)
    done = ended(programs.client, task.id)
    assert (done.status, done.error, done.error_type) == ("failed", error, error_type)
    assert (done.signal, done.exit_code) == (signal_name, exit_code)
    assert done.memory_peak > 1_000_000 and done.cpu_seconds > 0
    assert len(ledger(programs)) == 1 and is_sound(programs.client)


@pytest.mark.parametrize(
    ("how", "status", "error"),
    [
        ("wait", "complete", None),
        ("drop_out 7", "failed", "the process left with exit code 7 and without a result"),
    ],
)
def test_a_task_that_ended_while_it_had_no_listener_is_reported_and_not_run_again(
    programs, how, status, error
):
    listener = programs.listener("work:run")
    task = begin(programs, how, retry=Retry(max=0))
    listener.send(signal.SIGSTOP)
    until(lambda: state_of(listener.pid) == "T", what="the standing still of the master")
    kill(pid_of(task.node))
    let_go(programs)
    until(lambda: not is_there(task.pid), what="the end of the task process")
    assert owner(programs.client, task.id) == task.node
    listener.send(signal.SIGCONT)
    done = ended(programs.client, task.id)
    assert (done.status, done.error, done.attempt, done.pid) == (status, error, 1, task.pid)
    assert len(ledger(programs)) == 1 and is_sound(programs.client)


def kill_everything(listener, *tasks):
    """Kill a whole node so that nothing can tell how its tasks ended."""
    kill_all_but_the_tasks(listener)
    kill(*[task.pid for task in tasks])
    until(
        lambda: not any(is_there(task.pid) for task in tasks), what="the end of the task processes"
    )


def test_how_an_orphan_of_a_dead_master_ended_is_not_known_and_its_present_listener_says_so(
    programs,
):
    listener = programs.listener("work:run")
    task = begin(programs)
    kill_all_but_the_tasks(listener)
    programs.listener("work:run")
    node = has_moved(programs.client, task)
    until(lambda: watches(pid_of(node), task.pid), what="a descriptor of the process")
    kill(task.pid)
    lost = ended(programs.client, task.id)
    assert (lost.status, lost.error_type, lost.lost_node, lost.last_seen) == (
        "failed",
        "lost",
        node,
        None,
    )
    assert f"process {task.pid} of listener {node} is gone" in lost.error


def test_what_is_gone_without_a_word_is_lost_or_if_it_may_run_again_does_so_until_it_is_taken_for_poison(
    programs,
):
    listener = programs.listener("work:run", slots=2)
    once, safe = begin(programs), begin(programs, retry=Retry(max=0, backoff=3600, interruptions=1))
    kill_everything(listener, once, safe)

    listener = programs.listener("work:run", slots=2)
    again = running(programs, safe.id, attempt=2)
    assert (again.interruptions, again.failures, again.last_error_type) == (1, None, "lost")
    assert again.token != safe.token
    lost = ended(programs.client, once.id)
    assert (lost.status, lost.error_type, lost.attempt) == ("failed", "lost", 1)
    assert lost.interruptions == 1
    assert lost.lost_node == once.node and abs(lost.last_seen - once.started) < 5
    for word in (f"process {once.pid} ", once.node, " UTC"):
        assert word in lost.error
    assert is_sound(programs.client)
    kill_everything(listener, again)

    programs.listener("work:run")
    poison = ended(programs.client, safe.id)
    assert (poison.status, poison.error_type, poison.interruptions) == ("failed", "poison", 2)
    assert len(ledger(programs)) == 3 and is_sound(programs.client)


def test_after_everything_but_the_task_processes_was_killed_they_are_adopted_before_anything_is_reserved(
    programs,
):
    listener = programs.listener("work:run")
    task = begin(programs)
    kill_all_but_the_tasks(listener)
    following = programs.client.get_queue("work").enqueue("quick")
    listener = programs.listener("work:run")
    node = has_moved(programs.client, task)
    assert is_there(task.pid) and not listener.lines("start task=")
    let_go(programs)
    done = ended(programs.client, task.id)
    assert (done.result, done.pid, done.attempt, done.node) == ("done", task.pid, 1, node)
    assert ended(programs.client, following).node == node
    assert [run.task for run in ledger(programs)] == [task.id, following]
    assert listener.log.index("adopt task=") < listener.log.index("start task=")
    assert is_sound(programs.client)


def test_for_more_orphans_than_slots_extra_listeners_come_take_nothing_new_and_leave(programs):
    listener = programs.listener("work:run", slots=3)
    tasks = [begin(programs) for _ in range(3)]
    kill_all_but_the_tasks(listener)
    following = programs.client.get_queue("work").enqueue("quick")
    listener = programs.listener("work:run", slots=1, is_awaited=False)
    nodes = {task.id: has_moved(programs.client, task) for task in tasks}
    assert len(set(nodes.values())) == 3 and all(is_there(task.pid) for task in tasks)
    first, *extras = sorted(pid_of(node) for node in nodes.values())
    for task in tasks:
        if pid_of(nodes[task.id]) != first:
            let_go(programs, task.id)
    until(lambda: not any(map(is_there, extras)), what="the leaving of the extra listeners")
    assert programs.client.get_task(following).status == "pending"
    let_go(programs)
    for task in tasks:
        done = ended(programs.client, task.id)
        assert (done.result, done.pid, done.attempt) == ("done", task.pid, 1)
        assert done.node == nodes[task.id]
    assert pid_of(ended(programs.client, following).node) == first
    assert len(ledger(programs)) == 4 and is_sound(programs.client)


def test_a_listener_restarted_under_twenty_running_tasks_loses_stops_and_doubles_none(programs):
    listener = programs.listener("work:run", slots=20, on_term="leave")
    queue = programs.client.get_queue("work")
    ids = [queue.enqueue("wait") for _ in range(20)]
    tasks = [running(programs, task_id) for task_id in ids]
    assert listener.stop() == 0
    listener = programs.listener("work:run", slots=20, on_term="leave", is_awaited=False)
    listener.says("each counts as a slot")
    following = queue.enqueue("quick")
    assert all(is_there(task.pid) for task in tasks) and not listener.lines("start task=")
    let_go(programs)
    for task in tasks:
        done = ended(programs.client, task.id)
        assert (done.result, done.pid, done.attempt, done.node) == ("done", task.pid, 1, task.node)
    assert ended(programs.client, following).result == "done"
    assert len(ledger(programs)) == 21 and is_sound(programs.client)


# A listener that stands still for longer than its lease, and wakes again


@pytest.fixture
def frozen(programs):
    """A task of a listener that has been stopped, and the listener."""
    listener = programs.listener("work:run", *QUICK)
    task = begin(programs)
    slot = pid_of(task.node)
    os.kill(slot, signal.SIGSTOP)
    until(lambda: state_of(slot) == "T", what="the standing still of the listener")
    yield task, slot
    if is_there(slot):
        os.kill(slot, signal.SIGCONT)
    assert listener.is_running, listener.log


def wakes(client, node, slot):
    """Let a listener go on that was taken for dead, and wait until it has registered again."""
    before = client.get_inspector().registration("work", node)
    os.kill(slot, signal.SIGCONT)

    def is_registered():
        known = client.get_inspector().registration("work", node)
        return known.get("state") == "alive" and known.get("instance") != before.get("instance")

    until(is_registered, what="its new registration")


def test_a_listener_that_was_frozen_and_taken_for_dead_takes_back_its_task(programs, frozen):
    task, slot = frozen
    judge = programs.scheduler()
    judge.says(f"fence node={task.node}")
    assert programs.client.get_inspector().registration("work", task.node)["state"] == "dead"
    wakes(programs.client, task.node, slot)
    assert owner(programs.client, task.id) == task.node and is_there(task.pid)
    let_go(programs)
    done = ended(programs.client, task.id)
    assert (done.result, done.pid, done.attempt, done.token) == ("done", task.pid, 1, task.token)
    assert len(ledger(programs)) == 1 and is_sound(programs.client)


@pytest.mark.parametrize("how", ["go", "kill"])
def test_a_listener_that_was_frozen_lets_go_of_a_task_that_another_has_adopted_and_does_not_touch_its_process(
    programs, frozen, how
):
    task, slot = frozen
    other = programs.listener("work:run", *QUICK)
    node = has_moved(programs.client, task)
    assert pid_of(node) in other.slots()
    wakes(programs.client, task.node, slot)
    following = begin(programs)  # by the one that woke: the other is busy
    assert pid_of(following.node) == slot
    assert owner(programs.client, task.id) == node and is_there(task.pid)
    if how == "go":
        let_go(programs)
    else:
        kill(task.pid)  # its parent, who has let go of it, still has to tell how it ended
    done = ended(programs.client, task.id)
    expected = ("complete", None) if how == "go" else ("failed", "killed by SIGKILL")
    assert (done.status, done.error) == expected
    assert (done.node, done.pid, done.attempt) == (node, task.pid, 1)
    let_go(programs)
    assert ended(programs.client, following.id).result == "done"
    until(lambda: state_of(task.pid) == "", what="the reaping of the process")
    assert len(ledger(programs)) == 2 and is_sound(programs.client)


@pytest.fixture
def given_up(programs):
    """A task declared lost from elsewhere while its listener stands still, that listener's pid, and
    its master.
    """
    listener = programs.listener("work:run", *QUICK[:4], "--lost-after", "0.8s")
    task = begin(programs)
    slot = pid_of(task.node)
    os.kill(slot, signal.SIGSTOP)
    judge = programs.scheduler(before=ELSEWHERE)
    lost = ended(programs.client, task.id)
    assert (lost.status, lost.error_type, lost.lost_node) == ("failed", "lost", task.node)
    assert lost.last_seen is not None
    assert is_there(task.pid) and state_of(slot) == "T"
    kill(*children_of(judge.pid))
    judge.wait()
    return task, slot, listener


def test_a_task_declared_lost_whose_listener_wakes_is_started_again_and_completes(
    programs, given_up
):
    task, slot, _ = given_up
    wakes(programs.client, task.node, slot)
    until(
        lambda: programs.client.get_task(task.id).status == "started", what="the return of the task"
    )
    assert owner(programs.client, task.id) == task.node and is_there(task.pid)
    back = programs.client.get_task(task.id)
    assert (back.error, back.error_type, back.lost_node) == (None, None, None)
    let_go(programs)
    done = ended(programs.client, task.id)
    assert (done.status, done.result, done.pid, done.attempt) == ("complete", "done", task.pid, 1)
    assert len(ledger(programs)) == 1 and is_sound(programs.client)


def test_the_result_of_a_task_declared_lost_that_ended_meanwhile_is_accepted(programs, given_up):
    task, slot, _ = given_up
    let_go(programs)
    until((files(programs, task) / "exit").exists, what="the exit record")
    os.kill(slot, signal.SIGCONT)
    until(lambda: programs.client.get_task(task.id).status != "failed", what="the late result")
    done = ended(programs.client, task.id)
    assert (done.status, done.result, done.error, done.pid) == ("complete", "done", None, task.pid)
    assert done.attempt == 1
    assert len(ledger(programs)) == 1 and is_sound(programs.client)


def test_the_attempt_of_a_task_that_a_person_has_requeued_is_stopped_and_its_result_stays_in_the_spool(
    programs, given_up
):
    task, slot, _ = given_up
    programs.listener("work:run", *QUICK, spool="other")
    programs.client.get_queue("work").requeue(task.id)
    again = running(programs, task.id, attempt=2)
    assert again.node != task.node and is_there(task.pid)
    os.kill(slot, signal.SIGCONT)
    until(lambda: not is_there(task.pid), what="the end of the first attempt")
    until((files(programs, task) / "reported").exists, what="the mark in the spool")
    assert json.loads((files(programs, task) / "exit").read_text())["error_type"] == "superseded"
    assert owner(programs.client, task.id) == again.node and is_there(again.pid)
    let_go(programs)
    done = ended(programs.client, task.id)
    assert (done.result, done.pid, done.attempt, done.token) == ("done", again.pid, 2, again.token)
    assert len(ledger(programs)) == 2 and is_sound(programs.client)


def test_a_task_that_a_key_has_made_anew_is_not_overwritten_by_the_attempt_of_its_former_self(
    programs, given_up
):
    task, slot, _ = given_up
    queue = programs.client.get_queue("work")
    queue.delete_task(programs.client.get_task(task.id))
    # as the same key does
    protocol.enqueue(programs.client.connections, "work", task.id, "another", time.time())
    os.kill(slot, signal.SIGCONT)
    until(lambda: not is_there(task.pid), what="the end of the attempt")
    client = programs.client
    new = until(
        lambda: (seen := client.get_task(task.id)).token not in (None, task.token) and seen,
        what="the run of the new one",
    )
    assert (new.parameters, new.attempt) == ("another", 1) and new.token != task.token
    let_go(programs)
    assert ended(programs.client, task.id).token == new.token
    assert is_sound(programs.client)


def test_a_task_declared_lost_whose_listener_is_gone_too_is_found_in_the_spool_and_completes(
    programs, given_up
):
    task, _, listener = given_up
    kill_all_but_the_tasks(listener)
    programs.listener("work:run", *QUICK)
    until(
        lambda: programs.client.get_task(task.id).status == "started", what="the return of the task"
    )
    assert owner(programs.client, task.id) != task.node and is_there(task.pid)
    let_go(programs)
    done = ended(programs.client, task.id)
    assert (done.status, done.result, done.pid, done.attempt) == ("complete", "done", task.pid, 1)
    assert len(ledger(programs)) == 1 and is_sound(programs.client)


def test_an_attempt_that_ended_unseen_before_a_person_requeued_its_task_does_not_stay_in_the_spool_for_ever(
    programs, given_up
):
    task, _, listener = given_up
    kill_all_but_the_tasks(listener)
    let_go(programs)
    until((files(programs, task) / "exit").exists, what="the exit record")
    until(lambda: not is_there(task.pid), what="the end of the task process")
    programs.client.get_queue("work").requeue(task.id)
    programs.listener("work:run", *QUICK)
    assert ended(programs.client, task.id).attempt == 2
    until((files(programs, task) / "reported").exists, what="the mark in the spool")
    assert len(ledger(programs)) == 2 and is_sound(programs.client)


def test_a_task_that_is_deleted_while_a_listener_adopts_it_does_not_keep_the_listener_from_work(
    programs, proxy, cli, monkeypatch
):
    listener = programs.listener("work:run")
    task = begin(programs)
    kill_all_but_the_tasks(listener)
    strikes = proxy.strikes

    def delete_if_it_strikes(server, data):
        has_struck = strikes(server, data)
        if has_struck:
            cli.delete(f"blueque_task_{task.id}")
        return has_struck

    monkeypatch.setattr(proxy, "strikes", delete_if_it_strikes)
    proxy.arm(Fault.CUT_BEFORE, having=b"adopted")
    programs.url = proxy.url
    listener = programs.listener("work:run")
    until(lambda: proxy.has_struck, what="the try to adopt it")
    slots = listener.slots()

    following = programs.client.get_queue("work").enqueue("quick")

    assert pid_of(ended(programs.client, following).node) in slots
    assert listener.slots() == slots and not listener.lines("adopt task=")
    let_go(programs)
    until(lambda: not is_there(task.pid), what="the end of its process")


# Another process with the same pid


@pytest.fixture
def bystander(tmp_path):
    """A process with a child, neither of them a task's."""
    bystander = subprocess.Popen(["sh", "-c", "sleep 1000 & wait"], process_group=0)
    (child,) = until(lambda: children_of(bystander.pid), what="its child")
    yield bystander.pid, child
    for pid in (child, bystander.pid):
        os.kill(pid, signal.SIGKILL)
    bystander.wait()


def test_a_process_that_has_the_pid_of_a_dead_task_by_now_is_not_adopted(programs, bystander, cli):
    listener = programs.listener("work:run")
    task = begin(programs)
    kill_everything(listener, task)
    cli.hset(f"blueque_task_{task.id}", "pid", bystander[0])
    cli.srem("blueque_started_tasks_work", f"{task.node} {task.pid} {task.id}")
    cli.sadd("blueque_started_tasks_work", f"{task.node} {bystander[0]} {task.id}")
    programs.listener("work:run", "--time-limit", "0.1s", "--grace", "0s")
    lost = ended(programs.client, task.id)
    assert (lost.status, lost.error_type, lost.attempt) == ("failed", "lost", 1)
    assert is_there(bystander[0]) and is_there(bystander[1])
    assert is_sound(programs.client)


def test_a_process_that_has_the_pid_of_a_lost_task_by_now_is_left_alone_while_its_late_result_is_accepted(
    programs, given_up, bystander
):
    task, _, listener = given_up
    kill_all_but_the_tasks(listener)
    let_go(programs)
    until(lambda: not is_there(task.pid), what="the end of the task process")
    (link,) = (programs.directory / "spool" / "open").iterdir()
    assert link.name.startswith(f"{task.pid}-") and (files(programs, task) / "exit").exists()
    link.rename(link.with_name(link.name.replace(str(task.pid), str(bystander[0]), 1)))
    programs.listener("work:run", "--time-limit", "0.1s", "--grace", "0s")
    until(lambda: programs.client.get_task(task.id).status == "complete", what="the late result")
    assert is_there(bystander[0]) and is_there(bystander[1])
    assert len(ledger(programs)) == 1 and is_sound(programs.client)


def test_a_process_that_has_the_pid_of_a_task_of_another_boot_is_neither_watched_nor_signalled(
    client, bystander, tmp_path
):
    pid, child = bystander
    for elsewhere in ({"boot": "another-boot"}, {"ns": "1"}):
        known = {
            name: str(value)
            for name, value in {**process.identity(pid), "pid": pid, **elsewhere}.items()
        }
        attempt = Attempt(str(tmp_path / "attempt"), str(tmp_path / "room"))
        processor = client.get_processor(Task("t1", {"queue": "work", "node": "n", **known}))
        limits = Limits(time=0.0, grace=0.0)
        watch = AttemptWatch(processor, attempt, pid, limits)
        assert watch.pidfd is None
        watch.end("cancelled", "cancelled")
        while watch.end_the_rest(lambda: None) is not None:
            time.sleep(0.01)
        assert is_there(pid) and is_there(child)


def test_the_children_of_a_process_that_ended_while_we_looked_are_ended_too(client, tmp_path):
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    orphan = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    seen = [{ended.pid}, {ended.pid, orphan.pid}]
    known = {name: str(value) for name, value in process.identity(ended.pid).items()}
    attempt = Attempt(str(tmp_path / "attempt"), str(tmp_path / "room"))
    processor = client.get_processor(Task("t1", {"queue": "work", "node": "n", **known}))
    watch = AttemptWatch(processor, attempt, ended.pid, Limits(grace=10.0))
    try:
        assert watch.end_the_rest(lambda: seen.pop(0) if len(seen) > 1 else seen[0]) is not None
        assert orphan.wait() == -signal.SIGTERM
        assert watch.end_the_rest(lambda: {ended.pid}) is None
        assert watch.measured["leaked"] == 1
    finally:
        orphan.kill()
        orphan.wait()
        ended.wait()
        watch.close()


# A listener that dies before its task has begun


@pytest.mark.parametrize(
    ("write", "status", "attempt", "options"),
    [
        (b"RPOPLPUSH", "pending", 1, {}),
        (b"blueque_started_tasks_work", "started", 2, {}),
        (b"$8\r\nreserved\r\n", "reserved", 2, {"lock": "one"}),
    ],
)
def test_a_task_that_had_not_begun_when_its_listener_died_is_the_next_in_line_again_at_no_cost(
    programs, proxy, cli, write, status, attempt, options
):
    direct, programs.url = programs.url, proxy.url
    listener = programs.listener("work:run")
    until(lambda: cli.info("clients")["blocked_clients"] == 1, what="its wait for work")
    proxy.stop_listening()  # it will not learn what came of its write
    proxy.arm(Fault.CUT_AFTER, having=write)
    queue = programs.client.get_queue("work")
    task_id = queue.enqueue("quick", **options)
    listener.says("; waiting")
    task = programs.client.get_task(task_id)
    assert proxy.has_struck and task.status == status and ledger(programs) == []
    assert cli.lrange(cli.keys("blueque_reserved_tasks_work_*")[0], 0, -1) == [task_id]
    if status == "started":
        assert is_there(task.pid) and not has_begun(files(programs, task))
    following = queue.enqueue("quick")
    kill_all_but_the_tasks(listener)
    programs.url = direct
    programs.listener("work:run")
    done = ended(programs.client, task_id)
    assert (done.result, done.attempt, done.failures, done.interruptions) == (
        "done",
        attempt,
        None,
        None,
    )
    ended(programs.client, following)
    released = [
        event.facts
        for event in programs.client.get_history(task_id).events
        if event.event == "released"
    ]
    assert released == ([{"reason": "not_begun"}] if status == "started" else [])
    assert [run.task for run in ledger(programs)] == [task_id, following]
    assert is_sound(programs.client)


# Containers: each has its own pids, all have the same host name


def need_pid_namespaces():
    tried = subprocess.run([*ELSEWHERE, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.fail(
            f"this test needs pid namespaces, and they were refused: {tried.stderr.strip()}"
        )


def living(client):
    """Return the registrations that are alive."""
    inspector = client.get_inspector()
    nodes = sorted(inspector.listeners("work"))
    known = dict(
        zip(nodes, inspector.registrations([("work", node) for node in nodes]), strict=True)
    )
    return {node: each for node, each in known.items() if each.get("state") == "alive"}


def test_two_containers_with_one_host_name_and_the_same_pids_neither_share_a_name_nor_disturb_each_other(
    programs,
):
    need_pid_namespaces()
    containers = [
        programs.listener("work:run", *QUICK, spool=spool, before=ELSEWHERE, is_awaited=False)
        for spool in ("one", "two")
    ]
    nodes = until(
        lambda: len(living(programs.client)) == 2 and living(programs.client),
        what="the second registration",
    )
    assert len({node.rpartition("_")[2] for node in nodes}) == 1, (
        "the pids do not clash: this proves nothing"
    )
    assert len({known["ns"] for known in nodes.values()}) == 2
    queue = programs.client.get_queue("work")
    ids = [queue.enqueue("quick") for _ in range(40)]
    for task_id in ids:
        assert ended(programs.client, task_id).attempt == 1
    assert len({programs.client.get_task(task_id).node for task_id in ids}) == 2, (
        "one of them did nothing"
    )
    beats = {node: beat_of(programs.client, "work", node) for node in nodes}
    for node, beat in beats.items():  # for two leases and more
        until(
            lambda node=node, beat=beat: beat_of(programs.client, "work", node) >= beat + 7,
            what="seven beats",
        )
    assert {node: known["instance"] for node, known in living(programs.client).items()} == {
        node: known["instance"] for node, known in nodes.items()
    }
    assert sorted(run.task for run in ledger(programs)) == sorted(ids)
    for container in containers:
        assert not container.lines("fence ")
    assert is_sound(programs.client)


def test_that_a_container_is_gone_another_sees_by_its_beat_and_runs_again_only_what_may_run_again(
    programs,
):
    need_pid_namespaces()
    timing = (*QUICK[:4], "--lost-after", "1s")
    gone = programs.listener(
        "work:run", *timing, slots=3, spool="one", before=ELSEWHERE, is_awaited=False
    )
    queue = programs.client.get_queue("work")
    safe, unwanted = (queue.enqueue("wait", retry=Retry(max=0)) for _ in range(2))
    once = queue.enqueue("wait")
    until(lambda: len(ledger(programs)) == 3, what="all tasks")
    (init,) = children_of(gone.pid)
    inside = {pid for slot in children_of(init) for pid in children_of(slot)}
    assert len(inside) >= 3
    kill(init)
    gone.wait()
    assert not any(map(is_there, inside))
    assert queue.cancel(unwanted) == "cancelling"
    asked = time.monotonic()
    programs.listener("work:run", *timing, spool="two", before=ELSEWHERE, is_awaited=False)
    lost = ended(programs.client, once)
    until(lambda: len(ledger(programs, safe)) == 2, what="the next attempt")
    assert 1 <= time.monotonic() - asked < 12
    assert (lost.status, lost.error_type, lost.attempt) == ("failed", "lost", 1)
    assert ended(programs.client, unwanted).status == "cancelled"
    let_go(programs)
    done = ended(programs.client, safe)
    assert (done.result, done.attempt, done.interruptions) == ("done", 2, 1)
    assert len(ledger(programs)) == 4 and is_sound(programs.client)


@pytest.mark.parametrize(
    ("status", "is_wanted"),
    [("scheduled", True), ("pending", True), ("failed", False), (None, False)],
)
def test_an_attempt_that_is_let_go_of_keeps_its_place_in_the_spool_if_it_is_wanted(
    tmp_path, status, is_wanted
):
    spool = Spool(str(tmp_path / "spool"), 1000)
    spool.open()
    attempt = spool.create("t1", 1, {})
    os.makedirs(f"{attempt.path}/checkpoint/state")
    task = Task("t1", {} if status is None else {"status": status})
    adoption._close(task, attempt, keeps_cwd=False)
    assert attempt.is_wanted() is is_wanted
