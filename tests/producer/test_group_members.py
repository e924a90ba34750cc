"""Members of a group by their keys: each key makes one task, against a real Redis."""

from __future__ import annotations

import json
import multiprocessing
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from faults import Fault
from legacy_logic import LegacyQueue

from blueque import BatchFailed, Client, InvalidInput, NoSuchGroup, RedisAway, WrongGroup
from blueque.listener.listener import Listener
from blueque.model import keys
from blueque.model.group import Links
from blueque.model.group_terms import Terms
from blueque.model.ids import GROUP_NAMESPACE, id_of_key, ids_of_group_keys
from blueque.model.units import Timing
from blueque.producer.keyed_groups import open_keyed
from blueque.protocol.bulk import NewTasks
from blueque.protocol.members import MemberBatch
from blueque.queries.tasks import load
from blueque.system import process

FAR = 4e9
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


def test_a_member_is_whole_and_says_its_group_and_key(client, cli):
    before = time.time()
    members = Members(client, "2026-11-21", priority=5, time_limit="2h")

    assert members.put_texts([(b'{"n":1}', True)], ["ä"]) == 1
    (task_id,) = ids_of(["ä"], "2026-11-21")
    fields = cli.hgetall(keys.task(task_id))
    created = float(fields["created"])
    assert before <= created <= time.time()
    assert fields == {
        "status": "pending",
        "queue": Q,
        "parameters": '{"n":1}',
        "parameters_encoding": "json",
        "created": str(created),
        "updated": str(created),
        "priority": "5",
        "time_limit": "7200",
        "group": "2026-11-21",
        "key": "ä",
        "producer": process.producer(),
    }
    assert line(cli, "5") == [task_id]
    assert cli.zscore(keys.tasks(Q), task_id) == created
    assert cli.zscore(keys.members("2026-11-21"), task_id) == created
    assert cli.zrange(keys.lines(Q), 0, -1, withscores=True) == [("5", 5.0)]
    assert cli.exists(keys.wake(Q))


def test_the_id_is_the_uuid_of_queue_group_and_key():
    expected = str(uuid.uuid5(GROUP_NAMESPACE, "video\0r\0ä b"))

    assert ids_of(["ä b"]) == [expected]
    assert id_of_key(Q, "r\0ä b") != expected  # the same text, in the other namespace


def test_text_stays_text_and_rows_keep_their_order(client, cli):
    some = [(b"a", False), (b"100 %s", False), ("ä\r\n".encode(), False)]

    assert Members(client).put_texts(some, names(3)) == 3
    assert [load(client.connections, task).parameters for task in line(cli)] == [
        "a",
        "100 %s",
        "ä\r\n",
    ]
    assert line(cli) == ids_of(names(3))


def test_each_row_may_have_its_own_eta_and_priority(client, cli):
    members, ids = Members(client, priority=3), ids_of(names(4))

    new = members.put(names(4), etas=[None, FAR, 1.0, FAR + 1], priorities=[0, 5, 5, 0])

    assert (new, line(cli), line(cli, "5"), line(cli, "3")) == (4, [ids[0]], [ids[2]], [])
    assert cli.zrange(keys.scheduled(Q), 0, -1, withscores=True) == [
        (ids[1], FAR),
        (ids[3], FAR + 1),
    ]
    assert [cli.hmget(keys.task(task), "status", "eta", "priority") for task in ids] == [
        ["pending", None, None],
        ["scheduled", str(FAR), "5"],
        ["pending", None, "5"],
        ["scheduled", str(FAR + 1), None],
    ]


def test_members_are_run_like_any_others_also_by_1_0_0(client):
    Members(client).put(names(2))
    old = LegacyQueue(client.connections, Q)

    finish_and_delete(client, 1)
    assert load(client.connections, old.dequeue("old_1", time.time())).parameters == {"of": "key 1"}


# Once


def test_a_key_that_comes_again_makes_nothing(client, cli, state):
    members = Members(client)
    assert members.put([*names(5), *names(5)]) == 5
    before = state()

    assert members.put(names(5)) == 0
    assert state() == before
    assert members.put(names(8)) == 3
    assert line(cli) == ids_of(names(8))


def test_the_same_key_in_another_group_or_without_one_is_another_task(client, queue, cli):
    for group in ("r", "s"):
        assert Members(client, group).put(names(2)) == 2
    assert queue.enqueue({}, key="key 0").is_new
    assert len(set(line(cli))) == 5


def test_a_group_is_closed_with_what_has_run_and_was_deleted(client, cli):
    members = Members(client)
    members.put(names(10))
    finish_and_delete(client)
    assert cli.keys(keys.task("*")) == []

    assert members.put(names(12)) == 2
    assert line(cli) == ids_of(names(2, first=10))
    members.close(12)
    assert client.group("r").progress().state == "closed"


def test_one_that_is_late_adds_nothing_to_a_closed_group(client):
    members, zombie = Members(client), Members(client)
    members.put(names(10))
    members.close(10)

    assert zombie.put(names(10)) == 0
    with pytest.raises(WrongGroup, match="it is closed"):
        zombie.put(names(20))
    zombie.close(10)


@pytest.mark.parametrize("fate", ["running", "complete", "pending"])
def test_a_task_that_exists_is_not_written_over_when_its_group_was_forgotten(client, cli, fate):
    Members(client).put(names(4))
    listener = listening(client)
    if fate != "pending":
        processor = client.get_processor(listener.take())
        processor.start(77)
        if fate == "complete":
            processor.complete("r")
    before = {key: cli.hgetall(key) for key in cli.keys(keys.task("*"))}
    in_line = line(cli)
    cli.delete(keys.group("r"), keys.members("r"), keys.open_members("r"))
    members = Members(client)

    assert members.put(names(6)) == 2
    after = {key: cli.hgetall(key) for key in cli.keys(keys.task("*"))}
    assert {key: after[key] for key in before} == before
    assert line(cli) == in_line + ids_of(names(2, first=4))
    finish_and_delete(client)
    assert members.put(names(6)) == 0  # those that existed are members as well
    members.close(6)


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


def test_a_group_whose_rows_can_be_read_once_stays_open_until_the_call_comes_again(
    client, queue, cli
):
    rows = Rows2500(first=lambda: lose(cli, 300))
    with pytest.raises(WrongGroup, match="it has 2200 tasks, 2500 are expected: put all of"):
        queue.enqueue_many(iter(rows), keys="id", group="r")
    assert client.group("r").progress().state == "open"

    again = queue.enqueue_many(iter(rows), keys="id", group="r")

    assert (int(again), again.new, len(line(cli))) == (2500, 300, 2500)
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
        "etas": [1.0] * 2500,
    }
    given[source] = kind(each[source])
    if source == "etas":
        return queue.schedule_many(group="r", **given)
    return queue.enqueue_many(group="r", **given)


SOURCES = ["iterable", "keys", "priorities", "etas"]


@pytest.mark.parametrize("kind", [Once, Resumed])
@pytest.mark.parametrize("source", SOURCES)
def test_a_group_of_which_something_can_be_read_once_is_not_closed_without_its_tasks(
    client, queue, cli, source, kind
):
    with pytest.raises(WrongGroup, match="it has 2200 tasks, 2500 are expected: put all of"):
        make_group(queue, source, kind, lambda: lose(cli, 300))
    assert client.group("r").progress().state == "open"


@pytest.mark.parametrize("kind", [Once, Resumed])
@pytest.mark.parametrize("source", SOURCES)
def test_a_group_of_which_something_can_be_read_once_may_get_tasks_of_others_meanwhile(
    client, queue, theirs, source, kind
):
    make_group(queue, source, kind, lambda: Members(theirs).put(["another"]))

    seen = client.group("r").progress()
    assert (seen.state, seen.members) == ("closed", 2501)


def test_a_group_that_another_closes_while_its_rows_are_put_takes_no_more(
    client, queue, theirs, cli
):
    rows = Rows2500(first=lambda: theirs.group("r").close())

    with pytest.raises(WrongGroup, match="it is closed"):
        queue.enqueue_many(rows, keys="id", group="r", batch=100)

    assert 0 < len(line(cli)) == client.group("r").progress().members < 2500


def test_enqueue_many_that_broke_off_makes_what_is_missing(client, queue, cli):
    rows = [{"id": f"k{n}"} for n in range(50)]

    def breaking():
        yield from rows[:35]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        queue.enqueue_many(breaking(), keys="id", group="r", batch=10)
    assert len(line(cli)) == 30
    assert client.group("r").progress().state == "open"
    finish_and_delete(client, 12)
    count = queue.enqueue_many(rows, keys="id", group="r", batch=10)
    assert (count, count.new) == (50, 20)
    assert len(line(cli)) == 38


def test_enqueue_iter_and_schedule_many_tell_which_are_new(queue, cli):
    keyed = [["a", "b", "a"], ["c", "b", "d"]]
    made = [
        [task.is_new for task in some]
        for some in queue.enqueue_iter(
            [1, 2, 3, 4, 5, 6], keys=[key for some in keyed for key in some], group="r", batch=3
        )
    ]
    assert made == [[True, True, False], [True, False, True]]
    count = queue.schedule_many([{"k": "a"}, {"k": "b"}], FAR, keys="k", group="s", priority=5)
    assert (count, count.new, cli.zcard(keys.scheduled(Q))) == (2, 2, 2)


def test_nothing_is_opened_before_the_first_batch_is_asked_for(queue, state):
    queue.enqueue_iter([1], keys=["a"], group="r")
    assert state() == {}


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


def test_somebody_who_puts_the_same_in_between_makes_it_and_we_do_not(
    client, theirs, overtaken, cli
):
    members, other = Members(client), Members(theirs)
    overtaken(lambda: other.put(names(5)))

    assert members.put(names(8)) == 3
    assert len(line(cli)) == 8


def test_a_group_that_is_closed_in_between_gets_nothing(client, theirs, overtaken, cli):
    members, other = Members(client), Members(theirs)
    overtaken(lambda: other.close())

    with pytest.raises(WrongGroup, match="it has ended"):
        members.put(names(8))
    assert line(cli) == []


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
