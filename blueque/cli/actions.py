"""Share what the verbs that change tasks have in common: find the tasks, change one after the other,
and print what became of each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from blueque.cli import printing
from blueque.cli.failure import MISSING, REFUSED, Failure
from blueque.cli.named_tasks import find_one
from blueque.errors import BluequeError, InvalidInput

if TYPE_CHECKING:
    from blueque.cli.options import Invocation
    from blueque.model.task import Task
    from blueque.producer.queue import Queue
    from blueque.queries.inspector import Inspector


class Outcome(NamedTuple):
    """What became of a task. status: the new one. refusal: why the task was not changed."""

    id: str
    queue: str | None
    status: str | None
    refusal: str | None = None


def choose(inspector: Inspector, words: Sequence[str]) -> tuple[list[Task], int]:
    """Return the tasks and an exit code: MISSING if one of several does not exist.

    words: ids or their beginnings; `-` reads ids from standard input. Ends the program if a
        beginning fits several tasks.
    """
    given = [word for item in words for word in (_lines() if item == "-" else [item])]
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


def _act(tasks: Sequence[Task], action: Callable[[Task], str]) -> Iterator[Outcome]:
    """Change each task and yield what became of it. If an error ends this, say how far it got."""
    done = 0
    try:
        for task in tasks:
            try:
                outcome = Outcome(task.id, task.queue, action(task))
            except InvalidInput as error:  # of this task; go on with the others
                outcome = Outcome(task.id, task.queue, None, str(error))
            done += 1
            yield outcome
    except (BluequeError, OSError, KeyboardInterrupt):
        if len(tasks) > 1:
            printing.talk(f"{done} of {len(tasks)} done, then it stopped:")
        raise


def act_on(
    tasks: Sequence[Task],
    action: Callable[[Task], str],
    as_json: bool,
    note: str = "",
    going: str | None = None,
) -> list[Outcome]:
    """Change each task, print what became of it unless `as_json`, and return all outcomes.

    note: printed behind the status. going: a status that is not printed, as it will change.
    """
    outcomes = []
    for outcome in _act(tasks, action):
        outcomes.append(outcome)
        if not as_json and (going is None or outcome.status != going):
            print_outcome(outcome, note)
    return outcomes


def finish(
    kind: str, outcomes: Sequence[Outcome], code: int, as_json: bool, **fields: object
) -> int:
    """Print the outcomes as JSON if that is wanted; else they are printed already, if any.

    Return the exit code: REFUSED if a task was refused, else `code`.
    kind, fields: of the JSON. code: from `choose`.
    """
    if as_json:
        printing.print_json(kind, **fields, items=[outcome._asdict() for outcome in outcomes])
    elif not outcomes:
        printing.talk("no tasks")
    return _code_of(outcomes, code)


def foretell(kind: str, outcomes: Sequence[Outcome], code: int, as_json: bool, would: str) -> int:
    """Print what would become of tasks, as with --dry-run; return the exit code, as `finish`."""
    if as_json:
        finish(kind, outcomes, code, as_json, dry_run=True)
    for outcome in outcomes if not as_json else ():
        print_outcome(outcome)
    able = sum(outcome.refusal is None for outcome in outcomes)
    printing.talk(f"{printing.count(able, 'task')} would be {would}.")
    return _code_of(outcomes, code)


def _code_of(outcomes: Sequence[Outcome], code: int) -> int:
    return REFUSED if any(outcome.refusal is not None for outcome in outcomes) else code


def print_outcome(outcome: Outcome, note: str = "") -> None:
    """Print what became of a task, and on standard error why it was refused."""
    if outcome.status is not None:
        state = printing.paint(outcome.status, outcome.status)
        more = f", {printing.clean(note)}" if note else ""
        click.echo(f"{printing.clean(printing.short_id(outcome.id))}  {state}{more}")
    if outcome.refusal is not None:
        printing.talk(outcome.refusal)


def act_on_waiting(
    kind: str,
    invocation: Invocation,
    words: Sequence[str],
    action: Callable[[Queue, Task], object],
    note: str,
    as_json: bool,
    is_backwards: bool = False,
    **fields: object,
) -> int:
    """Change the place of waiting tasks and print what became of each; return the exit code.

    kind, fields: of the answer as JSON. words: as for `choose`. note: what has changed, printed
        behind each id.
    """
    client = invocation.client()
    tasks, code = choose(client.get_inspector(), words)

    def change(task: Task) -> str:
        action(client.get_queue(task.queue or ""), task)
        return task.status or ""

    outcomes = act_on(tasks[::-1] if is_backwards else tasks, change, as_json, note)
    return finish(kind, outcomes, code, as_json, **fields)


def split_last(words: Sequence[str], usage: str) -> tuple[Sequence[str], str]:
    """Return the ids and the last word, which is not an id. usage: what to give."""
    if len(words) < 2:
        raise click.UsageError(f"give {usage}" + (f", not only {words[0]!r}" if words else ""))
    return words[:-1], words[-1]


def _lines() -> list[str]:
    return [
        line.strip().decode("utf-8", "surrogateescape") for line in sys.stdin.buffer if line.strip()
    ]
