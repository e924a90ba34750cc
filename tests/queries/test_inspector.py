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
from blueque.queries.inspector import Inspector
from blueque.queries.listing import STATUSES

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


@pytest.mark.parametrize("queues", [1, 20])  # with more the proxy reads the longest request in two
def test_the_overview_takes_six_round_trips_whatever_the_number_of_queues(redis, proxy, queues):
    for n in range(queues):
        register(redis, f"q{n}")
        start(redis, f"task{n}", f"q{n}")
        enqueue(redis, f"next{n}", f"q{n}")
    client = Client(proxy.url)

    overview = client.get_inspector().overview()

    assert (len(overview.lines), len(overview.running), proxy.writes) == (queues, queues, 6)


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
    protocol.set_settings(redis, "video", {"max_running": "4"}, 1.0)
    assert runnable() == 2
    protocol.set_settings(redis, "video", {"max_running": "1"}, 1.0)  # two run
    assert runnable() == 0
    protocol.set_settings(redis, "video", {"max_running": None}, 1.0)
    assert runnable() == 3
    redis.read(("SADD", keys.lock("licence"), "c", "d"))  # more than the places of these tasks
    assert runnable() == 2
    protocol.set_settings(redis, "video", pausing("ada", "deploy", 3000.0), 3000.0, "ada")
    assert runnable() == 0


def test_a_promoted_task_has_been_pending_since_it_was_due_only(redis, inspector):
    now = inspector.now()
    protocol.schedule(
        redis, "video", "t1", "{}", now - 90, now - 7200, {"parameters_encoding": "json"}
    )
    protocol.enqueue_due(redis, "video", now - 60)

    (line,) = inspector.overview().lines

    assert line.waiting.oldest_for == pytest.approx(90, abs=10)


def test_what_the_hash_does_not_confirm_is_not_counted_as_running(redis, cli, inspector):
    register(redis)
    start(redis, "real")
    cli.sadd("blueque_started_tasks_video", "junk", f"{NODE} 78 deleted", "a b c d")

    overview = inspector.overview()

    assert [task.id for task in overview.running] == ["real"]
    assert overview.lines[0].counts.started == 1


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


def test_a_listener_is_silent_by_its_own_lease(redis, inspector):
    register(redis, node="a_1", now=time.time() - 100, lease=600)
    register(redis, node="b_1", now=time.time() - 30, lease=9.5)
    register(redis, node="c_1", now=time.time() - 30, lease="soon")

    assert states(inspector) == {"a_1": "up", "b_1": "silent", "c_1": "up"}


def test_a_listener_that_was_found_dead_is_dead(redis, inspector):
    register(redis, node="a_1")
    protocol.fence(redis, "video", "a_1", "i-a_1", "0", 9.25)

    assert states(inspector) == {"a_1": "dead"}


def test_a_listener_of_1_0_0_is_told_as_such(redis, cli, inspector):
    enqueue(redis, "t1")
    cli.sadd("blueque_listeners_video", "old_1")

    (node,) = inspector.overview().nodes

    assert node[:9] == ("old_1", "video", "1.0.0", None, (), None, None, None, None)


@pytest.mark.parametrize("queues", [1, 60])
def test_the_listeners_of_all_queues_take_three_round_trips(redis, proxy, queues):
    for n in range(queues):
        register(redis, f"q{n:02}", boot="b1")

    nodes = Client(proxy.url).get_inspector().nodes()

    assert [node.queue for node in nodes] == [f"q{n:02}" for n in range(queues)]
    assert proxy.writes == 3
    assert {(node.id, node.host, node.state, node.boot) for node in nodes} == {
        (NODE, "gpu-1.example.com", "up", "b1")
    }


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


def test_a_pending_task_in_the_list_of_a_dead_listener_is_listed(redis, inspector):
    register(redis)
    enqueue(redis, "t0")
    protocol.pop(redis, "video", NODE, f"i-{NODE}")

    assert listed(inspector, "pending") == ["t0"]


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

    assert state() == before
