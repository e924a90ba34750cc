"""df.writeStream.format("blueque"): each batch comes once, whatever goes wrong; and the same with
foreachBatch.
"""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.errors import StreamingQueryException

import blueque.spark as bs
from blueque.model import keys
from spark import mishaps
from spark.exact import is_exact, leftovers, pending
from spark.test_enqueue import Q

ROWS = 1500  # of a file, which is a batch


@pytest.fixture
def stream(spark, url, tmp_path):
    """Return what runs the stream until it has taken all files, of which it gets some more first;
    each is a batch.
    """
    source = tmp_path / "source"
    files = 0

    def stream(
        more=0, each=None, rows=ROWS, checkpoint="checkpoint", source_format="blueque", **options
    ):
        nonlocal files
        for number in range(files, files + more):
            frame = spark.range(number * ROWS, number * ROWS + rows, 1, 1)
            frame.write.mode("append").parquet(str(source / f"file={number}"))
        files += more
        read = (
            spark.readStream.schema("id long, file int")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(source))
        )
        query = read.drop("file").writeStream.trigger(availableNow=True)
        query = query.option("checkpointLocation", str(tmp_path / checkpoint))
        if each is not None:
            query = query.foreachBatch(each)
        else:
            query = query.format(source_format).options(
                **{"url": url, "queue": Q, "name": "in"} | options
            )
        query.start().awaitTermination()

    return stream


def test_each_batch_comes_once_in_order_and_a_restart_goes_on(stream, mishap, client, cli):
    stream(1)
    stream()
    stream(1, rows=0)
    stream(2, priority="0")

    (ids,) = client._redis.read(("LRANGE", keys.pending(Q), 0, -1))
    numbers = [client.get_task(task).parameters["id"] for task in ids[::-250]]
    assert len(ids) == 3 * ROWS and leftovers(cli) == []
    assert numbers == [*range(0, ROWS, 250), *range(2 * ROWS, 4 * ROWS, 250)]
    assert (
        client.get_run(Q, "in").items()
        >= {"kind": "stream", "state": "open", "batch": 3, "rows": ROWS}.items()
    )


def test_a_query_with_a_new_checkpoint_is_refused_under_the_old_name(stream, client, cli):
    stream(2)

    with pytest.raises(StreamingQueryException, match="one with a new checkpoint needs a new name"):
        stream(0, checkpoint="another")  # whose first batch has the number and size of the last one
    stream(0, checkpoint="another", name="another")
    stream(1)

    assert sum(pending(cli).values()) == 5 * ROWS and leftovers(cli) == []


def test_a_row_that_is_refused_stops_the_stream_and_leaves_nothing(stream, cli):
    with pytest.raises(
        StreamingQueryException, match=r"TooLarge: row .*: the parameters take 8 bytes"
    ):
        stream(1, max_bytes="5")

    assert pending(cli) == Counter() and leftovers(cli) == []


def naively(url, queue="naive"):
    """Return what each batch is given to, to be enqueued in the naive way."""

    def each(frame, number):
        frame.foreachPartition(mishaps.naive(url, queue))
        mishaps.Mishaps(url, queue).meet("after batch")

    return each


def test_a_batch_that_fails_in_its_commit_comes_once_when_it_is_tried_again(stream, mishap, cli):
    mishap("raise", "after publish", 3)  # that the naive way fails this is the next test
    with pytest.raises(StreamingQueryException, match="RuntimeError: struck"):
        stream(2, source_format="mishap")
    assert mishaps.struck(cli) == 1
    stream(1)

    assert is_exact(cli, 3 * ROWS)


def test_with_foreach_batch_and_a_run_for_each_batch_they_come_once_too(stream, mishap, url, cli):
    mishap("raise", "after batch", 2, queue="naive")
    with pytest.raises(StreamingQueryException, match="struck"):
        stream(2, naively(url), checkpoint="naive")
    stream(0, naively(url), checkpoint="naive")
    # a batch that had been enqueued came again
    assert sum(pending(cli, "naive").values()) == 3 * ROWS
    cli.flushdb()

    def each(frame, number):
        bs.enqueue(frame, Q, key="id", run=f"in-{number}", keep="7d", url=url)
        mishaps.Mishaps(url, Q).meet("after batch")

    mishap("raise", "after batch", 2)
    with pytest.raises(StreamingQueryException, match="struck"):
        stream(0, each)
    stream(1, each)

    assert is_exact(cli, 3 * ROWS)


def test_a_worker_that_dies_within_a_batch_doubles_nothing(stream, mishap, cli):
    mishap("kill", "after stage", 1, partition=0)
    stream(1, source_format="mishap")

    assert mishaps.struck(cli) == 1
    assert is_exact(cli, ROWS)
