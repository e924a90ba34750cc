"""A Parquet file, read in pieces: from columns to the text of parameters, with little work per row.

The JSON is that of `blueque.spark`, byte for byte: see tables/json_texts.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from blueque.backlog.files import BacklogFile
from blueque.backlog.rows import Block, Encoded, Rows, Shape, key_of
from blueque.errors import BacklogRefused, InvalidInput, TooLarge
from blueque.tables import json_texts
from blueque.tables.arrow import pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS, _BYTES = 4096, 4 << 20  # rows and bytes that are decoded at a time
_BUFFER = 1 << 20  # bytes of a column that are read ahead


class ParquetRows(Rows):
    """The rows of one file."""

    def __init__(self, file: BacklogFile, shape: Shape, row: int = 0, offset: int = 0) -> None:
        super().__init__(file, shape, row, 0)
        self._pa = pyarrow()
        # here, because it takes 100 ms; pyarrow() raises if it is missing
        import pyarrow.parquet as parquet

        try:
            # Buffered, and not read ahead: else a whole row group is in memory.
            self._opened = parquet.ParquetFile(
                file.path, buffer_size=_BUFFER, pre_buffer=False, coerce_int96_timestamp_unit="us"
            )
        except (OSError, self._pa.ArrowException) as error:
            raise self._unreadable(error) from error
        self._types = _in_spark(self._opened)
        self._names = self._require_columns()
        self._batches = self._from_row(row)

    def close(self) -> None:
        self._opened.close()

    @property
    def share(self) -> float:
        return self.row / max(self._opened.metadata.num_rows, 1)

    def _require_columns(self) -> list[str]:
        """Return the names of the columns that make the parameters."""
        shape, constants = self.shape, self.file.constants
        there = [name for name in self._opened.schema_arrow.names if name not in constants]
        if not there or len(set(there)) < len(there):
            raise self._refused(
                "it has no columns" if not there else "it has two columns of one name"
            )
        names = [*there, *constants] if shape.params is None else [*_names(shape.params)]
        for name in names if shape.key is None else [*names, shape.key]:
            if name not in there and name not in constants:
                raise self._refused(
                    f"there is no column {name!r}; there are {', '.join([*there, *constants])}"
                )
        for name in names:
            part = None if name in constants else json_texts.without_json(self._types[name], name)
            if part is not None:
                raise self._refused(
                    f"column {part[0]!r} is of type {part[1]}, which JSON has not; choose others with params"
                )
        return names

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
        wanted = self._names if self.shape.key is None else [*self._names, self.shape.key]
        columns = [name for name in self._types if name in wanted]
        for batch in self._opened.iter_batches(
            size, row_groups=[*groups], columns=columns, use_threads=False
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
        """Return the rows, made column by column. Raises InvalidInput and ValueError for a bad row."""
        shape, keys = self.shape, None
        if shape.key is not None:
            column = self._column(batch, shape.key)
            if self._pa.types.is_date(column.type):
                column = column.cast(self._pa.string())
            keys = [key_of(value, shape.key) for value in column.to_pylist()]
        parameters = self._parameters([self._column(batch, name) for name in self._names])
        return Block(parameters, keys)

    def _parameters(self, columns: list[pa.Array]) -> list[Encoded]:
        texts: list[Any]
        is_json = True
        if not isinstance(self.shape.params, str):
            texts = json_texts.objects(self._names, columns)
        elif json_texts.is_text(columns[0].type):
            texts, is_json = columns[0].to_pylist(), False
        else:
            texts = json_texts.texts(columns[0])
        encoded = [b"null" if text is None else text.encode() for text in texts]
        if (largest := max(map(len, encoded), default=0)) > self.shape.max_bytes:
            raise TooLarge("the parameters", largest, self.shape.max_bytes)
        if is_json or None not in texts:
            return [(text, is_json) for text in encoded]
        return [(made, text is None) for made, text in zip(encoded, texts, strict=True)]

    def _block_one_by_one(self, batch: pa.RecordBatch) -> Block:
        parameters: list[Encoded] = []
        keys: list[bytes] = []
        left_out: dict[int, BacklogRefused | None] = {}
        for place in range(len(batch)):
            encoded, key = (b"", False), b""
            try:
                block = self._block_of(batch.slice(place, 1))
                encoded, key = block.parameters[0], (block.keys or [b""])[0]
            except (InvalidInput, ValueError, OverflowError) as error:
                left_out[place] = self._refusal(place, error)
            parameters.append(encoded)
            keys.append(key)
        return Block(parameters, keys if self.shape.key is not None else None, left_out)

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        if name in self.file.constants:
            value = self._pa.scalar(self.file.constants[name], self._pa.string())
            return self._pa.repeat(value, len(batch))
        column, kind = batch.column(name), self._types[name]
        return column if column.type == kind else column.cast(kind)

    def _unreadable(self, error: Exception) -> BacklogRefused:
        return self._refused(f"cannot be read as Parquet: {str(error).partition(chr(10))[0]}")

    def _refused(self, reason: str) -> BacklogRefused:
        return BacklogRefused(self.file.name, None, reason)


def _names(params: tuple[str, ...] | str) -> tuple[str, ...]:
    return (params,) if isinstance(params, str) else params


def _in_spark(opened: Any) -> dict[str, pa.DataType]:
    """Return the types of the columns. Those of Spark's INT96 are in UTC, which Arrow does not know."""
    schema = opened.schema
    leaves = iter([schema.column(place).physical_type for place in range(len(schema))])
    return {field.name: _typed(field.type, leaves) for field in opened.schema_arrow}


def _typed(kind: pa.DataType, leaves: Iterator[str]) -> pa.DataType:
    pa = pyarrow()
    if pa.types.is_map(kind):
        return pa.map_(_typed(kind.key_type, leaves), _typed(kind.item_type, leaves))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_typed(field.type, leaves)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        value = kind.value_field.with_type(_typed(kind.value_type, leaves))
        return pa.list_(value) if pa.types.is_list(kind) else pa.large_list(value)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_typed(kind.value_type, leaves)), kind.list_size)
    return pa.timestamp("us", "UTC") if next(leaves) == "INT96" else kind


def count_rows(file: BacklogFile) -> int:
    """Return how many rows the file has; 0 when it cannot be read: feeding it raises the error."""
    pa = pyarrow()
    import pyarrow.parquet as parquet  # here, because it takes 100 ms

    try:
        rows: int = parquet.read_metadata(file.path).num_rows
    except (OSError, pa.ArrowException):
        return 0
    return rows
