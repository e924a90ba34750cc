"""ClientSettings: the settings of a client for all queues, from blueque.toml and the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from blueque.errors import InvalidInput
from blueque.model.units import parse_days, parse_duration

if TYPE_CHECKING:
    from blueque.model.payloads import Payloads

STATISTICS_KEEP = 90  # days
MAX_REPLICAS = 100
# seconds; a connection waits twice as long for an answer
REPLICAS_TIMEOUT, MAX_REPLICAS_TIMEOUT = 1.0, 5.0

_T = TypeVar("_T")


class ClientSettings(NamedTuple):
    """The settings of a client that affect what it writes.

    days_kept: for how many days statistics are kept. aliases: the names of queues, by alias.
    replicas: how many must confirm a change, within replicas_timeout seconds for each try.
    payloads: how parameters, results and the like are stored; None: as they are.
    """

    days_kept: int = STATISTICS_KEEP
    aliases: Mapping[str, str] = MappingProxyType({})
    replicas: int = 0
    replicas_timeout: float = REPLICAS_TIMEOUT
    payloads: Payloads | None = None

    @classmethod
    def of(
        cls,
        days_kept: int | None,
        aliases: Mapping[str, str],
        redis: Mapping[str, Any],
        payloads: Mapping[str, Any],
    ) -> ClientSettings:
        """Return the settings of the environment, else of blueque.toml. redis, payloads: its tables.

        Raises InvalidInput, which names the variable.
        """
        days = _named("BLUEQUE_STATISTICS_KEEP", parse_days) or days_kept or STATISTICS_KEEP
        return cls(days, aliases, *replicas_of(redis), payloads_of(payloads, aliases))

    def queue_name(self, name: str) -> str:
        """Return the name of a queue for its name or an alias."""
        return self.aliases.get(name, name)


def replicas_of(said: Mapping[str, Any]) -> tuple[int, float]:
    """Return how many replicas must confirm a change, and within how many seconds for each try.

    From the environment, else from the table `[redis]`. Raises InvalidInput.
    """
    number = _named("BLUEQUE_REPLICAS", _parse_replicas)
    seconds = _named(
        "BLUEQUE_REPLICAS_TIMEOUT", lambda text: require_replicas_timeout(parse_duration(text))
    )
    return (
        said.get("replicas", 0) if number is None else number,
        seconds or said.get("replicas_timeout", REPLICAS_TIMEOUT),
    )


def require_replicas_timeout(seconds: float) -> float:
    """Return the seconds. Raises InvalidInput."""
    if not 0.001 <= seconds <= MAX_REPLICAS_TIMEOUT:
        raise InvalidInput(f"it is {seconds:g} s; it must be from 1ms to {MAX_REPLICAS_TIMEOUT:g}s")
    return seconds


def payloads_of(
    said: Mapping[str, Any], aliases: Mapping[str, str] = MappingProxyType({})
) -> Payloads | None:
    """Return how payloads are stored, from the environment or else the table `[payloads]`. None: as
    they are.

    aliases: as in ClientSettings; a pattern that fits an alias applies to its queue.
    Raises InvalidInput.
    """
    variables = ("BLUEQUE_PAYLOADS_KEYS", "BLUEQUE_PAYLOADS_COMPRESS_FROM")
    if not said and not any(map(os.environ.get, variables)):
        return None
    from blueque.model.payloads import Payloads  # here: most programs have plain payloads

    return Payloads.of(said, aliases)


def _parse_replicas(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > MAX_REPLICAS:
        raise InvalidInput(f"{text!r} is not a number of replicas from 0 to {MAX_REPLICAS}")
    return int(text)


def _named(name: str, parse: Callable[[str], _T]) -> _T | None:
    text = os.environ.get(name)
    try:
        return parse(text) if text else None
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from error
