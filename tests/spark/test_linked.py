"""bs.enqueue with a group, and with tasks that wait for others."""

from __future__ import annotations

import pytest
from grouped import run_all, seen, settle
from pyspark.sql import functions as F

import blueque
import blueque.spark as bs
from blueque import InvalidInput, WrongGroup
from blueque.model import keys
from blueque.spark import executors
from spark import mishaps
from spark.oldest import HAS_SOURCES

Q, JOIN = "render", "join"
ROWS = 300


@pytest.fixture
def enqueue(url):
    return lambda frame, queue=Q, **said: bs.enqueue(frame, queue, url=url, **said)


@pytest.fixture
def frame(spark):
    return spark.range(0, ROWS, 1, 2).select(F.col("id").alias("frame"))


def test_the_second_frame_runs_when_the_first_is_complete_though_its_driver_fails_in_between(
    client, cli, frame, enqueue, mishap
):
    mishap("raise", "before close_group", 1)
    with pytest.raises(RuntimeError, match="struck"):
        enqueue(frame, key="frame", group="n1")
    assert seen(client) == ("open", ROWS, ROWS, 0)
    # All that is in line may run meanwhile, and the group stays open.
    assert run_all(client, Q) == ROWS
    settle(client)
    assert seen(client) == ("open", ROWS, 0, 0)
    done = enqueue(frame, key="frame", group="n1")
    assert mishaps.struck(cli) == 1
    assert (done.group, done.tasks) == ("n1", ROWS)

    second = enqueue(frame, JOIN, key="frame", group="n2", after=done)
    again = enqueue(frame, JOIN, key="frame", group="n2", after=done)

    assert (second.tasks, again.is_replay, again.group) == (ROWS, True, "n2")
    settle(client)
    assert run_all(client, JOIN) == ROWS
    settle(client)
    assert seen(client, "n2") == ("ended", ROWS, 0, 0)


def test_tasks_that_a_failover_takes_back_are_written_again_by_the_same_call(
    cli, client, frame, enqueue, monkeypatch
):
    write, passes = executors.on_each_partition, []

    def lose_after_the_first(*given):
        reports = write(*given)
        if not passes:
            for task in cli.lrange(keys.line(Q, "0"), 0, 99):
                cli.lrem(keys.line(Q, "0"), 1, task)
                cli.delete(keys.task(task))
                cli.srem(keys.open_members("n1"), task)
                cli.zrem(keys.members("n1"), task)
        passes.append(sum(report.new for report in reports))
        return reports

    monkeypatch.setattr(executors, "on_each_partition", lose_after_the_first)
    done = enqueue(frame, key="frame", group="n1")

    assert passes == [ROWS, 100]
    assert (done.rows, done.tasks, done.new, cli.llen(keys.line(Q, "0"))) == (ROWS,) * 4
    assert seen(client) == ("closed", ROWS, ROWS, 0)


def test_each_way_of_writing_makes_tasks_that_wait(spark, client, cli, url, frame, enqueue):
    parent = client.get_queue("first").enqueue("x")

    enqueue(frame, "keyed", key="frame", group="r", after=parent)
    enqueue(frame, "keys", key="frame", after=blueque.after(any=parent), broken="cancel")
    if HAS_SOURCES:
        writer = frame.write.format("blueque").option("url", url).option("queue", "format")
        writer.option("key", "frame").option("after", parent).mode("append").save()

    for queue in ("keyed", "keys") + ("format",) * HAS_SOURCES:
        assert cli.zcard(keys.blocked(queue)) == ROWS, queue
        assert cli.llen(keys.pending(queue)) == 0


def test_what_is_in_no_group_cannot_be_waited_for(frame, enqueue):
    done = enqueue(frame.limit(1), key="frame")

    with pytest.raises(
        InvalidInput, match=r"the tasks of that call are in no group.*give that cal"
    ):
        enqueue(frame, JOIN, key="frame", after=done)
    with pytest.raises(InvalidInput, match="these tasks are in no group, so nothing lists them"):
        done.wait()


def test_what_a_group_waits_for_never_changes(client, frame, enqueue):
    enqueue(frame.limit(1), key="frame", group="n1", after=client.get_queue("first").enqueue("x"))

    with pytest.raises(WrongGroup, match="it was opened with another `after` or `broken`"):
        enqueue(frame, key="frame", group="n1", after=client.get_queue("first").enqueue("y"))
