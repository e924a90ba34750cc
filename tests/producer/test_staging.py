"""Runs that come all at once, and streams: Staging against a real Redis."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from faults import Fault
from legacy_logic import LegacyQueue
from transactions import protocol

from blueque import (
    Client,
    InvalidInput,
    InvalidType,
    OldBatch,
    RedisAway,
    RunDropped,
    TooLarge,
    WrongRun,
)
from blueque.audit.audit import audit
from blueque.model import keys
from blueque.producer.abandoned_runs import Leftovers
from blueque.producer.row_batch import Rows
from blueque.producer.staged_run import owner_of
from blueque.protocol import transaction
from blueque.queries.tasks import load
from blueque.system import process

FAR = 4e9
Q = "video"


@pytest.fixture
def theirs(url) -> Iterator[Any]:
    """The same queue for somebody else."""
    client = Client(url, patience=5)
    yield client.get_queue(Q)
    client.close()


def texts(count, first=0):
    return [json.dumps({"n": number}).encode() for number in range(first, first + count)]


def line(cli, name="0"):
    """Return the ids in a line of the queue, the one that runs next first."""
    return cli.lrange(keys.line(Q, name), 0, -1)[::-1]


def numbers(cli, name="0"):
    return [json.loads(cli.hget(keys.task(task), "parameters"))["n"] for task in line(cli, name)]


def nothing_is_left(cli):
    return (
        not cli.keys(keys.staged("*"))
        + cli.keys(keys.staging(Q, "*"))
        + cli.keys(keys.manifest(Q, "*"))
    )


def stage(staging, count, first=0, size=10):
    """Stage so many chunks, and return their names."""
    return [staging.stage(texts(size, first + size * number)) for number in range(count)]


# What is seen, and when


def test_nothing_is_seen_before_the_commit_and_all_of_it_afterwards(queue, client, cli):
    staging = queue.open_staging("s")
    names = stage(staging, 3)

    assert len(cli.keys(keys.task("*"))) == 30
    assert line(cli) == [] == cli.keys(keys.tasks(Q)) == cli.keys(keys.wake(Q))
    assert LegacyQueue(client._redis, Q).dequeue("old_1", time.time()) is None
    assert staging.commit(names) == ("s", 30, 30, False, None)
    assert numbers(cli) == list(range(30))
    assert cli.zcard(keys.tasks(Q)) == 30
    assert cli.exists(keys.wake(Q))
    assert nothing_is_left(cli)


def test_what_is_published_is_what_enqueue_makes(queue, client, cli):
    staging = queue.open_staging("s", resources={"gpu": 1}, priority=5, retry=False)
    staging.commit([staging.stage([b"a \r\n%"], are_json=False)])
    theirs = queue.enqueue("a \r\n%", resources={"gpu": 1}, priority=5, retry=False)
    ours, second = line(cli, "5,gpu=1")

    assert second == theirs
    fields, expected = cli.hgetall(keys.task(ours)), cli.hgetall(keys.task(theirs))
    assert fields.pop("run") == "s"
    assert fields | {"created": "", "updated": ""} == expected | {"created": "", "updated": ""}
    assert cli.zscore(keys.tasks(Q), ours) == float(fields["created"]) == float(fields["updated"])
    assert cli.zrange(keys.lines(Q), 0, -1) == ["5,gpu=1"]


def test_each_row_may_have_its_own_eta_and_priority(queue, cli):
    staging = queue.open_staging("s", lock="x")
    soon = time.time() + 0.05
    name = staging.stage(texts(4), etas=[None, FAR, 1.0, soon], priorities=[0, 5, 5, 0])
    time.sleep(0.06)
    staging.commit([name])

    assert (numbers(cli, "0,lock:x=1"), numbers(cli, "5,lock:x=1")) == ([0], [2])
    assert sorted(cli.smembers(keys.waiting("x"))) == ["0,lock:x=1_video", "5,lock:x=1_video"]
    assert sorted(score for _, score in cli.zrange(keys.scheduled(Q), 0, -1, withscores=True)) == [
        soon,
        FAR,
    ]
    queue.enqueue_due_tasks()  # one has become due while it was staged
    assert numbers(cli, "0,lock:x=1") == [0, 3]


def test_the_order_is_that_of_the_names(queue, cli):
    staging = queue.open_staging("s")
    names = stage(staging, 3)
    staging.commit([names[2], names[0], names[1]])

    assert numbers(cli) == [*range(20, 30), *range(20)]


def test_a_run_without_tasks_can_be_committed(queue, client, cli):
    assert queue.open_staging("s").commit([]) == ("s", 0, 0, False, None)
    assert client.get_run(Q, "s")["state"] == "committed"


def test_chunks_that_were_not_chosen_are_discarded(queue, cli):
    staging = queue.open_staging("s")
    first, _ = stage(staging, 1), stage(staging, 2, first=100)
    staging.commit(first)

    assert numbers(cli) == list(range(10))
    assert len(cli.keys(keys.task("*"))) == 10
    assert nothing_is_left(cli)


# Once


def test_a_second_run_of_the_same_name_changes_nothing(queue, theirs, cli, state):
    queue.open_staging("s").commit(stage(queue.open_staging("s"), 2))
    before = state()

    late = theirs.open_staging("s")
    assert late.is_committed
    assert late.commit(stage(late, 3)) == ("s", 20, 20, True, None)
    assert state() == before


def test_who_comes_too_late_with_what_he_has_staged_loses_it(queue, theirs, cli):
    ours, other = queue.open_staging("s"), theirs.open_staging("s")
    names, others = stage(ours, 2), stage(other, 3, first=100)
    assert ours.commit(names) == ("s", 20, 20, False, None)

    assert other.commit(others) == ("s", 20, 20, True, None)
    assert stage(other, 1)  # a zombie
    assert other.discard() == 0
    assert numbers(cli) == list(range(20))
    assert len(cli.keys(keys.task("*"))) == 20


def test_a_zombie_of_a_committed_run_writes_nothing(queue, theirs, state):
    zombie = theirs.open_staging("s")
    queue.open_staging("s").commit([])
    before = state()

    assert not zombie.is_committed
    assert zombie.stage(texts(10))
    assert state() == before


def test_what_was_interrupted_after_the_decision_is_finished_by_whoever_comes(
    queue, theirs, client, cli
):
    names = stage(queue.open_staging("s"), 3)
    protocol.commit_run(client._redis, client.get_run(Q, "s"), names, None, "m", 1.0)
    protocol.publish(client._redis, Q, "s", names[0], time.time())
    assert numbers(cli) == list(range(10))
    assert (
        client.get_run(Q, "s").items()
        >= {"state": "committing", "tasks": 10, "unpublished": 2}.items()
    )

    other = theirs.open_staging("s")
    assert other.is_committed
    assert other.commit(()) == ("s", 30, 30, True, None)
    assert numbers(cli) == list(range(30))
    assert nothing_is_left(cli)


@pytest.mark.parametrize("stream", [False, True])
def test_another_process_joins_what_was_opened_and_nothing_later(
    queue, theirs, client, cli, stream
):
    staging, batch = queue.open_staging("s", stream=stream), 0 if stream else None
    joined = theirs.join_staging(json.loads(json.dumps(staging.record)))
    assert joined.is_stream == stream
    names = [*stage(staging, 1), *stage(joined, 1)]

    assert Leftovers(client.connections).drop(Q, "s")
    with pytest.raises(RunDropped):
        theirs.join_staging(staging.record)
    later = queue.open_staging("s", stream=stream)
    for attempt in (
        lambda: theirs.join_staging(staging.record),
        lambda: stage(joined, 1),
        lambda: joined.commit(names, batch),
        lambda: joined.commit([], batch),
    ):
        with pytest.raises(RunDropped):
            attempt()
    names = stage(later, 1)
    assert staging.discard() == joined.discard() == 0
    assert later.commit(names, batch) == ("s", 10, 10, False, None)
    with pytest.raises(WrongRun, match="not a keyed one"):
        theirs.join_run(later.record)
    with pytest.raises(WrongRun, match="not a staged or stream one"):
        theirs.join_staging(queue.open_run("k").record)


def test_the_batches_of_a_stream_are_of_one_query(queue, client, cli):
    stream = queue.open_staging("t", stream=True)
    stream.commit(stage(stream, 1), 0, query="q")
    names = stage(stream, 1)

    for number in (0, 1):
        with pytest.raises(WrongRun, match="its batches are of another query"):
            stream.commit(names, number, query="r")
    assert (
        stream.commit(names, 1, query="q").tasks == stream.commit(stage(stream, 1), 2).tasks == 10
    )
    assert client.get_run(Q, "t").items() >= {"query": "q", "batch": 2}.items()


def test_discarding_after_the_decision_deletes_nothing(queue, client, cli):
    """Spark calls abort with all messages when a commit has failed in the middle."""
    staging = queue.open_staging("s")
    names = stage(staging, 3)
    protocol.commit_run(client._redis, client.get_run(Q, "s"), names, None, "m", 1.0)
    protocol.publish(client._redis, Q, "s", names[0], time.time())

    assert staging.discard(names) == staging.discard() == 0
    assert staging.commit(names).tasks == 30
    assert numbers(cli) == list(range(30))


def test_discarding_before_the_decision_leaves_nothing_and_a_commit_is_refused(queue, cli):
    staging = queue.open_staging("s")
    names = stage(staging, 3)
    assert staging.discard(names[:2]) == 2

    with pytest.raises(RunDropped, match="2 of its staged chunks") as raised:
        staging.commit(names)
    assert raised.value.chunks == 2
    assert line(cli) == []
    assert staging.discard() == 1
    assert cli.keys(keys.task("*")) == []
    assert nothing_is_left(cli)
    assert staging.commit(stage(staging, 1)).tasks == 10


def test_what_is_discarded_between_the_look_and_the_decision_is_missed(
    queue, theirs, overtaken, cli
):
    staging, other = queue.open_staging("s"), theirs.open_staging("s")
    names = stage(staging, 2)
    overtaken(lambda: other.discard(names[:1]))

    with pytest.raises(RunDropped):
        staging.commit(names)
    assert line(cli) == []


def test_what_is_decided_between_the_look_and_the_discard_stays(queue, theirs, overtaken, cli):
    staging, other = queue.open_staging("s"), theirs.open_staging("s")
    names = stage(staging, 2)
    overtaken(lambda: other.commit(names))

    assert staging.discard(names) == 0
    assert numbers(cli) == list(range(20))


def test_what_is_staged_between_the_look_and_the_decision_is_discarded(
    queue, theirs, overtaken, cli
):
    staging, other = queue.open_staging("s"), theirs.open_staging("s")
    names = stage(staging, 2)
    overtaken(lambda: stage(other, 1, first=100))

    assert staging.commit(names).tasks == 20
    assert len(cli.keys(keys.task("*"))) == 20


def test_a_run_that_was_dropped_takes_nothing(queue, client, cli):
    staging = queue.open_staging("s")
    names = stage(staging, 1)
    assert not protocol.drop_run(client._redis, Q, "s")  # something is staged
    staging.discard()
    assert protocol.drop_run(client._redis, Q, "s")

    with pytest.raises(RunDropped):
        staging.stage(texts(1))
    with pytest.raises(RunDropped):
        staging.commit(names)
    assert cli.keys(keys.task("*")) == []


def test_a_staging_without_a_name_gets_one_of_its_own(queue):
    first, second = queue.open_staging(), queue.open_staging()

    assert first.name != second.name
    assert (first.commit(stage(first, 1)).tasks, second.commit(stage(second, 2)).tasks) == (10, 20)


def test_an_audit_finds_nothing_wrong_with_what_is_staged_and_leaves_it(queue, client, cli):
    staging = queue.open_staging("s")
    names = [*stage(staging, 2), staging.stage(texts(2), etas=[FAR, None])]
    stream = queue.open_staging("t", stream=True)
    stage(stream, 1)
    queue.open_run("k", shards=3).put(["a", "b"], texts(2))
    assert audit(client._redis) == []

    protocol.commit_run(client._redis, client.get_run(Q, "s"), names, None, "m", 1.0)
    protocol.publish(client._redis, Q, "s", names[0], time.time())
    assert audit(client._redis) == []


def test_a_decided_chunk_that_somebody_has_deleted_is_told_and_not_waited_for(queue, client, cli):
    staging = queue.open_staging("s")
    names = stage(staging, 2)
    protocol.commit_run(client._redis, client.get_run(Q, "s"), names, None, "m", 1.0)
    cli.delete(keys.staged(names[1]))

    with pytest.raises(RunDropped, match="1 of its staged chunks"):
        staging.commit(names)
    assert numbers(cli) == list(range(10))


# Chunk after chunk


def test_chunks_are_staged_one_round_trip_each(queue, monkeypatch, cli):
    staging = queue.open_staging("s")
    sent = []
    exchange = transaction.exchange
    monkeypatch.setattr("blueque.producer.row_batch.SLOW", 60.0)
    monkeypatch.setattr(
        transaction,
        "exchange",
        lambda connection, commands, *rest: sent.append(1) or exchange(connection, commands, *rest),
    )
    names = list(staging.stage_each(Rows(texts(10, 10 * number)) for number in range(20)))
    assert len(sent) == 20 + 2  # and the proof of MULTI, and the first look

    sent.clear()
    staging.commit(names)
    # The decision; the first chunk, each further one; finish_run; prune_runs, which looks in vain.
    assert len(sent) == 2 + 2 + 19 + 2 + 2
    assert numbers(cli) == list(range(200))


# Streams


def test_each_batch_of_a_stream_comes_once_and_the_record_knows_the_last(queue, client, cli):
    stream = queue.open_staging("t", stream=True)
    assert stream.commit(stage(stream, 1), 0) == ("t", 10, 10, False, None)
    second = stage(stream, 2, first=10)
    assert stream.commit(second, 1) == ("t", 20, 20, False, None)

    assert stream.commit(second, 1) == ("t", 20, 20, True, None)
    assert stream.commit(stage(stream, 2, first=10), 1) == ("t", 20, 20, True, None)
    assert numbers(cli) == list(range(30))
    assert len(cli.keys(keys.task("*"))) == 30
    assert nothing_is_left(cli)
    assert client.get_run(Q, "t").items() >= {"state": "open", "batch": 1, "kind": "stream"}.items()
    assert cli.ttl(keys.run(Q, "t")) == -1
    assert not stream.is_committed


def test_a_batch_that_was_interrupted_is_finished_with_the_next_one(queue, theirs, client, cli):
    names = stage(queue.open_staging("t", stream=True), 3)
    protocol.commit_run(client._redis, client.get_run(Q, "t"), names, 4, "m", 1.0)
    protocol.publish(client._redis, Q, "t", names[0], time.time())

    stream = theirs.open_staging("t", stream=True)
    assert stream.commit(stage(stream, 1, first=30), 5) == ("t", 10, 10, False, None)
    assert numbers(cli) == list(range(40))


def test_a_zombie_of_an_old_batch_neither_publishes_nor_takes_from_a_newer_one(queue, theirs, cli):
    stream, zombie = queue.open_staging("t", stream=True), theirs.open_staging("t", stream=True)
    late = stage(zombie, 2, first=100)
    stream.commit(stage(stream, 1), 0)  # what the zombie has staged is discarded
    same = stage(zombie, 1, first=200)
    newer = stage(stream, 1, first=10)

    with pytest.raises(RunDropped):
        zombie.commit(late, 1)
    assert zombie.commit(same, 0) == ("t", 10, 10, True, None)
    assert zombie.discard([*late, *same]) == 0
    assert stream.commit(newer, 1).tasks == 10
    with pytest.raises(OldBatch, match="has committed batch 1, so batch 0 is too late") as raised:
        zombie.commit(same, 0)
    assert (raised.value.batch, raised.value.last) == (0, 1)
    assert numbers(cli) == list(range(20))
    assert len(cli.keys(keys.task("*"))) == 20


def test_the_chunks_of_dead_attempts_are_discarded_with_the_next_decision(queue, cli):
    stream = queue.open_staging("t", stream=True)
    stage(stream, 2, first=100)
    stream.commit(stage(stream, 1), 0)

    assert len(cli.keys(keys.task("*"))) == 10
    assert nothing_is_left(cli)


def test_what_a_dead_process_of_this_host_has_staged_is_discarded_and_nothing_else(
    queue, theirs, cli
):
    opened = queue.open_staging("r")
    dead = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    of_dead = stage(queue.join_staging(opened.record, owner_of(dead.pid)), 2)
    of_living = stage(queue.join_staging(opened.record, owner_of(os.getpid())), 1, first=100)
    elsewhere = owner_of(dead.pid).replace(process.identity(dead.pid)["boot"], str(uuid.uuid4()))
    of_others = stage(queue.join_staging(opened.record, elsewhere), 1, first=200)
    of_nobody = stage(opened, 1, first=300)
    assert theirs.open_staging("r").discard_of_dead() == 0
    dead.communicate()

    assert theirs.open_staging("r").discard_of_dead() == 2

    assert {*cli.zrange(keys.staging(Q, "r"), 0, -1)} == {*of_living, *of_others, *of_nobody}
    assert len(cli.keys(keys.task("*"))) == 30
    with pytest.raises(RunDropped):
        opened.commit([*of_dead, *of_living])
    assert opened.commit([*of_living, *of_others, *of_nobody]).tasks == 30
    assert nothing_is_left(cli)


def test_what_is_staged_for_the_next_batch_while_this_one_is_published_stays(
    queue, theirs, client, cli, monkeypatch
):
    stream, other = queue.open_staging("t", stream=True), theirs.open_staging("t", stream=True)
    next_names = []
    publish = protocol.publish
    monkeypatch.setattr(
        protocol,
        "publish",
        lambda *given: next_names.extend(stage(other, 1, first=10)) or publish(*given),
    )
    stream.commit(stage(stream, 1), 0)
    monkeypatch.undo()

    assert other.commit(next_names, 1).tasks == 10
    assert numbers(cli) == list(range(20))


# What is refused


def test_a_batch_belongs_to_a_stream_and_only_there(queue):
    with pytest.raises(InvalidInput, match="only a stream has batches"):
        queue.open_staging("s").commit([], 1)
    with pytest.raises(InvalidInput, match="a stream has numbered batches"):
        queue.open_staging("t", stream=True).commit([])
    with pytest.raises(InvalidInput, match="batch is -1"):
        queue.open_staging("t", stream=True).commit([], -1)
    with pytest.raises(InvalidInput, match="a stream needs a name"):
        queue.open_staging(stream=True)


def test_a_run_of_another_kind_or_queue_is_refused(queue, client):
    queue.open_staging("t", stream=True)
    with pytest.raises(WrongRun, match="it is a stream run, not a staged one"):
        queue.open_staging("t")
    with pytest.raises(WrongRun):
        queue.open_run("t")
    client.get_queue("b_video").open_staging("a")
    with pytest.raises(WrongRun, match="choose another name"):
        queue.open_staging("a_b")


def test_rows_that_cannot_be_tasks_are_refused_and_nothing_is_written(queue, state):
    staging = queue.open_staging("s")
    before = state()

    with pytest.raises(InvalidInput, match="1 to 1000 rows"):
        staging.stage([])
    with pytest.raises(InvalidType, match="position 1"):
        staging.stage([b"1", "2"])
    with pytest.raises(TooLarge, match="position 0"):
        staging.stage([b"x" * (2**20 + 1)])
    with pytest.raises(InvalidInput, match="have no keys"):
        list(staging.stage_each([Rows([b"1"], ["a"])]))
    with pytest.raises(InvalidType, match="a list of them"):
        staging.commit("abc")
    assert state() == before


# Races and lost answers


def commit_in_chunks_of_two(url: str, number: int, start: Any, outcomes: Any) -> None:
    """Be one of those who stage all of the run, and commit it."""
    client = Client(url, patience=20)
    staging = client.get_queue(Q).open_staging("s")
    names = stage(staging, 50, first=1000 * number, size=2)
    start.wait()
    outcomes.put(staging.commit(names))
    client.close()


def test_of_four_who_commit_at_once_one_decides(url, cli):
    context = multiprocessing.get_context("fork")
    start, outcomes = context.Barrier(4), context.Queue()
    racers = [
        context.Process(target=commit_in_chunks_of_two, args=(url, n, start, outcomes))
        for n in range(4)
    ]
    for racer in racers:
        racer.start()
    found = [outcomes.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join()

    assert sorted(outcome.is_replay for outcome in found) == [False, True, True, True]
    assert {outcome[:3] for outcome in found} == {("s", 100, 100)}
    winner = numbers(cli)[0] // 1000
    assert numbers(cli) == [1000 * winner + number for number in range(100)]
    assert len(cli.keys(keys.task("*"))) == 100
    assert nothing_is_left(cli)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_lost_answer_at_any_write_neither_loses_nor_doubles(url, proxy, cli, fault, is_stream):
    def again() -> tuple[int, Callable[[], Any]]:
        client = Client(proxy.url, patience=5)
        staging = client.get_queue(Q).open_staging("s", stream=is_stream)
        writes = proxy.writes

        def whole() -> Any:
            names = stage(staging, 2)
            staging.stage(texts(3, 50))  # of a dead attempt
            outcome = staging.commit(names, 0 if is_stream else None)
            client.close()
            return outcome

        return writes, whole

    before, whole = again()
    whole()
    count = proxy.writes - before
    assert count > 8
    for number in range(1, count + 1):
        cli.flushall()
        _, whole = again()
        proxy.arm(fault, number)
        assert whole() == ("s", 20, 20, False, None)
        assert proxy.has_struck
        proxy.release()
        assert numbers(cli) == list(range(20))
        assert len(cli.keys(keys.task("*"))) == 20
        assert nothing_is_left(cli)


def test_what_arrives_after_the_decision_is_not_staged(proxy, queue, cli):
    slow = Client(proxy.url, patience=0)
    staging = slow.get_queue(Q).open_staging("s")
    proxy.arm(Fault.HOLD, 1, having=b"RPUSH")
    with pytest.raises(RedisAway):
        staging.stage(texts(5))
    queue.open_staging("s").commit(())

    proxy.release()
    assert cli.keys(keys.task("*")) == []
    slow.close()


# The naive way


def test_without_a_decision_a_replay_after_half_of_it_doubles_the_half(queue, client, cli):
    """What is in line as soon as it is written comes twice when the job breaks off and is run
    again.
    """
    rows = [{"n": number} for number in range(20)]

    def job(breaks_at):
        for first in range(0, 20, 10):
            if first == breaks_at:
                raise ZeroDivisionError
            queue.enqueue_many(rows[first : first + 10])

    with pytest.raises(ZeroDivisionError):
        job(breaks_at=10)
    job(breaks_at=None)
    assert len(numbers(cli)) == 30


def test_with_a_decision_it_does_not(queue, cli):
    def job(breaks_at):
        staging = queue.open_staging("s")
        names = []
        for first in range(0, 20, 10):
            if first == breaks_at:
                raise ZeroDivisionError
            names.append(staging.stage(texts(10, first)))
        return staging.commit(names)

    with pytest.raises(ZeroDivisionError):
        job(breaks_at=10)
    assert numbers(cli) == []
    assert job(breaks_at=None).tasks == 20
    assert numbers(cli) == list(range(20))
    assert len(cli.keys(keys.task("*"))) == 20
    assert load(queue._redis, line(cli)[0]).fields["run"] == "s"
