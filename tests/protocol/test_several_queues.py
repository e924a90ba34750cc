"""Several queues in one blueque-listener, as real programs."""

from __future__ import annotations

import os
import signal
import time

import handlers
import pytest
from handlers import begin, ended, has_moved, is_sound, ledger, let_go, pid_of, running
from running import children_of, is_there, until
from transactions import protocol

from blueque.system.process import host_name

WORK = handlers.WORK

QUICK = ("--beat", "0.2s", "--lease", "0.6s", "--lost-after", "30s")


def order_of(programs, count):
    """Wait for so many runs, and return the queues of the tasks in the order in which they ran."""
    until(lambda: len(ledger(programs)) == count, what=f"{count} runs")
    return "".join(programs.client.get_task(run.task).queue for run in ledger(programs))


def fill(programs):
    """Have something in three queues before anybody listens."""
    for queue, count in (("A", 5), ("B", 2), ("C", 3)):
        for _ in range(count):
            programs.client.get_queue(queue).enqueue("quick")


def registrations(programs):
    return {(node.queue, node.id) for node in programs.client.get_inspector().nodes()}


@pytest.mark.parametrize(
    ("options", "order"), [((), "CCCBBAAAAA"), (("--select", "round-robin"), "CBACBACAAA")]
)
def test_a_listener_takes_from_its_queues_in_the_order_that_it_was_told(programs, options, order):
    fill(programs)
    listener = programs.listener("work:run", "B", "A", *options, queue="C")
    assert order_of(programs, 10) == order
    assert f"3 queues ({'round-robin' if options else 'ordered'}) 'C', 'B', 'A'" in listener.log
    assert listener.stop() == 0
    assert registrations(programs) == set()
    assert is_sound(programs.client)


def test_a_listener_draws_by_weight(programs):
    for queue in ("heavy", "light"):
        for _ in range(20):
            programs.client.get_queue(queue).enqueue("quick")
    listener = programs.listener("work:run", "heavy=1000000", queue="light")
    until(lambda: len(ledger(programs)) == 40, 30, "40 runs")
    queues = [programs.client.get_task(run.task).queue for run in ledger(programs)]
    assert queues[:20] == ["heavy"] * 20, "but for one chance in 50,000"
    assert "2 queues (lottery) 'light', 'heavy'=1e+06" in listener.log


@pytest.mark.parametrize("word", ["a=x", "a=", "a=b=x"])
def test_an_equals_sign_without_a_weight_behind_it_is_refused(programs, word):
    listener = programs.listener("work:run", "--select", "ordered", queue=word, is_awaited=False)
    assert listener.wait() == 2
    said = " ".join(listener.log.split())
    assert f"{word!r}: " in said and f"with a weight of 1, '{word}=1'" in said


def test_a_queue_whose_name_holds_an_equals_sign_is_named_with_a_weight(programs):
    listener = programs.listener("work:run", queue="a=x=1", is_awaited=False)
    listener.says("register queue=a=x ")


def test_an_idle_listener_is_woken_by_a_task_of_any_of_its_queues(programs):
    listener = programs.listener("work:run", "B", "C", queue="A", slots=2)
    listener.says("register queue=C")
    for queue in ("C", "A", "B"):
        began = time.monotonic()
        task = programs.client.get_queue(queue).enqueue("quick")
        assert ended(programs.client, task).result == "done"
        assert time.monotonic() - began < 5, "its next beat would have been in 10 s"


def test_two_slots_of_several_queues_run_two_tasks_at_a_time_and_no_more(programs):
    programs.listener("work:run", "B", queue="A", slots=2)
    first, second = begin(programs, queue="A"), begin(programs, queue="B")
    assert first.node != second.node
    third = programs.client.get_queue("A").enqueue("quick")
    fourth = programs.client.get_queue("B").enqueue("quick")
    let_go(programs, first.id)
    ended(programs.client, third)
    ended(programs.client, fourth)
    assert programs.client.get_task(second.id).status == "started"
    let_go(programs)
    ended(programs.client, second.id)
    assert is_sound(programs.client)


def test_the_task_of_a_slot_of_several_queues_that_is_killed_is_adopted(programs):
    listener = programs.listener("work:run", *QUICK, "B", "C", queue="A")
    task = begin(programs, queue="B")
    os.kill(pid_of(task.node), signal.SIGKILL)
    adopter = has_moved(programs.client, task)
    assert is_there(task.pid)
    until(
        lambda: {node for _, node in registrations(programs)} == {adopter},
        what="the striking off of the dead one",
    )
    let_go(programs)
    done = ended(programs.client, task.id)
    assert (done.result, done.attempt, done.pid, len(ledger(programs))) == ("done", 1, task.pid, 1)
    assert {queue for queue, _ in registrations(programs)} == {"A", "B", "C"}
    assert listener.stop() == 0
    assert is_sound(programs.client)


def test_an_order_to_drain_in_one_queue_drains_the_slot_in_all(programs):
    listener = programs.listener("work:run", "B", queue="A")
    task = begin(programs, queue="A")
    protocol.order(programs.client.connections, "B", task.node, "drain", "ann")
    listener.says("told to drain")
    left = programs.client.get_queue("B").enqueue("quick")
    let_go(programs)
    ended(programs.client, task.id)
    assert listener.wait() == 0
    assert registrations(programs) == set()
    assert programs.client.get_task(left).status == "pending"


def test_a_cancelled_task_of_the_last_queue_is_ended_by_its_busy_listener(programs):
    programs.listener("work:run", "B", "C", queue="A")
    task = begin(programs, queue="C")
    programs.client.get_queue("C").cancel(task.id)
    assert ended(programs.client, task.id, 5).status == "cancelled", (
        "its next beat would have been in 10 s"
    )


def test_a_retry_that_is_due_in_any_queue_needs_no_scheduler(programs):
    programs.listener("work:run", *QUICK, "B", "C", queue="A")
    task = programs.client.get_queue("C").schedule("quick", time.time() + 0.5)
    assert ended(programs.client, task).result == "done"


def test_a_listener_that_was_left_behind_counts_for_a_master_with_any_of_its_queues(programs):
    first = programs.listener("work:run", *QUICK, "B", queue="A", on_term="leave")
    task = begin(programs, queue="B")
    assert first.stop() == 0
    second = programs.listener("work:run", *QUICK, "B", queue="C", is_awaited=False)
    second.says("found 1 listener of a former master with a running task")
    until(
        lambda: children_of(second.pid) == set(), what="the end of the child that tidies the spool"
    )
    third = programs.listener("work:run", *QUICK, queue="D")
    assert len(third.slots()) == 1, "a master with none of its queues"
    assert programs.client.get_inspector().listeners("C") == []
    let_go(programs)
    ended(programs.client, task.id)
    second.says("register queue=C")


def test_an_idle_listener_of_a_hundred_queues_costs_redis_little(programs, cli):
    queues = [f"queue {number}" for number in range(100)]
    times = ("--beat", "1s", "--lease", "6s", "--lost-after", "60s")  # a tenth of the usual ones
    listener = programs.listener("work:run", *times, *queues[1:], queue=queues[0])
    until(lambda: len(registrations(programs)) == 100, what="its registrations")
    node = f"{host_name()}_{listener.slots()[0]}"
    until(lambda: cli.info("clients")["blocked_clients"] == 1, what="a listener that waits")
    # Its first look at the others' tasks and registrations is over when it has beaten twice.
    until(
        lambda: cli.hget(f"blueque_listener_{queues[99]}_{node}", "beat") == "2",
        what="its second beat",
    )
    calls = cli.info("stats")["total_commands_processed"]
    reads = cli.info("stats")["total_reads_processed"]
    began = time.monotonic()
    time.sleep(4)  # what it does in this time is the question
    seconds = time.monotonic() - began
    rate = (cli.info("stats")["total_commands_processed"] - calls) / seconds
    writes = (cli.info("stats")["total_reads_processed"] - reads) / seconds
    assert rate / 10 <= 100, "less than one command a second for each queue"
    assert writes / 10 <= 2
    assert (
        running(programs, programs.client.get_queue(queues[77]).enqueue("wait")).queue == queues[77]
    )
