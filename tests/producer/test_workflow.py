"""blueque.producer.workflow: tasks that wait for each other, made all at once."""

from __future__ import annotations

import pytest
from faults import Fault

from blueque import Client
from blueque.errors import (
    CycleFound,
    InvalidInput,
    NoSuchTask,
    OutcomeUnknown,
    RedisAway,
    WrongGroup,
)
from blueque.model import keys


def diamond(client, name="night", **options):
    flow = client.workflow(name, **options)
    first = flow.add("video", "first")
    parts = [flow.add("audio", number, after=[first]) for number in range(2)]
    last = flow.add("video", "last", key="last", after=parts, results=True)
    return flow, [first, *parts, last]


def test_a_block_commits_its_workflow_unless_it_raises(client, cli):
    with client.workflow("night") as flow:
        first = flow.add("video", "first")
        second = flow.add("video", "second", after=first)
    assert statuses(client, [first, second]) == ["pending", "blocked"]

    with pytest.raises(ZeroDivisionError), client.workflow("other") as flow:
        flow.add("video", 1 / 0)
    assert not cli.exists(keys.group("other"))


def statuses(client, tasks):
    return [client.get_task(task).status for task in tasks]


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.HOLD])
@pytest.mark.parametrize("write", [1, 2])
def test_a_workflow_is_there_once_although_an_answer_is_lost(client, proxy, cli, fault, write):
    through = Client(proxy.url, patience=2.0)
    through.connections.read(("PING",))
    flow, tasks = diamond(through)
    proxy.arm(fault, write)

    try:
        assert flow.commit()
    except OutcomeUnknown:
        assert flow.commit()
    proxy.release()
    through.close()

    assert cli.zcard(keys.members("night")) == len(tasks)
    assert cli.llen(keys.pending("video")) == 1


def test_tasks_that_wait_for_each_other_are_refused_with_their_path(client, cli):
    flow = client.workflow("night")
    a = flow.add("video", 1, key="a")
    b = flow.add("video", 2, key="b", after=a)
    c = flow.add("video", 3, key="c", after=b)
    flow.add("video", 4, key="d", after=c)
    flow.link(a, c)

    with pytest.raises(CycleFound, match="a -> c -> b -> a") as refusal:
        flow.commit()

    assert refusal.value.path == ["a", "c", "b"]
    assert not cli.keys("*")


def test_a_task_that_waits_for_itself_is_a_circle(client):
    flow = client.workflow("night")
    flow.add("video", 1, key="a", after=flow.id_of("a"))

    with pytest.raises(CycleFound, match="a -> a"):
        flow.commit()


def test_what_cannot_be_is_refused(client):
    flow = client.workflow("night")
    flow.add("video", 1, key="a")
    with pytest.raises(InvalidInput, match="have the key 'a'"):
        flow.add("video", 2, key="a")
    with pytest.raises(InvalidInput, match="is not in workflow"):
        flow.link("other", "a")
    with pytest.raises(InvalidInput, match="joins no other group"):
        flow.add("video", 3, group="other")
    flow.add("video", 3, after=flow)
    with pytest.raises(WrongGroup, match="cannot wait for it"):
        flow.commit()


def test_a_name_whose_tasks_are_still_there_is_refused(client, cli):
    flow, _ = diamond(client)
    flow.commit()
    cli.delete(keys.group("night"))  # its time is over

    with pytest.raises(WrongGroup, match="earlier workflow"):
        diamond(client)[0].commit()


def test_a_wrong_argument_of_a_workflow_is_refused_at_once_and_by_name(client):
    with pytest.raises(InvalidInput, match="broken is 'hold' or 'cancel', not 'x'"):
        client.workflow("night", broken="x")
    with pytest.raises(TypeError, match=r"^Workflow.add\(\) got an unexpected .* 'afterr'"):
        client.workflow("night").add("video", 1, afterr=1)


@pytest.mark.parametrize("count", [1, 250])
def test_a_key_that_was_not_added_is_named(client, everything, count):
    flow = client.workflow("night")
    for number in range(count):
        flow.add("video", number, after=flow.id_of("zz"))

    with pytest.raises(
        NoSuchTask, match="with the key 'zz' of workflow 'night' does not exist"
    ) as e:
        flow.commit()

    assert e.value.task_id == flow.id_of("zz") and everything() == {}


@pytest.mark.parametrize("size", [3, 300])
@pytest.mark.parametrize("state", ["open", "closed", "ended"])
def test_a_group_that_is_no_workflow_is_refused(client, everything, state, size):
    group = client.group("night").open()
    if state == "closed":
        client.get_queue("video").enqueue(0, group=group)
    if state != "open":
        group.close()
    assert group.progress().state == state
    before, flow = everything(), client.workflow("night")
    for number in range(size):
        flow.add("video", number)

    with pytest.raises(WrongGroup, match="not a workflow: a program or a person has opened it"):
        flow.commit()

    assert everything() == before


def test_the_group_of_a_call_with_keys_is_refused(client):
    client.get_queue("video").enqueue_many([1], keys=["a"], group="night")

    with pytest.raises(WrongGroup, match="it belongs to a batch of video; give the workflow"):
        diamond(client)[0].commit()


@pytest.mark.parametrize("size", [3, 300])
def test_another_workflow_with_the_name_is_refused(client, everything, size):
    def nightly(day):
        flow = client.workflow("night")
        for number in range(size):
            flow.add("video", number, key=f"{day} {number}")
        return flow

    nightly("monday").commit()
    before = everything()

    with pytest.raises(WrongGroup, match=r"'tuesday 0'; give each.*blueque group forget night"):
        nightly("tuesday").commit()

    assert everything() == before
    assert not nightly("monday").commit()


def test_nothing_is_added_to_a_workflow_that_was_committed(client):
    flow, tasks = diamond(client)
    flow.commit()

    with pytest.raises(InvalidInput, match="was committed"):
        flow.add("video", "late")
    with pytest.raises(InvalidInput, match="was committed"):
        flow.link(tasks[0], tasks[1])


def test_nothing_is_added_to_a_workflow_that_has_to_be_committed_again(client, proxy):
    through = Client(proxy.url, patience=0.2)
    through.connections.read(("PING",))
    flow, _ = diamond(through)
    through.close()
    proxy.stop_listening()
    with pytest.raises(RedisAway):
        flow.commit()

    with pytest.raises(InvalidInput, match="commit it again"):
        flow.add("video", "late")


def test_what_was_refused_may_be_mended_and_committed(client, queue):
    flow = client.workflow("night")
    flow.add("video", 1, after=client.workflow("day").id_of("a"))
    with pytest.raises(NoSuchTask):
        flow.commit()
    flow.add("video", 2)

    day = client.workflow("day")
    day.add("video", 1, key="a")
    assert day.commit() and flow.commit()
