"""The options of the verbs that make and change recurring tasks."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from blueque.cli.options import together
from blueque.cli.values import DURATION, Value, read_moment, read_time

if TYPE_CHECKING:
    from datetime import tzinfo


def _kept(read: Callable[[str], object]) -> Value:
    """Return the type of a text that is read later, when the zone of the schedule is known.

    A text that is not a time in any zone is refused at once.
    """

    def keep(text: str) -> str:
        read(text)
        return text

    return Value("time", keep)


PAST_TEXT = _kept(read_moment)
_TEXT_TO_COME = _kept(functools.partial(read_time, is_ahead=True))


def past(text: str, now: float, zone: tzinfo | None) -> float:
    """Return Unix seconds of a past time or an age that PAST_TEXT has accepted.

    zone: of a time that names none; None: the local one.
    """
    is_age, seconds = read_moment(text)
    return now - seconds if is_age else _seconds(text, zone, is_ahead=False)


def with_bounds(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with `start` and `until` in Unix seconds.

    A time without a zone is in the zone of the rule; with `every`, it is a local time.
    Raises InvalidInput for an unknown zone.
    """
    found = {key: value for key, value in options.items() if key in ("start", "until")}
    zone = _zone(options) if found else None
    return {**options, **{key: _seconds(value, zone) for key, value in found.items()}}


def _zone(options: Mapping[str, Any]) -> tzinfo | None:
    from blueque.model.cron import find_zone  # here: --help does not need it

    return None if "every" in options else find_zone(options.get("timezone", "UTC"))


def _seconds(value: str, zone: tzinfo | None, is_ahead: bool = True) -> float:
    from blueque.text.moments import parse_time  # here: --help does not need it

    try:
        return float(value)
    except ValueError:
        return parse_time(value, time.time(), is_ahead, zone)


# The rule of a schedule, as the parameters of `read_rule`.
rule_options = together(
    click.option("--cron", metavar="FIELDS", help="Times, as in cron: '30 2 * * 1-5'."),
    click.option("--every", type=DURATION, help="Interval, such as 6h; from 10s to 366d."),
    click.option("--timezone", metavar="ZONE", help="Zone of --cron: Europe/Berlin; default UTC."),
    click.option(
        "--start",
        type=_TEXT_TO_COME,
        metavar="TIME",
        help="No task before this time. Without a zone it is in --timezone, with --every local.",
    ),
    click.option(
        "--until",
        type=_TEXT_TO_COME,
        metavar="TIME",
        help="No task after this time, as for --start.",
    ),
)


# What else a recurring task does.
policy_options = together(
    click.option(
        "--overlap",
        type=click.Choice(("skip", "queue", "allow")),
        help="If the previous task has not ended: skip this one (default), queue it, or allow both.",
    ),
    click.option(
        "--catch-up",
        type=click.Choice(("last", "all", "none")),
        help="For planned times that were missed: make the last task (default), all, or none.",
    ),
    click.option("--window", type=DURATION, help="How far back to catch up; default 1d."),
    click.option("--jitter", type=DURATION, help="Spread the tasks: delay each by up to this."),
)
