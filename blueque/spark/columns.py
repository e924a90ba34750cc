"""The columns of a frame: which of them a user means, and how each is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Named(NamedTuple):
    """A frame, and which of its columns are meant."""

    frame: DataFrame
    key: str | Sequence[str] | None
    params: str | Sequence[str] | None
    eta: Any
    priority: Any


def named(frame: DataFrame, key: Any, params: Any, eta: Any, priority: Any) -> Named:
    """Return the frame with a column for each Column that is given, and names in their place."""
    columns = [one for one in [*_list(key), *_list(params), eta, priority] if is_column(one)]
    if not columns:
        return Named(frame, key, params, eta, priority)
    chosen = _Chosen(frame, columns)
    if params is not None:
        names = [chosen.parameter(one) for one in _list(params)]
        params = names if isinstance(params, list | tuple) else names[0]
    keys = [chosen.other(one, "key") for one in _list(key)]
    found = Named(
        frame,
        keys if isinstance(key, list | tuple) else keys[0] if keys else None,
        params,
        chosen.other(eta, "eta"),
        chosen.other(priority, "priority"),
    )
    if params is None:
        found = found._replace(
            params=[name for name in frame.columns if name not in (found.eta, found.priority)]
        )
    return found._replace(frame=frame.withColumns(chosen.added) if chosen.added else frame)


class _Chosen:
    """The columns that a user has given as Columns, and those that the frame needs for them."""

    def __init__(self, frame: DataFrame, columns: Sequence[Any]) -> None:
        self.added: dict[str, Column] = {}
        self._there = frame.columns
        self._names = dict(zip(map(id, columns), frame.select(*columns).columns, strict=True))

    def parameter(self, given: Any) -> Any:
        """Return the name in the parameters. A Column may replace a column of its name."""
        if not is_column(given) or self._is_plain(given):
            return self._names.get(id(given), given)
        self.added[self._names[id(given)]] = given
        return self._names[id(given)]

    def other(self, given: Any, option: str) -> Any:
        """Return the name of a column with these values, even if its own name was taken."""
        name = self._names.get(id(given), given)
        if is_column(given) and not self._is_plain(given):
            column_of_it = given
        elif isinstance(name, str) and name in self.added and name in self._there:
            column_of_it = column(name)
        else:
            return name
        while name in self._there or name in self.added:
            name = f"{name} ({option})"
        self.added[name] = column_of_it
        return name

    def _is_plain(self, given: Any) -> bool:
        name = self._names[id(given)]
        return name in self._there and str(given) == f"Column<'{name}'>"


def is_column(given: Any) -> bool:
    """Return whether it is a Column, of a session here or of Spark Connect."""
    return type(given).__module__.startswith("pyspark.sql") and hasattr(given, "alias")


def column(name: str) -> Column:
    """Return the column of that name, which may contain dots and spaces."""
    return F.col("`" + name.replace("`", "``") + "`")


def _list(given: Any) -> Sequence[Any]:
    if given is None:
        return []
    return given if isinstance(given, list | tuple) else [given]
