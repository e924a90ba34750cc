"""Rows: how they are cut for one transaction each."""

from __future__ import annotations

from blueque.producer.row_batch import Rows


def rows(first, count, size=10, **columns):
    numbers = range(first, first + count)
    keys = [str(number) for number in numbers]
    return Rows(
        [key.zfill(size).encode() for key in keys],
        keys,
        etas=[float(number) for number in numbers],
        **columns,
    )


def flat(chunks):
    return [
        row
        for chunk in chunks
        for row in zip(chunk.parameters, chunk.keys, chunk.etas, strict=True)
    ]


def test_rows_are_cut_in_their_order_by_number_and_by_size():
    many, large = rows(0, 2500), rows(0, 10, size=300)

    assert [len(part.parameters) for part in many.parts(1000)] == [1000, 1000, 500]
    sizes = [len(part.parameters) for part in large.parts(1000, 1000)]
    assert sum(sizes) == 10 and max(sizes) <= 3
    assert [len(part.parameters) for part in large.parts(1000, most_bytes=1)] == [1] * 10
    assert flat(large.parts(1000, 1000)) == flat([large]) and flat(many.parts(7)) == flat([many])
    assert list(rows(0, 0).parts(7)) == []
