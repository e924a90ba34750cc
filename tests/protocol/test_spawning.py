"""blueque.protocol.spawning against a real Redis."""

from __future__ import annotations

import pytest
from faults import Fault
from transactions import protocol

from blueque import Client, NoSuchGroup, NoSuchTask, NotOwner
from blueque.audit.audit import audit
from blueque.errors import InvalidInput, WrongGroup
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.group import Group
from blueque.model.new import spawned_id
from blueque.model.new_task import NewTask
from blueque.protocol.ends import End
from blueque.protocol.recover import Loss

NODE, OTHER = "host_1", "host_2"
Q = "film"
ATTEMPT = AttemptRef(Q, "t1", "token", NODE)
A, B, C = (spawned_id("t1", key) for key in "abc")


@pytest.fixture(autouse=True)
def running(redis):
    """The task t1, which a listener runs."""
    run(redis, "t1")


def run(redis, task, node=NODE, token="token"):
    protocol.register(redis, Q, node, "i1", {}, now=1.5)
    protocol.enqueue(redis, Q, task, "in", now=5.5)
    return start(redis, task, node, token)


def start(redis, task, node=NODE, token="token"):
    attempt = AttemptRef(Q, task, token, node)
    assert protocol.pop(redis, Q, node, "i1").task == task
    protocol.reserve(redis, attempt, "i1", 6.5)
    protocol.start(redis, attempt, 77, 7.5)
    return attempt


def lose(redis):
    """Declare t1 lost with its listener."""
    protocol.fence(redis, Q, NODE, "i1", "0", 9.25)
    assert protocol.lose(redis, ATTEMPT, "i1", Loss("gone"), None, 8.5) == "failed"


def run_again(redis):
    """Have another attempt of t1 run, after the first was lost; return it."""
    lose(redis)
    protocol.requeue(redis, Q, "t1", "mark", 8.6)
    protocol.register(redis, Q, OTHER, "i1", {}, now=8.7)
    return start(redis, "t1", OTHER, "another")


def new(key, queue="parts", after=(), eta=None, **options):
    conditions = after if isinstance(after, dict) else dict.fromkeys(after, "ok")
    fields = {**options, "spawned_by": "t1"}
    return NewTask(spawned_id("t1", key), queue, f"do {key}", fields, conditions, eta)


def spawn(redis, *tasks, attempt=ATTEMPT):
    return protocol.spawn(redis, attempt, tasks, 9.5)


def complete_then(redis, *tasks, attempt=ATTEMPT, now=9.5, **more):
    return protocol.end(redis, attempt, End.complete("out", then=tasks, **more), now).is_awaited


def fields_of(cli, task):
    return cli.hgetall(f"blueque_task_{task}")


def status_of(cli, task):
    return cli.hget(f"blueque_task_{task}", "status")


def in_line(cli, queue="parts"):
    return cli.lrange(f"blueque_pending_tasks_{queue}", 0, -1)


def test_what_is_spawned_is_what_enqueue_would_have_made(redis, cli):
    assert spawn(redis, new("a"), new("b", "joins", priority=3), new("c", eta=99.5)) == [True] * 3

    common = {"created": "9.5", "updated": "9.5", "spawned_by": "t1"}
    assert fields_of(cli, A) == {
        **common,
        "status": "pending",
        "queue": "parts",
        "parameters": "do a",
    }
    assert fields_of(cli, B)["queue"] == "joins" and fields_of(cli, B)["priority"] == "3"
    assert fields_of(cli, C) == {
        **common,
        "status": "scheduled",
        "queue": "parts",
        "parameters": "do c",
        "eta": "99.5",
    }
    assert in_line(cli) == [A] and cli.lrange("blueque_line_3_joins", 0, -1) == [B]
    assert cli.zrange("blueque_scheduled_tasks_parts", 0, -1, withscores=True) == [(C, 99.5)]
    assert {*cli.zrange("blueque_tasks_parts", 0, -1)} == {A, C}
    assert cli.zrange("blueque_tasks_joins", 0, -1) == [B]
    assert {*cli.zrange("blueque_queues", 0, -1)} == {Q, "parts", "joins"}
    assert cli.exists("blueque_wake_parts", "blueque_wake_joins") == 2
    assert cli.zrange("blueque_lines_joins", 0, -1) == ["3"]
    assert fields_of(cli, "t1")["spawned"] == "1" and cli.scard("blueque_spawned_t1") == 3
    assert cli.exists(*[keys.conditions(task) for task in (A, B, C)]) == 0


def test_a_task_is_spawned_once_even_if_it_has_been_deleted_and_by_any_attempt(redis, cli, state):
    assert spawn(redis, new("a"), new("b")) == [True, True]
    protocol.cancel(redis, "parts", A, "ann", None, 9.6)
    protocol.delete(redis, "parts", A)
    before = state()

    assert spawn(redis, new("a"), new("b")) == [False, False]
    assert state() == before
    again = run_again(redis)
    assert spawn(redis, new("a"), new("b"), new("c"), attempt=again) == [False, False, True]
    assert status_of(cli, A) is None and in_line(cli) == [C, B]


def test_an_old_attempt_spawns_nothing(redis, state):
    run_again(redis)
    before = state()

    for attempt in (ATTEMPT, ATTEMPT._replace(token=None)):
        with pytest.raises(NotOwner):
            spawn(redis, new("a"), attempt=attempt)
    assert state() == before


def test_an_attempt_that_is_overtaken_by_another_spawns_nothing(redis, other, overtaken, cli):
    overtaken(lambda: spawn(other, new("a"), attempt=run_again(other)))

    with pytest.raises(NotOwner):
        spawn(redis, new("b"))
    assert in_line(cli) == [A] and status_of(cli, B) is None


def test_a_task_that_is_there_in_another_way_stays_as_it_is(redis, other, overtaken, cli):
    protocol.enqueue(redis, "parts", A, "mine", 8.5)
    overtaken(lambda: protocol.enqueue(other, "parts", B, "mine", 8.5))

    assert spawn(redis, new("a"), new("b"), new("c")) == [False, False, True]
    assert [fields_of(cli, task)["parameters"] for task in (A, B, C)] == ["mine", "mine", "do c"]
    assert in_line(cli) == [C, B, A]


def test_two_calls_of_one_attempt_at_once_make_each_task_once(redis, other, overtaken, cli):
    overtaken(lambda: spawn(other, new("a"), new("c")))

    assert spawn(redis, new("a"), new("b")) == [False, True]
    assert sorted(in_line(cli)) == sorted([A, B, C]) and cli.scard("blueque_spawned_t1") == 3


def test_progress_of_the_task_does_not_keep_it_from_spawning(redis, other, overtaken, cli):
    overtaken(lambda: protocol.progress(other, ATTEMPT, "50 %", 9.4))

    assert spawn(redis, new("a")) == [True] and fields_of(cli, "t1")["progress"] == "50 %"


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER])
def test_a_lost_answer_makes_nothing_twice(proxy, cli, fault):
    client = Client(proxy.url, patience=2.0)
    proxy.arm(fault, having=b"EXEC\r\n")

    spawn(client.connections, new("a"), new("b"))

    assert proxy.has_struck and in_line(cli) == [B, A]
    client.close()


def test_a_new_task_waits_for_others_and_for_new_ones_that_come_before_it(redis, cli):
    first = run(redis, "t2")

    spawn(redis, new("a"), new("b", "joins", after=[A, "t2"]), new("c", after=["t1"]))

    assert [status_of(cli, task) for task in (A, B, C)] == ["pending", "blocked", "blocked"]
    assert cli.hgetall(keys.conditions(B)) == {A: "ok", "t2": "ok"}
    assert [cli.zrange(keys.dependents(task), 0, -1) for task in (A, "t1", "t2")] == [[B], [C], [B]]
    assert [cli.hget(keys.task(task), "dependents") for task in (A, "t1", "t2")] == ["1"] * 3
    protocol.end(redis, first, End.complete("out"), 10.5)
    protocol.end(redis, ATTEMPT, End.complete("out"), 10.5)
    for parent in ("t1", "t2"):
        protocol.settle(redis, parent, 11.5)
    assert [status_of(cli, task) for task in (B, C)] == ["blocked", "pending"]


def test_a_new_task_does_not_miss_the_end_of_its_parent(redis, other, overtaken, cli):
    first = run(redis, "t2")
    overtaken(lambda: protocol.end(other, first, End.complete("out"), 9.4))

    spawn(redis, new("a", after=["t2"]))

    assert status_of(cli, A) == "pending" and cli.hgetall(keys.conditions(A)) == {"t2": "+complete"}


@pytest.mark.parametrize("at_the_end", [False, True])
def test_no_new_task_waits_for_itself_or_for_one_that_comes_after_it(redis, state, at_the_end):
    before, call = state(), complete_then if at_the_end else spawn

    for tasks in ([new("a", after=[A])], [new("a", after=[B]), new("b", after=[A])]):
        with pytest.raises(InvalidInput, match="only wait for one that comes before it"):
            call(redis, *tasks)
    assert state() == before


def test_a_parent_that_is_not_in_redis_is_refused_unless_the_task_exists_already(redis, state):
    before = state()
    with pytest.raises(NoSuchTask, match="nobody"):
        spawn(redis, new("a"), new("b", after=["nobody"]))
    assert state() == before

    protocol.enqueue(redis, Q, "t2", "in", 8.5)
    spawn(redis, new("a", after=["t2"]))
    protocol.cancel(redis, Q, "t2", "ann", None, 9.6)
    protocol.delete(redis, Q, "t2", is_forced=True)
    assert spawn(redis, new("a", after=["t2"]), new("b")) == [False, True]


TOO_MUCH = {
    "have the same key": [new("a"), new("a", "joins")],
    "more than 100 others": [new("a", after=map(str, range(101)))],
    "more than 1,000 conditions": [new(f"{n}", after="abcdefghijk") for n in range(100)],
    "more than 4,194,304 bytes": [new(f"{n}")._replace(parameters="é" * 2**20) for n in range(3)],
}


@pytest.mark.parametrize("at_the_end", [False, True])
@pytest.mark.parametrize("why", TOO_MUCH)
def test_more_than_one_transaction_takes_is_refused(redis, state, why, at_the_end):
    before, call = state(), complete_then if at_the_end else spawn

    with pytest.raises(InvalidInput, match=why):
        call(redis, *TOO_MUCH[why])
    assert state() == before


def test_200_tasks_are_spawned_at_once_and_100_with_the_end(redis, cli):
    with pytest.raises(InvalidInput, match="more than 200 tasks cannot be made at once"):
        spawn(redis, *[new(f"{n}") for n in range(201)])
    with pytest.raises(InvalidInput, match="more than 100 tasks cannot be made at once"):
        complete_then(redis, *[new(f"{n}") for n in range(101)])
    assert in_line(cli) == []

    assert spawn(redis, *[new(f"{n}") for n in range(200)]) == [True] * 200
    complete_then(redis, *[new(f"then {n}") for n in range(100)])
    assert len(in_line(cli)) == 300


def test_a_new_task_waits_for_a_group(redis, cli):
    protocol.open_group(redis, "night", 60, 8.5)
    spawn(redis, new("a", after=["t1"]), new("b", after=["group night"]))
    with pytest.raises(NoSuchGroup):
        spawn(redis, new("c", after=["group day"]))

    assert cli.zrange(keys.awaiting("night"), 0, -1) == [B] and status_of(cli, B) == "blocked"
    complete_then(redis, new("c", after={"group night": "any", "group day": "any"}))
    assert cli.hgetall(keys.conditions(C)) == {"group night": "any", "group day": "+gone"}
    assert cli.zrange(keys.awaiting("night"), 0, -1) == sorted([B, C])


def join(redis, cli, group="night"):
    """Have t1 be a member of a group that is closed."""
    protocol.open_group(redis, group, 60, 8.5)
    redis.read(("HSET", keys.task("t1"), "group", group))
    redis.read(("SADD", keys.open_members(group), "t1"), ("ZADD", keys.members(group), 1, "t1"))
    protocol.close_group(redis, group, 8.6)


def test_a_running_member_adds_to_its_closed_group_which_does_not_end_before(redis, cli):
    join(redis, cli)

    assert (
        spawn(redis, new("a", group="night"), new("b", group="night", after=["t1"])) == [True] * 2
    )
    assert spawn(redis, new("a", group="night")) == [False]
    protocol.end(redis, ATTEMPT, End.complete("out"), 10.5)
    protocol.settle_members(redis, "night", ["t1"])

    assert protocol.finish_group(redis, "night", 10.7) == "closed"
    assert cli.smembers(keys.open_members("night")) == {A, B}
    assert cli.zrange(keys.members("night"), 0, -1) == ["t1", A, B]
    assert fields_of(cli, A)["group"] == "night"


@pytest.mark.parametrize(
    ("steps", "refusal"),
    [
        (["open other", "close other"], WrongGroup),
        ([], NoSuchGroup),
        (["open other", "cancel other"], WrongGroup),
        (["cancel night", "own"], WrongGroup),
        (["end night", "own"], WrongGroup),
    ],
)
def test_a_task_joins_no_other_group_that_is_not_open(redis, cli, state, steps, refusal):
    join(redis, cli)
    for step in steps:
        verb, _, group = step.partition(" ")
        if verb == "open":
            protocol.open_group(redis, group, 60, 8.5)
        elif verb == "close":
            protocol.close_group(redis, group, 8.6)
        elif verb == "cancel":
            protocol.cancel_group(redis, group, "ann", None, 8.7)
        elif verb == "end":  # its end was noted before it was put in line again
            redis.read(("SREM", keys.open_members(group), "t1"))
            protocol.finish_group(redis, group, 8.7)
    before = state()

    with pytest.raises(refusal):
        spawn(redis, new("a", group="night" if "own" in steps else "other"))
    assert state() == before


def test_a_group_is_asked_only_about_tasks_that_are_made(redis, cli):
    protocol.open_group(redis, "day", 60, 8.5)
    spawn(redis, new("a", group="day"), new("b", group="day", after=["t1"]))
    protocol.close_group(redis, "day", 8.6)
    join(redis, cli)

    again = [new("a", group="day"), new("b", group="day", after=["t1"])]
    assert spawn(redis, *again, new("c", group="night")) == [False, False, True]
    assert cli.zrange(keys.members("day"), 0, -1) == [A, B]
    with pytest.raises(WrongGroup):
        spawn(redis, *again, new("d", group="day"))


def test_no_circle_comes_to_be_through_the_group_of_a_running_member(redis, cli, state):
    join(redis, cli)
    spawn(redis, new("c", after=["group night"]))
    before = state()

    with pytest.raises(WrongGroup, match="tasks wait for it already"):
        spawn(redis, new("a", group="night", after=[C]))
    with pytest.raises(WrongGroup, match="cannot wait for it"):
        spawn(redis, new("a", group="night", after=["group night"]))
    assert state() == before
    assert spawn(redis, new("a", group="night")) == [True]


def test_the_one_circle_that_can_come_to_be_is_found_by_the_doctor(redis, cli, client):
    join(redis, cli)
    client.group("day").open(after=Group("night"))
    before_the_members = new("a", "joins", group="night", after=["group day"])
    assert spawn(redis, before_the_members) == [True], "it is not known yet who waits for night"
    assert client.get_queue("parts").enqueue_many([1], keys=["k"], group="day").new == 1
    with pytest.raises(WrongGroup, match="tasks wait for it already"):
        spawn(redis, new("b", "joins", group="night", after=["group day"]))
    protocol.end(redis, ATTEMPT, End.complete("out"), 10.5)

    found = [each for each in audit(redis) if each.code == "circle"]

    (part,) = cli.zrange(keys.members("day"), 0, -1)
    names = " ".join(sorted([A, part])).replace(" ", ", ")
    how = f"tasks {names} wait for each other through group day, group night, and none of them"
    assert len(found) == 1 and how in found[0].sentence


def test_a_group_that_is_cancelled_meanwhile_takes_no_task(redis, other, cli, overtaken):
    join(redis, cli)
    overtaken(lambda: protocol.cancel_group(other, "night", "ann", None, 8.7))

    with pytest.raises(WrongGroup):
        spawn(redis, new("a", group="night"))
    assert not cli.exists(f"blueque_task_{A}")


# With the end of the task


def test_a_task_is_complete_and_the_new_ones_are_there_at_once(redis, cli):
    assert not complete_then(redis, new("a"), new("b", "joins", after=[A]), has_checkpoint=True)

    seen = fields_of(cli, "t1")
    assert (seen["status"], seen["result"], seen["finished_by"]) == ("complete", "out", "token")
    assert cli.lrange(f"blueque_complete_tasks_{Q}", 0, -1) == ["t1"] and in_line(cli) == [A]
    assert status_of(cli, B) == "blocked"
    assert cli.hgetall(keys.conditions(B)) == {A: "ok"}
    assert cli.zrange(keys.dependents(A), 0, -1) == [B] and not cli.exists(keys.dependents("t1"))
    assert not cli.exists(keys.spawned("t1"))


def test_one_that_exists_stays_as_it_is(redis, cli):
    spawn(redis, new("a"))
    protocol.cancel(redis, "parts", A, "ann", None, 9.4)
    before = fields_of(cli, A)

    complete_then(redis, new("a", priority=5), new("b"))

    assert fields_of(cli, A) == before and in_line(cli) == [B]


def test_one_that_was_spawned_and_deleted_is_not_made_with_the_end(redis, cli):
    spawn(redis, new("a"))
    protocol.cancel(redis, "parts", A, "ann", None, 9.4)
    protocol.delete(redis, "parts", A)

    complete_then(redis, new("a"), new("b", after=[A], broken="cancel"))

    assert status_of(cli, A) is None and status_of(cli, "t1") == "complete"
    assert cli.hgetall(keys.conditions(B)) == {A: "-gone"}


def test_an_end_that_is_reported_again_makes_nothing_again(redis, cli, state):
    complete_then(redis, new("a"))
    protocol.cancel(redis, "parts", A, "ann", None, 9.6)
    protocol.delete(redis, "parts", A)
    before = state()

    complete_then(redis, new("a"))
    assert state() == before

    protocol.delete(redis, Q, "t1")
    with pytest.raises(NotOwner):
        complete_then(redis, new("a"))
    assert status_of(cli, A) is None


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER])
def test_a_lost_answer_to_the_end_makes_nothing_twice(proxy, cli, fault):
    client = Client(proxy.url, patience=2.0)
    proxy.arm(fault, having=b"EXEC\r\n")

    complete_then(client.connections, new("a"), new("b"))

    assert proxy.has_struck and in_line(cli) == [B, A] and status_of(cli, "t1") == "complete"
    client.close()


def test_an_end_that_comes_too_late_makes_nothing(redis, other, overtaken, cli):
    overtaken(lambda: run_again(other))

    with pytest.raises(NotOwner):
        complete_then(redis, new("a"))
    assert status_of(cli, A) is None and status_of(cli, "t1") == "started"


def test_a_late_end_of_a_lost_attempt_makes_the_tasks(redis, cli):
    lose(redis)

    complete_then(redis, new("a"))

    assert status_of(cli, "t1") == "complete" and in_line(cli) == [A]


def test_a_task_that_is_made_meanwhile_is_not_made_again(redis, other, overtaken, cli):
    overtaken(lambda: protocol.enqueue(other, "parts", A, "mine", 8.5))

    complete_then(redis, new("a"), new("b"))

    assert in_line(cli) == [B, A] and status_of(cli, "t1") == "complete"
    assert fields_of(cli, A)["parameters"] == "mine"


def test_a_parent_that_is_gone_does_not_keep_the_task_from_its_end(redis, cli):
    complete_then(
        redis, new("a", after=["nobody"]), new("b", after={"nobody": "any"}), new("c", after=[B])
    )

    assert [status_of(cli, task) for task in ("t1", A, B, C)] == [
        "complete",
        "blocked",
        "pending",
        "blocked",
    ]
    assert cli.hgetall(keys.conditions(A)) == {"nobody": "-gone"}
    assert cli.hgetall(keys.conditions(B)) == {"nobody": "+gone"}
    assert not cli.exists(keys.task("nobody"), keys.dependents("nobody"))


def test_a_new_task_does_not_wait_for_the_task_that_made_it(redis, cli):
    complete_then(redis, new("a", after=["t1"]))

    assert status_of(cli, A) == "pending" and cli.hgetall(keys.conditions(A)) == {"t1": "+complete"}
    assert not cli.exists(keys.dependents("t1"))


def test_a_new_task_gets_the_result_of_the_task_that_made_it(redis, cli):
    assert complete_then(redis, new("a", after=["t1"], inputs=0), new("b", after={"t1": "not_ok"}))

    assert [status_of(cli, task) for task in (A, B)] == ["blocked", "blocked"]
    assert cli.zrange(keys.UNSETTLED_TASKS, 0, -1) == ["t1"]
    protocol.settle(redis, "t1", 11.5)
    assert [status_of(cli, task) for task in (A, B)] == ["pending", "cancelled"]
    assert cli.hgetall(keys.inputs(A)) == {"t1": "tout"}
