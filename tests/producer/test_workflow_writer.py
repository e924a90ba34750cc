"""blueque.producer.workflow_writer: all tasks of a workflow are made, or none of them runs."""

from __future__ import annotations

import itertools

import pytest
from faults import Fault
from transactions import protocol

from blueque import Client, after
from blueque.errors import (
    CycleFound,
    InvalidInput,
    NoSuchGroup,
    NoSuchTask,
    OutcomeUnknown,
    WrongGroup,
)
from blueque.model import keys
from blueque.model.group import Group, gate_of
from blueque.producer import workflow_writer
from blueque.queries import groups
from blueque.recovery.group_settling import settle_groups_step

NIGHT = "night"
GATE = gate_of(NIGHT)


def fan(client, name=NIGHT, size=500, word=""):
    """Return a workflow of a root, as many parts, and of each hundred parts a join."""
    flow = client.workflow(name, broken="cancel")
    root = flow.add("video", f"root{word}", key="root")
    parts = [flow.add("audio", number, after=root) for number in range(size)]
    for first in range(0, size, 100):
        flow.add("video", "join", key=f"join {first}", after=parts[first : first + 100])
    return flow


def settle(redis, now=2e9):
    for _ in range(1000):
        if not settle_groups_step(redis, now):
            return
    raise AssertionError("it does not come to an end")


def counts(cli):
    """Return how many tasks of all queues are blocked, and how many in line."""
    return [
        sum(of_kind(key(queue)) for queue in ("video", "audio"))
        for of_kind, key in ((cli.zcard, keys.blocked), (cli.llen, keys.pending))
    ]


def stop_after(monkeypatch, name, times):
    """Have the producer end in place of a call that comes after so many others."""
    real, left = getattr(workflow_writer, name), itertools.count(times, -1)

    def stopping(*arguments):
        if next(left) <= 0:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(workflow_writer, name, stopping)


def halfway(client, monkeypatch, flow=None, name="extend_graph", times=2):
    with monkeypatch.context() as stopped:
        stop_after(stopped, name, times)
        with pytest.raises(KeyboardInterrupt):
            (flow or fan(client)).commit()


def test_what_has_many_roots_is_let_go_by_the_producer_and_then_by_others(client, redis, cli):
    flow = client.workflow(NIGHT)
    tasks = [flow.add("audio", number) for number in range(1201)]

    assert flow.commit()
    assert counts(cli) == [201, 1000]
    settle(redis)

    assert cli.lrange(keys.pending("audio"), 0, -1) == tasks[::-1]


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("extend_graph", 0),
        ("extend_graph", 1),
        ("extend_graph", 2),
        ("close_graph", 0),
        ("finish_group", 0),
    ],
)
def test_another_process_goes_on_where_a_producer_has_died(
    client, url, redis, cli, monkeypatch, name, times, everything
):
    def flow(client=client):
        made = fan(client)
        for number in range(2):
            wide = [made.id_of(part + 1) for part in range(number, 240)]
            made.add("video", "wide", key=f"wide {number}", after=wide)
        return made

    halfway(client, monkeypatch, flow(), name, times)
    assert counts(cli)[1] == 0

    another = Client(url)
    assert flow(another).commit() == (name != "finish_group"), "then all tasks are there"
    another.close()
    settle(redis)

    assert counts(cli) == [507, 1]
    assert cli.zcard(keys.members(NIGHT)) == cli.scard(keys.open_members(NIGHT)) == 508
    conditions = cli.hgetall(keys.conditions(flow().id_of("wide 1")))
    assert len(conditions) == 239
    cli.delete(keys.group(GATE))  # its time is over
    settle(redis, 3e9)
    before = everything()
    assert not flow().commit()
    assert everything() == before


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.HOLD])
@pytest.mark.parametrize("write", range(1, 9))
def test_all_is_there_once_although_an_answer_is_lost(client, proxy, cli, fault, write):
    through = Client(proxy.url, patience=2.0)
    through.connections.read(("PING",))
    flow = fan(through, size=400)
    proxy.arm(fault, write)

    try:
        assert flow.commit()
    except OutcomeUnknown:
        assert flow.commit()
    proxy.release()
    through.close()

    assert cli.zcard(keys.members(NIGHT)) == cli.scard(keys.open_members(NIGHT)) == 405
    assert counts(cli) == [404, 1]


def test_an_answer_that_never_comes_says_to_commit_again(client, monkeypatch):
    def away(*_):
        raise OutcomeUnknown("the connection was lost")

    monkeypatch.setattr(workflow_writer, "extend_graph", away)

    with pytest.raises(OutcomeUnknown, match="'night' is not complete; commit it again: the conn"):
        fan(client).commit()


def test_who_commits_again_after_an_unknown_outcome_has_made_it(client, monkeypatch):
    def unknown(*arguments):
        protocol.close_graph(*arguments)
        raise OutcomeUnknown("the connection was lost")

    flow = fan(client)
    with monkeypatch.context() as stopped:
        stopped.setattr(workflow_writer, "close_graph", unknown)
        with pytest.raises(OutcomeUnknown):
            flow.commit()

    assert not fan(client).commit(), "it was there before"
    assert flow.commit()
    assert not flow.commit()


def test_two_who_commit_the_same_make_it_once(client, url, cli, overtaken):
    another = Client(url)
    flow, same = fan(client), fan(another)
    overtaken(same.commit)
    assert flow.commit()
    another.close()

    assert cli.zcard(keys.members(NIGHT)) == 506
    assert counts(cli) == [505, 1]


def test_other_content_under_the_same_name_is_refused_or_changes_nothing(
    client, monkeypatch, everything
):
    halfway(client, monkeypatch)
    before = everything()

    with pytest.raises(WrongGroup, match="commit that one again, or cancel it"):
        fan(client, word=" other").commit()
    small = client.workflow(NIGHT)
    small.add("video", 1)
    with pytest.raises(WrongGroup, match="another workflow with this name is not complete"):
        small.commit()
    assert everything() == before

    assert fan(client).commit()
    assert not fan(client, word=" other").commit()
    with pytest.raises(WrongGroup, match=r"another workflow has this name, without .* key '0'"):
        small.commit()


def test_a_workflow_that_is_cancelled_halfway_stops_its_commit(client, redis, cli, monkeypatch):
    halfway(client, monkeypatch)

    client.group(NIGHT).cancel(by="ann", reason="late")
    assert not cli.exists(keys.group(GATE))
    for flow in (fan(client), fan(client, word=" other")):
        with pytest.raises(WrongGroup):
            flow.commit()
    settle(redis)
    settle(redis)

    tasks = cli.zrange(keys.members(NIGHT), 0, -1)
    assert len(tasks) == 400
    assert {cli.hget(keys.task(task), "cancelled_by") for task in tasks} <= {"ann", "blueque"}
    assert counts(cli) == [0, 0]
    assert client.group(NIGHT).progress().state == "ended"
    assert client.group(NIGHT).delete()
    assert cli.keys("blueque_*night*") == []


@pytest.mark.parametrize("state", ["making", "cancelled"])
def test_no_task_of_an_unfinished_workflow_is_put_in_line_again(
    client, redis, cli, monkeypatch, everything, state
):
    halfway(client, monkeypatch)
    flow, queue = fan(client), client.get_queue("video")
    root = flow.id_of("root")
    if state == "making":
        queue.cancel(root)
    else:
        flow.cancel()
        settle(redis)
        settle(redis)
    before = everything()

    with pytest.raises(WrongGroup, match="not all of its tasks are there, so none of them runs"):
        queue.requeue(root)
    with pytest.raises(WrongGroup):
        flow.requeue()

    assert everything() == before
    assert counts(cli)[1] == 0


def test_a_task_of_a_workflow_that_is_complete_now_is_unblocked(client, redis, cli, monkeypatch):
    flow = fan(client)
    monkeypatch.setattr(workflow_writer, "finish_group", lambda *_: "closed")
    flow.commit()
    assert cli.hget(keys.conditions(flow.id_of("root")), f"group {GATE}") == "ok"

    assert client.get_queue("video").unblock(flow.id_of("root")) == "pending"


def test_a_task_that_lost_its_workflow_is_not_unblocked_from_its_gate(
    client, redis, cli, monkeypatch
):
    halfway(client, monkeypatch)
    flow, queue = fan(client), client.get_queue("video")
    cli.delete(keys.group(NIGHT))

    with pytest.raises(WrongGroup, match="its record is gone"):
        queue.unblock(flow.id_of("root"))
    assert counts(cli)[1] == 0


def test_what_was_cancelled_halfway_can_be_removed_and_made_whole(client, redis, cli, monkeypatch):
    flow = fan(client)
    flow.add("video", "wide", key="wide", after=[flow.id_of(part + 1) for part in range(240)])
    halfway(client, monkeypatch, flow, "close_graph", 0)
    outer = client.get_queue("video").enqueue("outer", after=flow.id_of("root"))
    flow.cancel()
    settle(redis)
    settle(redis)

    with monkeypatch.context() as died:
        real, left = protocol.delete, itertools.count(300, -1)

        def stopping(*arguments, **options):
            if next(left) <= 0:
                raise KeyboardInterrupt
            return real(*arguments, **options)

        died.setattr(protocol, "delete", stopping)
        with pytest.raises(KeyboardInterrupt):
            flow.delete()
    with pytest.raises(WrongGroup):
        flow.commit()
    assert flow.delete()

    assert not any(cli.exists(keys.task(task)) for task in flow._tasks)
    assert cli.hget(keys.task(outer), "status") == "blocked"
    assert flow.commit()
    assert flow.progress()[2:5] == (507, 507, 0)
    assert cli.lrange(keys.pending("video"), 0, -1) == [flow.id_of("root")]
    assert cli.hget(keys.task(flow.id_of("wide")), "status") == "blocked"


def test_the_record_of_what_was_cancelled_halfway_stays_with_its_tasks(
    client, redis, cli, monkeypatch
):
    flow = client.workflow(NIGHT, keep=60)
    for number in range(300):
        flow.add("audio", number)
    halfway(client, monkeypatch, flow, times=1)
    flow.cancel()
    for now in (2e9, 3e9):
        settle(redis, now)
        settle(redis, now)

    assert flow.progress()[2:5] == (200, 0, 200)
    assert cli.ttl(keys.group(NIGHT)) == -1 and not cli.hexists(keys.group(NIGHT), "expires")
    with pytest.raises(WrongGroup):
        flow.commit()


def test_a_cancel_between_the_last_task_and_the_end_wins(client, redis, cli, monkeypatch):
    real = workflow_writer.close_graph

    def cancel_first(*arguments):
        client.group(NIGHT).cancel()
        return real(*arguments)

    monkeypatch.setattr(workflow_writer, "close_graph", cancel_first)
    with pytest.raises(WrongGroup):
        fan(client).commit()
    settle(redis)

    assert counts(cli) == [0, 0]


def test_no_task_joins_a_workflow_that_is_not_complete_nor_waits_for_it(client, monkeypatch):
    """A later task of the workflow might wait for such a task, in a circle."""
    halfway(client, monkeypatch)
    queue = client.get_queue("video")

    with pytest.raises(WrongGroup):
        queue.enqueue("joins", group=NIGHT)
    with pytest.raises(NoSuchGroup, match="workflow 'night' is making"):
        queue.enqueue("waits", after=Group(NIGHT))
    with pytest.raises(WrongGroup, match="not all of its tasks are there"):
        client.group(NIGHT).close()

    assert fan(client).commit()
    queue.enqueue("waits", after=Group(NIGHT))


def test_what_waits_for_an_unfinished_workflow_is_refused_before_anything_is_written(
    client, monkeypatch, everything
):
    halfway(client, monkeypatch)
    queue = client.get_queue("video")
    others = [queue.enqueue(number) for number in range(240)]
    before = everything()

    with pytest.raises(NoSuchGroup, match="workflow 'night' is making"):
        queue.enqueue("waits", after=[*others, Group(NIGHT)])
    day = fan(client, "day")
    day.add("video", "last", after=Group(NIGHT))
    with pytest.raises(NoSuchGroup, match="workflow 'night' is making"):
        day.commit()
    assert everything() == before

    assert fan(client).commit()
    assert day.commit()


def wide_fan(client):
    """Return the same workflow with a task that waits for 240 others of it."""
    flow = fan(client)
    flow.add("video", "wide", key="wide", after=[flow.id_of(part + 1) for part in range(240)])
    return flow


@pytest.mark.parametrize("name", ["extend_graph", "close_graph"])
@pytest.mark.parametrize("has_gone", [False, True], ids=["cancelled", "removed"])
def test_a_commit_says_that_its_workflow_was_cancelled_meanwhile(
    client, redis, cli, monkeypatch, name, has_gone
):
    real = getattr(workflow_writer, name)

    def overtaken(*arguments):
        monkeypatch.setattr(workflow_writer, name, real)
        client.group(NIGHT).cancel()
        settle(redis)
        settle(redis)
        assert not has_gone or client.group(NIGHT).delete()
        return real(*arguments)

    monkeypatch.setattr(workflow_writer, name, overtaken)
    with pytest.raises(WrongGroup, match="group 'night': it was cancelled"):
        wide_fan(client).commit()

    assert counts(cli) == [0, 0]


def test_a_commit_that_lacks_its_gate_says_that_it_was_cancelled(client, cli, monkeypatch):
    halfway(client, monkeypatch, times=0)
    cli.delete(keys.group(GATE))

    with pytest.raises(WrongGroup, match="group 'night': it was cancelled"):
        fan(client).commit()


def test_a_task_may_wait_for_a_thousand_others_besides_the_gate(client, redis, cli):
    queue = client.get_queue("video")
    others = [task for ids in queue.enqueue_iter(range(1000)) for task in ids]
    flow = fan(client)
    wide = flow.add("video", "wide", after=others)

    assert flow.commit()
    settle(redis)

    conditions = cli.hgetall(keys.conditions(wide))
    assert conditions == {**dict.fromkeys(others, "ok"), f"group {GATE}": "+complete"}
    assert cli.hget(keys.task(wide), "status") == "blocked"


def test_what_a_failover_has_lost_is_made_again(client, redis, cli, monkeypatch):
    real = workflow_writer.close_graph
    lost: list[str] = []

    def lose_first(*arguments):
        if not lost:  # as if the last transaction had not reached the new master
            lost.extend(cli.zrange(keys.members(NIGHT), 400, -1))
            cli.zremrangebyrank(keys.members(NIGHT), 400, -1)
            cli.srem(keys.open_members(NIGHT), *lost)
            for task in lost:
                cli.delete(keys.task(task), keys.conditions(task))
        return real(*arguments)

    monkeypatch.setattr(workflow_writer, "close_graph", lose_first)

    assert fan(client).commit()
    assert len(lost) == 106
    assert cli.zrange(keys.members(NIGHT), 400, -1) == lost
    assert cli.scard(keys.open_members(NIGHT)) == 506
    assert all(cli.exists(keys.task(task)) for task in lost)


def test_what_cannot_be_is_refused_before_anything_is_written(client, cli):
    outer = client.get_queue("video").enqueue("outer")
    before = set(cli.keys("*"))

    circle = fan(client)
    circle.link(circle.id_of("root"), circle.id_of("join 0"))
    with pytest.raises(CycleFound):
        circle.commit()
    for waits, refusal in (
        (["nobody"], NoSuchTask),
        (Group("nobody"), NoSuchGroup),
        (Group(NIGHT), WrongGroup),
        (after(any=[*(str(number) for number in range(1000)), outer]), InvalidInput),
    ):
        flow = fan(client)
        flow.link(flow.add("video", "last"), waits)
        with pytest.raises(refusal):
            flow.commit()
    assert set(cli.keys("*")) == before


def test_tasks_of_an_earlier_workflow_are_refused(client, redis, cli):
    fan(client).commit()
    cli.delete(keys.group(NIGHT))  # its time is over

    with pytest.raises(WrongGroup, match="earlier workflow"):
        fan(client).commit()


def test_a_workflow_has_at_most_so_many_tasks(client, monkeypatch):
    monkeypatch.setattr("blueque.protocol.graphs.LARGEST", 300)

    with pytest.raises(InvalidInput, match="1 to 300 tasks, not 506"):
        fan(client).commit()
    with pytest.raises(InvalidInput, match="1 to 300 tasks, not 0"):
        client.workflow("empty").commit()


def test_a_gate_is_no_group_of_its_own(client, redis, monkeypatch):
    halfway(client, monkeypatch)
    protocol.finish_group(redis, GATE, 1.5)

    assert [seen.name for seen in groups.load_all(redis)] == [NIGHT]
    with pytest.raises(InvalidInput, match="begins with 'gate '"):
        client.group(GATE)
