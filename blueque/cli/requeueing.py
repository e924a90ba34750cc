"""Print what a requeue cannot do, and what the tasks then wait for: for tasks, and for a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blueque.cli import printing
from blueque.model.conditions import DROPPED
from blueque.sentences import consent
from blueque.sentences.reason import MOST_NAMES

if TYPE_CHECKING:
    from blueque.cli.actions import Outcome
    from blueque.model.task import Task
    from blueque.queries.inspector import Inspector


def say_what_is_gone(name: str, gone: int) -> None:
    """Say how many failed or cancelled tasks of a group were archived or deleted, if any were."""
    if gone:
        printing.talk(consent.cannot_run_again(gone, name))


def say_what_they_wait_for(
    inspector: Inspector, tasks: Sequence[Task], outcomes: Sequence[Outcome]
) -> None:
    """Print what has changed for tasks that wait for others; only for the first ones."""
    done = {outcome.id: outcome.status for outcome in outcomes if outcome.refusal is None}
    told = [task for task in tasks if task.id in done and task.after is not None]
    for task in told[:MOST_NAMES]:
        name, conditions = printing.short_id(task.id), inspector.dependencies(task).conditions
        unmet = [each.task for each in conditions if not each.is_met]
        dropped = [each.task for each in conditions if each.kind == DROPPED]
        if done[task.id] == "blocked" and unmet:
            first, more = printing.short_id(unmet[0].id), len(unmet) - 1
            names = f"{first} and {more} more" if more else first
            printing.talk(f"{name} waits for {names}. See: blueque why {name}")
        if task.fields.get("broken") == "cancel" and done[task.id] == "blocked":
            printing.talk(f"If that fails, {name} stays blocked: it is not cancelled again.")
        for each in dropped[:MOST_NAMES]:
            is_gone = each.status is None
            why = "is gone" if is_gone else f"is {each.status}"
            printing.talk(f"{name} no longer waits for {printing.short_id(each.id)}, which {why}.")
    if len(told) > MOST_NAMES:
        printing.talk(f"{len(told) - MOST_NAMES:,} more of these tasks waited for others.")
