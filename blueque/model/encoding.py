"""Encode values as text for Redis, decode them, and check values and names."""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Callable, Iterable
from json import encoder as json_encoder
from typing import Any

from blueque.errors import InvalidInput, InvalidType, TooLarge
from blueque.model import unfit_value
from blueque.model.unfit_value import plain_number

MAX_NAME = 200  # bytes, of a queue or a group
GATE = "gate "  # how the names of groups begin that Blueque makes itself
LAST_SECOND = 253402300799.0  # of the year 9999
FIRST_ETA, YEAR = 946_684_800.0, 31_556_952.0  # the year 2000 in Unix seconds; seconds of a year
DAY = 86400  # seconds
CENTURY = 36525 * 86400.0  # seconds; the longest duration that is accepted
DIGITS = 19  # a count has fewer; Python converts no more than 4300
FLUSH = object()  # in place of parameters: enqueue the tasks so far, for there are no more for now

_FLAT = frozenset({str, int, float, bool, type(None)})  # types without inner values


_compact = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=plain_number
).encode


class Encoded:
    """Parameters that are already encoded in UTF-8. is_json: whether the text is JSON."""

    __slots__ = ("is_json", "text")

    def __init__(self, text: bytes, is_json: bool) -> None:
        self.text, self.is_json = text, is_json


def encode(value: Any, what: str, limit: int) -> tuple[str, str | None]:
    """Return (text, encoding): a string unchanged and None, anything else as JSON and "json".

    what: names the value in an error. limit: in bytes.
    Raises InvalidType, also for keys that JSON would turn into text; InvalidInput or TooLarge.
    """
    if isinstance(value, str):
        text, encoding = value, None
    elif value is None:
        return "null", "json"
    elif isinstance(value, Encoded):
        text, encoding = value.text.decode(), "json" if value.is_json else None
    elif isinstance(value, bytes | bytearray | memoryview):
        raise InvalidType(
            f"{what}: {type(value).__name__} cannot be stored; decode it, or pass a str of base64"
        )
    else:
        text, encoding = _to_json(value, what), "json"
        _require_text_keys(value, what)
    size = len(text) if text.isascii() else len(to_utf8(text, what))
    if size > limit:
        raise TooLarge(what, size, limit)
    return text, encoding


def encode_json(value: Any, what: str, limit: int) -> str:
    """Return the value as JSON, also a string. Raises what `encode` raises."""
    text = _to_json(value, what)
    size = len(text) if text.isascii() else len(to_utf8(text, what))
    if size > limit:
        raise TooLarge(what, size, limit)
    _require_text_keys(value, what)
    return text


def quick_encoder(limit: int) -> Callable[[Any], tuple[bytes, bool]]:
    """Return a function for the parameters of many tasks in a row: (text in UTF-8, whether it is
    JSON), as `encode`.

    It has the same results and errors, in a third of the time. Not for several threads.
    """
    to_json = quick_json()

    def encode_one(value: Any) -> tuple[bytes, bool]:
        packed = None
        try:
            if type(value) is str:
                packed, is_json = value.encode(), False
            elif _is_plain(value):
                packed, is_json = "".join(to_json(value, 0)).encode(), True
        except Exception:  # `encode` raises the right error, and that error alone
            packed = None
        return whole(value) if packed is None or len(packed) > limit else (packed, is_json)

    def whole(value: Any) -> tuple[bytes, bool]:
        text, encoding = encode(value, "the parameters", limit)
        return text.encode(), encoding is not None

    return encode_one


def to_utf8(text: str, what: str) -> bytes:
    """Return text in UTF-8. what: names it in an error. Raises InvalidInput."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{what}: {text[error.start]!r} at position {error.start} is not a character"
        ) from error


def is_sealed(encoding: str | None) -> bool:
    """Return whether this is the encoding of a compressed or encrypted text, which payloads.py opens.

    It may also be a text that begins with its encoding.
    """
    return encoding is not None and (encoding == "zlib" or encoding.startswith(("aes:", "zlib:")))


def decode(text: str | None, encoding: str | None) -> Any:
    """Return the value that was encoded; if it is compressed or encrypted, the text."""
    if text is None or encoding != "json":
        return text
    try:
        return from_json(text)
    except ValueError:  # another program has marked it as JSON: show the text
        return text


def from_json(text: str) -> Any:
    """Return the value of JSON from another program. Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def day_of(now: float) -> str:
    """Return the UTC day of a time, as in the keys of the statistics."""
    return _day(int(now // DAY))


@functools.lru_cache(1000)
def _day(number: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(number * DAY))


def printable(value: object, limit: int) -> str:
    """Return a text that Redis accepts, of at most `limit` bytes. Never raises."""
    try:
        text = str(value)
    except Exception:
        text = f"<{type(value).__name__} that cannot be shown>"
    return text.encode("utf-8", "backslashreplace")[:limit].decode("utf-8", "ignore")


def integer(text: str) -> int:
    """Read an integer in the form in which Redis counts. Raises ValueError."""
    is_short = len(text) <= DIGITS + 1
    if not is_short or str(value := int(text)) != text or not -(2**63) <= value < 2**63:
        raise ValueError(text[:60])
    return value


def number(text: str) -> float:
    """Read a finite number in the form in which Redis takes a score. Raises ValueError."""
    value = float(text)
    if not math.isfinite(value) or not text.isascii() or "_" in text or text != text.strip():
        raise ValueError(text[:60])
    return value


def due(text: str) -> float:
    """Read when a task is due; 1.0.0 may have scheduled it for never, `inf`. Raises ValueError."""
    return float(text) if text == "inf" else number(text)


def known_count(text: str | None) -> int | None:
    """Return a count from text; None for a missing or malformed one."""
    is_count = text is not None and text.isascii() and text.isdecimal() and len(text) < DIGITS
    return int(text or 0) if is_count else None


def count_of(text: str | None) -> int:
    """Return a count from text; 0 for a missing or malformed one."""
    return known_count(text) or 0


def seconds_of(text: str | None) -> float | None:
    """Return seconds from text; None for missing or malformed ones."""
    try:
        return number(text) if text else None
    except ValueError:
        return None


def time_or(text: str | None, now: float) -> str | float:
    """Return the text of a time that can be a score; `now` for a missing or malformed one."""
    return now if text != "inf" and seconds_of(text) is None else text or now


def require_queue_name(name: object) -> str:
    """Return a valid name of a queue. Raises InvalidType, InvalidInput."""
    return _require_name(name, "queue")


def require_schedule_name(name: object) -> str:
    """Return a valid name of a schedule. Raises InvalidType, InvalidInput."""
    return _require_printable_name(name, "schedule")


def require_group_name(name: object) -> str:
    """Return a valid name of a group. Raises InvalidType, InvalidInput."""
    checked = _require_printable_name(name, "group")
    if checked.startswith(GATE):
        raise InvalidInput(
            f"the group name {name!r} begins with {GATE!r}, as only Blueque names them"
        )
    return checked


def require_feed_name(name: object) -> str:
    """Return a valid name of a feed. Raises InvalidType, InvalidInput."""
    return _require_printable_name(name, "feed")


def require_number(value: object, what: str, lowest: float = 0, highest: float = CENTURY) -> float:
    """Return a number from `lowest` to `highest`. Raises InvalidType, InvalidInput."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidType(f"{what} must be a number, not {type(value).__name__}")
    if not lowest <= value <= highest:  # NaN is neither
        raise InvalidInput(f"{what} is {value}; it must be from {lowest:.15g} to {highest:.15g}")
    return float(value)


def require_whole(value: object, what: str, lowest: int, highest: int) -> int:
    """Return a whole number from `lowest` to `highest`. Raises InvalidType, InvalidInput."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidType(f"{what} must be a whole number, not {type(value).__name__}")
    if not lowest <= value <= highest:
        raise InvalidInput(f"{what} is {value}; it must be from {lowest} to {highest}")
    return value


def require_due(value: object) -> float:
    """Return the `require_time` of an eta. A small number is refused, because it was meant as a delay.

    1.0.0 took it for a past time. 0 and less mean at once.
    """
    due = require_time(value)
    if isinstance(value, int | float) and 0 < due < FIRST_ETA:
        raise InvalidInput(
            f"eta {value} is a time in {1970 + int(due / YEAR)}: for a delay, give time.time() + {value}; for at once, 0"
        )
    return due


def require_time(value: object, what: str = "eta") -> float:
    """Return Unix seconds of a number, or of a datetime with a time zone, before the year 10000."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        from datetime import datetime  # here: a task process does not need it

        if not isinstance(value, datetime):
            raise InvalidType(f"{what} is Unix seconds or a datetime, not {type(value).__name__}")
        if value.tzinfo is None:
            raise InvalidInput(
                f"{what} {value} has no time zone: set one, as with datetime.now(timezone.utc)"
            )
        return value.timestamp()
    if not -LAST_SECOND <= value <= LAST_SECOND:  # NaN is neither
        raise InvalidInput(
            f"{what} {value} is not a time before the year 10000: seconds, not milliseconds?"
        )
    return float(value)


def require_timeout(timeout: float | None) -> float | None:
    """Return 0 or more seconds as a float; None: no limit. Raises InvalidInput."""
    from numbers import Real  # here: a task process does not need it

    if timeout is None:
        return None
    if not (isinstance(timeout, Real) and timeout >= 0):  # or NaN
        raise InvalidInput(f"timeout is {timeout!r}; it has to be a number of seconds, 0 or more")
    return float(timeout)


def _require_printable_name(name: object, what: str) -> str:
    """Return a valid name without characters that a person could not copy, such as line ends.

    Names of queues may have them, as in 1.0.0.
    """
    checked = _require_name(name, what)
    if not checked.isprintable():
        raise InvalidInput(f"the {what} name {name!r} holds a character that cannot be printed")
    return checked


def _require_name(name: object, what: str) -> str:
    if not isinstance(name, str):
        raise InvalidType(f"a {what} name is a str, not {type(name).__name__}")
    if not name:
        raise InvalidInput(f"a {what} name cannot be empty")
    if "\0" in name:
        raise InvalidInput(f"the {what} name {name!r} holds a NUL character")
    size = len(to_utf8(name, f"the {what} name"))
    if size > MAX_NAME:
        raise InvalidInput(
            f"the {what} name {name[:20]!r}... takes {size} bytes; the limit is {MAX_NAME}"
        )
    return name


def _require_text_keys(value: Any, what: str) -> None:
    """Refuse a dict with keys that JSON would silently turn into text."""
    try:
        has_them = _has_text_keys(value)
    except RecursionError as error:
        raise InvalidInput(f"{what}: nested too deeply for JSON") from error
    if not has_them:
        raise InvalidType(unfit_value.why(value, what))


def _has_text_keys(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _has_text_keys(value[key]) for key in value)
    return not isinstance(value, list | tuple) or all(map(_has_text_keys, value))


def _is_plain(value: Any) -> bool:
    """Return whether a value has only JSON types with text keys. Subclasses do not count."""
    kind = type(value)
    if kind is dict:
        # not all(): for the usual few, this is twice as fast
        for key, inner in value.items():  # noqa: SIM110
            if type(key) is not str or (type(inner) not in _FLAT and not _is_plain(inner)):
                return False
        return True
    if kind is list or kind is tuple:
        return all(type(inner) in _FLAT or _is_plain(inner) for inner in value)
    return kind in _FLAT


def quick_json() -> Callable[[Any, int], Iterable[str]]:
    """Return the encoder that json.dumps would create for each value, with the arguments of
    `_to_json`.

    It takes a value of JSON types and a 0, and returns the parts of the text.
    """
    plain = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    make = getattr(json_encoder, "c_make_encoder", None)
    # No check for values that contain themselves: _is_plain has ended for this one.
    if make is None:  # a Python without the C part
        return lambda value, _: (plain.encode(value),)
    quick: Callable[[Any, int], Iterable[str]] = make(
        None, plain.default, json_encoder.encode_basestring, None, ":", ",", False, False, False
    )
    return quick


def _to_json(value: Any, what: str) -> str:
    try:
        return _compact(value)
    except TypeError as error:
        raise InvalidType(unfit_value.why(value, what, error)) from None
    except ValueError as error:  # NaN, infinity, a value that holds itself
        raise InvalidInput(unfit_value.why(value, what, error)) from None
    except RecursionError as error:
        raise InvalidInput(f"{what}: nested too deeply for JSON") from error
