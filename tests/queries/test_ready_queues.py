"""ReadyQueues: knows which queues have work, from the reports of Redis."""

from __future__ import annotations

import random
import time

import pytest
import redis as redis_py
from running import until

from blueque import Client, Ordered, ReducedLottery, RoundRobin
from blueque.model.units import Timing
from blueque.queries import ready_queues
from blueque.queries.ready_queues import ReadyQueues
from blueque.system.process import fork, wait_for

QUEUES = [f"queue {number}" for number in range(30)]
OTHER = "of another listener"


@pytest.fixture
def ready(client):
    return ReadyQueues(client.connections, QUEUES)


@pytest.fixture
def sent(client, ready):
    """Count the commands of a look that go over its own connection."""

    def count():
        connection = client.connections.tracking(ready)
        commands, send = [], connection.send
        connection.send = lambda given: commands.extend(given) or send(given)
        try:
            ready.look()
        finally:
            del connection.send
        return len(commands)

    return count


@pytest.fixture
def before_the_read(client, ready):
    """Let somebody act in the next look, after it has taken the reports and before it reads."""

    def hold(act):
        connection = client.connections.tracking(ready)
        send = connection.send

        def act_and_send(commands):
            del connection.send
            act()
            send(commands)

        connection.send = act_and_send

    return hold


def trackers(cli):
    return {each["id"] for each in cli.client_list() if "t" in each["flags"]}


def truth(client):
    return client.get_inspector().with_work(QUEUES)


# What is read


def test_only_what_has_changed_is_read(client, cli, ready, sent):
    assert ready.look() == set()
    assert sent() == 1, "which tells that nothing has changed"
    cli.lpush("blueque_pending_tasks_queue 7", "a task", "another")
    assert (sent(), ready.look()) == (3, {"queue 7"})
    cli.rpop("blueque_pending_tasks_queue 7")
    cli.lpush("blueque_pending_tasks_of another", "a task")
    assert (sent(), ready.look()) == (3, {"queue 7"})
    assert sent() == 1


CHANGES = {
    "a 1.0.0 producer": lambda client, cli: cli.lpush("blueque_pending_tasks_queue 3", "a task"),
    "a task with a priority": lambda client, cli: client.get_queue("queue 3").enqueue(
        "", priority=2
    ),
    "a resume": lambda client, cli: client.get_queue("queue 1").resume(),
    "a pause": lambda client, cli: client.get_queue("queue 0").pause("ann"),
    "the last task is taken": lambda client, cli: cli.rpop("blueque_pending_tasks_queue 0"),
    "FLUSHALL": lambda client, cli: cli.flushall(),
    "DEL": lambda client, cli: cli.delete("blueque_pending_tasks_queue 0"),
    "RENAME": lambda client, cli: cli.rename(
        "blueque_pending_tasks_queue 0", "blueque_pending_tasks_queue 9"
    ),
    "a scheduled task is due": lambda client, cli: client.get_queue("queue 5").enqueue_due_batch(
        time.time() + 2000
    ),
    "the table of keys overflows": lambda client, cli: overflow(client, cli),
}


def overflow(client, cli):
    """Have Redis forget which keys we have read, and then change some."""
    cli.config_set("tracking-table-max-keys", 1)
    for number in range(10, 20):
        cli.lpush(f"blueque_pending_tasks_queue {number}", "a task")
    cli.config_set("tracking-table-max-keys", 1_000_000)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_look_after_a_change_sees_it(client, cli, ready, change):
    client.get_queue("queue 0").enqueue("")
    client.get_queue("queue 1").enqueue("")
    client.get_queue("queue 1").pause("ann")
    client.get_queue("queue 5").schedule("", time.time() + 1000)
    assert ready.look() == {"queue 0"}

    change(client, cli)

    found = ready.look()
    assert found == truth(client)
    assert found != {"queue 0"}


def test_a_change_during_a_look_is_seen_by_that_look(cli, ready, before_the_read):
    ready.look()

    before_the_read(lambda: cli.lpush("blueque_pending_tasks_queue 3", "a task"))
    assert ready.look() == {"queue 3"}

    cli.lpush("blueque_pending_tasks_queue 4", "a task")
    before_the_read(lambda: cli.delete("blueque_pending_tasks_queue 3"))
    assert ready.look() == {"queue 4"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("select", [Ordered, RoundRobin, ReducedLottery])
def test_a_selector_is_given_what_a_read_of_all_queues_gives(client, cli, select, seed):
    chance, choose, given = random.Random(seed), select(), []

    def checked(queues, with_work):
        given.append((with_work, truth(client)))
        return choose(queues, with_work)

    group = client.get_listener(*QUEUES, select=checked)
    for listener in group:
        listener.register(Timing())

    def change():
        queue = client.get_queue(chance.choice(QUEUES))
        pending = f"blueque_pending_tasks_{queue.name}"
        chance.choice(
            [
                lambda: queue.enqueue(""),
                lambda: queue.enqueue("", priority=chance.randint(1, 3)),
                lambda: queue.pause("ann"),
                queue.resume,
                lambda: cli.rpoplpush(pending, OTHER),
                lambda: cli.delete(pending),
            ]
        )()

    for _ in range(60):
        for _ in range(chance.randint(0, 5)):
            change()
        task = group.take()
        if task is not None:
            client.get_processor(task).start(1)
            client.get_processor(task).complete("")
    assert len(given) > 30
    assert all(seen == true for seen, true in given)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("select", [Ordered, RoundRobin])
def test_a_listener_whose_ends_pop_takes_from_the_queue_that_the_selector_would_name(
    client, select, seed
):
    chance, expected, popped = random.Random(seed), select(), 0
    group = client.get_listener(*QUEUES[:4], select=select())
    for listener in group:
        listener.register(Timing())

    def change():
        queue = client.get_queue(chance.choice(QUEUES[:4]))
        chance.choice(
            [*[lambda: queue.enqueue("")] * 3, lambda: queue.pause("ann"), queue.resume]
        )()

    for _ in range(150):
        named = next(iter(expected(group.queues, truth(client))), None)
        task = group.take()
        assert (task.queue if task is not None else None) == named
        for _ in range(chance.choice([0, 0, 0, 1, 1, 4])):
            change()
        if task is not None:
            processor, is_next = client.get_processor(task), group.is_next(task.queue)
            processor.start(1)
            listener = group.of(task.queue) if is_next else None
            popped += is_next
            if is_next:
                named = next(iter(expected(group.queues, truth(client))), None)
                assert named == task.queue
            processor.report({"status": "complete", "result": ""}, None, False, listener)
            if is_next:
                task = group.take()
                assert task.queue == named
                client.get_processor(task).start(1)
                client.get_processor(task).complete("")
    assert popped >= 3


# The connection of its own


def test_without_its_connection_it_reads_all_queues_until_it_has_another(
    client, cli, ready, monkeypatch
):
    ready.look()
    (lost,) = trackers(cli)
    cli.client_kill_filter(_id=lost)
    cli.lpush("blueque_pending_tasks_queue 3", "a task")
    assert ready.look() == {"queue 3"}
    assert ready.look() == {"queue 3"}
    assert trackers(cli) == set(), "it does not open another one at once"

    ready._open_at = time.monotonic()
    cli.lpush("blueque_pending_tasks_queue 4", "a task")
    assert ready.look() == {"queue 3", "queue 4"}
    (another,) = trackers(cli)
    assert another != lost


def test_after_a_failure_of_the_other_connection_it_reads_everything_again(client, cli, ready):
    ready.look()
    (before,) = trackers(cli)
    client.connections.close()  # as whoever has lost it does: the address may lead elsewhere now
    cli.lpush("blueque_pending_tasks_queue 3", "a task")
    assert ready.look() == {"queue 3"}
    (after,) = trackers(cli)
    assert after != before


def test_it_does_not_trust_one_connection_for_ever(cli, ready, monkeypatch):
    ready.look()
    before = trackers(cli)
    ready.look()
    assert trackers(cli) == before
    monkeypatch.setattr(ready_queues, "TRUSTED", 0)
    ready._renew_at = time.monotonic()
    cli.lpush("blueque_pending_tasks_queue 3", "a task")
    assert ready.look() == {"queue 3"}
    assert trackers(cli).isdisjoint(before)


def test_two_of_one_thread_do_not_take_each_others_reports(client, cli, ready):
    others = ReadyQueues(client.connections, ["queue 3", "another"])
    for number in range(3):
        key = f"blueque_pending_tasks_queue {number + 3}"
        cli.lpush(key, "a task")
        assert ready.look() == {f"queue {number + 3}"}
        assert others.look() == ({"queue 3"} if number == 0 else set())
        cli.delete(key)


def test_a_fork_looks_for_itself_and_takes_no_report_of_its_parent(cli, url, ready):
    ready.look()

    def child():
        with redis_py.Redis.from_url(url) as own:
            own.lpush("blueque_pending_tasks_queue 3", "a task")
            return 0 if ready.look() == {"queue 3"} and len(trackers(own)) == 2 else 1

    assert wait_for(fork(child)) == 0
    cli.lpush("blueque_pending_tasks_queue 4", "a task")
    assert ready.look() == {"queue 3", "queue 4"}


def test_a_listener_that_is_not_needed_any_more_leaves_no_connection(client, cli, ready):
    ready.look()
    assert len(trackers(cli)) == 1
    client.close()
    until(lambda: not trackers(cli), what="Redis has closed it")


# Where Redis reports nothing


@pytest.fixture(params=["-client", "-client|tracking", "redis-py"])
def untracked(request, server, url, cli):
    if request.param == "redis-py":
        with redis_py.Redis.from_url(url) as made:
            client = Client(redis=made, patience=0)
            yield client
            client.close()
        return
    cli.acl_setuser(
        "limited",
        enabled=True,
        nopass=True,
        keys="*",
        categories=["+@all"],
        commands=[request.param],
    )
    client = Client(f"redis://limited:any@localhost:{server.port}", patience=0)
    yield client
    client.close()
    cli.acl_deluser("limited")


def test_where_redis_reports_nothing_it_reads_all_queues_and_logs_that_once(
    client, cli, untracked, caplog
):
    caplog.set_level("INFO")
    ready = ReadyQueues(untracked.connections, QUEUES)
    assert truth(untracked) == truth(client) == set()
    before = len(cli.client_list())
    for number in range(3):
        cli.lpush(f"blueque_pending_tasks_queue {number}", "a task")
        assert ready.look() == truth(client)
    until(lambda: len(cli.client_list()) == before, what="it keeps no connection in vain")
    assert sum("each choice reads all queues" in line for line in caplog.messages) == 1


def test_a_listener_without_tracking_takes_what_one_with_it_takes(client, untracked, cli):
    queues = QUEUES[:3]
    group = untracked.get_listener(*queues, select=RoundRobin())
    for listener in group:
        listener.register(Timing())
    for queue in (*queues, *queues[:2]):
        client.get_queue(queue).enqueue("")
    taken = []
    while (task := group.take()) is not None:
        taken.append(task.queue)
        untracked.get_processor(task).start(1)
        untracked.get_processor(task).complete("")
    assert taken == [*queues, *queues[:2]]


def test_a_key_of_a_wrong_type_costs_its_queue_only_and_no_further_reads(client, cli):
    refused = []
    ready = ReadyQueues(client.connections, QUEUES, lambda queue, error: refused.append(queue))
    cli.set("blueque_lines_queue 7", "of another program")
    client.get_queue("queue 7").enqueue("in")
    client.get_queue("queue 8").enqueue("in")

    assert [ready.look(), ready.look()] == [{"queue 8"}, {"queue 8"}]
    assert refused == ["queue 7"] and client.connections.tracking(ready) is not None
    cli.delete("blueque_lines_queue 7")
    assert ready.look() == {"queue 7", "queue 8"}
