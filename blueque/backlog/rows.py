"""The rows of a backlog file as parameters of tasks: which columns are used, and how rows are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from blueque.backlog.files import BacklogFile
from blueque.errors import BacklogRefused, InvalidInput, InvalidType
from blueque.model.ids import require_key

_NAMED = 20  # columns that are named when one is missing

Encoded = tuple[bytes, bool]  # parameters in UTF-8, and whether they are JSON


class Shape(NamedTuple):
    """How a row becomes a task.

    params: the columns that make the dict of parameters; one name: the value of that column alone;
        None: all columns.
    key: the column that is the key; None: rows have none. max_bytes: the size limit of parameters.
    skip_bad: leave out rows that cannot be a task; else the first one ends the feed.
    """

    params: tuple[str, ...] | str | None = None
    key: str | None = None
    max_bytes: int = 1 << 20
    skip_bad: bool = False


class Block(NamedTuple):
    """Consecutive rows, as in their file.

    parameters, keys: of each row; undefined for rows that are left out. sizes: the bytes of each
        row in the file, if known.
    left_out: rows that become no task, by their place, and why; None: they are blank.
    """

    parameters: Sequence[Encoded] = ()
    keys: Sequence[bytes] | None = None
    left_out: Mapping[int, BacklogRefused | None] = {}
    sizes: Sequence[int] | None = None


class Portion:
    """Rows on their way into one transaction.

    parameters, keys: of the rows that become tasks. places: their places among all rows of the
        portion.
    bad: the rows that are left out.
    rows: how many rows in all, with blank ones. size: bytes of parameters.
    """

    def __init__(self) -> None:
        self.parameters: list[Encoded] = []
        self.keys: list[bytes] = []
        self.places: list[int] = []
        self.bad: list[BacklogRefused] = []
        self.rows = self.size = 0


class Rows(ABC):
    """The rows of one file from a row on. row, offset: the next row, as in protocol.feeding.Cursor."""

    unit = "row"

    def __init__(self, file: BacklogFile, shape: Shape, row: int, offset: int) -> None:
        self.file, self.shape, self.row, self.offset = file, shape, row, offset
        self._block, self._at = Block(), 0

    def take(self, portion: Portion, count: int, room: int) -> bool:
        """Add rows until the portion has `count` rows, or `room` bytes of parameters. False: the
        file has no more.

        Blank rows that follow are added in any case, so that the end of the file is seen with its
        last row.
        Raises BacklogRefused for a bad row, after the rows before it were added.
        """
        while self._fill():
            is_full = portion.rows >= count or portion.size >= room
            if self._at in self._block.left_out:
                if is_full and self._block.left_out[self._at] is not None:
                    return True
                self._leave_out(portion)
            elif is_full:
                return True
            else:
                self._give(portion, count - portion.rows, room)
        return False

    @abstractmethod
    def close(self) -> None:
        """Close the file."""

    @property
    @abstractmethod
    def share(self) -> float:
        """The share of the file that is done, 0 to 1, roughly."""

    @abstractmethod
    def _read(self) -> Block | None:
        """Return the next rows. None: there are no more."""

    def _fill(self) -> bool:
        """Read rows if there are none left. False: the file has no more."""
        while self._at == len(self._block.parameters):
            block = self._read()
            if block is None:
                return False
            self._block, self._at = block, 0
        return True

    def _give(self, portion: Portion, count: int, room: int) -> None:
        block, end = self._block, min(self._at + count, len(self._block.parameters))
        if block.left_out:
            end = min([end, *[place for place in block.left_out if place > self._at]])
        some = block.parameters[self._at : end]
        size = sum([len(text) for text, _ in some])
        if portion.size + size > room:
            taken = 0
            while portion.size < room:  # at least one row; the last may exceed the room
                portion.size += len(some[taken][0])
                taken += 1
            some, size = some[:taken], 0
        portion.size += size
        portion.parameters += some
        portion.places += range(portion.rows, portion.rows + len(some))
        if block.keys is not None:
            portion.keys += block.keys[self._at : self._at + len(some)]
        self._advance(portion, len(some))

    def _leave_out(self, portion: Portion) -> None:
        why = self._block.left_out[self._at]
        if why is not None:
            if not self.shape.skip_bad:
                raise why
            portion.bad.append(why)
        self._advance(portion, 1)

    def _advance(self, portion: Portion, count: int) -> None:
        if self._block.sizes is not None:
            self.offset += sum(self._block.sizes[self._at : self._at + count])
        self._at += count
        self.row += count
        portion.rows += count

    def _refusal(self, place: int, reason: object) -> BacklogRefused:
        """Return the refusal of a row. place: in the block that is being read."""
        return BacklogRefused(self.file.name, self.row + place + 1, str(reason), self.unit)


def chosen(row: Mapping[str, Any], shape: Shape) -> Any:
    """Return the parameters of a row. Raises InvalidInput if a column is missing."""
    if shape.params is None:
        return row
    if isinstance(shape.params, str):
        return column(row, shape.params)
    return {name: column(row, name) for name in shape.params}


def column(row: Mapping[str, Any], name: str) -> Any:
    if name not in row:
        columns = ", ".join(map(str, [*row][:_NAMED])) + (", ..." if len(row) > _NAMED else "")
        raise InvalidInput(f"there is no {name!r} in it{f'; there are {columns}' if row else ''}")
    return row[name]


def key_of(value: object, name: str) -> bytes:
    """Return the key in UTF-8; a whole number stands for its digits. Raises InvalidInput."""
    if isinstance(value, int) and not isinstance(value, bool):
        return b"%d" % value
    if not isinstance(value, str):
        kind = "nothing" if value is None else f"a {type(value).__name__}"
        raise InvalidType(f"{name!r} holds {kind}; a key is text, or a whole number")
    return require_key(value, f"the key in {name!r}").encode()
