"""What is left of runs that nobody has ended: Leftovers, and what `blueque doctor` says of them."""

from __future__ import annotations

import pytest
from faults import Fault
from transactions import protocol

from blueque import Client, WrongRun
from blueque.audit.audit import audit
from blueque.audit.doctor import Doctor
from blueque.model import keys
from blueque.producer.abandoned_runs import Leftovers

Q = "video"
DAY = 86400.0


@pytest.fixture
def leftovers(client):
    return Leftovers(client.connections)


def age(cli, run, seconds):
    """Have a run, and what is staged for it, lie there for so long."""
    if cli.hexists(keys.run(Q, run), "decided"):
        cli.hincrbyfloat(keys.run(Q, run), "decided", -seconds)
    cli.zincrby(keys.runs(Q), -seconds, run)
    for name in cli.zrange(keys.staging(Q, run), 0, -1):
        cli.zincrby(keys.staging(Q, run), -seconds, name)


def decide(client, run, names, batch=None):
    """Be a committer who dies after the decision."""
    protocol.commit_run(client._redis, client.get_run(Q, run), names, batch, "m", 1e9)


def found(leftovers, older_than=DAY):
    return [(one.run, one.way, len(one.chunks)) for one in leftovers.find([Q], older_than)]


def test_only_what_is_old_and_has_not_ended_is_left_over(queue, leftovers, cli):
    for name in ("new", "old", "done"):
        queue.open_run(name).put(["a"], [b"1"])
    queue.open_run("done").close(1)
    queue.open_staging("published").commit([queue.open_staging("published").stage([b"1"])])
    staging = queue.open_staging("staged")
    staging.stage([b"1"])
    for name in ("old", "done", "published", "staged"):
        age(cli, name, 2 * DAY)

    assert found(leftovers) == [("old", "drop", 0), ("staged", "drop", 1)]
    assert found(leftovers, 0) == [("old", "drop", 0), ("staged", "drop", 1), ("new", "drop", 0)]
    assert leftovers.find([], 0) == []
    staging.stage([b"2"])  # it moves
    assert found(leftovers) == [("old", "drop", 0)]


def test_what_is_not_decided_is_forgotten_and_what_is_staged_deleted(queue, leftovers, cli):
    queue.open_run("keyed", shards=3).put(["a", "b", "c"], [b"1"] * 3)
    staging = queue.open_staging("staged")
    for _ in range(3):
        staging.stage([b"1", b"2"])

    assert [leftovers.end(one) for one in leftovers.find([Q], 0)] == [True, True]
    assert leftovers.find([Q], 0) == []
    assert sorted(cli.keys("*")) == sorted(
        [
            keys.QUEUES,
            keys.pending(Q),
            keys.tasks(Q),
            keys.wake(Q),
            *[keys.task(task) for task in cli.lrange(keys.pending(Q), 0, -1)],
        ]
    )
    assert len(cli.keys(keys.task("*"))) == 3


def test_what_is_decided_is_put_in_line(queue, leftovers, client, cli):
    staging = queue.open_staging("staged")
    names = [staging.stage([b"1"] * 5) for _ in range(3)]
    decide(client, "staged", names)
    stream = queue.open_staging("stream", stream=True)
    decide(client, "stream", [stream.stage([b"1"])], 0)

    assert sorted(found(leftovers)) == [("staged", "finish", 0), ("stream", "finish", 0)]
    assert [leftovers.end(one) for one in leftovers.find([Q], DAY)] == [True, True]
    assert cli.llen(keys.pending(Q)) == 16
    assert (client.get_run(Q, "staged")["state"], client.get_run(Q, "stream")["state"]) == (
        "committed",
        "open",
    )
    assert audit(client._redis) == []


def test_of_a_stream_only_the_old_chunks_are_discarded_and_it_goes_on(
    queue, leftovers, client, cli
):
    stream = queue.open_staging("t", stream=True)
    stream.stage([b"1"])
    age(cli, "t", 2 * DAY)
    name = stream.stage([b"2"])

    (left,) = leftovers.find([Q], DAY)
    assert (left.way, len(left.chunks)) == ("discard", 1)
    assert leftovers.end(left)
    assert stream.commit([name], 0).tasks == 1


def test_a_run_that_moves_when_it_is_to_be_dropped_stays(queue, leftovers, client):
    staging = queue.open_staging("s")
    first = staging.stage([b"1"])
    (left,) = leftovers.find([Q], 0)
    second = staging.stage([b"2"])

    assert not leftovers.end(left)
    assert client.get_run(Q, "s")["staged"] == 1
    assert first != second


def test_dropping_forgets_whatever_is_there_but_for_what_is_decided(queue, leftovers, client, cli):
    staging = queue.open_staging("s")
    names = [staging.stage([b"1"]), staging.stage([b"2"])]
    assert leftovers.drop(Q, "s")
    assert not leftovers.drop(Q, "s")
    assert cli.keys(keys.task("*")) == []
    queue.open_run("r").close(0)
    assert leftovers.drop(Q, "r")

    staging = queue.open_staging("s")
    names = [staging.stage([b"1"])]
    decide(client, "s", names)
    with pytest.raises(WrongRun, match="it is decided, and has to be finished"):
        leftovers.drop(Q, "s")


def test_the_doctor_names_old_runs_with_the_way_out_and_only_what_is_decided_is_a_warning(
    queue, client, cli
):
    queue.open_run("-old $1").put(["a"], [b"1"])
    queue.open_staging("s").stage([b"1"])
    queue.open_staging("t", stream=True).stage([b"1"])
    queue.open_run("new")
    for name in ("-old $1", "s", "t"):
        age(cli, name, 2 * DAY)
    decide(client, "d", [queue.open_staging("d").stage([b"1"])])

    said = {
        check.sentence: check.level
        for check in Doctor(client.connections).check()
        if check.name == "runs"
    }
    assert list(said.values()) == ["ok", "ok", "ok", "warn"]
    old, staged, stream, decided = said
    assert old == (
        "queue video: run -old $1 has been open for 2 d. If no producer will end it: blueque runs --forget='-old $1' video."
    )
    assert "run s has been open for 2 d, with 1 chunk of tasks that are not in line" in staged
    assert "run t has not chosen 1 chunk that were staged for it" in stream
    assert "blueque gc video" in stream
    assert "run d has been decided for" in decided
    assert "1 chunk of its tasks are not in line: blueque gc video puts them there" in decided
    assert Doctor(client.connections).audit(0).findings == []


@pytest.mark.parametrize("fault", Fault)
def test_a_lost_answer_while_clearing_up_does_no_harm(url, proxy, queue, cli, fault):
    for number in range(1, 12):
        cli.flushall()
        staging = queue.open_staging("s")
        staging.stage([b"1"])
        decide(queue_client := Client(url), "d", [queue.open_staging("d").stage([b"1"])])
        client = Client(proxy.url, patience=5)
        leftovers = Leftovers(client.connections)
        left = leftovers.find([Q], 0)
        proxy.arm(fault, number)
        assert {one.way for one in left} == {"drop", "finish"}
        for one in left:
            leftovers.end(one)
        proxy.release()
        assert cli.llen(keys.pending(Q)) == len(cli.keys(keys.task("*"))) == 1
        assert audit(queue_client._redis) == []
        client.close()
        queue_client.close()


def test_a_run_that_is_begun_again_is_left_alone_however_old_it_is(queue, leftovers, cli):
    queue.open_run("r", shards=2).put(["a", "b"], [b"1"] * 2)
    age(cli, "r", 8 * DAY)
    (seen,) = leftovers.find([Q], DAY)
    run = queue.open_run("r")

    assert found(leftovers) == []
    assert not leftovers.end(seen)  # by who has found it before
    assert run.put(["a", "b", "c"], [b"1"] * 3) == 1


def test_a_run_that_moves_is_left_alone_however_long_ago_it_was_opened(queue, leftovers, cli):
    run = queue.open_run("r")
    age(cli, "r", 8 * DAY)
    (seen,) = leftovers.find([Q], DAY)
    run.put(["a"], [b"1"])

    assert found(leftovers) == []
    assert not leftovers.end(seen)
