"""Kind: how a value is read from blueque.toml, an option or a variable, and how it is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.address import hide_password
from blueque.errors import InvalidInput
from blueque.model.encoding import require_whole
from blueque.model.lines import require_resources
from blueque.model.retry import Retry
from blueque.model.units import Keep
from blueque.settings import values
from blueque.text.hints import amount

_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_SECONDS = {"d": 86400, "h": 3600, "m": 60}


class Kind(NamedTuple):
    """A kind of values.

    read: returns a value of blueque.toml as programs use it. Raises InvalidInput, InvalidType.
    metavar: the value in `--help`; empty: an option without a value.
    parse: returns the value of blueque.toml for the text of an option or a variable; for a list,
        for its words. Raises InvalidInput.
    write: returns the value of blueque.toml for a result of `read`.
    is_list: an option may be given several times; a variable has words between spaces.
    """

    read: Callable[[Any], Any]
    metavar: str = ""
    parse: Callable[[Any], Any] = values.as_it_is
    write: Callable[[Any], Any] = values.as_it_is
    is_list: bool = False

    @property
    def is_flag(self) -> bool:
        """Whether it is true or false."""
        return not self.metavar

    def from_text(self, text: str) -> Any:
        """Return the value of a variable, or of an option that is not a list. Raises InvalidInput."""
        return self.read(self.parse(text.split() if self.is_list else text))

    def from_words(self, words: Sequence[str]) -> Any:
        """Return the value of an option that was given once or several times. Raises InvalidInput."""
        return self.read(self.parse(list(words)))


def whole(lowest: int, highest: int) -> Kind:
    """Return the kind of whole numbers in these bounds."""
    return Kind(lambda value: require_whole(value, "it", lowest, highest), "N", _parse_whole)


def one_of(words: tuple[str, ...]) -> Kind:
    """Return the kind of a choice of words."""
    return Kind(values.one_of(words), f"[{'|'.join(words)}]")


def texts(metavar: str, read: Callable[[Any], Any] = values.read_texts) -> Kind:
    """Return the kind of lists of texts."""
    return Kind(read, metavar, is_list=True)


def limit(name: str, metavar: str) -> Kind:
    """Return the kind of a limit of a task. None: without this limit."""

    def read(value: Any) -> int | float | None:
        is_none = value is False and name.endswith("_limit")
        return None if is_none else values.read_limit(name, value)

    def write(value: Any) -> Any:
        if value is None:
            return False
        return amount(value) if name == "memory_limit" else write_duration(value)

    return Kind(read, metavar, write=write)


def write_duration(seconds: float | None) -> str:
    """Return a duration exactly, as text such as 1d12h; None as "never"."""
    if seconds is None:
        return "never"
    text, rest = "", seconds
    for unit, size in _SECONDS.items():
        number, rest = divmod(rest, size)
        text += f"{number:g}{unit}" if number else ""
    return f"{text}{rest:g}s" if rest or not text else text


def _parse_whole(text: str) -> int:
    if not text.isascii() or not text.lstrip("-").isdecimal():
        raise InvalidInput(f"{text!r} is not a whole number")
    return int(text)


def _parse_yes_or_no(text: str) -> bool:
    if text.lower() not in (*_YES, *_NO):
        raise InvalidInput(f"{text!r} is not true or false")
    return text.lower() in _YES


def _parse_task_redis(text: str) -> bool | str:
    return _parse_yes_or_no(text) if text.lower() in (*_YES, *_NO) else text


def _write_task_redis(value: bool | str) -> bool | str:
    return hide_password(value) if isinstance(value, str) else value


def _parse_resources(words: Sequence[str]) -> dict[str, str]:
    amounts: dict[str, str] = {}
    for word in words:
        name, _, number = word.partition("=")
        if not number or name in amounts:
            raise InvalidInput(f"{word}: " + ("named twice" if number else "write NAME=AMOUNT"))
        amounts[name] = number
    return amounts


def _read_policy(value: Any) -> Any:
    return value if isinstance(value, Retry) else values.read_retry(value)


def _parse_policy(text: str) -> Any:
    return False if text.lower() in ("false", "0") else Retry.from_text(text)


def _write_room(room: float) -> str:
    return f"{room * 100:g}%" if room < 1 else amount(int(room))


def _write_policy(policy: Retry | bool) -> Any:
    if not isinstance(policy, Retry):
        return False
    return json.loads(policy.to_text())


def _write_keep(keep: Keep) -> Any:
    if keep.newest is None:
        return write_duration(keep.age)
    age = {} if keep.age is None else {"age": write_duration(keep.age)}
    return {**age, "newest": keep.newest}


def _write_resources(amounts: Mapping[str, int]) -> dict[str, Any]:
    return {name: amount(number) if number >= 2**20 else number for name, number in amounts.items()}


TEXT = Kind(values.read_text, "TEXT")
YES_OR_NO = Kind(values.read_yes_or_no, parse=_parse_yes_or_no)
TASK_REDIS = Kind(values.read_task_redis, parse=_parse_task_redis, write=_write_task_redis)
DURATION = Kind(values.read_duration, "DURATION", write=write_duration)
DAYS = Kind(values.read_days, "DURATION", write=lambda days: f"{days}d")
SIZE = Kind(values.read_size, "SIZE", write=amount)
ROOM = Kind(values.read_room, "SIZE|PERCENT", write=_write_room)
LOG_SIZE = Kind(values.read_log_limit, "SIZE", write=amount)
POLICY = Kind(_read_policy, "N|JSON", _parse_policy, _write_policy)
KEEP = Kind(values.read_keep, "DURATION", write=_write_keep)
CALLABLE = Kind(values.read_callable_name, "MODULE:CALLABLE")
PROGRAM = Kind(values.read_program, "PROGRAM [ARGS]...")
RESOURCES = Kind(require_resources, "NAME=AMOUNT", _parse_resources, _write_resources, is_list=True)
