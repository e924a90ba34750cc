"""Find the queues and groups that a command line names."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from blueque.cli.advice import like
from blueque.cli.failure import MISSING, Failure
from blueque.cli.options import Invocation
from blueque.cli.values import DAYS
from blueque.model.encoding import require_queue_name

if TYPE_CHECKING:
    from blueque.cli.options import Decorated
    from blueque.queries.inspector import Inspector


def queues_options(command: Decorated) -> Decorated:
    """Add queues as arguments and as --queue, as the parameters `patterns` and `named`."""
    option = click.option(
        "-q", "--queue", "named", multiple=True, metavar="PATTERN", help="The same as QUEUE."
    )
    return click.argument("patterns", nargs=-1, metavar="[QUEUE...]")(option(command))


days_option = click.option(
    "--since",
    "days",
    type=DAYS,
    default="7d",
    show_default=True,
    metavar="DAYS",
    help="Number of days, including today.",
)


pattern_option = click.option(
    "-q",
    "--queue",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Only these queues: a name, or a pattern such as 'render.*'.",
)


def queue_named(name: str) -> str:
    """Return the name of a queue for a name or an alias of blueque.toml. Raises InvalidInput."""
    invocation = click.get_current_context().ensure_object(Invocation)
    return invocation.config.aliases.get(require_queue_name(name), name)


def queues_matching(queues: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the queues that match any of the patterns; without patterns, all.

    Ends the program if a pattern matches no queue.
    """
    if not patterns:
        return list(queues)
    matching: set[str] = set()
    for pattern in map(queue_named, patterns):
        # First as a name: a name may hold characters that have a meaning in patterns.
        found = (
            [pattern]
            if pattern in queues
            else [queue for queue in queues if fnmatchcase(queue, pattern)]
        )
        if not found:
            meant = like(pattern, queues)
            raise Failure(
                MISSING,
                f"no queue {pattern!r}{meant and f'.{meant}'}",
                "See the names: blueque status",
            )
        matching.update(found)
    return sorted(matching)


def queues_to_be(queues: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the queues that match, each once. A name without * ? [ may be of a future queue."""
    found: dict[str, None] = {}
    for pattern in map(queue_named, patterns):
        is_name = pattern not in queues and not set("*?[") & set(pattern)
        found |= dict.fromkeys([pattern] if is_name else queues_matching(queues, [pattern]))
    return [*found]


def no_group(inspector: Inspector, name: str) -> Failure:
    """Return the failure for a missing group, with a similar name."""
    meant = like(name, inspector.group_names())
    return Failure(
        MISSING, f"no group {name!r}{meant and f'.{meant}'}", "See them: blueque group ls"
    )


def require_groups(inspector: Inspector, names: Sequence[str]) -> None:
    """End the program if one of these groups does not exist."""
    for name in names:
        if not inspector.has_group(name):
            raise no_group(inspector, name)
