"""blueque.protocol.submit against a real Redis; the whole state is compared, so that leftovers fail
too.
"""

from __future__ import annotations

import pytest
from transactions import protocol

from blueque import WrongState
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End
from blueque.protocol.fields import flat


def finish(redis, task, status):
    """Bring a pending task to its end, on a listener that comes and goes."""
    protocol.register(redis, "video", "host_1", "i1", {}, now=6.5)
    protocol.pop(redis, "video", "host_1", "i1")
    protocol.reserve(redis, AttemptRef("video", task, "token", "host_1"), "i1", now=7.5)
    if status == "complete":
        protocol.start(redis, AttemptRef("video", task, "token", "host_1"), 77, now=8.5)
        protocol.end(redis, AttemptRef("video", task, "token", "host_1"), End.complete("out"), 9.5)
    elif status == "cancelled":
        protocol.cancel(redis, "video", task, "ann", None, now=9.5)
    else:
        protocol.end(redis, AttemptRef("video", task, "token", "host_1"), End.fail("why"), 9.5)
    protocol.deregister(redis, "video", "host_1", "i1")


def line(cli):
    """Return the ids in line, the one that runs next first."""
    return cli.lrange("blueque_pending_tasks_video", 0, -1)[::-1]


def test_tasks_stand_in_line_in_the_order_in_which_they_came(redis, cli):
    for task in ("t1", "t2", "t3"):
        protocol.enqueue(redis, "video", task, "in", now=5.5)

    assert line(cli) == ["t1", "t2", "t3"]


def test_a_task_enqueued_under_a_spare_id_is_like_any_other(redis, cli, state):
    protocol.enqueue(redis, "video", "t1", "in", now=5.5)
    expected = state()
    cli.flushall()

    protocol.enqueue(redis, "video", "t0", "in", now=4.5, spare="t1")
    assert redis.look_ahead.task == "t1"
    protocol.enqueue(redis, "video", "t1", "in", now=5.5, spare="t2", is_drawn=True)

    assert line(cli) == ["t0", "t1"]
    assert cli.hgetall("blueque_task_t1") == expected["blueque_task_t1"]
    assert "blueque_task_t2" not in state()


@pytest.mark.parametrize("is_drawn", [False, True])
def test_a_spare_id_that_somebody_takes_meanwhile_is_left_to_them(redis, cli, state, is_drawn):
    protocol.enqueue(redis, "video", "t1", "in", now=5.5, spare="t2")
    cli.hset("blueque_task_t2", "status", "theirs")
    before = state()

    assert protocol.enqueue(redis, "video", "t2", "in", now=6.5, is_drawn=is_drawn) is False
    assert state() == before


def test_names_and_texts_that_would_spoil_a_template_arrive_as_they_are(redis, cli):
    queue, task, text = 'a 100 %b "\r\n$5', "t\udcff%d", "%(name)s %% \x00"
    line = "5,gpu=1,lock:50%25=1"
    options = {"key": "%s é", "priority": 5, "needs": "gpu=1,lock:50%25=1", "time_limit": 0.5}

    for name in (task, "%s"):
        protocol.enqueue(redis, queue, name, text, now=5.5, options=options)

    assert redis.read(
        ("HGETALL", keys.task(task)),
        ("LRANGE", keys.line(queue, line), 0, -1),
        ("ZRANGE", keys.tasks(queue), 0, -1, "WITHSCORES"),
        ("ZRANGE", keys.lines(queue), 0, -1, "WITHSCORES"),
        ("SMEMBERS", keys.waiting("50%")),
        ("ZRANGE", keys.QUEUES, 0, -1),
    ) == [
        flat(
            {"status": "pending", "queue": queue, "parameters": text}
            | {"created": "5.5", "updated": "5.5"}
            | {"key": "%s é", "priority": "5", "needs": options["needs"], "time_limit": "0.5"}
        ),
        ["%s", task],
        ["%s", "5.5", task, "5.5"],
        [line, "5"],
        [f"{line}_{queue}"],
        [queue],
    ]


def test_a_spare_id_left_aside_does_not_disturb_another_transaction(redis, cli):
    protocol.enqueue(redis, "video", "t1", "in", now=5.5, spare="t2")

    assert protocol.schedule(redis, "video", "t3", "in", eta=9.5, now=6.5) is True
    assert redis.look_ahead is None
    cli.set("blueque_task_t2", "changed")
    assert redis.connection().exchange([("MULTI",), ("PING",), ("EXEC",)])[-1] == ["PONG"], (
        "it is still being watched"
    )


def test_of_the_due_tasks_the_earliest_runs_first_and_after_those_that_wait_already(redis, cli):
    protocol.enqueue(redis, "video", "old", "in", now=5.5)
    for task, eta in (("late", 9.5), ("early", 7.5), ("middle", 8.5), ("future", 10.5)):
        protocol.schedule(redis, "video", task, "in", eta=eta, now=5.5)

    assert protocol.enqueue_due(redis, "video", now=10) == ["early", "middle", "late"]
    assert line(cli) == ["old", "early", "middle", "late"]


def test_more_due_tasks_than_the_limit_take_several_calls_and_keep_their_order(redis, cli):
    tasks = [f"t{number:03}" for number in range(205)]
    for number, task in enumerate(tasks):
        protocol.schedule(redis, "video", task, "in", eta=number + 0.5, now=0.0)

    counts = [len(protocol.enqueue_due(redis, "video", now=1000.0) or []) for _ in range(4)]

    assert counts == [100, 100, 5, 0]
    assert line(cli) == tasks


def test_enqueue_due_leaves_a_task_that_was_moved_to_the_queue_in_which_it_is_scheduled(
    redis, cli, state
):
    protocol.schedule(redis, "video", "t1", "{}", eta=9.5, now=5.5)
    protocol.place(redis, "video", "t1", 6.5, to="audio")
    cli.zadd("blueque_scheduled_tasks_video", {"t1": 9.5})  # by whatever else writes there

    assert protocol.enqueue_due(redis, "video", now=9.5) == []
    assert (state()["blueque_task_t1"]["status"], line(cli)) == ("scheduled", [])
    assert protocol.enqueue_due(redis, "audio", now=9.5) == ["t1"]


def test_enqueue_due_drops_the_entry_of_a_task_that_is_no_longer_scheduled(redis, cli, state):
    protocol.enqueue(redis, "video", "t1", "in", now=5.5)
    before = state()
    cli.zadd("blueque_scheduled_tasks_video", {"t1": 9.5})

    assert protocol.enqueue_due(redis, "video", now=9.5) == []
    assert state() == before


def test_delete_takes_the_entry_nearest_the_tail_and_leaves_the_other_tasks_alone(redis, cli):
    for task in ("t1", "t2", "t3"):
        protocol.enqueue(redis, "video", task, "in", now=5.5)
        finish(redis, task, "complete")
    cli.lpush("blueque_complete_tasks_video", "t2")  # as 1.0.0 does when it completes twice

    protocol.delete(redis, "video", "t2")

    assert cli.lrange("blueque_complete_tasks_video", 0, -1) == ["t2", "t3", "t1"]
    assert cli.zrange("blueque_tasks_video", 0, -1) == ["t1", "t3"]


@pytest.mark.parametrize("status", ["scheduled", "pending", "reserved", "started", "waiting"])
def test_delete_refuses_a_task_that_is_not_finished_and_writes_nothing(redis, cli, state, status):
    protocol.enqueue(redis, "video", "t1", "in", now=5.5)
    cli.hset("blueque_task_t1", "status", status)
    before = state()

    with pytest.raises(WrongState, match=status) as refusal:
        protocol.delete(redis, "video", "t1")

    assert (refusal.value.task_id, refusal.value.status) == ("t1", status)
    assert state() == before


def test_delete_removes_the_stump_that_an_older_version_makes_of_a_deleted_task(redis, cli, state):
    cli.hset("blueque_task_t1", mapping={"status": "complete", "result": "out", "updated": "5.5"})
    cli.lpush("blueque_complete_tasks_video", "t1")

    assert protocol.delete(redis, "video", "t1") is True
    assert state() == {}
