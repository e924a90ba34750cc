"""Which columns hold which fields of the tasks. Checks their types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.errors import InvalidInput, InvalidType
from blueque.spark.write_options import Target

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
    """Which columns hold which fields.

    parameters: the columns of the parameters. names: their names in JSON.
    is_value: the parameters are the value of one column. is_text: it is text, taken as it is.
    are_json: the parameters are JSON text. max_bytes: the most bytes of the parameters of a task.
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
        """Return the layout with these names of the columns."""

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
        """The names of all needed columns, each once."""
        others = (name for name in (self.eta, self.priority) if isinstance(name, str))
        return tuple(dict.fromkeys([*self.parameters, *self.keys, *others]))


def lay_out(schema: StructType, target: Target, is_case_sensitive: bool = False) -> Layout:
    """Return which columns hold which fields. Raises InvalidInput and InvalidType, which name the column."""
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


def kind(data_type: DataType) -> str:
    """Return the SQL name of a type, without its parameters."""
    name = data_type.simpleString().partition("(")[0].partition("<")[0].partition(" collate ")[0]
    return "string" if name in ("char", "varchar") else name


def require_json(data_type: DataType, name: str) -> None:
    """Refuse a type that `to_json` turns into nothing useful for a task."""
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
    """The columns of a frame. Names match in any case, unless Spark is configured otherwise."""

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
