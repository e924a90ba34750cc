"""bs.archive and bs.read_archive: nothing is lost and nothing doubled, wherever it is killed."""

from __future__ import annotations

import contextlib
import json
import os
from concurrent.futures import ThreadPoolExecutor

import object_store
import psutil
import pyarrow.parquet
import pytest
from pyspark.errors import PySparkException
from running import until
from transactions import protocol

import blueque.spark as bs
from blueque import ArchiveRefused, InvalidInput, JobFailed, RedisAway, archives
from blueque.archives import layout, reading
from blueque.archives.layout import Output
from blueque.model import keys
from blueque.protocol.archiving import BatchRef
from blueque.spark import archiving, executors
from spark.conftest import DAEMON
from spark.exact import judge
from spark.seeds import DAY, seed
from spark.standstill import Standstill

START = 100.0  # seconds within which another Spark has come to the point
MANY = 4000  # tasks: some seconds of work on a busy machine

# The sixth look for the fields of tasks: of one of two workers, when it has made a file, and its
# rest comes later.
WHILE_WORKERS_WRITE = (b"HGETALL", 6, False, "claimed")


def half_written(directory):
    """Return the files of workers whose batch is not written yet."""
    is_written = any(directory.glob("_written/*/*.json"))
    return [] if is_written else [*directory.glob("queue=*/day=*/*.parquet")]


def ids_of(frame):
    return sorted(row.task_id for row in frame.select("task_id").collect())


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "archive"


def test_finished_tasks_move_into_the_archive_by_queue_and_day(spark, url, client, cli, directory):
    complete = seed(url, "render", 900, spread=2 * DAY)
    failed = seed(url, "render", 100, "failed", first=900)
    fresh = seed(url, "render", 3, first=2000, end=4e9)
    waiting = client.get_queue("render").enqueue("later")

    done = bs.archive(spark, "render", directory, older_than="1h", url=url)

    assert (done.queue, done.written, done.deleted, done.kept) == ("render", 1000, 1000, 0) and len(
        done.batches
    ) == 1
    assert judge(cli, directory, [*complete, *failed, *fresh]) == (0, 0, 0)
    days = sorted(path.name for path in (directory / "queue=render").iterdir())
    assert days == ["day=2026-11-18", "day=2026-11-19", "day=2026-11-20"]
    assert sorted(cli.lrange(keys.complete("render"), 0, -1)) == sorted(fresh)
    assert cli.exists(keys.task(waiting)) and cli.zcard(keys.tasks("render")) == 4
    assert not cli.exists(keys.archive("render"), *map(keys.task, complete))
    frame = bs.read_archive(spark, directory)
    assert ids_of(frame) == sorted([*complete, *failed])
    (row,) = frame.where(frame.task_id == failed[-1]).collect()
    assert (row.queue, row.status, row.error) == ("render", "failed", "frame 999 is broken")
    assert (row.attempts, str(row.day)) == (1, "2026-11-20")
    assert json.loads(row.other)["traceback"] == "Traceback ..."


def test_limit_and_statuses_choose_and_the_oldest_go_first(spark, url, cli, directory):
    complete = seed(url, "render", 50, spread=3600)
    failed = seed(url, "render", 5, "failed", first=50)

    done = bs.archive(spark, "render", directory, limit=20, statuses="complete", url=url)

    assert done.written == 20 and ids_of(bs.read_archive(spark, directory)) == sorted(complete[:20])
    assert judge(cli, directory, [*complete, *failed]) == (0, 0, 0)


def test_an_archive_of_nothing_is_an_empty_table(spark, url, directory):
    done = bs.archive(spark, "render", directory, url=url)

    assert (done.written, done.deleted, done.batches) == (0, 0, ())
    frame = bs.read_archive(spark, directory)
    assert frame.count() == 0 and frame.columns == list(reading.FIELDS)


def test_a_directory_that_both_write_into_reads_as_one(spark, url, client, directory):
    names = ["render", "007", 'größe "a"/%b']
    for number, name in enumerate(names):
        seed(url, name, 40, first=100 * number)
        bs.archive(spark, name, directory, limit=20, url=url)
        archives.archive(name, directory, client=client)

    ours, plain = bs.read_archive(spark, directory), spark.read.parquet(str(directory))

    assert sorted(map(tuple, ours.groupBy("queue").count().collect())) == sorted(
        (name, 40) for name in names
    )
    whole = archives.read(directory)
    assert ids_of(ours) == ids_of(plain) == sorted(whole["task_id"].to_pylist())
    found = {(str(row.queue), row.task_id): row for row in ours.collect()}
    assert all(
        found[row["queue"], row["task_id"]].asDict() == naive_times(row)
        for row in whole.to_pylist()
    )
    files = [*directory.glob("queue=*/day=*/*.parquet")]
    assert len(files) == 6
    assert len({pyarrow.parquet.read_schema(path).to_string() for path in files}) == 1
    assert bs.read_archive(spark, directory, queue="007").count() == 40
    assert bs.read_archive(spark, directory, days=("2026-11-21", "2026-11-30")).count() == 0


def naive_times(row):
    """Return the row as Spark hands it out: times without a zone, in that of this process."""
    return {
        name: value.astimezone().replace(tzinfo=None) if hasattr(value, "astimezone") else value
        for name, value in row.items()
    }


def test_what_changed_while_it_was_archived_stays_and_comes_again_as_what_it_is_then(
    spark, url, client, cli, directory
):
    ids = seed(url, "render", 30, "failed")
    again = ids[3:6]
    queue = client.get_queue("render")
    left_in(url, "delete", directory, lambda: [queue.requeue(task) for task in again])

    done = bs.archive(spark, "render", directory, url=url)

    assert (done.written, done.deleted, done.kept, len(done.resumed)) == (30, 27, 3, 1)
    assert [client.get_task(task).status for task in again] == ["pending"] * 3
    for _ in again:
        processor = client.get_processor(client.get_listener("render").listen())
        processor.start(1)
        processor.complete("at last")
    bs.archive(spark, "render", directory, url=url)
    newest = bs.read_archive(spark, directory)
    assert sorted(
        (row.task_id, row["count"]) for row in newest.groupBy("task_id").count().collect()
    ) == [(task, 1) for task in sorted(ids)]
    assert {row.task_id for row in newest.where("result = 'at last'").collect()} == {*again}
    assert bs.read_archive(spark, directory, latest=False).count() == 33


def test_a_task_that_a_list_holds_twice_is_archived_once(spark, url, cli, directory, monkeypatch):
    ids = seed(url, "render", 300)
    # 1.0.0 can do so; the two are in slices of different workers
    cli.lpush(keys.complete("render"), ids[0])
    monkeypatch.setattr(archiving, "PIECE", 100)

    bs.archive(spark, "render", directory, url=url)

    assert judge(cli, directory, ids) == (0, 0, 0) and ids_of(
        bs.read_archive(spark, directory)
    ) == sorted(ids)


def left_in(url, stage, directory, when_read=lambda: None):
    """Have an archiver without Spark stop where it comes to that stage, as by a Ctrl-C."""

    def tell(progress):
        if progress.stage == "write":
            when_read()
        if progress.stage == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archives.archive("render", directory, url=url, tell=tell)


@pytest.mark.parametrize("stage", ["write", "delete"])
def test_spark_goes_on_where_another_archiver_has_stopped(spark, url, cli, directory, stage):
    ids = seed(url, "render", 500)
    left_in(url, stage, directory)
    (batch,) = [cli.hget(keys.archive("render"), "batch")]

    done = bs.archive(spark, "render", directory, url=url)

    assert done.resumed == (batch,) and done.written == done.deleted == 500
    assert judge(cli, directory, ids) == (0, 0, 0)
    assert len(archives.files(directory)) == len([*directory.rglob("*.parquet")])


def naive(spark, url, cli, directory, ids, is_killed=False):
    """Archive as one would without thinking: write what is there, then delete what was listed;
    killed in between, or not.
    """
    listed = cli.lrange(keys.complete("render"), 0, -1)
    frame = bs.read(spark, "render", "complete", url=url)
    frame = frame.withColumn("day", frame.finished.cast("date"))
    frame.write.partitionBy("queue", "day").mode("append").parquet(str(directory))
    if is_killed:
        return
    for task in listed:
        cli.delete(keys.task(task))
        cli.lrem(keys.complete("render"), -1, task)


def test_the_naive_way_doubles_and_loses(spark, url, client, cli, directory):
    ids = seed(url, "render", 100)
    naive(spark, url, cli, directory, ids, is_killed=True)

    naive(spark, url, cli, directory, ids)

    assert judge(cli, directory, ids) == (0, 100, 0)


def workers():
    """Yield the Python processes of our Spark that run tasks."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # some come and go
            if DAEMON in process.cmdline():
                yield from process.children()


def test_workers_that_are_killed_while_they_write_are_replaced(
    spark, url, cli, directory, monkeypatch
):
    ids = seed(url, "render", MANY)
    monkeypatch.setattr(archiving, "PIECE", MANY // 2)
    way = Standstill(url, *WHILE_WORKERS_WRITE[:2])
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(bs.archive, spark, "render", directory, url=way.url)
        try:
            assert way.is_reached.wait(START)
            until(lambda: half_written(directory), START)
            struck = [*workers()]
            for worker in struck:
                worker.kill()
        finally:
            way.let_go()
        assert done.result(START).written == MANY
    way.close()

    assert struck and judge(cli, directory, ids) == (0, 0, 0)


def test_a_table_whose_files_are_gone_is_an_error_and_not_an_empty_table(
    spark, url, client, directory
):
    for number in range(3):
        seed(url, "render", 10, first=10 * number)
        archives.archive("render", directory, client=client)
    frame = bs.read_archive(spark, directory)
    os.unlink(archives.files(directory)[0])

    with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
        frame.count()

    assert bs.read_archive(spark, directory).count() == 20


def lose_redis(part):
    raise RedisAway("no Redis at redis://node-1: Connection refused")


def run_out_of_disk(part):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("part", "kind", "sentence"),
    [
        (lose_redis, RedisAway, "^no Redis at redis://node-1: Connection refused$"),
        (
            run_out_of_disk,
            JobFailed,
            r"^the Spark job for queue 'render' has failed: OSError: \[Errno 28\] No space left on device; "
            "nothing of this batch was deleted from Redis: run it again$",
        ),
    ],
)
def test_what_stops_a_worker_is_told_in_a_sentence(
    spark, url, cli, directory, monkeypatch, part, kind, sentence
):
    ids = seed(url, "render", 10)
    monkeypatch.setattr(archiving, "write_part", part)

    with pytest.raises(kind, match=sentence) as caught:
        bs.archive(spark, "render", directory, url=url)

    assert isinstance(caught.value.__cause__, PySparkException)
    assert judge(cli, directory, ids) == (0, 0, 0)


def test_one_that_was_taken_for_dead_is_told_so_and_blames_no_cluster(
    spark, url, cli, redis, directory, monkeypatch, caplog
):
    ids = seed(url, "render", 10)
    parts = executors.run

    def overtaken(*given):
        monkeypatch.undo()
        record = cli.hgetall(keys.archive("render"))
        protocol.claim_batch(
            redis, BatchRef("render", "b", "another"), {}, {}, 9.0, over=record["writer"]
        )
        protocol.leave_batch(redis, BatchRef("render", record["batch"], "another"))
        return parts(*given)

    monkeypatch.setattr(executors, "run", overtaken)
    with caplog.at_level("WARNING", "blueque"):
        bs.archive(spark, "render", directory, url=url)

    assert "is another archiver's now" in caplog.text
    assert judge(cli, directory, ids) == (0, 0, 0) and ids_of(
        bs.read_archive(spark, directory)
    ) == sorted(ids)


def test_what_cannot_be_meant_is_refused(spark, url, directory, tmp_path):
    with pytest.raises(InvalidInput, match="there is no status 'pending' here"):
        bs.archive(spark, "render", directory, statuses="pending", url=url)
    with pytest.raises(ArchiveRefused, match="is not an archive"):
        bs.read_archive(spark, tmp_path / "missing")
    with pytest.raises(ArchiveRefused, match="Blueque was not tested on s3a:"):
        bs.archive(spark, "render", "s3a://bucket/archive", url=url)
    assert bs.read_archive(spark, tmp_path).count() == 0  # nothing is in it yet
    elsewhere = Output(layout.Archive(str(tmp_path / "elsewhere"), "i"), "")
    with pytest.raises(ArchiveRefused, match="by the same path"):
        archiving.write_part(archiving.Part(url, "render", None, None, elsewhere))


def test_workers_write_to_a_store_and_read_from_it_and_only_what_is_listed_counts(
    spark, url, cli, monkeypatch
):
    for name, value in object_store.CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    ids = seed(url, "render", 300, spread=2 * DAY)
    run = executors.run
    with object_store.serving() as address:
        store = object_store.new_archive(address)

        def twice(spark, function, parts):  # as with speculation
            run(spark, function, parts)
            return run(spark, function, parts)

        monkeypatch.setattr(executors, "run", twice)
        done = bs.archive(spark, "render", store, url=url)
        rows = bs.read_archive(spark, store, latest=False)

        assert (done.written, done.deleted) == (300, 300) and ids_of(rows) == sorted(ids)
        assert rows.select("queue", "day").distinct().count() == 3
        assert archives.read(store).num_rows == 300
