"""What the public calls accept, refuse and give back; and what settings may say."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest

from blueque import Client, InvalidInput, InvalidType, TooLarge
from blueque.model import units
from blueque.model.encoding import (
    Encoded,
    count_of,
    encode,
    integer,
    known_count,
    number,
    quick_encoder,
    seconds_of,
    time_or,
)

VALUES = [
    "text",
    "",
    " ",
    "ä ☃ 𝄞",
    '{"looks": ["like JSON"]}',
    "null",
    "1",
    '"',
    "\0 and \r\n",
    "\\ud800",
    {},
    {"a": {"b": [1, 2.5, None, True, "ä ☃ 𝄞", ""]}},
    {"": 1},
    [],
    [[]],
    [1, "1"],
    None,
    True,
    False,
    0,
    -1,
    2**70,
    0.1,
    -0.0,
    1e300,
    1795226965.4337697,
]
CIRCLE: list[object] = []
CIRCLE.append(CIRCLE)
DEEP: list[object] = []
for _ in range(100_000):
    DEEP = [DEEP]

REFUSED = {
    "NaN": (math.nan, InvalidInput),
    "infinity": (math.inf, InvalidInput),
    "NaN inside": ({"a": [math.nan]}, InvalidInput),
    "bytes": (b"text", InvalidType),
    "a bytearray": (bytearray(b"text"), InvalidType),
    "a memoryview": (memoryview(b"text"), InvalidType),
    "bytes inside": ({"a": b"text"}, InvalidType),
    "a lone surrogate": ("a\ud800b", InvalidInput),
    "a lone surrogate inside": ({"a": ["a\ud800b"]}, InvalidInput),
    "a lone surrogate as a key": ({"a\udcffb": 1}, InvalidInput),
    "a set": ({1, 2}, InvalidType),
    "an object": (object(), InvalidType),
    "a datetime": ({"when": datetime(2026, 1, 1, tzinfo=UTC)}, InvalidType),
    "a circle": (CIRCLE, InvalidInput),
    "too deep a nest": (DEEP, InvalidInput),
}
KEYS_REFUSED = {
    "an int as a key": ({1: "a"}, InvalidType),
    "None as a key": ({"a": [{None: "a"}]}, InvalidType),
    "a bool as a key": ({"a": {True: "a"}}, InvalidType),
    "a tuple as a key": ({(1, 2): "a"}, InvalidType),
    "a key in a tuple": (({1: "a"},), InvalidType),
}


def cases(table):
    return [pytest.param(*case, id=name) for name, case in table.items()]


def reserved(client):
    """Return the processor of a task that has started."""
    client.get_queue("video").enqueue("in")
    processor = client.get_processor(client.get_listener("video").listen())
    processor.start(77)
    return processor


def is_same(one, other):
    """Compare with types, for 1 == True == 1.0."""
    return type(one) is type(other) and repr(one) == repr(other)


def test_a_string_is_stored_untouched_and_anything_else_as_json_marked_so(queue, cli):
    for value, text, encoding in [
        ('{"a": 1}', '{"a": 1}', None),
        ({"ä": [1, None]}, '{"ä":[1,null]}', "json"),
    ]:
        fields = cli.hgetall(f"blueque_task_{queue.enqueue(value)}")
        assert (fields["parameters"], fields.get("parameters_encoding")) == (text, encoding)


def test_text_wrongly_marked_as_json_is_shown_as_it_is(client, cli):
    cli.hset("blueque_task_t1", mapping={"parameters": "{not json", "parameters_encoding": "json"})

    assert client.get_task("t1").parameters == "{not json"


class Scalar:
    """As numpy and torch have them. `kind` is that of the type."""

    shape = ()

    def __init__(self, number, kind="f"):
        self._number, self.dtype = number, SimpleNamespace(kind=kind)

    def item(self):
        return self._number


def test_a_scalar_of_numpy_is_the_number_that_it_is(queue, client):
    value = {"loss": Scalar(0.5), "steps": [Scalar(3, "i")], "is_best": Scalar(True, "b")}

    for task_id in (queue.enqueue(value), queue.schedule(value, 4e9)):
        found = client.get_task(task_id).parameters
        assert is_same(found, {"loss": 0.5, "steps": [3], "is_best": True})


@dataclasses.dataclass
class Film:
    title: str


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            {"a": [0, {"b": {1}}]},
            'parameters["a"][1]["b"] is of the type set, which JSON does not have; pass a list of it',
        ),
        ([float("inf")], "parameters[0] is inf, which JSON does not have; pass None"),
        ([Scalar(float("nan"))], "parameters[0] is nan, which JSON does not have"),
        ([Scalar(1, "M")], "parameters[0] is of the type Scalar"),
        ({"a": {1: 2}}, 'parameters["a"] has the key 1, not a string: write it as one'),
        ({"ü": CIRCLE}, 'parameters["ü"][0] holds itself'),
        (
            Film("M"),
            "it is of the type Film, which JSON does not have; pass dataclasses.asdict() of it",
        ),
        (
            [datetime(2026, 1, 1, tzinfo=UTC)],
            "the type datetime, which JSON does not have; pass its isoformat()",
        ),
        ([Path("a")], "the type PosixPath, which JSON does not have; pass str() of it"),
        ([UUID(int=1)], "the type UUID, which JSON does not have; pass str() of it"),
        ([Colour.RED], "the type Colour, which JSON does not have; pass its value"),
        ([Decimal(1)], "the type Decimal, which JSON does not have; pass str() or float() of it"),
        ([b"a"], "the type bytes, which JSON does not have; pass a str of base64"),
    ],
)
def test_a_refusal_names_the_first_part_that_json_does_not_have(queue, value, sentence):
    with pytest.raises(InvalidInput, match=re.escape(sentence)):
        queue.enqueue(value)


@pytest.mark.parametrize(("value", "error"), cases(REFUSED | KEYS_REFUSED))
@pytest.mark.parametrize("way", ["enqueue", "schedule", "schedule for the past"])
def test_parameters_that_cannot_come_back_the_same_are_refused_and_nothing_is_written(
    queue, cli, way, value, error
):
    with pytest.raises(error, match="parameters") as refusal:
        queue.enqueue(value) if way == "enqueue" else queue.schedule(
            value, 4e9 if way == "schedule" else 1e9
        )

    assert isinstance(refusal.value, ValueError)
    assert cli.dbsize() == 0


@pytest.mark.parametrize(("value", "error"), cases(REFUSED | KEYS_REFUSED))
def test_a_result_that_cannot_come_back_the_same_is_refused_and_nothing_is_written(
    client, state, value, error
):
    processor = reserved(client)
    before = state()

    with pytest.raises(error, match="result"):
        processor.complete(value)

    assert state() == before


@pytest.mark.parametrize(
    ("value", "size"), [("x" * 101, "101"), ("ä" * 51, "102"), (["x" * 97], "101")]
)
def test_a_value_over_the_limit_is_refused_with_its_size_in_bytes_and_nothing_is_written(
    url, cli, value, size
):
    client = Client(url, max_bytes=100)

    with pytest.raises(TooLarge, match=rf"takes? {size} bytes; the limit is 100 bytes") as refusal:
        client.get_queue("video").enqueue(value)

    assert (refusal.value.size, refusal.value.limit) == (int(size), 100)
    assert cli.dbsize() == 0


def test_a_result_over_the_limit_is_refused_and_the_task_can_still_fail(url, state):
    client = Client(url, max_bytes=100)
    processor = reserved(client)
    before = state()

    with pytest.raises(TooLarge, match="result"):
        processor.complete("x" * 101)
    assert state() == before

    processor.fail("too large")
    assert client.get_task(processor.task.id).error == "too large"


@pytest.mark.parametrize(
    "error", [ValueError("no such file: caf\udce9"), "x" * 2**21], ids=["surrogate", "large"]
)
def test_any_error_can_be_recorded(client, error):
    processor = reserved(client)

    processor.fail(error)

    task = client.get_task(processor.task.id)
    assert task.status == "failed"
    assert 0 < len(task.error.encode()) <= client.max_bytes


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", InvalidInput),
        ("a\0b", InvalidInput),
        ("a\ud800", InvalidInput),
        ("x" * 201, InvalidInput),
        ("ä" * 101, InvalidInput),
        (None, InvalidType),
        (b"video", InvalidType),
        (1, InvalidType),
    ],
    ids=repr,
)
def test_a_queue_cannot_have_such_a_name(client, cli, name, error):
    for get in (client.get_queue, client.get_listener):
        with pytest.raises(error, match="name"):
            get(name)

    assert cli.dbsize() == 0


@pytest.mark.parametrize(
    ("eta", "error"),
    [
        (math.inf, InvalidInput),
        (-math.inf, InvalidInput),
        (math.nan, InvalidInput),
        (datetime(2030, 1, 1), InvalidInput),
        (True, InvalidType),
        ("4000000000", InvalidType),
        (None, InvalidType),
        (timedelta(1), InvalidType),
        ([4e9], InvalidType),
        (10**400, InvalidInput),
    ],
    ids=lambda part: repr(part)[:30],
)
def test_an_eta_that_is_no_time_is_refused_and_nothing_is_written(queue, cli, eta, error):
    with pytest.raises(error):
        queue.schedule("in", eta)

    assert cli.dbsize() == 0


@pytest.mark.parametrize("pid", ["77", None, True, 7.0])
def test_a_pid_that_is_no_int_is_refused_and_nothing_is_written(client, state, pid):
    client.get_queue("video").enqueue("in")
    processor = client.get_processor(client.get_listener("video").listen())
    before = state()

    with pytest.raises(InvalidType, match="pid"):
        processor.start(pid)

    assert state() == before


@pytest.mark.parametrize(
    "text", ["", "h", "-1", "1y", "1h?", "h1", "1.h", "1e3", "inf", "nan", "1 hour"]
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(InvalidInput, match="is not a duration"):
        units.parse_duration(text)


@pytest.mark.parametrize("text", ["", "KiB", "-1", "1 TB", "1K", "1e3", "inf"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InvalidInput, match="is not a size"):
        units.parse_size(text)


class Words(str):
    pass


class Fields(dict[str, int]):
    def items(self):
        return [("other", 1)]


class Level(enum.IntEnum):
    HIGH = 3


ODD = [
    "x" * 40,
    "x" * 41,
    "ä" * 21,
    {"a": "x" * 40},
    Words("words"),
    {Words("key"): Words("value")},
    Fields(a=1),
    Level.HIGH,
    {"a": Level.HIGH},
    {1: 2},
    {"a": {2: 3}},
    [({None: 1},)],
    {"a": DEEP},
    {"\u2028": "\x7f\x1b"},
    (1, (2, {"b": None})),
    [Scalar(0.5)],
]


def outcome(call):
    try:
        return call()
    except InvalidInput as error:
        return type(error), str(error)


def slowly(value):
    text, encoding = encode(value, "the parameters", 40)
    return text.encode(), encoding == "json"


@pytest.mark.parametrize("place", range(len(VALUES) + len(REFUSED) + len(ODD)))
def test_the_quick_encoder_gives_and_refuses_what_encode_does(place):
    value = [*VALUES, *[value for value, _ in REFUSED.values()], *ODD][place]
    quick = quick_encoder(40)

    assert outcome(lambda: quick(value)) == outcome(lambda: slowly(value))
    assert quick({"again": 1}) == (b'{"again":1}', True)


def test_what_is_encoded_already_is_taken_as_it_is(client):
    queue = client.get_queue("q")
    ready = [Encoded(b'{"a":1.0}', True), Encoded("ä".encode(), False)]

    tasks = [task for batch in queue.enqueue_iter(ready) for task in batch] + [
        queue.enqueue(one) for one in ready
    ]

    assert [client.get_task(task).parameters for task in tasks] == [{"a": 1.0}, "ä"] * 2
    with pytest.raises(TooLarge, match="the parameters at position 1 take 41 bytes"):
        Client(client._url, max_bytes=40).get_queue("q").enqueue_many(
            [ready[0], Encoded(b"x" * 41, False)]
        )


NO_NUMBERS = ["１２", "1_000", " 7 ", "0x10", "²", "", "nan", "inf", "-inf", "1e999", "9" * 5000]


@pytest.mark.parametrize(
    ("text", "whole", "count", "score"),
    [
        ("12", 12, 12, 12.0),
        ("-7", -7, None, -7.0),
        (str(2**63 - 1), 2**63 - 1, None, 2.0**63),
        ("007", None, 7, 7.0),
        ("1795226965.4337697", None, None, 1795226965.4337697),
        *((text, None, None, float(text)) for text in ("1e3", "-0", "+1", str(2**63))),
        *((text, None, None, None) for text in NO_NUMBERS),
    ],
    ids=lambda given: str(given)[:20],
)
def test_numbers_are_read_in_the_form_in_which_redis_takes_them(client, text, whole, count, score):
    def read(reader):
        with contextlib.suppress(ValueError):
            return reader(text)

    client.connections.read(("HSET", "a", "b", text))
    counted = client.connections.answers(("HINCRBY", "a", "b", 0))[0]

    assert getattr(counted, "code", counted) == ("ERR" if whole is None else whole)
    assert [read(integer), known_count(text), count_of(text)] == [whole, count, count or 0]
    assert [read(number), seconds_of(text)] == [score, score]
    is_time = score is not None or text == "inf"  # 1.0.0: never
    assert time_or(text, 9.0) == (text if is_time else 9.0)
