"""Which columns hold which fields of the tasks; checks their types first, and their values when
rows come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from blueque.errors import InvalidInput, InvalidType, TooLarge
from blueque.model.encoding import LAST_SECOND
from blueque.model.ids import MAX_KEY_BYTES
from blueque.model.lines import HIGHEST, LOWEST
from blueque.protocol.bulk import NewTasks
from blueque.spark.write_options import Target
from blueque.tables import json_texts
from blueque.text.format import count

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

SHOWN = 60  # characters of a value that an error quotes

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_KEYS = ("string", *_WHOLE, "date")
_ETAS = ("timestamp", *_WHOLE, "float", "double", "decimal")
_IN_JSON = (
    *_KEYS,
    "float",
    "double",
    "decimal",
    "boolean",
    "timestamp",
    "timestamp_ntz",
    "binary",
    "void",
)


class Layout(NamedTuple):
    """Which columns hold what.

    parameters: the columns that make the parameters. names: theirs in JSON.
    is_value: the one column of parameters is all of them. is_text: and it is text, taken as it is.
    are_json: the parameters are JSON. max_bytes: the most bytes of the parameters of a task.
    """

    parameters: tuple[str, ...]
    names: tuple[str, ...]
    is_value: bool
    is_text: bool
    are_json: bool
    max_bytes: int
    keys: tuple[str, ...]
    eta: str | float | None = None  # a column, or a value for all
    priority: str | None = None
    labels: Mapping[str, str] = {}  # what a user calls columns that have other names now

    def label(self, name: str) -> str:
        return self.labels.get(name, name)

    def renamed(self, names: Mapping[str, str]) -> Layout:
        """Return the layout of the frame whose columns have these names now."""

        def of(name: Any) -> Any:
            return names.get(name, name) if isinstance(name, str) else name

        return self._replace(
            parameters=tuple(map(of, self.parameters)),
            keys=tuple(map(of, self.keys)),
            eta=of(self.eta),
            priority=of(self.priority),
            labels={new: old for old, new in names.items()},
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that are needed, each once."""
        others = (name for name in (self.eta, self.priority) if isinstance(name, str))
        return tuple(dict.fromkeys([*self.parameters, *self.keys, *others]))


def lay_out(schema: StructType, target: Target, is_case_sensitive: bool = False) -> Layout:
    """Return which columns hold what. Raises InvalidInput and InvalidType, which name the column."""
    frame = _Frame(schema, is_case_sensitive)
    keys = tuple(
        frame.typed(name, "key", _KEYS, "text, a whole number or a date") for name in target.keys
    )
    eta = (
        frame.typed(target.eta, "eta", _ETAS, "a timestamp or Unix seconds")
        if isinstance(target.eta, str)
        else target.eta
    )
    priority = None
    if isinstance(target.priority, str):
        priority = frame.typed(target.priority, "priority", _WHOLE, "a whole number")
    names = target.parameters or tuple(name for name in frame.fields if name not in {eta, priority})
    _require_parameters(frame.fields, names, target)
    fields = [frame.field(name, "params") for name in names]
    is_value = len(fields) == 1 and (target.is_value or target.is_json)
    is_text = is_value and kind(fields[0].dataType) == "string"
    if target.is_json and not is_text:
        raise InvalidInput(
            "option 'json' says that params are one column of text, and they are not"
        )
    for field in () if is_text else fields:
        require_json(field.dataType, field.name)
    are_json = target.is_json or not is_text
    parameters = tuple(field.name for field in fields)
    return Layout(
        parameters, names, is_value, is_text, are_json, target.bytes_left, keys, eta, priority
    )


def read(batch: pa.RecordBatch, layout: Layout) -> NewTasks:
    """Return the rows of a batch as tasks whose ids are still to be made from their keys. Raises
    InvalidInput for the first refused row, with its value.
    """
    parameters = _parameters(batch, layout)
    keys = _keys(batch, layout, parameters)
    etas: list[float | None] | None = None
    if layout.eta is not None:
        etas = (
            _etas(batch.column(layout.eta))
            if isinstance(layout.eta, str)
            else [layout.eta] * len(parameters)
        )
    priorities = _priorities(batch.column(layout.priority)) if layout.priority is not None else None
    texts = list(zip(parameters, repeat(layout.are_json)))
    return NewTasks((), texts, priorities, etas, keys)


def kind(data_type: DataType) -> str:
    """Return the SQL name of a type, without what is in parentheses or behind a `<`."""
    name = data_type.simpleString().partition("(")[0].partition("<")[0].partition(" collate ")[0]
    return "string" if name in ("char", "varchar") else name


def require_json(data_type: DataType, name: str) -> None:
    """Refuse a type for which `to_json` makes nothing that a task could use."""
    inner = getattr(data_type, "fields", None)
    its_kind = kind(data_type)
    if its_kind == "struct" and inner is not None:
        for field in inner:
            require_json(field.dataType, f"{name}.{field.name}")
    elif its_kind == "array":
        require_json(data_type.elementType, name)
    elif its_kind == "map" and kind(data_type.keyType) in _KEYS:
        require_json(data_type.valueType, name)
    elif its_kind not in _IN_JSON:
        what = data_type.simpleString()
        raise InvalidType(
            f"params: column {name!r} is of type {what}, which has no JSON: cast it, or leave it out"
        )


def shown(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")


class _Frame:
    """The columns of a frame. A name is found in any case, as Spark finds it, unless Spark is told
    otherwise.
    """

    def __init__(self, schema: StructType, is_case_sensitive: bool) -> None:
        self.fields = {field.name: field for field in schema.fields}
        if len(self.fields) < len(schema.fields):
            names = [field.name for field in schema.fields]
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidInput(
                f"two columns are named {twice!r}: rename one, or select what is meant"
            )
        self._is_case_sensitive = is_case_sensitive

    def field(self, name: str, option: str) -> StructField:
        if name in self.fields:
            return self.fields[name]
        alike = (
            []
            if self._is_case_sensitive
            else [field for field in self.fields.values() if field.name.lower() == name.lower()]
        )
        if len(alike) > 1:
            raise InvalidInput(
                f"{option}: {name!r} may be {' or '.join(repr(field.name) for field in alike)}: write the name as it is"
            )
        if not alike:
            raise InvalidInput(
                f"{option}: there is no column {name!r}; there are {_list(self.fields)}"
            )
        return alike[0]

    def typed(self, name: str, option: str, allowed: Iterable[str], words: str) -> str:
        field = self.field(name, option)
        data_type = field.dataType
        if kind(data_type) not in allowed:
            no_zone = (
                " with a time zone"
                if kind(data_type) == "timestamp_ntz" and option == "eta"
                else ""
            )
            raise InvalidType(
                f"{option}: column {name!r} is of type {data_type.simpleString()}, not {words}{no_zone}"
            )
        return field.name


def _require_parameters(
    fields: dict[str, StructField], names: Sequence[str], target: Target
) -> None:
    if not names:
        raise InvalidInput("params: no column is left: name those that make the parameters")
    if not target.parameters and {"task_id", "parameters", "listed_as"} <= fields.keys():
        raise InvalidInput(
            "params: these rows are tasks as read from a queue: say which columns, as params='parameters'"
        )


def _list(names: Iterable[str]) -> str:
    known = list(names)
    return ", ".join(map(repr, known[:20])) + (", ..." if len(known) > 20 else "")


def _parameters(batch: pa.RecordBatch, layout: Layout) -> list[bytes]:
    columns = [batch.column(name) for name in layout.parameters]
    if not layout.is_value:
        made = list(map(str.encode, json_texts.objects(layout.names, columns)))
    elif not layout.is_text:
        made = list(map(str.encode, json_texts.texts(columns[0])))
    elif columns[0].null_count:
        raise InvalidType(
            f"params: column {layout.label(layout.parameters[0])!r} is null in {count(columns[0].null_count, 'row')} of a batch"
        )
    else:
        made = list(map(str.encode, columns[0].to_pylist()))
    if max(map(len, made), default=0) > layout.max_bytes:
        first = next(text for text in made if len(text) > layout.max_bytes)
        raise TooLarge(f"row {shown(first.decode())}: the parameters", len(first), layout.max_bytes)
    return made


def _keys(batch: pa.RecordBatch, layout: Layout, parameters: Sequence[bytes]) -> list[bytes]:
    columns = [batch.column(name) for name in layout.keys]
    for name, column in zip(layout.keys, columns, strict=True):
        if column.null_count:
            place = column.is_null().index(True).as_py()
            row = shown(parameters[place].decode())
            raise InvalidInput(
                f"key: column {layout.label(name)!r} is null in the row with the parameters {row}"
            )
    if len(columns) == 1:
        keys = list(map(str.encode, columns[0].cast("string").to_pylist()))
    else:
        parts = [json_texts.texts(column.cast("string")) for column in columns]
        keys = [f"[{','.join(row)}]".encode() for row in zip(*parts, strict=True)]
    if keys and not (all(keys) and max(map(len, keys)) <= MAX_KEY_BYTES):
        wrong = next(key for key in keys if not 0 < len(key) <= MAX_KEY_BYTES)
        raise InvalidInput(
            f"key: a key takes 1 to {MAX_KEY_BYTES} bytes, not {len(wrong)}: {shown(wrong.decode())}"
        )
    return keys


def _etas(column: pa.Array) -> list[float | None]:
    if pa.types.is_timestamp(column.type):
        etas = [
            None if eta is None else eta / 1e6
            for eta in column.cast("timestamp[us]").cast("int64").to_pylist()
        ]
    else:
        etas = column.cast("double").to_pylist()
    for eta in etas:
        if eta is not None and not -LAST_SECOND <= eta <= LAST_SECOND:
            raise InvalidInput(
                f"eta: {eta:.15g} is not a time before the year 10000: seconds, not milliseconds?"
            )
    return etas


def _priorities(column: pa.Array) -> list[int]:
    priorities = [0 if priority is None else priority for priority in column.to_pylist()]
    for priority in priorities:
        if not LOWEST <= priority <= HIGHEST:
            raise InvalidInput(f"priority: {priority} is not between {LOWEST} and {HIGHEST}")
    return priorities
