"""Which task a listener takes when a queue has several lines; and who is woken, with real listeners
in one process.
"""

from __future__ import annotations

import os
import time

import legacy
import pytest
from legacy import ledger
from running import until
from transactions import protocol

from blueque.errors import RedisAway
from blueque.listener import stale_holders
from blueque.listener.resources import Pool
from blueque.model.units import Timing
from blueque.protocol import transaction
from blueque.queries import line_order

WORK = legacy.WORK


@pytest.fixture
def make(client, tmp_path):
    """Make a listener on a node of its own, which has these resources."""
    made = []

    def make(node="here_1", queue="video", **resources):
        listener = client.get_listener(queue)
        made.append(listener)
        ours = listener.of(queue)
        ours._node, ours._pid = node, os.getpid()
        spool = tmp_path / node.rpartition("_")[0]  # listeners of one host share what it has
        spool.mkdir(exist_ok=True)
        if resources:
            listener.reserver.pool = Pool(str(spool / "resources"), resources)
            listener.reserver.pool.open()
        listener.register(Timing(), str(spool))
        ours.is_list_unsure = False  # its list is empty
        return listener

    yield make
    for listener in made:
        if listener.reserver.claim is not None:
            listener.reserver.claim.close()
        if listener.reserver.pool is not None:
            listener.reserver.pool.withdraw()


@pytest.fixture
def end(client):
    """End an attempt as the listener program does, and give its claim back."""

    def end(listener, task):
        processor = client.get_processor(task)
        processor.start(os.getpid())
        processor.complete("out")
        if listener.reserver.claim is not None:
            listener.reserver.claim.close()
            listener.reserver.claim = None

    return end


def put(redis, task, now, queue="video", **options):
    protocol.enqueue(redis, queue, task, "in", now, options)


def woken(listener):
    """Wait for a marker until it is plain that none is there; return whether one came."""
    came = []

    def is_answered(connection):
        came.append(connection.wait(0.2))
        return came[0]

    listener.idle(5.0, is_answered)
    return came[0]


def take_all(listener, end):
    """Take and end one task after another, until there is none; return their ids."""
    taken = []
    while (task := listener.take()) is not None:
        taken.append(task.id)
        end(listener, task)
    return taken


# The order


def test_higher_priorities_come_first_and_those_of_one_in_the_order_they_were_made(
    redis, make, end
):
    for task, now, priority in [
        ("a", 1, 0),
        ("b", 2, 5),
        ("c", 3, -3),
        ("d", 4, 5),
        ("e", 5, 100),
        ("f", 6, 0),
    ]:
        put(redis, task, now, **({"priority": priority} if priority else {}))

    assert take_all(make(), end) == ["e", "b", "d", "a", "f", "c"]


def test_among_lines_of_one_priority_that_is_first_whose_next_task_was_made_first(redis, make, end):
    for task, now, needs in [
        ("a", 1, ""),
        ("b", 2, "gpu=1"),
        ("c", 3, "lock:x=1"),
        ("d", 4, "gpu=1"),
        ("e", 5, ""),
        ("f", 6, "lock:x=1"),
    ]:
        put(redis, task, now, **({"needs": needs} if needs else {}))

    assert take_all(make(gpu=1), end) == ["a", "b", "c", "d", "e", "f"]


def test_what_1_0_0_has_made_comes_in_its_turn_like_everything_else(redis, cli, make, end):
    put(redis, "a", 1.0, needs="lock:x=1")
    cli.hset(
        "blueque_task_b",
        mapping={"status": "pending", "queue": "video", "parameters": "in", "created": "2.0"},
    )
    cli.lpush("blueque_pending_tasks_video", "b")
    put(redis, "c", 3.0, needs="lock:x=1")

    assert take_all(make(), end) == ["a", "b", "c"]


def test_a_task_whose_age_cannot_be_told_holds_nobody_up(redis, cli, make, end):
    put(redis, "a", 1.0, needs="lock:x=1")
    put(redis, "b", 2.0)
    cli.hdel("blueque_task_b", "created")

    assert take_all(make(), end) == ["b", "a"]


def test_a_hundred_and_one_priorities_come_in_their_order_and_the_default_line_in_its_place(
    redis, client, monkeypatch
):
    monkeypatch.setattr(line_order, "LINES_AT_ONCE", 10)
    for priority in range(-50, 51):
        put(redis, f"t{priority}", 1.0, **({"priority": priority} if priority else {}))

    heads = [head.line for head in client.get_inspector().heads("video")]

    assert heads == [str(priority) for priority in range(50, -51, -1)]


def test_of_more_than_a_hundred_equal_lines_none_is_starved(redis, make, end):
    first = [f"first-{number}" for number in range(line_order.LINES_AT_ONCE + 20)]
    for number, task in enumerate(first):
        put(redis, task, 1.0 + number, needs=f"lock:{number}=1")
    listener, left = make(), set(first)

    for turn in range(10 * len(first)):  # whatever is taken is followed by another in the same line
        task = listener.take()
        end(listener, task)
        left.discard(task.id)
        if not left:
            break
        put(redis, f"later-{turn}", 1000.0 + turn, needs=task.fields["needs"])

    assert not left


def test_of_many_equal_lines_no_more_names_are_asked_for_than_are_looked_at(
    redis, cli, client, make, monkeypatch
):
    monkeypatch.setattr(line_order, "LINES_AT_ONCE", 10)
    for number in range(50):
        put(redis, f"t{number}", 1.0 + number, needs=f"lock:{number}=1")
    put(redis, "plain", 0.5)
    fetched, read = [], client.connections.read

    def count(*commands):
        replies = read(*commands)
        fetched.extend(
            len(reply)
            for command, reply in zip(commands, replies, strict=True)
            if command[0] == "ZRANGE"
        )
        return replies

    monkeypatch.setattr(client.connections, "read", count)
    heads = client.get_inspector().heads("video")
    next(heads)
    assert fetched[:2] == [10, 2] and len(fetched) == 3
    assert 0 < fetched[2] <= 10, "fewer when chance begins near the end"
    assert len({"", *[head.line for head in heads]}) == 51, "the others follow, each once"


def test_lines_that_are_dropped_on_the_way_hide_none_behind_them(redis, cli, client, monkeypatch):
    monkeypatch.setattr(line_order, "LINES_AT_ONCE", 10)
    for number in range(50):
        put(redis, f"t{number}", 1.0 + number, needs=f"lock:{number}=1")
    left = {f"0,lock:{number}=1" for number in range(0, 50, 5)}
    for number in range(50):
        if f"0,lock:{number}=1" not in left:
            cli.delete(f"blueque_line_0,lock:{number}=1_video")

    found = []
    for head in client.get_inspector().heads("video"):
        found += [head.line] if head.length else []
        if not head.length:
            protocol.align_line(redis, "video", head.line)
    assert sorted(found) == sorted(left)


# What cannot run now


def test_a_task_that_cannot_run_here_holds_up_nobody_but_its_line(redis, cli, make, end):
    put(redis, "a", 1.0, priority=9, needs="gpu=4")
    put(redis, "b", 2.0, priority=9, needs="gpu=4")
    put(redis, "c", 3.0)

    assert take_all(make(gpu=2), end) == ["c"]
    assert cli.lrange("blueque_line_9,gpu=4_video", 0, -1) == ["b", "a"]


def test_needs_that_make_no_sense_are_met_by_nobody(redis, make, end):
    put(redis, "a", 1.0, needs="gpu=many")
    put(redis, "b", 2.0, priority=-1)

    assert take_all(make(gpu=2), end) == ["b"]


def test_what_a_task_needs_of_the_node_is_set_aside_while_it_runs_and_comes_back(redis, make, end):
    for task in ("a", "b"):
        put(redis, task, 1.0, needs="gpu=2")
    one, two = make("here_1", gpu=3), make("here_2", gpu=3)

    task = one.take()
    assert one.reserver.pool.free() == {"gpu": 1}
    assert two.take() is None and two.reserver.claim is None
    end(one, task)
    assert two.take().id == "b"


def test_nothing_stays_set_aside_for_a_task_that_was_not_to_be_had(redis, cli, make):
    put(redis, "a", 1.0, needs="gpu=1,lock:x=1")
    put(redis, "b", 2.0, needs="gpu=1")
    cli.hset("blueque_task_b", "status", "cancelled")  # as if its id had been left behind
    cli.sadd("blueque_lock_x", "other")
    listener = make(gpu=1)

    assert listener.take() is None
    assert listener.reserver.claim is None and listener.reserver.pool.free() == {"gpu": 1}


def test_a_task_with_needs_that_stands_in_the_default_line_does_not_start_without_them(
    redis, cli, make, end
):
    put(redis, "a", 1.0, needs="gpu=1")
    # as the scheduler of 1.0.0 does it
    cli.rename("blueque_line_0,gpu=1_video", "blueque_pending_tasks_video")
    cli.delete("blueque_lines_video")
    put(redis, "b", 2.0)

    assert take_all(make(), end) == ["b"]
    task = make("there_1", gpu=1).take()
    assert task.id == "a"


@pytest.mark.parametrize("others", [["there_1"], ["here_2", "there_1"]])
@pytest.mark.parametrize("mine", [{}, {"gpu": 1}, {"gpu": 2}])
def test_work_for_another_node_is_forwarded_to_an_idle_listener_there(
    redis, cli, make, others, mine
):
    here = make("here_1", **mine)
    if mine == {"gpu": 2}:
        put(redis, "before", 0.5, needs="gpu=1")
        assert here.take().id == "before"
        here = make("here_3", **mine)  # a second listener, of which one gpu is taken
    listeners = {
        node: make(node, **(mine if node.startswith("here") else {"gpu": 2})) for node in others
    }
    put(redis, "a", 1.0, needs="gpu=2")
    assert woken(here)

    assert here.take() is None

    assert [node for node in listeners if cli.exists(f"blueque_orders_video_{node}")] == ["there_1"]
    assert woken(listeners["there_1"]) and listeners["there_1"].take().id == "a"


def test_who_was_not_woken_by_the_queue_forwards_nothing(redis, cli, make):
    here, _ = make(), make("there_1", gpu=1)
    put(redis, "a", 1.0, needs="gpu=1")

    assert here.take() is None
    assert not cli.exists("blueque_orders_video_there_1")


def test_a_busy_listener_is_not_called(redis, cli, make):
    here, there = make(), make("there_1", gpu=2)
    put(redis, "a", 1.0)
    assert there.take().id == "a"
    put(redis, "b", 2.0, needs="gpu=1")
    assert woken(here)

    assert here.take() is None
    assert not cli.exists("blueque_orders_video_there_1")


def test_a_listener_that_is_to_leave_is_not_called(redis, cli, make):
    here, there = make(), make("there_1", gpu=1)
    protocol.order(redis, "video", there.node, "drain", "ann")
    cli.delete(f"blueque_orders_video_{there.node}")  # it has heard of it
    put(redis, "a", 1.0, needs="gpu=1")
    assert woken(here)

    assert here.take() is None
    assert not cli.exists(f"blueque_orders_video_{there.node}")


def test_needs_that_nobody_can_meet_do_not_keep_those_behind_them_from_being_forwarded(
    redis, cli, make
):
    here, _ = make(), make("there_1", fpga=1)
    put(redis, "a", 1.0, needs="gpu=8", priority=5)
    put(redis, "b", 2.0, needs="fpga=1")
    assert woken(here)

    assert here.take() is None
    assert cli.exists("blueque_orders_video_there_1")


def test_a_listener_beside_us_that_offers_what_we_do_not_is_called(redis, cli, make):
    here, _ = make("here_1"), make("here_2", gpu=1)  # two masters with one spool
    put(redis, "a", 1.0, needs="gpu=1")
    assert woken(here)

    assert here.take() is None
    assert cli.exists("blueque_orders_video_here_2")


def test_several_are_called_for_one_may_be_busy_for_another_queue(redis, cli, make):
    here = make()
    for number in range(5):
        make(f"there{number}_1", gpu=1)
    put(redis, "a", 1.0, needs="gpu=1")
    assert woken(here)

    assert here.take() is None
    assert len(cli.keys("blueque_orders_video_*")) == 3


def test_one_listener_calls_for_the_same_once_in_a_while_only(redis, cli, make, monkeypatch):
    here, _ = make(), make("there_1", gpu=1)

    def find(task):
        put(redis, task, 1.0, needs="gpu=1")
        assert woken(here)
        assert here.take() is None
        return cli.delete("blueque_orders_video_there_1")

    assert [find("a"), find("b")] == [1, 0]
    later = time.monotonic() + 1.5
    monkeypatch.setattr("blueque.listener.peer_wakeup.time.monotonic", lambda: later)
    assert find("c") == 1


def test_of_many_listeners_a_bounded_number_is_asked_what_they_have(redis, cli, make):
    here = make()
    for number in range(200):
        protocol.register(
            redis,
            "video",
            f"n{number}_1",
            f"i{number}",
            {"beat_every": 10, "spool": f"/{number}"},
            1.0,
        )
    put(redis, "a", 1.0, needs="gpu=9")
    assert woken(here)
    before = cli.info("commandstats")["cmdstat_hgetall"]["calls"]

    assert here.take() is None
    assert cli.info("commandstats")["cmdstat_hgetall"]["calls"] - before <= 51


# What was lost with an answer


@pytest.fixture
def lose_the_answer(client, monkeypatch):
    """Have a listener look for work and get no answer to this EXEC of those that it sends."""

    def lose_the_answer(listener, number):
        execute, sent = transaction._execute, []

        def execute_in_vain(*arguments):
            sent.append(1)
            answer = execute(*arguments)
            if len(sent) >= number:
                raise RedisAway("in a test")
            return answer

        with monkeypatch.context() as patch:
            patch.setattr(client.connections, "patience", 0)
            patch.setattr(transaction, "_execute", execute_in_vain)
            with pytest.raises(RedisAway):
                listener.take()

    return lose_the_answer


@pytest.mark.parametrize("lost", ["pop", "reserve"])
def test_a_task_does_not_run_without_what_another_took_while_the_answer_was_lost(
    redis, cli, client, make, lose_the_answer, lost
):
    here, beside, there = make("here_1", gpu=1), make("here_2", gpu=1), make("there_1", gpu=1)
    put(redis, "a", 1.0, needs="gpu=1,lock:x=1")
    lose_the_answer(here, ["pop", "reserve"].index(lost) + 1)
    assert client.get_task("a").status == {"pop": "pending", "reserve": "reserved"}[lost]
    cli.delete("blueque_wake_video")
    taken = beside.reserver.pool.claim({"gpu": 1})

    assert here.take() is None

    assert (
        here.reserver.claim is None
        and cli.lrange("blueque_reserved_tasks_video_here_1", 0, -1) == []
    )
    assert not cli.exists("blueque_lock_x")
    assert woken(there) and there.take().id == "a", "somebody else is told"
    assert taken.numbers == {"gpu": [0]}
    taken.close()


def test_what_was_set_aside_for_a_task_that_cannot_be_reserved_now_is_given_back(
    redis, make, lose_the_answer, monkeypatch
):
    here, beside = make("here_1", gpu=1), make("here_2", gpu=1)
    put(redis, "a", 1.0, needs="gpu=1")
    lose_the_answer(here, 1)

    def be_away(*_, **__):
        raise RedisAway("in a test")

    with monkeypatch.context() as patch:
        patch.setattr(here.reserver, "_reserve", be_away)
        with pytest.raises(RedisAway):
            here.take()

    assert beside.reserver.pool.has({"gpu": 1}) and beside.reserver.pool.free() == {"gpu": 1}
    assert here.take().id == "a" and here.reserver.claim.numbers == {"gpu": [0]}


def test_a_task_whose_handing_back_fails_is_handed_back_the_next_time(
    redis, cli, make, lose_the_answer
):
    here, beside = make("here_1", gpu=1), make("here_2", gpu=1)
    put(redis, "a", 1.0, needs="gpu=1")
    lose_the_answer(here, 2)
    claim = beside.reserver.pool.claim({"gpu": 1})
    release, tried = here.of("video").release, []

    def fail_once(task, reason):
        tried.append((task.id, reason))
        if len(tried) == 1:
            raise RedisAway("in a test")
        return release(task, reason)

    here.of("video").release = fail_once
    with pytest.raises(RedisAway):
        here.take()
    assert here.take() is None
    assert cli.lrange("blueque_line_0,gpu=1_video", 0, -1) == ["a"] and tried == 2 * [
        ("a", "needs_taken")
    ]
    claim.close()
    assert here.take().id == "a" and here.reserver.claim is not None


def test_a_task_in_a_wrong_line_does_not_send_anybody_to_lines_that_come_later(redis, cli, make):
    put(redis, "low", 0.5, priority=-5)
    for number in range(3):
        put(redis, f"gpu {number}", 1.0, needs="gpu=1")
        cli.rpoplpush("blueque_line_0,gpu=1_video", "blueque_pending_tasks_video")
    put(redis, "locked", 1.0, needs="lock:x=1")
    cli.rpoplpush("blueque_line_0,lock:x=1_video", "blueque_pending_tasks_video")
    cli.sadd("blueque_lock_x", "other")
    put(redis, "normal", 2.0)

    assert make().take().id == "normal"
    assert cli.lrange("blueque_line_0,lock:x=1_video", 0, -1) == ["locked"]
    assert cli.llen("blueque_line_0,gpu=1_video") == 3 and cli.exists("blueque_wake_video")


def test_a_listener_puts_no_more_than_a_hundred_tasks_in_their_lines_at_a_time(
    redis, cli, make, monkeypatch
):
    monkeypatch.setattr("blueque.listener.reserver.MOST_MISPLACED", 3)
    put(redis, "low", 0.5, priority=-5)
    for number in range(5):
        put(redis, f"gpu {number}", 1.0, needs="gpu=1")
        cli.rpoplpush("blueque_line_0,gpu=1_video", "blueque_pending_tasks_video")

    assert make().take().id == "low"
    assert cli.llen("blueque_pending_tasks_video") == 2


# Locks, limits and pauses


def test_who_waits_for_a_lock_in_another_queue_is_woken_when_the_attempt_ends(client, make, end):
    ours, theirs = make("here_1"), make("here_2", "audio")
    client.get_queue("video").enqueue("in", lock="licence")
    waits = client.get_queue("audio").enqueue("in", lock="licence")
    task = ours.take()
    assert woken(theirs) and theirs.take() is None
    assert not woken(theirs)

    end(ours, task)

    assert woken(theirs) and theirs.take().id == waits


def test_as_many_hold_a_lock_as_it_allows(queue, make, end):
    for _ in range(4):
        queue.enqueue("in", lock=("licence", 2))
    one, two, three = make("here_1"), make("here_2"), make("here_3")
    first, second = one.take(), two.take()

    assert three.take() is None
    end(one, first)
    assert three.take() is not None and one.take() is None
    end(two, second)
    assert two.take() is not None


def test_no_more_run_than_a_queue_allows_on_all_nodes_together(queue, make, end):
    queue.set_max_concurrency(2)
    for _ in range(4):
        queue.enqueue("in")
    one, two, three = make("here_1"), make("here_2"), make("here_3")
    first, second = one.take(), two.take()
    while woken(three):  # until all that has been said is known
        assert three.take() is None

    end(one, first)
    assert woken(three) and three.take() is not None
    assert one.take() is None
    queue.set_max_concurrency(None)
    assert woken(one) and one.take() is not None
    end(two, second)


def test_what_ran_before_there_was_a_limit_counts_as_well(client, queue, make):
    for _ in range(2):
        queue.enqueue("in")
    one, two = make("here_1"), make("here_2")
    task = one.take()
    client.get_processor(task).start(os.getpid())

    queue.set_max_concurrency(1)

    assert two.take() is None


def test_nothing_is_taken_from_a_paused_queue_until_it_is_resumed(queue, make):
    waits = queue.enqueue("in")
    queue.enqueue("in", priority=5)
    queue.pause(by="ann", reason="the disk is full")
    listener = make()
    assert woken(listener) and listener.take() is None
    assert not woken(listener)

    queue.resume()

    assert woken(listener) and listener.take().id != waits


def test_a_place_that_an_attempt_has_left_behind_is_found_free(cli, queue, make, caplog):
    queue.set_max_concurrency(1)
    queue.enqueue("in", lock="licence")
    cli.hset(
        "blueque_task_left",
        mapping={"status": "complete", "queue": "video", "lock": "licence", "counted": "1"},
    )
    cli.sadd("blueque_counted_tasks_video", "left")
    cli.sadd("blueque_lock_licence", "left")
    listener = make()

    taken = None
    for _ in range(3):  # the queue, the lock, the task
        assert woken(listener)
        taken = listener.take()

    assert taken is not None and cli.smembers("blueque_lock_licence") == {taken.id}
    assert "had no attempt" in caplog.text


def test_a_started_task_that_no_hash_backs_takes_no_place_for_long(
    cli, queue, make, caplog, monkeypatch
):
    queue.set_max_concurrency(2)
    runs, waits = queue.enqueue("in"), queue.enqueue("in")
    legacy = {"status": "started", "queue": "video", "node": "old_1", "pid": "5"}
    cli.hset(f"blueque_task_{runs}", mapping=legacy)  # as one that 1.0.0 runs
    cli.lrem("blueque_pending_tasks_video", 1, runs)
    cli.sadd("blueque_started_tasks_video", f"old_1 5 {runs}", "gone_1 77 nobody")
    listener = make()
    assert woken(listener) and listener.take() is None
    assert cli.scard("blueque_started_tasks_video") == 2, "1.0.0 may be about to start it"

    assert listener.take() is None
    assert cli.scard("blueque_started_tasks_video") == 2, "not before some time has passed"
    monkeypatch.setattr(stale_holders, "LOOK_AT_HOLDERS", 0.0)
    listener.reserver._stale_holders._not_before.clear()
    assert listener.take() is None
    assert cli.smembers("blueque_started_tasks_video") == {f"old_1 5 {runs}"}
    assert woken(listener) and listener.take().id == waits
    assert "had no attempt" in caplog.text


def test_started_tasks_are_left_alone_where_they_are_not_what_fills_the_queue(
    cli, queue, make, monkeypatch
):
    monkeypatch.setattr(stale_holders, "LOOK_AT_HOLDERS", 0.0)
    queue.set_max_concurrency(2)
    for _ in range(3):
        queue.enqueue("in")
    one, two = make("here_1"), make("here_2")
    assert one.take() is not None and two.take() is not None
    cli.sadd("blueque_started_tasks_video", "gone_1 77 nobody")
    three = make("here_3")

    assert [three.take() for _ in range(3)] == [None] * 3
    assert cli.scard("blueque_started_tasks_video") == 1


def test_who_loses_the_race_for_the_last_place_of_a_queue_leaves_its_other_lines_alone(
    cli, queue, make, overtaken
):
    queue.set_max_concurrency(1)
    for number in range(20):
        queue.enqueue("in", lock=f"lock {number}")
    listener = make()
    lists = {key: cli.lrange(key, 0, -1) for key in cli.keys("blueque_line_*")}
    before = cli.info("commandstats").get("cmdstat_rpoplpush", {"calls": 0})["calls"]
    # between the look and the pop
    overtaken(lambda: cli.sadd("blueque_counted_tasks_video", "another"))

    assert listener.take() is None

    assert cli.info("commandstats")["cmdstat_rpoplpush"]["calls"] == before + 1
    assert {key: cli.lrange(key, 0, -1) for key in cli.keys("blueque_line_*")} == lists


def test_a_queue_that_is_paused_while_somebody_looks_is_asked_once_more_only(
    cli, queue, make, monkeypatch
):
    for number in range(20):
        queue.enqueue("in", lock=f"lock {number}")
    listener = make()
    pop, lines = protocol.pop, []

    def pause_and_pop(*arguments):
        lines.append(arguments[-1])
        if len(lines) == 2:
            queue.pause()
        return pop(*arguments)

    monkeypatch.setattr(protocol, "pop", pause_and_pop)
    assert listener.take() is None
    assert len(lines) == 2


def test_who_waits_for_a_lock_in_another_queue_is_woken_when_the_attempt_is_handed_back(
    client, cli, make
):
    ours, theirs = make("here_1"), make("here_2", "audio")
    client.get_queue("video").enqueue("in", lock="licence")
    client.get_queue("audio").enqueue("in", lock="licence")
    task = ours.take()
    assert woken(theirs) and theirs.take() is None

    assert ours.of("video").release(task) == "pending"
    assert woken(theirs)


def test_handing_back_succeeds_even_if_those_who_wait_cannot_be_woken(
    client, make, caplog, monkeypatch
):
    listener = make()
    client.get_queue("video").enqueue("in", lock="licence")
    task = listener.take()
    caplog.set_level("INFO")

    def go_away(*_):
        raise RedisAway("in a test")

    monkeypatch.setattr(protocol, "wake_waiting", go_away)
    assert listener.of("video").release(task) == "pending"
    assert "in a test" in caplog.text


@pytest.mark.parametrize("obstacle", ["lock", "limit", "pause", "resources", "nobody has them"])
def test_a_listener_that_finds_only_what_it_cannot_do_waits_in_peace(cli, queue, make, obstacle):
    listener, other = make(gpu=1), make("here_2", gpu=1)
    needs = {
        "lock": {"lock": "x"},
        "resources": {"resources": {"gpu": 1}},
        "nobody has them": {"resources": {"gpu": 2}},
    }
    if obstacle == "limit":
        queue.set_max_concurrency(1)
    for _ in range(2):
        queue.enqueue("in", **needs.get(obstacle, {}))
    if obstacle == "pause":
        queue.pause()
    elif obstacle != "nobody has them":
        assert other.take() is not None
    assert woken(listener)
    before = cli.info("commandstats").get("cmdstat_bzpopmin", {"calls": 0})["calls"]

    assert listener.take() is None

    assert not woken(listener), "whoever cannot take anything must not wake himself, or another"
    assert cli.info("commandstats")["cmdstat_bzpopmin"]["calls"] == before + 1


def test_one_task_wakes_one_listener_whatever_its_line(queue, make):
    listeners = [make(f"here_{number}") for number in range(3)]
    queue.enqueue("in", priority=5)

    assert [woken(listener) and listener.take() is not None for listener in listeners] == [
        True,
        False,
        False,
    ]


def test_as_many_are_woken_as_there_are_tasks_in_all_lines(queue, make):
    listeners = [make(f"here_{number}") for number in range(4)]
    for priority in (5, 0, -5):
        queue.enqueue("in", priority=priority)

    assert [woken(listener) and listener.take() is not None for listener in listeners] == [
        True,
        True,
        True,
        False,
    ]


# Lines come and go


def test_the_name_of_a_line_goes_with_its_last_task(redis, cli, make):
    put(redis, "a", 1.0, priority=5, needs="lock:x=2")
    put(redis, "b", 2.0, priority=5, needs="lock:x=2")
    listener = make()

    listener.take()
    assert cli.exists("blueque_lines_video") and cli.exists("blueque_waiting_x")
    listener.take()
    assert not cli.exists("blueque_lines_video", "blueque_waiting_x")


def test_the_name_of_a_line_that_was_left_empty_goes_when_somebody_looks(redis, cli, make):
    put(redis, "a", 1.0, needs="lock:x=1")
    cli.delete("blueque_line_0,lock:x=1_video")
    put(redis, "b", 2.0)

    assert make().take().id == "b"
    assert not cli.exists("blueque_lines_video", "blueque_waiting_x")


# Beside 1.0.0


RUN = "ForkingRunner(client, argv[0], getattr(work, argv[1])).run()"


def test_a_listener_of_1_0_0_takes_what_stands_in_the_default_line_and_meets_no_stump(
    legacy, programs, client, cli, queue, make, end
):
    plain = [queue.enqueue(f"plain {number}") for number in range(5)]
    ours = [
        queue.enqueue("urgent", priority=5),
        queue.enqueue("later", priority=-5),
        queue.enqueue("gpu", resources={"gpu": 1}),
        queue.enqueue("lock", lock="licence"),
    ]
    moved = queue.enqueue("was urgent", priority=5)
    queue.set_priority(moved, 0)
    urgent = queue.enqueue("is urgent now")
    queue.set_priority(urgent, 7)
    cancelled = queue.enqueue("cancelled")
    queue.cancel(cancelled)

    its = legacy.start(RUN, "video", "record")
    until(lambda: cli.llen("blueque_complete_tasks_video") == len(plain) + 1, what="its share done")
    listener = make(gpu=1)
    assert take_all(listener, end) == [urgent, *ours[:1], *ours[2:], ours[1]]

    assert [line.task for line in ledger(programs)] == [*plain, moved]
    assert cli.llen("blueque_complete_tasks_video") == len(plain) + 1 + len(ours) + 1
    assert its.is_running and "Traceback" not in its.log
    for task_id in [*plain, *ours, moved, urgent, cancelled]:
        assert client.get_task(task_id).queue == "video"
