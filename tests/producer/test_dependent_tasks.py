"""Tasks that wait for others, as a producer makes them."""

from __future__ import annotations

import time

import pytest
from faults import Fault
from transactions import protocol

import blueque
from blueque import BatchFailed, Client, InvalidInput, InvalidType, NoSuchTask, OutcomeUnknown
from blueque.model import keys

SOON = 4e9  # a time to come


@pytest.fixture
def tell(client, redis):
    """Tell the dependents of a task how it has ended."""

    def tell(*ids):
        for task_id in ids:
            while not protocol.settle(redis, task_id, time.time()).is_over:
                pass

    return tell


@pytest.fixture
def complete(client, tell):
    """Run the next tasks in line of a queue, with these results."""

    def complete(*results, queue="video"):
        listener = client.get_listener(queue)
        for result in results:
            task = listener.listen()
            processor = client.get_processor(task)
            processor.start(77)
            processor.complete(result)
            tell(task.id)

    return complete


def statuses(client, ids):
    return [client.get_task(task_id).status for task_id in ids]


# One task


def test_a_task_can_wait_for_others_and_for_its_time(client, queue, complete):
    parent = queue.enqueue("parent")
    later = queue.schedule("later", SOON, after=parent)
    past = queue.schedule("past", 1e9, after=parent)
    assert statuses(client, [later, past]) == ["blocked", "blocked"]

    complete("done")

    assert statuses(client, [later, past]) == ["scheduled", "pending"]
    assert client.get_task(later).eta == SOON and client.get_task(past).eta is None


@pytest.mark.parametrize("count", [1, 101])
def test_a_task_cannot_wait_for_one_that_does_not_exist(queue, everything, count):
    parents = [queue.enqueue("parent") for _ in range(count)]
    before = everything()

    with pytest.raises(NoSuchTask) as refused:
        queue.enqueue("in", after=[*parents, "unknown"])

    assert refused.value.task_id == "unknown"
    assert everything() == before


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"after": 5}, InvalidType),
        ({"after": ["a", 5]}, InvalidType),
        ({"after": blueque.After(ok=("a",), any=("a",))}, InvalidInput),
        ({"after": "a", "broken": "ignore"}, InvalidInput),
        ({"after": [str(n) for n in range(1001)]}, InvalidInput),
    ],
)
def test_conditions_that_make_no_sense_are_refused_before_anything_is_written(
    queue, everything, options, error
):
    with pytest.raises(error):
        queue.enqueue("in", **options)
    with pytest.raises(error):
        queue.schedule("in", SOON, **options)
    with pytest.raises(error):
        queue.enqueue_many(["in"], **options)

    assert everything() == {}


def test_a_lost_answer_makes_no_second_task(client, proxy, queue):
    parent = queue.enqueue("parent")
    through = Client(proxy.url, patience=2.0)
    proxy.arm(Fault.CUT_AFTER, having=b"HSET")

    task_id = through.get_queue("video").enqueue("in", after=parent)

    assert proxy.has_struck and task_id.is_new
    assert client.connections.read(("ZRANGE", keys.blocked("video"), 0, -1)) == [[task_id]]
    through.close()


def test_a_task_of_which_nothing_is_known_has_an_id(client, proxy, queue):
    parent = queue.enqueue("parent")
    through = Client(proxy.url, patience=0)
    proxy.arm(Fault.CUT_AFTER, having=b"HSET")

    with pytest.raises(OutcomeUnknown) as unknown:
        through.get_queue("video").enqueue("in", after=parent)

    assert client.get_task(unknown.value.task_id).status == "blocked"
    through.close()


# Results


def test_a_task_is_given_the_results_of_its_parents_whether_they_are_complete_before_or_after(
    client, queue, complete, tell
):
    early = queue.enqueue("early")
    complete({"size": 1})
    late, failed = queue.enqueue("late"), queue.enqueue("failed")
    after = blueque.after(ok=[late, early], any=[failed])
    child = client.get_queue("audio").enqueue("child", after=after, results=True)
    tell(early)
    complete("text")
    queue.cancel(failed)
    tell(failed)

    task = client.get_task(child)
    assert (task.status, task.parents) == ("pending", [late, early, failed])
    assert task.inputs == len('{"size":1}') + len("text")
    assert client.get_inspector().inputs(child) == {late: "ttext", early: 'j{"size":1}'}


def test_a_result_that_is_no_text_is_handed_on_as_it_is(client, cli, queue, complete, tell):
    parent = queue.enqueue("parent")
    complete("")
    cli.hset(keys.task(parent), "result", b"by 1.0.0: \xff")
    child = queue.enqueue("child", after=parent, results=True)

    tell(parent)

    assert client.get_inspector().inputs(child) == {parent: "tby 1.0.0: \udcff"}
    assert client.get_task(child).status == "pending"


# Many tasks


def test_tasks_that_wait_for_nothing_need_no_parents(client, queue):
    (ids,) = queue.enqueue_iter(["a", "b"], after_each=[None, []], keys=["a", "b"])

    assert statuses(client, ids) == ["pending", "pending"]
    assert client.get_task(ids[0]).after is None


def test_many_tasks_that_wait_have_keys_priorities_and_times_of_their_own(client, queue):
    parent = queue.enqueue("parent")

    count = queue.schedule_many(
        ["a", {"n": 1}, "a again"],
        etas=[SOON, 1e9, SOON],
        keys=["a", "b", "a"],
        priorities=[1, 0, 2],
        after=parent,
        results=True,
        lock="l",
    )
    again = queue.enqueue_many(["a", "c"], keys=["a", "c"], after=parent)

    assert (count, count.new, again, again.new) == (3, 2, 2, 1)
    ids = client.connections.read(("ZRANGE", keys.blocked("video"), 0, -1))[0]
    tasks = {task.key: task for task in map(client.get_task, ids)}
    assert {key: (task.parameters, task.priority, task.eta) for key, task in tasks.items()} == {
        "a": ("a", 1, SOON),
        "b": ({"n": 1}, None, None),
        "c": ("c", None, None),
    }
    assert (tasks["a"].parents, tasks["c"].parents) == ([parent], None)
    assert tasks["a"].fields["needs"] == tasks["b"].fields["needs"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"after_each": ["parent"]}, "none at position 1"),
        ({"after_each": ["parent"] * 3}, "there are more after_each than the 2 parameters"),
        ({"after_each": ["parent", 5]}, "after_each: at position 1"),
        (
            {"after": "parent", "after_each": [None, blueque.after(any="parent")]},
            "at position 1: task parent is to be both ok and any",
        ),
        ({"after": [str(n) for n in range(101)]}, "100 others each, not for 101"),
        ({"after_each": [[str(n) for n in range(101)]] * 2}, "100 others each, not for 101"),
        ({"after_each": "x", "keys": ["a", "b"], "group": "g"}, "leave out keys, or after_each"),
    ],
)
def test_many_tasks_with_wrong_conditions_are_refused(queue, redis, everything, options, says):
    protocol.enqueue(redis, "video", "parent", "in", 1.5)
    before = everything()

    with pytest.raises(InvalidInput, match=says):
        queue.enqueue_many(["a", "b"], **options)

    assert everything() == before


def test_a_batch_that_fails_says_where_and_which_tasks(client, proxy, queue):
    parent = queue.enqueue("parent")
    through = Client(proxy.url, patience=0)
    # A new connection is tried with an empty MULTI first; then the third batch.
    proxy.arm(Fault.CUT_AFTER, write=4, having=b"EXEC")

    with pytest.raises(BatchFailed) as failed:
        through.get_queue("video").enqueue_many(map(str, range(250)), after=parent)

    error = failed.value
    assert (error.batch, error.position, len(error.ids), error.is_unknown) == (2, 200, 50, True)
    assert {*statuses(client, error.ids)} == {"blocked"}
    through.close()


def test_unblock_takes_one_id_and_refuses_what_the_task_does_not_wait_for(client, queue):
    parent = queue.enqueue("parent")
    child = queue.enqueue("child", after=parent)
    with pytest.raises(InvalidInput, match="does not wait for other"):
        queue.unblock(child, "other")
    assert client.get_task(child).status == "blocked"
    assert queue.unblock(child, parent) == "pending"


@pytest.mark.parametrize(
    ("after", "error", "sentence"),
    [
        (b"bytes", InvalidType, "not bytes"),
        ("", InvalidInput, "empty"),
        ([""], InvalidInput, "empty"),
    ],
)
def test_ids_that_are_none_are_refused_with_a_sentence(queue, after, error, sentence):
    with pytest.raises(error, match=sentence):
        queue.enqueue("child", after=after)


@pytest.mark.parametrize("how", [{"broken": "cancel"}, {"results": True}], ids=str)
def test_how_a_task_waits_is_refused_without_what_it_waits_for(client, queue, how):
    (name,) = how
    refused = f"{name}=.* needs after=, the tasks to wait for"
    for make in (
        lambda: queue.enqueue(1, **how),
        lambda: queue.schedule(1, time.time() + 60, **how),
        lambda: queue.enqueue_many([1], **how),
        lambda: blueque.New("video", 1, key="a", **how),
        lambda: client.workflow("night").add("video", 1, **how),
    ):
        with pytest.raises(InvalidInput, match=refused):
            make()
    assert queue.enqueue(1, after=[], **how)
    assert queue.enqueue_many([1], after_each=[[queue.enqueue(1)]], **how).new == 1
