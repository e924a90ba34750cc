"""A file of JSON lines: each line is a row. A line that becomes the parameters as a whole is passed
on unchanged.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from typing import IO, NoReturn, cast

from blueque.backlog.files import BacklogFile
from blueque.backlog.rows import Block, Encoded, Rows, Shape, chosen, column, key_of
from blueque.errors import BacklogRefused, InvalidInput, TooLarge
from blueque.model.encoding import quick_encoder
from blueque.text.json_errors import as_json

_LINES, _BYTES = 1000, 1 << 20  # lines and bytes in one read
_LONGEST = 64 << 20  # bytes of a line; a binary file may be one line


class JsonRows(Rows):
    """The lines of one file, gzip or plain. Without an offset, the lines before `row` are read again."""

    unit = "line"

    def __init__(self, file: BacklogFile, shape: Shape, row: int = 0, offset: int = 0) -> None:
        super().__init__(file, shape, row, offset)
        self._encode = quick_encoder(shape.max_bytes)
        self._decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
        self._is_whole = shape.params is None and shape.key is None and not file.constants
        try:
            self._packed: IO[bytes] | None = None  # the compressed file, if it is compressed
            self._size = os.path.getsize(file.path)
            self._stream = self._open()
        except OSError as error:
            raise self._unreadable(error) from error
        if row and not self.offset:
            self._skip(row)

    def close(self) -> None:
        self._stream.close()
        if self._packed is not None:
            self._packed.close()

    @property
    def share(self) -> float:
        place = self.offset if self._packed is None else self._packed.tell()
        return place / max(self._size, 1)

    def _open(self) -> IO[bytes]:
        """Open the file at the next row, if its offset is known; else at the beginning."""
        opened = open(self.file.path, "rb", _BYTES)  # noqa: SIM115  # closed in `close`
        if not self.file.path.lower().endswith(".gz"):
            opened.seek(self.offset)
            return opened
        self.offset, self._packed = 0, opened
        return cast(IO[bytes], io.BufferedReader(gzip.GzipFile(fileobj=opened), _BYTES))

    def _skip(self, count: int) -> None:
        try:
            for _ in range(count):
                _, length = self._line()
                self.offset += length if self._packed is None else 0
        except BacklogRefused:
            self.close()
            raise

    def _read(self) -> Block | None:
        parameters: list[Encoded] = []
        keys: list[bytes] = []
        left_out: dict[int, BacklogRefused | None] = {}
        sizes: list[int] = []
        size = 0
        while len(sizes) < _LINES and size < _BYTES:
            line, length = self._line()
            if not length:
                break
            text, key = (b"", False), b""
            try:
                if length > _LONGEST:
                    raise TooLarge("the line", length, _LONGEST)
                if not line.strip():
                    left_out[len(sizes)] = None
                else:
                    text, key = self._make(line, is_first=self.row + len(sizes) == 0)
            except InvalidInput as error:
                left_out[len(sizes)] = self._refusal(len(sizes), error)
            parameters.append(text)
            keys.append(key)
            sizes.append(length)
            size += length
        if not sizes:
            return None
        known = sizes if self._packed is None else None
        return Block(parameters, keys if self.shape.key else None, left_out, known)

    def _line(self) -> tuple[bytes, int]:
        """Return the next line, or the beginning of one too long, and its bytes; 0 at the end."""
        try:
            line = self._stream.readline(_LONGEST)
            length = len(line)
            end = line
            while len(end) == _LONGEST and not end.endswith(b"\n"):
                end = self._stream.readline(_LONGEST)
                length += len(end)
        except (OSError, EOFError, zlib.error) as error:
            raise self._unreadable(error) from error
        return line, length

    def _make(self, line: bytes, is_first: bool) -> tuple[Encoded, bytes]:
        """Return the parameters and the key of a line. Raises InvalidInput."""
        line = line.strip()
        if is_first:
            line = line.removeprefix(b"\xef\xbb\xbf")
        try:
            value = self._decode(line.decode())
        except (ValueError, RecursionError) as error:
            as_json(line)  # it raises an error with the reason
            raise InvalidInput(f"not valid JSON: {error}") from error
        if self._is_whole:
            if isinstance(value, str) or len(line) > self.shape.max_bytes:
                return self._encode(value), b""
            if b"\\u" in line:
                self._encode(value)  # it refuses half of a surrogate pair
            return (line, True), b""
        if not isinstance(value, dict):
            raise InvalidInput(f"an object with columns is needed, not {type(value).__name__}")
        value |= self.file.constants
        key = (
            key_of(column(value, self.shape.key), self.shape.key)
            if self.shape.key is not None
            else b""
        )
        return self._encode(chosen(value, self.shape)), key

    def _unreadable(self, error: Exception) -> BacklogRefused:
        return BacklogRefused(
            self.file.name, None, f"cannot be read: {getattr(error, 'strerror', None) or error}"
        )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
