"""Runs whose tasks join a group, or wait for others, against a real Redis."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import pytest
from faults import Fault
from transactions import protocol

import blueque
from blueque import InvalidInput, NoSuchTask, RedisAway, WrongRun
from blueque.errors import NoSuchGroup, WrongGroup
from blueque.model import keys
from blueque.model.ids import id_of_run_key
from blueque.model.units import Timing
from blueque.producer.abandoned_runs import Leftovers
from blueque.producer.row_batch import Rows
from blueque.protocol.parents import LOOK_EVERY
from blueque.recovery.settling import settle_groups_step

Q = "video"
KEYS = [f"key {number}" for number in range(10)]


def texts(some: Sequence[str]) -> list[bytes]:
    return [json.dumps(name).encode() for name in some]


def run_all(client, queue=Q):
    """Run what is in line of a queue, and return how many tasks that were."""
    listener, count = client.get_listener(queue), 0
    listener.register(Timing())
    while (task := listener.take()) is not None:
        processor = client.get_processor(task)
        processor.start(77)
        processor.complete("done")
        count += 1
    listener.leave()
    return count


def settle(client, seconds=0):
    """Do what a scheduler does for groups, so many seconds from now."""
    while settle_groups_step(client._redis, time.time() + seconds):
        pass


def statuses(client, queue=Q):
    """Return how many tasks of a queue have which status."""
    (ids,) = client._redis.read(("ZRANGE", keys.tasks(queue), 0, -1))
    found = [client.get_task(task).status for task in ids]
    return {status: found.count(status) for status in sorted(set(found))}


def seen(client, group="n1"):
    found = client.group(group).progress()
    return (found.state, found.members, found.open, found.bad)


# Keyed runs and their groups


def test_all_tasks_of_a_run_are_in_its_group_which_ends_when_they_are_complete(client, queue):
    done = queue.enqueue_many(KEYS, keys=KEYS, run="n1", group="n1")
    after = client.get_queue("join").enqueue("all", after=done)

    assert (done, done.new, done.group) == (10, 10, "n1")
    assert seen(client) == ("closed", 10, 10, 0)
    assert client.group("n1").progress().record["made_by"] == "run n1 of video"
    assert run_all(client) == 10
    assert client.get_task(after).status == "blocked"
    settle(client)
    assert seen(client) == ("ended", 10, 0, 0)
    assert client.get_task(after).status == "pending"


def test_a_run_that_is_repeated_changes_nothing_and_says_its_group(client, queue, state):
    queue.enqueue_many(KEYS, keys=KEYS, run="n1", group="n1")
    before = state()
    del before[keys.GROUPS]  # when a scheduler looks next

    again = queue.enqueue_many(KEYS, keys=KEYS, run="n1", group="n1")
    without = queue.enqueue_many(KEYS, keys=KEYS, run="n1")

    assert (again.new, again.group, without.group) == (0, "n1", "n1")
    assert {**state(), keys.GROUPS: None} == {**before, keys.GROUPS: None}


def test_a_run_that_was_interrupted_leaves_its_group_open_and_the_next_call_closes_it(
    client, queue
):
    first = queue.open_run("n1", shards=2, group="n1")
    first.put(KEYS[:6], texts(KEYS[:6]))
    run_all(client)
    settle(client)
    assert seen(client) == ("open", 6, 0, 0)

    done = queue.enqueue_many(KEYS, keys=KEYS, run="n1", group="n1")

    assert (done, done.new) == (10, 4)
    assert seen(client) == ("closed", 10, 4, 0)


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.HOLD])
def test_a_run_whose_close_fails_is_closed_by_the_next_call_with_its_group(
    client, proxy, queue, fault
):
    away = blueque.Client(proxy.url, patience=0)
    run = away.get_queue(Q).open_run("n1", group="n1")
    run.put(KEYS, texts(KEYS))
    proxy.arm(fault, having=b"decided_by")
    with pytest.raises(RedisAway):
        run.close(10)
    assert client.get_run(Q, "n1")["state"] == ("committed" if fault is Fault.CUT_AFTER else "open")
    assert seen(client)[0] == ("closed" if fault is Fault.CUT_AFTER else "open")

    outcome = queue.open_run("n1").close(10)
    proxy.release()

    assert (outcome.tasks, outcome.group) == (10, "n1")
    assert seen(client) == ("closed", 10, 10, 0)
    away.close()


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER])
def test_a_run_that_is_closed_is_told_so_though_its_group_cannot_be_ended_yet(
    client, proxy, queue, fault
):
    away = blueque.Client(proxy.url, patience=0)
    run = away.get_queue(Q).open_run("n1", group="n1")
    proxy.arm(fault, having=b"ended")

    outcome = run.close(0)

    assert (outcome.tasks, outcome.group) == (0, "n1")
    assert seen(client)[0] == ("ended" if fault is Fault.CUT_AFTER else "closed")
    settle(client, 2 * LOOK_EVERY)
    assert seen(client)[0] == "ended"
    away.close()


def test_an_empty_run_ends_its_group_at_once(client, queue):
    done = queue.enqueue_many([], keys=[], run="n1", group="n1")

    assert seen(client) == ("ended", 0, 0, 0)
    assert client.get_task(queue.enqueue("all", after=done)).status == "pending"


def test_a_group_that_was_open_before_is_joined_and_left_open(client, queue):
    with client.group("n1") as group:
        queue.enqueue_many(KEYS, keys=KEYS, run="a", group=group)
        client.get_queue("audio").enqueue_many(KEYS, keys=KEYS, run="b", group="n1")
        assert seen(client) == ("open", 20, 20, 0)

    assert seen(client)[0] == "closed"


def test_a_run_takes_part_in_no_group_of_another_run_or_workflow(client, queue):
    queue.open_run("n1", group="n1")
    flow = client.workflow("flow")
    flow.add(Q, "x")
    flow.commit()

    with pytest.raises(WrongGroup, match="'n1': it is the group of run n1 of video"):
        client.get_queue("audio").open_run("n1", group="n1")
    with pytest.raises(WrongGroup, match="it is the group of a workflow"):
        queue.open_run("n2", group="flow")
    assert client.get_run(Q, "n2") is None


def test_a_run_has_the_group_with_which_it_was_opened(queue):
    queue.open_run("with", group="n1")
    queue.open_run("without")

    with pytest.raises(WrongRun, match="it was opened with the group 'n1'"):
        queue.open_run("with", group="n2")
    with pytest.raises(WrongRun, match="it was opened without a group"):
        queue.enqueue_many(KEYS, keys=KEYS, run="without", group="n1")


def test_a_cancelled_group_takes_no_more_tasks_of_its_run(client, queue):
    run = queue.open_run("n1", group="n1")
    run.put(KEYS[:5], texts(KEYS[:5]))
    client.group("n1").cancel()

    with pytest.raises(WrongGroup):
        run.put(KEYS[5:], texts(KEYS[5:]))
    assert client.get_run(Q, "n1")["state"] == "open"


def test_a_group_that_a_person_has_closed_takes_no_more_tasks_of_its_run(client, queue):
    run = queue.open_run("n1", group="n1")
    client.group("n1").close()

    with pytest.raises(WrongGroup):
        run.put(KEYS, texts(KEYS))
    assert run.close(0).tasks == 0


def test_a_run_that_was_dropped_goes_on_with_its_group(client, queue):
    run = queue.open_run("n1", group="n1")
    run.put(KEYS[:6], texts(KEYS[:6]))
    run_all(client)
    Leftovers(client.connections).drop(Q, "n1")

    done = queue.enqueue_many(KEYS, keys=KEYS, run="n1", group="n1")

    assert (done, done.new) == (10, 4)
    settle(client)
    assert seen(client) == ("closed", 10, 4, 0)


def test_a_run_is_refused_whose_tasks_are_there_outside_of_its_group(client, queue):
    queue.enqueue_many(KEYS[:1], keys=KEYS[:1], run="n1")
    Leftovers(client.connections).drop(Q, "n1")
    task = id_of_run_key(Q, "n1", KEYS[0])

    with pytest.raises(WrongGroup, match=f"task {task} of this run is in Redis, and not in the"):
        queue.open_run("n1", group="n1").put(KEYS, texts(KEYS))
    assert seen(client) == ("open", 0, 0, 0)


# What tasks of a run wait for


def test_all_tasks_of_a_run_wait_for_a_group_and_run_once_when_it_is_complete(client, queue):
    first = queue.enqueue_many(KEYS, keys=KEYS, run="n1", group="n1")
    join = client.get_queue("join")

    second = join.enqueue_many(KEYS, keys=KEYS, run="n1", group="n2", after=first)
    last = client.get_queue("last").enqueue("all", after=second)

    assert statuses(client, "join") == {"blocked": 10}
    assert run_all(client, "join") == 0
    assert run_all(client) == 10
    settle(client)
    assert statuses(client, "join") == {"pending": 10}
    assert client.get_task(last).status == "blocked"
    assert run_all(client, "join") == 10
    settle(client)
    assert client.get_task(last).status == "pending"
    assert seen(client, "n2") == ("ended", 10, 0, 0)


def test_tasks_of_a_run_wait_in_vain_or_are_cancelled(client, queue):
    bad = queue.enqueue("bad")
    for name, broken in (("h", "hold"), ("c", "cancel")):
        client.get_queue(name).enqueue_many(KEYS, keys=KEYS, run="r", after=bad, broken=broken)

    queue.cancel(bad)
    while not protocol.settle(client._redis, bad, time.time()).is_over:
        pass

    assert statuses(client, "h") == {"blocked": 10}
    assert statuses(client, "c") == {"cancelled": 10}


def test_tasks_of_a_run_whose_parents_have_ended_are_let_go(client, queue):
    first = queue.enqueue_many([], keys=[], run="n1", group="n1")
    ended = queue.enqueue("x")
    run_all(client)

    join = client.get_queue("join")
    join.enqueue_many(KEYS, keys=KEYS, run="n1", after=[first.as_group(), ended])
    settle(client)
    while not protocol.settle(client._redis, ended, time.time()).is_over:
        pass

    assert statuses(client, "join") == {"pending": 10}


def test_tasks_of_a_run_wait_for_their_time_as_well(client, queue):
    first = queue.enqueue_many([], keys=[], run="n1", group="n1")

    join = client.get_queue("join")
    join.schedule_many(KEYS, 4e9, keys=KEYS, run="n1", after=first)
    assert statuses(client, "join") == {"blocked": 10}
    settle(client)

    assert statuses(client, "join") == {"scheduled": 10}


def test_those_who_repeat_a_run_need_not_say_what_its_tasks_wait_for(client, queue):
    parent = queue.enqueue("x")
    queue.open_run("r", after=parent, broken="cancel").put(KEYS[:5], texts(KEYS[:5]))

    queue.enqueue_many(KEYS, keys=KEYS, run="r")

    assert statuses(client) == {"blocked": 10, "pending": 1}
    with pytest.raises(NoSuchTask):
        queue.open_run("s", after="unknown")
    with pytest.raises(NoSuchGroup):
        queue.open_run("s", after=blueque.Group("unknown"))
    assert client.get_run(Q, "s") is None


def test_an_open_run_has_the_conditions_with_which_it_was_opened(queue):
    a, b = queue.enqueue("a"), queue.enqueue("b")
    queue.open_run("r", after=a)

    with pytest.raises(WrongRun, match="it was opened with another `after` or `broken`"):
        queue.open_run("r", after=b)
    queue.open_run("r", after=a).close(0)

    assert queue.open_run("r", after=b).state == "committed"


def test_no_circle_can_be_made_of_runs(client, queue):
    client.group("open").open()
    queue.enqueue("x", after=blueque.Group("open"))

    with pytest.raises(WrongGroup, match="'open': it is open still: close it before"):
        queue.open_run("r", group="mine", after=blueque.Group("open"))
    with pytest.raises(WrongGroup, match="tasks wait for it already"):
        queue.open_run("r", group="open", after=queue.enqueue("y"))
    client.group("other").open()
    with pytest.raises(WrongGroup, match="a task that joins it cannot wait for it"):
        queue.open_run("r", group="other", after=blueque.Group("other"))


def test_many_conditions_are_divided_among_transactions(client, queue):
    parents = [queue.enqueue(number) for number in range(100)]
    run = client.get_queue("join").open_run("r", after=parents)

    with pytest.raises(InvalidInput, match="10 tasks that wait for 100 others each are taken at a"):
        run.put(names := [str(number) for number in range(11)], texts(names))
    assert list(run.put_each([Rows(texts(names), names)])) == [10, 1]
    assert client.get_queue("more").enqueue_many(names, keys=names, run="r", after=parents) == 11

    assert statuses(client, "join") == {"blocked": 11}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"after_each": "x"}, "all tasks of a run wait for the same, and get no results"),
        ({"after": "x", "results": True}, "all tasks of a run wait for the same"),
        ({"after": [str(number) for number in range(101)]}, "many tasks can wait for 100 others"),
    ],
)
def test_what_a_run_cannot_have_is_refused(queue, client, options, says):
    with pytest.raises(InvalidInput, match=says):
        queue.enqueue_many(KEYS, keys=KEYS, run="r", **options)
    assert client.get_run(Q, "r") is None


def test_what_is_in_no_group_cannot_be_waited_for_and_says_what_to_do(queue):
    count = queue.enqueue_many(KEYS)
    outcome = queue.open_run("r").close(0)

    for done in (count, outcome, [outcome]):
        with pytest.raises(
            InvalidInput, match=r"in no group, so nothing tells .* give that call g"
        ):
            queue.enqueue("x", after=done)
        with pytest.raises(InvalidInput, match="give that call group="):
            queue.enqueue("x", after=blueque.after(any=done))


def test_a_run_without_links_has_the_commands_that_it_had(client, queue, cli):
    queue.enqueue_many(KEYS, keys=KEYS, run="r")

    assert client.get_run(Q, "r")["kind"] == "keyed"
    assert {"group", "after", "broken"}.isdisjoint(cli.hgetall(keys.run(Q, "r")))
