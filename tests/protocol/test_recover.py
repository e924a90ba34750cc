"""blueque.protocol.recover against a real Redis; the whole state is compared, so that leftovers
fail too.
"""

from __future__ import annotations

import pytest
from transactions import protocol

from blueque import NotOwner, NotRegistered, Retry
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End
from blueque.protocol.recover import Loss

NODE, DEAD = "host_1", "host_2"
IDENTITY = {"pid_start": 5, "boot": "b", "ns": "4"}
WAITING = {"queue": "video", "parameters": "in", "created": "5.5", "attempt": "1"}
LOST = ["lost", "poison"]


@pytest.fixture(autouse=True)
def listener(redis):
    """A listener that lives, beside the dead one."""
    protocol.register(redis, "video", NODE, "i1", {}, now=1.5)


def dead_listener(redis, status, task="t1", options=None):
    """Seed a dead listener that holds a task of this status."""
    hold(redis, status, task, options)
    assert fence(redis)


def hold(redis, status, task="t1", options=None):
    """Let the listener host_2 hold a task of this status; nobody has found it dead yet."""
    protocol.register(redis, "video", DEAD, "i2", {}, now=1.5)
    protocol.enqueue(redis, "video", task, "in", 5.5, options)
    protocol.pop(redis, "video", DEAD, "i2")
    if status in ("reserved", "started"):
        protocol.reserve(redis, AttemptRef("video", task, "token", DEAD), "i2", now=6.5)
    if status == "started":
        start(redis, task)


def start(redis, task="t1"):
    protocol.start(
        redis,
        AttemptRef("video", task, "token", DEAD),
        77,
        7.5,
        {**IDENTITY, "files": "host:/spool/t1/1"},
    )


def fence(redis):
    return protocol.fence(redis, "video", DEAD, "i2", "0", 9.25)


def recover(redis, instance="i2", now=9.5, dead_claimant=None):
    return protocol.recover(redis, "video", "t1", DEAD, instance, now, dead_claimant)


def lose(redis, token="token", node=DEAD, instance="i2", default=None, now=9.5, facts=None, **more):
    attempt, loss = AttemptRef("video", "t1", token, node), Loss("gone", facts)
    return protocol.lose(redis, attempt, instance, loss, default, now, **more)


def adopt(redis, token="token", old=DEAD, node=NODE, instance="i1", now=9.5):
    return protocol.adopt(redis, AttemptRef("video", "t1", token, old), node, instance, now)


def restore(redis, token="token", node=NODE, instance="i1", pid=77, now=10.5):
    return protocol.restore(
        redis, AttemptRef("video", "t1", token, node), instance, pid, IDENTITY, 7.5, now
    )


def reassert(redis, ours, node=NODE, instance="i1", now=10.5, since=None):
    return protocol.reassert(redis, "video", "t1", node, instance, ours, now, since)


def complete(redis, node=DEAD):
    protocol.end(redis, AttemptRef("video", "t1", "token", node), End.complete("out"), 9.2)


def requeue(redis):
    protocol.requeue(redis, "video", "t1", "mark", now=9.7)


def cancel(redis):
    return protocol.cancel(redis, "video", "t1", "ann", None, now=8.5)


def without(state, *gone):
    return {key: value for key, value in state.items() if key not in gone}


# recover


def test_recover_leaves_what_a_neighbour_of_an_older_version_has_claimed_unless_that_is_dead_too(
    redis, cli, state
):
    dead_listener(redis, "reserved")
    cli.hset("blueque_task_t1", "reclaimed_node", "host_5")
    before = state()

    assert recover(redis) == "claimed"
    assert recover(redis, dead_claimant="host_6") == "claimed"
    assert state() == before
    assert recover(redis, dead_claimant="host_5") == "released"
    assert state()["blueque_task_t1"] == WAITING | {
        "status": "pending",
        "queued": "9.5",
        "updated": "9.5",
    }


@pytest.mark.parametrize(
    "by_whom",
    [
        {},  # nobody: it was deleted
        {"status": "scheduled", "queue": "video"},
        {"status": "complete", "queue": "video", "node": DEAD},
        {"status": "failed", "queue": "video", "node": DEAD, "error_type": "lost"},
        {"status": "cancelled", "queue": "video"},
        {"status": "reserved", "queue": "video", "node": "host_3", "token": "theirs"},
        {"status": "reserved", "queue": "video", "node": "host_3", "reclaimed_node": "host_5"},
        {"status": "started", "queue": "video", "node": "host_3", "token": "theirs", "pid": "66"},
        {"result": "a stump"},
        {"status": "pending", "updated": "5.5"},  # a stump as well
        {"status": "pending", "queue": "audio"},
    ],
    ids=repr,
)
def test_recover_drops_a_stale_hint_and_leaves_the_task_as_it_is(redis, cli, state, by_whom):
    protocol.register(redis, "video", DEAD, "i2", {}, now=1.5)
    fence(redis)
    if by_whom:
        cli.hset("blueque_task_t1", mapping=by_whom)
    before = state()
    cli.lpush("blueque_reserved_tasks_video_host_2", "t1")

    assert recover(redis) == "dropped"
    assert state() == before


@pytest.mark.parametrize("instance", ["i2", "i3", None])
@pytest.mark.parametrize("how", ["alive", "born again", "of 1.0.0"])
def test_nothing_is_recovered_from_a_listener_that_lives(redis, cli, state, how, instance):
    hold(redis, "reserved")
    if how == "born again":
        fence(redis)
        protocol.register(redis, "video", DEAD, "i3", {}, now=9.5)
    if how == "of 1.0.0":
        cli.delete("blueque_listener_video_host_2")
    before = state()

    assert recover(redis, instance) is None
    assert state() == before


def test_of_two_who_recover_one_puts_the_task_in_line(redis, other, overtaken, cli):
    dead_listener(redis, "reserved")
    overtaken(lambda: recover(other))

    assert recover(redis) is None
    assert cli.lrange("blueque_pending_tasks_video", 0, -1) == ["t1"]


def test_a_start_that_comes_first_is_not_recovered(redis, other, overtaken, cli):
    dead_listener(redis, "reserved")
    overtaken(lambda: start(other))

    assert recover(redis) == "started"
    assert not cli.exists("blueque_pending_tasks_video")


def test_a_start_that_comes_too_late_is_refused(redis, other, overtaken, cli):
    dead_listener(redis, "reserved")
    overtaken(lambda: recover(other))

    with pytest.raises(NotOwner, match="it is pending"):
        start(redis)
    assert cli.hget("blueque_task_t1", "pid") is None


# lose


@pytest.mark.parametrize(
    ("own", "default", "status"),
    [
        (None, None, "failed"),
        (None, Retry(), "pending"),
        (Retry(), None, "pending"),
        ("null", Retry(), "failed"),
        ("unclear", Retry(), "failed"),
        (Retry(interruptions=0), Retry(), "failed"),
        (Retry(), Retry(interruptions=0), "pending"),
    ],
    ids=str,
)
def test_the_policy_of_the_task_counts_and_else_that_of_the_listener(redis, own, default, status):
    text = own.to_text() if isinstance(own, Retry) else own
    dead_listener(redis, "started", options={} if text is None else {"retry": text})

    assert lose(redis, default=default) == status


def test_a_task_that_is_lost_too_often_is_poison(redis, cli):
    statuses = []
    protocol.enqueue(redis, "video", "t1", "in", 5.5, {"retry": Retry(interruptions=2).to_text()})
    for instance in ("i2", "i3", "i4"):
        protocol.register(redis, "video", DEAD, instance, {}, now=1.5)
        protocol.pop(redis, "video", DEAD, instance)
        protocol.reserve(redis, AttemptRef("video", "t1", "token", DEAD), instance, now=6.5)
        start(redis)
        protocol.fence(redis, "video", DEAD, instance, "0", 9.25)
        statuses.append(lose(redis, instance=instance))

    assert statuses == ["pending", "pending", "failed"]
    fields = cli.hgetall("blueque_task_t1")
    assert (fields["error_type"], fields["interruptions"], fields["attempt"]) == (
        "poison",
        "3",
        "3",
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"token": "another"},
        {"token": None},
        {"node": "host_3"},
        {"instance": "i3"},
        {"instance": None},
    ],
    ids=repr,
)
def test_an_attempt_that_is_not_as_it_was_seen_is_not_lost(redis, state, wrong):
    dead_listener(redis, "started")
    before = state()

    assert lose(redis, **wrong) is None
    assert state() == before


def test_an_attempt_of_a_listener_that_lives_is_lost_by_itself_only(redis, state):
    hold(redis, "started")
    before = state()

    assert lose(redis) is None
    assert state() == before
    assert lose(redis, is_ours=True) == "failed"


def test_a_listener_that_was_fenced_does_not_give_up_its_own_attempt(redis, state):
    dead_listener(redis, "started")
    before = state()

    assert lose(redis, is_ours=True) is None
    assert state() == before


def test_an_attempt_that_ends_before_it_is_lost_has_ended(redis, other, overtaken, cli):
    dead_listener(redis, "started")
    overtaken(lambda: complete(other))

    assert lose(redis) is None
    assert cli.hget("blueque_task_t1", "status") == "complete"
    assert not cli.exists("blueque_failed_tasks_video")


def test_an_attempt_that_ends_just_after_it_was_lost_has_ended_as_well(
    redis, other, overtaken, cli
):
    dead_listener(redis, "started")
    overtaken(lambda: lose(other))

    complete(redis)
    assert cli.hget("blueque_task_t1", "status") == "complete"
    assert not cli.exists("blueque_failed_tasks_video")


def test_an_attempt_that_ends_just_after_its_task_was_put_in_line_again_is_refused(
    redis, other, overtaken, cli
):
    dead_listener(redis, "started")
    overtaken(lambda: lose(other, default=Retry()))

    with pytest.raises(NotOwner, match="it is pending"):
        complete(redis)
    assert not cli.exists("blueque_complete_tasks_video")


# adopt


def test_adopt_takes_over_a_running_attempt_and_nothing_of_it_changes_but_its_listener(
    redis, cli, state
):
    dead_listener(redis, "started")
    before = state()

    fields = adopt(redis)

    assert state() == without(before, "blueque_reserved_tasks_video_host_2") | {
        "blueque_task_t1": before["blueque_task_t1"] | {"node": NODE, "updated": "9.5"},
        "blueque_reserved_tasks_video_host_1": ["t1"],
        "blueque_started_tasks_video": {"host_1 77 t1"},
    }
    assert fields == cli.hgetall("blueque_task_t1")


@pytest.mark.parametrize(
    "wrong", [{"token": "another"}, {"token": None}, {"old": "host_3"}], ids=repr
)
def test_an_attempt_that_is_not_as_it_was_seen_is_not_adopted(redis, state, wrong):
    dead_listener(redis, "started")
    before = state()

    assert adopt(redis, **wrong) is None
    assert state() == before


@pytest.mark.parametrize(
    "end",
    [complete, lose, lambda redis: lose(redis, default=Retry())],
    ids=["end", "lost", "again"],
)
def test_an_attempt_that_has_ended_is_not_adopted(redis, state, end):
    dead_listener(redis, "started")
    end(redis)
    before = state()

    assert adopt(redis) is None
    assert state() == before


@pytest.mark.parametrize(
    "take_over",
    [adopt, restore, lambda redis, **who: reassert(redis, {"token": "token", "pid": "77"}, **who)],
    ids=["adopt", "restore", "reassert"],
)
@pytest.mark.parametrize(
    "who", [{"instance": "i0"}, {"node": "host_3"}, {"node": DEAD, "instance": "i2"}], ids=repr
)
def test_whoever_is_not_registered_takes_nothing_over(redis, state, take_over, who):
    dead_listener(redis, "started")
    before = state()

    with pytest.raises(NotRegistered):
        take_over(redis, **who)

    assert state() == before


def test_of_two_who_adopt_one_has_the_task(redis, other, overtaken, cli):
    dead_listener(redis, "started")
    protocol.register(redis, "video", "host_3", "i3", {}, now=1.5)
    overtaken(lambda: adopt(other, node="host_3", instance="i3"))

    assert adopt(redis) is None
    assert cli.hget("blueque_task_t1", "node") == "host_3"
    assert cli.smembers("blueque_started_tasks_video") == {"host_3 77 t1"}
    assert cli.keys("blueque_reserved_tasks_*") == ["blueque_reserved_tasks_video_host_3"]


def test_what_is_adopted_is_not_lost_any_more(redis, other, overtaken, cli):
    dead_listener(redis, "started")
    overtaken(lambda: adopt(other))

    assert lose(redis) is None
    assert cli.hget("blueque_task_t1", "status") == "started"


def test_the_end_of_an_adopted_attempt_is_recorded_by_its_new_listener_only(redis, cli, state):
    dead_listener(redis, "started")
    adopt(redis)
    before = state()

    with pytest.raises(NotOwner, match="it belongs to host_1"):
        complete(redis)
    assert state() == before
    complete(redis, NODE)

    assert cli.hget("blueque_task_t1", "status") == "complete"
    assert not cli.exists("blueque_started_tasks_video", "blueque_reserved_tasks_video_host_1")


# restore


@pytest.mark.parametrize("kind", LOST)
def test_a_lost_task_whose_process_lives_is_started_again_as_if_nothing_had_been(
    redis, cli, state, kind
):
    dead_listener(redis, "started")
    before = state()
    lose(redis, facts={"lost_node": DEAD, "last_seen": 8.5})
    cli.hset("blueque_task_t1", "error_type", kind)

    fields = restore(redis)

    assert state() == without(before, "blueque_reserved_tasks_video_host_2") | {
        "blueque_task_t1": before["blueque_task_t1"]
        | {"node": NODE, "interruptions": "1", "updated": "10.5"},
        "blueque_reserved_tasks_video_host_1": ["t1"],
        "blueque_started_tasks_video": {"host_1 77 t1"},
    }
    assert fields == cli.hgetall("blueque_task_t1")


def test_a_listener_takes_back_what_it_had_lost_itself(redis, cli):
    hold(redis, "started")
    lose(redis, is_ours=True)

    assert restore(redis, node=DEAD, instance="i2")["status"] == "started"
    assert cli.hget("blueque_task_t1", "status") == "started"


def fail(redis):
    protocol.end(redis, AttemptRef("video", "t1", "token", DEAD), End.fail("why"), 9.2)


@pytest.mark.parametrize(
    "end",
    [complete, fail, requeue, lambda redis: None],
    ids=["complete", "fail", "requeue", "none"],
)
def test_a_task_that_is_not_lost_is_not_restored(redis, state, end):
    dead_listener(redis, "started")
    if end is requeue:
        lose(redis)
    end(redis)
    before = state()

    assert restore(redis) is None
    assert state() == before


def test_an_attempt_that_is_not_the_newest_is_not_restored(redis, state):
    dead_listener(redis, "started")
    lose(redis)
    before = state()

    assert restore(redis, token="another") is None
    assert state() == before


def test_a_person_who_is_first_has_the_task_run_again(redis, other, overtaken, cli):
    dead_listener(redis, "started")
    lose(redis)
    overtaken(lambda: requeue(other))

    assert restore(redis) is None
    assert cli.lrange("blueque_pending_tasks_video", 0, -1) == ["t1"]
    assert not cli.exists("blueque_started_tasks_video", "blueque_reserved_tasks_video_host_1")


def test_of_two_who_restore_one_has_the_task(redis, other, overtaken, cli):
    dead_listener(redis, "started")
    lose(redis)
    protocol.register(redis, "video", "host_3", "i3", {}, now=1.5)
    overtaken(lambda: restore(other, node="host_3", instance="i3"))

    assert restore(redis) is None
    assert cli.smembers("blueque_started_tasks_video") == {"host_3 77 t1"}
    assert cli.keys("blueque_reserved_tasks_*") == ["blueque_reserved_tasks_video_host_3"]


# reassert


def ours_of(cli):
    return cli.hgetall("blueque_task_t1")


def run(redis):
    """Let the listener host_1 run the task t1."""
    protocol.enqueue(redis, "video", "t1", "in", now=5.5)
    protocol.pop(redis, "video", NODE, "i1")
    protocol.reserve(redis, AttemptRef("video", "t1", "token", NODE), "i1", now=6.5)


def test_what_redis_has_lost_is_put_back_whatever_it_has_gone_back_to(redis, cli, state):
    run(redis)
    protocol.start(redis, AttemptRef("video", "t1", "token", NODE), 77, 7.5, IDENTITY)
    ours, running = ours_of(cli), state()
    expected = running | {"blueque_task_t1": running["blueque_task_t1"] | {"updated": "10.5"}}
    pasts = {
        "nothing at all": lambda: None,
        "before it was popped": lambda: protocol.enqueue(redis, "video", "t1", "in", now=5.5),
        "before it was due": lambda: protocol.schedule(redis, "video", "t1", "in", 6.0, now=5.5),
        "before it was started": lambda: run(redis),
    }
    for past, go_back in pasts.items():
        cli.flushall()
        protocol.register(redis, "video", NODE, "i1", {}, now=1.5)
        go_back()

        fields = reassert(redis, ours)

        cli.hdel("blueque_task_t1", "eta")
        cli.zadd("blueque_wake_video", {"0": 0})
        assert state() == expected, past
        assert {name: value for name, value in fields.items() if name != "eta"} == ours_of(cli), (
            past
        )


@pytest.mark.parametrize("since", ["i1", "i0"])
@pytest.mark.parametrize("is_due", [True, False])
def test_a_task_that_was_made_again_is_put_back_by_who_cannot_have_lost_it(
    redis, cli, state, since, is_due
):
    run(redis)
    protocol.start(redis, AttemptRef("video", "t1", "token", NODE), 77, 7.5, IDENTITY)
    ours, running = ours_of(cli), state()
    cli.flushall()
    protocol.register(redis, "video", NODE, "i1", {}, now=1.5)
    if is_due:
        protocol.enqueue(redis, "video", "t1", "in", now=8.5)
    else:
        protocol.schedule(redis, "video", "t1", "in", 99.5, now=8.5)
    made_again = state()

    fields = reassert(redis, ours, since=since)

    if since == "i1":
        cli.hdel("blueque_task_t1", "eta")
        cli.zadd("blueque_wake_video", {"0": 0})
        task = running["blueque_task_t1"] | {"updated": "10.5"}
        assert state() == running | {"blueque_task_t1": task}
    else:
        assert fields is None and state() == made_again


def test_a_running_task_that_a_person_deleted_is_not_put_over_another_with_its_id(
    redis, cli, state
):
    run(redis)
    protocol.start(redis, AttemptRef("video", "t1", "token", NODE), 77, 7.5, IDENTITY)
    ours = ours_of(cli)
    cli.flushall()
    protocol.register(redis, "video", NODE, "i1", {}, now=1.5)
    protocol.enqueue(redis, "video", "t1", "other parameters", now=8.5)
    made = state()

    assert reassert(redis, ours, since="i1") is None
    assert state() == made


@pytest.mark.parametrize(
    "now",
    [
        {"status": "pending", "attempt": "1"},  # handed back
        {"status": "scheduled", "attempt": "1"},  # to be retried
        {"status": "pending", "attempt": "2"},
        {"status": "reserved", "attempt": "1", "token": "another"},
        {"status": "started", "attempt": "2", "token": "another"},
        {"status": "complete", "attempt": "1", "token": "token"},
        {"status": "failed", "attempt": "1", "token": "token", "error_type": "lost"},
        {"status": "cancelled", "attempt": "0"},
        {"status": "pending", "created": "7.5"},  # deleted since, and made anew by its key
        {"status": "scheduled", "created": "7.5"},
    ],
    ids=repr,
)
def test_what_has_moved_on_is_not_put_back(redis, cli, state, now):
    cli.hset(
        "blueque_task_t1", mapping={"queue": "video", "parameters": "in", "created": "5.5", **now}
    )
    before = state()

    assert (
        reassert(
            redis,
            {"queue": "video", "token": "token", "attempt": "1", "pid": "77", "created": "5.5"},
        )
        is None
    )
    assert state() == before
