"""Members of a group by their keys: each key makes one task, against a real Redis."""

from __future__ import annotations

import json
import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from faults import Fault
from legacy_logic import LegacyQueue

from blueque import BatchFailed, Client, InvalidInput, NoSuchGroup, RedisAway
from blueque.listener.listener import Listener
from blueque.model import keys
from blueque.model.group import Links
from blueque.model.group_terms import Terms
from blueque.model.ids import ids_of_group_keys
from blueque.model.units import Timing
from blueque.producer.keyed_groups import open_keyed
from blueque.protocol.bulk import NewTasks
from blueque.protocol.members import MemberBatch
from blueque.queries.tasks import load

Q = "video"


@pytest.fixture
def theirs(url):
    """Return the client of another process."""
    client = Client(url)
    yield client
    client.close()


def line(cli, name="0"):
    """Return the ids in a line of the queue, the one that runs next first."""
    return cli.lrange(keys.line(Q, name), 0, -1)[::-1]


def names(count, first=0):
    return [f"key {number}" for number in range(first, first + count)]


def texts(some: Sequence[str]) -> list[bytes]:
    return [json.dumps({"of": name}).encode() for name in some]


def ids_of(some: Sequence[str], group: str = "r") -> list[str]:
    found = ids_of_group_keys(Q, group, [name.encode() for name in some])
    return [task.decode() for task in found]


class Members:
    """A group that is open for keys, and one of those that make its members."""

    def __init__(self, client: Client, group: str = "r", **options: Any) -> None:
        self.redis = client.connections
        self.opened = open_keyed(self.redis, Q, group, Terms())
        self._fields = client.get_queue(Q).fields_of(**options)

    def put(self, some: Sequence[str], **columns: Any) -> int:
        return self.put_texts([(text, True) for text in texts(some)], some, **columns)

    def put_texts(
        self, some: Sequence[tuple[bytes, bool]], its_keys: Sequence[str], **columns: Any
    ) -> int:
        tasks = NewTasks((), some, keys=[key.encode() for key in its_keys], **columns)
        return self.opened.put(self.redis, tasks, self._fields)

    def close(self, expected: int = 0) -> None:
        self.opened.close(self.redis, expected)


def listening(client: Client) -> Listener:
    """Return a listener that is registered."""
    listener = client.get_listener(Q)
    assert isinstance(listener, Listener)
    listener.register(Timing())
    return listener


def finish_and_delete(client: Client, how_many: int | None = None) -> None:
    """Run tasks of the queue, and delete them, as a night of work and an archive do."""
    queue, listener = client.get_queue(Q), listening(client)
    while how_many is None or how_many > 0:
        task = listener.take()
        if task is None:
            break
        processor = client.get_processor(task)
        processor.start(77)
        processor.complete("r")
        queue.delete_task(client.get_task(task.id))
        how_many = None if how_many is None else how_many - 1
    listener.leave()


# What comes into Redis


def test_members_are_run_like_any_others_also_by_1_0_0(client):
    Members(client).put(names(2))
    old = LegacyQueue(client.connections, Q)

    finish_and_delete(client, 1)
    assert load(client.connections, old.dequeue("old_1", time.time())).parameters == {"of": "key 1"}


# From any iterable


def lose(cli, many):
    """Take the last members back, as a failover to a replica that is behind does."""
    for task in line(cli)[-many:]:
        cli.lrem(keys.line(Q, "0"), 1, task)
        cli.delete(keys.task(task))
        cli.zrem(keys.members("r"), task)
        cli.srem(keys.open_members("r"), task)


class Rows2500:
    """Rows that can be read more than once; before each row, one that is told to do something."""

    def __init__(self, **told):
        self.told, self.reads = told, 0

    def __iter__(self):
        self.reads += 1
        for number in range(2500):
            if number == 2100 and self.told:
                self.told.popitem()[1]()
            yield {"id": number}


def test_what_a_failover_takes_back_is_made_by_the_same_call(client, queue, cli):
    rows = Rows2500(second=lambda: lose(cli, 400), first=lambda: lose(cli, 300))

    made = queue.enqueue_many(rows, keys="id", group="r")

    assert (int(made), made.new, rows.reads) == (2500, 2500, 3)
    assert len(line(cli)) == len(set(line(cli))) == len(cli.keys(keys.task("*"))) == 2500
    seen = client.group("r").progress()
    assert (seen.state, seen.members) == ("closed", 2500)


def test_what_a_failover_takes_back_while_others_make_the_same_is_made(client, theirs, queue, cli):
    def lose_unseen():
        Members(theirs).put([f"other {n}" for n in range(500)])
        for task in ids_of([f"key {n}" for n in range(400)]):
            cli.lrem(keys.line(Q, "0"), 1, task)
            cli.zrem(keys.members("r"), task)
            cli.delete(keys.task(task))

    rows = Rows2500(first=lose_unseen)

    queue.enqueue_many(rows, keys=lambda row: f"key {row['id']}", group="r")

    assert len(line(cli)) == client.group("r").progress().members == 3000


def test_a_failover_that_takes_the_group_back_asks_for_the_same_call(client, queue, cli):
    rows = Rows2500(first=cli.flushdb)

    with pytest.raises(NoSuchGroup, match="make the same call again"):
        queue.enqueue_many(rows, keys="id", group="r")
    assert queue.enqueue_many(rows, keys="id", group="r").new == 2500

    seen = client.group("r").progress()
    assert (seen.state, seen.members) == ("closed", 2500)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"n": {1}, "id": "b"}, "the parameters at position 1: .* type set"),
        ({"n": float("nan"), "id": "b"}, "the parameters at position 1: "),
        ({"n": 1, "id": ""}, "keys: at position 1: a key takes"),
    ],
)
def test_a_bad_row_is_told_in_one_error(queue, bad, said):
    with pytest.raises(InvalidInput, match=said) as refused:
        queue.enqueue_many([{"n": 1, "id": "a"}, bad], keys="id", group="r")

    printed = "".join(traceback.format_exception(refused.value))
    assert printed.count("Traceback (most recent call last)") == 1


def test_a_failover_that_takes_the_close_back_is_mended_by_the_same_call(client, queue, cli):
    queue.enqueue_many(["a", "b"], keys=["a", "b"], group="r")
    cli.hset(keys.group("r"), "state", "open")
    cli.hdel(keys.group("r"), "closed")

    assert queue.enqueue_many(["a", "b"], keys=["a", "b"], group="r").new == 0

    assert client.group("r").progress().state == "closed"


class Once:
    """What can be read once, and is no iterator: as rows of a cursor."""

    def __init__(self, values):
        self._values = iter(values)

    def __iter__(self):
        yield from self._values


class Resumed:
    """An iterator that goes on with other values after its end: as messages of a topic."""

    def __init__(self, values):
        self._source, self._values = values, iter(values)

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return next(self._values)
        except StopIteration:
            self._values = iter(self._source)
            raise


def make_group(queue, source, kind, meanwhile):
    """Make 2500 tasks. source: of what is given for each, that which is read as `kind`."""
    given = {"iterable": Rows2500(first=meanwhile), "keys": "id"}
    each = {
        **given,
        "keys": [f"key {n}" for n in range(2500)],
        "priorities": [0] * 2500,
        "etas": [1e9] * 2500,
    }
    given[source] = kind(each[source])
    if source == "etas":
        return queue.schedule_many(group="r", **given)
    return queue.enqueue_many(group="r", **given)


SOURCES = ["iterable", "keys", "priorities", "etas"]


@pytest.mark.parametrize("kind", [Once, Resumed])
@pytest.mark.parametrize("source", SOURCES)
def test_a_group_of_which_something_can_be_read_once_may_get_tasks_of_others_meanwhile(
    client, queue, theirs, source, kind
):
    make_group(queue, source, kind, lambda: Members(theirs).put(["another"]))

    seen = client.group("r").progress()
    assert (seen.state, seen.members) == ("closed", 2501)


def test_a_batch_of_a_group_that_fails_is_named(proxy):
    client = Client(proxy.url, patience=0)
    queue = client.get_queue(Q)
    proxy.arm(Fault.CUT_AFTER, 1, having=b"LPUSH")

    with pytest.raises(BatchFailed) as raised:
        queue.enqueue_many(range(30), keys=[str(n) for n in range(30)], group="r", batch=10)
    assert (raised.value.batch, raised.value.is_unknown) == (0, True)
    assert (
        queue.enqueue_many(range(30), keys=[str(n) for n in range(30)], group="r", batch=10)
    ).new == 20
    client.close()


# Races and lost answers

Meet = Callable[[], object]  # waits for the others
Way = Callable[[Members, list[str], Meet], int]


def guarded(members: Members, some: list[str], meet: Meet) -> int:
    meet()
    return members.put(some)


def without_watch(members: Members, some: list[str], meet: Meet = lambda: None) -> int:
    """The naive way: look whether the tasks exist, and make those that do not."""
    redis, ids = members.redis, ids_of(some)
    exist = redis.read(*[("EXISTS", keys.task(task)) for task in ids])
    meet()
    new = [number for number, is_there in enumerate(exist) if not is_there]
    if not new:
        return 0
    tasks = NewTasks(
        [ids[number].encode() for number in new],
        [(texts(some)[number], True) for number in new],
        keys=[some[number].encode() for number in new],
    )
    batch = MemberBatch(Q, Links("r"), tasks, time.time(), {})
    redis.read(("MULTI",), *batch.commands, ("EXEC",))
    return len(new)


RACE = 1500  # keys, all of which four processes put at once


def hammer(url: str, way: Way, meeting: Any, counts: Any) -> None:
    """Be one of those who put all keys at once, in chunks that are the same for all."""
    client = Client(url, patience=20)
    members = Members(client)
    counts.put(
        sum(
            way(members, names(100, first), lambda: meeting.wait(60))
            for first in range(0, RACE, 100)
        )
    )
    client.close()


def race(url: str, way: Way) -> list[int]:
    """Have four processes put the same keys in the same order, and return how many were new to
    each.
    """
    context = multiprocessing.get_context("fork")
    meeting, counts = context.Barrier(4), context.Queue()
    racers = [context.Process(target=hammer, args=(url, way, meeting, counts)) for _ in range(4)]
    for racer in racers:
        racer.start()
    found = [counts.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join()
    return found


def test_four_processes_that_put_the_same_make_each_task_once(client, url, cli):
    new = race(url, guarded)

    assert sum(new) == RACE
    assert len(line(cli)) == len(set(line(cli))) == len(cli.keys(keys.task("*"))) == RACE
    assert client.group("r").progress().members == RACE


def test_the_same_race_doubles_tasks_where_nothing_is_watched(url, cli):
    new = race(url, without_watch)

    assert sum(new) == len(line(cli)) == 4 * RACE


def test_a_replay_doubles_what_was_deleted_where_members_are_not_asked(client):
    members = Members(client)
    assert without_watch(members, names(10)) == 10
    finish_and_delete(client)

    assert without_watch(members, names(10)) == 10  # the test of a closed group above has 0 here


@pytest.mark.parametrize("fault", Fault)
def test_a_lost_answer_neither_loses_nor_doubles(proxy, cli, fault):
    client = Client(proxy.url, patience=5)
    members = Members(client)
    for number in (1, 2):
        proxy.arm(fault, number)
        assert members.put(names(10, 10 * number)) == 10
        assert proxy.has_struck
        proxy.release()
    proxy.arm(fault, 2)
    members.close(20)
    assert proxy.has_struck
    proxy.release()
    seen = client.group("r").progress()
    assert (seen.state, seen.members, line(cli)) == ("closed", 20, ids_of(names(20, 10)))
    client.close()


def test_nothing_comes_of_a_write_that_arrives_when_the_group_is_closed(proxy, client, cli):
    slow = Client(proxy.url, patience=0)
    members = Members(slow)
    proxy.arm(Fault.HOLD, 1, having=b"LPUSH")
    with pytest.raises(RedisAway):
        members.put(names(5))
    client.group("r").close()

    proxy.release()
    assert line(cli) == []
    slow.close()
