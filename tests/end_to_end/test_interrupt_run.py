"""Interrupting on real processes: a task that runs is ended, is the next in line, and runs again."""

from __future__ import annotations

import os
import signal

import handlers
import pytest
from handlers import begin, children_of_task, ended, is_sound, ledger, let_go, pid_of, running
from running import is_there, patched, state_of, until

from blueque import Retry, WrongState
from blueque.model import keys

WORK = handlers.WORK
# As in test_cancel_run.py: a listener hears of orders earlier.
ENVIRON = patched({"node.supervisor.QUIET": 0.1, "node.launcher.TRY_AGAIN": 0.4})


def interrupt(programs, task, **words):
    programs.client.get_queue("work").interrupt(task.id, **words)


def test_a_task_without_a_policy_is_ended_with_its_children_and_runs_again_before_all_others(
    programs,
):
    programs.listener("work:run")
    queue = programs.client.get_queue("work")
    task = begin(programs, "leave_children plain session")
    following = queue.enqueue("quick")
    until(lambda: len(children_of_task(task.id)) == 2, what="its children")
    children = children_of_task(task.id)

    interrupt(programs, task, by="ann", reason="reboot")
    again = running(programs, task.id, 2)

    assert not any(map(is_there, [task.pid, *children]))
    assert (again.failures, again.interruptions, again.last_error) == (None, None, None)
    assert (again.interrupted_by, again.interrupt_reason) == ("ann", "reboot")
    assert not again.is_interrupted
    let_go(programs)
    assert ended(programs.client, task.id).status == "complete"
    assert ended(programs.client, following).status == "complete"
    assert [run.task for run in ledger(programs)] == [task.id, task.id, following]
    history = programs.client.get_history(task.id)
    told = [(each.event, each.facts.get("reason")) for each in history.events]
    place = told.index(("interrupting", "reboot"))
    assert told[place + 1] == ("released", "interrupted")
    assert is_sound(programs.client)


@pytest.mark.parametrize("how", ["ignore", "complain", "drop_out_on_term"])
def test_one_that_does_not_heed_sigterm_or_fails_on_it_has_not_failed(programs, how):
    programs.listener("work:run", grace="0.5s")
    task = begin(programs, how, retry=Retry(max=1, backoff=0, interruptions=0))

    for attempt in (1, 2, 3):
        interrupt(programs, running(programs, task.id, attempt))

    again = running(programs, task.id, 4)
    assert (again.failures, again.interruptions) == (None, None)
    let_go(programs)
    assert ended(programs.client, task.id).result == "done"
    assert is_sound(programs.client)


def test_a_task_that_completes_all_the_same_has_won(programs):
    programs.listener("work:run")
    task = begin(programs, "finish")

    interrupt(programs, task, by="ann")
    done = ended(programs.client, task.id)

    assert (done.status, done.attempt, done.interrupted_by) == ("complete", 1, "ann")
    with pytest.raises(WrongState, match="complete"):
        interrupt(programs, task)


def test_one_that_is_cancelled_in_its_grace_is_cancelled(programs):
    listener = programs.listener("work:run", grace="1s")
    task = begin(programs, "ignore")

    interrupt(programs, task)
    listener.says("stopping task=")
    assert programs.client.get_queue("work").cancel(task.id) == "cancelling"

    assert ended(programs.client, task.id).status == "cancelled"
    assert len(ledger(programs)) == 1 and is_sound(programs.client)


def test_one_that_is_interrupted_while_it_has_no_listener_is_handed_back_by_the_next(programs):
    listener = programs.listener("work:run")
    task = begin(programs)
    os.kill(listener.pid, signal.SIGSTOP)  # so that nothing is forked yet
    until(lambda: state_of(listener.pid) == "T", what="the master stands still")
    os.kill(pid_of(task.node), signal.SIGKILL)
    until(lambda: not is_there(pid_of(task.node)), what="the end of the listener")

    interrupt(programs, task)
    assert is_there(task.pid)
    listener.send(signal.SIGCONT)

    again = running(programs, task.id, 2)
    assert not is_there(task.pid) and again.interruptions is None
    let_go(programs)
    assert ended(programs.client, task.id).status == "complete" and is_sound(programs.client)


def test_an_order_is_for_one_attempt_and_not_for_the_next_one_of_the_same_process(programs):
    listener = programs.listener("work:run", "--reuse", "100", "--beat", "0.2s")
    first = programs.client.get_queue("work").enqueue("quick")
    token = ended(programs.client, first).token
    second = begin(programs, "wait")

    redis = programs.client.connections
    # As an order that came too late, and was left in a task that runs again.
    redis.read(("HSET", keys.task(second.id), "interrupt", token, "stack", "mark"))
    beat = _beat(programs, second.node)
    until(lambda: _beat(programs, second.node) > beat + 2, what="three beats")

    assert is_there(second.pid) and listener.lines("stopping task=") == []
    interrupt(programs, second)
    again = running(programs, second.id, 2)
    assert again.pid != second.pid
    let_go(programs)
    assert ended(programs.client, second.id).status == "complete" and is_sound(programs.client)


def _beat(programs, node):
    return int(programs.client.get_inspector().registration("work", node).get("beat", -1))
