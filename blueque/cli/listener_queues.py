"""The queues of a listener, and the settings for the tasks of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.errors import InvalidInput
from blueque.model.queue_order import require_weight
from blueque.model.queue_settings import BOUNDS, NAMES, write_setting
from blueque.model.working_directory import WorkingDirectory

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.settings.resolver import Resolver


def named_queues(client: Client, words: Sequence[str]) -> dict[str, float | None]:
    """Return the queues in the arguments, and their weights; None: without a weight."""
    found: dict[str, float | None] = {}
    for word in words:
        queue, sign, number = word.rpartition("=")
        try:
            weight = require_weight(float(number)) if sign else None
        except InvalidInput as error:
            raise click.UsageError(f"{word!r}: {error}") from error
        except ValueError as error:
            raise click.UsageError(
                f"{word!r}: {number!r} is not a weight: write QUEUE=WEIGHT; write a queue whose name contains = with a "
                f"weight of 1, {word + '=1'!r}"
            ) from error
        name = client.get_queue(queue if sign else word).name
        if name in found:
            raise click.UsageError(f"queue {name!r} is named twice")
        if set("*?[") & set(name):
            click.echo(
                f"blueque-listener: {name!r} is the name of one queue, not a pattern", err=True
            )
        found[name] = weight
    return found


def chosen_among(
    settings: Resolver, known: Mapping[str, float], named: Mapping[str, float | None]
) -> tuple[dict[str, float], str]:
    """Return the weights of the queues, and how to choose among them.

    settings: of the listener. known: the weights in the file. named: those in the arguments.
    """
    weights = {name: weight for name, weight in named.items() if weight is not None}
    found = settings.given("select")
    select = (
        ("lottery" if weights or known else "ordered")
        if found is None or found.origin == "default" or (weights and found.origin == "file")
        else found.value
    )
    heavy = next((name for name, weight in weights.items() if weight != 1), None)
    if select != "lottery" and heavy is not None:
        raise click.UsageError(
            f"the weight of queue {heavy!r} needs --select lottery, not {select}"
        )
    return {**known, **weights}, select


def of_queue(nearer: Resolver, farther: Resolver) -> list[Any]:
    """Return the settings for the tasks of a queue, as `OfQueue`.

    nearer, farther: those before and after the settings of the queue in Redis.
    """
    near = {key: found.value for key in _TEXTS if (found := nearer.given(key)) is not None}
    far = {key: farther.get(key) for key in _TEXTS}
    return [_as_in_redis(near), _as_in_redis(far), cwd_of(nearer.then(*farther.layers))]


def cwd_of(settings: Resolver) -> WorkingDirectory:
    """Return the working directory of the tasks of a queue."""
    return WorkingDirectory(*(settings.get(key) for key in WorkingDirectory._fields))


def reuse_of(settings: Resolver) -> tuple[int | None, float | None]:
    """Return how many tasks a process takes, and for how long; None: not set."""
    tasks, seconds = settings.given("reuse"), settings.given("reuse_for")
    return tasks and tasks.value, seconds and seconds.value


_TEXTS = tuple(name for name in NAMES if name not in BOUNDS)


def _as_in_redis(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: write_setting(key, value) for key, value in values.items()}
