"""blueque.protocol.attempts against a real Redis; the whole state is compared, so that leftovers
fail too.
"""

from __future__ import annotations

import pytest
from transactions import protocol

from blueque import NotOwner, NotRegistered
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End
from blueque.protocol.recover import Loss

NODE = "host_1"
FACTS = {
    "error",
    "error_type",
    "traceback",
    "exit_code",
    "signal",
    "memory_peak",
    "cpu_seconds",
    "leaked",
    "lost_node",
    "last_seen",
}
BORN = {
    "queue": "video",
    "parameters": "in",
    "created": "5.5",
    "attempt": "1",
    "node": NODE,
    "token": "token",
}
AROUND = {  # what stands in Redis beside the task, all through its attempt
    "blueque_queues": {"video": 1.0},
    "blueque_tasks_video": {"t1": 5.5},
    "blueque_wake_video": {"0": 0.0},
    "blueque_listener_video_host_1": {
        "instance": "i1",
        "state": "alive",
        "beat": "0",
        "beat_at": "1.5",
    },
    "blueque_listeners_video": {NODE},
    "blueque_nodes_video": {NODE: 1.5},
}
WAITING = {name: BORN[name] for name in ("queue", "parameters", "created", "attempt")}
HELD = AROUND | {"blueque_reserved_tasks_video_host_1": ["t1"]}
STARTED = HELD | {"blueque_started_tasks_video": {"host_1 77 t1"}}


@pytest.fixture(autouse=True)
def listener(redis):
    protocol.register(redis, "video", NODE, "i1", {}, now=1.5)


def enqueue(redis, task="t1"):
    protocol.enqueue(redis, "video", task, "in", now=5.5)


def pop(redis, instance="i1"):
    return protocol.pop(redis, "video", NODE, instance)


def reserve(redis, task="t1", token="token", instance="i1", now=6.5):
    return protocol.reserve(redis, AttemptRef("video", task, token, NODE), instance, now)


def start(redis, token="token", node=NODE, pid=77, now=7.5, **more):
    protocol.start(redis, AttemptRef("video", "t1", token, node), pid, now, **more)


def complete(redis, token="token", node=NODE, now=8.5, **more):
    protocol.end(redis, AttemptRef("video", "t1", token, node), End.complete("out", **more), now)


def fail(redis, token="token", node=NODE, now=8.5, **more):
    protocol.end(redis, AttemptRef("video", "t1", token, node), End.fail("why", **more), now)


def progress(redis, token="token", node=NODE, now=8.5):
    protocol.progress(redis, AttemptRef("video", "t1", token, node), "50 %", now)


def retry(redis, token="token", node=NODE, eta=99.5, now=8.5, **more):
    return protocol.end(
        redis, AttemptRef("video", "t1", token, node), End.retry(eta, **more), now
    ).status


def release(redis, token="token", node=NODE, now=8.5, **more):
    return protocol.end(
        redis, AttemptRef("video", "t1", token, node), End.release(**more), now
    ).status


def confirm_cancel(redis, token="token", node=NODE, now=8.5, **more):
    protocol.end(redis, AttemptRef("video", "t1", token, node), End.confirm_cancel(**more), now)


def cancel(redis):
    protocol.cancel(redis, "video", "t1", "ann", None, now=8.0)


def bring(redis, status):
    """Bring the task t1 to a status by the way every task goes."""
    enqueue(redis)
    if status not in ("pending", "cancelled"):
        pop(redis)
        reserve(redis)
    if status in ("started", "complete", "lost"):
        start(redis)
    if status == "complete":
        complete(redis)
    if status == "failed":
        fail(redis)
    if status == "cancelled":
        cancel(redis)
    if status == "lost":
        protocol.lose(
            redis,
            AttemptRef("video", "t1", "token", NODE),
            "i1",
            Loss("gone", {"lost_node": NODE}),
            None,
            8.0,
            is_ours=True,
        )


NAMED = {"ids": lambda part: getattr(part, "__name__", part)}


def test_pop_moves_the_oldest_id_into_the_list_of_the_listener(redis, state):
    enqueue(redis, "t1")
    enqueue(redis, "t2")
    before = state()

    assert pop(redis)[:2] == ("t1", 1)
    assert state() == before | {
        "blueque_pending_tasks_video": ["t2"],
        "blueque_reserved_tasks_video_host_1": ["t1"],
    }


def test_pop_from_an_empty_line_changes_nothing(redis, state):
    before = state()

    assert pop(redis)[:3] == (None, 0, None)
    assert state() == before


@pytest.mark.parametrize(
    "registration",
    [None, {"instance": "i2", "state": "alive"}, {"instance": "i1", "state": "dead"}],
    ids=repr,
)
def test_pop_and_reserve_refuse_a_listener_that_is_not_registered_and_write_nothing(
    redis, cli, state, registration
):
    enqueue(redis, "t1")
    enqueue(redis, "t2")
    pop(redis)
    cli.delete("blueque_listener_video_host_1")
    if registration:
        cli.hset("blueque_listener_video_host_1", mapping=registration)
    before = state()

    with pytest.raises(NotRegistered, match="host_1"):
        pop(redis)
    with pytest.raises(NotRegistered, match="host_1"):
        reserve(redis, "t1")

    assert state() == before


def test_reserve_makes_the_task_ours_and_returns_its_fields(redis, cli, state):
    enqueue(redis)
    pop(redis)

    fields = reserve(redis)

    assert state() == HELD | {"blueque_task_t1": BORN | {"status": "reserved", "updated": "6.5"}}
    assert fields == cli.hgetall("blueque_task_t1")


def test_reserve_run_again_with_its_token_returns_the_same_and_changes_nothing(redis, state):
    enqueue(redis)
    pop(redis)
    fields = reserve(redis, now=6.5)
    before = state()

    assert reserve(redis, now=60.5) == fields
    assert state() == before


@pytest.mark.parametrize(
    ("newest", "attempt"),
    [({"5.5": 7}, "8"), ({"5.5": 2}, "4"), ({"4.5": 7}, "4"), ({}, "4")],
    ids=["newer", "older", "of another task by that key", "none"],
)
def test_reserve_counts_on_from_the_newest_attempt_that_the_listener_has_files_of(
    redis, cli, newest, attempt
):
    enqueue(redis)
    cli.hset("blueque_task_t1", "attempt", "3")
    pop(redis)

    fields = protocol.reserve(
        redis, AttemptRef("video", "t1", "token", NODE), "i1", 6.5, newest=newest
    )

    assert fields["attempt"] == cli.hget("blueque_task_t1", "attempt") == attempt


def test_reserve_counts_attempts_and_forgets_the_process_of_the_last_one(redis, cli):
    enqueue(redis)
    cli.hset("blueque_task_t1", mapping={"attempt": "3", "pid": "66"})
    pop(redis)

    fields = reserve(redis)

    assert fields == cli.hgetall("blueque_task_t1")
    assert fields["attempt"] == "4"
    assert "pid" not in fields


@pytest.mark.parametrize(
    "by_whom",
    [
        {},  # nobody: it was deleted
        {"status": "scheduled"},
        {"status": "complete", "node": NODE, "token": "old"},
        {"status": "failed", "node": NODE, "token": "old"},
        {"status": "cancelled"},
        {"status": "reserved", "node": "host_2", "token": "theirs"},
        {"status": "started", "node": "host_2", "token": "theirs", "pid": "66"},
        {"result": "a stump"},
        {"status": "pending", "updated": "5.5"},  # a stump as well
        {"status": "pending", "queue": "audio"},
    ],
    ids=repr,
)
def test_reserve_drops_a_stale_hint_and_leaves_the_task_as_it_is(redis, cli, state, by_whom):
    before = state()
    if by_whom:
        cli.hset("blueque_task_t1", mapping=by_whom)
        before = state()
    cli.lpush("blueque_reserved_tasks_video_host_1", "t1")

    assert reserve(redis) is None
    assert state() == before


@pytest.mark.parametrize("status", ["reserved", "started"])
def test_reserve_leaves_a_task_of_a_former_life_and_its_hint_alone(redis, state, status):
    bring(redis, status)
    before = state()

    assert reserve(redis, token="another") is None
    assert state() == before


def test_reserve_refuses_a_task_whose_hint_somebody_has_taken_out_of_our_list(redis, cli, state):
    enqueue(redis)
    pop(redis)
    cli.lmove(
        "blueque_reserved_tasks_video_host_1", "blueque_pending_tasks_video", "RIGHT", "RIGHT"
    )
    before = state()

    assert reserve(redis) is None
    assert state() == before


@pytest.mark.parametrize(
    ("fields", "score"), [({"created": "3.5", "updated": "3.5"}, 3.5), ({}, 6.5)], ids=repr
)
def test_reserve_indexes_a_task_of_an_older_version(redis, cli, fields, score):
    cli.hset(
        "blueque_task_t1",
        mapping={"status": "pending", "queue": "video", "parameters": "in", **fields},
    )
    cli.lpush("blueque_pending_tasks_video", "t1")
    pop(redis)

    assert reserve(redis)["attempt"] == "1"
    assert cli.zrange("blueque_tasks_video", 0, -1, withscores=True) == [("t1", score)]


def test_start_records_the_process_and_nothing_else(redis, state):
    bring(redis, "reserved")

    start(redis, identity={"pid_start": 5, "boot": "b", "ns": "4"})

    assert state() == STARTED | {
        "blueque_task_t1": BORN
        | {
            "status": "started",
            "updated": "7.5",
            "started": "7.5",
            "pid": "77",
            "pid_start": "5",
            "boot": "b",
            "ns": "4",
        }
    }


def test_start_run_again_changes_nothing(redis, state):
    bring(redis, "started")
    before = state()

    start(redis, now=70.5)

    assert state() == before


def test_start_of_a_second_process_for_the_same_attempt_is_refused_and_writes_nothing(redis, state):
    bring(redis, "started")
    before = state()

    with pytest.raises(NotOwner, match="it is started, not reserved"):
        start(redis, pid=78)

    assert state() == before


def test_complete_records_the_result_and_lets_go_of_the_task(redis, state):
    bring(redis, "started")

    complete(redis, facts={"result_encoding": "json", "remark": "fine"})

    assert state() == AROUND | {
        "blueque_task_t1": BORN
        | {
            "status": "complete",
            "updated": "8.5",
            "started": "7.5",
            "finished": "8.5",
            "finished_by": "token",
            "pid": "77",
            "result": "out",
            "result_encoding": "json",
            "remark": "fine",
        },
        "blueque_complete_tasks_video": ["t1"],
    }


def test_fail_records_the_error_and_lets_go_of_the_task(redis, state):
    bring(redis, "started")

    fail(redis, facts={"error_type": "signal", "signal": "SIGKILL"})

    assert state() == AROUND | {
        "blueque_task_t1": BORN
        | {
            "status": "failed",
            "updated": "8.5",
            "started": "7.5",
            "finished": "8.5",
            "finished_by": "token",
            "pid": "77",
            "error": "why",
            "error_type": "signal",
            "signal": "SIGKILL",
        },
        "blueque_failed_tasks_video": ["t1"],
    }


def test_a_reserved_task_can_fail_without_having_started(redis, state):
    bring(redis, "reserved")

    fail(redis)

    assert state() == AROUND | {
        "blueque_task_t1": BORN
        | {
            "status": "failed",
            "updated": "8.5",
            "finished": "8.5",
            "finished_by": "token",
            "error": "why",
        },
        "blueque_failed_tasks_video": ["t1"],
    }


def test_the_last_outcome_replaces_that_of_an_earlier_attempt(redis, cli):
    bring(redis, "pending")
    cli.hset("blueque_task_t1", mapping=dict.fromkeys(FACTS, "old"))
    bring(redis, "started")
    complete(redis)
    assert FACTS.isdisjoint(cli.hgetall("blueque_task_t1"))

    cli.hset("blueque_task_t1", mapping={"status": "started", "result_encoding": "json"})
    fail(redis, token="token")
    assert {"result", "result_encoding"}.isdisjoint(cli.hgetall("blueque_task_t1"))


def test_the_last_error_does_not_keep_the_details_of_an_earlier_one(redis, cli):
    bring(redis, "started")
    cli.hset("blueque_task_t1", mapping=dict.fromkeys(FACTS, "old"))

    fail(redis, facts={"signal": "SIGKILL"})

    assert {name: cli.hget("blueque_task_t1", name) for name in FACTS} == dict.fromkeys(FACTS) | {
        "error": "why",
        "signal": "SIGKILL",
    }


def test_progress_is_recorded_and_nothing_else(redis, cli, state):
    bring(redis, "started")
    before = state()

    progress(redis)

    assert state() == before | {
        "blueque_task_t1": before["blueque_task_t1"]
        | {"progress": "50 %", "progress_at": "8.5", "updated": "8.5"}
    }


def test_retry_has_the_next_attempt_wait_for_its_time(redis, state):
    bring(redis, "started")
    progress(redis)

    assert retry(redis, facts={"failures": 1, "last_error": "why"}) == "scheduled"
    assert state() == AROUND | {
        "blueque_task_t1": WAITING
        | {
            "status": "scheduled",
            "eta": "99.5",
            "updated": "8.5",
            "finished_by": "token",
            "failures": "1",
            "last_error": "why",
        },
        "blueque_scheduled_tasks_video": {"t1": 99.5},
    }


def test_retry_without_a_time_puts_the_task_in_line_behind_the_others(redis, cli, state):
    bring(redis, "started")
    enqueue(redis, "t2")
    wait(redis)

    assert retry(redis, eta=None) == "pending"
    assert cli.lrange("blueque_pending_tasks_video", 0, -1) == ["t1", "t2"], (
        "the next is at the tail"
    )
    assert state()["blueque_task_t1"] == WAITING | {
        "status": "pending",
        "queued": "8.5",
        "updated": "8.5",
        "finished_by": "token",
    }
    assert cli.zrange("blueque_wake_video", 0, -1) == ["0"]
    assert not {"blueque_reserved_tasks_video_host_1", "blueque_started_tasks_video"} & set(state())


def test_a_task_that_failed_before_it_started_can_be_tried_again(redis, state):
    bring(redis, "reserved")

    assert retry(redis) == "scheduled"
    assert state() == AROUND | {
        "blueque_task_t1": WAITING
        | {"status": "scheduled", "eta": "99.5", "updated": "8.5", "finished_by": "token"},
        "blueque_scheduled_tasks_video": {"t1": 99.5},
    }


def test_release_makes_the_task_the_next_in_line_as_if_nothing_had_been(redis, cli, state):
    bring(redis, "started")
    enqueue(redis, "t2")

    assert release(redis) == "pending"
    assert cli.lrange("blueque_pending_tasks_video", 0, -1) == ["t2", "t1"], (
        "the next is at the tail"
    )
    assert state()["blueque_task_t1"] == WAITING | {
        "status": "pending",
        "queued": "8.5",
        "updated": "8.5",
        "finished_by": "token",
    }
    assert not {"blueque_reserved_tasks_video_host_1", "blueque_started_tasks_video"} & set(state())


@pytest.mark.parametrize("again", [retry, release], **NAMED)
def test_the_next_attempt_has_the_next_number_and_nothing_of_the_one_before(redis, state, again):
    bring(redis, "started")
    again(redis, **({"eta": None} if again is retry else {}))
    pop(redis)

    assert reserve(redis, token="next")["attempt"] == "2"
    assert state()["blueque_task_t1"] == BORN | {
        "status": "reserved",
        "updated": "6.5",
        "token": "next",
        "attempt": "2",
        "finished_by": "token",
        "queued": "8.5",
    }


def test_confirm_cancel_records_that_the_attempt_was_ended(redis, state):
    bring(redis, "started")
    cancel(redis)

    confirm_cancel(redis, facts={"memory_peak": 4096})

    ended = state()
    assert ended.pop("blueque_orders_video_host_1") == {"0": 0.0}
    assert ended == AROUND | {
        "blueque_task_t1": BORN
        | {
            "status": "cancelled",
            "updated": "8.5",
            "started": "7.5",
            "finished": "8.5",
            "finished_by": "token",
            "pid": "77",
            "cancelled_by": "ann",
            "memory_peak": "4096",
        },
        "blueque_cancelled_tasks_video": ["t1"],
    }


@pytest.mark.parametrize("again", [retry, release], **NAMED)
def test_a_task_that_is_to_be_cancelled_gets_no_further_attempt(redis, state, again):
    bring(redis, "started")
    cancel(redis)

    assert again(redis) == "cancelled"
    ended = state()
    del ended["blueque_orders_video_host_1"]
    assert ended == AROUND | {
        "blueque_task_t1": BORN
        | {
            "status": "cancelled",
            "updated": "8.5",
            "started": "7.5",
            "finished": "8.5",
            "finished_by": "token",
            "pid": "77",
            "cancelled_by": "ann",
        },
        "blueque_cancelled_tasks_video": ["t1"],
    }


@pytest.mark.parametrize(("finish", "status"), [(complete, "complete"), (fail, "failed")], **NAMED)
def test_a_task_that_is_to_be_cancelled_and_ends_by_itself_first_has_ended(
    redis, cli, finish, status
):
    bring(redis, "started")
    cancel(redis)

    finish(redis)

    fields = cli.hgetall("blueque_task_t1")
    assert (fields["status"], fields["cancel"]) == (status, "8.0")
    assert cli.lrange(f"blueque_{status}_tasks_video", 0, -1) == ["t1"]


@pytest.mark.parametrize("error_type", ["lost", "poison"])
@pytest.mark.parametrize(
    ("end", "place"),
    [
        (complete, "complete_tasks"),
        (fail, "failed_tasks"),
        (retry, "scheduled_tasks"),
        (confirm_cancel, "cancelled_tasks"),
    ],
    **NAMED,
)
def test_a_late_end_counts_as_if_the_task_had_never_been_declared_lost(
    redis, cli, state, end, place, error_type
):
    bring(redis, "started")
    end(redis)
    expected = state()
    cli.flushall()
    protocol.register(redis, "video", NODE, "i1", {}, now=1.5)
    bring(redis, "lost")
    cli.hset("blueque_task_t1", "error_type", error_type)

    end(redis, node="host_2")  # the node does not matter any more

    late = state()
    interruptions = late["blueque_task_t1"].pop("interruptions")
    assert interruptions == "1"
    assert late == expected
    assert f"blueque_{place}_video" in late


@pytest.mark.parametrize("end", [complete, fail, retry, release, confirm_cancel], **NAMED)
def test_no_late_end_counts_once_the_task_was_put_in_line_again(redis, state, end):
    bring(redis, "lost")
    protocol.requeue(redis, "video", "t1", "mark", now=8.2)
    before = state()

    with pytest.raises(NotOwner, match="it is pending"):
        end(redis)

    assert state() == before


def test_release_is_no_end_of_a_task_that_was_declared_lost(redis, state):
    bring(redis, "lost")
    before = state()

    with pytest.raises(NotOwner, match="it is failed"):
        release(redis)

    assert state() == before


@pytest.mark.parametrize("again", [retry, release], **NAMED)
@pytest.mark.parametrize("status", ["complete", "failed"])
def test_an_attempt_that_has_ended_is_not_followed_by_another(redis, state, again, status):
    bring(redis, status)
    before = state()

    assert again(redis) == status
    assert state() == before


@pytest.mark.parametrize("again", [retry, release], **NAMED)
@pytest.mark.parametrize("since", ["nothing", "reserved again", "started again"])
def test_the_end_of_an_attempt_run_again_changes_nothing_whatever_has_become_of_the_task(
    redis, state, again, since
):
    bring(redis, "started")
    assert again(redis, **({"eta": None} if again is retry else {})) == "pending"
    if since != "nothing":
        pop(redis)
        reserve(redis, token="next")
    if since == "started again":
        start(redis, token="next")
    before = state()

    status = again(redis, now=80.5)

    assert status == {"nothing": "pending"}.get(since, since.split()[0])
    assert state() == before


def test_confirm_cancel_run_again_changes_nothing(redis, state):
    bring(redis, "started")
    confirm_cancel(redis)
    before = state()

    confirm_cancel(redis, now=80.5)

    assert state() == before


@pytest.mark.parametrize(("status", "finish"), [("complete", complete), ("failed", fail)])
def test_the_end_run_again_changes_nothing(redis, state, status, finish):
    bring(redis, status)
    before = state()

    finish(redis, now=80.5)

    assert state() == before


@pytest.mark.parametrize(
    "change", [start, progress, complete, fail, retry, release, confirm_cancel], **NAMED
)
@pytest.mark.parametrize(
    "whose", [{"token": "another"}, {"token": None}, {"node": "host_2"}], ids=repr
)
@pytest.mark.parametrize("status", ["reserved", "started"])
def test_a_change_by_an_attempt_that_is_not_the_owner_is_refused_and_writes_nothing(
    redis, state, change, whose, status
):
    bring(redis, status)
    before = state()

    with pytest.raises(NotOwner, match="t1") as refusal:
        change(redis, **whose)

    assert (refusal.value.task_id, refusal.value.status) == ("t1", status)
    assert state() == before


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (start, "pending"),
        (start, "complete"),
        (start, "failed"),
        (start, "cancelled"),
        (progress, "pending"),
        (progress, "reserved"),
        (progress, "complete"),
        (progress, "failed"),
        (progress, "cancelled"),
        (complete, "pending"),
        (complete, "reserved"),
        (complete, "failed"),
        (complete, "cancelled"),
        (fail, "pending"),
        (fail, "complete"),
        (fail, "cancelled"),
        (retry, "pending"),
        (retry, "cancelled"),
        (release, "pending"),
        (release, "cancelled"),
        (confirm_cancel, "pending"),
        (confirm_cancel, "reserved"),
        (confirm_cancel, "complete"),
        (confirm_cancel, "failed"),
        (confirm_cancel, "cancelled"),
    ],
    **NAMED,
)
def test_a_change_out_of_its_order_is_refused_and_writes_nothing(redis, state, change, status):
    bring(redis, status)
    before = state()

    with pytest.raises(NotOwner, match=f"it is {status}"):
        change(redis)

    assert state() == before


@pytest.mark.parametrize(
    "change", [start, progress, complete, fail, retry, release, confirm_cancel], **NAMED
)
@pytest.mark.parametrize("token", ["token", None])
def test_a_change_of_a_deleted_task_is_refused_and_makes_no_stump(redis, state, change, token):
    before = state()

    with pytest.raises(NotOwner, match="it does not exist") as refusal:
        change(redis, token=token)

    assert refusal.value.status is None
    assert state() == before


@pytest.mark.parametrize(("finish", "status"), [(complete, "complete"), (fail, "failed")])
def test_a_task_that_an_older_version_reserved_can_be_started_and_ended_without_a_token(
    redis, cli, state, finish, status
):
    cli.hset(
        "blueque_task_t1",
        mapping={"status": "reserved", "queue": "video", "parameters": "in", "node": "host_9"},
    )
    cli.lpush("blueque_reserved_tasks_video_host_9", "t1")

    start(redis, token=None, node="host_9")
    assert cli.smembers("blueque_started_tasks_video") == {"host_9 77 t1"}
    finish(redis, token=None, node="host_9")

    assert "finished_by" not in cli.hgetall("blueque_task_t1")
    assert cli.lrange(f"blueque_{status}_tasks_video", 0, -1) == ["t1"]
    assert not {"blueque_reserved_tasks_video_host_9", "blueque_started_tasks_video"} & set(state())


def test_there_is_one_wake_up_marker_however_often_it_is_set(redis, state):
    before = state()

    protocol.wake(redis, "video")
    protocol.wake(redis, "video")

    assert state() == before | {"blueque_wake_video": {"0": 0.0}}


def wait(redis, seconds=5.0, is_answered=lambda connection: connection.wait(5), is_idle=True):
    return protocol.wait(redis, [("video", NODE)], seconds, is_answered, is_idle)


def test_wait_takes_the_marker(redis, state):
    before = state()
    protocol.wake(redis, "video")

    assert wait(redis) == "blueque_wake_video"
    assert state() == before


@pytest.mark.parametrize("is_idle", [True, False])
def test_wait_takes_the_marker_of_orders_idle_or_busy(redis, state, is_idle):
    before = state()
    protocol.order(redis, "video", NODE, "drain", "ann")

    assert wait(redis, is_idle=is_idle) == "blueque_orders_video_host_1"
    assert set(state()) == set(before)


def test_a_busy_listener_leaves_the_wake_up_marker_to_the_idle(redis, state):
    protocol.wake(redis, "video")
    before = state()

    assert wait(redis, 0.01, is_idle=False) is None
    assert state() == before


@pytest.mark.parametrize("marker", ["blueque_wake_video", "blueque_orders_video_host_1"])
def test_wait_ends_when_a_marker_comes(redis, cli, marker):
    def wake_up(connection):
        assert not connection.wait(0), "there was nothing to wait for"
        cli.zadd(marker, {"0": 0})
        return connection.wait(5)

    assert wait(redis, is_answered=wake_up) == marker


def test_wait_ends_when_its_time_is_over(redis):
    assert wait(redis, 0.01) is None


def test_wait_given_up_leaves_its_connection_behind(redis):
    connection = redis.connection()

    assert wait(redis, is_answered=lambda connection: False) is None
    assert connection.is_closed
    assert redis.read(("ECHO", "mine")) == ["mine"]
