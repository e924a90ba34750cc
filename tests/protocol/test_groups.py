"""blueque.protocol.groups against a real Redis: who joins a group, how it ends, and who is told."""

from __future__ import annotations

import random

import pytest
from faults import Fault
from transactions import protocol

from blueque import Client
from blueque.errors import HasDependents, NoSuchGroup, OutcomeUnknown, WrongGroup
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.conditions import after, conditions_of
from blueque.model.group import Group
from blueque.model.group_terms import Terms
from blueque.model.new_task import NewTask
from blueque.producer.dependents import RecheckCount, recheck_dependents
from blueque.protocol.ends import End
from blueque.protocol.groups import MEMBERS_AT_ONCE
from blueque.protocol.pruning import FinishedTask
from blueque.recovery.dependents import Dependents
from blueque.recovery.group_settling import DUE, PICKED, settle_groups_step

NODE = "host_1"
GROUP = "night 1"
KEEP = 60


@pytest.fixture(autouse=True)
def listener(redis):
    protocol.register(redis, "video", NODE, "i1", {}, now=1.5)


def open_group(redis, group=GROUP, keep=KEEP, now=2.5):
    return protocol.open_group(redis, group, keep, now)


def join(redis, *tasks, group=GROUP, now=3.5, conditions=None, **options):
    """Make tasks in a group."""
    options = {"group": group, **options}
    new = [NewTask(task, "video", "in", options, conditions or {}) for task in tasks]
    return protocol.enqueue_after(redis, new, now)


def wait_for(redis, task="z", kind="ok", group=GROUP, now=4.5, **options):
    """Make a task that waits for a group."""
    conditions = conditions_of(after(**{kind: Group(group)}))
    return protocol.enqueue_after(redis, [NewTask(task, "video", "in", options, conditions)], now)


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


ENDS = {"complete": complete, "failed": fail, "cancelled": cancel}


def settle(redis, now=10.5):
    """Do all that is unsettled."""
    for _ in range(50):
        if not settle_groups_step(redis, now):
            return
    raise AssertionError("it does not come to an end")


def statuses(cli, *tasks):
    return [cli.hget(keys.task(task), "status") for task in tasks]


def standing(cli, group=GROUP):
    """Return the state of a group, its open and its bad members."""
    return (
        cli.hget(keys.group(group), "state"),
        cli.smembers(keys.open_members(group)),
        cli.smembers(keys.bad_members(group)),
    )


def keys_of(cli, group=GROUP):
    return sorted(key for key in cli.keys("*") if group in key and not key.startswith("blueque_ta"))


# Members


def test_a_group_is_opened_once_and_keeps_what_it_was_opened_with(redis, cli):
    first = open_group(redis)

    assert open_group(redis, keep=5, now=99.5) == first
    assert cli.hgetall(keys.group(GROUP)) == {
        "group": GROUP,
        "state": "open",
        "keep": "60",
        "created": "2.5",
    }
    assert cli.zscore(keys.GROUPS, GROUP) == 62.5


def test_a_member_is_in_line_and_in_its_group(redis, cli):
    open_group(redis)

    assert join(redis, "a", "b") == [True, True]

    assert cli.lrange(keys.pending("video"), 0, -1) == ["b", "a"]
    assert cli.zrange(keys.members(GROUP), 0, -1) == ["a", "b"]
    assert standing(cli) == ("open", {"a", "b"}, set())
    assert cli.hgetall(keys.task("a"))["group"] == GROUP
    assert not cli.exists(keys.conditions("a"))


def test_a_member_that_is_made_again_joins_once(redis, cli):
    open_group(redis)
    options = {"key": "k", "keep": 1, "enqueued_by": "mark"}
    join(redis, "a", **options)

    assert join(redis, "a", **{**options, "enqueued_by": "other"}) == [False]
    assert cli.zrange(keys.members(GROUP), 0, -1) == ["a"]


@pytest.mark.parametrize(
    ("steps", "refusal"),
    [([], NoSuchGroup), (["open", "close"], WrongGroup), (["open", "cancel"], WrongGroup)],
)
def test_no_task_joins_a_group_that_is_not_open(redis, cli, steps, refusal):
    for step in steps:
        if step == "open":
            open_group(redis)
        elif step == "close":
            protocol.close_group(redis, GROUP, 3.5)
        else:
            protocol.cancel_group(redis, GROUP, "ann", None, 3.5)

    with pytest.raises(refusal):
        join(redis, "a")
    assert not cli.exists(keys.task("a"), keys.open_members(GROUP))


def test_a_task_that_joins_while_the_group_is_closed_is_refused(redis, other, overtaken, cli):
    open_group(redis)
    overtaken(lambda: protocol.close_group(other, GROUP, 3.5))

    with pytest.raises(WrongGroup):
        join(redis, "a")
    assert not cli.exists(keys.task("a"))


@pytest.mark.parametrize("step", ["close", "cancel", "drop", "awaited"])
def test_a_group_is_asked_only_about_tasks_that_are_made(redis, cli, step):
    def tasks(mark):
        options = {"key": "k", "keep": 1, "enqueued_by": mark}
        group = GROUP if step == "awaited" else "day"
        return [
            NewTask("a", "video", "in", {**options, "group": GROUP}, {"p": "ok"}),
            NewTask("b", "video", "in", {**options, "group": group}, {}),
        ]

    open_group(redis)
    open_group(redis, "day")
    join(redis, "p", group="day")
    assert protocol.enqueue_after(redis, tasks("1")[:1], 3.5) == [True]
    if step == "awaited":
        wait_for(redis)
    elif step == "cancel":
        protocol.cancel_group(redis, GROUP, "ann", None, 3.5)
    else:
        protocol.close_group(redis, GROUP, 3.5)
    if step == "drop":
        cli.delete(keys.group(GROUP))

    assert protocol.enqueue_after(redis, tasks("2"), 4.5) == [False, True]
    assert cli.zrange(keys.members(GROUP), 0, -1) == ["a", *(["b"] if step == "awaited" else [])]


def test_a_task_cannot_wait_for_its_own_group(redis):
    open_group(redis)

    with pytest.raises(WrongGroup, match="cannot wait for it"):
        join(redis, "a", conditions={f"group {GROUP}": "ok"})


def test_no_circle_comes_to_be_through_a_group(redis, other, overtaken, cli):
    open_group(redis)
    wait_for(redis)

    with pytest.raises(WrongGroup, match="tasks wait for it already"):
        join(redis, "a", conditions={"z": "ok"})
    assert join(redis, "b") == [True], "it waits for nothing"

    open_group(redis, "day")
    overtaken(lambda: wait_for(other, "y", group="day"))
    with pytest.raises(WrongGroup):
        join(redis, "c", group="day", conditions={"b": "ok"})
    assert not cli.exists(keys.task("a"), keys.task("c"))


@pytest.mark.parametrize("status", ["complete", "failed", "cancelled"])
def test_the_end_of_a_member_is_noted(redis, cli, status):
    open_group(redis)
    join(redis, "a", "b")
    ENDS[status](redis, "a")
    assert cli.zrange(keys.UNSETTLED_MEMBERS, 0, -1) == ["a"]

    settle(redis)

    assert standing(cli) == ("open", {"b"}, set() if status == "complete" else {"a"})
    assert not cli.exists(keys.UNSETTLED_MEMBERS)


def test_a_bad_member_that_is_put_in_line_again_is_open_again(redis, cli):
    open_group(redis)
    join(redis, "a")
    protocol.close_group(redis, GROUP, 5.5)
    fail(redis, "a")
    settle(redis)
    assert standing(cli) == ("ended", set(), {"a"})
    assert cli.ttl(keys.group(GROUP)) > 0

    protocol.requeue(redis, "video", "a", "mark", 11.5)
    settle(redis)
    assert standing(cli) == ("closed", {"a"}, set())
    assert cli.ttl(keys.group(GROUP)) == -1

    complete(redis, "a")
    settle(redis)
    assert standing(cli) == ("ended", set(), set())


def test_a_late_note_of_an_end_is_refused_when_the_member_runs_again(redis, other, overtaken, cli):
    open_group(redis)
    join(redis, "a")
    fail(redis, "a")

    overtaken(lambda: protocol.requeue(other, "video", "a", "mark", 11.5))
    protocol.settle_members(redis, GROUP, ["a"])

    assert standing(cli) == ("open", {"a"}, set())


def test_a_member_that_is_gone_is_bad_and_one_of_another_group_too(redis, cli):
    open_group(redis)
    open_group(redis, "day")
    join(redis, "a", "b")
    cli.delete(keys.task("a"))
    cli.hset(keys.task("b"), "group", "day")

    protocol.settle_members(redis, GROUP, ["a", "b"])

    assert standing(cli) == ("open", set(), {"a", "b"})


@pytest.mark.parametrize("status", ["complete", "failed"])
def test_a_member_is_not_deleted_before_its_group_has_noted_its_end(redis, cli, status):
    open_group(redis)
    join(redis, "a")
    ENDS[status](redis, "a")
    ended = [FinishedTask("a", 9.2)]

    with pytest.raises(HasDependents):
        protocol.delete(redis, "video", "a", is_forced=True)
    assert protocol.prune(redis, "video", status, ended) == 0
    settle(redis)

    assert protocol.prune(redis, "video", status, ended) == 1


def test_a_queue_deletes_a_member_whose_end_it_has_noted_first(redis, queue, client, cli):
    open_group(redis)
    join(redis, "a")
    complete(redis, "a")

    queue.delete_task(client.get_task("a"))

    assert not cli.exists(keys.task("a"), keys.UNSETTLED_MEMBERS)
    assert standing(cli) == ("open", set(), set())


def test_a_member_that_a_list_has_shown_is_deleted_as_it_has_ended(redis, queue, client, cli):
    open_group(redis)
    join(redis, "a")
    complete(redis, "a")
    (shown,) = client.get_inspector().tasks(["a"])

    queue.delete_task(shown)

    assert not cli.exists(keys.task("a"), keys.UNSETTLED_MEMBERS)
    assert standing(cli) == ("open", set(), set())


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


def test_a_group_ends_when_it_is_closed_and_the_last_member_has_ended(redis, cli):
    open_group(redis)
    join(redis, "a", "b")
    complete(redis, "a", "b")
    settle(redis)
    assert standing(cli)[0] == "open"

    protocol.close_group(redis, GROUP, 11.5)
    settle(redis, now=12.5)

    assert standing(cli) == ("ended", set(), set())
    assert cli.hmget(keys.group(GROUP), "closed", "ended") == ["11.5", "12.5"]


def test_a_group_without_members_ends_when_it_is_closed(redis, cli):
    open_group(redis)
    wait_for(redis)
    protocol.close_group(redis, GROUP, 5.5)

    settle(redis)

    assert standing(cli)[0] == "ended"
    assert statuses(cli, "z") == ["pending"]


def run_again_meanwhile(redis, other, overtaken):
    """Close the group of a failed task, which is requeued between the next look and its EXEC."""
    join(redis, "a")
    protocol.close_group(redis, GROUP, 5.5)
    fail(redis, "a")
    protocol.settle_members(redis, GROUP, ["a"])

    def run_again():
        protocol.requeue(other, "video", "a", "mark", 11.5)
        protocol.settle_members(other, GROUP, ["a"])

    overtaken(run_again)


def test_a_group_does_not_end_when_a_member_runs_again_meanwhile(redis, other, overtaken, cli):
    open_group(redis)
    run_again_meanwhile(redis, other, overtaken)
    assert protocol.finish_group(redis, GROUP, 12.5) == "closed"
    assert standing(cli) == ("closed", {"a"}, set())


def test_a_group_is_not_collected_when_a_member_runs_again_meanwhile(redis, other, overtaken):
    protocol.open_group(redis, GROUP, KEEP, 2.5, Terms(hold=KEEP))
    run_again_meanwhile(redis, other, overtaken)
    with pytest.raises(WrongGroup, match=r"open tasks \(1\)"):
        protocol.collect_group(redis, GROUP, 12.5)


@pytest.mark.parametrize("member", ["complete", "failed", "cancelled"])
@pytest.mark.parametrize("kind", ["ok", "any", "not_ok"])
def test_those_who_wait_for_a_group_are_told_how_it_has_ended(redis, cli, kind, member):
    open_group(redis)
    join(redis, "a", "b")
    wait_for(redis, kind=kind)
    protocol.close_group(redis, GROUP, 5.5)
    complete(redis, "a")
    settle(redis)
    assert statuses(cli, "z") == ["blocked"]

    ENDS[member](redis, "b")
    settle(redis)

    is_well = member == "complete"
    status = {"ok": "pending" if is_well else "blocked", "any": "pending"}
    status["not_ok"] = "cancelled" if is_well else "pending"
    assert statuses(cli, "z") == [status[kind]]
    assert (cli.zscore(keys.awaiting(GROUP), "z") is not None) == (status[kind] == "blocked")


@pytest.mark.parametrize("member", ["complete", "failed"])
@pytest.mark.parametrize("kind", ["ok", "any", "not_ok"])
def test_a_task_that_comes_when_the_group_has_ended_is_told_the_same(redis, cli, kind, member):
    open_group(redis)
    join(redis, "a")
    protocol.close_group(redis, GROUP, 5.5)
    ENDS[member](redis, "a")
    settle(redis)

    wait_for(redis, kind=kind, now=20.5)
    settle(redis, now=21.5)

    is_well = member == "complete"
    status = {"ok": "pending" if is_well else "blocked", "any": "pending"}
    status["not_ok"] = "cancelled" if is_well else "pending"
    assert statuses(cli, "z") == [status[kind]]
    # A task that is held needs the group: the record stays.
    assert (cli.ttl(keys.group(GROUP)) == -1) == (status[kind] == "blocked")


def test_nobody_waits_for_a_group_that_does_not_exist(redis, cli):
    with pytest.raises(NoSuchGroup):
        wait_for(redis)
    assert not cli.exists(keys.task("z"))


def test_a_task_that_comes_while_the_group_ends_is_told(redis, other, overtaken, cli):
    open_group(redis)
    join(redis, "a")
    protocol.close_group(redis, GROUP, 5.5)

    def end():
        complete(other, "a")
        settle(other)

    overtaken(end)
    wait_for(redis)

    assert statuses(cli, "z") == ["pending"]


def test_a_task_that_comes_while_the_dependents_are_told_is_told_too(redis, other, overtaken, cli):
    open_group(redis)
    join(redis, "a")
    wait_for(redis, "y")
    protocol.close_group(redis, GROUP, 5.5)
    complete(redis, "a")
    protocol.settle_members(redis, GROUP, ["a"])
    protocol.finish_group(redis, GROUP, 10.5)

    # Its condition is met, so it does not wait at all.
    overtaken(lambda: wait_for(other, "z"))
    protocol.settle_group(redis, GROUP, 11.5)

    assert statuses(cli, "y", "z") == ["pending", "pending"]


def test_many_are_told_a_hundred_at_a_time(redis, cli):
    open_group(redis)
    for number in range(250):
        wait_for(redis, f"z{number}")
    protocol.close_group(redis, GROUP, 5.5)
    protocol.finish_group(redis, GROUP, 6.5)

    told = [protocol.settle_group(redis, GROUP, 7.5) for _ in range(3)]

    assert [each.freed for each in told] == [100, 100, 50]
    assert [each.is_over for each in told] == [False, False, True]
    assert cli.llen(keys.pending("video")) == 250


def test_a_group_whose_record_is_dropped_before_its_dependents_are_told_leaves_nothing(redis, cli):
    open_group(redis)
    protocol.close_group(redis, GROUP, 5.5)
    protocol.finish_group(redis, GROUP, 6.5)
    assert protocol.drop_group(redis, GROUP)

    protocol.settle_group(redis, GROUP, 7.5)
    assert cli.zscore(keys.GROUPS, GROUP) == 0
    protocol.finish_group(redis, GROUP, 8.5)

    assert not cli.exists(keys.group(GROUP), keys.GROUPS)


def test_a_held_task_runs_when_the_bad_member_is_complete_after_all(redis, cli):
    open_group(redis)
    join(redis, "a")
    wait_for(redis)
    protocol.close_group(redis, GROUP, 5.5)
    fail(redis, "a")
    settle(redis)
    assert statuses(cli, "z") == ["blocked"]

    protocol.requeue(redis, "video", "a", "mark", 11.5)
    complete(redis, "a")
    settle(redis, now=12.5)

    assert statuses(cli, "z") == ["pending"]


def test_a_task_that_was_cancelled_for_a_group_goes_on_when_it_is_requeued(redis, cli):
    open_group(redis)
    join(redis, "a")
    wait_for(redis, broken="cancel")
    protocol.close_group(redis, GROUP, 5.5)
    fail(redis, "a")
    settle(redis)
    assert cli.hmget(keys.task("z"), "status", "broken_by") == ["cancelled", f"group {GROUP}"]

    protocol.requeue(redis, "video", "a", "mark", 11.5)
    complete(redis, "a")
    settle(redis, now=12.5)
    assert statuses(cli, "z") == ["cancelled"]
    protocol.requeue(redis, cli.hget(keys.task("z"), "queue"), "z", "mark", 13.5)

    assert statuses(cli, "z") == ["pending"]


def test_a_member_that_was_cancelled_for_another_task_and_requeued_is_open_again(redis, cli):
    open_group(redis)
    protocol.enqueue(redis, "video", "p", "in", now=2.5)
    join(redis, "a", conditions={"p": "ok"}, broken="cancel")
    fail(redis, "p")
    protocol.settle(redis, "p", 10.5)
    settle(redis)
    assert standing(cli) == ("open", set(), {"a"})

    protocol.requeue(redis, cli.hget(keys.task("a"), "queue"), "a", "mark", 12.5)
    settle(redis)

    assert standing(cli) == ("open", {"a"}, set())


def test_recheck_finds_out_about_a_group_by_itself(redis, cli):
    open_group(redis)
    join(redis, "a")
    wait_for(redis)
    cli.delete(keys.awaiting(GROUP))

    assert protocol.recheck(redis, "video", "z", 5.5) == "blocked"
    assert cli.zrange(keys.awaiting(GROUP), 0, -1) == ["z"]

    cli.delete(keys.awaiting(GROUP))
    complete(redis, "a")
    protocol.close_group(redis, GROUP, 10.5)
    settle(redis)
    assert protocol.recheck(redis, "video", "z", 11.5) == "pending"


@pytest.mark.parametrize(("kind", "status"), [("ok", "blocked"), ("any", "pending")])
def test_a_group_that_is_gone_can_never_be_complete(redis, cli, kind, status):
    open_group(redis)
    wait_for(redis, kind=kind)
    cli.delete(keys.group(GROUP))

    assert protocol.recheck(redis, "video", "z", 5.5) == status
    mark = "-gone" if kind == "ok" else "+gone"
    assert cli.hgetall(keys.conditions("z")) == {f"group {GROUP}": mark}


def test_unblock_drops_the_wait_for_a_group(redis, cli):
    open_group(redis)
    join(redis, "a")
    wait_for(redis)
    protocol.close_group(redis, GROUP, 5.5)
    fail(redis, "a")
    settle(redis)

    assert protocol.unblock(redis, "video", "z", 11.5, "ann") == "pending"
    settle(redis, now=12.5)

    assert not cli.exists(keys.awaiting(GROUP))
    assert cli.ttl(keys.group(GROUP)) > 0


# What stays


def test_a_group_leaves_nothing_when_its_time_is_over(redis, cli):
    open_group(redis, keep=0)
    join(redis, "a", "b")
    wait_for(redis)
    protocol.close_group(redis, GROUP, 5.5)
    complete(redis, "a")
    fail(redis, "b")
    settle(redis)
    assert protocol.unblock(redis, "video", "z", 11.5, "ann") == "pending"
    settle(redis, now=12.5)
    assert cli.ttl(keys.group(GROUP)) in (0, 1)

    cli.delete(keys.group(GROUP))  # as Redis does
    settle(redis, now=500.5)

    assert keys_of(cli) == []
    assert not cli.exists(keys.GROUPS)


def test_the_time_of_a_group_is_not_put_off_by_looking_at_it(redis, cli):
    open_group(redis)
    protocol.close_group(redis, GROUP, 5.5)
    settle(redis)
    assert cli.hget(keys.group(GROUP), "expires") == "70.5"
    cli.expire(keys.group(GROUP), 7)

    settle(redis, now=200.5)

    assert cli.ttl(keys.group(GROUP)) <= 7
    assert cli.zscore(keys.GROUPS, GROUP) > 200.5


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


def test_a_group_is_removed_when_it_has_ended_and_no_task_waits(redis, cli):
    open_group(redis)
    wait_for(redis)
    with pytest.raises(WrongGroup, match="it is open"):
        protocol.drop_group(redis, GROUP)
    protocol.close_group(redis, GROUP, 5.5)
    protocol.finish_group(redis, GROUP, 6.5)
    with pytest.raises(WrongGroup, match="tasks wait"):
        protocol.drop_group(redis, GROUP)
    settle(redis)

    assert protocol.drop_group(redis, GROUP)
    assert not protocol.drop_group(redis, GROUP)
    assert keys_of(cli) == []


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


def test_a_cancelled_group_takes_its_open_members_with_it(redis, cli):
    open_group(redis)
    protocol.enqueue(redis, "video", "p", "in", now=2.5)
    join(redis, "b", conditions={"p": "ok"})
    join(redis, "a", "r", "c")
    complete(redis, "c")
    start(redis, "r")

    protocol.cancel_group(redis, GROUP, "ann", "enough", 8.5)
    settle(redis)

    assert statuses(cli, "a", "b", "c", "r") == ["cancelled", "cancelled", "complete", "started"]
    assert cli.hmget(keys.task("a"), "cancelled_by", "cancel_reason") == ["ann", "enough"]
    assert cli.hget(keys.task("r"), "cancel")
    assert standing(cli) == ("closed", {"r"}, {"a", "b"})

    protocol.end(redis, AttemptRef("video", "r", "token r", NODE), End.confirm_cancel(), 11.5)
    settle(redis, now=12.5)
    assert standing(cli) == ("ended", set(), {"a", "b", "r"})


def test_a_large_group_is_cancelled_step_by_step(redis, cli):
    open_group(redis)
    tasks = [f"a{number}" for number in range(2 * PICKED + 50)]
    for first in range(0, len(tasks), 50):
        join(redis, *tasks[first : first + 50])
    protocol.cancel_group(redis, GROUP, "ann", None, 8.5)

    settle_groups_step(redis, 9.5)
    assert cli.llen(keys.cancelled("video")) == PICKED
    settle(redis)

    assert standing(cli)[0] == "ended"
    assert cli.llen(keys.cancelled("video")) == len(tasks)


def test_many_groups_are_cancelled_together_while_others_are_told(redis, cli):
    named = [f"a{number}" for number in range(10)]
    for group in named:
        open_group(redis, group)
        for first in (0, 50):
            join(redis, *[f"{group}-{first + number}" for number in range(50)], group=group)
        protocol.cancel_group(redis, group, "ann", None, 8.5)
    open_group(redis, "z")
    wait_for(redis, group="z")

    settle_groups_step(redis, 9.5)
    assert cli.llen(keys.cancelled("video")) == 100, "in all"
    protocol.close_group(redis, "z", 9.5)
    for _ in range(4):
        settle_groups_step(redis, 9.5)

    assert statuses(cli, "z") == ["pending"]
    settle(redis)
    assert {standing(cli, group)[0] for group in named} == {"ended"}


def test_a_step_looks_at_a_hundred_of_those_who_wait_for_a_group_that_ended_long_ago(
    redis, cli, monkeypatch
):
    open_group(redis)
    join(redis, "a")
    waiting = [f"z{number:03}" for number in range(350)]
    for task in waiting:
        wait_for(redis, task)
    protocol.close_group(redis, GROUP, 5.5)
    fail(redis, "a")
    settle(redis)
    found = []
    monkeypatch.setattr(
        "blueque.recovery.group_settling.recheck_dependents",
        lambda *a: found.append(recheck_dependents(*a)) or found[-1],
    )

    assert not settle_groups_step(redis, 500.5)
    assert found == [RecheckCount(removed=0, waiting=100)]
    cli.delete(*map(keys.task, waiting))
    settle(redis, now=1000.5)

    assert not cli.exists(keys.awaiting(GROUP))
    assert cli.ttl(keys.group(GROUP)) > 0


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


def test_a_member_whose_key_has_a_wrong_type_stops_itself_only(redis, cli):
    open_group(redis)
    join(redis, "m", "n")
    wait_for(redis, kind="any")
    protocol.close_group(redis, GROUP, 5.5)
    cancel(redis, "m", "n")
    cli.delete(keys.task("m"))
    cli.set(keys.task("m"), "x")

    settle(redis)

    assert standing(cli) == ("closed", {"m"}, {"n"})
    assert cli.zrange(keys.UNSETTLED_MEMBERS, 0, -1) == ["m"]
    cli.delete(keys.task("m"))
    settle(redis)
    settle(redis, now=100.5)
    assert statuses(cli, "z") == ["pending"]


def test_a_member_that_a_person_runs_again_after_a_cancel_runs(redis, cli):
    open_group(redis)
    join(redis, "a")
    protocol.cancel_group(redis, GROUP, "ann", None, 8.5)
    settle(redis)
    assert standing(cli)[0] == "ended"

    protocol.requeue(redis, "video", "a", "mark", 11.5)
    settle(redis, now=12.5)

    assert statuses(cli, "a") == ["pending"]
    assert standing(cli) == ("closed", {"a"}, set())


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


@pytest.mark.parametrize("seed", range(20))
def test_the_callback_runs_once_however_often_an_end_is_reported(redis, other, cli, seed):
    """Sidekiq #4361: a counter that two processes decrement runs the callback twice, or never."""
    chance = random.Random(seed)
    open_group(redis)
    members = [f"a{number}" for number in range(6)]
    join(redis, *members)
    wait_for(redis, kind="any")
    protocol.close_group(redis, GROUP, 5.5)

    left = members[:]
    chance.shuffle(left)
    while left:
        task = left.pop()
        chance.choice([complete, fail, cancel])(redis, task)
        for _ in range(chance.randrange(3)):
            some = chance.sample(members, chance.randrange(1, len(members) + 1))
            settler = chance.choice([redis, other])
            protocol.settle_members(settler, GROUP, some)
            protocol.finish_group(settler, GROUP, 10.5)
        if left:
            assert statuses(cli, "z") == ["blocked"]
    for settler in (redis, other, redis):
        settle(settler)
        protocol.settle_group(settler, GROUP, 11.5)

    assert cli.lrange(keys.pending("video"), 0, -1).count("z") == 1
    assert cli.hget(keys.totals("video"), "unblocked") == "1"
