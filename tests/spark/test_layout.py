"""Which columns hold what: refused by their types, and by their values when they come. No Spark
runs here.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from blueque import InvalidInput, InvalidType, TooLarge
from blueque.protocol.bulk import NewTasks
from blueque.spark.layout import lay_out
from blueque.spark.write_options import Target
from blueque.spark.writer import read


def target(keys=(), **said):
    return Target("render", "redis://127.0.0.1:1/0", keys, **said)


def tasks(parameters, keys, is_json=True, **columns):
    return NewTasks((), [(text, is_json) for text in parameters], keys=keys, **columns)


def frame(**columns):
    schema = T.StructType()
    for name, kind in columns.items():
        schema = schema.add(name, kind)
    return schema


# Spark 3.5 has no variant.
VARIANT = getattr(T, "VariantType", T.DayTimeIntervalType)()
SCENES = frame(scene="string", frame="integer", due="timestamp", urgent="short", weight="double")


def test_all_columns_that_are_nothing_else_make_the_parameters():
    layout = lay_out(SCENES, target(keys=("scene", "frame"), eta="due", priority="urgent"))

    left = ("scene", "frame", "weight")  # the key, too
    assert layout == (
        left,
        left,
        False,
        False,
        True,
        2**20,
        ("scene", "frame"),
        "due",
        "urgent",
        {},
    )
    assert layout.columns == (*left, "due", "urgent")


def test_a_column_that_is_named_is_in_the_parameters_whatever_else_it_is():
    assert lay_out(SCENES, target(keys=("scene",), parameters=("scene", "frame"))).parameters == (
        "scene",
        "frame",
    )


def test_a_name_is_found_in_any_case_and_stays_in_json_as_it_was_written():
    layout = lay_out(SCENES, target(keys=("SCENE",), parameters=("Frame", "scene"), eta="Due"))
    batch = pa.record_batch(
        {"scene": ["a"], "frame": [7], "due": pa.array([0], pa.timestamp("us", "UTC"))}
    )

    assert (layout.keys, layout.eta) == (("scene",), "due")
    assert read(batch, layout) == tasks([b'{"Frame":7,"scene":"a"}'], [b"a"], etas=[0.0])
    for said, words in (({"keys": ("SCENE",)}, "no column 'SCENE'"), ({"eta": "Due"}, "'Due'")):
        with pytest.raises(InvalidInput, match=words):
            lay_out(SCENES, target(**said), is_case_sensitive=True)
    both = frame(a="string", A="string")
    assert lay_out(both, target(parameters=("A",))).parameters == ("A",)
    with pytest.raises(
        InvalidInput, match="key: 'AA' may be 'aA' or 'Aa': write the name as it is"
    ):
        lay_out(frame(aA="string", Aa="string"), target(keys=("AA",)))


def test_one_column_that_is_named_alone_is_all_of_the_parameters():
    alone = target(keys=("k",), parameters=("line",), is_value=True)
    layout = lay_out(frame(line="string", k="long"), alone)
    batch = pa.record_batch({"line": ["as it is", "é"], "k": pa.array([1, -2], pa.int64())})

    assert read(batch, layout) == tasks([b"as it is", "é".encode()], [b"1", b"-2"], False)
    k = lay_out(frame(line="string", k="long"), alone._replace(parameters=("k",)))
    assert read(batch, k) == tasks([b"1", b"-2"], [b"1", b"-2"])
    in_a_list = lay_out(frame(line="string", k="long"), target(parameters=("line",)))
    assert read(batch, in_a_list).parameters[0] == (b'{"line":"as it is"}', True)


def test_keys_of_several_columns_cannot_run_into_each_other():
    layout = lay_out(
        frame(p="integer", a="string", b="string", day="date"),
        target(keys=("a", "b", "day"), parameters=("p",)),
    )
    day = pa.array([0, 0], pa.date32())

    keys = read(
        pa.record_batch({"p": [1, 2], "a": ["x", 'x","y'], "b": ['y","z', "z"], "day": day}), layout
    ).keys

    assert keys == [rb'["x","y\",\"z","1970-01-01"]', rb'["x\",\"y","z","1970-01-01"]']


def test_rows_have_their_own_times_and_priorities():
    said = target(("p",), parameters=("p",), eta="due", priority="urgent", is_value=True)
    layout = lay_out(frame(p="string", due="timestamp", urgent="byte"), said)
    due = datetime(2030, 1, 31, 8, 0, 0, 250_000, tzinfo=UTC)
    batch = pa.record_batch(
        {
            "p": ["a", "b"],
            "due": pa.array([due, None], pa.timestamp("us", "Europe/Berlin")),
            "urgent": pa.array([-3, None], pa.int8()),
        }
    )

    assert read(batch, layout) == tasks(
        [b"a", b"b"], [b"a", b"b"], False, etas=[due.timestamp(), None], priorities=[-3, 0]
    )


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.decimal128(21, 2)])
def test_a_time_may_be_unix_seconds(kind):
    layout = lay_out(
        frame(p="string", due="long"), target(parameters=("p",), eta="due", is_value=True)
    )

    assert read(
        pa.record_batch({"p": ["a"], "due": pa.array([10**9], pa.int64()).cast(kind)}), layout
    ).etas == [1e9]


def test_all_rows_may_have_the_same_time():
    layout = lay_out(frame(p="string"), target(parameters=("p",), eta=0.0, is_value=True))

    assert read(pa.record_batch({"p": ["a", "b"]}), layout).etas == [0.0, 0.0]


@pytest.mark.parametrize(
    ("said", "kind", "sentence"),
    [
        (
            {"keys": ("id",)},
            InvalidInput,
            "key: there is no column 'id'; there are 'scene', 'frame', 'due', ",
        ),
        (
            {"keys": ("weight",)},
            InvalidType,
            "key: column 'weight' is of type double, not text, a whole number or a date",
        ),
        (
            {"eta": "scene"},
            InvalidType,
            "eta: column 'scene' is of type string, not a timestamp or Unix seconds",
        ),
        ({"eta": "when"}, InvalidInput, "eta: there is no column 'when'"),
        (
            {"priority": "weight"},
            InvalidType,
            "priority: column 'weight' is of type double, not a whole number",
        ),
        ({"parameters": ("x",)}, InvalidInput, "params: there is no column 'x'"),
        (
            {"is_json": True},
            InvalidInput,
            "option 'json' says that params are one column of text, and they are not",
        ),
    ],
)
def test_columns_that_are_missing_or_of_the_wrong_type_are_named(said, kind, sentence):
    with pytest.raises(kind, match=sentence):
        lay_out(SCENES, target(**said))


@pytest.mark.parametrize(
    ("schema", "said", "sentence"),
    [
        (
            frame(e="double"),
            {"eta": "e"},
            "params: no column is left: name those that make the parameters",
        ),
        (T.StructType().add("a", "integer").add("a", "integer"), {}, "two columns are named 'a'"),
        (
            frame(due=T.TimestampNTZType(), p="integer"),
            {"eta": "due"},
            "timestamp_ntz, not .* with a time zone",
        ),
        (
            frame(a=T.DayTimeIntervalType(), b="integer"),
            {},
            "params: column 'a' is of type interval .*, which has no JSON",
        ),
        (
            frame(a=T.ArrayType(T.StructType().add("x", VARIANT))),
            {},
            "column 'a.x' is of type (variant|interval)",
        ),
        (
            frame(a=T.MapType(T.DoubleType(), T.StringType())),
            {},
            "column 'a' is of type map<double,string>",
        ),
        (
            frame(task_id="string", parameters="string", listed_as="string"),
            {},
            "these rows are tasks as read from a queue",
        ),
    ],
)
def test_frames_that_cannot_be_meant_are_refused(schema, said, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        lay_out(schema, target(**said))


@pytest.mark.parametrize(
    ("columns", "kind", "sentence"),
    [
        (
            {"k": [1, None]},
            InvalidInput,
            "key: column 'k' is null in the row with the parameters 'b'",
        ),
        ({"p": ["a", None]}, InvalidType, "params: column 'p' is null in 1 row of a batch"),
        (
            {"p": ["a", "x" * 101]},
            TooLarge,
            r"row 'x{60}\.\.\.': the parameters take 101 bytes; the limit is 100 bytes",
        ),
        (
            {"due": [0.0, 1.7e12]},
            InvalidInput,
            "eta: 1700000000000 is not a time before the year 10000",
        ),
        ({"due": [0.0, float("nan")]}, InvalidInput, "eta: nan is not a time"),
        ({"due": [0.0, 60.0]}, InvalidInput, "eta 60.0 is a time in 1970: for a delay, give"),
        ({"urgent": [0, -101]}, InvalidInput, "priority: -101 is not between -100 and 100"),
    ],
)
def test_values_that_no_task_may_have_are_shown(columns, kind, sentence):
    schema = frame(p="string", k="integer", due="double", urgent="integer")
    layout = lay_out(
        schema,
        target(
            keys=("k",),
            parameters=("p",),
            eta="due",
            priority="urgent",
            max_bytes=100,
            is_value=True,
        ),
    )
    good = {"p": ["a", "b"], "k": [1, 2], "due": [0.0, 0.0], "urgent": [0, 0]}

    with pytest.raises(kind, match=sentence):
        read(pa.record_batch({**good, **columns}), layout)


def test_a_context_takes_from_the_bytes_of_the_parameters():
    said = target(("p",), parameters=("p",), is_value=True, max_bytes=100)
    layout = lay_out(frame(p="string"), said._replace(options={"context": {"a": "x" * 20}}))
    read(pa.record_batch({"p": ["y" * 72]}), layout)

    with pytest.raises(TooLarge, match="take 73 bytes; the limit is 72"):
        read(pa.record_batch({"p": ["y" * 73]}), layout)


@pytest.mark.parametrize("key", ["", "x" * 1001, "é" * 501])
def test_a_key_takes_1_to_1000_bytes(key):
    layout = lay_out(frame(p="string", k="string"), target(keys=("k",)))
    read(pa.record_batch({"p": ["a"], "k": ["é" * 500]}), layout)

    with pytest.raises(InvalidInput, match="key: a key takes 1 to 1000 bytes, not"):
        read(pa.record_batch({"p": ["a"], "k": [key]}), layout)
