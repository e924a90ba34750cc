"""The options --after, --after-any, --after-not-ok, --broken and --results: what a task waits for;
and --group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import click

from blueque.cli.failure import USAGE, Failure
from blueque.cli.named_tasks import find_one
from blueque.cli.options import together
from blueque.model.conditions import after, conditions_of
from blueque.model.encoding import FLUSH
from blueque.model.group import Group, group_of
from blueque.queries.tasks import first_missing

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.queries.inspector import Inspector


def _ids_option(name: str, help: str) -> Any:
    return click.option(name, multiple=True, metavar="ID", help=help)


# As parameters for `waits`.
wait_options = together(
    _ids_option("--after", "Wait until this task is complete."),
    _ids_option("--after-any", "Wait until this task has ended in any way."),
    _ids_option("--after-not-ok", "Wait until this task has failed or was cancelled."),
    click.option(
        "--broken",
        type=click.Choice(["hold", "cancel"]),
        default="hold",
        help="If its conditions can no longer be met: hold it (default), or cancel it.",
    ),
    click.option(
        "--results", is_flag=True, help="Pass it the results of the tasks that it waits for."
    ),
    click.option(
        "--group", metavar="NAME", help="Add the task to this group, which is created if it is new."
    ),
)


def waits(inspector: Inspector, options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `Queue.enqueue` with `after` in the place of the options.

    Ends the program if a task does not exist, or the beginning of an id fits several.
    """
    ok, any_, not_ok = (
        _found(inspector, options.pop(name)) for name in ("after", "after_any", "after_not_ok")
    )
    if parents := [*ok, *any_, *not_ok]:
        if options["results"] and all(isinstance(parent, Group) for parent in parents):
            raise click.UsageError("--results needs a task to wait for: a group has no result")
        return {**options, "after": after(ok=ok, any=any_, not_ok=not_ok)}
    for name, default in (("broken", "hold"), ("results", False)):
        if options.pop(name) != default:
            raise click.UsageError(f"--{name} needs --after, --after-any or --after-not-ok")
    return options


def open_group(client: Client, options: Mapping[str, Any]) -> None:
    """Open the group that new tasks join, if any.

    It is not opened if a task or a group to wait for is missing: no task is made then. options: as
    `waits` returns them.
    """
    group, waited = options.get("group"), [*conditions_of(options.get("after"))]
    if group is not None and first_missing(client.connections, waited) is None:
        client.group(group).open()


def proved(values: Iterator[Any], group: str) -> Iterator[Any]:
    """Return the parameters of new tasks, once the first of them is valid: only then is their group
    opened.

    Ends the program if there are none.
    """
    first = [*islice((value for value in values if value is not FLUSH), 1)]
    if not first:
        message = "the input has no rows, so nothing was enqueued"
        raise Failure(USAGE, f"{message} and group {group} was not opened")
    return chain(first, values)


def _found(inspector: Inspector, words: Sequence[str]) -> list[str | Group]:
    groups = [group_of(word) for word in words]
    return [
        find_one(inspector, word) if group is None else Group(group)
        for word, group in zip(words, groups, strict=True)
    ]
