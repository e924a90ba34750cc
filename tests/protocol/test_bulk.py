"""Many tasks at once: Queue.enqueue_many, enqueue_iter and schedule_many against a real Redis."""

from __future__ import annotations

import json
import threading
import time
import tracemalloc
from itertools import islice

import pytest
import redis as redis_py
from faults import Fault
from transactions import protocol

from blueque import (
    BatchFailed,
    Client,
    InvalidInput,
    InvalidType,
    OutcomeUnknown,
    RedisAway,
    RedisRefused,
    TooLarge,
)
from blueque.connection.plain import SocketConnection
from blueque.connection.redis import Patience
from blueque.model import keys
from blueque.model.encoding import FLUSH
from blueque.producer import batches
from blueque.protocol.bulk import NewTasks

FAR = 4e9


def line(cli, name="0"):
    """Return the ids in a line of the queue video, the one that runs next first."""
    return cli.lrange(keys.line("video", name), 0, -1)[::-1]


def parameters(cli, name="0"):
    return [json.loads(cli.hget(keys.task(task), "parameters")) for task in line(cli, name)]


@pytest.fixture
def away(proxy):
    """A queue behind the proxy, whose calls try once only."""
    client = Client(proxy.url, patience=0)
    yield client.get_queue("video")
    client.close()


@pytest.fixture
def patient(proxy):
    """A queue behind the proxy, whose calls try again."""
    client = Client(proxy.url, patience=5)
    yield client.get_queue("video")
    client.close()


# What comes into Redis


def test_nothing_is_done_before_the_first_ids_are_asked_for_and_bad_options_are_refused_at_once(
    queue, state
):
    queue.enqueue_iter(range(10))
    with pytest.raises(InvalidInput, match="batch"):
        queue.enqueue_iter(range(10), batch=0)
    with pytest.raises(InvalidInput, match="priority"):
        queue.enqueue_iter(range(10), priority=101)
    with pytest.raises(TypeError, match="colour"):
        queue.enqueue_iter(range(10), colour=1)
    assert state() == {}


def test_the_iterable_may_use_the_same_client(queue, client, cli):
    def rows():
        for n in range(10):
            yield {"n": n, "first": client.get_task(queue.enqueue("other")).status}

    assert queue.enqueue_many(rows(), batch=3) == 10
    assert len(line(cli)) == 20


def test_the_connections_are_closed_in_the_end_also_when_nobody_goes_on(queue, cli):
    before = cli.info("clients")["connected_clients"]
    queue.enqueue_many(range(10), batch=3)
    for _ in queue.enqueue_iter(range(10), batch=3):
        break

    client_list = cli.info("clients")["connected_clients"]
    assert client_list <= before + 1, "this thread's own is the only one that stays"


def test_a_huge_iterable_is_never_held_whole(queue):
    rows = ({"n": n, "more": "x" * 1000} for n in range(20_000))
    queue.enqueue_many(islice(rows, 2000))
    tracemalloc.start()
    try:
        queue.enqueue_many(rows)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 12 * 2**20, "18 MB of parameters went through"


def test_never_more_than_two_batches_are_held(queue):
    alive = set()

    class Row(dict):
        def __init__(self, n):
            super().__init__(n=n)
            self.number = n
            alive.add(n)

        def __del__(self):
            alive.discard(self.number)

    most = 0
    for _ in queue.enqueue_iter((Row(n) for n in range(1000)), batch=10):
        most = max(most, len(alive))

    assert most <= 20


def test_large_parameters_make_small_batches(queue, cli):
    sizes = [
        len(ids) for ids in queue.enqueue_iter(("x" * 1_000_000 for _ in range(12)), batch=100)
    ]

    assert sizes == [5, 5, 2]
    assert len(line(cli)) == 12


@pytest.mark.parametrize("single", ["text", b"text", {"a": 1}])
def test_what_looks_like_the_parameters_of_one_task_is_not_taken_for_many(queue, state, single):
    with pytest.raises(InvalidType, match="iterable of parameters"):
        queue.enqueue_many(single)
    assert state() == {}


def test_a_flush_puts_in_line_what_there_is(queue):
    rows = [FLUSH, 1, 2, FLUSH, FLUSH, 3, FLUSH]

    assert [len(ids) for ids in queue.enqueue_iter(rows, batch=4)] == [2, 1]


# What each task has of its own


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        ([1, 2], "more parameters than priorities: none at position 2"),
        ([1, 2, 3, 4], "more priorities than the 3 parameters"),
        ([1, 2, "3"], "priorities: at position 2: a priority must be a whole number, not str"),
        ([1, 101, 3], "priorities: at position 1: priority 101"),
        ("colour", "priorities: the parameters at position 0 have no field 'colour'"),
        (7, "priorities are an iterable, a function or the name of a field, not int"),
    ],
)
def test_a_column_that_does_not_fit_is_refused_with_its_position(queue, state, column, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        queue.enqueue_many([{"n": n} for n in range(3)], priorities=column)
    assert state() == {}


def test_one_eta_is_for_all_and_past_ones_are_put_in_line(queue, cli):
    queue.schedule_many([1, 2], FAR)
    queue.schedule_many([3, 4, 5], etas=[1e9, FAR, 0])

    assert cli.zcard(keys.scheduled("video")) == 3
    assert parameters(cli) == [3, 5]
    assert {cli.hexists(keys.task(task), "eta") for task in line(cli)} == {False}
    for given in ({}, {"eta": FAR, "etas": [FAR]}, {"eta": 10}, {"etas": [10]}):
        with pytest.raises(InvalidInput, match="eta"):
            queue.schedule_many([1], **given)


def test_a_scheduled_task_joins_the_line_of_its_priority_when_it_is_due(queue, cli, redis):
    queue.schedule_many([1, 2], FAR, priorities=[3, 0], lock="one")
    protocol.enqueue_due(redis, "video", FAR + 1)

    assert (parameters(cli, "3,lock:one=1"), parameters(cli, "0,lock:one=1")) == ([1], [2])


# What is refused


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({1: 2}, InvalidType),
        (float("nan"), InvalidInput),
        (b"bytes", InvalidType),
        ("x" * 2000, TooLarge),
    ],
)
def test_bad_parameters_are_named_by_their_position_and_what_was_before_their_batch_is_in_redis(
    url, cli, bad, error
):
    queue = Client(url, max_bytes=1000).get_queue("video")

    with pytest.raises(error, match="position 9"):
        queue.enqueue_many([*range(9), bad, *range(9)], batch=4)
    assert parameters(cli) == [*range(8)]


def test_what_the_iterable_raises_comes_through_after_the_batches_before(queue, cli):
    def rows():
        yield from range(9)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as raised:
        queue.enqueue_many(rows(), batch=4)
    assert raised.value.__notes__ == ["blueque: the batches before are in Redis, 8 tasks"]
    assert parameters(cli) == [*range(8)]


def test_what_a_function_for_keys_raises_comes_through(queue, cli):
    with pytest.raises(ZeroDivisionError):
        queue.enqueue_many([{"n": 1}, {"n": 0}], batch=1, keys=lambda row: str(1 / row["n"]))
    assert len(line(cli)) == 1


# Faults


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("write", range(1, 9))
def test_whatever_happens_to_a_write_each_task_is_there_once(patient, proxy, cli, fault, write):
    proxy.arm(fault, write)

    assert patient.enqueue_many(({"n": n} for n in range(12)), batch=3) == 12
    proxy.release()

    assert parameters(cli) == [{"n": n} for n in range(12)]
    assert cli.zcard(keys.tasks("video")) == 12 == len(cli.keys("blueque_task_*"))


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("write", range(1, 9))
def test_whatever_happens_to_a_write_each_key_is_there_once_and_known_to_be_new(
    patient, proxy, cli, fault, write
):
    proxy.arm(fault, write)

    made = [
        task for ids in patient.enqueue_iter(map(str, range(12)), batch=3, keys=str) for task in ids
    ]
    proxy.release()

    assert [cli.hget(keys.task(task), "key") for task in line(cli)] == [str(n) for n in range(12)]
    assert made == line(cli) and all(task.is_new for task in made)


@pytest.mark.parametrize(
    ("fault", "is_there"), [(Fault.CUT_BEFORE, False), (Fault.CUT_AFTER, True), (Fault.HOLD, False)]
)
def test_an_error_says_which_batch_and_what_is_certain(away, proxy, cli, fault, is_there):
    proxy.arm(fault, 2, having=b"HSET")  # the second batch

    with pytest.raises(BatchFailed) as failed:
        away.enqueue_many(range(12), batch=3)

    error = failed.value
    assert (error.batch, error.position, error.done, len(error.ids), error.is_unknown) == (
        1,
        3,
        3,
        3,
        True,
    )
    assert isinstance(
        error.__cause__, OutcomeUnknown
    ) and "batch 1, of 3 tasks from position 3 on" in str(error)
    assert {bool(cli.exists(keys.task(task))) for task in error.ids} == {is_there}
    assert parameters(cli) == [*range(6 if is_there else 3)]


def test_a_batch_that_redis_has_never_got_is_certainly_not_there(url, proxy, cli, queue):
    client = Client(proxy.url, patience=0)
    steps = client.get_queue("video").enqueue_iter(iter(range(12)), batch=3)
    proxy.arm(Fault.CUT_BEFORE, 1, having=b"WATCH")  # the look of the first

    with pytest.raises(BatchFailed) as failed:
        next(steps)

    assert (failed.value.is_unknown, failed.value.done) == (False, 0)
    assert type(failed.value.__cause__) is RedisAway
    assert line(cli) == []


def test_a_server_without_memory_refuses_a_batch_and_nothing_of_it_is_there(own_server):
    queue = Client(own_server.url).get_queue("video")
    with redis_py.Redis.from_url(own_server.url, decode_responses=True) as cli:
        steps = queue.enqueue_iter(range(12), batch=3)
        next(steps)
        cli.config_set("maxmemory", "1")
        with pytest.raises(BatchFailed, match="OOM") as failed:
            list(steps)
        cli.config_set("maxmemory", "0")

        assert (failed.value.is_unknown, type(failed.value.__cause__)) == (False, RedisRefused)
        assert len(line(cli)) == failed.value.done == 3 * failed.value.batch


def test_a_batch_whose_first_task_was_run_and_deleted_before_the_second_look_is_not_made_again(
    patient, proxy, cli, monkeypatch
):
    def delete_the_first_and_pause(self, error):
        cli.delete(keys.task(line(cli)[0]))

    monkeypatch.setattr(Patience, "pause_or_raise", delete_the_first_and_pause)
    proxy.arm(Fault.CUT_AFTER, 1, having=b"LPUSH")

    assert patient.enqueue_many(range(3)) == 3
    assert proxy.has_struck
    assert len(line(cli)) == 3


# Keys


def test_a_key_that_is_known_makes_no_second_task(queue, cli):
    first = queue.enqueue_many([{"k": "a"}, {"k": "b"}], keys="k")
    second = queue.enqueue_many([{"k": "b"}, {"k": "c"}, {"k": "c"}], keys=["b", "c", "c"])

    assert ((first, first.new), (second, second.new)) == ((2, 2), (3, 1))
    assert parameters(cli) == [{"k": "a"}, {"k": "b"}, {"k": "c"}]


@pytest.mark.parametrize("key", ["", "x" * 1001, 7.0, True, None, "\ud800"])
def test_a_bad_key_is_refused_with_its_position(queue, state, key):
    with pytest.raises(InvalidInput, match="keys: at position 1"):
        queue.enqueue_many(["a", "b"], keys=["good", key])
    assert state() == {}


def test_several_at_once_make_each_key_once(url, cli):
    def produce(made):
        client = Client(url, patience=5)
        made += [
            task
            for ids in client.get_queue("video").enqueue_iter(map(str, range(500)), keys=str)
            for task in ids
        ]
        client.close()

    results = [[], [], []]
    threads = [threading.Thread(target=produce, args=(made,)) for made in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(line(cli)) == len({*line(cli)}) == 500
    assert sorted(task for made in results for task in made if task.is_new) == sorted(line(cli))


# Other connections


def test_the_next_batch_is_made_while_redis_works_on_this_one(queue, monkeypatch):
    pulled, pulled_when_receiving = [], []
    receive = SocketConnection.receive

    def watched(self, replies):
        pulled_when_receiving.append(len(pulled))
        return receive(self, replies)

    monkeypatch.setattr(SocketConnection, "receive", watched)
    monkeypatch.setattr(batches, "SLOW", 60.0)  # however busy this machine is
    queue.enqueue_many((pulled.append(number) or number for number in range(12)), batch=3)

    # The look at each batch, then the answer to it.
    assert pulled_when_receiving[-8:] == [3, 6, 6, 9, 9, 12, 12, 12]


def test_a_slow_iterable_is_not_waited_for_before_a_batch_counts(queue, cli):
    def rows():
        for number in range(6):
            time.sleep(0.03)
            yield number

    in_redis = []
    for _ in queue.enqueue_iter(
        (in_redis.append(len(line(cli))) or row for row in rows()), batch=3
    ):
        in_redis.append("yielded")

    assert in_redis == [0, 0, 0, "yielded", 3, 3, 3, "yielded"]


def test_new_tasks_are_cut_in_their_order_by_number_and_by_size():
    def made(count, size=10):
        texts = [str(number).zfill(size).encode() for number in range(count)]
        return NewTasks((), [(text, True) for text in texts], None, [*range(count)], texts)

    def flat(parts):
        return [
            row for part in parts for row in zip(part.parameters, part.etas, part.keys, strict=True)
        ]

    many, large = made(2500), made(10, size=300)

    assert [len(part.keys) for part in many.parts(1000)] == [1000, 1000, 500]
    sizes = [len(part.keys) for part in large.parts(1000, 1000)]
    assert sum(sizes) == 10 and max(sizes) <= 3
    assert [len(part.keys) for part in large.parts(1000, most_bytes=1)] == [1] * 10
    assert flat(large.parts(1000, 1000)) == flat([large]) and flat(many.parts(7)) == flat([many])
    assert list(made(0).parts(7)) == []
