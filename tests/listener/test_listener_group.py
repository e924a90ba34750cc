"""Listener: one of several queues."""

from __future__ import annotations

import os
import threading
import time

import pytest
from clock import Clock
from running import until
from transactions import protocol

from blueque import Client, ForkingRunner, NotRegistered, RoundRobin
from blueque.errors import InvalidInput, InvalidType, RedisAway, RedisRefused
from blueque.listener.listener import Listener
from blueque.model.units import Timing
from blueque.protocol import transaction
from blueque.recovery.judge import Recovery
from blueque.recovery.observed import LONGEST_PACE, LOOK_AT_STARTED
from blueque.system.process import node_id

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


def taken(client, group):
    """Take until nothing is left, and return the queues in the order of the tasks."""
    order = []
    while (task := group.take()) is not None:
        order.append(task.queue)
        done(client, task)
    return order


def awake(cli):
    return {key.removeprefix("blueque_wake_") for key in cli.keys("blueque_wake_*")}


def blocked(cli):
    return cli.info("clients")["blocked_clients"]


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


def test_it_takes_from_the_first_queue_that_has_work(client):
    for queue, count in (("A", 5), ("B", 2), ("C", 3)):
        for _ in range(count):
            client.get_queue(queue).enqueue("")
    assert "".join(taken(client, registered(client.get_listener("C", "B", "A")))) == "CCCBBAAAAA"


def test_it_takes_as_the_selector_says(client):
    for queue, count in (("A", 5), ("B", 2), ("C", 3)):
        for _ in range(count):
            client.get_queue(queue).enqueue("")
    assert (
        "".join(taken(client, registered(client.get_listener("C", "B", "A", select=RoundRobin()))))
        == "CBACBACAAA"
    )


def test_a_selector_is_any_callable_and_a_queue_that_it_leaves_out_comes_last(client):
    asked = []

    def select(queues, ready):
        asked.append((list(queues), set(ready)))
        return [queue for queue in sorted(ready) if queue != "audio"]

    for queue in ("video", "audio", "text"):
        client.get_queue(queue).enqueue("")
    group = registered(client.get_listener("video", "audio", "text", select=select))
    assert taken(client, group) == ["text", "video", "audio"]
    assert asked[0] == (["video", "audio", "text"], {"video", "audio", "text"})
    assert len(asked) == 3, "it is not asked when nothing has work"


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
    with pytest.raises(InvalidType, match="ReducedLottery"):
        ForkingRunner(client, ["video", "audio"], print, select=select)


def test_a_selector_gets_the_queues_as_a_list_and_those_with_work_as_a_set(client):
    client.get_queue("audio").enqueue("")
    calls = []
    listener = client.get_listener(
        "video", "audio", select=lambda *given: calls.append(given) or given[1]
    )
    assert listener.listen().queue == "audio"
    assert calls == [(["video", "audio"], {"audio"})]


# In a program of one's own


def test_listen_waits_for_all_queues_and_returns_the_task_of_any(url, client, cli):
    def listen(found):
        own = Client(url, patience=2.0)
        found.append(own.get_listener("video", "audio", "text").listen())
        own.close()

    for queue in ("text", "video", "audio"):
        found = []
        thread = threading.Thread(target=listen, args=(found,))
        thread.start()
        until(lambda: blocked(cli) == 1, what="a listener that waits")
        task_id = client.get_queue(queue).enqueue("")
        thread.join(10)
        assert [(task.id, task.queue, task.status) for task in found] == [
            (task_id, queue, "reserved")
        ]
        done(client, found[0])
        for name in ("text", "video", "audio"):  # the next one has the same name
            cli.delete(f"blueque_listener_{name}_{node_id()}")


def test_listen_calls_back_and_registers_for_itself_in_each_queue(client, cli):
    client.get_queue("audio").enqueue("")
    called = []
    group = client.get_listener("video", "audio")
    task = group.listen(called.append)
    assert called == [task]
    for queue in ("video", "audio"):
        assert cli.smembers(f"blueque_listeners_{queue}") == {group.node}
        assert cli.hget(f"blueque_listener_{queue}_{group.node}", "beat_every") == "0"


def test_listen_registers_again_where_its_registration_is_gone(client, group, cli):
    cli.delete(f"blueque_listener_audio_{group.node}")
    task_id = client.get_queue("audio").enqueue("")
    assert group.listen().id == task_id
    assert cli.hget(f"blueque_listener_audio_{group.node}", "state") == "alive"


def test_a_listener_of_one_queue_is_what_it_was(client):
    assert type(client.get_listener("video")).__name__ == "Listener"


# Waking up


def test_a_call_of_one_queue_is_passed_on_when_the_task_taken_is_of_another(client, group, cli):
    assert group.take() is None
    client.get_queue("audio").enqueue("")
    assert group.idle(5, lambda connection: connection.wait(5)) is True
    assert awake(cli) == set(), "the call of audio came to us"
    client.get_queue("video").enqueue("")
    cli.delete("blueque_wake_video")
    assert group.take().queue == "video"
    assert awake(cli) == {"audio"}


def test_a_call_for_a_task_that_somebody_else_has_taken_is_not_passed_on(client, group, cli):
    assert group.take() is None
    client.get_queue("audio").enqueue("")
    group.idle(5, lambda connection: connection.wait(5))
    cli.rpoplpush("blueque_pending_tasks_audio", "blueque_reserved_tasks_audio_of_another")
    assert group.take() is None
    assert awake(cli) == set()


def test_a_call_that_could_not_be_passed_on_is_passed_on_with_the_next_task(
    client, group, cli, monkeypatch
):
    assert group.take() is None
    client.get_queue("audio").enqueue("")
    assert group.idle(5, lambda connection: connection.wait(5)) is True
    for _ in range(2):
        client.get_queue("video").enqueue("")
    cli.delete("blueque_wake_video")

    def fail(*_):
        raise RedisAway("in a test")

    with monkeypatch.context() as patch:
        patch.setattr(protocol, "wake", fail)
        assert group.take().queue == "video"
    assert awake(cli) == set()
    assert group.take().queue == "video"
    assert awake(cli) == {"audio"}


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


@pytest.mark.parametrize("own", ["pause", "work", "leave"])
@pytest.mark.parametrize("queues", [["video", "audio"], MANY])
def test_somebodys_order_in_any_queue_goes_before_what_the_listener_has_written_in_others(
    client, redis, own, queues
):
    group = registered(client.get_listener(*queues))
    for listener in [*group][:-1]:
        listener.announce(own)
    assert group.beat().order == own
    protocol.order(redis, queues[-1], group.node, "drain", "ann")
    assert group.beat().order == "drain"


def test_an_order_in_any_queue_is_noticed_idle_or_busy(client, group, redis):
    for is_idle in (True, False):
        for listener in group:
            listener.has_order = False
        protocol.order(redis, "audio", group.of("audio").node, "drain", "ann")
        redis.read(("ZADD", f"blueque_orders_audio_{group.node}", 0, 0))
        (group.idle if is_idle else group.watch_orders)(5, lambda connection: connection.wait(5))
        assert group.has_order and group.beat().order == "drain"


# In few round trips


def test_a_listener_of_a_hundred_queues_does_with_all_at_once_what_it_does_with_all(
    client, cli, round_trips
):
    group = registered(client.get_listener(*MANY))
    assert group.take() is None, "which looks through all its lists first"
    client.get_queue(MANY[50]).enqueue("")
    assert group.idle(5, lambda connection: connection.wait(5)) is True
    assert group.take().queue == MANY[50]
    assert round_trips(group.beat) == 4, "two transactions"
    assert round_trips(group.take) == 1
    assert round_trips(lambda: group.idle(0.01, lambda connection: connection.wait(5))) == 3, (
        "and a look at lines and own lists, one of which holds a task, and one at the lines"
    )
    assert round_trips(group.held) == 2, "the lists, and the task"
    assert {cli.hget(f"blueque_listener_{queue}_{group.node}", "beat") for queue in MANY} == {"2"}


def test_a_listener_of_one_queue_in_the_group_takes_no_more_round_trips_than_alone(
    client, round_trips
):
    alone = client.get_listener("video")
    alone.register(Timing())
    single = registered(Listener(client.connections, ["audio"]))

    def cycle(listener, queue):
        client.get_queue(queue).enqueue("")
        return round_trips(lambda: done(client, listener.take()))

    def wait(listener):
        return round_trips(lambda: listener.idle(0.01, lambda connection: connection.wait(5)))

    for listener, queue in ((alone, "video"), (single, "audio")):
        cycle(listener, queue)  # what happens once
    assert cycle(single, "audio") == cycle(alone, "video")
    assert wait(single) == wait(alone)
    assert round_trips(single.beat) == round_trips(alone.beat)


# When something goes wrong


def test_a_beat_says_where_the_registration_is_gone_and_reaches_the_other_queues(
    client, group, cli
):
    cli.delete(f"blueque_listener_audio_{group.node}")
    with pytest.raises(NotRegistered) as caught:
        group.beat()
    assert caught.value.queue == "audio"
    assert [listener.queue for listener in group if not listener.is_registered] == ["audio"]
    assert cli.hget(f"blueque_listener_video_{group.node}", "beat") == "1"
    assert not cli.exists(f"blueque_listener_audio_{group.node}"), (
        "no stump of a registration is made"
    )


def test_a_beat_puts_the_listener_back_where_1_0_0_has_struck_it_off(group, cli):
    cli.srem("blueque_listeners_audio", group.node)
    cli.zincrby("blueque_queues", -1, "audio")
    group.beat()
    assert (cli.smembers("blueque_listeners_audio"), cli.zscore("blueque_queues", "audio")) == (
        {group.node},
        1.0,
    )


def test_a_beat_that_another_change_comes_across_is_tried_again(group, cli, overtaken):
    overtaken(lambda: cli.sadd("blueque_listeners_audio", "another_1"))
    group.beat()
    assert {
        cli.hget(f"blueque_listener_{queue}_{group.node}", "beat") for queue in group.queues
    } == {"1"}


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


def test_a_task_whose_reservation_got_no_answer_is_found_and_comes_before_any_other(
    client, group, monkeypatch
):
    assert group.take() is None
    client.get_queue("audio").enqueue("")
    execute = transaction._execute

    def lose_the_answer(*arguments):
        monkeypatch.setattr(transaction, "_execute", execute)
        execute(*arguments)
        raise RedisAway("in a test")

    monkeypatch.setattr(transaction, "_execute", lose_the_answer)  # of the pop
    with pytest.raises(RedisAway):
        group.take()
    client.get_queue("video").enqueue("")
    assert [group.take().queue, group.take().queue, group.take()] == ["audio", "video", None]


def lose(monkeypatch, number, is_executed):
    """Let the connection break at the transaction of this number, before Redis has executed it or
    after.
    """
    execute, sent = transaction._execute, []

    def execute_in_vain(*arguments):
        sent.append(arguments)
        if len(sent) != number:
            return execute(*arguments)
        monkeypatch.setattr(transaction, "_execute", execute)
        if is_executed:
            execute(*arguments)
        raise RedisAway("in a test")

    monkeypatch.setattr(transaction, "_execute", execute_in_vain)


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


@pytest.mark.parametrize("queues", [["video"], ["video", "audio"]])
def test_a_list_is_unsure_until_a_beat_has_gone_through(client, cli, queues):
    group = registered(client.get_listener(*queues))
    for queue in queues:
        client.get_queue(queue).enqueue("")
    members = cli.smembers("blueque_listeners_video")
    cli.delete("blueque_listeners_video")
    cli.set("blueque_listeners_video", "of another program")
    if len(queues) == 1:
        with pytest.raises(RedisRefused, match="WRONGTYPE"):
            group.take()
    else:
        assert [task and task.queue for task in (group.take(), group.take())] == ["audio", None]
        for _ in queues:  # each has called once
            assert group.idle(5, lambda connection: connection.wait(5)) is True
            assert group.take() is None
        assert awake(cli) == set(), "nobody is called again and again"
    assert group.of("video").is_list_unsure
    assert cli.llen("blueque_pending_tasks_video") == 1

    cli.delete("blueque_listeners_video")
    cli.sadd("blueque_listeners_video", *members)
    assert group.take().queue == "video"


def test_leaving_takes_leave_of_every_queue_once(client, group, cli, state):
    assert group.leave() is True
    assert [key for key in state() if "listener" in key or "nodes" in key] == []
    assert group.leave() is True
    assert cli.zscore("blueque_queues", "video") == 0


def test_who_holds_a_task_leaves_the_other_queues_only(client, group, cli):
    client.get_queue("audio").enqueue("")
    group.take()
    assert group.leave() is False
    assert (cli.smembers("blueque_listeners_video"), cli.smembers("blueque_listeners_audio")) == (
        set(),
        {group.node},
    )


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


def test_one_look_judges_the_listeners_of_all_queues(client, redis, round_trips):
    queues = MANY[:10]
    gone = {
        "beat_every": 0.1,
        "lease": 0.4,
        "lost_after": 60,
        "pid": 1,
        "boot": "another",
        "ns": "1",
    }
    for queue in queues:
        protocol.register(redis, queue, "far_1", f"instance of {queue}", gone, time.time())
    client.get_queue(queues[7]).enqueue("")
    protocol.pop(redis, queues[7], "far_1", f"instance of {queues[7]}")
    judges = Recovery(client.with_patience(0).connections)
    judges._redis = redis
    until(
        lambda: judges.step(queues) == [] and not client.get_inspector().listeners(queues[9]),
        what="the end of far_1",
    )
    assert [client.get_inspector().listeners(queue) for queue in queues] == [[]] * 10
    assert client.get_inspector().pending(queues[7]) == 1, "what it had popped is in line again"


def test_a_look_at_a_hundred_queues_in_which_nothing_happens_is_one_round_trip(client, round_trips):
    registered(client.get_listener(*MANY))
    judges = Recovery(client.connections)
    assert round_trips(lambda: judges.step(MANY)) == 3, (
        "the beats, the started tasks, the registrations"
    )
    assert round_trips(lambda: judges.step(MANY)) == 1


@pytest.mark.parametrize("queues", [["video"], ["video", "audio"]])
def test_a_judge_that_is_alone_looks_again_when_another_comes_or_a_minute_has_passed(
    client, redis, round_trips, monkeypatch, queues
):
    group = registered(Listener(client.connections, queues))
    judges = Recovery(client.connections)
    for queue in queues:
        judges.own(queue, group.node)
    members = {queue: {group.node} for queue in queues}

    assert round_trips(lambda: judges.step(queues, members)) == 3, "the first look"
    assert round_trips(lambda: judges.step(queues, members)) == 0
    assert judges.rest(queues) > 0.9 * LONGEST_PACE
    joined = {**members, "video": {group.node, "far_1"}}
    assert round_trips(lambda: judges.step(queues, joined)) >= 1
    assert round_trips(lambda: judges.step(queues, members)) >= 1, (
        "far_1 is looked at until it has left"
    )
    assert round_trips(lambda: judges.step(queues, members)) == 0
    clock = Clock()
    clock.sleep(LOOK_AT_STARTED)
    monkeypatch.setattr("blueque.recovery.judge.time", clock)
    assert round_trips(lambda: judges.step(queues, members)) == 2, "the beats, the started tasks"


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
