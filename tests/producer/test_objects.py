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

from blueque import Client, InvalidInput, InvalidType, NotOwner, Retry, WrongState
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
    "progress_first",
)
WAYS = {  # to put a task in, each with keyword options
    "enqueue": lambda queue, **options: queue.enqueue("in", **options),
    "schedule": lambda queue, **options: queue.schedule("in", 4e9, **options),
    "schedule for the past": lambda queue, **options: queue.schedule("in", 1e9, **options),
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


def test_a_number_is_a_policy_of_so_many_retries(client, cli):
    tasks = [
        client.get_queue("video", retry=3).enqueue("in"),
        client.get_queue("video").enqueue("in", retry=0),
        client.get_queue("video").enqueue("in", retry=Retry(max=0)),
    ]

    assert [cli.hget(f"blueque_task_{task}", "retry") for task in tasks] == [
        '{"max":3}',
        "null",
        '{"max":0}',
    ]
    with pytest.raises(InvalidType, match="not str"):
        client.get_queue("video", retry="3")


def test_every_attribute_of_an_unknown_task_is_none(client):
    task = client.get_task("nobody")

    assert (task.id, task.fields) == ("nobody", {})
    assert {name: getattr(task, name) for name in ATTRIBUTES} == dict.fromkeys(ATTRIBUTES)


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


@pytest.mark.parametrize(("first", "second"), [("complete", "fail"), ("fail", "complete")])
def test_another_end_after_the_first_is_refused(client, listener, state, first, second):
    processor = started(client, listener)
    getattr(processor, first)("first")
    before = state()

    with pytest.raises(NotOwner, match="does not belong to this process"):
        getattr(processor, second)("second")

    assert state() == before


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

    assert (task.id, task.status) == (task_id, status)
    assert task.node == f"{node_id().rpartition('_')[0]}_{pid}"
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


def test_a_client_and_a_task_that_there_is_not_are_shown_in_plain_words(client):
    shown = repr(Client("redis://ada:secret@127.0.0.1:7/0"))

    assert shown == "<Client of redis://ada:***@127.0.0.1:7/0>"
    assert repr(client.get_task("nobody")) == "<Task nobody unknown>"


def test_a_time_that_was_meant_as_a_delay_is_refused(queue, everything):
    before = everything()

    with pytest.raises(InvalidInput, match="eta 10 is a time in 1970: for a delay, give"):
        queue.schedule("in", 10)

    assert everything() == before
    assert queue.schedule("in", 0).is_new  # at once, as for 1.0.0
