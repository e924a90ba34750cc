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
from running import is_there, until

WORK = handlers.WORK
ROUND_TRIPS, COMMANDS = 3, 45  # of a task when many wait


def test_a_task_among_many_takes_three_round_trips_and_few_commands(programs, url, cli):
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
    # A look and two EXECs: the second look travels with the first EXEC.
    looks = [place for place, command in enumerate(shortest) if command.startswith("WATCH ")]
    begun = [place for place, command in enumerate(shortest) if command == "MULTI"]
    travels = [place for place in looks if shortest[place - 1] == "EXEC"]
    assert len(begun) + len(looks) - len(travels[1:]) == ROUND_TRIPS, "\n".join(shortest)
    assert len(shortest) <= COMMANDS, "\n".join(shortest)


def test_a_task_that_is_cancelled_while_its_start_cannot_be_recorded_does_not_run(
    programs, proxy, cli
):
    direct, programs.url = programs.url, proxy.url
    listener = programs.listener("work:run")
    until(lambda: cli.info("clients")["blocked_clients"] == 1, what="its wait for work")
    proxy.stop_listening()
    proxy.arm(Fault.CUT_BEFORE, having=b"blueque_started_tasks_work")
    queue = programs.client.get_queue("work")
    task_id, following = queue.enqueue("quick"), queue.enqueue("quick")
    listener.says("; waiting")
    assert proxy.has_struck and programs.client.get_task(task_id).status == "pending"
    queue.cancel(task_id)
    proxy.listen_again()

    assert ended(programs.client, following).status == "complete"
    programs.url = direct
    listener.says("not started")
    assert programs.client.get_task(task_id).status == "cancelled"
    assert [run.task for run in ledger(programs)] == [following]
    assert not (programs.directory / "spool" / f"{task_id}@1").exists()
    assert is_sound(programs.client)


@pytest.mark.parametrize("order", ["SIGTERM", "pause"])
def test_a_listener_that_is_told_to_take_nothing_more_takes_nothing_with_the_end_of_its_task(
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


def test_a_listener_that_dies_with_a_task_that_has_come_with_the_end_of_another_loses_nothing(
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


def test_a_listener_that_is_told_to_leave_while_redis_is_away_puts_back_what_came_with_an_end(
    programs, proxy, cli
):
    direct, programs.url = programs.url, proxy.url
    listener = programs.listener("work:run")
    task = begin(programs)
    following = programs.client.get_queue("work").enqueue("quick")
    proxy.stop_listening()
    proxy.arm(Fault.CUT_AFTER, having=b"blueque_complete_tasks_work")
    let_go(programs)
    listener.says("; waiting")
    listener.send(signal.SIGTERM)
    listener.says("SIGTERM")
    proxy.listen_again()

    assert listener.wait() == 0
    programs.url = direct
    assert programs.client.get_task(task.id).status == "complete"
    assert cli.lrange("blueque_pending_tasks_work", 0, -1) == [following]
    assert not cli.smembers("blueque_listeners_work")


@pytest.mark.parametrize("then", ["run", "cancel"])
def test_files_of_an_attempt_that_redis_has_never_known_are_removed(programs, proxy, cli, then):
    direct, programs.url = programs.url, proxy.url
    listener = programs.listener("work:run")
    (slot,) = listener.slots()
    until(lambda: cli.info("clients")["blocked_clients"] == 1, what="its wait for work")
    proxy.stop_listening()
    proxy.arm(Fault.CUT_BEFORE, having=b"blueque_started_tasks_work")
    queue = programs.client.get_queue("work")
    task_id = queue.enqueue("quick")
    listener.says("; waiting")
    (name,) = os.listdir(programs.directory / "spool" / "open")
    listener.stop(signal.SIGKILL)
    os.kill(slot, signal.SIGKILL)
    until(lambda: not is_there(int(name.partition("-")[0])), what="the end of the task process")
    if then == "cancel":
        queue.cancel(task_id)
    programs.url = direct
    programs.listener("work:run")
    ended(programs.client, queue.enqueue("quick"))

    if then == "cancel":
        assert not (programs.directory / "spool" / f"{task_id}@1").exists()
    else:
        assert ended(programs.client, task_id).attempt == 1
    opened = programs.directory / "spool" / "open"
    until(lambda: not os.listdir(opened), what="that no attempt is open")
    assert is_sound(programs.client)
