"""Groups whose members have keys: a call opens them, makes each key once, and closes them."""

from __future__ import annotations

import threading
import time

import pytest
from faults import Fault
from grouped import run_all, seen, settle
from transactions import protocol

import blueque
from blueque.connection.plain import SocketConnection
from blueque.errors import (
    BatchFailed,
    InvalidInput,
    NoSuchGroup,
    NoSuchTask,
    RedisAway,
    WaitTimedOut,
    WrongGroup,
)
from blueque.model import keys
from blueque.model.group_terms import terms_for
from blueque.model.units import Timing
from blueque.producer.keyed_groups import KEEP, open_keyed
from blueque.protocol.bulk import NewTasks
from blueque.protocol.parents import LOOK_EVERY

Q = "video"
KEYS = [f"key {number}" for number in range(10)]


def statuses(client, queue=Q):
    """Return how many tasks of a queue have which status."""
    (ids,) = client.connections.read(("ZRANGE", keys.tasks(queue), 0, -1))
    found = [client.get_task(task).status for task in ids]
    return {status: found.count(status) for status in sorted(set(found))}


class Broken:
    """Rows whose producer dies after so many."""

    def __init__(self, many):
        self.many = many

    def __iter__(self):
        yield from KEYS[: self.many]
        raise KeyboardInterrupt


# Who opens and closes a group


def test_a_call_with_keys_opens_its_group_and_closes_it_when_all_are_made(client, queue):
    done = queue.enqueue_many(KEYS, keys=KEYS, group="n1")
    after = client.get_queue("join").enqueue("all", after=done)

    assert (done, done.new, done.group) == (10, 10, "n1")
    assert seen(client) == ("closed", 10, 10, 0)
    record = client.group("n1").progress().record
    assert (record["made_by"], record["keep"]) == ("batch of video", 90 * 86400)
    assert run_all(client, Q) == 10
    assert client.get_task(after).status == "blocked"
    settle(client)
    assert seen(client) == ("ended", 10, 0, 0)
    assert client.get_task(after).status == "pending"


def test_new_rows_for_a_group_that_is_closed_are_refused(client, queue, state):
    queue.enqueue_many(KEYS, keys=KEYS, group="n1")
    before = state()

    with pytest.raises(WrongGroup, match="'n1': it is closed; no other task joins it"):
        queue.enqueue_many([*KEYS, "late"], keys=[*KEYS, "late"], group="n1")

    assert state() == before


def test_a_call_that_died_halfway_leaves_its_group_open_and_the_next_one_closes_it(client, queue):
    with pytest.raises(KeyboardInterrupt):
        queue.enqueue_many(Broken(6), keys=lambda row: row, batch=2, group="n1")
    run_all(client, Q)
    settle(client)
    assert seen(client) == ("open", 6, 0, 0)

    done = queue.enqueue_many(KEYS, keys=KEYS, group="n1")

    assert (done, done.new) == (10, 4)
    assert seen(client) == ("closed", 10, 4, 0)


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.HOLD])
def test_a_call_whose_close_fails_is_finished_by_the_next_one(client, proxy, queue, fault):
    away = blueque.Client(proxy.url, patience=0)
    proxy.arm(fault, having=b"closed")
    with pytest.raises(RedisAway):
        away.get_queue(Q).enqueue_many(KEYS, keys=KEYS, group="n1")
    assert seen(client) == ("closed" if fault is Fault.CUT_AFTER else "open", 10, 10, 0)

    again = queue.enqueue_many(KEYS, keys=KEYS, group="n1")
    proxy.release()

    assert (again, again.new) == (10, 0)
    assert seen(client) == ("closed", 10, 10, 0)
    away.close()


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER])
def test_a_group_is_closed_though_it_cannot_be_ended_yet(client, proxy, fault):
    away = blueque.Client(proxy.url, patience=0)
    proxy.arm(fault, having=b"ended")

    done = away.get_queue(Q).enqueue_many([], keys=[], group="n1")

    assert (done, done.group) == (0, "n1")
    assert seen(client)[0] == ("ended" if fault is Fault.CUT_AFTER else "closed")
    settle(client, 2 * LOOK_EVERY)
    assert seen(client)[0] == "ended"
    away.close()


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.HOLD])
def test_a_batch_that_fails_is_made_by_the_next_call(client, proxy, queue, fault):
    away = blueque.Client(proxy.url, patience=0)
    proxy.arm(fault, having=b"key 9")
    with pytest.raises(BatchFailed) as raised:
        away.get_queue(Q).enqueue_many(KEYS, keys=KEYS, batch=5, group="n1")
    assert raised.value.position == 5

    done = queue.enqueue_many(KEYS, keys=KEYS, group="n1")
    proxy.release()

    assert (done, done.new) == (10, 0 if fault is Fault.CUT_AFTER else 5)
    assert seen(client) == ("closed", 10, 10, 0) and statuses(client) == {"pending": 10}
    away.close()


def test_a_group_that_another_program_has_opened_is_left_open(client, queue):
    with client.group("n1") as group:
        queue.enqueue_many(KEYS, keys=KEYS, group=group)
        client.get_queue("audio").enqueue_many(KEYS, keys=KEYS, group="n1")
        assert seen(client) == ("open", 20, 20, 0)
        with pytest.raises(WrongGroup, match="has opened it: leave out `keep` and `hold`"):
            queue.enqueue_many(KEYS, keys=KEYS, group=group, keep="1h")

    assert seen(client)[0] == "closed"


# What the members wait for


def test_members_get_what_they_wait_for_from_the_group_also_when_it_is_gone(client, queue):
    parent = queue.enqueue("x")
    group = client.group("n1").open(after=parent, broken="cancel")
    queue.enqueue_many(KEYS[:5], keys=KEYS[:5], group=group)
    assert statuses(client) == {"blocked": 5, "pending": 1}
    run_all(client, Q)
    while not protocol.settle(client.connections, parent, time.time()).is_over:
        pass
    queue.delete_task(client.get_task(parent))

    queue.enqueue_many(KEYS, keys=KEYS, group="n1")

    assert statuses(client) == {"blocked": 5, "pending": 5}
    assert {task.broken for task in group.tasks()} == {"cancel"}


def test_what_the_members_wait_for_never_changes(client, queue):
    a, b = queue.enqueue("a"), queue.enqueue("b")
    with pytest.raises(KeyboardInterrupt):
        queue.enqueue_many(Broken(6), keys=lambda row: row, batch=2, group="n1", after=a)

    for again in (
        lambda: queue.enqueue_many(KEYS, keys=KEYS, group="n1", after=b),
        lambda: client.group("n1").open(after=b),
        lambda: client.get_queue("audio").enqueue_many(KEYS, keys=KEYS, group="n1", after=b),
    ):
        with pytest.raises(WrongGroup, match="it was opened with another `after` or `broken`"):
            again()
    with pytest.raises(NoSuchTask):
        client.group("n2").open(after="unknown")
    with pytest.raises(NoSuchGroup):
        client.group("n2").open(after=blueque.Group("unknown"))
    assert queue.enqueue_many(KEYS, keys=KEYS, group="n1", after=a).new == 4
    assert statuses(client) == {"blocked": 10, "pending": 2}


def test_a_task_without_a_key_must_wait_for_what_the_group_was_opened_with(client, queue):
    parent = queue.enqueue("x")
    group = client.group("n1").open(after=parent)

    for refused in (
        lambda: queue.enqueue("y", group=group),
        lambda: queue.enqueue_many(["y"], group=group),
    ):
        with pytest.raises(WrongGroup, match="give this task a key, or have it wait for the same"):
            refused()
    client.get_queue("last").enqueue("all", after=group)  # others may wait for the group
    queue.enqueue("y", group=group, after=parent)

    assert statuses(client) == {"blocked": 1, "pending": 1}


def test_no_circle_can_be_made_of_groups(client, queue):
    client.group("open").open()
    queue.enqueue("x", after=blueque.Group("open"))

    with pytest.raises(WrongGroup, match="'open': it is open still: close it before"):
        client.group("mine").open(after=blueque.Group("open"))
    with pytest.raises(WrongGroup, match="tasks wait for it already"):
        queue.enqueue_many(KEYS, keys=KEYS, group="open", after=queue.enqueue("y"))
    with pytest.raises(WrongGroup, match="a task that joins it cannot wait for it"):
        client.group("other").open(after=blueque.Group("other"))


# A group that is opened again


def test_a_closed_group_takes_more_keys_when_it_is_opened_again(client, queue):
    queue.enqueue_many(KEYS[:6], keys=KEYS[:6], group="n1")
    run_all(client, Q)
    settle(client)
    group = client.group("n1")
    assert seen(client)[0] == "ended"

    assert group.reopen() and not group.reopen()
    done = queue.enqueue_many(KEYS, keys=KEYS, group="n1")

    assert done.new == 4 and seen(client) == ("closed", 10, 4, 0)
    with pytest.raises(NoSuchGroup):
        client.group("never").reopen()


# Results that are held, and the end


def test_results_of_a_group_are_collected_once_and_not_before_all_are_there(
    client, queue, listener
):
    queue.enqueue_many(KEYS[:1], keys=KEYS[:1], group="n2")
    group = client.group("n1").open(keep="90d", hold="until_collected")
    with pytest.raises(WrongGroup, match="it is open; wait for the end of the group"):
        group.collected()
    queue.enqueue_many(KEYS[:2], keys=KEYS[:2], group="n1")
    group.close()
    record = group.progress().record

    assert record["hold"] == pytest.approx(time.time() + 30 * 86400, abs=60)
    with pytest.raises(WrongGroup, match=r"it has open tasks \(2\); wait for the end"):
        group.collected()
    end(client, listener, how_many=3)
    settle(client)
    assert client.group("n1").collected() and not client.group("n1").collected()
    assert not client.group("n2").collected()
    with pytest.raises(NoSuchGroup):
        client.group("never").collected()
    with pytest.raises(InvalidInput, match="the group itself is kept for '1d' after its end"):
        queue.enqueue_many(KEYS, keys=KEYS, group="n3", hold="2d", keep="1d")
    with pytest.raises(InvalidInput, match="hold needs group and keys"):
        queue.enqueue_many(KEYS, keys=KEYS, hold="2d")


@pytest.fixture
def listener(client):
    found = client.get_listener(Q)
    found.register(Timing())
    yield found
    found.leave()


@pytest.fixture
def group(client, queue):
    """A group of six tasks that are next in line, and another task."""
    queue.enqueue_many(KEYS[:6], keys=KEYS[:6], group="n1")
    queue.enqueue("other")
    return client.group("n1")


def end(client, listener, *, how_many, fails=False):
    """Run the next tasks in line to their ends, as the groups learn of them."""
    for _ in range(how_many):
        processor = client.get_processor(listener.take())
        processor.start(77)
        if fails:
            processor.fail("broken")
        else:
            processor.complete("done")
    settle(client)


def counts(found):
    return found.complete, found.bad, found.open


@pytest.mark.parametrize("is_tracking", [True, False])
def test_the_wait_for_a_group_ends_with_its_last_member(
    client, url, listener, group, is_tracking, monkeypatch
):
    if not is_tracking:  # as with TLS
        monkeypatch.setattr(SocketConnection, "track", lambda connection: False)
    end(client, listener, how_many=5)
    found, theirs = [], blueque.Client(url)
    waiting = threading.Thread(target=lambda: found.append(theirs.group("n1").wait(60)))

    waiting.start()
    with pytest.raises(WaitTimedOut, match=r"^group 'n1' has not ended .* closed, 1 tasks left"):
        group.wait(timeout=0)
    end(client, listener, how_many=1)
    waiting.join(60)

    assert [counts(each) for each in found] == [(6, 0, 0)] and found[0].has_ended
    theirs.close()


def test_a_group_that_is_not_closed_has_not_ended(client, queue, listener):
    group = client.group("n2").open()
    queue.enqueue_many(KEYS, keys=KEYS, group=group)
    end(client, listener, how_many=10)

    with pytest.raises(WaitTimedOut, match="open, 0 tasks left"):
        group.wait(timeout=0)
    group.close(expected=10)

    assert counts(group.wait(60)) == (10, 0, 0)
    with pytest.raises(NoSuchGroup):
        client.group("never").wait(timeout=0)


def test_the_wait_after_a_requeue_is_for_the_members_that_run_again(client, listener, group):
    end(client, listener, how_many=4)
    end(client, listener, how_many=2, fails=True)
    assert counts(group.wait(60)) == (4, 2, 0)

    failed = group.requeue(by="ada")

    assert len(failed) == 2 and counts(group.progress()) == (4, 0, 2)
    with pytest.raises(WaitTimedOut):
        group.wait(timeout=0)
    assert group.requeue() == []


def test_the_wait_sees_a_task_that_another_way_has_requeued_before_its_group_does(
    client, queue, listener, group
):
    end(client, listener, how_many=5)
    end(client, listener, how_many=1, fails=True)
    (failed,) = client.get_inspector().listing([Q], ["failed"], 9).tasks

    queue.requeue(failed.id)  # the group still counts it as ended

    assert group.progress().state == "ended"
    with pytest.raises(WaitTimedOut):
        group.wait(timeout=0)


# Columns


def opened_for(client, group="n1", append=False, **options):
    terms = terms_for(None, KEEP, **options)
    return open_keyed(client.connections, Q, group, terms, append)


def put(client, opened, names, **options):
    fields = client.get_queue(Q).fields_of(**options)
    texts = [(b'"%s"' % name.encode(), True) for name in names]
    tasks = NewTasks((), texts, keys=[name.encode() for name in names])
    return opened.put(client.connections, tasks, fields)


def test_who_adds_to_a_closed_group_and_dies_is_followed_by_one_who_closes_it(client, queue):
    with client.group("n1"):
        queue.enqueue("first", group="n1")
    dead = opened_for(client, append=True)
    assert put(client, dead, KEYS[:4]) == 4

    opened = opened_for(client, append=True)
    new = put(client, opened, KEYS)
    opened.close(client.connections, opened.made + new)

    assert seen(client) == ("closed", 11, 11, 0)


def test_who_opens_a_group_again_and_gets_no_answer_closes_it(client, proxy, queue):
    queue.enqueue_many(KEYS[:6], keys=KEYS[:6], group="n1")
    away = blueque.Client(proxy.url, patience=10)
    proxy.arm(Fault.CUT_AFTER, having=b"PERSIST")

    opened = opened_for(away, append=True)
    assert proxy.has_struck
    new = put(away, opened, KEYS)
    opened.close(away.connections, opened.made + new)

    assert seen(client) == ("closed", 10, 10, 0)
    away.close()


def test_a_group_is_not_held_for_longer_than_it_is_kept(client, queue):
    queue.enqueue_many(KEYS, keys=KEYS, group="n1", keep="1d")

    with pytest.raises(WrongGroup, match="it is kept for 86400 s"):
        client.group("n1").reopen(hold="until_collected")
    assert seen(client)[0] == "closed"
    assert client.group("n1").reopen(hold="1d")
