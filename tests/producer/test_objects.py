"""The public objects under the names of 1.0.0, as a program uses them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
import redis as redis_py

from blueque import (
    Client,
    InvalidInput,
    InvalidType,
    NotOwner,
    RedisAway,
    Retry,
    Task,
    WrongQueue,
    WrongState,
)
from blueque.system.process import fork, node_id, wait_for

ATTRIBUTES = (
    "status",
    "queue",
    "parameters",
    "result",
    "error",
    "error_type",
    "traceback",
    "exit_code",
    "signal",
    "node",
    "pid",
    "attempt",
    "token",
    "eta",
    "created",
    "started",
    "finished",
    "updated",
    "retry",
    "time_limit",
    "stall_limit",
    "memory_limit",
    "grace",
    "lead",
    "memory_peak",
    "cpu_seconds",
    "leaked",
    "lost_node",
    "last_seen",
    "failures",
    "interruptions",
    "last_error",
    "last_error_type",
    "requeued",
    "cancel",
    "cancelled_by",
    "cancel_reason",
    "progress",
    "progress_at",
)
WAYS = {  # to put a task in, each with keyword options
    "enqueue": lambda queue, **options: queue.enqueue("in", **options),
    "schedule": lambda queue, **options: queue.schedule("in", 4e9, **options),
    "schedule for the past": lambda queue, **options: queue.schedule("in", 1.5, **options),
}


@pytest.fixture
def listener(client):
    return client.get_listener("video")


def started(client, listener):
    """Return the processor of a task that has started."""
    client.get_queue("video").enqueue("in")
    processor = client.get_processor(listener.listen())
    processor.start(77)
    return processor


def until(is_true):
    """Look until it is so. For what another thread or process does, and tells nobody."""
    deadline = time.monotonic() + 10
    while not is_true():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.002)


def blocked(cli):
    """Return how many clients wait for a marker."""
    return cli.info("clients")["blocked_clients"]


def calls(cli):
    """Return how often the server has executed each command since the statistics were reset."""
    return {
        name.removeprefix("cmdstat_"): facts["calls"]
        for name, facts in cli.info("commandstats").items()
    }


@contextmanager
def listening(url):
    """A thread that listens once; yields where the task will be, and joins the thread."""
    found = []

    def listen():
        client = Client(url, patience=2)
        try:
            found.append(client.get_listener("video").listen())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    yield found
    thread.join(10)
    assert found, "it listens still"


def listening_process(url, then):
    """Fork a process that listens once, writes the id of its task, and then does what it is told;
    return pid and pipe.
    """
    read, write = os.pipe()

    def body():
        task = Client(url, patience=2).get_listener("video").listen()
        os.write(write, f"{task.id}\n".encode())
        then(task)
        return 0

    pid = fork(body)
    os.close(write)
    return pid, os.fdopen(read)


def test_a_task_goes_its_whole_way_and_leaves_nothing(client, queue, listener, state):
    task_id = queue.enqueue({"input": "a.mov"})
    assert client.get_task(task_id).status == "pending"

    task = listener.listen()
    assert (task.id, task.status, task.node, task.attempt) == (
        task_id,
        "reserved",
        listener.node,
        1,
    )

    processor = client.get_processor(task)
    assert processor.start(os.getpid()) == {"input": "a.mov"}
    assert (client.get_task(task_id).status, client.get_task(task_id).pid) == (
        "started",
        os.getpid(),
    )

    processor.complete({"size": 123})
    task = client.get_task(task_id)
    assert (task.status, task.result, task.error) == ("complete", {"size": 123}, None)
    assert task.created <= task.started <= task.finished == task.updated

    queue.delete_task(task)
    assert client.get_task(task_id).status is None
    assert listener.leave() is True
    assert set(state()) <= {"blueque_queues", "blueque_wake_video"}


def test_a_task_that_fails_says_why(client, queue, listener):
    processor = started(client, listener)

    processor.fail(ValueError("no such file"))

    task = client.get_task(processor.task.id)
    assert (task.status, task.error, task.result) == ("failed", "no such file", None)
    queue.delete_task(task)
    assert client.get_task(task.id).status is None


@pytest.mark.parametrize("way", WAYS)
def test_what_a_task_is_given_at_its_birth_is_in_its_hash(client, queue, cli, way):
    policy = Retry(5, on=[OSError])
    task = client.get_task(
        WAYS[way](
            queue,
            retry=policy,
            time_limit="2h",
            stall_limit=90,
            memory_limit="8GiB",
            grace=0,
            lead=0.5,
        )
    )

    assert (
        task.retry,
        task.time_limit,
        task.stall_limit,
        task.memory_limit,
        task.grace,
        task.lead,
    ) == (policy, 7200.0, 90.0, 2**33, 0.0, 0.5)
    fields = cli.hgetall(f"blueque_task_{task.id}")
    assert (fields["retry"], fields["time_limit"], fields["memory_limit"]) == (
        policy.to_text(),
        "7200",
        str(2**33),
    )


@pytest.mark.parametrize("way", WAYS)
def test_what_a_task_is_not_given_is_not_in_its_hash(queue, cli, way):
    fields = cli.hgetall(f"blueque_task_{WAYS[way](queue)}")

    assert set(fields) - {"eta"} == {
        "status",
        "queue",
        "parameters",
        "created",
        "updated",
        "producer",
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"retry": -1}, InvalidInput, "max"),
        ({"retry": True}, InvalidType, "retry is a blueque.Retry"),
        ({"retry": 1.0}, InvalidType, "retry is a blueque.Retry"),
        ({"time_limit": 0}, InvalidInput, "time_limit is 0"),
        ({"memory_limit": "much"}, InvalidInput, "memory_limit: 'much'"),
        ({"lead": -1}, InvalidInput, "lead is -1"),
    ],
    ids=repr,
)
def test_what_a_task_cannot_be_given_is_refused_and_nothing_is_written(
    queue, state, way, options, error, words
):
    with pytest.raises(error) as refusal:
        WAYS[way](queue, **options)

    assert words in str(refusal.value)
    assert state() == {}


@pytest.mark.parametrize(
    ("of_the_queue", "of_the_task", "text"),
    [
        (None, None, None),
        (Retry(5), None, '{"max":5}'),
        (Retry(5), Retry(1), '{"max":1}'),
        (None, Retry(1), '{"max":1}'),
        (False, None, "null"),
        (False, Retry(1), '{"max":1}'),
        (Retry(5), False, "null"),
        (None, False, "null"),
    ],
)
def test_the_policy_of_a_task_counts_before_that_of_the_queue(
    client, cli, of_the_queue, of_the_task, text
):
    queue = client.get_queue("video", retry=of_the_queue)

    for way in WAYS.values():
        assert cli.hget(f"blueque_task_{way(queue, retry=of_the_task)}", "retry") == text


def test_a_number_is_a_policy_of_so_many_retries(client, cli):
    tasks = [
        client.get_queue("video", retry=3).enqueue("in"),
        client.get_queue("video").enqueue("in", retry=0),
    ]

    assert [cli.hget(f"blueque_task_{task}", "retry") for task in tasks] == [
        '{"max":3}',
        '{"max":0}',
    ]
    with pytest.raises(InvalidType, match="not str"):
        client.get_queue("video", retry="3")


def test_a_scheduled_task_is_promoted_when_it_is_due(client, queue, cli):
    later = queue.schedule("later", time.time() + 1000)
    due = queue.schedule("due", time.time() + 1000)
    cli.zadd("blueque_scheduled_tasks_video", {due: 1.5})

    assert queue.enqueue_due_tasks() == [due]
    assert (client.get_task(due).status, client.get_task(later).status) == ("pending", "scheduled")
    assert queue.enqueue_due_tasks() == []


def test_a_time_that_is_now_is_not_past(client, queue, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1000.5)
    assert client.get_task(queue.schedule("now", 1000.5)).status == "scheduled"
    assert client.get_task(queue.schedule("past", 1000.25)).status == "pending"


def test_all_due_tasks_are_promoted_by_one_call(queue, cli):
    ids = [queue.schedule(number, 4e9) for number in range(205)]
    cli.zadd(
        "blueque_scheduled_tasks_video", {task_id: number for number, task_id in enumerate(ids)}
    )

    assert queue.enqueue_due_tasks() == ids
    assert cli.lrange("blueque_pending_tasks_video", 0, -1)[::-1] == ids


def test_a_batch_of_due_tasks_is_a_hundred_at_most(queue, cli):
    ids = [queue.schedule(number, 4e9) for number in range(205)]
    cli.zadd(
        "blueque_scheduled_tasks_video", {task_id: number for number, task_id in enumerate(ids)}
    )

    for size in (100, 100, 5):
        assert queue.enqueue_due_batch() == ids[:size]
        del ids[:size]
        assert cli.zcard("blueque_scheduled_tasks_video") == len(ids)
    assert queue.enqueue_due_batch() is None


def test_a_due_task_behind_a_hundred_deleted_ones_is_promoted_all_the_same(queue, cli):
    due = queue.schedule("due", 4e9)
    cli.zadd(
        "blueque_scheduled_tasks_video",
        {f"gone{number}": number for number in range(100)} | {due: 1000},
    )

    assert queue.enqueue_due_tasks() == [due]


def test_nothing_is_sent_before_something_is_asked():
    client = Client("redis://127.0.0.1:1", patience=0)

    client.get_queue("video")
    client.get_listener("video")
    client.get_processor(Task("t1", {"queue": "video", "node": "host_1"}))
    client.get_inspector()
    client.close()

    with pytest.raises(RedisAway):
        client.get_task("t1")


def test_every_attribute_of_an_unknown_task_is_none(client):
    task = client.get_task("nobody")

    assert (task.id, task.fields) == ("nobody", {})
    assert {name: getattr(task, name) for name in ATTRIBUTES} == dict.fromkeys(ATTRIBUTES)


def test_every_field_of_retries_limits_and_cancelling_has_its_attribute(client, cli):
    values = {
        "retry": Retry(5),
        "time_limit": 7200.0,
        "stall_limit": 0.5,
        "memory_limit": 2**33,
        "grace": 0.0,
        "lead": 60.0,
        "memory_peak": 12345,
        "cpu_seconds": 1.25,
        "leaked": 2,
        "lost_node": "host_1",
        "last_seen": 5.5,
        "failures": 1,
        "interruptions": 3,
        "last_error": "why",
        "last_error_type": "lost",
        "requeued": "0af3",
        "cancel": 6.5,
        "cancelled_by": "ada",
        "cancel_reason": "old",
        "progress": "450/1500 frames",
        "progress_at": 7.5,
    }
    cli.hset(
        "blueque_task_t1",
        mapping={name: str(value) for name, value in values.items()} | {"retry": '{"max":5}'},
    )
    task = client.get_task("t1")

    assert {name: getattr(task, name) for name in values} == values
    assert set(values) < set(ATTRIBUTES)


def test_a_policy_that_cannot_be_understood_is_none(client, cli):
    cli.hset("blueque_task_t1", "retry", "always")

    assert client.get_task("t1").retry is None


def test_a_task_is_a_snapshot_that_cannot_be_changed(client, queue, listener):
    task = client.get_task(queue.enqueue("in"))
    listener.listen()
    task.fields["status"] = "changed"

    assert task.status == "pending"
    with pytest.raises(AttributeError):
        task.status = "complete"


def test_a_task_that_nobody_reserved_has_no_processor(client, queue):
    for task in (client.get_task(queue.enqueue("in")), client.get_task("nobody")):
        with pytest.raises(InvalidType, match="only a reserved task"):
            client.get_processor(task)


def test_fields_of_other_programs_do_not_keep_a_task_from_being_read(client, url):
    with redis_py.Redis.from_url(url) as raw:
        raw.hset(
            "blueque_task_t1",
            mapping={
                b"status": b"pending",
                b"parameters": b"\xff\xfe",
                b"created": b"yesterday",
                b"pid": b"",
                b"\x80": b"\x81",
            },
        )
    task = client.get_task("t1")

    assert (task.status, task.parameters, task.created, task.pid) == (
        "pending",
        "\udcff\udcfe",
        None,
        None,
    )
    assert task.fields["\udc80"].encode("utf-8", "surrogateescape") == b"\x81"


def test_delete_task_refuses_the_wrong_queue_and_the_unfinished_as_a_value_error(
    client, queue, listener, state
):
    pending = client.get_task(queue.enqueue("in"))
    done = started(client, listener)
    done.complete("out")
    finished = client.get_task(done.task.id)
    pending = client.get_task(queue.enqueue("in"))
    before = state()

    with pytest.raises(ValueError, match="pending") as unfinished:
        queue.delete_task(pending)
    with pytest.raises(ValueError, match="audio") as elsewhere:
        client.get_queue("audio").delete_task(finished)
    with pytest.raises(ValueError, match="nobody"):
        queue.delete_task(client.get_task("nobody"))

    assert (type(unfinished.value), type(elsewhere.value)) == (WrongState, WrongQueue)
    assert state() == before


def test_delete_task_of_a_task_that_is_gone_is_fine(client, queue, listener, state):
    processor = started(client, listener)
    processor.complete("out")
    task = client.get_task(processor.task.id)
    queue.delete_task(task)
    before = state()

    queue.delete_task(task)

    assert state() == before


def test_an_old_snapshot_does_not_delete_a_task_that_is_in_line_again(
    client, queue, listener, cli, state
):
    processor = started(client, listener)
    processor.fail("why")
    snapshot = client.get_task(processor.task.id)
    cli.hset(f"blueque_task_{snapshot.id}", "status", "pending")
    before = state()

    with pytest.raises(WrongState, match="pending"):
        queue.delete_task(snapshot)

    assert state() == before


@pytest.mark.parametrize(("end", "status"), [("complete", "complete"), ("fail", "failed")])
def test_the_same_end_reported_twice_counts_once(client, listener, state, end, status):
    processor = started(client, listener)
    getattr(processor, end)("first")
    before = state()

    getattr(processor, end)("second")

    assert state() == before
    assert len(before[f"blueque_{status}_tasks_video"]) == 1


@pytest.mark.parametrize(("first", "second"), [("complete", "fail"), ("fail", "complete")])
def test_another_end_after_the_first_is_refused(client, listener, state, first, second):
    processor = started(client, listener)
    getattr(processor, first)("first")
    before = state()

    with pytest.raises(NotOwner, match="is not ours to change"):
        getattr(processor, second)("second")

    assert state() == before


def test_the_processor_of_an_attempt_that_was_replaced_changes_nothing(
    client, listener, cli, state
):
    processor = started(client, listener)
    cli.hset(
        f"blueque_task_{processor.task.id}", mapping={"token": "of another attempt", "attempt": "2"}
    )
    before = state()

    for change in (
        lambda: processor.start(77),
        lambda: processor.complete("out"),
        lambda: processor.fail("why"),
    ):
        with pytest.raises(NotOwner):
            change()

    assert state() == before


def test_listen_calls_back_with_the_task_before_it_returns_it(queue, listener):
    queue.enqueue("in")
    seen = []

    task = listener.listen(seen.append)

    assert seen == [task]


def test_listen_returns_the_tasks_in_the_order_in_which_they_came(queue, listener):
    ids = [queue.enqueue(number) for number in range(5)]

    assert [listener.listen().id for _ in ids] == ids


def test_listen_returns_a_task_of_an_older_version_and_skips_what_is_gone(listener, cli):
    cli.hset(
        "blueque_task_old",
        mapping={"status": "pending", "queue": "video", "parameters": "in", "created": "1.5"},
    )
    cli.rpush("blueque_pending_tasks_video", "old", "gone")

    task = listener.listen()

    assert (task.id, task.parameters, task.attempt) == ("old", "in", 1)
    assert cli.exists("blueque_task_gone") == 0
    assert cli.lrange(f"blueque_reserved_tasks_video_{listener.node}", 0, -1) == ["old"]


def test_listen_wakes_up_for_a_task_and_asks_for_nothing_while_it_waits(url, queue, cli):
    with listening(url) as found:
        until(lambda: blocked(cli) == 1)
        cli.config_resetstat()
        task_id = queue.enqueue("in")

    assert found[0].id == task_id
    done = calls(cli)
    assert (done["rpoplpush"], done["llen"], done.get("bzpopmin", 0)) == (1, 1, 0)


def test_a_task_enqueued_while_two_listeners_wait_runs_once(url, queue, cli):
    children = [listening_process(url, then=lambda task: None) for _ in range(2)]
    until(lambda: blocked(cli) == 2)

    first = queue.enqueue("first")
    until(lambda: cli.hget(f"blueque_task_{first}", "status") == "reserved" and blocked(cli) == 1)
    second = queue.enqueue("second")

    assert sorted(pipe.read() for _, pipe in children) == sorted([f"{first}\n", f"{second}\n"])
    assert [wait_for(pid) for pid, _ in children] == [0, 0]


def test_two_tasks_enqueued_while_two_listeners_wait_wake_both(url, queue, cli):
    children = [listening_process(url, then=lambda task: None) for _ in range(2)]
    until(lambda: blocked(cli) == 2)

    ids = [queue.enqueue("first"), queue.enqueue("second")]

    assert sorted(pipe.read() for _, pipe in children) == sorted(f"{task_id}\n" for task_id in ids)
    assert [wait_for(pid) for pid, _ in children] == [0, 0]


def test_who_takes_the_marker_and_leaves_tasks_in_line_puts_it_back_for_the_next(
    queue, listener, cli
):
    listener.register(None)
    for number in range(2):
        queue.enqueue(number)
    assert listener.idle(5, lambda connection: connection.wait(5)) is True
    assert cli.exists("blueque_wake_video") == 0

    listener.take()
    assert cli.exists("blueque_wake_video") == 1
    listener.idle(5, lambda connection: connection.wait(5))
    listener.take()
    assert cli.exists("blueque_wake_video") == 0, "there is nothing more to wake anybody for"


def test_who_leaves_with_tasks_in_line_wakes_another(queue, listener, cli):
    listener.register(None)
    queue.enqueue("in")
    listener.idle(5, lambda connection: connection.wait(5))

    assert listener.leave() is True
    assert cli.exists("blueque_wake_video") == 1


def test_who_gives_up_waiting_looks_at_the_line_all_the_same(queue, listener, cli):
    listener.register(None)
    assert listener.idle(5, lambda connection: False) is False
    cli.lpush("blueque_pending_tasks_video", "from 1.0.0, which wakes nobody")

    assert listener.idle(5, lambda connection: False) is True


def test_listen_registers_again_when_everything_in_redis_is_gone(url, queue, cli):
    with listening(url) as found:
        until(lambda: blocked(cli) == 1)
        cli.flushall()
        task_id = queue.enqueue("in")

    assert found[0].id == task_id
    assert cli.smembers("blueque_listeners_video") == {node_id()}
    assert cli.zscore("blueque_queues", "video") == 1


def test_listen_goes_on_when_its_connection_is_lost_while_it_waits(url, queue, cli):
    with listening(url) as found:
        until(lambda: blocked(cli) == 1)
        cli.client_kill_filter(_type="normal", skipme=True)
        queue.enqueue("in")

    if isinstance(found[0], Exception):
        raise found[0]


def test_a_listener_that_holds_a_task_does_not_leave(client, queue, listener):
    processor = started(client, listener)

    assert listener.leave() is False
    processor.complete("out")
    assert listener.leave() is True


def test_a_second_listener_in_this_process_works_beside_the_first_under_another_name(
    client, queue, listener, cli
):
    first, second = queue.enqueue("first"), queue.enqueue("second")
    other = client.get_listener("video")

    assert listener.listen().id == first
    assert other.listen().id == second
    assert listener.node != other.node
    assert cli.zscore("blueque_queues", "video") == 2
    third = queue.enqueue("third")
    assert listener.listen().id == third


def test_two_clients_work_beside_each_other(url, client, queue):
    with_another = Client(url, patience=0)
    task_id = with_another.get_queue("video").enqueue("in")
    with_another.close()

    assert client.get_listener("video").listen().id == task_id


@pytest.mark.parametrize("status", ["reserved", "started"])
def test_a_task_of_a_listener_whose_process_is_dead_can_be_claimed_and_ended(
    url, client, queue, listener, cli, status
):
    task_id = queue.enqueue("in")
    pid, pipe = listening_process(url, then=lambda task: start_and_die(url, task, status))
    assert pipe.read() == f"{task_id}\n"
    assert wait_for(pid) == -signal.SIGKILL

    task = listener.claim_orphan()

    assert (task.id, task.status, task.node) == (
        task_id,
        status,
        f"{node_id().rpartition('_')[0]}_{pid}",
    )
    assert task.fields["reclaimed_node"] == listener.node
    assert cli.scard("blueque_listeners_video") == 0
    assert listener.claim_orphan() is None
    processor = client.get_processor(task)
    if status == "reserved":
        processor.start(77)
    processor.complete("out")
    assert client.get_task(task_id).result == "out"
    assert cli.keys("blueque_reserved_tasks_*") == []


def start_and_die(url, task, status):
    if status == "started":
        Client(url).get_processor(task).start(os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_task_of_a_listener_whose_process_lives_is_not_claimed(url, queue, listener, cli, state):
    task_id = queue.enqueue("in")
    release, hold = os.pipe()

    def stay(task):
        os.close(hold)
        os.read(release, 1)

    pid, pipe = listening_process(url, then=stay)
    assert pipe.readline() == f"{task_id}\n"
    before = state()

    assert listener.claim_orphan() is None
    assert state() == before
    os.close(hold)
    os.close(release)
    assert wait_for(pid) == 0


NO_PID = 2**22 + 1  # one more than Linux ever gives


@pytest.mark.parametrize("node", [f"elsewhere_{NO_PID}", "no-number", "host_", "_", "{host}_x"])
def test_a_listener_that_is_not_on_this_host_or_no_process_is_not_claimed(
    listener, cli, state, node
):
    seed_listener(cli, node.replace("{host}", listener.node.rpartition("_")[0]))
    before = state()

    assert listener.claim_orphan() is None
    assert state() == before


def test_a_listener_in_another_container_under_our_host_name_is_not_claimed(listener, cli, state):
    node = f"{listener.node.rpartition('_')[0]}_{NO_PID}"
    seed_listener(cli, node)
    cli.hset(
        f"blueque_listener_video_{node}",
        mapping={"boot": "another", "ns": "another", "pid_start": "5"},
    )
    before = state()

    assert listener.claim_orphan() is None
    assert state() == before


def test_a_dead_listener_of_an_older_version_is_claimed(listener, cli):
    node = f"{listener.node.rpartition('_')[0]}_{NO_PID}"
    seed_listener(cli, node)

    assert listener.claim_orphan().id == "t1"


def seed_listener(cli, node):
    """Put in a listener as 1.0.0 does, with a task that it has started."""
    cli.sadd("blueque_listeners_video", node)
    cli.lpush(f"blueque_reserved_tasks_video_{node}", "t1")
    cli.hset("blueque_task_t1", mapping={"status": "started", "queue": "video", "node": node})


@pytest.fixture
def failed(client, listener, queue):
    """Three tasks that have failed, in this order: a day ago and an hour ago for one reason, and
    now for another.
    """
    ids = []
    for error, age in ((ValueError("bad"), 86400), (ValueError("bad"), 3600), (OSError("full"), 0)):
        ids.append(queue.enqueue("in"))
        processor = client.get_processor(listener.listen())
        processor.start(77)
        processor.report(
            {
                "status": "failed",
                "error": str(error),
                "error_type": type(error).__name__,
                "finished": time.time() - age,
            }
        )
    return ids


@pytest.mark.parametrize(
    ("narrowing", "chosen"),
    [
        ({}, [0, 1, 2]),
        ({"error_type": "ValueError"}, [0, 1]),
        ({"older_than": 1800}, [0, 1]),
        ({"limit": 1}, [0]),
        ({"older_than": 7200, "error_type": "OSError"}, []),
        ({"older_than": 1800, "limit": 9}, [0, 1]),
    ],
)
def test_failed_tasks_are_told_and_requeued_by_reason_age_and_number(
    client, queue, failed, narrowing, chosen
):
    told = [task.id for task in queue.failed_tasks(**narrowing)]
    requeued = queue.requeue_failed(**narrowing)

    assert (told, requeued) == ([failed[n] for n in chosen],) * 2
    assert [client.get_task(task_id).status for task_id in requeued] == ["pending"] * len(chosen)
    assert client.get_inspector().pending("video") == len(chosen)


def test_a_task_that_failed_by_a_clock_that_is_ahead_is_failed_too(queue, cli, failed):
    cli.hset(f"blueque_task_{failed[0]}", "finished", time.time() + 3600)

    assert queue.requeue_failed() == failed


def test_a_client_is_closed_at_the_end_of_a_with_block(url):
    with Client(url) as client:
        task = client.get_queue("video").enqueue(1)
        connection = client.connections.connection()
    assert connection.is_closed and client.get_task(task).status == "pending"
    client.close()


def test_no_warning_tells_of_a_connection_that_a_thread_or_a_program_has_left_open(url):
    code = f"""if True:
        import threading
        from blueque import Client
        client = Client({url!r})
        thread = threading.Thread(target=lambda: client.get_queue("video").enqueue(1))
        thread.start()
        thread.join()
        client.get_queue("video").enqueue(2)
        del client
    """
    program = [sys.executable, "-X", "dev", "-W", "always::ResourceWarning", "-c", code]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")
