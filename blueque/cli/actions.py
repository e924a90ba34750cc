"""What the verbs that act on tasks share: which tasks are meant, one after the other, and what
became of each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from blueque.cli import printing
from blueque.cli.failure import MISSING, REFUSED, Failure
from blueque.cli.verbs.show import find_one
from blueque.errors import BluequeError, InvalidInput

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.inspector import Inspector


class Outcome(NamedTuple):
    """What became of a task: its status now, and why it is not as was wanted, if so."""

    id: str
    queue: str | None
    status: str | None
    refusal: str | None = None


def choose(inspector: Inspector, words: Sequence[str]) -> tuple[list[Task], int]:
    """Return the tasks that are meant, and an exit code: MISSING when one of several is not there.

    words: ids or their beginnings; `-` stands for those on standard input. Ends the program, before
    anything is done, when a beginning fits several.
    """
    given = [word for one in words for word in (_lines() if one == "-" else [one])]
    found: dict[str, None] = {}
    code = 0
    for word in given:
        try:
            found[find_one(inspector, word)] = None
        except Failure as failure:
            if failure.exit_code != MISSING or len(given) == 1:
                raise
            printing.talk(failure.message)
            code = MISSING
    return inspector.tasks(list(found)), code


def act(tasks: Sequence[Task], action: Callable[[Task], str]) -> Iterator[Outcome]:
    """Do it to each and yield what became of it; when something ends that before its time, say how
    far it got.
    """
    done = 0
    try:
        for task in tasks:
            try:
                outcome = Outcome(task.id, task.queue, action(task))
            except InvalidInput as error:  # this one cannot be; others may
                outcome = Outcome(task.id, task.queue, None, str(error))
            done += 1
            yield outcome
    except (BluequeError, OSError, KeyboardInterrupt):
        if len(tasks) > 1:
            printing.talk(f"{done} of {len(tasks)} done, then it stopped:")
        raise


def act_on(tasks: Sequence[Task], action: Callable[[Task], str], as_json: bool) -> list[Outcome]:
    """Do it to each, print at once what became of it unless it is to be JSON, and return all of it."""
    outcomes = []
    for outcome in act(tasks, action):
        outcomes.append(outcome)
        if not as_json:
            print_outcome(outcome)
    return outcomes


def print_outcome(outcome: Outcome) -> None:
    """Print what became of a task, and on standard error why it did not become what was wanted."""
    if outcome.status is not None:
        click.echo(
            f"{printing.clean(printing.short_id(outcome.id))}  {printing.paint(outcome.status, outcome.status)}"
        )
    if outcome.refusal is not None:
        printing.talk(outcome.refusal)


def print_outcomes(kind: str, outcomes: Sequence[Outcome], **more: Any) -> None:
    """Print what became of all, as JSON."""
    printing.print_json(kind, **more, items=[outcome._asdict() for outcome in outcomes])


def code_of(outcomes: Sequence[Outcome], code: int) -> int:
    """Return the exit code: REFUSED when one could not be done, else the code from `choose`."""
    return REFUSED if any(outcome.refusal is not None for outcome in outcomes) else code


def _lines() -> list[str]:
    return [
        line.strip().decode("utf-8", "surrogateescape") for line in sys.stdin.buffer if line.strip()
    ]
