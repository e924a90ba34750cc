"""blueque.queries.inspector and blueque.queries.listing: what is told of a Redis, and at what
price.
"""

from __future__ import annotations

import time

import pytest
from transactions import protocol

from blueque import Client
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.queue_settings import pausing
from blueque.protocol.ends import End
from blueque.queries.groups_overview import Groups
from blueque.queries.inspector import Inspector
from blueque.queries.listing import STATUSES
from blueque.queries.queue_overview import Counts, Due, Failures, QueueOverview, Waiting

NODE = "gpu-1.example.com_4021"

ONE, TWO = (f"abcd000{n}-0000-4000-8000-000000000000" for n in (1, 2))


@pytest.fixture
def inspector(redis):
    return Inspector(redis)


def register(redis, queue="video", node=NODE, beat_every=10, now=None, **facts):
    protocol.register(
        redis, queue, node, f"i-{node}", {"beat_every": beat_every, **facts}, now or time.time()
    )


def enqueue(redis, task, queue="video", now=1000.0):
    protocol.enqueue(redis, queue, task, "{}", now, {"parameters_encoding": "json"})


def reserve(redis, task, queue="video", node=NODE, now=2000.0):
    enqueue(redis, task, queue)
    protocol.pop(redis, queue, node, f"i-{node}")
    assert protocol.reserve(redis, AttemptRef(queue, task, f"token-{task}", node), f"i-{node}", now)


def start(redis, task, queue="video", node=NODE, now=3000.0):
    reserve(redis, task, queue, node)
    protocol.start(redis, AttemptRef(queue, task, f"token-{task}", node), 77, now)


def complete(redis, task, queue="video", now=4000.0):
    start(redis, task, queue)
    protocol.end(redis, AttemptRef(queue, task, f"token-{task}", NODE), End.complete("out"), now)


def fail(redis, task, queue="video", now=4000.0):
    start(redis, task, queue)
    protocol.end(redis, AttemptRef(queue, task, f"token-{task}", NODE), End.fail("why"), now)


def fail_as(redis, task, error_type, now):
    start(redis, task)
    protocol.end(
        redis,
        AttemptRef("video", task, f"token-{task}", NODE),
        End.fail("why", {"error_type": error_type}),
        now,
    )


def listed(inspector, *statuses, queues=("video",), limit=50):
    return [task.id for task in inspector.listing(queues, statuses, limit).tasks]


def states(inspector):
    return {node.id: node.state for node in inspector.overview().nodes}


def test_the_overview_counts_each_status(redis, inspector):
    register(redis)
    reserve(redis, "reserved")
    start(redis, "started")
    for n in range(3):
        complete(redis, f"complete{n}")
    for n in range(2):
        fail(redis, f"failed{n}")
    protocol.schedule(
        redis, "video", "scheduled", "{}", 9e9, 1000.0, {"parameters_encoding": "json"}
    )
    for n in range(4):
        enqueue(redis, f"pending{n}")
    for n in range(5):
        enqueue(redis, f"cancelled{n}")
        protocol.cancel(redis, "video", f"cancelled{n}", "ada", None, 4000.0)

    (line,) = inspector.overview().lines

    assert line._replace(waiting=line.waiting._replace(oldest_for=None)) == QueueOverview(
        "video",
        Counts(scheduled=1, pending=4, reserved=1, started=1, complete=3, failed=2, cancelled=5),
        waiting=Waiting("pending0", runnable=4),
        due=Due(is_minded=True),
        failures=Failures(looked_at=2),
        listeners=1,
        running=1,
    )


def test_the_overview_of_an_empty_redis_is_empty(inspector):
    overview = inspector.overview()

    assert overview._replace(server=None)[1:] == (
        *([], [], [], [], None, {}, {}, {}, {}),
        Groups(),
        [],
    )


@pytest.mark.parametrize("queues", [1, 20])  # with more the proxy reads the longest request in two
def test_the_overview_takes_six_round_trips_whatever_the_number_of_queues(redis, proxy, queues):
    for n in range(queues):
        register(redis, f"q{n}")
        start(redis, f"task{n}", f"q{n}")
        enqueue(redis, f"next{n}", f"q{n}")
    client = Client(proxy.url)

    overview = client.get_inspector().overview()

    assert (len(overview.lines), len(overview.running), proxy.writes) == (queues, queues, 6)


def test_the_overview_counts_all_lines_and_tells_a_pause_a_limit_and_what_fits_nobody(
    redis, inspector
):
    register(redis)
    enqueue(redis, "plain")
    protocol.enqueue(
        redis, "video", "urgent", "{}", 900.0, {"parameters_encoding": "json", "priority": 5}
    )
    protocol.enqueue(
        redis,
        "video",
        "heavy",
        "{}",
        1000.0,
        {"parameters_encoding": "json", "priority": 5, "needs": "gpu=2,lock:a=1"},
    )
    protocol.set_settings(redis, "video", {"max_concurrency": "7"}, 1.0)
    protocol.set_settings(redis, "video", pausing("ada", "deploy", 3000.0), 3000.0, "ada")

    overview = inspector.overview()

    (line,) = overview.lines
    assert (line.counts.pending, line.settings.pause, line.settings.max_concurrency) == (
        3,
        (3000.0, "ada", "deploy"),
        7,
    )
    assert line.waiting.oldest_for == pytest.approx(overview.now - 900.0)
    assert line.waiting.misfits == (("5,gpu=2,lock:a=1", 1, "gpu=2", "heavy"),)


def test_runnable_are_the_pending_tasks_that_could_start_now(redis, inspector):
    def runnable():
        return inspector.overview().lines[0].waiting.runnable

    register(redis)
    start(redis, "busy")
    start(redis, "busier")
    enqueue(redis, "plain")
    protocol.enqueue(
        redis, "video", "urgent", "{}", 900.0, {"parameters_encoding": "json", "priority": 5}
    )
    assert runnable() == 2
    protocol.enqueue(
        redis, "video", "heavy", "{}", 1000.0, {"parameters_encoding": "json", "needs": "gpu=2"}
    )
    assert runnable() == 2  # no listener has a GPU
    for n in range(4):
        protocol.enqueue(
            redis,
            "video",
            f"licensed{n}",
            "{}",
            1000.0,
            {"parameters_encoding": "json", "needs": "lock:licence=3"},
        )
    assert runnable() == 2 + 3
    redis.read(("SADD", keys.lock("licence"), "a", "b"))
    assert runnable() == 2 + 1
    protocol.set_settings(redis, "video", {"max_concurrency": "4"}, 1.0)
    assert runnable() == 2
    protocol.set_settings(redis, "video", {"max_concurrency": "1"}, 1.0)  # two run
    assert runnable() == 0
    protocol.set_settings(redis, "video", {"max_concurrency": None}, 1.0)
    assert runnable() == 3
    redis.read(("SADD", keys.lock("licence"), "c", "d"))  # more than the places of these tasks
    assert runnable() == 2
    protocol.set_settings(redis, "video", pausing("ada", "deploy", 3000.0), 3000.0, "ada")
    assert runnable() == 0


def test_a_line_that_a_listener_of_the_queue_can_run_is_no_misfit(redis, inspector):
    register(redis)
    protocol.register(
        redis, "video", "gpu_1", "i9", {"beat_every": 10, "resources": "gpu=2"}, time.time()
    )
    protocol.enqueue(
        redis, "video", "heavy", "{}", 1000.0, {"parameters_encoding": "json", "needs": "gpu=2"}
    )

    assert inspector.overview().lines[0].waiting.misfits == ()


def test_the_age_of_the_next_in_line_is_counted_from_the_time_of_redis(redis, inspector):
    enqueue(redis, "first", now=inspector.now() - 3600)
    enqueue(redis, "second", now=inspector.now() - 60)

    (line,) = inspector.overview().lines

    assert line.waiting.oldest_for == pytest.approx(3600, abs=10)


def test_a_promoted_task_has_been_pending_since_it_was_due_only(redis, inspector):
    now = inspector.now()
    protocol.schedule(
        redis, "video", "t1", "{}", now - 90, now - 7200, {"parameters_encoding": "json"}
    )
    protocol.enqueue_due(redis, "video", now - 60)

    (line,) = inspector.overview().lines

    assert line.waiting.oldest_for == pytest.approx(90, abs=10)


def test_an_age_is_never_negative_when_a_producers_clock_is_ahead(redis, inspector):
    enqueue(redis, "t1", now=inspector.now() + 3600)

    (line,) = inspector.overview().lines

    assert line.waiting.oldest_for == 0.0


def test_what_the_hash_does_not_confirm_is_not_counted_as_running(redis, cli, inspector):
    register(redis)
    start(redis, "real")
    cli.sadd("blueque_started_tasks_video", "junk", f"{NODE} 78 deleted", "a b c d")

    overview = inspector.overview()

    assert ([task.id for task in overview.running], overview.lines[0].counts.started) == (
        ["real"],
        1,
    )


def test_scheduled_tasks_are_overdue_a_minute_after_their_time_and_without_listener_ten_seconds(
    redis, inspector
):
    protocol.register(redis, "video", NODE, "i1", {"beat_every": 10}, time.time())
    now = inspector.now()
    for task, eta in (("t1", now - 300), ("t2", now - 70), ("t3", now - 50), ("t4", now + 50)):
        protocol.schedule(
            redis, "video", task, "{}", eta, now - 400, {"parameters_encoding": "json"}
        )

    (line,) = inspector.overview().lines
    protocol.deregister(redis, "video", NODE, "i1")
    (alone,) = inspector.overview().lines

    assert (line.due.overdue, line.due.overdue_for, line.due.is_minded) == (
        2,
        pytest.approx(300, abs=10),
        True,
    )
    assert (alone.due.overdue, alone.due.is_minded) == (3, False)


def test_tasks_that_were_lost_within_a_day_are_named_and_poison_apart(redis, inspector):
    register(redis)
    now = inspector.now()
    failed = {
        "old": ("lost", 86500),
        "lost": ("lost", 86300),
        "poison": ("poison", 5),
        "x": ("exit", 5),
    }
    for task, (error_type, age) in failed.items():
        fail_as(redis, task, error_type, now - age)

    (line,) = inspector.overview().lines

    assert (line.failures.lost, line.failures.poison) == (("lost",), ("poison",))


def test_no_more_than_the_newest_hundred_failed_tasks_are_looked_at_for_those_that_were_lost(
    redis, inspector
):
    register(redis)
    now = inspector.now()
    fail_as(redis, "lost first", "lost", now)
    for n in range(100):
        fail_as(redis, f"lost{n}", "lost", now)

    (line,) = inspector.overview().lines

    assert (len(line.failures.lost), "lost first" in line.failures.lost) == (100, False)


def test_running_tasks_come_longest_first_and_without_their_parameters(redis, inspector):
    register(redis)
    start(redis, "short", now=3500.0)
    start(redis, "long", now=3000.0)

    running = inspector.overview().running

    assert [(task.id, task.parameters) for task in running] == [("long", None), ("short", None)]


def test_a_listener_is_up_while_it_beats_and_silent_after_the_lease(redis, inspector):
    register(redis, node="a_1")
    register(redis, node="b_1", now=time.time() - 61)

    assert states(inspector) == {"a_1": "up", "b_1": "silent"}


def test_a_listener_is_silent_by_its_own_lease(redis, inspector):
    register(redis, node="a_1", now=time.time() - 100, lease=600)
    register(redis, node="b_1", now=time.time() - 30, lease=9.5)
    register(redis, node="c_1", now=time.time() - 30, lease="soon")

    assert states(inspector) == {"a_1": "up", "b_1": "silent", "c_1": "up"}


def test_a_listener_that_was_told_to_drain_is_draining_while_it_beats(redis, inspector):
    register(redis, node="a_1")
    register(redis, node="b_1", now=time.time() - 61)
    for node in ("a_1", "b_1"):
        protocol.order(redis, "video", node, "drain", "ada")

    draining, silent = inspector.overview().nodes

    assert (draining.state, draining.order, draining.order_by) == ("draining", "drain", "ada")
    assert (silent.state, silent.order) == ("silent", "drain")


def test_a_listener_that_was_found_dead_is_dead(redis, inspector):
    register(redis, node="a_1")
    protocol.fence(redis, "video", "a_1", "i-a_1", "0", 9.25)

    assert states(inspector) == {"a_1": "dead"}


def test_a_listener_that_nobody_beats_for_is_unattended_however_old(redis, inspector):
    register(redis, node="a_1", beat_every=0, now=1000.0)

    assert states(inspector) == {"a_1": "unattended"}


def test_a_listener_of_1_0_0_is_told_as_such(redis, cli, inspector):
    enqueue(redis, "t1")
    cli.sadd("blueque_listeners_video", "old_1")

    (node,) = inspector.overview().nodes

    assert node[:9] == ("old_1", "video", "1.0.0", None, (), None, None, None, None)


def test_a_listener_that_is_registered_nowhere_but_runs_a_task_is_gone(redis, cli, inspector):
    register(redis)
    start(redis, "t1")
    cli.delete(f"blueque_listener_video_{NODE}", "blueque_listeners_video", "blueque_nodes_video")

    (node,) = inspector.overview().nodes

    assert node[:9] == (NODE, "video", "gone", None, ("t1",), None, None, None, None)


@pytest.mark.parametrize("queues", [1, 60])
def test_the_listeners_of_all_queues_take_three_round_trips(redis, proxy, queues):
    for n in range(queues):
        register(redis, f"q{n:02}", boot="b1")

    nodes = Client(proxy.url).get_inspector().nodes()

    assert ([node.queue for node in nodes], proxy.writes) == (
        [f"q{n:02}" for n in range(queues)],
        3,
    )
    assert {(node.id, node.host, node.state, node.boot) for node in nodes} == {
        (NODE, "gpu-1.example.com", "up", "b1")
    }


def test_many_tasks_are_looked_at_in_the_order_of_their_ids_and_without_their_parameters(
    redis, inspector
):
    for n in range(1200):
        enqueue(redis, f"t{n}")
    ids = [f"t{n}" for n in reversed(range(1200))]

    tasks = inspector.tasks([*ids, "none"])

    assert [task.id for task in tasks] == [*ids, "none"]
    assert [(tasks[0].status, tasks[0].parameters), tasks[-1].status] == [("pending", None), None]


def test_a_listing_puts_what_runs_longest_first_and_what_finished_last_first(redis, inspector):
    register(redis)
    complete(redis, "c1", now=4000.0)
    complete(redis, "c2", now=5000.0)
    start(redis, "s2", now=3100.0)
    start(redis, "s1", now=3000.0)
    enqueue(redis, "p1", now=1000.0)
    enqueue(redis, "p2", now=1001.0)

    assert listed(inspector, "complete", "started", "pending") == [
        "s1",
        "s2",
        "p1",
        "p2",
        "c2",
        "c1",
    ]


def test_cancelled_tasks_are_listed_when_asked_for_the_newest_first(redis, inspector):
    register(redis)
    complete(redis, "c1")
    fail(redis, "f1")
    for n in range(3):
        enqueue(redis, f"x{n}")
        protocol.cancel(redis, "video", f"x{n}", "ada", None, 5000.0 + n)

    assert listed(inspector, "complete", "cancelled", "failed") == ["f1", "x2", "x1", "x0", "c1"]
    assert listed(inspector, "complete", "failed") == ["f1", "c1"]


def test_tasks_of_one_bulk_are_listed_in_the_order_in_which_they_will_run(redis, inspector):
    for n in (3, 1, 2):
        enqueue(redis, f"t{n}", now=1000.0)

    assert listed(inspector, "pending") == ["t3", "t1", "t2"]


def test_pending_tasks_are_listed_in_the_order_of_their_turns(redis, inspector):
    def add(task, created, **options):
        protocol.enqueue(
            redis, "video", task, "{}", created, {"parameters_encoding": "json", **(options)}
        )

    for number, created in enumerate((10.0, 30.0, 50.0)):
        add(f"plain{number}", created)
    add("low", 1.0, priority=-5)
    add("high", 60.0, priority=5)
    add("needy0", 20.0, needs="gpu=1")
    add("needy1", 40.0, needs="gpu=1")
    protocol.place(redis, "video", "plain2", 70.0, is_first=True)

    assert listed(inspector, "pending") == [
        "high",
        "needy0",
        "needy1",
        "plain2",
        "plain0",
        "plain1",
        "low",
    ]
    assert listed(inspector, "pending", limit=2) == ["high", "needy0"]


def test_a_task_in_another_line_is_found_by_the_beginning_of_its_id(redis, cli, inspector):
    protocol.enqueue(redis, "video", ONE, "{}", 1.0, {"parameters_encoding": "json", "priority": 5})
    cli.delete(keys.tasks("video"))

    assert inspector.find("abcd") == [ONE]


def test_scheduled_tasks_are_listed_by_when_they_are_due(redis, inspector):
    protocol.schedule(redis, "video", "later", "{}", 9e9, 1000.0, {"parameters_encoding": "json"})
    protocol.schedule(redis, "audio", "sooner", "{}", 8e9, 1000.0, {"parameters_encoding": "json"})

    assert listed(inspector, "scheduled", queues=("audio", "video")) == ["sooner", "later"]


def test_a_listing_ends_at_its_limit_with_the_next_in_line_and_says_that_there_is_more(
    redis, inspector
):
    for n in range(5):
        enqueue(redis, f"t{n}", now=1000.0 + n)

    listing = inspector.listing(["video"], ["pending"], 2)

    assert ([task.id for task in listing.tasks], listing.has_more) == (["t0", "t1"], True)


def test_a_listing_that_shows_everything_says_so(redis, inspector):
    enqueue(redis, "t0")
    enqueue(redis, "t1")

    assert not inspector.listing(["video"], ["pending"], 2).has_more


def test_a_listing_leaves_out_hints_without_a_task_and_other_queues(redis, cli, inspector):
    enqueue(redis, "t0")
    enqueue(redis, "other", "audio")
    cli.lpush("blueque_pending_tasks_video", "deleted", "other")

    assert listed(inspector, "pending") == ["t0"]


def test_a_pending_task_in_the_list_of_a_dead_listener_is_listed(redis, inspector):
    register(redis)
    enqueue(redis, "t0")
    protocol.pop(redis, "video", NODE, f"i-{NODE}")

    assert listed(inspector, "pending") == ["t0"]


def test_a_started_task_is_not_listed_as_reserved_though_its_listener_holds_it(redis, inspector):
    register(redis)
    start(redis, "s")
    reserve(redis, "r")

    assert listed(inspector, "reserved") == ["r"]


@pytest.mark.parametrize("queues", [1, 60])
def test_a_listing_takes_three_round_trips(redis, proxy, queues):
    for n in range(queues):
        register(redis, f"q{n}")
        start(redis, f"t{n}", f"q{n}")
    inspector = Client(proxy.url).get_inspector()

    inspector.listing([f"q{n}" for n in range(queues)], ["started", "reserved", "pending"], 50)

    assert proxy.writes == 3


def test_a_task_is_found_by_the_beginning_of_its_id(redis, inspector):
    enqueue(redis, ONE)
    enqueue(redis, "abce0002-0000-4000-8000-000000000000")

    assert inspector.find("abcd") == [ONE]


def test_all_tasks_that_begin_so_are_found(redis, inspector):
    enqueue(redis, TWO)
    enqueue(redis, ONE, "audio")

    assert inspector.find("abcd") == [ONE, TWO]


def test_no_more_than_twenty_are_found(redis, inspector):
    for n in range(30):
        enqueue(redis, f"abcd{n:04}-0000-4000-8000-000000000000")

    assert len(inspector.find("abcd")) == 20


def test_a_whole_id_is_found_however_short_and_though_others_begin_with_it(redis, inspector):
    enqueue(redis, "abcd")
    enqueue(redis, ONE)
    enqueue(redis, "x")

    assert (inspector.find("abcd"), inspector.find("x")) == (["abcd"], ["x"])


def test_a_beginning_of_three_characters_finds_nothing(redis, inspector):
    enqueue(redis, ONE)

    assert inspector.find("abc") == []


@pytest.mark.parametrize(
    "place", ["pending", "scheduled", "complete", "failed", "cancelled", "started", "reserved"]
)
def test_what_1_0_0_has_made_and_no_index_names_is_found(redis, cli, inspector, place):
    cli.zadd("blueque_queues", {"video": 1})
    cli.hset(f"blueque_task_{ONE}", mapping={"status": place, "queue": "video"})
    match place:
        case "scheduled":
            cli.zadd("blueque_scheduled_tasks_video", {ONE: 9e9})
        case "started":
            cli.sadd("blueque_started_tasks_video", f"old_1 77 {ONE}")
        case "reserved":
            cli.sadd("blueque_listeners_video", "old_1")
            cli.lpush("blueque_reserved_tasks_video_old_1", ONE)
        case _:
            cli.lpush(f"blueque_{place}_tasks_video", ONE)

    assert inspector.find("abcd") == [ONE]


def test_a_task_that_1_0_0_has_deleted_is_not_found_though_the_index_names_it(
    redis, cli, inspector
):
    enqueue(redis, ONE)
    cli.delete(f"blueque_task_{ONE}")

    assert inspector.find("abcd") == []


def test_a_task_in_the_last_of_many_queues_is_found(redis, inspector):
    for n in range(45):
        enqueue(redis, f"abcd{n:04}-0000-4000-8000-000000000000", f"q{n:02}")

    assert inspector.find("abcd0044") == ["abcd0044-0000-4000-8000-000000000000"]


@pytest.mark.parametrize(
    "gone", ["order-1", "order", "4711-", "ABCD", "abcd0001-00000", "abcd-000"]
)
def test_an_id_that_its_producer_has_chosen_is_found_whole_only(redis, inspector, gone):
    for task in ("order-10", "4711-5", "abcd-0001", ONE):
        enqueue(redis, task)

    assert inspector.find(gone) == []
    assert inspector.find("order-10") == ["order-10"]
    assert inspector.find(ONE[:14]) == [ONE]


@pytest.mark.parametrize(
    "command",
    [
        ("RPUSH", keys.pending("busy"), "t1"),
        ("ZADD", keys.scheduled("busy"), 9e9, "t1"),
        ("ZADD", keys.blocked("busy"), 1000, "t1"),
        ("SADD", keys.started("busy"), f"{NODE} 77 t1"),
        ("RPUSH", keys.failed("busy"), "t1"),
        ("RPUSH", keys.cancelled("busy"), "t1"),
        ("SADD", keys.listeners("busy"), "old.example.com_1"),
        ("HSET", keys.settings("busy"), "paused", 1000),
        ("SADD", keys.counted("busy"), "t1"),
    ],
    ids=lambda command: command[1],
)
def test_a_queue_with_nothing_but_complete_tasks_is_quiet(redis, inspector, cli, command):
    cli.zadd(keys.QUEUES, {"busy": 0, "done": 0, "": 0, "\u00fc": 0})
    cli.rpush(keys.complete("done"), "t8", "t9")
    cli.execute_command(*command)

    lines = inspector.overview().lines

    assert [(line.queue, line.counts.complete, line.is_quiet) for line in lines] == [
        ("", 0, True),
        ("busy", 0, False),
        ("done", 2, True),
        ("\u00fc", 0, True),
    ]


def test_looking_changes_nothing(redis, inspector, state):
    register(redis)
    fail(redis, "abcd-1")
    start(redis, "abcd-2")
    enqueue(redis, "abcd-3")
    enqueue(redis, "abcd-4")
    protocol.cancel(redis, "video", "abcd-4", "ada", None, 4000.0)
    before = state()

    inspector.overview()
    inspector.listing(["video", "none"], STATUSES, 10)
    inspector.find("abcd")
    inspector.nodes()
    inspector.tasks(["abcd-1", "none"])
    inspector.failed("video")

    assert state() == before
