"""Signals to listener and scheduler that end nobody: SIGUSR1, SIGUSR2, SIGHUP."""

from __future__ import annotations

import json
import os
import signal

import pytest
from running import Programs, outcome, until

from blueque.process import host_name

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


@pytest.fixture
def programs(url, tmp_path):
    with Programs(url, tmp_path) as programs:
        programs.write(WORK)
        yield programs


@pytest.fixture
def queue(programs):
    return programs.client.get_queue("work")


def begin(programs, queue):
    task_id = queue.enqueue("")
    until((programs.directory / "began").exists, what="the task")
    return task_id


def states(programs):
    return {node.state for node in programs.client.get_inspector().nodes()}


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
    scheduler = programs.scheduler()                   # wakes whoever may sleep through it
    until(lambda: not programs.client.get_inspector().nodes()[0].held, what="the end of it")
    assert programs.client.get_task(waiting).status == "pending"
    assert listener.slots() == slots
    listener.send_again(signal.SIGUSR2)
    assert outcome(programs.client, waiting).result == "done"
    until(lambda: states(programs) == {"up"}, what="listeners that are up")
    assert listener.slots() == slots
    assert (listener.stop(), scheduler.stop()) == (0, 0)


def test_a_listener_that_takes_the_place_of_another_is_paused_like_it(programs, queue):
    listener = programs.listener("work:run")
    listener.send(signal.SIGUSR2)
    until(lambda: states(programs) == {"paused"}, what="a listener that is paused")
    (slot,) = listener.slots()
    os.kill(slot, signal.SIGKILL)
    until(lambda: slot not in listener.slots() and listener.slots(), what="another listener")
    waiting = queue.enqueue("")
    node = f"{host_name()}_{listener.slots()[0]}"
    until(lambda: any((one.id, one.state) == (node, "paused") for one in programs.client.get_inspector().nodes()),
          what="the other, paused")
    assert programs.client.get_task(waiting).status == "pending"


def test_a_listener_that_has_to_register_again_is_paused_as_before(programs, queue, cli):
    listener = programs.listener("work:run", environ={"BLUEQUE_BEAT": "0.2s"})
    listener.send(signal.SIGUSR2)
    until(lambda: states(programs) == {"paused"}, what="a listener that is paused")
    (node,) = programs.client.get_inspector().listeners("work")
    cli.delete(f"blueque_listener_work_{node}")
    until(lambda: len(listener.lines("register queue=work")) == 2, what="another registration")
    until(lambda: states(programs) == {"paused"}, what="a listener that is paused")


def test_hup_has_idle_listeners_replaced_and_busy_ones_after_their_task(programs, queue):
    toml = programs.directory / "blueque.toml"
    toml.write_text('[queues.work]\ntime_limit = "1h"\n')
    listener = programs.listener("work:run", slots=2)
    slots, running = set(listener.slots()), begin(programs, queue)
    toml.write_text('[queues.work]\ntime_limit = "0.2s"\n[listener]\nslots = 7\n')
    listener.send(signal.SIGHUP)
    listener.says("replacing 2 listeners")
    until(lambda: len(set(listener.slots()) - slots) == 1, what="another idle listener")
    assert programs.client.get_task(running).status == "started"
    assert outcome(programs.client, queue.enqueue("")).error_type == "time_limit"
    (programs.directory / "go").touch()
    assert outcome(programs.client, running).result == "done"
    until(lambda: len(listener.slots()) == 2 and not slots & set(listener.slots()), what="two other listeners")
    assert listener.stop() == 0


def test_hup_with_a_mistake_in_the_configuration_leaves_everything_as_it_is(programs, queue):
    toml = programs.directory / "blueque.toml"
    toml.write_text("[listener]\n")
    listener = programs.listener("work:quick")
    slots = listener.slots()
    toml.write_text("[listener]\nslots = nonsense\n")
    listener.send(signal.SIGHUP)
    listener.says("everything stays as it is")
    assert "blueque.toml" in listener.log and listener.slots() == slots
    assert outcome(programs.client, queue.enqueue("")).result == "done"


def test_hup_with_a_handler_that_cannot_be_imported_leaves_everything_as_it_is(programs, queue):
    listener = programs.listener("work:quick")
    slots = listener.slots()
    programs.write("raise RuntimeError('half deployed')")
    listener.send(signal.SIGHUP)
    listener.says("everything stays as it is")
    assert "cannot import the handler work:quick: RuntimeError: half deployed" in listener.log
    assert listener.slots() == slots and "replacing" not in listener.log
    programs.write(WORK)
    listener.send_again(signal.SIGHUP)
    listener.says("replacing 1 listeners")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR2, signal.SIGUSR1])
def test_one_that_comes_while_it_leaves_changes_nothing(programs, queue, number):
    listener = programs.listener("work:run")
    running = begin(programs, queue)
    listener.send(signal.SIGTERM)
    listener.says("taking nothing new")
    listener.send(number)
    listener.says(signal.Signals(number).name)
    (programs.directory / "go").touch()
    assert listener.wait() == 0
    assert programs.client.get_task(running).result == "done"


def test_a_task_has_these_signals_for_itself(programs, queue):
    programs.listener("work:ways")
    assert json.loads(outcome(programs.client, queue.enqueue("")).fields["result"]) == [True, True, True, True, False]


def test_a_scheduler_goes_on_after_each_and_reads_its_configuration(programs):
    toml = programs.directory / "blueque.toml"
    toml.write_text("")
    scheduler = programs.scheduler()
    scheduler.says("blueque-scheduler")
    until(lambda: int(_caught(scheduler.pid), 16) >> signal.SIGHUP - 1 & 1, what="its handlers")
    scheduler.send(signal.SIGHUP)
    scheduler.says("SIGHUP: what blueque.toml says of retention holds")
    toml.write_text("retention = nonsense\n")
    scheduler.send(signal.SIGHUP)
    scheduler.says("everything stays as it is")
    scheduler.send(signal.SIGUSR1)
    scheduler.says("SIGUSR1: our stacks are above")
    assert "scheduler.py" in scheduler.log
    assert scheduler.stop() == 0


def _caught(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(line.split()[1] for line in file if line.startswith("SigCgt"))
