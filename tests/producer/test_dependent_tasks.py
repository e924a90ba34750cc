"""Tasks that wait for others, as a producer makes them."""

from __future__ import annotations

import time
from functools import partial

import pytest
from faults import Fault
from transactions import protocol

import blueque
from blueque import BatchFailed, Client, InvalidInput, InvalidType, NoSuchTask, OutcomeUnknown
from blueque.errors import NoSuchGroup
from blueque.model import keys
from blueque.model.group import Group
from blueque.queries.dependencies import kinds

SOON = 4e9  # a time to come


def conditions_of(client, task_id):
    return kinds(client.connections, task_id)


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


def test_a_task_is_in_line_when_all_others_are_complete(client, queue, complete):
    audio = client.get_queue("audio")
    first, second = queue.enqueue("first"), queue.enqueue("second")
    joined = audio.enqueue("joined", after=[first, second])
    last = audio.enqueue("last", after=joined)
    complete(1)
    assert statuses(client, [joined, last]) == ["blocked", "blocked"]

    complete(2)

    assert statuses(client, [joined, last]) == ["pending", "blocked"]
    assert client.get_task(joined).after == 2 and client.get_task(joined).broken is None
    assert client.get_task(joined).dependents == 1 and client.get_task(first).dependents is None


def test_a_condition_may_be_that_a_task_has_ended_or_is_not_complete(client, queue, tell):
    first, second, third = (queue.enqueue(name) for name in "abc")
    after = blueque.after(ok=first, any=[second], not_ok=(third,))

    task_id = queue.enqueue("in", after=after)

    conditions = partial(conditions_of, client)
    assert conditions(task_id) == {first: "ok", second: "any", third: "not_ok"}
    queue.cancel(third)
    tell(third)
    assert conditions(task_id) == {first: "ok", second: "any", third: "+cancelled"}


@pytest.mark.parametrize("after", [None, [], (), blueque.after(), iter([])])
def test_no_other_task_is_no_condition(client, queue, after):
    how = {} if after is None else {"broken": "cancel", "results": True}
    task_id = queue.enqueue("in", after=after, **how)

    assert {*client.get_task(task_id).fields} == {
        "status",
        "queue",
        "parameters",
        "created",
        "updated",
        "producer",
    }
    assert client.get_task(task_id).status == "pending"


@pytest.mark.parametrize(("broken", "status"), [("hold", "blocked"), ("cancel", "cancelled")])
def test_a_task_that_waits_in_vain_goes_on_waiting_or_is_cancelled(
    client, queue, tell, broken, status
):
    parent = queue.enqueue("parent")
    child = queue.enqueue("child", after=parent, broken=broken)
    queue.cancel(parent)

    tell(parent)

    task = client.get_task(child)
    assert task.status == status
    assert task.broken_by == (parent if broken == "cancel" else None)


def test_a_task_can_wait_for_others_and_for_its_time(client, queue, complete):
    parent = queue.enqueue("parent")
    later = queue.schedule("later", SOON, after=parent)
    past = queue.schedule("past", 1.5, after=parent)
    assert statuses(client, [later, past]) == ["blocked", "blocked"]

    complete("done")

    assert statuses(client, [later, past]) == ["scheduled", "pending"]
    assert client.get_task(later).eta == SOON and client.get_task(past).eta is None


def test_the_same_key_is_the_same_task_with_the_conditions_that_it_had(client, queue):
    first, second = queue.enqueue("first"), queue.enqueue("second")
    made = queue.enqueue("in", after=first, key="k")

    again = queue.enqueue("in", after=second, key="k")

    assert (made.is_new, again.is_new, again) == (True, False, made)
    assert conditions_of(client, made) == {first: "ok"}
    assert client.get_task(second).dependents is None


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


# Many parents


def test_a_task_can_wait_for_a_thousand_others(client, queue):
    parents = [task_id for made in queue.enqueue_iter(map(str, range(1000))) for task_id in made]

    task_id = queue.enqueue("in", after=blueque.after(any=parents), results=True)

    conditions = conditions_of(client, task_id)
    assert conditions == dict.fromkeys(parents, "any")
    task = client.get_task(task_id)
    assert (task.status, task.after, task.parents) == ("blocked", 1000, parents)


def test_a_task_with_many_parents_is_in_line_when_the_last_has_ended(client, queue, tell):
    parents = [task_id for made in queue.enqueue_iter(map(str, range(150))) for task_id in made]
    task_id = queue.enqueue("in", after=blueque.after(any=parents))
    for parent in parents:
        protocol.cancel(client.connections, queue.name, parent, "me", None, time.time())
    tell(*parents[1:])
    assert client.get_task(task_id).status == "blocked"

    tell(parents[0])

    assert client.get_task(task_id).status == "pending"


def test_a_task_waits_for_none_of_many_that_have_ended(client, queue):
    parents = [task_id for made in queue.enqueue_iter(map(str, range(150))) for task_id in made]
    for parent in parents:
        queue.cancel(parent)

    task_id = queue.enqueue("in", after=blueque.after(any=parents))

    assert task_id.is_new
    assert client.get_task(task_id).status == "pending"
    assert conditions_of(client, task_id) == dict.fromkeys(parents, "+cancelled")


def test_the_same_key_needs_no_parents_any_more(client, queue):
    parents = [task_id for made in queue.enqueue_iter(map(str, range(101))) for task_id in made]
    made = queue.enqueue("in", after=blueque.after(any=parents), key="k")
    queue.cancel(made)
    for parent in parents:
        queue.cancel(parent)
        protocol.delete(client.connections, "video", parent, is_forced=True)

    again = queue.enqueue("in", after=blueque.after(any=parents), key="k")

    assert (again, again.is_new) == (made, False)


def test_a_task_can_wait_for_many_tasks_and_a_group(client, queue, everything):
    parents = [task_id for made in queue.enqueue_iter(map(str, range(101))) for task_id in made]
    before = everything()
    with pytest.raises(NoSuchGroup):
        queue.enqueue("in", after=[*parents, Group("night")])
    assert everything() == before
    protocol.open_group(client.connections, "night", 60, 1.5)

    task_id = queue.enqueue("in", after=[*parents, Group("night")], results=True)

    conditions = conditions_of(client, task_id)
    assert conditions == dict.fromkeys([*parents, "group night"], "ok")
    assert client.get_task(task_id).parents == parents


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


def test_many_tasks_wait_for_the_same_parents(client, queue, complete):
    parents = [queue.enqueue("a"), queue.enqueue("b")]
    audio = client.get_queue("audio")

    made = [*audio.enqueue_iter(map(str, range(250)), after=parents, broken="cancel")]

    assert [len(ids) for ids in made] == [100, 100, 50]
    tasks = [client.get_task(task_id) for ids in made for task_id in ids]
    assert [task.parameters for task in tasks] == [str(n) for n in range(250)]
    assert {(task.status, task.after, task.broken) for task in tasks} == {("blocked", 2, "cancel")}
    complete(1, 2)
    assert {*statuses(client, [task.id for task in tasks])} == {"pending"}


def test_each_of_many_tasks_waits_for_a_task_of_its_own(client, queue):
    parents = [task_id for made in queue.enqueue_iter(map(str, range(150))) for task_id in made]
    last = queue.enqueue("last")
    afters = [[parent, last] if n % 2 else parent for n, parent in enumerate(parents)]

    ids = [
        task_id
        for made in queue.enqueue_iter(map(str, range(150)), after_each=afters)
        for task_id in made
    ]

    wanted = [dict.fromkeys([after] if isinstance(after, str) else after, "ok") for after in afters]
    assert [conditions_of(client, task_id) for task_id in ids] == wanted


@pytest.mark.parametrize(
    "after_each",
    ["after", lambda parameters: parameters["after"], [None, "parent", ["parent", "other"]]],
)
def test_what_each_waits_for_is_a_field_or_a_function_or_an_iterable(
    client, redis, queue, after_each
):
    for name in ("parent", "other", "all"):
        protocol.enqueue(redis, "video", name, "in", 1.5)
    rows = [{"after": []}, {"after": "parent"}, {"after": ["parent", "other"]}]

    (ids,) = queue.enqueue_iter(rows, after_each=after_each)
    (both,) = queue.enqueue_iter(rows, after_each=after_each, after=blueque.after(any="all"))

    conditions = partial(conditions_of, client)
    wanted = [{}, {"parent": "ok"}, {"parent": "ok", "other": "ok"}]
    assert [conditions(task_id) for task_id in ids] == wanted
    assert [conditions(task_id) for task_id in both] == [{"all": "any", **own} for own in wanted]
    assert statuses(client, ids) == ["pending", "blocked", "blocked"]


def test_tasks_that_wait_for_nothing_need_no_parents(client, queue):
    (ids,) = queue.enqueue_iter(["a", "b"], after_each=[None, []], keys=["a", "b"])

    assert statuses(client, ids) == ["pending", "pending"]
    assert client.get_task(ids[0]).after is None


def test_many_tasks_that_wait_have_keys_priorities_and_times_of_their_own(client, queue):
    parent = queue.enqueue("parent")

    count = queue.schedule_many(
        ["a", {"n": 1}, "a again"],
        etas=[SOON, 1.5, SOON],
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


def test_a_parent_that_does_not_exist_ends_the_call_and_says_what_is_there(client, queue):
    parent = queue.enqueue("parent")

    with pytest.raises(NoSuchTask) as refused:
        queue.enqueue_many(map(str, range(150)), after_each=[parent] * 120 + ["unknown"] * 30)

    assert refused.value.__notes__ == ["blueque: the batches before are in Redis, 100 tasks"]
    assert client.connections.read(("ZCARD", keys.blocked("video"))) == [100]


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


def test_tasks_that_are_made_together_are_let_go_in_the_order_in_which_they_were_made(
    client, queue, redis
):
    parent = queue.enqueue("parent")
    made = [
        task for tasks in queue.enqueue_iter(map(str, range(250)), after=[parent]) for task in tasks
    ]
    processor = client.get_processor(client.get_listener(queue.name).listen())
    processor.start(1)
    processor.complete("done")
    while not protocol.settle(redis, parent, time.time()).is_over:
        pass
    (line,) = redis.read(("LRANGE", keys.pending(queue.name), 0, -1))
    assert line[::-1] == made


@pytest.mark.parametrize("many", [False, True])
def test_a_task_that_wants_the_result_of_a_task_that_is_complete_is_in_line_at_once(
    client, queue, many
):
    parent = queue.enqueue("parent")
    processor = client.get_processor(client.get_listener(queue.name).listen())
    processor.start(1)
    processor.complete("done")
    if many:
        ((child,),) = queue.enqueue_iter(["child"], after=[parent], results=True)
    else:
        child = queue.enqueue("child", after=[parent], results=True)
    assert client.get_task(child).status == "pending"
    assert client.get_inspector().inputs(child) == {parent: "tdone"}


def test_a_task_that_is_to_be_cancelled_with_a_task_that_has_failed_is_cancelled_at_once(
    client, queue
):
    parent = queue.enqueue("parent")
    queue.cancel(parent)
    child = queue.enqueue("child", after=[parent], broken="cancel")
    assert (client.get_task(child).status, client.get_task(child).broken_by) == (
        "cancelled",
        parent,
    )


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


def test_a_workflow_cancels_a_task_that_was_linked_later(client, tell):
    flow = client.workflow("night", broken="cancel")
    first, second = flow.add("video", 1), flow.add("video", 2)
    flow.link(second, first)
    flow.commit()

    client.get_queue("video").cancel(first)
    tell(first)

    assert client.get_task(second).status == "cancelled"
