"""The queues of a listener: which it takes from, and what holds for the tasks of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.config.checker import shown_path
from blueque.errors import InvalidInput
from blueque.model import queue_settings, units
from blueque.model.queue_order import require_weight
from blueque.model.working_directory import WorkingDirectory

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.config.contents import Config
    from blueque.model.retry import Retry
    from blueque.model.units import HandlerName
    from blueque.node.handler_check import Registered


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
    config: Config, named: Mapping[str, float | None], select: str | None
) -> tuple[dict[str, float], str]:
    """Return the weights of the queues, and how to choose among them."""
    weights = {name: weight for name, weight in named.items() if weight is not None}
    known = {name: its for name in named if (its := config.queue(name).weight) is not None}
    if select is None:
        select = (
            "lottery"
            if weights
            else config.listener.get("select") or ("lottery" if known else "ordered")
        )
    heavy = next((name for name, weight in weights.items() if weight != 1), None)
    if select != "lottery" and heavy is not None:
        raise click.UsageError(
            f"the weight of queue {heavy!r} needs --select lottery, not {select}"
        )
    return {**known, **weights}, select


def own_of(
    config: Config, registered: Mapping[str, Registered], options: Mapping[str, Any]
) -> tuple[dict[str, Registered], list[str]]:
    """Return the handlers that run the tasks of their own queue, by queue, and in sentences what
    handlers say that does not count.

    registered: by the queue whose tasks each runs here.
    """
    own, remarks = {}, []
    for queue, handler in registered.items():
        said = {*handler.limits} if handler.retry is None else {*handler.limits, "retry"}
        if config.aliases.get(handler.queue, handler.queue) != queue:
            reason = f"it is the handler of queue {handler.queue!r}"
            remarks += _remark(queue, handler.run, said, reason)
            continue
        own[queue], its = handler, config.queue(queue)
        by_file = {*its.limits} if its.retry is None else {*its.limits, "retry"}
        table = f"[{shown_path(('queues', queue))}] in {config.path} says something else"
        remarks += _remark(queue, handler.run, said & {*options}, "an option or a variable counts")
        remarks += _remark(queue, handler.run, said & by_file - {*options}, table)
    return own, remarks


def _remark(queue: str, run: str, said: Collection[str], reason: str) -> list[str]:
    if not said:
        return []
    names = ", ".join(sorted(said))
    return [f"queue {queue!r}: the decorator of {run} is not used for {names}: {reason}"]


def limits_of(
    config: Config,
    own: Mapping[str, Registered],
    names: Sequence[str],
    retry: Retry | None,
    options: Mapping[str, int | float],
) -> dict[str, list[object]]:
    """Return the limits and the policy of each queue for which the file or the handler gives any."""
    found: dict[str, list[object]] = {}
    for name in names:
        if name in config.queues or name in own:
            its, handler = config.queue(name), own.get(name)
            policies = (
                retry,
                its.retry,
                None if handler is None else handler.get_retry(),
                config.listener.get("retry"),
            )
            policy = next((one for one in policies if one is not None), None)
            decorated = {} if handler is None else handler.limits
            limits = {**config.listener.get("limits", {}), **decorated, **its.limits, **options}
            found[name] = [held_to(limits), policy.to_text() if policy else None]
    return found


def fixed_of(
    config: Config,
    own: Mapping[str, Registered],
    names: Sequence[str],
    options: Mapping[str, Any],
    weights: Collection[str],
) -> dict[str, list[str]]:
    """Return the settings of each queue that go before those in Redis."""
    found = {}
    given = {name for name in options if name in queue_settings.NAMES}
    for name in names:
        its, handler = config.queue(name), own.get(name)
        fixed = given | its.limits.keys() | {f"retention.{status}" for status in its.retention}
        if its.retry is not None or (handler is not None and handler.retry is not None):
            fixed.add("retry")
        if handler is not None:
            fixed |= handler.limits.keys()
        if name in weights:
            fixed.add("weight")
        found[name] = sorted(fixed)
    return found


def held_to(limits: Mapping[str, int | float | None]) -> list[int | float | None]:
    """Return the limits in the order of `Limits`."""
    most = [limits.get(name) for name in ("time_limit", "stall_limit", "memory_limit")]
    return [*most, limits.get("grace", units.GRACE), limits.get("lead", 0.0)]


def cwd_of(
    config: Config, options: Mapping[str, Any], names: Sequence[str]
) -> dict[str, WorkingDirectory]:
    """Return where the tasks of each queue work for which anything is said of that."""
    found = {}
    for queue in names:
        said = {**config.listener, **config.queue(queue).cwd, **options}
        fields = WorkingDirectory._fields
        own = WorkingDirectory(**{name: said[name] for name in fields if name in said})
        if own != WorkingDirectory():
            found[queue] = own
    return found


def reuse_of(
    config: Config, options: Mapping[str, Any], handlers: Mapping[str, HandlerName]
) -> dict[str, tuple[int | None, float | None]]:
    """Return how many tasks a process takes, and for how long, for each queue with a callable."""
    found = {}
    for queue, name in handlers.items():
        if name.run is not None:
            said = {**config.listener, **config.queue(queue).reused, **options}
            found[queue] = said.get("reuse"), said.get("reuse_for")
    return found
