"""Listener and Processor: two steps in one EXEC, reserve with start and an end with the next pop."""

from __future__ import annotations

import time

import pytest
from faults import Fault
from transactions import protocol

from blueque import Client, New, NotOwner, RedisAway
from blueque.model.attempt_ref import AttemptRef
from blueque.model.units import Timing
from blueque.protocol import reserving


@pytest.fixture
def listener(client):
    listener = client.get_listener("video")
    listener.register(Timing())
    listener.reserver.may_offer = True
    return listener


@pytest.fixture
def start(client, listener):
    """Start a task as the listener program does; return its processor."""

    def start(task):
        processor = client.get_processor(task)
        processor.take_and_start(
            listener.reserver.offer, listener.of("video").instance, 77, {"files": "host:/spool"}
        )
        listener.of("video").is_list_unsure = False
        return processor

    return start


def held(cli, listener):
    return cli.lrange(f"blueque_reserved_tasks_video_{listener.node}", 0, -1)


def complete(processor, listener):
    processor.report({"status": "complete", "result": "out"}, None, False, listener)


def test_a_task_is_offered_and_nothing_is_written_before_its_start(
    client, queue, cli, listener, start
):
    task_id = queue.enqueue("in")
    task = listener.take()

    assert (task.id, task.status, task.attempt, task.node) == (
        task_id,
        "reserved",
        1,
        listener.node,
    )
    assert client.get_task(task_id).status == "pending" and held(cli, listener) == [task_id]
    processor = start(task)
    started = client.get_task(task_id)
    assert (started.status, started.pid, started.token, started.files) == (
        "started",
        77,
        task.token,
        "host:/spool",
    )
    assert processor.task.status == "started"
    events = [event.event for event in client.get_history(task_id).events]
    assert events[-2:] == ["reserved", "started"]


def do_nothing(queue, cli, task_id):
    pass


def leave_a_result_of_1_0_0(queue, cli, task_id):
    cli.hset(f"blueque_task_{task_id}", "error", "old")


def leave_a_node_of_1_0_0(queue, cli, task_id):
    cli.hset(f"blueque_task_{task_id}", "node", "old_1")


def have_nineteen_events(queue, cli, task_id):
    cli.hset(f"blueque_task_{task_id}", "events", 19)


def have_had_an_attempt(queue, cli, task_id):
    cli.hset(f"blueque_task_{task_id}", "attempt", 1)


def limit(queue, cli, task_id):
    queue.set_max_concurrency(5)


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({"lock": "one"}, do_nothing),
        ({}, leave_a_result_of_1_0_0),
        ({}, leave_a_node_of_1_0_0),
        ({}, have_nineteen_events),
        ({}, have_had_an_attempt),
        ({}, limit),
    ],
)
def test_what_is_more_than_a_simple_first_attempt_is_reserved(
    options, change, client, queue, cli, listener
):
    task_id = queue.enqueue("in", **options)
    change(queue, cli, task_id)

    task = listener.take()

    assert listener.reserver.offer is None and client.get_task(task_id).status == "reserved"
    assert client.get_task(task_id).fields.keys().isdisjoint({"error"})
    assert task.token == client.get_task(task_id).token


@pytest.mark.parametrize("is_running", [False, True])
def test_a_task_with_files_of_an_attempt_that_redis_has_forgotten_is_reserved(
    client, queue, listener, is_running
):
    task_id = queue.enqueue("in")
    created = client.get_task(task_id).fields["created"]
    # One that runs may be of a task that was made again, with another `created`.
    listener.reserver.newest_attempts = lambda task: (
        {"7.5": 5} | {None if is_running else created: 2}
    )

    assert listener.take().attempt == 3 and listener.reserver.offer is None


def test_a_priority_alone_does_not_keep_a_task_from_being_offered(queue, listener, start):
    queue.enqueue("in", priority=5)

    start(listener.take())


def test_a_task_that_has_changed_since_is_refused_and_found_in_the_own_list(
    client, queue, listener, start
):
    task_id = queue.enqueue("in")
    task = listener.take()
    queue.set_priority(task_id, 3)

    with pytest.raises(NotOwner, match="it has changed since it was popped"):
        start(task)
    assert client.get_task(task_id).status == "pending" and listener.of("video").is_unsure
    again = listener.take()
    assert (again.id, again.attempt, client.get_task(task_id).status) == (task_id, 1, "reserved")


def test_a_task_that_is_cancelled_before_its_start_does_not_start(
    client, queue, cli, listener, start
):
    task_id = queue.enqueue("in")
    task = listener.take()
    queue.cancel(task_id)

    with pytest.raises(NotOwner):
        start(task)
    assert listener.take() is None and held(cli, listener) == []
    assert client.get_task(task_id).status == "cancelled"


def test_a_task_that_cannot_start_now_is_reserved_or_goes_back_to_the_head_of_its_line(
    client, queue, cli, listener
):
    first, second = queue.enqueue("in"), queue.enqueue("in")
    task = listener.take()
    assert listener.reserver.reserve_offered(listener.of("video"), task).id == first
    assert client.get_task(first).status == "reserved"
    listener.of("video").release(client.get_task(first))

    assert listener.take().id == first  # its second attempt is not offered
    task = listener.take()
    assert (task.id, listener.reserver.offer["status"]) == (second, "pending")
    listener.reserver.return_offered(listener.of("video"), task)
    assert cli.lrange("blueque_pending_tasks_video", 0, -1) == [second]


def test_the_next_task_comes_with_the_end_of_the_last(client, queue, cli, listener, start):
    ids = [queue.enqueue("in") for _ in range(3)]
    taken = []
    for _ in ids:
        processor = start(listener.take())
        taken.append(processor.task.id)
        complete(processor, listener)
    cli.config_resetstat()

    assert listener.take() is None
    assert taken == ids and held(cli, listener) == []
    assert "cmdstat_rpoplpush" not in cli.info("commandstats")  # the last end has found none


def test_nothing_comes_with_an_end_that_makes_tasks(client, queue, cli, listener, start):
    queue.enqueue("in")
    processor = start(listener.take())
    waiting, task_id = queue.enqueue("in"), processor.task.id
    part = New("parts", "text", key="a").record(task_id)
    record = {"status": "complete", "result": "out", "then": [list(part)]}
    processor.report(record, None, False, listener)

    assert held(cli, listener) == [] and client.get_task(part.task).status == "pending"
    assert listener.take().id == waiting


@pytest.mark.parametrize("how", ["pause", "limit", "line"])
def test_nothing_comes_with_an_end_where_a_pop_would_be_refused(
    how, client, queue, cli, listener, start
):
    queue.enqueue("in")
    processor = start(listener.take())
    waiting = queue.enqueue("in", priority=2 if how == "line" else 0)
    if how == "pause":
        queue.pause()
    if how == "limit":
        queue.set_max_concurrency(1)
    complete(processor, listener)

    assert held(cli, listener) == [] and not listener.of("video").is_unsure
    task = listener.take()
    assert (task and task.id) == (None if how == "pause" else waiting)


def test_a_task_that_has_come_with_an_end_goes_back_if_the_listener_takes_nothing(
    client, queue, cli, listener, start
):
    queue.enqueue("in")
    processor = start(listener.take())
    following, last = queue.enqueue("in"), queue.enqueue("in")
    complete(processor, listener)
    assert held(cli, listener) == [following]

    listener.decline()

    assert held(cli, listener) == []
    assert cli.lrange("blueque_pending_tasks_video", 0, -1) == [last, following]
    assert cli.exists("blueque_wake_video")  # for another listener
    assert client.get_task(following).fields.keys().isdisjoint({"token", "attempt"})


def test_a_listener_that_leaves_puts_back_what_has_come_with_an_end(
    client, queue, cli, listener, start
):
    queue.enqueue("in")
    processor = start(listener.take())
    following = queue.enqueue("in")
    complete(processor, listener)

    assert listener.leave()
    assert cli.lrange("blueque_pending_tasks_video", 0, -1) == [following]


def test_a_listener_that_was_found_dead_meanwhile_keeps_nothing(
    client, queue, redis, cli, listener, start
):
    queue.enqueue("in")
    processor = start(listener.take())
    following = queue.enqueue("in")
    beat = cli.hget(f"blueque_listener_video_{listener.node}", "beat")
    assert protocol.fence(redis, "video", listener.node, listener.of("video").instance, beat, 9.25)
    complete(processor, listener)

    assert cli.lrange("blueque_pending_tasks_video", 0, -1) == [following]
    assert client.get_task(processor.task.id).status == "complete"


@pytest.fixture
def through(proxy):
    """A registered listener behind the proxy, which has one task running and one in line."""
    client = Client(proxy.url, patience=0)
    listener = client.get_listener("video")
    listener.register(Timing())
    listener.reserver.may_offer = True
    ids = [client.get_queue("video").enqueue("in") for _ in range(2)]
    processor = client.get_processor(listener.take())
    processor.take_and_start(listener.reserver.offer, listener.of("video").instance, 77, {})
    listener.of("video").is_list_unsure = False
    yield listener, processor, ids[1]
    client.close()


def test_a_listener_that_does_not_know_what_came_with_an_end_leaves_its_list_empty(
    proxy, cli, through
):
    listener, processor, following = through
    proxy.arm(Fault.CUT_AFTER, having=b"RPOPLPUSH")
    with pytest.raises(RedisAway):
        complete(processor, listener)
    complete(processor, listener)

    assert held(cli, listener) == [following] and listener.leave()
    assert cli.lrange("blueque_pending_tasks_video", 0, -1) == [following]


def test_a_listener_that_could_not_put_a_task_back_does_so_when_it_leaves_again(
    proxy, cli, through
):
    listener, processor, following = through
    complete(processor, listener)
    proxy.arm(Fault.CUT_BEFORE)
    with pytest.raises(RedisAway):
        listener.leave()

    assert held(cli, listener) == [following] and listener.leave()
    assert cli.lrange("blueque_pending_tasks_video", 0, -1) == [following]


def test_a_wake_up_call_that_could_not_be_passed_on_goes_with_the_next_task(
    queue, cli, listener, start, monkeypatch
):
    for _ in range(4):
        queue.enqueue("in")
    while not listener.idle(5, lambda connection: connection.wait(5)):
        pass

    def lose(*_):
        raise RedisAway("of a test")

    with monkeypatch.context() as patch:
        patch.setattr(protocol, "wake", lose)
        task = listener.take()
    assert listener.of("video").has_marker and not cli.exists("blueque_wake_video")
    complete(start(task), listener)

    listener.take()
    assert cli.exists("blueque_wake_video")


def test_a_task_of_the_own_list_leaves_the_others_there_to_be_looked_for(
    client, queue, cli, listener
):
    ids = [queue.enqueue("in") for _ in range(2)]
    for _ in ids:
        cli.rpoplpush(
            "blueque_pending_tasks_video", f"blueque_reserved_tasks_video_{listener.node}"
        )

    assert listener.take().id == ids[0] and listener.reserver.offer is None
    assert listener.of("video").is_unsure and listener.take().id == ids[1]


def test_lines_that_come_and_go_abort_no_end(client, queue, cli, listener, start):
    for _ in range(6):
        queue.enqueue("in", priority=5)
    aborted = []
    for _ in range(3):
        processor = start(listener.take())
        queue.cancel(queue.enqueue("in", priority=7))
        cli.zrem("blueque_lines_video", "7")
        before = cli.info("commandstats")["cmdstat_exec"]["calls"]
        complete(processor, listener)
        aborted.append(cli.info("commandstats")["cmdstat_exec"]["calls"] - before - 1)

    assert aborted == [0, 0, 0]


def test_the_end_of_an_attempt_of_another_node_brings_no_task(client, queue, cli, listener, start):
    queue.enqueue("in")
    task = listener.take()
    start(task)
    other = client.get_listener("video")
    other.register(Timing())
    queue.enqueue("in")
    complete(client.get_processor(client.get_task(task.id)), other)

    assert other.node != listener.node and held(cli, other) == []


def test_a_listener_that_had_a_task_just_now_pops_the_next_without_a_look(queue, listener, start):
    queue.enqueue("in")
    complete(start(listener.take()), listener)
    while listener.idle(0.01, lambda connection: connection.wait(5)):  # the wake-up call is left
        assert listener.take() is None

    assert not listener.idle(0.01, lambda connection: connection.wait(5))
    assert listener._redis.ahead is not None
    listener._took_at -= 61
    listener._redis.connection().ahead = None
    assert not listener.idle(0.01, lambda connection: connection.wait(5))
    assert listener._redis.ahead is None


def test_the_look_at_the_next_task_comes_with_its_pop(queue, listener):
    task_id = queue.enqueue("in")
    protocol.pop(listener._redis, "video", listener.node, listener.of("video").instance)

    ahead = listener._redis.ahead
    assert ahead is not None and ahead.look.task == task_id
    assert reserving.offered(
        listener._redis, AttemptRef("video", task_id, "token", listener.node), 1.0
    )
    assert listener._redis.ahead is ahead


@pytest.mark.parametrize("others", [[], ["in"]], ids=["none is left", "another is next"])
def test_a_pop_that_takes_another_task_than_it_looked_at_watches_neither(
    queue, cli, listener, start, others
):
    first = queue.enqueue("in")
    left = [queue.enqueue(text) for text in others]
    listener.idle(0.01, lambda connection: connection.wait(5))  # the wake-up call is there
    listener._took_at = time.monotonic()
    listener.idle(0.01, lambda connection: connection.wait(5))  # now it looks at the line, too
    assert first in listener._redis.ahead.replies

    assert cli.rpop("blueque_pending_tasks_video") == first  # as another listener does
    task = listener.take()

    if left:
        assert task.id == left[0] and listener.reserver.offer is not None
        start(task)
    else:
        assert task is None and listener._redis.ahead is None


@pytest.mark.parametrize("is_awaited", [True, False])
def test_an_end_that_pops_the_next_task_says_whether_others_wait_for_it(
    client, queue, listener, start, is_awaited
):
    task_id = queue.enqueue("first")
    processor = start(listener.take())
    queue.enqueue("second")
    if is_awaited:
        client.get_queue("others").enqueue("next", after=task_id)

    complete(processor, listener)

    assert processor.is_awaited is is_awaited and listener.take().parameters == "second"
