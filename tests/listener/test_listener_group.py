"""Listener: one of several queues."""

from __future__ import annotations

import os
import time

import pytest
from reaching_in import execute, execute_by
from running import until
from transactions import protocol

from blueque import Client, RoundRobin
from blueque.errors import InvalidInput, InvalidType, RedisAway, RedisRefused
from blueque.listener.listener import Listener
from blueque.model.units import Timing
from blueque.recovery.judge import Recovery

MANY = [f"queue {number}" for number in range(100)]


@pytest.fixture
def group(client):
    """One of two queues that is registered, as the listener program registers."""
    return registered(client.get_listener("video", "audio"))


def registered(group):
    group.register(Timing())
    return group


def done(client, task):
    processor = client.get_processor(task)
    processor.start(os.getpid())
    processor.complete("")


def awake(cli):
    return {key.removeprefix("blueque_wake_") for key in cli.keys("blueque_wake_*")}


@pytest.fixture
def round_trips(client):
    """Count how often something is sent while an action goes on."""

    def count(action):
        redis, sent = client.connections, []
        connection = redis.connection()
        connection.send = lambda commands, send=connection.send: sent.append(1) or send(commands)
        try:
            action()
        finally:
            del connection.send
        return len(sent)

    return count


# Choosing


def test_a_selector_that_names_another_queue_is_told(client):
    client.get_queue("video").enqueue("")
    group = registered(
        client.get_listener("video", "audio", select=lambda queues, ready: ["radio"])
    )
    with pytest.raises(InvalidInput, match="not listened to: 'radio'"):
        group.take()


def test_a_queue_whose_task_has_been_taken_meanwhile_is_passed_over(client, group, monkeypatch):
    client.get_queue("audio").enqueue("")
    monkeypatch.setattr(group, "_with_work", lambda: {"video", "audio"})
    assert group.take().queue == "audio"


def test_a_queue_named_twice_is_one(client):
    assert client.get_listener("video", "audio", "video").queues == ["video", "audio"]


def test_a_listener_of_no_queue_is_refused(client):
    with pytest.raises(InvalidInput, match="at least one queue"):
        Listener(client.connections, [])


@pytest.mark.parametrize("select", ["lottery", RoundRobin, 5])
def test_a_selector_that_is_none_is_refused_at_once_and_those_that_there_are_are_named(
    client, select
):
    for names in (["video", "audio"], ["video"]):
        with pytest.raises(
            InvalidType, match=r"blueque\.Ordered\(\), RoundRobin\(\), ReducedLottery\(\)"
        ):
            client.get_listener(*names, select=select)


# Waking up


def test_who_takes_nothing_passes_every_call_on(client, group, cli):
    for queue in ("video", "audio"):
        client.get_queue(queue).enqueue("")
        group.idle(5, lambda connection: connection.wait(5))
    assert awake(cli) == set()
    group.decline()
    assert awake(cli) == {"video", "audio"}


def test_who_has_waited_in_vain_looks_whether_somebody_of_1_0_0_has_put_a_task_in_line(group, cli):
    assert group.idle(0.01, lambda connection: connection.wait(5)) is False
    cli.lpush("blueque_pending_tasks_audio", "a task")
    assert group.idle(0.01, lambda connection: connection.wait(5)) is True
    cli.delete("blueque_pending_tasks_audio")
    assert group.idle(5, lambda connection: False) is False
    cli.lpush("blueque_pending_tasks_video", "a task")
    assert group.idle(5, lambda connection: False) is True, "who gives up waiting as well"


# When something goes wrong


def test_a_beat_puts_the_listener_back_where_1_0_0_has_struck_it_off(group, cli):
    cli.srem("blueque_listeners_audio", group.node)
    cli.zincrby("blueque_queues", -1, "audio")
    group.beat()
    assert cli.smembers("blueque_listeners_audio") == {group.node}
    assert cli.zscore("blueque_queues", "audio") == 1.0


def test_a_key_of_the_wrong_type_in_one_queue_does_not_keep_the_listener_from_beating_in_the_others(
    group, cli
):
    cli.delete("blueque_listeners_video")
    cli.set("blueque_listeners_video", "of another program")
    with pytest.raises(RedisRefused):
        group.beat()
    assert cli.hget(f"blueque_listener_audio_{group.node}", "beat") == "2", (
        "1 was the beat in common"
    )


def test_a_key_of_a_wrong_type_in_one_queue_hides_no_right_that_is_missing_in_another(
    client, cli, caplog
):
    port = cli.connection_pool.connection_kwargs["port"]
    cli.execute_command("ACL", "SETUSER", "modest", "on", ">secret", "~*", "&*", "+@all")
    modest = Client(f"redis://modest:secret@127.0.0.1:{port}/0", patience=0)
    try:
        group = registered(modest.get_listener("audio", "film", "video"))
        cli.execute_command("ACL", "SETUSER", "modest", "resetkeys", "~*audio*", "~*film*")
        for queue in ("audio", "film"):
            cli.delete(f"blueque_listeners_{queue}")
            cli.set(f"blueque_listeners_{queue}", "of another program")
        for _ in range(2):
            with pytest.raises(RedisRefused, match="NOPERM"):
                group.beat()
    finally:
        cli.execute_command("ACL", "DELUSER", "modest")
        modest.close()
    told = [line.partition(",")[0] for line in caplog.messages if "cannot" in line]
    assert told == ["cannot beat in queue=audio", "cannot beat in queue=film"]


WRONG = [
    "blueque_pending_tasks_video",
    "blueque_lines_video",
    "blueque_line_5_video",
    "blueque_queue_video",
    "blueque_wake_video",
    "blueque_reserved_tasks_video_{node}",
    "blueque_listener_video_{node}",
]


@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize("key", WRONG)
def test_a_key_of_the_wrong_type_in_one_queue_keeps_the_listener_from_no_other(
    client, group, cli, caplog, key, is_settled
):
    if is_settled:
        assert group.take() is None
    client.get_queue("video").enqueue("", priority=5)
    key = key.format(node=group.node)
    cli.delete(key)
    cli.set(key, "of another program")
    first, second = (client.get_queue("audio").enqueue("") for _ in range(2))

    def take():
        assert group.idle(5, lambda connection: connection.wait(5)) is True
        task = group.take()
        if task is not None and task.queue == "video":  # which may not have been hurt
            done(client, task)
            task = group.take()
        return task.id

    assert [take(), take()] == [first, second]
    group.idle(0.01, lambda connection: connection.wait(5))
    assert (
        sum(
            "going on with the others" in line and "queue=video" in line for line in caplog.messages
        )
        == 1
    )


def test_a_queue_that_is_mended_is_listened_to_again_and_named_again_the_next_time(
    client, group, cli, caplog
):
    for number in (1, 2):
        cli.set("blueque_lines_video", "of another program")
        client.get_queue("audio").enqueue("")
        assert group.take().queue == "audio"
        cli.delete("blueque_lines_video")
        client.get_queue("video").enqueue("")
        assert group.take().queue == "video"
        assert sum("cannot take from queue=video" in line for line in caplog.messages) == number


def test_any_other_refusal_is_told(client, group, monkeypatch):
    def refuse(*_):
        raise RedisRefused("NOPERM of a test")

    client.get_queue("video").enqueue("")
    for name in ("reserved", "with_work"):
        with monkeypatch.context() as patch:
            patch.setattr(f"blueque.queries.inspector.Inspector.{name}", refuse)
            with pytest.raises(RedisRefused):
                group.take() if name == "reserved" else group._with_work()


def test_a_key_of_a_wrong_type_costs_its_queue_only_and_no_further_reads(client, cli, round_trips):
    inspector, refused, found = client.get_inspector(), [], []
    cli.set("blueque_lines_queue 7", "of another program")
    client.get_queue("queue 7").enqueue("")
    client.get_queue("queue 8").enqueue("")

    def look():
        found.append(inspector.with_work(MANY, lambda queue, error: refused.append(queue)))

    assert round_trips(look) == 1
    assert (found, refused) == ([{"queue 8"}], ["queue 7"])
    cli.delete("blueque_lines_queue 7")
    look()
    assert found[1:] == [{"queue 7", "queue 8"}]


def test_a_right_that_is_missing_for_the_look_for_work_is_told(client, cli):
    port = cli.connection_pool.connection_kwargs["port"]
    cli.execute_command("ACL", "SETUSER", "modest", "on", ">secret", "~*", "&*", "+@all")
    modest = Client(f"redis://modest:secret@127.0.0.1:{port}/0", patience=0)
    try:
        group = registered(modest.get_listener("video", "audio"))
        assert group.take() is None
        client.get_queue("video").enqueue("")
        cli.execute_command("ACL", "SETUSER", "modest", "-llen")
        with pytest.raises(RedisRefused, match="NOPERM"):
            group.take()
    finally:
        cli.execute_command("ACL", "DELUSER", "modest")
        modest.close()


def lose(monkeypatch, number, is_executed):
    """Let the connection break at the transaction of this number, before Redis has executed it or
    after.
    """
    sent = []

    def execute_in_vain(*arguments):
        sent.append(arguments)
        if len(sent) != number:
            return execute(*arguments)
        execute_by(monkeypatch, execute)
        if is_executed:
            execute(*arguments)
        raise RedisAway("in a test")

    execute_by(monkeypatch, execute_in_vain)


@pytest.mark.parametrize(("lost", "is_executed"), [("pop", True), ("reserve", False)])
def test_a_listener_that_leaves_puts_back_what_it_has_popped_and_not_reserved(
    client, cli, monkeypatch, lost, is_executed
):
    group = registered(client.with_patience(0).get_listener("video", "audio"))
    assert group.take() is None
    first, _ = (client.get_queue("audio").enqueue("") for _ in range(2))
    lose(monkeypatch, ["pop", "reserve"].index(lost) + 1, is_executed)
    with pytest.raises(RedisAway):
        group.take()
    assert cli.lrange(f"blueque_reserved_tasks_audio_{group.node}", 0, -1) == [first]

    assert group.leave() is True
    assert cli.lindex("blueque_pending_tasks_audio", -1) == first
    assert client.get_task(first).status == "pending"


def test_a_listener_that_was_found_dead_takes_leave_once_its_list_is_empty(
    client, redis, cli, caplog
):
    group = registered(client.get_listener("video"))
    ours = group.of("video")
    task_id = client.get_queue("video").enqueue("")
    protocol.pop(redis, "video", ours.node, ours.instance)
    assert ours.is_list_unsure
    assert protocol.fence(redis, "video", ours.node, ours.instance, "0", time.time())
    assert group.leave() is False, "others have not yet seen to what it has popped"
    protocol.recover(redis, "video", task_id, ours.node, ours.instance, time.time())
    caplog.clear()

    assert group.leave() is True
    assert not cli.exists(f"blueque_listener_video_{ours.node}")
    assert caplog.messages == []


def test_leaving_takes_leave_of_every_queue_once(client, group, cli, state):
    assert group.leave() is True
    assert [key for key in state() if "listener" in key or "nodes" in key] == []
    assert group.leave() is True
    assert cli.zscore("blueque_queues", "video") == 0


def test_what_it_holds_in_any_queue_is_its_own(client, group):
    for queue in ("video", "audio"):
        client.get_queue(queue).enqueue("")
        group.take()
    assert [task.queue for task in group.held()] == ["video", "audio"]


def test_announcing_that_it_leaves_is_seen_in_every_queue(group, cli):
    group.announce("drain")
    assert {
        cli.hget(f"blueque_listener_{queue}_{group.node}", "order") for queue in group.queues
    } == {"drain"}


# Judging and promoting in several queues


def test_a_judge_without_the_members_of_all_its_queues_reads_them(client, redis, round_trips):
    group = registered(client.get_listener("video", "audio"))
    judges = Recovery(client.connections)
    queues = ["video", "audio"]
    for queue in queues:
        judges.own(queue, group.node)
    members = {"video": {group.node}, "audio": {group.node}}
    judges.step(queues, members)

    assert round_trips(lambda: judges.step(queues, {"video": {group.node}})) == 1
    assert round_trips(lambda: judges.step(queues, members)) == 0


def test_a_queue_that_cannot_be_looked_at_does_not_keep_the_others_from_being_judged(
    client, redis, cli, caplog
):
    cli.set("blueque_nodes_video", "of another program")
    protocol.register(
        redis,
        "audio",
        "far_1",
        "i",
        {"beat_every": 0.1, "lease": 0.4, "boot": "another"},
        time.time(),
    )
    judges = Recovery(client.connections)
    until(
        lambda: (
            judges.step(["video", "audio"]) == [] and not client.get_inspector().listeners("audio")
        ),
        what="the end of far_1",
    )
    assert sum("cannot judge the listeners of queue=video" in line for line in caplog.messages) == 1


def test_which_queues_have_work_or_something_due_is_one_look(client, redis, cli, round_trips):
    inspector = client.get_inspector()
    client.get_queue("video").enqueue("")
    client.get_queue("audio").enqueue("", priority=5)
    client.get_queue("held").enqueue("")
    client.get_queue("held").pause("ann")
    client.get_queue("later").schedule("", time.time() + 1000)
    client.get_queue("due").schedule("", time.time() + 0.01)
    queues = ["video", "audio", "held", "later", "due", "empty"]
    assert inspector.with_work(queues, print) == {"video", "audio"}
    until(lambda: inspector.due(queues, time.time()) == ["due"], what="the eta")
    assert round_trips(lambda: inspector.with_work(queues, print)) == 1
    assert round_trips(lambda: inspector.due(queues, 1.0)) == 2
    assert round_trips(lambda: inspector.due(["video", "empty"], 1.0)) == 1
    assert inspector.has_any_work(["empty", "due", "audio"]) and not inspector.has_any_work(
        ["empty", "due"]
    )
