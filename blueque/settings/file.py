"""Find blueque.toml, and read it.

docs/configuration.md explains every key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from blueque.errors import ConfigRefused, InvalidInput
from blueque.settings.checker import Checker
from blueque.settings.contents import Config, shown_path
from blueque.settings.of_tasks import IN_REDIS
from blueque.settings.values import hint_of

NAME = "blueque.toml"
_IN_REDIS = {row.key: row for row in IN_REDIS}


def load(
    path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] = os.environ
) -> Config:
    """Return the contents of the file; without a path, of the one that `find` finds.

    Raises ConfigRefused.
    """
    found = os.fspath(path) if path is not None else find(environ)
    if found is None:
        return Config()
    try:
        with open(found, "rb") as file:
            text = file.read().decode("utf-8-sig")  # some editors put a mark before it
    except OSError as error:
        raise ConfigRefused(found, None, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        reason = f"byte {error.object[error.start]:#04x} at offset {error.start} is not UTF-8"
        raise ConfigRefused(found, None, reason) from error
    return parse(text, found)


def find(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the path of the file: BLUEQUE_CONFIG, else the first existing blueque.toml."""
    if environ.get("BLUEQUE_CONFIG"):
        return environ["BLUEQUE_CONFIG"]
    own = environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    places = (NAME, os.path.join(own, "blueque", NAME), f"/etc/blueque/{NAME}")
    return next((place for place in places if os.path.lexists(place)), None)


def parse(text: str, path: str = NAME) -> Config:
    """Return the contents in a text. path: its name in an error. Raises ConfigRefused."""
    # here: most have no such file, and what a listener imports, each of its forks copies
    import tomllib

    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        twice = re.sub(r"Cannot declare \((.*?),?\) twice", _declared_twice, str(error))
        raise ConfigRefused(path, None, twice) from error
    except RecursionError as error:
        raise ConfigRefused(path, None, "nested too deeply") from error
    return Checker(path).config(values)


def _declared_twice(found: re.Match[str]) -> str:
    names = tuple(re.findall("'([^']*)'", found[1]))
    return f"[{shown_path(names)}] is defined twice"


def check_setting(name: str, value: Any) -> Any:
    """Return a setting of a queue in Redis, checked as in the table of a queue. Raises
    InvalidInput.

    name: of `queue_settings.NAMES`. value: as in a file, or a `Retry`.
    """
    try:
        return _IN_REDIS[name].kind.read(value)
    except (InvalidInput, OverflowError) as error:
        raise InvalidInput(f"{name}: {error}") from error


def require_setting(name: str) -> str:
    """Return the name of a setting that a queue may have in Redis. Raises InvalidInput."""
    if name not in _IN_REDIS:
        raise InvalidInput(f"{name}: unknown setting{hint_of(name, _IN_REDIS)}")
    return name
