"""Values from the environment, and the notation of durations and sizes."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from blueque.errors import InvalidInput

DEFAULT_REDIS_URL = "redis://localhost:6379/0"
DEFAULT_MAX_BYTES = 1024 * 1024
BEAT, LEASE, LOST_AFTER = 10.0, 60.0, 600.0  # see Timing
GRACE = 30.0  # between SIGTERM and SIGKILL

SPOOL_LIMIT = 0.2  # of the disk
LOG_LIMIT, LEAST_LOG = 2**30, 2**20  # bytes of each file that a task prints to
LOG_FORMATS = ("text", "json")  # of what programs write to standard error; the first is the default
LOG_LEVELS = ("debug", "info", "warning", "error")  # from which on they write it
LOG_LEVEL = "info"
MOST_STATISTICS = 3660  # days

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}


class Timing(NamedTuple):
    """The times, in seconds, by which listeners show that they are alive and judge others.

    beat: between two beats.
    lease: a listener whose beat does not change for this long may take no more tasks, and its
        reserved tasks are put in line again.
    lost_after: after this long its started tasks are lost.
    """

    beat: float = BEAT
    lease: float = LEASE
    lost_after: float = LOST_AFTER


class Keep(NamedTuple):
    """How long the finished tasks of one status are kept.

    age: a task is deleted this many seconds after its end; None: not by age.
    newest: how many of a queue are kept at most; None: any number.
    least: how many are kept, however old they are.
    spared: a task is kept for this many seconds after its end, however many newer ones there are.
    """

    age: float | None = None
    newest: int | None = None
    least: int = 0
    spared: float = 0.0


class HandlerName(NamedTuple):
    """What runs the tasks of a queue: `run`, the name of a Python callable, or `exec`, a program
    and its arguments.

    paths: directories in which Python looks for modules first.
    """

    run: str | None = None
    exec: list[str] | None = None
    paths: Sequence[str] = ()

    def __str__(self) -> str:
        return self.run or shlex.join(self.exec or [])


DAY = 86400.0
MOST_KEPT = 10**12  # the largest number of newest tasks to keep
SPARED = DAY  # tasks that ended at night are still there in the morning
# The defaults: complete tasks are deleted in time, failed ones stay longer to be looked at.
RETENTION: Mapping[str, Keep] = MappingProxyType(
    {
        "complete": Keep(7 * DAY, 50_000, spared=SPARED),
        "cancelled": Keep(7 * DAY, 50_000, spared=SPARED),
        "failed": Keep(90 * DAY),
    }
)


def timing(
    beat: float | None = None,
    lease: float | None = None,
    lost_after: float | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Timing:
    """Return the given times, else those of BLUEQUE_BEAT, BLUEQUE_LEASE and BLUEQUE_LOST_AFTER,
    else the defaults.

    A `lost_after` shorter than the lease shortens the lease. Raises InvalidInput when either is
    less than three beats.
    """
    given = Timing(
        _seconds(beat, "BLUEQUE_BEAT", BEAT, environ),
        _seconds(lease, "BLUEQUE_LEASE", LEASE, environ),
        _seconds(lost_after, "BLUEQUE_LOST_AFTER", LOST_AFTER, environ),
    )
    if not 0.0 < given.beat < float("inf"):
        raise InvalidInput(f"a listener cannot beat every {given.beat:g} s")
    chosen = given._replace(lease=min(given.lease, given.lost_after))
    for name, seconds in (("lost_after", chosen.lost_after), ("lease", chosen.lease)):
        # `not`, so that NaN is refused, too; rounded, for three times 0.2 is more than 0.6 to a
        # float.
        if not seconds >= round(3 * chosen.beat, 9):
            least = 3 * chosen.beat
            raise InvalidInput(
                f"{name} is {seconds:g} s: at least three beats of {chosen.beat:g} s are needed, {least:g} s"
            )
    return chosen


def _seconds(given: float | None, name: str, default: float, environ: Mapping[str, str]) -> float:
    if given is not None:
        return float(given)
    try:
        return parse_duration(environ[name]) if environ.get(name) else default
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from error


_listeners_url: str | None = None  # in a task process, and nowhere else


def connect_as_listener(url: str | None) -> None:
    """Make the Redis of the listener the default of this task process. It is kept in memory only."""
    global _listeners_url
    _listeners_url = url


def redis_url(
    environ: Mapping[str, str] = os.environ, otherwise: tuple[str, str] | None = None
) -> tuple[str, str]:
    """Return (address, where it came from).

    In a task that gets it: the Redis of its listener. Else BLUEQUE_REDIS_URL, else REDIS_URL, else
    `otherwise`, else the default.
    """
    if _listeners_url is not None:
        return _listeners_url, "the listener"
    for name in ("BLUEQUE_REDIS_URL", "REDIS_URL"):
        if environ.get(name):
            return environ[name], name
    return otherwise or (DEFAULT_REDIS_URL, "default")


def max_bytes(environ: Mapping[str, str] = os.environ, otherwise: int | None = None) -> int:
    """Return the size limit of parameters and results: BLUEQUE_MAX_BYTES, else `otherwise`, else 1 MiB."""
    text = environ.get("BLUEQUE_MAX_BYTES")
    return parse_size(text) if text else otherwise or DEFAULT_MAX_BYTES


def spool(environ: Mapping[str, str] = os.environ, otherwise: str | None = None) -> str:
    """Return the directory of attempts: BLUEQUE_SPOOL, else `otherwise`, else the user's default."""
    if environ.get("BLUEQUE_SPOOL"):
        return environ["BLUEQUE_SPOOL"]
    if otherwise:
        return otherwise
    if os.geteuid() == 0:
        return "/var/lib/blueque/spool"
    state = environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "blueque", "spool")


def parse_room(text: str) -> float:
    """Return bytes, or a share of the disk below 1: `50GiB`, `20%`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text.strip())
    if match is None:
        size = parse_size(text)
        if size < 1:
            raise InvalidInput(f"{text!r} is not a size: write 50GiB or 20%")
        return size
    if not 0 < float(match[1]) < 100:
        raise InvalidInput(f"{text!r} is not a share of a disk: write 20%")
    return float(match[1]) / 100


def parse_log_limit(text: str) -> int:
    """Return bytes, as `parse_size`, 1 MiB or more."""
    size = parse_size(text)
    if size < LEAST_LOG:
        raise InvalidInput(f"{text!r} is too small: use at least 1MiB")
    return size


def parse_duration(text: str) -> float:
    """Return seconds: `90`, `1.5`, `30s`, `2h`, `1d12h`."""
    compact = text.replace(" ", "").lower()
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        return float(compact)
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[smhdw])", compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise InvalidInput(f"{text!r} is not a duration: write 90, 30s, 2h or 1d12h")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def parse_days(text: str) -> int:
    """Return whole days: `90d`, `12w`; 1 to 3,660."""
    try:
        seconds = parse_duration(text)
    except InvalidInput:
        seconds = 0.0  # not a number of days either
    return whole_days(seconds, text)


def whole_days(seconds: float, text: object) -> int:
    """Return seconds as whole days. text: the original, for the error."""
    days = seconds / DAY
    if not days.is_integer() or not 1 <= days <= MOST_STATISTICS:
        raise InvalidInput(
            f"{text!r} is not a number of whole days from 1 to {MOST_STATISTICS}: write 90d"
        )
    return int(days)


def parse_program(text: str) -> list[str]:
    """Return a program and its arguments, split and unquoted as in a shell, without expansion."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidInput(
            f"{text!r} is not a program and its arguments: {str(error).lower()}"
        ) from error
    return require_program(words)


def require_program(words: list[str]) -> list[str]:
    """Return the words, or raise InvalidInput when they name no program."""
    if not words or not words[0]:
        raise InvalidInput("it names no program")
    if any("\0" in word for word in words):
        raise InvalidInput("an argument cannot hold a NUL character")
    return words


def require_callable_name(name: str) -> str:
    """Return the name, or raise InvalidInput when it is not of the form package.module:callable."""
    module, _, path = name.partition(":")
    if not module or not path:
        raise InvalidInput(f"{name!r} is not of the form package.module:callable")
    return name


def require_module_name(name: str) -> str:
    """Return the name, or raise InvalidInput when it is not of the form package.module."""
    if all(part.isidentifier() for part in name.split(".")) and not name.endswith(".py"):
        return name
    wanted = name.removesuffix(".py").strip("./").replace("/", ".").partition(":")[0]
    is_near = all(part.isidentifier() for part in wanted.split("."))
    hint = f": write {wanted}" if is_near else ", such as mypackage.tasks"
    raise InvalidInput(f"{name!r} is not the name of a module{hint}")


def parse_size(text: str) -> int:
    """Return bytes: `65536`, `64KiB`, `1.5MB`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _SIZES:
        raise InvalidInput(f"{text!r} is not a size: write 65536, 64KiB or 10MB")
    if "." in match[1] and _SIZES[match[2]] == 1:
        raise InvalidInput(f"{text!r} is not a whole number")
    return int(float(match[1]) * _SIZES[match[2]])
