"""Print which tasks hold up those that the program waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from blueque.cli import printing
from blueque.sentences.why_blocked import how_it_ended

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.inspector import Inspector

MOST = 1000  # blocked tasks whose conditions are read at a time
MOST_NAMED = 3  # that get a line each


class Held:
    """Prints once for each blocked task which tasks hold it up."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self._told: set[str] = set()

    def tell(self, ids: Sequence[str]) -> None:
        """Print which tasks hold up those that were not mentioned yet."""
        self._tell(self._inspector.broken([task for task in ids if task not in self._told][:MOST]))

    def tell_in(self, queues: Sequence[str]) -> None:
        """Do the same with the blocked tasks of these queues."""
        broken = self._inspector.broken_in(queues)
        self._tell({task: found for task, found in broken.items() if task not in self._told})

    def _tell(self, found: Mapping[str, Sequence[Task]]) -> None:
        self._told |= found.keys()
        for task_id, parents in [*found.items()][:MOST_NAMED]:
            parent = parents[0]
            name = printing.short_id(parent.id)
            more = f", and {len(parents) - 1} more did not complete" if parents[1:] else ""
            printing.talk(
                f"{printing.short_id(task_id)} is held by {name}, which "
                f"{how_it_ended(parent)}{more}. See: blueque why {printing.short_id(task_id)}"
            )
        if len(found) > MOST_NAMED:
            printing.talk(f"{len(found) - MOST_NAMED:,} more of these tasks are held.")
