"""Share what pause, resume and limit have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.advice import like
from blueque.cli.named import queues_matching, queues_to_be
from blueque.cli.printing import count
from blueque.documents.orders import of_gates
from blueque.model.encoding import require_queue_name

if TYPE_CHECKING:
    from blueque.queries.inspector import Inspector

queues_argument = click.argument("patterns", nargs=-1, required=True, metavar="QUEUE...")


def queues_there(inspector: Inspector, patterns: Sequence[str]) -> list[str]:
    """Return the queues that match. A name may be of a queue without tasks that has settings."""
    settings = inspector.settings(patterns)
    ahead = [name for name in patterns if settings[name]]
    return queues_matching([*inspector.queues(), *ahead], patterns)


def queues_there_or_new(inspector: Inspector, patterns: Sequence[str]) -> list[str]:
    """Return the queues that match, and say which of them do not exist yet."""
    known = inspector.queues()
    names = queues_to_be(known, patterns)
    for name in names:
        if require_queue_name(name) not in known:
            meant = like(name, known)
            printing.talk(f"queue {name} has no task and no listener yet{meant and f'.{meant}'}")
    return names


def warn_of_1_0_0(inspector: Inspector, names: Sequence[str]) -> None:
    """Say which queues have listeners of 1.0.0, which know no pause and no limit."""
    for name in dict.fromkeys(names):
        deaf = sum(node.queue == name and node.state == "1.0.0" for node in inspector.nodes())
        if deaf:
            ignore = "ignores" if deaf == 1 else "ignore"
            printing.talk(f"{count(deaf, 'listener')} of 1.0.0 on {name} {ignore} this.")


def print_control(kind: str, inspector: Inspector, names: Sequence[str]) -> None:
    """Print, as JSON, whether the queues are paused and limited."""
    printing.print_json(kind, **of_gates(inspector, names))
