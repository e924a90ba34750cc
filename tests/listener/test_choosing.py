"""Which task a listener takes when a queue has several lines; and who is woken, with real listeners
in one process.
"""

from __future__ import annotations

import os

import legacy
import pytest
from legacy import ledger
from reaching_in import execute, execute_by, name_listener
from running import until
from transactions import protocol

from blueque.errors import RedisAway
from blueque.listener import stale_holders
from blueque.listener.processor import Processor
from blueque.listener.resources import Pool
from blueque.model.units import Timing
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
        name_listener(ours, node)
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


def test_nothing_stays_set_aside_for_a_task_that_was_not_to_be_had(redis, cli, make):
    put(redis, "a", 1.0, needs="gpu=1,lock:x=1")
    put(redis, "b", 2.0, needs="gpu=1")
    cli.hset("blueque_task_b", "status", "cancelled")  # as if its id had been left behind
    cli.sadd("blueque_lock_x", "other")
    listener = make(gpu=1)

    assert listener.take() is None
    assert listener.reserver.claim is None and listener.reserver.pool.free() == {"gpu": 1}


def test_a_listener_beside_us_that_offers_what_we_do_not_is_called(redis, cli, make):
    here, _ = make("here_1"), make("here_2", gpu=1)  # two masters with one spool
    put(redis, "a", 1.0, needs="gpu=1")
    assert woken(here)

    assert here.take() is None
    assert cli.exists("blueque_orders_video_here_2")


def test_only_those_are_called_that_have_what_a_task_needs(redis, make):
    here, poor, rich = make("here_1", gpu=1), make("poor_1", gpu=1), make("rich_1", gpu=2)
    for listener in (poor, rich):
        assert listener.take() is None  # it is idle
    put(redis, "a", 1.0, needs="gpu=2")

    assert woken(here) and here.take() is None

    assert woken(rich) and not woken(poor)


def test_nobody_is_woken_by_the_last_task_of_a_line(redis, make):
    here, there = make("here_1"), make("there_1")
    put(redis, "a", 1.0, priority=5)

    assert woken(here) and here.take().id == "a"

    assert not woken(there)


# What was lost with an answer


@pytest.fixture
def lose_the_answer(client, monkeypatch):
    """Have a listener look for work and get no answer to this EXEC of those that it sends."""

    def lose_the_answer(listener, number):
        sent = []

        def execute_in_vain(*arguments):
            sent.append(1)
            answer = execute(*arguments)
            if len(sent) >= number:
                raise RedisAway("in a test")
            return answer

        with monkeypatch.context() as patch:
            patch.setattr(client.connections, "patience", 0)
            execute_by(patch, execute_in_vain)
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

    assert here.reserver.claim is None
    assert cli.lrange("blueque_reserved_tasks_video_here_1", 0, -1) == []
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
    redis, cli, make, lose_the_answer, monkeypatch
):
    here, beside = make("here_1", gpu=1), make("here_2", gpu=1)
    put(redis, "a", 1.0, needs="gpu=1")
    lose_the_answer(here, 2)
    claim = beside.reserver.pool.claim({"gpu": 1})
    release, tried = Processor.release, []

    def fail_once(processor, reason):
        tried.append((processor.task.id, reason))
        if len(tried) == 1:
            raise RedisAway("in a test")
        return release(processor, reason)

    monkeypatch.setattr(Processor, "release", fail_once)
    with pytest.raises(RedisAway):
        here.take()
    assert here.take() is None
    assert cli.lrange("blueque_line_0,gpu=1_video", 0, -1) == ["a"] and tried == 2 * [
        ("a", "needs_taken")
    ]
    claim.close()
    assert here.take().id == "a" and here.reserver.claim is not None


# Locks, limits and pauses


def test_a_started_task_that_no_hash_backs_takes_no_place_for_long(
    cli, queue, make, caplog, monkeypatch
):
    queue.set_settings({"max_running": 2})
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


def test_who_loses_the_race_for_the_last_place_of_a_queue_leaves_its_other_lines_alone(
    cli, queue, make, overtaken
):
    queue.set_settings({"max_running": 1})
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
    assert client.get_processor(task).release() == "pending"
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
        queue.set_settings({"max_running": 1})
    for _ in range(2):
        queue.enqueue("in", **needs.get(obstacle, {}))
    if obstacle == "pause":
        queue.pause()
    elif obstacle != "nobody has them":
        assert other.take() is not None
    assert woken(listener)
    waits = {"calls": 0}
    before = cli.info("commandstats").get("cmdstat_bzpopmin", waits)["calls"]

    assert listener.take() is None

    assert not woken(listener), "whoever cannot take anything must not wake himself, or another"
    # From 7.2 on, Redis does not count a wait in vain.
    waits = cli.info("commandstats").get("cmdstat_bzpopmin", waits)
    assert waits["calls"] in (before, before + 1)


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


def test_a_place_that_an_attempt_has_left_behind_is_found_free(cli, queue, make, caplog):
    queue.set_settings({"max_running": 1})
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


def test_started_tasks_are_left_alone_where_they_are_not_what_fills_the_queue(
    cli, queue, make, monkeypatch
):
    monkeypatch.setattr(stale_holders, "LOOK_AT_HOLDERS", 0.0)
    queue.set_settings({"max_running": 2})
    for _ in range(3):
        queue.enqueue("in")
    one, two = make("here_1"), make("here_2")
    assert one.take() is not None and two.take() is not None
    cli.sadd("blueque_started_tasks_video", "gone_1 77 nobody")
    three = make("here_3")

    assert [three.take() for _ in range(3)] == [None] * 3
    assert cli.scard("blueque_started_tasks_video") == 1
