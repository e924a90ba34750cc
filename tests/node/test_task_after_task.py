"""A listener that takes task after task: what it sends for each, and what comes in between."""

from __future__ import annotations

import itertools
import os
import signal

import handlers
import pytest
import redis as redis_py
from faults import Fault
from handlers import begin, ended, is_sound, ledger, let_go

WORK = handlers.WORK
ROUND_TRIPS, COMMANDS = 8, 70  # of a task when many wait


def test_a_task_among_many_takes_eight_round_trips_and_few_commands(programs, url, cli):
    queue = programs.client.get_queue("work")
    ids = [queue.enqueue("quick") for _ in range(30)]
    seen: list[str] = []
    with redis_py.Redis.from_url(url) as other, other.monitor() as monitor:
        assert programs.listener("work:run", "--until-empty", is_awaited=False).wait() == 0
        cli.echo("all is over")
        for each in monitor.listen():
            if each["command"] == "ECHO all is over":
                break
            seen.append(each["command"])
    assert len(ledger(programs)) == len(ids) and is_sound(programs.client)

    ends = [place for place, command in enumerate(seen) if command.startswith("LPUSH blueque_comp")]
    tasks = [seen[end + 1 : following + 1] for end, following in itertools.pairwise(ends)]
    shortest = min(tasks, key=len)  # a beat may have come in between
    # A look and an EXEC for each of pop, reserve, start and complete.
    looks = [command for command in shortest if command.startswith("WATCH ")]
    assert len(looks) + shortest.count("EXEC") == ROUND_TRIPS, "\n".join(shortest)
    assert len(shortest) <= COMMANDS, "\n".join(shortest)


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
