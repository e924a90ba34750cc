"""What a command line names: queues."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from blueque.cli.failure import MISSING, Failure

if TYPE_CHECKING:
    from blueque.cli.options import Decorated
    from blueque.inspector import Inspector


def queues_options(command: Decorated) -> Decorated:
    """Add the queues that are looked at, as arguments and as --queue: as the parameters `patterns` and `named`."""
    option = click.option("-q", "--queue", "named", multiple=True, metavar="PATTERN", help="The same as QUEUE.")
    return click.argument("patterns", nargs=-1, metavar="[QUEUE...]")(option(command))


def queues_named(inspector: Inspector, names: Sequence[str]) -> list[str]:
    """Return these queues, each once, or all if none is named; end the program when there is no such queue."""
    known = inspector.queues()
    for name in names:
        if name not in known:
            raise Failure(MISSING, f"no queue {name!r}", "See the names: blueque status")
    return list(dict.fromkeys(names)) or known


def queues_matching(queues: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the queues that match any of the patterns, all without one; every one must match at least one queue."""
    if not patterns:
        return list(queues)
    matching: set[str] = set()
    for pattern in patterns:
        # A name stands for itself first: it may hold what means something else in a pattern.
        found = [pattern] if pattern in queues else [queue for queue in queues if fnmatchcase(queue, pattern)]
        if not found:
            raise Failure(MISSING, f"no queue {pattern!r}", "See the names: blueque status")
        matching.update(found)
    return sorted(matching)
