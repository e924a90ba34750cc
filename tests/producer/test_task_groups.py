"""blueque.producer.groups: groups of tasks, as a producer and a person use them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from grouped import settle
from transactions import protocol

import blueque
from blueque.errors import InvalidInput, InvalidType, NoSuchGroup, WrongGroup
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.ids import ids_of_group_keys
from blueque.protocol.ends import End


def end(client, queue, task, is_well=True):
    """Let a task in line be run by a listener, and end."""
    redis, attempt = client.connections, AttemptRef(queue.name, task, f"token {task}", "host_1")
    protocol.register(redis, queue.name, "host_1", "i1", {}, time.time())
    redis.read(("LREM", keys.pending(queue.name), 0, task))
    redis.read(("LPUSH", keys.reserved(queue.name, "host_1"), task))
    protocol.reserve(redis, attempt, "i1", time.time())
    protocol.start(redis, attempt, 77, time.time(), {})
    if is_well:
        protocol.end(redis, attempt, End.complete("out"), time.time())
    else:
        protocol.end(redis, attempt, End.fail("why", {}), time.time())


def test_a_task_waits_for_all_of_a_group(client, queue):
    group = client.group("night").open()
    members = [queue.enqueue(number, group=group) for number in range(3)]
    joined = queue.enqueue("all", after=group)
    group.close()
    for task in members[:2]:
        end(client, queue, task)
    settle(client)
    assert client.get_task(joined).status == "blocked"

    end(client, queue, members[2])
    settle(client)

    assert client.get_task(joined).status == "pending"


def test_members_and_those_who_wait_are_of_any_queue_and_any_way_of_making(client, queue):
    other = client.get_queue("audio")
    with client.group("night") as group:
        one = queue.enqueue("a", group="night", key="a")
        again = queue.enqueue("a", group=blueque.Group("night"), key="a")
        many = other.enqueue_many(range(150), group=group)
        later = queue.schedule("b", time.time() + 100, group=group)

    assert (one.is_new, again.is_new) == (True, False)
    assert many.new == 150
    seen = group.progress()
    assert (seen.state, seen.members, seen.open, seen.bad) == ("closed", 152, 152, 0)
    assert client.get_task(later).status == "scheduled"
    assert client.get_task(later).fields["group"] == "night"


def test_a_task_waits_for_tasks_and_groups_at_once(client, queue):
    client.group("night").open()
    first = queue.enqueue("a")
    after = blueque.after(ok=[first], any=blueque.Group("night"))
    waiting = queue.enqueue("b", after=after, results=True)

    client.group("night").close()
    assert client.get_task(waiting).status == "blocked"
    end(client, queue, first)
    protocol.settle(client.connections, first, time.time())

    assert client.get_task(waiting).status == "pending"
    assert client.get_task(waiting).parents == [first]


def test_a_task_waits_for_more_than_a_hundred_tasks_and_a_group(client, queue):
    client.group("night").open()
    parents = [queue.enqueue(number) for number in range(150)]

    waiting = queue.enqueue("b", after=[*parents, blueque.Group("night")])

    assert client.get_task(waiting).after == 151


def test_a_block_that_raises_leaves_its_group_open(client, queue):
    def fail() -> None:
        with client.group("night"):
            raise KeyError

    with pytest.raises(KeyError):
        fail()

    assert client.group("night").progress().state == "open"


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


def test_a_group_that_is_closed_or_unknown_takes_no_tasks(client, queue):
    with pytest.raises(NoSuchGroup):
        queue.enqueue("a", group="night")
    with pytest.raises(NoSuchGroup):
        queue.enqueue("a", after=blueque.Group("night"))
    with pytest.raises(NoSuchGroup):
        client.group("night").close()
    client.group("night").open().close()
    with pytest.raises(WrongGroup):
        queue.enqueue("a", group="night")


def test_a_group_is_named_by_text_or_by_itself(client, queue):
    with pytest.raises(InvalidType, match="group is a name"):
        queue.enqueue("a", group=7)
    with pytest.raises(InvalidInput, match="cannot be empty"):
        blueque.Group("")
    assert repr(blueque.Group("night")) == "<Group 'night'>"


def test_the_bad_members_of_a_group_run_again_and_those_who_wait_go_on(client, queue):
    group = client.group("night").open()
    good, bad = queue.enqueue("a", group=group), queue.enqueue("b", group=group)
    waiting = queue.enqueue("c", after=group)
    group.close()
    end(client, queue, good)
    end(client, queue, bad, is_well=False)
    settle(client)
    assert (group.progress().complete, group.progress().bad) == (1, 1)
    assert client.get_task(waiting).status == "blocked"

    assert group.requeue(by="ann") == [bad]
    end(client, queue, bad)
    settle(client)

    assert client.get_task(waiting).status == "pending"
    assert group.requeue() == []


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


def test_a_group_that_is_not_open_says_how_to_open_it(client, queue):
    with pytest.raises(
        NoSuchGroup, match=r"no group 'fresh'; open it first: client.group\('fresh'\)"
    ):
        queue.enqueue("a", group="fresh")
    with pytest.raises(NoSuchGroup, match=r"no group 'fresh'$"):
        queue.enqueue("a", after=blueque.Group("fresh"))


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


def test_a_key_makes_one_task_in_its_group_even_when_that_was_deleted(client, queue, cli):
    group = client.group("night").open()
    first = queue.enqueue_many(NAMES[:300], keys=NAMES[:300], group=group)
    cli.delete(*cli.keys(keys.task("*")), keys.pending("video"))  # done, and archived

    again = queue.enqueue_many(NAMES, keys=NAMES, group="night")

    assert (first.new, again, again.new) == (300, 500, 200)
    assert group.progress().members == 500 and cli.llen(keys.pending("video")) == 200
    task = client.get_task(cli.lindex(keys.pending("video"), 0))
    (of_key,) = ids_of_group_keys("video", "night", [task.fields["key"].encode()])
    assert task.id == of_key.decode()
    assert client.get_queue("audio").enqueue_many(["a"], keys=["key 0"], group=group).new == 1


def test_a_closed_group_takes_no_new_keys_and_knows_those_that_it_has(client, queue):
    with client.group("night") as group:
        queue.enqueue_many(NAMES, keys=NAMES, group=group)

    assert queue.enqueue_many(NAMES, keys=NAMES, group=group).new == 0
    with pytest.raises(WrongGroup, match="closed"):
        queue.enqueue_many(["x"], keys=["x"], group=group)
    with pytest.raises(NoSuchGroup):
        queue.enqueue_many(["x"], group="another")


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


def test_a_group_that_has_lost_members_is_not_closed(client, queue, cli):
    group = client.group("night").open()
    queue.enqueue_many(NAMES, keys=NAMES, group=group)
    lose(cli, "night", 2)

    with pytest.raises(WrongGroup, match="it has 498 tasks, 500 are expected: make the missing"):
        group.close(expected=500)
    assert group.progress().state == "open"
    queue.enqueue_many(NAMES, keys=NAMES, group=group)
    group.close(expected=500)
    assert group.progress().state == "closed"


def test_a_group_with_fewer_tasks_than_are_expected_says_how_many_and_blames_no_failover(
    client, queue
):
    group = client.group("night").open()
    queue.enqueue("a", group=group)

    with pytest.raises(WrongGroup) as refused:
        group.close(expected=5)

    way_on = "make the missing ones before you close it"
    assert str(refused.value) == f"group 'night': it has 1 task, 5 are expected: {way_on}"


def test_a_group_that_is_closed_still_tells_that_it_has_lost_members(client, queue, cli):
    with client.group("night") as group:
        queue.enqueue_many(NAMES, keys=NAMES, group=group)
    group.close(expected=500)
    lose(cli, "night", 2)

    with pytest.raises(
        WrongGroup, match="it has 498 tasks, 500 are expected: it is closed; open it again"
    ):
        group.close(expected=500)
    group.close()
    assert group.progress().state == "closed"


@pytest.mark.parametrize(
    "options", [{"results": True, "after": "x"}, {"after_each": lambda name: None}]
)
def test_what_keys_in_a_group_cannot_have_is_refused(queue, state, options):
    with pytest.raises(InvalidInput, match="leave out keys, or after_each and results"):
        queue.enqueue_many(["a"], keys=["a"], group="night", **options)
    assert state() == {}
