"""blueque.protocol.membership against a real Redis; the whole state is compared, so that leftovers
fail too.
"""

from __future__ import annotations

import pytest
from transactions import protocol

from blueque import NotRegistered, RedisRefused, Taken
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.membership import BeatReply, Heartbeat

NODE = "host_1"
FACTS = {"pid": 1, "beat_every": 10.0, "boot": "b"}
REGISTERED = {
    "blueque_listener_video_host_1": {
        "instance": "i1",
        "state": "alive",
        "beat": "0",
        "beat_at": "1.5",
        "pid": "1",
        "beat_every": "10.0",
        "boot": "b",
    },
    "blueque_listeners_video": {NODE},
    "blueque_nodes_video": {NODE: 1.5},
    "blueque_queues": {"video": 1.0},
}


def register(redis, instance="i1", now=1.5, dead=None):
    protocol.register(redis, "video", NODE, instance, FACTS, now, dead)


def dead_listener(redis, *statuses, is_registered=True):
    """Seed a listener host_2 that holds a task t1, t2, ... for each status, the oldest first."""
    protocol.register(redis, "video", "host_2", "i2", {}, now=1.5)
    for number, status in enumerate(statuses, 1):
        task, token = f"t{number}", f"token{number}"
        protocol.enqueue(redis, "video", task, "in", now=5.5)
        protocol.pop(redis, "video", "host_2", "i2")
        if status != "pending":
            protocol.reserve(redis, AttemptRef("video", task, token, "host_2"), "i2", now=6.5)
        if status == "started":
            protocol.start(redis, AttemptRef("video", task, token, "host_2"), 77, now=7.5)


def fence(redis, instance="i2", beat="0"):
    return protocol.fence(redis, "video", "host_2", instance, beat, 9.25)


def deregister_dead(redis, instance="i2"):
    return protocol.deregister(redis, "video", "host_2", instance, is_dead=True)


def claim(redis, node=NODE, instance="i2"):
    return protocol.claim(redis, "video", node, "host_2", instance)


def test_register_refuses_the_node_id_of_a_living_instance_and_writes_nothing(redis, state):
    register(redis)
    protocol.beat(redis, [Heartbeat("video", NODE, "i1", 7)], 2.5)
    before = state()

    with pytest.raises(Taken, match="host_1") as refusal:
        register(redis, instance="i2", now=10.5)

    assert refusal.value.holder == "i1"
    assert state() == before


def test_register_replaces_a_registration_that_says_dead_and_joins_again(redis, cli, state):
    register(redis, instance="i0")
    cli.hset("blueque_listener_video_host_1", "state", "dead")
    cli.srem("blueque_listeners_video", NODE)
    cli.zincrby("blueque_queues", -1, "video")

    register(redis, instance="i1")

    assert state() == REGISTERED


def test_register_under_a_node_id_that_an_older_version_left_in_the_set_does_not_count_it_twice(
    redis, cli, state
):
    cli.sadd("blueque_listeners_video", NODE)
    cli.zincrby("blueque_queues", 1, "video")

    register(redis)

    assert state() == REGISTERED


@pytest.mark.parametrize(
    "registration",
    [None, {"instance": "i2", "state": "alive"}, {"instance": "i1", "state": "dead"}],
    ids=repr,
)
def test_beat_refuses_a_listener_that_is_not_registered_and_writes_nothing(
    redis, cli, state, registration
):
    if registration:
        cli.hset("blueque_listener_video_host_1", mapping=registration)
    before = state()

    assert protocol.beat(redis, [Heartbeat("video", NODE, "i1", 1)], 11.5) == (
        BeatReply(),
        ["video"],
    )
    assert state() == before


def test_beat_tells_the_order_and_how_the_watched_task_stands(redis, cli):
    register(redis)
    cli.hset("blueque_queue_video", "retry", "null")
    read = {"members": {"video": {NODE}}, "settings": {"video": {"retry": "null"}}}
    reply, _ = protocol.beat(redis, [Heartbeat("video", NODE, "i1", 1, facts=())], 11.5)
    assert reply == BeatReply(**read)
    del read["settings"]
    assert (
        protocol.beat(redis, [Heartbeat("video", NODE, "i1", 2)], 11.5, task="gone")[0].status
        is None
    )
    protocol.order(redis, "video", NODE, "drain", "ann")
    task = {
        "status": "failed",
        "token": "t",
        "node": NODE,
        "attempt": "3",
        "cancel": "8.5",
        "error_type": "lost",
    }
    cli.hset("blueque_task_t1", mapping=task)

    assert protocol.beat(redis, [Heartbeat("video", NODE, "i1", 3)], 11.5)[0].order == "drain"
    reply, _ = protocol.beat(redis, [Heartbeat("video", NODE, "i1", 4)], 11.5, task="t1")
    assert reply == BeatReply(order="drain", **task, **read)


def test_beat_tells_what_is_in_the_own_list_of_the_listener(redis, cli):
    register(redis)
    cli.rpush(f"blueque_reserved_tasks_video_{NODE}", "t2", "t1")
    cli.rpush("blueque_reserved_tasks_video_host_2", "t3")

    assert protocol.beat(redis, [Heartbeat("video", NODE, "i1", 1)], 11.5)[0].held == (
        ("video", "t2"),
        ("video", "t1"),
    )


def test_beat_is_written_even_if_the_own_list_is_a_key_of_another_type(redis, cli, state):
    register(redis)
    cli.set(f"blueque_reserved_tasks_video_{NODE}", "odd")

    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        protocol.beat(redis, [Heartbeat("video", NODE, "i1", 1)], 11.5)

    assert state()["blueque_nodes_video"] == {NODE: 11.5}


def test_deregister_refuses_another_instance_and_writes_nothing(redis, state):
    register(redis)
    before = state()

    assert protocol.deregister(redis, "video", NODE, "i2") is False
    assert state() == before


def test_observe_shows_the_beats_and_the_members_and_writes_without_changing_anything(
    redis, cli, state
):
    register(redis)
    dead_listener(redis)
    cli.sadd("blueque_listeners_video", "old_1")
    before = state()

    assert protocol.observe(redis, ["video"]) == [
        ({NODE: 1.5, "host_2": 1.5}, {NODE, "host_2", "old_1"})
    ]
    assert state() == before


def test_a_beat_of_a_listener_that_holds_nothing_does_not_read_its_list(redis, cli):
    register(redis)
    cli.rpush(f"blueque_reserved_tasks_video_{NODE}", "t1")

    assert (
        protocol.beat(redis, [Heartbeat("video", NODE, "i1", 1)], 11.5, may_hold=False)[0].held
        == ()
    )
    assert cli.zscore("blueque_nodes_video", NODE) == 11.5


def test_observe_after_a_beat_reads_the_beats_alone(redis, cli):
    register(redis)
    dead_listener(redis)
    cli.sadd("blueque_listeners_video", "old_1")
    members = {NODE, "who_1"}

    assert protocol.observe(redis, ["audio", "video"], {"audio": set(), "video": members}) == [
        ({}, set()),
        ({NODE: 1.5, "host_2": 1.5}, members),
    ]


@pytest.mark.parametrize("seen", [{"beat": "1"}, {"beat": None}, {"instance": "i3"}], ids=repr)
def test_fence_gives_way_to_whoever_is_not_as_he_was_seen_and_writes_nothing(redis, state, seen):
    dead_listener(redis, "started")
    before = state()

    assert fence(redis, **seen) is False
    assert state() == before


def test_nobody_without_a_registration_can_be_fenced(redis, state):
    before = state()

    assert fence(redis) is False
    assert fence(redis, beat=None) is False
    assert state() == before


def test_a_fenced_listener_can_take_nothing_and_starts_a_new_life_by_registering(redis, cli):
    dead_listener(redis)
    protocol.enqueue(redis, "video", "t1", "in", now=5.5)
    cli.lpush("blueque_reserved_tasks_video_host_2", "t1")
    fence(redis)

    assert protocol.beat(redis, [Heartbeat("video", "host_2", "i2", 1)], 11.5)[1] == ["video"]
    for act in (
        lambda: protocol.pop(redis, "video", "host_2", "i2"),
        lambda: protocol.reserve(
            redis, AttemptRef("video", "t1", "token", "host_2"), "i2", now=6.5
        ),
    ):
        with pytest.raises(NotRegistered):
            act()
    protocol.register(redis, "video", "host_2", "i3", {}, now=20.5)

    assert protocol.pop(redis, "video", "host_2", "i3")[:3] == ("t1", 0, None)


def test_fence_gives_way_to_a_beat_at_the_last_moment(redis, other, overtaken, cli):
    dead_listener(redis)
    overtaken(lambda: protocol.beat(other, [Heartbeat("video", "host_2", "i2", 1)], 11.5))

    assert fence(redis) is False
    assert cli.hget("blueque_listener_video_host_2", "state") == "alive"


def test_a_beat_that_comes_after_the_fence_is_refused(redis, other, overtaken, cli):
    dead_listener(redis)
    overtaken(lambda: fence(other))

    assert protocol.beat(redis, [Heartbeat("video", "host_2", "i2", 1)], 11.5)[1] == ["video"]
    assert cli.hget("blueque_listener_video_host_2", "beat") == "0"


@pytest.mark.parametrize(
    "take",
    [
        lambda redis: protocol.pop(redis, "video", "host_2", "i2"),
        lambda redis: protocol.reserve(
            redis, AttemptRef("video", "t1", "token", "host_2"), "i2", now=6.5
        ),
    ],
    ids=["pop", "reserve"],
)
def test_whoever_is_fenced_while_he_takes_a_task_has_not_taken_it(
    redis, other, overtaken, state, take
):
    dead_listener(redis, "pending")
    protocol.enqueue(redis, "video", "t2", "in", now=5.5)
    before = state()
    overtaken(lambda: fence(other))

    with pytest.raises(NotRegistered):
        take(redis)

    after = state()
    for key in (
        "blueque_task_t1",
        "blueque_pending_tasks_video",
        "blueque_reserved_tasks_video_host_2",
    ):
        assert after[key] == before[key]


def fence_legacy(redis):
    return protocol.fence(redis, "video", "host_2", None, None, 9.25)


def test_of_us_and_a_neighbour_of_an_older_version_one_strikes_a_dead_listener_off(
    redis, cli, overtaken, state
):
    cli.sadd("blueque_listeners_video", "host_2")
    cli.zincrby("blueque_queues", 1, "video")

    def neighbour():
        assert cli.srem("blueque_listeners_video", "host_2") == 1
        cli.zincrby("blueque_queues", -1, "video")

    overtaken(neighbour)

    assert fence_legacy(redis) is False
    assert state() == {"blueque_queues": {"video": 0.0}}


@pytest.mark.parametrize("seen", ["i2", "i1", None])
def test_a_listener_that_lives_is_not_forgotten(redis, state, seen):
    dead_listener(redis)
    before = state()

    assert deregister_dead(redis, seen) is False
    assert state() == before


def test_a_new_life_under_the_same_node_is_not_forgotten_with_the_old_one(
    redis, other, overtaken, cli
):
    dead_listener(redis)
    fence(redis)
    overtaken(lambda: protocol.register(other, "video", "host_2", "i3", {}, now=9.5))

    assert deregister_dead(redis) is False
    assert cli.hget("blueque_listener_video_host_2", "instance") == "i3"
    assert cli.zscore("blueque_nodes_video", "host_2") == 9.5


def test_two_orphans_are_claimed_one_by_one_and_the_listener_is_forgotten_with_the_last(redis, cli):
    dead_listener(redis, "reserved", "started")

    assert claim(redis) == "t2", "the newest first, as 1.0.0 does"
    assert cli.smembers("blueque_listeners_video") == {"host_2"}
    assert cli.hget("blueque_listener_video_host_2", "state") == "alive"
    assert claim(redis, "host_3") == "t1"
    assert cli.smembers("blueque_listeners_video") == set()
    assert cli.zscore("blueque_queues", "video") == 0
    assert [cli.hget(f"blueque_task_t{number}", "reclaimed_node") for number in (1, 2)] == [
        "host_3",
        NODE,
    ]


def test_a_dead_listener_with_a_task_that_it_never_reserved_stays_known(redis, state):
    dead_listener(redis, "pending")
    before = state()

    assert claim(redis) is None
    assert state() == before


def test_claim_takes_the_task_that_can_be_claimed_and_keeps_the_listener_for_the_other(
    redis, state
):
    dead_listener(redis, "started", "pending")
    before = state()

    assert claim(redis) == "t1"
    assert state() == before | {
        "blueque_task_t1": before["blueque_task_t1"] | {"reclaimed_node": NODE}
    }


@pytest.mark.parametrize("status", ["complete", "failed", "cancelled"])
def test_the_hint_of_an_ended_task_does_not_keep_a_dead_listener_known(redis, cli, status):
    dead_listener(redis, "pending")
    cli.hset("blueque_task_t1", "status", status)

    assert claim(redis) is None
    assert cli.smembers("blueque_listeners_video") == set()


def test_the_hint_of_a_deleted_task_does_not_keep_a_dead_listener_known_and_makes_no_stump(
    redis, cli, state
):
    dead_listener(redis)
    cli.lpush("blueque_reserved_tasks_video_host_2", "gone")

    assert claim(redis) is None
    assert "blueque_task_gone" not in state()
    assert cli.smembers("blueque_listeners_video") == set()


def test_a_dead_listener_of_an_older_version_gets_no_registration_by_being_claimed(
    redis, cli, state
):
    cli.sadd("blueque_listeners_video", "host_2")
    cli.zincrby("blueque_queues", 1, "video")
    cli.lpush("blueque_reserved_tasks_video_host_2", "t1")
    cli.hset("blueque_task_t1", mapping={"status": "started", "node": "host_2"})

    assert claim(redis, instance=None) == "t1"
    assert state() == {
        "blueque_queues": {"video": 0.0},
        "blueque_reserved_tasks_video_host_2": ["t1"],
        "blueque_task_t1": {"status": "started", "node": "host_2", "reclaimed_node": NODE},
    }


def test_claim_from_a_new_life_of_the_dead_listener_is_refused_and_writes_nothing(
    redis, cli, state
):
    dead_listener(redis, "started")
    protocol.register(redis, "video", "host_2", "i3", {}, now=9.5, dead="i2")
    before = state()

    assert claim(redis) is None
    assert claim(redis, instance=None) is None
    assert state() == before


def test_a_reserved_task_that_we_have_claimed_is_ours_again_and_nothing_else_happens(redis, state):
    dead_listener(redis, "started", "reserved")
    assert claim(redis) == "t2"
    before = state()

    assert claim(redis) == "t2"
    assert state() == before


def test_claim_gives_way_when_the_list_changes_between_its_two_looks(
    redis, cli, state, monkeypatch
):
    dead_listener(redis, "started")
    read = redis.read

    def read_and_be_overtaken(*commands):
        replies = read(*commands)
        cli.lpush("blueque_reserved_tasks_video_host_2", "t2")
        return replies

    monkeypatch.setattr(redis, "read", read_and_be_overtaken)
    before = state()

    assert claim(redis) is None
    assert state() == before | {"blueque_reserved_tasks_video_host_2": ["t2", "t1"]}
