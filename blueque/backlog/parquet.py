"""A Parquet file, read in pieces: from columns to the text of parameters, with little work per row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

from blueque.backlog.files import BacklogFile
from blueque.backlog.rows import Block, Encoded, Rows, Shape, chosen, key_of
from blueque.errors import BacklogRefused, InvalidInput
from blueque.model.encoding import encode, require_text_keys
from blueque.tables.arrow import pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS, _BYTES = 4096, 4 << 20  # rows and bytes that are decoded at a time
_BUFFER = 1 << 20  # bytes of a column that are read ahead

ToJson = Callable[[Any], Any]


class ParquetRows(Rows):
    """The rows of one file."""

    def __init__(
        self, file: BacklogFile, shape: Shape, row: int = 0, offset: int = 0, crc: int = 0
    ) -> None:
        super().__init__(file, shape, row, 0)
        self._pa = pyarrow()
        # here, because it takes 100 ms; pyarrow() raises if it is missing
        import pyarrow.parquet as parquet

        try:
            # Buffered, and not read ahead: else a whole row group is in memory.
            self._opened = parquet.ParquetFile(file.path, buffer_size=_BUFFER, pre_buffer=False)
        except (OSError, self._pa.ArrowException) as error:
            raise self._unreadable(error) from error
        self._columns = self._require_columns()
        self._batches = self._from_row(row)

    def close(self) -> None:
        self._opened.close()

    @property
    def share(self) -> float:
        return self.row / max(self._opened.metadata.num_rows, 1)

    def _require_columns(self) -> dict[str, ToJson]:
        """Return the columns to read, and the functions that make their values fit for JSON."""
        schema, shape, constants = self._opened.schema_arrow, self.shape, self.file.constants
        there = [name for name in schema.names if name not in constants]
        if not there or len(set(there)) < len(there):
            raise self._refused(
                "it has no columns" if not there else "it has two columns of one name"
            )
        wanted = (
            there
            if shape.params is None
            else [shape.params]
            if isinstance(shape.params, str)
            else [*shape.params]
        )
        columns: dict[str, ToJson] = {}
        for name in wanted if shape.key is None else [*wanted, shape.key]:
            if name not in there and name not in constants:
                raise self._refused(
                    f"there is no column {name!r}; there are {', '.join([*there, *constants])}"
                )
            if name not in constants:
                convert = _converter(self._pa, schema.field(name).type)
                if convert is None:
                    kind = schema.field(name).type
                    raise self._refused(
                        f"column {name!r} is of type {kind}, which JSON has not; choose others with params"
                    )
                columns[name] = convert
        return columns

    def _from_row(self, row: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows from this one on, in batches."""
        metadata, group = self._opened.metadata, 0
        while group < metadata.num_row_groups and row >= metadata.row_group(group).num_rows:
            row -= metadata.row_group(group).num_rows
            group += 1
        groups = range(group, metadata.num_row_groups)
        weight = (
            sum(metadata.row_group(number).total_byte_size for number in groups)
            // max(metadata.num_rows, 1)
            + 1
        )
        size = max(16, min(_ROWS, _BYTES // weight))
        for batch in self._opened.iter_batches(
            size, row_groups=[*groups], columns=self._columns, use_threads=False
        ):
            if row >= len(batch):
                row -= len(batch)
                continue
            yield batch.slice(row)
            row = 0

    def _read(self) -> Block | None:
        try:
            batch = next(self._batches, None)
        except (OSError, self._pa.ArrowException) as error:
            raise self._unreadable(error) from error
        if batch is None:
            return None
        try:
            return self._block_of(batch)
        except (InvalidInput, ValueError, OverflowError):
            # a row is bad: find it one by one
            return self._block_one_by_one(batch)

    def _block_of(self, batch: pa.RecordBatch) -> Block:
        """Return the rows, made column by column. Raises InvalidInput and ValueError if a row is
        bad.
        """
        shape = self.shape
        keys = None
        if shape.key is not None:
            keys = [key_of(value, shape.key) for value in self._values(batch, shape.key)]
        if isinstance(shape.params, str):
            return Block(
                [self._encoded(value) for value in self._values(batch, shape.params)], keys
            )
        names = [*self._columns, *self.file.constants] if shape.params is None else shape.params
        template = ",".join([_to_json(name).replace("%", "%%") + ":%s" for name in names]).join(
            "{}"
        )
        texts = [self._texts(batch, name) for name in names]
        parameters = [(template % row).encode() for row in zip(*texts, strict=True)]
        if parameters and max(map(len, parameters)) > shape.max_bytes:
            raise ValueError("too large")
        return Block([(text, True) for text in parameters], keys)

    def _block_one_by_one(self, batch: pa.RecordBatch) -> Block:
        parameters: list[Encoded] = []
        keys: list[bytes] = []
        left_out: dict[int, BacklogRefused | None] = {}
        for place in range(len(batch)):
            encoded, key = (b"", False), b""
            try:
                row = {
                    name: self._values(batch.slice(place, 1), name)[0]
                    for name in [*self._columns, *self.file.constants]
                }
                encoded = self._encoded(chosen(row, self.shape))
                if self.shape.key is not None:
                    key = key_of(row[self.shape.key], self.shape.key)
            except (InvalidInput, ValueError, OverflowError) as error:
                left_out[place] = self._refusal(place, error)
            parameters.append(encoded)
            keys.append(key)
        return Block(parameters, keys if self.shape.key is not None else None, left_out)

    def _values(self, batch: pa.RecordBatch, name: str) -> list[Any]:
        """Return the values of a column, fit for JSON."""
        if name in self.file.constants:
            return [self.file.constants[name]] * len(batch)
        values, convert = _coarse(self._pa, batch.column(name)).to_pylist(), self._columns[name]
        return values if convert is _same else [convert(value) for value in values]

    def _texts(self, batch: pa.RecordBatch, name: str) -> Sequence[object]:
        """Return the JSON of each value of a column, or an object whose str is the JSON."""
        if name in self.file.constants:
            return [_to_json(self.file.constants[name])] * len(batch)
        array, types = batch.column(name), self._pa.types
        if not array.null_count and types.is_integer(array.type):
            return array.to_pylist()
        if not array.null_count and (
            types.is_string(array.type) or types.is_large_string(array.type)
        ):
            return [*map(encode_basestring, array.to_pylist())]
        return [_to_json(value) for value in self._values(batch, name)]

    def _encoded(self, value: Any) -> Encoded:
        text, encoding = encode(value, "the parameters", self.shape.max_bytes)
        if encoding is not None:
            require_text_keys(value, "the parameters")
        return text.encode(), encoding is not None

    def _unreadable(self, error: Exception) -> BacklogRefused:
        return self._refused(f"cannot be read as Parquet: {str(error).partition(chr(10))[0]}")

    def _refused(self, reason: str) -> BacklogRefused:
        return BacklogRefused(self.file.name, None, reason)


def count_rows(file: BacklogFile) -> int:
    """Return how many rows the file has; 0 when it cannot be read: feeding it raises the error."""
    pa = pyarrow()
    import pyarrow.parquet as parquet  # here, because it takes 100 ms

    try:
        rows: int = parquet.read_metadata(file.path).num_rows
    except (OSError, pa.ArrowException):
        return 0
    return rows


_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _same(value: Any) -> Any:
    return value


def _converter(pa: Any, kind: pa.DataType) -> ToJson | None:
    """Return a function that makes a value of this type fit for JSON: times become ISO 8601,
    decimals text.
    None: there is none.
    """
    types = pa.types
    if any(test(kind) for test in (types.is_timestamp, types.is_date, types.is_time)):
        return _if_any(lambda value: value.isoformat())
    if types.is_decimal(kind):
        return _if_any(str)
    if types.is_dictionary(kind):
        return _converter(pa, kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = _converter(pa, kind.value_type)
        return None if inner is None else _of_each(inner)
    if types.is_struct(kind):
        inners = {
            kind.field(number).name: _converter(pa, kind.field(number).type)
            for number in range(kind.num_fields)
        }
        return (
            None
            if None in inners.values()
            else _if_any(
                lambda value: {
                    name: inner(value[name]) for name, inner in inners.items() if inner is not None
                }
            )
        )
    if types.is_map(kind) and types.is_string(kind.key_type):
        inner = _converter(pa, kind.item_type)
        return None if inner is None else _of_each_pair(inner)
    simple = (
        types.is_string,
        types.is_large_string,
        types.is_integer,
        types.is_floating,
        types.is_boolean,
        types.is_null,
    )
    return _same if any(test(kind) for test in simple) else None


def _of_each(convert: ToJson) -> ToJson:
    return _if_any(lambda value: [convert(item) for item in value])


def _of_each_pair(convert: ToJson) -> ToJson:
    return _if_any(lambda value: {name: convert(item) for name, item in value})


def _if_any(convert: ToJson) -> ToJson:
    return lambda value: None if value is None else convert(value)


def _coarse(pa: Any, array: pa.Array) -> pa.Array:
    """Return the array with times in nanoseconds cut to microseconds: Python has none finer."""
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        return array.cast(pa.timestamp("us", array.type.tz), safe=False)
    if pa.types.is_time(array.type) and array.type.unit == "ns":
        return array.cast(pa.time64("us"), safe=False)
    return array
