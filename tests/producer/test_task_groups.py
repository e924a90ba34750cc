"""blueque.producer.groups: groups of tasks, as a producer and a person use them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from grouped import settle

import blueque
from blueque.errors import InvalidInput, InvalidType, NoSuchGroup, WrongGroup
from blueque.model import keys
from blueque.testing import drain


def test_the_progress_of_a_group_is_shown_in_words(client, queue):
    group = client.group("night").open()
    queue.enqueue("a", group=group)

    words = "open: 0 complete, 0 bad, 1 open, 0 waiting for it"
    assert repr(group.progress()) == f"<GroupSeen 'night' {words}>"


@pytest.mark.parametrize("name", ["night\n", "a\x1b[31m"])
def test_a_new_group_has_no_name_that_cannot_be_printed(client, queue, name, cli):
    ways = (
        lambda: client.group(name).open(),
        lambda: client.workflow(name),
        lambda: queue.enqueue_many(["a"], keys=["a"], group=name),
        lambda: blueque.feed("files", "video", name=name, client=client),
    )
    for make in ways:
        with pytest.raises(InvalidInput, match="cannot be printed"):
            make()
    assert cli.keys() == []


def test_what_is_done_to_a_group_that_is_not_there_is_refused(client):
    group = client.group("never")

    for act in (group.requeue, lambda: [*group.tasks()], group.cancel, group.close, group.reopen):
        with pytest.raises(NoSuchGroup):
            act()


def test_a_group_is_named_by_text_or_by_itself(client, queue):
    with pytest.raises(InvalidType, match="group is a name"):
        queue.enqueue("a", group=7)
    with pytest.raises(InvalidInput, match="cannot be empty"):
        blueque.Group("")
    assert repr(blueque.Group("night")) == "<Group 'night'>"


def test_the_results_of_a_group_are_those_of_its_complete_tasks_by_key_or_id(client, queue):
    other = client.get_queue("other")
    with client.group("night") as group:
        ids = queue.enqueue_many(["a", "b"], keys=str, group=group, ids=True)
        ids += [other.enqueue(name, group=group, key="a") for name in "c"]
        ids += queue.enqueue_many(["d", "bad"], group=group, ids=True)
    with pytest.raises(NoSuchGroup):
        client.group("never").results()

    drain(client, {"video": lambda task: {"bad": 1 / 0} if task.parameters == "bad" else [1]})
    assert client.group("night").results() == {"a": [1], "b": [1], ids[3]: [1]}
    drain(client, {"other": lambda task: [2]})
    assert [*client.group("night").results()] == ["a", "b", ids[2], ids[3]]
    assert [task.is_new for task in ids] == [True] * 5
    assert not queue.enqueue_many(["a"], keys=str, group="night", ids=True)[0].is_new


def test_a_group_is_cancelled_and_removed(client, queue):
    group = client.group("night").open()
    task = queue.enqueue("a", group=group)
    with pytest.raises(WrongGroup):
        group.delete()

    group.cancel(by="ann", reason="enough")
    settle(client)

    assert client.get_task(task).fields["cancelled_by"] == "ann"
    assert group.progress().state == "ended"
    assert group.delete()
    with pytest.raises(NoSuchGroup):
        group.progress()
    assert not group.delete()


def test_a_task_without_a_group_costs_what_it_did(client, queue, cli):
    queue.enqueue("a")
    queue.enqueue_many(range(10))

    assert not cli.keys("blueque_group*")
    assert "group" not in cli.hgetall(next(cli.scan_iter("blueque_task_*")))


def test_results_of_a_group_are_refused_before_anything_is_written(client, queue, everything):
    group = client.group("night").open()
    before = everything()

    with pytest.raises(InvalidInput, match="a group has no result"):
        queue.enqueue("a", after=group, results=True)
    with pytest.raises(InvalidInput, match="a group has no result"):
        queue.enqueue_iter(["a"], after=group, results=True)
    with pytest.raises(InvalidInput, match=r"after_each: at position 0: .* a group has no result"):
        queue.enqueue_many(["a"], after_each=[group], results=True)

    assert everything() == before


def test_a_client_waits_for_tasks_not_for_groups(client, queue):
    group = client.group("night").open()
    made = queue.enqueue_many(["a"], group=group)
    for given in (group, client.workflow("flow"), made):
        with pytest.raises(InvalidType, match="wait for a task that waits for them"):
            client.wait(given)
        with pytest.raises(InvalidType, match="wait takes ids of tasks"):
            client.as_ended(given)


# Keys in a group


NAMES = [f"key {number}" for number in range(500)]


def lose(cli, group, many):
    """Take members back, as a failover to a replica that was behind does."""
    for task in cli.zrange(keys.members(group), -many, -1):
        cli.zrem(keys.members(group), task)
        cli.srem(keys.open_members(group), task)
        cli.lrem(keys.pending("video"), 1, task)
        cli.delete(keys.task(task))


@pytest.mark.parametrize("after", [None, "parent"])
def test_two_processes_that_make_the_same_keys_make_each_once(client, queue, cli, after):
    client.group("night").open()
    parent = queue.enqueue("parent") if after else None
    half = [NAMES[:350], NAMES[150:]]

    def work(some):
        return queue.enqueue_many(some, keys=some, group="night", after=parent).new

    with ThreadPoolExecutor(4) as pool:
        counts = [*pool.map(work, half + half)]

    assert sum(counts) == 500 == client.group("night").progress().members
    assert len(cli.keys(keys.task("*"))) == 500 + bool(after)


def test_tasks_that_a_failover_takes_back_are_made_again_by_the_same_call(
    client, queue, cli, monkeypatch
):
    group, passes = client.group("night").open(), []

    def rows():
        passes.append(len(passes))
        for number, name in enumerate(NAMES):
            if number == 400 and len(passes) == 1:
                lose(cli, "night", 50)
            yield name

    class Again:
        def __iter__(self):
            return rows()

    made = queue.enqueue_many(Again(), keys=lambda name: name, group=group)

    assert (passes, made, group.progress().members) == ([0, 1], 500, 500)
    group.close(expected=500)
    with (
        pytest.raises(
            WrongGroup, match="it has 450 tasks, 500 are expected: put all of them again"
        ),
        client.group("once") as once,
    ):
        queue.enqueue_many(
            (
                lose(cli, "once", 50) or name if number == 400 else name
                for number, name in enumerate(NAMES)
            ),
            keys=lambda name: name,
            group=once,
        )
    assert once.progress().state == "open"


def test_a_group_with_fewer_tasks_than_are_expected_says_how_many_and_blames_no_failover(
    client, queue
):
    group = client.group("night").open()
    queue.enqueue("a", group=group)

    with pytest.raises(WrongGroup) as refused:
        group.close(expected=5)

    way_on = "make the missing ones before you close it"
    assert str(refused.value) == f"group 'night': it has 1 task, 5 are expected: {way_on}"


@pytest.mark.parametrize(
    "options", [{"results": True, "after": "x"}, {"after_each": lambda name: None}]
)
def test_what_keys_in_a_group_cannot_have_is_refused(queue, state, options):
    with pytest.raises(InvalidInput, match="leave out keys, or after_each and results"):
        queue.enqueue_many(["a"], keys=["a"], group="night", **options)
    assert state() == {}
