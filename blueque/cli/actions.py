"""Give an order to tasks: find them, ask, change one after another, and print the results."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from blueque.cli import printing
from blueque.cli.consent import require_consent
from blueque.cli.failure import MISSING, REFUSED, Failure
from blueque.cli.named_tasks import find_one
from blueque.cli.printing import Column, count, text_columns
from blueque.cli.selection import require_one_way, selected
from blueque.errors import BluequeError, InvalidInput
from blueque.model.states import FINISHED
from blueque.sentences import consent
from blueque.text.eta import readable

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.faces.orders import Given, Order
    from blueque.model.task import Task
    from blueque.queries.inspector import Inspector
    from blueque.queries.selection import Selection

SHOWN = 20  # running tasks that are shown before it asks
_RUNNING = [
    *text_columns("TASK", "QUEUE", "NODE"),
    Column("RUNNING", True),
    Column("PROGRESS", can_shrink=True),
]
_PLACES = [Column("QUEUE", can_shrink=True), Column("STATE"), Column("TASKS", True)]


class Outcome(NamedTuple):
    """The result for a task. status: the new one. refusal: why the task was not changed."""

    id: str
    queue: str | None
    status: str | None
    refusal: str | None = None


class Chosen(NamedTuple):
    """The tasks that a command line names. code: an exit code, if not all could be found.

    is_selection: options have selected them. are_from_stdin: their ids.
    """

    tasks: Sequence[Task]
    code: int
    is_selection: bool = False
    are_from_stdin: bool = False


class Manner(NamedTuple):
    """How an order is given. is_sure: without a question. only_foretell: nothing is changed."""

    is_sure: bool = False
    as_json: bool = False
    only_foretell: bool = False


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


def named(inspector: Inspector, words: Sequence[str]) -> Chosen:
    """Return the tasks that ids name, as `choose`."""
    tasks, code = choose(inspector, words)
    return Chosen(tasks, code, are_from_stdin="-" in words)


def named_or_selected(
    inspector: Inspector,
    words: Sequence[str],
    patterns: Sequence[str],
    states: Sequence[str],
    selection: Selection,
    usual: Sequence[str],
) -> Chosen:
    """Return the tasks that ids name, or that options select, first ended first.

    usual: the states without --state. Ends the program if there are both ids and options, or neither.
    """
    if not require_one_way(words, patterns, states, selection):
        return named(inspector, words)
    have_ended = {*usual} <= {*FINISHED}
    tasks, code = selected(inspector, patterns, states or usual, selection, have_ended)
    return Chosen(tasks, code, is_selection=True)


def give(
    client: Client,
    order: Order,
    chosen: Chosen,
    given: Given,
    manner: Manner,
    act: Callable[[Sequence[Task], Callable[[Task], str]], list[Outcome]] | None = None,
) -> tuple[list[Outcome], int]:
    """Ask if needed, give the order to each task, and print the results.

    Return the outcomes and the exit code: REFUSED if a task was refused, else that of `chosen`.
    act: gives the order and prints; None: `act_on`.
    """
    tasks = order.loaded(client, chosen.tasks)
    refusals = order.refusals(client, tasks, given)
    able = [task for task in tasks if task.id not in refusals]
    if manner.only_foretell:
        outcomes = [
            Outcome(task.id, task.queue, task.status, refusals.get(task.id)) for task in tasks
        ]
        return outcomes, _foretell(client, order, able, outcomes, chosen.code, manner.as_json)
    _ask(client, order, chosen, able, manner.is_sure)

    def change(task: Task) -> str:
        allowed = given
        if not manner.is_sure and task.status != "started":  # no person has agreed to end it
            allowed = given._replace(states={*given.states} - {"started"})
        return order.do(client, task, allowed)

    if act is None:
        act = functools.partial(act_on, as_json=manner.as_json, note=order.remark(given))
    outcomes = act(tasks, change)
    fields = {"dry_run": False} if order.selects else {}
    return outcomes, finish(order.kind, outcomes, chosen.code, manner.as_json, **fields)


def _ask(client: Client, order: Order, chosen: Chosen, able: Sequence[Task], is_sure: bool) -> None:
    is_to_ask = order.asks_about(able) or (chosen.is_selection and order.is_grave)
    if able and is_to_ask and not is_sure:
        question = f"{order.word} {count(len(able), 'task')}?"
        number = len(able) if order.is_grave else None
        facts, details = order.ask(client, able), _details(client, order, chosen, able)
        require_consent(False, facts, question, details, number, chosen.are_from_stdin)


def _details(client: Client, order: Order, chosen: Chosen, tasks: Sequence[Task]) -> list[str]:
    """Return the lines before a question: the running tasks, and where the others are."""
    lines = []
    if running := [task for task in order.asks_about(tasks) if task.status == "started"]:
        now = client.get_inspector().now()
        lines = printing.table(_RUNNING, [_running(task, now) for task in running[:SHOWN]])
        lines += [f"and {len(running) - SHOWN:,} more"] if running[SHOWN:] else []
    places = Counter((task.queue or "-", task.status or "-") for task in tasks)
    if len(places) > 1 or chosen.is_selection:
        rows = [[queue, status, str(number)] for (queue, status), number in places.items()]
        lines += printing.table(_PLACES, rows)
    return lines


def _running(task: Task, now: float) -> list[str]:
    return [
        printing.short_id(task.id),
        task.queue or "-",
        printing.short_node(task.node or "-"),
        printing.span(None if task.started is None else now - task.started),
        readable(task.fields.get("progress", "-")),
    ]


def act_on(
    tasks: Sequence[Task],
    action: Callable[[Task], str],
    as_json: bool,
    note: str = "",
    going: str | None = None,
) -> list[Outcome]:
    """Change each task, print the results unless `as_json`, and return all outcomes.

    note: printed after the status. going: a status that is not printed, because it will change.
    """
    outcomes = []
    for outcome in _act(tasks, action):
        outcomes.append(outcome)
        if not as_json and (going is None or outcome.status != going):
            print_outcome(outcome, note)
    return outcomes


def _act(tasks: Sequence[Task], action: Callable[[Task], str]) -> Iterator[Outcome]:
    """Change each task and yield the result. If an error ends this, print how far it got."""
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
            printing.talk(f"{done:,} of {len(tasks):,} done, then it stopped:")
        raise


def finish(
    kind: str, outcomes: Sequence[Outcome], code: int, as_json: bool, **fields: object
) -> int:
    """Print the outcomes as JSON if wanted; otherwise they are printed already.

    Return the exit code: REFUSED if a task was refused, else `code`.
    kind, fields: of the JSON.
    """
    if as_json:
        printing.print_json(kind, **fields, items=[outcome._asdict() for outcome in outcomes])
    elif not outcomes:
        printing.talk("no tasks")
    return REFUSED if any(outcome.refusal is not None for outcome in outcomes) else code


def _foretell(
    client: Client,
    order: Order,
    able: Sequence[Task],
    outcomes: Sequence[Outcome],
    code: int,
    as_json: bool,
) -> int:
    """Print what would happen to tasks, and return the exit code, as `finish`."""
    for outcome in outcomes if not as_json else ():
        print_outcome(outcome)
    code = finish(order.kind, outcomes, code, as_json, dry_run=True)
    if able:
        printing.talk(consent.sentence(order.ask(client, able)))
    elif outcomes:
        printing.talk("Nothing would be done.")
    return code


def print_outcome(outcome: Outcome, note: str = "") -> None:
    """Print the result for a task, and on standard error why it was refused."""
    if outcome.status is not None:
        state = printing.paint(outcome.status, outcome.status)
        more = f", {printing.clean(note)}" if note else ""
        click.echo(f"{printing.clean(printing.short_id(outcome.id))}  {state}{more}")
    if outcome.refusal is not None:
        printing.talk(outcome.refusal)


def _lines() -> list[str]:
    return [
        line.strip().decode("utf-8", "surrogateescape") for line in sys.stdin.buffer if line.strip()
    ]
