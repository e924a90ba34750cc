"""What a command line names: queues."""

from __future__ import annotations

from collections.abc import Sequence

from blueque.cli.failure import MISSING, Failure
from blueque.inspector import Inspector


def queues_named(inspector: Inspector, names: Sequence[str]) -> list[str]:
    """Return these queues, each once, or all if none is named; end the program when there is no such queue."""
    known = inspector.queues()
    for name in names:
        if name not in known:
            raise Failure(MISSING, f"no queue {name!r}", "See the names: blueque status")
    return list(dict.fromkeys(names)) or known
