"""blueque.protocol.groups against a real Redis: who joins a group, how it ends, and who is told."""

from __future__ import annotations

import pytest
from faults import Fault
from transactions import protocol

from blueque import Client
from blueque.errors import OutcomeUnknown, WrongGroup
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.conditions import after, conditions_of
from blueque.model.group import Group
from blueque.model.new_task import NewTask
from blueque.protocol.ends import End
from blueque.protocol.groups import MEMBERS_AT_ONCE
from blueque.recovery.dependents import Dependents
from blueque.recovery.group_settling import DUE, settle_groups_step

NODE = "host_1"
GROUP = "night 1"
KEEP = 60


@pytest.fixture(autouse=True)
def listener(redis):
    protocol.register(redis, "video", NODE, "i1", {}, now=1.5)


def open_group(redis, group=GROUP, now=2.5):
    return protocol.open_group(redis, group, KEEP, now)


def join(redis, *tasks, group=GROUP, now=3.5, conditions=None, **options):
    """Make tasks in a group."""
    options = {"group": group, **options}
    new = [NewTask(task, "video", "in", options, conditions or {}) for task in tasks]
    return protocol.enqueue_after(redis, new, now)


def wait_for(redis):
    """Make the task z, which waits for the group."""
    conditions = conditions_of(after(ok=Group(GROUP)))
    return protocol.enqueue_after(redis, [NewTask("z", "video", "in", {}, conditions)], 4.5)


def start(redis, *tasks):
    for task in tasks:
        redis.read(("LREM", keys.pending("video"), 0, task))
        redis.read(("LPUSH", keys.reserved("video", NODE), task))
        attempt = AttemptRef("video", task, f"token {task}", NODE)
        protocol.reserve(redis, attempt, "i1", now=6.5)
        protocol.start(redis, attempt, 77, 7.5, {"files": "host:/spool/1"})


def complete(redis, *tasks):
    start(redis, *tasks)
    for task in tasks:
        protocol.end(
            redis, AttemptRef("video", task, f"token {task}", NODE), End.complete("out"), 9.2
        )


def fail(redis, *tasks):
    start(redis, *tasks)
    for task in tasks:
        protocol.end(
            redis, AttemptRef("video", task, f"token {task}", NODE), End.fail("why", {}), 9.2
        )


def cancel(redis, *tasks):
    for task in tasks:
        protocol.cancel(redis, "video", task, "ann", None, 9.5)


def settle(redis, now=10.5):
    """Do all that is unsettled."""
    for _ in range(50):
        if not settle_groups_step(redis, now):
            return
    raise AssertionError("it does not come to an end")


def statuses(cli, *tasks):
    return [cli.hget(keys.task(task), "status") for task in tasks]


def standing(cli):
    """Return the state of the group, its open and its bad members."""
    return (
        cli.hget(keys.group(GROUP), "state"),
        cli.smembers(keys.open_members(GROUP)),
        cli.smembers(keys.bad_members(GROUP)),
    )


def keys_of(cli):
    return sorted(key for key in cli.keys("*") if GROUP in key and not key.startswith("blueque_ta"))


# Members


def test_a_task_cannot_wait_for_its_own_group(redis):
    open_group(redis)

    with pytest.raises(WrongGroup, match="cannot wait for it"):
        join(redis, "a", conditions={f"group {GROUP}": "ok"})


def test_many_members_that_1_0_0_has_deleted_are_noticed_in_one_minute(redis, cli):
    open_group(redis)
    tasks = [f"a{number}" for number in range(250)]
    for first in range(0, 250, 50):
        join(redis, *tasks[first : first + 50])
    protocol.close_group(redis, GROUP, 5.5)
    settle(redis)
    cli.delete(*map(keys.task, tasks))

    settle(redis, now=71.5)

    assert standing(cli) == ("ended", set(), set(tasks))


def test_what_a_1_0_0_listener_has_ended_is_noticed_when_nothing_else_happens(redis, cli):
    open_group(redis)
    join(redis, *[f"a{number}" for number in range(3)])
    protocol.close_group(redis, GROUP, 5.5)
    settle(redis)
    cli.hset(keys.task("a0"), "status", "complete")
    cli.hset(keys.task("a1"), "status", "failed")
    cli.delete(keys.task("a2"))

    settle(redis)
    assert standing(cli)[0] == "closed", "it is not looked at all the time"
    settle(redis, now=71.5)

    assert standing(cli) == ("ended", set(), {"a1", "a2"})


# The end


def test_a_group_whose_record_is_dropped_before_its_dependents_are_told_leaves_nothing(redis, cli):
    open_group(redis)
    protocol.close_group(redis, GROUP, 5.5)
    protocol.finish_group(redis, GROUP, 6.5)
    assert protocol.drop_group(redis, GROUP)

    protocol.settle_group(redis, GROUP, 7.5)
    assert cli.zscore(keys.GROUPS, GROUP) == 0
    protocol.finish_group(redis, GROUP, 8.5)

    assert not cli.exists(keys.group(GROUP), keys.GROUPS)


# What stays


def test_a_dependent_that_is_gone_does_not_keep_a_group(redis, cli):
    open_group(redis)
    join(redis, "a")
    wait_for(redis)
    protocol.close_group(redis, GROUP, 5.5)
    fail(redis, "a")
    settle(redis)
    assert cli.ttl(keys.group(GROUP)) == -1
    cli.delete(keys.task("z"), keys.conditions("z"))

    settle(redis, now=500.5)

    assert cli.ttl(keys.group(GROUP)) > 0


def test_a_member_of_a_group_that_is_gone_leaves_nothing_behind(redis, cli):
    open_group(redis)
    join(redis, "a")
    protocol.close_group(redis, GROUP, 5.5)
    fail(redis, "a")
    settle(redis)
    protocol.drop_group(redis, GROUP)

    protocol.requeue(redis, "video", "a", "mark", 11.5)
    settle(redis, now=12.5)

    assert keys_of(cli) == []
    assert not cli.exists(keys.UNSETTLED_MEMBERS, keys.GROUPS)


# Cancelling


@pytest.mark.parametrize("key", [keys.open_members, keys.bad_members, keys.awaiting, keys.group])
def test_a_key_of_a_wrong_type_stops_its_group_only(redis, cli, key):
    bad = [f"a{number:02}" for number in range(12)]
    for group in bad:
        open_group(redis, group)
        protocol.close_group(redis, group, 5.5)
        cli.delete(key(group))
        cli.set(key(group), "x")
    open_group(redis)
    join(redis, "m")
    wait_for(redis)
    protocol.close_group(redis, GROUP, 5.5)
    complete(redis, "m")

    settle(redis)

    assert statuses(cli, "z") == ["pending"]


@pytest.mark.parametrize("key", [keys.open_members, keys.group])
def test_any_number_of_keys_of_a_wrong_type_keep_no_other_group_from_its_end(redis, cli, key):
    for number in range(DUE + 50):
        group = f"a{number:03}"
        open_group(redis, group, now=2.0)
        join(redis, f"bad-{number}", group=group)
        cli.delete(key(group))
        cli.set(key(group), "x")
        cli.zadd(keys.GROUPS, {group: -1})
    cancel(redis, *[f"bad-{number}" for number in range(DUE + 50)])
    spoiled = [f"spoiled-{number}" for number in range(MEMBERS_AT_ONCE + 50)]
    cli.zadd(keys.UNSETTLED_MEMBERS, dict.fromkeys(spoiled, 1))
    cli.mset(dict.fromkeys(map(keys.task, spoiled), "x"))
    open_group(redis)
    join(redis, "m")
    wait_for(redis)
    protocol.close_group(redis, GROUP, 5.5)
    complete(redis, "m")
    dependents = Dependents(redis)

    for _ in range(9):
        dependents.step_of_groups()

    assert statuses(cli, "z") == ["pending"]


# What has gone wrong elsewhere


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.HOLD])
@pytest.mark.parametrize("write", [1, 2, 3, 4, 5, 6, 7, 8])
def test_the_body_runs_although_an_answer_is_lost(redis, cli, proxy, fault, write):
    """Celery #3363: the body of a chord never runs after a lost answer."""
    client = Client(proxy.url, patience=2.0)
    through = client.connections
    through.read(("PING",))
    open_group(redis)
    join(redis, "a", "b")
    wait_for(redis)
    protocol.close_group(redis, GROUP, 5.5)
    complete(redis, "a", "b")

    proxy.arm(fault, write)
    try:
        settle(through)
    except OutcomeUnknown:
        settle(redis)
    proxy.release()
    settle(redis, now=11.5)
    client.close()

    assert cli.lrange(keys.pending("video"), 0, -1) == ["z"]
    assert standing(cli) == ("ended", set(), set())


@pytest.mark.parametrize("dies_after", ["settle_members", "finish_group"])
def test_the_body_runs_although_its_last_settler_dies(redis, cli, dies_after):
    """Celery #3363, with a death in place of a lost answer."""
    open_group(redis)
    join(redis, "a")
    wait_for(redis)
    protocol.close_group(redis, GROUP, 5.5)
    complete(redis, "a")

    protocol.settle_members(redis, GROUP, ["a"])
    if dies_after == "finish_group":
        assert protocol.finish_group(redis, GROUP, 10.5) == "ended"
    assert statuses(cli, "z") == ["blocked"]

    settle(redis)
    assert statuses(cli, "z") == ["pending"]
