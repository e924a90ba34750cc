"""Values of annotated classes: as JSON, back, and why not."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import subprocess
import sys
import typing
import uuid
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pydantic
import pytest

from blueque import InvalidInput, InvalidType
from blueque.model.converter import converter_of


class Codec(enum.Enum):
    AV1 = "av1"


class Titled(typing.Protocol):
    title: str


class Size(typing.NamedTuple):
    width: int
    height: int


class Fields(typing.TypedDict):
    title: str
    more: Any


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    day: datetime.date = pydantic.Field(alias="Day")
    path: pathlib.Path = pathlib.Path("/a")


class Struct(msgspec.Struct):
    score: np.float32
    model: Model | None = None


@dataclasses.dataclass
class Tree:
    name: str
    below: list[Tree] = dataclasses.field(default_factory=list)
    more: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Base:
    x: int = 0


@dataclasses.dataclass
class Child(Base):
    y: int = 0


@dataclasses.dataclass(frozen=True)
class Frozen:
    y: int
    x: int = 0


class Coded(pydantic.BaseModel):
    code: Annotated[str, pydantic.AfterValidator({"a": 1}.__getitem__)]


class Hidden(pydantic.BaseModel):
    password: pydantic.SecretStr
    kept: int = pydantic.Field(0, exclude=True)


PLAIN = [
    *(dict, list, str, int, float, bool, object, None, Any, Mapping, typing.Hashable, Titled),
    *(dict[str, Any], list[dict[str, int | None]], Mapping[str, object], typing.Sequence[float]),
    *(Literal["a", 1], typing.NewType("Name", str), int | None),
    *(Annotated[dict, "a film"], list[Annotated[str, pydantic.Field(title="Title")] | None]),
]
DAY = datetime.date(2026, 11, 30)
NOON = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize("kind", PLAIN)
def test_types_of_json_are_not_converted(kind):
    assert converter_of(kind) is None


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (datetime.datetime, NOON, '"2026-11-30T12:00:00Z"'),
        (datetime.timedelta, datetime.timedelta(seconds=3), '"PT3S"'),
        (decimal.Decimal, decimal.Decimal("1.10"), '"1.10"'),
        (pathlib.Path, pathlib.Path("/a"), '"/a"'),
        (uuid.UUID, uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (set[int], {3}, "[3]"),
        (bytes, b"\0a", '"AGE="'),
        (Codec, Codec.AV1, '"av1"'),
        (tuple[int, str], (1, "a"), '[1, "a"]'),
        (dict[int, Codec], {1: Codec.AV1}, '{"1": "av1"}'),
        (Size, Size(3, 2), "[3, 2]"),
        (Fields, {"title": "M", "more": [None]}, '{"title": "M", "more": [null]}'),
        (Tree, Tree("a", [Tree("b")]), None),
        (Model, Model(Day=DAY), '{"Day": "2026-11-30", "path": "/a"}'),
        (list[Model], [Model(Day=DAY)], '[{"Day": "2026-11-30", "path": "/a"}]'),
        (Struct, Struct(np.float32(0.5), Model(Day=DAY)), None),
        (np.int64, np.int64(3), "3"),
        (float, 0.5, None),
        (Annotated[int, msgspec.Meta(gt=0)], 3, "3"),
    ],
    ids=str,
)
def test_a_value_comes_back_as_the_annotation_names_it(kind, value, text):
    converter = converter_of(kind) or converter_of(list[Codec] | kind)

    stored = json.dumps(converter.to_json(value, "parameters"))

    assert stored == text or text is None
    built = converter.from_json(json.loads(stored), "parameters")
    assert built == value and type(built) is type(value)


@pytest.mark.parametrize(
    ("kind", "dtype"), [(npt.NDArray[np.float32], "float32"), (np.ndarray, "float64")]
)
def test_an_array_of_numpy_is_a_list_and_the_annotation_says_of_what(kind, dtype):
    converter = converter_of(kind)

    stored = converter.to_json(np.array([[0.5, 1]], np.float32), "parameters")

    assert stored == [[0.5, 1.0]]
    built = converter.from_json(stored, "parameters")
    assert (built.tolist(), built.dtype) == (stored, dtype)


def test_a_default_that_was_not_given_is_written_with_a_value_that_is_passed_on():
    for kind in (list[Child], set[Frozen]):
        converter = converter_of(kind)
        assert converter is not None
        built = converter.from_json([{"y": 1}], "the parameters")

        assert converter.to_json(built, "the result") == [{"x": 0, "y": 1}]


def test_numbers_of_numpy_are_numbers_wherever_they_are():
    value = {"title": "M", "more": [np.float32(0.5), np.int64(2)]}

    assert converter_of(Fields).to_json(value, "the result")["more"] == [0.5, 2]


LOOP = Tree("a")
LOOP.below.append(LOOP)


@pytest.mark.parametrize(
    ("kind", "value", "sentence"),
    [
        (Tree, Tree("a", [Tree("b"), Tree(3)]), "parameters.below[1].name: expected str, got int"),
        (Tree, 3, "parameters: expected object, got int"),
        (Tree, LOOP, "parameters: nested too deeply for JSON"),
        (
            Fields,
            {"title": "M", "more": {"days": [DAY]}},
            "parameters.more.days[0]: it is of the type date, which the annotation does not name",
        ),
        (
            Tree,
            Tree("a", more={"size": {3}}),
            "parameters.more.size: it is of the type set, which the annotation does not name",
        ),
        (
            Tree,
            Tree(Codec.AV1),
            "parameters.name: it is of the type Codec, which the annotation does not name",
        ),
        (
            Tree,
            Tree("a", more={"of": {1: 2}}),
            "parameters.more.of: it has the key 1, not a string: write it as one",
        ),
        (
            Tree,
            Tree("a", more={"one": object()}),
            "parameters.more.one: it is of the type object, which the annotation does not name",
        ),
        (
            Tree,
            Tree("a", more={"at": np.datetime64(0, "s")}),
            "parameters: it is of the type datetime64[s], which JSON does not have",
        ),
        (
            Fields,
            {"title": "M", "more": np.arange(2)},
            "parameters.more: it is of the type ndarray, which the annotation does not name",
        ),
        (Model, {"Day": "2026"}, "parameters.Day: input should be a valid date"),
        (Struct, {"score": 1, "model": {}}, "parameters.model.Day: field required"),
        (Struct, {"score": "1"}, "parameters.score: expected float32, got str"),
        (list[np.int64], [1.5], "parameters[0]: expected int64, got float"),
        (np.int8, 300, "parameters: python integer 300 out of bounds for int8"),
        (np.ndarray, np.array(["2026-01-01"], "M8[D]"), "parameters: it is of the type datetime64"),
        (np.ndarray, np.zeros((0, 3)), "parameters: its shape (0, 3)"),
        (np.ndarray, {"a": 1}, "parameters: expected ndarray, got dict"),
        (set[Any], {datetime.date(2026, 1, 1)}, "parameters: it would come back as another value"),
        (Base, Child(1, 2), "parameters: it is a Child, and would come back as a Base"),
        (
            Base,
            {"x": 1, "z": 2},
            "parameters: it has the key 'z', which the annotation does not name",
        ),
        (Hidden, Hidden(password="a"), "parameters.password: it would come back as another value"),
        (
            Hidden,
            Hidden(password="", kept=1),
            "parameters.kept: it would come back as another value",
        ),
        (pathlib.Path, 3, "parameters: expected Path, got int"),
    ],
)
def test_what_would_not_come_back_is_refused_with_its_place(kind, value, sentence):
    with pytest.raises(InvalidInput) as refused:
        converter_of(kind).to_json(value, "parameters")

    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize("kind", [Coded, Coded | None])
def test_a_value_is_refused_when_its_validator_has_a_bug(kind):
    for convert in (converter_of(kind).to_json, converter_of(kind).from_json):
        with pytest.raises(InvalidType, match=r"^parameters: a validator raised KeyError\('b'\)$"):
            convert({"code": "b"}, "parameters")


@pytest.mark.parametrize("kind", [complex, collections.deque, typing.Callable, Tree | Model])
def test_an_annotation_whose_values_cannot_be_built_is_refused(kind):
    with pytest.raises(InvalidType, match=r"can be (built|converted)"):
        converter_of(list[Codec] | dict[str, kind])


WITHOUT = """
import sys
sys.modules["msgspec"] = None
import dataclasses, typing, blueque, pydantic
class Model(pydantic.BaseModel):
    title: str
@blueque.handler("plain")
def plain(task, film: dict[str, typing.Any]) -> list[str]: ...
@blueque.handler("model")
def model(task, film: Model) -> Model: ...
print(model.types.parameters.from_json({"title": "M"}, "parameters"))
@dataclasses.dataclass
class Film:
    title: str
try:
    @blueque.handler("film")
    def film(task, film: Film): ...
except blueque.NotInstalled as error:
    print(error)
"""


def test_without_the_package_a_handler_that_needs_it_says_so_where_it_is_decorated():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)

    assert done.stdout.splitlines() == [
        "title='M'",
        "converting values of the type Film needs msgspec, which is not installed; in the clone of Blueque: "
        "pip install '.[types]'",
    ], done.stderr
