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
    with pytest.raises(InvalidInput, match="is not a task id"):
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
