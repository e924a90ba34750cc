"""What a lost connection, a lost answer and a late write do to each public call: nothing that can
be seen afterwards.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from faults import Fault
from transactions import protocol

from blueque import Client, OutcomeUnknown, Retry
from blueque.model.attempt_ref import AttemptRef
from blueque.model.new_task import NewTask
from blueque.model.units import Timing
from blueque.protocol.ends import End
from blueque.protocol.membership import Heartbeat
from blueque.protocol.recover import Loss
from blueque.system.process import node_id


@pytest.fixture
def through(proxy):
    """A client that goes through the proxy, connected already."""
    client = Client(proxy.url, patience=5)
    client.get_task("none")
    yield client
    client.close()


def video(client):
    return client.get_queue("video")


def listening(client):
    """Return a listener that is registered."""
    listener = client.get_listener("video")
    listener.register(Timing())
    return listener


def reserved(client, retry=None):
    """Return the processor of a task that was taken."""
    listener = listening(client)
    video(client).enqueue("in", retry=retry)
    return client.get_processor(listener.take())


def started(client, retry=None):
    processor = reserved(client, retry)
    processor.start(77)
    return processor


def started_with_a_policy(client):
    return started(client, Retry(backoff=1000, jitter=0))


def started_with_a_policy_of_no_delay(client):
    return started(client, Retry(backoff=0))


def to_be_cancelled(client):
    """Return the processor of a started task that somebody wants cancelled."""
    processor = started(client)
    video(client).cancel(the_task(client), "ann")
    return processor


def cancelled(client):
    """Return the id of a cancelled task."""
    task_id = pending(client)
    video(client).cancel(task_id, "ann")
    return task_id


def pending(client):
    return video(client).enqueue("in")


def scheduled(client):
    return video(client).schedule("in", 4e9)


def the_task(client):
    """Return the id of the only task."""
    return client.connections.read(("ZRANGE", "blueque_tasks_video", 0, 0))[0][0]


def complete(client):
    """Return a complete task."""
    started(client).complete("out")
    return finished(client, "complete")


def failed(client):
    reserved(client).fail("why")
    return finished(client, "failed")


def finished(client, status):
    (task_id,) = client.connections.read(("LRANGE", f"blueque_{status}_tasks_video", 0, 0))[0]
    return client.get_task(task_id)


def until_known(take):
    """Take as a listener does that outlives its connections."""
    try:
        return take()
    except OutcomeUnknown:
        return take()


# What a dead listener leaves behind, under a name that is not ours. There is no public object for
# it: programs see to it.

Q, DEAD, ALIVE = "video", "host_2", "host_3"
T1 = AttemptRef(Q, "t1", "token", DEAD)
OURS = {
    "queue": Q,
    "parameters": "in",
    "created": "5.5",
    "attempt": "1",
    "token": "token",
    "pid": "77",
}


def dead(*steps):
    """Seed a listener that is to be found dead, and one that lives; the first has done these steps
    with the task t1.
    """

    def seed(client):
        redis = client.connections
        protocol.register(redis, Q, ALIVE, "i3", {}, 1.5)
        protocol.register(redis, Q, DEAD, "i2", {}, 1.5)
        protocol.enqueue(redis, Q, "t1", "in", 5.5)
        for step in steps:
            step(client, None)

    return seed


def pop(client, _):
    protocol.pop(client.connections, Q, DEAD, "i2")


def reserve(client, _):
    protocol.reserve(client.connections, T1, "i2", 6.5)


def start(client, _):
    protocol.start(client.connections, T1, 77, 7.5)


def fence(client, _):
    return protocol.fence(client.connections, Q, DEAD, "i2", "0", 9.25)


def recover(client, _):
    return protocol.recover(client.connections, Q, "t1", DEAD, "i2", 8.5)


def lose(client, default=None):
    return protocol.lose(client.connections, T1, "i2", Loss("gone"), default, 9.5)


def adopt(client, _):
    return protocol.adopt(client.connections, T1, ALIVE, "i3", 9.5)


def restore(client, _):
    return protocol.restore(
        client.connections, AttemptRef(Q, "t1", "token", ALIVE), "i3", 77, {}, 7.5, 9.5
    )


def reassert(client, _):
    return protocol.reassert(client.connections, Q, "t1", ALIVE, "i3", OURS, 9.5)


def complete_t1(client, _):
    protocol.end(client.connections, T1, End.complete("out"), 9.7)


def lose_t1(client, _):
    return lose(client)


def born(kind="ok", **options):
    """Return a step: the task t2 waits for t1."""
    conditions = {"t1": kind}

    def enqueue_after(client, _):
        new = NewTask("t2", Q, "in", options, conditions)
        return protocol.enqueue_after(client.connections, [new], 6.0)

    return enqueue_after


def settle(client, _):
    return protocol.settle(client.connections, "t1", 10.5)


def recheck(client, _):
    return protocol.recheck(client.connections, Q, "t2", 10.5)


def unblock(client, _):
    return protocol.unblock(client.connections, Q, "t2", 10.5, "ann")


def cancel_t2(client, _):
    return protocol.cancel(client.connections, Q, "t2", "ann", None, 10.5)


def cancel_t1(client, _):
    return protocol.cancel(client.connections, Q, "t1", "ann", None, 9.5)


def of_1_0_0(client):
    client.connections.read(
        ("SADD", "blueque_listeners_video", DEAD), ("ZINCRBY", "blueque_queues", 1, Q)
    )


class Call(NamedTuple):
    """A public call: what must be there before it, made without faults, and the call itself on
    that.
    """

    given: Callable[[Client], Any]
    act: Callable[[Client, Any], Any]


def nothing(client):
    return None


def two_in_line(client):
    video(client).enqueue("in")
    video(client).enqueue("in")
    return listening(client)


def three_due(client):
    for eta in (1.5, 2.5, 3.5):
        task_id = video(client).schedule("in", 4e9)
        client.connections.read(("ZADD", "blueque_scheduled_tasks_video", eta, task_id))


def reserved_by_the_dead(client):
    """Let a listener take a task and then go by another name than ours."""
    reserved(client)
    for kind in ("reserved_tasks", "listener"):
        key = f"blueque_{kind}_video_"
        client.connections.read(("RENAME", f"{key}{node_id()}", f"{key}host_2"))
    client.connections.read(
        ("SADD", "blueque_listeners_video", "host_2"),
        ("SREM", "blueque_listeners_video", node_id()),
    )


def started_by_the_dead(client):
    reserved_by_the_dead(client)
    (task_id,) = client.connections.read(("LINDEX", "blueque_reserved_tasks_video_host_2", 0))
    client.connections.read(("HSET", f"blueque_task_{task_id}", "status", "started"))


def instance(client, node):
    return client.connections.read(("HGET", f"blueque_listener_video_{node}", "instance"))[0]


def claim(client, _):
    return protocol.claim(
        client.connections, "video", node_id(), "host_2", instance(client, "host_2")
    )


def frozen(client, seed, *statuses):
    """Return a snapshot of the tasks of the queue."""
    seed(client)
    return client.freeze("video", statuses)


def purge(client, snapshot):
    deleted = list(client.purge(snapshot, by="ann"))
    client.thaw(snapshot)
    return deleted


RUN = (pop, reserve, start)
CALLS = {
    "enqueue": Call(nothing, lambda client, _: video(client).enqueue({"a": 1})),
    "enqueue three on one connection": Call(
        nothing, lambda client, _: [video(client).enqueue(number) for number in range(3)]
    ),
    "enqueue, schedule, enqueue": Call(
        nothing,
        lambda client, _: [
            video(client).enqueue("1"),
            video(client).schedule("2", 4e9),
            video(client).enqueue("3"),
        ],
    ),
    "schedule": Call(nothing, lambda client, _: video(client).schedule({"a": 1}, 4e9)),
    "schedule for the past": Call(nothing, lambda client, _: video(client).schedule({"a": 1}, 1e9)),
    "enqueue_due_tasks": Call(three_due, lambda client, _: video(client).enqueue_due_tasks()),
    "delete a complete task": Call(complete, lambda client, task: video(client).delete_task(task)),
    "delete a failed task": Call(failed, lambda client, task: video(client).delete_task(task)),
    "delete a cancelled task": Call(
        cancelled, lambda client, task_id: video(client).delete_task(client.get_task(task_id))
    ),
    "register": Call(nothing, lambda client, _: client.get_listener("video").register(Timing())),
    "beat": Call(listening, lambda client, listener: listener.beat()),
    "beat with a task": Call(
        started,
        lambda client, _: protocol.beat(
            client.connections,
            [Heartbeat("video", node_id(), instance(client, node_id()), 5)],
            9.5,
            the_task(client),
        )[0]._replace(token=None),
    ),
    "take": Call(two_in_line, lambda client, listener: until_known(listener.take).id),
    "take both": Call(
        two_in_line,
        lambda client, listener: [until_known(listener.take).id, until_known(listener.take).id],
    ),
    "take from an empty line": Call(listening, lambda client, listener: until_known(listener.take)),
    "listen": Call(
        two_in_line, lambda client, listener: until_known(client.get_listener("video").listen).id
    ),
    "claim a reserved task": Call(reserved_by_the_dead, claim),
    "claim a started task": Call(started_by_the_dead, claim),
    "start": Call(reserved, lambda client, processor: processor.start(77)),
    "complete": Call(started, lambda client, processor: processor.complete({"b": 2})),
    "fail a started task": Call(started, lambda client, processor: processor.fail("why")),
    "fail a reserved task": Call(reserved, lambda client, processor: processor.fail("why")),
    "fail a task that is to run again later": Call(
        started_with_a_policy, lambda client, processor: processor.fail("why")
    ),
    "fail a task that is to run again": Call(
        started_with_a_policy_of_no_delay, lambda client, processor: processor.fail("why")
    ),
    "fail a task that is to run again, and was to be cancelled": Call(
        lambda client: (
            started_with_a_policy(client),
            video(client).cancel(the_task(client), "ann"),
        )[0],
        lambda client, processor: processor.fail("why"),
    ),
    "progress": Call(started, lambda client, processor: processor.progress("50 %")),
    "note": Call(started, lambda client, processor: processor.note(1, "took the old model", 9.5)),
    "release a reserved task": Call(reserved, lambda client, processor: processor.release()),
    "release a started task": Call(started, lambda client, processor: processor.release()),
    "release a task that was to be cancelled": Call(
        to_be_cancelled, lambda client, processor: processor.release()
    ),
    "confirm_cancel": Call(
        to_be_cancelled, lambda client, processor: processor.confirm_cancel({"memory_peak": 4096})
    ),
    "cancel a pending task": Call(
        pending, lambda client, task_id: video(client).cancel(task_id, "ann")
    ),
    "cancel a scheduled task": Call(
        scheduled, lambda client, task_id: video(client).cancel(task_id, "ann")
    ),
    "cancel a reserved task": Call(
        reserved, lambda client, _: video(client).cancel(the_task(client), "ann")
    ),
    "cancel a started task": Call(
        started, lambda client, _: video(client).cancel(the_task(client), "ann")
    ),
    "requeue a failed task": Call(failed, lambda client, task: video(client).requeue(task.id)),
    "requeue a cancelled task": Call(
        cancelled, lambda client, task_id: video(client).requeue(task_id)
    ),
    "order": Call(
        listening,
        lambda client, _: protocol.order(
            client.connections, "video", node_id(), "drain", "ann", 9.25
        ),
    ),
    "bring forward": Call(scheduled, lambda client, task_id: video(client).bring_forward(task_id)),
    "purge what waits": Call(
        lambda client: frozen(client, two_in_line, "pending", "scheduled"), purge
    ),
    "purge what has ended": Call(lambda client: frozen(client, complete, "complete"), purge),
    "observe": Call(dead(), lambda client, _: protocol.observe(client.connections, [Q])),
    "fence": Call(dead(pop, reserve), fence),
    "fence one of 1.0.0": Call(
        of_1_0_0, lambda client, _: protocol.fence(client.connections, Q, DEAD, None, None, 9.25)
    ),
    "recover what was popped": Call(dead(pop, fence), recover),
    "recover what was reserved": Call(dead(pop, reserve, fence), recover),
    "recover what was started": Call(dead(*RUN, fence), recover),
    "lose": Call(dead(*RUN, fence), lose_t1),
    "lose and run again": Call(dead(*RUN, fence), lambda client, _: lose(client, Retry())),
    "adopt": Call(dead(*RUN, fence), adopt),
    "complete what was lost": Call(dead(*RUN, fence, lose_t1), complete_t1),
    "restore": Call(dead(*RUN, fence, lose_t1), restore),
    "reassert": Call(dead(), reassert),
    "deregister the dead": Call(
        dead(fence),
        lambda client, _: protocol.deregister(client.connections, Q, DEAD, "i2", is_dead=True),
    ),
    "enqueue after": Call(dead(), born()),
    "enqueue after a cancelled task": Call(dead(cancel_t1), born(broken="cancel")),
    "enqueue after a task that meets the condition": Call(dead(cancel_t1), born("any")),
    "settle": Call(dead(born(), *RUN, complete_t1), settle),
    "settle with results": Call(dead(born(inputs=0), *RUN, complete_t1), settle),
    "settle what is cancelled": Call(dead(born(broken="cancel"), cancel_t1), settle),
    "settle what waits on": Call(dead(born(), cancel_t1), settle),
    "recheck": Call(dead(born("any"), cancel_t1), recheck),
    "recheck in vain": Call(dead(born()), recheck),
    "unblock": Call(dead(born()), unblock),
    "cancel a blocked task": Call(dead(born()), cancel_t2),
    "requeue a task that is to wait": Call(
        dead(born(), cancel_t2),
        lambda client, _: protocol.requeue(client.connections, Q, "t2", "mark", 11.5),
    ),
    "wake": Call(nothing, lambda client, _: video(client).wake_listener()),
    "leave": Call(listening, lambda client, listener: listener.leave()),
    "look": Call(two_in_line, lambda client, _: client.get_inspector().pending("video")),
}

# What is done can be seen in Redis, but the call that did it cannot tell any more; docs/protocol.md
# says so.
FORGETFUL = {
    (name, Fault.CUT_AFTER)
    for name in (
        "enqueue_due_tasks",
        "claim a started task",
        "fence one of 1.0.0",
        "recover what was popped",
        "recover what was reserved",
        "lose",
        "lose and run again",
        "settle",
        "settle with results",
        "settle what is cancelled",
        "settle what waits on",
        "recheck",
    )
}
CASES = [
    pytest.param(name, fault, id=f"{name}-{fault.name}")
    for name, fault in itertools.product(CALLS, Fault)
]


def anonymous(outcome, state):
    """Return both with the ids of tasks, tokens and times of this run replaced, so that two runs
    can be compared.
    """
    text = json.dumps([outcome, state], default=sorted)
    tasks = {
        key.removeprefix("blueque_task_"): fields
        for key, fields in state.items()
        if key.startswith("blueque_task_")
    }
    for number, task_id in enumerate(
        sorted(tasks, key=lambda task_id: float(tasks[task_id]["created"]))
    ):
        text = text.replace(task_id, f"task {number}")
    # a listener that is not sure of its list beats once more
    text = re.sub(r'"beat": "\d+"', '"beat": "some"', text)
    return json.loads(re.sub(r"\b\d{10}\.\d+", "1", re.sub(r"\b[0-9a-f]{32}\b", "random", text)))


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_after_a_fault_at_any_write_redis_holds_what_it_would_hold_without(
    name, fault, proxy, cli, state
):
    def end(write=None):
        cli.flushall()
        client = Client(proxy.url, patience=5)
        given = CALLS[name].given(client)
        if write:
            proxy.arm(fault, write)
        outcome = CALLS[name].act(client, given)
        if (name, fault) in FORGETFUL:
            outcome = None
        at_once = anonymous(outcome, state())
        proxy.release()
        assert anonymous(outcome, state()) == at_once, (
            f"write {write} arrived late and changed something"
        )
        client.close()
        return at_once

    expected = end()
    for write in itertools.count(1):
        found = end(write)
        if not proxy.has_struck:
            break
        assert found == expected, f"the fault struck at write {write}"
    assert write > 1, "no fault struck at all"


def test_an_enqueue_that_arrives_late_is_refused_even_when_the_task_was_run_and_deleted_meanwhile(
    proxy, through, state
):
    proxy.arm(Fault.HOLD, having=b"LPUSH")
    queue = video(through)
    task_id = queue.enqueue("in")
    listener = listening(through)
    processor = through.get_processor(listener.take())
    processor.start(77)
    processor.complete("out")
    queue.delete_task(through.get_task(task_id))
    listener.leave()
    before = state()

    (answer,) = proxy.release()

    assert b"*-1\r\n" in answer, "the EXEC was executed"
    assert state() == before


def test_an_enqueue_on_the_spare_id_that_arrives_late_is_refused(proxy, through, state):
    queue = video(through)
    queue.enqueue("first")
    proxy.arm(Fault.HOLD, having=b"LPUSH")
    queue.enqueue("second")
    before = state()

    (answer,) = proxy.release()

    assert b"*-1\r\n" in answer, "the EXEC was executed"
    assert state() == before
    assert len(before["blueque_pending_tasks_video"]) == 2


def test_from_the_second_on_an_enqueue_takes_one_write(proxy, through):
    queue = video(through)
    writes = [proxy.writes]
    for _ in range(3):
        queue.enqueue("in")
        writes.append(proxy.writes)

    assert [after - before for before, after in itertools.pairwise(writes)][1:] == [1, 1]


def test_a_pop_whose_answer_is_lost_is_an_error_and_the_next_take_finds_the_task_in_its_own_list(
    proxy, through, cli
):
    listener = listening(through)
    assert listener.take() is None
    task_id = video(through).enqueue("in")
    proxy.arm(Fault.CUT_AFTER, having=b"RPOPLPUSH")

    with pytest.raises(OutcomeUnknown, match="pop"):
        listener.take()
    assert cli.lrange(f"blueque_reserved_tasks_video_{listener.node}", 0, -1) == [task_id]
    assert cli.hget(f"blueque_task_{task_id}", "status") == "pending"

    task = listener.take()
    assert (task.id, task.status, task.attempt) == (task_id, "reserved", 1)
    assert listener.take() is None


@pytest.mark.parametrize("fault", Fault)
def test_a_reserve_whose_answer_is_lost_keeps_its_token_and_is_returned_once(
    fault, proxy, url, cli
):
    client = Client(proxy.url, patience=0)
    listener = listening(client)
    assert listener.take() is None
    task_id = video(client).enqueue("in")
    proxy.arm(fault, having=b"token\r\n$32")
    with pytest.raises(OutcomeUnknown, match="reserve"):
        listener.take()
    token = cli.hget(f"blueque_task_{task_id}", "token")
    assert (token is not None) == (fault is Fault.CUT_AFTER)

    task = listener.take()

    assert (task.id, task.attempt) == (task_id, 1)
    assert token in (None, task.token)
    proxy.release()
    assert listener.take() is None
    client.get_processor(task).start(77)  # it is ours, even after a late delivery
    client.close()


def test_a_pop_that_arrives_late_loses_no_task(proxy, through):
    listener = two_in_line(through)
    assert listener.take() is not None  # and the own list has been looked through
    proxy.arm(Fault.HOLD, having=b"RPOPLPUSH")
    with pytest.raises(OutcomeUnknown):
        listener.take()
    video(through).enqueue("in")
    taken = [listener.take()]

    proxy.release()
    taken.append(listener.take())

    assert None not in taken


def test_a_marker_that_cannot_be_passed_on_costs_no_task(proxy, client):
    listener = Client(proxy.url, patience=0).get_listener("video")
    listener.register(Timing())
    assert listener.take() is None
    first, second = [video(client).enqueue("in") for _ in range(2)]
    assert listener.idle(5, lambda connection: connection.wait(5))
    proxy.arm(Fault.CUT_AFTER, having=b"RPOPLPUSH")
    with pytest.raises(OutcomeUnknown):
        listener.take()
    proxy.arm(Fault.CUT_BEFORE, having=b"blueque_wake_video")
    taken = [listener.take().id]

    assert proxy.has_struck
    taken.append(listener.take().id)
    assert taken == [first, second]
