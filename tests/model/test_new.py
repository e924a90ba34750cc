"""New and Then: what a running task makes, and how it is written."""

from __future__ import annotations

import pickle

import pytest

from blueque import Group, InvalidInput, InvalidType, New, Retry, Then, TooLarge
from blueque.model.conditions import after
from blueque.model.new import spawned_id

TASK = "3f0f9c3e-2b57-4e2c-9d2b-0d6f5f3d1a77"


def test_a_new_task_is_written_as_a_queue_would_write_it():
    new = New(
        "parts",
        {"n": 1},
        key=7,
        after=after(ok=["t1"], any=["t2"]),
        broken="cancel",
        results=True,
        eta=1e9,
        priority=3,
        lock="camera",
        resources={"gpu": 1},
        retry=Retry(max=2),
        time_limit="2h",
    )

    record = new.record(TASK)

    assert record[:3] == (spawned_id(TASK, "7"), "parts", '{"n":1}')
    assert record.conditions == {"t1": "ok", "t2": "any"} and record.eta == 1e9
    assert next(iter(record.options.items())) == ("parameters_encoding", "json")
    options = {
        "parameters_encoding": "json",
        "spawned_by": TASK,
        "broken": "cancel",
        "inputs": 0,
        "parents": "t1 t2",
        "priority": 3,
        "needs": "gpu=1,lock:camera=1",
        "retry": Retry(max=2).to_text(),
        "time_limit": 7200.0,
    }
    assert {name: record.options[name] for name in options} == options
    assert (new.queue, new.key, repr(new)) == ("parts", "7", "<New '7' in 'parts'>")


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"queue": ""}, InvalidInput),
        ({"parameters": object()}, InvalidType),
        ({"parameters": {1: 2}}, InvalidInput),
        ({"parameters": "x" * (2**20 + 1)}, TooLarge),
        ({"key": ""}, InvalidInput),
        ({"key": None}, InvalidType),
        ({"after": [1]}, InvalidType),
        ({"broken": "wait"}, InvalidInput),
        ({"eta": "tomorrow"}, InvalidInput),
        ({"eta": 60}, InvalidInput),
        ({"priority": 101}, InvalidInput),
        ({"retry": "often"}, InvalidType),
        ({"time_limit": "soon"}, InvalidInput),
        ({"lock": ""}, InvalidInput),
        ({"keep": 5}, TypeError),
    ],
)
def test_what_cannot_be_made_is_refused_where_it_is_written(wrong, error):
    with pytest.raises(error):
        New(**{"queue": "parts", "parameters": "text", "key": "a", **wrong})


def test_an_end_takes_new_tasks_only():
    with pytest.raises(InvalidType, match=r"a new task is a blueque.New, not dict"):
        Then("done", [{"queue": "parts"}])
    then = Then("done", (New("parts", n, key=n) for n in range(2)))
    assert repr(then) == "<Then 'done', 2 new tasks>"
    assert [each.parameters for each in then.records(TASK)] == ["0", "1"]


def test_more_than_an_end_can_make_is_refused():
    for tasks, words in (
        (
            [New("parts", "", key=n) for n in range(101)],
            "more than 100 tasks cannot be made at once",
        ),
        ([New("parts", "", key="a"), New("other", "", key="a")], "have the same key"),
        ([New("parts", "", key="a", after=map(str, range(101)))], "wait for more than 100 others"),
        ([New("parts", "x" * 2**20, key=n) for n in range(5)], "more than 4,194,304 bytes"),
        (
            [New("parts", "", key="a", group="g")],
            "a task that is made at the end of another joins no group",
        ),
    ):
        with pytest.raises(InvalidInput, match=words):
            Then("done", tasks).records(TASK)


def test_both_survive_on_their_way_out_of_a_child():
    then = pickle.loads(pickle.dumps(Then(1, [New("parts", "text", key="a")])))
    assert (then.result, then.records(TASK)[0].parameters) == (1, "text")


@pytest.mark.parametrize(
    "call", [lambda given: after(ok=given), lambda given: after(not_ok=[given])]
)
def test_conditions_inside_of_conditions_are_refused_with_the_right_form(call):
    with pytest.raises(InvalidType, match=r"blueque.after\(ok=ids, any=ids\)"):
        call(after(any="t1"))


def test_a_dict_of_conditions_is_refused_with_the_right_form():
    with pytest.raises(InvalidType, match=r"not dict: write after=blueque\.after"):
        New("parts", "text", key="a", after={"any": "t1"})


def test_an_unknown_option_is_refused_in_the_name_of_the_call():
    with pytest.raises(
        TypeError, match=r"^blueque.New\(\) got an unexpected .* 'afterr'; .* after, "
    ):
        New("parts", "text", key="a", afterr=["t1"])


def test_results_of_groups_alone_are_refused():
    with pytest.raises(InvalidInput, match="a group has no result"):
        New("parts", "text", key="a", after=Group("night"), results=True)
    mixed = New("parts", "text", key="a", after=["t1", Group("night")], results=True)
    assert mixed.record(TASK).options["parents"] == "t1"
