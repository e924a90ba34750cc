"""Tasks that wait for others, on real processes: listeners and a scheduler tell them of the ends."""

from __future__ import annotations

import time

import pytest
from handlers import WORK, ended, ledger
from running import until
from transactions import protocol

import blueque
from blueque.model import keys
from blueque.model.conditions import ANY, OK, conditions_of
from blueque.model.group import Group
from blueque.model.ids import random_id
from blueque.model.new_task import NewTask

CHILDREN = 130  # more than one transaction tells
BY_1_0_0 = """
listener = client.get_listener("work")
processor = client.get_processor(listener.listen())
processor.start(os.getpid())
processor.complete("by 1.0.0")
"""


@pytest.fixture(autouse=True)
def _work(programs):
    programs.write(WORK, "ours.py")
    programs.write("", "work.py")  # which 1.0.0 imports


@pytest.fixture
def after(client):
    """Create tasks with these conditions; return their ids."""

    def make(conditions, count=1, what="quick", **options):
        new = [NewTask(random_id(), "work", what, options, conditions) for _ in range(count)]
        for first in range(0, count, 100):
            some = new[first : first + 100]
            assert all(protocol.enqueue_after(client.connections, some, time.time()))
        return [each.task for each in new]

    return make


def test_a_listener_that_works_until_nothing_is_left_tells_all_who_wait_for_its_task(
    programs, queue, client, after
):
    children = after({queue.enqueue("quick"): OK}, CHILDREN)
    listener = programs.listener("ours:run", "--beat", "20s", "--until-empty")
    assert listener.wait(60) == 0
    assert {client.get_task(task).status for task in children} == {"complete"}
    assert len(ledger(programs)) == CHILDREN + 1


def test_a_listener_finds_the_end_of_a_task_that_a_person_has_cancelled(
    programs, queue, client, after
):
    parent = queue.schedule("quick", time.time() + 1000)
    (anyway,), (broken,), (held,) = (
        after({parent: ANY}),
        after({parent: OK}, broken="cancel"),
        after({parent: OK}),
    )
    programs.listener("ours:run", "--beat", "0.2s")
    queue.cancel(parent)
    assert ended(client, anyway).status == "complete"
    cancelled = ended(client, broken)
    assert (cancelled.status, cancelled.cancelled_by) == ("cancelled", "blueque")
    assert cancelled.fields["broken_by"] == parent
    assert client.get_task(held).status == "blocked"


def test_a_scheduler_tells_those_who_wait_for_a_task_whose_listener_has_died_since(
    programs, queue, client, after, cli
):
    parent = queue.enqueue("quick")
    children = after({parent: OK}, CHILDREN)
    programs.scheduler()
    listener = client.get_listener("work")
    processor = client.get_processor(listener.listen())
    processor.start(1)
    processor.complete("done")
    assert cli.zrange(keys.UNSETTLED_TASKS, 0, -1) == [parent]
    until(lambda: cli.llen(keys.pending("work")) == CHILDREN, what="all children are in line")
    until(lambda: not cli.exists(keys.UNSETTLED_TASKS), what="the end is settled")
    assert {client.get_task(task).status for task in children} == {"pending"}


@pytest.mark.parametrize("who", ["a scheduler", "a listener"])
def test_a_task_that_waits_for_a_group_begins_when_its_last_member_is_complete(
    who, programs, queue, client, after
):
    protocol.open_group(client.connections, "night", 60, time.time())
    members = after({}, CHILDREN, group="night")
    protocol.close_group(client.connections, "night", time.time())
    (last,) = after(conditions_of(blueque.after(ok=Group("night"))))
    programs.listener("ours:run", "--beat", "20s", slots=2)
    if who == "a scheduler":
        programs.scheduler()
    assert ended(client, last, 60).status == "complete"
    runs = [task for task, *_ in ledger(programs)]
    assert sorted(runs) == sorted([*members, last])
    assert runs[-1] == last


@pytest.mark.parametrize("who", ["a scheduler", "a listener"])
def test_the_end_of_a_task_that_1_0_0_has_completed_is_found(
    who, programs, queue, client, after, legacy, cli
):
    parent = queue.enqueue("quick")
    (child,) = after({parent: OK})
    legacy.run(BY_1_0_0)
    assert client.get_task(parent).status == "complete"
    assert client.get_task(child).status == "blocked"
    cli.zadd(keys.blocked("work"), {child: 0.0})  # as a minute later
    if who == "a scheduler":
        programs.scheduler()
        until(lambda: client.get_task(child).status == "pending", what="it is in line")
    else:
        programs.listener("ours:run", "--beat", "0.1s")
        assert ended(client, child).status == "complete"
