"""The types of values on a command line: durations, sizes, times."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from blueque.errors import InvalidInput
from blueque.model import units
from blueque.model.encoding import LAST_SECOND

if TYPE_CHECKING:
    from blueque.cli.options import Decorated

DECADE = 10 * 365 * 86400.0  # a larger number is a time, not an age


class Value(click.ParamType):  # type: ignore[type-arg]  # generic in newer click only
    """A value that a function reads from text. Its InvalidInput is the user's mistake."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # a default, or converted already
            return value
        try:
            return self._read(value)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


def read_time(text: str, is_ahead: bool) -> float:
    """Return Unix seconds, written as such or as a time that `moments.parse_time` reads."""
    try:
        seconds = float(text)
    except ValueError:
        from blueque.text.moments import parse_time  # here: rarely needed

        seconds = parse_time(text, time.time(), is_ahead)
    if not abs(seconds) <= LAST_SECOND:  # so that NaN is refused, too
        raise InvalidInput(f"{text!r} is after the year 9999: give seconds, not milliseconds")
    return seconds


def read_moment(text: str) -> tuple[bool, float]:
    """Return whether the text is an age such as 24h, and its seconds; else those of a past time."""
    try:
        age = units.parse_duration(text)
    except InvalidInput:
        return False, read_time(text, is_ahead=False)
    return age < DECADE, age


DURATION = Value("duration", units.parse_duration)  # 90, 30s, 2h or 1d12h
COMMAND = Value("command", units.parse_program)  # a program and its arguments, without a shell
TIME_TO_COME = Value("time", functools.partial(read_time, is_ahead=True))
MOMENT = Value("time", read_moment)
DAYS = Value("days", lambda text: units.whole_days(units.parse_duration(text), text))


class WholeRange(click.IntRange):
    """A whole number between two others; help shows them in words."""

    def _describe_range(self) -> str:
        if self.max is None:
            return f"at least {self.min}"
        return f"{self.min} to {self.max}"


def limit_option(
    most: int, default: int = 50, text: str = "Show at most N."
) -> Callable[[Decorated], Decorated]:
    """Return the option --limit, up to `most`."""
    return click.option(
        "--limit",
        type=WholeRange(1, most),
        metavar="N",
        default=default,
        show_default=True,
        help=text,
    )
