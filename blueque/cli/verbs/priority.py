"""`blueque priority`, `first` and `move`: when, and in which queue, waiting tasks have their turn."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.actions import act, choose, code_of, print_outcome, print_outcomes
from blueque.cli.options import Invocation, json_option, pass_invocation, shared_options
from blueque.model.lines import HIGHEST, LOWEST

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.producer.queue import Queue


@click.command(
    context_settings={"ignore_unknown_options": True}  # a negative number is none
)
@click.argument("words", nargs=-1, metavar="ID...|- N")
@json_option
@shared_options
@pass_invocation
def priority(invocation: Invocation, words: Sequence[str], as_json: bool) -> int:
    """Change the priority of waiting tasks. Higher ones go first; the default is 0.

    \b
    blueque priority 7c1f 10
    blueque ls -q video.encode --state pending --ids | blueque priority - -5

    N is -100 to 100. Among those of that priority each is the last for now; listeners of 1.0.0 take only what has the
    priority 0. ID may be a beginning, as for show; - reads ids from standard input. The exit code is 5 for a task that
    does not wait.
    """
    *ids, text = _two(words, "ID and N: which task is to have what priority")
    if not re.fullmatch(r"[-+]?[0-9]{1,3}", text) or not LOWEST <= int(text) <= HIGHEST:
        raise click.UsageError(
            f"{text!r} is no priority: N is a whole number, {LOWEST} to {HIGHEST}"
        )
    number = int(text)
    return _act(
        "priority",
        invocation,
        ids,
        as_json,
        f"priority {number}",
        lambda queue, task: queue.set_priority(task.id, number),
        priority=number,
    )


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID... | -")
@json_option
@shared_options
@pass_invocation
def first(invocation: Invocation, ids: Sequence[str], as_json: bool) -> int:
    """Have pending tasks be the next of those of their priority and with their needs.

    \b
    blueque first 7c1f

    Of several, the one that is named first is the next. ID may be a beginning, as for show; - reads ids from standard
    input. The exit code is 5 for a task that is not pending: one that is scheduled, which priority and move take, has no
    place in line before its time.
    """
    return _act(
        "first",
        invocation,
        ids,
        as_json,
        "first in its line",
        lambda queue, task: queue.put_first(task.id),
        is_backwards=True,
    )


@click.command()
@click.argument("words", nargs=-1, metavar="ID...|- QUEUE")
@json_option
@shared_options
@pass_invocation
def move(invocation: Invocation, words: Sequence[str], as_json: bool) -> int:
    """Have waiting tasks wait in another queue, as the last of their line there.

    \b
    blueque move 7c1f video.fast

    They keep their priority, what they need, and their time, if they are scheduled. ID may be a beginning, as for show; -
    reads ids from standard input. The exit code is 5 for a task that does not wait.
    """
    *ids, to = _two(words, "ID and QUEUE: which task is to go where")
    client = invocation.client()
    client.get_queue(to)  # is it a name at all?
    is_new = to not in client.get_inspector().queues()
    moved = []

    def one(queue: Queue, task: Task) -> None:
        queue.move(task.id, to)
        moved.append(task)

    code = _act("move", invocation, ids, as_json, f"in {to}", one, queue=to)
    if is_new and moved:
        printing.talk(f"{to} is a new queue: nobody serves it yet.")
    return code


def _two(words: Sequence[str], what: str) -> Sequence[str]:
    """Return the words, of which the last is not an id; end the program when there are not two."""
    if len(words) < 2:
        raise click.UsageError(f"give {what}" + (f"; there is only {words[0]!r}" if words else ""))
    return words


def _act(
    kind: str,
    invocation: Invocation,
    ids: Sequence[str],
    as_json: bool,
    note: str,
    action: Callable[[Queue, Task], object],
    is_backwards: bool = False,
    **more: object,
) -> int:
    """Do it to each of the tasks that are meant, and say what became of them; return the exit code."""
    client = invocation.client()
    tasks, code = choose(client.get_inspector(), ids)

    def one(task: Task) -> str:
        action(client.get_queue(task.queue or ""), task)
        return task.status or ""

    outcomes = []
    for outcome in act(tasks[::-1] if is_backwards else tasks, one):
        outcomes.append(outcome)
        if not as_json and outcome.status is not None:
            state = printing.paint(outcome.status, outcome.status)
            click.echo(
                f"{printing.clean(printing.short_id(outcome.id))}  {state}, {printing.clean(note)}"
            )
        elif not as_json:
            print_outcome(outcome)
    if as_json:
        print_outcomes(kind, outcomes, **more)
    elif not outcomes:
        printing.talk("no such tasks")
    return code_of(outcomes, code)
