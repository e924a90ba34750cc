"""Runs in which each key makes one task: KeyedRun, Queue.enqueue_many(run=), against a real Redis."""

from __future__ import annotations

import json
import multiprocessing
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from faults import Fault
from legacy_logic import LegacyQueue
from transactions import protocol

from blueque import (
    BatchFailed,
    Client,
    InvalidInput,
    InvalidType,
    RedisAway,
    RunDropped,
    TooLarge,
    WrongRun,
)
from blueque.listener.listener import Listener
from blueque.model import keys
from blueque.model.ids import (
    RUN_NAMESPACE,
    id_of_key,
    id_of_run_key,
    octets_of,
    shard_of,
    shards_of,
)
from blueque.model.task import FIELDS
from blueque.model.units import Timing
from blueque.producer.row_batch import Rows
from blueque.protocol.runs import RunBatch
from blueque.queries.tasks import load
from blueque.system import process

FAR = 4e9
Q = "video"


@pytest.fixture
def theirs(url):
    """Return the queue for another process."""
    client = Client(url)
    yield client.get_queue(Q)
    client.close()


def line(cli, name="0"):
    """Return the ids in a line of the queue, the one that runs next first."""
    return cli.lrange(keys.line(Q, name), 0, -1)[::-1]


def names(count, first=0):
    return [f"key {number}" for number in range(first, first + count)]


def texts(some: Sequence[str]) -> list[bytes]:
    return [json.dumps({"of": name}).encode() for name in some]


def put(run, some, **columns: Any) -> int:
    return run.put(some, texts(some), **columns)


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


def test_a_task_of_a_run_is_whole_and_says_of_which_run_it_is(queue, client, cli):
    before = time.time()
    run = queue.open_run("2026-11-21", priority=5, time_limit="2h")

    assert run.put(["ä"], [b'{"n":1}']) == 1
    task_id = id_of_run_key(Q, "2026-11-21", "ä")
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
        "run": "2026-11-21",
        "key": "ä",
        "producer": process.producer(),
    }
    assert line(cli, "5") == [task_id]
    assert cli.zscore(keys.tasks(Q), task_id) == created
    assert cli.zrange(keys.lines(Q), 0, -1, withscores=True) == [("5", 5.0)]
    assert cli.exists(keys.wake(Q))


def test_the_id_is_the_uuid_of_queue_run_and_key(queue):
    run = queue.open_run("r")
    expected = str(uuid.uuid5(RUN_NAMESPACE, "video\0r\0ä b"))

    assert run.ids_of(["ä b"]) == [expected.encode()]
    assert id_of_run_key(Q, "r", "ä b") == expected
    assert octets_of([expected.encode()]) == [uuid.UUID(expected).bytes]
    assert run.shard_of(expected) == 0
    assert shard_of("0011aaaa-", 16) == shard_of(b"0011aaaa-", 16) == 1
    assert shards_of([b"0011aaaa-", b"ffff0000-"], 1000) == [17, 535] and shards_of([], 3) == []
    assert id_of_key(Q, "r\0ä b") != expected  # the same text, in the other namespace


def test_text_stays_text_and_rows_keep_their_order(queue, client, cli):
    run = queue.open_run("r")

    assert run.put(names(3), [b"a", b"100 %s", "ä\r\n".encode()], are_json=False) == 3
    assert [load(client._redis, task).parameters for task in line(cli)] == ["a", "100 %s", "ä\r\n"]
    assert line(cli) == [task.decode() for task in run.ids_of(names(3))]


def test_each_row_may_have_its_own_eta_and_priority(queue, cli):
    run = queue.open_run("r", priority=3)
    ids = [task.decode() for task in run.ids_of(names(4))]

    assert put(run, names(4), etas=[None, FAR, 1.0, FAR + 1], priorities=[0, 5, 5, 0]) == 4
    assert (line(cli), line(cli, "5"), line(cli, "3")) == ([ids[0]], [ids[2]], [])
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


def test_tasks_of_a_run_are_run_like_any_others_also_by_1_0_0(queue, client, cli):
    run = queue.open_run("r")
    put(run, names(2))
    old = LegacyQueue(client._redis, Q)

    finish_and_delete(client, 1)
    assert load(client._redis, old.dequeue("old_1", time.time())).parameters == {"of": "key 1"}


# Once


def test_a_key_that_comes_again_makes_nothing(queue, cli, state):
    run = queue.open_run("r", shards=4)
    assert put(run, [*names(5), *names(5)]) == 5
    before = state()

    assert put(run, names(5)) == 0
    assert state() == before
    assert put(run, names(8)) == 3
    assert line(cli) == [task.decode() for task in run.ids_of(names(8))]


def test_the_same_key_in_another_run_or_without_one_is_another_task(queue, cli):
    for run in ("r", "s"):
        assert put(queue.open_run(run), names(2)) == 2
    assert queue.enqueue({}, key="key 0").is_new
    assert len(set(line(cli))) == 5


def test_what_has_run_and_was_deleted_is_not_made_again(queue, client, cli):
    run = queue.open_run("r", shards=2)
    put(run, names(10))
    finish_and_delete(client)
    assert cli.keys(keys.task("*")) == []

    assert put(run, names(12)) == 2
    assert line(cli) == [task.decode() for task in run.ids_of(names(2, first=10))]
    assert run.close(12) == ("r", 12, 12, False, None)


def test_a_committed_run_makes_nothing_whatever_comes(queue, client, cli):
    run, zombie = queue.open_run("r"), queue.open_run("r")
    put(run, names(10))
    assert run.close(10) == ("r", 10, 10, False, None)
    finish_and_delete(client)
    before = cli.keys("*")

    assert put(zombie, names(20)) == put(run, names(20)) == put(queue.open_run("r"), names(20)) == 0
    assert sorted(cli.keys("*")) == sorted(before)
    assert (zombie.state, queue.open_run("r").state) == ("open", "committed")


@pytest.mark.parametrize(("keep", "late"), [("10s", 10), ("90d", 7 * 86400)])
def test_the_ledgers_stay_for_a_week_and_the_record_as_long_as_it_is_to_be_kept(
    queue, cli, keep, late
):
    run = queue.open_run("r", shards=3, keep=keep)
    put(run, names(20))
    ledgers = cli.keys(keys.ledger(Q, "r", "*"))
    assert {cli.ttl(key) for key in [keys.run(Q, "r"), *ledgers]} == {-1}

    run.close(25)
    assert len(ledgers) == 3
    assert all(late - 60 < cli.ttl(key) <= late for key in ledgers)
    assert cli.ttl(keys.run(Q, "r")) > late - 60


def test_late_rows_are_added_to_a_closed_run_and_no_old_task_comes_again(queue, client, cli):
    queue.enqueue_many(names(4), keys=names(4), run="r", group="r")
    finish_and_delete(client)

    late = queue.open_run("r", append=True)
    zombie = queue.join_run(late.record)
    assert [put(late, names(6)), put(zombie, names(6))] == [2, 0]
    outcome = late.close(6)

    assert outcome == ("r", 10, 6, False, "r")
    assert len(line(cli)) == 2 and cli.ttl(keys.run(Q, "r")) > 0
    assert client.group("r").progress().state == "closed"
    assert queue.open_run("r").state == "committed"
    assert queue.open_run("r", append=True).close(0) == ("r", 10, 6, False, "r")


def test_a_run_that_another_closes_takes_the_late_rows_all_the_same(queue, cli):
    run, other = queue.open_run("r", append=True), queue.open_run("r", append=True)
    put(run, names(2))
    other.close(0)

    counts = [*run.put_each(Rows(texts(some), some) for some in (names(4), names(2, 4)))]
    other.close(0)

    assert counts == [2, 2]
    assert run.close(6)[1:4] == (6, 6, False)
    assert len(line(cli)) == 6


def test_late_rows_are_refused_when_the_keys_of_the_run_are_forgotten(queue, cli):
    run = queue.open_run("r", shards=2)
    put(run, names(9))
    run.close(9)
    cli.delete(keys.ledger(Q, "r", 1))

    with pytest.raises(WrongRun, match="it was committed long ago, and its keys are forgotten"):
        queue.open_run("r", append=True)
    assert queue.open_run("r").state == "committed"


def test_a_run_tells_how_many_tasks_it_has_made(queue):
    run = queue.open_run("r", shards=3)
    run.put(["a", "b", "a"], [b"1", b"2", b"3"])
    queue.open_run("another", shards=3).put(["c"], [b"1"])

    assert run.count() == 2
    run.close(3)
    assert run.count() == 2


def test_closing_again_tells_what_was_recorded_first(queue):
    run = queue.open_run("r")
    put(run, names(3))

    assert run.close(5) == ("r", 5, 3, False, None)
    assert run.close(99) == queue.open_run("r").close(7) == ("r", 5, 3, True, None)


def test_a_run_that_was_dropped_takes_nothing(queue, cli):
    run = queue.open_run("r", shards=2)
    put(run, names(3))
    assert protocol.drop_run(queue._redis, Q, "r")

    with pytest.raises(RunDropped, match="run the whole again"):
        put(run, names(5))
    with pytest.raises(RunDropped):
        run.close(3)
    assert len(line(cli)) == 3
    assert cli.keys(keys.ledger(Q, "r", "*")) == []


def test_another_process_joins_the_run_that_was_opened_and_no_later_one(queue, theirs, cli):
    run = queue.open_run("r", shards=2)
    joined = theirs.join_run(json.loads(json.dumps(run.record)), priority=3)
    assert (joined.name, joined.shards, put(joined, names(3))) == ("r", 2, 3)
    assert cli.llen(keys.line(Q, "3")) == 3

    assert protocol.drop_run(queue._redis, Q, "r")
    with pytest.raises(RunDropped):
        theirs.join_run(run.record)
    assert not cli.exists(keys.run(Q, "r"))
    later = queue.open_run("r", shards=2)
    for attempt in (
        lambda: theirs.join_run(run.record),
        lambda: put(joined, names(5)),
        lambda: joined.close(3),
    ):
        with pytest.raises(RunDropped):
            attempt()
    assert later.close(0) == ("r", 0, 0, False, None)
    assert theirs.join_run(later.record).state == "committed"


@pytest.mark.parametrize("fate", ["running", "complete", "pending"])
def test_a_task_that_exists_is_not_written_over_when_its_run_was_forgotten(
    queue, client, cli, fate
):
    put(queue.open_run("r", shards=2), names(4))
    listener = listening(client)
    if fate != "pending":
        processor = client.get_processor(listener.take())
        processor.start(77)
        if fate == "complete":
            processor.complete("r")
    before = {key: cli.hgetall(key) for key in cli.keys(keys.task("*"))}
    in_line = line(cli)
    protocol.drop_run(queue._redis, Q, "r")
    run = queue.open_run("r", shards=2)

    assert put(run, names(6)) == 2
    after = {key: cli.hgetall(key) for key in cli.keys(keys.task("*"))}
    assert {key: after[key] for key in before} == before
    assert line(cli) == in_line + [task.decode() for task in run.ids_of(names(2, first=4))]
    finish_and_delete(client)
    assert put(run, names(6)) == 0  # those that existed are in the ledger as well
    assert run.close(6).tasks == 6


def test_the_number_of_shards_is_that_of_the_first_opening(queue):
    queue.open_run("r", shards=7)

    assert queue.open_run("r").shards == queue.open_run("r", shards=3).shards == 7


# Names


def test_a_run_of_another_queue_whose_key_is_the_same_is_refused(client):
    ours, theirs = client.get_queue("b_c"), client.get_queue("c")
    put(ours.open_run("a"), ["k"])

    with pytest.raises(
        WrongRun, match="run 'a' of queue 'b_c' has the same key; choose another name"
    ) as raised:
        theirs.open_run("a_b")
    assert (raised.value.run, raised.value.queue) == ("a_b", "c")
    assert theirs.open_run("a").name == "a"  # the key of run a in queue c is another
    assert client.get_run("c", "a_b") is None


def test_a_run_of_another_kind_is_refused(queue, cli):
    cli.hset(keys.run(Q, "r"), mapping={"run": "r", "queue": Q, "kind": "staged", "state": "open"})

    with pytest.raises(WrongRun, match="it is a staged run: end it with the version of Blueque"):
        queue.open_run("r")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", InvalidInput),
        ("a\0b", InvalidInput),
        ("x" * 201, InvalidInput),
        (5, InvalidType),
        ("\ud800", InvalidInput),
    ],
)
def test_a_name_that_cannot_be_one_is_refused(queue, state, name, error):
    with pytest.raises(error, match=r"run name|characte"):
        queue.open_run(name)
    assert state() == {}


def test_runs_are_listed_the_oldest_first_and_forgotten_when_they_have_expired(queue, client, cli):
    put(queue.open_run("b", shards=2), names(3))
    queue.open_run("a").close(0)
    assert [(run["run"], run["state"], run.get("tasks")) for run in client.get_runs(Q)] == [
        ("b", "open", None),
        ("a", "committed", 0),
    ]
    cli.delete(keys.run(Q, "a"))  # as if it had expired
    queue.open_run("c").close(0)

    assert (
        [run["run"] for run in client.get_runs(Q)] == cli.zrange(keys.runs(Q), 0, -1) == ["b", "c"]
    )
    assert client.get_run(Q, "a") is None


# What is refused


@pytest.mark.parametrize(
    ("columns", "error", "says"),
    [
        ({"keys": ["a"]}, InvalidInput, "keys: there are 1 for 2 rows"),
        ({"keys": ["a", ""]}, InvalidInput, "keys at position 1 takes 1 to 1000 bytes, not 0"),
        ({"keys": ["a", None]}, InvalidType, "keys at position 1 must be text"),
        (
            {"keys": ["ä" * 501, "b"]},
            InvalidInput,
            "keys at position 0 takes 1 to 1000 bytes, not 1002",
        ),
        ({"keys": ["\udcff", "b"]}, InvalidInput, "keys at position 0: .* is not a character"),
        ({"parameters": [b"1", "2"]}, InvalidType, "the parameters at position 1 must be bytes"),
        (
            {"parameters": [b"1", b"x" * (2**20 + 1)]},
            TooLarge,
            "the parameters at position 1 take 1,048,577 bytes",
        ),
        ({"parameters": [], "keys": []}, InvalidInput, "1 to 1000 rows are taken at a time, not 0"),
        ({"parameters": [b""] * 1001, "keys": ["a"] * 1001}, InvalidInput, "not 1001"),
        ({"etas": [1.0]}, InvalidInput, "etas: there are 1 for 2 rows"),
        (
            {"etas": [None, float("nan")]},
            InvalidInput,
            "etas: at position 1: eta nan is not a time",
        ),
        ({"priorities": [0, 101]}, InvalidInput, "priorities: at position 1: priority 101"),
        ({"priorities": [0, None]}, InvalidType, "priorities: at position 1"),
        ({"ids": [b"x", b"y"]}, InvalidType, "ids are those"),
    ],
)
def test_rows_that_cannot_be_tasks_are_refused_and_nothing_is_written(
    queue, state, columns, error, says
):
    run = queue.open_run("r")
    before = state()

    with pytest.raises(error, match=says):
        run.put(**{"keys": ["a", "b"], "parameters": [b"1", b"2"], **columns})
    assert state() == before


# Chunk after chunk


def chunks(count, size=10):
    return [
        Rows(texts(names(size, first)), names(size, first))
        for first in range(0, count * size, size)
    ]


def test_chunks_are_put_in_their_order_and_counted(queue, cli):
    run = queue.open_run("r", shards=4)

    assert list(run.put_each(chunks(5))) == [10] * 5
    assert list(run.put_each(chunks(6))) == [0, 0, 0, 0, 0, 10]
    assert line(cli) == [task.decode() for task in run.ids_of(names(60))]


def test_what_is_iterated_over_may_use_the_same_client(queue, client, cli):
    run = queue.open_run("r")

    def reading():
        for rows in chunks(4):
            client.get_task("none")
            yield rows

    assert sum(run.put_each(reading())) == 40


def test_a_chunk_that_cannot_be_made_is_told_when_those_before_are_in_redis(queue, cli):
    run = queue.open_run("r")

    def breaking():
        yield from chunks(2)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(run.put_each(breaking()))
    assert len(line(cli)) == 20


# From any iterable


def test_enqueue_many_in_a_run_is_once(queue, client, cli):
    rows = [{"id": f"k{n}", "n": n} for n in range(2500)]

    first = queue.enqueue_many(rows, keys="id", run="r")
    assert (first, first.new) == (2500, 2500)
    assert [load(client._redis, task).parameters for task in line(cli)[:3]] == rows[:3]
    assert (
        client.get_run(Q, "r").items()
        >= {"state": "committed", "rows": 2500, "tasks": 2500}.items()
    )
    finish_and_delete(client, 3)
    again = queue.enqueue_many(rows, keys="id", run="r")
    assert (again, again.new) == (2500, 0)
    assert len(line(cli)) == 2497


def lose(cli, many):
    """Take the last tasks of the run back, as a failover to a replica that is behind does."""
    for task in line(cli)[-many:]:
        cli.lrem(keys.line(Q, "0"), 1, task)
        cli.delete(keys.task(task))
        cli.srem(keys.ledger(Q, "r", 0), octets_of([task.encode()])[0])


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


def test_what_a_failover_takes_back_is_made_by_the_same_call(queue, client, cli):
    rows = Rows2500(second=lambda: lose(cli, 400), first=lambda: lose(cli, 300))

    made = queue.enqueue_many(rows, keys="id", run="r", group="g")

    assert (int(made), made.new, rows.reads) == (2500, 2500, 3)
    assert len(line(cli)) == len(set(line(cli))) == len(cli.keys(keys.task("*"))) == 2500
    record = client.get_run(Q, "r")
    assert (record["state"], record["rows"], record["tasks"]) == ("committed", 2500, 2500)
    assert cli.hget(keys.group("g"), "state") == "closed"


def test_what_a_failover_takes_back_while_others_make_the_same_is_made(queue, theirs, cli):
    def lose_unseen():
        theirs.open_run("r").put(*[[f"other {n}" for n in range(500)], [b"1"] * 500])
        for name in [f"key {n}" for n in range(400)]:
            task = id_of_run_key(Q, "r", name)
            cli.lrem(keys.line(Q, "0"), 1, task)
            cli.srem(keys.ledger(Q, "r", 0), octets_of([task.encode()])[0])
            cli.delete(keys.task(task))

    rows = Rows2500(first=lose_unseen)

    queue.enqueue_many(rows, keys=lambda row: f"key {row['id']}", run="r")

    assert len(line(cli)) == cli.scard(keys.ledger(Q, "r", 0)) == 3000


def test_a_run_whose_rows_can_be_read_once_stays_open_until_the_call_comes_again(
    queue, client, cli
):
    rows = Rows2500(first=lambda: lose(cli, 300))
    with pytest.raises(RunDropped, match="Redis has lost 300 of the tasks") as error:
        queue.enqueue_many(iter(rows), keys="id", run="r", group="g")
    assert error.value.tasks == 300
    assert client.get_run(Q, "r")["state"] == cli.hget(keys.group("g"), "state") == "open"

    again = queue.enqueue_many(iter(rows), keys="id", run="r", group="g")

    assert (int(again), again.new, len(line(cli))) == (2500, 300, 2500)
    assert cli.hget(keys.group("g"), "state") == "closed"


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


def make_run(queue, source, kind, meanwhile):
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
        return queue.schedule_many(run="r", **given)
    return queue.enqueue_many(run="r", **given)


SOURCES = ["iterable", "keys", "priorities", "etas"]


@pytest.mark.parametrize("kind", [Once, Resumed])
@pytest.mark.parametrize("source", SOURCES)
def test_a_run_of_which_something_can_be_read_once_is_not_committed_without_its_tasks(
    queue, client, cli, source, kind
):
    with pytest.raises(RunDropped, match="Redis has lost 300 of the tasks"):
        make_run(queue, source, kind, lambda: lose(cli, 300))
    assert client.get_run(Q, "r")["state"] == "open"


@pytest.mark.parametrize("kind", [Once, Resumed])
@pytest.mark.parametrize("source", SOURCES)
def test_a_run_of_which_something_can_be_read_once_may_get_tasks_of_others_meanwhile(
    queue, theirs, client, source, kind
):
    make_run(queue, source, kind, lambda: theirs.open_run("r").put(["another"], [b"1"]))

    record = client.get_run(Q, "r")
    assert (record["state"], record["rows"], record["tasks"]) == ("committed", 2500, 2501)


@pytest.mark.parametrize("append", [False, True])
def test_a_run_that_has_lost_tasks_is_not_closed_before_they_are_put_again(
    queue, theirs, cli, append
):
    run = queue.open_run("r")
    put(run, names(5))
    if append:
        run.close(5)
    run = queue.open_run("r", append=append)
    new = theirs.join_run(run.record, append).put(names(4, 20), texts(names(4, 20)))
    put(run, names(5, 10))
    lose(cli, 2)
    with pytest.raises(RunDropped, match="lost 2 of the tasks"):
        run.close(14, new)
    put(run, [*names(5), *names(5, 10)])
    lose(cli, 1)
    with pytest.raises(RunDropped, match="lost 1 of the tasks"):
        run.close(14)

    assert put(run, [*names(5), *names(5, 10)]) == 1
    assert run.close(14).tasks == len(line(cli)) == 14


def test_a_run_that_another_closes_while_its_rows_are_put_takes_no_more(queue, theirs, cli):
    rows = Rows2500(first=lambda: theirs.open_run("r").close(0))

    made = queue.enqueue_many(rows, keys="id", run="r", batch=100)

    assert 0 < made.new == len(line(cli)) < 2500


def test_enqueue_many_that_broke_off_makes_what_is_missing(queue, client, cli):
    rows = [{"id": f"k{n}"} for n in range(50)]

    def breaking():
        yield from rows[:35]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        queue.enqueue_many(breaking(), keys="id", run="r", batch=10)
    assert len(line(cli)) == 30
    assert client.get_run(Q, "r")["state"] == "open"
    finish_and_delete(client, 12)
    count = queue.enqueue_many(rows, keys="id", run="r", batch=10)
    assert (count, count.new) == (50, 20)
    assert len(line(cli)) == 38


def test_enqueue_iter_and_schedule_many_tell_which_are_new(queue, cli):
    keyed = [["a", "b", "a"], ["c", "b", "d"]]
    made = [
        [task.is_new for task in some]
        for some in queue.enqueue_iter(
            [1, 2, 3, 4, 5, 6], keys=[key for some in keyed for key in some], run="r", batch=3
        )
    ]
    assert made == [[True, True, False], [True, False, True]]
    count = queue.schedule_many([{"k": "a"}, {"k": "b"}], FAR, keys="k", run="s", priority=5)
    assert (count, count.new, cli.zcard(keys.scheduled(Q))) == (2, 2, 2)


def test_enqueue_many_in_a_run_asks_for_keys_and_opens_nothing_before_it_begins(queue, state):
    with pytest.raises(InvalidInput, match="in a run each task has a key"):
        queue.enqueue_many([1], run="r")
    queue.enqueue_iter([1], keys=["a"], run="r")
    assert state() == {}


def test_a_batch_of_a_run_that_fails_is_named(proxy):
    client = Client(proxy.url, patience=0)
    proxy.arm(Fault.CUT_AFTER, 1, having=b"EXEC")
    queue = client.get_queue(Q)
    proxy.arm(Fault.CUT_AFTER, 1, having=b"LPUSH")

    with pytest.raises(BatchFailed) as raised:
        queue.enqueue_many(range(30), keys=[str(n) for n in range(30)], run="r", batch=10)
    assert (raised.value.batch, raised.value.is_unknown) == (0, True)
    assert (
        queue.enqueue_many(range(30), keys=[str(n) for n in range(30)], run="r", batch=10)
    ).new == 20
    client.close()


# Races and lost answers

Meet = Callable[[], object]  # waits for the others
Way = Callable[[Any, list[str], Meet], int]


def guarded(run: Any, some: list[str], meet: Meet) -> int:
    meet()
    return int(put(run, some))


def without_watch(run: Any, some: list[str], meet: Meet = lambda: None) -> int:
    """The naive way: look whether the tasks exist, and make those that do not."""
    ids = run.ids_of(some)
    exist = run._redis.read(*[("EXISTS", keys.task(task.decode())) for task in ids])
    meet()
    new = [number for number, is_there in enumerate(exist) if not is_there]
    if not new:
        return 0
    tasks = Rows([texts(some)[number] for number in new]).as_tasks(
        [ids[number] for number in new], None, time.time()
    )
    run._redis.read(("MULTI",), *RunBatch(run.record, tasks, time.time(), {}).commands, ("EXEC",))
    return len(new)


RACE = 1500  # keys, all of which four processes put at once


def hammer(url: str, way: Way, meeting: Any, counts: Any) -> None:
    """Be one of those who put all of the run at once, in chunks that are the same for all."""
    client = Client(url, patience=20)
    run = client.get_queue(Q).open_run("r", shards=2)
    counts.put(
        sum(way(run, names(100, first), lambda: meeting.wait(60)) for first in range(0, RACE, 100))
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
    assert client.get_queue(Q).open_run("r").close(4 * RACE).tasks == RACE


def test_the_same_race_doubles_tasks_where_nothing_is_watched(client, url, cli):
    new = race(url, without_watch)

    assert sum(new) == len(line(cli)) == 4 * RACE


def test_a_replay_doubles_what_was_deleted_where_there_is_no_ledger(queue, client, cli):
    run = queue.open_run("r")
    assert without_watch(run, names(10)) == 10
    finish_and_delete(client)

    assert without_watch(run, names(10)) == 10  # the test of the ledger above has 0 here


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("shards", [1, 3])
def test_a_lost_answer_neither_loses_nor_doubles(proxy, cli, fault, shards):
    client = Client(proxy.url, patience=5)
    queue = client.get_queue(Q)
    run = queue.open_run("r", shards=shards)
    for number in (1, 2):
        proxy.arm(fault, number)
        assert put(run, names(10, 10 * number)) == 10
        assert proxy.has_struck
        proxy.release()
    proxy.arm(fault, 2)
    assert run.close(20) == ("r", 20, 20, False, None)
    assert proxy.has_struck
    proxy.release()
    assert line(cli) == [task.decode() for task in run.ids_of(names(20, 10))]
    client.close()


def test_somebody_who_puts_the_same_in_between_makes_it_and_we_do_not(
    queue, client, overtaken, cli
):
    run, other = queue.open_run("r"), Client(client._url).get_queue(Q).open_run("r")
    overtaken(lambda: put(other, names(5)))

    assert put(run, names(8)) == 3
    assert len(line(cli)) == 8


def test_a_run_that_is_closed_in_between_gets_nothing(queue, client, overtaken, cli):
    run, other = queue.open_run("r"), Client(client._url).get_queue(Q).open_run("r")
    overtaken(lambda: other.close(0))

    assert put(run, names(8)) == 0
    assert line(cli) == []


def test_what_is_put_in_between_counts_when_a_run_is_closed(queue, client, overtaken):
    run, other = queue.open_run("r"), Client(client._url).get_queue(Q).open_run("r")
    overtaken(lambda: put(other, names(5)))

    assert run.close(5) == ("r", 5, 5, False, None)


def test_nothing_comes_of_a_write_that_arrives_when_the_run_is_closed(proxy, client, queue, cli):
    slow = Client(proxy.url, patience=0)
    run = slow.get_queue(Q).open_run("r")
    proxy.arm(Fault.HOLD, 1, having=b"LPUSH")
    with pytest.raises(RedisAway):
        put(run, names(5))
    queue.open_run("r").close(0)

    proxy.release()
    assert line(cli) == []
    slow.close()


def test_the_run_is_a_field_of_every_snapshot():
    assert FIELDS["run"] is str
