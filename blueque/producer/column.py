"""What each of many tasks has of its own, such as its key: a value for each of the parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from blueque.errors import InvalidInput, InvalidType

# The values; or a function of the parameters; or the name of a field of parameters that are dicts.
Column = Iterable[Any] | Callable[[Any], Any] | str

_END = object()


class Values:
    """What each task has of its own."""

    def __init__(self, name: str, source: Column | None, require: Callable[[Any], Any]) -> None:
        self._name, self._require = name, require
        self._field = source if isinstance(source, str) else None
        self._function = source if callable(source) else None
        self._values = (
            iter(source) if isinstance(source, Iterable) and self._field is None else None
        )
        if source is not None and (self._field, self._function, self._values) == (None, None, None):
            raise InvalidType(
                f"{name} are an iterable, a function or the name of a field, not {type(source).__name__}"
            )

    def take(self, rows: Sequence[Any], first: int, is_last: bool) -> list[Any] | None:
        """Return the values for the next parameters; None: there is no such column.

        first: the position of the first of them.
        """
        if self._values is None and self._field is None and self._function is None:
            return None
        found = [self._checked(row, first + number) for number, row in enumerate(rows)]
        if is_last and self._values is not None and next(self._values, _END) is not _END:
            raise InvalidInput(
                f"there are more {self._name} than the {first + len(rows)} parameters"
            )
        return found

    def _checked(self, row: Any, position: int) -> Any:
        if self._values is not None:
            value = next(self._values, _END)
            if value is _END:
                raise InvalidInput(
                    f"there are more parameters than {self._name}: none at position {position}"
                )
        elif self._function is not None:
            value = self._function(row)
        elif isinstance(row, Mapping) and self._field in row:
            value = row[self._field]
        else:
            raise InvalidInput(
                f"{self._name}: the parameters at position {position} have no field {self._field!r}"
            )
        try:
            return self._require(value)
        except InvalidInput as error:
            raise type(error)(f"{self._name}: at position {position}: {error}") from error
