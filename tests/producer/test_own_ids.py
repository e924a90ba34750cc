"""Tasks whose producer has chosen the id, and what happens if it exists."""

from __future__ import annotations

import pytest
from faults import Fault

from blueque import Client, IdTaken, InvalidInput, InvalidType
from blueque.model import keys

FAR = 4e9
WAYS = {
    "enqueue": lambda queue, parameters, **how: queue.enqueue(parameters, **how),
    "schedule": lambda queue, parameters, **how: queue.schedule(parameters, FAR, **how),
    "after": lambda queue, parameters, **how: queue.enqueue(
        parameters, after=queue.enqueue("before"), **how
    ),
}


@pytest.fixture(params=WAYS)
def make(request, queue):
    return lambda parameters, queue=queue, **how: WAYS[request.param](queue, parameters, **how)


@pytest.mark.parametrize("own", ["order-4711", "A", "7", "a.b_c:d-e", "x" * 200])
def test_a_task_has_the_id_that_its_producer_has_chosen(make, client, own):
    task = make({"n": 1}, id=own)

    assert (task, task.is_new) == (own, True)
    assert (client.get_task(own).parameters, client.get_task(own).key) == ({"n": 1}, None)


def test_the_same_task_is_made_once(make, cli):
    make({"n": 1}, id="a")

    assert not make({"n": 1}, id="a").is_new
    assert cli.keys(keys.task("a")) == [keys.task("a")]


def test_the_order_of_names_makes_no_other_parameters(make):
    make({"a": 1, "b": [{"c": 2, "d": 3}]}, id="a")

    assert not make({"b": [{"d": 3, "c": 2}], "a": 1}, id="a").is_new


@pytest.mark.parametrize("other", [{"n": 2}, {"n": True}, '{"n":1}', None])
def test_an_id_with_other_parameters_is_refused(make, client, other):
    make({"n": 1}, id="a")
    before = client.get_task("a").fields

    with pytest.raises(IdTaken, match="with other parameters; choose another id") as refused:
        make(other, id="a")
    assert refused.value.task_id == "a"
    assert client.get_task("a").fields == before


def test_an_id_counts_in_all_queues(make, client):
    make("in", id="a")

    with pytest.raises(IdTaken, match="in queue 'video'"):
        make("in", client.get_queue("audio"), id="a")


def test_an_id_that_is_drawn_for_another_task_is_refused(make, queue):
    other = queue.enqueue("x")

    with pytest.raises(IdTaken):
        make("y", id=other)
    assert not make("x", id=other).is_new


@pytest.mark.parametrize(("keep", "is_new"), [("1d", False), (0, True)])
def test_an_id_stays_in_use_when_its_task_is_deleted(make, client, queue, keep, is_new):
    task = make("in", id="a", keep=keep)
    queue.cancel(task)
    queue.delete_task(client.get_task(task))

    assert make("in", id="a", keep=keep).is_new is is_new


def test_a_call_whose_answer_was_lost_knows_that_it_has_made_the_task(proxy):
    through = Client(proxy.url, patience=2.0)
    proxy.arm(Fault.CUT_AFTER, having=b"HSET")

    assert through.get_queue("video").enqueue("in", id="a").is_new
    assert proxy.has_struck
    through.close()


@pytest.mark.parametrize(
    "own", ["", "-a", ".a", "a b", "a/b", "ä", "a\n", "x" * 201, "a@1", "group a"]
)
def test_other_ids_are_refused(make, cli, own):
    with pytest.raises(InvalidInput, match="is no id of a task"):
        make("in", id=own)

    assert not cli.exists(keys.task(own))


@pytest.mark.parametrize("option", ["is_traced", "its_trace", "id", "prio"])
@pytest.mark.parametrize("call", ["new_task", "template"])
def test_a_task_that_is_not_in_redis_yet_takes_no_unknown_option_and_no_id(queue, call, option):
    with pytest.raises(TypeError, match=rf"^Queue.{call}\(\) .* '{option}'; .* priority"):
        getattr(queue, call)("x", **{option: "abc"})


def test_an_id_is_text_and_no_key(make):
    with pytest.raises(InvalidType, match="an id is text, not int"):
        make("in", id=5)
    with pytest.raises(InvalidInput, match="give a key or an id, not both"):
        make("in", id="a", key="b")


def test_a_task_with_an_id_of_its_own_runs(programs, client, queue):
    programs.write("def work(task):\n    return task.id\n")
    programs.listener("work:work", queue="video")

    task = client.wait(queue.enqueue("in", id="order:4711.a"), timeout=60)
    assert (task.status, task.result) == ("complete", "order:4711.a")


def test_an_id_that_a_call_has_drawn_for_the_next_one_is_that_of_one_task(client, queue, cli):
    queue.enqueue("first")
    fanned = client.get_fanout("both", to=["audio", "video"]).enqueue("a")
    queue.enqueue("b")
    kept = queue.new_task("not made")
    others = [
        queue.enqueue("c"),
        queue.enqueue("waits", after=fanned["audio"]),
        queue.schedule("later", FAR),
        queue.enqueue("d"),
    ]

    ids = [*fanned.values(), kept.task, *others]
    assert len(set(ids)) == len(ids) and all(each.is_new for each in others)
    assert [client.get_task(task).parameters for task in others] == ["c", "waits", "later", "d"]


def test_a_schedule_after_an_enqueue_needs_no_look(queue, redis, monkeypatch):
    queue.enqueue("a")
    sent = []
    send = type(redis.connection()).send
    monkeypatch.setattr(
        type(redis.connection()),
        "send",
        lambda self, commands: sent.append(commands) or send(self, commands),
    )
    queue.schedule("b", FAR)
    assert len(sent) == 1
