"""How rows are cut and put together for one transaction each. No Spark runs here."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from blueque.model.ids import ids_of_run_keys, shard_of
from blueque.producer.row_batch import MAX_ROWS, Rows
from blueque.spark.chunks import by_shard, split


def rows(first, count, size=10, **columns):
    numbers = range(first, first + count)
    keys = [str(number) for number in numbers]
    return Rows(
        [key.zfill(size).encode() for key in keys],
        keys,
        ids=ids_of_run_keys("q", "r", [key.encode() for key in keys]),
        etas=[float(number) for number in numbers],
        **columns,
    )


def flat(chunks):
    return [
        row
        for chunk in chunks
        for row in zip(chunk.parameters, chunk.keys, chunk.etas, chunk.ids, strict=True)
    ]


def test_rows_are_split_in_their_order_by_number_and_by_size():
    many, large = rows(0, 2500), rows(0, 10, size=300)

    assert [len(chunk.parameters) for chunk in split(many)] == [1000, 1000, 500]
    assert [len(chunk.parameters) for chunk in split(large, most_bytes=1000)] == [3, 3, 3, 1]
    assert [len(chunk.parameters) for chunk in split(large, most_bytes=1)] == [1] * 10
    assert flat(split(many)) == flat([many])
    assert list(split(rows(0, 0))) == []


@pytest.mark.parametrize(
    ("shards", "held"), [(1, 2**25), (8, 2**25), (32, 2**25), (32, 20_000), (3, 0)]
)
def test_every_row_comes_out_once_with_all_that_belongs_to_it(shards, held):
    pieces = [rows(first, 700) for first in range(0, 21_000, 700)]

    chunks = list(by_shard(iter(pieces), shards, held))

    assert sorted(flat(chunks)) == sorted(flat(pieces))
    assert max(len(chunk.parameters) for chunk in chunks) <= MAX_ROWS
    assert all(chunk.are_json for chunk in chunks)


def test_chunks_are_of_one_shard_each_until_the_rest():
    chunks = list(by_shard((rows(first, 700) for first in range(0, 70_000, 700)), 8))
    shards = [{shard_of(task, 8) for task in chunk.ids} for chunk in chunks]

    assert Counter(map(len, shards))[1] >= 60
    assert len(chunks) <= 72


def test_no_more_is_held_than_said():
    held = 0
    size = 1000

    def pieces():
        nonlocal held
        for first in range(0, 50_000, 100):
            assert held <= 1_000_000 + 100 * size
            held += 100 * size
            yield rows(first, 100, size)

    for chunk in by_shard(pieces(), 64, 1_000_000):
        held -= sum(map(len, chunk.parameters))
    assert held == 0


def test_large_parameters_leave_their_bucket_too():
    pieces = [
        rows(first, 500, size=random.Random(first).choice([10, 20_000]))
        for first in range(0, 4000, 500)
    ]

    chunks = list(by_shard(pieces, 1))

    assert sorted(flat(chunks)) == sorted(flat(pieces))
    assert max(sum(map(len, chunk.parameters)) for chunk in chunks) <= 4 * 2**20
