"""Finished tasks as a stream: each end once, and an error if some are gone."""

from __future__ import annotations

import pytest

from blueque import EventsGone, InvalidInput
from blueque.model import keys
from blueque.model.units import Timing
from blueque.spark import datasource

Q = "video"
FIELDS = "task_id,listed_as,status,result,attempts"


@pytest.fixture
def end(client):
    """Run the next tasks in line to their ends; return their ids."""
    listener = client.get_listener(Q)
    listener.register(Timing())

    def end(count, fails=False):
        ended = []
        for _ in range(count):
            processor = client.get_processor(task := listener.take())
            processor.start(77)
            processor.fail("broken") if fails else processor.complete("done")
            ended.append(task.id)
        return ended

    yield end
    listener.leave()


@pytest.fixture
def source(url):
    def source(**options):
        given = {"url": url, "queue": Q, "fields": FIELDS, **options}
        return datasource.stream_reader(datasource.schema(given), given)

    return source


def rows(reader, start, finish):
    parts = reader.partitions(start, finish)
    found = [batch.to_pylist() for part in parts for batch in reader.read(part)]
    return [tuple(row.values()) for some in found for row in some]


def test_each_end_is_between_the_places_where_it_happened(queue, end, source):
    queue.enqueue_many(range(5))
    reader = source()
    places = [reader.initialOffset()]
    first = end(2)
    places.append(reader.latestOffset())
    second = end(1, fails=True)
    places.append(reader.latestOffset())

    assert rows(reader, *places[:2]) == [
        (task, "complete", "complete", "done", 1) for task in first
    ]
    assert rows(reader, *places[1:]) == [(second[0], "failed", "failed", None, 1)]
    assert rows(reader, places[0], places[2]) == rows(reader, *places[:2]) + rows(
        reader, *places[1:]
    )
    assert rows(source(status="failed"), places[0], places[2])[0][0] == second[0]
    assert source(startingOffsets="latest").initialOffset() == places[2]
    assert reader.partitions(places[2], places[2]) == []


def test_an_end_before_another_attempt_does_not_say_what_that_one_has(client, queue, end, source):
    queue.enqueue_many(range(2))
    (failed, gone) = end(2, fails=True)
    queue.requeue(failed)
    end(1)
    queue.delete_task(client.get_task(gone))
    reader = source()

    found = rows(reader, reader.initialOffset(), reader.latestOffset())

    assert [row[:4] for row in found] == [
        (failed, "failed", "complete", None),
        (gone, "failed", None, None),
        (failed, "complete", "complete", "done"),
    ]


@pytest.mark.parametrize("at", ["before", "while"])
def test_events_that_are_gone_are_an_error_unless_the_stream_may_lose_some(
    queue, end, source, cli, at, caplog
):
    queue.enqueue_many(range(6))
    end(1)
    reader, lenient = source(), source(failOnDataLoss="false")
    start = reader.latestOffset()
    end(4)
    finish = reader.latestOffset()
    events = keys.events(Q)
    parts = reader.partitions(start, finish)
    cli.xtrim(events, minid=finish[Q], approximate=False)

    with pytest.raises(EventsGone, match=r"'video' after .* are gone: .* start a new checkpoint"):
        reader.partitions(start, finish) if at == "before" else [*reader.read(parts[0])]
    assert len(rows(lenient, start, finish)) == 1
    assert "goes on without them" in caplog.text
    assert rows(reader, finish, finish) == []


def test_mistakes_in_options_are_named(source):
    for options, message in (
        ({"startingOffsets": "now"}, "earliest or latest, not 'now'"),
        ({"failOnDataLoss": "maybe"}, "true or false, not 'maybe'"),
        ({"status": "pending"}, "pending"),
    ):
        with pytest.raises(InvalidInput, match=message):
            source(**options)


def test_a_stream_that_is_started_again_has_each_end_once_in_its_files(
    spark, url, queue, end, tmp_path
):
    """Killed after its files were written, before it noted that: the worst moment."""
    queue.enqueue_many(range(6))
    frame = spark.readStream.format("blueque").option("url", url).option("queue", Q).load()

    def run():
        query = frame.writeStream.format("parquet").option("path", str(tmp_path / "ends"))
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = query.trigger(availableNow=True).start()
        query.awaitTermination()

    wanted = end(2)
    run()
    wanted += end(3)
    run()
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    run()
    wanted += end(1)
    run()

    found = spark.read.parquet(str(tmp_path / "ends")).select("task_id", "result").collect()
    assert sorted(row.task_id for row in found) == sorted(wanted)
    assert {row.result for row in found} == {"done"}
