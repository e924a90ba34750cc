"""A listener that takes task after task: what it sends for each, and what comes in between."""

from __future__ import annotations

import itertools
import os
import signal

import handlers
import hiredis
import pytest
from faults import Fault
from handlers import begin, ended, is_sound, ledger, let_go

WORK = handlers.WORK
# Of a task when many wait: the EXEC of pop, a look and an EXEC each for reserve, start and end, and the
# look of the next pop.
STEPS = [["EXEC"], ["WATCH"]] * 4
COMMANDS = 58


def test_a_task_among_many_takes_eight_round_trips_and_few_commands(programs, proxy):
    queue = programs.client.get_queue("work")
    ids = [queue.enqueue("quick") for _ in range(30)]
    writes: list[list[str]] = []
    proxy.on_write = lambda data: writes.append(names_of(data))
    programs.url = proxy.url
    assert programs.listener("work:run", "--until-empty", is_awaited=False).wait() == 0
    assert len(ledger(programs)) == len(ids) and is_sound(programs.client)

    pops = [place for place, names in enumerate(writes) if "RPOPLPUSH" in names]
    tasks = [writes[pop:following] for pop, following in itertools.pairwise(pops)]
    shortest = min(tasks, key=len)  # a beat may have come in between
    steps = [[name for name in names if name in ("WATCH", "EXEC")] for names in shortest]
    assert steps == STEPS
    assert sum(map(len, shortest)) <= COMMANDS


def names_of(data: bytes) -> list[str]:
    """Return the names of the commands of a write."""
    parser = hiredis.Reader()
    parser.feed(data)
    return [words[0].decode() for words in iter(parser.gets, False)]


@pytest.mark.parametrize("order", ["SIGTERM", "pause"])
def test_a_listener_that_is_told_to_take_nothing_more_takes_nothing_after_its_task(
    programs, cli, order
):
    listener = programs.listener("work:run")
    task = begin(programs)
    queue = programs.client.get_queue("work")
    following = queue.enqueue("quick")
    if order == "pause":
        queue.pause()
    else:
        listener.send(signal.SIGTERM)
        listener.says("SIGTERM")
    let_go(programs)
    assert ended(programs.client, task.id).status == "complete"
    if order == "SIGTERM":
        assert listener.wait() == 0

    assert cli.lrange("blueque_pending_tasks_work", 0, -1) == [following]
    assert not cli.keys("blueque_reserved_tasks_work_*") and is_sound(programs.client)


def test_a_listener_that_dies_with_a_task_that_it_has_popped_after_another_loses_nothing(
    programs, proxy, cli
):
    direct, programs.url = programs.url, proxy.url
    listener = programs.listener("work:run")
    task = begin(programs)
    following = programs.client.get_queue("work").enqueue("quick")
    proxy.stop_listening()
    proxy.arm(Fault.CUT_AFTER, having=b"RPOPLPUSH")
    let_go(programs)
    listener.says("; waiting")
    assert proxy.has_struck and programs.client.get_task(task.id).status == "complete"
    assert cli.lrange(cli.keys("blueque_reserved_tasks_work_*")[0], 0, -1) == [following]
    slots = listener.slots()
    listener.stop(signal.SIGKILL)
    for slot in slots:
        os.kill(slot, signal.SIGKILL)
    programs.url = direct
    programs.listener("work:run")

    assert ended(programs.client, following).attempt == 1
    assert [run.task for run in ledger(programs)] == [task.id, following]
    assert is_sound(programs.client)
