"""Retry: whether and when a task runs again after a failure or an interruption."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from blueque.errors import InvalidInput, InvalidType
from blueque.model.encoding import require_number, require_whole

DAY = 86400.0
MOST = 1_000_000  # of failures and of interruptions
MAX_NAME = 500  # characters in the name of an exception class
MOST_NAMES = 20  # of the classes of one exception

_DEFAULTS = {
    "max": 3,
    "backoff": 10.0,
    "factor": 2.0,
    "jitter": 0.1,
    "on": (),
    "exit_codes": (),
    "interruptions": 3,
    "not_on": (),
}


class Retry:
    """A policy for running a task again after it has started.

    Without a policy, a task starts again only when a person asks for it.
    max: how many failures are retried; 3 means four attempts in all.
    backoff, factor: the seconds before the second attempt, and the factor by which each later wait
        grows, up to a day.
    jitter: the share by which a wait is longer or shorter at random, so that tasks that fail
        together do not run again together.
    on: retry only after these exception classes and their subclasses. A name such as
        `"requests.exceptions.Timeout"` works, too; without a module, as `"ValueError"`, it matches
        every class of that name. Other values of error_type work, too, such as `"signal"`. A result
        that cannot be stored is retried only if `"result"` is named here.
    exit_codes: retry only after these, 0 to 255. With `on` and `exit_codes`, either is enough; with
        neither, every failure is retried.
    interruptions: how many attempts may be lost with their node before the task fails as `poison`.
    not_on: never retry after these, named as for `on`, even if `on` or `exit_codes` match. A loss
        with the node is not a failure: see `interruptions`.
    Raises InvalidInput, InvalidType.
    """

    __slots__ = tuple(_DEFAULTS)

    max: int
    backoff: float
    factor: float
    jitter: float
    on: tuple[str, ...]
    exit_codes: tuple[int, ...]
    interruptions: int
    not_on: tuple[str, ...]

    def __init__(
        self,
        max: int = 3,
        backoff: float = 10.0,
        factor: float = 2.0,
        jitter: float = 0.1,
        on: Iterable[type[BaseException] | str] = (),
        exit_codes: Iterable[int] = (),
        interruptions: int = 3,
        not_on: Iterable[type[BaseException] | str] = (),
    ) -> None:
        values = {
            "max": require_whole(max, "max", 0, MOST),
            "backoff": require_number(backoff, "backoff", 0, DAY),
            "factor": require_number(factor, "factor", 1, 1000),
            "jitter": require_number(jitter, "jitter", 0, 1),
            "on": _names(on, "on"),
            "exit_codes": _sorted(
                require_whole(code, "an exit code", 0, 255)
                for code in _several(exit_codes, "exit_codes")
            ),
            "interruptions": require_whole(interruptions, "interruptions", 0, MOST),
            "not_on": _names(not_on, "not_on"),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @staticmethod
    def from_text(text: str) -> Retry:
        """Return the policy for `3` or `{"max": 3, "backoff": 60}`. Raises InvalidInput."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _unclear(text) from error
        if isinstance(values, dict):
            if unknown := sorted(values.keys() - _DEFAULTS.keys()):
                raise InvalidInput(
                    f"a retry policy has no {', '.join(map(repr, unknown))}; it has {', '.join(_DEFAULTS)}"
                )
            return Retry(**values)
        if not isinstance(values, int):
            raise _unclear(text)
        return Retry(max=values)

    @staticmethod
    def parse(text: str | None) -> Retry | None:
        """Return the policy in a field in Redis; None: there is none, or it is invalid."""
        if text is None:
            return None
        try:
            return Retry.from_text(text)
        except InvalidInput:
            return None

    @staticmethod
    def of(text: str | None, default: Retry | None) -> Retry | None:
        """Return the policy of a task. The default applies only if there is no field.

        text: the field `retry` of the task.
        """
        return default if text is None else Retry.parse(text)

    def to_text(self) -> str:
        """Return the policy as text for Redis."""
        return json.dumps(self._given(), separators=(",", ":"))

    def allows(self, failures: int, record: Mapping[str, Any]) -> bool:
        """Return whether the task runs again after this failure.

        failures: how many earlier failures were retried.
        record: its exit record, see `spool.Attempt.write_exit`.
        """
        if failures >= self.max or record.get("retry") == "never":
            return False
        if record.get("error_type") == "result" and "result" not in self.on:
            return False  # it would take as long again, to end in the same way
        if not self.on and not self.exit_codes and not self.not_on:
            return True
        classes = record.get("error_types")
        names = [record.get("error_type"), *(classes if isinstance(classes, list) else [])]
        if any(name in self.not_on for name in names):
            return False
        if not self.on and not self.exit_codes:
            return True
        code = record.get("exit_code")
        # The exit code of sys.exit(-1) is 255.
        return any(name in self.on for name in names) or (
            isinstance(code, int) and code & 255 in self.exit_codes
        )

    def delay(self, failures: int) -> float:
        """Return how many seconds to wait before the next attempt.

        failures: as for `allows`.
        """
        try:
            seconds = min(self.backoff * self.factor**failures, DAY)
        except OverflowError:
            seconds = DAY if self.backoff else 0.0
        # Not the random module: see backoff.py.
        part = int.from_bytes(os.urandom(4), "big") / 0xFFFFFFFF
        return seconds * (1 + self.jitter * (2 * part - 1))

    def allows_interruption(self, interruptions: int) -> bool:
        """Return whether the task runs again after a loss, with this many earlier interruptions."""
        return interruptions < self.interruptions

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Retry cannot be changed: make a new one with another {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Retry cannot be changed: {name} stays")

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if isinstance(other, Retry) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"Retry({', '.join(f'{name}={value!r}' for name, value in self._given().items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Retry, self._values()  # copy and pickle would set attributes

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in _DEFAULTS)

    def _given(self) -> dict[str, Any]:
        """Return `max` and the values that are not the defaults."""
        values = dict(zip(_DEFAULTS, self._values(), strict=True))
        return {
            name: value
            for name, value in values.items()
            if name == "max" or value != _DEFAULTS[name]
        }


def class_name(kind: type) -> str:
    """Return the name of a class in recorded errors: with its module, unless it is built in."""
    module = vars(kind).get("error_type_module", kind.__module__)
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def class_names(kind: type) -> list[str]:
    """Return the names of an exception class and its bases, nearest first, with and without module."""
    names: list[str] = []
    for base in kind.__mro__:
        if base not in (BaseException, object):
            names += [class_name(base), base.__qualname__]
    return list(dict.fromkeys(names))[:MOST_NAMES]


def _sorted(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return each value once, sorted, so that equal policies compare equal."""
    return tuple(sorted(set(values)))


def _several(values: object, what: str) -> Iterable[Any]:
    """Return an iterable of values. A str is refused, because it would be an iterable of letters."""
    if not isinstance(values, list | tuple | set | frozenset):
        shown = values.__name__ if isinstance(values, type) else type(values).__name__
        raise InvalidType(f"{what} is a list or tuple, not {shown}")
    return values


def _names(kinds: object, what: str) -> tuple[str, ...]:
    return _sorted(_name(kind, what) for kind in _several(kinds, what))


def _name(kind: object, what: str) -> str:
    if isinstance(kind, type) and issubclass(kind, BaseException):
        kind = class_name(kind)
    if not isinstance(kind, str):
        raise InvalidType(f"{what}: {kind!r} is neither an exception class nor the name of one")
    name = kind.removeprefix("builtins.")
    if name.split() != [name] or len(name) > MAX_NAME:
        raise InvalidInput(f"{what}: {name[:60]!r} is not the name of an exception class")
    if name == "BaseException":
        instead = "leave `on` out" if what == "on" else "say max=0"
        raise InvalidInput(f"{what}: BaseException is every failure: {instead}")
    return name


def _unclear(text: str) -> InvalidInput:
    return InvalidInput(
        f'{text[:60]!r} is not a retry policy: write 3, or {{"max": 3, "backoff": 60}}'
    )
