"""What a command line names: queues."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from blueque.cli.failure import MISSING, Failure
from blueque.model.encoding import require_queue_name

if TYPE_CHECKING:
    from blueque.cli.options import Decorated


def queues_options(command: Decorated) -> Decorated:
    """Add the queues that are looked at, as arguments and as --queue: as the parameters `patterns`
    and `named`.
    """
    option = click.option(
        "-q", "--queue", "named", multiple=True, metavar="PATTERN", help="The same as QUEUE."
    )
    return click.argument("patterns", nargs=-1, metavar="[QUEUE...]")(option(command))


def queues_matching(queues: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the queues that match any of the patterns, all without one; every one must match at
    least one queue.
    """
    if not patterns:
        return list(queues)
    matching: set[str] = set()
    for pattern in patterns:
        require_queue_name(pattern)  # what no queue can be called is a mistake of the user's
        # A name stands for itself first: it may hold what means something else in a pattern.
        found = (
            [pattern]
            if pattern in queues
            else [queue for queue in queues if fnmatchcase(queue, pattern)]
        )
        if not found:
            raise Failure(MISSING, f"no queue {pattern!r}", "See the names: blueque status")
        matching.update(found)
    return sorted(matching)


def queues_to_be(queues: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the same, each once; a name that is no pattern may be that of a queue to come."""
    found: dict[str, None] = {}
    for pattern in patterns:
        is_name = pattern not in queues and not set("*?[") & set(pattern)
        found |= dict.fromkeys([pattern] if is_name else queues_matching(queues, [pattern]))
    return [*found]
