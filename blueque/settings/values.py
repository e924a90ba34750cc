"""Read one value of a blueque.toml. Each function returns the value as programs use it.

They raise InvalidType and InvalidInput, whose message does not name the key.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection
from typing import Any, Literal, TypeVar

from blueque.connection.addresses import address_of
from blueque.errors import InvalidInput, InvalidType
from blueque.model import limits, queue_order
from blueque.model.encoding import (
    CENTURY,
    encode,
    require_number,
    require_queue_name,
    require_whole,
)
from blueque.model.labels import require_context
from blueque.model.lines import require_lock
from blueque.model.retry import Retry
from blueque.model.units import (
    MOST_KEPT,
    SPARED,
    Keep,
    parse_duration,
    parse_log_limit,
    parse_program,
    parse_room,
    parse_size,
    require_callable_name,
    require_module_name,
    require_program,
    whole_days,
)
from blueque.system.hosts import network_of, require_host_name

MOST_FANNED_OUT = 100  # queues
LIMITS = ("time_limit", "stall_limit", "memory_limit", "grace", "lead")
MEANT = "; did you mean "
_RETRY = Retry.__slots__

Checked = TypeVar("Checked")


def read_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidType(f"must be text, not {kind_of(value) if value != '' else 'empty'}")
    return value


def read_texts(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise InvalidType(f"must be an array of texts, not {kind_of(value)}")
    return [read_text(one) for one in value]


def read_host(value: Any) -> str:
    return require_host_name(read_text(value))


def read_paths(value: Any) -> list[str]:
    return [read_text(value)] if isinstance(value, str) else read_texts(value)


def read_address(value: Any) -> str:
    url = read_text(value)
    if not address_of(url).is_plain:
        from blueque.connection.redis_py import require_options  # here: few settings need it

        require_options(url, {})
    return url


def read_task_redis(value: Any) -> bool | str:
    return value if isinstance(value, bool) else read_address(value)


def address_of_tasks(task_redis: bool | str | None, own: str) -> str | None:
    """Return the address of Redis that tasks get. task_redis: the setting. own: that of the listener."""
    if isinstance(task_redis, str):
        return task_redis
    return None if task_redis is False else own


def read_queue_names(value: Any) -> list[str]:
    names = [require_queue_name(name) for name in read_texts(value)]
    if not 1 <= len(names) <= MOST_FANNED_OUT:
        raise InvalidInput(f"it is 1 to {MOST_FANNED_OUT} queues, not {len(names)}")
    return names


def read_modules(value: Any) -> list[str]:
    return [require_module_name(name) for name in read_texts(value)]


def read_callable_name(value: Any) -> str:
    return require_callable_name(read_text(value))


def read_handler_name(value: Any) -> str:
    try:
        return read_callable_name(value)
    except InvalidInput as error:
        if ":" in str(value):
            raise
        reason = f"{error}; for a module of decorated handlers: --module {value}"
        raise InvalidInput(reason) from error


def read_program(value: Any) -> list[str]:
    """Return a program from words in an array, or from one text that is split as in a shell."""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return require_program(value)
    if isinstance(value, list):
        raise InvalidType("must be an array of texts, each a word of the command")
    return parse_program(read_text(value))


def read_listen(value: Any) -> str:
    """Return HOST:PORT or unix:PATH."""
    text = read_text(value)
    path, (_, _, port) = text.removeprefix("unix:"), text.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and int(port[:6]) < 2**16
    if not (path if text.startswith("unix:") else is_port):
        if port.isdecimal():
            raise InvalidInput(f"{text!r}: the port is more than 65535")
        raise InvalidInput(f"{text!r} is not HOST:PORT or unix:PATH")
    return text


def read_prefix(value: Any) -> str:
    text = read_text(value)
    if not text.startswith("/") or text.startswith("//") or set(text) & {"?", "#", "%", "\\"}:
        raise InvalidInput(f"{text!r} is not a path such as /blueque")
    return text


def read_networks(value: Any) -> list[str]:
    texts = read_texts([value] if isinstance(value, str) else value)
    for text in texts:
        network_of(text)
    return texts


def read_header(value: Any) -> str:
    text = read_text(value)
    if not re.fullmatch(r"[A-Za-z0-9-]+", text):
        raise InvalidInput(f"{text!r} is not the name of a header, such as X-Forwarded-User")
    return text


def read_origins(value: Any) -> list[str]:
    texts = read_texts([value] if isinstance(value, str) else value)
    for text in texts:
        if not re.fullmatch(r"https?://[A-Za-z0-9.:\[\]-]+", text):
            raise InvalidInput(f"{text!r} is not an origin, such as https://portal.example.com")
    return texts


def read_yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidType(f"must be true or false, not {kind_of(value)}")
    return value


def one_of(words: tuple[str, ...]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in words:
            raise InvalidInput(f"{value!r} is not one of {', '.join(words)}")
        return str(value)

    return check


def read_select(value: Any) -> str:
    if isinstance(value, str) and queue_order.is_own_select(value):
        return require_callable_name(value)
    return one_of((*queue_order.NAMES, "MODULE:CALLABLE"))(value)


def read_duration(value: Any) -> float:
    seconds = parse_duration(value) if isinstance(value, str) else value
    return require_number(seconds, "it", 0.001, CENTURY)


def read_days(value: Any) -> int:
    return whole_days(read_duration(value), value)


def read_size(value: Any) -> int:
    return require_whole(parse_size(value) if isinstance(value, str) else value, "it", 1, 2**40)


def read_room(value: Any) -> float:
    return parse_room(value) if isinstance(value, str) else require_whole(value, "it", 1, 2**62)


def read_log_limit(value: Any) -> int:
    return parse_log_limit(
        value if isinstance(value, str) else str(require_whole(value, "it", 1, 2**62))
    )


def read_keep(value: Any) -> Keep:
    """Return a Keep from an age, a table of age and newest, false or "never"."""
    if _is_never(value):
        return Keep()
    if not isinstance(value, dict):
        return Keep(read_duration(value))
    if unknown := sorted(value.keys() - {"age", "newest"}):
        raise InvalidInput(f"unknown key{hint_of(unknown[0], ('age', 'newest'))}")
    age, newest = value.get("age", False), value.get("newest", False)
    seconds = None if _is_never(age) else read_duration(age)
    if _is_never(newest):
        return Keep(seconds)
    return Keep(seconds, require_whole(newest, "it", 1, MOST_KEPT), spared=SPARED)


def _is_never(value: Any) -> bool:
    return value is False or value == "never"


def read_retry(value: Any) -> Retry | Literal[False]:
    """Return a policy that is written as 3, as a table, or as false. The number 0 is false, too."""
    if value is False or (value == 0 and isinstance(value, int)):
        return False
    if isinstance(value, dict):
        if unknown := sorted(value.keys() - set(_RETRY)):
            raise InvalidInput(f"unknown key{hint_of(unknown[0], _RETRY)}")
        given = {**value}
        if isinstance(given.get("backoff"), str):
            given["backoff"] = parse_duration(given["backoff"])
        return Retry(**given)
    if isinstance(value, bool) or not isinstance(value, int):
        kind = "true" if value is True else kind_of(value)
        raise InvalidType(f"must be a number, a retry policy as a table, or false, not {kind}")
    return Retry(max=value)


def read_lock(value: Any) -> tuple[str, int]:
    """Return a lock from "disk" or ["licence", 3]."""
    return require_lock(tuple(value) if isinstance(value, list) else value)


def read_parameters(value: Any) -> Any:
    """Return parameters of a task. Those that are too large are refused when the task is made."""
    named("parameters", lambda: encode(value, "parameters", sys.maxsize))
    return value


def read_context(value: Any) -> Any:
    named("context", lambda: require_context(value))
    return value


def as_it_is(value: Any) -> Any:
    return value


def read_limit(name: str, value: Any) -> int | float:
    return named(name, lambda: limits.fields(**{name: value})[name])


def named(name: str, check: Callable[[], Checked]) -> Checked:
    """Return the result of a check. Its error gets the key, in the form of the path before it."""
    try:
        return check()
    except InvalidInput as error:
        raise InvalidInput(without_name(name, str(error))) from error


def without_name(name: str, sentence: str) -> str:
    said = sentence.removeprefix(f"{name}: ")
    is_about = said.startswith((f"{name} is ", f"{name} must be "))
    return f"it{said.removeprefix(name)}" if is_about else said


def hint_of(key: str, checks: Collection[str]) -> str:
    from difflib import get_close_matches  # here: only for a mistake

    close = get_close_matches(key.replace("-", "_"), list(checks), n=1)
    return f"{MEANT}{close[0]}?" if close else f"; the keys are {', '.join(checks)}"


def kind_of(value: object) -> str:
    words = {
        str: "text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "an array",
        dict: "a table",
    }
    return words.get(type(value), "a date or time")
