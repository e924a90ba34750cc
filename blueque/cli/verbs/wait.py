"""`blueque wait`: wait until tasks have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.actions import choose
from blueque.cli.facts import value_of
from blueque.cli.failure import NOT_COMPLETE, TIMED_OUT
from blueque.cli.options import DURATION, Invocation, json_option, pass_invocation, shared_options
from blueque.cli.task_columns import name_of
from blueque.cli.verbs.show import as_item
from blueque.cli.why_blocked import how_it_ended
from blueque.errors import WaitTimedOut
from blueque.model.group import group_of
from blueque.queries.task_ends import Watcher, ends

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.inspector import Inspector

MOST = 1000  # blocked tasks whose conditions are read at a time
MOST_NAMED = 3  # that get a line each


@click.command()
@click.argument("prefixes", nargs=-1, required=True, metavar="ID... | -")
@click.option(
    "--timeout", type=DURATION, metavar="DURATION", help="Wait at most so long: 90, 30s, 2h."
)
@click.option(
    "--any", "is_any", is_flag=True, help="Wait until one has ended; default: until all have."
)
@json_option
@shared_options
@pass_invocation
def wait(
    invocation: Invocation,
    prefixes: Sequence[str],
    timeout: float | None,
    is_any: bool,
    as_json: bool,
) -> int:
    """Wait until tasks have ended, and say how.

    \b
    blueque wait 7c1f --timeout 2h && blueque enqueue mail.send '"it is done"'
    blueque ls --ids | blueque wait -

    A task that failed and will be retried has not ended. If a blocked task cannot go on, as another task for which it
    waits has failed, standard error says so once. A task that was cancelled because of another one has ended, but comes
    back if that one completes after all; standard error says so. ID may be the beginning of an id; - reads ids from standard
    input. How each task ended is printed on standard error.

    The exit code is 0 if all are complete, 4 if one failed, was cancelled or lost, 124 if the timeout came first, and 3 if
    a task does not exist. Ctrl-C ends only the waiting.
    """
    client = invocation.client()
    inspector = client.get_inspector()
    tasks, code = choose(inspector, prefixes)
    if code:
        return code
    waiting, ended = {task.id: task for task in tasks}, []
    try:
        watcher = Watcher(client.connections.connect, waiting)
        held = _Held(inspector)
        for task in ends(watcher, client.patience, timeout, held.tell):
            del waiting[task.id]
            ended.append(task)
            tell_ending(task)
            if is_any:
                break
    except WaitTimedOut as error:
        printing.talk(str(error))
        code = TIMED_OUT
    except KeyboardInterrupt:
        printing.talk(detached(list(waiting)))
        raise
    if as_json:
        _print_json(inspector, ended, [*waiting], code == TIMED_OUT)
    return code or (NOT_COMPLETE if any(task.status != "complete" for task in ended) else 0)


class _Held:
    """Says once of each blocked task which tasks hold it up."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self._told: set[str] = set()

    def tell(self, ids: Sequence[str]) -> None:
        """Say of those that were not told of, which tasks hold them."""
        found = self._inspector.broken([task for task in ids if task not in self._told][:MOST])
        self._told |= found.keys()
        for task_id, parents in [*found.items()][:MOST_NAMED]:
            parent = parents[0]
            name = printing.short_id(parent.id)
            more = f", and {len(parents) - 1} more did not end well" if parents[1:] else ""
            printing.talk(
                f"{printing.short_id(task_id)} is held by {name}, which "
                f"{how_it_ended(parent)}{more}. See: blueque why {printing.short_id(task_id)}"
            )
        if len(found) > MOST_NAMED:
            printing.talk(f"{len(found) - MOST_NAMED} more of these tasks are held.")


def _print_json(
    inspector: Inspector, ended: Sequence[Task], waiting: Sequence[str], is_timed_out: bool
) -> None:
    now = inspector.now()
    items = [
        as_item(task, now) | {"error": task.error, "result": value_of(task, "result")}
        for task in ended
    ]
    printing.print_json(
        "wait",
        **printing.times(now=now),
        timed_out=is_timed_out,
        items=items,
        waiting=[as_item(task, now) for task in inspector.tasks([*waiting])],
    )


def tell_ending(task: Task) -> None:
    """Print how a task has ended; an error of several lines is indented."""
    first, *others = _ending(task).split("\n")
    printing.talk(first)
    for line in others:
        printing.talk(f"  {line}".rstrip())


def _ending(task: Task) -> str:
    began, ended = task.started, task.finished
    after = "" if began is None or ended is None else f" after {printing.span(ended - began)}"
    why = task.error if task.status == "failed" else None
    if (
        task.status == "failed"
        and task.error_type
        and not (why or "").startswith(task.error_type.rpartition(".")[2])
    ):
        why = f"{task.error_type}: {why}" if why else task.error_type
    if task.status == "cancelled" and task.broken_by is not None:
        after = f" because of {name_of(task.broken_by)}"
    elif task.status == "cancelled":
        why = f"by {task.cancelled_by or 'unknown'}{f', {task.cancel_reason}' if task.cancel_reason else ''}"
    text = f"{printing.short_id(task.id)} {task.status}{after}{f': {why}' if why else ''}"
    if task.status == "cancelled" and task.broken_by is not None:
        text += f"\n{_may_come_back(task)}"
    return text


def _may_come_back(task: Task) -> str:
    what = "that task" if group_of(task.broken_by or "") is None else "that group"
    return f"It runs if {what} completes after all. See: blueque why {printing.short_id(task.id)}"


def detached(ids: Sequence[str]) -> str:
    """Return the remark after Ctrl-C."""
    one, *others = map(printing.short_id, ids)
    if others:
        return f"No longer waiting; {len(ids)} tasks go on, such as {one}: blueque show ID"
    return f"No longer waiting; the task goes on: blueque logs -f {one}; to end it: blueque cancel {one}"
