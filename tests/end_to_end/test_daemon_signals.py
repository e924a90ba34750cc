"""Signals to listener and scheduler that end nobody: SIGUSR1 and SIGUSR2; SIGHUP is in
test_reload_run.py."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest
from handlers import pid_of
from running import outcome, state_of, until

from blueque.system.hosts import host_name

WORK = """
    import faulthandler, signal, sys, time
    from pathlib import Path


    def run(task):
        Path("began").touch()
        while not Path("go").exists():
            time.sleep(0.005)
        return "done"

    def quick(task):
        return "done"

    def ways(task):
        numbers = [signal.SIGHUP, signal.SIGUSR2, signal.SIGRTMIN + 4, signal.SIGRTMIN + 5]
        kinds = [signal.getsignal(number) == signal.SIG_DFL for number in numbers]
        return [*kinds, faulthandler.unregister(signal.SIGUSR1)]
"""


IGNORING = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("work", [("work:quick",), ("--exec", "echo", "done")], ids=repr)
def test_a_listener_works_that_was_started_with_sigchld_ignored(programs, queue, work):
    programs.write(WORK)
    programs.listener(*work, before=(sys.executable, "-c", IGNORING))

    assert outcome(programs.client, queue.enqueue("")).result == "done"


def begin(programs, queue):
    task_id = queue.enqueue("")
    until((programs.directory / "began").exists, what="the task")
    return task_id


def states(programs):
    return {node.state for node in programs.client.get_inspector().nodes()}


def are_all_paused(programs, listener):
    found = {pid_of(node.id): node.state for node in programs.client.get_inspector().nodes()}
    return found == dict.fromkeys(listener.slots(), "paused")


def test_usr1_writes_the_stacks_of_master_and_listeners_to_the_log(programs, queue):
    listener = programs.listener("work:run", slots=2)
    running = begin(programs, queue)
    listener.send(signal.SIGUSR1)
    listener.says("SIGUSR1: the stacks of the master")
    for pid in listener.slots():
        listener.says(f"SIGUSR1: the stacks of listener pid={pid} are above")
    for place in ("master.py", "slot.py"):
        assert place in listener.log
    (programs.directory / "go").touch()
    assert outcome(programs.client, running).result == "done"
    assert listener.stop() == 0 and "starting another" not in listener.log


def test_usr2_has_a_listener_take_nothing_and_keep_its_task_until_the_next_one(programs, queue):
    listener = programs.listener("work:run", slots=2)
    slots, running = listener.slots(), begin(programs, queue)
    listener.send(signal.SIGUSR2)
    until(lambda: states(programs) == {"paused"}, what="listeners that are paused")
    (programs.directory / "go").touch()
    assert outcome(programs.client, running).result == "done"
    waiting = queue.enqueue("")
    programs.scheduler()  # wakes whoever may sleep through it
    until(lambda: not programs.client.get_inspector().nodes()[0].held, what="the end of it")
    assert programs.client.get_task(waiting).status == "pending"
    assert listener.slots() == slots
    listener.send(signal.SIGUSR2)
    assert outcome(programs.client, waiting).result == "done"
    until(lambda: states(programs) == {"up"}, what="listeners that are up")
    assert listener.slots() == slots
    assert listener.stop() == 0


def test_two_usr2_that_follow_each_other_at_once_count_as_two(programs, queue):
    listener = programs.listener("work:quick")
    for _ in range(2):
        before = len(listener.lines("SIGUSR2: taking tasks again"))
        listener.send(signal.SIGUSR2)
        until(
            lambda n=before: len(listener.lines("SIGUSR2: taking nothing new")) > n,
            what="the first",
        )
        listener.send(signal.SIGUSR2)
        until(
            lambda n=before: len(listener.lines("SIGUSR2: taking tasks again")) > n,
            what="the second",
        )
    assert outcome(programs.client, queue.enqueue("")).result == "done"


@pytest.mark.parametrize(("times", "state"), [(2, "up"), (3, "paused")])
def test_a_listener_that_could_not_hear_several_usr2_does_as_the_last_one_says(
    programs, queue, times, state
):
    listener = programs.listener("work:quick")
    (slot,) = listener.slots()
    os.kill(slot, signal.SIGSTOP)
    until(lambda: state_of(slot) == "T", what="a listener that is stopped")
    for number in range(times):
        listener.send(signal.SIGUSR2)
        until(lambda n=number: len(listener.lines("SIGUSR2: taking")) > n, what="the master's word")
    os.kill(slot, signal.SIGCONT)
    listener.send(signal.SIGUSR1)  # which it hears after the others
    listener.says(f"SIGUSR1: the stacks of listener pid={slot} are above")
    programs.scheduler()  # wakes an idle listener, now and then
    until(lambda: states(programs) == {state}, what=f"a listener that is {state}")
    task_id = queue.enqueue("")
    if state == "up":
        assert outcome(programs.client, task_id).result == "done"
    assert states(programs) == {state}


def test_a_listener_that_takes_the_place_of_another_is_paused_like_it(programs, queue):
    listener = programs.listener("work:run", "--beat", "0.2s")
    listener.send(signal.SIGUSR2)
    until(lambda: states(programs) == {"paused"}, what="a listener that is paused")
    (slot,) = listener.slots()
    os.kill(slot, signal.SIGKILL)
    until(lambda: slot not in listener.slots() and listener.slots(), what="another listener")
    waiting = queue.enqueue("")
    node = f"{host_name()}_{listener.slots()[0]}"
    until(
        lambda: any(
            (one.id, one.state) == (node, "paused")
            for one in programs.client.get_inspector().nodes()
        ),
        what="the other, paused",
    )
    assert programs.client.get_task(waiting).status == "pending"


def pause(programs, what="pause", slots=1):
    told, not_told = getattr(programs.client.get_listeners(), what)(host_name(), "ada")
    assert (len({node.id for node in told}), not_told) == (slots, [])


def test_a_host_that_is_paused_takes_nothing_keeps_its_task_and_goes_on_when_it_is_resumed(
    programs, queue
):
    listener = programs.listener("work:run", slots=2)
    slots, running = listener.slots(), begin(programs, queue)
    for _ in range(2):  # again is no more than once
        pause(programs, slots=2)
    until(lambda: states(programs) == {"paused"}, what="listeners that are paused")
    listener.says("told to pause: taking nothing new")
    assert {(node.order, node.order_by) for node in programs.client.get_inspector().nodes()} == {
        ("pause", "ada")
    }
    (programs.directory / "go").touch()
    assert outcome(programs.client, running).result == "done"
    waiting = queue.enqueue("")
    until(
        lambda: not any(node.held for node in programs.client.get_inspector().nodes()),
        what="the end of it",
    )
    programs.scheduler()  # wakes an idle listener
    listener.send(signal.SIGUSR1)
    for pid in slots:
        listener.says(f"SIGUSR1: the stacks of listener pid={pid} are above")
    assert programs.client.get_task(waiting).status == "pending"
    for _ in range(2):
        pause(programs, "resume", slots=2)
    assert outcome(programs.client, waiting).result == "done"
    until(lambda: states(programs) == {"up"}, what="listeners that are up")
    assert listener.slots() == slots
    listener.says("told to resume: taking tasks again")
    assert listener.stop() == 0


def test_a_pause_by_order_holds_for_listeners_that_are_forked_later_and_all_slots_of_one_that_is_named(
    programs, queue
):
    listener = programs.listener("work:quick", "--beat", "0.2s", slots=2)
    one, other = listener.slots()
    told, _ = programs.client.get_listeners().pause(f"{host_name()}_{one}")
    assert len(told) == 1
    until(lambda: states(programs) == {"paused"}, what="listeners that are paused")
    os.kill(other, signal.SIGKILL)
    until(
        lambda: other not in listener.slots() and len(listener.slots()) == 2,
        what="another listener",
    )
    until(lambda: are_all_paused(programs, listener), what="listeners that are all paused")
    waiting = queue.enqueue("")
    (new,) = set(listener.slots()) - {one}
    by = {pid_of(node.id): node.order_by for node in programs.client.get_inspector().nodes()}
    assert by[new] == "an order" and programs.client.get_task(waiting).status == "pending"
    listener.send(signal.SIGHUP)
    listener.says("replacing 2 listeners")
    until(
        lambda: len(listener.slots()) == 2 and not {one, new} & set(listener.slots()),
        what="new listeners",
    )
    until(lambda: are_all_paused(programs, listener), what="listeners that are all paused")
    assert programs.client.get_task(waiting).status == "pending"
    pause(programs, "resume", slots=2)
    assert outcome(programs.client, waiting).result == "done"


def test_a_pause_by_order_and_one_by_a_signal_are_one_pause(programs, queue):
    listener = programs.listener("work:quick", "--beat", "0.2s")
    pause(programs)
    until(lambda: states(programs) == {"paused"}, what="a listener that is paused")
    listener.says("told to pause")
    listener.send(signal.SIGUSR2)
    assert outcome(programs.client, queue.enqueue("")).result == "done"
    listener.send(signal.SIGUSR2)
    until(lambda: states(programs) == {"paused"}, what="a listener that is paused again")
    pause(programs)
    pause(programs, "resume")
    assert outcome(programs.client, queue.enqueue("")).result == "done"
    until(lambda: states(programs) == {"up"}, what="a listener that is up")


def test_a_listener_that_drains_stays_so_when_it_is_told_to_pause_or_resume(programs, queue):
    listener = programs.listener("work:run")
    running = begin(programs, queue)
    programs.client.get_listeners().drain(host_name())
    listener.says("told to drain")
    for what in ("pause", "resume"):
        pause(programs, what)
        assert states(programs) == {"draining"}
    (programs.directory / "go").touch()
    assert outcome(programs.client, running).result == "done"
    assert listener.wait() == 0


def test_a_listener_that_has_to_register_again_is_paused_as_before(programs, queue, cli):
    listener = programs.listener("work:run", environ={"BLUEQUE_BEAT": "0.2s"})
    listener.send(signal.SIGUSR2)
    until(lambda: states(programs) == {"paused"}, what="a listener that is paused")
    (node,) = programs.client.get_inspector().listeners("work")
    cli.delete(f"blueque_listener_work_{node}")
    until(lambda: len(listener.lines("register queue=work")) == 2, what="another registration")
    until(lambda: states(programs) == {"paused"}, what="a listener that is paused")


def test_a_listener_of_several_queues_that_has_to_register_again_in_one_is_paused_in_all(
    programs, cli
):
    listener = programs.listener(
        "work:quick", "other", is_awaited=False, environ={"BLUEQUE_BEAT": "0.2s"}
    )
    until(lambda: len(programs.client.get_inspector().nodes()) == 2, what="both registrations")
    pause(programs)
    until(lambda: states(programs) == {"paused"}, what="a listener that is paused")
    listener.says("told to pause")
    (node,) = programs.client.get_inspector().listeners("work")
    cli.delete(f"blueque_listener_work_{node}")
    until(lambda: len(listener.lines("register queue=work")) == 2, what="another registration")
    until(lambda: states(programs) == {"paused"}, what="a listener that is paused in both queues")
    pause(programs, "resume")
    until(lambda: states(programs) == {"up"}, what="a listener that is up")
    for name in ("work", "other"):
        task_id = programs.client.get_queue(name).enqueue("")
        assert outcome(programs.client, task_id).result == "done"


def test_those_that_come_while_it_leaves_change_nothing(programs, queue):
    listener = programs.listener("work:run")
    running = begin(programs, queue)
    listener.send(signal.SIGTERM)
    listener.says("taking nothing new")
    for number in (signal.SIGHUP, signal.SIGUSR2, signal.SIGUSR1):
        listener.send(number)
        listener.says(f"{number.name}: ")
    (programs.directory / "go").touch()
    assert listener.wait() == 0
    assert programs.client.get_task(running).result == "done"


def test_a_task_has_these_signals_for_itself(programs, queue):
    programs.listener("work:ways")
    assert json.loads(outcome(programs.client, queue.enqueue("")).fields["result"]) == [
        True,
        True,
        True,
        True,
        False,
    ]


def test_a_scheduler_goes_on_after_usr1(programs):
    scheduler = programs.scheduler()
    scheduler.says("blueque-scheduler")
    until(lambda: int(_caught(scheduler.pid), 16) >> signal.SIGUSR1 - 1 & 1, what="its handlers")
    scheduler.send(signal.SIGUSR1)
    scheduler.says("SIGUSR1: the stacks are above")
    assert "scheduler.py" in scheduler.log
    assert scheduler.stop() == 0


def _caught(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(line.split()[1] for line in file if line.startswith("SigCgt"))
