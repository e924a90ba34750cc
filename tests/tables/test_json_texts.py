"""JSON of Arrow columns. That Spark makes the same of the same rows is in test_write.py. No Spark
runs here.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from blueque.tables.json_texts import texts

MOMENT = dt.datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)
COLUMNS = {
    "text": (pa.array(['é"\\ \n\x00\u2028', None, "", "b"]), ['é"\\ \n\x00\u2028', None, "", "b"]),
    "whole": (pa.array([2**63 - 1, None, -1, 0]), [2**63 - 1, None, -1, 0]),
    "double": (pa.array([1.0, None, 1e-7, 1e300]), [1.0, None, 1e-7, 1e300]),
    "odd": (
        pa.array([float("nan"), None, float("inf"), -float("inf")]),
        ["NaN", None, "Infinity", "-Infinity"],
    ),
    "float": (pa.array([0.1, None, 2.0, 1e20], pa.float32()), [0.1, None, 2.0, 1e20]),
    "decimal": (pa.array([Decimal("1.50"), None, Decimal(0), Decimal(-1)]), [1.5, None, 0, -1]),
    "yes": (pa.array([True, None, False, True]), [True, None, False, True]),
    "moment": (
        pa.array([MOMENT, None, MOMENT, MOMENT], pa.timestamp("us", "Asia/Tokyo")),
        ["2024-01-02T03:04:05.678901Z", None, *["2024-01-02T03:04:05.678901Z"] * 2],
    ),
    "local": (
        pa.array(
            [MOMENT.replace(tzinfo=None, microsecond=0), None, None, None], pa.timestamp("us")
        ),
        ["2024-01-02T03:04:05.000000", None, None, None],
    ),
    "day": (pa.array([MOMENT.date(), None, None, None]), ["2024-01-02", None, None, None]),
    "bytes": (pa.array([b"\0\xff", None, b"", b"a"]), ["AP8=", None, "", "YQ=="]),
    "nothing": (pa.nulls(4), [None] * 4),
    "list": (pa.array([[1, None], None, [], [2]]), [[1, None], None, [], [2]]),
    "struct": (
        pa.array([{"a": [{"b": "c"}]}, None, {"a": None}, {"a": []}]),
        [{"a": [{"b": "c"}]}, None, {"a": None}, {"a": []}],
    ),
    "map": (
        pa.array([[(1, "a"), (2, None)], None, [], [(3, "b")]], pa.map_(pa.int32(), pa.string())),
        [{"1": "a", "2": None}, None, {}, {"3": "b"}],
    ),
    "names": (
        pa.array([[("a", 1)], [], None, [("b", 2)]], pa.map_(pa.string(), pa.int8())),
        [{"a": 1}, {}, None, {"b": 2}],
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_value_is_in_json_what_it_is(name):
    column, expected = COLUMNS[name]

    assert [json.loads(text) for text in texts(column)] == expected
    # A slice knows its parents, whose rows are not its own.
    assert [json.loads(text) for text in texts(column.slice(1, 2))] == expected[1:3]
