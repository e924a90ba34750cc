"""Streams written with foreachBatch: each row is one task, whatever goes wrong."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

import blueque.spark as bs
from spark import mishaps
from spark.exact import is_exact, pending
from spark.oldest import HAS_SOURCES
from spark.test_enqueue import Q

ROWS = 1500  # of a file, which is a batch


@pytest.fixture
def stream(spark, tmp_path):
    """Return what runs the stream until it has taken all files, of which it gets some more first;
    each is a batch.
    """
    source = tmp_path / "source"
    files = 0

    def stream(more, each):
        nonlocal files
        for number in range(files, files + more):
            frame = spark.range(number * ROWS, (number + 1) * ROWS, 1, 1)
            frame.write.mode("append").parquet(str(source / f"file={number}"))
        files += more
        read = (
            spark.readStream.schema("id long, file int")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(source))
        )
        query = read.drop("file").writeStream.trigger(availableNow=True)
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.foreachBatch(each).start().awaitTermination()

    return stream


def naively(url, queue="naive"):
    """Return what each batch is given to, to be enqueued in the naive way."""

    def each(frame, number):
        frame.foreachPartition(mishaps.naive(url, queue))
        mishaps.Mishaps(url, queue).meet("after batch")

    return each


def by_function(frame, number, url):
    bs.enqueue(frame, Q, key="id", group=f"in-{number}", keep="7d", url=url)


def by_format(frame, number, url):
    options = {"url": url, "queue": Q, "key": "id", "group": f"in-{number}", "keep": "7d"}
    frame.write.format("blueque").options(**options).mode("append").save()


def test_the_naive_way_makes_a_batch_twice_that_is_written_again(stream, mishap, url, cli):
    mishap("raise", "after batch", 2, queue="naive")
    with pytest.raises(StreamingQueryException, match="struck"):
        stream(2, naively(url))
    stream(0, naively(url))

    assert sum(pending(cli, "naive").values()) == 3 * ROWS


@pytest.mark.parametrize("write", [by_function] + [by_format] * HAS_SOURCES)
def test_a_batch_that_is_written_again_by_foreachBatch_makes_nothing_twice(
    stream, mishap, url, cli, write
):
    def each(frame, number):
        write(frame, number, url)
        mishaps.Mishaps(url, Q).meet("after batch")

    mishap("raise", "after batch", 2)
    with pytest.raises(StreamingQueryException, match="struck"):
        stream(2, each)
    stream(1, each)

    assert is_exact(cli, 3 * ROWS)
